"""Groups of commands that are imported when they are run. Help imports only this module, so keep its imports cheap."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from registry.errors import UsageError, suggest
from registry.plugins import COMMANDS, find_plugin, load_plugin


class LazyGroup(click.Group):
    """A group whose commands are imported when they are run, not when they are listed, so that help is fast.

    ``table`` has the location and the help line of each command, in the order of the help page. A location is
    ``module:function``, or ``plugin:PATH`` for an entry point, e.g. ``import.earth-engine``. A command that is not in
    the table is also looked up as an entry point; help does not list it, because that takes 15 ms.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command with this name.

        Raises:
            UsageError: the command's package is not installed, or its module cannot be imported.
        """
        default = f"plugin:{'.'.join(_words(ctx, cmd_name))}"
        module, _, name = self._table.get(cmd_name, (default, ""))[0].partition(":")
        if module != "plugin":
            result = getattr(import_module(module), name)
        elif (point := find_plugin(COMMANDS, name)) is not None:
            result = load_plugin(point, click.Command, f"the command {name!r}")
        elif cmd_name in self._table:
            raise UsageError(
                f"no installed package provides the command 'registry {name.replace('.', ' ')}'",
                hint="Install the registry again: pip install --force-reinstall shardbook",
            )
        else:
            return None
        assert isinstance(result, click.Command)  # noqa: S101 (a mistake of ours, not of the caller)
        return result

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest command for an unknown name."""
        if args[0] not in self._table and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise UsageError(f"no command {' '.join(_words(ctx, args[0]))!r}", hint=suggest(args[0], self._table))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List names and help lines without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._table.items()])


def _words(ctx: click.Context, name: str) -> list[str]:
    """The words of a command after ``registry``."""
    return [*ctx.command_path.split()[1:], name]
