"""``registry import parquet``: a folder of Parquet shards becomes a published version."""

from __future__ import annotations

import click

from registry.cli.options import Session, examples, session_command
from registry.cli.progress import record_progress
from registry.cli.publish import print_publication


@session_command(
    "parquet",
    epilog=examples(
        "registry import parquet ./mnist",
        "registry import parquet ./mnist --name mnist --version 2.0.0 --copy",
        "registry import parquet ./translations/de --name translations --config de",
    ),
)
@click.argument("folder", metavar="DIR")
@click.option("--name", metavar="N", help="Name of the dataset.  [default: made of the folder's]")
@click.option("--version", metavar="V", default="1.0.0", show_default=True, help="Number of the version.")
@click.option("--config", metavar="C", help="Name of the config, where the dataset has several.")
@click.option("--copy", is_flag=True, help="Copy the shards into the data directory; else DIR has to stay as it is.")
@click.option(
    "--promote/--no-promote",
    default=None,
    help="Make it the version that an unversioned look-up gives.  [default: where it is the highest]",
)
def command(
    session: Session,
    folder: str,
    name: str | None,
    version: str,
    config: str | None,
    *,
    copy: bool,
    promote: bool | None,
) -> None:
    """Publish the Parquet shards in DIR: read what their columns hold, verify every shard, write one row.

    DIR, or one folder in it, holds train-00000-of-00005.parquet and the like, or test.parquet where a split is one
    file. Each row is an example, each column a feature. DIR is left as it is, and read where it lies.
    """
    with session.connect() as catalog, record_progress(session.out, "verifying", None) as advance:
        publication = catalog.import_parquet(
            folder, name=name, config=config, version=version, copy=copy, promote=promote, advance=advance
        )
    print_publication(session, publication)
