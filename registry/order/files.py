"""Positions of a plan, the files and records they refer to, and runs of consecutive records.

A plan may have a million files whose lengths are stored in a catalog. A few positions, or neighbouring ones, therefore
load the lengths of their own files only; scattered positions build a table of all files once, 8 bytes per file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from registry.model import ShardSpan

Integers: TypeAlias = NDArray[np.int64]

_MIN_VECTORIZED: Final = 33
"""With at least this many files or positions, a table of all files is faster."""
_WINDOW: Final = 4096


class Files:
    """The files of a plan, numbered ``0..count`` in plan order, and the records that are read of each.

    A *position* counts the records of the plan from 0, as if the files were read one after the other. Everywhere,
    ``records`` are indices in the file, which also count its skipped records.
    """

    __slots__ = ("_file_ends", "_first_files", "_record_ends", "_skips", "_spans", "_starts", "count", "num_examples")

    def __init__(self, spans: Iterable[ShardSpan]) -> None:
        self._spans = tuple(spans)
        self._file_ends = list(accumulate((span.count for span in self._spans), initial=0))
        self._record_ends = list(accumulate((span.stop - span.start for span in self._spans), initial=0))
        self.count = self._file_ends[-1]
        self.num_examples = self._record_ends[-1]
        # Only the first file of a span has records that are skipped.
        self._first_files = np.array(self._file_ends[:-1], dtype=np.int64)
        self._skips: Integers | None = None
        self._starts: Integers | None = None

    def find(self, position: int) -> tuple[int, int]:
        """The file that holds ``position``, and the position of its first record. Takes O(log files)."""
        index = bisect_right(self._record_ends, position) - 1
        span = self._spans[index]
        record = span.start + position - self._record_ends[index]
        shard = span.lengths.shard_of(record)
        first = max(span.lengths.start(shard), span.start) - span.start
        return self._file_ends[index] + span.place_of(shard), self._record_ends[index] + first

    def record_at(self, position: int) -> tuple[int, int]:
        """The file and the record at ``position``: what ``locate`` finds for many. Takes O(log files)."""
        index = bisect_right(self._record_ends, position) - 1
        span = self._spans[index]
        record = span.start + position - self._record_ends[index]
        shard = span.lengths.shard_of(record)
        return self._file_ends[index] + span.place_of(shard), record - span.lengths.start(shard)

    def takes(self, start: int, stop: int) -> Integers:
        """The number of records read of each of the files ``start``..``stop`` (stop excluded), int64."""
        if self._starts is not None:
            return np.diff(self._starts[start : stop + 1])
        parts = []
        index = bisect_right(self._file_ends, start) - 1
        while start < stop:
            before, end = self._file_ends[index : index + 2]
            parts.append(np.asarray(self._spans[index].takes(start - before, min(stop, end) - before), dtype=np.int64))
            start, index = end, index + 1
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def takes_of(self, files: Integers) -> Integers:
        """The number of records read of each of ``files``, int64 of the same shape."""
        if self._starts is None and len(files) < _MIN_VECTORIZED:
            return np.array([self.takes(file, file + 1)[0] for file in files.tolist()], dtype=np.int64)
        starts = self._all_starts()
        return starts[files + 1] - starts[files]

    def skips_of(self, files: Integers) -> Integers:
        """The index of the first record read of each of ``files``, int64 of the same shape."""
        if self._skips is None:
            self._skips = np.array(
                [span.start - span.lengths.start(span.first) for span in self._spans], dtype=np.int64
            )
        spans = np.searchsorted(self._first_files, files, side="right") - 1
        return np.where(self._first_files[spans] == files, self._skips[spans], 0)

    def locate(self, positions: Integers) -> tuple[Integers, Integers]:
        """The files and records at ``positions``: two int64 arrays of the same shape."""
        if self._starts is None and len(positions) < _MIN_VECTORIZED:
            result = [self.find(position) for position in positions.tolist()]
            files = np.array([file for file, _ in result], dtype=np.int64)
            return files, positions - np.array([start for _, start in result], dtype=np.int64) + self.skips_of(files)
        first, starts = self._window(positions)
        places = np.searchsorted(starts, positions, side="right") - 1
        files = first + places
        return files, positions - starts[places] + self.skips_of(files)

    def _window(self, positions: Integers) -> tuple[int, Integers]:
        """The first file that ``positions`` need, and the positions of the first records of the files from there on."""
        if self._starts is None:
            first, start = self.find(int(positions.min()))
            last, _ = self.find(int(positions.max()))
            if last - first < max(_WINDOW, 4 * len(positions)):
                return first, start + starts_of(self.takes(first, last))
        return 0, self._all_starts()

    def positions_of(self, files: Integers, records: Integers) -> Integers:
        """The positions of these records of these files: the inverse of ``locate``."""
        return self._all_starts()[files] + records - self.skips_of(files)

    def _all_starts(self) -> Integers:
        if self._starts is None:
            self._starts = starts_of(self.takes(0, self.count))
        return self._starts


def starts_of(counts: Integers) -> Integers:
    """The start of each of n consecutive pieces, and the end of the last one: int64 of shape (n + 1,).

    >>> starts_of(np.array([3, 2])).tolist()
    [0, 3, 5]
    """
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


Pieces: TypeAlias = tuple[Integers, Integers, Integers]
"""For each piece its file, the index of its first record, and its number of records (may be 0): int64."""


class Pattern(Protocol):
    """An order of reading, which maps positions to records."""

    def locate(self, positions: Integers) -> tuple[Integers, Integers]:
        """The files and records at ``positions``, which may have any order: two int64 arrays of the same shape."""

    def pieces(self, start: int, stop: int) -> Iterator[Pieces]:
        """The records of the positions ``start``..``stop`` (at least one) in order, a few thousand pieces at a time."""


class Selection:
    """Some positions of another pattern, ascending."""

    __slots__ = ("_pattern", "_positions")

    def __init__(self, pattern: Pattern, positions: Integers) -> None:
        self._pattern = pattern
        self._positions = positions

    def locate(self, positions: Integers) -> tuple[Integers, Integers]:
        """The files and records at ``positions``."""
        return self._pattern.locate(self._positions[positions])

    def pieces(self, start: int, stop: int) -> Iterator[Pieces]:
        """The records of the positions ``start``..``stop``, a piece for each."""
        for first in range(start, stop, _WINDOW):
            files, records = self.locate(np.arange(first, min(first + _WINDOW, stop)))
            yield files, records, np.ones(files.size, np.int64)


class Run(NamedTuple):
    """Consecutive records ``first``..``first + count`` of one file.

    ``instruction`` is an index into the plan. ``first`` is an index in the file, which also counts skipped records.
    """

    instruction: int
    first: int
    count: int  # type: ignore[assignment] # hides tuple.count, which a run does not need


def join(blocks: Iterable[Pieces]) -> Iterator[Run]:
    """The longest possible runs: adjacent pieces of a file are joined."""
    last: Run | None = None
    for block in blocks:
        runs = list(map(Run, *(column.tolist() for column in _joined(block))))
        if not runs:
            continue
        if last is not None:
            # Within a block everything is joined. Its first piece may continue the last run of the block before.
            if runs[0][:2] == (last.instruction, last.first + last.count):
                runs[0] = Run(last.instruction, last.first, last.count + runs[0].count)
            else:
                yield last
        last = runs.pop()
        yield from runs
    if last is not None:
        yield last


def _joined(block: Pieces) -> Pieces:
    """The same pieces without empty ones, and with adjacent ones joined."""
    files, firsts, counts = block
    if not counts.all():
        files, firsts, counts = (column[block[2] > 0] for column in block)
    touches = (files[1:] == files[:-1]) & (firsts[1:] == firsts[:-1] + counts[:-1])
    if not touches.any():
        return files, firsts, counts
    heads = np.flatnonzero(np.concatenate(([True], ~touches)))
    return files[heads], firsts[heads], np.add.reduceat(counts, heads)


def spell_out(blocks: Iterable[Pieces]) -> tuple[Integers, Integers]:
    """The file and the record of every position."""
    files, records = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for some, firsts, counts in blocks:
        ends = np.cumsum(counts)
        files.append(np.repeat(some, counts))
        records.append(np.repeat(firsts - ends + counts, counts) + np.arange(len(files[-1])))
    return np.concatenate(files), np.concatenate(records)
