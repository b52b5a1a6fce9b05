"""``registry export``: write a version for others. Subcommands are imported when they are run."""

from __future__ import annotations

from typing import Final

import click

from registry.cli.lazy_group import LazyGroup

_HELP: Final = {
    "tfds": "Write a version as a folder that TFDS loads.",
    "croissant": "Print a version as Croissant JSON-LD.",
}


@click.group("export", cls=LazyGroup, commands_help=_HELP, find=lambda name: (f"registry.cli.export.{name}", "command"))
def command() -> None:
    """Write a published version in a form that others read."""
