"""``registry diff``: what differs between two versions, down to the record. Previews of a publication show it too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, examples, session_command
from registry.cli.completion import complete_reference
from registry.cli.options import show_option
from registry.cli.output import Block, Note
from registry.cli.progress import progress_bar
from registry.envelope import fields_of

if TYPE_CHECKING:  # numpy is loaded when records are compared
    from registry.publishing import VersionDiff

_COUNTS = {
    "changed": "changed",
    "added": "added",
    "removed": "removed",
    "moved": "moved",
    "same": "as they were",
}


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
    with session.connect() as catalog, progress_bar(session.out, "comparing", None) as advance:
        for reference in (old, new):
            session.look_up(catalog, reference)
        found = catalog.diff(old, new, show=show, advance=advance)
    session.out.present("diff", diff_values(found), lambda _: describe_diff(found))


def diff_values(diff: VersionDiff) -> dict[str, Any]:
    """The differences as one value."""
    changes = diff.changes
    return {
        "level": changes.level.name.lower(),
        **fields_of(changes, "old", "new", "smallest"),
        "changes": [
            {"level": change.level.name.lower(), **fields_of(change, "kind", "where", "text")}
            for change in changes.changes
        ],
        "records": [
            {
                **fields_of(one, "split", "same", "changed", "added", "removed", "moved"),
                "first": [
                    {
                        **fields_of(record, "kind", "old", "new"),
                        "features": {path: {"old": before, "new": after} for path, before, after in record.features},
                    }
                    for record in one.first
                ],
            }
            for one in diff.records
        ],
        "unread": diff.unread,
    }


def describe_diff(diff: VersionDiff) -> Iterator[Block]:
    """The differences for people: changes, then records."""
    changes = diff.changes
    if not changes.changes:
        yield f"{changes.old} and {changes.new} have the very same content"
        return
    yield f"{changes.old} -> {changes.new}: {changes.level.name}"
    for change in changes.changes:
        yield f"  {change.level.name:<5}  {change.text}"
    for one in diff.records:
        if not one.is_equal:
            counts = {word: getattr(one, name) for name, word in _COUNTS.items()}
            yield f"  {one.split}: {', '.join(f'{number:,} {word}' for word, number in counts.items() if number)}"
            yield from (f"    {record}" for record in one.first)
    if diff.unread:
        yield Note(f"records were not compared one by one: {diff.unread}")
    yield f"smallest number after {changes.old}: {changes.smallest or 'there is none left'}"
