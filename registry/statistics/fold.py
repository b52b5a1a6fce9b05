"""The fold that computes the statistics of every leaf of a schema, over all records of a split.

FlatRecords -> LeafReader: values of a leaf, lengths, nulls -> Numbers, Texts, Images, Sounds -> SplitStatistics
FlatRecords -> RecordDigester: digests of records -> DigestPile -> Duplicates, as soon as all splits are folded
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from registry.features.audio import Audio
from registry.features.block_columns import MaskedColumn, RaggedColumn, TextColumn
from registry.features.codec import FlatRecords
from registry.features.column_reader import ColumnReader
from registry.features.containers import Column, FeaturesDict, columns_of, content_path
from registry.features.content import ContentReader
from registry.features.digest_pile import DigestPile
from registry.features.dtypes import dtype_name
from registry.features.feature import TEXT, Leaf, RawFeature
from registry.features.image import Image
from registry.features.nested import Ragged
from registry.features.text import ClassLabel, Text
from registry.statistics.document import Statistics
from registry.statistics.duplicates import MOST_WAITING, Known, RecordDigester, find_duplicates, pile_of_split
from registry.statistics.media import Images, Sounds
from registry.statistics.numbers import MOST_CLASSES, MOST_DISTINCT, Numbers, describe_classes
from registry.statistics.texts import MOST_BYTES, Texts
from registry.statistics.values import (
    FeatureStatistics,
    NumberStatistics,
    SplitStatistics,
)
from registry.wire import FlatBlock

MOST_LEAVES: Final = 10_000
"""The maximum number of leaves with statistics."""

MOST_DETAILED: Final = 1_000
"""The maximum number of leaves with histograms, quantiles and frequent values."""

_MOST_WAITING: Final = 2**22
"""The maximum number of buffered numbers, over all leaves."""

_MOST_TEXT_BYTES: Final = 2**26
"""The maximum memory for texts that are counted individually, over all leaves, in bytes."""


@dataclass(slots=True)
class LeafState:
    """The state of one leaf.

    Attributes:
        values: the state of its values; None for a feature of an unknown class.
        lengths: the lengths of each unknown dimension, outermost first.
        nulls: the number of records without a value.
    """

    values: Numbers | Texts | Images | Sounds | None
    lengths: list[Numbers]
    nulls: int = 0


@dataclass(slots=True)
class SplitState:
    """The state of the fold: the states of the leaves, the digests of the records, and their number."""

    leaves: list[LeafState]
    digests: DigestPile
    num_records: int = 0


class FoldedSplit(NamedTuple):
    """The result of the fold: the statistics of the features, and the digests of the records."""

    statistics: SplitStatistics
    digests: DigestPile


def statistics_of(results: Mapping[str, FoldedSplit]) -> Statistics:
    """Combine the results of the splits of a version to its statistics, with the duplicates among all splits."""
    duplicates = find_duplicates(list(results), [split.digests for split in results.values()])
    pairs = zip(results.items(), duplicates, strict=True)
    return Statistics(splits={name: replace(split.statistics, duplicates=each) for (name, split), each in pairs})


class StatisticsFold:
    """Computes a ``FoldedSplit``, independent of the order and division of records, the engine and the machine.

    >>> from registry.features import codec_of
    >>> from registry.features.fold import SplitFold
    >>> fold = SplitFold(FeaturesDict({"price": "float32"}), [StatisticsFold])
    >>> record = codec_of(fold.features).encode({"price": 0.5})
    >>> fold.add(np.frombuffer(record, np.uint8), np.array([0]), np.array([len(record)]))
    >>> statistics_of({"train": fold.results()[0]})["train"]["price"].mean
    0.5

    Attributes:
        is_quick: see ``Fold``.
    """

    def __init__(self, features: FeaturesDict) -> None:
        columns = columns_of(features.missing_as_none())
        self._num_omitted = max(0, len(columns) - MOST_LEAVES)
        # Sorted, because the published schema has another order than its source.
        self._places = sorted(range(len(columns)), key=lambda place: columns[place].names)[:MOST_LEAVES]
        self._readers = [LeafReader(columns[place]) for place in self._places]
        self._digester = RecordDigester(features)
        self._buffer = min(2**18, max(2**10, _MOST_WAITING // max(1, len(self._readers))))
        num_texts = sum(reader.is_text for reader in self._readers)
        self._most_bytes = min(MOST_BYTES, _MOST_TEXT_BYTES // max(1, num_texts))
        self.is_quick = ContentReader(features).reads_blocks

    def start(self) -> SplitState:
        """Return the state without records."""
        leaves = [reader.start(self._buffer, self._most_bytes) for reader in self._readers]
        return SplitState(leaves, pile_of_split())

    def add(self, state: SplitState, block: FlatRecords) -> None:
        """Add the next records."""
        digests, known = self._digester.digests(block)
        for reader, leaf, place in zip(self._readers, state.leaves, self._places, strict=True):
            reader.add(leaf, block.flats[place], block.num_records, known[place])
        state.digests.add(digests)
        state.num_records += block.num_records

    def merge(self, state: SplitState, later: SplitState) -> None:
        """Add the records of ``later``."""
        for leaf, other in zip(state.leaves, later.leaves, strict=True):
            leaf.nulls += other.nulls
            for numbers, more in zip(leaf.lengths, other.lengths, strict=True):
                numbers.merge(more)
            if leaf.values is not None:
                leaf.values.merge(other.values)  # type: ignore[arg-type]  # the same class
        for part in later.digests.parts():
            state.digests.add(part)
        state.num_records += later.num_records

    def end(self, state: SplitState) -> FoldedSplit:
        """Return the statistics, and the digests of the records."""
        pairs = zip(self._readers, state.leaves, strict=True)
        results = {reader.path: reader.end(leaf, state.num_records) for reader, leaf in pairs}
        for path in list(results)[MOST_DETAILED:]:
            results[path] = _in_brief(results[path])
        state.digests.release(most=MOST_WAITING)
        omitted = self._num_omitted
        statistics = SplitStatistics(num_examples=state.num_records, features=results, num_omitted=omitted)
        return FoldedSplit(statistics, state.digests)


class LeafReader:
    """Reads the values of one leaf from blocks, in the form that its statistics need: files are not decoded.

    Attributes:
        path: the path of the leaf in the document.
        is_text: whether its values are texts.
    """

    def __init__(self, column: Column) -> None:
        leaf = column.leaf
        self.path = content_path(column.names)
        self._leaf = leaf
        is_file = isinstance(leaf, Image) or (isinstance(leaf, Audio) and leaf.lazy_decode)
        self.is_text = leaf.dtype == TEXT and not (is_file or isinstance(leaf, RawFeature))
        # A text is stored like a file, and its statistics need the bytes.
        stored: Leaf = Text() if is_file else leaf
        self._reader = ColumnReader.of(replace(column, leaf=stored), frozenset())
        self._num_levels = len(column.lengths)
        shape = (*column.lengths, *stored.shape)
        self._unknown = [place for place, size in enumerate(shape) if size is None]
        self._num_dimensions = len(shape)

    def start(self, buffer: int, most_bytes: int) -> LeafState:
        """Return the state before the first record."""
        leaf = self._leaf
        values: Numbers | Texts | Images | Sounds | None = None
        if isinstance(leaf, Image):
            values = Images(buffer=buffer)
        elif isinstance(leaf, Audio) and leaf.lazy_decode:
            values = Sounds(buffer=buffer)
        elif isinstance(leaf, ClassLabel):
            most = min(MOST_CLASSES, max(MOST_DISTINCT, (leaf.num_classes or 0) + 1))
            values = Numbers(np.int64, most_distinct=most, buffer=buffer)
        elif self.is_text:
            values = Texts(buffer=buffer, most_bytes=most_bytes)
        elif not isinstance(leaf, RawFeature):
            values = Numbers(leaf.dtype, buffer=buffer)
        num_lengths = 0 if values is None else len(self._unknown)
        return LeafState(values, [Numbers(np.int64, buffer=buffer) for _ in range(num_lengths)])

    def add(self, state: LeafState, flat: FlatBlock, num_records: int, known: Known | None = None) -> None:
        """Add the values of a block. ``known`` is what its digests have read of the leaf.

        Raises:
            CorruptExampleError: a record does not contain the feature.
        """
        if state.values is None or not num_records:
            return
        if isinstance(known, np.ndarray):
            # A stored bool may be another number than 0 and 1, which is an error.
            if known.dtype == self._leaf.dtype != np.bool_ and isinstance(state.values, Numbers) and not self._unknown:
                state.values.add(known)
                return
            known = None
        column = self._reader.read_block(flat, copy=False)
        if isinstance(column, RaggedColumn):
            sizes = column.sizes
            for numbers, place in zip(state.lengths, self._unknown, strict=True):
                numbers.add(sizes[place if column.levels else 0])
            values: Any = column.values if isinstance(state.values, Numbers) else column.values.tolist()
            state.values.add(values)
            return
        present = column.present if isinstance(column, MaskedColumn) else column
        if isinstance(state.values, Texts) and isinstance(present, TextColumn):
            state.nulls += num_records - present.sizes.size
            state.values.add_pieces(present.data, present.starts, present.sizes, known)
            return
        rows: Any
        if column is None:
            every, fault = self._reader.read_each(flat, num_records)
            if fault is not None:
                raise fault
            rows = [value for value in every if value is not None]
        elif isinstance(column, MaskedColumn):
            rows = _rows_of(column.present, column.rows_present.size)
        else:
            rows = _rows_of(column, num_records)
        state.nulls += num_records - len(rows)
        if len(rows):
            self._add_rows(state, rows)

    def end(self, state: LeafState, num_records: int) -> FeatureStatistics:
        """Return the statistics of the leaf in all records."""
        leaf, values = self._leaf, state.values
        if values is None:
            return FeatureStatistics(kind="other", dtype="", count=num_records)
        common: dict[str, Any] = {"nulls": state.nulls, "lengths": tuple(numbers.end() for numbers in state.lengths)}
        if isinstance(values, Numbers):
            kind, statistics = "number", values.end()
            described = {option.name: getattr(statistics, option.name) for option in fields(statistics)}
            if isinstance(leaf, ClassLabel):
                kind, described = "label", {**described, **describe_classes(leaf, values, statistics.frequent)}
        else:
            kind = "text" if isinstance(values, Texts) else "image" if isinstance(values, Images) else "audio"
            described = values.end()
        if isinstance(leaf, Audio) and leaf.sample_rate and self._num_levels in self._unknown:
            samples = common["lengths"][self._unknown.index(self._num_levels)]
            described["seconds"] = _divided(samples, leaf.sample_rate)
        return FeatureStatistics(kind=kind, dtype=dtype_name(leaf.dtype), **common, **described)

    def _add_rows(self, state: LeafState, rows: npt.NDArray[Any] | list[Any]) -> None:
        """Add the values of records that have a value: an array of equal shapes, or a list of values."""
        if isinstance(rows, np.ndarray) and isinstance(state.values, Numbers) and not self._unknown:
            state.values.add(rows)
            return
        lengths: list[list[Any]] = [[] for _ in range(self._num_dimensions)]
        parts: list[Any] = []
        if isinstance(rows, np.ndarray):
            parts, number = [rows], len(rows)
            for place, size in enumerate(rows.shape[1:]):
                lengths[place].append(np.full(number, size))
                number *= size if place < self._num_levels else 1
        elif not self._num_dimensions:
            parts = [rows if isinstance(rows[0], bytes) else np.array(rows)]
        else:
            for row in rows:
                self._divide(row, lengths, parts)
        for numbers, place in zip(state.lengths, self._unknown, strict=True):
            numbers.add(np.concatenate([np.empty(0, np.int64), *lengths[place]]))
        if isinstance(state.values, Numbers):
            flat = [part.reshape(-1) for part in parts] if self._num_dimensions > 1 else parts
            state.values.add(np.concatenate(flat) if len(flat) > 1 else flat[0])
        elif state.values is not None:
            texts = (part.reshape(-1).tolist() if isinstance(part, np.ndarray) else part for part in parts)
            state.values.add(list(chain.from_iterable(texts)))

    def _divide(self, row: Any, lengths: list[list[Any]], parts: list[Any]) -> None:
        """Add the lengths of each dimension of the value of a record, and its arrays, to the lists."""
        level = self._num_levels
        tensors: Any = [row]
        if isinstance(row, Ragged):
            for place, sizes in enumerate([[len(row)], *row.row_lengths]):
                lengths[place].append(sizes)
            tensors = row.flat_values
        elif level:
            lengths[0].append([len(row)])
            tensors = row
        number, first = 1, 0
        if isinstance(tensors, np.ndarray) and not (tensors.size and isinstance(tensors.flat[0], np.ndarray)):
            tensors, number, first = [tensors], len(tensors), 1  # of one shape
        for tensor in tensors:
            for place, size in enumerate(tensor.shape[first:]):
                lengths[level + place].append(np.full(number, size))
            parts.append(tensor)


def _rows_of(column: Any, count: int) -> Any:
    """Return the values of a column: an array if their shapes are equal, otherwise a list."""
    if isinstance(column, TextColumn):
        return replace(column, copy=True).rows(0, count)
    values = column.array(count)
    if values.dtype == TEXT and values.size and isinstance(values.flat[0], np.ndarray):
        return list(values)
    return values


def _divided(numbers: NumberStatistics, divisor: int) -> NumberStatistics:
    """Return the statistics of the numbers divided by ``divisor``, without frequent values."""
    moments = {name: getattr(numbers, name) for name in ("min", "max", "mean", "std")}
    if numbers.histogram is None or numbers.quantiles is None:
        return numbers
    return replace(
        numbers,
        **{name: value / divisor for name, value in moments.items()},
        quantiles={percent: value / divisor for percent, value in numbers.quantiles.items()},
        histogram=replace(numbers.histogram, edges=tuple(edge / divisor for edge in numbers.histogram.edges)),
        frequent=(),
    )


def _in_brief(statistics: FeatureStatistics) -> FeatureStatistics:
    """Return the statistics without histograms, quantiles and frequent values, including those of lengths and sizes."""
    omitted: dict[str, Any] = {"histogram": None, "quantiles": None, "quantile_error": 0.0, "frequent": ()}
    values = {option.name: getattr(statistics, option.name) for option in fields(statistics)}
    inner: dict[str, Any] = {
        name: replace(value, **omitted) for name, value in values.items() if isinstance(value, NumberStatistics)
    }
    lengths = tuple(replace(numbers, **omitted) for numbers in statistics.lengths)
    return replace(statistics, lengths=lengths, **inner, **omitted)
