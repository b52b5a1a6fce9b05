"""The statistics of a version as Croissant 1.1 annotations, for ``croissant``.

Croissant attaches a statistic to a field as an annotation: a field with a value, whose data type is a term of the
vocabulary SummaryStatisticType 2.1.2 of the DDI Alliance. What has no term is left out, except histograms and counts of
classes, which are structured annotations: subfields, and a value that is a JSON string.
http://mlcommons.org/croissant/1.1, "Representing Descriptive Statistics"
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from registry.interop.croissant_terms import CARDINALITY
from registry.statistics import FeatureStatistics, Statistics

_TERMS: Final = {
    "valid": ("ddi-stats:c646dd8", None),
    "invalid": ("ddi-stats:6459c62", None),
    "min": ("ddi-stats:a1d0ec6", "sc:minValue"),
    "max": ("ddi-stats:8321e79", "sc:maxValue"),
    "mean": ("ddi-stats:7975ed0", None),
    "std": ("ddi-stats:690ab50", None),
    "first_quartile": ("ddi-stats:350c70a", None),
    "median": ("ddi-stats:66851a3", "sc:median"),
    "third_quartile": ("ddi-stats:ebe9990", None),
    "mode": ("ddi-stats:650be61", None),
}
"""The term of each statistic: ValidCases, InvalidCases, Minimum, Maximum, ArithmeticMean, StandardDeviation,
FirstQuartile, Median, ThirdQuartile, Mode; and the property of schema.org that says the same."""

_QUARTILES: Final = {"25": "first_quartile", "50": "median", "75": "third_quartile"}


def count_annotation(place: str, num_examples: int) -> dict[str, Any]:
    """The annotation of a record set with the number of its records; ``place`` is its id."""
    return _field(place, "count") | {"value": num_examples, "dataType": CARDINALITY}


def field_annotations(statistics: Statistics, path: str, place: str) -> list[dict[str, Any]]:
    """The annotations of one field: of all its values, and of those of each split if there are several splits.

    Args:
        statistics: the statistics of the version.
        path: the path of the leaf in them.
        place: the id of the field.
    """
    of_splits = {name: split[path] for name, split in statistics.items() if path in split}
    if not of_splits:
        return []
    if len(statistics) == 1:
        (feature,) = of_splits.values()
        return list(_annotate(_facts(feature), feature, place))
    result = list(_annotate(_merged(list(of_splits.values())), None, place))
    for name, feature in of_splits.items():
        split = _field(f"{place}/splits/{name}", name) | {"description": f"Statistics of the split {name}."}
        result.append(split | {"subField": list(_annotate(_facts(feature), feature, split["@id"]))})
    return result


def _annotate(facts: Mapping[str, Any], feature: FeatureStatistics | None, place: str) -> Iterator[dict[str, Any]]:
    for name, value in facts.items():
        term, equivalent = _TERMS[name]
        annotation = _field(f"{place}/{name}", name) | {"value": value, "dataType": term}
        yield annotation | ({"equivalentProperty": equivalent} if equivalent else {})
    if feature is None:
        return
    if feature.classes is not None and feature.classes.counts:
        yield _structured(f"{place}/class_counts", {"counts": ("sc:Integer", feature.classes.counts)})
    elif feature.histogram is not None and feature.kind == "number":
        edges, counts = feature.histogram.edges, feature.histogram.counts
        columns = {"bin_edges": ("sc:Float", edges), "counts": ("sc:Integer", counts)}
        yield _structured(f"{place}/histogram", columns)


def _facts(feature: FeatureStatistics) -> dict[str, Any]:
    """The statistics of a feature that have a term, by name. Numbers of classes have no mean."""
    infinite = feature.nan + feature.infinities + feature.negative_infinities
    facts: dict[str, Any] = {"valid": feature.count - infinite, "invalid": feature.nulls + infinite}
    if feature.kind == "number" and feature.mean is not None:
        facts |= {name: getattr(feature, name) for name in ("min", "max", "mean", "std")}
        quantiles = feature.quantiles or {}
        facts |= {name: quantiles[percent] for percent, name in _QUARTILES.items() if percent in quantiles}
    if feature.frequent and feature.frequent[0].num_bytes is None:
        facts["mode"] = feature.frequent[0].value
    return facts


def _merged(features: Sequence[FeatureStatistics]) -> dict[str, Any]:
    """The statistics of all splits together; quartiles and the mode cannot be merged."""
    parts = [_facts(feature) for feature in features]
    facts: dict[str, Any] = {name: sum(part[name] for part in parts) for name in ("valid", "invalid")}
    if numbers := [part for part in parts if "mean" in part]:
        total = sum(part["valid"] for part in numbers)
        mean = sum(part["valid"] * Fraction(part["mean"]) for part in numbers) / total
        square = sum(part["valid"] * (Fraction(part["std"]) ** 2 + Fraction(part["mean"]) ** 2) for part in numbers)
        variance = max(square / total - mean**2, Fraction(0))  # beyond the floats if values are beyond 1e154
        root = math.isqrt(variance.numerator * variance.denominator << 256)
        least, greatest = min(part["min"] for part in numbers), max(part["max"] for part in numbers)
        # Half of the range is the most that a deviation can be. The rounded parts may exceed it, and so the floats.
        std = min(Fraction(root, variance.denominator << 128), (Fraction(greatest) - Fraction(least)) / 2)
        facts |= {"min": least, "max": greatest, "mean": float(mean), "std": float(std)}
    return facts


def _structured(place: str, columns: Mapping[str, tuple[str, Sequence[float]]]) -> dict[str, Any]:
    """An annotation with a subfield for each of ``columns``, whose values are a JSON string."""
    return _field(place, place.rpartition("/")[2]) | {
        "subField": [
            _field(f"{place}/{name}", name) | {"dataType": kind, "isArray": True, "arrayShape": str(len(values))}
            for name, (kind, values) in columns.items()
        ],
        "value": json.dumps({name: values for name, (_, values) in columns.items()}, separators=(",", ":")),
    }


def _field(place: str, name: str) -> dict[str, Any]:
    return {"@type": "cr:Field", "@id": place, "name": name}
