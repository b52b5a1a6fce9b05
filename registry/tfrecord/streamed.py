"""How are any records read of a file whose bytes come one after the other? Forwards in pieces, or through a copy.

A gzip file, or one on another machine, is read from its start, or from the gzip member that holds the first record
wanted, and stays open between reads that go forwards. Who wants records here and there gets a copy of the content in a
temporary file without a name, which the operating system removes when it is closed.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from typing import BinaryIO, Final

import numpy as np

from registry.errors import StorageError
from registry.storage import Store
from registry.tfrecord.block import Places, RecordBlock, join_blocks
from registry.tfrecord.checking import Verify
from registry.tfrecord.faults import HEADER_BYTES, DamagedStreamError, no_such_record, not_so_many
from registry.tfrecord.framing import ByteStream
from registry.tfrecord.gzip_members import Member, find_members
from registry.tfrecord.shard import MappedShard, map_file
from registry.tfrecord.streams import MOST_INFLATION, MembersAhead, stream_pieces
from registry.tfrecord.window import Window

_DENSE: Final = 4
"""Records here and there are read through while they are at least one in so many."""


class StreamedShard:
    """A shard that is read forwards."""

    def __init__(self, store: Store, name: str, *, num_records: int | None, verify: Verify) -> None:
        self._window: Window | None = None  # first, for __del__
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

    def _step(self, window: Window, most: int, verify: Verify, stop: int) -> RecordBlock:
        """The next records that lie in the window as it is, at least one."""
        try:
            return window.take(most, verify)
        except EOFError:
            path = self._store.locate(self._name)
            if self._num_records is not None:
                raise not_so_many(path, self._num_records, found=window.record) from None
            raise no_such_record(path, stop - 1, found=window.record) from None

    def _window_at(self, first: int) -> Window:
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

    def _open(self, first_member: int = 0) -> Window:
        """A window that begins with a member, or with the file."""
        file = self._store.open(self._name)
        path = self._store.locate(self._name)
        if not self._members:
            stream = stream_pieces(file.read, file.read(HEADER_BYTES), size=self._size, path=path)
            return Window(stream, file.close, record=0, base=0)
        member = self._members[first_member]
        file.seek(member.start)
        ahead = MembersAhead(file, (one.claim for one in self._members[first_member:]))
        limit = MOST_INFLATION * self._size
        stream = ByteStream(path=path, start=b"", more=ahead, limit=limit, compressed=True)
        claims = {one.content_start: one.first_record for one in self._members[first_member:]}
        return Window(stream, file.close, record=member.first_record, base=member.content_start, claims=claims)

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
