"""Finds the rows in the bytes of a JSON file: the lines of JSON lines, objects of several lines, or elements of a list.

``parse_object`` parses a row without losing a digit.

    [ {"a": 1}, {"a": 2} ]   ->   two elements; the commas and brackets around them become spaces

An element may take many lines, and a list may be of any size: its elements are found block by block.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from registry.intake.python_values import MAX_DEPTH
from registry.intake.source import BadFileError, is_unicode

Places = npt.NDArray[np.int64]


def parse_object(text: str) -> dict[str, Any]:
    """Parse the JSON object of one row.

    Raises:
        BadFileError: the text is not JSON or not an object, a key occurs twice, or a number is NaN or infinite.
    """
    value = parse_value(text)
    if not isinstance(value, dict):
        raise BadFileError(f"expected an object, found {_word(value)}")
    return value


def parse_value(text: str) -> Any:
    """Parse JSON with any value at the top. Raises the same errors as ``parse_object``."""
    try:
        value: Any = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise BadFileError(f"is not JSON: {error.msg}", place=error.pos) from error
    except RecursionError as error:
        raise BadFileError(f"more than {MAX_DEPTH} levels of objects and lists in one value") from error
    except ValueError as error:  # the text has an integer of thousands of digits
        raise BadFileError("contains an integer that does not fit in 64 bits") from error
    return value


def texts_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield each key of an object that ``parse_object`` accepts, with the JSON text of its value."""
    at = _SPACE.match(text, text.index("{") + 1).end()  # type: ignore[union-attr]  # it matches everywhere
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        at = _COLON.match(text, at).end()  # type: ignore[union-attr]
        _, end = _DECODER.raw_decode(text, at)
        yield key, text[at:end]
        at = _COMMA.match(text, end).end()  # type: ignore[union-attr]


def _pair(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise BadFileError(f"the key {key!r:.80} occurs twice in an object")
            seen.add(key)
    if odd := next((key for key in result if not key.isascii() and not is_unicode(key)), None):
        raise BadFileError(f"the key {odd!a:.60} is not valid Unicode")
    return result


def _refuse_constant(text: str) -> NoReturn:
    raise BadFileError(f"{text} is not a number in JSON; write null, or a text")


def _parse_float(text: str) -> float:
    value = float(text)
    if value - value != 0:
        raise BadFileError("a number is too large for a float of 64 bits")
    return value


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_pair, parse_constant=_refuse_constant, parse_float=_parse_float)
_SPACE: Final = re.compile(r"\s*")
_COLON: Final = re.compile(r"\s*:\s*")
_COMMA: Final = re.compile(r"\s*,?\s*")


def _word(value: object) -> str:
    if value is None:
        return "null"
    words = {str: "a text", bool: "a bool", list: "a list", dict: "an object"}
    return words.get(type(value), "a number")


_STEPS: Final = np.zeros(256, np.int8)
_STEPS[[ord("{"), ord("[")]] = 1
_STEPS[[ord("}"), ord("]")]] = -1
_IS_MARK: Final = np.zeros(256, np.bool_)
_IS_MARK[[ord(character) for character in '{[]},"']] = True
_IS_SPACE: Final = np.zeros(256, np.bool_)
_IS_SPACE[[ord(" "), ord("\t"), ord("\r"), ord("\n")]] = True

_LAST_WIDE: Final = re.compile(rb"[\xc0-\xff][\x80-\xbf]*\Z")
"""The last character if it has two bytes or more, or its first bytes."""


@dataclass(frozen=True, slots=True)
class JsonRows:
    """The rows of a block.

    Attributes:
        data: the bytes, in which only spaces are between rows.
        starts: the first byte of each row, which is not a space.
        stops: the place after its last byte, which is not a space.
        lines: the number of newlines before each row.
        tail: the place of text after the end of the list, or of the object that has it; None if there is none.
        is_open: whether the file ends before its list does.
    """

    data: bytes
    starts: Places
    stops: Places
    lines: Places
    tail: int | None = None
    is_open: bool = False

    def __len__(self) -> int:
        return int(self.starts.size)

    @property
    def longest(self) -> int:
        """The size of the largest row in bytes, with the spaces after it, except for the last row."""
        return int(np.diff(self.starts, append=len(self.data)).max())

    def are_objects(self) -> bool:
        """Whether each row starts and ends like an object. Then no object continues in the next row."""
        array = np.frombuffer(self.data, np.uint8)
        return bool((array[self.starts] == ord("{")).all() and (array[self.stops - 1] == ord("}")).all())


def find_line_end(data: bytes) -> int:
    """Return the place after the last newline of ``data``, or 0."""
    return data.rfind(b"\n") + 1


def find_lines(data: bytes) -> JsonRows:
    """Find the lines of ``data`` that are not blank, without the spaces around them."""
    array = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(array == ord("\n")).astype(np.int64, copy=False)
    stops = ends if not array.size or array[-1] == ord("\n") else np.append(ends, array.size)
    starts = np.concatenate([np.zeros(1, np.int64), stops[:-1] + 1]) if stops.size else stops
    return _trimmed(data, array, starts, stops, np.arange(starts.size, dtype=np.int64))


def _trimmed(
    data: bytes, array: npt.NDArray[np.uint8], starts: Places, stops: Places, lines: Places | None = None
) -> JsonRows:
    """Remove blank rows, and the spaces around the other rows.

    If ``lines`` is None, newlines are counted to find the lines of the trimmed rows.
    """
    if not array.size:
        starts = stops = starts[:0]
    if starts.size:
        last = array.size - 1
        is_loose = (starts == stops) | _IS_SPACE[array[np.minimum(starts, last)]] | _IS_SPACE[array[stops - 1]]
        if is_loose.any():
            solid = np.append(np.flatnonzero(~_IS_SPACE[array]), array.size).astype(np.int64, copy=False)
            first, after = np.searchsorted(solid, starts), np.searchsorted(solid, stops)
            kept = first < after
            starts, stops = solid[first[kept]], solid[after[kept] - 1] + 1
            lines = None if lines is None else lines[kept]
    if lines is None:
        lines = np.searchsorted(np.flatnonzero(array == ord("\n")), starts).astype(np.int64)
    return JsonRows(data, starts, stops, lines)


class _Marks(NamedTuple):
    """The brackets, braces and commas outside of texts: places, bytes, and the depth after each of them."""

    places: Places
    marks: npt.NDArray[np.uint8]
    depths: npt.NDArray[np.int32]


def _find_marks(data: bytes) -> _Marks:
    array = np.frombuffer(_without_escapes(data), np.uint8)
    places = np.flatnonzero(_IS_MARK[array]).astype(np.int64, copy=False)
    marks = array[places]
    quotes = np.cumsum(marks == ord('"'), dtype=np.int64)
    is_outside = (marks != ord('"')) & (quotes % 2 == 0)
    places, marks = places[is_outside], marks[is_outside]
    return _Marks(places, marks, np.cumsum(_STEPS[marks], dtype=np.int32))


def find_keys(data: bytes, pattern: bytes) -> Iterator[re.Match[bytes]]:
    """Yield the matches of ``pattern`` that start at a key of the object with which ``data`` starts."""
    marks = _find_marks(data)
    quotes = np.flatnonzero(np.frombuffer(_without_escapes(data), np.uint8) == ord('"'))
    for match in re.finditer(pattern, data):
        num_marks = int(np.searchsorted(marks.places, match.start()))
        is_outside = np.searchsorted(quotes, match.start()) % 2 == 0
        if is_outside and num_marks and marks.depths[num_marks - 1] == 1:
            yield match


def _without_escapes(data: bytes) -> bytes:
    """Replace each backslash and the byte that it escapes, so that the remaining quotes are delimiters."""
    return data.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in data else data


def _blank(view: npt.NDArray[np.uint8]) -> None:
    """Replace all bytes but newlines by spaces."""
    view[view != ord("\n")] = ord(" ")


class ObjectsOfLines:
    """Finds objects that follow each other, each on one or several lines, as ``ListElements`` finds elements."""

    def find_end(self, data: bytes) -> int:
        """Return the place after the last object that ends in ``data``, or 0."""
        stops = self._stops(data)
        return int(stops[-1]) if stops.size else 0

    def take(self, data: bytes, *, is_last: bool) -> JsonRows:
        """The objects in the next block."""
        stops = self._stops(data)
        stops = np.append(stops, len(data)) if is_last else stops
        starts = np.concatenate([np.zeros(1, np.int64), stops[:-1]])
        return _trimmed(data, np.frombuffer(data, np.uint8), starts, stops)

    @staticmethod
    def _stops(data: bytes) -> Places:
        marks = _find_marks(data)
        ends: Places = marks.places[(marks.marks == ord("}")) & (marks.depths == 0)]
        return ends + 1


class ListElements:
    """Finds the elements of a list, block by block: ``find_end`` is for ``read_blocks``, ``take`` for its blocks.

    Args:
        key: the key of the list if the file is an object, whose other keys are ignored. The list must start in the
            first block. None if the file is the list itself.
    """

    def __init__(self, key: str | None = None) -> None:
        self._key = key
        self._has_begun = False
        self._has_ended = False
        self._depth = 0 if key is None else 1  # of what is open after the list
        self._is_in_text = False
        self._found: _Ends | None = None

    def find_end(self, data: bytes) -> int:
        """Return the place after the comma that follows the last element in ``data``, or after the list, or 0."""
        if self._has_ended:
            end = len(data.rstrip(b"\\"))  # not between a backslash and what it escapes, and not inside a character
            wide = _LAST_WIDE.search(data, max(end - 4, 0), end)
            return end if wide is None else wide.start()
        result = self._found = self._scan(data)
        if result.end is not None:
            return len(data) if data[result.end :].isspace() else result.end
        return int(result.commas[-1]) + 1 if result.commas.size else 0

    def take(self, data: bytes, *, is_last: bool) -> JsonRows:
        """The elements in the next block."""
        nothing = np.empty(0, np.int64)
        if self._has_ended:
            return JsonRows(data, nothing, nothing, nothing, tail=self._find_tail(data, 0))
        found = self._scan(data) if is_last or self._found is None else self._found
        self._found, self._has_begun = None, True
        stops = found.commas
        if found.end is not None:
            self._has_ended = True
            stops = np.append(stops, found.end - 1)
        elif is_last:
            stops = np.append(stops, len(data))
        starts = np.concatenate([np.array([found.start], np.int64), stops[:-1] + 1])
        clean = bytearray(data)
        view = np.frombuffer(clean, np.uint8)
        view[stops[stops < len(data)]] = ord(" ")
        _blank(view[: found.start])
        if self._key is not None and found.end is not None:
            _blank(view[found.end :])
        tail = None if found.end is None else self._find_tail(data, found.end)
        rows = _trimmed(bytes(clean), view, starts, stops)
        is_open = is_last and not self._has_ended
        return JsonRows(rows.data, rows.starts, rows.stops, rows.lines, tail=tail, is_open=is_open)

    def _find_tail(self, data: bytes, start: int) -> int | None:
        """The place of text after the list, or after the object that has it, at ``start`` or later."""
        if self._depth:
            rest = b'"' * self._is_in_text + data[start:]
            marks = _find_marks(rest)
            depths = marks.depths + self._depth
            ends = marks.places[depths == 0]
            if not ends.size:
                self._depth = int(depths[-1]) if depths.size else self._depth
                self._is_in_text = _without_escapes(rest).count(b'"') % 2 == 1
                return None
            self._depth = 0
            start += int(ends[0]) + 1 - self._is_in_text
        return _first_solid(data, start)

    def find_start(self, data: bytes) -> int | None:
        """The place after the bracket that opens the list, or None if it does not start in ``data``."""
        if self._key is None:
            return data.find(b"[") + 1 or None
        # A key may also be written with escapes: "caf\u00e9".
        words = {json.dumps(self._key, ensure_ascii=is_ascii).encode() for is_ascii in (True, False)}
        pattern = b"(?:" + b"|".join(map(re.escape, sorted(words))) + rb")\s*:\s*\["
        first = next(find_keys(data, pattern), None)
        return None if first is None else first.end()

    def _scan(self, data: bytes) -> _Ends:
        start = 0 if self._has_begun else self.find_start(data) or 0
        marks = _find_marks(data[start:] if start else data)
        commas = marks.places[(marks.marks == ord(",")) & (marks.depths == 0)]
        below = np.flatnonzero(marks.depths < 0)
        if not below.size:
            return _Ends(start, commas + start, None)
        end = int(marks.places[below[0]])  # the closing bracket of the list, or one that closes nothing
        return _Ends(start, commas[commas < end] + start, start + end + 1)


class _Ends(NamedTuple):
    """The start of the elements, the commas between them, and the place after the list if it ends."""

    start: int
    commas: Places
    end: int | None


def _first_solid(data: bytes, start: int) -> int | None:
    rest = data[start:].lstrip()
    return len(data) - len(rest) if rest else None
