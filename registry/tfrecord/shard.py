"""Opens a TFRecord file to read any of its records, many at once.

plain local file               ->  MappedShard    any records, by an index that is made while they are read
gzip, or on another machine    ->  StreamedShard  forwards; any records, once their positions are known

The frames of a mapped file are walked once, as far as needed. A file on another machine is read forwards, by requests
that begin before their bytes are needed. Both keep the positions of records in an index, so that later reads find any
records directly; of a remote file, many are requested at the same time. Every frame that is returned is still checked,
and an index that does not match the file is dropped.

A gzip file is read forwards from its start, and stays open between forward reads. For random access without an index,
the content is copied to a nameless temporary file, which the operating system removes when it is closed.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import BinaryIO, Final

import numpy as np

from registry.errors import CorruptRecordError, ShardMismatchError, StorageError
from registry.storage import Store
from registry.storage.faults import Range, StoredFile, storage_errors
from registry.storage.memory import FileState, ObjectState, State
from registry.storage.remote import REQUEST_BYTES, RangedFile
from registry.tfrecord.block import (
    FrameFault,
    Octets,
    Places,
    RecordBlock,
    Verify,
    check_verify,
    find_fault,
    find_fault_of_few,
    join_blocks,
)
from registry.tfrecord.framing import (
    FRAMING_BYTES,
    HEADER_BYTES,
    ByteStream,
    DamagedStreamError,
    FilePlace,
    cut_short,
    is_gzip,
    is_header,
    no_such_record,
    not_so_many,
)
from registry.tfrecord.index import FramePlaces, IndexFolder, WalkedPlaces
from registry.tfrecord.streams import stream_pieces
from registry.tfrecord.window import WINDOW_BYTES, Window


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
        return StreamedShard(file, path, num_records=num_records, verify=verify, indexes=indexes)
    with file, storage_errors("read", path):
        state = FileState.of(os.fstat(file.fileno()))
    return MappedShard(mapped, path, state, num_records=num_records, verify=verify, indexes=indexes)


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


_DENSE: Final = 4
"""Scattered records are read by reading everything between them, if at least one in 4 is requested."""

_FIRST_BYTES: Final = 2**20
"""Size of the first request of a file that is read forwards; each further request is twice as large, up to 4 MiB.

Requests end at a multiple of it, as the blocks of the cache do, so that no block is requested twice.
"""

_AHEAD_BYTES: Final = 8 * REQUEST_BYTES

_MOST_WANTED: Final = 64
"""Groups of records that may be wanted before they are read."""


class StreamedShard:
    """A shard file that is a gzip file, or is on another machine."""

    def __init__(
        self,
        file: StoredFile,
        path: str,
        *,
        num_records: int | None,
        verify: Verify,
        indexes: IndexFolder | None = None,
    ) -> None:
        self._file = file
        self._path = path
        self._num_records = num_records
        self._verify = verify
        self._indexes = indexes
        self._state = _state_of(file)
        self._places = FramePlaces(path, self._state, num_bytes=file.num_bytes, indexes=indexes)
        self._wanted: OrderedDict[bytes, _Frames] = OrderedDict()
        self._ahead: _BytesAhead | None = _BytesAhead(file, 0) if isinstance(file, RangedFile) else None
        self._next = self._next_wanted = 0  # the records after those that were read, or are wanted
        self._window: Window | None = None
        self._copy: MappedShard | None = None
        self._may_copy = True

    def want(self, records: Places) -> int:
        """Begin to fetch ``records``, which the caller will read next; only a file on another machine does so.

        Returns:
            The number of bytes that were requested now.
        """
        if self._ahead is None or self._copy is not None or not records.size:
            return 0
        first, stop = int(records.min()), int(records.max()) + 1
        follows = False
        if stop - first == records.size and bool((records[1:] > records[:-1]).all()):
            if self._next <= first and stop <= self._next_wanted:
                return 0
            follows, self._next_wanted = first == self._next_wanted, stop
        if follows or not self._knows(records):
            return self._want_forwards(first, stop)
        key = records.tobytes()
        if key in self._wanted:
            return 0
        while len(self._wanted) >= _MOST_WANTED:
            self._wanted.popitem(last=False)
        frames = self._wanted[key] = _Frames(self._file, self._places.known, records)
        return frames.num_bytes

    def _want_forwards(self, first: int, stop: int) -> int:
        """Begin to fetch the bytes before record ``stop`` of a file that is read forwards."""
        known = self._places.known
        if 1 < known.size > first and (self._window is None or self._window.record > first):
            self._window_at(first)
        window = self._window
        record, place = (0, 0) if window is None else (window.record, window.place)
        if self._ahead is None or first < record or (window is not None and window.is_compressed):
            return 0
        if stop < known.size:
            return self._ahead.want(int(known[stop]))
        if not self._num_records:
            return 0
        # Records have different lengths; if the estimate is too small, the rest is requested when it is read.
        mean_bytes = (self._file.num_bytes - place) / max(1, self._num_records - record)
        return self._ahead.want(place + int((stop - record) * mean_bytes))

    def forget_wanted(self) -> None:
        """Drop what ``want`` began to fetch, except for the next bytes of a file that is read forwards."""
        self._wanted.clear()
        self._next_wanted = self._next

    def read(self, first: int, count: int) -> RecordBlock:
        """Read records ``first`` to ``first + count``, checked."""
        stop = first + count
        if self._num_records is not None and stop > self._num_records:
            raise no_such_record(self._path, stop - 1, found=self._num_records)
        if self._copy is not None:
            return self._copy.read(first, count)
        follows, self._next = first == self._next, stop
        self._next_wanted = max(self._next_wanted, stop) if follows else stop
        if not follows and (known := self._read_known(np.arange(first, stop))) is not None:
            return known
        self._want_forwards(first, stop)
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
        if self._copy is None and (known := self._read_known(records)) is not None:
            return known
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
        blocks = join_blocks([self.read(record, 1) for record in ordered.tolist()])
        return blocks.take(np.searchsorted(ordered, records))

    def __del__(self) -> None:
        self._file.close()

    def _knows(self, records: Places) -> bool:
        """Whether the positions of ``records`` are known. Those of a gzip file never are."""
        return records.size > 0 and int(records.max()) + 1 < self._places.known.size

    def _read_known(self, records: Places) -> RecordBlock | None:
        """Fetch records whose positions are known; None if they are unknown, or not those of sound records.

        A caller who then reads forwards finds the fault.
        """
        if not self._knows(records):
            return None
        frames = self._wanted.pop(records.tobytes(), None) or _Frames(self._file, self._places.known, records)
        block = frames.block(self._verify)
        last = self._num_records
        if block is not None and (last is None or records.max() < last - 1 or self._ends_after(last)):
            return block
        self._places.distrust()
        self._wanted.clear()
        self._window, self._ahead = None, _BytesAhead(self._file, 0)
        return None

    def _ends_after(self, num_records: int) -> bool:
        known = self._places.known
        return num_records == known.size - 1 and int(known[num_records]) == self._file.num_bytes

    def _step(self, window: Window, most: int, verify: Verify, stop: int) -> RecordBlock:
        """Take the next records that are in the window, at least one."""
        first = window.record
        try:
            block = window.take(most, verify)
        except EOFError:
            if self._num_records is not None:
                raise not_so_many(self._path, self._num_records, found=window.record) from None
            raise no_such_record(self._path, stop - 1, found=window.record) from None
        if self._ahead is not None and not window.is_compressed:
            starts = window.places_of(block)
            self._places.add(first, np.append(starts, starts[-1] + block.lengths[-1] + FRAMING_BYTES))
        return block

    def _window_at(self, first: int) -> Window:
        """Return a window at or before record ``first``: the open one, or a new one."""
        window = self._window
        if window is not None and window.record == first:
            return window
        known = self._places.known
        if self._ahead is not None and known.size > 1:
            if window is None or window.record > first or int(known[min(first, known.size - 1)]) > self._ahead.end:
                self._window = window = self._open_at(min(first, known.size - 1))
            return window
        if window is None or window.record > first:
            self._window = window = self._open()
        return window

    @cached_property
    def _start(self) -> bytes:
        """The first bytes of the file."""
        if self._ahead is not None:
            return self._ahead.read(HEADER_BYTES)
        self._file.seek(0)
        return self._file.read(HEADER_BYTES)

    def _open(self) -> Window:
        """Open a window at the start of the file; the previous window must not be used again."""
        stream = stream_pieces(self._reader(), self._start, size=self._file.num_bytes, path=self._path)
        return Window(stream, record=0, base=0, least_bytes=WINDOW_BYTES if self._ahead is None else HEADER_BYTES)

    def _open_at(self, record: int) -> Window:
        """Open a window of a plain file at a record whose position is known."""
        place = int(self._places.known[record])
        ahead = self._ahead = _BytesAhead(self._file, place)
        more, limit = partial(ahead.read, WINDOW_BYTES), self._file.num_bytes - place
        stream = ByteStream(path=self._path, start=b"", more=more, limit=limit, compressed=False)
        return Window(stream, record=record, base=place, least_bytes=HEADER_BYTES)

    def _reader(self) -> Callable[[int], bytes]:
        """A function that reads on after the first bytes."""
        place = len(self._start)
        if self._ahead is None:
            self._file.seek(place)
            return self._file.read
        if self._ahead.place != place:
            self._ahead = _BytesAhead(self._file, place)
        return self._ahead.read

    def _pieces(self) -> Iterator[bytes]:
        """The whole content, decompressed."""
        if is_gzip(self._start):
            yield from self._open().pieces()
            return
        yield self._start
        read = self._reader()
        while self._ahead is not None:
            self._ahead.want(self._file.num_bytes)
            if not (piece := read(REQUEST_BYTES)):
                return
            yield piece

    def _copy_content(self) -> None:
        """Copy the content to a mapped temporary file. A damaged stream is not copied but read record by record."""
        self._window, is_compressed = None, is_gzip(self._start)
        with self._temporary_file() as file:
            try:
                for piece in self._pieces():
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
                None if is_compressed else self._state,
                num_records=self._num_records,
                verify=self._verify,
                compressed=is_compressed,
                indexes=self._indexes,
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


def _state_of(file: StoredFile) -> ObjectState | None:
    """The state for which an index of the file is kept, or None if it cannot be identified.

    A published file is identified by its sha256 alone, at every location.
    """
    if file.published_sha256 is not None:
        return ObjectState("", file.published_sha256)
    return None if file.entity_tag is None else ObjectState(file.path, file.entity_tag)


class _BytesAhead:
    """The bytes of a file on another machine in order; ``want`` begins to fetch them before they are read."""

    def __init__(self, file: StoredFile, start: int) -> None:
        self.place = start
        self._file = file
        self._next = start
        self._num_bytes = _FIRST_BYTES
        self._under_way: deque[Iterator[tuple[int, memoryview]]] = deque()
        self._arrived = memoryview(b"")

    @property
    def end(self) -> int:
        """The end of the bytes that were requested."""
        return self._next

    def want(self, stop: int) -> int:
        """Begin to fetch the bytes before ``stop``, at most 32 MiB; returns the number of requested bytes."""
        begun, stop = self._next, min(stop, self.place + _AHEAD_BYTES, self._file.num_bytes)
        while self._next < stop:
            self._begin(max(stop - self._next, _FIRST_BYTES))
        return self._next - begun

    def read(self, size: int) -> bytes:
        """Read the next bytes, at most ``size``; ``b""`` at the end of the file."""
        if not self._arrived:
            if not self._under_way:
                if self._next >= self._file.num_bytes:
                    return b""
                self._begin(self._num_bytes)
                self._num_bytes = min(2 * self._num_bytes, REQUEST_BYTES)
            try:
                ((_, self._arrived),) = self._under_way.popleft()
            except BaseException:  # the next read requests these bytes again
                self._next = self.place
                self._under_way.clear()
                raise
        piece = bytes(self._arrived[:size])
        self._arrived = self._arrived[size:]
        self.place += len(piece)
        return piece

    def _begin(self, num_bytes: int) -> None:
        stop = self._next + min(num_bytes, REQUEST_BYTES)
        stop = min(-(-stop // _FIRST_BYTES) * _FIRST_BYTES, self._file.num_bytes)
        self._under_way.append(self._file.read_ranges([(self._next, stop)]))
        self._next = stop


class _Frames:
    """The frames of some records with known positions, which are being fetched."""

    def __init__(self, file: StoredFile, starts: Places, records: Places) -> None:
        """Begin to fetch ``records``; each run of consecutive records is one range."""
        self._records = records
        self._ordered = np.unique(records)
        breaks = np.flatnonzero(np.diff(self._ordered) != 1) + 1
        firsts = self._ordered[np.concatenate([[0], breaks])]
        lasts = self._ordered[np.concatenate([breaks - 1, [-1]])]
        self._begins, ends = starts[firsts], starts[lasts + 1]
        self._runs = np.searchsorted(firsts, self._ordered, side="right") - 1
        self._starts, self._stops = starts[self._ordered], starts[self._ordered + 1]
        self._sizes = ends - self._begins
        self.num_bytes = int(self._sizes.sum())
        ranges: list[Range] = list(zip(self._begins.tolist(), ends.tolist(), strict=True))
        self._views = file.read_ranges(ranges)

    def block(self, verify: Verify) -> RecordBlock | None:
        """Wait for the bytes and check them; None if a frame is damaged, or does not start here."""
        places = np.cumsum(self._sizes) - self._sizes
        if self._sizes.size == 1:
            ((_, view),) = self._views
            data = np.frombuffer(view, np.uint8)
        else:
            data = np.empty(self.num_bytes, np.uint8)
            for run, view in self._views:
                data[places[run] : places[run] + len(view)] = np.frombuffer(view, np.uint8)
        frames = self._starts - self._begins[self._runs] + places[self._runs]
        lengths = self._stops - self._starts - FRAMING_BYTES
        if (lengths < 0).any() or find_fault(data, frames, lengths, verify=verify) is not None:
            return None
        block = RecordBlock(data, frames + HEADER_BYTES, lengths)
        if self._records.size == self._ordered.size and (self._records == self._ordered).all():
            return block
        return block.take(np.searchsorted(self._ordered, self._records))
