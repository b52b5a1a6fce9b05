"""``registry build``: run a builder and publish what it makes."""

from __future__ import annotations

import click

from registry.cli.arguments import builder_argument
from registry.cli.diff import show_option
from registry.cli.options import Session, examples, session_command
from registry.cli.progress import build_progress
from registry.cli.promotions import promote_option
from registry.cli.publish import print_preview, print_publication


@session_command(
    "build",
    epilog=examples(
        "registry build digits",
        "registry build digits:1.0.0 --rebuild",
        "registry build digits --no-promote",
        "registry build my_package.my_data:MyData -j 8",
        "registry build my_package.my_data:MyData/small:1.*",
        "registry build my_data --dry-run --show 20",
    ),
)
@builder_argument
@click.option(
    "-j",
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that encode examples; the bytes are the same for any N.  [default: by the size of the data]",
)
@click.option(
    "--shards",
    "num_shards",
    type=click.IntRange(min=1),
    metavar="N",
    help="Shards of each split.  [default: by size and count, as TFDS does]",
)
@click.option("--rebuild", is_flag=True, help="Build even if it is published, and compare what comes out.")
@promote_option
@click.option(
    "--dry-run", is_flag=True, help="Build, show what changed and whether the number allows it, keep nothing."
)
@show_option
def command(
    session: Session,
    builder: str,
    processes: int | None,
    num_shards: int | None,
    rebuild: bool,
    promote: bool | None,
    dry_run: bool,
    show: int,
) -> int:
    """Run BUILDER: write shards, verify them, publish the version.

    BUILDER is name[/config][:version] of a builder that an installed package offers under the entry point
    registry.builders, or package.module:Class[/config][:version] of code that can be imported. A published version is
    not built again.
    """
    if dry_run:
        with session.connect() as catalog, build_progress(session.out) as bars:
            preview = catalog.preview_build(
                builder,
                processes=processes,
                num_shards=num_shards,
                rebuild=rebuild,
                show=show,
                progress=bars,
                advance=None if bars is None else bars.verify,
            )
        if preview is not None:
            return print_preview(session, preview)
        data = {"published": True, "allowed": True}
        session.out.result(
            "preview", data, lambda: session.out.line(f"{builder} is published already: nothing would be done")
        )
        return 0
    with session.connect() as catalog, build_progress(session.out) as bars:
        publication = catalog.build(
            builder,
            processes=processes,
            num_shards=num_shards,
            rebuild=rebuild,
            promote=promote,
            progress=bars,
            advance=None if bars is None else bars.verify,
        )
    print_publication(session, publication)
    return 0
