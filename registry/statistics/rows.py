"""Formats statistics as a table: a row for each feature and split, for the command line and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias

from registry.escaping import cut_text, size
from registry.statistics.differences import find_differences, measured
from registry.statistics.values import (
    FeatureStatistics,
    Frequent,
    Histogram,
    Moment,
    NumberStatistics,
    SplitStatistics,
    distribution,
)

Unit: TypeAlias = Moment | Literal["bool", ""]
"""The meaning of the numbers of a feature: moments, ``bool``, or ""."""

_NAMED: Final = 5
_CATEGORIES: Final = 3


def feature_rows(
    statistics: Mapping[str, SplitStatistics],
    splits: Collection[str],
    paths: Collection[str],
    *,
    moments: Mapping[str, Moment] | None,
    draw: Callable[[Sequence[int]], Any],
) -> Iterator[dict[str, Any]]:
    """Yield the rows of these features, with a line for each split that has the feature.

    ``moments`` format dates and times, by path; ``draw`` draws counts as bars.
    """
    for path in paths:
        # Lazily, because a notebook takes only the first of thousands of rows
        differences = find_differences(statistics, [path])
        for split in splits:
            if (feature := statistics[split].features.get(path)) is not None:
                unit = unit_of(feature, (moments or {}).get(path))
                marks = [difference.text for difference in differences if difference.split == split]
                yield _row(path, split, feature, marks, unit, draw)


def _row(
    path: str,
    split: str,
    feature: FeatureStatistics,
    marks: Sequence[str],
    unit: Unit,
    draw: Callable[[Sequence[int]], Any],
) -> dict[str, Any]:
    numbers = measured(feature)
    least, middle, most = "", "", ""
    if feature.heights is not None and feature.widths is not None and feature.heights.count:
        least = f"{feature.widths.min}x{feature.heights.min} px"
        most = f"{feature.widths.max}x{feature.heights.max} px"
    elif numbers is not None:
        least, most = number_text(numbers.min, unit), number_text(numbers.max, unit)
        middle = number_text(numbers.mean, unit if unit != "bool" else "")
    formats = None if feature.formats is None else ", ".join(f"{name} {n:,}" for name, n in feature.formats.items())
    return {
        "FEATURE": path,
        "SPLIT": split,
        "KIND": kind_text(feature, unit, number=feature.dtype),
        "VALUES": feature.count,
        "NULLS": feature.nulls,
        "MIN": least,
        "MEAN": middle,
        "MAX": most,
        "DISTINCT": distinct_text(feature),
        "DISTRIBUTION": draw(distribution(feature)) if formats is None else formats,
        "REMARKS": remarks_text(feature, [*marks, *_shares(feature)]),
    }


def remarks_text(feature: FeatureStatistics, marks: Sequence[str]) -> str:
    """Summarize remarkable facts about the values, after ``marks``, which may name missing classes."""
    return "; ".join((*marks, *_faults(feature, is_named=any(mark.startswith("lacks ") for mark in marks))))


def _shares(feature: FeatureStatistics) -> Iterator[str]:
    """Name the most frequent categories, with their share of the values."""
    if feature.categories is not None:
        texts = [cut_text(frequent_text(entry, ""), 20) for entry in feature.frequent[:_CATEGORIES]]
        shares = [
            f"{repr(text) if text.strip() == '' or ',' in text else text} {entry.count / feature.count:.0%}"
            for text, entry in zip(texts, feature.frequent, strict=False)
        ]
        yield ", ".join((*shares, "...") if len(feature.categories) > len(shares) else shares)


def _faults(feature: FeatureStatistics, *, is_named: bool) -> Iterator[str]:
    if feature.nan:
        yield f"{feature.nan:,} NaN"
    if infinite := feature.infinities + feature.negative_infinities:
        yield f"{infinite:,} infinite"
    if feature.classes is not None and feature.classes.num_unused and not is_named:
        names, number = ", ".join(feature.classes.unused[:_NAMED]), feature.classes.num_unused
        yield f"never: {names}" if number <= _NAMED else f"{number:,} classes never occur: {names} ..."
    if feature.classes is not None and feature.classes.num_unlabeled:
        yield f"{feature.classes.num_unlabeled:,} without a label"


def number_facts(numbers: NumberStatistics, unit: Unit) -> dict[str, Any]:
    """Describe the count and the distribution of numbers, as texts by the names of these facts."""
    facts: dict[str, Any] = {"values": numbers.count, "distinct": distinct_text(numbers)}
    if numbers.mean is not None:
        middle = number_text(numbers.mean, unit if unit != "bool" else "")
        facts |= {"min": number_text(numbers.min, unit), "mean": middle, "max": number_text(numbers.max, unit)}
        if unit in ("", "bool"):
            facts |= {"std": number_text(numbers.std), "zeros": numbers.zeros}
    if numbers.quantiles is not None:
        quantiles = (f"{percent}% {number_text(value, unit)}" for percent, value in numbers.quantiles.items())
        facts["quantiles"] = "  ".join(quantiles)
    return facts


def content_facts(feature: FeatureStatistics) -> dict[str, str]:
    """Describe the lengths of texts and sequences, and the properties of stored files, by the names of these facts."""
    facts = {}
    for name in ("text_lengths", "file_sizes", "heights", "widths", "seconds", "sample_rates", "channels"):
        if (numbers := getattr(feature, name)) is not None:
            facts[name.replace("_", " ")] = _summary(numbers)
    for place, numbers in enumerate(feature.lengths):
        facts["lengths" if not place else f"lengths {place + 1}"] = _summary(numbers)
    for name in ("formats", "modes"):
        if counts := getattr(feature, name):
            facts[name] = ", ".join(f"{key} {count:,}" for key, count in counts.items())
    if feature.kind in ("text", "image", "audio"):
        facts["distinct"] = distinct_text(feature)
    return facts


def _summary(numbers: NumberStatistics) -> str:
    if numbers.mean is None:
        return ""
    return f"{number_text(numbers.min)} to {number_text(numbers.max)}, mean {number_text(numbers.mean)}"


def bin_labels(histogram: Histogram, unit: Unit) -> list[str]:
    """Format the values of each bin; the upper edge is excluded if both edges are integers."""
    return [_bin_label(low, high, unit) for low, high in pairwise(histogram.edges)]


def _bin_label(low: float, high: float, unit: Unit) -> str:
    last = high - 1 if isinstance(low, int) and isinstance(high, int) else high
    return number_text(low, unit) if last == low else f"{number_text(low, unit)} to {number_text(last, unit)}"


def frequent_text(entry: Frequent, unit: Unit) -> str:
    """Format a frequent value, with its length if it is only the beginning of a text."""
    value = entry.value if isinstance(entry.value, str) else number_text(entry.value, unit)
    return value if entry.num_bytes is None else f"{value} ... ({size(entry.num_bytes)})"


def unit_of(feature: FeatureStatistics, moment: Moment | None) -> Unit:
    """Return the unit of the numbers of a feature. ``moment`` formats them if they are dates or times."""
    return moment or ("bool" if feature.dtype == "bool" else "")


def kind_text(feature: FeatureStatistics, unit: Unit, *, number: str) -> str:
    """Return the kind of a feature: ``date`` for moments, and ``number`` for other numbers."""
    if feature.kind != "number":
        return feature.kind
    return unit.kind if isinstance(unit, Moment) else number


def distinct_text(numbers: NumberStatistics) -> str:
    """Format the number of distinct values, or return "" if it is unknown."""
    if numbers.distinct is None:
        return ""
    return f"{'about ' if numbers.distinct.error else ''}{numbers.distinct.count:,}"


def number_text(value: float | None, unit: Unit = "") -> str:
    """Format a number in few digits, a date or time, or true or false.

    >>> number_text(1797), number_text(4.490818), number_text(0.1), number_text(123456.7), number_text(True, "bool")
    ('1,797', '4.491', '0.1', '123,457', 'true')
    """
    if value is None:
        return ""
    if unit == "bool":
        return "true" if value else "false"
    if isinstance(unit, Moment) and (text := unit.write(int(value))) is not None:
        whole, point, _ = text.partition(".")
        is_short = len(text) <= len("2024-01-31 12:00:00Z") or not point
        return text if is_short else whole + "Z" * text.endswith("Z")
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
