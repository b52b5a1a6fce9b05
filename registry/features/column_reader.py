"""Reads one leaf of a schema from a record or from a block of records.

    flat values of a record -> ColumnReader.read -> a value
    flat columns of a block -> ColumnReader.read_block -> a BlockColumn, equal to ``read`` of each record

``codec`` has a reader for each leaf of a schema and combines their values to examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import RegistryError
from registry.features.block_columns import ArrayColumn, MaskedColumn, RaggedColumn, ViewColumn, copy_of
from registry.features.block_flattener import count_in_rows
from registry.features.containers import Column
from registry.features.feature import TEXT, BlockColumn, BlockParts, Leaf, Part, RawFeature, corrupt_fault, empty_flat
from registry.features.nested import Ragged
from registry.wire import BytesColumn, FlatBlock, FlatColumn, FlatValue, NumberColumn, WireKind
from registry.wire.gather import SMALL_TEXT, Places, constant

_INT64: Final = np.dtype(np.int64)
_FLOAT32: Final = np.dtype(np.float32)

_MOST_ELEMENTS: Final = 2**31
"""Longer rows are damaged: sums of lengths up to this one fit 63 bits."""

_Restore: TypeAlias = Callable[[tuple[FlatValue, ...], int | None, str], Any]


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """Reads one leaf. The keys of its parts are computed once, when the reader is created."""

    path: str
    leaf: Leaf
    lengths: tuple[int | None, ...]
    parts: tuple[tuple[Part, tuple[str, ...]], ...]
    may_be_missing: bool
    may_be_absent: bool
    may_read_none: bool
    reads_views: bool

    @classmethod
    def of(cls, column: Column, known: frozenset[str]) -> ColumnReader:
        """The reader of ``column``; ``known`` are the keys of all features of known classes."""
        if isinstance(column.leaf, RawFeature):
            return RawReader(column.path, column.leaf, (), (), True, False, False, False, known)
        parts = tuple((part, tuple(column.keys(part))) for part in column.leaf.parts)
        # If the first dimension is unknown, TensorFlow's parser reads an absent key as an empty list, and some versions
        # of TFDS left empty lists out.
        may_be_missing = column.lengths[0] is None if column.lengths else len(parts) == 1 and parts[0][0].size is None
        absent = (column.may_be_absent, column.may_read_none)
        reads_views = column.leaf.reads_views and not column.lengths
        return cls(column.path, column.leaf, column.lengths, parts, may_be_missing, *absent, reads_views)

    def read(self, flat: Mapping[str, FlatValue]) -> Any:
        """The value of this leaf in the record with these flat values."""
        if self.may_be_absent and self._is_absent(flat):
            return self.leaf.restore_absent()
        return self._read(flat, self.leaf.restore)

    def read_view(self, flat: Mapping[str, Any], *, copy: bool) -> Any:
        """The value of a record with memoryviews in place of bytes; a view of them if ``copy`` is not set."""
        if self.reads_views:
            value = self.read(flat)
            is_small = isinstance(value, memoryview) and value.nbytes <= SMALL_TEXT  # a copy costs less than a view
            return copy_of(value) if copy or is_small else value
        if all(part.kind != "bytes" for part, _ in self.parts):
            return self.read(flat)
        return self.read({key: _as_bytes(flat[key]) for _, keys in self.parts for key in keys if key in flat})

    def read_content(self, flat: Mapping[str, FlatValue]) -> Any:
        """The value by which two examples are compared; for an optional leaf a list of it, which is empty for None."""
        if not self.may_be_absent:
            return self._read(flat, self.leaf.restore_content)
        return [] if self._is_absent(flat) else [self._read(flat, self.leaf.restore_content)]

    def read_block(self, flat: FlatBlock, *, copy: bool) -> BlockColumn | None:
        """The values in a block of records; None if they cannot be read at once or a record may be damaged."""
        if not flat.num_records:
            return None
        if len(self.lengths) > 1:
            return self._read_nested(flat, copy=copy)
        if self.may_be_absent:
            return self._read_optional(flat, copy=copy)
        return self._read_whole(flat, copy=copy)

    def read_each(self, flat: FlatBlock, num_records: int) -> tuple[list[Any], RegistryError | None]:
        """Read the first records of a block one by one; returns the values up to a damaged record, and its error."""
        values: list[Any] = []
        for record in self.split(flat)[:num_records]:
            try:
                values.append(self.read(record))
            except RegistryError as error:
                return values, error
        return values, None

    def join_blocks(self, columns: Sequence[BlockColumn], rows: Sequence[Places], *, copy: bool) -> BlockColumn:
        """One column of several, whose values are at ``rows`` of it; their texts and stored arrays may be views."""
        size = sum(places.size for places in rows)
        arrays = [column.values for column in columns if isinstance(column, ArrayColumn)]
        if len(arrays) == len(columns) and len({(array.shape[1:], array.dtype) for array in arrays}) == 1:
            joined = np.empty((size, *arrays[0].shape[1:]), arrays[0].dtype)
            for places, array in zip(rows, arrays, strict=True):
                joined[places] = array
            return ArrayColumn(joined)
        values: list[Any] = [None] * size
        for column, places in zip(columns, rows, strict=True):
            for row, value in zip(places.tolist(), column.rows(0, places.size), strict=True):
                values[row] = value
        return self.column_of_views(values, copy=copy)

    def column_of_views(self, values: list[Any], *, copy: bool) -> BlockColumn:
        """The column of ``values``, one for each record; texts and stored arrays are views."""
        if not self.reads_views:
            return self.column_of(values)
        if values and not self.may_be_absent:
            return ViewColumn(values, self._stack, copy)
        return self.column_of(list(map(copy_of, values)) if copy else values)

    def column_of(self, values: list[Any]) -> BlockColumn:
        """The column of ``values``, one for each record."""
        if not self.may_read_none:
            return ArrayColumn(self._stack(values))
        rows = np.array([row for row, value in enumerate(values) if value is not None], np.int64)
        present = [value for value in values if value is not None]
        return self._masked(ArrayColumn(self._stack(present)), rows, len(values))

    def split(self, flat: FlatBlock) -> list[dict[str, FlatValue]]:
        """The flat values of this leaf by key, for each record of a block."""
        stored: list[dict[str, FlatValue]] = [{} for _ in range(flat.num_records)]
        for _, keys in self.parts:
            for key in keys:
                for kind in ("int64", "float", "bytes"):
                    column = flat.columns.get((key, kind))
                    if column is not None:
                        rows = range(flat.num_records) if column.rows is None else column.rows.tolist()
                        for row, value in zip(rows, flat.split(column), strict=True):
                            stored[row][key] = value
        return stored

    def _is_absent(self, flat: Mapping[str, FlatValue]) -> bool:
        return not any(key in flat for _, keys in self.parts for key in keys)

    def _read(self, flat: Mapping[str, FlatValue], restore: _Restore) -> Any:
        if len(self.lengths) > 1:
            return self._read_ragged(flat, restore)
        if not self.lengths and len(self.parts) == 1:  # the usual case, which costs half of what follows
            part, keys = self.parts[0]
            return restore((self._values(flat, keys[0], part.kind),), None, self.path)
        values = tuple([self._values(flat, keys[0], part.kind) for part, keys in self.parts])
        return restore(values, self._count(values[0]) if self.lengths else None, self.path)

    def _values(self, flat: Mapping[str, FlatValue], key: str, kind: str) -> FlatValue:
        values = flat.get(key)
        if values is None:
            if self.may_be_missing:
                return empty_flat(kind)  # type: ignore[arg-type]  # a WireKind
            raise corrupt_fault(self.path, f"the record has no key {key!r}")
        if isinstance(values, list):
            found = "bytes"
        else:
            found = "int64" if values.dtype == _INT64 else "float" if values.dtype == _FLOAT32 else str(values.dtype)
        if found != kind:
            if not len(values):  # the type of an empty list does not matter
                return empty_flat(kind)  # type: ignore[arg-type]  # a WireKind
            raise corrupt_fault(self.path, f"expected {kind} values, found {found}")
        return values

    def _count(self, values: FlatValue) -> int:
        """Number of elements of a Sequence that stores ``values`` in its first part."""
        size, length = self.parts[0][0].size, self.lengths[0]
        count = len(values) // size if size else length
        if count is None or (size and len(values) % size):
            raise corrupt_fault(self.path, f"expected a multiple of {size} values, found {len(values)}")
        if length not in (None, count):
            raise corrupt_fault(self.path, f"expected {length} elements, found {count}")
        return count

    def _read_ragged(self, flat: Mapping[str, FlatValue], restore: _Restore) -> Ragged:
        values: list[FlatValue] = []
        lengths: list[Any] = []
        for part, keys in self.parts:
            values.append(self._values(flat, keys[0], part.kind))
            levels = [self._values(flat, key, "int64") for key in keys[1:]]
            if lengths and not all(map(np.array_equal, lengths, levels)):
                raise corrupt_fault(self.path, "its values and their shapes have different row lengths")
            lengths = levels
        size = self.parts[0][0].size or 1
        if len(values[0]) % size:
            raise corrupt_fault(self.path, f"expected a multiple of {size} values, found {len(values[0])}")
        restored = restore(tuple(values), len(values[0]) // size, self.path)
        for level, (length, found) in enumerate(zip(self.lengths, [[len(lengths[0])], *lengths], strict=True)):
            if length is not None and any(number != length for number in found):
                raise corrupt_fault(self.path, f"a row of level {level} does not have the declared length {length}")
        try:
            return Ragged(restored, lengths)
        except ValueError as error:
            raise corrupt_fault(self.path, str(error)) from error

    def _read_whole(self, flat: FlatBlock, *, copy: bool) -> BlockColumn | None:
        """The column of a leaf that must be in every record."""
        columns: list[FlatColumn] = []
        for part, keys in self.parts:
            column = complete(flat, keys[0], part.kind, may_be_missing=self.may_be_missing)
            if column is None:
                return None
            columns.append(column)
        counts = None
        if self.lengths:
            size, length = self.parts[0][0].size, self.lengths[0]
            counts = columns[0].counts
            if not size or np.any(counts % size) or (length is not None and np.any(counts != length * size)):
                return None
            counts = counts // size
        data = flat.data
        if not copy:
            data = data.view()
            data.flags.writeable = False
        return self.leaf.restore_block(BlockParts(flat.num_records, data, tuple(columns), counts, copy), self.path)

    def _read_nested(self, flat: FlatBlock, *, copy: bool) -> RaggedColumn | None:
        """The column of a leaf in several Sequences; None if a record may be damaged."""
        part, (key, *level_keys) = self.parts[0]
        values = complete(flat, key, part.kind, may_be_missing=self.may_be_missing)
        rows = [complete(flat, name, "int64", may_be_missing=self.may_be_missing) for name in level_keys]
        if (
            len(self.parts) > 1
            or not part.size
            or self.leaf.decodes_files
            or values is None
            or np.any(values.counts % part.size)
        ):
            return None
        below = values.counts // part.size
        parts = BlockParts(flat.num_records, flat.data, (values,), below, copy)
        levels: list[tuple[Places, Places]] = []
        for length, level in reversed(list(zip(self.lengths[1:], rows, strict=True))):
            if not isinstance(level, NumberColumn) or not _are_lengths(level.values, length):
                return None
            counts = np.broadcast_to(level.counts, flat.num_records)
            if np.any(count_in_rows(1, (counts, level.values)) != below):
                return None
            levels.insert(0, (level.values, counts))
            below = counts
        if self.lengths[0] is not None and np.any(below != self.lengths[0]):
            return None
        column = self.leaf.restore_block(parts, self.path)
        shape = (None, *self.leaf.shape)
        if not isinstance(column, ArrayColumn | RaggedColumn) or column.values.ndim not in (1, 1 + len(shape)):
            return None
        counts = np.broadcast_to(values.counts, flat.num_records)
        return RaggedColumn(column.values.reshape(-1), counts, shape, tuple(levels))

    def _read_optional(self, flat: FlatBlock, *, copy: bool) -> BlockColumn | None:
        """The column of an optional leaf, which some records may lack; None if a record may be damaged."""
        ((part, (key,)),) = self.parts  # exactly one part, because an optional leaf has a known shape
        stored = [kind for kind in ("int64", "float", "bytes") if (key, kind) in flat.columns]
        column = flat.columns.get((key, part.kind))
        if stored and (column is None or len(stored) > 1):
            return None
        rows = np.arange(flat.num_records) if column is None or column.rows is None else column.rows
        result: BlockColumn | None = ArrayColumn(self._no_rows())
        if column is None:
            rows = rows[:0]
        elif rows.size:
            present = FlatBlock(rows.size, {(key, part.kind): replace(column, rows=None)}, flat.data)
            result = self._read_whole(present, copy=copy)
        if result is None:
            return None
        if self.may_read_none:
            return self._masked(result, rows, flat.num_records)
        if rows.size == flat.num_records:
            return result
        absent = self.leaf.restore_absent()
        values = np.empty((flat.num_records, *np.shape(absent)), self.leaf.dtype)
        values[...] = absent
        values[rows] = result.array(rows.size)
        return ArrayColumn(values)

    def _masked(self, present: BlockColumn, rows: npt.NDArray[np.int64], num_rows: int) -> MaskedColumn:
        leaf = self.leaf
        if 0 in leaf.shape:  # a value without entries has no mask: store each value as an object
            values = np.fromiter(present.rows(0, rows.size), TEXT, rows.size)
            return MaskedColumn(ArrayColumn(values), rows, num_rows, (), np.dtype(TEXT))
        return MaskedColumn(present, rows, num_rows, tuple(leaf.shape), leaf.dtype)

    def _stack(self, values: list[Any]) -> npt.NDArray[Any]:
        """``values``, none of them missing, in the form that ``ExampleBlock.columns`` describes."""
        if not values:
            return self._no_rows()
        first = values[0]
        if isinstance(first, np.generic):
            return np.array(values, first.dtype)
        if isinstance(first, np.ndarray) and all(
            value.shape == first.shape and value.dtype == first.dtype for value in values
        ):
            return np.stack(values)
        return np.fromiter(values, TEXT, len(values))

    def _no_rows(self) -> npt.NDArray[Any]:
        """A column without values, with the leaf's dtype and, as far as it is known, its shape."""
        if len(self.lengths) > 1:
            return np.empty(0, TEXT)
        shape = tuple(size or 0 for size in (*self.lengths, *self.leaf.shape))
        return np.empty((0, *shape), self.leaf.dtype)


@dataclass(frozen=True, slots=True)
class RawReader(ColumnReader):
    """Reads the stored values of a feature of an unknown class, except those that belong to another feature."""

    others: frozenset[str]

    def read(self, flat: Mapping[str, FlatValue]) -> Any:
        """The stored values: an array, or a dict of arrays by suffix."""
        if not isinstance(self.leaf, RawFeature):
            raise TypeError(self.leaf)
        return self.leaf.take(flat, self.path, self.others)

    def read_block(self, flat: FlatBlock, *, copy: bool) -> None:
        """Always None, because blocks are decoded for known keys only."""

    def column_of(self, values: list[Any]) -> BlockColumn:
        """An object column of ``values``."""
        return ArrayColumn(np.fromiter(values, TEXT, len(values)))

    def read_content(self, flat: Mapping[str, FlatValue]) -> Any:
        """The stored values, with the suffix and the dtype of each array."""
        found = self.read(flat)
        arrays = found if isinstance(found, dict) else {None: found}
        return [
            [b"" if suffix is None else f"/{suffix}".encode(), array.dtype.name.encode(), array]
            for suffix, array in arrays.items()
        ]


def _as_bytes(value: Any) -> FlatValue:
    """The flat ``value`` with bytes in place of memoryviews."""
    return list(map(bytes, value)) if isinstance(value, list) else value


def _are_lengths(values: Places, length: int | None) -> bool:
    """Whether stored ``values`` can be the lengths of rows that have ``length`` entries if it is not None."""
    low, high = (0, _MOST_ELEMENTS) if length is None else (length, length)
    return not values.size or (low <= int(values.min()) and int(values.max()) <= high)


def complete(flat: FlatBlock, key: str, kind: WireKind, *, may_be_missing: bool) -> FlatColumn | None:
    """The values of ``key`` in all records; a record that may lack the key gets an empty list.

    None if a record lacks the key although it must have it, or holds values of another kind.
    """
    column = flat.columns.get((key, kind))
    if column is not None and column.rows is None:
        return column
    result = np.zeros(flat.num_records, np.bool_)
    for other in ("int64", "float", "bytes"):
        found = flat.columns.get((key, other))
        if found is not None:
            if other != kind and np.any(found.counts != 0):
                return None
            result[slice(None) if found.rows is None else found.rows] = True
    if not may_be_missing and not result.all():
        return None
    counts = np.zeros(flat.num_records, np.int64)
    if column is None:
        empty = np.empty(0, np.int64)
        if kind == "bytes":
            return BytesColumn(None, 0, empty, empty)
        return NumberColumn(None, 0, empty if kind == "int64" else np.empty(0, np.float32))
    counts[column.rows] = column.counts
    same = constant(counts)
    return replace(column, rows=None, counts=counts if same is None else same)
