"""Sorts the records of a split, which may not fit into memory: an external merge sort with a budget in bytes.

Blocks of framed records are collected in memory up to the budget, sorted, and written to a run. At the end, the runs
are merged while they are read. ``FAN_IN`` runs of one size are merged into a bigger one, so that the numbers of open
files and buffers are bounded for splits of any size. Sorting puts duplicate keys next to each other, where they are
found. ``writing`` writes the sorted frames to shards.

A run is an unlinked temporary file: it has no name, so the system removes it when the process ends for any reason. Its
format is private to one build::

    run    := block*
    block  := head crc32c(head + body) body
    head   := num_entries (u32) label_bytes (u64) frame_bytes (u64)
    body   := sort_key (16 bytes)* frame_length (i64)* label_length (u32)* labels frames

Lengths and checksums are checked when a run is read: a disk that loses bytes ends the build instead of damaging a
dataset. ``runs`` and ``shard_writing`` let worker processes write runs, and merge parts of them.
"""

from __future__ import annotations

import os
import struct
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from registry.building.behind import Behind
from registry.building.keys import SORT_KEY_BYTES, SortKeys, join_sort_keys
from registry.errors import DuplicateKeyError, StorageError
from registry.model import LEAF_EXAMPLES
from registry.tfrecord import Frames
from registry.tfrecord.framing import crc32c

DEFAULT_BUDGET_BYTES: Final = 64 * 2**20
FAN_IN: Final = 128
_OVERHEAD_BYTES: Final = 128  # memory of one entry: its sort key, its length, and its label with a pointer to it
_MOST_BLOCK_BYTES: Final = 2**20
_LEAST_BLOCK_BYTES: Final = 4096
_LEAST_OUTPUT_BYTES: Final = 2**20
_MOST_OUTPUT_BYTES: Final = 4 * 2**20
_LARGE_BUDGET_BYTES: Final = 4 * 2**20  # smaller runs are written before a thread would have started
_LONG_FRAME: Final = 4096
_MIN_BLOCK: Final = 256  # records; smaller blocks are joined

CAN_SHARE_FILES: Final = Path("/proc/self/fd").is_dir()
"""Whether other processes can open files without a name."""

_HEAD: Final = struct.Struct("<IQQ")
_CHECKSUM: Final = struct.Struct("<I")
_PREFIX_BYTES: Final = _HEAD.size + _CHECKSUM.size
_ENTRY_BYTES: Final = SORT_KEY_BYTES + 8 + 4  # sort key, length of the frame, length of the label

_Integers = npt.NDArray[np.int64]


class KeyedFrames(NamedTuple):
    """A block of records to sort.

    Attributes:
        sort_keys: uint8 of shape (number of records, 16); ``hash_keys`` makes them.
        labels: the key of each record as errors show it. A sequence may create them when they are needed.
        frames: the records, framed by ``frame_records``.
    """

    sort_keys: SortKeys
    labels: Sequence[str]
    frames: Frames

    @property
    def num_records(self) -> int:
        """Number of records."""
        return self.frames.num_records


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
        self._held: list[_Block] = []
        self._held_bytes = 0
        self._small: list[KeyedFrames] = []  # joined before they are sorted, because every block takes memory and time
        self._num_small = 0
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
        """Collect at most ``budget_bytes`` from the next block on: other sorters need memory, too."""
        self._budget_bytes = min(self._budget_bytes, budget_bytes)

    def add(self, block: KeyedFrames) -> None:
        """Add a block of records. Writes a run when the budget is used up."""
        if not block.num_records:
            return
        self._small.append(block)
        if self._num_small + block.num_records >= _MIN_BLOCK:
            self._join_small()
        else:
            self._num_small += block.num_records
        self._held_bytes += _OVERHEAD_BYTES * block.frames.num_records + len(block.frames.data)
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
        """Yield all frames in the order of the sort keys, some MB at a time.

        Can be called once: reading frees what was read.

        Args:
            start: the first record to yield. None: the first of all.
        """
        return _gather_all(self._sorted_pieces(start), start.position if start else 0)

    def write_to(self, path: str) -> BlockTable:
        """Write all records as one run to the file at ``path``, which is empty. Can be called once.

        Raises:
            StorageError: the disk is full.
        """
        with storing(self._folder), Path(path).open("wb", buffering=2**20) as file:
            return write_blocks(file, self._sorted_pieces(None), level=0, in_thread=False).table

    def _sorted_pieces(self, start: Start | None) -> Iterator[_Piece]:
        if not self._runs:
            self._join_small()
            parts = [_Part(block, 0, len(block)) for block in self._held]
            return self._sort(parts, self._block_bytes)
        self._leave_few_runs()
        if start is not None:
            blocks = [run.blocks(run.block_before(start.key)) for run in self._runs]
            return self._merge(blocks, start.key)
        return self._merge([*(run.blocks() for run in self._runs), self._held_blocks()])

    def close(self) -> None:
        """Free memory and disk space."""
        for run in self._runs:
            run.close()
        self._runs, self._held, self._held_bytes, self._small = [], [], 0, []

    def __enter__(self) -> ExternalSorter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _join_small(self) -> None:
        if self._small:
            self._held.append(_Block.of(_join(self._small)))
            self._small, self._num_small = [], 0

    def _spill(self) -> None:
        self._join_small()
        if self._held:
            parts = [_Part(block, 0, len(block)) for block in self._held]
            run = write_run(
                self._sort(parts, self._block_bytes), folder=self._folder, level=0, in_thread=self._is_large
            )
            self._held, self._held_bytes = [], 0
            self._add_run(run)

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
        merged = write_run(
            self._merge([run.blocks() for run in last]),
            folder=self._folder,
            level=last[0].level + 1,
            in_thread=self._is_large,
        )
        self._runs[-count:] = [merged]

    def _held_blocks(self) -> Iterator[KeyedFrames]:
        """The entries in memory, in order, in blocks like those of a run."""
        self._join_small()
        for piece in self._sort([_Part(block, 0, len(block)) for block in self._held], self._block_bytes):
            yield KeyedFrames(piece.sort_keys, _PieceLabels(piece), _gather(piece))

    def _merge(self, runs: list[Iterator[KeyedFrames]], first_key: bytes = b"") -> Iterator[_Piece]:
        """Yield the entries of ``runs`` in order, from ``first_key`` on.

        Each step takes what is known to come before all unread blocks.
        """
        readers = [reader for reader in map(_RunReader, runs) if reader.skip_to(first_key)]
        while readers:
            bound = min(reader.block.keys[-1] for reader in readers)
            parts = [reader.take_until(bound) for reader in readers if reader.block.keys[reader.position] <= bound]
            yield from self._sort(parts, self._block_bytes)
            readers = [reader for reader in readers if reader.position < len(reader.block) or reader.advance()]

    def _sort(self, parts: list[_Part], most_bytes: int) -> Iterator[_Piece]:
        """Yield the entries of ``parts`` in order, in pieces of about ``most_bytes``.

        Raises:
            DuplicateKeyError: a sort key occurs twice.
        """
        if not parts:
            return
        keys = np.concatenate([part.sort_keys for part in parts])
        order, twin = order_keys(keys)
        counts = np.array([part.stop - part.start for part in parts])
        part_of = np.repeat(np.arange(len(parts)), counts)[order]
        index = order - (np.cumsum(counts) - counts)[part_of] + np.array([part.start for part in parts])[part_of]
        whole = _Piece(
            parts,
            keys[order],
            part_of,
            index,
            np.concatenate([part.block.starts[part.start : part.stop] for part in parts])[order],
            np.concatenate([part.block.lengths[part.start : part.stop] for part in parts])[order],
        )
        if twin is not None:
            raise self._duplicate(whole.label(twin), whole.label(twin + 1))
        for start, stop in pairwise(_cuts(whole.lengths, most_bytes)):
            yield whole.cut(start, stop)

    def _duplicate(self, first: str, second: str) -> DuplicateKeyError:
        problem, hint = f"the key {first} is used twice", ""
        if first != second:
            problem = f"the keys {first} and {second} are the same key"
            hint = " A number is the same key as its decimal text, and '\\' is the same as '/'."
        return DuplicateKeyError(
            f"split {self._split!r}: {problem}",
            hint=f"Yield a key that is unique in the split, e.g. a file name or a row number.{hint}",
            details={"split": self._split, "keys": [first, second]},
        )


def order_keys(keys: SortKeys) -> tuple[_Integers, int | None]:
    """Return the order of ``keys``, equal ones as they come, and the first place in it that is followed by an equal.

    >>> order_keys(np.array([[2] * 16, [1] * 16, [2] * 16], np.uint8))
    (array([1, 0, 2]), 1)
    """
    words = keys.view(">u8").astype(np.uint64)
    order: _Integers = np.argsort(words[:, 0], kind="stable")
    high = words[order, 0]
    if not bool((high[1:] == high[:-1]).any()):  # almost always, if the keys are hashes
        return order, None
    order = np.lexsort((words[:, 1], words[:, 0]))
    sorted_words = words[order]
    equal = (sorted_words[1:] == sorted_words[:-1]).all(axis=1)
    return order, int(equal.argmax()) if equal.any() else None


def _cuts(lengths: _Integers, most_bytes: int) -> Iterator[int]:
    """Places that divide entries of these lengths into pieces of at most ``most_bytes``, or one entry."""
    ends = np.cumsum(lengths)
    start, before = 0, 0
    yield 0
    while start < lengths.size:
        start = max(start + 1, int(np.searchsorted(ends, before + most_bytes, "right")))
        before = int(ends[start - 1])
        yield start


def _join(blocks: list[KeyedFrames]) -> KeyedFrames:
    if len(blocks) == 1:
        return blocks[0]
    lengths = np.concatenate([block.frames.lengths for block in blocks])
    return KeyedFrames(
        np.concatenate([block.sort_keys for block in blocks]),
        [label for block in blocks for label in block.labels],
        Frames(b"".join([block.frames.data for block in blocks]), lengths),
    )


class _Block:
    """A block in memory, with what sorting needs of it."""

    __slots__ = ("_keys", "data", "labels", "lengths", "sort_keys", "starts")

    def __init__(self, sort_keys: SortKeys, labels: Sequence[str], frames: Frames) -> None:
        self.sort_keys = sort_keys
        self.labels = labels
        # Slices of bytes are copies, which cost less than views up to some size: the garbage collector tracks views.
        is_long = len(frames.data) > _LONG_FRAME * frames.num_records
        self.data = memoryview(frames.data) if is_long else bytes(frames.data)
        self.lengths = frames.lengths
        self.starts = np.cumsum(frames.lengths) - frames.lengths
        self._keys: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def of(cls, block: KeyedFrames) -> _Block:
        return cls(block.sort_keys, block.labels, block.frames)

    @property
    def keys(self) -> list[bytes]:
        """The sort keys as bytes objects, which compare in less time than rows of an array."""
        if self._keys is None:
            self._keys = np.ascontiguousarray(self.sort_keys).view(f"V{SORT_KEY_BYTES}")[:, 0].tolist()
        return self._keys


class _Part(NamedTuple):
    """Entries ``start``..``stop`` (stop excluded) of a block."""

    block: _Block
    start: int
    stop: int

    @property
    def sort_keys(self) -> SortKeys:
        return self.block.sort_keys[self.start : self.stop]


class _Piece(NamedTuple):
    """Sorted entries that are still in their blocks.

    Entry i is entry ``place[i]`` of the block of part ``part_of[i]``. ``starts`` and ``lengths`` are the places of the
    frames in that block.
    """

    parts: list[_Part]
    sort_keys: SortKeys
    part_of: _Integers
    place: _Integers
    starts: _Integers
    lengths: _Integers

    def cut(self, start: int, stop: int) -> _Piece:
        return _Piece(
            self.parts,
            self.sort_keys[start:stop],
            self.part_of[start:stop],
            self.place[start:stop],
            self.starts[start:stop],
            self.lengths[start:stop],
        )

    def label(self, index: int) -> str:
        labels = self.parts[int(self.part_of[index])].block.labels
        return labels[int(self.place[index])]

    def labels(self) -> list[str]:
        labels = [part.block.labels for part in self.parts]
        return [labels[part][place] for part, place in zip(self.part_of.tolist(), self.place.tolist(), strict=True)]

    def frames(self) -> list[bytes | memoryview]:
        """The frames, in order."""
        data = [part.block.data for part in self.parts]
        places = zip(self.part_of.tolist(), self.starts.tolist(), (self.starts + self.lengths).tolist(), strict=True)
        return [data[part][start:stop] for part, start, stop in places]


def _gather(*pieces: _Piece) -> Frames:
    """Copy the frames of ``pieces`` from their blocks."""
    lengths = pieces[0].lengths if len(pieces) == 1 else np.concatenate([piece.lengths for piece in pieces])
    return Frames(b"".join(list(chain.from_iterable(piece.frames() for piece in pieces))), lengths)


def _gather_all(pieces: Iterable[_Piece], position: int) -> Iterator[Frames]:
    """Copy the frames of ``pieces``, some MB at a time. ``position`` is that of the first record in the split.

    They are divided between leaves of the split's fingerprint, unless records are large: hashing a part of a leaf takes
    nearly as long as hashing all of it.
    """
    waiting: list[_Piece] = []
    num_bytes = 0
    for piece in pieces:
        count = piece.lengths.size
        waiting.append(piece)
        num_bytes += int(piece.lengths.sum())
        position += count
        after_leaf = position % LEAF_EXAMPLES
        if num_bytes >= _LEAST_OUTPUT_BYTES and after_leaf < count:
            waiting[-1] = piece.cut(0, count - after_leaf)
            yield _gather(*waiting)
            waiting = [piece.cut(count - after_leaf, count)] if after_leaf else []
            num_bytes = int(waiting[0].lengths.sum()) if waiting else 0
        elif num_bytes >= _MOST_OUTPUT_BYTES:
            yield _gather(*waiting)
            waiting, num_bytes = [], 0
    if waiting:
        yield _gather(*waiting)


class _PieceLabels(Sequence[str]):
    """The labels of a piece, looked up when one is needed."""

    def __init__(self, piece: _Piece) -> None:
        self._piece = piece

    def __len__(self) -> int:
        return self._piece.lengths.size

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # slices are not needed
        return self._piece.label(index)


class _StoredLabels(Sequence[str]):
    """The labels of a block of a run, decoded when one is needed: only errors show them."""

    def __init__(self, text: bytes, lengths: npt.NDArray[np.uint32]) -> None:
        self._text = text
        self._lengths = lengths
        self._found: list[str] | None = None

    def __len__(self) -> int:
        return self._lengths.size

    def __getitem__(self, place: int) -> str:  # type: ignore[override]  # slices are not needed
        if self._found is None:
            text = self._text.decode("utf-8", "surrogatepass")
            ends = np.cumsum(self._lengths).tolist()
            self._found = [text[start:stop] for start, stop in pairwise([0, *ends])]
        return self._found[place]


class Start(NamedTuple):
    """The place of a record in the order of a split, and its sort key."""

    position: int
    key: bytes


class BlockTable(NamedTuple):
    """The blocks of a run.

    Attributes:
        first_keys: uint8 of shape (number of blocks, 16), the sort key of the first entry of each block.
        positions: int64, the number of entries before each block, and of all entries.
        offsets: int64, where each block starts in the file, and where the last one ends.
    """

    first_keys: SortKeys
    positions: _Integers
    offsets: _Integers


@dataclass(frozen=True, slots=True)
class Run:
    """One sorted run: written once by ``write_run``, read by ``blocks``, then closed."""

    _file: BinaryIO
    level: int
    table: BlockTable

    @property
    def num_bytes(self) -> int:
        """Size of the file."""
        return int(self.table.offsets[-1])

    @property
    def num_records(self) -> int:
        """Number of entries."""
        return int(self.table.positions[-1])

    @property
    def path(self) -> str:
        """The path by which other processes open the file, on systems with ``/proc``."""
        return path_of(self._file)

    def block_before(self, key: bytes) -> int:
        """The last block that starts with ``key`` or before it; the first block if there is none."""
        first_keys = self.table.first_keys.view(f"S{SORT_KEY_BYTES}")[:, 0]
        return max(0, int(np.searchsorted(first_keys, np.bytes_(key), "right")) - 1)

    def keys(self, first: int, stop: int) -> SortKeys:
        """The sort keys of blocks ``first``..``stop`` (stop excluded). Damage is found when the blocks are read."""
        found = []
        for block in range(first, stop):
            count = int(self.table.positions[block + 1] - self.table.positions[block])
            position = int(self.table.offsets[block]) + _PREFIX_BYTES
            self._file.seek(position)
            keys = _read(self._file, count * SORT_KEY_BYTES, position)
            found.append(np.frombuffer(keys, np.uint8).reshape(count, SORT_KEY_BYTES))
        return np.concatenate(found)

    def blocks(self, first: int = 0) -> Iterator[KeyedFrames]:
        """Yield every block from block ``first`` on, in the order written. Closes the run at its end.

        Raises:
            StorageError: bytes are missing or changed.
        """
        # A block is larger than the buffer, so its body is read at once.
        with open(self._file.fileno(), "rb", buffering=_LEAST_BLOCK_BYTES, closefd=False) as file:
            position = int(self.table.offsets[first])
            file.seek(position)
            while position < self.num_bytes:
                prefix = _read(file, _PREFIX_BYTES, position)
                count, label_bytes, frame_bytes = _HEAD.unpack_from(prefix)
                size = count * _ENTRY_BYTES + label_bytes + frame_bytes
                if position + _PREFIX_BYTES + size > self.num_bytes:
                    raise _damaged(position)
                body = _read(file, size, position)
                (checksum,) = _CHECKSUM.unpack_from(prefix, _HEAD.size)
                if crc32c(body, crc32c(prefix[: _HEAD.size])) != checksum:
                    raise _damaged(position)
                yield _unpack(body, count, label_bytes)
                position += _PREFIX_BYTES + size
        self.close()

    def close(self) -> None:
        """Free the disk space."""
        self._file.close()


class _RunReader:
    """The current block of a run, and the position of its next entry."""

    def __init__(self, blocks: Iterator[KeyedFrames]) -> None:
        self._blocks = blocks
        self.block: _Block
        self.position = 0

    def advance(self) -> bool:
        """Read the next block; False at the end of the run."""
        found = next(self._blocks, None)
        if found is None:
            return False
        self.block, self.position = _Block.of(found), 0
        return True

    def skip_to(self, key: bytes) -> bool:
        """Read up to the first entry with sort key ``key`` or a later one; False if there is none."""
        while self.advance():
            self.position = bisect_left(self.block.keys, key) if key else 0
            if self.position < len(self.block):
                return True
        return False

    def take_until(self, bound: bytes) -> _Part:
        """The next entries of the block, up to sort key ``bound``, included."""
        start = self.position
        self.position = bisect_right(self.block.keys, bound, start)
        return _Part(self.block, start, self.position)


def write_run(pieces: Iterable[_Piece], *, folder: Path | None, level: int, in_thread: bool) -> Run:
    """Write ``pieces``, which are sorted, to a run in ``folder`` (None: the system's temporary folder).

    ``in_thread`` gathers the next piece while a thread writes one.

    Raises:
        StorageError: the folder is not writable, or its disk is full.
    """
    file = new_file(folder)
    try:
        with storing(folder):
            return write_blocks(file, pieces, level=level, in_thread=in_thread)
    except BaseException:
        with suppress(OSError):  # closing tries to write the rest again, and fails again
            file.close()
        raise


def write_blocks(file: BinaryIO, pieces: Iterable[_Piece], *, level: int, in_thread: bool) -> Run:
    """Write ``pieces``, which are sorted, to an empty file."""
    first_keys, counts, sizes = [], [0], [0]
    with Behind(is_used=in_thread) as behind:
        for piece in pieces:
            labels = piece.labels()
            text = "".join(labels).encode("utf-8", "surrogatepass")
            label_lengths = np.fromiter(map(len, labels), np.uint32, len(labels)).tobytes()
            parts = (piece.sort_keys.tobytes(), piece.lengths.tobytes(), label_lengths, text)
            body = b"".join((*parts, *piece.frames()))
            head = _HEAD.pack(len(labels), len(text), int(piece.lengths.sum()))
            behind.call(partial(file.write, head + _CHECKSUM.pack(crc32c(body, crc32c(head)))))
            behind.call(partial(file.write, body))
            first_keys.append(piece.sort_keys[0].tobytes())
            counts.append(len(labels))
            sizes.append(_PREFIX_BYTES + len(body))
        behind.wait()
    file.flush()
    return Run(file, level, BlockTable(join_sort_keys(first_keys), np.cumsum(counts), np.cumsum(sizes)))


def new_file(folder: Path | None) -> BinaryIO:
    """An empty file without a name in ``folder`` (None: the system's temporary folder).

    Raises:
        StorageError: the folder is not writable, or its disk is full.
    """
    with storing(folder):
        return cast("BinaryIO", tempfile.TemporaryFile(dir=folder, buffering=2**20))


def path_of(file: BinaryIO) -> str:
    """The path of an open file that has no name."""
    return f"/proc/{os.getpid()}/fd/{file.fileno()}"


@contextmanager
def storing(folder: Path | None) -> Iterator[None]:
    """Report an OSError as the StorageError of sorting in ``folder``."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        where = folder or tempfile.gettempdir()
        raise StorageError(
            f"sorting: cannot write a temporary file in {where}: {error.strerror or error}",
            hint=f"Sorting needs about as much free disk space as the split has bytes. Free space in {where}.",
            details={"folder": str(where)},
        ) from error


def _unpack(body: bytes, count: int, label_bytes: int) -> KeyedFrames:
    """The entries of a block of a run."""
    lengths_at = count * SORT_KEY_BYTES
    labels_at = lengths_at + count * 8
    text_at = count * _ENTRY_BYTES
    label_lengths = np.frombuffer(body, np.uint32, count, labels_at)
    return KeyedFrames(
        np.frombuffer(body, np.uint8, lengths_at).reshape(count, SORT_KEY_BYTES),
        _StoredLabels(body[text_at : text_at + label_bytes], label_lengths),
        Frames(memoryview(body)[text_at + label_bytes :], np.frombuffer(body, np.int64, count, lengths_at)),
    )


def _read(file: BinaryIO, size: int, position: int) -> bytes:
    try:
        found = file.read(size)
    except OSError as error:
        raise _damaged(position) from error
    if len(found) != size:
        raise _damaged(position)
    return found


def _damaged(position: int) -> StorageError:
    return StorageError(
        f"sorting: a temporary file is damaged at byte {position}",
        hint="The disk lost data, or another program changed the file. Check the disk, then build again.",
        details={"offset": position},
    )
