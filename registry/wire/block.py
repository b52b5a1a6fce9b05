"""Decodes many tf.train.Examples together to flat columns, or single ones.

    data, offsets, lengths -> the positions of the content of each key (``locate``) -> columns (FlatBlock)

Every byte that is not content is compared, and content that could be malformed is checked, so that a block returns the
same values as ``decode_example`` for each record. A record of another valid form is first rewritten in the common form;
a damaged record ends the block. ``RecordDecoder`` decodes single records, and remembers the heads of their entries,
which makes the next ones faster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError
from registry.wire.codec import FlatValue, decode_example, encode_example, enter_field, read_items
from registry.wire.entries import Form, SpanCollector, Spans, WireKind, scan_entry
from registry.wire.gather import (
    Octets,
    Places,
    as_rows,
    check_pieces,
    constant,
    take,
    take_ragged,
    take_texts,
    take_windows,
)
from registry.wire.locate import FormBook, TemplateBook, walk_records
from registry.wire.varint import FIELD_1, OtherFormError, read_any_rows, read_varint, read_varint_rows, read_varints

_MIN_VECTORIZED: Final = 65
"""The items of fewer lists than this are found one by one, which is faster than a step over all of them (measured)."""

_STORED_FLOAT: Final = np.dtype("<f4")
_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """The int64 or float32 values of one key.

    Attributes:
        rows: ascending indices of the records that have the key; None means all records.
        counts: number of values in each of them; an int if it is the same for all.
        values: the values of all records, in order, in one new 1-d array.
    """

    rows: Places | None
    counts: int | Places
    values: npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class BytesColumn:
    """The items of one key: ``data[start : start + size]``, record by record; ``rows`` and ``counts`` as above."""

    rows: Places | None
    counts: int | Places
    starts: Places
    sizes: Places


FlatColumn = NumberColumn | BytesColumn


@dataclass(frozen=True, slots=True)
class FlatBlock:
    """The flat values of many records.

    Attributes:
        num_records: number of records: all, or those before the first that is not a tf.train.Example.
        columns: the values by key and kind ("int64", "float", "bytes"). Some records may have a key with another kind,
            or lack it. A Feature without a kind counts as an empty list of bytes.
        data: the buffer that the positions in a ``BytesColumn`` refer to: the input, or a copy.
        fault: why the next record is not a tf.train.Example, or None.
    """

    num_records: int
    columns: Mapping[tuple[str, WireKind], FlatColumn]
    data: Octets
    fault: CorruptExampleError | None = None

    def split(self, column: FlatColumn) -> list[FlatValue]:
        """The flat value of each record that has a value in ``column``."""
        num_rows = self.num_records if column.rows is None else column.rows.size
        if isinstance(column, NumberColumn) and isinstance(column.counts, int):
            return list(column.values.reshape(num_rows, column.counts))
        ends = np.broadcast_to(column.counts, num_rows).cumsum()
        cuts = map(slice, (ends - column.counts).tolist(), ends.tolist())
        if isinstance(column, NumberColumn):
            return list(map(column.values.__getitem__, cuts))
        items: list[bytes] = take_texts(self.data, column.starts, column.sizes).tolist()
        return list(map(items.__getitem__, cuts))


class BlockDecoder:
    """Decodes blocks of records to the flat values of ``keys``, or of all keys.

    It remembers the forms of records, which makes the next blocks faster, so reuse one decoder for similar records.

    >>> records = [encode_example({"label": np.array(labels)}) for labels in ([5], [7, 300])]
    >>> lengths = np.array([len(record) for record in records])
    >>> block = BlockDecoder().decode(np.frombuffer(b"".join(records), np.uint8), lengths.cumsum() - lengths, lengths)
    >>> block.columns["label", "int64"].values, block.columns["label", "int64"].counts
    (array([  5,   7, 300]), array([1, 2]))
    """

    def __init__(self, keys: Collection[str] | None = None) -> None:
        self._keys = None if keys is None else frozenset(keys)
        self._templates = TemplateBook()
        self._forms = FormBook()

    def decode(self, data: Octets, offsets: Places, lengths: Places) -> FlatBlock:
        """The flat values of the records ``data[offset : offset + length]``, which may be in any order and repeated.

        Args:
            data: a contiguous 1-d array of uint8, e.g. a read-only view of a mapped file.
            offsets: the first byte of each record, int64.
            lengths: the number of bytes of each record, int64.

        Raises:
            UsageError: a record is outside of ``data``, or an array has another shape or dtype.
        """
        check_pieces(data, offsets, lengths)
        fault = None
        anew = np.zeros(offsets.size, np.bool_)
        while True:
            columns, odd = self._decode_common(data, offsets, lengths)
            if not odd.size:
                return FlatBlock(offsets.size, columns, data, fault)
            # Decode again: after the odd records were rewritten, others may turn out to be odd.
            if anew[odd].any():
                raise AssertionError("a record that was rewritten in the common form is not in the common form")
            anew[odd] = True
            data, offsets, lengths, found = _in_common_form(data, offsets, lengths, odd, self._keys)
            fault = found or fault

    def _decode_common(
        self, data: Octets, offsets: Places, lengths: Places
    ) -> tuple[dict[tuple[str, WireKind], FlatColumn], Places]:
        """The flat values, and the records that are not in the common form; if there are any, ignore the values."""
        collector = SpanCollector(offsets.size, self._keys)
        rows = self._templates.find(data, offsets, lengths, collector)
        if rows.size:
            walk_records(data, rows, offsets[rows], offsets[rows] + lengths[rows], self._forms, collector)
        columns: dict[tuple[str, WireKind], FlatColumn] = {}
        for (key, kind), spans in collector.joined().items():
            column, odd = _READERS[kind](data, spans)
            if odd.size:
                collector.odd.append(odd if spans.rows is None else spans.rows[odd])
            if self._keys is None or key in self._keys:
                columns[key, kind] = column
        odd_rows = np.unique(np.concatenate(collector.odd)) if collector.odd else np.empty(0, np.int64)
        return columns, odd_rows


def _in_common_form(
    data: Octets, offsets: Places, lengths: Places, odd: Places, keys: Collection[str] | None
) -> tuple[Octets, Places, Places, CorruptExampleError | None]:
    """Copy the records up to the first damaged one; rewrite ``odd`` ones in the common form, with ``keys`` only."""
    fault = None
    written: list[bytes] = []
    for place in odd.tolist():
        start = int(offsets[place])
        try:
            flat = decode_example(data[start : start + int(lengths[place])].tobytes())
        except CorruptExampleError as error:
            fault = error
            odd, offsets, lengths = odd[odd < place], offsets[:place], lengths[:place]
            break
        written.append(encode_example({key: flat[key] for key in flat if keys is None or key in keys}))
    others = np.ones(offsets.size, np.bool_)
    others[odd] = False
    lengths_ = lengths.copy()
    lengths_[odd] = [len(record) for record in written]
    places = np.empty_like(offsets)
    places[others] = lengths[others].cumsum() - lengths[others]
    total = int(lengths[others].sum())
    places[odd] = total + lengths_[odd].cumsum() - lengths_[odd]
    pieces = [take_ragged(data, offsets[others], lengths[others]), np.frombuffer(b"".join(written), np.uint8)]
    return np.concatenate(pieces), places, lengths_, fault


def _read_integers(data: Octets, spans: Spans) -> tuple[NumberColumn, Places]:
    """The integers of int64 lists, and the odd spans, which are not lists of varints."""
    if spans.layout == "packed":
        varint_rows = read_varint_rows(data, spans.starts, spans.sizes)
        return _numbers(spans, varint_rows.counts, varint_rows.values), varint_rows.odd
    varint_rows = read_any_rows(data, spans.starts, spans.sizes)
    counts, widths = varint_rows.counts, varint_rows.widths
    if varint_rows.odd.size or widths is None or isinstance(counts, int):
        return _numbers(spans, 0, _NONE), varint_rows.odd
    # Each value has its tag in front of it, which also reads as a varint.
    place = np.arange(varint_rows.values.size) - np.repeat(counts.cumsum() - counts, counts)
    no_tag = (place % 2 == 0) & ((varint_rows.values != 0x08) | (widths != 1))
    odd = np.union1d(np.flatnonzero(counts % 2), np.repeat(np.arange(counts.size), counts)[no_tag])
    return _numbers(spans, counts // 2, varint_rows.values[1::2].copy()), odd


def _read_floats(data: Octets, spans: Spans) -> tuple[NumberColumn, Places]:
    """The floats of float lists, with all bits as stored, and the odd spans, which are not multiples of four bytes."""
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


def _read_items(data: Octets, spans: Spans) -> tuple[BytesColumn, Places]:
    """The items of bytes lists, and the odd spans, which are not lists of items."""
    if spans.layout == "item":
        return BytesColumn(spans.rows, 1, spans.starts, spans.sizes), _NONE
    places, stops = spans.starts, spans.starts + spans.sizes
    lists = np.arange(places.size)
    found: list[tuple[Places, Places, Places]] = []
    odd: list[Places] = []
    while True:
        more = places < stops
        lists, places, stops = lists[more], places[more], stops[more]
        if lists.size < _MIN_VECTORIZED:
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
            values = np.array(items, np.int64)
            found.append((np.full(len(items), place), values[:, 0] + start, values[:, 1]))
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


_READERS: Final[dict[WireKind, Callable[[Octets, Spans], tuple[FlatColumn, Places]]]] = {
    "int64": _read_integers,
    "float": _read_floats,
    "bytes": _read_items,
}


def _numbers(spans: Spans, counts: int | Places, values: npt.NDArray[Any]) -> NumberColumn:
    if not isinstance(counts, int):
        same = constant(counts)
        counts = counts if same is None else same
    return NumberColumn(spans.rows, counts, values)


def _next_items(data: Octets, places: Places) -> tuple[Places, Places]:
    """The start and size of the item at each position; the start is -1 if there is no item at that position."""
    windows = as_rows(take_windows(data, places, 8), np.uint8)
    starts = np.full(places.size, -1)
    sizes = np.zeros(places.size, np.int64)
    going = windows[:, 0] == FIELD_1
    for width in range(1, 6):
        octet = windows[:, width]
        sizes |= np.where(going, octet & np.uint8(0x7F), 0).astype(np.int64) << (7 * (width - 1))
        starts = np.where(going & (octet < 0x80), places + width + 1, starts)
        going = going & (octet >= 0x80)
        if not going.any():
            break
    return starts, sizes


def _scan_items(content: bytes) -> list[tuple[int, int]] | None:
    """Start and size of each item of a list, or None if it is not a list of items."""
    items = []
    position = 0
    try:
        while position < len(content):
            if content[position] != FIELD_1:
                return None
            size, start = read_varint(content, position + 1)
            position = start + size
            items.append((start, size))
    except (IndexError, ValueError):
        return None
    return items if position == len(content) else None


_FLOAT32: Final = np.dtype(np.float32)
_SMALL_RECORD: Final = 4096
_MOST_FORMS: Final = 1024
_MOST_NEXT: Final = 8
"""How many forms after another one are compared with an entry: records of a schema have one or two."""

_MOST_HEADS: Final = 2**16


class RecordDecoder:
    """Decodes single records to the values of ``decode_example``, in a third of the time for records of known forms.

    The own length of an entry determines its whole head if its form is known, so one comparison checks the head.

    >>> from registry.wire import encode_example
    >>> RecordDecoder().decode(encode_example({"label": np.array([5]), "image": [b"png"]}))
    {'image': [b'png'], 'label': array([5])}
    """

    def __init__(self) -> None:
        self._after: dict[Form | None, list[tuple[Form, dict[int, bytes]]]] = {}  # forms, by the form before
        self._num_forms = self._num_heads = 0

    def decode(self, record: bytes | memoryview) -> dict[str, Any]:
        """The flat values of a record. The items of a memoryview are memoryviews of it.

        Raises:
            CorruptExampleError: the bytes are not a tf.train.Example.
        """
        try:
            # Slices of bytes cost less than memoryviews, which are needed for the items only.
            return self._decode_known(bytes(record) if len(record) <= _SMALL_RECORD else record, record)
        except (OtherFormError, IndexError, ValueError):
            flat: dict[str, Any] = decode_example(record)
            if isinstance(record, bytes):
                return flat
            return {
                key: [memoryview(item) for item in value] if isinstance(value, list) else value
                for key, value in flat.items()
            }

    def _decode_known(self, record: bytes | memoryview, source: bytes | memoryview) -> dict[str, Any]:
        """``decode``, with the items of ``source``, which has the same bytes.

        Raises:
            OtherFormError, IndexError, ValueError: the record is in another form, or damaged.
        """
        size = len(record)
        position = enter_field(record, FIELD_1, 0, size) if size else 0
        flat: dict[str, Any] = {}
        before: Form | None = None
        while position < size:
            own = record[position + 1]
            if own >= 0x80:
                own, _ = read_varint(record, position + 1)
            for form, heads in self._after.get(before, ()):
                head = heads.get(own)
                if head is None:
                    head = form.head(own)
                    if self._num_heads < _MOST_HEADS:
                        self._num_heads += 1
                        heads[own] = head
                if head and record[position : position + len(head)] == head:
                    start, position = position + len(form.fixed), position + form.num_entry_bytes + own
                    break
            else:
                form, start, position = scan_entry(record, position)
                following = self._after.setdefault(before, []) if self._num_forms < _MOST_FORMS else None
                if following is not None and len(following) < _MOST_NEXT:
                    self._num_forms += 1
                    following.append((form, {}))
            if position > size:
                raise OtherFormError
            if form.layout == "item":
                flat[form.key] = [source[start:position]]
            elif form.kind == "bytes":
                flat[form.key] = read_items(source, start, position)
            else:
                flat[form.key] = _read_numbers(form, record, start, position)
            before = form
        return flat


def _read_numbers(form: Form, record: bytes | memoryview, start: int, stop: int) -> npt.NDArray[Any]:
    """The numbers of a list whose content is ``record[start:stop]``; raises as ``RecordDecoder._decode_known``."""
    if form.layout == "unpacked":
        raise OtherFormError
    if form.kind == "int64":
        return read_varints(record, start, stop)
    return np.frombuffer(record[start:stop], _STORED_FLOAT).astype(_FLOAT32)
