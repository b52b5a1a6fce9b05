"""What do the contents of one key hold, in all records of a block? Numbers, or where the bytes of its items stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.wire.gather import as_rows, constant, take, take_ragged, take_windows
from registry.wire.spans import Spans
from registry.wire.varint import read_varint
from registry.wire.varint_rows import read_any_rows, read_varint_rows

_FIELD_1: Final = 0x0A
_FEW: Final = 64
"""The items of up to so many lists are found one by one, which then costs less than a step of all, as measured."""

_STORED_FLOAT: Final = np.dtype("<f4")
_NONE: Final = np.empty(0, np.int64)

_Bytes = npt.NDArray[np.uint8]
_Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """The int64 or float32 values of one key.

    Attributes:
        rows: ascending places of the records that have the key; None for all.
        counts: how many values each of them has; one number where that is the same for all.
        values: all values, record by record, in one run; a new array.
    """

    rows: _Places | None
    counts: int | _Places
    values: npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class BytesColumn:
    """The items of one key: ``data[start : start + size]``, record by record; ``rows`` and ``counts`` as above."""

    rows: _Places | None
    counts: int | _Places
    starts: _Places
    sizes: _Places


FlatColumn = NumberColumn | BytesColumn


def read_integers(data: _Bytes, spans: Spans) -> tuple[NumberColumn, _Places]:
    """The integers of int64 lists, and which of the spans are odd: no list of varints."""
    if spans.layout == "packed":
        found = read_varint_rows(data, spans.starts, spans.sizes)
        return _numbers(spans, found.counts, found.values), found.odd
    found = read_any_rows(data, spans.starts, spans.sizes)
    counts, widths = found.counts, found.widths
    if found.odd.size or widths is None or isinstance(counts, int):
        return _numbers(spans, 0, _NONE), found.odd
    # Before each value its tag, which reads as a varint too.
    place = np.arange(found.values.size) - np.repeat(counts.cumsum() - counts, counts)
    no_tag = (place % 2 == 0) & ((found.values != 0x08) | (widths != 1))
    odd = np.union1d(np.flatnonzero(counts % 2), np.repeat(np.arange(counts.size), counts)[no_tag])
    return _numbers(spans, counts // 2, found.values[1::2].copy()), odd


def read_floats(data: _Bytes, spans: Spans) -> tuple[NumberColumn, _Places]:
    """The floats of float lists, every bit as it is stored, and which of the spans are odd: no whole number of them."""
    unit = 4 if spans.layout == "packed" else 5
    counts = spans.sizes // unit
    odd = np.flatnonzero(counts * unit != spans.sizes)
    if odd.size:
        return _numbers(spans, 0, np.empty(0, np.float32)), odd
    if unit == 5:
        values = take_ragged(data, spans.starts, counts, 5).reshape(-1, 5)
        odd = np.unique(np.repeat(np.arange(counts.size), counts)[values[:, 0] != 0x0D])
        bits = np.ascontiguousarray(values[:, 1:]).view("<u4")[:, 0]
        return _numbers(spans, counts, bits.astype(np.uint32, copy=False).view(np.float32)), odd
    same = constant(spans.sizes)
    if same is None:
        stored = take_ragged(data, spans.starts, counts, 4).view(_STORED_FLOAT)
        return _numbers(spans, counts, stored.astype(np.float32, copy=False)), odd
    pieces = take(data, spans.starts, same)
    pieces = pieces if pieces.flags.owndata else pieces.copy()
    stored = as_rows(pieces, _STORED_FLOAT).reshape(-1)
    return _numbers(spans, same // 4, stored.astype(np.float32, copy=False)), odd


def read_items(data: _Bytes, spans: Spans) -> tuple[BytesColumn, _Places]:
    """The items of bytes lists, and which of the spans are odd: no list of items."""
    if spans.layout == "item":
        return BytesColumn(spans.rows, 1, spans.starts, spans.sizes), _NONE
    places, stops = spans.starts, spans.starts + spans.sizes
    lists = np.arange(places.size)
    found: list[tuple[_Places, _Places, _Places]] = []
    odd: list[_Places] = []
    while True:
        more = places < stops
        lists, places, stops = lists[more], places[more], stops[more]
        if lists.size <= _FEW:
            break
        starts, sizes = _next_items(data, places)
        good = (starts >= 0) & (starts + sizes <= stops)
        if not good.all():
            odd.append(lists[~good])
            lists, starts, sizes, stops = lists[good], starts[good], sizes[good], stops[good]
        found.append((lists, starts, sizes))
        places = starts + sizes
    for place, start, stop in zip(lists.tolist(), places.tolist(), stops.tolist(), strict=True):
        items = _scan_items(data[start:stop].tobytes())
        if items is None:
            odd.append(np.array([place]))
        elif items:
            one = np.array(items, np.int64)
            found.append((np.full(len(items), place), one[:, 0] + start, one[:, 1]))
    if odd:
        return BytesColumn(spans.rows, 0, _NONE, _NONE), np.concatenate(odd)
    if not found:
        return BytesColumn(spans.rows, 0, _NONE, _NONE), _NONE
    owners, starts, sizes = map(np.concatenate, zip(*found, strict=True))
    counts = np.bincount(owners, minlength=spans.starts.size)
    if len(found) > 1:
        order = np.argsort(owners, kind="stable")
        starts, sizes = starts[order], sizes[order]
    same = constant(counts)
    return BytesColumn(spans.rows, counts if same is None else same, starts, sizes), _NONE


def _numbers(spans: Spans, counts: int | _Places, values: npt.NDArray[Any]) -> NumberColumn:
    if not isinstance(counts, int):
        same = constant(counts)
        counts = counts if same is None else same
    return NumberColumn(spans.rows, counts, values)


def _next_items(data: _Bytes, places: _Places) -> tuple[_Places, _Places]:
    """Where the item at each place starts and its size; a start of -1 where there is none."""
    windows = as_rows(take_windows(data, places, 8), np.uint8)
    starts = np.full(places.size, -1)
    sizes = np.zeros(places.size, np.int64)
    going = windows[:, 0] == _FIELD_1
    for width in range(1, 6):
        octet = windows[:, width]
        sizes |= np.where(going, octet & np.uint8(0x7F), 0).astype(np.int64) << (7 * (width - 1))
        starts = np.where(going & (octet < 0x80), places + width + 1, starts)
        going = going & (octet >= 0x80)
        if not going.any():
            break
    return starts, sizes


def _scan_items(content: bytes) -> list[tuple[int, int]] | None:
    """Start and size of each item of a list; None where it is no list of items."""
    items = []
    position = 0
    try:
        while position < len(content):
            if content[position] != _FIELD_1:
                return None
            size, start = read_varint(content, position + 1)
            position = start + size
            items.append((start, size))
    except (IndexError, ValueError):
        return None
    return items if position == len(content) else None
