"""What of many records is content? The bytes of ``content.ContentReader``, of a block of records at once.

What takes a hundred calls for each record takes a few for a thousand: columns are decoded together, and laid out in the
bytes that each value alone would give. What cannot be laid out together is told one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.features.block import restore_column, split_leaf
from registry.features.block_columns import ArrayColumn, BlockColumn, StoredColumn, TextColumn
from registry.features.codec import Codec, ColumnReader, RawReader
from registry.features.containers import FeaturesDict, columns_of
from registry.features.content import content_bytes, content_path
from registry.features.feature import TEXT, Leaf
from registry.wire import BlockDecoder, FlatBlock
from registry.wire.gather import take_ragged

Octets: TypeAlias = npt.NDArray[np.uint8]

_LARGE_ROW: Final = 4096
"""Values of this size are handed on as they lie, not laid out anew."""

_COUNT: Final = np.dtype("<u8")


class BlockContentReader:
    """Takes the content out of many records of one schema at once; ``paths`` as ``ContentReader.paths``."""

    def __init__(self, features: FeaturesDict) -> None:
        codec = Codec.of(features.missing_as_none())
        found = zip((content_path(one.names) for one in columns_of(features)), codec.columns, strict=True)
        self._columns = dict(sorted(found, key=lambda pair: pair[0]))
        self.paths = tuple(self._columns)
        self._holds_unknown = any(isinstance(one, RawReader) for one in codec.columns)
        self._decoder = BlockDecoder([key for one in codec.columns for _, keys in one.parts for key in keys])

    def read(
        self, data: Octets, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
    ) -> list[Iterator[Any]] | None:
        """For each of ``paths`` buffers that, one after the other, are the contents of the records.

        None where a record may not be sound: read alone, it says what is wrong. So does ``CorruptExampleError`` while
        the buffers are made. None, too, where a feature is not known: then nobody knows its keys.
        """
        if self._holds_unknown:
            return None
        flat = self._decoder.decode(data, offsets, lengths)
        if flat.fault is not None:
            return None
        return [_buffers(flat, reader) for reader in self._columns.values()]


def _buffers(flat: FlatBlock, reader: ColumnReader) -> Iterator[Any]:
    # Where content is another thing than the value, as with images, it is told one by one.
    is_plain = type(reader.leaf).restore_content is Leaf.restore_content and not reader.may_be_absent
    column = restore_column(flat, reader, copy=False) if is_plain else None
    if column is None:
        return (content_bytes(reader.read_content(record)) for record in split_leaf(flat, reader))
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
    shape = values.shape[1:]
    head = np.frombuffer(struct.pack(f"<B{len(shape)}Q", len(shape), *shape), np.uint8)
    stored = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    body = stored.view(np.uint8).reshape(len(values), -1) if stored.size else np.empty((len(values), 0), np.uint8)
    rows = np.empty((len(values), head.size + body.shape[1]), np.uint8)
    rows[:, : head.size] = head
    rows[:, head.size :] = body
    return rows


def _texts(column: TextColumn) -> Iterator[Any]:
    """Each text behind its length."""
    count, sizes = column.starts.size, np.ascontiguousarray(column.sizes, _COUNT)
    if int(sizes.sum()) > _LARGE_ROW * count:
        for head, text in zip(sizes.view("V8").tolist(), column.rows(0, count), strict=True):
            yield head
            yield text
        return
    ends = (column.sizes + _COUNT.itemsize).cumsum()
    laid_out = np.empty(int(ends[-1]) if count else 0, np.uint8)
    is_text = np.ones(laid_out.size, np.bool_)
    heads = (ends - column.sizes - _COUNT.itemsize)[:, None] + np.arange(_COUNT.itemsize)
    is_text[heads] = False
    laid_out[heads] = sizes.view(np.uint8).reshape(count, -1)
    laid_out[is_text] = take_ragged(column.data, column.starts, column.sizes)
    yield laid_out


def _large(column: StoredColumn, count: int) -> Iterator[Any]:
    shape = column.shape
    head = struct.pack(f"<B{len(shape)}Q", len(shape), *shape)
    for value in column.rows(0, count):
        yield head
        yield np.ascontiguousarray(value, value.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
