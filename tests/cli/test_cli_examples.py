"""The examples of every help page can be copied: each line is a command line that parses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from support.cli_lines import parse_line

from registry import errors
from registry.cli.commands import _spell_option
from registry.cli.main import cli
from registry.errors import hints_spelled_by, spell


def walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command below ``command`` that does something, by its path."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    ctx = click.Context(command)
    for name in command.list_commands(ctx):
        child = command.get_command(ctx, name)
        assert child is not None
        yield from walk(child, f"{path} {name}")


COMMANDS = dict(walk(cli, "registry"))


def examples_of(command: click.Command) -> list[str]:
    lines = (command.epilog or "").splitlines()
    return [line.strip() for line in lines[lines.index("Examples:") + 1 :]] if "Examples:" in lines else []


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_examples_that_parse(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name in ("references.txt", "papers.txt", "configs.txt"):
        (tmp_path / name).write_text("mnist:3.0.1\n")
    lines = examples_of(COMMANDS[path])
    assert lines
    assert any(line.startswith(path) or f" {path}" in line for line in lines)
    for line in lines:
        words = shlex.split(line, comments=True)
        if path.endswith("completion"):
            continue  # eval "$(...)"
        if "registry" in words:
            parse_line(line)


def test_a_hint_names_only_options_that_the_command_has() -> None:
    package = Path(errors.__file__).parent
    names = {"features"}  # by the helper of the inference
    for path in package.rglob("*.py"):
        names |= set(re.findall(r"""\bspell\(["'](\w+)""", path.read_text()))
    used = set()
    for command in COMMANDS.values():
        words = {word for option in command.params for word in (*option.opts, *option.secondary_opts)}
        for name in names:
            for value in (None, False, [], {}, 3):
                text = _spell_option(command.params, name, value)
                assert text is None or (text.split()[0] in words and "''" not in text), (command.name, name)
                used |= {name} if text else set()
        own_way = spell_in(command, "processes", 1)
        assert own_way in ("--processes 1", "processes=1 in Python")
        assert own_way.startswith("--") == ("--processes" in words)
    assert used == names, "no command has these options"
    assert spell_in(COMMANDS["registry publish"], "processes=N") == "processes=N in Python"
    assert spell_in(COMMANDS["registry publish"], "skip_bad", 3) == "skip_bad=3 in Python"
    assert spell("columns") == "`columns`"
    environment = spell_in(COMMANDS["registry build"], "runtime_env", {"py_modules": ["./my_package"]})
    assert environment == """--runtime-env '{"py_modules": ["./my_package"]}'"""


def spell_in(command: click.Command, name: str, value: Any = None) -> str:
    with hints_spelled_by(partial(_spell_option, command.params)):
        return spell(name, value)
