"""Where do the values of a record stand? Its entries, one for each key, found without decoding what they hold.

    0A size  0A size key  12 size  list size  0A size  content
    entry    its key      Feature  its kind   values   the entry's last bytes, whatever its form

All lengths in the head of an entry end where the entry ends, so they differ from each other by what stands between
them. That makes a ``Form``: entries of the same form have the same head but for one number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.wire.varint import read_varint

Kind: TypeAlias = Literal["int64", "float", "bytes"]

Layout: TypeAlias = Literal["packed", "unpacked", "item", "list", "empty"]
"""What the content is: numbers in one packed run; numbers with a tag each; the bytes of the only item; items with a tag
and a length each, maybe none; nothing, for a list without values or a Feature of no kind."""

_FIELD_1: Final = 0x0A
_FIELD_2: Final = 0x12
_LISTS: Final[dict[int, Kind]] = {0x0A: "bytes", 0x12: "float", 0x1A: "int64"}
"""By the tag of a list: what it holds."""

_UNPACKED: Final[dict[Kind, int]] = {"float": 0x0D, "int64": 0x08}
"""The tag of a number that is not packed."""

_MOST_LENGTH_BYTES: Final = 5


class OtherFormError(Exception):
    """Not the form that is found here; it may be valid all the same."""


class Entry(NamedTuple):
    """The entry of one key: its content is ``record[start:stop]``, where the entry ends."""

    form: Form
    start: int
    stop: int


@dataclass(frozen=True)
class Form:
    """The head of an entry: ``fixed`` bytes, zero at the places of lengths.

    ``lengths`` has for each its place in the head, the number of its bytes, and how many bytes of the entry's own
    length, the first of them, stand before the end of this one.
    """

    key: str
    kind: Kind
    layout: Layout
    fixed: bytes
    lengths: tuple[tuple[int, int, int], ...]

    def __hash__(self) -> int:
        return hash(self.fixed)

    @cached_property
    def num_entry_bytes(self) -> int:
        """Bytes before those that the entry's own length counts."""
        return 1 + self.lengths[0][1]

    @cached_property
    def num_item_bytes(self) -> int:
        """Bytes of the last tag and length, which make the content an item of a list."""
        return 1 + self.lengths[-1][1]

    @cached_property
    def words(self) -> tuple[tuple[int, np.uint64, np.uint64], ...]:
        """For each 8 bytes of the head: which word, its bits that are always the same, and what they are."""
        head = self.fixed
        if self.layout == "unpacked":  # else it would fit what is packed, too
            head += bytes([_UNPACKED[self.kind]])
        size = -(-len(head) // 8) * 8
        mask, same = bytearray(size), bytearray(size)
        mask[: len(head)] = b"\xff" * len(head)
        same[: len(head)] = head
        for place, width, _ in self.lengths:
            for byte in range(place, place + width):  # of a length, only where it ends
                mask[byte] = 0x80
                same[byte] = 0x80 if byte < place + width - 1 else 0
        pairs = zip(np.frombuffer(bytes(mask), "<u8"), np.frombuffer(bytes(same), "<u8"), strict=True)
        return tuple((word, np.uint64(bits), np.uint64(value)) for word, (bits, value) in enumerate(pairs))

    def read_lengths(self, windows: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Of heads whose ``words`` agree: the entry's own length, and whether all lengths end where the entry does."""
        own = _read_length(windows, *self.lengths[0][:2])
        least = len(self.fixed) - self.num_entry_bytes
        agree = own == least if self.layout == "empty" else own >= least
        own_byte = np.ascontiguousarray(windows[:, 1])
        for place, width, before in self.lengths[1:]:
            if width == self.lengths[0][1] == 1 and before < 0x80:  # what would be negative is no single byte
                agree &= windows[:, place] == own_byte - np.uint8(before)
            else:
                agree &= _read_length(windows, place, width) == own - before
        return own, agree


def scan_record(record: bytes) -> list[Entry]:
    """The entries of a serialized tf.train.Example.

    Raises:
        OtherFormError: fields are split, missing or unknown, or it is no tf.train.Example.
    """
    if not record:
        return []
    try:
        start = _enter(record, _FIELD_1, 0, len(record))
        return scan_entries(record, start[0])
    except (IndexError, ValueError) as error:
        raise OtherFormError from error


def scan_entries(record: bytes, position: int) -> list[Entry]:
    """The entries from ``position`` to the end of ``record``. Raises as ``scan_record``."""
    entries = []
    while position < len(record):
        entry = scan_entry(record, position)
        entries.append(entry)
        position = entry.stop
    return entries


def scan_entry(record: bytes, position: int) -> Entry:
    """The entry at ``position``. What its content holds is not looked at.

    Raises:
        OtherFormError: as ``scan_record``.
    """
    try:
        return _scan_entry(record, position)
    except (IndexError, ValueError) as error:  # ValueError: a name that is not UTF-8, or a bad varint
        raise OtherFormError from error


def _scan_entry(record: bytes, first: int) -> Entry:
    if record[first] != _FIELD_1:
        raise OtherFormError
    size, position = _length_at(record, first + 1)
    own, stop = position, position + size
    lengths = [(1, position - first - 1, 0)]
    if stop > len(record) or record[position] != _FIELD_1:
        raise OtherFormError
    size, start = _length_at(record, position + 1)
    position = start + size
    key = record[start:position].decode("utf-8")

    def enter(tag: int) -> int:
        """Goes into the field ``tag``, which fills the rest of the entry."""
        after, width = _enter(record, tag, position, stop)
        lengths.append((position + 1 - first, width, after - own))
        return after

    position = enter(_FIELD_2)
    kind: Kind = "bytes"
    layout: Layout = "empty"
    if position < stop:
        tag = record[position]
        if tag not in _LISTS:
            raise OtherFormError
        kind = _LISTS[tag]
        position = enter(tag)
        if kind == "bytes":
            layout = "list"
            if position < stop and record[position] == _FIELD_1:
                size, start = _length_at(record, position + 1)
                if start + size == stop:
                    layout, position = "item", enter(_FIELD_1)
        elif position < stop and record[position] == _UNPACKED[kind]:
            layout = "unpacked"
        elif position < stop:
            layout, position = "packed", enter(_FIELD_1)
    fixed = bytearray(record[first:position])
    for place, width, _ in lengths:
        fixed[place : place + width] = bytes(width)
    return Entry(Form(key, kind, layout, bytes(fixed), tuple(lengths)), position, stop)


def _enter(record: bytes, tag: int, position: int, stop: int) -> tuple[int, int]:
    """Where the content of a field starts that fills all up to ``stop``, and the number of bytes of its length."""
    if position >= stop or record[position] != tag:
        raise OtherFormError
    size, start = _length_at(record, position + 1)
    if start + size != stop:
        raise OtherFormError
    return start, start - position - 1


def _length_at(record: bytes, position: int) -> tuple[int, int]:
    size, start = read_varint(record, position)
    if start - position > _MOST_LENGTH_BYTES:
        raise OtherFormError
    return size, start


def _read_length(windows: npt.NDArray[np.uint8], place: int, width: int) -> npt.NDArray[np.int64]:
    """The lengths at ``place`` in each row, whose bytes are known to be as many as ``width``."""
    length = windows[:, place].astype(np.int64)
    if width > 1:
        length &= 0x7F
    for byte in range(1, width):
        length |= (windows[:, place + byte] & np.uint8(0x7F)).astype(np.int64) << (7 * byte)
    return length
