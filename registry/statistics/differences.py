"""Finds differences between the splits of a version: missing classes, shifted means, other shares of nulls."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from registry.statistics.values import Classes, FeatureStatistics, NumberStatistics, SplitStatistics

_SHIFT: Final = 0.25
_ERRORS: Final = 4.0
_NULLS: Final = 0.05
_NAMED: Final = 5
_FAR: Final = 100


class Difference(NamedTuple):
    """How ``feature`` in ``split`` differs from the largest split of the version, in words."""

    split: str
    feature: str
    text: str


def find_differences(
    statistics: Mapping[str, SplitStatistics], paths: Collection[str] | None = None
) -> list[Difference]:
    """Compare each split with the largest one (the first of several).

    ``paths`` are the features to compare, or all of them. A mean is shifted if it differs by more than a quarter of the
    standard deviation in the largest split, and by more than four times the standard error of the smaller split. For
    texts and audio, lengths are compared.
    """
    if len(statistics) < 2:
        return []
    largest = max(statistics, key=lambda split: statistics[split].num_examples)
    result = []
    for split, features in statistics.items():
        if split == largest or not features.num_examples:
            continue
        for path in features if paths is None else paths:
            feature, other = features.features.get(path), statistics[largest].features.get(path)
            if feature is not None and other is not None:
                num_records = features.num_examples, statistics[largest].num_examples
                result += [Difference(split, path, text) for text in _compare(feature, other, largest, *num_records)]
    return result


def measured(feature: FeatureStatistics) -> NumberStatistics | None:
    """Return the numbers that describe a feature: its values, the characters of texts, or the seconds of audio.

    Returns None for labels, whose numbers have no meaning, and for images and features of unknown classes.
    """
    if feature.kind == "number":
        return feature
    return feature.text_lengths if feature.kind == "text" else feature.seconds


def _compare(
    feature: FeatureStatistics, other: FeatureStatistics, largest: str, num_records: int, num_others: int
) -> Iterator[str]:
    if other.count and not feature.count:
        yield "has no values"
        return
    if lacking := _lacking(feature.classes, other.classes):
        yield f"lacks {lacking}"
    if added := _lacking(other.classes, feature.classes):
        yield f"has {added}, which {largest} lacks"
    share, usual = feature.nulls / num_records, other.nulls / max(1, num_others)
    if abs(share - usual) > _NULLS:
        yield f"{share:.0%} nulls, {usual:.0%} in {largest}"
    numbers, others = measured(feature), measured(other)
    if numbers is None or others is None or numbers.mean is None or others.mean is None:
        return
    mean = "the mean length" if feature.kind == "text" else "the mean"
    shift, spread = numbers.mean - others.mean, others.std or 0.0
    if not spread:
        if shift:
            yield f"{mean} is {numbers.mean:.4g}, but all values in {largest} are {others.mean:.4g}"
    elif abs(shift) > max(_SHIFT * spread, _ERRORS * spread / max(1, numbers.count) ** 0.5):
        amount = abs(shift) / spread
        shown = f"{amount:.1f}" if amount < _FAR else f"more than {_FAR}"
        yield f"{mean} is {shown} standard deviations {'above' if shift > 0 else 'below'} that of {largest}"


def _lacking(classes: Classes | None, others: Classes | None) -> str:
    """List the classes in ``others`` that are not in ``classes``. Returns "" if all are, or if they are not counted."""
    if classes is None or others is None or classes.counts is None or others.counts is None:
        return ""
    unused = [number for number, count in enumerate(classes.counts) if not count]
    lacking = [number for number in unused if others.counts[number]]
    names = dict(zip(unused, classes.unused, strict=False))  # only the first classes have names
    more = f" and {len(lacking) - _NAMED:,} more" if len(lacking) > _NAMED else ""
    return f"{', '.join(names.get(number, str(number)) for number in lacking[:_NAMED])}{more}"
