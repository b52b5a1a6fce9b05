"""What is said of a damaged shard file? One wording for all that read it, record by record or many at once."""

from __future__ import annotations

from typing import Final, NamedTuple

from registry.errors import CorruptRecordError, ShardMismatchError, StorageError

HEADER_BYTES: Final = 12
FRAMING_BYTES: Final = HEADER_BYTES + 4
"""What framing adds to a record."""

MAX_RECORD_BYTES: Final = 2**31 - 1
"""The longest payload that is read or written: a protobuf message cannot be longer."""


class DamagedStreamError(ValueError):
    """The bytes of a compressed file stop making sense; becomes a CorruptRecordError that names the place."""


class FilePlace(NamedTuple):
    """Where a record begins: ``offset`` counts decompressed bytes in a ``compressed`` file."""

    path: str
    compressed: bool
    record: int
    offset: int

    def corrupt(self, problem: str) -> CorruptRecordError:
        """The error for a fault of this record."""
        note = " (the offset counts decompressed bytes)" if self.compressed else ""
        return CorruptRecordError(problem + note, path=self.path, record=self.record, offset=self.offset)

    def bad_header(self) -> CorruptRecordError:
        """The error for a header that does not fit its checksum."""
        return self.corrupt("its length and the checksum of the length disagree: one of them is damaged")

    def bad_payload(self, length: int) -> CorruptRecordError:
        """The error for ``length`` bytes that do not fit their checksum."""
        return self.corrupt(f"its {length} bytes and their checksum disagree: one of them is damaged")

    def cut_off(self, needed: int, *, end: int) -> CorruptRecordError:
        """The error for a record of ``needed`` bytes with its framing, in a stream that ends at ``end``."""
        have = end - self.offset
        if have >= needed:
            problem = f"its length of {needed - FRAMING_BYTES} bytes is more than a record can have"
        elif needed == HEADER_BYTES:
            problem = f"the file ends after {have} of the {HEADER_BYTES} bytes of its header"
        else:
            problem = f"the file ends after {have} of its {needed} bytes"
        return self.corrupt(problem)


def not_so_many(path: str, num_records: int, *, found: int, more: bool = False) -> ShardMismatchError:
    """The error for a file that holds ``found`` records (or ``more``), where ``num_records`` were promised."""
    return _mismatch(path, f"{num_records} records were promised", found=found, more=more)


def no_such_record(path: str, record: int, *, found: int) -> ShardMismatchError:
    """The error for asking for ``record`` of a file of ``found`` records."""
    return _mismatch(path, f"record {record} was asked for", found=found)


def cut_short(path: str, *, was: int, now: int) -> StorageError:
    """The error for a file that lost bytes after it was opened."""
    return StorageError(
        f"cannot read {path}: it had {was} bytes when it was opened, and has {now} now",
        hint="Published files never change. Fetch it again; `registry verify` names every bad shard.",
        details={"path": path, "errno": None, "doing": "read", "was": was, "now": now},
    )


def wrong_claim(path: str, record: int) -> ShardMismatchError:
    """The error for a gzip member that says it begins with ``record``, and does not."""
    return ShardMismatchError(
        f"{path}: a gzip member claims to begin with record {record}, and does not",
        hint="Something rewrote this file wrongly. Fetch it again, or write it anew.",
        details={"path": path, "record": record},
    )


def _mismatch(path: str, promise: str, *, found: int, more: bool = False) -> ShardMismatchError:
    return ShardMismatchError(
        f"{path}: {promise}, but it holds {'more than ' if more else ''}{found} records",
        hint="This file is not the one that was published. Fetch it again; `registry verify` names every bad shard.",
        details={"path": path, "num_records": found, "more": more},
    )
