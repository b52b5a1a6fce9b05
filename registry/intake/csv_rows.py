"""Finds rows and fields in the bytes of a CSV file: the delimiter, the header, the end of each row, and its line.

Quotes follow RFC 4180 as Arrow's parser reads them: a quote opens a field only as its first character, two quotes
inside are one, and text after the closing quote belongs to the field. Most blocks are handled by a few operations on
all bytes; only text with quotes in other places is walked field by field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

DELIMITERS: Final = {",": "comma", "\t": "tab", ";": "semicolon", "|": "vertical bar"}
_SAMPLE_ROWS: Final = 100
_QUOTE: Final = ord('"')
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

Places = npt.NDArray[np.int64]


class Cell(NamedTuple):
    """A field of a row as text, and whether it was quoted."""

    text: str
    is_quoted: bool


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """Where the rows of a block are; blank lines are left out.

    Attributes:
        starts: the first byte of each row.
        stops: the place after its line end.
        lines: the number of line ends before it in the block.
        open_start: the start of a last row with a quote that is never closed, or None; that row is not in the others.
        open_line: the number of line ends before that row.
    """

    starts: Places
    stops: Places
    lines: Places
    open_start: int | None = None
    open_line: int = 0


@dataclass(frozen=True, slots=True)
class Dialect:
    r"""How a CSV file is written.

    Attributes:
        delimiter: the character between fields.
        newline: the last byte of a line: ``b"\n"``, or ``b"\r"`` in files of old programs.
    """

    delimiter: str = ","
    newline: bytes = b"\n"

    def find_end(self, data: bytes) -> int:
        """Return the place after the last row that ends in ``data``, which starts at the start of a row; 0 if none."""
        if b'"' not in data:
            return data.rfind(self.newline) + 1
        quotes = _find_quotes(data, self.delimiter)
        if quotes is None:
            end = 0
            for stop in _walk_rows(data, self.delimiter):
                if stop < len(data) or not data.endswith(b"\r"):  # its b"\n" may follow
                    end = stop
            return end
        place = data.rfind(self.newline)
        while place >= 0 and (before := int(np.searchsorted(quotes, place))) % 2:  # it is inside quotes
            place = data.rfind(self.newline, 0, int(quotes[before - 1]))
        return place + 1

    def find_rows(self, data: bytes) -> RowPlaces:
        """Find all rows of ``data``, which consists of whole rows; only the last one may have no line end."""
        quotes = _find_quotes(data, self.delimiter)
        if quotes is None:
            ended = data if data.endswith((b"\n", b"\r")) else data + b"\n"
            stops = np.minimum(np.fromiter(_walk_rows(ended, self.delimiter), np.int64), len(data))
        else:
            ends = _find_line_ends(data)
            stops = ends[np.searchsorted(quotes, ends) % 2 == 0] if quotes.size else ends
            if quotes.size % 2 == 0:
                stops = np.append(stops, len(data))
        if stops.size > 1 and stops[-1] == stops[-2]:
            stops = stops[:-1]
        starts = np.concatenate([np.zeros(1, np.int64), stops[:-1]]) if stops.size else stops
        all_ends = _find_line_ends(data)
        lines = np.searchsorted(all_ends, starts, side="right")
        end = int(stops[-1]) if stops.size else 0
        array = np.frombuffer(data, np.uint8)
        is_short = (stops - starts <= 2) & _is_line_end(array, starts) & _is_line_end(array, stops - 1)
        kept = ~(is_short | (stops == starts))
        places = RowPlaces(starts[kept], stops[kept], lines[kept])
        if end == len(data):
            return places
        line = int(np.searchsorted(all_ends, end, side="right"))
        return RowPlaces(places.starts, places.stops, places.lines, open_start=end, open_line=line)


def _is_line_end(array: npt.NDArray[np.uint8], places: Places) -> npt.NDArray[np.bool_]:
    if not array.size:
        return np.zeros(places.shape, np.bool_)
    found = array[np.minimum(places, array.size - 1)]
    is_end: npt.NDArray[np.bool_] = (found == ord("\n")) | (found == ord("\r"))
    return is_end


def _find_line_ends(data: bytes) -> Places:
    r"""The places after each line end: ``\n``, ``\r\n``, or ``\r`` alone."""
    array = np.frombuffer(data, np.uint8)
    is_end = array == ord("\n")
    if b"\r" in data:
        alone = array == ord("\r")
        alone[:-1] &= ~is_end[1:]
        is_end |= alone
    return np.flatnonzero(is_end).astype(np.int64, copy=False) + 1


def _find_quotes(data: bytes, delimiter: str) -> Places | None:
    """The places of all quotes if each opens a field, closes one, or is doubled; None if a quote is anywhere else.

    Then a place is inside quotes exactly if the number of quotes before it is odd.
    """
    array = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(array == _QUOTE).astype(np.int64, copy=False)
    if not quotes.size:
        return quotes
    opening, closing = quotes[::2], quotes[1::2]
    borders = np.zeros(256, np.bool_)
    borders[[ord(delimiter), ord("\n"), ord("\r"), _QUOTE]] = True
    before = borders[array[np.maximum(opening, 1) - 1]] | (opening == 0)
    after = borders[array[np.minimum(closing + 1, array.size - 1)]]  # a quote at the end is a border, too
    if not (before.all() and after.all()):
        return None
    return quotes  # a quote right before an opening one is the first of two, and both are one character of the field


@lru_cache(maxsize=16)
def _row_pattern(delimiter: str) -> re.Pattern[bytes]:
    mark = re.escape(delimiter).encode()
    # field = '"' { any but '"' | '""' } '"' { any but the delimiter and line ends } | [ any but '"' ... ]
    field = rb'(?:"[^"]*+(?:""[^"]*+)*+"[^%b\r\n]*+|[^"%b\r\n][^%b\r\n]*+|)' % (mark, mark, mark)
    return re.compile(rb"%b(?:%b%b)*+(?:\r\n|\n|\r)" % (field, mark, field))


@lru_cache(maxsize=16)
def _field_pattern(delimiter: str) -> re.Pattern[bytes]:
    mark = re.escape(delimiter).encode()
    return re.compile(rb'(?:"([^"]*+(?:""[^"]*+)*+)"([^%b\r\n]*+)|([^%b\r\n]*+))(%b)?' % (mark, mark, mark))


def _walk_rows(data: bytes, delimiter: str) -> Iterator[int]:
    """Yield the place after each row that ends with a line end."""
    match, place = _row_pattern(delimiter).match, 0
    while found := match(data, place):
        place = found.end()
        yield place


def split_row(row: bytes, delimiter: str) -> list[Cell]:
    r"""The fields of one row.

    >>> [cell.text for cell in split_row(b'7,"a ""b"",\n",\n', ",")]
    ['7', 'a "b",\n', '']
    """
    cells, place, match = [], 0, _field_pattern(delimiter).match
    while found := match(row, place):
        quoted, rest, plain, more = found.groups()
        raw = plain if quoted is None else quoted.replace(b'""', b'"') + rest
        cells.append(Cell(raw.decode(errors="replace"), quoted is not None))
        place = found.end()
        if more is None:
            break
    return cells


def sample_rows(data: bytes, delimiter: str, *, is_whole: bool) -> list[list[Cell]]:
    """The first rows of a file that starts with ``data``; a row without an end counts only if the file is whole."""
    rows, start = [], 0
    for stop in _walk_rows(data + b"\n" if is_whole else data, delimiter):
        if data[start:stop].strip(b"\r\n"):
            rows.append(split_row(data[start:stop], delimiter))
        start = stop
        if len(rows) == _SAMPLE_ROWS:
            break
    return rows


def detect_dialect(
    data: bytes, *, is_whole: bool, likely: str = ",", delimiter: str | None = None
) -> tuple[Dialect, list[list[Cell]]] | None:
    """The dialect of a file that starts with ``data``, and its first rows; None if its first row does not end.

    A delimiter has to occur in the first row. The one that splits most rows into equally many fields is chosen, then
    the one that makes the most fields, then ``likely``. A file with no delimiter has one column. ``delimiter`` is the
    one that the caller requests.
    """
    newline = b"\r" if b"\r" in data and b"\n" not in data else b"\n"
    best: tuple[Any, ...] | None = None
    for tried in sorted(DELIMITERS, key=lambda mark: mark != likely) if delimiter is None else [delimiter]:
        rows = sample_rows(data, tried, is_whole=is_whole)
        if not rows:
            continue
        width = len(rows[0])
        agreeing = sum(len(row) == width for row in rows) / len(rows)
        rank = (width > 1, agreeing if width > 1 else 0, width)
        if best is None or rank > best[0]:
            best = rank, tried, rows
    if best is None:
        return (Dialect(delimiter or likely, newline), []) if is_whole else None
    return Dialect(best[1], newline), best[2]


def find_number(rows: Sequence[Sequence[Cell]], delimiter: str = ",", nulls: Sequence[str] = ()) -> str | None:
    """The number in the first of ``rows`` that shows that it is not a header, or None if it is one.

    Names of columns are texts. A first row with numbers is a header only if its numbers count up from 0, as pandas
    names columns, or are two or more years in order; if they are quoted, and those of the second row are not; or if a
    column has a text there and numbers in all other rows.
    """
    first, others = rows[0], rows[1:]
    quoted_later = not others or any(cell.is_quoted for cell in others[0])
    numbers = [cell.text.strip() for cell in first if quoted_later or not cell.is_quoted]
    numbers = [text for text in numbers if _is_number(text, delimiter)]
    if not numbers:
        return None
    if len(numbers) > 1 and all(number.isdecimal() and len(number) < 9 for number in numbers):
        counted = [int(number) for number in numbers]
        are_years = counted[0] >= 1900 and counted[-1] <= 2100 and counted == sorted(set(counted))
        if are_years or counted == list(range(len(counted))):
            return None
    for place, cell in enumerate(first):
        below = [row[place].text.strip() for row in others if place < len(row) and row[place].text not in nulls]
        is_missing = cell.text.strip().lower() in _MISSING or cell.text in nulls
        is_name = not _is_number(cell.text.strip(), delimiter) and not is_missing
        if is_name and below and all(_is_number(text, delimiter) for text in below):
            return None
    return numbers[0]


_MISSING: Final = frozenset({"", "-", "--", "?", ".", "#n/a", "inf", "-inf", "n/a", "na", "nan", "none", "null"})
"""What a first row of data may have in a column of numbers."""


def _is_number(text: str, delimiter: str) -> bool:
    if delimiter != ",":  # many languages write 2,50
        text = text.replace(",", ".", 1)
    return _NUMBER.fullmatch(text) is not None
