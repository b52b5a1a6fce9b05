"""Reads the records of a stream forwards, many at a time, through a window of its bytes in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np

from registry.storage import Store
from registry.tfrecord.block import Octets, Places, RecordBlock, Verify, check_verify, find_fault, walk_frames
from registry.tfrecord.framing import (
    FRAMING_BYTES,
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    ByteStream,
    DamagedStreamError,
    FilePlace,
    is_gzip,
    is_header,
    no_such_record,
    not_so_many,
)
from registry.tfrecord.streams import stream_pieces

WINDOW_BYTES: Final = 2**20
"""The usual least size of a window, unless the stream is shorter; a window is larger if a record is longer."""


class Window:
    """The part of a stream that is in memory; ``record`` is the index of the next record."""

    def __init__(
        self,
        stream: ByteStream,
        *,
        record: int,
        base: int,
        least_bytes: int = WINDOW_BYTES,
    ) -> None:
        """Start with ``record`` at byte ``base`` of the content; at least ``least_bytes`` are read at once."""
        self.record = record
        self._least_bytes = least_bytes
        self._stream = stream
        self._data: Octets = np.frombuffer(stream.start, np.uint8)
        self._position = 0
        self._base = base  # position of the data in the content
        self._limit = base + stream.limit
        self._ended = False
        self._damage: DamagedStreamError | None = None

    @property
    def is_compressed(self) -> bool:
        """Whether the stream is decompressed."""
        return self._stream.compressed

    @property
    def place(self) -> int:
        """Position of the next frame, in bytes of the content."""
        return self._base + self._position

    def places_of(self, block: RecordBlock) -> Places:
        """Starts of the frames of ``block``, in bytes of the content; ``take`` must have returned it last."""
        return block.offsets + (self._base - HEADER_BYTES)

    def pieces(self) -> Iterator[bytes]:
        """Yield the whole content; only for a new window."""
        yield bytes(self._data)
        while piece := self._stream.more():
            yield piece

    def take(self, most: int, verify: Verify) -> RecordBlock:
        """Take the next records, checked: at least one, at most ``most``.

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
        self._position = int(starts[-1])
        self.record += frames.size
        return RecordBlock(self._data, frames + HEADER_BYTES, lengths)

    def blocks(
        self, *, skip: int, take: int | None, num_records: int | None, most: int, verify: Verify
    ) -> Iterator[RecordBlock]:
        """Take the records of a new window in blocks; see ``read_blocks``."""
        stop = num_records if take is None else skip + take
        try:
            while self.record < skip:
                self.take(skip - self.record, "off")
            while stop is None or self.record < stop:
                yield self.take(most if stop is None else min(most, stop - self.record), verify)
        except EOFError:
            if num_records is not None:
                raise not_so_many(self._stream.path, num_records, found=self.record) from None
            least = skip + (take or 0)
            if self.record < least:
                raise no_such_record(self._stream.path, least - 1, found=self.record) from None
            return
        if stop == num_records:
            self.check_end()

    def check_end(self) -> None:
        """Check that nothing follows the last record."""
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
        """Size in bytes of the next frame, which is not in the window as a whole."""
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
        """Read until the window has ``needed`` bytes from the next record on, and some more, or the stream ends."""
        pieces = [self._data[self._position :].tobytes()] if self._position < self._data.size else []
        have, wanted = self._data.size - self._position, max(needed, self._least_bytes)
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


def read_blocks(
    store: Store,
    name: str,
    *,
    path: str | None = None,
    skip: int = 0,
    take: int | None = None,
    num_records: int | None = None,
    most: int = 1024,
    verify: Verify = "record",
    check_start: Callable[[bytes], None] | None = None,
) -> Iterator[tuple[RecordBlock, Places]]:
    """Read records ``skip`` to ``skip + take`` of a shard file in blocks.

    Memory holds a window of the file: 1 MiB, or one record if that is longer. A block is a view of it. Of skipped
    records only the lengths are checked.

    Args:
        store: the folder.
        name: the file's name in it.
        path: the file's name in errors about records; by default its path in the store.
        skip: number of records to skip.
        take: number of records to read; None reads all others.
        num_records: the number of records that the file should have, or None if unknown.
        most: most records of one block.
        verify: ``record``, ``block`` or ``off``; see ``open_shard``.
        check_start: called with the first 12 bytes of the file (fewer if it is shorter); it may raise to refuse them.

    Yields:
        A block, and the start of each frame in bytes of the content (of a gzip file: the decompressed content), int64.

    Raises:
        CorruptRecordError: a record is damaged, or the file is truncated; all records before it were yielded.
        ShardMismatchError: the file has fewer records than requested, or not ``num_records``.
        StorageError: the file cannot be read.
        UsageError: ``verify`` has another value.
    """
    check_verify(verify)
    path = store.locate(name) if path is None else path
    with store.open(name) as file:
        start = file.read(HEADER_BYTES)
        if check_start is not None:
            check_start(start)
        if is_gzip(start):
            stream = stream_pieces(file.read, start, size=file.num_bytes, path=path)
        else:
            more = partial(file.read, WINDOW_BYTES)
            stream = ByteStream(path=path, start=start, more=more, limit=file.num_bytes, compressed=False)
        window = Window(stream, record=0, base=0)
        blocks = window.blocks(skip=skip, take=take, num_records=num_records, most=most, verify=verify)
        yield from ((block, window.places_of(block)) for block in blocks)
