"""``registry export earth-engine``: writes a published version in the format of an Earth Engine export."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from registry.cli.commands import Session, examples, session_command, version_values
from registry.cli.options import reference_argument
from registry.cli.output import size
from registry.cli.progress import progress_bar
from registry.splits import counted


@session_command(
    "earth-engine",
    epilog=examples(
        "registry export earth-engine earth_patches exports/",
        "registry export earth-engine earth_patches exports/ --split china --no-compress",
    ),
)
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
    """
    from registry.builders.earth_engine.exporting.version import export_version

    with session.connect() as catalog:
        dataset = session.look_up(catalog, reference)
        total = sum(one.num_examples for name, one in dataset.splits.items() if not splits or name in splits)
        with progress_bar(session.out, f"exporting {dataset.reference}", total) as advance:
            exported = export_version(
                dataset, folder, splits=splits or None, compressed=compress, overwrite=overwrite, advance=advance
            )
    data = {
        **version_values(dataset.reference),
        "folder": folder,
        "splits": [
            {
                "split": one.split,
                "filenames": list(one.filenames),
                "mixer": one.mixer_filename,
                "num_records": one.num_records,
                "num_bytes": one.num_bytes,
            }
            for one in exported
        ],
    }

    def human(it: dict[str, Any]) -> Iterator[str]:
        yield f"exported {dataset.reference}: {folder}"
        for one in it["splits"]:
            beside = "" if one["mixer"] is None else f" and {one['mixer']}"
            files = counted(len(one["filenames"]), "file")
            records = counted(one["num_records"], "record")
            yield f"  {one['split']}: {records} in {files}{beside}, {size(one['num_bytes'])}"

    session.out.present("export.earth-engine", data, human)
