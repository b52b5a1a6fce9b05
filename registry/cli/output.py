"""Everything that is printed: data on stdout, talk on stderr; tables for people, one JSON value for programs."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from registry.escaping import escape_json
from registry.escaping import printable as without_controls
from registry.masking import mask, mask_all


class Output:
    """What one command prints. ``as_json`` holds notes back as ``warnings`` of the one JSON value.

    Passwords in URLs are masked, except in the records of a dataset.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._warnings: list[str] = []

    def note(self, text: str) -> None:
        """Talk: to stderr for people, into ``warnings`` for programs."""
        if self.as_json:
            self._warnings.append(mask(text))
        else:
            sys.stdout.flush()  # where both lead to one place, they stand in the order in which they were told
            print(printable(text), file=sys.stderr)

    def result(self, schema: str, data: Any, human: Callable[[], None], *, has_records: bool = False) -> None:
        """Print ``data`` as JSON under ``registry.<schema>/1``, or let ``human`` print it for people.

        With ``has_records``, ``data`` holds records of a dataset, which are printed as they are.
        A reader who leaves before the end changes nothing: the command goes on to its exit code.
        """
        try:
            if self.as_json:
                shown = data if has_records else mask_all(data)
                answer = {"schema": f"registry.{schema}/1", "data": shown, "warnings": self._warnings}
                print(escape_json(json.dumps(answer, indent=2)))
            else:
                human()
            sys.stdout.flush()
        except BrokenPipeError:
            give_up_stdout()

    def line(self, text: str = "") -> None:
        """One line on stdout."""
        print(printable(text))

    def json_line(self, value: Any) -> None:
        """One record as JSON on a line of its own; escaped where stdout does not take every letter."""
        print(escape_json(json.dumps(value, ensure_ascii=not _takes_unicode())))

    def json_document(self, write: Callable[..., str]) -> None:
        """What ``write(ensure_ascii=...)`` makes of a JSON value, many lines; escaped as ``json_line`` does."""
        print(escape_json(write(ensure_ascii=not _takes_unicode())))

    def fields(self, rows: Sequence[tuple[str, str]]) -> None:
        """Names and values, one pair a line, values aligned; empty values are left out."""
        rows = [(printable(name).replace("\n", " "), value) for name, value in rows]
        width = max((len(name) for name, value in rows if value), default=0)
        for name, value in rows:
            if value:
                first, *rest = printable(value).splitlines()
                print(f"{name:<{width}}  {first}")
                for more in rest:
                    print(f"{'':<{width}}  {more}")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str | int]], *, empty: str = "") -> None:
        """A table with a head line; numbers to the right. Never wrapped: a pipe gets every character.

        Not by rich, whose import takes longer than resolving a slice.
        """
        if not rows:
            if empty:
                self.note(empty)
            return
        cells = [[f"{cell:,}" if isinstance(cell, int) else printable(cell) for cell in row] for row in rows]
        numeric = [all(isinstance(row[place], int) for row in rows) for place in range(len(columns))]
        widths = [max(map(_width, column)) for column in zip(columns, *cells, strict=True)]
        for line in (columns, *cells):
            padded = (_pad(cell, width, right) for cell, width, right in zip(line, widths, numeric, strict=True))
            print("  ".join(padded).rstrip())


def _takes_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def give_up_stdout() -> None:
    """Send what is left to nowhere: Python would complain once more when it closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_error(code: str, message: str, hint: str | None, details: dict[str, Any], *, as_json: bool) -> None:
    """One error on stderr: a message and a hint for people, one JSON value for programs."""
    if as_json:
        error = mask_all({"code": code, "message": message, "hint": hint, "details": details})
        print(escape_json(json.dumps({"error": error}, indent=2, default=str)), file=sys.stderr)
        return
    print(f"error: {printable(message)}", file=sys.stderr)
    if hint:
        print(f"hint: {printable(hint)}", file=sys.stderr)


def print_traceback(error: Exception) -> None:
    """The traceback of an error and its causes on stderr. Libraries repeat the URLs that they were given."""
    import traceback

    print(printable("".join(traceback.format_exception(error))), end="", file=sys.stderr)


def printable(text: str) -> str:
    """``text`` without passwords in URLs and characters that steer a terminal: names and texts come from others."""
    return without_controls(mask(text))


def _width(text: str) -> int:
    """Columns that ``text`` takes on a terminal: East Asian wide characters take two, accents that combine none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space


def size(num_bytes: int) -> str:
    """A size for people.

    >>> size(512), size(57523), size(3 * 2**30)
    ('512 B', '56.2 KiB', '3.0 GiB')
    """
    if num_bytes < 1024:
        return f"{num_bytes} B"
    amount = float(num_bytes)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1024:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1024:.1f} TiB"
