"""Groups of commands that are imported when they are run. Help imports only this module, so keep its imports small."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import click

from registry.errors import UsageError, suggest

PLUGINS: Final = "registry.commands"
"""The entry-point group of commands in other packages, as ``registry.builders`` is the group of their builders."""


class LazyGroup(click.Group):
    """Commands that are imported when they are run, not when they are listed: help costs no import.

    ``table`` has the location and the help line of each command, in the order of the help page. A location is
    ``module:function``, or ``plugin:NAME`` for the entry point NAME.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command with this name."""
        if cmd_name not in self._table:
            return None
        module, _, name = self._table[cmd_name][0].partition(":")
        if module == "plugin":
            module, name = _find_plugin(name)
        result = getattr(import_module(module), name)
        assert isinstance(result, click.Command)  # noqa: S101 (a mistake of ours, not of the caller)
        return result

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest command for an unknown name."""
        if args[0] not in self._table and not args[0].startswith("-"):
            path = " ".join([*ctx.command_path.split()[1:], args[0]])
            raise UsageError(f"no command {path!r}", hint=suggest(args[0], self._table))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List names and help lines without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._table.items()])


def _find_plugin(path: str) -> tuple[str, str]:
    """Module and function of the command that a package provides for ``path``, e.g. ``import.earth-engine``.

    Raises:
        UsageError: no installed package provides it.
    """
    from importlib.metadata import entry_points  # it takes 15 ms, and only plugins need it

    for point in entry_points(group=PLUGINS, name=path):
        return point.module, point.attr
    raise UsageError(
        f"no installed package provides the command 'registry {path.replace('.', ' ')}'",
        hint="Install the registry again: pip install --force-reinstall shardbook",
    )
