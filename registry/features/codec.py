"""How does an example become a record, and a record an example? The plan of one schema, made once and run for each.

    example -> flat values by key (pure) -> tf.train.Example bytes (registry.wire)
    bytes -> flat values by key -> example

Keys follow TFDS: nested names joined by ``/``; inside one Sequence the flat list; inside several
``k/ragged_flat_values`` and ``k/ragged_row_lengths_0..``, the lengths of the levels below the outermost one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, TypeAlias

import numpy as np

from registry.errors import suggest
from registry.features.containers import Column, Dataset, FeaturesDict, Sequence, columns_of
from registry.features.feature import (
    Feature,
    FlatValue,
    Leaf,
    Part,
    RawFeature,
    corrupt_fault,
    empty_flat,
    feature_fault,
)
from registry.features.nested import NestedExamples, NestedNode, Ragged, plain_tree
from registry.wire import decode_example, encode_example

_INT64: Final = np.dtype(np.int64)
_FLOAT32: Final = np.dtype(np.float32)

_Restore: TypeAlias = Callable[[tuple[FlatValue, ...], int | None, str], Any]


@dataclass(frozen=True, slots=True)
class Codec:
    """Encodes and decodes the examples of one schema.

    ``tree`` is the nested dict of an example with the place in ``columns`` for each leaf, and a ``NestedNode`` for a
    Dataset.
    """

    features: FeaturesDict
    columns: tuple[ColumnReader, ...]
    tree: Mapping[str, Any]

    @classmethod
    def of(cls, features: FeaturesDict) -> Codec:
        """The codec of ``features``."""
        columns = columns_of(features)
        known = frozenset(key for column in columns for part in column.leaf.parts for key in column.keys(part))
        readers = tuple(ColumnReader.of(column, known) for column in columns)
        return cls(features, readers, _tree_of(features, (), count()))

    def encode(self, example: Mapping[str, Any]) -> bytes:
        """The record of ``example``."""
        return encode_example(self.flatten(example))

    def decode(self, record: bytes | memoryview) -> dict[str, Any]:
        """The example in ``record``."""
        return self.restore(decode_example(record))

    def flatten(self, example: Mapping[str, Any]) -> dict[str, FlatValue]:
        """The flat values of ``example``, by key."""
        flat: dict[str, FlatValue] = {}
        _flatten(self.features, [example], (), "", flat)
        return flat

    def restore(self, flat: Mapping[str, FlatValue]) -> dict[str, Any]:
        """The example of these flat values; keys that no feature asks for are ignored, as TFDS does."""
        return fill_tree(self.tree, [column.read(flat) for column in self.columns])

    def decode_values(self, record: bytes) -> list[Any]:
        """The value of each of ``columns`` in ``record``."""
        flat = decode_example(record)
        return [column.read(flat) for column in self.columns]


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """Reads one leaf: the keys of its parts are spelled out once."""

    path: str
    leaf: Leaf
    lengths: tuple[int | None, ...]
    parts: tuple[tuple[Part, tuple[str, ...]], ...]
    may_be_missing: bool
    may_be_absent: bool
    may_read_none: bool
    is_object_column: bool

    @classmethod
    def of(cls, column: Column, known: frozenset[str]) -> ColumnReader:
        """The reader of ``column``; ``known`` are the keys of all features whose keys are known."""
        if isinstance(column.leaf, RawFeature):
            return RawReader(column.path, column.leaf, (), (), True, False, False, True, known)
        parts = tuple((part, tuple(column.keys(part))) for part in column.leaf.parts)
        # TensorFlow's parser takes an absent key for an empty list where the first dimension is unknown, and TFDS's own
        # writers left empty lists out at times.
        may_be_missing = column.lengths[0] is None if column.lengths else len(parts) == 1 and parts[0][0].size is None
        is_object_column = column.leaf.is_object_column and not column.lengths
        absent = (column.may_be_absent, column.may_read_none)
        return cls(column.path, column.leaf, column.lengths, parts, may_be_missing, *absent, is_object_column)

    def read(self, flat: Mapping[str, FlatValue]) -> Any:
        """The value of this leaf in the example of these flat values."""
        if self.may_be_absent and self._is_absent(flat):
            return self.leaf.restore_absent()
        return self._read(flat, self.leaf.restore)

    def read_content(self, flat: Mapping[str, FlatValue]) -> Any:
        """What of the value two examples are compared by; where it may be None, a list of one value, or of none."""
        if not self.may_be_absent:
            return self._read(flat, self.leaf.restore_content)
        return [] if self._is_absent(flat) else [self._read(flat, self.leaf.restore_content)]

    def _is_absent(self, flat: Mapping[str, FlatValue]) -> bool:
        return not any(key in flat for _, keys in self.parts for key in keys)

    def _read(self, flat: Mapping[str, FlatValue], restore: _Restore) -> Any:
        if len(self.lengths) > 1:
            return self._read_ragged(flat, restore)
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
            if not len(values):  # an empty list does not say of what
                return empty_flat(kind)  # type: ignore[arg-type]  # a WireKind
            raise corrupt_fault(self.path, f"the record holds {found} values, where {kind} belongs")
        return values

    def _count(self, values: FlatValue) -> int:
        """Number of elements of a Sequence that stores ``values`` in its first part."""
        size, length = self.parts[0][0].size, self.lengths[0]
        count = len(values) // size if size else length
        if count is None or (size and len(values) % size):
            raise corrupt_fault(self.path, f"holds {len(values)} values, not a multiple of {size}")
        if length not in (None, count):
            raise corrupt_fault(self.path, f"holds {count} elements, where {length} belong")
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
            raise corrupt_fault(self.path, f"holds {len(values[0])} values, not a multiple of {size}")
        restored = restore(tuple(values), len(values[0]) // size, self.path)
        for level, (length, found) in enumerate(zip(self.lengths, [[len(lengths[0])], *lengths], strict=True)):
            if length is not None and any(number != length for number in found):
                raise corrupt_fault(self.path, f"a row of level {level} has not the declared length {length}")
        try:
            return Ragged(restored, lengths)
        except ValueError as error:
            raise corrupt_fault(self.path, str(error)) from error


@dataclass(frozen=True, slots=True)
class RawReader(ColumnReader):
    """Reads a feature that is not known: whatever stands under its key, if it is of no other feature."""

    others: frozenset[str]

    def read(self, flat: Mapping[str, FlatValue]) -> Any:
        """What is stored: an array, or a dict of them by suffix."""
        if not isinstance(self.leaf, RawFeature):
            raise TypeError(self.leaf)
        return self.leaf.take(flat, self.path, self.others)

    def read_content(self, flat: Mapping[str, FlatValue]) -> Any:
        """The same, with the suffix and the kind of each array."""
        found = self.read(flat)
        arrays = found if isinstance(found, dict) else {None: found}
        return [
            [b"" if suffix is None else f"/{suffix}".encode(), array.dtype.name.encode(), array]
            for suffix, array in arrays.items()
        ]


def fill_tree(tree: Mapping[str, Any], values: list[Any]) -> dict[str, Any]:
    """The nested dict ``tree``, each place in it replaced by the value that stands there."""
    return {name: values[at] if type(at) is int else _fill(at, values) for name, at in tree.items()}


def _fill(at: Any, values: list[Any]) -> Any:
    if isinstance(at, NestedNode):
        inner = plain_tree(at.tree)
        return NestedExamples(values[inner] if type(inner) is int else fill_tree(inner, values), at.tree, at.path)
    return fill_tree(at, values)


def _flatten(
    feature: Feature, batch: Any, levels: tuple[list[int], ...], path: str, flat: dict[str, FlatValue]
) -> None:
    """Adds the flat values of ``batch``: every value of ``feature`` in one example, in order.

    ``levels`` are the row lengths of the Sequences around it, outermost first; without any, the batch is one value.
    """
    if isinstance(feature, FeaturesDict):
        for value in batch:
            _check_names(feature, value, path)
        for name in feature:
            _flatten(feature[name], [value[name] for value in batch], levels, f"{path}/{name}" if path else name, flat)
    elif isinstance(feature, Sequence):
        lengths, elements = _elements(feature, batch, path)
        _flatten(feature.feature, elements, (*levels, lengths), path, flat)
    elif isinstance(feature, Leaf):
        if feature.may_be_absent and not levels and batch[0] is None:
            return
        values = feature.flatten_many(batch, path) if levels else feature.flatten(batch[0], path)
        for part, value in zip(feature.parts, values, strict=True):
            key = path + part.suffix
            if len(levels) < 2:
                flat[key] = value
                continue
            flat[f"{key}/ragged_flat_values"] = value
            for level, row_lengths in enumerate(levels[1:]):
                flat[f"{key}/ragged_row_lengths_{level}"] = np.array(row_lengths, np.int64)


def _elements(feature: Sequence, batch: Any, path: str) -> tuple[list[int], Any]:
    """How many elements each Sequence of ``batch`` has, and all of them one after the other."""
    lengths: list[int] = []
    elements: list[Any] = []
    for given in batch:
        value = feature.elements_of(given, path)
        if isinstance(value, Mapping):
            found: Any = _transpose(feature, value, path)
        elif _is_sequence(value):
            found = value
        else:
            raise feature_fault(path, f"{type(value).__name__} is no sequence", "Give a list, a tuple or an array.")
        if feature.length not in (None, len(found)):
            raise feature_fault(path, f"{len(found)} elements, where the declared length is {feature.length}")
        lengths.append(len(found))
        if len(batch) == 1 and isinstance(found, np.ndarray) and isinstance(feature.feature, Leaf):
            return lengths, found  # stays one array: no Python object for each of its values
        elements.extend(found)
    return lengths, elements


def _transpose(feature: Sequence, value: Mapping[str, Any], path: str) -> list[Any]:
    """A list of dicts from a dict of lists, at any depth of dicts."""
    inner = feature.feature
    while isinstance(inner, Sequence):
        inner = inner.feature
    if not isinstance(inner, FeaturesDict):
        raise feature_fault(path, "a dict is no sequence", "Give a list, a tuple or an array.")
    lengths = _nested_lengths(inner, value, path)
    if len(set(lengths.values())) > 1:
        raise feature_fault(path, f"its features differ in length: {lengths}")
    return [_pick(value, index) for index in range(next(iter(lengths.values())))]


def _nested_lengths(features: FeaturesDict, value: Mapping[str, Any], path: str) -> dict[str, int]:
    _check_names(features, value, path)
    lengths: dict[str, int] = {}
    for name, values in value.items():
        here = f"{path}/{name}"
        if isinstance(values, Mapping):
            inner: Feature = features[name]
            while isinstance(inner, Sequence):
                inner = inner.feature
            if not isinstance(inner, FeaturesDict):
                raise feature_fault(here, "a dict is no sequence", "Give a list, a tuple or an array.")
            lengths.update(_nested_lengths(inner, values, here))
        elif _is_sequence(values):
            lengths[here] = len(values)
        else:
            raise feature_fault(here, f"{type(values).__name__} is no sequence", "Give a list, a tuple or an array.")
    return lengths


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple, Ragged)) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _pick(value: Any, index: int) -> Any:
    if isinstance(value, Mapping):
        return {name: _pick(inner, index) for name, inner in value.items()}
    return value[index]


def _check_names(features: FeaturesDict, value: Any, path: str) -> None:
    if not isinstance(value, Mapping):
        raise feature_fault(path, f"{type(value).__name__} is no dict of features")
    if value.keys() == features.keys():
        return
    prefix = f"{path}/" if path else ""
    for name in value:
        if name not in features:
            raise feature_fault(f"{prefix}{name}", "there is no such feature", suggest(str(name), features))
    missing = [name for name in features if name not in value]
    raise feature_fault(prefix + missing[0], "the example does not hold this feature")


def _tree_of(feature: Feature, names: tuple[str, ...], places: Iterator[int], *, is_nested: bool = True) -> Any:
    """The tree of an example of ``feature``: dicts by name, a place for each leaf, in the order of ``columns_of``.

    A Dataset is a ``NestedNode`` where ``is_nested``, and else as a Sequence: nothing of it, or of the Sequence around
    it, can be told apart into examples.
    """
    if isinstance(feature, FeaturesDict):
        return {name: _tree_of(feature[name], (*names, name), places, is_nested=is_nested) for name in feature}
    if isinstance(feature, Dataset):
        is_nested = is_nested and not any(isinstance(column.leaf, RawFeature) for column in columns_of(feature))
        tree = _tree_of(feature.feature, names, places, is_nested=is_nested)
        return NestedNode(tree, "/".join(names)) if is_nested else tree
    if isinstance(feature, Sequence):
        return _tree_of(feature.feature, names, places, is_nested=False)
    return next(places)
