"""Content of a record: for each feature bytes that are equal if, and only if, a reader gets the same value.

They are made of decoded values, so that the encoding of a tensor, the compression of a PNG and the order of map keys
do not count. One exception: a JPEG, and a PNG that only Pillow decodes, is its file's bytes, because its pixels differ
between versions of libjpeg. Every form says where it ends, so that two different rows of values never give the same
bytes.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.features.block_columns import ArrayColumn, BlockColumn, StoredColumn, TextColumn
from registry.features.codec import codec_of
from registry.features.column_reader import ColumnReader
from registry.features.containers import FeaturesDict, columns_of
from registry.features.feature import TEXT, Leaf
from registry.features.nested import Ragged
from registry.wire import FlatBlock, FlatValue, decode_example
from registry.wire.gather import Octets, Places, take_ragged

_COUNT: Final = struct.Struct("<Q")
_IS_LITTLE: Final = sys.byteorder == "little"
_MOST_PATH_BYTES: Final = 1000

_LARGE_ROW: Final = 4096
"""Values of this size are handed on as they lie, not laid out anew."""

_COUNT_DTYPE: Final = np.dtype("<u8")


class ContentReader:
    """Takes the content out of the records of one schema; ``paths`` are the features, in the order of what it gives.

    >>> reader = ContentReader(FeaturesDict({"id": "int64", "name": "str"}))
    >>> record = codec_of(reader.features).encode({"id": 7, "name": "x"})
    >>> reader.paths, [content.hex() for content in reader.read(record)]
    (('id', 'name'), ['000700000000000000', '010000000000000078'])
    """

    def __init__(self, features: FeaturesDict) -> None:
        self.features = features
        self._codec = codec_of(features.missing_as_none())
        readers = zip(columns_of(features), self._codec.columns, strict=True)
        found = ((content_path(column.names), reader) for column, reader in readers)
        self._columns: dict[str, ColumnReader] = dict(sorted(found, key=lambda pair: pair[0]))
        self.paths = tuple(self._columns)

    def read(self, record: bytes) -> list[bytes]:
        """The content of each feature of ``record``.

        Raises:
            CorruptExampleError: no tf.train.Example, or one that does not hold these features.
        """
        return self.read_flat(decode_example(record))

    def read_flat(self, flat: Mapping[str, FlatValue]) -> list[bytes]:
        """The content of each feature of the record that has these flat values. Errors as ``read``."""
        return [content_bytes(column.read_content(flat)) for column in self._columns.values()]

    def read_block(self, data: Octets, offsets: Places, lengths: Places) -> list[Iterator[Any]] | None:
        """The content of many records: for each of ``paths`` buffers that, joined, are the contents of the records.

        What takes a hundred calls for each record takes a few for a thousand: columns are decoded together, and laid
        out in the bytes that each value alone would give.

        None where a record may be damaged: read alone, it says what is wrong. None, too, where a feature is not known,
        because its keys are not. ``CorruptExampleError``, while the buffers are made, means the same.
        """
        if self._codec.has_unknown:
            return None
        flat = self._codec.block_decoder.decode(data, offsets, lengths)
        if flat.fault is not None:
            return None
        return [_buffers(flat, reader) for reader in self._columns.values()]

    def values(self, record: bytes, paths: Iterable[str]) -> dict[str, Any]:
        """The decoded values of the features ``paths`` of ``record``; None for one that is missing.

        Errors as ``Codec.decode``.
        """
        flat = decode_example(record)
        return {path: self._columns[path].read(flat) for path in paths}


def content_path(names: Sequence[str]) -> str:
    r"""What the content of a feature is known by: its ``names``, from the outermost dict inwards, joined by ``/``.

    A ``/`` in a name is written ``\/``, and a backslash twice, because a reader finds ``a/b`` and ``a``, ``b`` in
    different places. A path of more than 1,000 bytes ends in its sha256: a database's index holds no longer one.
    """
    path = "/".join(name.replace("\\", r"\\").replace("/", r"\/") for name in names)
    data = path.encode()
    if len(data) <= _MOST_PATH_BYTES:
        return path
    return data[: _MOST_PATH_BYTES - 70].decode("utf-8", "ignore") + "…" + hashlib.sha256(data).hexdigest()


def content_bytes(value: Any) -> bytes:
    """The bytes of a decoded value: the shape, then the values, little-endian.

    The dtype is not in them: values are compared under one schema.
    """
    if isinstance(value, bytes):
        return _COUNT.pack(len(value)) + value
    if isinstance(value, Ragged):
        return b"".join(map(content_bytes, (*value.row_lengths, value.flat_values)))
    if value is None:
        return b"\xff"  # no number of dimensions
    if isinstance(value, dict):
        return content_bytes([part for name, inner in value.items() for part in (name.encode(), inner)])
    if isinstance(value, (list, tuple)):
        return _COUNT.pack(len(value)) + b"".join(map(content_bytes, value))
    if isinstance(value, np.generic):
        return b"\0" + _little_endian(value)
    array = np.asarray(value)
    if array.dtype == object:
        return _shape_bytes(array.shape) + b"".join(map(content_bytes, array.flat))
    return _shape_bytes(array.shape) + _little_endian(array)


def _shape_bytes(shape: tuple[int, ...]) -> bytes:
    return struct.pack(f"<B{len(shape)}Q", len(shape), *shape)


def _little_endian(value: Any) -> bytes:
    """The bytes of what was decoded, which is in the machine's order."""
    stored: bytes = value.tobytes() if _IS_LITTLE else value.astype(value.dtype.newbyteorder("<")).tobytes()
    return stored


def _buffers(flat: FlatBlock, reader: ColumnReader) -> Iterator[Any]:
    # Where content is another thing than the value, as with images, it is told one by one.
    is_plain = type(reader.leaf).restore_content is Leaf.restore_content and not reader.may_be_absent
    column = reader.read_block(flat, copy=False) if is_plain else None
    if column is None:
        return (content_bytes(reader.read_content(record)) for record in reader.split(flat))
    return _lay_out(column, flat.num_records)


def _lay_out(column: BlockColumn, count: int) -> Iterator[Any]:
    if isinstance(column, TextColumn):
        return _texts(column)
    if isinstance(column, StoredColumn) and column.num_bytes >= _LARGE_ROW:
        return _large(column, count)
    if isinstance(column, ArrayColumn | StoredColumn):
        values = column.array(count)
        if values.dtype != TEXT:
            return iter((_rows(values),))
    return map(content_bytes, column.rows(0, count))


def _rows(values: npt.NDArray[Any]) -> Octets:
    """Each value behind its shape, little-endian, all in one buffer."""
    head = np.frombuffer(_shape_bytes(values.shape[1:]), np.uint8)
    stored = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    body = stored.view(np.uint8).reshape(len(values), -1) if stored.size else np.empty((len(values), 0), np.uint8)
    rows = np.empty((len(values), head.size + body.shape[1]), np.uint8)
    rows[:, : head.size] = head
    rows[:, head.size :] = body
    return rows


def _texts(column: TextColumn) -> Iterator[Any]:
    """Each text behind its length."""
    count, sizes = column.starts.size, np.ascontiguousarray(column.sizes, _COUNT_DTYPE)
    if int(sizes.sum()) > _LARGE_ROW * count:
        for head, text in zip(sizes.view("V8").tolist(), column.rows(0, count), strict=True):
            yield head
            yield text
        return
    ends = (column.sizes + _COUNT_DTYPE.itemsize).cumsum()
    laid_out = np.empty(int(ends[-1]) if count else 0, np.uint8)
    is_text = np.ones(laid_out.size, np.bool_)
    heads = (ends - column.sizes - _COUNT_DTYPE.itemsize)[:, None] + np.arange(_COUNT_DTYPE.itemsize)
    is_text[heads] = False
    laid_out[heads] = sizes.view(np.uint8).reshape(count, -1)
    laid_out[is_text] = take_ragged(column.data, column.starts, column.sizes)
    yield laid_out


def _large(column: StoredColumn, count: int) -> Iterator[Any]:
    head = _shape_bytes(column.shape)
    for value in column.rows(0, count):
        yield head
        yield np.ascontiguousarray(value, value.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
