"""The statistics of a split and of its features, as values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, TypeAlias

from registry.errors import FeatureNotFoundError

Number: TypeAlias = int | float


class Moment(NamedTuple):
    """What integers count: ``kind`` is ``date``, ``datetime``, ``time`` or ``duration``.

    ``write`` returns one as text, or None if the number is outside the type.
    """

    kind: str
    write: Callable[[int], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """How many values there are from each of ``edges`` up to the next, which is only in the last bin."""

    edges: tuple[Number, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct:
    """The number of distinct values; ``error`` is its relative standard error, 0 if it is exact."""

    count: int
    error: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Frequent:
    r"""A value that occurs ``count`` times.

    Attributes:
        value: a number, a bool, or text, of which bytes that are not UTF-8 are written as ``\xff``.
        count: how often it occurs.
        name: the name of the class, for a label.
        num_bytes: the length of the text in bytes if ``value`` is only its beginning; otherwise None.
    """

    value: int | float | bool | str
    count: int
    name: str | None = None
    num_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Classes:
    """The balance of the classes of a label.

    Attributes:
        num_classes: the number of classes that the schema has.
        num_unlabeled: how many values are -1, which means no label.
        num_unused: how many classes never occur; None if there are too many classes to count them.
        unused: the first classes that never occur, by name if they have names, otherwise by number.
        counts: how often each class occurs; None for more than 1,000 classes.
    """

    num_classes: int
    num_unlabeled: int = 0
    num_unused: int | None = None
    unused: tuple[str, ...] = ()
    counts: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberStatistics:
    """Numbers. The fields from ``zeros`` on describe the finite ones; ``min`` to ``histogram`` need at least one.

    Attributes:
        count: how many values there are.
        nan, infinities, negative_infinities: how many of them are not finite.
        zeros: how many are zero.
        min, max, mean, std: exact, rounded once; ``std`` is that of all values, not of a sample.
        quantiles: by percentage, e.g. ``"50"``: the first value that at least this share of all values do not
            exceed.
        quantile_error: the maximum relative error of the quantiles; 0 if they are exact.
        histogram: at most 32 bins.
        distinct: the number of distinct values.
        frequent: the most frequent values that occur more than once; empty if ``distinct`` is not exact.
    """

    count: int
    nan: int = 0
    infinities: int = 0
    negative_infinities: int = 0
    zeros: int = 0
    min: Number | None = None
    max: Number | None = None
    mean: float | None = None
    std: float | None = None
    quantiles: Mapping[str, Number] | None = None
    quantile_error: float = 0.0
    histogram: Histogram | None = None
    distinct: Distinct | None = None
    frequent: tuple[Frequent, ...] = ()


def number_fields(statistics: NumberStatistics) -> dict[str, Any]:
    """The fields of ``statistics`` by name, to create a FeatureStatistics with more of them."""
    return {option.name: getattr(statistics, option.name) for option in fields(NumberStatistics)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureStatistics(NumberStatistics):
    """One leaf of the schema. Values of arrays and sequences are counted one by one.

    Attributes:
        kind: ``number``, ``text``, ``label``, ``image``, ``audio`` or ``other``.
        dtype: the dtype of its values, as in features.json.
        nulls: how many records have no value.
        lengths: the lengths of each unknown dimension, outermost first: of Sequences, then of the tensor.
        text_lengths: of texts, in characters.
        classes: of labels.
        file_sizes, heights, widths, modes, formats: of stored images. A mode is named as in Pillow, with the bits of a
            sample if they are not 8; the format of an image whose header cannot be read is ``unknown``.
        seconds, sample_rates, channels: of stored audio files, whose size in bytes and format are in ``file_sizes`` and
            ``formats``. Audio that is stored as samples has ``seconds`` if the schema has a sample rate.
    """

    kind: str
    dtype: str
    nulls: int = 0
    lengths: tuple[NumberStatistics, ...] = ()
    text_lengths: NumberStatistics | None = None
    classes: Classes | None = None
    file_sizes: NumberStatistics | None = None
    heights: NumberStatistics | None = None
    widths: NumberStatistics | None = None
    modes: Mapping[str, int] | None = None
    formats: Mapping[str, int] | None = None
    seconds: NumberStatistics | None = None
    sample_rates: NumberStatistics | None = None
    channels: NumberStatistics | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """Records of a split that are exact duplicates: all their stored values are equal, bit by bit.

    Attributes:
        num_repeated: how many records equal an earlier record of the split.
        num_groups: how many different records occur more than once in the split.
        shared: how many records of this split occur in another, by its name, if there are any; at most 100 splits.
    """

    num_repeated: int = 0
    num_groups: int = 0
    shared: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitStatistics(Mapping[str, FeatureStatistics]):
    """The statistics of each leaf of the schema, by its path, in the order of the schema.

    Attributes:
        num_examples: the number of records.
        features: the statistics by path.
        num_omitted: how many more leaves the schema has, if it has more than 10,000.
        duplicates: the duplicates among the records; None if they were not counted, as in older documents.
    """

    num_examples: int
    features: Mapping[str, FeatureStatistics]
    num_omitted: int = 0
    duplicates: Duplicates | None = None

    def __getitem__(self, path: str) -> FeatureStatistics:
        if path not in self.features:
            raise FeatureNotFoundError.of(path, self.features, where="the statistics")
        return self.features[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self.features)

    def __len__(self) -> int:
        return len(self.features)


def distribution(feature: FeatureStatistics) -> tuple[int, ...]:
    """How often each class occurs, or how many values are in each part of the range; of texts, of their lengths."""
    if feature.classes is not None:
        return feature.classes.counts or ()
    numbers = feature.text_lengths or feature.seconds or feature
    return () if numbers.histogram is None else numbers.histogram.counts
