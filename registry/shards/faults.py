"""Makes the errors for damaged ArrayRecord and Parquet files; they name the record if it is known, else the file."""

from __future__ import annotations

from registry.errors import CorruptExampleError, CorruptRecordError, ShardMismatchError
from registry.tfrecord.framing import no_such_record, not_so_many

_DAMAGED = "The file is damaged or truncated. Fetch or build it again; `registry verify` names every bad shard."


def bad_file(path: str, file_format: str, reason: object) -> ShardMismatchError:
    """Make the error for a file of another format, or one whose index or footer is damaged."""
    return ShardMismatchError(
        f"{path}: not a {file_format} file, or a damaged one",
        hint=_DAMAGED,
        details={"path": path, "reason": str(reason)[:500]},
    )


def bad_record(path: str, record: int, reason: object) -> CorruptRecordError:
    """Make the error for a record of an ArrayRecord file that does not match its checksum."""
    problem = "it cannot be read, or does not match its checksum"
    fault = CorruptRecordError(problem, path=path, record=record, offset=None)
    fault.details["reason"] = str(reason)[:500]
    return fault


def bad_rows(path: str, record: int, *, rows: range, reason: object) -> CorruptRecordError:
    """Make the error for a row group of a Parquet file that cannot be decoded."""
    problem = f"its row group, records {rows.start} to {rows.stop - 1}, cannot be decoded"
    fault = CorruptRecordError(problem, path=path, record=record, offset=None)
    fault.details["reason"] = str(reason)[:500]
    return fault


def huge_rows(path: str, *, rows: range, problem: str) -> ShardMismatchError:
    """Make the error for a row group of a Parquet file that needs more memory than allowed."""
    return ShardMismatchError(
        f"{path}: its row group, records {rows.start} to {rows.stop - 1}, {problem}",
        hint="Write the file again with smaller row groups, e.g. of 1,000 rows.",
        details={"path": path, "first": rows.start, "stop": rows.stop},
    )


def name_record(fault: CorruptExampleError, filename: str, record: int) -> CorruptExampleError:
    """Return ``fault`` of an example with its file, and its index in the file."""
    return CorruptExampleError(
        f"{filename}: record {record}: {fault.message}",
        hint=fault.hint,
        details={**fault.details, "path": filename, "record": record},
    )


def check_promise(path: str, stop: int, *, found: int, promised: int | None) -> None:
    """Check that records up to ``stop`` can be read from a file of ``found`` records that should have ``promised``.

    Raises:
        ShardMismatchError: the file has fewer records; or ``stop`` is the expected end, and the file has more.
    """
    if promised is not None and stop > promised:
        raise no_such_record(path, stop - 1, found=promised)
    if stop > found:
        raise (
            no_such_record(path, stop - 1, found=found)
            if promised is None
            else not_so_many(path, promised, found=found)
        )
    if stop == promised and found > promised:
        raise not_so_many(path, promised, found=promised, more=True)
