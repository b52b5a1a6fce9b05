"""Which files hold a range of records, and what is read of each?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple

from registry.errors import SliceError, UsageError
from registry.model import ShardSpan
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

    @property
    def takes_all(self) -> bool:
        """Whether everything behind the skipped records is read, as TFDS says it."""
        return self.skip + self.take == self.examples_in_shard

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
    """A range that holds records, and the files that it touches, which are the filled shards of ``span``."""

    records: RecordRange
    split: ShardedSplit
    span: ShardSpan = field(compare=False)

    @classmethod
    def of(cls, records: RecordRange, split: ShardedSplit) -> FileRun:
        """The files of ``split`` that hold ``records``, of which there are some."""
        return cls(records, split, ShardSpan.of(split.shard_lengths, records.start, records.stop))

    @property
    def count(self) -> int:
        """Number of files that the range touches."""
        return self.span.count

    def instruction(self, place: int) -> FileInstruction:
        """The instruction for the file that has ``place`` others before it."""
        return self._cut(self.span.shard_at(place))

    def records_of(self, start: int, stop: int) -> RecordRange:
        """The records of the range that lie in its files ``start``..``stop`` (stop excluded; at least one file)."""
        lengths = self.split.shard_lengths
        first, after = self.span.shard_at(start), self.span.shard_at(stop - 1) + 1
        return RecordRange(
            split=self.split.name,
            start=max(self.records.start, lengths.start(first)),
            stop=min(self.records.stop, lengths.start(after)),
        )

    def __iter__(self) -> Iterator[FileInstruction]:
        """All instructions. Files between the first and the last are read whole, so they are made without a look."""
        lengths, span = self.split.shard_lengths, self.span
        name = self.records.split
        filename = self.split.files.namer(name, len(lengths))
        yield self._cut(span.first)
        for start in range(span.first + 1, span.last, _BLOCK):
            shards: Iterable[int] = range(start, min(start + _BLOCK, span.last))
            takes: Iterable[int] = lengths[start : min(start + _BLOCK, span.last)]
            if span.empty:
                filled = [(shard, take) for shard, take in zip(shards, takes, strict=True) if take]
                shards, takes = [shard for shard, _ in filled], [take for _, take in filled]
            yield from map(_UNCHECKED, zip(map(filename, shards), repeat(0), takes, takes, repeat(name), shards))
        if span.last > span.first:
            yield self._cut(span.last)

    def _cut(self, shard: int) -> FileInstruction:
        """What the range takes of one shard that it touches."""
        lengths = self.split.shard_lengths
        skip, take = self.span.cut(shard)
        return FileInstruction(
            filename=self.split.files.filename(self.split.name, shard, len(lengths)),
            skip=skip,
            take=take,
            examples_in_shard=lengths[shard],
            split=self.split.name,
            shard=shard,
        )


def sorted_places(
    files: list[FileInstruction], sort_files: Callable[[list[FileInstruction]], Sequence[FileInstruction]]
) -> list[int]:
    """The places in ``files`` of what ``sort_files`` makes of them, which are the same files in another order.

    Raises:
        UsageError: it leaves a file out, names one more often than it was given, or returns something else.
    """
    places: dict[FileInstruction, int] = {}
    again: dict[int, int] = {}  # the next place of a file that a union reads more than once
    for place in reversed(range(len(files))):
        if files[place] in places:
            again[place] = places[files[place]]
        places[files[place]] = place
    found: list[int] = []
    try:
        for file in sort_files(list(files)):
            place = places.pop(file)
            found.append(place)
            if place in again:
                places[file] = again[place]
    except (KeyError, TypeError):
        found.clear()
    if len(found) != len(files):
        raise UsageError(
            f"interleave_sort_fn was given {len(files)} file instructions and returned something else",
            hint="It returns the same ones in another order; to read fewer, slice the expression.",
        )
    return found
