"""A group of commands that are imported when they are run, not when they are listed: help costs no import."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

import click

from registry.errors import UsageError, suggest

PLUGINS: Final = "registry.commands"
"""The entry points of commands that live above this package, as those of ``registry.builders`` do."""


class LazyGroup(click.Group):
    """Commands by name, each in a module of its own or of its subject.

    ``commands_help`` has the help line of each command, in the order in which a newcomer meets them; ``find`` says in
    which module it lives, and under what name.
    """

    def __init__(
        self, *args: Any, commands_help: Mapping[str, str], find: Callable[[str], tuple[str, str]], **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self._help_lines = commands_help
        self._find = find

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names."""
        return list(self._help_lines)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of that name."""
        if cmd_name not in self._help_lines:
            return None
        module, name = self._find(cmd_name)
        found = getattr(import_module(module), name)
        assert isinstance(found, click.Command)  # noqa: S101 (a mistake of ours, not of the caller)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command where there is none of that name."""
        if args[0] not in self._help_lines and not args[0].startswith("-"):
            raise UsageError(f"no command '{self.name} {args[0]}'", hint=suggest(args[0], self._help_lines))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List names and help lines without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._help_lines.items()))


def find_plugin(path: str) -> tuple[str, str]:
    """Module and name of the command that a package brings for ``path``, such as ``import.earth-engine``.

    Raises:
        UsageError: no installed package brings it.
    """
    from importlib.metadata import entry_points  # 15 ms that no other command spends

    for point in entry_points(group=PLUGINS, name=path):
        return point.module, point.attr
    raise UsageError(
        f"no installed package brings the command 'registry {path.replace('.', ' ')}'",
        hint="Install the registry again: pip install --force-reinstall shardbook",
    )
