"""Reads CSV and TSV files as tables whose columns are all text; inference decides on types later.

    names -> delimiter and header of each file -> Source of one part per file -> blocks of rows -> pyarrow.csv -> Rows

Values are never converted. An unquoted field is null if it is empty, or if the caller named its text as null; a quoted
field is text, unless the caller named it with its quotes. Blank lines are not rows. Rows with too few or too many
values are bad rows, and the others are kept.

Rows and fields are found in the bytes. Quotes follow RFC 4180: a quote opens a field only as its first character, and
two quotes inside are one. Text after the closing quote makes a bad row: most parsers drop the quotes, which changes the
values of files that escape quotes with a backslash, and joins rows of files without quoted fields. Most blocks are
handled by a few operations on all bytes; only text with quotes in other places is walked field by field.
"""

from __future__ import annotations

import codecs
import re
import shlex
from array import array
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from registry.argument_types import require_type
from registry.errors import SourceError, UsageError, spell
from registry.intake.file_parts import Reader, compare_columns, in_order_of, make_parts
from registry.intake.kinds import KINDS
from registry.intake.media_bytes import format_of
from registry.intake.options import AddOptions
from registry.intake.source import BadRow, Files, Rows, Source, cut_rows, is_unicode, list_names
from registry.intake.text_files import (
    BLOCK_BYTES,
    COMPRESSIONS,
    MAX_ROW_BYTES,
    TextBlock,
    count_newlines,
    find_last_line_end,
    find_line_ends,
    open_text,
    read_blocks,
    too_long,
)
from registry.intake.text_types import NULL_WORDS
from registry.shards.arrow_values import import_pyarrow
from registry.splits import counted
from registry.storage import Store

_SAMPLE_BYTES: Final = 2**18
_SEARCHED_BYTES: Final = 2**16
_MANY_COLUMNS: Final = 1000
_INDEX: Final = "index"
_WIDE_BLOCK_BYTES: Final = 8 * 2**20


def open_csv(files: Files, options: AddOptions, *, block_bytes: int = BLOCK_BYTES) -> Source:
    """Open CSV and TSV files, also compressed.

    The delimiter (comma, tab, semicolon or vertical bar), the encoding, and whether there is a header are detected for
    each file. Without a header, the columns are named ``column_1``, ``column_2`` and so on. ``options`` override these.

    Args:
        files: the files.
        options: how they are opened.
        block_bytes: how much of a file is parsed at once.

    Raises:
        UsageError: an option is malformed.
        SourceError: a header has an empty or a repeated name, files have different columns, the encoding of the text is
            unknown, or no file has a row.
        StorageError: a file cannot be read.
        MissingExtraError: pyarrow is not installed.
    """
    given = _checked(options)
    layouts: list[_Layout] = []

    def open_file(name: str) -> Reader | None:
        layout = _look_at(files.store, name, given)
        if layout is None:
            return None
        layouts.append(layout)
        _check_headers(layouts[0], layout)
        # Each call of pyarrow costs time per column, regardless of the number of rows.
        most = max(block_bytes, _WIDE_BLOCK_BYTES) if len(layout.names) > _MANY_COLUMNS else block_bytes
        names = in_order_of(layouts[0].names, layout.names)  # several columns without a name may be left out
        return partial(_read, files.store, layout, names, given, most)

    source = make_parts(files, options, "csv", open_file)
    lacks = compare_columns({layout.name: layout.names for layout in layouts}, given, files)
    # R writes a text in quotes, and a null without them
    nulls = frozenset().union(*(layout.nulls for layout in layouts))
    quoted = {word for word in NULL_WORDS if f'"{word}"' in nulls and word not in nulls}
    summary = _summarize(layouts, given)
    return replace(source, summary=summary, is_text=True, quoted_nulls=quoted, may_lack_columns=lacks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The layout of a file, from its start. ``why_data`` explains why the first row is not a header."""

    name: str
    delimiter: str
    quotes: bool
    encoding: str
    header: tuple[str, ...] | None
    names: tuple[str, ...]
    why_data: str | None
    nulls: frozenset[str]


def check_encoding(options: AddOptions) -> None:
    """Check that ``options.encoding`` is a known encoding of text. Raises UsageError."""
    if options.encoding is not None:
        try:
            "".encode(options.encoding)  # raises for codecs that do not encode text, such as hex
            codecs.getincrementaldecoder(options.encoding)
            b"a".decode(options.encoding, "replace")  # idna, which is for host names, supports no replacement
        except (LookupError, ValueError):
            raise UsageError(
                f"unknown encoding {options.encoding!r:.60}",
                hint=f"For example: {spell('encoding', 'WINDOWS-1252')}, or SHIFT_JIS, GB18030, UTF-16LE.",
                details={"encoding": options.encoding[:200]},
            ) from None


def _checked(options: AddOptions) -> AddOptions:
    """``options`` with the delimiter as a character. Raises UsageError if it is malformed."""
    check_encoding(options)
    for text in options.nulls:
        require_type("nulls", text, str)
        if not is_unicode(text):
            raise UsageError(
                f"invalid text for null: {text!a:.60} is not valid Unicode",
                hint=f"For example: {spell('nulls', ['NA'])}",
                details={"nulls": ascii(text)[:200]},
            )
    if options.delimiter is None:
        return options
    names = {name: mark for mark, name in DELIMITERS.items()}
    mark = names.get(options.delimiter, "\t" if options.delimiter == "\\t" else options.delimiter)
    if len(mark) != 1 or not mark.isascii() or mark in '"\r\n\0':
        raise UsageError(
            f"invalid delimiter {options.delimiter!r:.60}: expected one ASCII character other than a quote, or 'tab'",
            hint=f"For example: {spell('delimiter', ';')}",
            details={"delimiter": options.delimiter[:200]},
        )
    return replace(options, delimiter=mark)


def _look_at(store: Store, name: str, options: AddOptions) -> _Layout | None:
    """Detect the layout of a file. Returns None if it has no rows."""
    plain = name.lower()
    for ending in COMPRESSIONS:
        plain = plain.removesuffix(ending)
    likely = "\t" if plain.endswith((".tsv", ".tab")) else ","
    quotes = options.quotes is not False
    with open_text(store, name, options) as stream:
        data, wanted, found = b"", _SAMPLE_BYTES, None
        while found is None:
            if len(data) > MAX_ROW_BYTES:
                raise too_long(name, 1 + _count_blank_lines(data))
            piece = stream.read(wanted)
            is_whole = len(piece) < wanted
            data += piece
            found = detect_delimiter(data, is_whole=is_whole, likely=likely, delimiter=options.delimiter, quotes=quotes)
            wanted = len(data)
        _refuse_others(name, data, options)
        line = 1 + _count_blank_lines(data)
        delimiter, rows = found
        if_text = f" If quotes are text: {spell('quotes', False)}" if options.has_csv_options else ""
        if not rows and data.strip():
            raise SourceError(
                f"{name}:{line}: {OPEN_QUOTE}",
                hint=f"Add the missing quote.{if_text}",
                details={"file": name, "line": line},
            )
        if not rows:
            return None
        if "delimiter" in options.remembered and len(rows[0]) == 1:
            detected = detect_delimiter(data, is_whole=is_whole, likely=likely, quotes=quotes)
            _refuse_delimiter(name, detected, options, line=line)
        end = len(data) if is_whole else find_end(data, delimiter, quotes=quotes)
        stream.check(TextBlock(data[:end], 1, 0, stream.offset, is_last=is_whole))
        reason = why_data(rows, delimiter, _bare(options.nulls)) if options.header is None else None
        has_header = reason is None if options.header is None else options.header
        if options.delimiter is None and {len(row) for row in rows} == {1}:
            _refuse_separators(name, rows, options, line=line)
        if has_header:
            start = len(data) - len(data.lstrip(b"\r\n"))
            if quotes and _row_pattern(delimiter, is_strict=True).match(data, start) is None:
                raise SourceError(
                    f"{name}:{line}: {TEXT_AFTER_QUOTE}",
                    hint=f"Write two quotes for each quote in a name.{if_text}",
                    details={"file": name, "line": line},
                )
            header = tuple(cell.text for cell in rows[0])
            names = _name_columns(name, header, options, line=line)
        else:
            header, names = None, tuple(f"column_{place}" for place in range(1, len(rows[0]) + 1))
            _refuse_header(name, [cell.text for cell in rows[0]], names, options, line=line)
        return _Layout(
            name=name,
            delimiter=delimiter,
            quotes=quotes,
            encoding=stream.encoding,
            header=header,
            names=names,
            why_data=reason,
            nulls=_find_nulls(data[:_SEARCHED_BYTES], delimiter.encode()),
        )


def _find_nulls(data: bytes, delimiter: bytes) -> frozenset[str]:
    """Return the fields of ``data`` that usually mean null, as they are written: with or without quotes."""
    lines = b"\n%b\n" % data.replace(b"\r", b"\n")
    edges = list(product((delimiter, b"\n"), repeat=2))
    forms = [form for word in NULL_WORDS for form in (word, f'"{word}"') if word and form.encode() in data]
    return frozenset(form for form in forms if any(before + form.encode() + after in lines for before, after in edges))


def _refuse_others(name: str, data: bytes, options: AddOptions) -> None:
    """Refuse a file that starts with ``data`` if it is not a CSV file. Raises SourceError."""
    other, hint = _OTHERS.get(format_of(data.lstrip()) or "", ("", ""))
    if other == _WEB_PAGE and options.has_csv_options:
        if options.header is not None:  # it starts with a column of HTML
            return
        hint += f" If its first line is data: {spell('header', False)}"
    problem = f"{name} is not a CSV file, but {other}" if other else ""
    if re.match(rb'"?sep=.?"?\r?\n', data):
        problem, hint = (
            f"{name}:1: a line that names the separator for Excel",
            "Remove the line: tail -n +2 {0} > NAME.csv",
        )
    if problem:
        raise SourceError(problem, hint=hint.format(name, shlex.quote(name)), details={"file": name})


_WEB_PAGE: Final = "a web page"
_OTHERS: Final = {
    "zip": (
        "a ZIP archive or an Excel file",
        "Rename it to .zip or .xlsx. To read Excel: registry.add(pandas.read_excel({0!r}), 'NAME')",
    ),
    "HTML": (_WEB_PAGE, "Check the URL, and whether it requires a login."),
}
"""Formats of files that are sometimes called .csv, and what to do."""

OPEN_QUOTE: Final = "a quote in this row is never closed"
_NUL_BYTE: Final = "contains a NUL byte"
TEXT_AFTER_QUOTE: Final = "text follows the closing quote of a field"


def _count_blank_lines(data: bytes) -> int:
    """Count the blank lines at the start."""
    start = data[: len(data) - len(data.lstrip(b"\r\n"))]
    return start.count(b"\n") or start.count(b"\r")


def _refuse_separators(name: str, rows: Sequence[Sequence[Cell]], options: AddOptions, *, line: int) -> None:
    """Refuse a file of one column if spaces or ``::`` separate the same number of values in each row.

    Raises SourceError.
    """
    for separator, noun, pattern in ((None, "spaces separate", r"r'\s+'"), ("::", "'::' separates", "'::'")):
        words = [[Cell(word, False) for word in row[0].text.split(separator)] for row in rows]
        if len({len(row) for row in words}) > 1 or len(words[0]) == 1:
            continue
        if any(all(_is_number(word.text, ",") for word in column) for column in zip(*words[1:], strict=True)):
            header = "" if why_data(words) is None else ", header=None"
            engine = ", engine='python'" if separator else ""
            if_value = f". If each line is a value: {spell('delimiter', ',')}" if options.has_csv_options else ""
            raise SourceError(
                f"{name}:{line}: {noun} the values",
                hint=f"registry.add(pandas.read_csv({name!r}, sep={pattern}{engine}{header}), 'NAME'){if_value}",
                details={"file": name, "line": line},
            )


def _refuse_delimiter(
    name: str, detected: tuple[str, list[list[Cell]]] | None, options: AddOptions, *, line: int
) -> None:
    """Refuse a file of one column if the previous version had several, and another delimiter gives several."""
    num_columns = sum(wish.is_remembered for wish in options.wishes().values())
    if detected is not None and len(detected[1][0]) > 1 and num_columns > 1:
        option = spell("delimiter", "tab" if detected[0] == "\t" else detected[0])
        raise SourceError(
            f"{name}:{line}: {options.delimiter!r} separates no values; it is the delimiter of the previous version",
            hint=f"If a {DELIMITERS[detected[0]]} separates them now: {option}",
            details={"file": name, "line": line, "delimiter": options.delimiter},
        )


def _refuse_header(name: str, first: Sequence[str], names: Sequence[str], options: AddOptions, *, line: int) -> None:
    """Refuse a first row with the names of the columns, if the previous version had no header."""
    renamed = options.rename_columns or {}
    if "header" in options.remembered and sorted(first) == sorted(renamed.get(column, column) for column in names):
        raise SourceError(
            f"{name}:{line}: the first row has the names of the columns, but the previous version had no header",
            hint=f"If it is a header: {spell('header', True)}. If it is data: {spell('header', False)}",
            details={"file": name, "line": line},
        )


def _name_columns(name: str, names: tuple[str, ...], options: AddOptions, *, line: int) -> tuple[str, ...]:
    """Check that each column has its own name, and return the names.

    A first column without a name is the index of a frame, as pandas and R write it, and is called ``index``. The caller
    may rename a column without a name, or skip all of them.
    """
    has_option = options.has_csv_options
    skip, wish = spell("features", {"": "skip"}), options.wishes().get("")
    or_data = f" If that line is data: {spell('header', False)}" if has_option else ""
    repeated = [repeated_name for repeated_name, count in Counter(names).items() if count > 1]
    if repeated and not (repeated == [""] and wish is not None and wish.action == "skip"):
        places = [place for place, header in enumerate(names, start=1) if header == repeated[0]]
        fault, lines = f"are both named {repeated[0]!r}", ""
        if not repeated[0]:
            fault, lines = "have no name", ", or remove the lines above the header"
            or_data = f" To leave out the columns without a name: {skip}.{or_data}" if has_option else or_data
        raise SourceError(
            f"{name}:{line}: columns {places[0]} and {places[1]} {fault}",
            hint=f"Give each column its own name in the first line of the file{lines}.{or_data}",
            details={"file": name, "line": line, "columns": places[:100]},
        )
    if "" in names and "" not in (options.rename_columns or {}) and wish is None:
        place = names.index("") + 1
        if place == 1 and len(names) > 1 and _INDEX not in names:
            return (_INDEX, *names[1:])
        rename = spell("rename_columns", {"": "NAME"})
        raise SourceError(
            f"{name}:{line}: column {place} of {len(names)} has no name",
            hint=f"To name it: {rename}. To leave it out, such as the index of a frame: {skip}.{or_data}"
            if has_option
            else "Give it a name in the first line of the file.",
            details={"file": name, "line": line, "column": place},
        )
    return names


def _check_headers(first: _Layout, other: _Layout) -> None:
    """Check that both files have a header, or none has."""
    if (first.header is None) != (other.header is None):
        with_header, without = (first, other) if other.header is None else (other, first)
        raise SourceError(
            f"{with_header.name} has a header ({list_names(with_header.names)}), but {without.name} has none: "
            f"its {without.why_data}",
            hint="Write the same header to all files, or remove it from all.",
            details={"files": [first.name, other.name]},
        )


def _summarize(layouts: Sequence[_Layout], options: AddOptions) -> str:
    marks = dict.fromkeys(layout.delimiter for layout in layouts)
    delimiters = " or ".join(DELIMITERS.get(mark, repr(mark)) for mark in marks)
    encodings = " or ".join(dict.fromkeys(layout.encoding for layout in layouts))
    header = "without a header" if layouts[0].header is None else "with a header"
    reason = layouts[0].why_data
    if options.header is not None:
        header += ", as requested"
    if layouts[0].header is not None and layouts[0].names != layouts[0].header:
        header += f", in which column 1 has no name: it is called {_INDEX}"
    if spaced := [name for name in layouts[0].names if name != name.strip()]:
        header += f", with spaces around {list_names(spaced)}"
    if reason is not None:
        header = f"without a header, because the {reason}"
    quotes = "" if layouts[0].quotes else ", quotes are text"
    return f"{counted(len(layouts), KINDS['csv'].noun)} ({delimiters}{quotes}, {encodings}, {header})"


def _read(
    store: Store, layout: _Layout, columns: Sequence[str], options: AddOptions, block_bytes: int
) -> Generator[Rows, None, None]:
    """Yield all rows of a file, with the columns in the order of the source."""
    parser = _CsvParser(layout, columns, options.nulls)
    header_ahead = layout.header is not None
    with open_text(store, layout.name, options) as stream:
        find = partial(find_end, delimiter=layout.delimiter, quotes=layout.quotes)
        for block in read_blocks(stream, find, block_bytes=block_bytes):
            stream.check(block)
            if not header_ahead:
                yield from parser.parse(block)
            elif (rest := _skip_header(layout, block)) is not None:
                header_ahead = False
                yield from parser.parse(rest)
    if header_ahead:
        raise _changed(layout.name, 1)


def _skip_header(layout: _Layout, block: TextBlock) -> TextBlock | None:
    """Remove the first row of a block. Returns None if it has only blank lines."""
    data = block.data
    rows = find_rows(data, layout.delimiter, quotes=layout.quotes)
    if not rows.starts.size:
        return None
    start, stop, line = int(rows.starts[0]), int(rows.stops[0]), block.line + int(rows.lines[0])
    cells = split_row(data[start:stop], layout.delimiter, quotes=layout.quotes)
    if tuple(cell.text for cell in cells) != layout.header:
        raise _changed(layout.name, line)
    skipped = count_newlines(data[:stop])
    return TextBlock(data[stop:], block.line + skipped, block.num_lines - skipped, block.offset + stop, block.is_last)


def _changed(name: str, line: int) -> SourceError:
    return SourceError(
        f"{name}:{line}: the header has changed since the file was opened",
        hint="Wait until the program that writes the file has ended, then try again.",
        details={"file": name, "line": line},
    )


class _CsvParser:
    """Parses blocks of a file by pyarrow."""

    def __init__(self, layout: _Layout, columns: Sequence[str], nulls: Sequence[str]) -> None:
        from pyarrow import csv

        self._layout = layout
        self._columns = columns
        self._csv = csv
        text = import_pyarrow().string()
        self._convert = csv.ConvertOptions(
            check_utf8=False,  # checked before, with line and byte
            column_types=dict.fromkeys(layout.names, text),
            include_columns=None if layout.names == columns else list(columns),
            null_values=["", *nulls],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        # Of the fields with these texts, only those in quotes are left.
        self._quoted_nulls = [bare for bare, text in zip(_bare(nulls), nulls, strict=True) if bare != text]

    def parse(self, block: TextBlock) -> Iterator[Rows]:
        """Yield the rows of a block."""
        data, places = block.data, None
        faults: dict[int, str] = {}  # by row, without blank lines
        has_quotes = self._layout.quotes and b'"' in data
        delimiter = self._layout.delimiter
        is_regular = not has_quotes or _find_quotes(data, delimiter) is not None
        is_regular = is_regular or not _opening_quotes(data, delimiter).size
        if not is_regular or (has_quotes and block.is_last):
            places = find_rows(data, delimiter)
            data = data if places.open_start is None else data[: places.open_start]
        if not is_regular and places is not None:
            faults |= dict.fromkeys(_rows_after_quotes(data, places, delimiter), TEXT_AFTER_QUOTE)
        if b"\0" in data:
            places = places or find_rows(data, delimiter, quotes=self._layout.quotes)
            nuls = np.flatnonzero(np.frombuffer(data, np.uint8) == 0)
            faults |= dict.fromkeys((np.searchsorted(places.starts, nuls, side="right") - 1).tolist(), _NUL_BYTE)
        if faults and places is not None:
            data = _without_rows(data, places, sorted(faults))
        numbers, widths = array("q"), array("q")

        def note(row: Any) -> str:
            numbers.append(row.number)
            widths.append(row.actual_columns)
            return "skip"

        table = self._parse(data, note)
        # Blank lines and quoted line ends only reduce the number of rows. Equal numbers therefore mean that each row is
        # a line.
        num_lines = block.num_lines + (block.is_last and not data.endswith((b"\n", b"\r")))
        if places is None and not numbers and table.num_rows == num_lines:
            yield from cut_rows(table, range(block.line, block.line + num_lines))
            return
        if places is None:
            places = find_rows(block.data, self._layout.delimiter, quotes=self._layout.quotes)
        lines = (places.lines + block.line).tolist()
        parsed = [row for row in range(len(lines)) if row not in faults] if faults else range(len(lines))
        for number, width in zip(numbers, widths, strict=True):
            faults[parsed[number - 1]] = f"expected {counted(len(self._layout.names), 'value')}, found {width:,}"
        bad = [(lines[row], fault) for row, fault in sorted(faults.items())]
        if places.open_start is not None:
            bad.append((block.line + places.open_line, OPEN_QUOTE))
        good = [line for row, line in enumerate(lines) if row not in faults] if faults else lines
        if table.num_rows != len(good):
            raise AssertionError(f"{self._layout.name}: pyarrow found {table.num_rows} rows instead of {len(good)}")
        yield from cut_rows(
            table, good, [BadRow(file=self._layout.name, line=line, reason=fault) for line, fault in bad]
        )

    def _parse(self, data: bytes, note: Any) -> Any:
        csv = self._csv
        if not data.lstrip(b"\r\n"):  # pyarrow refuses an empty file
            arrow = import_pyarrow()
            return arrow.schema([(name, arrow.string()) for name in self._columns]).empty_table()
        table = csv.read_csv(
            import_pyarrow().BufferReader(data),
            # With one block and one thread, the parser knows the numbers of bad rows.
            read_options=csv.ReadOptions(
                column_names=self._layout.names, use_threads=False, block_size=max(len(data) + 1, 1024)
            ),
            parse_options=csv.ParseOptions(
                delimiter=self._layout.delimiter,
                quote_char='"' if self._layout.quotes else False,
                newlines_in_values=self._layout.quotes,
                invalid_row_handler=note,
            ),
            convert_options=self._convert,
        )
        if not (self._quoted_nulls and self._layout.quotes):
            return table
        arrow = import_pyarrow()
        null, nulls = arrow.scalar(None, arrow.string()), arrow.array(self._quoted_nulls, arrow.string())
        columns = [arrow.compute.if_else(arrow.compute.is_in(texts, nulls), null, texts) for texts in table.columns]
        return arrow.table(columns, names=table.column_names)


def _bare(nulls: Sequence[str]) -> list[str]:
    """Return the texts that mean null, without the quotes around those that also mean null in quotes."""
    return [text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text for text in nulls]


def _opening_quotes(data: bytes, delimiter: str) -> Places:
    """Return the places of the quotes that follow a delimiter or a line end. Only these may open a field."""
    array = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(array == _QUOTE)
    is_opening = np.isin(array[quotes - 1], [ord(delimiter), ord("\n"), ord("\r")])
    result: Places = quotes[is_opening | (quotes == 0)]
    return result


def _rows_after_quotes(data: bytes, places: RowPlaces, delimiter: str) -> Iterator[int]:
    """Yield the rows that have text after the closing quote of a field."""
    match = _row_pattern(delimiter, is_strict=True).match
    opening = _opening_quotes(data, delimiter)
    for row in np.unique(np.searchsorted(places.starts, opening, side="right") - 1).tolist():
        found = match(data, int(places.starts[row]))
        if found is None or found.end() < places.stops[row]:
            yield row


def _without_rows(data: bytes, places: RowPlaces, rows: Sequence[int]) -> bytes:
    starts = [0, *places.stops[rows].tolist()]
    stops = [*places.starts[rows].tolist(), len(data)]
    return b"".join(data[start:stop] for start, stop in zip(starts, stops, strict=True))


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
    """The places of the rows of a block, without blank lines.

    Attributes:
        starts: the first byte of each row.
        stops: the place after its line end.
        lines: the number of line ends before it in the block.
        open_start: the start of a last row whose quote is never closed, or None. The other attributes omit this row.
        open_line: the number of line ends before that row.
    """

    starts: Places
    stops: Places
    lines: Places
    open_start: int | None = None
    open_line: int = 0


def find_end(data: bytes, delimiter: str, *, quotes: bool = True) -> int:
    """Return the place after the last row that ends in ``data``, or 0. ``data`` starts at the start of a row."""
    if not quotes or b'"' not in data:
        return find_last_line_end(data)
    ends = _row_ends(data, delimiter)
    if data.endswith(b"\r") and ends.size and ends[-1] == len(data):
        ends = ends[:-1]
    return int(ends[-1]) if ends.size else 0


def find_rows(data: bytes, delimiter: str, *, quotes: bool = True) -> RowPlaces:
    """Find all rows of ``data``, which consists of whole rows. The last row may have no line end."""
    ended = data if data.endswith((b"\n", b"\r")) or not data else data + b"\n"
    stops = np.minimum(_row_ends(ended, delimiter) if quotes else find_line_ends(ended), len(data))
    starts = np.concatenate([np.zeros(1, np.int64), stops[:-1]]) if stops.size else stops
    all_ends = find_line_ends(data)
    lines = np.searchsorted(all_ends, starts, side="right")
    end = int(stops[-1]) if stops.size else 0
    first = np.frombuffer(data, np.uint8)[starts]
    kept = (first != ord("\n")) & (first != ord("\r"))  # a row that starts with a line end is blank
    places = RowPlaces(starts[kept], stops[kept], lines[kept])
    if end == len(data):
        return places
    return replace(places, open_start=end, open_line=int(np.searchsorted(all_ends, end, side="right")))


def _row_ends(data: bytes, delimiter: str) -> Places:
    """Return the place after each row that ends with a line end. A line end inside quotes does not end a row."""
    quotes = _find_quotes(data, delimiter)
    if quotes is None:
        return np.fromiter(_walk_rows(data, delimiter), np.int64)
    ends = find_line_ends(data)
    return ends[np.searchsorted(quotes, ends) % 2 == 0] if quotes.size else ends


def _find_quotes(data: bytes, delimiter: str) -> Places | None:
    """Return the places of all quotes if each opens or closes a field, or is doubled. Returns None for any other quote.

    With such quotes, a place is inside quotes exactly if the number of quotes before it is odd.
    """
    array = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(array == _QUOTE).astype(np.int64, copy=False)
    if not quotes.size:
        return quotes
    opening, closing = quotes[::2], quotes[1::2]
    borders = np.zeros(256, np.bool_)
    borders[[ord(delimiter), ord("\n"), ord("\r"), _QUOTE]] = True
    before = borders[array[np.maximum(opening, 1) - 1]] | (opening == 0)
    after = borders[array[np.minimum(closing + 1, array.size - 1)]]  # a quote at the end also closes a field
    if not (before.all() and after.all()):
        return None
    return quotes  # a quote right before an opening one is the first of two, and both are one character of the field


@lru_cache(maxsize=16)
def _row_pattern(delimiter: str, *, is_strict: bool = False) -> re.Pattern[bytes]:
    mark = re.escape(delimiter).encode()
    # field = '"' { any but '"' | '""' } '"' { any but the delimiter and line ends } | [ any but '"' ... ]
    rest, end = (b"", rb"(?:\r\n|\n|\r|\Z)") if is_strict else (rb"[^%b\r\n]*+" % mark, rb"(?:\r\n|\n|\r)")
    field = rb'(?:"[^"]*+(?:""[^"]*+)*+"%b|[^"%b\r\n][^%b\r\n]*+|)' % (rest, mark, mark)
    return re.compile(rb"%b(?:%b%b)*+%b" % (field, mark, field, end))


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


def split_row(row: bytes, delimiter: str, *, quotes: bool = True) -> list[Cell]:
    r"""The fields of one row.

    >>> [cell.text for cell in split_row(b'7,"a ""b"",\n",\n', ",")]
    ['7', 'a "b",\n', '']
    """
    if not quotes:
        return [Cell(raw.decode(errors="replace"), False) for raw in row.rstrip(b"\r\n").split(delimiter.encode())]
    cells, place, match = [], 0, _field_pattern(delimiter).match
    while found := match(row, place):
        quoted, rest, plain, more = found.groups()
        raw = plain if quoted is None else quoted.replace(b'""', b'"') + rest
        cells.append(Cell(raw.decode(errors="replace"), quoted is not None))
        place = found.end()
        if more is None:
            break
    return cells


def sample_rows(data: bytes, delimiter: str, *, is_whole: bool, quotes: bool = True) -> list[list[Cell]]:
    """Return the first rows of a file that starts with ``data``.

    A row without an end counts only if ``data`` is the whole file.
    """
    rows, start = [], 0
    whole = data + b"\n" if is_whole else data
    for stop in _walk_rows(whole, delimiter) if quotes else find_line_ends(whole).tolist():
        if data[start:stop].strip(b"\r\n"):
            rows.append(split_row(data[start:stop], delimiter, quotes=quotes))
        start = stop
        if len(rows) == _SAMPLE_ROWS:
            break
    return rows


def detect_delimiter(
    data: bytes, *, is_whole: bool, likely: str = ",", delimiter: str | None = None, quotes: bool = True
) -> tuple[str, list[list[Cell]]] | None:
    """Detect the delimiter of a file that starts with ``data``.

    Also returns its first rows, or None if the first row does not end.

    A delimiter has to occur in the first row. The delimiter that splits most rows into the same number of fields is
    chosen; of several, the one with the most fields, then ``likely``. A file without a delimiter has one column.
    ``delimiter`` is the caller's choice.
    """
    best: tuple[Any, ...] | None = None
    for tried in sorted(DELIMITERS, key=lambda mark: mark != likely) if delimiter is None else [delimiter]:
        rows = sample_rows(data, tried, is_whole=is_whole, quotes=quotes)
        if not rows:
            continue
        width = len(rows[0])
        agreeing = sum(len(row) == width for row in rows) / len(rows)
        rank = (width > 1, agreeing if width > 1 else 0, width)
        if best is None or rank > best[0]:
            best = rank, tried, rows
    if best is None:
        return (delimiter or likely, []) if is_whole else None
    return best[1], best[2]


def why_data(rows: Sequence[Sequence[Cell]], delimiter: str = ",", nulls: Sequence[str] = ()) -> str | None:
    """Explain why the first of ``rows`` is not a header, or return None if it is.

    Names of columns are texts, and differ from the values below. A first row with numbers is a header only if its
    numbers count up from 0, as pandas names columns, or are years in order above other values; if they are quoted, and
    those of the second row are not; or if a column has a text there and numbers in all other rows.
    """
    first, others = rows[0], rows[1:]
    below = [[row[place].text.strip() for row in others if place < len(row)] for place in range(len(first))]
    quoted_later = not others or any(cell.is_quoted for cell in others[0])
    numbers = {
        place: cell.text.strip()
        for place, cell in enumerate(first)
        if (quoted_later or not cell.is_quoted) and _is_number(cell.text.strip(), delimiter)
    }
    if not numbers:
        # A header may be repeated, in files that were joined.
        names = [cell.text for cell in first]
        rest = [texts for row in others if (texts := [cell.text for cell in row]) != names]
        again = [{texts[place] for texts in rest if place < len(texts)} for place in range(len(names))]
        is_data = len(names) > 1 and all(name and name in texts for name, texts in zip(names, again, strict=True))
        return "first row has only texts that occur again below them" if is_data else None
    values = [text for place in numbers for text in below[place] if text.lower() not in _MISSING]
    if _are_names(list(numbers.values()), values, delimiter):
        return None
    for place, cell in enumerate(first):
        present = [text for text in below[place] if text not in nulls]
        is_missing = cell.text.strip().lower() in _MISSING or cell.text in nulls
        is_name = not _is_number(cell.text.strip(), delimiter) and not is_missing
        if is_name and present and all(_is_number(text, delimiter) for text in present):
            return None
    return f"first row contains the number {next(iter(numbers.values()))}"


def _are_names(numbers: Sequence[str], below: Sequence[str], delimiter: str) -> bool:
    """Whether ``numbers`` name their columns. ``below`` are the values of these columns."""
    is_single = len(numbers) == 1
    if numbers == [str(number) for number in range(len(numbers))]:
        return not is_single or (bool(below) and not any(_is_number(text, delimiter) for text in below))
    if not all(map(_is_year, numbers)) or list(numbers) != sorted(set(numbers)):
        return False
    if is_single:  # it may be a price, or the first of a series: 2000, 2000.25 or 2000,25
        return bool(below) and not any(text.isdecimal() or _is_year(re.split("[.,]", text)[0]) for text in below)
    return not below or not all(map(_is_year, below))  # a row of data may have the two years of a term


def _is_year(text: str) -> bool:
    return text.isdecimal() and len(text) == 4 and 1900 <= int(text) <= 2100


_MISSING: Final = frozenset({"", "-", "--", "?", ".", "#n/a", "inf", "-inf", "n/a", "na", "nan", "none", "null", r"\n"})
"""The forms that a value of a column of numbers may have in a first row of data."""


def _is_number(text: str, delimiter: str) -> bool:
    if delimiter != ",":  # many languages write 2,50
        text = text.replace(",", ".", 1)
    return _NUMBER.fullmatch(text) is not None
