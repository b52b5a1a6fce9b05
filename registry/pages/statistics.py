"""The statistics of a version, feature by feature and split beside split; a bar leads to the records that it counts.

The condition of a bar selects exactly the records that it counts, if each record has one value of the feature. A bar
has no condition if none can express this: for the lengths of texts, values in sequences, or very large integers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from registry.api import Dataset
from registry.display import TimeType, moment_text, parse_moment_text, time_types
from registry.errors import NotFoundError, suggest
from registry.features.containers import columns_of, content_path, sort_paths
from registry.features.feature import Leaf
from registry.pages.dataset import version_values
from registry.pages.page import Page, Visit
from registry.pages.previews import Remembered, near_statistics
from registry.reading.conditions import column_text, is_comparable, text_literal
from registry.statistics import (
    Difference,
    FeatureStatistics,
    NumberStatistics,
    Statistics,
    duplicate_sentences,
    find_differences,
)
from registry.statistics.rows import (
    Unit,
    bin_labels,
    content_facts,
    frequent_text,
    kind_text,
    number_facts,
    number_text,
    remarks_text,
    unit_of,
)

_MOST_FEATURES: Final = 25
_MOST_SPLITS: Final = 6
_MOST_CLASSES: Final = 50
_MOST_FREQUENT: Final = 10
_MOST_LINES: Final = 100
_MOST_BYTES: Final = 8 * 2**20
_MOST_LETTERS: Final = 1000
_EXACT: Final = 2**53

_DERIVED: Final = Remembered(8)
"""What follows from a schema and its statistics: a schema of 10,000 features takes a second to parse."""


def statistics(visit: Visit, dataset: Dataset, rest: tuple[str, ...]) -> Page:
    """The features from a place on, 25 to a page, or the one that the address names."""
    document = near_statistics(dataset, most=_MOST_BYTES)
    values = {**version_values(dataset), "notes": dataset.notes, "is_attached": document is not None}
    values["is_unreadable"] = document is None and any(it.kind == "statistics" for it in dataset.attachments)
    values |= _contents(visit, dataset, document or Statistics(splits={}), rest)
    # Not final: a version may be deprecated, and statistics may be attached later.
    return Page(name="statistics", title=f"Statistics of {dataset.reference}", values=values)


def _contents(visit: Visit, dataset: Dataset, document: Statistics, rest: tuple[str, ...]) -> dict[str, Any]:
    splits = list(document)[:_MOST_SPLITS]
    paths = sort_paths(
        dict.fromkeys(path for split in splits for path in document[split]),
        dataset.metadata.in_source_order(list(dataset.features)),
    )
    first, path = _first(rest), visit.query.get("feature", "")
    if (path and path not in paths and splits) or (first and first >= len(paths)) or len(rest) > 1:
        raise NotFoundError(
            f"{dataset.reference} has no statistics of {path or '/'.join(rest)!r:.200}", hint=suggest(path, paths)
        )
    filters: dict[str, _Filters] = {}
    differences: list[Difference] = []
    if splits:
        chosen = {split: document[split] for split in splits}
        key = (dataset.reference, dataset.facts.content_digest)
        filters, differences = _DERIVED.get(key, lambda: (_filters(dataset), find_differences(chosen)))
    marks: dict[tuple[str, str], list[str]] = {}
    for it in differences:
        marks.setdefault((it.split, it.feature), []).append(it.text)
    blocks = []
    for name in [path] if path else paths[first : first + _MOST_FEATURES]:
        features = {split: document[split].features[name] for split in splits if name in document[split]}
        blocks.append(_block(name, features, filters.get(name, _Filters(None, None, None)), document, marks))
    return {
        "splits": [{"name": split, "num_examples": document[split].num_examples} for split in splits],
        "num_splits": len(document),
        "sentences": duplicate_sentences(document, splits) if splits else [],
        "differences": [it._asdict() for it in differences[:_MOST_LINES]],
        "num_differences": len(differences),
        "features": blocks,
        "feature": path,
        "num_features": len(paths),
        "num_omitted": max((split.num_omitted for split in document.values()), default=0),
        "first": first,
        "previous": None if not first or path else max(0, first - _MOST_FEATURES),
        "next": first + _MOST_FEATURES if first + _MOST_FEATURES < len(paths) and not path else None,
    }


def _filters(dataset: Dataset) -> dict[str, _Filters]:
    times = time_types(dataset.features, dataset.metadata)
    filters = {}
    for column in columns_of(dataset.features):
        can_filter = is_comparable(column) and len(column.path) <= _MOST_LETTERS
        name = column_text(column.path) if can_filter else None
        filters[content_path(column.names)] = _Filters(name, column.leaf, times.get(column.path))
    return filters


def _first(rest: tuple[str, ...]) -> int:
    match = re.fullmatch(r"from-(\d{1,9})", "/".join(rest)) if rest else None
    if rest and match is None:
        raise NotFoundError(f"there is no page {'/'.join(rest)!r:.200} of statistics")
    return 0 if match is None else int(match[1])


def _block(
    path: str,
    features: Mapping[str, FeatureStatistics],
    filters: _Filters,
    document: Statistics,
    marks: Mapping[tuple[str, str], Sequence[str]],
) -> dict[str, Any]:
    """A feature: facts and classes with a value for each split, and a histogram and frequent values of each split."""
    first = next(iter(features.values()))
    axis = _axis(features.values())
    unit = unit_of(first, (document.moments or {}).get(path))
    facts = {
        split: {
            "values": feature.count,
            **(number_facts(feature, unit) if feature.kind == "number" else {}),
            **content_facts(feature),
        }
        for split, feature in features.items()
    }
    names = dict.fromkeys(name for of_split in facts.values() for name, value in of_split.items() if value != "")
    return {
        "path": path,
        "kind": kind_text(first, unit, number="number"),
        "dtype": first.dtype,
        "splits": [
            {
                "name": split,
                "num_examples": document[split].num_examples,
                "nulls": _counted(feature.nulls, filters.null),
                "nan": _counted(feature.nan, filters.nan),
                "remarks": remarks_text(feature, marks.get((split, path), [])),
                "unit": "characters" if feature.text_lengths else "seconds" if feature.seconds else "values",
                "bars": list(_bars(feature, filters, unit, axis)),
                "ends": _ends(features.values(), unit),
                "frequent": [
                    {"text": frequent_text(it, unit), "count": it.count, "where": filters.equal(it.value, it.num_bytes)}
                    for it in feature.frequent[: 0 if feature.classes else _MOST_FREQUENT]
                ],
            }
            for split, feature in features.items()
        ],
        "facts": [{"name": name, "values": [of_split.get(name, "") for of_split in facts.values()]} for name in names],
        "classes": _classes(list(features.values()), filters),
        "num_classes": 0 if first.classes is None else first.classes.num_classes,
    }


def _counted(count: int, where: str | None) -> dict[str, Any]:
    return {"count": count, "where": where if count else None}


def _numbers(feature: FeatureStatistics) -> NumberStatistics:
    """What a histogram is of: the values, or the lengths of texts and sounds."""
    return feature.text_lengths or feature.seconds or feature


def _axis(features: Iterable[FeatureStatistics]) -> tuple[Any, Any]:
    """The range that the histograms of all splits are drawn over, so that people can compare them."""
    edges = [it.histogram.edges for it in map(_numbers, features) if it.histogram is not None]
    return min((it[0] for it in edges), default=0), max((it[-1] for it in edges), default=0)


def _ends(features: Iterable[FeatureStatistics], unit: Unit) -> list[str]:
    """The smallest and the largest value of all splits."""
    sides = [(feature, _numbers(feature)) for feature in features]
    unit = "" if any(numbers is not feature for feature, numbers in sides) else unit
    lows, highs = [it.min for _, it in sides if it.min is not None], [it.max for _, it in sides if it.max is not None]
    return [number_text(min(lows, default=None), unit), number_text(max(highs, default=None), unit)]


def _bars(feature: FeatureStatistics, filters: _Filters, unit: Unit, axis: tuple[Any, Any]) -> Iterator[dict[str, Any]]:
    """The bins, each with its place in ``axis``, as parts of its length, and the condition of its records."""
    numbers = _numbers(feature)
    if feature.classes is not None or numbers.histogram is None:
        return
    edges, is_exact = numbers.histogram.edges, numbers.distinct is None or not numbers.distinct.error
    can_filter = numbers is feature and (is_exact or max(map(abs, (edges[0], edges[-1]))) < _EXACT)
    labels = bin_labels(numbers.histogram, unit if numbers is feature else "")
    for place, (low, high) in enumerate(pairwise(edges)):
        where = filters.between(low, high, is_last=place == len(labels) - 1) if can_filter else None
        start, stop = (_share(edge, *axis) for edge in (low, high))
        yield {
            "start": start,
            "width": stop - start if axis[0] < axis[1] else 1.0,
            "label": labels[place],
            "count": numbers.histogram.counts[place],
            "where": where,
        }


def _share(edge: Any, low: Any, high: Any) -> float:
    """How far an edge is from ``low`` to ``high``, 0 to 1. Halves are compared: a difference may be infinite."""
    span = high / 2 - low / 2
    return float((edge / 2 - low / 2) / span) if span else float(edge > low)


def _classes(features: Sequence[FeatureStatistics], filters: _Filters) -> list[dict[str, Any]]:
    """The classes with their counts in each split, None if not counted: all of them, or the 50 most frequent."""
    counts = [
        None
        if it.classes is None
        else dict(enumerate(it.classes.counts))
        if it.classes.counts is not None
        else {int(entry.value): entry.count for entry in it.frequent}
        for it in features
    ]
    totals = Counter[int]()
    for of_split in counts:
        totals.update(of_split or {})
    numbers = sorted(totals) if len(totals) <= _MOST_CLASSES else [it for it, _ in totals.most_common(_MOST_CLASSES)]
    most = [max((of_split or {}).values(), default=0) or 1 for of_split in counts]
    return [
        {
            "name": filters.class_name(number),
            "where": filters.equal(number, None),
            "counts": [None if of_split is None else of_split.get(number) for of_split in counts],
            "shares": [(it or {}).get(number, 0) / highest for it, highest in zip(counts, most, strict=True)],
        }
        for number in numbers
    ]


@dataclass(frozen=True, slots=True)
class _Filters:
    """Writes the conditions that select values of one feature. They are None where no condition can."""

    name: str | None
    """The feature as a condition writes it."""

    leaf: Leaf | None
    time: TimeType | None

    @property
    def null(self) -> str | None:
        """The condition of missing values."""
        return None if self.name is None else f"{self.name} is None"

    @property
    def nan(self) -> str | None:
        """The condition of NaN: nothing else differs from itself."""
        return None if self.name is None else f"{self.name} != {self.name}"

    def equal(self, value: Any, num_bytes: int | None) -> str | None:
        """The condition of one value; of a text only if it is complete, and all of its bytes are UTF-8."""
        if self.name is None or num_bytes is not None or (isinstance(value, str) and r"\x" in value):
            return None
        condition = f"{self.name} == {self._literal(value)}"
        return condition if len(condition) <= 2 * _MOST_LETTERS else None

    def between(self, low: Any, high: Any, *, is_last: bool) -> str | None:
        """The condition of a bin. ``high`` is in it only if it is the last one of floats."""
        if self.name is None:
            return None
        if isinstance(low, int) and isinstance(high, int) and high == low + 1:
            return f"{self.name} == {self._literal(low)}"
        # A condition rounds numbers to the dtype. If the edge becomes smaller, the values equal to it are below it.
        begins, ends = self._is_rounded_down(low), self._is_rounded_down(high)
        upper = "<=" if ends or (is_last and not isinstance(high, int)) else "<"
        lower = f"{self.name} {'>' if begins else '>='} {self._literal(low)}"
        return f"{lower} and {self.name} {upper} {self._literal(high)}"

    def class_name(self, number: int) -> str:
        """The name of a class, or its number."""
        names = getattr(self.leaf, "names", None) or ()
        return str(names[number]) if 0 <= number < len(names) else str(number)

    def _is_rounded_down(self, edge: Any) -> bool:
        return self.leaf is not None and isinstance(edge, float) and float(self.leaf.dtype.type(edge)) < edge

    def _literal(self, value: Any) -> str:
        if isinstance(value, str):
            return text_literal(value)
        if getattr(self.leaf, "names", None) and self.class_name(value) != str(value):
            return text_literal(self.class_name(value))
        if self.leaf is not None and self.leaf.dtype == np.bool_:
            return str(bool(value))
        if self.time is not None:
            text = moment_text(int(value), self.time)
            if text is not None and parse_moment_text(text, self.time) == value:
                return text_literal(text)
        return repr(value)
