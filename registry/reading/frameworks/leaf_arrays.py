"""Turns the columns of a block into Arrow arrays of their leaves, which mostly share memory with the columns.

A column of values is split level by level: the number of entries of each list, then all entries in one array.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from registry.errors import UsageError
from registry.features import FeaturesDict
from registry.features.containers import Column, columns_of
from registry.features.dtypes import is_bfloat16
from registry.features.feature import TEXT, Shape
from registry.reading.frameworks.arrays import missing_rows, values_of

_Lengths: TypeAlias = npt.NDArray[np.int64]

_NOTHING: Final = np.empty(0, np.int64)
_MOST_ENTRIES: Final = 2**31 - 1


class LeafArrays:
    """Turns columns into the Arrow arrays of their leaves."""

    def __init__(self, features: FeaturesDict) -> None:
        self._leaves = columns_of(features)

    def of(self, columns: Mapping[str, Any]) -> list[pa.Array]:
        """The array of each leaf of ``columns`` in schema order, inside the lists of its Sequences and dimensions."""
        return [self._leaf_array(leaf, values_of(leaf.names, columns)) for leaf in self._leaves]

    def _leaf_array(self, leaf: Column, column: npt.NDArray[Any]) -> pa.Array:
        levels: list[_Lengths] = []
        values, missing = column, None
        if isinstance(column, np.ma.MaskedArray):
            values, missing = column.data, missing_rows(column)
            if 0 in leaf.leaf.shape:  # a column of objects, so only the mask has the information
                values = np.empty((len(column), *leaf.leaf.shape), leaf.leaf.dtype)
        if leaf.lengths:
            values, levels = _unpack_sequences(column, leaf)
        flat, more = _unpack_tensors(values, leaf.leaf.shape)
        array = self._flat_array(leaf, flat)
        sizes = (*leaf.lengths, *leaf.leaf.shape)
        for size, lengths in reversed(list(zip(sizes, levels + more, strict=True))):
            array = _list_array(array, lengths, size, leaf.path)
        return array if missing is None else pc.if_else(pa.array(missing), pa.scalar(None, array.type), array)

    def _flat_array(self, leaf: Column, values: npt.NDArray[Any]) -> pa.Array:
        if leaf.leaf.dtype != TEXT:
            return pa.array(values.astype(np.float32) if is_bfloat16(values.dtype) else values)
        array = pa.array([None if value is None else bytes(value) for value in values], pa.binary())
        if isinstance(array, pa.ChunkedArray):
            raise _too_large(leaf.path)
        return array


def _unpack_sequences(column: npt.NDArray[Any], leaf: Column) -> tuple[npt.NDArray[Any], list[_Lengths]]:
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
