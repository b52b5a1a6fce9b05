"""Parses the declared features of one record, or of many records at once: flat values in, arrays out.

The rules are those of ``tf.io.parse_single_example`` and ``parse_single_sequence_example``: values are never converted
to another type, a feature without a list counts as missing, and a feature with an empty list does not. ``parse_block``
parses simple records together. For anything else, such as a record that lacks a declared feature, it raises
CorruptExampleError, and the caller parses record by record, which finds out which record is damaged, if any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, suggest
from registry.slim.feature_specs import (
    TEXT,
    FeatureSpec,
    FixedLenFeature,
    FixedLenSequenceFeature,
    SparseFeature,
    SparseTensorValue,
    VarLenFeature,
    kind_of,
)
from registry.tfrecord import RecordBlock
from registry.wire import BlockDecoder, BytesColumn, FlatBlock, FlatValue, take_texts

INDICES: Final = VarLenFeature(np.int64)
"""The declaration of the indices of a SparseFeature."""

_MOST_NAMES: Final = 5

_NAMES: Final = {"int64": "int64", "float": "float32", "bytes": "string"}


def parse_feature(key: str, spec: FeatureSpec, values: Mapping[str, FlatValue | None]) -> Any:
    """The value of a feature of an Example, or of the context of a SequenceExample.

    It is an array, a NumPy scalar or ``bytes`` for a single value, or a ``SparseTensorValue``.

    Raises:
        CorruptExampleError: the feature is missing, or has another type or number of values.
    """
    match spec:
        case FixedLenFeature():
            stored = values.get(key)
            if stored is None:
                return _default(key, spec, values)
            result = take_values(key, spec, stored)
            if result.size != spec.size:
                raise _other_number(f"feature {key!r}", key, result.size, spec)
            return result.reshape(spec.shape)[()]
        case VarLenFeature():
            return sparse_list(take_values(key, spec, values.get(key)))
        case SparseFeature():
            places = [take_values(name, INDICES, values.get(name)) for name in spec.index_key]
            return sort_sparse(key, spec, places, take_values(spec.value_key, spec, values.get(spec.value_key)))
        case FixedLenSequenceFeature():
            return shape_elements(key, spec, take_values(key, spec, values.get(key)))


def check_kinds(spec: SparseFeature, values: Mapping[str, FlatValue | None]) -> None:
    """Check the types of the lists of a SparseFeature. The number of indices is checked only when it is parsed.

    Raises:
        CorruptExampleError: a list has another type.
    """
    for name in spec.index_key:
        take_values(name, INDICES, values.get(name))
    take_values(spec.value_key, spec, values.get(spec.value_key))


def parse_steps(key: str, spec: FeatureSpec, steps: list[FlatValue | None] | None) -> Any:
    """The value of a feature list of a SequenceExample: an array (steps, *shape), or a ``SparseTensorValue`` of rank 2.

    Raises:
        CorruptExampleError: the list is missing, or a step has another type or number of values.
    """
    if steps is None and isinstance(spec, FixedLenSequenceFeature) and not spec.allow_missing:
        raise CorruptExampleError(
            f"feature list {key!r} is required, and the record does not hold it",
            hint="To read a missing list as one without steps, pass allow_missing=True to FixedLenSequenceFeature.",
            details={"feature": key},
        )
    result = [_take_step(key, spec, step, place) for place, step in enumerate(steps or ())]
    if isinstance(spec, FixedLenSequenceFeature):
        shape = (len(result), *spec.shape)
        return _joined(result, spec).reshape(shape)
    counts = np.array([len(step) for step in result], np.int64)
    rows = np.repeat(np.arange(len(result)), counts)
    places = np.arange(rows.size) - np.repeat(counts.cumsum() - counts, counts)
    widest = int(counts.max()) if result else 0
    return SparseTensorValue(np.stack([rows, places], 1), _joined(result, spec), np.array([len(result), widest]))


def take_values(key: str, spec: FeatureSpec, stored: FlatValue | None) -> npt.NDArray[Any]:
    """The stored values as a 1-d array of the declared dtype; empty if the feature is missing."""
    kind = (
        "bytes" if isinstance(stored, list) else "int64" if stored is not None and stored.dtype.kind == "i" else "float"
    )
    if stored is None:
        return np.empty(0, spec.dtype)
    if kind != kind_of(spec):
        raise CorruptExampleError(
            f"feature {key!r}: expected {_NAMES[kind_of(spec)]} values, found {_NAMES[kind]}",
            hint="Values are not converted: declare the stored dtype, and convert in a handler.",
            details={"feature": key, "expected": _NAMES[kind_of(spec)], "found": _NAMES[kind]},
        )
    return np.fromiter(stored, TEXT, len(stored)) if isinstance(stored, list) else stored


def sparse_list(values: npt.NDArray[Any]) -> SparseTensorValue:
    """``values`` as a sparse array with one dimension and the indices 0, 1, 2, ..."""
    return SparseTensorValue(np.arange(values.size).reshape(-1, 1), values, np.array([values.size]))


def sort_sparse(key: str, spec: SparseFeature, places: list[npt.NDArray[Any]], values: npt.NDArray[Any]) -> Any:
    """The sparse array of ``values`` at the indices ``places``, one array for each dimension."""
    for name, some in zip(spec.index_key, places, strict=True):
        if some.size != values.size:
            raise CorruptExampleError(
                f"feature {key!r} has {values.size} values in {spec.value_key!r} and {some.size} indices in {name!r}",
                hint="The program that wrote this record lost some of them. Write the record again.",
                details={"feature": key},
            )
    indices = np.stack(places, 1)
    if not spec.already_sorted:
        order = np.lexsort(tuple(reversed(places)))
        indices, values = indices[order], values[order]
    return SparseTensorValue(indices, values, np.array(spec.size, np.int64))


def shape_elements(key: str, spec: FixedLenSequenceFeature, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``values`` as an array (n, *shape)."""
    if values.size % spec.size:
        raise CorruptExampleError(
            f"feature {key!r}: expected elements of shape {list(spec.shape)}, found {values.size} values",
            hint="Declare the shape with which one element was written.",
            details={"feature": key},
        )
    return values.reshape(-1, *spec.shape)


def _default(key: str, spec: FixedLenFeature, values: Mapping[str, FlatValue | None]) -> Any:
    if spec.default_value is None:
        names = [name for name, value in values.items() if value is not None]
        found = suggest(key, names, have="The record holds", most=_MOST_NAMES) or "The record holds no features."
        raise CorruptExampleError(
            f"feature {key!r} ({_NAMES[kind_of(spec)]}) is required, and the record does not hold it",
            hint=f"{found} If records may lack it, declare a default_value, or a VarLenFeature.",
            details={"feature": key},
        )
    return spec.default_value.copy()[()]


def _take_step(key: str, spec: FeatureSpec, step: FlatValue | None, place: int) -> npt.NDArray[Any]:
    try:
        values = take_values(key, spec, step)
    except CorruptExampleError as error:
        raise CorruptExampleError(f"step {place}: {error.message}", hint=error.hint, details=error.details) from error
    if isinstance(spec, FixedLenSequenceFeature) and values.size != spec.size:
        raise _other_number(f"step {place}: feature list {key!r}", key, values.size, spec)
    return values


def _joined(steps: list[npt.NDArray[Any]], spec: FeatureSpec) -> npt.NDArray[Any]:
    return np.concatenate(steps) if steps else np.empty(0, spec.dtype)


def _other_number(
    subject: str, key: str, actual: int, spec: FixedLenFeature | FixedLenSequenceFeature
) -> CorruptExampleError:
    values = "1 value" if actual == 1 else f"{actual} values"
    return CorruptExampleError(
        f"{subject}: expected {spec.size} for the shape {list(spec.shape)}, found {values}",
        hint="Declare the shape that was written, or a VarLenFeature if records differ.",
        details={"feature": key, "expected": spec.size, "found": actual},
    )


_NOT_TOGETHER: Final = "these records have to be parsed one by one"


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
        """The number of values in each record; None if records differ."""
        first = int(self.counts[0])
        return first if bool((self.counts == first).all()) else None

    def __iter__(self) -> Iterator[Any]:
        return map(sparse_list, self.pieces)


Column: TypeAlias = DenseColumn | RaggedColumn | list[Any]
"""Iterating over a column yields the value of each record, the same as ``parse_feature`` returns."""


def parse_block(
    block: RecordBlock, features: Mapping[str, FeatureSpec], decoder: BlockDecoder, *, used: Collection[str]
) -> dict[str, Column]:
    """The columns of ``features`` in a block of one or more records; ``decoder`` reads their ``stored_keys``.

    A SparseFeature that is not in ``used`` is only checked, and has no column.

    Raises:
        CorruptExampleError: records have to be parsed one by one.
    """
    flat = decoder.decode(block.data, block.offsets, block.lengths)
    if flat.fault is not None:
        raise CorruptExampleError(_NOT_TOGETHER)
    columns: dict[str, Column] = {}
    for key, spec in features.items():
        if key in used or not isinstance(spec, SparseFeature):
            columns[key] = _parse_column(flat, key, spec)
        else:
            _stored_lists(flat, spec)
    return columns


def stored_keys(features: Mapping[str, FeatureSpec]) -> list[str]:
    """The keys of a record that ``features`` read."""
    keys: list[str] = []
    for key, spec in features.items():
        keys += [*spec.index_key, spec.value_key] if isinstance(spec, SparseFeature) else [key]
    return keys


def _parse_column(flat: FlatBlock, key: str, spec: FeatureSpec) -> Column:
    if isinstance(spec, SparseFeature):
        rows = zip(*(lists.pieces for lists in _stored_lists(flat, spec)), strict=True)
        return [sort_sparse(key, spec, places, values) for *places, values in rows]
    column, present = _lists_of(flat, key, spec)
    match spec:
        case VarLenFeature():
            return column
        case FixedLenSequenceFeature():
            if column.same_count is not None:
                shaped = shape_elements(key, spec, column.values[: column.same_count])
                return DenseColumn(column.values.reshape(flat.num_records, *shaped.shape))
            return [shape_elements(key, spec, some) for some in column.pieces]
    if bool((column.counts[present] != spec.size).any()):
        raise CorruptExampleError(_NOT_TOGETHER)
    if isinstance(present, slice):
        return DenseColumn(column.values.reshape(flat.num_records, *spec.shape))
    if spec.default_value is None:
        raise CorruptExampleError(_NOT_TOGETHER)
    dense = np.empty((flat.num_records, *spec.shape), spec.dtype)
    dense[...] = spec.default_value
    dense[present] = column.values.reshape(present.size, *spec.shape)
    return DenseColumn(dense)


def _stored_lists(flat: FlatBlock, spec: SparseFeature) -> list[RaggedColumn]:
    """The indices in each dimension, then the values."""
    indices = [_lists_of(flat, name, INDICES)[0] for name in spec.index_key]
    return [*indices, _lists_of(flat, spec.value_key, spec)[0]]


def _lists_of(flat: FlatBlock, key: str, spec: FeatureSpec) -> tuple[RaggedColumn, Any]:
    """The stored values of ``key``, and the records that have it: a slice of all, or an array of indexes."""
    kind = kind_of(spec)
    for other in ("int64", "float", "bytes"):
        if other != kind and (key, other) in flat.columns:
            raise CorruptExampleError(_NOT_TOGETHER)
    column = flat.columns.get((key, kind))
    counts = np.zeros(flat.num_records, np.int64)
    if column is None:
        return RaggedColumn(np.empty(0, spec.dtype), counts), np.empty(0, np.int64)
    present = slice(None) if column.rows is None else column.rows
    counts[present] = column.counts
    if not isinstance(column, BytesColumn):
        return RaggedColumn(column.values, counts), present
    if not isinstance(spec, VarLenFeature) and bool((counts[present] == 0).any()):
        raise CorruptExampleError(
            _NOT_TOGETHER
        )  # may be a feature without a list, which looks like an empty list of texts here
    return RaggedColumn(take_texts(flat.data, column.starts, column.sizes), counts), present
