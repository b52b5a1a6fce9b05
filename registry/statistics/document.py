"""The statistics of a version, and their canonical JSON document: docs/statistics.md describes its fields.

    results of StatisticsFold by split -> statistics_documents -> statistics.json -> parse_statistics -> Statistics

Fields with their default value are left out. All numbers are finite; integers have all their digits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cache, partial
from itertools import islice
from typing import Any, Final

from registry.errors import SplitNotFoundError
from registry.json_node import JsonNode, parse_json
from registry.statistics.values import (
    Classes,
    Distinct,
    Duplicates,
    FeatureStatistics,
    Frequent,
    Histogram,
    Moment,
    NumberStatistics,
    SplitStatistics,
)

FORMAT: Final = 1
"""The version of the format. It changes if older readers would misread the document."""

DOCUMENT_NAME: Final = "statistics.json"

_MOST_SHOWN: Final = 20
"""Rows of a table in a notebook."""

_MOST_SENTENCES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics(Mapping[str, SplitStatistics]):
    """The statistics of a version by split: ``statistics["train"]["price"].mean``.

    ``moments`` format the numbers of features of dates, times and durations, by path. They are not in the document, but
    come from the schema of the version.
    """

    splits: Mapping[str, SplitStatistics]
    format: int = FORMAT
    moments: Mapping[str, Moment] | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {split.num_examples:,}" for name, split in self.splits.items())
        return f"<Statistics: {counts}>"

    def _repr_html_(self) -> str:
        from registry.markup import bars, panel, table
        from registry.statistics.rows import feature_rows

        paths = dict.fromkeys(path for split in self.splits.values() for path in islice(split, _MOST_SHOWN))
        rows = list(islice(feature_rows(self, self.splits, paths, moments=self.moments, draw=bars), _MOST_SHOWN))
        heads = [head.lower() for head in rows[0]] if rows else []
        shown = table(heads, [[*row.values()] for row in rows], sum(map(len, self.splits.values())))
        return panel(self, shown, *duplicate_sentences(self))

    def to_json(self) -> dict[str, Any]:
        """Return the splits of the document as JSON values."""
        result: dict[str, Any] = _tree(self.splits)
        return result

    def without_duplicates(self) -> Statistics:
        """Return the statistics without duplicates, which older documents do not count."""
        splits = {name: replace(split, duplicates=None) for name, split in self.splits.items()}
        return replace(self, splits=splits)

    def __getitem__(self, split: str) -> SplitStatistics:
        if split not in self.splits:
            raise SplitNotFoundError.of(split, self.splits, where="the statistics")
        return self.splits[split]

    def __iter__(self) -> Iterator[str]:
        return iter(self.splits)

    def __len__(self) -> int:
        return len(self.splits)


def duplicate_sentences(statistics: Statistics, splits: Collection[str] = ()) -> list[str]:
    """Describe the exact duplicates in ``splits``, or in all splits. Returns nothing if they were not counted.

    For two splits, the records of the smaller one that also occur in the other are counted. Returns at most ten
    sentences, and a last one with the number of further sentences.
    """
    chosen = {name: statistics[name] for name in splits or statistics}
    sentences = []
    for name, split in chosen.items():
        if split.duplicates is None:
            continue
        if num_repeated := split.duplicates.num_repeated:
            sentences.append(f"duplicates within {name}: {num_repeated:,} of {split.num_examples:,} records")
        for other, count in split.duplicates.shared.items():
            if min((chosen[it].num_examples, it) for it in (name, other) if it in chosen)[1] == name:
                sentences.append(f"records of {name} that are also in {other}: {count:,}")
    if (more := len(sentences) - _MOST_SENTENCES) > 0:
        sentences[_MOST_SENTENCES:] = [f"and {more:,} more such lines"]
    return sentences


def statistics_documents(results: Mapping[str, SplitStatistics]) -> dict[str, bytes]:
    """Return the document by its name. The same results in the same order give the same bytes.

    >>> print(statistics_documents({"train": SplitStatistics(num_examples=0, features={})})["statistics.json"].decode())
    {"format":1,"splits":{"train":{"num_examples":0,"features":{}}}}
    """
    tree = {"format": FORMAT, "splits": _tree(results)}
    text = json.dumps(tree, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return {DOCUMENT_NAME: text.encode()}


def parse_statistics(document: bytes) -> Statistics:
    """Read a document. Unknown fields are ignored.

    Raises:
        PreparedFormatError: the data is not a statistics document, or its format is unknown.
    """
    node = parse_json(document.decode("utf-8", "replace"), DOCUMENT_NAME)
    result: Statistics = _read(Statistics, node)
    if result.format != FORMAT:
        node.entries()["format"].fail(f"expected the format {FORMAT}, found {result.format}")
    return result


def _list_of(read: Any, node: JsonNode) -> tuple[Any, ...]:
    if read is JsonNode.number and isinstance(node.value, list) and {*map(type, node.value)} <= {int, float}:
        return tuple(node.value)
    return tuple(read(element) for element in node.elements())


def _dict_of(read: Any, node: JsonNode) -> dict[str, Any]:
    return {name: read(entry) for name, entry in node.entries().items()}


def _any(node: JsonNode) -> Any:
    if isinstance(node.value, (dict, list)):
        node.fail("expected a number, text, or true or false")
    return node.value


_fields: Any = cache(fields)  # a document of 200 features has 10,000 values of a few classes


def _read(kind: Any, node: JsonNode) -> Any:
    entries, values = node.entries(), {}
    for option in _fields(kind):
        if option.name in entries:
            read: Callable[[JsonNode], Any] = _READERS.get(option.name, JsonNode.integer)
            values[option.name] = read(entries[option.name])
        elif _default(option) is MISSING:
            node.fail(f"the field {option.name!r} is missing")
    return kind(**values)


def _default(option: Field[Any]) -> Any:
    return option.default if option.default_factory is MISSING else option.default_factory()


_numbers = partial(_read, NumberStatistics)

_READERS: Final[dict[str, Callable[[JsonNode], Any]]] = {
    **dict.fromkeys(("min", "max", "mean", "std", "error", "quantile_error"), JsonNode.number),
    **dict.fromkeys(("name", "kind", "dtype"), JsonNode.text),
    "value": _any,
    "unused": partial(_list_of, JsonNode.text),
    "edges": partial(_list_of, JsonNode.number),
    "counts": lambda node: tuple(node.integers()),
    "quantiles": partial(_dict_of, JsonNode.number),
    **dict.fromkeys(("modes", "formats"), partial(_dict_of, JsonNode.integer)),
    "histogram": partial(_read, Histogram),
    "distinct": partial(_read, Distinct),
    "frequent": partial(_list_of, partial(_read, Frequent)),
    "classes": partial(_read, Classes),
    "duplicates": partial(_read, Duplicates),
    "shared": partial(_dict_of, JsonNode.integer),
    "lengths": partial(_list_of, _numbers),
    **dict.fromkeys(("text_lengths", "file_sizes", "heights", "widths"), _numbers),
    **dict.fromkeys(("seconds", "sample_rates", "channels"), _numbers),
    "features": partial(_dict_of, partial(_read, FeatureStatistics)),
    "splits": partial(_dict_of, partial(_read, SplitStatistics)),
}
"""The readers of fields that are not integers. A name has the same meaning in all classes."""


def _tree(value: Any) -> Any:
    """Return the JSON form of a value, without fields that have their default."""
    if isinstance(value, (Histogram, Distinct, Frequent, Classes, NumberStatistics, Duplicates, SplitStatistics)):
        # A subclass has the fields of its base first, but its own fields, kind and dtype, describe them.
        options = sorted(fields(value), key=lambda option: _default(option) is not MISSING)
        pairs = ((option, getattr(value, option.name)) for option in options)
        return {option.name: _tree(inner) for option, inner in pairs if inner != _default(option)}
    if isinstance(value, Mapping):
        return {name: _tree(inner) for name, inner in value.items()}
    return [_tree(inner) for inner in value] if isinstance(value, tuple) else value
