"""Reads the bytes of a shard in order: from a mapped file, a file read in pieces, or a gzip file.

The first bytes decide between plain and gzip. Memory is bounded: a mapped file uses address space, other files one
piece at a time. A gzip file may have several members, whose contents gzip readers join.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from registry.inflate import inflate_library
from registry.storage import Store
from registry.tfrecord.framing import GZIP_MAGIC, HEADER_BYTES, ByteStream, DamagedStreamError, is_gzip

_PIECE_BYTES: Final = 2**20
_GZIP_PIECE_BYTES: Final = 2**16
"""Small, because the content of a damaged piece is lost, and the error names the first record that was lost."""

_GZIP_FORMAT: Final = 16 + zlib.MAX_WBITS
MOST_INFLATION: Final = 1032
"""The highest compression ratio of deflate: 258 bytes need at least two bits."""


@contextmanager
def open_stream(store: Store, name: str) -> Iterator[ByteStream]:
    """Open the bytes of a stored file; a plain local file is mapped."""
    with store.open(name) as file:
        start = file.read(HEADER_BYTES)
        mapped = None if is_gzip(start) else file.mapping()
        if mapped is None:
            yield stream_pieces(file.read, start, size=file.num_bytes, path=store.locate(name))
        else:
            yield ByteStream(path=store.locate(name), start=mapped, more=bytes, limit=len(mapped), compressed=False)


def stream_pieces(read: Callable[[int], bytes], start: bytes, *, size: int, path: str) -> ByteStream:
    """Make the stream of a file of ``size`` bytes: ``start`` was already read, ``read`` returns the rest in order."""
    if not is_gzip(start):
        return ByteStream(path=path, start=start, more=partial(read, _PIECE_BYTES), limit=size, compressed=False)
    inflate = _Inflater(start, partial(read, _GZIP_PIECE_BYTES))
    return ByteStream(path=path, start=b"", more=inflate, limit=size * MOST_INFLATION, compressed=True)


class _Inflater:
    """Each call returns the next piece of a gzip file's content; ``b""`` at its end, after all members."""

    def __init__(self, start: bytes, read: Callable[[], bytes]) -> None:
        self._new, self._error = inflate_library()
        self._read = read
        self._input = start
        self._member: Any = self._new(_GZIP_FORMAT)
        self._ended = False

    def __call__(self) -> bytes:
        while not self._ended:
            # Only now, so that the last piece of a member is returned even if the bytes after it are damaged
            if self._member.eof:
                self._start_next_member()
                continue
            self._input = self._input or self._read()
            at_end = not self._input  # the library may still have buffered output
            try:
                piece: bytes = self._member.decompress(self._input, _GZIP_PIECE_BYTES)
            except self._error as error:
                raise DamagedStreamError(f"the gzip stream is damaged ({error})") from error
            self._input = self._member.unconsumed_tail
            if piece:
                return piece
            if at_end and not self._member.eof:
                raise DamagedStreamError("the gzip stream ends too early")
        return b""

    def _start_next_member(self) -> None:
        """Start the next member; a gzip file has one or more, and nothing else may follow."""
        self._input = self._member.unused_data or self._read()
        while 0 < len(self._input) < len(GZIP_MAGIC) and (more := self._read()):
            self._input += more
        if not self._input:
            self._ended = True
        elif not self._input.startswith(GZIP_MAGIC):
            raise DamagedStreamError("other bytes follow the gzip stream")
        else:
            self._member = self._new(_GZIP_FORMAT)
