"""Finds the entries of records, one for each key, without decoding their content, and collects them for a block.

    0A size  0A size key  12 size  list size  0A size  content
    entry    its key      Feature  its kind   values   the last bytes of the entry

All fields in the head of an entry end where the entry ends, so their lengths differ only by the bytes between them. A
``Form`` describes such a head: entries of the same form have the same head, except for one number, the entry's length.
``locate.py`` compares forms with many records at once, ``block.py`` decodes the contents.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.wire.gather import Octets, Places
from registry.wire.varint import FIELD_1, FIELD_2, OtherFormError, read_varint

WireKind: TypeAlias = Literal["int64", "float", "bytes"]

Layout: TypeAlias = Literal["packed", "unpacked", "item", "list", "empty"]
"""What the content is: ``packed`` numbers in one run; ``unpacked`` numbers, each with a tag; the bytes of the only
``item``; a ``list`` of any number of items, each with a tag and a length; or ``empty``, for a list without values or a
Feature without a kind."""

_LISTS: Final[dict[int, WireKind]] = {0x0A: "bytes", 0x12: "float", 0x1A: "int64"}
"""The kind of values in a list, by the list's tag."""

_UNPACKED: Final[dict[WireKind, int]] = {"float": 0x0D, "int64": 0x08}
"""The tag of a number that is not packed."""

_MOST_LENGTH_BYTES: Final = 5


class Entry(NamedTuple):
    """The entry of one key. Its content is ``record[start:stop]``; the entry ends at ``stop``."""

    form: Form
    start: int
    stop: int


@dataclass(frozen=True)
class Form:
    """The head of an entry.

    Attributes:
        key, kind, layout: of the entry.
        fixed: the bytes of the head, with zeros in place of the lengths.
        lengths: for each length, its position in the head, its number of bytes, and the difference between the entry's
            own length (the first one) and this one.
    """

    key: str
    kind: WireKind
    layout: Layout
    fixed: bytes
    lengths: tuple[tuple[int, int, int], ...]

    def __hash__(self) -> int:
        return hash(self.fixed)

    @cached_property
    def num_entry_bytes(self) -> int:
        """Number of bytes at the beginning that the entry's own length does not count."""
        return 1 + self.lengths[0][1]

    @cached_property
    def num_item_bytes(self) -> int:
        """Number of bytes of the last tag and length, which make the content an item of a list."""
        return 1 + self.lengths[-1][1]

    @cached_property
    def words(self) -> tuple[tuple[int, np.uint64, np.uint64], ...]:
        """For each word of 8 bytes of the head: its index, a mask of its constant bits, and the value of those bits."""
        head = self.fixed
        if self.layout == "unpacked":  # as in ``head``
            head += bytes([_UNPACKED[self.kind]])
        size = -(-len(head) // 8) * 8
        mask, same = bytearray(size), bytearray(size)
        mask[: len(head)] = b"\xff" * len(head)
        same[: len(head)] = head
        for place, width, _ in self.lengths:
            for byte in range(place, place + width):  # for a length, only the top bits, which show where it ends
                mask[byte] = 0x80
                same[byte] = 0x80 if byte < place + width - 1 else 0
        pairs = zip(np.frombuffer(bytes(mask), "<u8"), np.frombuffer(bytes(same), "<u8"), strict=True)
        return tuple((word, np.uint64(bits), np.uint64(value)) for word, (bits, value) in enumerate(pairs))

    def head(self, own: int) -> bytes:
        """The head of an entry whose own length is ``own``; empty if no entry of this form has that length.

        The head of unpacked numbers includes the tag of the first one: without it, it would match other content, too.
        """
        least = len(self.fixed) - self.num_entry_bytes
        if own < least or (own > least and self.layout == "empty"):
            return b""
        head = bytearray(self.fixed)
        for place, width, before in self.lengths:
            length = own - before
            if length >> 7 * width:
                return b""
            for byte in range(width):
                head[place + byte] = length >> 7 * byte & 0x7F | (0x80 if byte < width - 1 else 0)
        if self.layout == "unpacked":
            head.append(_UNPACKED[self.kind])
        return bytes(head)

    def read_lengths(self, windows: Octets) -> tuple[Places, npt.NDArray[np.bool_]]:
        """For heads that match ``words``: the entry's own length, and whether all fields end where the entry ends."""
        own = _read_length(windows, *self.lengths[0][:2])
        least = len(self.fixed) - self.num_entry_bytes
        agree = own == least if self.layout == "empty" else own >= least
        own_byte = np.ascontiguousarray(windows[:, 1])
        for place, width, before in self.lengths[1:]:
            if width == self.lengths[0][1] == 1 and before < 0x80:  # a negative length is not one byte
                agree &= windows[:, place] == own_byte - np.uint8(before)
            else:
                agree &= _read_length(windows, place, width) == own - before
        return own, agree


def scan_record(record: bytes) -> list[Entry]:
    """The entries of a serialized tf.train.Example.

    Raises:
        OtherFormError: fields are split, missing or unknown, or it is not a tf.train.Example.
    """
    if not record:
        return []
    try:
        start = _enter(record, FIELD_1, 0, len(record))
        return scan_entries(record, start[0])
    except (IndexError, ValueError) as error:
        raise OtherFormError from error


def scan_entries(record: bytes | memoryview, position: int) -> list[Entry]:
    """The entries from ``position`` to the end of ``record``. Raises OtherFormError."""
    entries = []
    while position < len(record):
        entry = scan_entry(record, position)
        entries.append(entry)
        position = entry.stop
    return entries


def scan_entry(record: bytes | memoryview, position: int) -> Entry:
    """The entry at ``position``. Its content is not checked.

    Raises:
        OtherFormError: fields are split, missing or unknown, or it is not an entry.
    """
    try:
        return _scan_entry(record, position)
    except (IndexError, ValueError) as error:  # ValueError: a name that is not UTF-8, or a bad varint
        raise OtherFormError from error


def _scan_entry(record: bytes | memoryview, first: int) -> Entry:
    if record[first] != FIELD_1:
        raise OtherFormError
    size, position = _length_at(record, first + 1)
    own, stop = position, position + size
    lengths = [(1, position - first - 1, 0)]
    if stop > len(record) or record[position] != FIELD_1:
        raise OtherFormError
    size, start = _length_at(record, position + 1)
    position = start + size
    key = str(record[start:position], "utf-8")

    def enter(tag: int) -> int:
        """Enter the field ``tag``, which must fill the rest of the entry; returns where its content starts."""
        after, width = _enter(record, tag, position, stop)
        lengths.append((position + 1 - first, width, after - own))
        return after

    position = enter(FIELD_2)
    kind: WireKind = "bytes"
    layout: Layout = "empty"
    if position < stop:
        tag = record[position]
        if tag not in _LISTS:
            raise OtherFormError
        kind = _LISTS[tag]
        position = enter(tag)
        if kind == "bytes":
            layout = "list"
            if position < stop and record[position] == FIELD_1:
                size, start = _length_at(record, position + 1)
                if start + size == stop:
                    layout, position = "item", enter(FIELD_1)
        elif position < stop and record[position] == _UNPACKED[kind]:
            layout = "unpacked"
        elif position < stop:
            layout, position = "packed", enter(FIELD_1)
    fixed = bytearray(record[first:position])
    for place, width, _ in lengths:
        fixed[place : place + width] = bytes(width)
    return Entry(Form(key, kind, layout, bytes(fixed), tuple(lengths)), position, stop)


def _enter(record: bytes | memoryview, tag: int, position: int, stop: int) -> tuple[int, int]:
    """Enter the field ``tag``, which must end at ``stop``; returns where its content starts, and its length's width."""
    if position >= stop or record[position] != tag:
        raise OtherFormError
    size, start = _length_at(record, position + 1)
    if start + size != stop:
        raise OtherFormError
    return start, start - position - 1


def _length_at(record: bytes | memoryview, position: int) -> tuple[int, int]:
    size, start = read_varint(record, position)
    if start - position > _MOST_LENGTH_BYTES:
        raise OtherFormError
    return size, start


def _read_length(windows: Octets, place: int, width: int) -> Places:
    """The lengths at ``place`` in each row, all of which have ``width`` bytes."""
    length = windows[:, place].astype(np.int64)
    if width > 1:
        length &= 0x7F
    for byte in range(1, width):
        length |= (windows[:, place + byte] & np.uint8(0x7F)).astype(np.int64) << (7 * byte)
    return length


_Chunk = tuple[Places, Places, Places]  # rows, starts, sizes


@dataclass(frozen=True, slots=True)
class Spans:
    """The contents of one key with one kind and layout: ``data[start : start + size]`` for each record of ``rows``.

    ``rows`` are the ascending indices of the records in the block; None means all records.
    """

    layout: Layout
    rows: Places | None
    starts: Places
    sizes: Places


@dataclass(slots=True)
class SpanCollector:
    """Collects the entries of ``num_records`` records.

    ``keys`` are the requested keys; None means all. ``odd`` are the records that are not in the common form.
    """

    num_records: int
    keys: Container[str] | None = None
    odd: list[Places] = field(default_factory=list)
    _chunks: dict[str, list[tuple[Form, _Chunk]]] = field(default_factory=dict)
    _single: dict[str, dict[Form, list[tuple[int, int, int]]]] = field(default_factory=dict)

    def add(self, form: Form, rows: Places, starts: Places, sizes: Places) -> None:
        """Add an entry for each of ``rows``, which must be distinct."""
        self._chunks.setdefault(form.key, []).append((form, (rows, starts, sizes)))

    def add_record(self, row: int, entries: Iterable[Entry], base: int) -> None:
        """Add the entries of one record, whose positions are relative to ``base``.

        A record with a key that was not requested, and that no other record has, becomes odd: to decode the content of
        each such key separately would take long.
        """
        if self.keys is not None:
            entries = list(entries)
            if any(form.key not in self.keys and form.key not in self._chunks for form, _, _ in entries):
                self.odd.append(np.array([row]))
                return
        for form, start, stop in entries:
            self._single.setdefault(form.key, {}).setdefault(form, []).append((row, base + start, stop - start))

    def joined(self) -> dict[tuple[str, WireKind], Spans]:
        """The contents by key and kind.

        Records that have a key twice, or numbers in two layouts, become ``odd``, and their contents may be incomplete.
        """
        for key, forms in self._single.items():
            for form, entries in forms.items():
                rows, starts, sizes = np.array(sorted(entries), np.int64).T.copy()
                self._chunks.setdefault(key, []).append((form, (rows, starts, sizes)))
        spans: dict[tuple[str, WireKind], Spans] = {}
        distinct: list[Places] = []  # the rows of the previous key: those of templates are the same arrays for each key
        for key, chunks in self._chunks.items():
            of_key = [rows for _, (rows, _, _) in chunks]
            if len(of_key) > 1 or key in self._single:
                if list(map(id, of_key)) != list(map(id, distinct)) and self._stands_twice(of_key):
                    continue
                distinct = of_key
            kinds: dict[WireKind, dict[Layout, list[_Chunk]]] = {}
            for form, (rows, starts, sizes) in chunks:
                layout, before = form.layout, 0
                if layout == "empty":
                    layout = "list" if form.kind == "bytes" else "packed"
                elif layout == "item" and any(other.kind == "bytes" and other.layout != "item" for other, _ in chunks):
                    layout, before = "list", form.num_item_bytes
                places = (rows, starts - before, sizes + before) if before else (rows, starts, sizes)
                kinds.setdefault(form.kind, {}).setdefault(layout, []).append(places)
            for kind, layouts in kinds.items():
                if len(layouts) > 1:  # packed and not
                    self.odd.extend(rows for rows, _, _ in layouts.pop("unpacked"))
                for layout, same in layouts.items():
                    spans[key, kind] = self._join(layout, same)
        self._single.clear()
        return spans

    def _join(self, layout: Layout, chunks: list[_Chunk]) -> Spans:
        if sum(rows.size for rows, _, _ in chunks) < self.num_records:
            rows, starts, sizes = map(np.concatenate, zip(*chunks, strict=True))
            order = np.argsort(rows, kind="stable")
            return Spans(layout, rows[order], starts[order], sizes[order])
        if len(chunks) == 1 and (chunks[0][0][1:] > chunks[0][0][:-1]).all():
            return Spans(layout, None, *chunks[0][1:])
        starts, sizes = np.empty((2, self.num_records), np.int64)
        for rows, *values in chunks:
            starts[rows], sizes[rows] = values
        return Spans(layout, None, starts, sizes)

    def _stands_twice(self, chunks: list[Places]) -> bool:
        """Whether any record has the key of ``chunks`` twice; such records become odd."""
        rows = np.concatenate(chunks)
        if rows.size * 8 >= self.num_records:
            seen = np.zeros(self.num_records, np.bool_)
            seen[rows] = True
            if np.count_nonzero(seen) == rows.size:
                return False
        different, counts = np.unique(rows, return_counts=True)
        if different.size == rows.size:
            return False
        self.odd.append(different[counts > 1])
        return True
