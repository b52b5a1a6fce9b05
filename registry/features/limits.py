"""Finds stored values that their feature does not allow: class numbers, boxes, bounds of tensors, languages.

    block of records -> the columns of features with limits -> Leaf.outside -> Outside for each feature

Decoding itself checks dtypes, shapes and lengths: a record that violates them cannot be read. A value outside a limit
can, and reads like any other, so it has to be looked for. Encoders call ``Leaf.outside`` too, and refuse such values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from registry.errors import RegistryError
from registry.features.block_columns import MaskedColumn
from registry.features.codec import FlatRecords, codec_of
from registry.features.column_reader import ColumnReader
from registry.features.containers import Column, FeaturesDict, columns_of
from registry.features.feature import TEXT, BlockColumn, Leaf
from registry.features.nested import Ragged
from registry.wire import BlockDecoder, FlatBlock
from registry.wire.gather import Octets, Places


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The records of a run in which a feature has values outside its limits.

    Attributes:
        feature: the path of the feature.
        limits: the allowed values, e.g. ``in 0..2, or -1 for no label``.
        num_records: the number of records with such a value.
        first_record: the lowest index of such a record.
        value: the first such value in that record, as text.
    """

    feature: str
    limits: str
    num_records: int
    first_record: int
    value: str


class LimitReader:
    """Finds the values outside the limits of the features of one schema. Features without limits are not decoded.

    >>> from registry.features import ClassLabel
    >>> reader = LimitReader(FeaturesDict({"label": ClassLabel(num_classes=2)}))
    >>> records = [codec_of(FeaturesDict({"label": "int64"})).encode({"label": label}) for label in (0, 7, 1)]
    >>> lengths = np.array([len(record) for record in records])
    >>> data = np.frombuffer(b"".join(records), np.uint8)
    >>> reader.in_records(data, lengths.cumsum() - lengths, lengths, start=10)[0].first_record
    11

    Attributes:
        features: the top-level features that have limits, or contain a feature that has.
        is_needed: whether there are any.
        is_quick: see ``Fold``.
    """

    def __init__(self, features: FeaturesDict) -> None:
        limited = {name: feature for name, feature in features.items() if any(map(_has_limits, columns_of(feature)))}
        # A missing value is None here, whatever readers get for it: it is outside no limit.
        self.features = FeaturesDict(limited).missing_as_none()
        self._readers = {
            place: column for place, column in enumerate(codec_of(self.features).columns) if _has_limits(column)
        }
        self._places = [place for place, column in enumerate(columns_of(features)) if _has_limits(column)]
        self._decoder = BlockDecoder(
            {key for reader in self._readers.values() for _, keys in reader.parts for key in keys}
        )
        self.is_needed = bool(self._readers)
        self.is_quick = True

    def in_records(self, data: Octets, offsets: Places, lengths: Places, *, start: int) -> list[Outside]:
        """The values outside limits in serialized records, up to the first that is not a tf.train.Example.

        Args:
            data: see ``Codec.decode_block``.
            offsets: see ``Codec.decode_block``.
            lengths: see ``Codec.decode_block``.
            start: the index of the first record.
        """
        flat = self._decoder.decode(data, offsets, lengths)
        return self._in_flat(dict.fromkeys(self._readers, flat), start)

    def in_columns(self, columns: Sequence[BlockColumn], count: int, *, start: int) -> list[Outside]:
        """The values outside limits in the first ``count`` examples of decoded columns.

        Args:
            columns: the column of each leaf of the schema. Missing values must be read as None.
            count: the number of examples.
            start: the index of the first example.
        """
        result = []
        for place, reader in zip(self._places, self._readers.values(), strict=True):
            rows, value = _find(reader.leaf, columns[place], count)
            if rows.size:
                result.append(_describe(reader, rows, value, start))
        return result

    def start(self) -> list[Outside]:
        """No values: the reader is a ``Fold``."""
        return []

    def add(self, state: list[Outside], block: FlatRecords) -> None:
        """Add the values outside limits in the next records.

        Args:
            state: those of the records before.
            block: the records.
        """
        flats = {reader: block.flats[place] for reader, place in zip(self._readers, self._places, strict=True)}
        state += self._in_flat(flats, block.start)

    def merge(self, state: list[Outside], later: list[Outside]) -> None:
        """Join the states of two consecutive parts.

        Args:
            state: that of the first part, which takes the other.
            later: that of the second part.
        """
        state += later

    def end(self, state: list[Outside]) -> list[Outside]:
        """One result for each feature, from the ``state`` of all records."""
        return merge_outside(state)

    def _in_flat(self, blocks: Mapping[int, FlatBlock], start: int) -> list[Outside]:
        result = []
        for place, flat in blocks.items():
            reader = self._readers[place]
            column = reader.read_block(flat, copy=False)
            if column is not None:
                rows, value = _find(reader.leaf, column, flat.num_records)
            else:
                rows, value = _find_each(reader, flat)
            if rows.size:
                result.append(_describe(reader, rows, value, start))
        return result


def merge_outside(found: Iterable[Outside]) -> list[Outside]:
    """One result for each feature, from those of several runs of records, in any order."""
    merged: dict[str, Outside] = {}
    for fault in found:
        other = merged.get(fault.feature)
        if other is not None:
            first = min(fault, other, key=lambda run: run.first_record)
            fault = replace(first, num_records=fault.num_records + other.num_records)  # noqa: PLW2901
        merged[fault.feature] = fault
    return list(merged.values())


def _has_limits(column: Column | ColumnReader) -> bool:
    return bool(column.leaf.limits) and 0 not in column.leaf.shape


def _describe(reader: ColumnReader, rows: Places, value: str, start: int) -> Outside:
    return Outside(
        feature=reader.path,
        limits=reader.leaf.limits,
        num_records=rows.size,
        first_record=start + int(rows[0]),
        value=value,
    )


def _find(leaf: Leaf, column: BlockColumn, count: int) -> tuple[Places, str]:
    """The rows with a value outside the limits, and the first such value."""
    if isinstance(column, MaskedColumn):
        rows, value = _find(leaf, column.present, column.rows_present.size)
        return column.rows_present[rows], value
    if not count:
        return np.empty(0, np.int64), ""
    values, ends = _values_of(leaf, column.array(count))
    mask = leaf.outside(values)
    if not mask.any():
        return np.empty(0, np.int64), ""
    places = np.flatnonzero(mask.reshape(len(values), -1).any(axis=1))
    rows = places // (len(values) // count) if ends is None else np.searchsorted(ends, places, side="right")
    return np.unique(rows), show_outside(values[mask][0])


def _find_each(reader: ColumnReader, flat: FlatBlock) -> tuple[Places, str]:
    """``_find``, record by record: images would take too much memory together. Damaged records are left out."""
    rows: list[int] = []
    first = ""
    for row, record in enumerate(reader.split(flat)):
        try:
            column = reader.column_of([reader.read(record)])
        except RegistryError:  # the error is reported where all features of the record are read
            continue
        found, value = _find(reader.leaf, column, 1)
        if found.size:
            first = first or value
            rows.append(row)
    return np.array(rows, np.int64), first


def _values_of(leaf: Leaf, column: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Places | None]:
    """The values of a leaf in all rows, along the first dimension, and where those of each row end.

    The ends are None if all rows have the same number of values. If their shapes differ, the values are the elements.
    """
    shape = () if None in leaf.shape else leaf.shape
    if not _holds_arrays(column):
        return column.reshape(-1, *shape), None
    parts = [_join(value, shape) for value in column]
    return np.concatenate(parts), np.cumsum([len(part) for part in parts])


def _join(value: Any, shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
    values = value.flat_values if isinstance(value, Ragged) else value
    if _holds_arrays(values):
        return np.concatenate([_join(array, shape) for array in values])
    joined: npt.NDArray[Any] = values.reshape(-1, *shape)
    return joined


def _holds_arrays(values: npt.NDArray[Any]) -> bool:
    return values.dtype == TEXT and bool(values.size) and isinstance(values.flat[0], np.ndarray | Ragged)


def show_outside(value: Any) -> str:
    """Format a value outside limits for messages: a number, a text in quotes, or the numbers of a box."""
    if isinstance(value, np.ndarray):
        return f"({', '.join(map(str, value))})"
    if isinstance(value, bytes | memoryview):
        return repr(bytes(value)[:80].decode("utf-8", "replace"))
    return str(value)
