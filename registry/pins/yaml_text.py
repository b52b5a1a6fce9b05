"""Reads and writes the YAML of pin files: a subset that all YAML parsers read in the same way.

It is one document of mappings with text keys, lists and scalars. Text that YAML parsers read in different ways is
rejected with its key path and line: duplicate keys, ``no`` for false, ``010`` for 8, dates, tags, anchors and aliases.

The text is signed, so the same values must give the same text on every machine and in later releases. A YAML library
could change its quotes, line breaks and indents, so this module writes the text itself. Keys keep their order.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from registry.errors import PinFormatError
from registry.lazy import yaml

MAX_BYTES: Final = 64 * 2**20
"""The longest pin file that is read. It has room for a quarter of a million shards."""

MAX_DEPTH: Final = 50
_MAX_KEY: Final = 1000
_MAX_PATH: Final = 2000
"""The longest key path. Each value has one, so a few long keys could use a thousand times the file's size in memory."""

_MAX_LINES_BYTES: Final = 128 * 2**20
_LINE_BYTES: Final = 150
"""The memory for a line number, in addition to the characters of its key path."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,99})")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+(?:[eE][-+][0-9]+)?")
_LIKE_NUMBER = re.compile(
    r"[-+]?\.?[0-9][0-9_]*(?:[.:][0-9_]*)*(?:[eE][-+]?[0-9]+)?|0[xXoObB][0-9a-fA-F_]+|[-+]?\.(?:inf|nan)"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*",
    flags=re.IGNORECASE,
)
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", "=", "<<", "nan", "inf"})
_TAG: Final = "tag:yaml.org,2002:"
_ODD_BREAK = re.compile("[\x85\u2028\u2029]")
"""Characters that end a line in YAML 1.1, but not in YAML 1.2."""

_TAG_LINE = re.compile(r"(?:^|[\r\n\ufeff])%TAG")
"""Such lines declare tags, which pin files do not use. The parser compares each with all before it: quadratic time."""

_ODD_HINT: Final = r"Within a text in double quotes, write \N, \L or \P."


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """The values of a YAML text, and the line, counted from 1, in which the value of each key path begins.

    In a very long text, only the first values have a line.
    """

    value: Any
    lines: Mapping[str, int]


def join_key(path: str, key: str | int) -> str:
    """The key path of the value under ``key`` in ``path``.

    >>> join_key("pins[0]", "split"), join_key("pins", 0), join_key("", "pins"), join_key("labels", "a.b")
    ('pins[0].split', 'pins[0]', 'pins', 'labels["a.b"]')
    """
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", key):
        return f"{path}[{json.dumps(key, ensure_ascii=False)}]"
    return f"{path}.{key}" if path else key


def read_yaml(data: bytes, source: str) -> YamlDocument:
    """The values in the YAML text ``data`` of the file ``source``.

    Raises:
        PinFormatError: the text is not YAML of this subset; the message names the line and the key path.
    """
    return _Reading(source).read(data)


class _Reading:
    """Reads one file, event by event, and keeps the lines of its values for errors.

    It reads events instead of nodes, because the C code for nodes recurses as deep as the text is nested.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._lines: dict[str, int] = {}
        self._lines_bytes = 0
        self._events: Iterator[Any] = iter(())

    def read(self, data: bytes) -> YamlDocument:
        if len(data) > MAX_BYTES:
            self._fail(f"it is longer than {MAX_BYTES} bytes")
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            self._fail(f"not UTF-8: {error.reason} at byte {error.start}", cause=error)
        if odd := _ODD_BREAK.search(text):
            line = text.count("\n", 0, odd.start()) + 1
            self._fail(
                f"YAML parsers disagree about whether U+{ord(odd[0]):04X} ends a line", line=line, hint=_ODD_HINT
            )
        if tag := _TAG_LINE.search(text):
            line = text.count("\n", 0, tag.end()) + 1
            self._fail("%TAG is not allowed in a pin file", line=line, hint="Remove the line.")
        self._events = yaml.parse(text, Loader=yaml.CSafeLoader)
        try:
            value = self._document()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            if "nesting depth" in str(error.problem):  # PyYAML 6.0.4 reads a line of brackets before their values
                self._fail(
                    f"nested more than {MAX_DEPTH} levels deep", line=mark.line + 1 if mark else None, cause=error
                )
            self._fail(f"not YAML: {error.problem or error.context}", line=mark.line + 1 if mark else None, cause=error)
        except yaml.YAMLError as error:
            self._fail(f"not YAML: {str(error).splitlines()[0]:.200}", cause=error)
        return YamlDocument(value, self._lines)

    def _document(self) -> dict[str, Any]:
        """The one mapping of the text."""
        next(self._events)  # of the stream
        if isinstance(next(self._events), yaml.DocumentStartEvent):
            event = next(self._events)
            if isinstance(event, yaml.MappingStartEvent):
                value: dict[str, Any] = self._value(event, "", 0)
                next(self._events)  # the end of the document
                if isinstance(next(self._events), yaml.StreamEndEvent):
                    return value
        return self._fail("expected one YAML mapping", hint="To create one: registry pin create REF SPLIT -o FILE")

    def _value(self, event: Any, path: str, depth: int) -> Any:
        """The value that begins with ``event``. It consumes all events of the value."""
        line = event.start_mark.line + 1
        self._keep_line(path, line)
        if isinstance(event, yaml.AliasEvent):
            self._fail("an alias ('*') is not allowed", path, line, hint="Write out the value.")
        if event.tag is not None:
            self._fail(
                f"the tag {event.tag[:80]!r} is not allowed", path, line, hint="Remove the word that begins with '!'."
            )
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path, line)
        if depth == MAX_DEPTH:
            self._fail(f"nested more than {MAX_DEPTH} levels deep", path, line)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path, depth)
        result: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            inner = self._inner_path(path, len(result), event.start_mark.line + 1)
            result.append(self._value(event, inner, depth + 1))
        return result

    def _mapping(self, path: str, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            line = event.start_mark.line + 1
            if not isinstance(event, yaml.ScalarEvent) or event.tag is not None:
                self._fail("expected a text as key", path, line)
            key = self._scalar(event, path, line)
            if not isinstance(key, str):
                self._fail(f"expected a text as key, found {event.value[:40]!r}", path, line, hint="Put it in quotes.")
            if len(key) > _MAX_KEY:
                self._fail(f"a key is longer than {_MAX_KEY} characters", path, line)
            inner = self._inner_path(path, key, line)
            if key in result:
                before = f"in line {self._lines[inner]}" if inner in self._lines else "before"
                self._fail(f"the key is given twice, {before} and here", inner, line)
            self._keep_line(inner, line)
            result[key] = self._value(next(self._events), inner, depth + 1)
        return result

    def _inner_path(self, path: str, key: str | int, line: int) -> str:
        inner = join_key(path, key)
        if len(inner) > _MAX_PATH:
            self._fail(f"its key path is longer than {_MAX_PATH} characters", f"{inner[:60]}...", line)
        return inner

    def _keep_line(self, path: str, line: int) -> None:
        """Remember the first line of a path, unless all lines together use too much memory."""
        if self._lines_bytes < _MAX_LINES_BYTES and path not in self._lines:
            self._lines[path] = line
            self._lines_bytes += len(path) + _LINE_BYTES

    def _scalar(self, event: Any, path: str, line: int) -> Any:
        text: str = event.value
        if "\0" in text:
            self._fail("it contains a null character", path, line)
        if event.style in ("'", '"', "|", ">"):
            return text
        if text in ("", "null", "true", "false"):
            return {"true": True, "false": False}.get(text)
        if _INTEGER.fullmatch(text) and text != "-0":
            return int(text)
        if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
            return float(text)
        if is_ambiguous(text):
            self._fail(
                f"YAML parsers disagree about the type of {text[:60]}",
                path,
                line,
                hint=f'For a text, write "{text[:60]}"',
            )
        return text

    def _fail(
        self,
        problem: str,
        path: str = "",
        line: int | None = None,
        *,
        hint: str | None = None,
        cause: Exception | None = None,
    ) -> NoReturn:
        raise PinFormatError.of(self._source, [(path, line, problem)], hint=hint) from cause


def is_ambiguous(text: str) -> bool:
    """Whether some YAML parser reads ``text`` without quotes as anything other than this text.

    >>> [text for text in ("no", "010", "1e3", "1.0", "12:30:00", "2026-11-21", "digits:1.*") if is_ambiguous(text)]
    ['no', '010', '1e3', '1.0', '12:30:00', '2026-11-21']
    """
    if text.lower() in _WORDS or _LIKE_NUMBER.fullmatch(text):
        return True
    resolved = yaml.resolver.Resolver().resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]  # its stubs say so
    return bool(resolved != f"{_TAG}str")


def iter_leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that contains no other values, with its key path; this includes empty mappings and lists."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from iter_leaves(inner, join_key(path, key))
    elif isinstance(value, list) and value:
        for place, inner in enumerate(value):
            yield from iter_leaves(inner, join_key(path, place))
    else:
        yield path, value


_PLAIN = re.compile(r"[A-Za-z0-9_/.(][^\n]*")
_NOT_PLAIN = re.compile(r": | #|[: ]\Z")
_NOT_A_BLOCK = re.compile(r"\A[ \n]| (?:\n|\Z)|\n\n\Z")
_MOST_SIMPLE_KEY: Final = 1000
"""YAML requires ``?`` before a longer key."""


def write_yaml(value: Mapping[str, Any], *, comment: str = "") -> str:
    """``value`` as YAML text below ``comment``, whose lines become comments.

    Mappings with text keys, lists, texts, finite numbers, booleans and None.

    >>> print(write_yaml({"name": "no", "files": [{"size": 3}], "none": []}), end="")
    name: "no"
    files:
      - size: 3
    none: []
    """
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    lines += _mapping_lines(value) if value else ["{}"]
    return "\n".join(lines) + "\n"


def _mapping_lines(value: Mapping[str, Any]) -> Iterator[str]:
    for key, inner in value.items():
        written = _scalar(key)
        if len(written) > _MOST_SIMPLE_KEY:
            yield f"? {written}"
            written = ""
        yield from _value_lines(f"{written}:", inner)


def _value_lines(head: str, value: Any) -> Iterator[str]:
    """The lines of a value; its first line begins with ``head``."""
    if isinstance(value, Mapping) and value:
        yield head
        yield from (f"  {line}" if line else "" for line in _mapping_lines(value))
    elif isinstance(value, list) and value:
        yield head
        for inner in value:
            yield from (f"  {line}" if line else "" for line in _item_lines(inner))
    elif isinstance(value, str) and "\n" in value and _is_readable(value) and not _NOT_A_BLOCK.search(value):
        text = value.removesuffix("\n")
        yield f"{head} {'|' if text != value else '|-'}"
        yield from (f"  {line}" if line else "" for line in text.split("\n"))
    else:
        yield f"{head} {_scalar(value)}"


def _item_lines(value: Any) -> Iterator[str]:
    """The lines of an element of a list: its first key is on the line of the dash."""
    if isinstance(value, Mapping) and value:
        first, *more = _mapping_lines(value)
        yield f"- {first}"
        yield from (f"  {line}" if line else "" for line in more)
    else:
        yield from _value_lines("-", value)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        written = repr(value)
        return written if "." in written else written.replace("e", ".0e")
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value)
    return "{}" if isinstance(value, Mapping) else "[]"


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.isprintable() and not _NOT_PLAIN.search(text) and not is_ambiguous(text):
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted if quoted.isprintable() else "".join(map(_escape, quoted))


def _is_readable(text: str) -> bool:
    """Whether every character of a text of several lines is printable."""
    return all(line.isprintable() for line in text.split("\n"))


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\u{number:04X}" if number < 2**16 else f"\\U{number:08X}"
