"""``registry earth-engine``: rasters to TFRecords and back. Subcommands are imported when they are run."""

from __future__ import annotations

from typing import Final

import click

from registry.cli.lazy_group import LazyGroup

_HELP: Final = {
    "export": "Write a raster or a table as Earth Engine exports it.",
    "inspect": "Show what an export holds: bands, patches, places on the map.",
    "assemble": "Bring patches or predictions back: a GeoTIFF, or a table.",
}


@click.group(
    "earth-engine",
    cls=LazyGroup,
    commands_help=_HELP,
    find=lambda name: (f"registry.builders.earth_engine.cli.{name}", "command"),
)
def command() -> None:
    """Rasters and tables to Earth Engine's TFRecords, and back to the map."""
