"""What are the rows of a Parquet file? Serialized examples in one column, as TFDS writes them, or typed columns."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from registry.errors import ShardMismatchError
from registry.features import FeaturesDict
from registry.shards.arrow_import import import_pyarrow
from registry.shards.arrow_values import BadRowError, flatten_table
from registry.shards.faults import bad_file
from registry.shards.row_groups import BlockCache, RowGroupShard
from registry.shards.tables import TableBlock, without_views
from registry.storage import Store
from registry.tfrecord import RecordBlock, join_blocks

EXAMPLES_COLUMN: Final = "data"
"""The column in which TFDS keeps its examples."""


def open_examples(
    store: Store, name: str, *, num_records: int | None, checksums: bool, cache: BlockCache | None
) -> RowGroupShard:
    """A Parquet file of serialized examples; errors as ``open_shard``."""
    shard = RowGroupShard(
        store,
        name,
        num_records=num_records,
        make_block=_example_block,
        columns=[EXAMPLES_COLUMN],
        checksums=checksums,
        cache=cache,
    )
    types, schema = import_pyarrow().types, shard.schema
    found = schema.field(EXAMPLES_COLUMN).type if EXAMPLES_COLUMN in schema.names else None
    if found is None or not (types.is_binary(found) or types.is_large_binary(found)):
        raise ShardMismatchError(
            f"{store.locate(name)}: it has no column {EXAMPLES_COLUMN!r} of serialized examples, as TFDS writes them",
            hint="Typed columns are cataloged with: registry import parquet DIR",
            details={"path": store.locate(name), "columns": schema.names[:100]},
        )
    return shard


def open_columns(
    store: Store,
    name: str,
    features: FeaturesDict | None,
    *,
    num_records: int | None,
    checksums: bool,
    cache: BlockCache | None,
) -> RowGroupShard:
    """A Parquet file of which each row is an example of ``features``; errors as ``open_shard``.

    Without ``features`` all columns are decoded, and what they hold is nobody's matter.
    """
    wanted = FeaturesDict({}) if features is None else features

    def make_block(table: Any) -> TableBlock:
        return TableBlock(without_views(table), wanted)

    shard = RowGroupShard(
        store,
        name,
        num_records=num_records,
        make_block=make_block,
        columns=None if features is None else list(features),
        checksums=checksums,
        cache=cache,
    )
    try:
        flatten_table(shard.schema.empty_table(), wanted)
    except import_pyarrow().ArrowException as error:  # a schema of Arrow's own that makes no array
        raise bad_file(store.locate(name), "parquet", error) from error
    except BadRowError as error:
        raise ShardMismatchError(
            f"{store.locate(name)}: {error.fault.message}",
            hint="This file is not the published one. Fetch it again; `registry verify` names every bad shard.",
            details={**error.fault.details, "path": store.locate(name)},
        ) from error
    return shard


def _example_block(table: Any) -> RecordBlock:
    """The records of the column, where Arrow has them: nothing is copied."""
    chunks = table.column(EXAMPLES_COLUMN).chunks  # a column named data.x is read along with it
    return join_blocks([_records_of(chunk) for chunk in chunks])


def _records_of(array: Any) -> RecordBlock:
    if array.null_count:
        raise ValueError("it holds a null")
    nothing = np.empty(0, np.int64)
    if not len(array):
        return RecordBlock(np.empty(0, np.uint8), nothing, nothing)
    _, ends, content = array.buffers()
    kind = np.int64 if import_pyarrow().types.is_large_binary(array.type) else np.int32
    bounds = np.frombuffer(ends, kind)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data = np.empty(0, np.uint8) if content is None or not content.size else np.frombuffer(content, np.uint8)
    return RecordBlock(data, bounds[:-1], np.diff(bounds))
