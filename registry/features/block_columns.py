"""Columns of a block: the values of one leaf in all examples, as one array or created when they are requested.

``column_reader`` and the leaves create them from the flat columns of a block; ``codec`` builds examples from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from registry.features.dtypes import is_bfloat16
from registry.features.feature import TEXT, BlockColumn
from registry.features.nested import Ragged
from registry.lazy import np, npt
from registry.wire.gather import SMALL_TEXT, Octets, Places, as_rows, constant, cut_views, take, take_texts

_LARGE_ROW: Final = 2**14
"""Rows of at least this many bytes are allocated one by one."""


@dataclass(frozen=True)
class ArrayColumn:
    """Values that are already in one array. With ``copy``, rows are those of a copy."""

    values: npt.NDArray[Any]
    copy: bool = True

    @property
    def row_bytes(self) -> int:
        """Bytes of one value, on average for arrays of several shapes, and 0 if rows are views."""
        if self.values.dtype == TEXT and self.values.size and isinstance(self.values.flat[0], np.ndarray):
            return sum(getattr(value, "nbytes", 0) for value in self.values.flat) // self.values.size
        return self.values.itemsize * math.prod(self.values.shape[1:]) if self.copy else 0

    def array(self, stop: int) -> npt.NDArray[Any]:
        """The array itself."""
        return self.values[:stop]

    def rows(self, start: int, stop: int) -> list[Any]:
        """Scalars, or rows. A row of a copy that the caller keeps does not hold the whole column in memory."""
        some = self.values[start:stop]
        return list(some.copy() if self.copy and some.ndim > 1 else some)


@dataclass(frozen=True)
class RaggedColumn:
    """Arrays whose number of entries differs, one after the other in one array.

    Attributes:
        values: the entries of all examples in C order, 1-d.
        counts: the number of entries of each example.
        shape: the shape of the array of an example. Exactly one dimension is None.
        levels: if the example has a ``Ragged`` of such an array, for each level below the outermost the lengths of its
            rows in all examples, and how many of these each example has.
    """

    values: npt.NDArray[Any]
    counts: Places
    shape: tuple[int | None, ...]
    levels: tuple[tuple[Places, Places], ...] = ()

    @property
    def row_bytes(self) -> int:
        """The bytes of a reference: arrays are views of ``values``."""
        return np.dtype(TEXT).itemsize

    def array(self, stop: int) -> npt.NDArray[Any]:
        """An object array."""
        return np.fromiter(self.rows(0, stop), TEXT, stop)

    def rows(self, start: int, stop: int) -> list[Any]:
        """Views of ``values`` in the shape, or a ``Ragged`` of each."""
        rows = cut_rows(self.values, self.counts, start, stop)
        if len(self.shape) > 1:
            shape = tuple(-1 if size is None else size for size in self.shape)
            rows = [row.reshape(shape) for row in rows]
        if not self.levels:
            return rows
        levels = [cut_rows(lengths, counts, start, stop) for lengths, counts in self.levels]
        return list(map(Ragged, rows, zip(*levels, strict=True)))

    @property
    def sizes(self) -> list[Places]:
        """The size of the unknown dimension of each array; with levels, the lengths of all rows, outermost first."""
        if self.levels:
            return [self.levels[0][1], *(lengths for lengths, _ in self.levels)]
        return [self.counts // math.prod(size for size in self.shape if size is not None)]


def cut_rows(values: npt.NDArray[Any], counts: Places, start: int, stop: int) -> list[npt.NDArray[Any]]:
    """The parts of ``values`` that belong to rows ``start``..``stop``, of which row i has ``counts[i]``."""
    ends = counts.cumsum()
    return list(map(values.__getitem__, map(slice, (ends - counts)[start:stop].tolist(), ends[start:stop].tolist())))


@dataclass(frozen=True)
class TextColumn:
    """Texts, each ``data[start : start + size]``; memoryviews of ``data`` if they are large and ``copy`` is not set."""

    data: Octets
    starts: Places
    sizes: Places
    copy: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of one text, on average."""
        return int(self.sizes.mean()) if self.sizes.size and self.copy else 0

    def array(self, stop: int) -> npt.NDArray[Any]:
        """An object array."""
        size = self._size
        if size and (self.copy or size <= SMALL_TEXT):
            return take(self.data, self.starts[:stop], size).astype(TEXT)
        return np.fromiter(self.rows(0, stop), TEXT, stop)  # assigning the list would unpack memoryviews

    def rows(self, start: int, stop: int) -> list[Any]:
        """``bytes``, or memoryviews."""
        starts, sizes = self.starts[start:stop], self.sizes[start:stop]
        if not self.copy and self._mean > SMALL_TEXT:
            return list(cut_views(self.data.data, starts, sizes))
        if self._size is not None:
            return take(self.data, starts, self._size).tolist() if self._size else [b""] * starts.size
        if self._mean > SMALL_TEXT:  # copy only the requested rows
            return list(map(bytes, cut_views(self.data.data, starts, sizes)))
        return list(self._small[start:stop])

    @cached_property
    def _mean(self) -> float:
        return float(self.sizes.mean()) if self.sizes.size else 0.0

    @cached_property
    def _size(self) -> int | None:
        return constant(self.sizes)

    @cached_property
    def _small(self) -> npt.NDArray[Any]:
        return take_texts(self.data, self.starts, self.sizes)


@dataclass(frozen=True)
class StoredColumn:
    """Arrays of one ``shape`` that are stored as bytes, at ``starts`` in ``data``."""

    data: Octets
    starts: Places
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    copy: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of one array."""
        return self.num_bytes if self.copy else 0

    def array(self, stop: int) -> npt.NDArray[Any]:
        """One array; a view of ``data`` if ``copy`` is not set and the records are equally far apart."""
        return self._stacked(self.starts[:stop], copy=self.copy)

    def rows(self, start: int, stop: int) -> list[Any]:
        """The rows of a copy or of a view; large rows are allocated one by one."""
        starts = self.starts[start:stop]
        if self.num_bytes < _LARGE_ROW:
            return list(self._stacked(starts, copy=self.copy))
        stored = self.dtype.newbyteorder("<")
        views = [np.ndarray(self.shape, stored, buffer=self.data, offset=start) for start in starts.tolist()]
        return [view.astype(self.dtype, copy=self.copy) for view in views]

    @property
    def num_bytes(self) -> int:
        """Number of stored bytes of one array."""
        return self.dtype.itemsize * math.prod(self.shape)

    def _stacked(self, starts: Places, *, copy: bool) -> npt.NDArray[Any]:
        pieces = take(self.data, starts, self.num_bytes)
        if copy and not pieces.flags.owndata:
            pieces = pieces.copy()
        stored = as_rows(pieces, self.dtype.newbyteorder("<")).reshape(-1, *self.shape)
        return stored.astype(self.dtype, copy=False)


@dataclass(frozen=True)
class ViewColumn:
    """Texts and stored arrays at any places, which are not copied before they are used.

    Attributes:
        values: a memoryview, a read-only array or, for a small text, bytes for each example.
        stack: makes one array of values.
        copy: whether values must not be views.
    """

    values: list[Any]
    stack: Callable[[list[Any]], npt.NDArray[Any]]
    copy: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of the first value."""
        first = self.values[0]
        return 0 if not self.copy else len(first) if isinstance(first, bytes) else int(first.nbytes)

    def array(self, stop: int) -> npt.NDArray[Any]:
        """One array, which copies stored arrays; an object array of texts."""
        values = self.values[:stop]
        return self.stack(list(map(copy_of, values)) if self.copy and isinstance(values[0], memoryview) else values)

    def rows(self, start: int, stop: int) -> list[Any]:
        """The views, or a copy of each."""
        values = self.values[start:stop]
        return list(map(copy_of, values)) if self.copy else values


def copy_of(value: Any) -> Any:
    """``bytes`` of a memoryview, a copy of an array, and anything else itself."""
    return value.copy() if isinstance(value, np.ndarray) else bytes(value) if isinstance(value, memoryview) else value


@dataclass(frozen=True)
class MaskedColumn:
    """Values of an optional leaf.

    Attributes:
        present: the values of the examples that have one.
        rows_present: the indexes of these examples; all other values are missing.
        num_rows: number of examples.
        shape, dtype: shape and dtype of one value.
    """

    present: BlockColumn
    rows_present: Places
    num_rows: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def row_bytes(self) -> int:
        """Approximate number of bytes for each present value."""
        return self.present.row_bytes

    def array(self, stop: int) -> npt.NDArray[Any]:
        """A masked array, even if no value is missing. The data below the mask is NaN, zero, False or None."""
        rows = self.rows_present[: self._place(stop)]
        column = all_masked((stop, *self.shape), self.dtype)
        if rows.size:
            column[rows] = self.present.array(rows.size)  # the assignment also clears their mask
        return column

    def rows(self, start: int, stop: int) -> list[Any]:
        """The values, with None for each missing one."""
        first, last = self._place(start), self._place(stop)
        present = self.present.rows(first, last)
        if last - first == stop - start:
            return present
        result = np.full(stop - start, None, TEXT)
        result[self.rows_present[first:last] - start] = np.fromiter(present, TEXT, last - first)
        values: list[Any] = result.tolist()
        return values

    def _place(self, row: int) -> int:
        """The number of present values before ``row``."""
        return int(np.searchsorted(self.rows_present, row))


def all_masked(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ma.MaskedArray[Any, Any]:
    """A masked array with every entry masked."""
    # Floats are NaN below the mask, so that code that drops the mask, as np.asarray does, computes NaN and not a
    # plausible number.
    is_float = dtype.kind == "f" or is_bfloat16(dtype)
    values = np.full(shape, np.nan if is_float else None if dtype == TEXT else 0, dtype)
    return np.ma.MaskedArray(values, np.ones(shape, np.bool_), fill_value=np.nan if is_float else None)
