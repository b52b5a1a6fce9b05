"""The examples of every help page can be copied: each line is a command line that parses."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support.cli_lines import parse_line

from registry.cli.main import cli


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
