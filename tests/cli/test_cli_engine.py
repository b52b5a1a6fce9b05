"""Choosing an engine on the command line, without a cluster; tests/beside/ray has one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.golden import check_texts

from registry.cli.engine import read_environment
from registry.cli.main import COMMANDS, cli
from registry.cli.pin import checking, making

GOLDEN = Path(__file__).with_name("golden")


Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


ENVIRONMENT_HINT = (
    'Write JSON, e.g. --runtime-env \'{"py_modules": ["./my_package"]}\', or the path of a .json or .yaml file.'
)


def test_a_malformed_runtime_environment_is_a_usage_error(
    empty: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {"list.json": b"[]", "cut.json": b'{"pip": ', "binary.yaml": b"\xff", "wrong.yml": b"@"}
    for name, content in (files | {"numbers.yaml": b"1: pip"}).items():
        (tmp_path / name).write_bytes(content)
    answers = []
    for text in ('{"pip": ', "my_package", "missing.json", *files, "numbers.yaml"):
        ran = empty("build", "digits", "--engine", "ray", "--runtime-env", text, "--format", "json")
        assert (ran.code, ran.error()["code"], ran.error()["hint"]) == (2, "usage", ENVIRONMENT_HINT)
        answers.append(f"{ran.error()['message']}\n")
    check_texts(GOLDEN / "runtime_environments.txt", answers)


def test_a_runtime_environment_is_json_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("py_modules: [./my_package]\nenv_vars:\n  A: b\n")
    (tmp_path / "one.json").write_text('{"py_modules": ["./my_package"], "env_vars": {"A": "b"}}')
    wanted = {"py_modules": ["./my_package"], "env_vars": {"A": "b"}}
    assert read_environment(str(tmp_path / "one.yaml")) == wanted
    assert read_environment(str(tmp_path / "one.json")) == wanted
    assert read_environment(' {"py_modules": ["./my_package"], "env_vars": {"A": "b"}}') == wanted


def test_a_variable_names_the_engine_and_an_option_wins(empty: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_ENGINE", "spark")
    assert empty("build", "digits").err.startswith("error: unknown engine 'spark'")
    assert empty("build", "digits", "--engine", "local").code == 0
    assert empty("list").code == 0  # lists nothing on a cluster


def test_without_ray_the_error_names_the_extra(empty: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    ran = empty("build", "digits", "--engine", "ray")
    assert ran.err == (
        "error: work on a Ray cluster needs the package 'ray', which is not installed\n"
        "hint: Install it with: pip install 'shardbook[ray]'\n"
    )


def test_commands_whose_work_a_cluster_can_do_have_the_options() -> None:
    context = cli.make_context("registry", ["--help"], resilient_parsing=True)
    found = [cli.get_command(context, name) for name in ("build", "add", "publish", "verify", "copy")]
    imports = cli.get_command(context, "import")
    found += [imports.get_command(context, name) for name in imports.list_commands(context)]
    found += [making.create, checking.verify]
    assert len(found) >= 10
    assert "import" in COMMANDS
    for one in found:
        options = {name for parameter in one.params for name in parameter.opts}
        settings = {"--address", "--runtime-env", "--task-memory", "--object-store-memory"}
        assert {"--engine", *settings} <= options, one.name
