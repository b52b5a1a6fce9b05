"""``registry publish``: a folder of prepared shards becomes a published version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from registry.cli.options import Session, examples, session_command
from registry.cli.output import size
from registry.cli.progress import record_progress

if TYPE_CHECKING:  # numpy is loaded when something is published
    from registry.publishing import Publication


@session_command(
    "publish",
    epilog=examples(
        "registry publish ./prepared/mnist/3.0.1",
        "registry publish ./mnist/4.0.0 --no-promote",
        "registry publish ./mnist/0.0.9 --version-to-prepare 1.0.0",
    ),
)
@click.argument("folder", metavar="DIR")
@click.option(
    "--promote/--no-promote",
    default=None,
    help="Make it the version that an unversioned look-up gives.  [default: where it is the highest]",
)
@click.option(
    "--version-to-prepare",
    metavar="V",
    help="The last version of the builder's code (or its commit) that can prepare it, where today's code cannot.",
)
def command(session: Session, folder: str, promote: bool | None, version_to_prepare: str | None) -> None:
    """Publish the prepared version folder DIR: verify every shard, copy it into place, write one row.

    DIR is a version folder in TFDS's layout, with dataset_info.json, features.json and its shards. Publishing the same
    content again is harmless; other content under a used number is refused.
    """
    with session.connect() as catalog, record_progress(session.out, "verifying", None) as advance:
        publication = catalog.publish(folder, promote=promote, version_to_prepare=version_to_prepare, advance=advance)
    print_publication(session, publication)


def print_publication(session: Session, publication: Publication) -> None:
    """Say what was published, or that it was there already."""
    version = publication.version
    data = {
        "dataset": version.reference.dataset,
        "version": str(version.version),
        "newly": publication.newly,
        "num_examples": version.num_examples,
        "splits": {split.name: split.num_examples for split in version.splits},
        "content_digest": f"sha256:{version.content_digest}",
    }

    def human() -> None:
        if publication.newly:
            num_shards = sum(split.num_shards for split in version.splits)
            shards = f"{num_shards:,} shard{'' if num_shards == 1 else 's'}"
            session.out.line(
                f"published {version.reference}: {version.num_examples:,} examples in {shards}, "
                f"{size(publication.num_bytes)}, sha256:{version.content_digest[:12]}"
            )
        else:
            session.out.line(f"{version.reference} is published already (sha256:{version.content_digest[:12]})")

    session.out.result("publish", data, human)
