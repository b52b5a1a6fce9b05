"""Reads the footer of a Parquet file and checks it before pyarrow sees it.

pyarrow 26 crashes the process if a column of a damaged footer is requested (``.column(...)``, ``.statistics``), by an
unexpected C++ exception. It also allocates memory for the numbers of values that a footer claims. So this module reads
what the registry needs of the columns, and passes a footer to pyarrow only if its schema is a tree and its row groups
have the columns of that schema with consistent sizes.

    ... pages ... | footer, a Thrift struct | its length, u32 | PAR1
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from threading import Lock
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias

from registry.shards.thrift import BINARY, I32, I64, LIST, STRUCT, CompactReader, Fields, ThriftError

MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
_END_BYTES: Final = 8
_TAIL_BYTES: Final = 2**16
"""Number of bytes that are read at the end of a file first; most footers are smaller."""
_MOST_BYTES: Final = 2**25
"""Largest footer. It is read into memory as a whole."""
_MOST_DEPTH: Final = 100
"""Deepest nesting of groups in a schema; a list takes two groups, a struct one."""
_MOST_PATH_BYTES: Final = 2**26
"""Largest total length of the paths of all columns and their groups, because pyarrow creates a str for each."""
_HEADER_BYTES: Final = 256
_NUM_TYPES: Final = 8
_REPEATED: Final = 2


class ColumnChunk(NamedTuple):
    """The pages of one column in a row group: bytes ``start`` to ``stop`` of the file."""

    start: int
    stop: int
    codec: int
    num_values: int
    num_bytes: int
    """Size of the pages when decompressed."""
    null_count: int | None
    """Number of nulls, or None if the statistics lack it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """What the footer says about a row group."""

    num_rows: int
    num_bytes: int
    """Uncompressed size of its columns."""
    columns: tuple[ColumnChunk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """The checked footer of a file.

    Attributes:
        content: the bytes of a Parquet file that has only this footer; pyarrow reads it instead of the file.
        column_fields: the top-level field of the schema that each column belongs to.
        row_groups: the row groups in order.
    """

    content: bytes
    column_fields: tuple[str, ...]
    row_groups: tuple[RowGroup, ...]

    @property
    def num_columns(self) -> int:
        """Number of columns as Parquet counts them: each field of a struct is a column."""
        return len(self.column_fields)


def read_footer(file: BinaryIO) -> Footer:
    """Read and check the footer of an open Parquet file.

    Raises:
        ThriftError: the footer is missing or invalid. It is a ValueError, and says where the fault is.
        OSError: the file cannot be read.
    """
    size = file.seek(0, io.SEEK_END)
    tail = _read_end(file, size, min(size, _TAIL_BYTES))
    if tail[-4:] == _ENCRYPTED:
        raise ThriftError("it is encrypted")
    if size < 4 + _END_BYTES or tail[-4:] != MAGIC:
        raise ThriftError(f"it does not end with {MAGIC.decode()}")
    length = int.from_bytes(tail[-8:-4], "little")
    start = size - _END_BYTES - length
    if start < 4:
        raise ThriftError(f"its footer claims {length} bytes, but the file has {size}")
    if length > _MOST_BYTES:
        raise ThriftError(f"its footer has {length} bytes, more than {_MOST_BYTES}")
    if length + _END_BYTES > len(tail):
        tail = _read_end(file, size, length + _END_BYTES)
    content = MAGIC + tail[-(length + _END_BYTES) :]
    fields, row_groups = _FOUND.find(content, start)
    return Footer(content=content, column_fields=fields, row_groups=row_groups)


def _read_end(file: BinaryIO, size: int, count: int) -> bytes:
    file.seek(size - count)
    tail = file.read(count)
    if len(tail) != count:
        raise ThriftError(f"it was truncated while it was read: {count - len(tail)} bytes are missing")
    return tail


def claimed_page_bytes(file: BinaryIO, chunk: ColumnChunk, *, most: int) -> int:
    """The decompressed size in bytes that the pages of ``chunk`` claim. It stops reading headers beyond ``most``.

    Raises:
        ThriftError: the header of a page is invalid.
        OSError: the file cannot be read.
    """
    place, num_bytes, num_values = chunk.start, 0, 0
    while place < chunk.stop and num_values < chunk.num_values and num_bytes <= most:
        header, place = _read_page_header(file, place, chunk.stop)
        size, packed = _count(header.get(2), "uncompressed_page_size"), _count(header.get(3), "compressed_page_size")
        num_bytes += size
        place += packed
        num_values += max(0, header.get(5, header.get(8, {})).get(1, 0))
    return num_bytes


def _read_page_header(file: BinaryIO, place: int, stop: int) -> tuple[dict[int, Any], int]:
    """Read a page header; returns it and where its page begins. Most are small; statistics may make one large."""
    for size in (_HEADER_BYTES, stop - place):
        file.seek(place)
        reader = CompactReader(file.read(min(size, stop - place)))
        try:
            return reader.struct(_PAGE_HEADER), place + reader.place
        except ThriftError:
            if size >= stop - place:
                raise
    raise ThriftError(f"byte {place}: expected a page header")


_Checked: TypeAlias = tuple[tuple[str, ...], tuple[RowGroup, ...]]


class _CheckedFooters:
    """Cached results of the footers that were checked last, so that a file is not checked again when it is reopened."""

    _MOST_CHUNKS: Final = 2**18

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, _Checked] = OrderedDict()
        self._num_chunks = 0
        self._lock = Lock()

    def find(self, content: bytes, start: int) -> _Checked:
        """Call ``_check_footer``, or return its cached result."""
        key = blake2b(content, digest_size=32, salt=start.to_bytes(8, "little")).digest()
        with self._lock:
            result = self._kept.get(key)
            if result is not None:
                self._kept.move_to_end(key)
                return result
        made = _check_footer(content, start)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = made
                self._num_chunks += _num_chunks(made)
            while self._num_chunks > self._MOST_CHUNKS and len(self._kept) > 1:
                self._num_chunks -= _num_chunks(self._kept.popitem(last=False)[1])
        return made


def _num_chunks(checked: _Checked) -> int:
    return 1 + max(1, len(checked[0])) * len(checked[1])


_FOUND: Final = _CheckedFooters()


def _check_footer(content: bytes, start: int) -> _Checked:
    """Check a footer that begins at byte ``start`` of its file; returns its column fields and row groups."""
    found = CompactReader(content[:-_END_BYTES], len(MAGIC)).struct(_FOOTER)
    leaves = _read_schema(_need(found, 2, "schema"))
    num_rows = _need(found, 3, "num_rows")
    groups = tuple(_check_row_group(group, leaves, start) for group in _need(found, 4, "row_groups"))
    if sum(group.num_rows for group in groups) != num_rows:
        found_rows = sum(group.num_rows for group in groups)
        raise ThriftError(f"expected {num_rows} rows, its row groups have {found_rows}")
    return tuple(leaf.field for leaf in leaves), groups


def _read_schema(elements: list[_Element]) -> list[_Leaf]:
    """The columns of a schema, whose elements are listed depth first, each with the number of its children."""
    leaves: list[_Leaf] = []
    open_groups: list[tuple[int, bool, int]] = []  # number of missing children, is it repeated, bytes of its path
    path_bytes, field = 0, ""
    for place, element in enumerate(elements):
        if place == 0:
            open_groups.append((_count(element.num_children, "num_children"), False, 0))
            continue
        while open_groups and not open_groups[-1][0]:
            open_groups.pop()
        if not open_groups:
            raise ThriftError(f"schema element {element.name[:100]!r} does not belong to a group")
        left, is_repeated, above = open_groups[-1]
        field = element.name if len(open_groups) == 1 else field
        open_groups[-1] = left - 1, is_repeated, above
        if element.repetition not in range(3):
            raise ThriftError(f"schema element {element.name[:100]!r}: unknown repetition_type {element.repetition}")
        is_repeated = is_repeated or element.repetition == _REPEATED
        above += len(element.name.encode()) + 1
        if element.type is None:
            open_groups.append((_count(element.num_children, "num_children"), is_repeated, above))
        elif element.num_children:
            raise ThriftError(f"schema element {element.name[:100]!r} has a type and children")
        elif element.type not in range(_NUM_TYPES):
            raise ThriftError(f"column {element.name[:100]!r}: unknown type {element.type}")
        else:
            leaves.append(_Leaf(element.name, element.type, is_repeated, field))
            path_bytes += above * len(open_groups)
        if len(open_groups) > _MOST_DEPTH:
            raise ThriftError(f"its schema is nested more than {_MOST_DEPTH} deep")
        if path_bytes > _MOST_PATH_BYTES:
            raise ThriftError(f"the paths of its columns take more than {_MOST_PATH_BYTES} bytes")
    if not elements or any(left for left, _, _ in open_groups):
        raise ThriftError("its schema ends too early")
    return leaves


def _check_row_group(group: _RawGroup, leaves: list[_Leaf], end: int) -> RowGroup:
    """Check a row group, whose pages must end before byte ``end`` of the file."""
    if len(group.columns) != len(leaves):
        raise ThriftError(f"a row group has {len(group.columns)} columns, the schema {len(leaves)}")
    for (kind, chunk), leaf in zip(group.columns, leaves, strict=True):
        if kind != leaf.type:
            raise ThriftError(f"column {leaf.name[:100]!r}: expected type {leaf.type} of the schema, found {kind}")
        if chunk.num_values != group.num_rows and not leaf.is_repeated:
            raise ThriftError(f"column {leaf.name[:100]!r}: {chunk.num_values} values in {group.num_rows} rows")
        if chunk.stop > end:
            raise ThriftError(f"column {leaf.name[:100]!r}: its pages end at byte {chunk.stop}, the footer is at {end}")
    return RowGroup(
        num_rows=group.num_rows, num_bytes=group.num_bytes, columns=tuple(chunk for _, chunk in group.columns)
    )


class _Leaf(NamedTuple):
    name: str
    type: int
    is_repeated: bool
    field: str


class _Element(NamedTuple):
    """An element of the schema: a column if it has a ``type``, otherwise a group."""

    name: str
    type: int | None
    repetition: int
    num_children: int | None


class _RawGroup(NamedTuple):
    """A row group as it was read, unchecked; each column has its type."""

    num_rows: int
    num_bytes: int
    columns: list[tuple[int, ColumnChunk]]


# Each struct becomes a small tuple as soon as it is read, so that a hostile list of a million takes little memory.


def _read_element(reader: CompactReader) -> _Element:
    result = reader.struct(_ELEMENT)
    name: bytes = _need(result, 4, "name")
    try:
        return _Element(name.decode(), result.get(1), result.get(3, 0), result.get(5))
    except UnicodeDecodeError as error:
        raise ThriftError(f"the name {name[:100]!r} is not UTF-8") from error


def _read_row_group(reader: CompactReader) -> _RawGroup:
    result = reader.struct(_ROW_GROUP)
    return _RawGroup(
        _count(result.get(3), "num_rows"), _count(result.get(2), "total_byte_size"), _need(result, 1, "columns")
    )


def _read_chunk(reader: CompactReader) -> tuple[int, ColumnChunk]:
    result = _need(reader.struct(_CHUNK), 3, "meta_data")
    num_values = _count(result.get(5), "num_values")
    start = _count(result.get(9), "data_page_offset")
    if 0 < result.get(11, 0) < start:  # some writers write 0 if there is no dictionary page
        start = result[11]
    nulls = result.get(12, {}).get(3)
    return _need(result, 1, "type"), ColumnChunk(
        start=start,
        codec=_need(result, 4, "codec"),
        stop=start + _count(result.get(7), "total_compressed_size"),
        num_values=num_values,
        num_bytes=_count(result.get(6), "total_uncompressed_size"),
        null_count=nulls if nulls is not None and 0 <= nulls <= num_values else None,
    )


def _need(found: Mapping[int, Any], number: int, name: str) -> Any:
    if number not in found:
        raise ThriftError(f"{name} is missing")
    return found[number]


def _count(value: int | None, name: str) -> int:
    if value is None or value < 0:
        raise ThriftError(f"{name} is {'missing' if value is None else value}")
    return value


_I32: Final = I32, CompactReader.i32
_I64: Final = I64, CompactReader.i64
_ELEMENT: Final[Fields] = {
    1: _I32,  # type
    3: _I32,  # repetition_type
    4: (BINARY, CompactReader.binary),  # name
    5: _I32,  # num_children
}
_STATISTICS: Final[Fields] = {3: _I64}  # null_count
_COLUMN: Final[Fields] = {
    1: _I32,  # type
    4: _I32,  # codec
    5: _I64,  # num_values
    6: _I64,  # total_uncompressed_size
    7: _I64,  # total_compressed_size
    9: _I64,  # data_page_offset
    11: _I64,  # dictionary_page_offset
    12: (STRUCT, partial(CompactReader.struct, fields=_STATISTICS)),
}
_CHUNK: Final[Fields] = {3: (STRUCT, partial(CompactReader.struct, fields=_COLUMN))}
_ROW_GROUP: Final[Fields] = {
    1: (LIST, partial(CompactReader.list_of, kind=STRUCT, read=_read_chunk)),
    2: _I64,  # total_byte_size
    3: _I64,  # num_rows
}
_FOOTER: Final[Fields] = {
    2: (LIST, partial(CompactReader.list_of, kind=STRUCT, read=_read_element)),
    3: _I64,  # num_rows
    4: (LIST, partial(CompactReader.list_of, kind=STRUCT, read=_read_row_group)),
}
_PAGE: Final[Fields] = {1: _I32}  # num_values
_PAGE_HEADER: Final[Fields] = {
    2: _I32,  # uncompressed_page_size
    3: _I32,  # compressed_page_size
    5: (STRUCT, partial(CompactReader.struct, fields=_PAGE)),  # data_page_header
    8: (STRUCT, partial(CompactReader.struct, fields=_PAGE)),  # data_page_header_v2
}
