"""How is a large file compressed by all cores into one gzip member? In blocks, each knowing the end of the one before.

A block is deflated by itself, with the last 32 KiB of the block before as its dictionary, and ends at a byte: joined,
the blocks are one deflate stream, a few bytes longer than by one thread. The same content gives the same bytes, however
many threads there are and however it is handed in. Content of one block is what zlib makes of it, byte for byte.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import BinaryIO, Final

from registry.engines import num_cpus, shared_threads, submit

BLOCK_BYTES: Final = 2**20

_LEVEL: Final = 6
_RAW: Final = -15
"""The largest window, without a header: that of the member is written here."""

_MEMORY: Final = 9
"""The level, the window and this are those of TensorFlow's own writer."""

_WINDOW_BYTES: Final = 2**15
_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
"""Deflate, no name, no time, the system Unix: as zlib writes it."""

_TRAILER: Final = struct.Struct("<II")


class GzipStream:
    """Compresses what is written to a binary file, which the caller opens and closes.

    >>> import gzip, io
    >>> file = io.BytesIO()
    >>> stream = GzipStream(file)
    >>> stream.write(b"content")
    >>> stream.finish()
    >>> gzip.decompress(file.getvalue())
    b'content'
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._buffer = bytearray()
        self._before = b""
        self._waiting: deque[Future[bytes]] = deque()
        self._most = 2 * num_cpus() + 1
        self._crc = 0
        self._size = 0
        file.write(_HEADER)

    def write(self, content: bytes) -> None:
        """Compress ``content``; memory holds some blocks of it."""
        self._crc = zlib.crc32(content, self._crc)
        self._size += len(content)
        self._buffer += content
        while len(self._buffer) > BLOCK_BYTES:  # more is there, so this block is not the last one
            block = bytes(memoryview(self._buffer)[:BLOCK_BYTES])
            del self._buffer[:BLOCK_BYTES]
            self._submit(block)

    def finish(self) -> None:
        """Write what is left, and the end of the member."""
        while self._waiting:
            self._file.write(self._waiting.popleft().result())
        self._file.write(_deflate(bytes(self._buffer), self._before, last=True))
        self._file.write(_TRAILER.pack(self._crc, self._size & 0xFFFFFFFF))

    def _submit(self, block: bytes) -> None:
        while len(self._waiting) >= self._most:
            self._file.write(self._waiting.popleft().result())
        self._waiting.append(submit(shared_threads(os.getpid()), partial(_deflate, before=self._before), block))
        self._before = block[-_WINDOW_BYTES:]


def _deflate(block: bytes, before: bytes, *, last: bool = False) -> bytes:
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW, _MEMORY, zlib.Z_DEFAULT_STRATEGY, before)
    return stream.compress(block) + stream.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)
