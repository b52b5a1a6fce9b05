"""Writes one TFRecord file of an export, plain or as one gzip member that is compressed on all cores.

Each block of 1 MiB is deflated separately, with the last 32 KiB of the previous block as its dictionary, and ends at a
byte boundary. The joined blocks are one deflate stream, a few bytes longer than the output of a single thread. The
output does not depend on the number of threads: the header has no name or time, and zlib uses its default level. A
file of a single block has the bytes that TensorFlow's writer produces.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import BinaryIO, Final, Self, TypeVar

from registry.engines import num_cpus, shared_threads, submit
from registry.errors import UsageError
from registry.storage import is_unfinished
from registry.tfrecord import frame_record

T = TypeVar("T")

FRAME_BYTES: Final = 16
"""Bytes that a frame adds to a record: its length and two checksums."""
BLOCK_BYTES: Final = 2**20
_LEVEL: Final = 6

_RAW: Final = -15
"""zlib's window bits: the largest window, without a header, because ``_HEADER`` is written instead."""

_MEMORY: Final = 9
"""zlib's memory level. TensorFlow's writer uses the same level, window and memory level."""
_WINDOW_BYTES: Final = 2**15

_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
"""Method deflate, no name, no time, system Unix: the header that zlib writes."""
_TRAILER: Final = struct.Struct("<II")


class RecordFile:
    """Writes records to a binary file that is open for writing. The caller closes the file.

    Attributes:
        num_records: number of records written.
        num_content_bytes: bytes of the framed records before compression.

    >>> import io
    >>> file = io.BytesIO()
    >>> with RecordFile(file, compressed=False) as records:
    ...     records.write(b"one")
    >>> records.num_records, records.num_content_bytes, len(file.getvalue())
    (1, 19, 19)
    """

    def __init__(self, file: BinaryIO, *, compressed: bool) -> None:
        self._target: BinaryIO | GzipStream = GzipStream(file) if compressed else file
        self.num_records = 0
        self.num_content_bytes = 0

    def write(self, record: bytes) -> None:
        """Append one record."""
        frame = frame_record(record)
        self._target.write(frame)
        self.num_records += 1
        self.num_content_bytes += len(frame)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None and isinstance(self._target, GzipStream):
            self._target.finish()


def advancing(items: Iterable[T], advance: Callable[[int], None] | None) -> Iterator[T]:
    """The items. ``advance`` is called with 1 after each, unless it is None."""
    for item in items:
        yield item
        if advance is not None:
            advance(1)


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` if it can be the prefix of file names: one name, without a folder.

    Raises:
        UsageError: it is empty, starts with a dot, contains a character that some file systems forbid, or is reserved
            for unfinished files.
    """
    is_text = not any(0xD800 <= ord(letter) < 0xE000 for letter in prefix)  # surrogates are not text
    if not prefix or prefix[0] == "." or set(prefix) & set('/\\\0:*?"<>|\r\n') or not is_text:
        raise UsageError(
            f"invalid prefix of file names {prefix!r:.120}",
            hint="Choose a name such as 'Predict1'; pass the folder separately.",
            details={"prefix": prefix[:120]},
        )
    if is_unfinished(f"{prefix}-"):
        raise UsageError(
            f"invalid prefix of file names {prefix!r:.120}: such names are reserved for unfinished files",
            hint="Choose a name such as 'Predict1'.",
            details={"prefix": prefix[:120]},
        )
    return prefix


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
        """Compress ``content``. A few blocks are in memory at a time."""
        self._crc = zlib.crc32(content, self._crc)
        self._size += len(content)
        self._buffer += content
        while len(self._buffer) > BLOCK_BYTES:  # more content follows, so this block is not the last
            block = bytes(memoryview(self._buffer)[:BLOCK_BYTES])
            del self._buffer[:BLOCK_BYTES]
            self._submit(block)

    def finish(self) -> None:
        """Write the remaining blocks and the end of the gzip member."""
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
