"""How are any records read of a file whose bytes come one after the other? Forwards in pieces, or through a copy.

A gzip file, or one on another machine, is read from its start, or from the gzip member that holds the first record
wanted, and stays open between reads that go forwards. Who wants records here and there gets a copy of the content in a
temporary file without a name, which the operating system removes when it is closed.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property
from typing import BinaryIO, Final

import numpy as np

from registry.errors import StorageError
from registry.storage import Store
from registry.tfrecord.block import Octets, Places, RecordBlock, join_blocks
from registry.tfrecord.checking import Verify, find_fault
from registry.tfrecord.faults import (
    FRAMING_BYTES,
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    DamagedStreamError,
    FilePlace,
    no_such_record,
    not_so_many,
    wrong_claim,
)
from registry.tfrecord.framing import ByteStream, is_header
from registry.tfrecord.gzip_members import Member, find_members
from registry.tfrecord.shard import MappedShard, map_file
from registry.tfrecord.streams import MOST_INFLATION, MembersAhead, stream_pieces
from registry.tfrecord.walking import walk_frames

_WINDOW_BYTES: Final = 2**18
_DENSE: Final = 4
"""Records here and there are read through while they are at least one in so many."""


class StreamedShard:
    """A shard that is read forwards."""

    def __init__(self, store: Store, name: str, *, num_records: int | None, verify: Verify) -> None:
        self._window: _Window | None = None  # first, for __del__
        self._store = store
        self._name = name
        self._num_records = num_records
        self._verify = verify
        self._size = store.size(name)
        self._copy: MappedShard | None = None
        self._may_copy = True

    def read(self, first: int, count: int) -> RecordBlock:
        """Records ``first`` to ``first + count``, checked."""
        stop = first + count
        if self._num_records is not None and stop > self._num_records:
            raise no_such_record(self._store.locate(self._name), stop - 1, found=self._num_records)
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
        if self._window is not None:
            self._window.close()

    def _step(self, window: _Window, most: int, verify: Verify, stop: int) -> RecordBlock:
        """The next records that lie in the window as it is, at least one."""
        try:
            return window.take(most, verify)
        except EOFError:
            path = self._store.locate(self._name)
            if self._num_records is not None:
                raise not_so_many(path, self._num_records, found=window.record) from None
            raise no_such_record(path, stop - 1, found=window.record) from None

    def _window_at(self, first: int) -> _Window:
        """A window that has not come to ``first`` yet: the one that is open, or a new one."""
        window = self._window
        if window is not None and window.record == first:
            return window
        place = bisect_right(self._members, first, key=lambda member: member.first_record) - 1
        begins = self._members[place].first_record if place >= 0 else 0
        if window is None or window.record > first or begins > window.record:
            if window is not None:
                window.close()
            self._window = window = self._open(max(place, 0))
        return window

    @cached_property
    def _members(self) -> list[Member]:
        """The gzip members of the file that say what they hold."""
        with self._store.open(self._name) as file:
            return find_members(file, self._size)

    def _open(self, first_member: int = 0) -> _Window:
        """A window that begins with a member, or with the file."""
        file = self._store.open(self._name)
        path = self._store.locate(self._name)
        if not self._members:
            stream = stream_pieces(file.read, file.read(HEADER_BYTES), size=self._size, path=path)
            return _Window(stream, file.close, record=0, base=0)
        member = self._members[first_member]
        file.seek(member.start)
        ahead = MembersAhead(file, (one.claim for one in self._members[first_member:]))
        limit = MOST_INFLATION * self._size
        stream = ByteStream(path=path, start=b"", more=ahead, limit=limit, compressed=True)
        claims = {one.content_start: one.first_record for one in self._members[first_member:]}
        return _Window(stream, file.close, record=member.first_record, base=member.content_start, claims=claims)

    def _copy_content(self) -> None:
        """A copy of the content that is mapped; none where the stream is damaged, and is read record by record."""
        window = self._open()
        with closing(window), self._temporary_file() as file:
            try:
                for piece in window.pieces():
                    file.write(piece)
                file.flush()
            except DamagedStreamError:
                self._may_copy = False
                return
            path = self._store.locate(self._name)
            mapped, facts = map_file(file, path)
            self._copy = MappedShard(
                mapped,
                path,
                facts,
                num_records=self._num_records,
                verify=self._verify,
                compressed=window.is_compressed,
            )
        if self._window is not None:
            self._window.close()
            self._window = None

    @contextmanager
    def _temporary_file(self) -> Iterator[BinaryIO]:
        try:
            with tempfile.TemporaryFile(prefix="registry-") as file:
                yield file
        except StorageError:
            raise
        except OSError as error:
            path = self._store.locate(self._name)
            failed = StorageError(
                f"cannot copy the content of {path} to a temporary file: {error.strerror or error}",
                hint="To read it in any order needs room for its content: set TMPDIR to a folder that has it.",
                details={"path": path, "errno": error.errno, "doing": "copy"},
            )
            failed.errno = error.errno
            raise failed from error


class _Window:
    """The part of a stream that is held in memory; ``record`` is the next one."""

    def __init__(
        self,
        stream: ByteStream,
        close: Callable[[], None],
        *,
        record: int,
        base: int,
        claims: Mapping[int, int] | None = None,
    ) -> None:
        self.record = record
        self.close = close
        self._stream = stream
        self._data: Octets = np.frombuffer(bytes(stream.start), np.uint8)
        self._position = 0
        self._base = base  # where the data begins, in the content
        self._limit = base + stream.limit
        self._claims = sorted((claims or {}).items())  # where members begin in the content, and with which record
        self._ended = False
        self._damage: DamagedStreamError | None = None

    @property
    def is_compressed(self) -> bool:
        """Whether the content was inflated."""
        return self._stream.compressed

    def pieces(self) -> Iterator[bytes]:
        """All that is to come, from the start."""
        yield bytes(self._data)
        while piece := self._stream.more():
            yield piece

    def take(self, most: int, verify: Verify) -> RecordBlock:
        """The next records, checked: at least one, at most ``most``.

        Raises:
            EOFError: the content ends here.
            CorruptRecordError: the next record is damaged.
        """
        needed = HEADER_BYTES
        while True:
            starts = walk_frames(self._data, self._position, limit=self._data.size, most=most)
            if starts.size > 1:
                break
            needed = self._needed(needed)
            self._fill(needed)
        frames, lengths = starts[:-1], np.diff(starts) - FRAMING_BYTES
        fault = find_fault(self._data, frames, lengths, verify=verify)
        if fault is not None:
            if not fault.place:
                raise self._here.bad_header() if fault.in_header else self._here.bad_payload(int(lengths[0]))
            starts, frames, lengths = starts[: fault.place + 1], frames[: fault.place], lengths[: fault.place]
        self._check_claims(starts + self._base)
        self._position = int(starts[-1])
        self.record += frames.size
        return RecordBlock(self._data, frames + HEADER_BYTES, lengths)

    def _check_claims(self, starts: Places) -> None:
        """The members that begin among these records must begin with those that they claim."""
        while self._claims and self._claims[0][0] < starts[-1]:
            start, record = self._claims.pop(0)
            place = int(np.searchsorted(starts, start))
            if starts[place] != start or self.record + place != record:
                raise wrong_claim(self._stream.path, record)

    def check_end(self) -> None:
        """Nothing may follow."""
        if self._data.size == self._position:
            self._fill(1)
        if self._data.size == self._position:
            if self._damage is not None:
                raise self._end_error(HEADER_BYTES)
            return
        self._fill(HEADER_BYTES)
        if not is_header(self._header):
            self._needed(HEADER_BYTES)
        raise not_so_many(self._stream.path, self.record, found=self.record, more=True)

    @property
    def _here(self) -> FilePlace:
        return FilePlace(self._stream.path, self._stream.compressed, self.record, self._base + self._position)

    @property
    def _header(self) -> bytes:
        return bytes(self._data[self._position : self._position + HEADER_BYTES])

    def _needed(self, wanted: int) -> int:
        """How many bytes the next frame needs, of which the window holds too few."""
        header = self._header
        if len(header) < HEADER_BYTES:
            if self._ended:
                if not header and self._damage is None:
                    raise EOFError
                raise self._end_error(HEADER_BYTES)
            return HEADER_BYTES
        if not is_header(header):
            raise self._here.bad_header()
        needed = int.from_bytes(header[:8], "little") + FRAMING_BYTES
        if self._ended:
            raise self._end_error(needed)
        if needed > MAX_RECORD_BYTES + FRAMING_BYTES or self._base + self._position + needed > self._limit:
            raise self._here.cut_off(needed, end=self._limit)
        return max(needed, wanted)

    def _end_error(self, needed: int) -> Exception:
        if self._damage is not None:
            return self._here.corrupt(f"{self._damage}, here or after")
        return self._here.cut_off(needed, end=self._base + self._data.size)

    def _fill(self, needed: int) -> None:
        """Hold ``needed`` bytes from the next record on, and some more, or all there are."""
        pieces = [self._data[self._position :].tobytes()] if self._position < self._data.size else []
        have, wanted = self._data.size - self._position, max(needed, _WINDOW_BYTES)
        while have < wanted and not self._ended:
            try:
                piece = self._stream.more()
            except DamagedStreamError as error:
                self._damage, piece = error, b""
            self._ended = not piece
            have += len(piece)
            if piece:
                pieces.append(piece)
        self._base += self._position
        self._position = 0
        self._data = np.frombuffer(pieces[0] if len(pieces) == 1 else b"".join(pieces), np.uint8)
