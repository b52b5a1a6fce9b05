"""How is a shard file of any format opened? By the name of its format, to read any of its records."""

from __future__ import annotations

from typing import Protocol

from registry.features import FeaturesDict
from registry.shards.array_record import ArrayRecordShard
from registry.shards.blocks import Block
from registry.shards.formats import check_file_format
from registry.shards.parquet import open_columns, open_examples
from registry.shards.row_groups import BlockCache
from registry.storage import Store
from registry.tfrecord import IndexFolder, Places, Verify, check_verify
from registry.tfrecord import open_shard as open_frames


class Shard(Protocol):
    """The records of one file, by their index in it. Used by one thread at a time."""

    def read(self, first: int, count: int) -> Block:
        """Records ``first`` to ``first + count``, checked.

        Raises:
            CorruptRecordError: one of them is damaged; those before it can be read.
            ShardMismatchError: the file holds fewer, or is read to its end and holds more than it should.
            StorageError: the file cannot be read.
        """

    def gather(self, records: Places) -> Block:
        """These records, checked, in this order; one may be asked for twice. Errors as ``read``."""


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
) -> Shard:
    """Open a shard file to read any of its records.

    Args:
        store: the folder.
        name: of the file in it.
        file_format: one of ``FILE_FORMATS``.
        features: what a row of ``parquet_columns`` is an example of; others need none.
        num_records: how many records it should hold; None where nobody knows.
        verify: how the checksums of records are checked, see ``registry.tfrecord.open_shard``. An ArrayRecord's always
            are; those of a Parquet file are where it has some, unless this is ``off``.
        indexes: where the places of records in a TFRecord file are kept for the next time; None keeps nothing.
        cache: the row groups of Parquet files that were decoded last, to be shared by files that are read together.

    Raises:
        ShardMismatchError: it is no file of that format, or so damaged that no record can be found.
        PreparedFormatError: another format.
        StorageError: it is missing, or cannot be read; ArrayRecord files are read on this machine only.
        MissingExtraError: the package that reads the format is not installed.
        UsageError: another ``verify``.
    """
    check_verify(verify)
    match check_file_format(file_format, store.locate(name)):
        case "array_record":
            return ArrayRecordShard(store, name, num_records=num_records)
        case "parquet":
            return open_examples(store, name, num_records=num_records, checksums=verify != "off", cache=cache)
        case "parquet_columns":
            return open_columns(store, name, features, num_records=num_records, checksums=verify != "off", cache=cache)
    return open_frames(store, name, num_records=num_records, verify=verify, indexes=indexes)
