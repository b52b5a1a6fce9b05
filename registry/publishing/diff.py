"""What differs between two versions, down to the record? ``registry diff`` and the dry run of ``registry publish``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from registry.errors import MissingExtraError, StorageError, UsageError, VerificationError
from registry.model import DatasetVersion
from registry.publishing.changes import Changes, compare_versions
from registry.publishing.proof import Prover
from registry.publishing.ranges import Advance, StoredSplits
from registry.publishing.record_diff import RecordDiff, diff_records


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDiff:
    """Everything that differs between two versions.

    ``records`` holds the splits that both have; ``unread`` says why records were not looked at, else it is ``""``.
    """

    changes: Changes
    records: tuple[RecordDiff, ...]
    unread: str = ""


def diff_versions(prover: Prover, old: DatasetVersion, new: DatasetVersion, *, show: int = 5) -> VersionDiff:
    """What differs between two published versions; ``show`` is how many records of each split are described.

    Raises:
        UsageError: ``show`` is negative.
    """
    changes = compare_versions(prover.describe(old), prover.describe(new))

    def open_files() -> tuple[StoredSplits, StoredSplits]:
        return prover.files(old), prover.files(new)

    return diff_files(changes, open_files, show=show, processes=prover.processes, advance=prover.advance)


def diff_files(
    changes: Changes,
    open_files: Callable[[], tuple[StoredSplits, StoredSplits]],
    *,
    show: int,
    processes: int | None = None,
    advance: Advance | None = None,
) -> VersionDiff:
    """``changes`` with the records that differ, where the files of both can be read here."""
    if show < 0:
        raise UsageError(f"show must be 0 or more, not {show}", details={"show": show})
    try:
        records = diff_records(changes, *open_files(), show=show, processes=processes, advance=advance)
    except (StorageError, VerificationError, MissingExtraError) as error:
        return VersionDiff(changes=changes, records=(), unread=error.message)
    return VersionDiff(changes=changes, records=records)
