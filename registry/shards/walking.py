"""Which records does a shard file of any format hold? Some of them in order; all, counted and hashed, to verify it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import numpy as np

from registry.errors import CorruptExampleError, UsageError
from registry.features import FeaturesDict
from registry.shards.array_record import ArrayRecordShard
from registry.shards.blocks import Block
from registry.shards.faults import check_promise, name_record
from registry.shards.formats import check_file_format
from registry.shards.opening import open_shard
from registry.shards.row_groups import RowGroupShard
from registry.shards.tables import TableBlock
from registry.storage import Store
from registry.tfrecord import FileFacts
from registry.tfrecord import read_records as read_frames
from registry.tfrecord import walk_file as walk_frames
from registry.tfrecord.faults import not_so_many
from registry.wire import FlatValue

T = TypeVar("T")

_STEP_RECORDS: Final = 1024
_STEP_BYTES: Final = 8 * 2**20
_PIECE_BYTES: Final = 2**20


def read_records(
    store: Store,
    name: str,
    *,
    file_format: str = "tfrecord",
    features: FeaturesDict | None = None,
    skip: int = 0,
    take: int | None = None,
    num_records: int | None = None,
) -> Iterator[bytes]:
    """The records ``skip`` to ``skip + take`` of a shard file, in order; all after ``skip`` by default.

    As ``registry.tfrecord.read_records``, for every format; rows of typed columns are serialized. Errors as there, and
    as ``open_shard``.
    """
    if check_file_format(file_format, store.locate(name)) == "tfrecord":
        return read_frames(store, name, skip=skip, take=take, num_records=num_records)
    for option, number in (("skip", skip), ("take", take), ("num_records", num_records)):
        if number is not None and number < 0:
            raise UsageError(f"{option} must be 0 or more, not {number}", details={option: number})
    return _read(store, name, file_format, features, skip=skip, take=take, num_records=num_records)


def read_flat_values(
    store: Store,
    name: str,
    *,
    features: FeaturesDict,
    skip: int = 0,
    take: int | None = None,
    num_records: int | None = None,
) -> Iterator[Mapping[str, FlatValue]]:
    """As ``read_records`` of a file of typed columns, but what the records store, by key: nothing is serialized."""
    shard = _open(store, name, "parquet_columns", features, num_records=num_records)
    for block, first in _blocks(shard, store.locate(name), skip=skip, take=take, num_records=num_records):
        if isinstance(block, TableBlock):
            yield from _sound_items(block, TableBlock.flat_values, name, first)


def walk_file(
    store: Store,
    name: str,
    *,
    file_format: str = "tfrecord",
    features: FeaturesDict | None = None,
    num_records: int | None = None,
) -> FileFacts:
    """Check every record of a shard file, and count and hash it.

    As ``registry.tfrecord.walk_file``, for every format. ``num_payload_bytes`` of a Parquet file of typed columns is
    what its columns take uncompressed. A file of another number of records than ``num_records`` is not walked. Errors
    as there, and as ``open_shard``.
    """
    if check_file_format(file_format, store.locate(name)) == "tfrecord":
        return walk_frames(store, name, num_records=num_records)
    num_payload_bytes = num_walked = 0
    shard = _open(store, name, file_format, features, num_records=None)
    if num_records is not None and shard.num_records != num_records:
        raise not_so_many(store.locate(name), num_records, found=shard.num_records)
    if isinstance(shard, RowGroupShard):
        for block in shard.stream(0, shard.num_records):
            num_walked += block.num_records
            num_payload_bytes += block.num_bytes
    else:
        for record in _read(store, name, file_format, features, skip=0, take=None, num_records=None):
            num_walked += 1
            num_payload_bytes += len(record)
    num_bytes, digest = 0, hashlib.sha256()
    with store.open(name) as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
            num_bytes += len(piece)
    return FileFacts(
        num_records=num_walked,
        num_payload_bytes=num_payload_bytes,
        num_bytes=num_bytes,
        sha256=digest.hexdigest(),
    )


def _open(
    store: Store, name: str, file_format: str, features: FeaturesDict | None, *, num_records: int | None
) -> ArrayRecordShard | RowGroupShard:
    shard = open_shard(
        store, name, file_format=file_format, features=features, num_records=num_records, verify="record"
    )
    assert isinstance(shard, ArrayRecordShard | RowGroupShard)  # noqa: S101 (TFRecord was dealt with before)
    return shard


def _read(
    store: Store,
    name: str,
    file_format: str,
    features: FeaturesDict | None,
    *,
    skip: int,
    take: int | None,
    num_records: int | None,
) -> Iterator[bytes]:
    shard = _open(store, name, file_format, features, num_records=num_records)
    for block, first in _blocks(shard, store.locate(name), skip=skip, take=take, num_records=num_records):
        if isinstance(block, TableBlock):
            yield from _sound_items(block, TableBlock.records, name, first)
        else:
            yield from block.records()


def _sound_items(block: TableBlock, items: Callable[[TableBlock], list[T]], name: str, first: int) -> Iterator[T]:
    """What ``items`` gives for the rows before the first bad one, which is then named; ``first`` is the first row's."""
    try:
        found = items(block)
    except CorruptExampleError as error:
        place = error.details["record"]
        yield from items(block.take(np.arange(place)))
        raise name_record(error, name, first + place) from error
    yield from found


def _blocks(
    shard: ArrayRecordShard | RowGroupShard, path: str, *, skip: int, take: int | None, num_records: int | None
) -> Iterator[tuple[Block, int]]:
    """Some records at a time, with the place of the first of them."""
    stop = max(skip, shard.num_records if num_records is None else num_records) if take is None else skip + take
    check_promise(path, stop, found=shard.num_records, promised=num_records)
    if isinstance(shard, RowGroupShard):
        for many in shard.stream(skip, stop - skip):
            mean = many.num_bytes // many.num_records
            step = min(_STEP_RECORDS, max(1, _STEP_BYTES // max(1, mean)))
            for start in range(0, many.num_records, step):
                block = many.take(np.arange(start, min(start + step, many.num_records)))
                yield block, skip
                skip += block.num_records
        return
    step = 1
    while skip < stop:
        block = shard.read(skip, min(step, stop - skip))
        yield block, skip
        skip += block.num_records
        mean = block.num_bytes // block.num_records
        step = min(2 * step, _STEP_RECORDS, max(1, _STEP_BYTES // max(1, mean)))
