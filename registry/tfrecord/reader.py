"""Reads the records of a shard file in order, and walks whole files to verify, count and hash them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

import numpy as np

from registry.errors import ShardMismatchError, UsageError
from registry.storage import Store
from registry.storage.faults import StoredFile
from registry.tfrecord.block import Octets, find_fault, walk_frames
from registry.tfrecord.framing import (
    FRAMING_BYTES,
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    FileFacts,
    is_header,
    iterate_records,
    not_so_many,
    wrong_claim,
)
from registry.tfrecord.streams import MOST_INFLATION, find_members, is_gzip, open_stream, stream_pieces

_MOST_OF_OTHERS: Final = 2**40
"""Of a file whose form does not say how few bytes a record can have."""


def read_records(
    store: Store, name: str, *, skip: int = 0, take: int | None = None, num_records: int | None = None
) -> Iterator[bytes]:
    """The payloads of records ``skip`` to ``skip + take`` of a shard file, in order; all after ``skip`` by default.

    A file that begins as gzip does is inflated. Both checksums of every record are checked before it is handed out; of
    skipped records, the length's. An empty file holds no records. On this machine's disks the file is mapped, so that
    a skipped record costs a look at its header; other files are read in pieces, and memory holds one record at a time.

    ``num_records`` is how many records the file should hold. It is checked before the first record where ``skip`` and
    ``take`` go beyond it, else when the end of the file is reached.

    Raises:
        CorruptRecordError: a checksum is wrong, or the file is cut off; names file, record and byte offset.
        ShardMismatchError: the file holds fewer records than asked for, or not ``num_records``.
        StorageError: the file cannot be read.
        UsageError: a number is negative.
    """
    check_counts(skip=skip, take=take, num_records=num_records)
    return _read(store, name, skip=skip, take=take, num_records=num_records)


def check_counts(**counts: int | None) -> None:
    """Refuse an option, by its name, that is negative. Raises UsageError."""
    for option, number in counts.items():
        if number is not None and number < 0:
            raise UsageError(f"{option} must be 0 or more, not {number}", details={option: number})


def _read(store: Store, name: str, *, skip: int, take: int | None, num_records: int | None) -> Iterator[bytes]:
    with open_stream(store, name) as stream:
        yield from iterate_records(stream, skip=skip, take=take, num_records=num_records)


def walk_file(store: Store, name: str, *, num_records: int | None = None) -> FileFacts:
    """Check every record of a shard file, and count and hash it, in one pass over its bytes.

    Members of a gzip file that say which records they hold must be right: readers enter the file by what they say.
    A compressed file that holds more than ``num_records`` is read up to the first that is too many: some kilobytes may
    hold millions of them.

    Raises:
        CorruptRecordError: a record is damaged, or the file is cut off.
        ShardMismatchError: the file does not hold ``num_records``, or a gzip member not the records that it claims.
        StorageError: the file cannot be read.
    """
    with store.open(name) as file:
        found = None if is_gzip(file.read(HEADER_BYTES)) else walk_whole(file)
        if found is None:
            return _walk_each(file, store.locate(name), promised=num_records)
    if num_records is not None and found.num_records != num_records:
        raise not_so_many(store.locate(name), num_records, found=found.num_records)
    return found


def _walk_each(file: StoredFile, path: str, *, promised: int | None) -> FileFacts:
    """The same record by record, inflated where it is compressed: a fault is named by record and place."""
    num_records = num_payload_bytes = num_bytes = 0
    digest = hashlib.sha256()

    def read(size: int) -> bytes:
        nonlocal num_bytes
        piece = file.read(size)
        digest.update(piece)
        num_bytes += len(piece)
        return piece

    claims = {one.first_record: one.content_start for one in find_members(file)}  # none of a file that is no gzip file
    file.seek(0)
    stream = stream_pieces(read, read(HEADER_BYTES), size=file.num_bytes, path=path)
    for record in iterate_records(stream, skip=0, take=None, num_records=promised):
        start = num_payload_bytes + FRAMING_BYTES * num_records
        if claims and claims.pop(num_records, start) != start:
            raise wrong_claim(path, num_records)
        num_records += 1
        num_payload_bytes += len(record)
    if claims:
        raise wrong_claim(path, min(claims))
    return FileFacts(
        num_records=num_records,
        num_payload_bytes=num_payload_bytes,
        num_bytes=num_bytes,
        sha256=digest.hexdigest(),
    )


def hash_file(store: Store, name: str, *, num_records: int, file_format: str = "tfrecord") -> FileFacts:
    """The size and sha256 of a shard file, of which ``num_records`` is believed: no record is looked at.

    What cannot be is not believed: a record has 16 bytes of framing, and gzip makes them 1032 times shorter at most.
    Files of other formats (``file_format``) may hold very many equal records in few bytes, though not 2**40.

    Raises:
        ShardMismatchError: the file is too short for so many records.
        StorageError: the file cannot be read.
    """
    with store.open(name) as file:
        is_compressed = is_gzip(file.read(HEADER_BYTES))
        num_bytes, sha256 = hash_pieces(file)
    if file_format == "tfrecord":
        most = num_bytes * (MOST_INFLATION if is_compressed else 1) // FRAMING_BYTES
    else:
        most = _MOST_OF_OTHERS if num_bytes else 0
    if num_records > most:
        raise ShardMismatchError(
            f"{name}: it is {num_bytes} bytes long, too few for {num_records} records",
            hint="The numbers of records are wrong, or the file was cut off. Fetch or build it again.",
            details={"path": name, "num_bytes": num_bytes, "num_records": num_records},
        )
    return FileFacts(num_records=num_records, num_payload_bytes=0, num_bytes=num_bytes, sha256=sha256)


def hash_pieces(file: StoredFile) -> tuple[int, str]:
    """The number and the sha256 of the bytes of an open file, from its start."""
    digest, num_bytes = hashlib.sha256(), 0
    for piece in file.pieces():
        digest.update(piece)
        num_bytes += len(piece)
    return num_bytes, digest.hexdigest()


def walk_whole(file: StoredFile) -> FileFacts | None:
    """What a file holds, walked many records at a time; None where it is not sound, or was cut short meanwhile.

    The fast way through a file that is not compressed: read record by record, the file says what is wrong, and where.
    """
    digest, size = hashlib.sha256(), file.num_bytes
    num_records = num_payload_bytes = num_bytes = 0

    def walk(data: Octets) -> int | None:
        """Where the last whole record of ``data`` ends; None where one is not sound."""
        nonlocal num_records, num_payload_bytes
        bounds = walk_frames(data, 0, limit=data.size, most=data.size)
        lengths = bounds[1:] - bounds[:-1] - FRAMING_BYTES
        if lengths.size and find_fault(data, bounds[:-1], lengths, verify="block") is not None:
            return None
        num_records += lengths.size
        num_payload_bytes += int(lengths.sum())
        return int(bounds[-1])

    begun = bytearray()  # a record of which the next pieces hold the rest
    for piece in file.pieces():
        digest.update(piece)
        num_bytes += len(piece)
        data: Octets = np.frombuffer(piece, np.uint8)
        for wanted in (HEADER_BYTES, None) if begun else ():
            needed = wanted or _frame_bytes(begun, most=len(begun) + data.size + size - num_bytes)
            if needed is None:
                return None
            taken = max(0, needed - len(begun))
            begun += data[:taken].data
            data = data[taken:]
            if len(begun) < needed:
                break
            if wanted is None:
                if walk(np.frombuffer(bytes(begun), np.uint8)) != needed:
                    return None
                begun.clear()
        if data.size:
            end = walk(data)
            if end is None:
                return None
            begun += data[end:].data
    if begun or num_bytes != size:
        return None
    return FileFacts(
        num_records=num_records, num_payload_bytes=num_payload_bytes, num_bytes=num_bytes, sha256=digest.hexdigest()
    )


def _frame_bytes(start: bytearray, *, most: int) -> int | None:
    """The size of the frame that begins with ``start``; None where it is not sound, or longer than ``most``."""
    header = bytes(start[:HEADER_BYTES])
    length = int.from_bytes(header[:8], "little")
    fits = length <= MAX_RECORD_BYTES and length + FRAMING_BYTES <= most
    return length + FRAMING_BYTES if is_header(header) and fits else None
