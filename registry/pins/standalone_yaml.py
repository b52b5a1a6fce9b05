"""Does the pin file in YAML say what the one in JSON says? ``verify_yaml.py`` of a bundle, which ``verify.py`` runs.

It takes YAML of the form that shardbook writes, with any comments and ends of lines, and refuses every other form: some
reader of YAML could take it for other values. It needs Python 3.9 or later and nothing else.
"""

from __future__ import annotations

import json
import re
from typing import Any

# A text in quotes, or one that has no ": " in it, with ":" behind it; and what follows on the line.
KEY = re.compile(r'("(?:[^"\\]|\\.)*"|[^"].*?):(?: (.*))?')
WORD = re.compile(r"null|true|false|\{\}|\[\]|-?[0-9]+(?:\.[0-9]+(?:[eE][-+][0-9]+)?)?")
PLAIN = re.compile(r"[A-Za-z0-9_/.(].*")
NOT_PLAIN = re.compile(r": | #|[: ]\Z")
ESCAPE = re.compile(r"\\(?:U([0-9a-fA-F]{8})|.)")
NO_TEXT = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


def find_difference(data: bytes, value: Any) -> int:
    """The line, from 1 on, in which the YAML text ``data`` is not ``value``; 0 where it is."""
    lines: list[str] = []  # the last one first: what was read is taken away
    count = 0
    try:
        text = data.decode("utf-8")
        if odd := NO_TEXT.search(text):
            return text.count("\n", 0, odd.start()) + 1
        lines = re.split("\r\n?|\n", text)[::-1]
        count = len(lines)
        compare(value, None, lines, 0)
        while lines:
            if lines.pop().lstrip(" ")[:1] not in ("", "#"):
                raise ValueError
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        return max(count - len(lines), 1)
    return 0


def compare(value: Any, rest: str | None, lines: list[str], pad: int) -> None:
    """Take one value from ``lines``, from ``rest`` of a line on, or from what is below it in column ``pad``."""
    if rest in ("|", "|-") and isinstance(value, str):
        block = [lines.pop() for _ in range(value.count("\n") + (rest == "|-"))]
        told = "\n".join(line[pad:] for line in block) + "\n" * (rest == "|")
        is_same = told == value and not "".join(line[:pad] for line in block).strip(" ")
    elif rest is None and isinstance(value, dict) and value:
        left, is_same = dict(value), True
        while left:
            found = KEY.fullmatch(next_line(lines, pad))
            compare(left.pop(scalar(found[1])), found[2], lines, pad + 2)  # type: ignore[index] # caught above
    elif rest is None and isinstance(value, list) and value:
        is_same = True
        for one in value:
            dash, rest = (line := next_line(lines, pad))[:2], line[2:] or None
            if dash not in ("- ", "-"):
                raise ValueError
            if isinstance(one, dict) and one:  # its first key stands beside the dash
                lines.append(" " * (pad + 2) + (rest or ""))
                rest = None
            compare(one, rest, lines, pad + 2)
    else:
        is_same = rest is not None and json.dumps(scalar(rest)) == json.dumps(value)
    if not is_same:
        raise ValueError


def next_line(lines: list[str], pad: int) -> str:
    """The next line that is not empty and no comment, from column ``pad`` on."""
    while lines[-1].lstrip(" ")[:1] in ("", "#"):
        lines.pop()
    line = lines.pop()
    if line[:pad].strip(" ") or line[pad : pad + 1] == " ":
        raise ValueError
    if line[pad:].startswith("? "):  # a long key: what is usually behind it stands on the next line
        return line[pad + 2 :] + next_line(lines, pad)
    return line[pad:]


def scalar(text: str) -> Any:
    """A value on one line: a text, in quotes or not, a number, or a word."""
    if text[:1] == '"':  # JSON knows all escapes but those of eight digits
        return json.loads(ESCAPE.sub(lambda one: chr(int(one[1], 16)) if one[1] else one[0], text))
    if WORD.fullmatch(text):
        return json.loads(text)
    if not PLAIN.fullmatch(text) or NOT_PLAIN.search(text):
        raise ValueError
    return text
