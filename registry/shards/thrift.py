"""Reads Thrift's compact protocol, the encoding of a Parquet file's footer and page headers.

``parquet_footer.py`` calls it. Input is not trusted: every read ends within ``data``, every number fits its type, and
the work depends on the number of bytes that exist, not on the sizes that they claim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

BOOLEANS: Final = (1, 2)
"""The field types of true and false; the other types have higher numbers."""
I32: Final = 5
I64: Final = 6
BINARY: Final = 8
LIST: Final = 9
STRUCT: Final = 12

_MOST_ELEMENTS: Final = 1_000_000
"""Longest list that is read; pyarrow refuses longer ones, too."""
_MOST_THRIFT_DEPTH: Final = 32
"""Deepest nesting of structs and lists in unknown fields; Parquet's own structs are six deep."""

Fields: TypeAlias = Mapping[int, tuple[int, Callable[["CompactReader"], Any]]]
"""The fields of a struct to read, by number: the type of each, and the function that reads it."""


class ThriftError(ValueError):
    """The bytes are not a valid message; the text has the position of the fault."""


class CompactReader:
    """Reads values of ``data`` one after the other; ``place`` is the position of the next byte."""

    __slots__ = ("data", "place")

    def __init__(self, data: bytes, place: int = 0) -> None:
        self.data = data
        self.place = place

    def i32(self) -> int:
        """Read a signed 32-bit integer."""
        return self._number(32)

    def i64(self) -> int:
        """Read a signed 64-bit integer."""
        return self._number(64)

    def binary(self) -> bytes:
        """Read a byte string."""
        size, start = self._varint(32), self.place
        if size > len(self.data) - start:
            raise ThriftError(f"byte {start}: expected {size} more bytes, found {len(self.data) - start}")
        self.place = start + size
        return self.data[start : self.place]

    def list_of(self, kind: int, read: Callable[[CompactReader], Any]) -> list[Any]:
        """Read a list whose elements must have the type ``kind``."""
        count, found = self._list_head()
        if found != kind and count:
            raise ThriftError(f"byte {self.place}: expected a list of type {kind}, found {found}")
        if count > _MOST_ELEMENTS:
            raise ThriftError(f"byte {self.place}: a list of {count} elements, more than {_MOST_ELEMENTS}")
        return [read(self) for _ in range(count)]

    def struct(self, fields: Fields) -> dict[int, Any]:
        """Read a struct: the given fields by number; other fields are skipped."""
        result: dict[int, Any] = {}
        number = 0
        while kind := self._byte():
            number, kind = self._field(number, kind)
            wanted = fields.get(number)
            if wanted is None:
                self._skip(kind, 0)
                continue
            if kind != wanted[0]:
                raise ThriftError(f"byte {self.place}: field {number}: expected type {wanted[0]}, found {kind}")
            if number in result:
                raise ThriftError(f"byte {self.place}: field {number} is repeated")
            result[number] = wanted[1](self)
        return result

    def _byte(self) -> int:
        place = self.place
        if place >= len(self.data):
            raise ThriftError(f"byte {place}: the message ends too early")
        self.place = place + 1
        return self.data[place]

    def _field(self, last: int, head: int) -> tuple[int, int]:
        """The number and type of the field that begins with the byte ``head`` and follows field ``last``."""
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
        raise ThriftError(f"byte {self.place}: expected a {bits}-bit integer")

    def _list_head(self) -> tuple[int, int]:
        head = self._byte()
        count = head >> 4
        if count == 15:
            count = self._varint(32)
        if count > len(self.data) - self.place:  # each element takes a byte at least
            raise ThriftError(f"byte {self.place}: a list of {count} elements is longer than the rest of the message")
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
                raise ThriftError(f"byte {self.place}: unknown type {kind}")

    def _skip_element(self, kind: int, depth: int) -> None:
        if kind in BOOLEANS:  # a boolean takes a byte in a list, and no byte as a field
            self._byte()
        else:
            self._skip(kind, depth)

    def _skip_map(self, depth: int) -> None:
        count = self._varint(32)
        if count > len(self.data) - self.place:
            raise ThriftError(f"byte {self.place}: a map of {count} elements is longer than the rest of the message")
        if count:
            kinds = self._byte()
            for _ in range(count):
                self._skip_element(kinds >> 4, depth + 1)
                self._skip_element(kinds & 15, depth + 1)
