"""Reads Thrift's compact protocol, the encoding of a Parquet file's footer and page headers.

Input is not trusted: every read ends within ``data``, every number fits its type, and the work grows with the bytes
that exist, not with the sizes that they claim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

BOOLEANS: Final = (1, 2)
"""The types of true and false; the other types are numbered after them."""
I32: Final = 5
I64: Final = 6
BINARY: Final = 8
LIST: Final = 9
STRUCT: Final = 12

_MOST_ELEMENTS: Final = 1_000_000
"""Of a list that is wanted; pyarrow refuses longer ones, too."""
_MOST_THRIFT_DEPTH: Final = 32
"""Most nesting of structs and lists in unknown fields; Parquet's own nesting is six deep."""

Fields: TypeAlias = Mapping[int, tuple[int, Callable[["CompactReader"], Any]]]
"""The fields of a struct that are wanted, by number: the type that each must have, and what reads it."""


class ThriftError(ValueError):
    """Bytes that are not a valid message, with the position of the fault."""


class CompactReader:
    """Reads values of ``data`` one after the other; ``place`` is the next byte."""

    __slots__ = ("data", "place")

    def __init__(self, data: bytes, place: int = 0) -> None:
        self.data = data
        self.place = place

    def i32(self) -> int:
        """A number of 32 bits."""
        return self._number(32)

    def i64(self) -> int:
        """A number of 64 bits."""
        return self._number(64)

    def binary(self) -> bytes:
        """A string of bytes."""
        size, start = self._varint(32), self.place
        if size > len(self.data) - start:
            raise ThriftError(f"byte {start}: {size} bytes should follow, and {len(self.data) - start} do")
        self.place = start + size
        return self.data[start : self.place]

    def list_of(self, kind: int, read: Callable[[CompactReader], Any]) -> list[Any]:
        """A list whose elements have the type ``kind``."""
        count, found = self._list_head()
        if found != kind and count:
            raise ThriftError(f"byte {self.place}: a list of type {found}, where {kind} is expected")
        if count > _MOST_ELEMENTS:
            raise ThriftError(f"byte {self.place}: a list of {count} elements, more than {_MOST_ELEMENTS}")
        return [read(self) for _ in range(count)]

    def struct(self, fields: Fields) -> dict[int, Any]:
        """The wanted fields of a struct, by number; the others are passed over."""
        found: dict[int, Any] = {}
        number = 0
        while kind := self._byte():
            number, kind = self._field(number, kind)
            wanted = fields.get(number)
            if wanted is None:
                self._skip(kind, 0)
                continue
            if kind != wanted[0]:
                raise ThriftError(f"byte {self.place}: field {number} has type {kind}, expected {wanted[0]}")
            if number in found:
                raise ThriftError(f"byte {self.place}: field {number} is there twice")
            found[number] = wanted[1](self)
        return found

    def _byte(self) -> int:
        place = self.place
        if place >= len(self.data):
            raise ThriftError(f"byte {place}: the message ends too early")
        self.place = place + 1
        return self.data[place]

    def _field(self, last: int, head: int) -> tuple[int, int]:
        """The number and the type of a field that begins with the byte ``head``, after field ``last``."""
        if head >> 4:
            return last + (head >> 4), head & 15
        return self._number(16), head

    def _number(self, bits: int) -> int:
        value = self._varint(bits)
        return (value >> 1) ^ -(value & 1)

    def _varint(self, bits: int) -> int:
        data, place = self.data, self.place
        if place < len(data) and data[place] < 128:  # most are this short
            self.place = place + 1
            return data[place]
        value = shift = 0
        for byte in data[place : place + 10]:
            place += 1
            value |= (byte & 127) << shift
            if byte < 128:
                if value >> bits:
                    break
                self.place = place
                return value
            shift += 7
        raise ThriftError(f"byte {self.place}: no number of {bits} bits")

    def _list_head(self) -> tuple[int, int]:
        head = self._byte()
        count = head >> 4
        if count == 15:
            count = self._varint(32)
        if count > len(self.data) - self.place:  # each element takes a byte at least
            raise ThriftError(f"byte {self.place}: a list of {count} elements, which would not fit")
        return count, head & 15

    def _skip(self, kind: int, depth: int) -> None:
        if depth > _MOST_THRIFT_DEPTH:
            raise ThriftError(f"byte {self.place}: nested more than {_MOST_THRIFT_DEPTH} deep")
        match kind:
            case 1 | 2:
                return
            case 3:
                self._byte()
            case 4 | 5 | 6:
                self._varint(64)
            case 7:
                self.place += 7
                self._byte()
            case 8:
                self.binary()
            case 9 | 10:
                count, inner = self._list_head()
                for _ in range(count):
                    self._skip_element(inner, depth + 1)
            case 11:
                self._skip_map(depth)
            case 12:
                number = 0
                while head := self._byte():
                    number, inner = self._field(number, head)
                    self._skip(inner, depth + 1)
            case _:
                raise ThriftError(f"byte {self.place}: {kind} is no type")

    def _skip_element(self, kind: int, depth: int) -> None:
        if kind in BOOLEANS:  # in a list each takes a byte, as a field none
            self._byte()
        else:
            self._skip(kind, depth)

    def _skip_map(self, depth: int) -> None:
        count = self._varint(32)
        if count > len(self.data) - self.place:
            raise ThriftError(f"byte {self.place}: a map of {count} elements, which would not fit")
        if count:
            kinds = self._byte()
            for _ in range(count):
                self._skip_element(kinds >> 4, depth + 1)
                self._skip_element(kinds & 15, depth + 1)
