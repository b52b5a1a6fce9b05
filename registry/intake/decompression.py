"""Decompresses text files piece by piece: gzip, bzip2, xz and Zstandard, recognized by their first bytes.

``text_files`` and ``sniffing`` call it. Files may consist of several streams, as parallel compressors write them.
"""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable
from typing import Any, Final

from registry.errors import SourceError, StorageError
from registry.shards.arrow_values import import_pyarrow
from registry.tfrecord import is_gzip
from registry.tfrecord.framing import DamagedStreamError
from registry.tfrecord.streams import stream_pieces

COMPRESSIONS: Final = (".gz", ".bz2", ".xz", ".zst")
"""The ends of the names of compressed text files."""

_BZIP2: Final = b"BZh"
_XZ: Final = b"\xfd7zXZ\x00"
_ZSTANDARD: Final = b"\x28\xb5\x2f\xfd"
_PIECE_BYTES: Final = 2**18
_MOST_XZ_MEMORY: Final = 2**28
"""Memory for one xz stream; the strongest level of xz needs a quarter of it."""

Read = Callable[[int], bytes]


def decompress(read: Read, start: bytes, *, size: int, name: str) -> Read | None:
    """A function that reads the decompressed content of a file; None if the file is not compressed.

    Args:
        read: reads the next bytes of the file, after ``start``.
        start: the first bytes, at least 8 of them if the file is as long.
        size: the size of the file in bytes.
        name: the name of the file, for messages.

    Raises:
        SourceError: raised by the function: the stream is damaged or truncated.
    """
    if is_gzip(start):
        stream = stream_pieces(read, start, size=size, path=name)
        return _guarded(lambda _: stream.more(), name, "gzip")
    if start.startswith(_BZIP2):
        return _guarded(_Streams(bz2.BZ2Decompressor, read, start), name, "bzip2")
    if start.startswith(_XZ):
        return _guarded(_Streams(_open_xz, read, start), name, "xz")
    if start.startswith(_ZSTANDARD):
        arrow = import_pyarrow()
        stored = arrow.CompressedInputStream(arrow.PythonFile(_Rest(read, start), mode="r"), "zstd")
        return _guarded(stored.read, name, "Zstandard")
    return None


def _open_xz() -> Any:
    return lzma.LZMADecompressor(memlimit=_MOST_XZ_MEMORY)


def _guarded(read: Read, name: str, word: str) -> Read:
    def read_next(size: int) -> bytes:
        try:
            return read(size)
        except (StorageError, SourceError):
            raise
        except DamagedStreamError as error:
            raise SourceError(
                f"{name}: {error}", hint="Download or create it again.", details={"file": name}
            ) from error
        except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
            raise SourceError(
                f"{name}: the {word} stream is damaged or ends too early",
                hint="Download or create it again.",
                details={"file": name},
            ) from error

    return read_next


class _Streams:
    """Decompresses one stream after the other, by decompressors with the interface of ``bz2``."""

    def __init__(self, make: Callable[[], Any], read: Read, start: bytes) -> None:
        self._make = make
        self._read = read
        self._waiting = start
        self._stream: Any = make()

    def __call__(self, size: int) -> bytes:
        while True:
            if self._stream.eof:
                # xz fills up its blocks with zeros
                self._waiting = (self._stream.unused_data + self._waiting).lstrip(b"\0") or self._more().lstrip(b"\0")
                if not self._waiting:
                    return b""
                self._stream = self._make()
            if self._stream.needs_input and not self._waiting:
                self._waiting = self._more()
                if not self._waiting:
                    raise EOFError
            data, self._waiting = self._waiting, b""
            found: bytes = self._stream.decompress(data, max(size, 1))
            if found:
                return found

    def _more(self) -> bytes:
        return self._read(_PIECE_BYTES)


class _Rest:
    """A file for Arrow that is read from its beginning, by a function that reads what follows ``start``."""

    closed = False

    def __init__(self, read: Read, start: bytes) -> None:
        self._read = read
        self._start = start

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        if self._start:
            found, self._start = self._start, b""
            return found
        return self._read(_PIECE_BYTES if size < 0 else size)

    def close(self) -> None:
        """Nothing is held open."""
