"""Which scalar columns of a Parquet file hold a null? Its statistics say it; where they do not, the column is read."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from registry.features import ClassLabel, FeaturesDict, Tensor
from registry.features.containers import Column, columns_of
from registry.shards.arrow_import import import_pyarrow
from registry.shards.arrow_values import plain_array
from registry.shards.row_groups import RowGroupShard


def find_nulls(
    shard: RowGroupShard, features: FeaturesDict, *, known: Collection[str] = (), of_labels: bool = False
) -> set[str]:
    """The paths of the numbers, texts and bytes outside of lists of which a row of the file holds a null.

    Args:
        shard: the file, of typed columns.
        features: what its columns make.
        known: paths that need no look.
        of_labels: look at class labels, and at nothing else. They cannot be optional: a null one is stored as -1.

    Raises:
        CorruptRecordError: a column had to be read, and is damaged.
        StorageError: the file cannot be read.
    """
    places = _leaf_places(shard.schema)
    count_leaves = sum(_count_leaves(field.type) for field in shard.schema)
    scalars = _scalars(shard.schema, features)
    wanted = [one for one in scalars if one.path not in known and isinstance(one.leaf, ClassLabel) == of_labels]
    found: set[str] = set()
    for column in wanted:
        place = places.get(column.names) if count_leaves == shard.num_columns else None
        if any(_holds_null(shard, group, column, place) for group in shard.filled_groups):
            found.add(column.path)
    return found


def _scalars(schema: Any, features: FeaturesDict) -> Iterator[Column]:
    """What may be null."""
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
    told = None if place is None else shard.null_count(group, place)
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


def _leaf_places(schema: Any) -> dict[tuple[str, ...], int]:
    """Which column of Parquet each field outside of lists is: they are counted depth first."""
    types = import_pyarrow().types
    found: dict[tuple[str, ...], int] = {}

    def walk(field: Any, names: tuple[str, ...], place: int) -> int:
        kind = plain_type(field.type)
        if not types.is_struct(kind):
            found[names] = place
            return place + _count_leaves(kind)
        for inner in kind:
            place = walk(inner, (*names, inner.name), place)
        return place

    place = 0
    for field in schema:
        place = walk(field, (field.name,), place)
    return found


def _count_leaves(kind: Any) -> int:
    kind = plain_type(kind)
    if import_pyarrow().types.is_dictionary(kind):
        return 1
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    return sum(map(_count_leaves, inner)) if inner else 1
