"""Reads text files (CSV, JSON) as blocks of UTF-8 that end at the end of a row, in bounded memory.

    stored file -> decompressed -> UTF-8, UTF-16 or UTF-32 (byte order mark) -> TextBlock, with its line and its offset

gzip, bzip2, xz and Zstandard are recognized by their first bytes. The readers of formats find the ends of rows. A row
longer than ``MAX_ROW_BYTES``, and bytes that are not text, raise errors that name the file, the line and the byte.
"""

from __future__ import annotations

import bz2
import codecs
import io
import lzma
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import SourceError, StorageError, spell
from registry.intake.options import AddOptions
from registry.shards.arrow_values import import_pyarrow
from registry.storage import Store
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
    """Return a function that reads the decompressed content of a file, or None if the file is not compressed.

    Args:
        read: reads the next bytes of the file, after ``start``.
        start: the first bytes, at least 8 of them if the file is as long.
        size: the size of the file in bytes.
        name: the name of the file, for messages.

    Raises:
        SourceError: the stream is damaged or truncated. The returned function raises it.
    """
    if is_gzip(start):
        stream = stream_pieces(read, start, size=size, path=name)
        return _guarded(lambda _: stream.more(), name, "gzip")
    if start.startswith(_BZIP2):
        return _guarded(_Streams(bz2.BZ2Decompressor, read, start), name, "bzip2")
    if start.startswith(_XZ):
        return _guarded(_Streams(partial(lzma.LZMADecompressor, memlimit=_MOST_XZ_MEMORY), read, start), name, "xz")
    if start.startswith(_ZSTANDARD):
        arrow = import_pyarrow()
        stored = arrow.CompressedInputStream(arrow.PythonFile(io.BufferedReader(Pieces(read, start)), mode="r"), "zstd")
        return _guarded(stored.read, name, "Zstandard")
    return None


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
                # xz pads its streams with zeros
                self._waiting = (self._stream.unused_data + self._waiting).lstrip(b"\0") or self._more().lstrip(b"\0")
                if not self._waiting:
                    return b""
                self._stream = self._make()
            if self._stream.needs_input and not self._waiting:
                self._waiting = self._more()
                if not self._waiting:
                    raise EOFError
            data, self._waiting = self._waiting, b""
            result: bytes = self._stream.decompress(data, max(size, 1))
            if result:
                return result

    def _more(self) -> bytes:
        return self._read(_PIECE_BYTES)


class Pieces(io.RawIOBase):
    """A file object for Arrow and tarfile, with the bytes ``start``, followed by those that a function reads."""

    def __init__(self, read: Read, start: bytes = b"") -> None:
        self._read = read
        self._waiting = memoryview(start)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Copy the next bytes into ``buffer``; returns their number."""
        self._waiting = self._waiting or memoryview(self._read(len(buffer)))
        count = min(len(buffer), len(self._waiting))
        buffer[:count], self._waiting = self._waiting[:count], self._waiting[count:]
        return count


MAX_ROW_BYTES: Final = 64 * 2**20
"""Largest size of one row of a text file in bytes of UTF-8."""

BLOCK_BYTES: Final = 2 * 2**20
"""Usual size of a block, in bytes. It bounds the memory of a reader; a single row may be larger."""

_HEAD_BYTES: Final = 8
_MARKS: Final = (  # UTF-32 first, because its byte order mark begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF8, "UTF-8"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Whole rows of a file, as UTF-8.

    Attributes:
        data: the bytes; the last block of a file may not end with a newline.
        line: the line of the first byte, from 1.
        num_lines: the number of line ends.
        offset: the place of the first byte in the decompressed file; in UTF-16 files, in the text as UTF-8.
        is_last: whether the file ends here.
    """

    data: bytes
    line: int
    num_lines: int
    offset: int
    is_last: bool


class TextStream:
    """The text of an open file as UTF-8 without byte order mark.

    Attributes:
        name: the name of the file for messages.
        encoding: ``UTF-8``, ``UTF-16`` or ``UTF-32``.
        is_compressed: whether the file is compressed.
        offset: the place of the first byte that ``read`` returns: 3 after a byte order mark of UTF-8, else 0.

    Args:
        file: the file, as a store opens it.
        name: its name.
        options: the encoding, or none for that of the byte order mark, or UTF-8 if there is no mark. If it is that of
            the previous version, the text may have been saved as UTF-8 since, whose bytes most encodings of one byte
            accept as other letters: that is refused.
    """

    def __init__(self, file: Any, name: str, options: AddOptions) -> None:
        encoding = options.encoding
        compressed = decompress(file.read, file.read(_HEAD_BYTES), size=file.num_bytes, name=name)
        if compressed is None:
            file.seek(0)
        self.name = name
        self.is_compressed = compressed is not None
        self._pieces = pieces = compressed or file.read
        self._line = 1
        self._waiting = b""
        self._has_option = options.has_csv_options
        self._is_requested = encoding is not None
        head = b""
        while len(head) < _HEAD_BYTES and (piece := pieces(_HEAD_BYTES)):
            head += piece
        mark, self.encoding = next(
            ((signature, told) for signature, told in _MARKS if head.startswith(signature)), (b"", "UTF-8")
        )
        if encoding is not None and (self.encoding != "UTF-8" or codecs.lookup(encoding).name != "utf-8"):
            self.encoding = encoding
        self.offset = len(mark) if self.encoding == "UTF-8" else 0
        self._decoder = None
        if self.encoding != "UTF-8":
            self._decoder = codecs.getincrementaldecoder(self.encoding)()
            self._lines = io.IncrementalNewlineDecoder(None, translate=True)
            self._utf8 = codecs.getincrementaldecoder("UTF-8")() if "encoding" in options.remembered else None
            self._is_ascii = True
            self._consumed = 0
            self._waiting = self._decode(head)
            while not self._waiting and (piece := pieces(_HEAD_BYTES)):
                self._waiting = self._decode(piece)
            # The codec of the requested encoding keeps the byte order mark
            self._waiting = self._waiting.removeprefix(codecs.BOM_UTF8)
        else:
            self._waiting = head[len(mark) :]
            zeros = [byte == 0 for byte in head[:4]]
            if zeros in ([False, True, False, True], [True, False, True, False]):  # two ASCII characters
                likely = "UTF-16BE" if zeros[0] else "UTF-16LE"
                raise SourceError(
                    f"{name}:1: byte 0: the text seems to be UTF-16 without a byte order mark",
                    hint=f"Name it: {spell('encoding', likely)}"
                    if self._has_option
                    else f"Convert it: {_iconv(name, likely)}",
                    details={"file": name, "line": 1, "byte": 0},
                )

    def read(self, size: int) -> bytes:
        """Return about ``size`` bytes; ``b""`` only at the end.

        Raises:
            SourceError: the gzip stream is damaged, or the bytes are not UTF-16 or UTF-32.
            StorageError: the file cannot be read.
        """
        result, self._waiting = [self._waiting], b""
        count = len(result[0])
        while count < size and (piece := self._pieces(size - count)):
            result.append(piece if self._decoder is None else self._decode(piece))
            count += len(result[-1])
        if count < size and self._decoder is not None:
            result.append(self._decode(b"", final=True))
        return result[-1] if count == len(result[-1]) else b"".join(result)

    def _decode(self, data: bytes, *, final: bool = False) -> bytes:
        assert self._decoder is not None  # noqa: S101 (for mypy)
        self._require_not_utf8(data, final=final)
        kept = len(self._decoder.getstate()[0])
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            before = error.object[: error.start].decode(self.encoding, "replace")
            line = self._line + self._lines.decode(before).count("\n")
            raise self.bad_bytes(line, self._consumed - kept + error.start, self.encoding) from error
        except UnicodeError as error:  # the codec UTF-16 reports no place for text without a byte order mark
            raise self.bad_bytes(self._line, self._consumed, self.encoding) from error
        self._consumed += len(data)
        self._line += self._lines.decode(text).count("\n")
        try:
            return text.encode()
        except UnicodeEncodeError as error:  # UTF-32 may contain half a surrogate pair
            raise self.bad_bytes(self._line, self._consumed, self.encoding) from error

    def _require_not_utf8(self, data: bytes, *, final: bool) -> None:
        """At the end, refuse text that is UTF-8 and not ASCII, if the encoding is that of the previous version."""
        if self._utf8 is None:
            return
        self._is_ascii = self._is_ascii and data.isascii()
        try:
            self._utf8.decode(data, final)
        except UnicodeDecodeError:
            self._utf8 = None
            return
        if final and not self._is_ascii:
            again = spell("encoding", self.encoding)
            raise SourceError(
                f"{self.name}: the text is UTF-8, but that of the previous version was {self.encoding}",
                hint=f"If it was saved as UTF-8: {spell('encoding', 'UTF-8')}. If it is still {self.encoding}: {again}",
                details={"file": self.name, "encoding": self.encoding},
            )

    def bad_bytes(self, line: int, byte: int, encoding: str) -> SourceError:
        """Make the error for bytes that are not text in ``encoding``."""
        of_what = " of the decompressed file" if self.is_compressed else ""
        hint = "The file is damaged or truncated. Get it again, or save it as UTF-8."
        if self._is_requested:
            is_old_mac = codecs.lookup(encoding).name == "cp1252"  # the texts of old Macs have bytes that it lacks
            such_as = f", such as: {spell('encoding', 'MACINTOSH')}. Or" if is_old_mac else ", or"
            hint = f"Name another encoding{such_as} leave out {spell('encoding')}."
        elif encoding == "UTF-8" and self._has_option:
            hint = f"If you know the encoding, name it, such as: {spell('encoding', 'WINDOWS-1252')}"
        elif encoding == "UTF-8":
            hint = f"If you know the encoding, convert the file, such as: {_iconv(self.name, 'WINDOWS-1252')}"
        return SourceError(
            f"{self.name}:{line}: byte {byte}{of_what} is not {encoding}",
            hint=hint,
            details={"file": self.name, "line": line, "byte": byte},
        )

    def check(self, block: TextBlock) -> None:
        """Check that a block is UTF-8. Raises SourceError with the line and the byte."""
        if self._decoder is not None or block.data.isascii():
            return
        try:
            block.data.decode()
        except UnicodeDecodeError as error:
            line = block.line + count_newlines(block.data[: error.start])
            raise self.bad_bytes(line, block.offset + error.start, "UTF-8") from error


_NO_ENCODING: Final = AddOptions(has_csv_options=False)


@contextmanager
def open_text(store: Store, name: str, options: AddOptions = _NO_ENCODING) -> Iterator[TextStream]:
    """Open a stored text file. Its first bytes decide whether it is compressed, and its encoding.

    Args:
        store: where it is stored.
        name: its name.
        options: its encoding, if the caller knows it.

    Raises:
        SourceError: the file is damaged, or UTF-16 without a byte order mark. Reading may raise it later.
        StorageError: the file is missing or cannot be read.
    """
    with store.open(name) as file:
        yield TextStream(file, name, options)


def read_blocks(
    stream: TextStream, find_end: Callable[[bytes], int], *, block_bytes: int = BLOCK_BYTES
) -> Iterator[TextBlock]:
    """Yield the text in blocks that end at the end of a row.

    Args:
        stream: the open file.
        find_end: returns the place after the last row that ends in these bytes, or 0. The bytes start at the start of a
            row.
        block_bytes: the size of a block; rows may make it larger.

    Raises:
        SourceError: a row is longer than ``MAX_ROW_BYTES``, or the text cannot be read.
    """
    pending, line, offset = b"", 1, stream.offset
    while True:
        # At least as many bytes as are pending, so that a long row is not searched again for each small piece.
        wanted = min(max(block_bytes, len(pending)), MAX_ROW_BYTES + 1 - len(pending))
        piece = stream.read(wanted)
        data = pending + piece if pending else piece
        if len(piece) < wanted:  # at the end
            yield TextBlock(data, line, count_newlines(data), offset, is_last=True)
            return
        end = find_end(data)
        if end:
            rows = data[:end]
            yield (block := TextBlock(rows, line, count_newlines(rows), offset, is_last=False))
            line += block.num_lines
            offset += end
            pending = data[end:]
        elif len(data) > MAX_ROW_BYTES:
            raise too_long(stream.name, line)
        else:
            pending = data


_CAT: Final = {"gz": "gzip -dc", "bz2": "bzip2 -dc", "xz": "xz -dc", "zst": "zstd -dc"}


def too_long(name: str, line: int) -> SourceError:
    """Make the error for a row of more than ``MAX_ROW_BYTES``."""
    return SourceError(
        f"{name}:{line}: the row that starts here is longer than {MAX_ROW_BYTES:,} bytes",
        hint="Look at it, and for a quote that is never closed: "
        f"{_CAT.get(name.lower().rpartition('.')[2], 'cat')} {shlex.quote(name)} | sed -n {line}p | head -c 1000",
        details={"file": name, "line": line, "limit": MAX_ROW_BYTES},
    )


def _iconv(name: str, encoding: str) -> str:
    """Return the command that converts a file to UTF-8."""
    path = shlex.quote(name)
    return f"iconv -f {encoding} -t UTF-8 {path} > converted && mv converted {path}"


def count_newlines(data: bytes) -> int:
    r"""Count line ends: ``\n``, ``\r\n``, or ``\r`` alone, which old programs write.

    >>> count_newlines(b"a\r\nb\rc\n")
    3
    """
    return int(np.count_nonzero(_line_ends(data)))


def find_line_ends(data: bytes) -> npt.NDArray[np.int64]:
    """The places after each line end, as ``count_newlines`` counts them."""
    return np.flatnonzero(_line_ends(data)).astype(np.int64, copy=False) + 1


def find_last_line_end(data: bytes) -> int:
    """The place after the last line end that no later byte can extend, or 0."""
    return data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, -1) + 1  # a b"\n" may follow a b"\r" at the end


def _line_ends(data: bytes) -> npt.NDArray[np.bool_]:
    """Whether each byte is the last one of a line end."""
    array = np.frombuffer(data, np.uint8)  # bytes.count is slow for a byte that occurs often
    is_end: npt.NDArray[np.bool_] = array == ord("\n")
    if b"\r" in data:
        alone = array == ord("\r")
        np.greater(alone[:-1], is_end[1:], out=alone[:-1])  # and not, in one pass
        is_end |= alone
    return is_end
