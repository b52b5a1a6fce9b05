"""Encodes many tf.train.Examples together: the inverse of ``block``.

    columns (FlatBlock) -> the content of each key in each record -> sizes and positions -> data, offsets, lengths

Every step handles one key of all records. The bytes are those of ``encode_example`` for each record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from registry.wire.block import BytesColumn, FlatBlock, FlatColumn
from registry.wire.codec import write_head, write_key
from registry.wire.entries import WireKind
from registry.wire.gather import Octets, Places, constant, overrun, put, put_ragged, take_ragged
from registry.wire.varint import FIELD_1, FIELD_2, write_varint_rows, write_varint_run

_TAGS: Final[dict[WireKind, int]] = {"bytes": 0x0A, "float": 0x12, "int64": 0x1A}
_STORED_FLOAT: Final = np.dtype("<f4")
_NONE: Final = np.empty(0, np.int64)
_NO_DATA: Final = np.empty(0, np.uint8)

_FEW_SIZES: Final = 2**12
"""Sizes up to this number are counted in a table, which is faster than sorting them."""

_MOST_HEADS: Final = 2**13
"""Heads that are kept, because the next block has contents of the same sizes."""

_LARGE_RECORD: Final = 2**11
"""Records of at least this mean size are copied one by one, smaller ones from one copy of the block (measured)."""


class EncodedBlock(NamedTuple):
    """``len(offsets)`` records, in order: record i is ``data[offsets[i] : offsets[i] + lengths[i]]``.

    Attributes:
        data: uint8, 1-d, contiguous; there may be a few other bytes between two records.
        offsets: int64, index in ``data`` of each record's first byte.
        lengths: int64, number of bytes of each record.
        fault: why the next example cannot be encoded, or None if the records are those of all examples.
    """

    data: Octets
    offsets: Places
    lengths: Places
    fault: Exception | None = None

    @property
    def num_records(self) -> int:
        """Number of records."""
        return self.offsets.size

    def records(self) -> list[bytes]:
        """Each record, copied."""
        pieces = map(slice, self.offsets.tolist(), (self.offsets + self.lengths).tolist())
        if self.data.size > _LARGE_RECORD * self.offsets.size:
            return list(map(bytes, map(self.data.data.__getitem__, pieces)))
        return list(map(self.data.tobytes().__getitem__, pieces))  # copies twice, which is faster than a view of each

    @classmethod
    def of(cls, records: list[bytes], fault: Exception | None = None) -> EncodedBlock:
        """A block of records that are already encoded."""
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        return cls(np.frombuffer(b"".join(records), np.uint8), lengths.cumsum() - lengths, lengths, fault)


def encode_block(num_records: int, blocks: Iterable[FlatBlock]) -> EncodedBlock:
    """Encode ``num_records`` records. Each is the same, byte for byte, as ``encode_example`` of its flat values.

    >>> from registry.wire import NumberColumn
    >>> flat = FlatBlock(2, {("n", "int64"): NumberColumn(None, 1, np.array([5, 300]))}, np.empty(0, np.uint8))
    >>> [record.hex() for record in encode_block(2, [flat]).records()]
    ['0a0c0a0a0a016e12051a030a0105', '0a0d0a0b0a016e12061a040a02ac02']

    Args:
        num_records: number of records.
        blocks: the flat values of the records; a record must not have two values for one key.

    Raises:
        FeatureError: a key is not valid Unicode.
    """
    if not num_records:
        return EncodedBlock(_NO_DATA, _NONE, _NONE)
    entries = [
        _make_entry(key, kind, column, block)
        for block in blocks
        for (key, kind), column in block.columns.items()
        if column.rows is None or column.rows.size
    ]
    entries.sort(key=attrgetter("name"))
    sizes = [_in_rows(entry.head_sizes + entry.sizes, entry.rows, num_records) for entry in entries]
    total: int | Places = sum(sizes, start=0)
    heads, head_sizes = _make_heads(total, _head)
    # Parts of different sizes are written in pieces of equal size. The next part overwrites the excess bytes of a short
    # part. After the last part of a record, these bytes need a gap before the next record.
    gap = max([overrun(head_sizes, heads.itemsize), *(entry.overrun for entry in entries)])
    lengths = np.empty(num_records, np.int64)
    lengths[:] = head_sizes + total
    ends = (lengths + gap).cumsum()
    offsets = ends - lengths - gap
    data = np.empty(int(ends[-1]), np.uint8)
    put(data, offsets, heads)
    places = offsets + head_sizes
    for entry, size in zip(entries, sizes, strict=True):
        at = places if entry.rows is None else places[entry.rows]
        put(data, at, entry.heads)
        put_ragged(data, at + entry.head_sizes, entry.content.data, entry.content.starts, entry.sizes)
        places += size
    return EncodedBlock(data, offsets, lengths)


class _Content(NamedTuple):
    """The content of one key: ``data[start : start + size]`` in each record that has the key.

    Attributes:
        data: a buffer.
        starts: the first byte of each content.
        sizes: number of bytes of each content; an int if it is the same for all.
        form: "run" for packed numbers, "item" for the only item of a list, "items" for a list of items with their
            lengths.
    """

    data: Octets
    starts: Places
    sizes: int | Places
    form: Literal["run", "item", "items"]


class _KeyEntries(NamedTuple):
    """One key of all records: heads and contents. ``rows`` as in a flat column; sizes are ints if all are equal."""

    name: bytes
    rows: Places | None
    heads: npt.NDArray[np.void]
    head_sizes: int | Places
    content: _Content

    @property
    def sizes(self) -> int | Places:
        """Number of bytes of each content."""
        return self.content.sizes

    @property
    def overrun(self) -> int:
        """Number of bytes that may be written after the end of a part."""
        return max(overrun(self.head_sizes, self.heads.itemsize), overrun(self.sizes))


def _make_entry(key: str, kind: WireKind, column: FlatColumn, block: FlatBlock) -> _KeyEntries:
    name = write_key(key)
    num_rows = block.num_records if column.rows is None else column.rows.size
    content = _content_of(column, block.data, num_rows, kind)
    heads, head_sizes = _make_heads(content.sizes, partial(_entry_head, name, _TAGS[kind], content.form))
    return _KeyEntries(name, column.rows, heads, head_sizes, content)


@lru_cache(_MOST_HEADS)
def _entry_head(name: bytes, tag: int, form: str, size: int) -> bytes:
    """The bytes of an entry of Features.feature in front of a content of ``size`` bytes, as in ``features_pieces``."""
    # An empty list of numbers has no packed run, but an empty item has a head.
    content_head = b"" if form == "items" or (form == "run" and not size) else write_head(FIELD_1, size)
    size += len(content_head)
    list_head = write_head(tag, size) + content_head
    size += len(list_head) - len(content_head)
    head = write_head(FIELD_1, len(name)) + name + write_head(FIELD_2, size) + list_head
    return write_head(FIELD_1, len(head) + size - len(list_head)) + head


@lru_cache(_MOST_HEADS)
def _head(size: int) -> bytes:
    """The tag of field 1 and a length: the head of a record, and of an item in a list of bytes."""
    return write_head(FIELD_1, size)


def _make_heads(sizes: int | Places, make: Callable[[int], bytes]) -> tuple[npt.NDArray[np.void], int | Places]:
    """``make(size)`` for each size, padded to equal length, and their lengths; one item if all sizes are equal."""
    if isinstance(sizes, int):
        head = make(sizes)
        return np.frombuffer(head, f"V{len(head)}"), len(head)
    different, which = _find_different(sizes)
    heads = [make(size) for size in different.tolist()]
    widths = np.fromiter(map(len, heads), np.int64, len(heads))
    padded = np.array(heads, f"S{int(widths.max())}").view(f"V{int(widths.max())}")
    same = constant(widths)
    return padded[which], widths[which] if same is None else same


def _find_different(sizes: Places) -> tuple[Places, Places]:
    """The different sizes, ascending, and the index among them of each size; as ``np.unique``, but without sorting."""
    most = int(sizes.max())
    if most > _FEW_SIZES + 4 * sizes.size:
        different, which = np.unique(sizes, return_inverse=True)
        return different, which
    different = np.flatnonzero(np.bincount(sizes))
    index = np.empty(most + 1, np.int64)
    index[different] = np.arange(different.size)
    return different, index[sizes]


def _content_of(column: FlatColumn, data: Octets, num_rows: int, kind: WireKind) -> _Content:
    counts = column.counts
    if isinstance(column, BytesColumn):
        if isinstance(counts, int) and counts == 1:
            return _Content(data, column.starts, _same_or_each(column.sizes), "item")
        data, item_sizes = _join_items(data, column.starts, column.sizes)
        return _content_of_rows(data, _fold(item_sizes, counts), num_rows, "items")
    if kind == "float":
        stored = np.ascontiguousarray(column.values, _STORED_FLOAT).view(np.uint8)
        return _content_of_rows(stored, _same_or_each(counts) * 4, num_rows, "run")
    if isinstance(counts, int) and counts == 1:
        rows, widths = write_varint_rows(column.values)
        sizes = widths if isinstance(widths, int) else widths.astype(np.int64)
        return _Content(rows.reshape(-1), np.arange(0, rows.size, rows.shape[1]), sizes, "run")
    data, widths = write_varint_run(column.values)
    sizes = _same_or_each(counts) * widths if isinstance(widths, int) else _fold(widths, counts)
    return _content_of_rows(data, sizes, num_rows, "run")


def _content_of_rows(data: Octets, sizes: int | Places, num_rows: int, form: Literal["run", "items"]) -> _Content:
    """The content of adjacent rows of ``data``."""
    starts = np.arange(num_rows) * sizes if isinstance(sizes, int) else sizes.cumsum() - sizes
    return _Content(data, starts, sizes, form)


def _join_items(data: Octets, starts: Places, sizes: Places) -> tuple[Octets, Places]:
    """All items, each after its tag and length, and their sizes with these."""
    if not sizes.size:
        return _NO_DATA, _NONE
    heads, widths = _make_heads(_same_or_each(sizes), _head)
    ends = (sizes + widths).cumsum()
    joined = np.empty(int(ends[-1]) + heads.itemsize, np.uint8)
    is_text = np.ones(joined.size, np.bool_)
    places = ends - sizes - widths
    longest = np.broadcast_to(widths, places.size)
    for byte in range(heads.itemsize):
        is_text[places[longest > byte] + byte] = False
    put(joined, places, heads)
    is_text[int(ends[-1]) :] = False
    joined[is_text] = take_ragged(data, starts, sizes)
    return joined, sizes + widths


def _fold(sizes: npt.NDArray[Any], counts: int | Places) -> int | Places:
    """The size of each row of ``counts`` adjacent parts of these sizes."""
    if isinstance(counts, int):
        return _same_or_each(sizes.reshape(-1, counts).sum(axis=1, dtype=np.int64)) if counts else 0
    result = np.zeros(counts.size, np.int64)
    some = np.flatnonzero(counts)  # reduceat has no empty parts
    if some.size:
        result[some] = np.add.reduceat(sizes, (counts.cumsum() - counts)[some], dtype=np.int64)
    return _same_or_each(result)


def _same_or_each(sizes: int | Places) -> int | Places:
    if isinstance(sizes, int):
        return sizes
    same = constant(sizes)
    return sizes if same is None else same


def _in_rows(sizes: int | Places, rows: Places | None, num_records: int) -> int | Places:
    """``sizes`` in ``rows``, and 0 in all other records."""
    if rows is None:
        return sizes
    result = np.zeros(num_records, np.int64)
    result[rows] = sizes
    return _same_or_each(result)
