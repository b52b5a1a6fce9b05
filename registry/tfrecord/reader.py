"""Reads the records of a shard file in order, and walks whole files to verify, count and hash them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import BinaryIO, Final

import numpy as np

from registry.errors import ShardMismatchError, UsageError
from registry.storage import Store
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
    for option, number in (("skip", skip), ("take", take), ("num_records", num_records)):
        if number is not None and number < 0:
            raise UsageError(f"{option} must be 0 or more, not {number}", details={option: number})
    return _read(store, name, skip=skip, take=take, num_records=num_records)


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
        is_plain = not is_gzip(file.read(HEADER_BYTES))
        file.seek(0)
        found = walk_whole(file, num_bytes=store.size(name)) if is_plain else None
    if found is None:
        return _walk_each(store, name, promised=num_records)
    if num_records is not None and found.num_records != num_records:
        raise not_so_many(store.locate(name), num_records, found=found.num_records)
    return found


def _walk_each(store: Store, name: str, *, promised: int | None) -> FileFacts:
    """The same record by record, inflated where it is compressed: a fault is named by record and place."""
    num_records = num_payload_bytes = num_bytes = 0
    with store.open(name) as file:
        digest = hashlib.sha256()

        def read(size: int) -> bytes:
            nonlocal num_bytes
            piece = file.read(size)
            digest.update(piece)
            num_bytes += len(piece)
            return piece

        stream = stream_pieces(read, read(HEADER_BYTES), size=store.size(name), path=store.locate(name))
        claims = _claims(store, name) if stream.compressed else {}
        for record in iterate_records(stream, skip=0, take=None, num_records=promised):
            start = num_payload_bytes + FRAMING_BYTES * num_records
            if claims and claims.pop(num_records, start) != start:
                raise wrong_claim(stream.path, num_records)
            num_records += 1
            num_payload_bytes += len(record)
        if claims:
            raise wrong_claim(stream.path, min(claims))
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
    digest, num_bytes = hashlib.sha256(), 0
    with store.open(name) as file:
        is_compressed = is_gzip(file.read(HEADER_BYTES))
        file.seek(0)
        while piece := file.read(2**20):
            digest.update(piece)
            num_bytes += len(piece)
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
    return FileFacts(num_records=num_records, num_payload_bytes=0, num_bytes=num_bytes, sha256=digest.hexdigest())


def _claims(store: Store, name: str) -> dict[int, int]:
    """Where in the content of a gzip file records begin, as its members claim: the first record of each."""
    with store.open(name) as file:
        return {one.first_record: one.content_start for one in find_members(file, store.size(name))}


_PIECE_BYTES: Final = 4 * 2**20
"""What is read, hashed and checked at a time: it stays in the processor's cache."""


def walk_whole(file: BinaryIO, *, num_bytes: int) -> FileFacts | None:
    """What ``file``, of so many bytes and open at its start, holds; None where it is not sound, or is another size."""
    digest = hashlib.sha256()
    buffer: Octets = np.empty(_PIECE_BYTES, np.uint8)
    filled = num_records = num_payload_bytes = num_read = 0
    while num_read < num_bytes:
        count = file.readinto(buffer.data[filled:])  # type: ignore[attr-defined]  # every stored file is a raw or buffered one
        if not count:
            return None
        digest.update(buffer.data[filled : filled + count])
        num_read += count
        filled += count
        data = buffer[:filled]
        bounds = walk_frames(data, 0, limit=filled, most=filled)
        if bounds.size > 1:
            lengths = bounds[1:] - bounds[:-1] - FRAMING_BYTES
            if find_fault(data, bounds[:-1], lengths, verify="block") is not None:
                return None
            num_records += lengths.size
            num_payload_bytes += int(lengths.sum())
        rest = data[int(bounds[-1]) :]
        size = _room_for(rest, left=num_bytes - num_read)
        if size is None:
            return None
        following = buffer if size <= buffer.size else np.empty(size, np.uint8)
        following[: rest.size] = rest.copy()
        buffer, filled = following, rest.size
    if filled:
        return None
    return FileFacts(
        num_records=num_records, num_payload_bytes=num_payload_bytes, num_bytes=num_bytes, sha256=digest.hexdigest()
    )


def _room_for(rest: Octets, *, left: int) -> int | None:
    """How large a buffer the record takes that begins with ``rest``; None where the file cannot hold it."""
    if rest.size < HEADER_BYTES:
        return 0
    header = rest[:HEADER_BYTES].tobytes()
    length = int.from_bytes(header[:8], "little")
    if not is_header(header) or length > MAX_RECORD_BYTES or length + FRAMING_BYTES > rest.size + left:
        return None
    return length + FRAMING_BYTES
