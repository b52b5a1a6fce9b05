"""Writes the frames of TFRecord files, and names the position of every fault in one.

``block`` finds and checks the frames of many records; ``window`` reads those of a stream.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from mmap import mmap
from typing import BinaryIO, Final, NamedTuple

from fastcrc.crc32 import iscsi

from registry.errors import BuildError, CorruptRecordError, ShardMismatchError, StorageError
from registry.storage.faults import cannot

HEADER_BYTES: Final = 12
FRAMING_BYTES: Final = HEADER_BYTES + 4
"""The number of bytes that framing adds to a record."""

MAX_RECORD_BYTES: Final = 2**31 - 1
"""The longest payload that is read or written, in bytes: the limit of a protobuf message."""

crc32c: Final = iscsi
"""CRC32C (Castagnoli) of any buffer."""

MASK_DELTA: Final = 0xA282EAD8
"""The constant that masking adds to a rotated checksum."""

GZIP_MAGIC: Final = b"\x1f\x8b\x08"
"""The first bytes of a gzip file."""

_HEADER: Final = struct.Struct("<QI")
_CRC: Final = struct.Struct("<I")


def masked_crc32c(buffer: bytes | bytearray | memoryview) -> int:
    """Compute the masked CRC32C that TFRecord stores, 0..2**32-1: rotated right by 15 bits, plus a constant.

    >>> hex(crc32c(b"123456789")), hex(masked_crc32c(b"123456789"))
    ('0xe3069283', '0xc78ab0e5')
    """
    crc = crc32c(buffer)
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteStream:
    """The bytes of a file in order, decompressed.

    Attributes:
        path: the file's name in messages.
        start: the first bytes, or all bytes if the file is mapped.
        more: returns the next piece of bytes, ``b""`` at the end; raises DamagedStreamError.
        limit: most bytes that the stream can have, including ``start``.
        compressed: whether offsets count decompressed bytes; messages mention it.
    """

    path: str
    start: bytes | mmap
    more: Callable[[], bytes]
    limit: int
    compressed: bool


def frame_record(record: bytes) -> bytes:
    """Return ``record`` with its length and both checksums, 16 bytes longer.

    >>> frame_record(b"").hex()
    '000000000000000029039807d8ea82a2'
    """
    length = len(record).to_bytes(8, "little")
    return b"".join(
        (length, _CRC.pack(masked_crc32c(length)), record, _CRC.pack(masked_crc32c(record))),
    )


def check_length(num_bytes: int, *, record: int) -> None:
    """Check the length of a record that is about to be written.

    Raises:
        BuildError: it is longer than 2 GiB, the limit of a protobuf message.
    """
    if num_bytes > MAX_RECORD_BYTES:
        raise BuildError(
            f"record {record} is {num_bytes} bytes long; expected at most {MAX_RECORD_BYTES}",
            hint="Split the example, or store the large value in a separate file.",
            details={"record": record, "num_bytes": num_bytes},
        )


def is_header(start: bytes) -> bool:
    """Whether ``start`` is the start of a record: a length that matches its checksum."""
    if len(start) < HEADER_BYTES:
        return False
    _, length_crc = _HEADER.unpack_from(start)
    return bool(masked_crc32c(start[:8]) == length_crc)


def is_gzip(start: bytes) -> bool:
    """Whether a file is gzip. A plain record of 35,615 bytes (0x8b1f) begins alike; its checksum tells them apart."""
    return start.startswith(GZIP_MAGIC) and not is_header(start)


class DamagedStreamError(ValueError):
    """A compressed file is damaged; becomes a CorruptRecordError that names the position."""


class FilePlace(NamedTuple):
    """The start of a record: ``offset`` in bytes; in a ``compressed`` file, in decompressed bytes."""

    path: str
    compressed: bool
    record: int
    offset: int

    def corrupt(self, problem: str) -> CorruptRecordError:
        """Make the error for a fault of this record."""
        note = " (the offset counts decompressed bytes)" if self.compressed else ""
        return CorruptRecordError(problem + note, path=self.path, record=self.record, offset=self.offset)

    def bad_header(self) -> CorruptRecordError:
        """Make the error for a header that does not match its checksum."""
        return self.corrupt("its length and the checksum of the length disagree: one of them is damaged")

    def bad_payload(self, length: int) -> CorruptRecordError:
        """Make the error for a payload of ``length`` bytes that does not match its checksum."""
        return self.corrupt(f"its {length} bytes and their checksum disagree: one of them is damaged")

    def cut_off(self, needed: int, *, end: int) -> CorruptRecordError:
        """Make the error for a record of ``needed`` bytes, with framing, in a stream that ends at ``end``."""
        have = end - self.offset
        if have >= needed:
            problem = f"its length of {needed - FRAMING_BYTES} bytes exceeds the maximum of a record"
        elif needed == HEADER_BYTES:
            problem = f"the file ends after {have} of the {HEADER_BYTES} bytes of its header"
        else:
            problem = f"the file ends after {have} of its {needed} bytes"
        return self.corrupt(problem)


def not_so_many(path: str, num_records: int, *, found: int, more: bool = False) -> ShardMismatchError:
    """Make the error for a file of ``found`` records (or ``more``) that should have ``num_records``."""
    return _mismatch(
        path, f"expected {num_records} records, found {'more than ' if more else ''}{found}", found, more=more
    )


def no_such_record(path: str, record: int, *, found: int) -> ShardMismatchError:
    """Make the error for a request for ``record`` of a file of ``found`` records."""
    return _mismatch(path, f"record {record} was requested, but the file has {found} records", found)


def cut_short(path: str, *, was: int, now: int) -> StorageError:
    """Make the error for a file that was truncated after it was opened."""
    reason = f"it had {was} bytes when it was opened, but has {now} now"
    hint = "Published files never change. Fetch it again; `registry verify` names every bad shard."
    return cannot("read", path, reason, hint=hint, was=was, now=now)


def _mismatch(path: str, problem: str, actual: int, *, more: bool = False) -> ShardMismatchError:
    return ShardMismatchError(
        f"{path}: {problem}",
        hint="This is not the file that was published. Fetch it again; `registry verify` names every bad shard.",
        details={"path": path, "num_records": actual, "more": more},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """The facts of a shard file that was read whole.

    Attributes:
        num_records: number of records, all with correct checksums.
        num_payload_bytes: sum of their lengths in bytes, without framing; TFDS calls it a split's ``numBytes``.
        num_bytes: size of the stored file in bytes, compressed or not.
        sha256: of the stored file, 64 hex digits.
    """

    num_records: int
    num_payload_bytes: int
    num_bytes: int
    sha256: str


class RecordWriter:
    """Writes records, uncompressed, to a binary file that the caller opens and closes.

    The same records give the same bytes on every machine. ``num_records``, ``num_payload_bytes`` and ``num_bytes``
    describe the records written so far, as in ``FileFacts``.

    >>> import io
    >>> file = io.BytesIO()
    >>> writer = RecordWriter(file)
    >>> writer.write(b"one"), writer.write(b"three")
    (None, None)
    >>> writer.num_records, writer.num_payload_bytes, writer.num_bytes
    (2, 8, 40)

    Raises:
        BuildError: a record is longer than 2 GiB, the limit of a protobuf message.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.num_records = 0
        self.num_payload_bytes = 0
        self.num_bytes = 0

    def write(self, record: bytes) -> None:
        """Append one record."""
        check_length(len(record), record=self.num_records)
        self.write_frames(frame_record(record), num_records=1)

    def write_frames(self, data: bytes | memoryview, *, num_records: int) -> None:
        """Append the bytes of ``num_records`` frames, which ``frame_records`` made."""
        self._file.write(data)
        self._digest.update(data)
        self.num_records += num_records
        self.num_payload_bytes += len(data) - FRAMING_BYTES * num_records
        self.num_bytes += len(data)

    def sha256(self) -> str:
        """sha256 of all bytes written so far, 64 hex digits."""
        return self._digest.hexdigest()
