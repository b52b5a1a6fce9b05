"""Opens a TFRecord file to read any of its records, many at once.

A plain local file is mapped. Its frames are walked once, as far as needed, and their positions are kept in an index for
the next time. Every frame that is returned is still checked, and an index that does not match the file is dropped.

A gzip file, or a file on another machine, is read forwards from its start, or from the gzip member with the first
requested record, and stays open between forward reads. For random access, its content is copied to a nameless temporary
file, which the operating system removes when it is closed.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import BinaryIO, Final

import numpy as np

from registry.errors import CorruptRecordError, ShardMismatchError, StorageError
from registry.storage import Store
from registry.storage.faults import StoredFile, storage_errors
from registry.tfrecord.block import (
    FrameFault,
    Octets,
    Places,
    RecordBlock,
    Verify,
    check_verify,
    find_fault,
    join_blocks,
)
from registry.tfrecord.framing import (
    FRAMING_BYTES,
    HEADER_BYTES,
    ByteStream,
    DamagedStreamError,
    FilePlace,
    cut_short,
    is_header,
    no_such_record,
    not_so_many,
)
from registry.tfrecord.index import FramePlaces, IndexFolder
from registry.tfrecord.streams import MOST_INFLATION, Member, MembersAhead, find_members, is_gzip, stream_pieces
from registry.tfrecord.window import Window


def open_shard(
    store: Store,
    name: str,
    *,
    num_records: int | None = None,
    verify: Verify = "record",
    indexes: IndexFolder | None = None,
) -> MappedShard | StreamedShard:
    """Open a shard file to read any of its records.

    Args:
        store: the folder.
        name: the file's name in it.
        num_records: the number of records that it should have, or None if unknown.
        verify: ``record`` checks the checksum of each record separately; ``block`` checks many records of equal length
            in one pass over their bytes, which finds the same damage; ``off`` checks only the lengths.
        indexes: the folder in which the positions of records are kept for the next time; None keeps nothing.

    Raises:
        StorageError: the file is missing, or cannot be read.
        UsageError: ``verify`` has another value.
    """
    check_verify(verify)
    file, path = store.open(name), store.locate(name)
    mapped = file.mapping()
    if mapped is None or is_gzip(mapped[:HEADER_BYTES]):
        return StreamedShard(file, path, num_records=num_records, verify=verify)
    with file, storage_errors("read", path):
        facts = os.fstat(file.fileno())
    return MappedShard(mapped, path, facts, num_records=num_records, verify=verify, indexes=indexes)


class MappedShard:
    """A shard file that is mapped into memory."""

    def __init__(
        self,
        mapped: mmap.mmap | None,
        path: str,
        facts: os.stat_result,
        *,
        num_records: int | None,
        verify: Verify,
        compressed: bool = False,
        indexes: IndexFolder | None = None,
    ) -> None:
        self._mapped = mapped
        # numpy keeps the mapping alive as long as a view of it exists.
        self._data: Octets = np.frombuffer(b"" if mapped is None else mapped, np.uint8)
        self._path = path
        self._num_records = num_records
        self._verify = verify
        self._compressed = compressed
        self._places = FramePlaces(self._data, path, facts, num_records=num_records, indexes=indexes)

    def read(self, first: int, count: int) -> RecordBlock:
        """Read records ``first`` to ``first + count``, checked; for errors see ``registry.shards.ShardReader``."""
        stop = first + count
        self._check_promise(stop)
        starts = self._places.up_to(stop, first=first)
        known = starts[first : stop + 1]
        frames, lengths = known[:-1], known[1:] - known[:-1] - FRAMING_BYTES
        fault = self._fault(frames, lengths)
        if fault is None and known.size == count + 1:
            self._places.keep()
            if stop == self._num_records:
                self._check_end(stop, int(known[-1]) if count else int(starts[stop]))
            return RecordBlock(self._data, frames + HEADER_BYTES, lengths)
        if self._places.distrust():
            return self.read(first, count)
        if fault is not None:
            self._places.end_at(first + fault.place)
            raise self._error(first + fault.place, int(known[fault.place]), fault)
        raise self._too_short(stop, found=starts.size - 1, end=int(starts[-1]))

    def gather(self, records: Places) -> RecordBlock:
        """These records, checked, in this order."""
        stop = int(records.max()) + 1 if records.size else 0
        self._check_promise(stop)
        starts = self._places.up_to(stop, records=records)
        if starts.size <= stop:
            if self._places.distrust():
                return self.gather(records)
            raise self._too_short(stop, found=starts.size - 1, end=int(starts[-1]))
        frames = starts[records]
        lengths = starts[records + 1] - frames - FRAMING_BYTES
        fault = self._fault(frames, lengths)
        if fault is None:
            self._places.keep()
            return RecordBlock(self._data, frames + HEADER_BYTES, lengths)
        if self._places.distrust():
            return self.gather(records)
        raise self._error(int(records[fault.place]), int(frames[fault.place]), fault)

    def _fault(self, frames: Places, lengths: Places) -> FrameFault | None:
        stops = frames + lengths
        outside = (frames < 0) | (lengths < 0) | (stops > self._data.size - FRAMING_BYTES)
        if outside.any():  # the index is wrong
            return FrameFault(int(outside.argmax()), in_header=True)
        return find_fault(self._data, frames, lengths, verify=self._verify)

    def _check_promise(self, stop: int) -> None:
        if self._mapped is not None and (now := self._mapped.size()) < self._data.size:
            raise cut_short(self._path, was=self._data.size, now=now)  # reading the lost pages would kill the process
        if self._num_records is not None and stop > self._num_records:
            raise no_such_record(self._path, stop - 1, found=self._num_records)

    def _check_end(self, num_records: int, end: int) -> None:
        """Check that the file ends after its last expected record."""
        if end == self._data.size:
            return
        place = self._place(num_records, end)
        if self._data.size - end < HEADER_BYTES:
            raise place.cut_off(HEADER_BYTES, end=self._data.size)
        if not is_header(bytes(self._data[end : end + HEADER_BYTES])):
            raise place.bad_header()
        raise not_so_many(self._path, num_records, found=num_records, more=True)

    def _too_short(self, stop: int, *, found: int, end: int) -> CorruptRecordError | ShardMismatchError:
        """Make the error for a file with only ``found`` sound records, which end at byte ``end``."""
        if end == self._data.size:
            if self._num_records is not None:
                return not_so_many(self._path, self._num_records, found=found)
            return no_such_record(self._path, stop - 1, found=found)
        return self._error(found, end, FrameFault(0, in_header=True))

    def _error(self, record: int, start: int, fault: FrameFault) -> CorruptRecordError:
        place = self._place(record, start)
        header = bytes(self._data[start : start + HEADER_BYTES])
        if len(header) < HEADER_BYTES:
            return place.cut_off(HEADER_BYTES, end=self._data.size)
        if not is_header(header):
            return place.bad_header()
        length = int.from_bytes(header[:8], "little")
        if fault.in_header:
            return place.cut_off(length + FRAMING_BYTES, end=self._data.size)
        return place.bad_payload(length)

    def _place(self, record: int, start: int) -> FilePlace:
        return FilePlace(self._path, self._compressed, record, start)


_DENSE: Final = 4
"""Scattered records are read by reading everything between them, if at least one in 4 is requested."""


class StreamedShard:
    """A shard file that is read forwards: a gzip file, or a file on another machine."""

    def __init__(self, file: StoredFile, path: str, *, num_records: int | None, verify: Verify) -> None:
        self._file = file
        self._path = path
        self._num_records = num_records
        self._verify = verify
        self._window: Window | None = None
        self._copy: MappedShard | None = None
        self._may_copy = True

    def read(self, first: int, count: int) -> RecordBlock:
        """Read records ``first`` to ``first + count``, checked."""
        stop = first + count
        if self._num_records is not None and stop > self._num_records:
            raise no_such_record(self._path, stop - 1, found=self._num_records)
        if self._copy is not None:
            return self._copy.read(first, count)
        window = self._window_at(first)
        while window.record < first:
            self._step(window, first - window.record, "off", stop)
        blocks = []
        while window.record < stop:
            blocks.append(self._step(window, stop - window.record, self._verify, stop))
        if stop == self._num_records:
            window.check_end()
        return join_blocks(blocks)

    def gather(self, records: Places) -> RecordBlock:
        """These records, checked, in this order."""
        if not records.size:
            return join_blocks([])
        first, last = int(records.min()), int(records.max())
        window = self._window
        is_ahead = window is not None and window.record <= first and last - first < _DENSE * records.size
        if self._copy is None and not is_ahead and self._may_copy:
            self._copy_content()
        if self._copy is not None:
            return self._copy.gather(records)
        if is_ahead:
            return self.read(first, last - first + 1).take(records - first)
        ordered = np.unique(records)
        found = join_blocks([self.read(record, 1) for record in ordered.tolist()])
        return found.take(np.searchsorted(ordered, records))

    def __del__(self) -> None:
        self._file.close()

    def _step(self, window: Window, most: int, verify: Verify, stop: int) -> RecordBlock:
        """Take the next records that are in the window, at least one."""
        try:
            return window.take(most, verify)
        except EOFError:
            if self._num_records is not None:
                raise not_so_many(self._path, self._num_records, found=window.record) from None
            raise no_such_record(self._path, stop - 1, found=window.record) from None

    def _window_at(self, first: int) -> Window:
        """Return a window at or before record ``first``: the open one, or a new one."""
        window = self._window
        if window is not None and window.record == first:
            return window
        place = bisect_right(self._members, first, key=lambda member: member.first_record) - 1
        begins = self._members[place].first_record if place >= 0 else 0
        if window is None or window.record > first or begins > window.record:
            self._window = window = self._open(max(place, 0))
        return window

    @cached_property
    def _members(self) -> list[Member]:
        """The gzip members of the file that state their size and records."""
        return find_members(self._file)

    def _open(self, first_member: int = 0) -> Window:
        """Open a window at the start of a member, or of the file; the previous window must not be used again."""
        file, path = self._file, self._path
        if not self._members:
            file.seek(0)
            stream = stream_pieces(file.read, file.read(HEADER_BYTES), size=file.num_bytes, path=path)
            return Window(stream, record=0, base=0)
        members = self._members[first_member:]
        limit = MOST_INFLATION * file.num_bytes
        stream = ByteStream(path=path, start=b"", more=MembersAhead(file, members), limit=limit, compressed=True)
        claims = {one.content_start: one.first_record for one in members}
        first = members[0]
        return Window(stream, record=first.first_record, base=first.content_start, claims=claims)

    def _copy_content(self) -> None:
        """Copy the content to a mapped temporary file. A damaged stream is not copied but read record by record."""
        self._window, window = None, self._open()
        with self._temporary_file() as file:
            try:
                for piece in window.pieces() if window.is_compressed else self._file.pieces():
                    file.write(piece)
                file.flush()
            except DamagedStreamError:
                self._may_copy = False
                return
            with storage_errors("read", self._path):
                facts = os.fstat(file.fileno())
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if facts.st_size else None
            self._copy = MappedShard(
                mapped,
                self._path,
                facts,
                num_records=self._num_records,
                verify=self._verify,
                compressed=window.is_compressed,
            )

    @contextmanager
    def _temporary_file(self) -> Iterator[BinaryIO]:
        try:
            with tempfile.TemporaryFile(prefix="registry-") as file:
                yield file
        except StorageError:
            raise
        except OSError as error:
            path = self._path
            failed = StorageError(
                f"cannot copy the content of {path} to a temporary file: {error.strerror or error}",
                hint="Random access needs space for the content of the file: set TMPDIR to a folder with free space.",
                details={"path": path, "errno": error.errno, "doing": "copy"},
            )
            failed.errno = error.errno
            raise failed from error
