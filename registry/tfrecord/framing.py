"""Where does one record end and the next begin? Bytes in, records out; every fault named with its place.

The loop works on a buffer that holds some of the file: the whole of it where it is mapped, else a piece that grows by
what ``more`` brings. It never asks for memory on the word of a length that cannot be true.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from mmap import mmap
from typing import Final

from registry.tfrecord.crc import MASK_DELTA, crc32c, masked_crc32c
from registry.tfrecord.faults import (
    FRAMING_BYTES,
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    DamagedStreamError,
    FilePlace,
    no_such_record,
    not_so_many,
)

_HEADER: Final = struct.Struct("<QI")
_CRC: Final = struct.Struct("<I")
_NEVER: Final = -1


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
