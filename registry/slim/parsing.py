"""What are the features of one record, as they were declared? Flat values in, arrays and sparse arrays out.

The rules are those of ``tf.io.parse_single_example`` and ``parse_single_sequence_example``: no kind of value is ever
converted into another, a feature of no kind counts as missing, and one that is there and empty does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, suggest
from registry.slim.feature_specs import (
    STRING,
    FeatureSpec,
    FixedLenFeature,
    FixedLenSequenceFeature,
    SparseFeature,
    VarLenFeature,
    kind_of,
)
from registry.slim.sparse import SparseTensorValue
from registry.wire import FlatValue

INDICES: Final = VarLenFeature(np.int64)
"""As what the indices of a SparseFeature are stored."""

_MOST_NAMES: Final = 5

_NAMES: Final = {"int64": "int64", "float": "float32", "bytes": "string"}


def parse_feature(key: str, spec: FeatureSpec, values: Mapping[str, FlatValue | None]) -> Any:
    """The value of a feature of an Example, or of the context of a SequenceExample.

    An array, a numpy scalar or ``bytes`` for a single value, or a ``SparseTensorValue``.

    Raises:
        CorruptExampleError: it is missing, of another kind, or of another number of values.
    """
    match spec:
        case FixedLenFeature():
            stored = values.get(key)
            if stored is None:
                return _default(key, spec, values)
            return _shaped(key, spec, take_values(key, spec, stored))
        case VarLenFeature():
            return sparse_list(take_values(key, spec, values.get(key)))
        case SparseFeature():
            return _parse_sparse(key, spec, values)
        case FixedLenSequenceFeature():
            return shape_elements(key, spec, take_values(key, spec, values.get(key)))


def check_kinds(spec: SparseFeature, values: Mapping[str, FlatValue | None]) -> None:
    """Refuse what no SparseFeature can be made of; whether there is an index for each value, who makes one sees.

    Raises:
        CorruptExampleError: its lists are of other kinds.
    """
    for name in spec.index_key:
        take_values(name, INDICES, values.get(name))
    take_values(spec.value_key, spec, values.get(spec.value_key))


def parse_steps(key: str, spec: FeatureSpec, steps: list[FlatValue | None] | None) -> Any:
    """The value of a feature list of a SequenceExample: an array (steps, *shape), or a ``SparseTensorValue`` of rank 2.

    Raises:
        CorruptExampleError: as ``parse_feature``, of any step.
    """
    if steps is None and isinstance(spec, FixedLenSequenceFeature) and not spec.allow_missing:
        raise CorruptExampleError(
            f"feature list {key!r} is required, and the record does not hold it",
            hint="FixedLenSequenceFeature(..., allow_missing=True) reads a missing list as one of no steps.",
            details={"feature": key},
        )
    found = [_take_step(key, spec, step, place) for place, step in enumerate(steps or ())]
    if isinstance(spec, FixedLenSequenceFeature):
        shape = (len(found), *spec.shape)
        return _joined(found, spec).reshape(shape)
    counts = np.array([len(step) for step in found], np.int64)
    rows = np.repeat(np.arange(len(found)), counts)
    places = np.arange(rows.size) - np.repeat(counts.cumsum() - counts, counts)
    widest = int(counts.max()) if found else 0
    return SparseTensorValue(np.stack([rows, places], 1), _joined(found, spec), np.array([len(found), widest]))


def take_values(key: str, spec: FeatureSpec, stored: FlatValue | None) -> npt.NDArray[Any]:
    """The stored values as a 1-d array of the declared dtype; none where there is no feature."""
    kind = (
        "bytes" if isinstance(stored, list) else "int64" if stored is not None and stored.dtype.kind == "i" else "float"
    )
    if stored is None:
        return np.empty(0, spec.dtype)
    if kind != kind_of(spec):
        raise _other_kind(key, kind, spec)
    return np.fromiter(stored, STRING, len(stored)) if isinstance(stored, list) else stored


def sparse_list(values: npt.NDArray[Any]) -> SparseTensorValue:
    """``values`` at the places from 0 on, as a sparse array of one dimension."""
    return SparseTensorValue(np.arange(values.size).reshape(-1, 1), values, np.array([values.size]))


def sort_sparse(key: str, spec: SparseFeature, places: list[npt.NDArray[Any]], values: npt.NDArray[Any]) -> Any:
    """The sparse array of ``values`` at ``places``, an array for each dimension."""
    for name, some in zip(spec.index_key, places, strict=True):
        if some.size != values.size:
            raise CorruptExampleError(
                f"feature {key!r} has {values.size} values in {spec.value_key!r} and {some.size} indices in {name!r}",
                hint="Each value needs an index. What wrote this record lost some.",
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
            f"feature {key!r} has {values.size} values, which elements of the shape {list(spec.shape)} do not divide",
            hint="Declare the shape that one element was written with.",
            details={"feature": key},
        )
    return values.reshape(-1, *spec.shape)


def _default(key: str, spec: FixedLenFeature, values: Mapping[str, FlatValue | None]) -> Any:
    if spec.default_value is None:
        held = [name for name, value in values.items() if value is not None]
        found = suggest(key, held, have="The record holds", most=_MOST_NAMES) or "The record holds no features."
        raise CorruptExampleError(
            f"feature {key!r} ({_NAMES[kind_of(spec)]}) is required, and the record does not hold it",
            hint=f"{found} What records may go without is a FixedLenFeature with a default_value, or a VarLenFeature.",
            details={"feature": key},
        )
    return spec.default_value.copy()[()]


def _shaped(key: str, spec: FixedLenFeature, values: npt.NDArray[Any]) -> Any:
    if values.size != spec.size:
        raise _other_number(f"feature {key!r}", key, values.size, spec)
    return values.reshape(spec.shape)[()]


def _parse_sparse(key: str, spec: SparseFeature, values: Mapping[str, FlatValue | None]) -> Any:
    places = [take_values(name, INDICES, values.get(name)) for name in spec.index_key]
    return sort_sparse(key, spec, places, take_values(spec.value_key, spec, values.get(spec.value_key)))


def _take_step(key: str, spec: FeatureSpec, step: FlatValue | None, place: int) -> npt.NDArray[Any]:
    try:
        found = take_values(key, spec, step)
    except CorruptExampleError as error:
        raise CorruptExampleError(f"step {place}: {error.message}", hint=error.hint, details=error.details) from error
    if isinstance(spec, FixedLenSequenceFeature) and found.size != spec.size:
        raise _other_number(f"step {place}: feature list {key!r}", key, found.size, spec)
    return found


def _joined(steps: list[npt.NDArray[Any]], spec: FeatureSpec) -> npt.NDArray[Any]:
    return np.concatenate(steps) if steps else np.empty(0, spec.dtype)


def _other_kind(key: str, kind: str, spec: FeatureSpec) -> CorruptExampleError:
    return CorruptExampleError(
        f"feature {key!r} holds {_NAMES[kind]} values, where {_NAMES[kind_of(spec)]} was declared",
        hint="Nothing is converted: declare the dtype that is stored, and convert in a handler.",
        details={"feature": key, "expected": _NAMES[kind_of(spec)], "found": _NAMES[kind]},
    )


def _other_number(
    what: str, key: str, found: int, spec: FixedLenFeature | FixedLenSequenceFeature
) -> CorruptExampleError:
    values = "1 value" if found == 1 else f"{found} values"
    return CorruptExampleError(
        f"{what} has {values}, where the shape {list(spec.shape)} takes {spec.size}",
        hint="Declare the shape that was written, or a VarLenFeature where records differ.",
        details={"feature": key, "expected": spec.size, "found": found},
    )
