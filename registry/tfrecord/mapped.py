"""Reads any records of a TFRecord file that is mapped into memory.

Its frames are walked once, as far as needed, and their positions are kept in an index for the next time. Every frame
that is returned is still checked, and an index that does not match the file is dropped.
"""

from __future__ import annotations

import mmap

import numpy as np

from registry.errors import CorruptRecordError, ShardMismatchError
from registry.storage.memory import State
from registry.tfrecord.block import FrameFault, Octets, Places, RecordBlock, Verify, find_fault, find_fault_of_few
from registry.tfrecord.framing import (
    FRAMING_BYTES,
    HEADER_BYTES,
    FilePlace,
    cut_short,
    is_header,
    no_such_record,
    not_so_many,
)
from registry.tfrecord.index import IndexFolder, WalkedPlaces


class MappedShard:
    """A shard file that is mapped into memory."""

    def __init__(
        self,
        mapped: mmap.mmap | None,
        path: str,
        state: State | None,
        *,
        num_records: int | None,
        verify: Verify,
        compressed: bool = False,
        indexes: IndexFolder | None = None,
    ) -> None:
        """Read the file ``mapped``; its index is kept in ``indexes`` for the file at ``path`` in this ``state``."""
        self._mapped = mapped
        # numpy keeps the mapping alive as long as a view of it exists.
        self._data: Octets = np.frombuffer(b"" if mapped is None else mapped, np.uint8)
        self._view = self._data.data.toreadonly()
        self._path = path
        self._num_records = num_records
        self._verify = verify
        self._compressed = compressed
        self._places = WalkedPlaces(self._data, path, state, num_records=num_records, indexes=indexes)

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
        if self._places.distrust_index():
            return self.read(first, count)
        if fault is not None:
            self._places.end_at(first + fault.place)
            raise self._error(first + fault.place, int(known[fault.place]), fault)
        raise self._too_short(stop, found=starts.size - 1, end=int(starts[-1]))

    def view(self, record: int) -> memoryview | None:
        """One record, checked; None if ``read`` has to find it first, to check the end of the file, or to raise."""
        bounds = self._places.bounds_of(record)
        if bounds is None or record + 1 == self._num_records or self._cut_size() is not None:
            return None
        frame, end = bounds
        start, stop = frame + HEADER_BYTES, end - FRAMING_BYTES + HEADER_BYTES
        if not 0 <= frame < start <= stop < end <= len(self._view):
            return None
        if find_fault_of_few(self._view, [frame], [stop - start], verify=self._verify) is not None:
            return None
        return self._view[start:stop]

    def gather(self, records: Places) -> RecordBlock:
        """These records, checked, in this order."""
        stop = int(records.max()) + 1 if records.size else 0
        self._check_promise(stop)
        starts = self._places.up_to(stop, first=stop)
        if starts.size <= stop:
            if self._places.distrust_index():
                return self.gather(records)
            raise self._too_short(stop, found=starts.size - 1, end=int(starts[-1]))
        frames = starts[records]
        lengths = starts[records + 1] - frames - FRAMING_BYTES
        fault = self._fault(frames, lengths)
        if fault is None:
            self._places.keep()
            return RecordBlock(self._data, frames + HEADER_BYTES, lengths)
        if self._places.distrust_index():
            return self.gather(records)
        raise self._error(int(records[fault.place]), int(frames[fault.place]), fault)

    def _fault(self, frames: Places, lengths: Places) -> FrameFault | None:
        stops = frames + lengths
        outside = (frames < 0) | (lengths < 0) | (stops > self._data.size - FRAMING_BYTES)
        if outside.any():  # the index is wrong
            return FrameFault(int(outside.argmax()), in_header=True)
        return find_fault(self._data, frames, lengths, verify=self._verify)

    def _check_promise(self, stop: int) -> None:
        if (now := self._cut_size()) is not None:
            raise cut_short(self._path, was=self._data.size, now=now)  # reading the lost pages would kill the process
        if self._num_records is not None and stop > self._num_records:
            raise no_such_record(self._path, stop - 1, found=self._num_records)

    def _cut_size(self) -> int | None:
        """The size of the file if it is shorter than it was when it was mapped, otherwise None."""
        size = len(self._view) if self._mapped is None else self._mapped.size()
        return size if size < len(self._view) else None

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
