"""Sorted runs: files of records in the order of their sort keys, which one build writes and reads.

The format is private to one version of this package::

    run    := block*
    block  := head crc32c(head + body) body
    head   := num_entries (u32) label_bytes (u64) frame_bytes (u64)
    body   := sort_key (16 bytes)* frame_length (i64)* label_length (u32)* labels frames

A run that another build may continue from ends with its table::

    end    := first_key (16 bytes)* position (i64)* offset (i64)* num_blocks (u64) num_payload_bytes (u64)
              is_numbered (i8) crc32c(all before)

A reader has the table of the blocks, and checks lengths and checksums: a disk that loses bytes ends the build instead
of damaging a dataset. ``sorter`` writes and merges runs; ``run_files`` has the files that they are in.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from registry.building.keys import SORT_KEY_BYTES, SortKeys, join_sort_keys
from registry.building.run_files import NamedRunFile, RunSource, UnnamedFile
from registry.engines import call_in_thread
from registry.errors import NotStoredError, StorageError, StorageUnavailableError
from registry.tfrecord import Frames
from registry.tfrecord.framing import crc32c

_HEAD: Final = struct.Struct("<IQQ")
_CHECKSUM: Final = struct.Struct("<I")
_PREFIX_BYTES: Final = _HEAD.size + _CHECKSUM.size
_END: Final = struct.Struct("<QQb")
_MOST_AHEAD: Final = 3  # blocks of at most 1 MB in memory while one is written
_ENTRY_BYTES: Final = SORT_KEY_BYTES + 8 + 4  # sort key, length of the frame, length of the label

_Integers = npt.NDArray[np.int64]


class KeyedFrames(NamedTuple):
    """A block of records to sort.

    Attributes:
        sort_keys: uint8 of shape (number of records, 16); ``hash_keys`` makes them.
        labels: the key of each record as errors show it. A sequence may create them when they are needed. None if no
            key can be used twice.
        frames: the records, framed by ``frame_records``.
    """

    sort_keys: SortKeys
    labels: Sequence[str] | None
    frames: Frames

    @property
    def num_records(self) -> int:
        """Number of records."""
        return self.frames.num_records

    @property
    def num_payload_bytes(self) -> int:
        """Sum of the lengths of the records in bytes."""
        return self.frames.num_payload_bytes


class Start(NamedTuple):
    """The place of a record in the order of a split, and its sort key."""

    position: int
    key: bytes


class KeyRange(NamedTuple):
    """Sort keys ``start``..``stop`` (stop excluded). ``stop=None`` is behind the last one."""

    start: bytes
    stop: bytes | None


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

    @property
    def num_records(self) -> int:
        """Number of entries."""
        return int(self.positions[-1])

    @property
    def keys(self) -> npt.NDArray[np.bytes_]:
        """The first keys as bytes, which NumPy compares. It drops zeros at their ends, which keeps their order."""
        result: npt.NDArray[np.bytes_] = self.first_keys.view(f"S{SORT_KEY_BYTES}")[:, 0]
        return result

    def part(self, first: int, stop: int) -> BlockTable:
        """Blocks ``first``..``stop`` (stop excluded), as the table of a run that has only these."""
        positions = self.positions[first : stop + 1]
        return BlockTable(self.first_keys[first:stop], positions - positions[0], self.offsets[first : stop + 1])

    @classmethod
    def chained(cls, tables: Sequence[BlockTable]) -> BlockTable:
        """The table of a run whose files, one behind the other, have these tables."""
        befores = zip(accumulate(int(table.positions[-1]) for table in tables), tables[1:], strict=False)
        positions = [tables[0].positions, *(table.positions[1:] + before for before, table in befores)]
        befores = zip(accumulate(int(table.offsets[-1]) for table in tables), tables[1:], strict=False)
        offsets = [tables[0].offsets, *(table.offsets[1:] + before for before, table in befores)]
        first_keys = np.concatenate([table.first_keys for table in tables])
        return cls(first_keys, np.concatenate(positions), np.concatenate(offsets))


class RunEnd(NamedTuple):
    """What the end of a stored run has besides its table.

    Attributes:
        num_payload_bytes: the sum of the lengths of the records.
        is_numbered: without shuffling, whether the keys are numbers. None if there is no record.
    """

    num_payload_bytes: int
    is_numbered: bool | None


def pack_end(table: BlockTable, end: RunEnd) -> bytes:
    """The end of a stored run."""
    is_numbered = -1 if end.is_numbered is None else end.is_numbered
    head = _END.pack(len(table.first_keys), end.num_payload_bytes, is_numbered)
    content = b"".join((*(array.tobytes() for array in table), head))
    return content + _CHECKSUM.pack(crc32c(content))


def read_end(file: NamedRunFile) -> tuple[BlockTable, RunEnd] | None:
    """What ``pack_end`` wrote to a stored run; None if the file is missing, or its end is damaged.

    Raises:
        StorageUnavailableError: the store does not answer.
    """
    head_bytes = _END.size + _CHECKSUM.size
    try:
        num_bytes = file.num_bytes
        head = file.read_at(max(0, num_bytes - head_bytes), head_bytes)
        count, num_payload_bytes, is_numbered = _END.unpack_from(head)
        start = num_bytes - head_bytes - count * (SORT_KEY_BYTES + 16) - 16
        if start < 0:
            return None
        arrays = file.read_at(start, num_bytes - head_bytes - start)
    except StorageUnavailableError:
        raise
    except (StorageError, struct.error):
        return None
    finally:
        file.close()
    first_keys = np.frombuffer(arrays, np.uint8, count * SORT_KEY_BYTES).reshape(count, SORT_KEY_BYTES)
    positions, offsets = np.frombuffer(arrays, np.int64, offset=first_keys.nbytes).reshape(2, count + 1)
    is_sound = _CHECKSUM.pack(crc32c(head[: _END.size], crc32c(arrays))) == head[_END.size :]
    is_rising = (np.diff(positions) > 0).all() and (np.diff(offsets) > 0).all()
    if not is_sound or not is_rising or positions[0] or offsets[0] or offsets[-1] != start:
        return None
    end = RunEnd(num_payload_bytes, None if is_numbered < 0 else bool(is_numbered))
    return BlockTable(first_keys, positions, offsets), end


@dataclass(frozen=True, slots=True)
class Run:
    """One sorted run: written once by ``write_run``, read by ``blocks``, then closed."""

    file: RunSource
    level: int
    table: BlockTable

    @property
    def num_bytes(self) -> int:
        """The end of the last block in the file."""
        return int(self.table.offsets[-1])

    @property
    def num_records(self) -> int:
        """Number of entries."""
        return self.table.num_records

    def block_before(self, key: bytes) -> int:
        """The last block that starts with ``key`` or before it; the first block if there is none."""
        return max(0, self.num_blocks_until(key) - 1)

    def num_blocks_until(self, key: bytes) -> int:
        """The number of blocks that start with ``key`` or before it."""
        return int(np.searchsorted(self.table.keys, np.bytes_(key), "right"))

    def num_blocks_before(self, key: bytes | None) -> int:
        """The number of blocks that start before ``key``; of all blocks for None."""
        if key is None:
            return len(self.table.first_keys)
        return int(np.searchsorted(self.table.keys, np.bytes_(key), "left"))

    def keys(self, first: int, stop: int) -> SortKeys:
        """The sort keys of blocks ``first``..``stop`` (stop excluded). Damage is found when the blocks are read."""
        result = []
        for block in range(first, stop):
            count = int(self.table.positions[block + 1] - self.table.positions[block])
            position = int(self.table.offsets[block]) + _PREFIX_BYTES
            with self._reading(position):
                keys = self.file.read_at(position, count * SORT_KEY_BYTES)
            if len(keys) != count * SORT_KEY_BYTES or not keys.startswith(self.table.first_keys[block].tobytes()):
                raise self._damaged(position)
            result.append(np.frombuffer(keys, np.uint8).reshape(count, SORT_KEY_BYTES))
        return np.concatenate(result)

    def blocks(self, first: int = 0) -> Iterator[KeyedFrames]:
        """Yield every block from block ``first`` on, in the order written. Closes the run at its end.

        Raises:
            StorageError: bytes are missing or changed.
        """
        position = int(self.table.offsets[first])
        with self._reading(position):
            file = self.file.stream(position, self.num_bytes)
        with file:
            for index in range(first, len(self.table.first_keys)):
                yield self._read_block(file, index)
        self.close()

    def _read_block(self, file: BinaryIO, index: int) -> KeyedFrames:
        """Read the next block. Its checksum may be right although it is the block of another run."""
        position = int(self.table.offsets[index])
        num_entries = int(self.table.positions[index + 1] - self.table.positions[index])
        prefix = self._read(file, _PREFIX_BYTES, position)
        count, label_bytes, frame_bytes = _HEAD.unpack_from(prefix)
        size = count * _ENTRY_BYTES + label_bytes + frame_bytes
        if count != num_entries or position + _PREFIX_BYTES + size != self.table.offsets[index + 1]:
            raise self._damaged(position)
        body = self._read(file, size, position)
        (checksum,) = _CHECKSUM.unpack_from(prefix, _HEAD.size)
        if crc32c(body, crc32c(prefix[: _HEAD.size])) != checksum:
            raise self._damaged(position)
        block = _unpack(body, count, label_bytes)
        if (block.sort_keys[0] != self.table.first_keys[index]).any():
            raise self._damaged(position)
        return block

    def _read(self, file: BinaryIO, size: int, position: int) -> bytes:
        with self._reading(position):
            result = file.read(size)
        if len(result) != size:
            raise self._damaged(position)
        return result

    @contextmanager
    def _reading(self, position: int) -> Iterator[None]:
        """Report an OSError as damage, unless a store does not answer."""
        try:
            yield
        except StorageUnavailableError:
            raise
        except NotStoredError as error:
            raise StorageError(
                f"sorting: the run {self.file.name} is missing",
                hint="Another build of this version has probably ended, and removed it. Build again.",
                details={"file": self.file.name},
            ) from error
        except OSError as error:
            raise self._damaged(position) from error

    def _damaged(self, position: int) -> StorageError:
        """The error for missing or changed bytes. The next build writes the run anew, if it was kept for it."""
        self.file.forget()
        subject, hint = "a temporary file", "Check the disk, then build again."
        if self.file.name:
            subject, hint = f"the run {self.file.name}", "Build again: the run is written anew."
        return StorageError(
            f"sorting: {subject} is damaged at byte {position}",
            hint=f"The disk lost data, or another program changed the file. {hint}",
            details={"offset": position, "file": self.file.name},
        )

    def close(self) -> None:
        """Free the disk space, unless the file has a name."""
        self.file.close()


def write_run(blocks: Iterable[KeyedFrames], *, folder: Path | None, level: int, in_thread: bool) -> Run:
    """Write ``blocks``, which are sorted, to a run in ``folder`` (None: the system's temporary folder).

    ``in_thread`` gathers the next block while a thread writes one.

    Raises:
        StorageError: the folder is not writable, or its disk is full.
    """
    file = UnnamedFile(folder)
    try:
        with file.create() as opened:
            table = write_blocks(opened, blocks, in_thread=in_thread)
    except BaseException:
        with suppress(OSError):  # closing tries to write the rest again, and fails again
            file.close()
        raise
    return Run(file, level, table)


def write_blocks(file: BinaryIO, blocks: Iterable[KeyedFrames], *, in_thread: bool) -> BlockTable:
    """Write ``blocks``, which are sorted, to an empty file."""
    first_keys, counts, sizes = [], [0], [0]

    def contents() -> Iterator[tuple[bytes, bytes | memoryview]]:
        for sort_keys, labels, frames in blocks:
            labels = labels or ()  # noqa: PLW2901 (no labels)
            text = "".join(labels).encode("utf-8", "surrogatepass")
            label_lengths = np.zeros(frames.num_records, np.uint32)
            label_lengths[: len(labels)] = np.fromiter(map(len, labels), np.uint32, len(labels))
            arrays = (array.tobytes() for array in (sort_keys, frames.lengths, label_lengths))
            start = b"".join((*arrays, text))
            head = _HEAD.pack(frames.num_records, len(text), len(frames.data))
            checksum = crc32c(frames.data, crc32c(start, crc32c(head)))
            first_keys.append(sort_keys[0].tobytes())
            counts.append(frames.num_records)
            sizes.append(_PREFIX_BYTES + len(start) + len(frames.data))
            yield head + _CHECKSUM.pack(checksum) + start, frames.data

    def write(parts: tuple[bytes, bytes | memoryview]) -> None:
        for part in parts:
            file.write(part)

    for _ in call_in_thread(write, contents(), most=_MOST_AHEAD, is_used=in_thread):
        pass
    return BlockTable(join_sort_keys(first_keys), np.cumsum(counts), np.cumsum(sizes))


def _unpack(body: bytes, count: int, label_bytes: int) -> KeyedFrames:
    """The entries of a block of a run."""
    lengths_at = count * SORT_KEY_BYTES
    labels_at = lengths_at + count * 8
    text_at = count * _ENTRY_BYTES
    label_lengths = np.frombuffer(body, np.uint32, count, labels_at)
    return KeyedFrames(
        np.frombuffer(body, np.uint8, lengths_at).reshape(count, SORT_KEY_BYTES),
        _StoredLabels(body[text_at : text_at + label_bytes], label_lengths) if label_bytes else None,
        Frames(memoryview(body)[text_at + label_bytes :], np.frombuffer(body, np.int64, count, lengths_at)),
    )


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
