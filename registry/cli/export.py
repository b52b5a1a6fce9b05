"""``registry export``: writes a version in another format. Subcommands are imported when they are run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from registry.cli.commands import Session, session_command, version_values
from registry.cli.lazy_group import LazyGroup
from registry.cli.options import reference_argument, write_file
from registry.cli.output import Block, JsonText, size
from registry.cli.progress import show_progress
from registry.envelope import fields_of

_COMMANDS: Final = {
    "csv": ("registry.cli.export_records:csv", "Write records as CSV."),
    "jsonl": ("registry.cli.export_records:jsonl", "Write records as JSON lines."),
    "parquet": ("registry.cli.export_records:parquet", "Write records as Parquet."),
    "arrow": ("registry.cli.export_records:arrow", "Write records as Arrow IPC (Feather)."),
    "imagefolder": ("registry.cli.export_records:imagefolder", "Write records as folders of images."),
    "webdataset": ("registry.cli.export_records:webdataset", "Write records as tars of files."),
    "tfds": ("registry.cli.export:tfds", "Write a version as a folder that TFDS loads."),
    "croissant": ("registry.cli.export:croissant", "Print a version as Croissant JSON-LD."),
    "earth-engine": ("plugin:export.earth-engine", "Write patches or rows in the format of Earth Engine exports."),
}


@click.group("export", cls=LazyGroup, table=_COMMANDS)
def export() -> None:
    """Write a published version in the format of another system."""


@session_command("tfds")
@reference_argument
@click.argument("folder", metavar="DIR")
def tfds(session: Session, reference: str, folder: str) -> None:
    """Write the version REF below the data_dir DIR, where tfds.load and tfds.builder_from_directory find it.

    Shards are compared with the catalog while they are copied. The folder appears when it is complete. Exporting again
    changes nothing.

    Examples:
        registry export tfds mnist:3.0.1 ~/tensorflow_datasets
        registry export tfds mnist/plain s3://bucket/datasets
    """
    with session.connect() as catalog:
        dataset = session.look_up(catalog, reference)
        with show_progress(session.out) as progress:
            exported = dataset.export_tfds(folder, progress=progress)
    value = {
        **version_values(dataset.reference),
        **fields_of(exported, "folder", "newly", "num_bytes"),
    }

    def human(it: dict[str, Any]) -> Iterator[str]:
        if not it["newly"]:
            yield f"{dataset.reference} is already exported: {it['folder']}"
            return
        yield f"exported {dataset.reference}, {size(it['num_bytes'])}: {it['folder']}"
        yield f"load it with: tfds.builder_from_directory({it['folder']!r})"

    session.out.present("export.tfds", value, human)


@session_command("croissant", at=True, locked=True)
@reference_argument
@click.option("-o", "--output", metavar="FILE", type=click.Path(), help="Write FILE.  [default: stdout]")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option(
    "--url",
    "base_url",
    metavar="BASE",
    help="URL of the folder with the shards.  [default: files are named relative to the document]",
)
@click.option(
    "--creator", "creators", metavar="NAME", multiple=True, help="A person who made the dataset; may be repeated."
)
def croissant(
    session: Session, reference: str, output: str | None, force: bool, base_url: str | None, creators: tuple[str, ...]
) -> None:
    """Print a version as Croissant 1.1 JSON-LD.

    It contains the version, its licence and citation, every file with its size and sha256, the splits, the names of
    labels, and a field for each feature, with its statistics if they are attached. A note lists properties that
    Croissant requires and the version lacks.

    Examples:
        registry export croissant digits > croissant.json
        registry export croissant 'mnist:3.*' -o croissant.json --url https://example.org/mnist/3.0.1
    """
    with session.dataset(reference) as dataset:
        document = dataset.croissant(base_url=base_url, creators=creators)
    from registry.interop.croissant import croissant_to_json, json_for_page, missing_properties

    if missing := missing_properties(document):
        session.out.note(f"note: Croissant requires {_listed(missing)}, which this version lacks")
    path = None if output is None else write_file(output, croissant_to_json(document).encode(), force=force)

    def human(it: dict[str, Any]) -> Iterator[Block]:
        yield JsonText(partial(json_for_page, it["document"])) if output is None else f"wrote {output}"
        folder = dataset.local_folder or dataset.folder
        if path is not None and base_url is None and str(Path(path).parent) != folder:
            yield f"It names the shards, which are in {folder}, relative to itself. To name them by URL: --url URL"

    session.out.present("export.croissant", {"path": path, "document": document}, human)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
