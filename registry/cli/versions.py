"""``registry versions``: every published version of a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from registry.cli.arguments import reference_argument
from registry.cli.options import Session, examples, session_command
from registry.errors import UsageError
from registry.model import Reference

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.catalog import VersionSummary


@session_command("versions", epilog=examples("registry versions digits", "registry versions mnist/plain --format json"))
@reference_argument
def command(session: Session, reference: str) -> None:
    """List every published version of a dataset, the highest first."""
    wanted = Reference.parse(reference)
    if wanted.request is not None or wanted.alias is not None:
        raise UsageError(
            f"{reference}: name a dataset without a version", hint=f"Try: registry versions {wanted.dataset}"
        )
    with session.connect() as catalog:
        found = catalog.versions(wanted.name, wanted.config)
    data = [
        {
            "version": str(summary.version),
            "status": summary.status.value,
            "message": summary.state_message,
            "superseded_by": None if summary.superseded_by is None else str(summary.superseded_by),
            "num_examples": summary.num_examples,
            "published_at": summary.published_at.isoformat(),
            "published_by": summary.published_by,
            "release_note": summary.release_note,
        }
        for summary in found
    ]
    rows = [
        (
            str(summary.version),
            summary.status.value,
            summary.num_examples,
            f"{summary.published_at:%Y-%m-%d %H:%M}",
            _note(summary),
        )
        for summary in found
    ]
    session.out.result(
        "versions",
        data,
        lambda: session.out.table(("VERSION", "STATUS", "EXAMPLES", "PUBLISHED (UTC)", "NOTES"), rows),
    )


def _note(summary: VersionSummary) -> str:
    """What is said of the version's state, else its release note."""
    if summary.superseded_by is not None:
        return f"{summary.state_message}; superseded by {summary.superseded_by}"
    return summary.state_message or summary.release_note
