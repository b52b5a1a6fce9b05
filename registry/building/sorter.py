"""Sorts the records of a split, which may not fit into memory: an external merge sort with a budget in bytes.

Entries are collected in memory up to the budget, sorted, and written to a run. At the end, the runs are merged while
they are read. ``FAN_IN`` runs of one size are merged into a bigger one, so that the numbers of open files and buffers
are bounded for splits of any size. Sorting puts duplicate keys next to each other, where they are found.

A run is an unlinked temporary file: it has no name, so the system removes it when the process ends for any reason. Its
format is private to one build::

    run    := entry*
    entry  := head crc32(head + label + record) label record
    head   := sort_key (16 bytes) label_length (u32) record_length (u64)

Lengths and checksums are checked when a run is read: a disk that loses bytes ends the build instead of damaging a
dataset.
"""

from __future__ import annotations

import heapq
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

from registry.errors import DuplicateKeyError, StorageError

DEFAULT_BUDGET_BYTES: Final = 64 * 2**20
FAN_IN: Final = 128
_OVERHEAD_BYTES: Final = 256  # memory of one entry: a tuple, three small objects, and a pointer in the list

_HEAD: Final = struct.Struct("<16sIQ")
_CHECKSUM: Final = struct.Struct("<I")
_PREFIX_BYTES: Final = _HEAD.size + _CHECKSUM.size

_by_sort_key = itemgetter(0)


class Entry(NamedTuple):
    """One record to sort: its sort key, its key as errors show it, and its bytes."""

    sort_key: bytes
    label: str
    record: bytes


class ExternalSorter:
    """Sorts the entries of one split by sort key, in bounded memory. A context manager that frees its disk space.

    Runs are written to ``folder`` (None: the system's temporary folder). It should be on the disk that takes the
    result, because TMPDIR is often small. The same entries give the same order for every budget.

    >>> with ExternalSorter(split="train") as sorter:
    ...     sorter.add(Entry(b"b" * 16, "2", b"second"))
    ...     sorter.add(Entry(b"a" * 16, "1", b"first"))
    ...     [entry.record for entry in sorter.sorted_entries()]
    [b'first', b'second']

    Raises:
        DuplicateKeyError: two entries have the same sort key. Found while reading, or while adding if both are in one
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
        self._held: list[Entry] = []
        self._held_bytes = 0
        self._runs: list[Run] = []  # in the order of generation, so that merging keeps it for equal keys
        self.num_examples = 0
        self.num_payload_bytes = 0

    def add(self, entry: Entry) -> None:
        """Add one entry. Writes a run when the budget is used up."""
        self._held.append(entry)
        self._held_bytes += _OVERHEAD_BYTES + len(entry.label) + len(entry.record)
        self.num_examples += 1
        self.num_payload_bytes += len(entry.record)
        if self._held_bytes >= self._budget_bytes:
            self._spill()

    def sorted_entries(self) -> Iterator[Entry]:
        """Yield every entry in the order of the sort keys. Can be called once: reading frees what was read."""
        yield from self._unique(self._merged())

    def close(self) -> None:
        """Free memory and disk space."""
        for run in self._runs:
            run.close()
        self._runs, self._held, self._held_bytes = [], [], 0

    def __enter__(self) -> ExternalSorter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _merged(self) -> Iterator[Entry]:
        if not self._runs:
            self._held.sort(key=_by_sort_key)
            return iter(self._held)
        self._spill()
        while len(self._runs) > self._fan_in:
            self._merge_last(self._fan_in)
        return self._merge(self._runs)

    def _spill(self) -> None:
        if self._held:
            self._held.sort(key=_by_sort_key)
            self._runs.append(write_run(self._unique(self._held), folder=self._folder, level=0))
            self._held, self._held_bytes = [], 0
        while len(self._runs) >= self._fan_in and self._runs[-self._fan_in].level == self._runs[-1].level:
            self._merge_last(self._fan_in)

    def _merge_last(self, count: int) -> None:
        """Merge the last ``count`` runs, which are the smallest, into one."""
        last = self._runs[-count:]
        merged = write_run(self._merge(last), folder=self._folder, level=last[0].level + 1)
        self._runs[-count:] = [merged]

    def _merge(self, runs: list[Run]) -> Iterator[Entry]:
        buffer_bytes = max(4096, min(2**20, self._budget_bytes // (2 * len(runs))))
        return heapq.merge(*(run.entries(buffer_bytes=buffer_bytes) for run in runs), key=_by_sort_key)

    def _unique(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield sorted entries; raises DuplicateKeyError at the second one with a sort key."""
        previous = Entry(b"", "", b"")
        for entry in entries:
            if entry.sort_key == previous.sort_key:
                raise self._duplicate(previous.label, entry.label)
            previous = entry
            yield entry

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


@dataclass(frozen=True, slots=True)
class Run:
    """One sorted run: written once by ``write_run``, read once by ``entries``, then closed."""

    _file: BinaryIO
    num_bytes: int
    level: int

    def entries(self, *, buffer_bytes: int) -> Iterator[Entry]:
        """Yield every entry in the order written, reading ``buffer_bytes`` at a time. Closes the run at its end.

        Raises:
            StorageError: bytes are missing or changed.
        """
        # Our own buffer over the raw file: its size depends on the number of runs that are read at once.
        with open(self._file.fileno(), "rb", buffering=max(buffer_bytes, 4096), closefd=False) as file:
            file.seek(0)
            position = 0
            while position < self.num_bytes:
                prefix = _read(file, _PREFIX_BYTES, position)
                sort_key, label_length, record_length = _HEAD.unpack_from(prefix)
                size = label_length + record_length
                if position + _PREFIX_BYTES + size > self.num_bytes:
                    raise _damaged(position)
                body = _read(file, size, position)
                (checksum,) = _CHECKSUM.unpack_from(prefix, _HEAD.size)
                if zlib.crc32(body, zlib.crc32(prefix[: _HEAD.size])) != checksum:
                    raise _damaged(position)
                yield Entry(sort_key, body[:label_length].decode(), body[label_length:])
                position += _PREFIX_BYTES + size
        self.close()

    def close(self) -> None:
        """Free the disk space."""
        self._file.close()


def write_run(entries: Iterable[Entry], *, folder: Path | None, level: int) -> Run:
    """Write ``entries``, which are sorted, to a run in ``folder`` (None: the system's temporary folder).

    Raises:
        StorageError: the folder is not writable, or its disk is full.
    """
    try:
        file = cast("BinaryIO", tempfile.TemporaryFile(dir=folder, buffering=2**20))  # noqa: SIM115 - the Run closes it
        try:
            for sort_key, label, record in entries:
                label_bytes = label.encode()
                head = _HEAD.pack(sort_key, len(label_bytes), len(record))
                checksum = zlib.crc32(record, zlib.crc32(label_bytes, zlib.crc32(head)))
                file.write(head + _CHECKSUM.pack(checksum) + label_bytes)
                file.write(record)
            file.flush()
            num_bytes = file.tell()
        except BaseException:
            with suppress(OSError):  # closing tries to write the rest again, and fails again
                file.close()
            raise
    except StorageError:
        raise
    except OSError as error:
        where = folder or tempfile.gettempdir()
        raise StorageError(
            f"sorting: cannot write a temporary file in {where}: {error.strerror or error}",
            hint=f"Sorting needs about as much free disk space as the split has bytes. Free space in {where}.",
            details={"folder": str(where)},
        ) from error
    return Run(file, num_bytes, level)


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
