"""Which files are read, and what of each? Record ranges as a lazy sequence of FileInstructions.

The last step of ``text -> ReadInstruction -> record ranges -> FileInstructions``, and all that a reader needs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, repeat
from typing import Final, NamedTuple, overload

from registry.errors import SliceError
from registry.model import SlicingRule
from registry.splits.instruction import ReadInstruction
from registry.splits.layout import RecordRange, ShardedSplit


class _Fields(NamedTuple):
    filename: str
    skip: int
    take: int
    examples_in_shard: int
    split: str
    shard: int


class FileInstruction(_Fields):
    """Of the file ``filename``, skip ``skip`` records and read ``take``; it holds ``examples_in_shard``.

    The first four fields are TFDS's, and ``take`` is always the number itself. ``shard`` is the index of the file in
    ``split``. A named tuple, because a plan may make hundreds of thousands of them.

    Raises:
        SliceError: it reads nothing, or beyond the file's records.
    """

    __slots__ = ()

    def __new__(
        cls, filename: str, skip: int, take: int, examples_in_shard: int, split: str, shard: int
    ) -> FileInstruction:
        """Check that there is something to read, and that the file holds it."""
        if skip < 0 or take < 1 or skip + take > examples_in_shard:
            raise SliceError(
                f"{filename}: cannot skip {skip} and take {take} of {examples_in_shard} records",
                details={"filename": filename, "skip": skip, "take": take},
            )
        return super().__new__(cls, filename, skip, take, examples_in_shard, split, shard)

    @property
    def is_full(self) -> bool:
        """Whether every record of the file is read."""
        return self.take == self.examples_in_shard


_UNCHECKED: Final[Callable[[tuple[str, int, int, int, str, int]], FileInstruction]] = partial(
    tuple.__new__, FileInstruction
)
_BLOCK: Final = 16_384


@dataclass(frozen=True, slots=True)
class _Part:
    """One range that holds records, and the shards ``first``..``last`` that it touches, but for the ``empty`` ones."""

    records: RecordRange
    split: ShardedSplit
    first: int
    last: int
    empty: Sequence[int]

    @property
    def count(self) -> int:
        """Number of files that the range touches."""
        return self.last - self.first + 1 - len(self.empty)

    def instruction(self, place: int) -> FileInstruction:
        """The instruction for the file that has ``place`` others before it."""
        shard = self.first + place
        if self.empty:
            # The empty shards before the file are those that have no more than ``place`` filled ones before them.
            ranks = range(len(self.empty))
            shard += bisect_right(ranks, place, key=lambda rank: self.empty[rank] - self.first - rank)
        lengths = self.split.shard_lengths
        return self._cut(shard, lengths.start(shard), lengths[shard])

    def __iter__(self) -> Iterator[FileInstruction]:
        """All instructions. Files between the first and the last are read whole, so they are made without a look."""
        lengths = self.split.shard_lengths
        name = self.records.split
        filename = self.split.files.namer(name, len(lengths))
        yield self._cut(self.first, lengths.start(self.first), lengths[self.first])
        for start in range(self.first + 1, self.last, _BLOCK):
            shards: Iterable[int] = range(start, min(start + _BLOCK, self.last))
            takes: Iterable[int] = lengths[start : min(start + _BLOCK, self.last)]
            if self.empty:
                filled = [(shard, take) for shard, take in zip(shards, takes, strict=True) if take]
                shards, takes = [shard for shard, _ in filled], [take for _, take in filled]
            yield from map(_UNCHECKED, zip(map(filename, shards), repeat(0), takes, takes, repeat(name), shards))
        if self.last > self.first:
            yield self._cut(self.last, lengths.start(self.last), lengths[self.last])

    def _cut(self, shard: int, first: int, length: int) -> FileInstruction:
        """What the range takes of one shard that it touches, whose first record is ``first``."""
        skip = max(self.records.start - first, 0)
        return FileInstruction(
            filename=self.split.files.filename(self.split.name, shard, len(self.split.shard_lengths)),
            skip=skip,
            take=min(self.records.stop - first, length) - skip,
            examples_in_shard=length,
            split=self.split.name,
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
        return self._parts[part].instruction(place - (self._ends[part - 1] if part else 0))

    def __iter__(self) -> Iterator[FileInstruction]:
        return chain.from_iterable(self._parts)

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
    first, last = lengths.shard_of(records.start), lengths.shard_of(records.stop - 1)
    return _Part(records, split, first, last, lengths.empty_shards(first, last))
