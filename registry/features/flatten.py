"""Converts one example to the flat values of a record. ``codec`` encodes these as bytes.

    example -> the values of each leaf, with the lengths of the Sequences around it -> flat values by key

``block_flattener`` does the same for many examples at once, and uses this module for examples that need an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from registry.errors import suggest
from registry.features.containers import FeaturesDict, Sequence
from registry.features.feature import Feature, Leaf, feature_fault
from registry.features.nested import Ragged
from registry.wire import FlatValue


def flatten_example(features: FeaturesDict, example: Mapping[str, Any]) -> dict[str, FlatValue]:
    """The flat values of ``example`` by key.

    Raises:
        FeatureError: a name is missing or unknown, or a value does not fit; ``details['feature']`` is its path.
    """
    flat: dict[str, FlatValue] = {}
    flatten_values(features, [example], (), "", flat)
    return flat


def flatten_values(
    feature: Feature, batch: Any, levels: tuple[list[int], ...], path: str, flat: dict[str, FlatValue]
) -> None:
    """Add the flat values of ``batch``, which holds every value of ``feature`` in one example, in order.

    ``levels`` are the row lengths of the Sequences around the feature, outermost first. Outside Sequences the batch is
    a single value.
    """
    if isinstance(feature, FeaturesDict):
        for value in batch:
            check_names(feature, value, path)
        for name in feature:
            flatten_values(
                feature[name], [value[name] for value in batch], levels, f"{path}/{name}" if path else name, flat
            )
    elif isinstance(feature, Sequence):
        lengths, elements = _elements(feature, batch, path)
        flatten_values(feature.feature, elements, (*levels, lengths), path, flat)
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
    """The number of elements of each Sequence of ``batch``, and all elements one after the other."""
    lengths: list[int] = []
    elements: list[Any] = []
    for given in batch:
        value = feature.elements_of(given, path)
        if isinstance(value, Mapping):
            ends = _nested_lengths(feature.feature, value, path)
            if len(set(ends.values())) > 1:
                raise feature_fault(path, f"its features differ in length: {ends}")
            result: Any = [_pick(value, index) for index in range(next(iter(ends.values())))]  # at any depth of dicts
        elif _is_sequence(value):
            result = value
        else:
            raise feature_fault(path, f"expected a list, a tuple or an array, found {type(value).__name__}")
        if feature.length not in (None, len(result)):
            raise feature_fault(path, f"expected {feature.length} elements, found {len(result)}")
        lengths.append(len(result))
        if len(batch) == 1 and isinstance(result, np.ndarray) and isinstance(feature.feature, Leaf):
            return lengths, result  # keep one array instead of a Python object for each value
        elements.extend(result)
    return lengths, elements


def _nested_lengths(features: Feature, value: Mapping[str, Any], path: str) -> dict[str, int]:
    """The number of values of each leaf of a dict of lists, by path."""
    while isinstance(features, Sequence):
        features = features.feature
    if not isinstance(features, FeaturesDict):
        raise feature_fault(path, "expected a list, a tuple or an array, found a dict")
    check_names(features, value, path)
    lengths: dict[str, int] = {}
    for name, values in value.items():
        here = f"{path}/{name}"
        if isinstance(values, Mapping):
            lengths.update(_nested_lengths(features[name], values, here))
        elif _is_sequence(values):
            lengths[here] = len(values)
        else:
            raise feature_fault(here, f"expected a list, a tuple or an array, found {type(values).__name__}")
    return lengths


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple, Ragged)) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _pick(value: Any, index: int) -> Any:
    if isinstance(value, Mapping):
        return {name: _pick(inner, index) for name, inner in value.items()}
    return value[index]


def check_names(features: FeaturesDict, value: Any, path: str) -> None:
    """Check that ``value`` is a dict with exactly the names of ``features``.

    Raises:
        FeatureError: it is something else, or a name is missing or unknown.
    """
    if not isinstance(value, Mapping):
        raise feature_fault(path, f"expected a dict of features, found {type(value).__name__}")
    if value.keys() == features.keys():
        return
    prefix = f"{path}/" if path else ""
    for name in value:
        if name not in features:
            raise feature_fault(f"{prefix}{name}", "unknown feature", suggest(str(name), features))
    missing = [name for name in features if name not in value]
    raise feature_fault(prefix + missing[0], "missing in the example")
