"""The page of changes: two versions side by side, down to the record and the feature.

``Catalog.diff`` finds the records that differ. The first ones are read again, to show pictures and whole texts. The
last comparisons are remembered, because two published versions always differ in the same way.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, pairwise
from typing import Any, Final

import numpy as np

from registry.api import Catalog, Dataset
from registry.display import converter_of, mark_differences, shrink, text_of
from registry.envelope import fields_of
from registry.errors import NotFoundError, RegistryError
from registry.features import ClassLabel, Text
from registry.features.containers import Column, columns_of, content_path
from registry.model import Reference, Version
from registry.pages.cells import STORED_ORDER, leaf_values
from registry.pages.dataset import version_values
from registry.pages.page import Page, Visit, version_path
from registry.pages.previews import Remembered, data_url, near_statistics, shown_png
from registry.pages.rendering import render_alone
from registry.publishing import ChangeLevel, VersionDiff
from registry.statistics import FeatureStatistics, Histogram, Moment, NumberStatistics, distribution, measured
from registry.statistics.rows import number_text

_SHOWN: Final = 20
_AT_ONCE: Final = 8 * 2**20
_ON_REQUEST: Final = 2**30
"""How many bytes of each version are compared: at once, and if the visitor asks for it."""

_MOST_READ: Final = 64 * 2**20
_MOST_PICTURE_BYTES: Final = 2**20
_SIDE: Final = 120
_MOST_WORDS: Final = 2_000
_MOST_LETTERS: Final = 20_000
_MOST_ROWS: Final = 100
_MOST_SHORT: Final = 200
_BARS: Final = 24
_MOST_BARS: Final = 64
_RULES: Final = {
    "none": "Both versions have the same content.",
    "patch": "The same records and features in the same order. Programs that read the old version read the new one.",
    "minor": "The same records, with more features. Programs that read the old version read the new one.",
    "major": "Records, features or rules changed. A program that reads the old version may get other values.",
}
_MEMORY: Final = Remembered(8)
_OTHERS: Final = 50


def changes(visit: Visit, dataset: Dataset, rest: tuple[str, ...]) -> Page:
    """What changed since the next lower version, or since the version that the address names."""
    if len(rest) > 1:
        raise NotFoundError(f"{dataset.reference} has no page {'/'.join(rest)!r:.80}")
    reference = dataset.reference
    chosen = Version.parse(rest[0]) if rest else next(_readable(visit, reference, dataset.version), None)
    newest = islice(_readable(visit, reference, None), _OTHERS + 2 if visit.is_live else 0)
    others = [version for version in newest if version not in (dataset.version, chosen)]
    values = {**version_values(dataset), "comparison": None, "others": others[:_OTHERS], "has_more": False}
    values["num_linked"] = None if visit.is_live else visit.most_records
    if chosen is not None:
        old = visit.catalog.look_up(Reference.exactly(reference.name, reference.config, chosen))
        is_asked = visit.may_read_much and visit.query.get("records") == "1"
        values["comparison"] = _remembered(visit.catalog, old, dataset, _ON_REQUEST if is_asked else _AT_ONCE)
        values["has_more"] = visit.may_read_much and not is_asked and bool(values["comparison"]["unread"])
    return Page(name="changes", title=f"Changes of {reference}", values=values)


def _readable(visit: Visit, reference: Reference, below: Version | None) -> Iterator[Version]:
    """The versions below a number that are not dropped, the highest first: a part of thousands at once."""
    of_dataset = Reference(name=reference.name, config=reference.config)
    while summaries := visit.catalog.versions(of_dataset, below=below, limit=_OTHERS + 2):
        yield from (it.version for it in summaries if str(it.status) != "dropped")
        below = summaries[-1].version


def _remembered(catalog: Catalog, old: Dataset, new: Dataset, most_bytes: int) -> dict[str, Any]:
    sides = [(it.reference, it.facts.content_digest, repr(it.metadata), len(it.attachments)) for it in (old, new)]
    values: dict[str, Any] = {}

    def compare() -> dict[str, Any] | None:
        values.update(comparison(old, new, catalog.diff(old, new, show=_SHOWN, most_bytes=most_bytes)))
        return None if values["unread"] else values  # files that cannot be read today may be readable tomorrow

    return _MEMORY.get((catalog.url, *sides, most_bytes), compare) or values


def comparison(old: Dataset, new: Dataset, diff: VersionDiff) -> dict[str, Any]:
    """The differences between two versions as plain values, with pictures and words of the first records."""
    says = ChangeLevel.between(old.version, new.version) if old.version < new.version else None
    pictures = _Pictures()
    return {
        **diff.to_json(),
        "records": [
            {**_split(old, new, record.to_json(), pictures), "num_differing": record.num_differing}
            for record in diff.records
            if not record.is_equal
        ],
        "num_equal": sum(record.is_equal for record in diff.records),
        "rule": _RULES[diff.changes.level.name.lower()],
        "says": None if says is None or old.reference.dataset != new.reference.dataset else says.name.lower(),
        "old_path": version_path(old.reference),
        "new_path": version_path(new.reference),
        "statistics": list(_statistics(old, new))[:_MOST_ROWS],
    }


def changes_as_file(old: Dataset, new: Dataset, diff: VersionDiff) -> str:
    """The differences as one HTML file, which needs nothing else.

    Raises:
        MissingExtraError: see ``render``.
    """
    values = {"comparison": comparison(old, new, diff), "version": new.version}
    values |= {"others": (), "has_more": False, "num_linked": 0}
    return render_alone(Page(name="changes", title=f"{old.reference} to {new.reference}", values=values))


class _Pictures:
    """Makes URLs of pictures until they fill the page."""

    def __init__(self) -> None:
        self._room = _MOST_PICTURE_BYTES

    def url(self, picture: Any) -> str | None:
        """The URL of a picture, or None for None and if no room is left."""
        if picture is None or self._room <= 0:
            return None
        url = data_url(shown_png(picture))
        self._room -= len(url)
        return url if self._room > 0 else None


def _split(old: Dataset, new: Dataset, values: dict[str, Any], pictures: _Pictures) -> dict[str, Any]:
    """The values of a split's records, with what the first ones look like."""
    places = ([it["old"] for it in values["first"]], [it["new"] for it in values["first"]])
    examples = [_examples(side, values["split"], at) for side, at in zip((old, new), places, strict=True)]
    columns = [
        {content_path(column.names): column for column in columns_of(side.features) if not column.lengths}
        for side in (old, new)
    ]
    for record in values["first"]:
        pair = examples[0].get(record["old"]), examples[1].get(record["new"])
        for path, texts in record["features"].items():
            texts["kind"] = "text"
            if path in columns[1] and None not in pair:
                texts.update(_difference(columns[1][path], pair, texts, pictures))
        which = 0 if record["new"] is None else 1
        record["pictures"] = {}
        for texts in (record.get("key", {}), record.get("values", {})):
            for path in texts.keys() & columns[which].keys():
                texts[path] = _plain(columns[which][path], pair[which]) or texts[path]
        for path in record.get("values", ()):
            if (column := columns[which].get(path)) is not None:
                picture = shrink(column.leaf, _value(pair[which], column), _SIDE, grow=True)
                if (url := pictures.url(picture)) is not None:
                    record["pictures"][path] = url
    return values


def _value(example: Any, column: Column) -> Any:
    """The value of a feature outside of lists, in an example; None for a missing one."""
    return next((value for _, value in leaf_values(example, column, 1)), None)


def _plain(column: Column, example: Any) -> str:
    """A text, the name of a class, or true or false, without quotes; "" for other values."""
    value = _value(example, column)
    if value is not None and isinstance(column.leaf, ClassLabel):
        value = value if (convert := converter_of(column.leaf, {})) is None else convert(value)
    is_plain = isinstance(value, str | bool | np.bool_) or (isinstance(column.leaf, Text) and isinstance(value, bytes))
    return text_of(value, most=_MOST_SHORT) if is_plain else ""


def _examples(dataset: Dataset, split: str, places: Sequence[int | None]) -> dict[int, Any]:
    """The records at these positions, files as bytes; none if they are large or cannot be read."""
    positions = [place for place in places if place is not None]
    info = dataset.splits[split]
    if not positions or info.num_bytes // max(1, info.num_examples) * len(positions) > _MOST_READ:
        return {}
    with suppress(RegistryError, OSError):
        reader = dataset.read(split, STORED_ORDER, keep=None).files_as_bytes().missing_as_none()
        return dict(zip(positions, reader.examples_at(positions), strict=True))
    return {}


def _difference(column: Column, pair: tuple[Any, Any], texts: Mapping[str, str], pictures: _Pictures) -> dict[str, Any]:
    """What two values of a feature look like: pictures, words, or numbers and their difference."""
    before, after = (_value(example, column) for example in pair)
    if (marked := mark_differences(column.leaf, (before, after), _SIDE)) is not None:
        urls = {name: pictures.url(getattr(marked, name)) for name in ("old", "new", "marked")}
        return {"kind": "image", "pictures": urls, **fields_of(marked, "num_differing", "num_pixels")}
    if isinstance(before, bytes) and isinstance(after, bytes):
        with suppress(UnicodeDecodeError):
            return {"kind": "words", "words": marked_words(before.decode(), after.decode())}
    if isinstance(before, bool | np.bool_) and isinstance(after, bool | np.bool_):
        return {"old": text_of(before), "new": text_of(after)}
    # Otherwise the texts are names of classes, moments, or parts of arrays.
    is_plain = str(before) == texts["old"] and str(after) == texts["new"]
    if is_plain and isinstance(before, np.number) and isinstance(after, np.number):
        change = after.item() - before.item()
        return {"kind": "number", "change": f"{change:+,}" if isinstance(change, int) else f"{change:+.6g}"}
    return {}


def marked_words(before: str, after: str) -> list[tuple[str, str]]:
    """The words of two texts, each run marked ``same``, ``old`` or ``new``, from shortly before the first difference.

    White space is not part of a word: a word is the same if other white space, or more words, follow it.

    >>> marked_words("the cat sat", "the dog sat down")
    [('same', 'the '), ('old', 'cat '), ('new', 'dog '), ('same', 'sat'), ('new', ' down')]
    """
    start = max(0, _num_same(before, after) - 200)
    cut = [text[start : start + _MOST_LETTERS] for text in (before, after)]
    old, new = ([it for it in re.findall(r"(\S*)(\s*)", text) if any(it)][:_MOST_WORDS] for text in cut)
    first = _num_same(old, new)  # equal ends are not searched, which takes long if words repeat
    last = _num_same(old[first:][::-1], new[first:][::-1])
    middle = [words[first : len(words) - last] for words in (old, new)]
    words = [[word for word, _ in side] for side in middle]
    runs = [["…" * bool(start) + _joined(old[:first]), "", ""]]
    for kind, i, j, k, m in difflib.SequenceMatcher(None, words[0], words[1]).get_opcodes():
        if kind != "equal":
            _extend(runs, "", _joined(middle[0][i:j]), _joined(middle[1][k:m]))
            continue
        for (word, space), (_, other) in zip(middle[0][i:j], middle[1][k:m], strict=True):
            is_same = space == other
            _extend(runs, word + space * is_same, *(("", "") if is_same else (space, other)))
    _extend(runs, _joined(old[len(old) - last :]), "", "")
    return [it for run in runs for it in zip(("same", "old", "new"), run, strict=True) if it[1]]


def _joined(words: Sequence[tuple[str, str]]) -> str:
    return "".join(word + space for word, space in words)


def _extend(runs: list[list[str]], same: str, old: str, new: str) -> None:
    """Add what follows to the last run of what is the same, old and new, or to another run."""
    if same and any(runs[-1][1:]):
        runs.append(["", "", ""])
    runs[-1] = [before + more for before, more in zip(runs[-1], (same, old, new), strict=True)]


def _num_same(before: Sequence[Any], after: Sequence[Any]) -> int:
    """How many letters or words at the beginning of both are equal."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        is_same = before[low:middle] == after[low:middle]
        low, high = (middle, high) if is_same else (low, middle - 1)
    return low


def _statistics(old: Dataset, new: Dataset) -> Iterator[dict[str, Any]]:
    """The features whose statistics differ: counts in bins that all splits share, and the shift of the mean."""
    before, after = near_statistics(old), near_statistics(new)
    if before is None or after is None:
        return
    moments = [side.moments or {} for side in (before, after)]
    pairs = [
        (split, path, other, feature)
        for split in (name for name in after if name in before)
        for path, feature in after[split].features.items()
        if (other := before[split].features.get(path)) not in (None, feature) and other.kind == feature.kind
    ]
    by_path: dict[str, list[FeatureStatistics]] = {}
    for _, path, other, feature in pairs:
        by_path.setdefault(path, []).extend((other, feature))
    bars = {path: iter(common_bins(*every)) for path, every in by_path.items()}
    for split, path, other, feature in pairs:
        sides = [measured(side) for side in (other, feature)]
        means = [None if numbers is None else numbers.mean for numbers in sides]
        units = [of_side.get(path) if feature.kind == "number" else None for of_side in moments]
        row: dict[str, Any] = {"split": split, "feature": path, "means": means}
        row["bars"] = next(bars[path]), next(bars[path])
        row |= {"mean_texts": None if None in means else different_texts(means, units)}
        row |= {"count": [other.count, feature.count], "nulls": [other.nulls, feature.nulls]}
        yield row | {"shift": _shift(*sides)}


def different_texts(means: Sequence[Any], units: Sequence[Moment | None]) -> list[str]:
    """Two means as the page of statistics writes them, in as many more digits as tell them apart.

    >>> different_texts([11.8512, 11.8541], [None, None]), different_texts([0.5, 0.5], [None, None])
    (['11.851', '11.854'], ['0.5', '0.5'])
    """
    texts = [number_text(mean, unit or "") for mean, unit in zip(means, units, strict=True)]
    if means[0] == means[1] or texts[0] != texts[1]:
        return texts
    if (written := _written(means, units)) is not None:
        nearly = [texts[0], f"slightly {'more' if means[1] > means[0] else 'less'}"]
        return written if written[0] != written[1] else nearly
    longer = ([f"{mean:,.{digits}g}" for mean in means] for digits in range(5, 18))
    return next((pair for pair in longer if pair[0] != pair[1]), texts)


def _written(means: Sequence[Any], units: Sequence[Moment | None]) -> list[str] | None:
    """Means of moments in full precision; None if they are not moments, or outside of their types."""
    texts = [None if unit is None else unit.write(int(mean)) for mean, unit in zip(means, units, strict=True)]
    return None if None in texts else [str(text) for text in texts]


def _shift(old: NumberStatistics | None, new: NumberStatistics | None) -> float | None:
    """How far the mean moved, in standard deviations of the old values."""
    if old is None or new is None or old.mean is None or new.mean is None or not old.std:
        return None
    shift = (new.mean - old.mean) / old.std
    return shift if math.isfinite(shift) else None


def common_bins(*sides: FeatureStatistics) -> tuple[list[int], ...]:
    """How often each class or value occurs in all of them, or how many values are in parts of the range of all.

    Counts are exact where all statistics have them for each value, or in the same bins; those in other bins are
    spread evenly over each bin.
    """
    if all(side.classes is not None for side in sides):
        classes = [list(distribution(side)) for side in sides]
        length = min(_MOST_BARS, max(map(len, classes)))
        return tuple((counts + [0] * length)[:length] for counts in classes)
    exact = [counts for counts in map(_value_counts, sides) if counts is not None]
    if len(exact) == len(sides) and len(values := sorted({it for counts in exact for it in counts})) <= _MOST_BARS:
        return tuple([counts.get(value, 0) for value in values] for counts in exact)
    histograms = [(measured(side) or side).histogram for side in sides]
    edges = {histogram.edges for histogram in histograms if histogram is not None}
    if len(edges) == 1:
        return tuple([0] * (len(next(iter(edges))) - 1) if it is None else list(it.counts) for it in histograms)
    with np.errstate(over="ignore", invalid="ignore"):
        lowest, highest = (
            (pick(it[place] for it in edges) for pick, place in ((min, 0), (max, -1))) if edges else (0, 0)
        )
        parts = np.linspace(lowest, highest, _BARS + 1)
    if not np.isfinite(parts).all() or parts[0] == parts[-1]:
        return tuple([] for _ in sides)
    return tuple([0] * _BARS if it is None else _spread(it, parts) for it in histograms)


def _spread(histogram: Histogram, parts: Any) -> list[int]:
    """The counts of a histogram in other bins, each of its own spread evenly."""
    sums = np.interp(parts, np.array(histogram.edges, np.float64), np.cumsum([0, *histogram.counts]))
    counts: list[int] = np.diff(sums.round()).astype(int).tolist()
    return counts


def _value_counts(feature: FeatureStatistics) -> dict[Any, int] | None:
    """How often each finite value occurs; None if the statistics do not say that of every value."""
    numbers = measured(feature) or feature
    if feature.dtype == "bool":
        return {False: numbers.zeros, True: numbers.count - numbers.zeros}
    num_finite = numbers.count - numbers.nan - numbers.infinities - numbers.negative_infinities
    if numbers.distinct is not None and sum(entry.count for entry in numbers.frequent) == num_finite:
        return {entry.value: entry.count for entry in numbers.frequent}
    bins = numbers.histogram
    if bins is not None and all(isinstance(low, int) and high - low == 1 for low, high in pairwise(bins.edges)):
        return dict(zip(bins.edges, bins.counts, strict=False))
    return None
