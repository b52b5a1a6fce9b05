"""``registry search``: the datasets that some words are about."""

from __future__ import annotations

import click

from registry.cli.options import Session, examples, session_command
from registry.model import VersionStatus


@session_command(
    "search",
    epilog=examples(
        "registry search digits",
        "registry search handwritten dig",
        "registry search class_label cats --limit 5 --format json",
    ),
)
@click.argument("text", metavar="TEXT...", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Show the best N.")
def command(session: Session, text: tuple[str, ...], limit: int) -> None:
    """Find the datasets that all the words of TEXT are about, the best first.

    Looks into names, tags, features with their labels, descriptions, licence, homepage and citation. A word finds what
    begins with it, whatever its case and accents; TEXT has no other syntax. Nothing found is no failure: the exit code
    is 0, and a note says which word nothing has.
    """
    words = " ".join(text)
    with session.connect() as catalog:
        found = catalog.search(words, limit=limit + 1)  # one more, to know whether there are more
        if not found:
            session.out.note(catalog.explain_no_hits(words))
    shown = found[:limit]
    if len(found) > limit:
        session.out.note(f"note: these are the best {limit} of more. A further word narrows, --limit shows more.")
    data = [
        {
            "dataset": hit.dataset,
            "version": str(hit.version),
            "status": hit.status.value,
            "matched": list(hit.matched),
            "score": hit.score,
            "snippet": hit.snippet,
            "description": hit.description,
        }
        for hit in shown
    ]
    rows = [
        (
            hit.dataset,
            str(hit.version) if hit.status is VersionStatus.CANONICAL else f"{hit.version} ({hit.status.value})",
            ", ".join(hit.matched),
            hit.snippet,
        )
        for hit in shown
    ]
    session.out.result(
        "search", data, lambda: session.out.table(("DATASET", "VERSION", "MATCHED", "DESCRIPTION"), rows)
    )
