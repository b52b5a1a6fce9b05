"""Prints the results of commands, for people or as JSON. No other module of the package prints.

A command passes one value, and a function that yields lines, tables and fields for people from that value. Data goes to
stdout, messages go to stderr. ``registry.envelope`` converts the value to JSON.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, TypeAlias, cast

from registry.envelope import error_envelope, result_envelope
from registry.escaping import cut_text, escape_json, text_width
from registry.escaping import printable as without_controls
from registry.escaping import size as size  # noqa: PLC0414 - commands import it from here
from registry.masking import mask

if TYPE_CHECKING:
    from registry.model import ProgressCallback

_LEAST_CELL: Final = 9
"""Minimum width of a cell, in columns."""

Column: TypeAlias = str | Callable[[Any], Any]
"""A key of the row, or a function of the row."""


class Table(NamedTuple):
    """Rows under a head line: ``columns`` maps each head to its column. Numbers are aligned to the right.

    With ``fits``, cells are cut so that a line fits the terminal; if there are too many columns, each row is printed on
    several lines. Without rows, ``empty`` is printed to stderr. Beyond ``limit`` rows, a line has the number of further
    rows and says ``where`` to see them.
    """

    rows: Sequence[Any]
    columns: Mapping[str, Column]
    empty: str = ""
    limit: int | None = None
    where: str = "--format json lists them all"
    fits: bool = False


class Fields(NamedTuple):
    """Names and values, one pair on each line, with aligned values. Empty values are left out."""

    values: Mapping[str, Any]


class Note(NamedTuple):
    """A line on stderr for people only; in JSON, the data contains it."""

    text: str


class Drawing(NamedTuple):
    """A picture in the escape sequences of a terminal, from ``display.draw``. It is printed unchanged."""

    text: str


class JsonText(NamedTuple):
    """JSON for people and programs: ``write(ensure_ascii=...)`` returns it. It is escaped for terminals, not masked."""

    write: Callable[..., str]

    @classmethod
    def line(cls, value: Any, *, writer: Callable[..., Callable[[Any], str]] | None = None) -> JsonText:
        """One JSON value on one line, written by ``writer(ensure_ascii=...)`` in place of ``json.dumps``."""
        if writer is not None:
            return cls(lambda *, ensure_ascii: writer(ensure_ascii=ensure_ascii)(value))
        return cls(lambda *, ensure_ascii: json.dumps(value, ensure_ascii=ensure_ascii))


Block: TypeAlias = str | Table | Fields | Note | Drawing | JsonText


class Output:
    """The output of one command. With ``as_json``, notes become ``warnings`` in the JSON value.

    Passwords in URLs are masked, except in the records of a dataset. If the reader of stdout closes it early, the
    command continues and its exit code stays the same.
    """

    watch: ProgressCallback | None = None
    """If set, it is called instead of a progress bar, and may raise an error to stop the work."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._warnings: list[str] = []

    def note(self, text: str) -> None:
        """Print a message to stderr, or add it to ``warnings`` in JSON."""
        if self.as_json:
            self._warnings.append(text)
        else:
            sys.stdout.flush()  # keeps the order of lines when stdout and stderr are the same file
            print(printable(text), file=sys.stderr)

    def notes(self, texts: Iterable[str]) -> None:
        """Print each text as a note."""
        for text in texts:
            self.note(f"note: {text}")

    def present(self, schema: str, value: Any, human: Callable[[Any], Iterable[Block]]) -> None:
        """Print ``value`` as JSON under ``registry.<schema>/1`` or, for people, the lines that ``human`` yields for it.

        ``value`` may contain moments, versions and enums, which ``to_plain`` converts. ``human`` gets the original
        value.
        """
        if self.as_json:
            self._print([JsonText(lambda **_: json.dumps(result_envelope(schema, value, self._warnings), indent=2))])
        else:
            self._print(human(value))

    def tell(self, blocks: Iterable[Block]) -> None:
        """Print ``blocks`` for people before the result is complete. In JSON, they are part of the result."""
        if not self.as_json:
            self._print(blocks)

    def stream(self, lines: Iterable[Block]) -> None:
        """Print each line as soon as it is available, until the reader of stdout closes it."""
        self._print(lines, is_live=True)

    def _print(self, blocks: Iterable[Block], *, is_live: bool = False) -> None:
        try:
            for block in blocks:
                if isinstance(block, str):
                    print(printable(block))
                elif isinstance(block, Drawing):
                    print(block.text)
                elif isinstance(block, Note):
                    self.note(block.text)
                elif isinstance(block, JsonText):
                    print(escape_json(block.write(ensure_ascii=not _takes_unicode())))
                elif isinstance(block, Fields):
                    _print_fields(block)
                elif block.rows:
                    _print_table(block)
                elif block.empty:
                    self.note(block.empty)
                if is_live:
                    sys.stdout.flush()
            sys.stdout.flush()
        except BrokenPipeError:
            give_up_stdout()


def terminal_columns() -> int:
    """The width of the terminal; 120 if stdout is not one."""
    from shutil import get_terminal_size

    return get_terminal_size((120, 24)).columns


def _line_width(widths: Iterable[int], most: int) -> int:
    return sum(min(width, most) + 2 for width in widths) - 2


def _print_fields(fields: Fields) -> None:
    pairs = [(printable(name).replace("\n", " "), _cell(value)) for name, value in fields.values.items()]
    width = max((len(name) for name, value in pairs if value), default=0)
    for name, value in pairs:
        for place, line in enumerate(value.splitlines()):
            print(f"{'' if place else name:<{width}}  {line}")


def _print_table(table: Table) -> None:
    """Print a table without wrapping, so that a pipe gets every character. Importing rich would take too long."""
    rows = table.rows[: table.limit]
    values = [
        [row[column] if isinstance(column, str) else column(row) for column in table.columns.values()] for row in rows
    ]
    heads = [printable(head).replace("\n", " ") for head in table.columns]  # of head, they are names of features
    cells = [heads, *([_cell(value).replace("\n", " ") for value in row] for row in values)]
    numeric = [all(isinstance(value, int) for value in column) for column in zip(*values, strict=True)]
    widths = [max(map(text_width, column)) for column in zip(*cells, strict=True)]
    if table.fits:
        columns = terminal_columns()
        most = next((most for most in range(200, _LEAST_CELL, -1) if _line_width(widths, most) <= columns), 0)
        if not most:
            width = max(map(text_width, heads))
            for row in cells[1:]:
                for head, cell in zip(heads, row, strict=True):  # an empty text has its line, too
                    print(cut_text(f"{_pad(head, width, False)}  {cell}".rstrip(), columns))
                print()
            return
        cells = [[cut_text(cell, most) for cell in line] for line in cells]
        widths = [min(width, most) for width in widths]
    for line in cells:
        padded = (_pad(cell, width, right) for cell, width, right in zip(line, widths, numeric, strict=True))
        print("  ".join(padded).rstrip())
    if len(table.rows) > len(rows):
        print(f"and {len(table.rows) - len(rows):,} more; {table.where}")


def _cell(value: Any) -> str:
    """A value for people: None as an empty text, a list as its items, a moment as its minute in UTC."""
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_cell, value))
    return printable(str(value))


def _takes_unicode() -> bool:
    if sys.stdout.encoding == "utf-8":  # fast path: this runs for each line of a dataset
        return True
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def can_print(text: str) -> bool:
    """Whether the encoding of stdout has all characters of ``text``."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@contextmanager
def open_stdout() -> Iterator[BinaryIO]:
    """Open stdout for the bytes of a file. On a terminal, they are printed as text without control characters.

    If the reader of stdout closes it early, writing raises BrokenPipeError once, and discards everything after that.
    """
    sys.stdout.flush()
    with _Stdout() as stdout:
        yield cast("BinaryIO", stdout)


class _Stdout(io.RawIOBase):
    def __init__(self) -> None:
        super().__init__()
        self._stdout = sys.stdout  # a progress bar replaces it later
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace") if sys.stdout.isatty() else None

    def writable(self) -> bool:
        """True: this file is writable."""
        return True

    def write(self, data: Any) -> int:
        """Write some bytes, and return their number."""
        try:
            if self._decoder is None:
                self._stdout.buffer.write(data)
                self._stdout.buffer.flush()
            else:
                print(without_controls(self._decoder.decode(bytes(data))), end="", file=self._stdout)
        except BrokenPipeError:
            give_up_stdout()
            raise
        return len(data)


def is_stdout_closed() -> bool:
    """Whether stdout is a pipe or socket whose reader has closed it."""
    import select

    if not hasattr(select, "poll"):  # Windows: a broken pipe is nearly always that of stdout
        return True
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def give_up_stdout() -> None:
    """Discard the rest of the output. Otherwise Python would report the broken pipe again when it closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_error(code: str, message: str, hint: str | None, details: dict[str, Any], *, as_json: bool) -> None:
    """Print an error to stderr: a message and a hint for people, or one JSON value for programs."""
    if as_json:
        print(escape_json(json.dumps(error_envelope(code, message, hint, details), indent=2)), file=sys.stderr)
        return
    print(f"error: {printable(message)}", file=sys.stderr)
    if isinstance(lines := details.get("traceback"), str):  # of the author's code, if a builder failed
        print(printable(lines), file=sys.stderr)
    if hint:
        print(f"hint: {printable(hint)}", file=sys.stderr)


def print_traceback(error: BaseException, hide: Callable[[str], str] = str) -> None:
    """Print the traceback of an error and its causes to stderr, without passwords: libraries repeat URLs.

    ``hide`` removes more of its text.
    """
    import traceback

    print(printable(hide("".join(traceback.format_exception(error)))), end="", file=sys.stderr)


def printable(text: str) -> str:
    """``text`` without passwords in URLs and terminal control characters, because names and texts come from others."""
    return without_controls(mask(text))


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * (width - text_width(text))
    return space + text if right else text + space
