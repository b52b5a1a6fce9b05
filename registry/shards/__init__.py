"""Reads shard files of every format through one interface, ``formats``.

    tfrecord          frames with checksums: ``registry.tfrecord``
    array_record      Google's ArrayRecord, through its own package
    parquet           one column ``data`` of serialized examples, as TFDS writes it
    parquet_columns   a typed column for each feature, as other tools write it

The first three return the same records, serialized tf.train.Examples. Rows of the last become examples directly; they
are serialized only if a caller needs records.
"""

from registry.shards.arrow_values import import_pyarrow
from registry.shards.blocks import Block, BlockCache, TableBlock, as_records, decode_block, join_blocks
from registry.shards.faults import name_record
from registry.shards.formats import (
    COLUMN_FORMATS,
    FILE_FORMATS,
    SEQUENTIAL_FORMATS,
    ShardReader,
    check_file_format,
    open_shard,
    read_records,
    read_tables,
    walk_file,
)
from registry.shards.mirrored import MirroredStore
from registry.shards.proved import ProvedStore, RecordsProof
from registry.shards.row_groups import RowGroupShard

__all__ = [
    "COLUMN_FORMATS",
    "FILE_FORMATS",
    "SEQUENTIAL_FORMATS",
    "Block",
    "BlockCache",
    "MirroredStore",
    "ProvedStore",
    "RecordsProof",
    "RowGroupShard",
    "ShardReader",
    "TableBlock",
    "as_records",
    "check_file_format",
    "decode_block",
    "import_pyarrow",
    "join_blocks",
    "name_record",
    "open_shard",
    "read_records",
    "read_tables",
    "walk_file",
]
