"""``registry import``: catalog what others prepared. Subcommands are imported when they are run."""

from __future__ import annotations

from typing import Final

import click

from registry.cli.lazy_group import LazyGroup, find_plugin

_HELP: Final = {
    "tfds": "Catalog what TFDS prepared: a version, a dataset, or a whole data_dir.",
    "parquet": "Catalog a folder of Parquet shards.",
    "earth-engine": "Catalog an export of Earth Engine: its TFRecords and their mixer.",
}


def _find(name: str) -> tuple[str, str]:
    return find_plugin("import.earth-engine") if name == "earth-engine" else (f"registry.cli.import_.{name}", "command")


@click.group("import", cls=LazyGroup, commands_help=_HELP, find=_find)
def command() -> None:
    """Catalog datasets that others prepared, where they lie or as copies in the data directory."""
