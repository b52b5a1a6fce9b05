"""Opens, reads and walks shard files of every format; readers, builders and verifiers call it.

    format name + store + file name  ->  open_shard  ->  any records, as blocks
                                     ->  read_records  ->  records in order
                                     ->  walk_file  ->  every record checked, counted and hashed

``registry.tfrecord`` reads TFRecord files. To add a format, add a function to ``_OPENERS`` that opens a file as a
``CountedShard``, and its name in ``dataset_info.json`` to ``registry.prepared.info``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Protocol

import numpy as np

from registry.errors import CorruptExampleError, PreparedFormatError, suggest
from registry.features import FeaturesDict
from registry.shards.blocks import Block, BlockCache, TableBlock
from registry.shards.faults import check_promise, name_record
from registry.shards.parquet import open_columns, open_examples
from registry.shards.row_groups import ShardFile
from registry.storage import Store
from registry.tfrecord import FileFacts, IndexFolder, Places, Verify, check_verify
from registry.tfrecord import open_shard as open_frames
from registry.tfrecord import read_records as read_frames
from registry.tfrecord import walk_file as walk_frames
from registry.tfrecord.framing import not_so_many
from registry.tfrecord.reader import check_counts

_STEP_RECORDS: Final = 1024
_STEP_BYTES: Final = 8 * 2**20


class ShardReader(Protocol):
    """Reads records of one shard file by their index. Only one thread may use it at a time."""

    def read(self, first: int, count: int) -> Block:
        """Read records ``first`` to ``first + count``, checked.

        Raises:
            CorruptRecordError: one of them is damaged; the records before it can be read.
            ShardMismatchError: the file has fewer records, or is read to its end and has more than it should.
            StorageError: the file cannot be read.
        """

    def gather(self, records: Places) -> Block:
        """Read these records, checked, in this order; an index may occur twice. Raises the same errors as ``read``."""


class CountedShard(ShardReader, Protocol):
    """A shard file that states its number of records."""

    @property
    def num_records(self) -> int:
        """Number of records in the file."""

    def stream(self, first: int, count: int) -> Iterator[Block]:
        """Yield records ``first`` to ``first + count`` in blocks, in bounded memory. Raises the errors of ``read``."""


def _open_array_record(file: ShardFile) -> CountedShard:
    from registry.shards.array_record import ArrayRecordShard  # loads the engines, for its process of its own

    return ArrayRecordShard(file)


_OPENERS: Final[Mapping[str, Callable[[ShardFile], CountedShard]]] = {
    "array_record": _open_array_record,
    "parquet": open_examples,
    "parquet_columns": open_columns,
}

FILE_FORMATS: Final = ("tfrecord", *_OPENERS)
"""The formats that ``open_shard`` opens."""

COLUMN_FORMATS: Final = ("parquet_columns",)
"""Formats whose files store typed columns, of which the features of an example make records."""

SEQUENTIAL_FORMATS: Final = ("array_record", "parquet_columns")
"""Formats whose files are read one after the other unless a read config changes it.

TFDS reads ArrayRecord files only as a data source, without interleaving, and the tools that write Parquet columns do
not interleave files either.
"""


def check_file_format(file_format: str, where: str) -> str:
    """Return ``file_format`` if it can be read; ``where`` names the folder or file in the error.

    Raises:
        PreparedFormatError: it is riegeli, which TFDS can write but the registry cannot read, or unknown.
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
    """Open a shard file of any format to read any of its records.

    Args:
        store: the folder.
        name: the file's name in it.
        file_format: one of ``FILE_FORMATS``.
        features: the features of the rows of ``parquet_columns``; other formats do not need it.
        num_records: the number of records that the file should have, or None if unknown.
        verify: for TFRecord see ``registry.tfrecord.open_shard``. Checksums of ArrayRecord files are always checked;
            those of Parquet files, if they have any, unless it is ``off``.
        indexes: the folder in which the positions of TFRecord frames are kept.
        cache: decoded row groups of Parquet files; files that are read together share it.

    Raises:
        ShardMismatchError: the file has another format, or is so damaged that no record can be found.
        PreparedFormatError: ``file_format`` is unknown.
        StorageError: the file is missing, or cannot be read. ArrayRecord files can be read on this machine only.
        MissingExtraError: the package that reads the format is not installed.
        UsageError: ``verify`` has another value.
    """
    check_verify(verify)
    if check_file_format(file_format, store.locate(name)) == "tfrecord":
        return store.attempt(
            name, lambda file: open_frames(file, name, num_records=num_records, verify=verify, indexes=indexes)
        )
    return _open(ShardFile(store, name, features, num_records, verify, cache), file_format)


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
    """Read records of a shard file of any format in order; rows of typed columns are serialized.

    Arguments, results and errors are those of ``registry.tfrecord.read_records``; it also raises the errors of
    ``open_shard``.
    """
    if check_file_format(file_format, store.locate(name)) == "tfrecord":
        return read_frames(store, name, skip=skip, take=take, num_records=num_records)
    check_counts(skip=skip, take=take, num_records=num_records)
    return _read(ShardFile(store, name, features, num_records), file_format, skip=skip, take=take)


def read_tables(
    store: Store,
    name: str,
    *,
    features: FeaturesDict,
    skip: int = 0,
    take: int | None = None,
    num_records: int | None = None,
) -> Iterator[tuple[TableBlock, int]]:
    """Read rows of typed columns in blocks of about a thousand, each with the index of its first row in the file.

    Arguments and errors are those of ``read_records``.
    """
    file = ShardFile(store, name, features, num_records)
    for block, first in _blocks(file, "parquet_columns", skip=skip, take=take):
        if isinstance(block, TableBlock):
            yield block, first


def walk_file(
    store: Store,
    name: str,
    *,
    file_format: str = "tfrecord",
    features: FeaturesDict | None = None,
    num_records: int | None = None,
    sha256: str | None = None,
) -> FileFacts:
    """Check every record of a shard file of any format, count the records and hash the file.

    For a Parquet file of typed columns, ``num_payload_bytes`` is the uncompressed size of its columns. A file with
    another number of records than ``num_records`` is not walked. A Parquet file with the published ``sha256`` is read
    without a worker process. Raises the errors of ``registry.tfrecord.walk_file`` and of ``open_shard``.
    """
    if check_file_format(file_format, store.locate(name)) == "tfrecord":
        return walk_frames(store, name, num_records=num_records)
    with store.open(name) as file:
        num_bytes, digest = file.num_bytes, file.sha256()
    shard = _open(ShardFile(store, name, features, is_proved=digest == sha256), file_format)
    if num_records is not None and shard.num_records != num_records:
        raise not_so_many(store.locate(name), num_records, found=shard.num_records)
    num_payload_bytes = num_walked = 0
    for block in shard.stream(0, shard.num_records):
        num_walked += block.num_records
        num_payload_bytes += block.num_bytes
    return FileFacts(num_records=num_walked, num_payload_bytes=num_payload_bytes, num_bytes=num_bytes, sha256=digest)


def _open(file: ShardFile, file_format: str) -> CountedShard:
    return file.store.attempt(file.name, lambda store: _OPENERS[file_format](replace(file, store=store)))


def _read(file: ShardFile, file_format: str, *, skip: int, take: int | None) -> Iterator[bytes]:
    for block, first in _blocks(file, file_format, skip=skip, take=take):
        if isinstance(block, TableBlock):
            yield from _sound_records(block, file.name, first)
        else:
            yield from block.records()


def _sound_records(block: TableBlock, name: str, first: int) -> Iterator[bytes]:
    """Yield the records of a block; if a row is bad, those before it, then raise an error that names it.

    ``first`` is the index of the block's first row in the file.
    """
    try:
        records = block.records()
    except CorruptExampleError as error:
        place = error.details["record"]
        yield from block.take(np.arange(place)).records()
        raise name_record(error, name, first + place) from error
    yield from records


def _blocks(file: ShardFile, file_format: str, *, skip: int, take: int | None) -> Iterator[tuple[Block, int]]:
    """Yield blocks with the index of their first record; blocks of long records are short, because they are copied."""
    shard, num_records = _open(file, file_format), file.num_records
    stop = max(skip, shard.num_records if num_records is None else num_records) if take is None else skip + take
    check_promise(file.store.locate(file.name), stop, found=shard.num_records, promised=num_records)
    for many in shard.stream(skip, stop - skip):
        step = min(_STEP_RECORDS, max(1, _STEP_BYTES // max(1, many.num_bytes // many.num_records)))
        for start in range(0, many.num_records, step):
            block = many.take(np.arange(start, min(start + step, many.num_records)))
            yield block, skip
            skip += block.num_records
