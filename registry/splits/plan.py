"""Which files are read, and what of each? Record ranges as a lazy sequence of FileInstructions.

The last step of ``text -> ReadInstruction -> record ranges -> FileInstructions``, and all that a reader needs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import overload

from registry.errors import SliceError
from registry.model import SlicingRule
from registry.splits.instruction import ReadInstruction
from registry.splits.layout import RecordRange, ShardedSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInstruction:
    """Of the file ``filename``, skip ``skip`` records and read ``take``; it holds ``examples_in_shard``.

    The first four fields are TFDS's, and ``take`` is always the number itself. ``shard`` is the index of the file in
    ``split``.

    Raises:
        SliceError: it reads nothing, or beyond the file's records.
    """

    filename: str
    skip: int
    take: int
    examples_in_shard: int
    split: str
    shard: int

    def __post_init__(self) -> None:
        if self.skip < 0 or self.take < 1 or self.skip + self.take > self.examples_in_shard:
            raise SliceError(
                f"{self.filename}: cannot skip {self.skip} and take {self.take} of {self.examples_in_shard} records",
                details={"filename": self.filename, "skip": self.skip, "take": self.take},
            )


@dataclass(frozen=True, slots=True)
class _Part:
    """One range that holds records, and the shards it touches: ``count`` filled ones, the first of them ``rank``th."""

    records: RecordRange
    split: ShardedSplit
    rank: int
    count: int

    def instructions(self, places: Iterable[int]) -> Iterator[FileInstruction]:
        """The instructions for the files that the range touches, by their places among them."""
        name, start, stop = self.records.split, self.records.start, self.records.stop
        lengths = self.split.shard_lengths
        filename = self.split.files.namer(self.split.name, len(lengths))
        for place in places:
            shard = lengths.filled_shard(self.rank + place)
            first, length = lengths.start(shard), lengths[shard]
            skip = start - first if first < start else 0
            end = stop - first if first + length > stop else length
            yield FileInstruction(
                filename=filename(shard),
                skip=skip,
                take=end - skip,
                examples_in_shard=length,
                split=name,
                shard=shard,
            )


class Plan(Sequence[FileInstruction]):
    """What to read for an instruction: FileInstructions in reading order, made when they are asked for.

    The length is known at once and an item costs O(log shards), however many files the plan touches. Files without
    records are never in it; a file is in it twice where two slices of a union touch it. A slice of a plan is a tuple.
    Plans are equal when they read the same ranges of the same files in the same order, whatever expression they are of.

    Attributes:
        instruction: what was resolved, with its rounding.
        slicing: the rule by which it was resolved.
        ranges: the records that are read: one range for each slice (maybe empty), or for each split ``all`` touches.
        num_examples: number of records that are read, counted as often as they are.
    """

    __slots__ = ("_ends", "_parts", "instruction", "num_examples", "ranges", "slicing")

    def __init__(
        self, instruction: ReadInstruction, slicing: SlicingRule, ranges: Iterable[tuple[RecordRange, ShardedSplit]]
    ) -> None:
        located = tuple(ranges)
        self.instruction = instruction
        self.slicing = slicing
        self.ranges = tuple(records for records, _ in located)
        self.num_examples = sum(records.stop - records.start for records in self.ranges)
        self._parts = tuple(_locate(records, split) for records, split in located if records.start < records.stop)
        self._ends = list(accumulate(part.count for part in self._parts))

    @property
    def expression(self) -> str:
        """The split expression, printed from the instruction: it parses back, but for a rounding that has no text."""
        return str(self.instruction)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> FileInstruction: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[FileInstruction, ...]: ...
    def __getitem__(self, index: int | slice) -> FileInstruction | tuple[FileInstruction, ...]:
        places = range(len(self))[index]
        return tuple(map(self._item, places)) if isinstance(places, range) else self._item(places)

    def _item(self, place: int) -> FileInstruction:
        part = bisect_right(self._ends, place)
        return next(self._parts[part].instructions((place - (self._ends[part - 1] if part else 0),)))

    def __iter__(self) -> Iterator[FileInstruction]:
        for part in self._parts:
            yield from part.instructions(range(part.count))

    def __eq__(self, other: object) -> bool:
        return self._parts == other._parts if isinstance(other, Plan) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(part.records for part in self._parts))

    def __repr__(self) -> str:
        return (
            f"<Plan {self.expression!r}: {self.num_examples} examples in {len(self)} files, "
            f"slicing rule {self.slicing.value!r}>"
        )


def _locate(records: RecordRange, split: ShardedSplit) -> _Part:
    lengths = split.shard_lengths
    rank = lengths.num_filled(lengths.shard_of(records.start))
    last = lengths.num_filled(lengths.shard_of(records.stop - 1))
    return _Part(records, split, rank, last - rank + 1)
