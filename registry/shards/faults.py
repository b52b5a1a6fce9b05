"""Errors for damaged shard files without frames: they name the record where it is known, else the file."""

from __future__ import annotations

from registry.errors import CorruptExampleError, CorruptRecordError, ShardMismatchError
from registry.tfrecord.framing import no_such_record, not_so_many

_DAMAGED = "The file is damaged or truncated. Fetch or build it again; `registry verify` names every bad shard."


def bad_file(path: str, file_format: str, reason: object) -> ShardMismatchError:
    """The error for a file that is no sound one of its format: what says where its records lie cannot be read."""
    return ShardMismatchError(
        f"{path}: it is no {file_format} file, or a damaged one",
        hint=_DAMAGED,
        details={"path": path, "reason": str(reason)[:500]},
    )


def bad_record(path: str, record: int, reason: object) -> CorruptRecordError:
    """The error for a record of an ArrayRecord file that does not fit its checksum."""
    fault = CorruptRecordError("it cannot be read, or does not fit its checksum", path=path, record=record, offset=None)
    fault.details["reason"] = str(reason)[:500]
    return fault


def bad_rows(path: str, record: int, *, rows: range, reason: object) -> CorruptRecordError:
    """The error for a row group of a Parquet file that cannot be decoded."""
    problem = f"its row group, records {rows.start} to {rows.stop - 1}, cannot be decoded"
    fault = CorruptRecordError(problem, path=path, record=record, offset=None)
    fault.details["reason"] = str(reason)[:500]
    return fault


def huge_rows(path: str, *, rows: range, problem: str) -> ShardMismatchError:
    """The error for a row group of a Parquet file that asks for more memory than any should."""
    return ShardMismatchError(
        f"{path}: its row group, records {rows.start} to {rows.stop - 1}, {problem}",
        hint="Write the file again with smaller row groups, e.g. of 1,000 rows.",
        details={"path": path, "first": rows.start, "stop": rows.stop},
    )


def name_record(fault: CorruptExampleError, filename: str, record: int) -> CorruptExampleError:
    """``fault`` of an example, with the file and the place in it where it is stored."""
    return CorruptExampleError(
        f"{filename}: record {record}: {fault.message}",
        hint=fault.hint,
        details={**fault.details, "path": filename, "record": record},
    )


def check_promise(path: str, stop: int, *, found: int, promised: int | None) -> None:
    """Refuse to read up to ``stop`` in a file of ``found`` records, where ``promised`` were.

    Raises:
        ShardMismatchError: there are not so many; or it is read to the end that was promised, and holds more.
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
