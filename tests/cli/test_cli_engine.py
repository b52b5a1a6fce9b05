"""Choosing an engine on the command line, without a cluster; tests/ray has one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from registry.cli.main import COMMANDS, cli
from registry.cli.pin import checking, making

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (["--engine", "rai"], "there is no engine 'rai'", "Did you mean 'ray'? There are: local, ray."),
        (
            ["--address", "10.0.0.1:6379"],
            "an address belongs to the engine ray",
            "Use use_engine('ray', address=...) in Python, --engine ray on the command line.",
        ),
    ],
)
def test_a_wrong_engine_is_a_usage_error(empty: Cli, options: list[str], message: str, hint: str) -> None:
    ran = empty("verify", "digits", *options, "--format", "json")
    assert ran.code == 2
    assert (ran.error()["code"], ran.error()["message"], ran.error()["hint"]) == ("usage", message, hint)


def test_a_variable_names_the_engine_and_an_option_wins(empty: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_ENGINE", "spark")
    assert empty("build", "digits").err.startswith("error: there is no engine 'spark'")
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
        assert {"--engine", "--address"} <= options, one.name
