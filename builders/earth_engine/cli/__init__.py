"""Defines ``registry earth-engine``. Each subcommand is imported when it runs, so that help needs no numpy."""

from __future__ import annotations

from typing import Final

import click

from registry.cli import LazyGroup

_COMMANDS: Final = {
    "export": (
        "registry.builders.earth_engine.cli.export:command",
        "Write a raster or a table in the format of an Earth Engine export.",
    ),
    "inspect": (
        "registry.builders.earth_engine.cli.inspect:command",
        "Show the bands, patches and location of an export.",
    ),
    "assemble": (
        "registry.builders.earth_engine.cli.assemble:command",
        "Assemble patches or predictions into a GeoTIFF, or a table into CSV.",
    ),
}


@click.group(
    "earth-engine",
    cls=LazyGroup,
    table=_COMMANDS,
)
def command() -> None:
    """Convert rasters and tables to and from Earth Engine's files."""
