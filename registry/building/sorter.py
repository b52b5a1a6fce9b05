"""Sorts the records of a split, which may not fit into memory: an external merge sort with a budget in bytes.

Blocks of framed records are collected in memory up to the budget, sorted, and written to a run. At the end, the runs
are merged while they are read. ``FAN_IN`` runs of one size are merged into a bigger one, so that the numbers of open
files and buffers are bounded for splits of any size. Sorting puts duplicate keys next to each other, where they are
found. ``writing`` writes the sorted frames to shards.

The runs of one process are unlinked temporary files: they have no names, so the system removes them when the process
ends for any reason. ``example_runs``, ``piece_runs`` and ``shard_writing`` let other processes write runs, and merge
parts of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain, islice, pairwise
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.building.input_labels import split_label
from registry.building.keys import SortKeys
from registry.building.run_files import RunFile
from registry.building.run_format import (
    BlockTable,
    KeyedFrames,
    KeyRange,
    Run,
    RunEnd,
    Start,
    pack_end,
    write_blocks,
    write_run,
)
from registry.errors import DuplicateKeyError
from registry.tfrecord import Frames
from registry.wire.gather import order_words, take_ragged

DEFAULT_BUDGET_BYTES: Final = 64 * 2**20
FAN_IN: Final = 128
_OVERHEAD_BYTES: Final = 128  # memory of one entry: its sort key, its length, and its label with a pointer to it
_BARE_BYTES: Final = 48  # the same without a label
_MOST_BLOCK_BYTES: Final = 2**20
_LEAST_BLOCK_BYTES: Final = 4096
_OUTPUT_BYTES: Final = 2 * 2**20
_LARGE_BUDGET_BYTES: Final = 4 * 2**20  # smaller runs are written before a thread would have started
_LONG_FRAME: Final = 4096  # from this mean length on, views of frames cost less than joining the blocks
_MIN_BLOCK: Final = 256  # records; smaller blocks are joined

_Integers = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]
_KeyWords: TypeAlias = tuple[np.uint64, np.uint64]


class ExternalSorter:
    """Sorts the records of one split by sort key, in bounded memory. A context manager that frees its disk space.

    Runs are written to ``folder`` (None: the system's temporary folder). It should be on the disk that takes the
    result, because TMPDIR is often small. The same records give the same order for every budget and division into
    blocks.

    >>> from registry.building import hash_keys
    >>> from registry.tfrecord import frame_records
    >>> frames = frame_records([b"first", b"second", b"third"])
    >>> with ExternalSorter(split="train") as sorter:
    ...     sorter.add(KeyedFrames(hash_keys("train", ["a", "b", "c"]), ["'a'", "'b'", "'c'"], frames))
    ...     [block.num_records for block in sorter.sorted_frames()]
    [3]

    Attributes:
        num_examples: the number of records that were added.
        num_payload_bytes: the sum of their lengths in bytes, without framing.

    Raises:
        DuplicateKeyError: two records have the same sort key. Found while reading, or while adding if both are in one
            run, so that a generator that repeats itself forever fails.
        StorageError: a run cannot be written, or is damaged when it is read.
    """

    def __init__(
        self,
        *,
        split: str,
        folder: Path | None = None,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        fan_in: int = FAN_IN,
    ) -> None:
        self._split = split
        self._folder = folder
        self._budget_bytes = budget_bytes
        self._fan_in = fan_in
        # When runs are merged, one block of each run is in memory.
        self._block_bytes = max(_LEAST_BLOCK_BYTES, min(_MOST_BLOCK_BYTES, budget_bytes // (2 * fan_in)))
        self._is_large = budget_bytes >= _LARGE_BUDGET_BYTES
        self._held = _Held(0)
        self._held_bytes = 0
        self._runs: list[Run] = []  # in the order of generation, so that errors name equal keys in this order
        self.num_examples = 0
        self.num_payload_bytes = 0

    @property
    def runs(self) -> Sequence[Run]:
        """The runs so far, fewer than 128 after ``spill``."""
        return self._runs

    @property
    def budget_bytes(self) -> int:
        """The memory for records that were not written to a run yet."""
        return self._budget_bytes

    def reduce_budget(self, budget_bytes: int) -> None:
        """Collect at most ``budget_bytes`` from now on: other sorters need memory, too."""
        self._budget_bytes = min(self._budget_bytes, budget_bytes)
        if self._held_bytes >= self._budget_bytes:
            self._spill()

    def add(self, block: KeyedFrames) -> None:
        """Add a block of records. Writes a run when the budget is used up."""
        if not block.frames.num_records:
            return
        if not self._held.has_room(block):
            self._spill()
            if not self._held.has_room(block):
                self._held = _Held(max(self._budget_bytes, len(block.frames.data)))
        self._held.add(block)
        overhead_bytes = _overhead(has_labels=block.labels is not None)
        self._held_bytes += overhead_bytes * block.frames.num_records + len(block.frames.data)
        self.num_examples += block.frames.num_records
        self.num_payload_bytes += block.frames.num_payload_bytes
        if self._held_bytes >= self._budget_bytes:
            self._spill()

    def add_run(self, run: Run, *, num_payload_bytes: int) -> None:
        """Add the records of a run that another sorter wrote, which come after those that were added before."""
        self._spill()
        self.num_examples += run.num_records
        self.num_payload_bytes += num_payload_bytes
        self._add_run(run)

    def spill(self) -> None:
        """Write the records that are in memory to a run, and leave few runs."""
        self._spill()
        self._leave_few_runs()

    def sorted_frames(self, start: Start | None = None) -> Iterator[Frames]:
        """Yield all frames in the order of the sort keys, about 2 MB at a time.

        Can be called once: reading frees what was read.

        Args:
            start: the first record to yield. None: the first of all.
        """
        return (piece.frames() for piece in self._sorted_pieces(start, _OUTPUT_BYTES))

    def write_to(self, file: RunFile, keys: KeyRange | None = None, *, end: RunEnd | None = None) -> BlockTable:
        """Write all records as one run to ``file``, or those with a sort key in ``keys``. Can be called once.

        With ``end``, the table and this are written, too, so that another build can continue from the file.

        Raises:
            DuplicateKeyError: two of the records have the same sort key.
            StorageError: the disk is full.
        """
        pieces = self._sorted_pieces(None, self._block_bytes) if keys is None else self._pieces_in(keys)
        with file.create() as opened:
            table = write_blocks(opened, (piece.block() for piece in pieces), in_thread=False)
            if end is not None:
                opened.write(pack_end(table, end))
        return table

    def check(self, keys: KeyRange) -> int:
        """Read the records with a sort key in ``keys``, to find a key that is used twice. Can be called once.

        Returns:
            The number of these records.

        Raises:
            DuplicateKeyError: two of the records have the same sort key.
        """
        return sum(len(piece.places) for piece in self._pieces_in(keys))

    def _sorted_pieces(self, start: Start | None, most_bytes: int) -> Iterator[_Piece]:
        if not self._runs:
            return self._sort_held(most_bytes)
        self._leave_few_runs()
        if start is not None:
            blocks = [run.blocks(run.block_before(start.key)) for run in self._runs]
            return self._merge(blocks, most_bytes, start.key)
        return self._merge([*(run.blocks() for run in self._runs), self._held_blocks()], most_bytes)

    def _pieces_in(self, keys: KeyRange) -> Iterator[_Piece]:
        """The entries of the runs with a sort key in ``keys``; nothing is in memory."""
        blocks = [_blocks_until(run.blocks(run.block_before(keys.start)), keys.stop) for run in self._runs]
        return self._merge(blocks, self._block_bytes, keys.start)

    def close(self) -> None:
        """Free memory and disk space."""
        for run in self._runs:
            run.close()
        self._runs, self._held, self._held_bytes = [], _Held(0), 0

    def __enter__(self) -> ExternalSorter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spill(self) -> None:
        if self._held_bytes:
            blocks = (piece.block() for piece in self._sort_held(self._block_bytes))
            run = write_run(blocks, folder=self._folder, level=0, in_thread=self._is_large)
            self._held.clear()
            if self._held.num_bytes > self._budget_bytes:
                self._held = _Held(0)
            self._held_bytes = 0
            self._add_run(run)

    def _sort_held(self, most_bytes: int) -> Iterator[_Piece]:
        return self._sort(self._held.take(), most_bytes, self._held.data)

    def _add_run(self, run: Run) -> None:
        self._runs.append(run)
        while len(self._runs) >= self._fan_in and self._runs[-self._fan_in].level == self._runs[-1].level:
            self._merge_last(self._fan_in)

    def _leave_few_runs(self) -> None:
        while len(self._runs) >= self._fan_in:
            self._merge_last(self._fan_in)

    def _merge_last(self, count: int) -> None:
        """Merge the last ``count`` runs, which are the smallest, into one."""
        last = self._runs[-count:]
        pieces = self._merge([run.blocks() for run in last], self._block_bytes)
        merged = write_run(
            (piece.block() for piece in pieces),
            folder=self._folder,
            level=last[0].level + 1,
            in_thread=self._is_large,
        )
        self._runs[-count:] = [merged]

    def _held_blocks(self) -> Iterator[KeyedFrames]:
        """The entries in memory, in order, in blocks like those of a run."""
        for piece in self._sort_held(self._block_bytes):
            yield piece.block()

    def _merge(self, runs: list[Iterator[KeyedFrames]], most_bytes: int, first_key: bytes = b"") -> Iterator[_Piece]:
        """Yield the entries of ``runs`` in order, from ``first_key`` on, in pieces of about ``most_bytes``.

        Each step takes what is known to come before all unread blocks.
        """
        at_once = max(1, self._budget_bytes // (4 * len(runs) * self._block_bytes))
        readers = [reader for reader in (_RunReader(run, at_once) for run in runs) if reader.skip_to(first_key)]
        while readers:
            bound = min(reader.block.last_words for reader in readers)
            parts = [part for part in (reader.take_until(bound) for reader in readers) if part.start < part.stop]
            if not parts:
                raise AssertionError("a run is not sorted")  # otherwise this loop would never end
            yield from self._sort(parts, most_bytes)
            readers = [reader for reader in readers if reader.position < len(reader.block) or reader.advance()]

    def _sort(self, parts: list[_BlockRange], most_bytes: int, data: memoryview | None = None) -> Iterator[_Piece]:
        """Yield the entries of ``parts`` in order, in pieces of about ``most_bytes``. Empties the list.

        ``data`` has the frames of all parts, if they are in one place already.

        Raises:
            DuplicateKeyError: a sort key occurs twice.
        """
        if not parts:
            return
        entries = _Entries(parts, data)
        parts.clear()  # entries of short frames no longer need them
        order, twin = order_keys(entries.sort_keys)
        if twin is not None:
            raise self._duplicate(entries.label(int(order[twin])), entries.label(int(order[twin + 1])))
        for start, stop in pairwise(_cuts(entries.lengths[order] + entries.overhead_bytes, most_bytes)):
            yield _Piece(entries, order[start:stop])

    def _duplicate(self, *labels: str) -> DuplicateKeyError:
        """The error for two keys, with the numbers of their inputs if the labels have them."""
        (first, first_input), (second, second_input) = map(split_label, labels)
        problem, hint = f"the key {first} is used twice", ""
        if first != second:
            problem = f"the keys {first} and {second} are the same key"
            hint = " A number is the same key as its decimal text, and '\\' is the same as '/'."
        return DuplicateKeyError(
            f"split {self._split!r}: {problem}",
            hint=f"Yield a key that is unique in the split, e.g. a file name or a row number.{hint}",
            details={
                "split": self._split,
                "keys": [first, second],
                **({} if first_input is None else {"input_numbers": [first_input, second_input]}),
            },
        )


def order_keys(keys: SortKeys) -> tuple[_Integers, int | None]:
    """Return the order of ``keys``, equal ones as they come, and the first place in it that is followed by an equal.

    >>> order_keys(np.array([[2] * 16, [1] * 16, [2] * 16], np.uint8))
    (array([1, 0, 2]), 1)
    """
    high, low = _words_of(keys)
    order = order_words(high)
    found = high[order]
    equal = found[1:] == found[:-1]
    if not equal.any():  # almost always, if the keys are hashes
        return order, None
    order = np.lexsort((low, high))
    found = low[order]
    equal &= found[1:] == found[:-1]
    return order, int(equal.argmax()) if equal.any() else None


def _overhead(*, has_labels: bool) -> int:
    return _OVERHEAD_BYTES if has_labels else _BARE_BYTES


def _cuts(sizes: _Integers, most_bytes: int) -> Iterator[int]:
    """Places that divide entries of these sizes into pieces of at most ``most_bytes``, or one entry."""
    ends = np.cumsum(sizes)
    start, before = 0, 0
    yield 0
    while start < sizes.size:
        start = max(start + 1, int(np.searchsorted(ends, before + most_bytes, "right")))
        before = int(ends[start - 1])
        yield start


def _join(blocks: list[KeyedFrames], data: bytes | memoryview) -> KeyedFrames:
    """One block of all, with ``data`` as the data of its frames unless it is the only one."""
    if len(blocks) == 1:
        return blocks[0]
    lengths = np.concatenate([block.frames.lengths for block in blocks])
    return KeyedFrames(
        np.concatenate([block.sort_keys for block in blocks]),
        None if all(block.labels is None for block in blocks) else _JoinedLabels(blocks),
        Frames(data, lengths),
    )


class _Held:
    """Blocks that wait to be sorted, in an array of ``num_bytes``.

    Their frames are copied into the array, one after the other, so that the blocks become free at once, and sorting
    needs no second copy of all of them.
    """

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self._data = np.empty(num_bytes, np.uint8)  # the system provides memory only for what is written
        self._blocks: list[KeyedFrames] = []
        self._end = 0
        self._small: list[KeyedFrames] = []  # joined before they are sorted, because every block takes memory and time
        self._num_small = self._first_small = 0

    def has_room(self, block: KeyedFrames) -> bool:
        """Whether the frames of ``block`` fit into the array."""
        return bool(self.num_bytes) and self._end + len(block.frames.data) <= self.num_bytes

    def add(self, block: KeyedFrames) -> None:
        """Copy a block behind the others."""
        start, self._end = self._end, self._end + len(block.frames.data)
        self._data[start : self._end] = np.frombuffer(block.frames.data, np.uint8)
        frames = Frames(self._view(start), block.frames.lengths)
        self._small.append(KeyedFrames(block.sort_keys, block.labels, frames))
        self._num_small += block.frames.num_records
        if self._num_small >= _MIN_BLOCK:
            self._join_small()

    def take(self) -> list[_BlockRange]:
        """All entries, which are no longer in the list of blocks. Their frames stay in ``data`` until ``clear``."""
        self._join_small()
        blocks, self._blocks = self._blocks, []
        return [_BlockRange(_Block([block]), 0, block.frames.num_records) for block in blocks]

    @property
    def data(self) -> memoryview:
        """All frames."""
        return self._view(0)

    def clear(self) -> None:
        """Forget all entries, and use the array again."""
        self._blocks, self._small, self._num_small, self._first_small, self._end = [], [], 0, 0, 0

    def _join_small(self) -> None:
        if self._small:
            self._blocks.append(_join(self._small, self._view(self._first_small)))
        self._small, self._num_small, self._first_small = [], 0, self._end

    def _view(self, start: int) -> memoryview:
        return self._data.data[start : self._end]


class _JoinedLabels(Sequence[str]):
    """The labels of several blocks, looked up when one is needed."""

    def __init__(self, blocks: Sequence[KeyedFrames]) -> None:
        self._labels = [block.labels for block in blocks]
        self._firsts = [0, *accumulate(block.num_records for block in blocks)]

    def __len__(self) -> int:
        return self._firsts[-1]

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # slices are not needed
        part = bisect_right(self._firsts, index) - 1
        labels = self._labels[part]
        return "" if labels is None else labels[index - self._firsts[part]]


class _Block:
    """Consecutive blocks in memory, with what sorting needs of them. Their frames are copied only once, in order."""

    def __init__(self, blocks: list[KeyedFrames]) -> None:
        joined = _join(blocks, b"")
        self.sort_keys, self.labels, self.lengths = joined.sort_keys, joined.labels, joined.frames.lengths
        self.pieces = [memoryview(block.frames.data) for block in blocks]
        self.ends = np.cumsum(self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def words(self) -> tuple[_Words, _Words]:
        """The two halves of the sort keys as numbers."""
        return _words_of(self.sort_keys)

    @cached_property
    def last_words(self) -> _KeyWords:
        """The two halves of the last sort key."""
        high, low = self.words
        return high[-1], low[-1]


def _words_of_key(key: bytes) -> _KeyWords:
    (high,), (low,) = _words_of(np.frombuffer(key, np.uint8).reshape(1, -1))
    return high, low


def _words_of(sort_keys: SortKeys) -> tuple[_Words, _Words]:
    high, low = np.ascontiguousarray(sort_keys).view(">u8").T.astype(np.uint64, order="C")
    return high, low


class _BlockRange(NamedTuple):
    """Entries ``start``..``stop`` (stop excluded) of a block."""

    block: _Block
    start: int
    stop: int

    def pieces(self) -> Iterator[memoryview]:
        """The frames, one after the other, where they are."""
        ends = self.block.ends
        start, stop = int(ends[self.start - 1]) if self.start else 0, int(ends[self.stop - 1])
        for piece in self.block.pieces:
            yield piece[max(0, start) : max(0, stop)]
            start, stop = start - len(piece), stop - len(piece)

    def views(self) -> Iterator[memoryview]:
        """Each frame."""
        lengths = iter(self.block.lengths[self.start : self.stop].tolist())
        for left in self.pieces():
            while left:
                size = next(lengths)
                yield left[:size]
                left = left[size:]  # noqa: PLW2901 (what is left of the piece)


class _Entries:
    """The entries of several parts, one part after the other, from which they are taken in any order."""

    def __init__(self, parts: Sequence[_BlockRange], data: memoryview | None) -> None:
        self.sort_keys = np.concatenate([part.block.sort_keys[part.start : part.stop] for part in parts])
        self.lengths = np.concatenate([part.block.lengths[part.start : part.stop] for part in parts])
        self._labels = [(part.block.labels, part.start) for part in parts]
        self._has_labels = any(labels is not None for labels, _ in self._labels)
        self._firsts = np.cumsum([0, *(part.stop - part.start for part in parts)])
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths)])
        self._starts = ends[:-1]
        self._views: list[memoryview] | None = None
        if int(ends[-1]) > _LONG_FRAME * len(self.lengths):
            self._views = [view for part in parts for view in part.views()]
            return
        pieces = chain.from_iterable(part.pieces() for part in parts)
        self._data = np.frombuffer(b"".join(pieces) if data is None else data, np.uint8)

    @property
    def overhead_bytes(self) -> int:
        """Memory of one entry without its frame: of short frames, it is the larger part."""
        return _overhead(has_labels=self._has_labels)

    def frames(self, places: _Integers) -> Frames:
        """Copy the frames at ``places``, in that order."""
        lengths = self.lengths[places]
        if self._views is not None:
            return Frames(b"".join(map(self._views.__getitem__, places.tolist())), lengths)
        return Frames(take_ragged(self._data, self._starts[places], lengths).data, lengths)

    def label(self, place: int) -> str:
        """The label of the entry at ``place``."""
        part = int(np.searchsorted(self._firsts, place, "right")) - 1
        labels, start = self._labels[part]
        if labels is None:
            return f"with the hash {self.sort_keys[place].tobytes().hex()}"
        return labels[start + place - int(self._firsts[part])]

    def labels(self, places: _Integers) -> list[str] | None:
        """The labels of the entries at ``places``; None if no entry has one."""
        if not self._has_labels:
            return None
        parts = np.searchsorted(self._firsts, places, "right") - 1
        starts = np.array([start for _, start in self._labels])
        result = zip(parts.tolist(), (places - self._firsts[parts] + starts[parts]).tolist(), strict=True)
        labels = [labels for labels, _ in self._labels]
        return ["" if (known := labels[part]) is None else known[index] for part, index in result]


class _Piece(NamedTuple):
    """The entries at ``places`` of ``entries``: some in order, which were not copied yet."""

    entries: _Entries
    places: _Integers

    @property
    def sort_keys(self) -> SortKeys:
        return self.entries.sort_keys.take(self.places, axis=0)  # a fifth of the time of indexing

    def frames(self) -> Frames:
        """Copy the frames."""
        return self.entries.frames(self.places)

    def block(self) -> KeyedFrames:
        """Copy the entries as a block of a run."""
        return KeyedFrames(self.sort_keys, self.entries.labels(self.places), self.frames())


class _RunReader:
    """The current blocks of a run, and the position of its next entry."""

    def __init__(self, blocks: Iterator[KeyedFrames], at_once: int) -> None:
        self._blocks = blocks
        self._at_once = at_once
        self.block: _Block
        self.position = 0

    def advance(self) -> bool:
        """Read the next blocks; False at the end of the run."""
        if blocks := list(islice(self._blocks, self._at_once)):
            self.block, self.position = _Block(blocks), 0
        return bool(blocks)

    def skip_to(self, key: bytes) -> bool:
        """Read up to the first entry with sort key ``key`` or a later one; False if there is none."""
        while self.advance():
            self.position = self._place_of(_words_of_key(key), "left") if key else 0
            if self.position < len(self.block):
                return True
        return False

    def take_until(self, bound: _KeyWords) -> _BlockRange:
        """The next entries of the block, up to the sort key with the halves ``bound``, included."""
        start = self.position
        self.position = max(start, self._place_of(bound, "right"))
        return _BlockRange(self.block, start, self.position)

    def _place_of(self, words: _KeyWords, side: Literal["left", "right"]) -> int:
        """Where a sort key with these halves is in the block: before equal keys, or after them."""
        high, low = words
        highs, lows = self.block.words
        last = int(highs.searchsorted(high, "right"))
        if not last or highs[last - 1] != high:  # almost always: each run has other keys
            return last
        first = int(highs.searchsorted(high, "left"))
        return first + int(lows[first:last].searchsorted(low, side))


def _blocks_until(blocks: Iterator[KeyedFrames], stop: bytes | None) -> Iterator[KeyedFrames]:
    """``blocks`` of a run, up to the first entry with sort key ``stop`` or a later one, which is excluded."""
    if stop is None:
        yield from blocks
        return
    high, low = _words_of_key(stop)
    for block in blocks:
        highs, lows = _words_of(block.sort_keys)
        if (highs[-1], lows[-1]) < (high, low):
            yield block
            continue
        count = int(((highs < high) | ((highs == high) & (lows < low))).sum())
        if count:
            yield KeyedFrames(block.sort_keys[:count], block.labels, block.frames.part(0, count))
        return
