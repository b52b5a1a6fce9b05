"""The statistics of a split and of its features, as values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from registry.errors import FeatureNotFoundError

Number: TypeAlias = int | float


class Moment(NamedTuple):
    """The meaning of integers that are times: ``kind`` is ``date``, ``datetime``, ``time`` or ``duration``.

    ``write`` formats an integer, or returns None if it is out of range for the type.
    """

    kind: str
    write: Callable[[int], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """The number of values from each of ``edges`` up to the next edge, which only the last bin includes."""

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
        count: the number of its occurrences.
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
        num_unlabeled: the number of values that are -1, which means no label.
        num_unused: the number of classes that never occur; None if there are too many classes to count them.
        unused: the first classes that never occur, by name if they have names, otherwise by number.
        counts: the number of occurrences of each class; None for more than 1,000 classes.
    """

    num_classes: int
    num_unlabeled: int = 0
    num_unused: int | None = None
    unused: tuple[str, ...] = ()
    counts: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberStatistics:
    """The statistics of numbers.

    Fields from ``zeros`` on describe finite values; ``min`` to ``histogram`` need at least one.

    Attributes:
        count: the number of values.
        nan, infinities, negative_infinities: the numbers of values that are not finite.
        zeros: the number of zeros.
        min, max, mean, std: exact, rounded once; ``std`` is the standard deviation of the population, not of a sample.
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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FeatureStatistics(NumberStatistics):
    """The statistics of a leaf of the schema. Each value of an array or sequence is counted.

    Attributes:
        kind: ``number``, ``text``, ``label``, ``image``, ``audio`` or ``other``.
        dtype: the dtype of its values, as in features.json.
        nulls: the number of records without a value.
        lengths: the lengths of each unknown dimension, outermost first: of Sequences, then of the tensor.
        text_lengths: the lengths of texts, in characters.
        classes: the balance of the classes of a label.
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

    @property
    def categories(self) -> tuple[int, ...] | None:
        """The number of occurrences of each value, most frequent first, of texts with at most 16 values that recur."""
        if self.kind != "text" or not (self.count and self.frequent and self.distinct) or self.distinct.count > 16:
            return None
        counts = tuple(entry.count for entry in self.frequent)
        return counts + (1,) * (self.distinct.count - len(counts))

    def __repr__(self) -> str:
        facts = {name: getattr(self, name) for name in ("nulls", "min", "mean", "max")}
        listing = "".join(f", {name} {fact}" for name, fact in facts.items() if fact is not None)
        return f"<FeatureStatistics: {f'{self.kind} {self.dtype}'.strip()}, {self.count} values{listing}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """Records of a split that are exact duplicates: all their stored values are equal, bit by bit.

    Attributes:
        num_repeated: the number of records that equal an earlier record of the split.
        num_groups: the number of distinct records that occur more than once in the split.
        shared: the number of records of this split that also occur in another split, by its name; at most 100 splits.
    """

    num_repeated: int = 0
    num_groups: int = 0
    shared: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SplitStatistics(Mapping[str, FeatureStatistics]):
    """The statistics of each leaf of the schema, by its path, in the order of the schema.

    Attributes:
        num_examples: the number of records.
        features: the statistics by path.
        num_omitted: the number of further leaves, if the schema has more than 10,000.
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

    def __repr__(self) -> str:
        return f"<SplitStatistics: {self.num_examples} examples, {len(self)} features>"


def distribution(feature: FeatureStatistics) -> tuple[int, ...]:
    """Return the number of occurrences of each class or category, or of values in each bin; or of lengths of texts."""
    if feature.classes is not None:
        return feature.classes.counts or ()
    if feature.categories is not None:
        return feature.categories
    numbers = feature.text_lengths or feature.seconds or feature
    return () if numbers.histogram is None else numbers.histogram.counts
