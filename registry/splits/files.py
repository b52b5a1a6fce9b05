"""Which files hold a range of records, and what is read of each?"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple

from registry.errors import SliceError
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


_UNCHECKED: Final[Callable[[tuple[str, int, int, int, str, int]], FileInstruction]] = partial(
    tuple.__new__, FileInstruction
)
_BLOCK: Final = 16_384


@dataclass(frozen=True, slots=True)
class FileRun:
    """A range that holds records, and the shards ``first``..``last`` that it touches, but for the ``empty`` ones."""

    records: RecordRange
    split: ShardedSplit
    first: int
    last: int
    empty: Sequence[int] = field(compare=False)

    @classmethod
    def of(cls, records: RecordRange, split: ShardedSplit) -> FileRun:
        """The files of ``split`` that hold ``records``, of which there are some."""
        lengths = split.shard_lengths
        first, last = lengths.shard_of(records.start), lengths.shard_of(records.stop - 1)
        return cls(records, split, first, last, lengths.empty_shards(first, last))

    def __reduce__(self) -> tuple[Callable[..., FileRun], tuple[RecordRange, ShardedSplit]]:
        return FileRun.of, (self.records, self.split)  # the empty shards may be a view, which is not pickled

    @property
    def count(self) -> int:
        """Number of files that the range touches."""
        return self.last - self.first + 1 - len(self.empty)

    def instruction(self, place: int) -> FileInstruction:
        """The instruction for the file that has ``place`` others before it."""
        shard = self._shard_at(place)
        lengths = self.split.shard_lengths
        return self._cut(shard, lengths.start(shard), lengths[shard])

    def records_of(self, start: int, stop: int) -> RecordRange:
        """The records of the range that lie in its files ``start``..``stop`` (stop excluded; at least one file)."""
        lengths = self.split.shard_lengths
        first, after = self._shard_at(start), self._shard_at(stop - 1) + 1
        return RecordRange(
            split=self.split.name,
            start=max(self.records.start, lengths.start(first)),
            stop=min(self.records.stop, lengths.start(after)),
        )

    def _shard_at(self, place: int) -> int:
        shard = self.first + place
        if self.empty:
            # The empty shards before the file are those that have no more than ``place`` filled ones before them.
            ranks = range(len(self.empty))
            shard += bisect_right(ranks, place, key=lambda rank: self.empty[rank] - self.first - rank)
        return shard

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
