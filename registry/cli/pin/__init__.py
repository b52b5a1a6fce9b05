"""``registry pin``: pin slices for a paper, prove them, hand them on. Subcommands are imported when they are run."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from registry.errors import UsageError, suggest

_MODULES: Final = {
    "making": ("create", "add", "update"),
    "showing": ("show", "explain", "cite", "diff", "read"),
    "checking": ("verify", "audit", "from-citation"),
    "moving": ("restore", "bundle"),
    "signing": ("keygen", "sign", "check"),
}
_HELP: Final = {
    "create": "Pin slices of a version in a new file.",
    "add": "Pin more slices in a file.",
    "show": "Show the pins of a file.",
    "explain": "Say in sentences what a pin is.",
    "verify": "Prove that stored records are the pinned ones.",
    "read": "Print pinned examples as JSON lines.",
    "diff": "Show how two pin files differ.",
    "update": "Move pins to another version, after showing what changes.",
    "restore": "Get the pinned files, from wherever they are.",
    "cite": "Print the text for a paper.",
    "from-citation": "Find the pin that a paper's text names, and check it.",
    "audit": "Show which pins use yanked or missing data.",
    "bundle": "Pack pins, shards and a verifier into one archive.",
    "keygen": "Make a key pair to sign with.",
    "sign": "Sign a pin file.",
    "check": "Check the signature of a pin file.",
}


class _Pins(click.Group):
    """The commands about pins, each in the module of its subject."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of their use."""
        return list(_HELP)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of that command; its function is called like the command, with ``_`` for ``-``."""
        for module, names in _MODULES.items():
            if cmd_name in names:
                found = getattr(import_module(f"registry.cli.pin.{module}"), cmd_name.replace("-", "_"))
                assert isinstance(found, click.Command)  # noqa: S101 (a mistake of ours, not of the caller)
                return found
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command where there is none of that name."""
        if args[0] not in _HELP and not args[0].startswith("-"):
            raise UsageError(f"no command 'pin {args[0]}'", hint=suggest(args[0], _HELP))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List names and help lines without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_HELP.items()))


@click.group("pin", cls=_Pins)
def command() -> None:
    """Pin the exact records of a paper in one small file, and prove in ten years that they are the same.

    A pin file (dataset.lock.yaml) holds one or more slices of dataset versions, with digests of files and records. To
    verify one, or to read from it, takes the file and the shards: no catalog is opened.
    """
