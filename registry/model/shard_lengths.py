"""How many records does each shard of a split hold, and which shard holds a record?"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import overload

from registry.errors import UsageError


class ShardLengths(Sequence[int]):
    """Number of records in each shard, in shard order. Immutable; 16 bytes a shard, whatever the number of shards.

    A subclass may keep them elsewhere and load what is asked for; it is equal to one with the same lengths.

    >>> lengths = ShardLengths([3, 0, 4])
    >>> list(lengths), lengths.num_examples, lengths.start(2)
    ([3, 0, 4], 7, 3)
    >>> lengths.shard_of(3), list(lengths.empty_shards(0, 3))
    (2, [1])
    """

    __slots__ = ("_empty", "_lengths", "_starts")

    def __init__(self, lengths: Iterable[int]) -> None:
        if isinstance(lengths, bytes | bytearray | memoryview | str):
            raise UsageError("shard lengths are a list of whole numbers, not bytes or text")
        try:
            self._lengths = array("q", lengths)
            self._starts = array("q", accumulate(self._lengths, initial=0))
        except (OverflowError, TypeError) as error:
            raise UsageError("shard lengths are whole numbers, fewer than 2**63 records in all") from error
        shortest = min(self._lengths, default=1)
        if shortest < 0:
            raise UsageError("a shard length is never negative")
        # Almost every split has no empty shard: then there is nothing to search.
        self._empty = array(
            "q", (index for index, length in enumerate(self._lengths) if not length) if not shortest else ()
        )

    @property
    def num_examples(self) -> int:
        """Number of records in all shards."""
        return self._starts[-1]

    def start(self, index: int) -> int:
        """Position in the split of the first record of shard ``index``; ``start(len(self))`` is ``num_examples``."""
        return self._starts[index]

    def shard_of(self, position: int) -> int:
        """Index of the shard that holds record ``position`` (0 <= position < num_examples); empty shards hold none."""
        return bisect_right(self._starts, position) - 1

    def empty_shards(self, first: int, stop: int) -> Sequence[int]:
        """Indices of the shards ``first``..``stop`` (stop excluded) that hold no record, in order."""
        if not self._empty:
            return ()
        # A view, not a copy: a union may ask for the same million again and again.
        return memoryview(self._empty)[bisect_left(self._empty, first) : bisect_left(self._empty, stop)]

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        return self._lengths[index]

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        return iter(self._lengths)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list):  # as TFDS gives them; a list has no hash that could differ
            return list(self) == other
        if not isinstance(other, ShardLengths):
            return NotImplemented
        return self is other or (
            (len(self), self.num_examples) == (len(other), other.num_examples) and self[:] == other[:]
        )

    def __hash__(self) -> int:
        return hash((len(self), self.num_examples))

    def __reduce__(self) -> tuple[type[ShardLengths], tuple[list[int]]]:
        return ShardLengths, (list(self),)

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self[:8])) + (", ..." if len(self) > 8 else "")
        return f"ShardLengths([{shown}])"
