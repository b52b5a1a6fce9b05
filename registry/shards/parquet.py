"""Opens Parquet files: serialized examples in one column, as TFDS writes them, or typed columns.

``find_nulls`` returns the scalar columns that contain a null, from the file's statistics if possible.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

import numpy as np

from registry.errors import ShardMismatchError
from registry.features import ClassLabel, FeaturesDict, Tensor
from registry.features.containers import Column, columns_of
from registry.shards.arrow_values import BadRowError, flatten_table, import_pyarrow, plain_array
from registry.shards.blocks import TableBlock, without_views
from registry.shards.faults import bad_file
from registry.shards.row_groups import RowGroupShard, ShardFile
from registry.tfrecord import RecordBlock, join_blocks

EXAMPLES_COLUMN: Final = "data"
"""The column in which TFDS keeps its examples."""


def open_examples(file: ShardFile) -> RowGroupShard:
    """Open a Parquet file of serialized examples. Raises the errors of ``open_shard``."""
    shard = RowGroupShard(file, make_block=_example_block, columns=[EXAMPLES_COLUMN])
    types, schema = import_pyarrow().types, shard.schema
    found = schema.field(EXAMPLES_COLUMN).type if EXAMPLES_COLUMN in schema.names else None
    if found is None or not (types.is_binary(found) or types.is_large_binary(found)):
        path = file.store.locate(file.name)
        raise ShardMismatchError(
            f"{path}: expected a column {EXAMPLES_COLUMN!r} of serialized examples, as TFDS writes them",
            hint="Typed columns are cataloged with: registry import parquet DIR",
            details={"path": path, "columns": schema.names[:100]},
        )
    return shard


def open_columns(file: ShardFile) -> RowGroupShard:
    """Open a Parquet file whose rows are examples of the features. Raises the errors of ``open_shard``.

    Without features, all columns are decoded, and their values are not checked.
    """
    features, path = file.features or FeaturesDict({}), file.store.locate(file.name)

    def make_block(table: Any) -> TableBlock:
        return TableBlock(without_views(table), features)

    columns = None if file.features is None else list(features)
    shard = RowGroupShard(file, make_block=make_block, columns=columns)
    try:
        flatten_table(shard.schema.empty_table(), features)
    except import_pyarrow().ArrowException as error:  # a schema of Arrow's own that makes no array
        raise bad_file(path, "parquet", error) from error
    except BadRowError as error:
        raise ShardMismatchError(
            f"{path}: {error.fault.message}",
            hint="This is not the published file. Fetch it again; `registry verify` names every bad shard.",
            details={**error.fault.details, "path": path},
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


def find_nulls(
    shard: RowGroupShard, features: FeaturesDict, *, known: Collection[str] = (), of_labels: bool = False
) -> set[str]:
    """The paths of the numbers, texts and bytes outside of lists of which a row of the file holds a null.

    Args:
        shard: the file, of typed columns.
        features: the features of its columns.
        known: paths that need not be checked.
        of_labels: check only class labels. They cannot be optional: a null label is stored as -1.

    Raises:
        CorruptRecordError: a column had to be read, and is damaged.
        StorageError: the file cannot be read.
    """
    paths = shard.footer.column_paths
    places = {path: place for place, path in enumerate(paths)} if len(set(paths)) == len(paths) else {}
    scalars = _scalars(shard.schema, features)
    wanted = [
        scalar for scalar in scalars if scalar.path not in known and isinstance(scalar.leaf, ClassLabel) == of_labels
    ]
    result: set[str] = set()
    for column in wanted:
        place = places.get(".".join(column.names))
        if any(_holds_null(shard, group, column, place) for group in shard.filled_groups):
            result.add(column.path)
    return result


def _scalars(schema: Any, features: FeaturesDict) -> Iterator[Column]:
    """The columns that may be null."""
    types = import_pyarrow().types
    for column in columns_of(features):
        leaf = column.leaf
        is_scalar = isinstance(leaf, Tensor) and not leaf.shape
        if is_scalar and not column.lengths and not types.is_struct(_type_at(schema, column.names)):
            yield column


def _type_at(schema: Any, names: tuple[str, ...]) -> Any:
    kind = plain_type(schema.field(names[0]).type)
    for name in names[1:]:
        kind = plain_type(kind.field(name).type)
    return kind


def plain_type(kind: Any) -> Any:
    """``kind`` without extension types: how it is stored."""
    while isinstance(kind, import_pyarrow().BaseExtensionType):
        kind = kind.storage_type
    return kind


def _holds_null(shard: RowGroupShard, group: int, column: Column, place: int | None) -> bool:
    told = None if place is None else shard.footer.row_groups[group].columns[place].null_count
    if told is not None:
        return told > 0
    for table in shard.read_tables(group, [column.names[0]]):
        for chunk in table.column(column.names[0]).chunks:
            inner = plain_array(chunk)
            for name in column.names[1:]:
                inner = plain_array(inner.field(name))
            if inner.null_count:
                return True
    return False
