"""``registry diff``: what differs between two versions, down to the record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, examples, session_command
from registry.cli.completion import complete_reference
from registry.cli.options import show_option
from registry.cli.output import Output
from registry.cli.progress import record_progress

if TYPE_CHECKING:  # numpy is loaded when records are compared
    from registry.publishing import RecordDiff, VersionDiff


@session_command(
    "diff",
    epilog=examples("registry diff mnist:3.0.0 mnist:3.0.1", "registry diff mnist:3.0.0 mnist@paper --format json"),
)
@click.argument("old", metavar="OLD", shell_complete=complete_reference)
@click.argument("new", metavar="NEW", shell_complete=complete_reference)
@show_option
def diff(session: Session, old: str, new: str, show: int) -> None:
    """Show what differs from the version OLD to the version NEW, and the smallest number that allows it.

    Records are compared by the features that both versions have, whatever their shards and compression. Files are read
    only where the fingerprints of the catalog differ.
    """
    with session.connect() as catalog, record_progress(session.out, "comparing", None) as advance:
        for reference in (old, new):
            session.look_up(catalog, reference)
        found = catalog.diff(old, new, show=show, advance=advance)
    session.out.result("diff", diff_json(found), lambda: print_diff(session.out, found))


def diff_json(diff: VersionDiff) -> dict[str, Any]:
    """The differences as plain values."""
    changes = diff.changes
    return {
        "old": str(changes.old),
        "new": str(changes.new),
        "level": changes.level.name.lower(),
        "smallest": None if changes.smallest is None else str(changes.smallest),
        "changes": [
            {"level": change.level.name.lower(), "kind": change.kind, "where": change.where, "text": change.text}
            for change in changes.changes
        ],
        "records": [
            {
                "split": one.split,
                "same": one.same,
                "changed": one.changed,
                "added": one.added,
                "removed": one.removed,
                "moved": one.moved,
                "first": [
                    {
                        "kind": record.kind,
                        "old": record.old,
                        "new": record.new,
                        "features": {path: {"old": before, "new": after} for path, before, after in record.features},
                    }
                    for record in one.first
                ],
            }
            for one in diff.records
        ],
        "unread": diff.unread,
    }


def print_diff(out: Output, diff: VersionDiff) -> None:
    """The differences for people: changes, then records."""
    changes = diff.changes
    if not changes.changes:
        out.line(f"{changes.old} and {changes.new} have the very same content")
        return
    out.line(f"{changes.old} -> {changes.new}: {changes.level.name}")
    for change in changes.changes:
        out.line(f"  {change.level.name:<5}  {change.text}")
    for one in diff.records:
        if not one.is_equal:
            out.line(f"  {one.split}: {_counts(one)}")
            for record in one.first:
                out.line(f"    {record}")
    if diff.unread:
        out.note(f"records were not compared one by one: {diff.unread}")
    out.line(f"smallest number after {changes.old}: {changes.smallest or 'there is none left'}")


def _counts(diff: RecordDiff) -> str:
    counts = {
        "changed": diff.changed,
        "added": diff.added,
        "removed": diff.removed,
        "moved": diff.moved,
        "as they were": diff.same,
    }
    return ", ".join(f"{number:,} {word}" for word, number in counts.items() if number)
