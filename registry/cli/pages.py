"""``registry browse`` shows the pages of the catalog in a browser, ``registry site`` writes them as files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, session_command
from registry.cli.completion import complete_reference
from registry.cli.options import dry_run_option
from registry.cli.output import size
from registry.cli.progress import show_progress
from registry.envelope import fields_of
from registry.environment import read_variable

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.pages import SiteReport

_SHOWN = 20


@session_command("browse")
@click.argument("reference", metavar="[REF]", required=False, shell_complete=complete_reference)
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="The port.  [default: a free one]")
@click.option("--open/--no-open", "opens", default=True, help="Open the browser, or only print the address.")
def browse(session: Session, reference: str | None, *, port: int, opens: bool) -> None:
    """Show datasets, records, statistics and changes in a browser. End it with Ctrl-C.

    The pages are served only on this machine. Their address contains a secret that lets anybody read what you can read,
    so do not share it. To publish pages, see registry site.

    Examples:
        registry browse
        registry browse digits
        registry browse --port 8000 --no-open
    """
    from registry.pages.page import version_path
    from registry.server.browse import serve_pages

    with session.connect() as catalog:
        path = () if reference is None else version_path(session.look_up(catalog, reference).reference)

        def ready(url: str) -> None:
            session.out.present("browse", {"url": url}, lambda it: [it["url"]])
            session.out.note("Press Ctrl-C to stop.")

        serve_pages(catalog, path, port=port, opens=opens, ready=ready)


@session_command("site")
@click.argument("out", metavar="OUT")
@click.option("--datasets", multiple=True, metavar="NAME", help="Only this dataset; may be repeated.  [default: all]")
@click.option(
    "--records", type=click.IntRange(1), default=100, show_default=True, metavar="N", help="Records of a split."
)
@click.option(
    "--versions",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of newest versions of a dataset that get all pages. Other versions get one page, unless an alias "
    "names them.",
)
@click.option("--base-url", metavar="URL", help="URL of the site, for absolute links and code examples.")
@click.option("--with-data", is_flag=True, help="Copy the files of the versions into OUT/data.")
@click.option("--data-url", metavar="URL", help="URL of the data.  [default: the data directory, if it is a URL]")
@click.option("--sign", "key_file", metavar="KEY", help="Private key that signs the catalog: registry pin keygen KEY")
@click.option("--with-actors", is_flag=True, help="Show who published and changed something.")
@click.option(
    "--new-log", is_flag=True, help="Replace a site whose log is another one. Its readers will refuse the new site."
)
@click.option("--force", is_flag=True, help="Write into a folder with other files, and write every page again.")
@dry_run_option
def site(
    session: Session,
    out: str,
    *,
    datasets: tuple[str, ...],
    key_file: str | None,
    force: bool,
    new_log: bool,
    dry_run: bool,
    **options: Any,
) -> None:
    """Write the pages of the catalog, and a read-only copy of the catalog, to a folder or bucket.

    Any web server can serve the folder. Clients open it with registry.connect("https://host/path/"). Run the command
    again to update the site: it writes only files that changed, and never touches other files. Names of people, local
    paths and datasets that were not chosen are left out.

    Examples:
        registry site public
        registry site public --datasets digits --datasets mnist --with-data --base-url https://example.org/data/
        registry site s3://bucket/site --data-url https://data.example.org/ --sign site.key
    """
    from registry.pages import SiteOptions, write_site

    key = None
    if key_file is not None:
        from registry.pins.keys import load_private_key

        key = load_private_key(key_file, read_variable("REGISTRY_KEY_PASSWORD") or None)
    with session.connect() as catalog, show_progress(session.out) as progress:
        report = write_site(
            catalog,
            out,
            SiteOptions(datasets=datasets or None, **options),
            key=key,
            force=force,
            new_log=new_log,
            dry_run=dry_run,
            progress=progress,
        )
    session.out.notes(report.notes)
    names = ("url", "num_pages", "num_files", "num_bytes", "written", "written_bytes", "unchanged", "removed")
    problems = [{"page": page, "message": message} for page, message in report.problems]
    index = fields_of(report.index, "head", "num_events", "sha256", "made_at", "data_url")
    value = {**fields_of(report, *names, "dry_run"), "problems": problems, "index": index}
    session.out.present("site", value, lambda _: _describe(report))


def _describe(report: SiteReport) -> Iterator[str]:
    verb = "would write" if report.dry_run else "wrote"
    yield f"{verb} {report.url}: {report.num_pages:,} pages, {size(report.num_bytes)}"
    yield (
        f"  {report.written:,} files written ({size(report.written_bytes)}), {report.unchanged:,} unchanged, "
        f"{report.removed:,} removed"
    )
    for page, message in report.problems[:_SHOWN]:
        yield f"  {page or 'home'}: {message}"
    if len(report.problems) > _SHOWN:
        yield f"  and {len(report.problems) - _SHOWN:,} more pages that only say what is wrong"
