r"""Reads JSON files as tables: lists of objects, an object per line, or on request objects of several lines.

    names -> Source of one part per file -> blocks of rows -> pyarrow.json with the types that are known -> Rows
                                                        \-> rows that it refuses: parsed one by one, with exact faults

pyarrow never infers types here, because it turns texts into timestamps and long integers into floats. Texts stay texts
and integers stay integers; a missing key is null. The types come from the first rows, and are extended where a row does
not fit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np

from registry.errors import SourceError, spell, suggest
from registry.intake.file_parts import Reader, make_parts
from registry.intake.json_rows import (
    JsonRows,
    ListElements,
    ObjectsOfLines,
    find_keys,
    find_line_end,
    find_lines,
    parse_object,
    texts_of,
)
from registry.intake.kinds import KINDS
from registry.intake.options import AddOptions
from registry.intake.python_values import ValueConverter, columns_of, convert_block
from registry.intake.source import MAX_ROWS, BadFileError, BadRow, Files, Rows, Source
from registry.intake.text_files import (
    BLOCK_BYTES,
    MAX_ROW_BYTES,
    TextBlock,
    TextStream,
    count_newlines,
    open_text,
    read_blocks,
    too_long,
)
from registry.intake.value_types import is_list
from registry.shards.arrow_values import as_numbers, import_pyarrow
from registry.splits import counted
from registry.storage import Store

arrow: Any = import_pyarrow("adding data")
types: Any = arrow.types

MAX_COLUMNS: Final = 20_000
"""The maximum number of columns and fields of structs. If there are more, keys are data, such as the names of users."""

_SAMPLE_BYTES: Final = 2**16
_ONE_BY_ONE: Final = 256
"""The number of rows that are parsed one by one if pyarrow refuses one of them."""
_PIECES: Final = 8
_THREAD_BYTES: Final = 2**19
_MAX_CELLS: Final = 2**22
"""Most values of a table, nulls included."""
_LIST_OF_OBJECTS: Final = rb'"((?:[^"\\]|\\.)+)"\s*:\s*\[\s*\{'
_FIRST_OF_VALUE: Final = rb'"((?:[^"\\]|\\.)*)"\s*:\s*(\S)'
_FIRST_INNER_KEY: Final = re.compile(rb'\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\{\s*"((?:[^"\\]|\\.)*)"')
_LINES_NAME: Final = re.compile(r"\.(jsonl|ndjson|jsonlines)(\.[a-z0-9]+)?$", re.IGNORECASE)
_OBJECT_ITSELF: Final = "."
_LONG_INTEGER: Final = re.compile(rb"(?<![0-9.])[0-9]{16,}+(?![.eE])")


def open_json(files: Files, options: AddOptions, *, block_bytes: int = BLOCK_BYTES) -> Source:
    """Open JSON files, also compressed with gzip: a list of objects, or an object per line.

    Args:
        files: the files.
        options: how they are opened.
        block_bytes: how much of a file is parsed at once.

    Raises:
        SourceError: a file is a single object that takes several lines, is a table or has a list of objects, and
            ``options.records`` does not say what its records are; the encoding of the text is unknown; or no file has
            a row.
        StorageError: a file cannot be read.
        MissingExtraError: pyarrow is not installed.
    """
    layouts: list[str] = []

    def open_file(name: str) -> Reader | None:
        layout = _look_at(files.store, name, options.records, is_remembered="records" in options.remembered)
        if layout is None:
            return None
        layouts.append(layout.describe())
        encodings.append(layout.encoding)
        return partial(_read, files.store, name, layout, texts, block_bytes)

    encodings: list[str] = []
    texts = options.texts()
    source = make_parts(files, options, "json", open_file)
    told = ", ".join(" or ".join(dict.fromkeys(words)) for words in (encodings, layouts))
    noun = KINDS["json"].noun
    return replace(source, summary=f"{counted(len(layouts), noun)} ({told})", may_lack_columns=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The layout of a file, from its start.

    Attributes:
        is_list: whether the file is a list.
        encoding: the encoding of its text.
        list_key: the key of the list to read from a file that is an object.
        has_lines: whether each object may take several lines.
    """

    is_list: bool
    encoding: str
    list_key: str | None = None
    has_lines: bool = False

    def describe(self) -> str:
        """Describe the content of the file for messages."""
        if self.list_key is not None:
            return f"the list {self.list_key!r} of an object"
        if self.has_lines:
            return "objects of several lines"
        return "a list of objects" if self.is_list else "an object per line"


def _look_at(store: Store, name: str, records: str | None, *, is_remembered: bool) -> _Layout | None:
    """Detect the layout of a file. Returns None if it has no rows.

    ``records`` is as in ``AddOptions``. If it comes from the previous version, it does not apply to a list, or to an
    object per line, which the same records may have become.
    """
    with open_text(store, name) as stream:
        data, is_whole = b"", False
        while not is_whole and not data.strip():
            if len(data) > MAX_ROW_BYTES:
                raise too_long(name, 1)
            piece = stream.read(_SAMPLE_BYTES + len(data))
            is_whole = len(piece) < _SAMPLE_BYTES + len(data)
            data += piece
        if not data.strip():
            return None
        is_list = data.lstrip().startswith(b"[")
        if is_list and is_whole and re.fullmatch(rb"\s*\[\s*\]\s*", data):
            return None
        is_line = records not in (None, _OBJECT_ITSELF) and bool(_LINES_NAME.search(name))
        if is_remembered and (is_list or (is_line and ListElements(str(records)).find_start(data) is None)):
            records = None
        list_key, has_lines = None, False
        if not is_list and records in (None, _OBJECT_ITSELF):
            has_lines = _check_objects(name, data, None if is_whole else stream, is_record=records is not None)
        elif records is not None:
            list_key = _check_list_key(name, data, records, is_list=is_list)
        return _Layout(is_list=is_list, encoding=stream.encoding, list_key=list_key, has_lines=has_lines)


def _check_objects(name: str, data: bytes, left: TextStream | None, *, is_record: bool) -> bool:
    """Return whether the first object takes several lines.

    Raises SourceError if it does, or is alone and is a table or has a list of objects, unless ``is_record``.

    Args:
        name: the name of the file.
        data: its beginning.
        left: the rest of the file; None if it ends with ``data``.
        is_record: whether the caller says that such an object is a record.
    """
    start = data.lstrip()
    first, _, rest = start.partition(b"\n")
    # The line is `{"a": 1,` or `{` without an end, and the next line has a key or a value.
    has_lines = b"\n" in start and first.startswith(b"{") and first.rstrip().endswith((b"{", b",", b"[", b":"))
    keys = [] if rest.strip() and not has_lines else _keys_of_lists(start)
    line = 1 + data[: len(data) - len(start)].count(b"\n")
    is_lines = bool(_LINES_NAME.search(name))
    if not is_record and not is_lines and (has_lines or not rest.strip()):
        _refuse_table(f"{name}:{line}", name, start, left, keys)
    if has_lines and not is_record:
        raise SourceError(
            f"{name}:{line}: an object that takes several lines; expected a list of objects, or an object per line",
            hint=f"{_choose_list(keys)}If each object is a record: {spell('records', _OBJECT_ITSELF)}",
            details={"file": name, "line": line, "lists": keys},
        )
    if keys and not is_record and not is_lines:
        raise SourceError(
            f"{name}:{line}: the file is one object with {'lists' if keys[1:] else 'a list'} of objects: "
            f"{', '.join(map(repr, keys[:5]))}",
            hint=f"{_choose_list(keys)}If this object is the record: {spell('records', _OBJECT_ITSELF)}",
            details={"file": name, "line": line, "lists": keys},
        )
    return has_lines


def _refuse_table(where: str, name: str, data: bytes, left: TextStream | None, lists: Sequence[str]) -> None:
    """Raise SourceError if the object at the start of ``data`` is a table as ``DataFrame.to_json`` writes it.

    An object of objects by their names, ``{"1.jpg": {"label": "cat"}, ...}``, also is a table, but an object of
    ``lists`` of objects is not: each list is a table.
    """
    values = {match[1]: match[2] for match in find_keys(data, _FIRST_OF_VALUE)}
    firsts, is_numbered = set(values.values()), all(map(bytes.isdigit, values))
    is_split = set(values) == {b"columns", b"index", b"data"}
    if (
        firsts not in ({b"{"}, {b"["})
        or len(lists) == len(values)
        or (left is None and len(values) < 2 and b"[" in firsts)
    ):
        return
    if left is not None and b"\n" not in data.rstrip() and _has_more_lines(data, left):
        return  # the first of the objects is longer than ``data``
    is_wide, shared = len(values) < 2, "the same keys"
    if left is None and not is_split:
        try:
            inner = list(json.loads(data).values())
        except (ValueError, RecursionError):
            return
        names = {tuple(value) if isinstance(value, dict) else len(value) for value in inner}
        # Two objects, such as a user and an item, often share the key of an ID.
        are_named = len(inner) > 2 and isinstance(inner[0], dict) and bool(set.intersection(*map(set, inner)))
        if not are_named and (len(names) > 1 or (len(inner[0]) < 2 and not is_numbered)):
            return
        is_wide, shared = len(inner) < len(inner[0]), "the same keys" if len(names) == 1 else "a common key"
    inner_key = _FIRST_INNER_KEY.match(data)
    orient = ", orient='split'" if is_split else ", orient='index'" if is_numbered else ""
    rename = ""
    if not orient and not is_wide and inner_key is not None and not inner_key[1].isdigit():
        orient, rename = ", orient='index'", ".rename_axis('id')"
    parts = (
        "columns, index and data" if is_split else "lists of one length" if b"[" in firsts else f"objects with {shared}"
    )
    raise SourceError(
        f"{where}: the file is one object that looks like a table: its values are {parts}",
        hint=f"To read the table: registry.add(pandas.read_json({name!r}{orient}){rename}, 'NAME'). "
        f"If this object is the record: {spell('records', _OBJECT_ITSELF)}",
        details={"file": name},
    )


def _has_more_lines(data: bytes, left: TextStream) -> bool:
    """Whether anything follows the first line, which ``data`` starts and ``left`` continues."""
    pieces = chain([data], iter(partial(left.read, _SAMPLE_BYTES), b""))
    rest = next((piece.partition(b"\n")[2] for piece in pieces if b"\n" in piece), b"")
    return bool(rest.strip()) or any(map(bytes.strip, pieces))


def _choose_list(keys: Sequence[str]) -> str:
    options = [spell("records", key) for key in keys[:5]]
    return f"To read the objects of a list as records: {' or '.join(options)}. " if options else ""


def _keys_of_lists(data: bytes) -> list[str]:
    """Return the keys of the lists of objects in the object with which ``data`` starts."""
    names = dict.fromkeys(match[1].decode(errors="replace") for match in find_keys(data, _LIST_OF_OBJECTS))
    return [json.loads(f'"{name}"', strict=False) for name in names]


def _check_list_key(name: str, data: bytes, key: str, *, is_list: bool) -> str:
    """Return ``key`` if it is the key of a list in the object at the start of a file. Raises SourceError otherwise."""
    if not is_list and ListElements(key).find_start(data) is not None:
        return key
    keys = [] if is_list else _keys_of_lists(data.lstrip())
    if is_list and key == _OBJECT_ITSELF:
        raise SourceError(
            f"{name}: the file is a list: each item is a record without {spell('records', key)}",
            hint=f"Leave out {spell('records')}.",
            details={"file": name, "records": key, "lists": keys},
        )
    raise SourceError(
        f"{name}: the file is a list, not an object with a list {key!r}"
        if is_list
        else f"{name}: no list {key!r} starts in the first {len(data):,} bytes of the object",
        hint=suggest(key, keys, have="The lists are:")
        if keys
        else f"Leave out {spell('records')}, or name only the files that have the list: "
        f"{spell('splits', {'train': 'GLOB'})}",
        details={"file": name, "records": key, "lists": keys},
    )


def _read(
    store: Store, name: str, layout: _Layout, texts: frozenset[str], block_bytes: int
) -> Generator[Rows, None, None]:
    """Yield all rows of a file. Values of the keys ``texts`` that are not texts become their JSON text, unchanged."""
    is_list = layout.is_list or layout.list_key is not None
    finder = ObjectsOfLines() if layout.has_lines else ListElements(layout.list_key) if is_list else None
    parser = _JsonParser(name, are_lines=finder is None, texts=texts)
    find_end = find_line_end if finder is None else finder.find_end
    with open_text(store, name) as stream:
        for block in read_blocks(stream, find_end, block_bytes=block_bytes):
            stream.check(block)
            rows = find_lines(block.data) if finder is None else finder.take(block.data, is_last=block.is_last)
            yield from parser.parse(rows, block.line)
            parser.note_indent(block.data)
            if (fault := _fault_of_list(name, layout, rows, block)) is not None:
                yield Rows(table=arrow.table({}), lines=(), bad=(fault,))
                return


def _fault_of_list(name: str, layout: _Layout, rows: JsonRows, block: TextBlock) -> BadRow | None:
    if rows.tail is not None:
        line = block.line + count_newlines(block.data[: rows.tail])
        reason = f"text follows {'the end of the list' if layout.is_list else 'the object that has the list'}"
        return BadRow(file=name, line=line, reason=reason)
    if rows.is_open:
        line = block.line + block.num_lines
        return BadRow(file=name, line=line, reason="the file ends before its list does")
    return None


class _JsonParser:
    """Parses the rows of one file, and remembers the types that it has met."""

    def __init__(self, name: str, *, are_lines: bool, texts: frozenset[str]) -> None:
        from pyarrow import json as arrow_json

        self._name = name
        self._are_lines = are_lines
        self._texts = texts
        self._json = arrow_json
        self._fields: dict[str, Any] = {}
        self._schema: Any = None
        self._converter = ValueConverter()
        self._most_rows = MAX_ROWS
        self._has_floats = False
        self._indent = 0

    def note_indent(self, data: bytes) -> None:
        """Count the characters of ``data`` that precede the next block on its line.

        An element of a list may end within a line.
        """
        start = data.rfind(b"\n") + 1
        self._indent = len(data[start:].decode()) + (0 if start else self._indent)

    def parse(self, rows: JsonRows, line: int) -> Iterator[Rows]:
        """Yield the rows of a block that starts at ``line``."""
        if len(rows):
            yield from self._parse_piece(rows, 0, len(rows), line)

    def _parse_piece(self, rows: JsonRows, start: int, stop: int, line: int) -> Iterator[Rows]:
        # The number of columns limits the number of rows of a table, and grows while rows are read.
        step = self._most_rows
        if stop - start <= step:
            table = self._parse_fast(_cut(rows, start, stop))
            if table is not None:
                yield Rows(table=table, lines=_range_or_list(rows.lines[start:stop] + line))
                return
            if stop - start <= _ONE_BY_ONE:
                yield from self._parse_one_by_one(rows, start, stop, line)
                return
            step = max(_ONE_BY_ONE, (stop - start) // _PIECES)
        for first in range(start, stop, step):
            yield from self._parse_piece(rows, first, min(first + step, stop), line)

    def _parse_fast(self, rows: JsonRows) -> Any:
        """Parse the rows to a table. Returns None if the current types cannot represent them exactly."""
        if self._schema is None or not rows.are_objects():
            return None
        try:
            table = self._json.read_json(
                arrow.BufferReader(rows.data),
                # Lines are parsed on all cores, in pieces as large as the longest line; elements of lists are not,
                # because finding their ends again takes as long as parsing them.
                read_options=self._json.ReadOptions(
                    use_threads=self._are_lines,
                    block_size=max(_THREAD_BYTES, rows.longest + 1024) if self._are_lines else len(rows.data) + 1024,
                ),
                parse_options=self._json.ParseOptions(
                    explicit_schema=self._schema,
                    newlines_in_values=not self._are_lines,
                    unexpected_field_behavior="error",
                ),
            )
            table.validate()  # pyarrow 26 makes an invalid array of [null, null] if the type is a list of nulls
        except arrow.ArrowInvalid:
            return None
        if table.num_rows != len(rows):
            return None
        if self._has_floats and not _are_exact(table) and _may_lose(rows.data):
            return None
        return table

    def _parse_one_by_one(self, rows: JsonRows, start: int, stop: int, line: int) -> Iterator[Rows]:
        bad: list[BadRow] = []
        parsed: list[dict[str, Any]] = []
        lines: list[int] = []
        for place in range(start, stop):
            text = rows.data[int(rows.starts[place]) : int(rows.stops[place])].decode()
            try:
                row = parse_object(text)
            except BadFileError as error:
                bad.append(self._bad_row(rows, place, text, error, line))
                continue
            if self._texts and any(not isinstance(row.get(name), str | None) for name in self._texts):
                is_text = {name for name, value in row.items() if isinstance(value, str | None)}
                others = self._texts - is_text
                row |= {name: written for name, written in texts_of(text) if name in others}
            parsed.append(row)
            lines.append(int(rows.lines[place]) + line)
        if bad:
            yield Rows(table=arrow.table({}), lines=(), bad=tuple(bad))
        if not parsed:
            return
        columns = columns_of(parsed)
        for result in convert_block(columns, 0, len(parsed), self._converter, name=self._name, lines=lines):
            if result.lines:
                self._learn(result.table.schema, result.lines[-1])
            yield result

    def _bad_row(self, rows: JsonRows, place: int, text: str, error: BadFileError, line: int) -> BadRow:
        line += int(rows.lines[place])
        reason = str(error)
        if error.place is not None:
            before = text[: error.place]
            line += before.count("\n")
            left = 0 if "\n" in before else self._left_of(rows, place)
            in_line = left + len(before) - before.rfind("\n")
            reason = f"{reason} at character {in_line}"
        return BadRow(file=self._name, line=line, reason=reason)

    def _left_of(self, rows: JsonRows, place: int) -> int:
        """Return the number of characters before a row on its line."""
        start = int(rows.starts[place])
        newline = rows.data.rfind(b"\n", 0, start)
        return len(rows.data[newline + 1 : start].decode()) + (self._indent if newline < 0 else 0)

    def _learn(self, schema: Any, line: int) -> None:
        """Unite the current types with those of ``schema`` for the next rows."""
        fields = self._fields | {field.name: _widened(self._fields.get(field.name), field) for field in schema}
        if fields == self._fields and self._schema is not None:
            return
        num_columns = sum(_count_leaves(field.type) for field in fields.values())
        if num_columns > MAX_COLUMNS:
            raise SourceError(
                f"{self._name}:{line}: more than {MAX_COLUMNS:,} different keys up to this line",
                hint='Keys become columns. Write data in keys as values, such as [{"user": "ada", "score": 3}].',
                details={"file": self._name, "line": line, "limit": MAX_COLUMNS},
            )
        self._fields = fields
        self._schema = arrow.schema(fields.values())
        self._has_floats = "double" in str(self._schema)
        self._most_rows = max(1, min(MAX_ROWS, _MAX_CELLS // max(1, num_columns)))


def _widened(known: Any, field: Any) -> Any:
    """Unite the types of ``field`` and ``known``. Returns that of ``field`` if they conflict."""
    if known is None or known == field:
        return field
    try:
        both = [arrow.schema([known]), arrow.schema([field])]
        return arrow.unify_schemas(both, promote_options="permissive").field(0)
    except arrow.ArrowException:
        return field


def _count_leaves(kind: Any) -> int:
    """Return the number of fields in the type of a column, which indicates the memory of a row."""
    while is_list(kind):
        kind = kind.value_type
    return 1 + (sum(_count_leaves(field.type) for field in kind) if types.is_struct(kind) else 0)


def _cut(rows: JsonRows, start: int, stop: int) -> JsonRows:
    """Return some of the rows, with only their bytes."""
    if start == 0 and stop == len(rows):
        return rows
    first, end = int(rows.starts[start]), int(rows.stops[stop - 1])
    return JsonRows(
        rows.data[first:end], rows.starts[start:stop] - first, rows.stops[start:stop] - first, rows.lines[start:stop]
    )


def _range_or_list(lines: Any) -> Sequence[int]:
    result: list[int] = lines.tolist()
    return range(result[0], result[-1] + 1) if bool((np.diff(lines) == 1).all()) else result


def _are_exact(table: Any) -> bool:
    """Whether all floats are between -2**53 and 2**53, so that no integer among them was rounded."""
    return all(
        bool((np.abs(as_numbers(values)) < 2.0**53).all())
        for column in table.itercolumns()
        for chunk in column.chunks
        for values in _floats_in(chunk)
    )


def _floats_in(array: Any) -> Iterator[Any]:
    if types.is_float64(array.type):
        yield array
    elif types.is_list(array.type):
        yield from _floats_in(array.flatten())
    elif types.is_struct(array.type):
        for inner in array.flatten():
            yield from _floats_in(inner)


def _may_lose(data: bytes) -> bool:
    """Whether there is an integer that a float cannot represent, or a word that is not a number."""
    return b"NaN" in data or b"Inf" in data or _LONG_INTEGER.search(data) is not None
