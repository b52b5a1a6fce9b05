r"""Reads the entries of a BibTeX text that a dataset's author wrote, as far as a citation needs them.

What is no entry is skipped, as BibTeX does; a malformed entry ends the reading, which takes one pass. Nothing is
refused: a citation is foreign text, and a pin is cited with what can be read of it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_MONTHS: Final = {name[:3].lower(): name for name in (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)}  # fmt: skip
_ENTRY = re.compile(r"@\s*([A-Za-z]+)\s*([{(])")
_NAME = re.compile(r"\s*([^\s\"#%'(),={}]+)\s*")
_KEY = re.compile(r"\s*([^\s,{}()]*)\s*,?")
_YEAR = re.compile(r"[0-9]{4}")
_WEB = re.compile(r"https?://[^\s{}\\]+", flags=re.IGNORECASE)

_ACCENTS: Final = {
    "`": "\u0300", "'": "\u0301", "^": "\u0302", "~": "\u0303", "=": "\u0304", "u": "\u0306", ".": "\u0307",
    '"': "\u0308", "r": "\u030a", "H": "\u030b", "v": "\u030c", "d": "\u0323", "c": "\u0327", "k": "\u0328",
    "b": "\u0331",
}  # fmt: skip
_LETTERS: Final = {
    "ss": "ß", "o": "ø", "O": "Ø", "l": "ł", "L": "Ł", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "aa": "å",
    "AA": "Å", "i": "ı", "j": "ȷ", "dh": "ð", "DH": "Ð", "th": "þ", "TH": "Þ", "textendash": "–", "textemdash": "—",
    "textasciitilde": "~", "textunderscore": "_", "textbackslash": "\\", "ldots": "…", "dots": "…",
}  # fmt: skip
_MARKUP = re.compile(
    r"""\\(?P<mark>[`'^~="]|[.ubvHcdkr](?=[^A-Za-z]))\s*(?:\{\s*\\?(?P<held>[A-Za-z])\s*\}|\\?(?P<bare>[A-Za-z]))"""
    r"|\\(?P<word>[A-Za-z]+)[ \t]*(?:\{\})?|\\(?P<symbol>.)|(?P<dashes>---?)|(?P<quotes>``|'')|(?P<tie>~)|[{}$]",
    flags=re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class BibEntry:
    """One entry: its type in lower case (``article``), its key, and its fields by their names in lower case."""

    kind: str
    key: str
    fields: Mapping[str, str]

    @property
    def authors(self) -> tuple[str, ...]:
        """The names, each as people write it: ``Ada Lovelace``; of an entry without authors, its editors."""
        text = self.fields.get("author") or self.fields.get("editor") or ""
        names = (_person(name) for name in _split_names(text))
        return tuple(name for name in names if name)

    @property
    def title(self) -> str:
        """The title as plain text."""
        return plain(self.fields.get("title", ""))

    @property
    def year(self) -> str:
        """The year as plain text, that of ``date`` where there is no ``year``; ``""`` for none."""
        found = _YEAR.match(plain(self.fields.get("date", "")))
        return plain(self.fields.get("year", "")) or (found[0] if found else "")

    @property
    def url(self) -> str:
        r"""The address: ``url``, else that of ``doi``, else the one in ``howpublished``; ``""`` for none."""
        for field in ("url", "doi", "howpublished"):
            text = self.fields.get(field, "").replace("\\_", "_").replace("\\%", "%").replace("\\#", "#")
            text = text.replace("\\&", "&").replace("\\~", "~")
            if found := _WEB.search(text):
                return found[0].rstrip(".,;")
            if field == "doi" and text.strip():
                return f"https://doi.org/{''.join(text.split())}"
        return ""


def read_bibtex(text: str) -> list[BibEntry]:
    r"""The entries of ``text`` that are whole; ``@string``, ``@preamble`` and ``@comment`` are no entries.

    >>> [(one.authors, one.year) for one in read_bibtex('@book{a, author = "Kurt G{\\"o}del", year = 1931}')]
    [(('Kurt Gödel',), '1931')]
    """
    return list(_iter_entries(text))


def _iter_entries(text: str) -> Iterator[BibEntry]:
    strings, at = dict(_MONTHS), 0
    while (found := _ENTRY.search(text, at)) is not None:
        kind, close = found[1].lower(), {"{": "}", "(": ")"}[found[2]]
        at = found.end()
        if kind in ("comment", "preamble"):
            continue
        key = ""
        if kind != "string" and (named := _KEY.match(text, at)) is not None:
            key, at = named[1], named.end()
        fields, end = _read_fields(text, at, close, strings)
        if end is None:
            return
        if kind == "string":
            strings |= fields
        else:
            yield BibEntry(kind, key, fields)
        at = end


def _read_fields(text: str, at: int, close: str, strings: Mapping[str, str]) -> tuple[dict[str, str], int | None]:
    """The fields from ``at`` on, and where the entry ends; None where it is not finished."""
    fields: dict[str, str] = {}
    while True:
        while at < len(text) and (text[at].isspace() or text[at] == ","):
            at += 1
        if at >= len(text):
            return fields, None
        if text[at] == close:
            return fields, at + 1
        named = _NAME.match(text, at)
        if named is None or not text.startswith("=", named.end()):
            return fields, None
        value, end = _read_value(text, named.end() + 1, strings)
        if end is None:
            return fields, None
        fields.setdefault(named[1].lower(), " ".join(value.split()))
        at = end


def _read_value(text: str, at: int, strings: Mapping[str, str]) -> tuple[str, int | None]:
    """A value: texts in braces or quotes, numbers and names of ``@string``, joined by ``#``; and where it ends."""
    parts = []
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        opened = text[at : at + 1]
        if opened in ("{", '"'):
            stop = _closing(text, at)
            if stop is None:
                return "", None
            parts.append(text[at + 1 : stop])
            at = stop + 1
        else:
            named = _NAME.match(text, at)
            if named is None:
                return "", None
            parts.append(strings.get(named[1].lower(), named[1]))
            at = named.end()
        while at < len(text) and text[at].isspace():
            at += 1
        if not text.startswith("#", at):
            return "".join(parts), at
        at += 1


def _closing(text: str, at: int) -> int | None:
    """Where the text in braces or quotes that begins at ``at`` ends; quotes within braces do not end it."""
    depth, quoted = 0, text[at] == '"'
    for place in range(at + quoted, len(text)):
        character = text[place]
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth < 0 or (depth == 0 and not quoted):
                return None if depth < 0 else place
        elif character == '"' and quoted and not depth:
            return place
    return None


def plain(text: str) -> str:
    r"""``text`` without the markup of LaTeX: accents and letters as Unicode, commands that are not known left out.

    >>> plain("{\\'E}t{\\'e} \\& {\\\"O}l --- \\emph{50\\%} of {NumPy}")
    'Été & Öl — 50% of NumPy'
    """

    def undone(found: re.Match[str]) -> str:
        if found["mark"]:
            return unicodedata.normalize("NFC", (found["held"] or found["bare"]) + _ACCENTS[found["mark"]])
        if found["word"]:
            return _LETTERS.get(found["word"], "")
        if found["symbol"]:
            return " " if found["symbol"] in ", ;:\n" else "" if found["symbol"] in "-/!@" else found["symbol"]
        if found["dashes"]:
            return "–" if found["dashes"] == "--" else "—"
        return '"' if found["quotes"] else " " if found["tie"] else ""

    return " ".join(_MARKUP.sub(undone, text).split())


def _split_names(text: str) -> Iterator[str]:
    """The names of a list; an ``and`` within braces joins no two names."""
    depth = start = 0
    for found in re.finditer(r"[{}]|\s+and\s+", text, flags=re.IGNORECASE):
        if found[0] in "{}":
            depth += 1 if found[0] == "{" else -1
        elif not depth:
            yield text[start : found.start()]
            start = found.end()
    yield text[start:]


def _person(name: str) -> str:
    """A name in the order in which people write it: ``Last, First`` and ``Last, Jr, First`` are turned around."""
    name = name.strip()
    if name.startswith("{") and name.endswith("}"):  # of an organization, which may hold commas
        return plain(name)
    last, *rest = (plain(part) for part in name.split(","))
    return " ".join(part for part in (*rest[-1:], last, *rest[:-1]) if part)
