"""Layouts and record ranges: the records of splits in their shards, and set operations on record ranges.

A layout maps split names to ``model.Split`` or to plain shard lengths; ``all`` is one extent over several splits. The
set operations return sorted ranges that do not touch or overlap, with splits in the order of their first range. They
take O(n log n) for n ranges, independent of the number of records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Protocol, TypeAlias

from registry.errors import SliceError, SplitNotFoundError, UsageError
from registry.model import AbstractShardLengths, ShardedFileTemplate, ShardLengths, Split
from registry.splits.terms import ALL, SplitSlice, Unit, check_split_name, print_bound

_BARE_FILES: Final = ShardedFileTemplate(dataset="dataset", template="{SPLIT}-{SHARD_X_OF_Y}")

Layout: TypeAlias = Mapping[str, Split | Sequence[int]]
"""Splits by name, in the order of ``all``: published splits, or the number of records in each shard."""


class ShardedSplit(Protocol):
    """The facts about a split that the resolver needs. ``model.Split`` implements it."""

    @property
    def name(self) -> str:
        """The split's name."""

    @property
    def shard_lengths(self) -> AbstractShardLengths:
        """Number of records in each shard."""

    @property
    def files(self) -> ShardedFileTemplate:
        """The template of its file names."""


@dataclass(frozen=True, slots=True)
class BareSplit:
    """A split of which only the shard lengths are known; its files are named ``train-00000-of-00002``.

    Its name may contain letters of any script, as in TFDS. The name of a published split may not.
    """

    name: str
    shard_lengths: AbstractShardLengths
    files: ShardedFileTemplate = _BARE_FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRange:
    """Records ``start``..``stop`` (stop excluded) of one split, counted from 0 across its shards.

    Raises:
        SliceError: ``start`` is negative or greater than ``stop``.
    """

    split: str
    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop:
            raise SliceError(f"{self.split}: {self.start}..{self.stop} is not a range of records")

    @property
    def num_examples(self) -> int:
        """Number of records."""
        return self.stop - self.start


Located: TypeAlias = tuple[RecordRange, ShardedSplit]
"""A range of records in a split."""


class Extent:
    """The records and shards that a slice selects from: those of one split, or of all splits one after the other."""

    __slots__ = ("_first_examples", "_first_shards", "name", "num_examples", "num_shards", "splits")

    def __init__(self, name: str, splits: Sequence[ShardedSplit]) -> None:
        self.name = name
        self.splits = splits
        self._first_shards = list(accumulate((len(split.shard_lengths) for split in splits), initial=0))
        self._first_examples = list(accumulate((split.shard_lengths.num_examples for split in splits), initial=0))
        self.num_shards = self._first_shards[-1]
        self.num_examples = self._first_examples[-1]

    def describe(self, unit: Unit = "abs") -> str:
        """The extent in words, for messages, with its number of shards if ``unit`` is ``shard``."""
        name = "all splits" if self.name == ALL else f"split {self.name!r}"
        records = f"{self.num_examples} {'record' if self.num_examples == 1 else 'records'}"
        shards = f" in {self.num_shards} {'shard' if self.num_shards == 1 else 'shards'}" if unit == "shard" else ""
        return f"{name} with {records}{shards}"

    def shard_start(self, index: int) -> int:
        """Position of the first record of shard ``index`` (0..num_shards; the last one is ``num_examples``)."""
        if index == self.num_shards:
            return self.num_examples
        place = bisect_right(self._first_shards, index) - 1
        return self._first_examples[place] + self.splits[place].shard_lengths.start(index - self._first_shards[place])

    def shard_of(self, position: int) -> int:
        """Index of the shard that holds record ``position`` (0 <= position < num_examples)."""
        place = bisect_right(self._first_examples, position) - 1
        shard = self.splits[place].shard_lengths.shard_of(position - self._first_examples[place])
        return self._first_shards[place] + shard

    def refuse(self, part: SplitSlice, message: str, *, hint: str) -> SliceError:
        """The error of ``part`` in this extent; its details: split, from, to, unit, num_examples, num_shards."""
        return SliceError(
            message,
            hint=hint,
            details={
                "slice": str(part),
                "split": part.split_name,
                "from": print_bound(part.from_, part.unit) or None,
                "to": print_bound(part.to, part.unit) or None,
                "unit": part.unit,
                "num_examples": self.num_examples,
                "num_shards": self.num_shards,
            },
        )

    def cut(self, start: int, stop: int) -> Iterator[Located]:
        """Records ``start``..``stop`` as ranges of the splits that hold them.

        A single split always yields one range, which may be empty; ``all`` yields no empty ranges.
        """
        if len(self.splits) == 1:
            yield RecordRange(split=self.splits[0].name, start=start, stop=stop), self.splits[0]
            return
        for split, first, end in zip(self.splits, self._first_examples, self._first_examples[1:], strict=False):
            if (begin := max(start, first)) < (last := min(stop, end)):
                yield RecordRange(split=split.name, start=begin - first, stop=last - first), split


def check_layout(layout: Layout) -> Layout:
    """Return ``layout``. Raises UsageError if it is not a mapping. Its values are checked when they are looked up."""
    if not isinstance(layout, Mapping):
        raise UsageError(
            f"a layout must be a mapping of split names to shard lengths, not {type(layout).__name__}",
            hint='Write {"train": [100, 101]}, or pass the splits of a dataset.',
        )
    return layout


def find_extent(name: str, layout: Layout) -> Extent:
    """The extent of ``name`` in ``layout``: a split, or for ``all`` every split in order.

    Raises:
        SplitNotFoundError: the layout has no split of that name (the hint suggests the nearest), or no splits at all.
        UsageError: the value in the layout is not a split of that name or a list of shard lengths.
    """
    if name == ALL and layout:
        return Extent(name, [_sharded_split(each, layout[each]) for each in layout])
    if name not in layout:
        names = [str(known) for known in layout]
        raise SplitNotFoundError.of(name, names, hint=None if names else "The layout has no splits at all.")
    return Extent(name, [_sharded_split(name, layout[name])])


def _sharded_split(name: str, value: Split | Sequence[int]) -> ShardedSplit:
    if name == ALL:
        raise UsageError("a split cannot be named 'all': that name means the union of all splits")
    if isinstance(value, Split):
        if value.name != name:
            raise UsageError(f"the layout lists split {value.name!r} under the name {name!r}")
        return value
    if isinstance(value, AbstractShardLengths):
        return BareSplit(name, value)
    check_split_name(name)
    if not _is_list(value):
        raise UsageError(
            f"expected a list of shard lengths for split {name!r}, found {value!r:.60}",
            hint=f'Write the number of records in each shard: {{"{name}": [100, 101]}}.',
        )
    return BareSplit(name, ShardLengths(value))


def _is_list(value: object) -> bool:
    """Whether ``value`` can be iterated repeatedly, in order: a sequence or a numpy array."""
    return hasattr(value, "__array__") or (isinstance(value, Sequence) and not isinstance(value, str))


Ranges: TypeAlias = tuple[RecordRange, ...]


def merged(ranges: Iterable[RecordRange]) -> Ranges:
    """The union of ``ranges``: each record once.

    >>> merged([RecordRange(split="train", start=5, stop=9), RecordRange(split="train", start=0, stop=5)])
    (RecordRange(split='train', start=0, stop=9),)
    """
    return _select([ranges], bool)


def repeated(ranges: Iterable[RecordRange]) -> Ranges:
    """The records that are in more than one of ``ranges``."""
    return _select([ranges], lambda depths: depths[0] > 1)


def common(first: Iterable[RecordRange], second: Iterable[RecordRange]) -> Ranges:
    """The records that are in both sets."""
    return _select([first, second], lambda depths: len(depths) == 2)


def without(first: Iterable[RecordRange], second: Iterable[RecordRange]) -> Ranges:
    """The records of ``first`` that are not in ``second``."""
    return _select([first, second], lambda depths: 0 in depths and 1 not in depths)


def shared(sets: Sequence[Iterable[RecordRange]]) -> dict[tuple[int, int], Ranges]:
    """The records that any two of ``sets`` share, by the pair of their positions; disjoint pairs are left out."""
    spans: dict[tuple[int, int], list[RecordRange]] = defaultdict(list)
    for segment, depths in _segments(sets):
        holders = sorted(depths)
        for place, first in enumerate(holders):
            for second in holders[place + 1 :]:
                _append(spans[first, second], segment)
    return {pair: tuple(spans[pair]) for pair in sorted(spans)}


def _select(sets: Sequence[Iterable[RecordRange]], is_wanted: Callable[[dict[int, int]], bool]) -> Ranges:
    selected: list[RecordRange] = []
    for segment, depths in _segments(sets):
        if is_wanted(depths):
            _append(selected, segment)
    return tuple(selected)


def _segments(sets: Sequence[Iterable[RecordRange]]) -> Iterator[tuple[RecordRange, dict[int, int]]]:
    """The records of all ``sets``, cut at every start and stop of a range.

    Each segment comes with a dict from the position of a set to the number of its ranges that hold the segment.
    """
    ends: dict[str, list[tuple[int, int, int]]] = {}
    for place, ranges in enumerate(sets):
        for span in ranges:
            if span.start < span.stop:
                ends.setdefault(span.split, []).extend(((span.start, place, 1), (span.stop, place, -1)))
    for split, changes in ends.items():
        changes.sort()
        depths: dict[int, int] = {}
        before = 0
        for position, place, change in changes:
            if depths and before < position:
                yield RecordRange(split=split, start=before, stop=position), depths
            before = position
            depths[place] = depths.get(place, 0) + change
            if not depths[place]:
                del depths[place]


def _append(ranges: list[RecordRange], segment: RecordRange) -> None:
    """Append ``segment``, or extend the last range by it if the two touch."""
    if ranges and ranges[-1].split == segment.split and ranges[-1].stop == segment.start:
        ranges[-1] = RecordRange(split=segment.split, start=ranges[-1].start, stop=segment.stop)
    else:
        ranges.append(segment)


_SHOWN: Final = 20


def print_ranges(ranges: Iterable[RecordRange]) -> str:
    """Ranges in words, without empty ones. After 20 ranges, only the number of further ranges is printed.

    >>> print_ranges([RecordRange(split="train", start=0, stop=1200), RecordRange(split="test", start=5, stop=5)])
    'records train 0..1200'
    """
    filled = [span for span in ranges if span.num_examples]
    listing = " + ".join(f"{span.split} {span.start}..{span.stop}" for span in filled[:_SHOWN])
    more = f" + {len(filled) - _SHOWN:,} more ranges" if len(filled) > _SHOWN else ""
    return f"records {listing}{more}" if filled else "no records"
