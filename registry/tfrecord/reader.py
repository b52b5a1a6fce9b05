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
    is_gzip,
    is_header,
    no_such_record,
    not_so_many,
)
from registry.tfrecord.streams import MOST_INFLATION, open_stream, stream_pieces
from registry.tfrecord.window import Window

_MOST_IN_BLOCK: Final = 256
"""Records that are found and checked together, before the first of them is returned."""

_WINDOW_BYTES: Final = 2**19
"""Half of a usual window: a small gzip file of millions of records is refused at the first surplus record."""

_MOST_OF_OTHERS: Final = 2**40
"""Most records of a file whose format does not limit how small a record can be."""


def read_records(
    store: Store, name: str, *, skip: int = 0, take: int | None = None, num_records: int | None = None
) -> Iterator[bytes]:
    """Read records of a shard file in order.

    A gzip file is decompressed. Both checksums of every record are checked before it is returned; of skipped records,
    only the checksum of the length. An empty file has no records. A local file is mapped, so that skipping a record
    reads only its header; of other files, memory holds a window of half a MiB, or one record if that is longer.

    Args:
        store: the folder.
        name: the file's name in it.
        skip: number of records to skip.
        take: number of records to return; None returns all others.
        num_records: the number of records that the file should have, or None if unknown. If ``skip`` and ``take``
            exceed it, the first record raises; otherwise it is checked at the end of the file.

    Yields:
        The payload of each record.

    Raises:
        CorruptRecordError: a checksum is wrong, or the file is truncated; names file, record and byte offset.
        ShardMismatchError: the file has fewer records than requested, or not ``num_records``.
        StorageError: the file cannot be read.
        UsageError: a number is negative.
    """
    check_counts(skip=skip, take=take, num_records=num_records)
    return _read(store, name, skip=skip, take=take, num_records=num_records)


def check_counts(**counts: int | None) -> None:
    """Raise UsageError if one of the options is negative."""
    for option, number in counts.items():
        if number is not None and number < 0:
            raise UsageError(f"{option} must be 0 or more, not {number}", details={option: number})


def _read(store: Store, name: str, *, skip: int, take: int | None, num_records: int | None) -> Iterator[bytes]:
    with open_stream(store, name) as stream:
        least = skip + (take or 0)
        if num_records is not None and least > num_records:
            raise no_such_record(stream.path, least - 1, found=num_records)
        blocks = Window(stream, record=0, base=0, least_bytes=_WINDOW_BYTES).blocks(
            skip=skip, take=take, num_records=num_records, most=_MOST_IN_BLOCK, verify="record"
        )
        for block in blocks:
            yield from map(bytes, block.views())


def walk_file(store: Store, name: str, *, num_records: int | None = None) -> FileFacts:
    """Check every record of a shard file, count the records and hash the file, in one pass over its bytes.

    A compressed file with more than ``num_records`` is read only up to the first surplus record:
    some kilobytes may decompress to millions.

    Raises:
        CorruptRecordError: a record is damaged, or the file is truncated.
        ShardMismatchError: the file does not have ``num_records``.
        StorageError: the file cannot be read.
    """
    with store.open(name) as file:
        result = None if is_gzip(file.read(HEADER_BYTES)) else walk_whole(file)
        if result is None:
            return _walk_each(file, store.locate(name), promised=num_records)
    if num_records is not None and result.num_records != num_records:
        raise not_so_many(store.locate(name), num_records, found=result.num_records)
    return result


def _walk_each(file: StoredFile, path: str, *, promised: int | None) -> FileFacts:
    """Walk the file record by record, decompressed if needed; an error names the record and its position."""
    num_records = num_payload_bytes = num_bytes = 0
    digest = hashlib.sha256()

    def read(size: int) -> bytes:
        nonlocal num_bytes
        piece = file.read(size)
        digest.update(piece)
        num_bytes += len(piece)
        return piece

    file.seek(0)
    stream = stream_pieces(read, read(HEADER_BYTES), size=file.num_bytes, path=path)
    window = Window(stream, record=0, base=0, least_bytes=_WINDOW_BYTES)
    for block in window.blocks(skip=0, take=None, num_records=promised, most=_MOST_IN_BLOCK, verify="record"):
        num_records += block.num_records
        num_payload_bytes += block.num_bytes
    return FileFacts(
        num_records=num_records,
        num_payload_bytes=num_payload_bytes,
        num_bytes=num_bytes,
        sha256=digest.hexdigest(),
    )


def hash_file(store: Store, name: str, *, num_records: int, file_format: str = "tfrecord") -> FileFacts:
    """Hash a shard file without reading its records; ``num_records`` is trusted unless it is impossible.

    A record has 16 bytes of framing, and gzip compresses by at most 1032, so a short file limits ``num_records``.
    Files of other formats (``file_format``) may hold very many equal records in few bytes, but fewer than 2**40.

    Raises:
        ShardMismatchError: the file is too short for ``num_records`` records.
        StorageError: the file cannot be read.
    """
    with store.open(name) as file:
        is_compressed = is_gzip(file.read(HEADER_BYTES))
        num_bytes, sha256 = file.num_bytes, file.sha256()
    if file_format == "tfrecord":
        most = num_bytes * (MOST_INFLATION if is_compressed else 1) // FRAMING_BYTES
    else:
        most = _MOST_OF_OTHERS if num_bytes else 0
    if num_records > most:
        raise ShardMismatchError(
            f"{name}: it is {num_bytes} bytes long, too few for {num_records} records",
            hint="The numbers of records are wrong, or the file was truncated. Fetch or build it again.",
            details={"path": name, "num_bytes": num_bytes, "num_records": num_records},
        )
    return FileFacts(num_records=num_records, num_payload_bytes=0, num_bytes=num_bytes, sha256=sha256)


def walk_whole(file: StoredFile) -> FileFacts | None:
    """Walk an uncompressed file many records at a time; None if it is damaged, or was truncated meanwhile.

    This is the fast path. If it returns None, ``_walk_each`` finds the fault and its position.
    """
    digest, size = hashlib.sha256(), file.num_bytes
    num_records = num_payload_bytes = num_bytes = 0

    def walk(data: Octets) -> int | None:
        """Return the end of the last whole record of ``data``, or None if a record is damaged."""
        nonlocal num_records, num_payload_bytes
        bounds = walk_frames(data, 0, limit=data.size, most=data.size)
        lengths = bounds[1:] - bounds[:-1] - FRAMING_BYTES
        if lengths.size and find_fault(data, bounds[:-1], lengths, verify="block") is not None:
            return None
        num_records += lengths.size
        num_payload_bytes += int(lengths.sum())
        return int(bounds[-1])

    begun = bytearray()  # the start of a record that continues in the next pieces
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
    """The size of the frame that begins with ``start``; None if its header is damaged or it exceeds ``most``."""
    header = bytes(start[:HEADER_BYTES])
    length = int.from_bytes(header[:8], "little")
    fits = length <= MAX_RECORD_BYTES and length + FRAMING_BYTES <= most
    return length + FRAMING_BYTES if is_header(header) and fits else None
