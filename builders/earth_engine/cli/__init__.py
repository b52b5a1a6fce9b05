"""``registry earth-engine``: rasters to TFRecords and back. Subcommands are imported when they are run."""

from __future__ import annotations

from typing import Final

import click

from registry.cli.lazy_group import LazyGroup

_COMMANDS: Final = {
    "export": (
        "registry.builders.earth_engine.cli.export:command",
        "Write a raster or a table as Earth Engine exports it.",
    ),
    "inspect": (
        "registry.builders.earth_engine.cli.inspect:command",
        "Show what an export holds: bands, patches, places on the map.",
    ),
    "assemble": (
        "registry.builders.earth_engine.cli.assemble:command",
        "Bring patches or predictions back: a GeoTIFF, or a table.",
    ),
}


@click.group(
    "earth-engine",
    cls=LazyGroup,
    table=_COMMANDS,
)
def command() -> None:
    """Rasters and tables to Earth Engine's TFRecords, and back to the map."""
