"""``registry export earth-engine``: writes a published version in the format of an Earth Engine export."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from registry.cli import (
    Session,
    fields_of,
    progress_bar,
    reference_argument,
    session_command,
    size,
    version_values,
)
from registry.splits import counted


@session_command("earth-engine")
@reference_argument
@click.argument("folder", metavar="DIR")
@click.option("--split", "splits", metavar="S", multiple=True, help="Split to write; may be repeated.  [default: all]")
@click.option(
    "--compress/--no-compress", default=True, show_default=True, help="Compress with gzip; tables always are."
)
@click.option("--overwrite", is_flag=True, help="Replace exports with the same names.")
def command(
    session: Session, reference: str, folder: str, splits: tuple[str, ...], *, compress: bool, overwrite: bool
) -> None:
    """Write splits of the version REF to DIR as Earth Engine exports: SPLIT-00000.tfrecord.gz and SPLIT-mixer.json.

    REF was imported from Earth Engine, or its builder keeps the mixer. Records are written unchanged.

    Examples:
        registry export earth-engine earth_patches exports/
        registry export earth-engine earth_patches exports/ --split china --no-compress
    """
    from registry.builders.earth_engine.exporting.version import export_version

    with session.connect() as catalog:
        dataset = session.look_up(catalog, reference)
        total = sum(split.num_examples for name, split in dataset.splits.items() if not splits or name in splits)
        with progress_bar(session.out, f"exporting {dataset.reference}", total) as advance:
            exported = export_version(
                dataset, folder, splits=splits or None, compressed=compress, overwrite=overwrite, advance=advance
            )
    data = {
        **version_values(dataset.reference),
        "folder": folder,
        "splits": [fields_of(split, "mixer", "split", "filenames", "num_records", "num_bytes") for split in exported],
    }

    def human(it: dict[str, Any]) -> Iterator[str]:
        yield f"exported {dataset.reference}: {folder}"
        for split in it["splits"]:
            beside = "" if split["mixer"] is None else f" and {split['mixer']}"
            files = counted(len(split["filenames"]), "file")
            records = counted(split["num_records"], "record")
            yield f"  {split['split']}: {records} in {files}{beside}, {size(split['num_bytes'])}"

    session.out.present("export.earth-engine", data, human)
