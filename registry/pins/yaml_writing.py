"""How is a pin file written? YAML of one form: the same values give the same text, on every machine and in ten years.

Written here and not by a library, because the text is signed: a library's choice of quotes, line breaks and indents may
change with its release. Keys stay in the order in which they are given. What it writes, ``yaml_text`` reads back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from registry.pins.yaml_text import is_ambiguous

_PLAIN = re.compile(r"[A-Za-z0-9_/.(][^\n]*")
_NOT_PLAIN = re.compile(r": | #|[: ]\Z")
_NOT_A_BLOCK = re.compile(r"\A[ \n]| (?:\n|\Z)|\n\n\Z")
_MOST_SIMPLE_KEY: Final = 1000
"""YAML asks that a longer key is marked by ``?``."""


def write_yaml(value: Mapping[str, Any], *, comment: str = "") -> str:
    """``value`` as YAML text, below ``comment``, whose lines become comments.

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
    """The lines of a value; ``head`` is what stands before it in its first line."""
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
    """The lines of an element of a list: its first key stands beside the dash."""
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
    """Whether every character of a text of several lines stands for itself."""
    return all(line.isprintable() for line in text.split("\n"))


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\u{number:04X}" if number < 2**16 else f"\\U{number:08X}"
