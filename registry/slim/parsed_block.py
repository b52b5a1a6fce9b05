"""What are the features of many records, as they were declared? A column for each, all values at once.

What is not plain, for example a feature of no kind, or a record that does not hold what was declared, is left to
``parsing``, record by record: ``parse_block`` gives up, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError
from registry.features.block_columns import take_texts
from registry.slim.feature_specs import (
    FeatureSpec,
    FixedLenSequenceFeature,
    SparseFeature,
    VarLenFeature,
    kind_of,
)
from registry.slim.parsing import INDICES, shape_elements, sort_sparse, sparse_list
from registry.tfrecord import RecordBlock
from registry.wire import BlockDecoder, BytesColumn, FlatBlock


class OddRecordError(Exception):
    """A record that has to be looked at alone."""


@dataclass(frozen=True, slots=True)
class DenseColumn:
    """Arrays of one shape: ``values`` is (records, *shape)."""

    values: npt.NDArray[Any]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)


@dataclass(frozen=True, slots=True)
class RaggedColumn:
    """Lists of any length: the values of record i are ``values[ends[i] - counts[i] : ends[i]]``."""

    values: npt.NDArray[Any]
    counts: npt.NDArray[np.int64]

    @property
    def pieces(self) -> list[npt.NDArray[Any]]:
        """The values of each record."""
        bounds = [0, *self.counts.cumsum().tolist()]
        return [self.values[start:stop] for start, stop in pairwise(bounds)]

    @property
    def same_count(self) -> int | None:
        """How many values each record has, where that is the same for all."""
        first = int(self.counts[0])
        return first if bool((self.counts == first).all()) else None

    def __iter__(self) -> Iterator[Any]:
        return map(sparse_list, self.pieces)


@dataclass(frozen=True, slots=True)
class ValueColumn:
    """Values that were made one by one."""

    values: list[Any]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)


Column: TypeAlias = DenseColumn | RaggedColumn | ValueColumn
"""Iterating a column gives the value of each record, as ``parse_feature`` does."""


def parse_block(
    block: RecordBlock, features: Mapping[str, FeatureSpec], decoder: BlockDecoder, *, used: Collection[str]
) -> dict[str, Column]:
    """The columns of ``features`` in a block of one record or more; ``decoder`` knows their ``stored_keys``.

    A SparseFeature that is not ``used`` is not put together, and has no column.

    Raises:
        OddRecordError: records have to be parsed one by one.
    """
    flat = decoder.decode(block.data, block.offsets, block.lengths)
    if flat.fault is not None:
        raise OddRecordError
    try:
        columns: dict[str, Column] = {}
        for key, spec in features.items():
            if key in used or not isinstance(spec, SparseFeature):
                columns[key] = _parse_column(flat, key, spec)
            else:
                _stored_lists(flat, spec)
    except CorruptExampleError as error:
        raise OddRecordError from error
    return columns


def stored_keys(features: Mapping[str, FeatureSpec]) -> list[str]:
    """The keys of a record that ``features`` are made of."""
    keys: list[str] = []
    for key, spec in features.items():
        keys += [*spec.index_key, spec.value_key] if isinstance(spec, SparseFeature) else [key]
    return keys


def _parse_column(flat: FlatBlock, key: str, spec: FeatureSpec) -> Column:
    if isinstance(spec, SparseFeature):
        rows = zip(*(lists.pieces for lists in _stored_lists(flat, spec)), strict=True)
        return ValueColumn([sort_sparse(key, spec, places, values) for *places, values in rows])
    column, present = _lists_of(flat, key, spec)
    match spec:
        case VarLenFeature():
            return column
        case FixedLenSequenceFeature():
            if column.same_count is not None:
                shaped = shape_elements(key, spec, column.values[: column.same_count])
                return DenseColumn(column.values.reshape(flat.num_records, *shaped.shape))
            return ValueColumn([shape_elements(key, spec, some) for some in column.pieces])
    if bool((column.counts[present] != spec.size).any()):
        raise OddRecordError
    if isinstance(present, slice):
        return DenseColumn(column.values.reshape(flat.num_records, *spec.shape))
    if spec.default_value is None:
        raise OddRecordError
    dense = np.empty((flat.num_records, *spec.shape), spec.dtype)
    dense[...] = spec.default_value
    dense[present] = column.values.reshape(present.size, *spec.shape)
    return DenseColumn(dense)


def _stored_lists(flat: FlatBlock, spec: SparseFeature) -> list[RaggedColumn]:
    """The indices in each dimension, then the values."""
    indices = [_lists_of(flat, name, INDICES)[0] for name in spec.index_key]
    return [*indices, _lists_of(flat, spec.value_key, spec)[0]]


def _lists_of(flat: FlatBlock, key: str, spec: FeatureSpec) -> tuple[RaggedColumn, Any]:
    """The stored values of ``key``, and which records have it: all, or an array of them."""
    kind = kind_of(spec)
    for other in ("int64", "float", "bytes"):
        if other != kind and (key, other) in flat.columns:
            raise OddRecordError
    column = flat.columns.get((key, kind))
    counts = np.zeros(flat.num_records, np.int64)
    if column is None:
        return RaggedColumn(np.empty(0, spec.dtype), counts), np.empty(0, np.int64)
    present = slice(None) if column.rows is None else column.rows
    counts[present] = column.counts
    if not isinstance(column, BytesColumn):
        return RaggedColumn(column.values, counts), present
    if not isinstance(spec, VarLenFeature) and bool((counts[present] == 0).any()):
        raise OddRecordError  # maybe a feature of no kind, which counts as a list of no texts here
    return RaggedColumn(take_texts(flat.data, column.starts, column.sizes), counts), present
