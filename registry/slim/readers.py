"""Readers of files: callables that get a path and return keys and records.

    reader(path, **reader_kwargs) -> iterator of (key, record), both bytes

The readers of this module also know the position of each record, which errors name and keys contain. A file whose
compression is not the declared one is an error and not an empty stream. ``parallel_reader`` calls the readers.
"""

from __future__ import annotations

import abc
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from gzip import BadGzipFile, GzipFile
from itertools import islice, repeat
from operator import itemgetter
from typing import Any, BinaryIO, Final, NoReturn, TypeAlias

from registry.errors import (
    CorruptExampleError,
    CorruptRecordError,
    ReaderFailedError,
    RegistryError,
    UsageError,
    WrongTypeError,
)
from registry.model import whole_number
from registry.shards import as_records, open_shard
from registry.slim.data_files import DataFile, find_data_files
from registry.tfrecord import HEADER_BYTES, RecordBlock, Verify, check_verify, is_gzip, is_header, read_blocks

_UNIT_RECORDS: Final = 4096
_UNIT_BYTES: Final = 2**20
_UNIT_SECONDS: Final = 0.02
"""Maximum time in seconds that a record waits for the records after it."""


Record: TypeAlias = tuple[bytes, DataFile, int | bytes]
"""The bytes of a record, its file, and its position: a byte offset, a number or a line, which the key contains. For a
user's reader, the position is the whole key. It is a plain tuple, as creating a named one takes five times as long.
"""

VALUE: Final = itemgetter(0)
"""Returns the bytes of a record."""

Unit: TypeAlias = list[Record]
"""Consecutive records of one file that are read together."""

_COMPRESSIONS: Final = ("", "ZLIB", "GZIP")
"""The compressions by TensorFlow's number."""
_MAGIC_NUMBERS: Final = (
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"PK\x03\x04", "zip"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\xff\x06\x00\x00sNaPpY", "snappy"),
    (b"PAR1", "Parquet"),
)
_TEXT_FILE: Final = "text"
_TEXT_BYTES: Final = frozenset(b"\t\n\r" + bytes(range(0x20, 0x7F)))

_LENGTH_BYTES: Final = 8
"""Number of bytes of a record's length. Some of them are zero, so a TFRecord file is never mistaken for text."""
_ZLIB_STARTS: Final = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


def key_of(record: Record) -> bytes:
    """``path:place``."""
    _, file, place = record
    return place if isinstance(place, bytes) else b"%s:%d" % (os.fsencode(file.path), place)


def place_of(record: Record) -> tuple[str, str]:
    """The unit of a record's position (``offset``, ``line``, ``record`` or ``key``), and the position in words."""
    _, file, place = record
    if isinstance(place, bytes):
        return "key", f"key {place.decode(errors='replace')!r}"
    unit, word = {"tfrecord": ("offset", "byte"), "text": ("line", "line")}.get(file.file_format, ("record", "number"))
    return unit, f"{word} {place}"


def raise_of_record(error: Exception, record: Record) -> NoReturn:
    """Raise ``error``, which occurred while decoding ``record``, with the path and position of the record."""
    place, path, (unit, where) = record[2], record[1].path, place_of(record)
    if isinstance(error, CorruptExampleError):
        details = {name: value for name, value in error.details.items() if name != "record"}
        details |= {"path": path, unit: place if isinstance(place, int) else place.decode(errors="replace")}
        message = f"{path}: record at {where}: {error.message}"
        raise CorruptExampleError(message, hint=error.hint, details=details) from error
    error.add_note(f"while decoding the record at {where} of {path}")
    raise error


class FileReader(abc.ABC):
    """Reads one file. Subclasses implement ``units``. Iterating yields (key, record), both bytes.

    Args:
        path: the path of the file, or a ``DataFile``.

    Raises:
        UsageError: ``path`` names several files, or none.
    """

    def __init__(self, path: str | os.PathLike[str] | DataFile) -> None:
        files = [path] if isinstance(path, DataFile) else find_data_files(path)
        if len(files) != 1:
            raise UsageError(f"a reader reads one file, and {path!s} names {len(files)}")
        self.file = files[0]

    @abc.abstractmethod
    def units(self) -> Iterator[Unit]:
        """The records in units of several. An error is raised after all records before it."""

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        for unit in self.units():
            for record in unit:
                yield key_of(record), record[0]


class TFRecordReader(FileReader):
    """Reads a TFRecord file, with or without gzip; with a ``DataFile``, a file of any format of a version.

    A key is ``path:offset``, where ``offset`` is the first byte of the record's length in the decompressed file. In a
    file of another format, a key is ``path:number``, with records numbered from 0.

    Args:
        path: the path of the file, or a ``DataFile``.
        options: the compression of the file, which is checked: ``"GZIP"``, ``""`` (none), or an object with the
            attribute ``compression_type``, such as TensorFlow's ``TFRecordOptions``. None detects it.
        verify: how checksums are checked: ``"record"``, ``"block"`` or ``"off"``.

    Raises:
        UsageError: ``options`` or ``verify`` is invalid.
        CorruptRecordError: while reading: a record is damaged, the file is truncated or not a TFRecord file, or its
            compression is not the declared one.
        ShardMismatchError: while reading: the file does not have the declared number of records.
        StorageError: while reading: the file cannot be read.
    """

    def __init__(
        self, path: str | os.PathLike[str] | DataFile, options: Any = None, *, verify: Verify = "record"
    ) -> None:
        self._compression = compression_of(options)
        self._verify = check_verify(verify)
        super().__init__(path)

    def units(self) -> Iterator[Unit]:
        """The records in units of at most 4096 records and 1 MiB, or of one longer record."""
        return self._frames() if self.file.file_format == "tfrecord" else self._numbered()

    def _frames(self) -> Iterator[Unit]:
        file = self.file
        blocks = read_blocks(
            file.store,
            file.filename,
            path=file.path,
            skip=file.skip,
            take=file.take,
            num_records=file.num_records,
            most=_UNIT_RECORDS,
            verify=self._verify,
            check_start=lambda start: check_compression(start, self._compression, path=file.path),
        )
        for block, places in blocks:
            yield _as_unit(block, file, places.tolist())

    def _numbered(self) -> Iterator[Unit]:
        file = self.file
        shard = open_shard(
            file.store,
            file.filename,
            file_format=file.file_format,
            features=file.features,
            num_records=file.num_records,
            verify=self._verify,
        )
        num_records: int = shard.num_records  # type: ignore[attr-defined]  # formats without frames know it
        if file.num_records is not None:
            num_records = file.num_records  # the declared number; a file with another number is an error when read
        stop = num_records if file.take is None else file.skip + file.take
        first, step = file.skip, 1
        while first < stop:
            block = as_records(shard.read(first, min(step, stop - first)))
            yield _as_unit(block, file, range(first, first + block.num_records))
            first += block.num_records
            mean = block.num_bytes // block.num_records
            step = max(1, min(2 * step, _UNIT_RECORDS, _UNIT_BYTES // max(1, mean)))


class TextLineReader(FileReader):
    """Reads the lines of a text file, with or without gzip, without line ends.

    A key is ``path:line``; lines are numbered from 1 and include header lines.

    Args:
        path: the path of the file, or a ``DataFile``.
        skip_header_lines: number of lines to skip at the start.

    Raises:
        UsageError: ``skip_header_lines`` is negative, or ``path`` is part of a file or not a text file.
        CorruptRecordError: while reading: the gzip stream is damaged.
        StorageError: while reading: the file cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str] | DataFile, skip_header_lines: int = 0) -> None:
        self._skip = whole_number(skip_header_lines, "skip_header_lines", least=0, error=WrongTypeError)
        super().__init__(path)

    def units(self) -> Iterator[Unit]:
        """The lines in units of several."""
        file = replace(_whole(self.file, "TextLineReader"), file_format="text")
        with file.store.open(file.filename) as stored:
            numbered = islice(_numbered_lines(stored, file.path), self._skip, None)
            yield from _in_units(((_without_end(line), file, number) for number, line in numbered), _UNIT_RECORDS)


def _numbered_lines(stored: BinaryIO, path: str) -> Iterator[tuple[int, bytes]]:
    start = stored.read(3)
    stored.seek(0)
    number = 0
    try:
        for number, line in enumerate(GzipFile(fileobj=stored) if is_gzip(start) else stored, 1):
            yield number, line
    except (EOFError, BadGzipFile, zlib.error) as error:
        raise CorruptRecordError(
            f"after line {number} the gzip stream is damaged ({error})", path=path, record=number, offset=None
        ) from error


READER_HINT: Final = "A reader is called with a path and returns an iterator of (key, record), both bytes."

Reader: TypeAlias = Callable[..., Iterable[tuple[bytes | str, bytes | str]]]


def read_units(reader: Reader, file: DataFile, options: dict[str, Any], *, most: int) -> Iterator[Unit]:
    """The records of a file in units; at most ``most`` records each if ``reader`` is not one of this module.

    Raises:
        WrongTypeError: the reader returned something other than pairs of bytes.
        UsageError: the reader cannot read part of a file.
        ReaderFailedError: the reader raised an error that is not a RegistryError.
    """
    kind = reader.func if isinstance(reader, partial) else reader
    name = getattr(kind, "__name__", None) or type(kind).__name__
    is_of_files = isinstance(kind, type) and issubclass(kind, FileReader)
    num_records, last = 0, None
    try:
        made = reader(file if is_of_files else _whole(file, name).path, **options)
        for unit in made.units() if isinstance(made, FileReader) else _in_units(_pairs(made, file, name), most):
            num_records, last = num_records + len(unit), unit[-1]
            yield unit
    except (GeneratorExit, KeyboardInterrupt, RegistryError):
        raise
    except BaseException as error:
        raise _failed(error, name, file.path, num_records, last) from error


def _in_units(records: Iterable[Record], most: int) -> Iterator[Unit]:
    """Group records in units of at most ``most``, fewer if they are long or slow. Yields records before an error."""
    unit: Unit = []
    num_bytes, end = 0, time.monotonic() + _UNIT_SECONDS
    try:
        for record in records:
            unit.append(record)
            num_bytes += len(record[0])
            if len(unit) >= most or num_bytes >= _UNIT_BYTES or time.monotonic() > end:
                done, unit, num_bytes = unit, [], 0
                yield done
                del done
                end = time.monotonic() + _UNIT_SECONDS
    except GeneratorExit:
        raise
    except BaseException:
        if unit:
            yield unit
        raise
    if unit:
        yield unit


def _failed(error: BaseException, name: str, path: str, num_records: int, last: Record | None) -> ReaderFailedError:
    key = None if last is None else key_of(last).decode(errors="replace")
    after = "before its first record"
    if num_records:
        after = f"after {num_records} record{'s' * (num_records != 1)} (the last one is {key!r})"
    return ReaderFailedError(
        f"{path}: the reader {name} failed {after}: {type(error).__name__}: {error}",
        hint="The reader's own exception is the cause of this error. All records before it were returned.",
        details={"path": path, "reader": name, "record": num_records, "key": key},
    )


def _pairs(made: Any, file: DataFile, name: str) -> Iterator[Record]:
    for pair in made if isinstance(made, Iterable) else [made]:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise _no_pair(name, file.path, pair)
        key, value = (part.encode() if isinstance(part, str) else part for part in pair)
        if isinstance(value, memoryview | bytearray):
            value = bytes(value)
        if not isinstance(key, bytes) or not isinstance(value, bytes):
            raise _no_pair(name, file.path, pair)
        yield value, file, key


def _no_pair(name: str, path: str, found: Any) -> WrongTypeError:
    return WrongTypeError(
        f"{path}: the reader {name} must return pairs of key and record, and returned {found!r:.80}",
        hint=READER_HINT,
        details={"path": path, "reader": name},
    )


def _as_unit(block: RecordBlock, file: DataFile, places: Iterable[int]) -> Unit:
    return list(zip(block.records(), repeat(file), places, strict=False))


def _whole(file: DataFile, name: str) -> DataFile:
    if file.is_plain:
        return file
    subject = "a part of a file" if file.file_format == "tfrecord" else f"a {file.file_format} file"
    raise UsageError(
        f"{file.path}: {name} cannot read {subject}",
        hint="Leave the reader out: TFRecordReader reads the files of a published version.",
        details={"path": file.path, "reader": name},
    )


def _without_end(line: bytes) -> bytes:
    if not line.endswith(b"\n"):
        return line
    return line[:-2] if line.endswith(b"\r\n") else line[:-1]


def compression_of(options: Any) -> str | None:
    """The compression that ``options`` declare: ``""``, ``"GZIP"``, ``"ZLIB"``, or None if they declare none.

    Args:
        options: None, one of these texts, one of TensorFlow's numbers for them (0, 1, 2), or an object with one of
            these as its ``compression_type``.

    Raises:
        UsageError: ``options`` are something else.
    """
    named: Any = getattr(options, "compression_type", options)
    if named is None and options is not None:
        named = ""  # TensorFlow's options for a file that is not compressed
    if isinstance(named, int) and not isinstance(named, bool) and 0 <= named < len(_COMPRESSIONS):
        named = _COMPRESSIONS[named]
    if named is None:
        return None
    if isinstance(named, str) and named in _COMPRESSIONS:
        return named
    raise UsageError(
        f"unknown compression {named!r:.60}",
        hint="Pass options='GZIP', options='' for none, or leave them out: gzip is detected.",
    )


def check_compression(start: bytes, compression: str | None, *, path: str) -> None:
    """Check that a file that begins with ``start`` has the declared ``compression``, and one that can be read.

    Raises:
        CorruptRecordError: the compression differs; the hint names the kind of the file.
    """
    if not start:
        return
    found = _find_out(start)
    if found in ("", "GZIP") and compression in (None, found):
        return
    if compression is not None and compression != found:
        told = f"options say {compression or 'no compression'}"
        problem = f"the file is {found}, and {told}" if found else f"the file is not compressed, and {told}"
    else:
        problem = f"the file is {found}, which is not supported"
    error = CorruptRecordError(problem, path=path, record=0, offset=0)
    if found == _TEXT_FILE:
        error.hint = "Read lines with slim.TextLineReader. If the file has no records, remove it from the data sources."
    elif found in ("", "GZIP"):
        error.hint = "Leave reader_kwargs={'options': ...} out: gzip is detected."
    else:
        error.hint = f"Write the file again, without compression or with gzip: {found} is not supported."
    raise error


def _find_out(start: bytes) -> str:
    """The kind of a file by its first bytes: ``""`` for a TFRecord file, which may be damaged."""
    if is_gzip(start):
        return "GZIP"
    if not is_header(start):
        if start.startswith(_ZLIB_STARTS):
            return "ZLIB"
        for magic, name in _MAGIC_NUMBERS:
            if start.startswith(magic):
                return name
        if len(start) >= _LENGTH_BYTES and all(byte in _TEXT_BYTES for byte in start[:HEADER_BYTES]):
            return _TEXT_FILE
    return ""
