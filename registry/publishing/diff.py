"""What differs between two versions, down to the record? ``registry diff`` and the dry run of ``registry publish``."""

from __future__ import annotations

from dataclasses import dataclass

from registry.errors import StorageError
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
        CorruptRecordError, CorruptExampleError, ShardMismatchError: a record cannot be read.
    """
    changes = compare_versions(prover.describe(old), prover.describe(new))
    return diff_files(
        changes, prover.files(old), prover.files(new), show=show, processes=prover.processes, advance=prover.advance
    )


def diff_files(
    changes: Changes,
    old: StoredSplits,
    new: StoredSplits,
    *,
    show: int,
    processes: int | None = None,
    advance: Advance | None = None,
) -> VersionDiff:
    """``changes`` with the records that differ, where the files of both are here."""
    try:
        records = diff_records(changes, old, new, show=show, processes=processes, advance=advance)
    except StorageError as error:
        return VersionDiff(changes=changes, records=(), unread=error.message)
    return VersionDiff(changes=changes, records=records)
