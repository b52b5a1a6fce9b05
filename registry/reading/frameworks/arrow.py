"""Gives a reader to Arrow: a schema derived from the features, and arrays that mostly share memory with the columns.

A column of values is split level by level: the number of entries of each list, then all entries in one array.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from registry.errors import UsageError
from registry.features import FeaturesDict, RawFeature, Text
from registry.features.dtypes import is_bfloat16
from registry.features.feature import TEXT, Shape
from registry.reading.frameworks.arrays import (
    LeafColumn,
    check_text_form,
    decode_texts,
    first_epoch,
    leaves_of,
    no_examples,
    read_features,
)

if TYPE_CHECKING:
    from registry.reading.examples import ExampleReader
    from registry.reading.frameworks.arrays import TextForm

_Lengths: TypeAlias = npt.NDArray[np.int64]

_NOTHING: Final = np.empty(0, np.int64)
_MOST_ENTRIES: Final = 2**31 - 1


def read_batches(reader: ExampleReader, *, text: TextForm, batch_size: int | None) -> pa.RecordBatchReader:
    """The first epoch as record batches; see ``Reader.to_arrow_batches``."""
    maker = BatchMaker(read_features(reader), as_str=check_text_form(text))
    blocks = first_epoch(reader, batch_size=batch_size)
    return pa.RecordBatchReader.from_batches(maker.schema, map(maker.make, blocks))


class BatchMaker:
    """Turns columns into record batches, all with ``schema``."""

    def __init__(self, features: FeaturesDict, *, as_str: bool) -> None:
        self._as_str = as_str
        self._leaves = leaves_of(features)
        self.schema: pa.Schema = self.make(no_examples(features)).schema

    def make(self, columns: Mapping[str, Any]) -> pa.RecordBatch:
        """The record batch of nested ``columns``."""
        num_rows = len(self._leaves[0].of(columns)) if self._leaves else 0
        arrays = iter(self.leaf_arrays(columns))
        fields = {name: _nest(column, arrays, num_rows) for name, column in columns.items()}
        return pa.RecordBatch.from_pydict({name: array for name, array in fields.items() if array is not None})

    def leaf_arrays(self, columns: Mapping[str, Any]) -> list[pa.Array | None]:
        """The array of each leaf of ``columns`` in schema order, inside the lists of its Sequences and dimensions."""
        return [self._leaf_array(leaf, leaf.of(columns)) for leaf in self._leaves]

    def _leaf_array(self, leaf: LeafColumn, column: npt.NDArray[Any]) -> pa.Array | None:
        """The array of a leaf; None for a feature of an unknown kind, whose values have no type."""
        levels: list[_Lengths] = []
        if isinstance(leaf.leaf, RawFeature):
            return None
        values, missing = leaf.unmask(column)
        if leaf.lengths:
            values, levels = _unpack_sequences(column, leaf)
        flat, more = _unpack_tensors(values, leaf.leaf.shape)
        array = self._flat_array(leaf, flat)
        sizes = (*leaf.lengths, *leaf.leaf.shape)
        for size, lengths in reversed(list(zip(sizes, levels + more, strict=True))):
            array = _list_array(array, lengths, size, leaf.path)
        return array if missing is None else pc.if_else(pa.array(missing), pa.scalar(None, array.type), array)

    def _flat_array(self, leaf: LeafColumn, values: npt.NDArray[Any]) -> pa.Array:
        if leaf.leaf.dtype != TEXT:
            return pa.array(values.astype(np.float32) if is_bfloat16(values.dtype) else values)
        if self._as_str and isinstance(leaf.leaf, Text):
            array = pa.array(decode_texts(values, leaf.path), pa.string())
        else:
            array = pa.array([None if value is None else bytes(value) for value in values], pa.binary())
        if isinstance(array, pa.ChunkedArray):
            raise _too_large(leaf.path)
        return array


def _nest(column: Any, arrays: Iterator[pa.Array], num_rows: int) -> pa.Array:
    """The array of ``column``: the next array for a leaf, or a struct of the arrays below it."""
    if not isinstance(column, Mapping):
        return next(arrays)
    found = {name: _nest(inner, arrays, num_rows) for name, inner in column.items()}
    children = {name: array for name, array in found.items() if array is not None}
    fields = pa.struct([pa.field(name, child.type) for name, child in children.items()])
    return pa.Array.from_buffers(fields, num_rows, [None], children=list(children.values()))


def _unpack_sequences(column: npt.NDArray[Any], leaf: LeafColumn) -> tuple[npt.NDArray[Any], list[_Lengths]]:
    """The elements of all sequences, and for each level of sequences their lengths."""
    if column.ndim > 1:
        num_rows, length = column.shape[:2]
        return column.reshape(num_rows * length, *column.shape[2:]), [np.full(num_rows, length)]
    levels = [np.fromiter(map(len, column), np.int64, len(column))]
    rows: list[npt.NDArray[Any]] = list(column)
    if len(leaf.lengths) > 1:
        inner = zip(*[value.row_lengths for value in column], strict=True)
        levels += [np.concatenate(level) for level in inner] or [_NOTHING] * (len(leaf.lengths) - 1)
        rows = [value.flat_values for value in column]
    if not rows:
        return np.empty((0, *(size or 0 for size in leaf.leaf.shape)), leaf.leaf.dtype), levels
    if all(row.shape[1:] == rows[0].shape[1:] and row.dtype == rows[0].dtype for row in rows):
        return np.concatenate(rows), levels
    return np.fromiter(chain.from_iterable(rows), object, sum(map(len, rows))), levels


def _unpack_tensors(values: npt.NDArray[Any], shape: Shape) -> tuple[npt.NDArray[Any], list[_Lengths]]:
    """The entries of all tensors in C order, and for each dimension the number of entries of each row."""
    if not shape:
        return values, []
    if values.ndim > 1:
        sizes = values.shape
        return values.reshape(-1), [np.full(prod(sizes[:level]), sizes[level]) for level in range(1, len(sizes))]
    shapes = np.array([value.shape for value in values], np.int64).reshape(-1, len(shape))
    levels = [np.repeat(shapes[:, level], shapes[:, :level].prod(axis=1)) for level in range(len(shape))]
    return np.concatenate([value.reshape(-1) for value in values]), levels


def _list_array(entries: pa.Array, lengths: _Lengths, size: int | None, path: str) -> pa.Array:
    """Lists with ``lengths`` entries, or fixed-size lists if ``size`` is known."""
    if size is not None:
        return pa.Array.from_buffers(pa.list_(entries.type, size), len(lengths), [None], children=[entries])
    if len(entries) > _MOST_ENTRIES:
        raise _too_large(path)
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(
        pa.list_(entries.type), len(lengths), [None, pa.py_buffer(offsets)], children=[entries]
    )


def _too_large(path: str) -> UsageError:
    return UsageError(
        f"feature {path!r} has more than 2**31 - 1 entries or bytes in one batch, which is Arrow's limit",
        hint="Use a smaller batch_size: reader.to_arrow_batches(batch_size=1000).",
        details={"feature": path},
    )
