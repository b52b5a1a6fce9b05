"""The formats of shard files, and the one door to read them: opened, read in order, or walked.

    format name + store + file name  ->  open_shard  ->  any records, as blocks
                                     ->  read_records, read_flat_values  ->  records in order
                                     ->  walk_file  ->  every record checked, counted and hashed

TFRecord has readers of its own (``registry.tfrecord``). A new format is one entry of ``_OPENERS``: a function that
opens a file as a ``CountedShard``; and a name that ``dataset_info.json`` may have (``registry.prepared.info``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol, TypeVar

import numpy as np

from registry.errors import CorruptExampleError, PreparedFormatError, suggest
from registry.features import FeaturesDict
from registry.shards.array_record import ArrayRecordShard
from registry.shards.blocks import Block, TableBlock
from registry.shards.faults import check_promise, name_record
from registry.shards.parquet import open_columns, open_examples
from registry.shards.row_groups import BlockCache, ShardFile
from registry.storage import Store
from registry.tfrecord import FileFacts, IndexFolder, Places, Verify, check_verify
from registry.tfrecord import open_shard as open_frames
from registry.tfrecord import read_records as read_frames
from registry.tfrecord import walk_file as walk_frames
from registry.tfrecord.framing import not_so_many
from registry.tfrecord.reader import check_counts, hash_pieces
from registry.wire import FlatValue

T = TypeVar("T")

_STEP_RECORDS: Final = 1024
_STEP_BYTES: Final = 8 * 2**20


class ShardReader(Protocol):
    """The records of one shard file, by their index in it. Used by one thread at a time."""

    def read(self, first: int, count: int) -> Block:
        """Records ``first`` to ``first + count``, checked.

        Raises:
            CorruptRecordError: one of them is damaged; those before it can be read.
            ShardMismatchError: the file holds fewer, or is read to its end and holds more than it should.
            StorageError: the file cannot be read.
        """

    def gather(self, records: Places) -> Block:
        """These records, checked, in this order; one may be asked for twice. Errors as ``read``."""


class CountedShard(ShardReader, Protocol):
    """A shard file that says how many records it holds."""

    @property
    def num_records(self) -> int:
        """Records in the file."""

    def stream(self, first: int, count: int) -> Iterator[Block]:
        """Records ``first`` to ``first + count``, some at a time, in bounded memory. Errors as ``read``."""


_OPENERS: Final[Mapping[str, Callable[[ShardFile], CountedShard]]] = {
    "array_record": ArrayRecordShard,
    "parquet": open_examples,
    "parquet_columns": open_columns,
}

FILE_FORMATS: Final = ("tfrecord", *_OPENERS)
"""What ``open_shard`` opens."""

SEQUENTIAL_FORMATS: Final = ("array_record", "parquet_columns")
"""Formats whose files are read one after the other unless a read config says otherwise.

TFDS reads ArrayRecord files only as a data source, which has no interleaving; folders of Parquet columns come from
software that has none either.
"""


def check_file_format(file_format: str, where: str) -> str:
    """``file_format`` where it can be read; ``where`` names the folder or file.

    Raises:
        PreparedFormatError: it is riegeli, which TFDS writes and nothing here reads, or not known at all.
    """
    if file_format in FILE_FORMATS:
        return file_format
    if file_format == "riegeli":
        raise PreparedFormatError(
            f"{where}: riegeli shards cannot be read",
            hint="Prepare the dataset again with file_format='tfrecord', or convert it with TFDS: "
            "python -m tensorflow_datasets.scripts.convert_format",
            details={"file_format": file_format},
        )
    raise PreparedFormatError(
        f"{where}: unknown file format {file_format[:80]!r}",
        hint=suggest(file_format[:80], FILE_FORMATS),
        details={"file_format": file_format[:80]},
    )


def open_shard(
    store: Store,
    name: str,
    *,
    file_format: str = "tfrecord",
    features: FeaturesDict | None = None,
    num_records: int | None = None,
    verify: Verify = "record",
    indexes: IndexFolder | None = None,
    cache: BlockCache | None = None,
) -> ShardReader:
    """Open a shard file to read any of its records: as ``registry.tfrecord.open_shard``, for every format.

    Rows of ``parquet_columns`` are examples of ``features``; other formats need none. Files that are read together
    share a ``cache`` of the row groups of Parquet files that were decoded last. ``verify``: the checksums of an
    ArrayRecord are always checked, those of a Parquet file where it has some, unless it is ``off``.

    Raises:
        ShardMismatchError: it is no file of that format, or so damaged that no record can be found.
        PreparedFormatError: another format.
        StorageError: it is missing, or cannot be read; ArrayRecord files are read on this machine only.
        MissingExtraError: the package that reads the format is not installed.
        UsageError: another ``verify``.
    """
    check_verify(verify)
    if check_file_format(file_format, store.locate(name)) == "tfrecord":
        return open_frames(store, name, num_records=num_records, verify=verify, indexes=indexes)
    return _OPENERS[file_format](ShardFile(store, name, features, num_records, verify, cache))


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
    check_counts(skip=skip, take=take, num_records=num_records)
    return _read(ShardFile(store, name, features, num_records), file_format, skip=skip, take=take)


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
    wanted = ShardFile(store, name, features, num_records)
    for block, first in _blocks(wanted, "parquet_columns", skip=skip, take=take):
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
    shard = _OPENERS[file_format](ShardFile(store, name, features))
    if num_records is not None and shard.num_records != num_records:
        raise not_so_many(store.locate(name), num_records, found=shard.num_records)
    num_payload_bytes = num_walked = 0
    for block in shard.stream(0, shard.num_records):
        num_walked += block.num_records
        num_payload_bytes += block.num_bytes
    with store.open(name) as file:
        num_bytes, sha256 = hash_pieces(file)
    return FileFacts(num_records=num_walked, num_payload_bytes=num_payload_bytes, num_bytes=num_bytes, sha256=sha256)


def _read(wanted: ShardFile, file_format: str, *, skip: int, take: int | None) -> Iterator[bytes]:
    for block, first in _blocks(wanted, file_format, skip=skip, take=take):
        if isinstance(block, TableBlock):
            yield from _sound_items(block, TableBlock.records, wanted.name, first)
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


def _blocks(wanted: ShardFile, file_format: str, *, skip: int, take: int | None) -> Iterator[tuple[Block, int]]:
    """Some records at a time, with the place of the first of them: few where they are long, for they are copied."""
    shard, num_records = _OPENERS[file_format](wanted), wanted.num_records
    stop = max(skip, shard.num_records if num_records is None else num_records) if take is None else skip + take
    check_promise(wanted.store.locate(wanted.name), stop, found=shard.num_records, promised=num_records)
    for many in shard.stream(skip, stop - skip):
        step = min(_STEP_RECORDS, max(1, _STEP_BYTES // max(1, many.num_bytes // many.num_records)))
        for start in range(0, many.num_records, step):
            block = many.take(np.arange(start, min(start + step, many.num_records)))
            yield block, skip
            skip += block.num_records
