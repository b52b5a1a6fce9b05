"""Which records of a shard file are wanted? Any of them, many at once: the reading side of a file on this machine.

The file is mapped. Where its records lie is walked once, as far as somebody asks, and kept for the next time; every
frame that is handed out is checked all the same. An index that does not fit the file is dropped and made again.
"""

from __future__ import annotations

import mmap
import os
from typing import BinaryIO, Protocol

import numpy as np

from registry.errors import CorruptRecordError, ShardMismatchError
from registry.storage import Store
from registry.storage.faults import storage_errors
from registry.tfrecord.block import Octets, Places, RecordBlock
from registry.tfrecord.checking import FrameFault, Verify, check_verify, find_fault
from registry.tfrecord.faults import FRAMING_BYTES, HEADER_BYTES, FilePlace, cut_short, no_such_record, not_so_many
from registry.tfrecord.framing import is_header
from registry.tfrecord.index import IndexFolder
from registry.tfrecord.places import FramePlaces
from registry.tfrecord.streams import is_gzip


class Shard(Protocol):
    """The records of one file, by their index in it. Used by one thread at a time."""

    def read(self, first: int, count: int) -> RecordBlock:
        """Records ``first`` to ``first + count``, checked.

        Raises:
            CorruptRecordError: one of them is damaged; those before it can be read.
            ShardMismatchError: the file holds fewer, or is read to its end and holds more than it should.
            StorageError: the file cannot be read.
        """

    def gather(self, records: Places) -> RecordBlock:
        """These records, checked, in this order; one may be asked for twice. Errors as ``read``."""


def open_shard(
    store: Store,
    name: str,
    *,
    num_records: int | None = None,
    verify: Verify = "record",
    indexes: IndexFolder | None = None,
) -> Shard:
    """Open a shard file to read any of its records.

    Args:
        store: the folder.
        name: of the file in it.
        num_records: how many records it should hold; None where nobody knows.
        verify: ``record`` checks the checksum of each record by itself; ``block`` those of many records of one length
            in one pass over their bytes, which finds the same damage; ``off`` checks the lengths alone.
        indexes: where the places of records are kept for the next time; None keeps nothing.

    Raises:
        StorageError: it is missing, or cannot be read.
        UsageError: another ``verify``.
    """
    from registry.tfrecord.streamed import StreamedShard

    check_verify(verify)
    if store.local_root is None:
        return StreamedShard(store, name, num_records=num_records, verify=verify)
    path = store.locate(name)
    with store.open(name) as file:
        mapped, facts = map_file(file, path)
    if mapped is not None and is_gzip(mapped[:HEADER_BYTES]):
        return StreamedShard(store, name, num_records=num_records, verify=verify)
    return MappedShard(mapped, path, facts, num_records=num_records, verify=verify, indexes=indexes)


def map_file(file: BinaryIO, path: str) -> tuple[mmap.mmap | None, os.stat_result]:
    """An open file's bytes, mapped: None where there are none, which cannot be mapped. It may be closed then."""
    with storage_errors("read", path):
        facts = os.fstat(file.fileno())
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if facts.st_size else None, facts


class MappedShard:
    """A shard whose bytes are all at hand."""

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
        # No view of the mapping outlives it: numpy holds it as long as one is left.
        self._data: Octets = np.frombuffer(b"" if mapped is None else mapped, np.uint8)
        self._path = path
        self._num_records = num_records
        self._verify = verify
        self._compressed = compressed
        self._places = FramePlaces(self._data, path, facts, num_records=num_records, indexes=indexes)

    def read(self, first: int, count: int) -> RecordBlock:
        """Records ``first`` to ``first + count``, checked."""
        stop = first + count
        self._check_promise(stop)
        starts = self._places.up_to(first, stop)
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
        starts = self._places.of(records, stop)
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
        if outside.any():  # an index that lies
            return FrameFault(int(outside.argmax()), in_header=True)
        return find_fault(self._data, frames, lengths, verify=self._verify)

    def _check_promise(self, stop: int) -> None:
        if self._mapped is not None and (now := self._mapped.size()) < self._data.size:
            raise cut_short(self._path, was=self._data.size, now=now)  # to touch what is gone would end the process
        if self._num_records is not None and stop > self._num_records:
            raise no_such_record(self._path, stop - 1, found=self._num_records)

    def _check_end(self, num_records: int, end: int) -> None:
        """Where the last record that was promised ends, the file must end."""
        if end == self._data.size:
            return
        place = self._place(num_records, end)
        if self._data.size - end < HEADER_BYTES:
            raise place.cut_off(HEADER_BYTES, end=self._data.size)
        if not is_header(bytes(self._data[end : end + HEADER_BYTES])):
            raise place.bad_header()
        raise not_so_many(self._path, num_records, found=num_records, more=True)

    def _too_short(self, stop: int, *, found: int, end: int) -> CorruptRecordError | ShardMismatchError:
        """The error for a file whose records end with record ``found``, at byte ``end``."""
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
