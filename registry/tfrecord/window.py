"""Which records come next in a stream of bytes? Many at once, out of the part of it that is held in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np

from registry.tfrecord.block import Octets, Places, RecordBlock
from registry.tfrecord.checking import Verify, find_fault
from registry.tfrecord.faults import (
    FRAMING_BYTES,
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    DamagedStreamError,
    FilePlace,
    not_so_many,
    wrong_claim,
)
from registry.tfrecord.framing import ByteStream, is_header
from registry.tfrecord.walking import walk_frames

WINDOW_BYTES: Final = 2**20
"""What a window holds at least, where the stream has so much: more where a record is longer."""


class Window:
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

    def places_of(self, block: RecordBlock) -> Places:
        """Where in the content the frames of ``block`` begin, which ``take`` gave last."""
        return block.offsets + (self._base - HEADER_BYTES)

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
        have, wanted = self._data.size - self._position, max(needed, WINDOW_BYTES)
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
