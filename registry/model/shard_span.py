"""Which shards does a range of records touch, and how many records of each are in it?"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from registry.model.shard_lengths import ShardLengths


@dataclass(frozen=True, slots=True)
class ShardSpan:
    """Records ``start``..``stop`` of a split, of which there are some, by the shards ``first``..``last`` they lie in.

    A *place* counts the shards of the span from 0, without the ``empty`` ones. One question costs O(log shards).

    >>> span = ShardSpan.of(ShardLengths([3, 0, 4]), 1, 5)
    >>> span.count, span.shard_at(1), span.place_of(2), list(span.takes(0, 2))
    (2, 2, 1, [2, 2])
    """

    lengths: ShardLengths
    start: int
    stop: int
    first: int
    last: int
    empty: Sequence[int] = field(compare=False)

    @classmethod
    def of(cls, lengths: ShardLengths, start: int, stop: int) -> ShardSpan:
        """The shards that hold records ``start``..``stop``, at least one record."""
        first, last = lengths.shard_of(start), lengths.shard_of(stop - 1)
        return cls(lengths, start, stop, first, last, lengths.empty_shards(first, last))

    def __reduce__(self) -> tuple[Callable[..., ShardSpan], tuple[ShardLengths, int, int]]:
        return ShardSpan.of, (
            self.lengths,
            self.start,
            self.stop,
        )  # the empty shards may be a view, which is not pickled

    @property
    def count(self) -> int:
        """Number of shards that hold records of the span."""
        return self.last - self.first + 1 - len(self.empty)

    def shard_at(self, place: int) -> int:
        """Index of the shard that has ``place`` filled ones of the span before it."""
        shard = self.first + place
        if self.empty:
            # The empty shards before it are those that have no more than ``place`` filled ones before them.
            ranks = range(len(self.empty))
            shard += bisect_right(ranks, place, key=lambda rank: self.empty[rank] - self.first - rank)
        return shard

    def place_of(self, shard: int) -> int:
        """The place of a filled shard: how many of the span come before it."""
        return shard - self.first - bisect_left(self.empty, shard)

    def cut(self, shard: int) -> tuple[int, int]:
        """Of a filled shard of the span: how many of its records come before the span, and how many are in it."""
        begin = self.lengths.start(shard)
        skip = max(self.start - begin, 0)
        return skip, min(self.stop - begin, self.lengths[shard]) - skip

    def takes(self, start: int, stop: int) -> array[int]:
        """How many records of each shard are in the span, for the places ``start``..``stop`` (stop excluded)."""
        takes = array("q")
        if start < stop:
            takes.extend(self.lengths[self.shard_at(start) : self.shard_at(stop - 1) + 1])
            if len(takes) > stop - start:
                takes = array("q", filter(None, takes))
            for place in {0, self.count - 1} & {start, stop - 1}:
                takes[place - start] = self.cut(self.shard_at(place))[1]
        return takes
