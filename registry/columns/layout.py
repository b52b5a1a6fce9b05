"""The arrays that store the values of a leaf, record after record, and the columns that read blocks from them.

    FlatBlock of consecutive records  -> Layout.append -> the next entries of each array, for files or memory
    arrays of all records             -> Layout.column -> Dense or Stored -> block(rows) -> BlockColumn

Numbers of a known shape are stored in decoded form: ``values`` (records, *shape). For other leaves, the encoded values
of each key are stored: numbers in ``values``, or bytes in ``data`` with the ``ends`` of the items. There are
``offsets`` if the number of values differs between records, and ``rows`` if some records lack the key. When they are
read, the same code as for records decodes them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import UsageError
from registry.features import Audio, Image, Tensor, Text
from registry.features.block_columns import ArrayColumn, TextColumn
from registry.features.column_reader import ColumnReader, RawReader, complete
from registry.features.dtypes import dtype_name, is_bfloat16
from registry.features.feature import TEXT, BlockColumn
from registry.images import jpeg_versions
from registry.wire import BytesColumn, FlatBlock, FlatColumn, NumberColumn, WireKind
from registry.wire.gather import SMALL_TEXT, Octets, Places, constant, take_ragged

Array: TypeAlias = npt.NDArray[Any]
Rows: TypeAlias = "slice | Places"
"""Records of a split: a slice, or any positions."""

_PLACE: Final = np.dtype(np.int64)
_NUMBERS: Final[dict[WireKind, np.dtype[Any]]] = {"int64": _PLACE, "float": np.dtype(np.float32)}
_NONE: Final = np.empty(0, np.int64)
_NO_BYTES: Final = np.empty(0, np.uint8)
_ENDS: Final = 2**16
"""The number of ends that are compared at once."""


@dataclass(frozen=True, slots=True)
class ArrayForm:
    """The form of an array.

    Attributes:
        name: its name in the files of the leaf.
        dtype: the dtype of an entry.
        shape: the shape of an entry.
        has_zero: whether an entry 0 comes before all others, as in offsets.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    has_zero: bool = False

    @property
    def entry_bytes(self) -> int:
        """The size of an entry in bytes."""
        return self.dtype.itemsize * math.prod(self.shape)


class Layout:
    """The arrays of one leaf.

    Attributes:
        path: the leaf.
        forms: its arrays; empty if it cannot be stored, such as a feature of an unknown class, whose keys are only in
            records.
        is_dense: whether the values are stored in decoded form.
    """

    def __init__(self, reader: ColumnReader, *, as_pixels: bool = False) -> None:
        """Plan the layout of a leaf. ``as_pixels`` stores the decoded pixels of images of a known shape."""
        self.path = reader.path
        self.is_dense = _is_dense(reader, as_pixels=as_pixels)
        self._reader = reader
        keys = [] if self.is_dense else list(_keys_of(reader))
        # All bytes of a block are in one buffer
        self._keys = keys if sum(key.kind == "bytes" for key in keys) < 2 else []
        self.forms = [form for key in self._keys for form in key.forms]
        if self.is_dense:
            self.forms = [ArrayForm("values", np.dtype(reader.leaf.dtype), _shape_of(reader))]

    @property
    def identity(self) -> str:
        """A key that is equal for leaves whose values are stored in the same arrays."""
        leaf = self._reader.leaf
        decoding: list[Any] = []
        if self.is_dense:
            decoding = [dtype_name(leaf.dtype), list(leaf.shape), getattr(leaf, "encoding", "")]
        if self.is_dense and isinstance(leaf, Image):
            decoding += [leaf.decoding.ratio, leaf.decoding.crop, jpeg_versions()]
        keys = [[key.key, key.kind, key.count, key.is_optional] for key in self._keys]
        return json.dumps([self.path, decoding, keys, [[form.name, form.dtype.str] for form in self.forms]])

    def append(self, flat: FlatBlock, first: int, lengths: Sequence[int]) -> list[Array]:
        """The next entries of each array.

        Args:
            flat: consecutive records.
            first: the number of the first of them in the split.
            lengths: the number of entries of each array before them, without an entry 0.

        Raises:
            CorruptExampleError: a record does not hold the feature.
            UsageError: a record holds it in a way that cannot be kept.
        """
        if self.is_dense:
            column = self._reader.read_block(flat, copy=False) or self._read_each(flat)
            form = self.forms[0]
            return [np.ascontiguousarray(column.array(flat.num_records), form.dtype).reshape(-1, *form.shape)]
        entries: list[Array] = []
        for key in self._keys:
            values = key.find(flat, may_be_missing=self._reader.may_be_missing)
            if values is None:
                self._read_each(flat)
                raise UsageError(f"feature {self.path!r} has values of several kinds, so it cannot be kept as a column")
            entries += key.append(flat, values, first, lengths[len(entries) :])
        return entries

    def column(self, arrays: Sequence[Array]) -> Dense | Stored:
        """The values of all records, whose arrays have the order of ``forms``."""
        if self.is_dense:
            return Dense(arrays[0])
        left = iter(arrays)
        return Stored([key.values(left) for key in self._keys])

    def _read_each(self, flat: FlatBlock) -> BlockColumn:
        values, fault = self._reader.read_each(flat, flat.num_records)
        if fault is not None:
            raise fault
        return self._reader.column_of(values)


@dataclass(frozen=True, slots=True)
class Dense:
    """Values of a known shape: ``values`` has one for each record."""

    values: Array

    def block(self, reader: ColumnReader, rows: Rows, *, copy: bool) -> BlockColumn:  # noqa: ARG002 (as Stored)
        """The values of ``rows``; the array of a slice is a read-only view, which a reader that copies copies later."""
        if isinstance(rows, slice):
            return ArrayColumn(self.values[rows], copy)
        return ArrayColumn(self.values.take(rows, axis=0))

    def getter(self, reader: ColumnReader, *, copy: bool) -> Callable[[int], Any]:  # noqa: ARG002 (as Stored)
        """A function that returns the value of a row: a scalar, or an array, which is a view without ``copy``."""
        values = self.values
        return (lambda row: values[row].copy()) if copy and values.ndim > 1 else values.__getitem__

    def taker(self, reader: ColumnReader, *, copy: bool) -> Callable[[Places], Array]:  # noqa: ARG002 (as Stored)
        """A function that returns an array of the values of rows."""
        return partial(self.values.take, axis=0)


@dataclass(frozen=True, slots=True)
class Stored:
    """The stored values of a leaf, which are decoded for each block."""

    keys: Sequence[KeyValues]

    def block(self, reader: ColumnReader, rows: Rows, *, copy: bool) -> BlockColumn:
        """The values of ``rows``.

        Raises:
            CorruptExampleError: an image or a sound cannot be decoded.
        """
        num_rows = rows.stop - rows.start if isinstance(rows, slice) else rows.size
        if not num_rows:
            return reader.column_of([])
        if self._has_texts(reader):
            key = self.keys[0]
            if isinstance(rows, slice):
                ends = key.ends[rows.start : rows.stop + 1]
                return TextColumn(key.data, ends[:-1], np.diff(ends), copy)
            starts = key.ends[rows]
            return TextColumn(key.data, starts, key.ends[rows + 1] - starts, copy)
        data = next((key.data for key in self.keys if key.kind == "bytes"), _NO_BYTES)
        columns = {(key.key, key.kind): key.take(rows, copy=copy) for key in self.keys}
        flat = FlatBlock(num_rows, columns, data)
        column = reader.read_block(flat, copy=copy)
        if column is not None:
            return column
        values, fault = reader.read_each(flat, num_rows)
        if fault is not None:
            raise fault
        return reader.column_of(values)

    def getter(self, reader: ColumnReader, *, copy: bool) -> Callable[[int], Any]:
        """A function that returns the value of a row."""
        if not self._has_texts(reader):
            return lambda row: self.block(reader, slice(row, row + 1), copy=copy).rows(0, 1)[0]
        data, end = self.keys[0].data.data, self.keys[0].ends.item
        if copy:
            return lambda row: data[end(row) : end(row + 1)].tobytes()

        def view(row: int) -> bytes | memoryview:
            start, stop = end(row), end(row + 1)
            return data[start:stop] if stop - start > SMALL_TEXT else data[start:stop].tobytes()

        return view

    def taker(self, reader: ColumnReader, *, copy: bool) -> Callable[[Places], Array]:
        """A function that returns an array of the values of rows, for a column whose blocks are proved.

        It reads all ``ends`` once: if all texts have one size, as dates and ids do, they tell where each begins.
        """
        if self._has_texts(reader):
            data, ends = self.keys[0].data, self.keys[0].ends
            size = ends.item(1) if ends.size > 1 else 0
            parts = (np.diff(ends[start : start + _ENDS]) for start in range(0, ends.size - 1, _ENDS - 1))
            if 0 < size <= SMALL_TEXT and all(np.all(sizes == size) for sizes in parts):
                texts = data.view(f"V{size}")
                return lambda rows: texts.take(rows).astype(TEXT)
        return lambda rows: self.block(reader, rows, copy=copy).array(rows.size)

    def _has_texts(self, reader: ColumnReader) -> bool:
        """Whether each record has one text, which needs no decoding."""
        is_text = type(reader.leaf) is Text and not reader.lengths
        return is_text and self.keys[0].count == 1 and self.keys[0].rows is None


@dataclass(frozen=True, slots=True)
class KeyValues:
    """The values of one key of records.

    Attributes:
        key, kind: the key and the kind of its values.
        count: the number of values in each record; None if ``offsets`` has it.
        rows: the records that have the key, ascending; None for all.
        offsets: where the values of each of these records start and end, (records + 1,); None with a ``count``.
        values: the numbers; empty for bytes.
        ends: where the items start and end in ``data``, (items + 1,); empty for numbers.
        data: the bytes of all items; empty for numbers.
    """

    key: str
    kind: WireKind
    count: int | None
    rows: Places | None
    offsets: Places | None
    values: Array
    ends: Places
    data: Octets

    def take(self, rows: Rows, *, copy: bool) -> FlatColumn:
        """The values of ``rows``, which are views for a slice unless ``copy`` is set."""
        present, picked = self._find(rows)
        counts: int | Places
        values: Rows
        if isinstance(picked, slice):
            if self.offsets is None:
                counts = self.count or 0
                values = slice(picked.start * counts, picked.stop * counts)
            else:
                counts = np.diff(self.offsets[picked.start : picked.stop + 1])
                values = slice(int(self.offsets[picked.start]), int(self.offsets[picked.stop]))
        elif self.offsets is None:
            counts = self.count or 0
            values = picked if counts == 1 else (picked[:, None] * counts + np.arange(counts)).reshape(-1)
        else:
            starts = self.offsets[picked]
            counts = self.offsets[picked + 1] - starts
            ends = counts.cumsum()
            values = np.repeat(starts - ends + counts, counts) + np.arange(ends[-1] if ends.size else 0)
        if not isinstance(counts, int):  # as the decoder of records gives them: columns of equal shapes are one array
            same = constant(counts)
            counts = counts if same is None else same
        if self.kind != "bytes":
            numbers = self.values[values]
            return NumberColumn(present, counts, numbers.copy() if copy and isinstance(values, slice) else numbers)
        starts = self.ends[values]
        stops = self.ends[slice(values.start + 1, values.stop + 1) if isinstance(values, slice) else values + 1]
        return BytesColumn(present, counts, starts, stops - starts)

    def _find(self, rows: Rows) -> tuple[Places | None, Rows]:
        """Which of ``rows`` have the key, None for all, and their places among all records that have it."""
        if self.rows is None:
            return None, rows
        if isinstance(rows, slice):
            start, stop = np.searchsorted(self.rows, (rows.start, rows.stop)).tolist()
            return self.rows[start:stop] - rows.start, slice(start, stop)
        places = np.searchsorted(self.rows, rows)
        is_present = np.zeros(rows.size, np.bool_)
        inside = places < self.rows.size
        is_present[inside] = self.rows[places[inside]] == rows[inside]
        return np.flatnonzero(is_present), places[is_present]


@dataclass(frozen=True, slots=True)
class _Key:
    """How the values of one key are kept; ``count`` as in ``KeyValues``. ``prefix`` begins the names of its arrays."""

    key: str
    kind: WireKind
    prefix: str
    count: int | None
    is_optional: bool

    @property
    def forms(self) -> list[ArrayForm]:
        forms = [ArrayForm(f"{self.prefix}rows", _PLACE)] if self.is_optional else []
        if self.count is None:
            forms.append(ArrayForm(f"{self.prefix}offsets", _PLACE, has_zero=True))
        if self.kind != "bytes":
            return [*forms, ArrayForm(f"{self.prefix}values", _NUMBERS[self.kind])]
        ends = ArrayForm(f"{self.prefix}ends", _PLACE, has_zero=True)
        return [*forms, ends, ArrayForm(f"{self.prefix}data", np.dtype(np.uint8))]

    def find(self, flat: FlatBlock, *, may_be_missing: bool) -> FlatColumn | None:
        """The values in a block; None if they are damaged, or of another kind."""
        column = flat.columns.get((self.key, self.kind))
        if not self.is_optional:
            column = complete(flat, self.key, self.kind, may_be_missing=may_be_missing)
        elif any(key == self.key and kind != self.kind for key, kind in flat.columns):
            return None
        elif column is None:
            none = NumberColumn(_NONE, 0, np.empty(0, _NUMBERS.get(self.kind)))
            return none if self.kind != "bytes" else BytesColumn(_NONE, 0, _NONE, _NONE)
        is_right = column is not None and (self.count is None or bool(np.all(column.counts == self.count)))
        return column if is_right else None

    def append(self, flat: FlatBlock, column: FlatColumn, first: int, lengths: Sequence[int]) -> list[Array]:
        """The next entries of each array."""
        entries: list[Array] = []
        num_rows = flat.num_records if column.rows is None else column.rows.size
        if self.is_optional:
            entries.append((np.arange(num_rows) if column.rows is None else column.rows) + first)
        if self.count is None:
            num_before = lengths[len(entries) + 1]
            entries.append(np.broadcast_to(column.counts, num_rows).cumsum() + num_before)
        if isinstance(column, NumberColumn):
            return [*entries, column.values]
        num_before = lengths[len(entries) + 1]
        data = take_ragged(flat.data, column.starts, column.sizes)
        return [*entries, column.sizes.cumsum() + num_before, data]

    def values(self, arrays: Iterator[Array]) -> KeyValues:
        """The values of all records, from the arrays of ``forms``."""
        rows = next(arrays) if self.is_optional else None
        offsets = next(arrays) if self.count is None else None
        if self.kind != "bytes":
            return KeyValues(self.key, self.kind, self.count, rows, offsets, next(arrays), _NONE, _NO_BYTES)
        return KeyValues(self.key, self.kind, self.count, rows, offsets, _NONE, next(arrays), next(arrays))


def _is_dense(reader: ColumnReader, *, as_pixels: bool) -> bool:
    leaf = reader.leaf
    is_array = isinstance(leaf, Tensor) and not isinstance(leaf, Audio)
    is_array = is_array or (as_pixels and isinstance(leaf, Image))
    if not is_array or reader.may_be_absent or len(reader.lengths) > 1:
        return False
    sizes = (*reader.lengths, *leaf.shape)
    return leaf.dtype != TEXT and not is_bfloat16(leaf.dtype) and all(size for size in sizes)


def _shape_of(reader: ColumnReader) -> tuple[int, ...]:
    return tuple(size or 0 for size in (*reader.lengths, *reader.leaf.shape))


def _keys_of(reader: ColumnReader) -> Iterator[_Key]:
    if isinstance(reader, RawReader):
        return
    names = [(key, part, level) for part, keys in reader.parts for level, key in enumerate(keys)]
    for place, (key, part, level) in enumerate(names):
        count = part.size
        if reader.lengths:
            length = reader.lengths[0]
            count = part.size * length if len(reader.lengths) == 1 and part.size and length is not None else None
        kind: WireKind = "int64" if level else part.kind
        yield _Key(key, kind, f"{place}." if len(names) > 1 else "", count, reader.may_be_absent)
