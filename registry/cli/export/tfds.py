"""``registry export tfds``: a published version as a folder that TFDS loads."""

from __future__ import annotations

import click

from registry.cli.arguments import reference_argument
from registry.cli.options import Session, examples, session_command
from registry.cli.output import size
from registry.cli.progress import byte_progress


@session_command(
    "tfds",
    epilog=examples(
        "registry export tfds mnist:3.0.1 ~/tensorflow_datasets",
        "registry export tfds mnist/plain s3://bucket/datasets",
    ),
)
@reference_argument
@click.argument("folder", metavar="DIR")
def command(session: Session, reference: str, folder: str) -> None:
    """Write the version REF below the data_dir DIR, where tfds.load and tfds.builder_from_directory find it.

    Shards are compared with the catalog while they are copied; the folder appears when it is complete. Exporting again
    is harmless.
    """
    with session.connect() as catalog:
        dataset = session.look_up(catalog, reference)
        total = sum(shard.num_bytes for split in dataset.splits for shard in catalog.shards(dataset.details, split))
        with byte_progress(session.out, f"exporting {dataset.reference}", total) as advance:
            exported = dataset.export_tfds(folder, advance=advance)
    data = {
        "dataset": dataset.reference.dataset,
        "version": str(dataset.version),
        "folder": exported.folder,
        "newly": exported.newly,
        "num_bytes": exported.num_bytes,
    }

    def human() -> None:
        if not exported.newly:
            session.out.line(f"{dataset.reference} lies there already: {exported.folder}")
            return
        session.out.line(f"exported {dataset.reference}, {size(exported.num_bytes)}: {exported.folder}")
        session.out.line(f"load it with: tfds.builder_from_directory({exported.folder!r})")

    session.out.result("export.tfds", data, human)
