"""Converts many examples to the flat columns of their records, one feature of all examples at a time.

    examples -> the values of a feature in all examples -> Leaf.flatten_block -> FlatBlock (registry.wire encodes it)

A feature is converted at once only if all its values have the same form, so that the flat values are those of
``flatten``. Otherwise, or if a value may not fit, it is converted example by example, which also raises the error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.features.containers import Column, Dataset, FeaturesDict
from registry.features.containers import Sequence as SequenceFeature
from registry.features.example_table import ExampleTable
from registry.features.feature import Counts, Feature, Leaf
from registry.features.flatten import check_names, flatten_values
from registry.features.stacking import type_of_all
from registry.wire import BytesColumn, FlatBlock, FlatColumn, FlatValue, NumberColumn, WireKind
from registry.wire.gather import Octets, Places, constant

_NO_DATA: Final = np.empty(0, np.uint8)
_KNOWN_SEQUENCES: Final = (SequenceFeature.elements_of, Dataset.elements_of)

_Values: TypeAlias = list[Any] | npt.NDArray[Any]


class UnusualExampleError(Exception):
    """The examples must be encoded one by one: a value may be read only once, or a feature has its own form."""


class BlockFlattener:
    """Converts a block of examples.

    Attributes:
        blocks: the flat columns of each feature; ignore them if there is a ``fault``.
        num_sound: the number of examples before the first that does not fit.
        fault: the error of that example, the same as that of ``flatten_example``, or None.

    Raises:
        UnusualExampleError: the examples must be converted one by one. None of their values was consumed.
    """

    def __init__(self, features: FeaturesDict, examples: Sequence[Any]) -> None:
        self.blocks: list[FlatBlock] = []
        self.num_sound = len(examples)
        self.fault: Exception | None = None
        self._rest: list[tuple[Feature, _Values, str]] = []
        # The features in ``_rest`` that come before the one whose dict does not fit: if the same example does not fit
        # them either, theirs is the error.
        self._num_before = 0
        if isinstance(examples, ExampleTable) and examples.columns.keys() == features.keys():
            for name in features:
                self._add(features[name], examples.columns[name], name)
        else:
            self._add(features, list(examples), "")
        # All are checked before the first is converted, so that nothing is read twice.
        if any(_is_read_once(value) for _, values, _ in self._rest for value in values[: self.num_sound + 1]):
            raise UnusualExampleError
        for index, (feature, values, path) in enumerate(self._rest):
            num_values = self.num_sound + (index < self._num_before)
            self.blocks.append(self._flatten_each(feature, values[:num_values], path))

    def _add(self, feature: Feature, values: _Values, path: str) -> None:
        """Add the columns of ``feature``, which is not in a Sequence, or leave it to ``_flatten_each``."""
        values = values[: self.num_sound]  # an example after the first that does not fit has no effect
        if not isinstance(feature, FeaturesDict):
            block = _flatten_together(feature, values, path)
            if block is None:
                self._rest.append((feature, values, path))
            else:
                self.blocks.append(block)
            return
        inner = _pick_columns(feature, values)
        if inner is None:
            for place, value in enumerate(values):
                try:
                    check_names(feature, value, path)
                except Exception as error:  # noqa: BLE001 - a mapping of another package may raise any error
                    self._fail(place, error)
                    self._num_before = len(self._rest)
                    break
            if not all(isinstance(value, dict) for value in values[: self.num_sound]):
                raise UnusualExampleError  # looking up the values of another mapping may raise any error
            inner = [[value[name] for value in values[: self.num_sound]] for name in feature]
        for name, column in zip(feature, inner, strict=True):
            self._add(feature[name], column, f"{path}/{name}" if path else name)

    def _flatten_each(self, feature: Feature, values: _Values, path: str) -> FlatBlock:
        flats: list[dict[str, FlatValue]] = []
        for place, value in enumerate(values):
            flat: dict[str, FlatValue] = {}
            try:
                flatten_values(feature, [value], (), path, flat)
            except Exception as error:  # noqa: BLE001 - a feature class of another package may raise any error
                self._fail(place, error)
                self._num_before = 0
                break
            flats.append(flat)
        return _block_of(flats)

    def _fail(self, place: int, error: Exception) -> None:
        self.num_sound, self.fault = place, error


def _pick_columns(features: FeaturesDict, values: _Values) -> list[list[Any]] | None:
    """The values of each feature in all of ``values``; None if these are not dicts with exactly these names."""
    if type_of_all(values) is not dict or list(map(len, values)).count(len(features)) < len(values):
        return None
    try:
        return [[value[name] for value in values] for name in features]
    except KeyError:
        return None


def _flatten_together(feature: Feature, values: _Values, path: str) -> FlatBlock | None:
    """The columns of ``feature``, which is not in a Sequence; None if its values have to be converted one by one."""
    num_records, rows = len(values), None
    if isinstance(feature, Leaf) and feature.may_be_absent and type(None) in set(map(type, values)):
        rows = np.array([row for row, value in enumerate(values) if value is not None], np.int64)
        values = [value for value in values if value is not None]
    flats: list[_Flat] = []
    if len(values) > 0 and not _collect(feature, values, (), path, flats):
        return None
    columns: dict[tuple[str, WireKind], FlatColumn] = {}
    data = [_NO_DATA]
    end = 0
    for key, kind, flat, counts in flats:
        if isinstance(flat, list):
            sizes = np.fromiter(map(len, flat), np.int64, len(flat))
            columns[key, kind] = BytesColumn(rows, counts, end + sizes.cumsum() - sizes, sizes)
            data.append(np.frombuffer(b"".join(flat), np.uint8))
            end += data[-1].size
        else:
            columns[key, kind] = NumberColumn(rows, counts, flat)
    return FlatBlock(num_records, columns, data[-1] if len(data) < 3 else np.concatenate(data))


_Flat: TypeAlias = tuple[str, WireKind, FlatValue, Counts]
"""The flat values of one key in all records, one after the other, and their number in each record."""


def _collect(feature: Feature, batch: _Values, levels: tuple[Places, ...], path: str, flats: list[_Flat]) -> bool:
    """Add the flat values of ``batch``, every value of ``feature`` in all examples, like ``flatten_values``.

    Args:
        feature: a leaf, a Sequence, or a dict inside Sequences.
        batch: the values.
        levels: the row lengths of the Sequences around the feature, outermost first.
        path: the path of the feature.
        flats: the list to add to.

    Returns:
        False if the values have to be converted one by one.
    """
    if isinstance(feature, FeaturesDict):
        inner = _pick_columns(feature, batch)
        return inner is not None and all(
            _collect(feature[name], column, levels, f"{path}/{name}", flats)
            for name, column in zip(feature, inner, strict=True)
        )
    if isinstance(feature, SequenceFeature):
        return _collect_sequence(feature, batch, levels, path, flats)
    if not isinstance(feature, Leaf) or not _has_block_form(type(feature)) or (levels and None in feature.shape):
        return False
    if len(batch):
        parts = feature.flatten_block(batch, path)
    else:
        parts = tuple((flat, 0) for flat in feature.flatten_many([], path))
    if parts is None:
        return False
    for part, (flat, counts) in zip(feature.parts, parts, strict=True):
        key, *level_keys = Column(path, (), feature, (None,) * len(levels)).keys(part)
        flats.append((key, part.kind, flat, count_in_rows(counts, levels)))
        for depth, level_key in enumerate(level_keys):
            flats.append((level_key, "int64", levels[depth + 1], count_in_rows(1, levels[: depth + 1])))
    return True


def _collect_sequence(
    feature: SequenceFeature, batch: _Values, levels: tuple[Places, ...], path: str, flats: list[_Flat]
) -> bool:
    if type(feature).elements_of not in _KNOWN_SEQUENCES:
        return False
    inner = feature.feature
    kind = None if isinstance(batch, np.ndarray) else type_of_all(batch)
    if kind is dict:  # a dict of lists
        if not isinstance(inner, FeaturesDict) or not all(isinstance(leaf, Leaf) for leaf in inner.values()):
            return False
        columns = _pick_columns(inner, batch)
    else:
        columns = [batch]  # type: ignore[list-item]
    opened = [_open(column) for column in columns or ()]
    if not opened or opened[0] is None:
        return False
    lengths = opened[0][0]
    if feature.length is not None and (lengths != feature.length).any():
        return False
    if any(column is None or not np.array_equal(column[0], lengths) for column in opened):
        return False
    elements = [column[1] for column in opened if column is not None]
    levels = (*levels, lengths)
    if kind is dict:
        return all(
            _collect(inner[name], column, levels, f"{path}/{name}", flats)
            for name, column in zip(inner, elements, strict=True)
        )
    if isinstance(elements[0], np.ndarray) and not isinstance(inner, Leaf):
        return False
    return _collect(inner, elements[0], levels, path, flats)


def _open(batch: _Values) -> tuple[Places, _Values] | None:
    """The length of each sequence of ``batch``, and all elements; None if they cannot be joined without a change."""
    if isinstance(batch, np.ndarray):
        if batch.ndim == 1:
            return None
        return np.full(len(batch), batch.shape[1]), batch.reshape(len(batch) * batch.shape[1], *batch.shape[2:])
    kind = type_of_all(batch)
    if kind is list or kind is tuple:
        return np.fromiter(map(len, batch), np.int64, len(batch)), list(chain.from_iterable(batch))
    if kind is np.ndarray:
        first = batch[0]
        if first.ndim and [value.dtype for value in batch].count(first.dtype) == len(batch):
            try:
                elements = np.concatenate(batch)
            except ValueError:  # their shapes differ
                return None
            return np.fromiter(map(len, batch), np.int64, len(batch)), elements
    return None


def count_in_rows(counts: Counts, levels: Sequence[Places]) -> Counts:
    """The number of values in each row, if each element of the innermost lists of ``levels`` has ``counts`` values.

    >>> count_in_rows(2, [np.array([1, 3])]), count_in_rows(1, [np.array([2, 2])])
    (array([2, 6]), 2)
    """
    if isinstance(counts, int) and not levels:
        return counts
    result, *inner = levels if isinstance(counts, int) else (*levels, counts)
    for lengths in inner:
        ends = np.concatenate([np.zeros(1, np.int64), lengths.cumsum()])
        stops = result.cumsum()
        result = ends[stops] - ends[stops - result]
    if isinstance(counts, int):
        result = result * counts
    same = constant(result)
    return result if same is None else same


def _block_of(flats: list[dict[str, FlatValue]]) -> FlatBlock:
    """The columns of the flat values of each record."""
    columns: dict[tuple[str, WireKind], FlatColumn] = {}
    pieces: list[bytes] = []
    end = 0
    for key in dict.fromkeys(chain.from_iterable(flats)):
        rows = [row for row, flat in enumerate(flats) if key in flat]
        values = [flats[row][key] for row in rows]
        places = None if len(rows) == len(flats) else np.array(rows, np.int64)
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        same = constant(lengths)
        counts: Counts = lengths if same is None else same
        kind = _kind_of(values)
        if kind == "bytes":
            items: list[bytes] = list(chain.from_iterable(values))
            sizes = np.fromiter(map(len, items), np.int64, len(items))
            columns[key, kind] = BytesColumn(places, counts, end + sizes.cumsum() - sizes, sizes)
            pieces += items
            end += int(sizes.sum())
        else:
            columns[key, kind] = NumberColumn(places, counts, np.concatenate(values))
    data: Octets = np.frombuffer(b"".join(pieces), np.uint8)
    return FlatBlock(len(flats), columns, data)


def _kind_of(values: list[FlatValue]) -> WireKind:
    """The kind of flat values; UnusualExampleError if they differ or a record cannot store them."""
    kinds = {value.dtype if isinstance(value, np.ndarray) and value.ndim == 1 else type(value) for value in values}
    if kinds == {np.dtype(np.int64)}:
        return "int64"
    if kinds == {np.dtype(np.float32)}:
        return "float"
    if kinds == {list} and set(map(type, chain.from_iterable(values))) <= {bytes}:
        return "bytes"
    raise UnusualExampleError


@cache
def _has_block_form(leaf_class: type[Leaf]) -> bool:
    """Whether the ``flatten_block`` of a class belongs to its other methods, which a subclass may have replaced."""
    for base in leaf_class.__mro__:
        if not vars(base).keys().isdisjoint(("flatten", "flatten_many", "flatten_block", "parts")):
            return "flatten_block" in vars(base)
    return False


def _is_read_once(value: Any) -> bool:
    """Whether reading ``value`` may change it: an open file, an iterator, or a dict with one."""
    if isinstance(value, Mapping):
        return any(map(_is_read_once, value.values()))
    return hasattr(value, "read") or hasattr(value, "__next__")
