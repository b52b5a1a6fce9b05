"""The format of a backup: gzip'd lines of JSON, the same for both databases. ``docs/deployment.md`` describes it.

    {"format": "registry.backup/1", "schema": "0008"}
    {"table": "alias", "columns": ["id", "config_id", "name", ...]}
    [1, 3, "paper", ...]
    {"table": "alias_event", "columns": [...]}
    ...
    {"end": {"rows": {"alias": 1, ...}, "head": "...", "made_at": "...", "made_by": "...", "sha256": "..."}}

The sha256 covers every line before the last one. These lines depend only on the rows, so backups of equal catalogs have
the same sha256 on every database. ``backup`` writes the lines, and ``restore`` inserts the rows.

A backup may come from an untrusted source. It names no place to write to, and reading it takes little more memory than
its longest line.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import IO, Any, Final

from registry.catalog.outcomes import BackupFacts
from registry.errors import BackupFormatError

FORMAT: Final = "registry.backup/1"

MAX_LINE_BYTES: Final = 2**28
"""Longer lines are neither written nor read. The longest contain the schema and the labels of a version."""

_WHOLE_BYTES: Final = 2**16
"""Limit of lines that are not rows. Only rows have no nested values, which may need 100 MB for a megabyte of text."""

_MOST_TABLES: Final = 1000
"""More tables than any schema has. Their names are kept in memory until the schema is checked at the end."""

_SCALAR: Final = rb'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|[-+.0-9eE]++|true|false|null)'


def head_line(schema: str) -> bytes:
    """The first line of a backup of a catalog with this revision of the schema."""
    return _line({"format": FORMAT, "schema": schema})


def table_line(name: str, columns: Sequence[str]) -> bytes:
    """The line before the rows of a table."""
    return _line({"table": name, "columns": list(columns)})


def row_line(values: Sequence[Any]) -> bytes:
    """The line of a row: numbers, booleans, texts, None, and aware moments in UTC."""
    return _line(list(values))


def end_line(facts: BackupFacts) -> bytes:
    """The last line."""
    return _line({"end": {name: value for name, value in asdict(facts).items() if name != "schema"}})


def facts_of(head: bytes, end: bytes) -> BackupFacts:
    """The facts in the first and the last line that ``backup`` made."""
    return read_end_line(end, json.loads(head)["schema"])


def read_end_line(line: bytes, schema: str) -> BackupFacts:
    """The facts in the last line of a backup.

    Raises:
        ValueError: the line is malformed.
    """
    end = json.loads(line)["end"]
    rows, texts = end["rows"], [end[name] for name in ("head", "made_by", "sha256")]
    is_valid = all(isinstance(text, str) for text in texts) and isinstance(rows, dict)
    if not is_valid or not all(type(count) is int and count >= 0 for count in rows.values()):
        raise ValueError("expected texts, and a number for each table")
    made_at = datetime.fromisoformat(end["made_at"])
    if made_at.tzinfo is None:
        raise ValueError("made_at has no time zone")
    return BackupFacts(
        schema=schema, rows=rows, head=end["head"], made_at=made_at, made_by=end["made_by"], sha256=end["sha256"]
    )


class BackupReader:
    """Reads a backup once, from start to end.

    Attributes:
        schema: the revision of the schema, from the first line.
        facts: the facts in the last line. Set when ``tables`` has ended and every line was verified.

    Every method raises BackupFormatError if the file is damaged, truncated or not a backup; the message names the line.
    """

    def __init__(self, file: IO[bytes], *, shown: str) -> None:
        self._text = gzip.GzipFile(fileobj=file, mode="rb")
        self._shown = shown
        self._number = 0
        self._digest = hashlib.sha256()
        self._rows: dict[str, int] = {}
        self._waiting = b""
        self.facts: BackupFacts | None = None
        head = self._parse(self._next())
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            found = head.get("format") if isinstance(head, dict) else None
            raise self.fault(
                f"expected a backup of a catalog ({FORMAT}), found {found!r:.60}"
                if isinstance(found, str)
                else "this is not a backup of a catalog"
            )
        if not isinstance(head.get("schema"), str):
            raise self.fault("the revision of the schema is missing")
        self.schema: str = head["schema"]

    def tables(self) -> Iterator[tuple[str, list[str], Iterator[bytes]]]:
        """Each table: its name, its columns, and the lines of its rows, which the caller must read to the end."""
        self._waiting = self._next()
        while not self._waiting.startswith(b'{"end"'):
            told = self._parse(self._waiting)
            name, columns = (told.get("table"), told.get("columns")) if isinstance(told, dict) else (None, None)
            if not isinstance(name, str) or not isinstance(columns, list):
                raise self.fault("expected the name of a table and its columns")
            if name in self._rows:
                raise self.fault(f"the table {name!r:.60} occurs twice")
            if len(self._rows) == _MOST_TABLES:
                raise self.fault(f"there are more than {_MOST_TABLES:,} tables")
            self._rows[name] = 0
            yield name, columns, self._lines_of(name)
        self._finish(self._waiting)

    def check(self) -> BackupFacts:
        """Read the whole file without parsing the rows, and return its facts."""
        for _, _, lines in self.tables():
            for _ in lines:
                pass
        if self.facts is None:
            raise AssertionError("the end was reached")
        return self.facts

    def parse_row(self, line: bytes, num_values: int) -> list[Any]:
        """The values of a row: numbers, booleans, texts and None."""
        if len(line) > _WHOLE_BYTES:
            form = rb"\[(?:%b,){%d}%b\]\n" % (_SCALAR, num_values - 1, _SCALAR)
            if not re.fullmatch(form, line):
                scalars = "each a number, a text, true, false or null"
                raise self.fault(f"it is not JSON: expected {num_values} values, {scalars}")
        values = self._load(line)
        if not isinstance(values, list) or len(values) != num_values:
            count = len(values) if isinstance(values, list) else "none"
            raise self.fault(f"expected {num_values} values, found {count}")
        return values

    def fault(self, problem: str) -> BackupFormatError:
        """The error for a fault in the line that was read last."""
        return BackupFormatError(
            f"{self._shown}: line {self._number:,}: {problem}",
            hint="The file is damaged, truncated or changed. Nothing was restored. Use another backup.",
            details={"file": self._shown, "line": self._number, "problem": problem},
        )

    def _lines_of(self, name: str) -> Iterator[bytes]:
        while (line := self._next()).startswith(b"["):
            self._rows[name] += 1
            yield line
        self._waiting = line

    def _next(self) -> bytes:
        """The next line; the digest then covers all lines before it."""
        if self._waiting:
            self._digest.update(self._waiting)
        self._number += 1
        line = self._read_line()
        if not line:
            raise self.fault("the file ends before its last line")
        if not line.endswith(b"\n"):
            is_long = len(line) > MAX_LINE_BYTES
            raise self.fault("the line is too long" if is_long else "the file ends in the middle of a line")
        self._waiting = line
        return line

    def _read_line(self) -> bytes:
        try:
            return self._text.readline(MAX_LINE_BYTES + 1)
        except EOFError as error:
            raise self.fault("the file is truncated") from error
        except gzip.BadGzipFile as error:
            raise self.fault(f"the file is damaged, or is not compressed with gzip: {error}") from error
        except zlib.error as error:
            raise self.fault(f"the compressed data is damaged: {error}") from error

    def _finish(self, line: bytes) -> None:
        sha256 = self._digest.hexdigest()
        self._require_short(line)
        try:
            facts = read_end_line(line, self.schema)
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise self.fault(f"the last line is malformed: {error!s:.100}") from error
        if facts.sha256 != sha256:
            raise self.fault(f"sha256 mismatch: expected {facts.sha256:.64}, found {sha256}")
        if dict(facts.rows) != self._rows:
            raise self.fault("the numbers of rows differ from those in the last line")
        self._number += 1
        if self._read_line():
            raise self.fault("there is data after the last line")
        self.facts = facts

    def _require_short(self, line: bytes) -> None:
        if len(line) > _WHOLE_BYTES:
            raise self.fault("the line is too long")

    def _parse(self, line: bytes) -> Any:
        self._require_short(line)
        return self._load(line)

    def _load(self, line: bytes) -> Any:
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self.fault(f"it is not JSON: {error!s:.100}") from error


def _line(value: Any) -> bytes:
    return f"{_ENCODER.encode(value)}\n".encode("ascii")


def _moment(value: Any) -> str:
    if not isinstance(value, datetime):
        raise TypeError(f"a value of the type {type(value).__name__} cannot be stored")
    return value.isoformat(timespec="microseconds")


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_moment)
"""``json.dumps`` would make one for each row."""
