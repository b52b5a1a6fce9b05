r"""Writes the citation of pins for a paper: sentences as plain text or LaTeX, and BibTeX entries (``pin cite``).

All are made from the pin file alone. They contain the short form (``Citation``), from which the pin can be found again.
Authors, year and URL come from the dataset's own citation, if that is BibTeX. It was written by others, so the parser
skips text that is not an entry, and stops at a malformed entry.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final
from urllib.parse import quote

from registry.pins.citation import Citation
from registry.pins.document import PinEntry
from registry.pins.latex import escape_latex, plain
from registry.pins.layout import reference_of
from registry.pins.pin import Pin
from registry.pins.pin_file import DEFAULT_FILENAME, PinFile

_KEY_DIGITS: Final = 8
_LICENSE_LENGTH: Final = 200  # some datasets store the whole text of their licence
_BIBTEX = re.compile(r"^[ \t]*@[ \t]*[A-Za-z]+\s*[{(]", flags=re.MULTILINE)


def cite_text(pins: PinFile, file_name: str = DEFAULT_FILENAME) -> str:
    """A sentence for each pin, licence and source of each version, and a sentence for the file, in plain text.

    Args:
        pins: the pins to cite.
        file_name: the name of the pin file, as readers will see it.
    """
    return _write(pins, file_name, text=str, code=str, url=str, digest=pins.digest)


def cite_latex(pins: PinFile, file_name: str = DEFAULT_FILENAME) -> str:
    r"""The sentences of ``cite_text`` for LaTeX: escaped, short forms and digests in ``\texttt``."""
    algorithm, digits = pins.digest.split(":")  # 64 digits are wider than the column of a paper
    digest = "\\allowbreak ".join([f"{algorithm}:", *(digits[at : at + 16] for at in range(0, len(digits), 16))])
    return _write(pins, file_name, text=escape_latex, code=Citation.latex, url=_address, digest=f"\\texttt{{{digest}}}")


def cite_bibtex(pins: PinFile) -> str:
    """The datasets' own BibTeX entries, unchanged, and one ``@misc`` entry for each pin.

    A dataset's citation that is not BibTeX would break a bibliography, so it becomes the note of a new entry.
    """
    entries: list[str] = []
    taken: set[str] = set()
    citations = {pin.entry.citation.strip(): pin.entry for pin in reversed(list(pins.values()))}
    for citation, entry in reversed(citations.items()):
        if citation:
            entries.append(citation if is_bibtex(citation) else _note_entry(entry, taken))
    lines = {str(Citation.of(pin.entry)): pin.entry for pin in pins.values()}
    entries += [_pin_entry(entry, line, taken) for line, entry in lines.items()]
    return "\n\n".join(entries) + "\n"


def bibtex_key(entry: PinEntry) -> str:
    """The BibTeX key of a pin: ``digits-1.0.0-f9c5a485``."""
    told = Citation.of(entry)
    return f"{told.dataset.replace('/', '-')}-{told.version}-{told.sha256[:_KEY_DIGITS]}"


def _write(
    pins: PinFile,
    file_name: str,
    *,
    text: Callable[[str], str],
    code: Callable[[Citation], str],
    url: Callable[[str], str],
    digest: str,
) -> str:
    """The sentences about the pins, their sources and the file. The functions format the parts of a sentence."""
    lines = [f"{text(_sentence(pin))} ({code(Citation.of(pin.entry))})." for pin in pins.values()]
    lines += [f"{text(source)} {url(address)}".rstrip() for source, address in _sources(pins)]
    lines.append(f"The exact records are listed in {text(file_name)} ({digest}), which shardbook verifies.")
    return "\n".join(lines) + "\n"


def _sentence(pin: Pin) -> str:
    records = "1 record" if pin.num_examples == 1 else f"{pin.num_examples} records"
    return f"We used {records} of {pin.reference.dataset}, version {pin.entry.version}, slice {pin.split}"


def _sources(pins: PinFile) -> list[tuple[str, str]]:
    """The licences and sources of the versions: authors, title and year, if the citation has them, and the URL."""
    lines: dict[tuple[str, str], None] = {}
    for pin in pins.values():
        source, homepage = _source_of(pin.entry), pin.entry.provenance.homepage.strip()
        citation = " ".join(pin.entry.citation.split())
        if source is not None:
            parts = [_listed(source.authors), source.title, source.year]
        else:
            parts = ["" if is_bibtex(citation) else citation]
        sentence = " ".join(part if part.endswith((".", "?", "!")) else f"{part}." for part in parts if part)
        url = (source.url if source is not None else "") or homepage
        terms = _license_of(pin.entry)
        if sentence or url or terms:
            version = f"{pin.reference.dataset}, version {pin.entry.version}" + (
                f" (licence: {terms})" if terms else ""
            )
            lines[f"{version}{f': {sentence}' if sentence else ':' if url else '.'}", url] = None
    return list(lines)


def _license_of(entry: PinEntry) -> str:
    """The licence on one line, shortened if the dataset stores the whole text, or ``""``."""
    return textwrap.shorten(entry.license, _LICENSE_LENGTH, placeholder=" ...")


def _source_of(entry: PinEntry) -> BibEntry | None:
    """The entry of a dataset's own citation that describes the dataset: the first with authors, or the first."""
    entries = read_bibtex(entry.citation) if is_bibtex(entry.citation) else []
    return next((candidate for candidate in entries if candidate.authors), entries[0] if entries else None)


def _listed(names: Sequence[str]) -> str:
    """Names as in a sentence: ``A, B and C``, or ``A and others``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def is_bibtex(text: str) -> bool:
    """Whether ``text`` holds a BibTeX entry and closes every brace. An open brace would swallow the entries after it.

    >>> is_bibtex("@misc{a, title = {A}}"), is_bibtex("@misc{a, title = {A}"), is_bibtex("A. Author, 1998")
    (True, False, False)
    """
    depth = 0
    for brace in re.findall(r"[{}]", text):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return not depth and _BIBTEX.search(text) is not None


def _note_entry(entry: PinEntry, taken: set[str]) -> str:
    """A BibTeX entry for a dataset with a citation that is not BibTeX."""
    dataset = reference_of(entry).dataset
    return _entry(
        _unused(dataset.replace("/", "-"), taken),
        key=escape_latex(dataset),
        title=f"{{{escape_latex(dataset)}}}",
        howpublished=_address(entry.provenance.homepage),
        note=escape_latex(entry.citation.strip()),
    )


def _pin_entry(entry: PinEntry, line: str, taken: set[str]) -> str:
    dataset, source = reference_of(entry).dataset, _source_of(entry)
    url = source.url if source is not None else ""
    terms = _license_of(entry)
    return _entry(
        _unused(bibtex_key(entry), taken),
        key=escape_latex(dataset),
        title=f"{{{escape_latex(f'{dataset}, version {entry.version}, slice {entry.split}')}}}",
        author=source.fields.get("author", "") if source is not None else "",
        year=escape_latex(source.year) if source is not None else "",
        howpublished=_address(entry.provenance.homepage or url),
        url=_closed(url) if url != entry.provenance.homepage.strip() else "",
        version=entry.version,
        note=f"\\texttt{{{escape_latex(line)}}}" + (f". Licence: {escape_latex(terms)}" if terms else ""),
    )


def _entry(name: str, **fields: str) -> str:
    lines = [f"  {field} = {{{value}}}," for field, value in fields.items() if value]
    return "\n".join([f"@misc{{{name},", *lines, "}"])


def _address(homepage: str) -> str:
    r"""A homepage as ``\url{...}``, or as text if it is not a URL."""
    homepage = homepage.strip()
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", homepage):
        return escape_latex(homepage)
    return f"\\url{{{_closed(homepage)}}}"


def _closed(url: str) -> str:
    r"""A URL without characters that would end the argument of ``\url`` or leave a brace open."""
    return re.sub(r"[\s\x00-\x1f\x7f{}\\^`|<>]", lambda found: quote(found[0]), url)


def _unused(name: str, taken: set[str]) -> str:
    """``name``, with a number if another entry has that name; it is added to ``taken``."""
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    result = next(name for name in names if name not in taken)
    taken.add(result)
    return result


_MONTHS: Final = {name[:3].lower(): name for name in (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)}  # fmt: skip
_ENTRY = re.compile(r"@\s*([A-Za-z]+)\s*([{(])")
_NAME = re.compile(r"\s*([^\s\"#%'(),={}]+)\s*")
_KEY = re.compile(r"\s*([^\s,{}()]*)\s*,?")
_YEAR = re.compile(r"[0-9]{4}")
_WEB = re.compile(r"https?://[^\s{}\\]+", flags=re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BibEntry:
    """One entry: its type in lower case (``article``), its key, and its fields by their names in lower case."""

    kind: str
    key: str
    fields: Mapping[str, str]

    @property
    def authors(self) -> tuple[str, ...]:
        """The authors in reading order: ``Ada Lovelace``; the editors if the entry has no authors."""
        text = self.fields.get("author") or self.fields.get("editor") or ""
        names = (_person(name) for name in _split_names(text))
        return tuple(name for name in names if name)

    @property
    def title(self) -> str:
        """The title as plain text, or ``""``."""
        return plain(self.fields.get("title", ""))

    @property
    def year(self) -> str:
        """The year as plain text, else the year in ``date``, else ``""``."""
        match = _YEAR.match(plain(self.fields.get("date", "")))
        return plain(self.fields.get("year", "")) or (match[0] if match else "")

    @property
    def url(self) -> str:
        r"""The URL in ``url``, else in ``doi``, else in ``howpublished``, else ``""``."""
        for field in ("url", "doi", "howpublished"):
            text = self.fields.get(field, "").replace("\\_", "_").replace("\\%", "%").replace("\\#", "#")
            text = text.replace("\\&", "&").replace("\\~", "~")
            if match := _WEB.search(text):
                return match[0].rstrip(".,;")
            if field == "doi" and text.strip():
                return f"https://doi.org/{''.join(text.split())}"
        return ""


def read_bibtex(text: str) -> list[BibEntry]:
    r"""The complete entries of ``text``; ``@string``, ``@preamble`` and ``@comment`` are not entries.

    >>> [(one.authors, one.year) for one in read_bibtex('@book{a, author = "Kurt G{\\"o}del", year = 1931}')]
    [(('Kurt Gödel',), '1931')]
    """
    return list(_iter_entries(text))


def _iter_entries(text: str) -> Iterator[BibEntry]:
    strings, at = dict(_MONTHS), 0
    while (match := _ENTRY.search(text, at)) is not None:
        kind, close = match[1].lower(), {"{": "}", "(": ")"}[match[2]]
        at = match.end()
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
    """The fields from ``at`` on, and the end of the entry, or None if the entry is incomplete."""
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
    """A value and its end: texts in braces or quotes, numbers and names of ``@string``, joined by ``#``."""
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
    """The end of the text in braces or quotes that begins at ``at``. Quotes within braces do not end it."""
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


def _split_names(text: str) -> Iterator[str]:
    """The names of a list; an ``and`` within braces does not separate names."""
    depth = start = 0
    for found in re.finditer(r"[{}]|\s+and\s+", text, flags=re.IGNORECASE):
        if found[0] in "{}":
            depth += 1 if found[0] == "{" else -1
        elif not depth:
            yield text[start : found.start()]
            start = found.end()
    yield text[start:]


def _person(name: str) -> str:
    """A name in reading order: ``Last, First`` and ``Last, Jr, First`` are reordered."""
    name = name.strip()
    if name.startswith("{") and name.endswith("}"):  # an organization, which may contain commas
        return plain(name)
    last, *rest = (plain(part) for part in name.split(","))
    return " ".join(part for part in (*rest[-1:], last, *rest[:-1]) if part)
