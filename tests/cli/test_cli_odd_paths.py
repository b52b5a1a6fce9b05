"""No command takes an odd path for a fault of the registry, and none waits for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest
from support.odd_paths import ODD, make_others, without_waiting

from registry.cli.main import cli as commands

Cli = Callable[..., Any]

PATHS: Final = {"folder", "location", "source", "dest", "data_dir", "url"}
"""Arguments that are paths, besides those of the type ``click.Path``."""

VALUES: Final = {
    "expression": "train",
    "split": "train",
    "version": "numbers",
    "alias": "paper",
    "location": "elsewhere",
    "file": "numbers.yaml",
    "files": "numbers.yaml",
    "old": "numbers.yaml",
    "new": "numbers.yaml",
    "output": "out.yaml",
    "dest": "out.csv",
    "folder": "folder",
    "source": "folder",
}
"""Values of the other required arguments; the rest get the name of a dataset."""

WITHOUT_NUL: Final = {what: path for what, path in ODD.items() if "\0" not in path}
"""A command line holds no NUL."""


def leaves(command: click.Command, name: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for one in command.list_commands(context):
            inner = command.get_command(context, one)
            assert inner is not None
            yield from leaves(inner, (*name, one))
    else:
        yield name, command


def lines_of(command: click.Command, name: tuple[str, ...], parameter: click.Parameter, path: str) -> list[str]:
    """The command with ``path`` for one parameter, and the others that it needs."""
    options: list[str] = []
    arguments: list[str] = []
    for one in command.params:
        if one is not parameter and not one.required:
            continue
        value = path if one is parameter else VALUES.get(one.name or "", "numbers")
        if isinstance(one, click.Argument):
            arguments.append(value)
        else:
            options += [one.opts[0], value]
    return [*name, *options, "--", *arguments]


TAKERS: Final = {
    f"{' '.join(name)} {parameter.name}": (name, command, parameter)
    for name, command in leaves(commands)
    for parameter in command.params
    if (isinstance(parameter.type, click.Path) or parameter.name in PATHS)
    and name != ("mcp",)  # it waits for an agent; tests/server/test_mcp.py has its folders
    # Every command has them, and gets them from one place.
    and (parameter.name not in ("url", "data_dir") or name in (("list",), ("add",), ("verify",), ("restore",)))
}


def test_the_commands_take_paths() -> None:
    assert {"add source", "add schema", "list url", "verify state", "pin verify file", "yank uses"} <= set(TAKERS)


@pytest.mark.parametrize("taker", TAKERS)
def test_every_path_of_a_command_is_used_or_refused(
    numbers: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch, taker: str
) -> None:
    monkeypatch.chdir(workspace)
    make_others(workspace)
    numbers("pin", "create", "numbers:2.0.0", "train", "-o", "numbers.yaml")
    name, command, parameter = TAKERS[taker]
    for what, path in WITHOUT_NUL.items():
        with without_waiting():
            ran = numbers(*lines_of(command, name, parameter, path))
        assert "fault of the registry" not in ran.err, f"{what}: {ran.err}"
        assert "Traceback" not in ran.err, f"{what}: {ran.err}"
        assert "REGISTRY_DEBUG" not in ran.err, f"{what}: {ran.err}"
