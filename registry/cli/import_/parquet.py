"""``registry import parquet``: a folder of Parquet shards becomes a published version."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from registry.cli.options import Session, examples, session_command
from registry.cli.progress import record_progress
from registry.cli.promotions import promote_option
from registry.cli.publish import print_publication
from registry.cli.show import feature_lines
from registry.splits import counted

if TYPE_CHECKING:  # numpy is loaded when something is imported
    from registry.prepared import PreparedDataset


@session_command(
    "parquet",
    epilog=examples(
        "registry import parquet ./mnist --dry-run",
        "registry import parquet ./mnist",
        "registry import parquet ./mnist --name mnist --version 2.0.0 --copy",
        "registry import parquet ./translations/de --name translations --config de",
    ),
)
@click.argument("folder", metavar="DIR")
@click.option("--name", metavar="N", help="Name of the dataset.  [default: from the folder's name]")
@click.option("--version", metavar="V", default="1.0.0", show_default=True, help="Number of the version.")
@click.option("--config", metavar="C", help="Name of the config, where the dataset has several.")
@click.option("--copy", is_flag=True, help="Copy the shards into the data directory; without it, DIR must not change.")
@promote_option
@click.option("--dry-run", is_flag=True, help="Show which version the files make; verify no shard, write nothing.")
def command(
    session: Session,
    folder: str,
    name: str | None,
    version: str,
    config: str | None,
    *,
    copy: bool,
    promote: bool | None,
    dry_run: bool,
) -> None:
    """Publish the Parquet shards in DIR: read what their columns hold, verify every shard, write one row.

    DIR, or one folder in it, holds train-00000-of-00005.parquet and the like, or test.parquet where a split is one
    file. Each row is an example, each column a feature. DIR is left as it is, and read where it lies.
    """
    if dry_run:
        with session.connect() as catalog:
            prepared = catalog.preview_parquet(folder, name=name, config=config, version=version, copy=copy)
            published = catalog.published_digest(prepared.reference)
        _print(session, prepared, published)
        return
    with session.connect() as catalog, record_progress(session.out, "verifying", None) as advance:
        publication = catalog.import_parquet(
            folder, name=name, config=config, version=version, copy=copy, promote=promote, advance=advance
        )
    print_publication(session, publication)


def _print(session: Session, prepared: PreparedDataset, published: str | None) -> None:
    """Say which version the files make; ``published`` is the digest of one that has its number already."""
    reference = prepared.reference
    data = {
        "dataset": reference.dataset,
        "version": str(prepared.version),
        "published": None if published is None else f"sha256:{published}",
        "num_examples": sum(split.num_examples for split in prepared.splits),
        "splits": [
            {"name": split.name, "num_examples": split.num_examples, "num_shards": split.num_shards}
            for split in prepared.splits
        ],
        "features": json.loads(prepared.features.to_json()),
    }

    def human() -> None:
        session.out.line(f"{reference}: {counted(data['num_examples'], 'example')}")
        session.out.line()
        rows = [(split.name, split.num_examples, split.num_shards) for split in prepared.splits]
        session.out.table(("SPLIT", "EXAMPLES", "SHARDS"), rows)
        session.out.line()
        for line in feature_lines(prepared.features):
            session.out.line(line)
        session.out.line()
        session.out.line(
            "not published yet"
            if published is None
            else f"a version of this number is published already (sha256:{published[:12]})"
        )

    session.out.result("import.parquet", data, human)
