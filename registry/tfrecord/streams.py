"""Where do the bytes of a shard come from? A mapped file, a file read piece by piece, or a gzip file inflated.

The first bytes decide between plain and gzip. Memory stays bounded: a mapped file costs address space, the others a
piece at a time.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from registry.storage import Store
from registry.tfrecord.faults import HEADER_BYTES, DamagedStreamError
from registry.tfrecord.framing import ByteStream, is_header

_PIECE_BYTES: Final = 2**20
_GZIP_PIECE_BYTES: Final = 2**16
"""Small, because what a damaged piece yields is lost, and the record named is the first of those lost."""

_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_FORMAT: Final = 16 + zlib.MAX_WBITS
_MOST_INFLATION: Final = 1032
"""Deflate turns one byte into at most so many: 258 bytes take two bits at least."""


@contextmanager
def open_stream(store: Store, name: str) -> Iterator[ByteStream]:
    """The bytes of a stored file, mapped where it is a plain file on this machine."""
    with store.open(name) as file:
        size = store.size(name)
        start = file.read(HEADER_BYTES)
        if store.local_root is None or size == 0 or is_gzip(start):
            yield stream_pieces(file.read, start, size=size, path=store.locate(name))
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield ByteStream(path=store.locate(name), start=mapped, more=bytes, limit=len(mapped), compressed=False)


def stream_pieces(read: Callable[[int], bytes], start: bytes, *, size: int, path: str) -> ByteStream:
    """The bytes of a file of ``size`` bytes that ``read`` gives in order, after ``start``, which has been read."""
    if not is_gzip(start):
        return ByteStream(path=path, start=start, more=partial(read, _PIECE_BYTES), limit=size, compressed=False)
    inflate = _Inflater(start, partial(read, _GZIP_PIECE_BYTES))
    return ByteStream(path=path, start=b"", more=inflate, limit=size * _MOST_INFLATION, compressed=True)


def is_gzip(start: bytes) -> bool:
    """Whether a file begins as gzip does. A plain record of 35,615 bytes (0x8b1f) does so too: its checksum tells."""
    return start.startswith(_GZIP_MAGIC) and not is_header(start)


class _Inflater:
    """Called again and again, gives the next piece of a gzip file's content: ``b""`` at its end, after every member."""

    def __init__(self, start: bytes, read: Callable[[], bytes]) -> None:
        self._new, self._error = _inflate_library()
        self._read = read
        self._input = start
        self._member: Any = self._new(_GZIP_FORMAT)
        self._ended = False

    def __call__(self) -> bytes:
        while not self._ended:
            self._input = self._input or self._read()
            at_end = not self._input  # and still the library may hold output back
            try:
                piece: bytes = self._member.decompress(self._input, _GZIP_PIECE_BYTES)
            except self._error as error:
                raise DamagedStreamError(f"the gzip stream is damaged ({error})") from error
            self._input = self._member.unconsumed_tail
            if self._member.eof:
                self._start_next_member()
            if piece:
                return piece
            if at_end and not self._ended:
                raise DamagedStreamError("the gzip stream ends too early")
        return b""

    def _start_next_member(self) -> None:
        """A gzip file is one member or several, each with a checksum of its own; what follows must be one."""
        self._input = self._member.unused_data or self._read()
        while 0 < len(self._input) < len(_GZIP_MAGIC) and (more := self._read()):
            self._input += more
        if not self._input:
            self._ended = True
        elif not self._input.startswith(_GZIP_MAGIC):
            raise DamagedStreamError("other bytes follow the gzip stream")
        else:
            self._member = self._new(_GZIP_FORMAT)


def _inflate_library() -> tuple[Callable[[int], Any], type[Exception]]:
    """isal, about twice as fast, where the extra ``gzip`` is installed; else zlib, with the same answers."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.decompressobj, zlib.error
    return isal_zlib.decompressobj, isal_zlib.error  # type: ignore[return-value] # the stub says an instance
