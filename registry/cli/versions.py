"""``registry versions``: every published version of a dataset."""

from __future__ import annotations

from registry.cli.arguments import reference_argument
from registry.cli.options import Session, examples, session_command
from registry.errors import UsageError
from registry.model import Reference


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
            summary.state_message or summary.release_note,
        )
        for summary in found
    ]
    session.out.result(
        "versions",
        data,
        lambda: session.out.table(("VERSION", "STATUS", "EXAMPLES", "PUBLISHED (UTC)", "NOTES"), rows),
    )
