"""``registry browse``: shows the pages of the catalog in a browser."""

from __future__ import annotations

import click

from registry.cli.commands import Session, examples, session_command
from registry.cli.completion import complete_reference


@session_command(
    "browse",
    epilog=examples("registry browse", "registry browse digits", "registry browse --port 8000 --no-open"),
)
@click.argument("reference", metavar="[REF]", required=False, shell_complete=complete_reference)
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="The port.  [default: a free one]")
@click.option("--open/--no-open", "opens", default=True, help="Open the browser, or only print the address.")
def browse(session: Session, reference: str | None, *, port: int, opens: bool) -> None:
    """Show datasets, records, statistics and changes in a browser. End it with Ctrl-C.

    The pages are served on this machine only. Their address has a secret: whoever has it can read what you can read, so
    do not share it. To publish pages, see registry site.
    """
    from registry.pages.page import version_path
    from registry.server.browse import serve_pages

    with session.connect() as catalog:
        path = () if reference is None else version_path(session.look_up(catalog, reference).reference)

        def ready(url: str) -> None:
            session.out.present("browse", {"url": url}, lambda it: [it["url"]])
            session.out.note("Press Ctrl-C to stop.")

        serve_pages(catalog, path, port=port, opens=opens, ready=ready)
