"""``registry export``: write a version for others. Subcommands are imported when they are run."""

from __future__ import annotations

from typing import Final

import click

from registry.cli.lazy_group import LazyGroup, find_plugin

_HELP: Final = {
    "tfds": "Write a version as a folder that TFDS loads.",
    "croissant": "Print a version as Croissant JSON-LD.",
    "earth-engine": "Write a version of patches or rows as Earth Engine exports it.",
}


def _find(name: str) -> tuple[str, str]:
    return find_plugin("export.earth-engine") if name == "earth-engine" else (f"registry.cli.export.{name}", "command")


@click.group("export", cls=LazyGroup, commands_help=_HELP, find=_find)
def command() -> None:
    """Write a published version in a form that others read."""
