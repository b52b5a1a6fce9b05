"""Computes the content of a record: for each feature, bytes that are equal if and only if a reader gets equal values.

The bytes are computed from decoded values, so they do not depend on the encoding of a tensor, the compression of a PNG
or the order of map keys. There is one exception: a JPEG, or a PNG that only Pillow decodes, is represented by the bytes
of its file, because its pixels depend on the version of libjpeg. Each value is preceded by its shape or length, so that
different sequences of values never have the same bytes.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.features.block_columns import ArrayColumn, RaggedColumn, StoredColumn, TextColumn
from registry.features.codec import FlatRecords, codec_of
from registry.features.column_reader import ColumnReader
from registry.features.containers import FeaturesDict, columns_of, content_path
from registry.features.feature import TEXT, BlockColumn, Leaf, Shape
from registry.features.nested import Ragged
from registry.wire import FlatBlock, FlatValue, decode_example
from registry.wire.gather import Octets, Places, put, put_in_order, spare

_COUNT: Final = struct.Struct("<Q")
_IS_LITTLE: Final = sys.byteorder == "little"

_LARGE_ROW: Final = 4096
"""Values of at least this many bytes are passed on without copying them into one buffer."""

_COUNT_DTYPE: Final = np.dtype("<u8")


class ContentReader:
    """Computes the content of the records of one schema. ``paths`` lists the features in the order of its results.

    >>> reader = ContentReader(FeaturesDict({"id": "int64", "name": "str"}))
    >>> record = codec_of(reader.features).encode({"id": 7, "name": "x"})
    >>> reader.paths, [content.hex() for content in reader.read(record)]
    (('id', 'name'), ['000700000000000000', '010000000000000078'])
    """

    def __init__(self, features: FeaturesDict) -> None:
        self.features = features
        self._codec = codec_of(features.missing_as_none())
        paths = [content_path(column.names) for column in columns_of(features)]
        self._places = sorted(range(len(paths)), key=paths.__getitem__)
        self._columns: dict[str, ColumnReader] = {paths[place]: self._codec.columns[place] for place in self._places}
        self.paths = tuple(self._columns)

    def read(self, record: bytes) -> list[bytes]:
        """The content of each feature of ``record``.

        Raises:
            CorruptExampleError: the record is not a tf.train.Example, or does not hold these features.
        """
        return self.read_flat(decode_example(record))

    def read_flat(self, flat: Mapping[str, FlatValue]) -> list[bytes]:
        """The content of each feature of the record with these flat values.

        Raises:
            CorruptExampleError: the flat values do not fit the features.
        """
        return [content_bytes(column.read_content(flat)) for column in self._columns.values()]

    def read_block(self, block: FlatRecords, cuts: Sequence[int]) -> list[Iterator[Iterable[Any]]]:
        """The content of many records: for each of ``paths``, buffers with the contents of the records in order.

        They are divided at ``cuts``, the first and last of which are 0 and the number of records. The buffers of a run
        must be used before those of the next. Columns are decoded together, which takes a few calls for a thousand
        records. The bytes are the same as those of ``read`` for each record.

        Raises:
            CorruptExampleError: a record does not hold these features; or iterating the buffers raises it.
        """
        if self._codec.has_unknown:  # their keys can only be found among all keys of a record
            contents = [self.read(record) for record in block.records]
            return [_cut((content[place] for content in contents), cuts) for place in range(len(self.paths))]
        pairs = zip(self._places, self._columns.values(), strict=True)
        return [_buffers(block.flats[place], column, block.num_records, cuts) for place, column in pairs]

    @property
    def reads_blocks(self) -> bool:
        """Whether ``read_block`` decodes the columns of many records together, without a call for each record."""
        return not self._codec.has_unknown and all(map(_is_plain, self._columns.values()))

    def hash_block(self, block: FlatRecords, leaves: Sequence[tuple[int, Sequence[Any]]]) -> None:
        """Add the content of many records to hashes.

        Args:
            block: the records.
            leaves: for consecutive runs of these records, their number and a hash for each of ``paths``.

        Raises:
            CorruptExampleError: a record does not hold these features. The hashes are useless.
        """
        cuts = [0, *accumulate(count for count, _ in leaves)]
        for place, runs in enumerate(self.read_block(block, cuts)):
            for (_, hashers), buffers in zip(leaves, runs, strict=True):
                for buffer in buffers:
                    hashers[place].update(buffer)

    def values(self, record: bytes, paths: Iterable[str]) -> dict[str, Any]:
        """The decoded values of the features ``paths`` of ``record``; None for a missing value.

        Raises:
            CorruptExampleError: the record is not a tf.train.Example, or does not hold these features.
            MissingExtraError: decoding an image requires Pillow, which is not installed.
        """
        flat = decode_example(record)
        return {path: self._columns[path].read(flat) for path in paths}


def content_bytes(value: Any) -> bytes:
    """The bytes of a decoded value: its shape, then its values, little-endian.

    They do not contain the dtype, because values are only compared under one schema.
    """
    if isinstance(value, bytes):
        return _COUNT.pack(len(value)) + value
    if isinstance(value, Ragged):
        return b"".join(map(content_bytes, (*value.row_lengths, value.flat_values)))
    if value is None:
        return b"\xff"  # not a possible number of dimensions, the first byte of an array
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
    """The little-endian bytes of a decoded value, which is in the machine's byte order."""
    stored: bytes = value.tobytes() if _IS_LITTLE else value.astype(value.dtype.newbyteorder("<")).tobytes()
    return stored


def _is_plain(reader: ColumnReader) -> bool:
    """Whether the content is the value itself. If it is not, as for images, it is computed record by record."""
    return type(reader.leaf).restore_content is Leaf.restore_content and not reader.may_be_absent


def _buffers(flat: FlatBlock, reader: ColumnReader, num_records: int, cuts: Sequence[int]) -> Iterator[Iterable[Any]]:
    column = reader.read_block(flat, copy=False) if _is_plain(reader) else None
    if column is None:
        return _cut((content_bytes(reader.read_content(record)) for record in reader.split(flat)), cuts)
    return _lay_out(column, num_records, cuts)


def _lay_out(column: BlockColumn, count: int, cuts: Sequence[int]) -> Iterator[Iterable[Any]]:
    if isinstance(column, TextColumn):
        return _texts(column, cuts)
    if isinstance(column, RaggedColumn) and column.values.dtype != TEXT:
        return _ragged(column, cuts)
    if isinstance(column, StoredColumn) and column.num_bytes >= _LARGE_ROW:
        return _cut(_large(column, count), cuts, each=2)
    if isinstance(column, ArrayColumn | StoredColumn):
        values = column.array(count)
        if values.dtype != TEXT:
            rows = _rows(values)
            return ((rows[start:stop],) for start, stop in pairwise(cuts))
    return _cut(map(content_bytes, column.rows(0, count)), cuts)


def _cut(buffers: Iterator[Any], cuts: Sequence[int], *, each: int = 1) -> Iterator[Iterable[Any]]:
    """Divide ``buffers``, of which every record has ``each``."""
    return (islice(buffers, each * (stop - start)) for start, stop in pairwise(cuts))


def _rows(values: npt.NDArray[Any]) -> Octets:
    """Each value after its shape, little-endian, all in one buffer."""
    head = np.frombuffer(_shape_bytes(values.shape[1:]), np.uint8)
    stored = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    body = stored.view(np.uint8).reshape(len(values), -1) if stored.size else np.empty((len(values), 0), np.uint8)
    rows = np.empty((len(values), head.size + body.shape[1]), np.uint8)
    rows[:, : head.size] = head
    rows[:, head.size :] = body
    return rows


def _texts(column: TextColumn, cuts: Sequence[int]) -> Iterator[Iterable[Any]]:
    """Each text after its length."""
    count, sizes = column.starts.size, np.ascontiguousarray(column.sizes, _COUNT_DTYPE)
    if int(sizes.sum()) > _LARGE_ROW * count:
        heads = sizes.view("V8").tolist()
        return _cut(chain.from_iterable(zip(heads, column.rows(0, count), strict=True)), cuts, each=2)
    ends = (column.sizes + _COUNT_DTYPE.itemsize).cumsum()
    places = ends - column.sizes
    laid_out = np.empty((int(ends[-1]) if count else 0) + spare(column.sizes), np.uint8)
    put_in_order(laid_out, places, column.data, column.starts, column.sizes)
    put(laid_out, places - _COUNT_DTYPE.itemsize, sizes.view("V8"))
    bounds = np.concatenate([np.zeros(1, np.int64), ends])[np.array(cuts)].tolist()
    return ((laid_out[start:stop],) for start, stop in pairwise(bounds))


def _ragged(column: RaggedColumn, cuts: Sequence[int]) -> Iterator[Iterable[Any]]:
    """Each array after its shape; before that of a Ragged, the lengths of the rows of each level in the same form."""
    arrays: list[tuple[npt.NDArray[Any], Places, Shape]] = [
        *((lengths, counts, (None,)) for lengths, counts in column.levels),
        (column.values, column.counts, column.shape),
    ]
    stored = [np.ascontiguousarray(values, values.dtype.newbyteorder("<")) for values, _, _ in arrays]
    # Of each record, the bytes of one array after those of the other.
    sizes = np.stack([counts * values.itemsize for values, counts, _ in arrays], axis=1)
    heads = [1 + _COUNT.size * len(shape) for _, _, shape in arrays]
    ends = (sizes + heads).cumsum().reshape(sizes.shape)
    places, totals = ends - sizes, sizes.sum(axis=0)
    starts = sizes.cumsum(axis=0) - sizes + (totals.cumsum() - totals)
    laid_out = np.empty(int(ends[-1, -1]) + spare(sizes.reshape(-1)), np.uint8)
    source = np.concatenate([values.view(np.uint8) for values in stored])
    put_in_order(laid_out, places.reshape(-1), source, starts.reshape(-1), sizes.reshape(-1))
    for place, (_, counts, shape) in enumerate(arrays):
        known = math.prod(size for size in shape if size is not None)
        dimensions = [np.broadcast_to(counts // known if size is None else size, counts.shape) for size in shape]
        rows = np.empty((counts.size, heads[place]), np.uint8)
        rows[:, 0] = len(shape)
        rows[:, 1:] = np.stack(dimensions, axis=1).astype(_COUNT_DTYPE).view(np.uint8)
        put(laid_out, places[:, place] - heads[place], rows.view((np.void, heads[place])).reshape(-1))
    bounds = np.concatenate([np.zeros(1, np.int64), ends[:, -1]])[np.array(cuts)].tolist()
    return ((laid_out[start:stop],) for start, stop in pairwise(bounds))


def _large(column: StoredColumn, count: int) -> Iterator[Any]:
    head = _shape_bytes(column.shape)
    for value in column.rows(0, count):
        yield head
        yield np.ascontiguousarray(value, value.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
