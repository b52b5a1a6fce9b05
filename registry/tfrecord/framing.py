"""Frames of TFRecord files, one record at a time: written, read, and every fault named with its place.

``iterate_records`` works on a buffer that holds some of the file: the whole of it where it is mapped, else a piece that
grows by what ``more`` brings. It never allocates memory for a length that cannot be true.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from mmap import mmap
from typing import BinaryIO, Final, NamedTuple

from fastcrc.crc32 import iscsi

from registry.errors import BuildError, CorruptRecordError, ShardMismatchError, StorageError
from registry.storage.faults import cannot

HEADER_BYTES: Final = 12
FRAMING_BYTES: Final = HEADER_BYTES + 4
"""What framing adds to a record."""

MAX_RECORD_BYTES: Final = 2**31 - 1
"""The longest payload that is read or written: a protobuf message cannot be longer."""

crc32c: Final = iscsi
"""CRC32C (Castagnoli) of any buffer."""

MASK_DELTA: Final = 0xA282EAD8
"""What masking adds to a rotated checksum."""

_HEADER: Final = struct.Struct("<QI")
_CRC: Final = struct.Struct("<I")
_NEVER: Final = -1


def masked_crc32c(buffer: bytes | bytearray | memoryview) -> int:
    """The masked CRC32C of any buffer, 0..2**32-1: rotated right by 15 bits, plus a constant, as TFRecord stores it.

    >>> hex(crc32c(b"123456789")), hex(masked_crc32c(b"123456789"))
    ('0xe3069283', '0xc78ab0e5')
    """
    crc = crc32c(buffer)
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteStream:
    """The bytes of a file in order, decompressed.

    Attributes:
        path: what the file is called in messages.
        start: the first bytes, or all of them where the file is mapped.
        more: the next piece of bytes, ``b""`` at the end; raises DamagedStreamError.
        limit: no more bytes than this can come, ``start`` included.
        compressed: whether offsets count decompressed bytes, which the messages then say.
    """

    path: str
    start: bytes | mmap
    more: Callable[[], bytes]
    limit: int
    compressed: bool

    def place(self, record: int, offset: int) -> FilePlace:
        """Where ``record`` begins, for errors."""
        return FilePlace(self.path, self.compressed, record, offset)


def frame_record(record: bytes) -> bytes:
    """``record`` with its length before it and both checksums: 16 bytes longer.

    >>> frame_record(b"").hex()
    '000000000000000029039807d8ea82a2'
    """
    length = len(record).to_bytes(8, "little")
    return b"".join(
        (length, _CRC.pack(masked_crc32c(length)), record, _CRC.pack(masked_crc32c(record))),
    )


def is_header(start: bytes) -> bool:
    """Whether a file that begins with ``start`` begins with a record: its length agrees with its checksum."""
    if len(start) < HEADER_BYTES:
        return False
    _, length_crc = _HEADER.unpack_from(start)
    return bool(masked_crc32c(start[:8]) == length_crc)


def iterate_records(stream: ByteStream, *, skip: int, take: int | None, num_records: int | None) -> Iterator[bytes]:
    """The payloads of records skip..skip+take (all after ``skip`` where ``take`` is None), each with its CRCs checked.

    Of skipped records the header is checked. Records after the last one asked for are not looked at, except that where
    ``num_records`` says that no more follow, none may follow.

    Raises:
        CorruptRecordError: framing or checksum of a record is wrong.
        ShardMismatchError: there are fewer records than asked for, or not ``num_records``.
    """
    at_least = skip + (take or 0)
    if num_records is not None and at_least > num_records:
        raise no_such_record(stream.path, at_least - 1, found=num_records)
    return_at = at_least if take is not None and at_least != num_records else _NEVER
    refuse_at = _NEVER if num_records is None else num_records
    # What follows runs once a record, so it calls as little as it can: the masking of masked_crc32c stands here twice.
    unpack_header, unpack_crc, checksum = _HEADER.unpack_from, _CRC.unpack_from, crc32c
    buffer, base, position, end = stream.start, 0, 0, len(stream.start)  # the buffer holds base..base+end of the stream
    index = 0
    while index != return_at:
        needed = HEADER_BYTES
        if end - position >= HEADER_BYTES:
            length, length_crc = unpack_header(buffer, position)
            crc = checksum(buffer[position : position + 8])
            if ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF != length_crc:
                raise stream.place(index, base + position).bad_header()
            if index == refuse_at:
                raise not_so_many(stream.path, refuse_at, found=index, more=True)
            needed = length + FRAMING_BYTES
            stop = position + needed
            if stop <= end:
                if index >= skip:
                    record = buffer[position + HEADER_BYTES : stop - 4]
                    crc = checksum(record)
                    if ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF != unpack_crc(buffer, stop - 4)[0]:
                        raise stream.place(index, base + position).bad_payload(length)
                    yield record
                index += 1
                position = stop
                continue
            if length > MAX_RECORD_BYTES or base + stop > stream.limit:
                raise stream.place(index, base + position).cut_off(needed, end=stream.limit)
        base += position
        buffer = _gather(stream, buffer[position:], needed, stream.place(index, base))
        position, end = 0, len(buffer)
        if end == 0:
            break
        if end < needed:
            raise stream.place(index, base).cut_off(needed, end=base + end)
    else:
        return
    if num_records is not None and index != num_records:
        raise not_so_many(stream.path, num_records, found=index)
    if index < at_least:
        raise no_such_record(stream.path, at_least - 1, found=index)


def _gather(stream: ByteStream, rest: bytes, needed: int, place: FilePlace) -> bytes:
    """``rest`` and what follows it, at least ``needed`` bytes unless the stream ends before."""
    pieces, have = [rest], len(rest)
    try:
        while have < needed and (piece := stream.more()):
            pieces.append(piece)
            have += len(piece)
    except DamagedStreamError as error:
        raise place.corrupt(f"{error}, here or after") from error
    return b"".join(pieces)


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
    reason = f"it had {was} bytes when it was opened, and has {now} now"
    hint = "Published files never change. Fetch it again; `registry verify` names every bad shard."
    return cannot("read", path, reason, hint=hint, was=was, now=now)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What a whole shard file was found to be.

    Attributes:
        num_records: records in it, every one with sound checksums.
        num_payload_bytes: sum of their lengths, without framing: what TFDS calls a split's ``numBytes``.
        num_bytes: size of the file as it is stored, compressed or not.
        sha256: 64 hex digits over the file as it is stored.
    """

    num_records: int
    num_payload_bytes: int
    num_bytes: int
    sha256: str


class RecordWriter:
    """Writes records to a binary file that is open for writing; the caller opens it, and closes it.

    The same records give the same bytes on every machine. Nothing is compressed.

    ``num_records``, ``num_payload_bytes`` and ``num_bytes`` are those of ``FileFacts``, of what was written so far.

    >>> import io
    >>> file = io.BytesIO()
    >>> writer = RecordWriter(file)
    >>> writer.write(b"one"), writer.write(b"three")
    (None, None)
    >>> writer.num_records, writer.num_payload_bytes, writer.num_bytes
    (2, 8, 40)

    Raises:
        BuildError: a record is longer than 2 GiB, more than a protobuf message can hold.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.num_records = 0
        self.num_payload_bytes = 0
        self.num_bytes = 0

    def write(self, record: bytes) -> None:
        """Append one record."""
        if len(record) > MAX_RECORD_BYTES:
            raise BuildError(
                f"record {self.num_records} is {len(record)} bytes long; a record has {MAX_RECORD_BYTES} at most",
                hint="Split the example, or store the large value in a file of its own.",
                details={"record": self.num_records, "num_bytes": len(record)},
            )
        frame = frame_record(record)
        self._file.write(frame)
        self._digest.update(frame)
        self.num_records += 1
        self.num_payload_bytes += len(record)
        self.num_bytes += len(frame)

    def sha256(self) -> str:
        """sha256 of all bytes written so far, 64 hex digits."""
        return self._digest.hexdigest()
