"""What does a split hold: how many records, in which shards, in which files?"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import overload

from registry.errors import UsageError
from registry.model.filenames import ShardedFileTemplate

_SPLIT_NAME = re.compile(r"(?=.*[a-zA-Z0-9])[a-zA-Z0-9_-]{1,200}")


class ShardLengths(Sequence[int]):
    """Number of records in each shard, in shard order. Immutable; 16 bytes a shard, whatever the number of shards.

    >>> lengths = ShardLengths([3, 0, 4])
    >>> list(lengths), lengths.num_examples, lengths.start(2)
    ([3, 0, 4], 7, 3)
    >>> lengths.shard_of(3)
    2
    """

    __slots__ = ("_filled", "_lengths", "_starts")

    def __init__(self, lengths: Iterable[int]) -> None:
        try:
            self._lengths = array("q", lengths)
            self._starts = array("q", accumulate(self._lengths, initial=0))
        except (OverflowError, TypeError) as error:
            raise UsageError("shard lengths are whole numbers, fewer than 2**63 records in all") from error
        shortest = min(self._lengths, default=1)
        if shortest < 0:
            raise UsageError("a shard length is never negative")
        # The shards that hold records, where some hold none; almost every split has no empty shard and needs no list.
        self._filled = (
            array("q", (index for index, length in enumerate(self._lengths) if length)) if shortest == 0 else None
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

    def num_filled(self, stop: int) -> int:
        """Number of shards before shard ``stop`` that hold a record."""
        return stop if self._filled is None else bisect_left(self._filled, stop)

    def filled_shard(self, rank: int) -> int:
        """Index of the shard that holds records and has ``rank`` such shards before it."""
        return rank if self._filled is None else self._filled[rank]

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
            return self._lengths.tolist() == other
        return self._lengths == other._lengths if isinstance(other, ShardLengths) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._lengths.tobytes())

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self._lengths[:8])) + (", ..." if len(self) > 8 else "")
        return f"ShardLengths([{shown}])"


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A named part of a dataset version: its shards, in order, and what their files are called.

    ``num_bytes`` is the sum of the serialized records, without framing, as TFDS counts it.
    """

    name: str
    shard_lengths: ShardLengths
    num_bytes: int = 0
    files: ShardedFileTemplate = field(default_factory=lambda: ShardedFileTemplate(dataset="dataset"))

    def __post_init__(self) -> None:
        check_split_name(self.name)
        if self.num_bytes < 0:
            raise UsageError("num_bytes is never negative")

    @property
    def num_examples(self) -> int:
        """Number of records."""
        return self.shard_lengths.num_examples

    @property
    def num_shards(self) -> int:
        """Number of shards, empty ones included."""
        return len(self.shard_lengths)

    def filename(self, index: int) -> str:
        """Name of the file of shard ``index``, relative to the version's folder."""
        return self.files.filename(self.name, index, self.num_shards)

    @property
    def filenames(self) -> list[str]:
        """Names of all shard files, in shard order."""
        return [self.filename(index) for index in range(self.num_shards)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One stored file of a split. ``num_bytes`` is the file's size, ``sha256`` 64 hex digits over its bytes."""

    index: int
    first_example: int
    num_examples: int
    num_bytes: int
    sha256: str


def check_splits(splits: Sequence[Split], where: str) -> None:
    """Refuse splits of which two have one name; ``where`` says whose they are."""
    names = [split.name for split in splits]
    if len(set(names)) != len(names):
        raise UsageError(f"{where}: a split name is used twice: {names}")


def check_split_name(name: str) -> str:
    """``name`` if it may name a split: letters, digits, ``_`` and ``-``, at least one letter or digit, not ``all``."""
    if name == "all" or not _SPLIT_NAME.fullmatch(name):
        raise UsageError(
            f"invalid split name {name[:80]!r}",
            hint="A split name holds letters, digits, '_' and '-'; 'all' is kept for the union of all splits.",
            details={"split": name[:80]},
        )
    return name
