r"""What does an author paste? Sentences for the text of a paper, the same for LaTeX, and entries for its bibliography.

All three are made of the pin file alone. The short form in them (``citation``) leads back to the pin.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Final
from urllib.parse import quote

from registry.pins.bibtex import BibEntry, read_bibtex
from registry.pins.citation import Citation
from registry.pins.document import PinEntry
from registry.pins.layout import reference_of
from registry.pins.paper_text import escape_latex
from registry.pins.pin import Pin
from registry.pins.pin_file import PinFile

_KEY_DIGITS: Final = 8
_FILE_SENTENCE: Final = "Every record is pinned in a file that shardbook reads and checks; the digest of this file is"
_BIBTEX = re.compile(r"^[ \t]*@[ \t]*[A-Za-z]+\s*[{(]", flags=re.MULTILINE)


def cite_text(pins: PinFile) -> str:
    """A sentence for each pin, the source of each version, and a sentence for the file, in plain text."""
    lines = [f"{_sentence(pin)} ({Citation.of(pin.entry)})." for pin in pins.values()]
    lines += [f"{text}{f' {url}' if url else ''}" for text, url in _sources(pins)]
    return "\n".join([*lines, f"{_FILE_SENTENCE} {pins.digest}."]) + "\n"


def cite_latex(pins: PinFile) -> str:
    r"""The sentences of ``cite_text`` for LaTeX: escaped, short forms and digests in ``\texttt``."""
    lines = [f"{escape_latex(_sentence(pin))} ({Citation.of(pin.entry).latex()})." for pin in pins.values()]
    lines += [f"{escape_latex(text)}{f' {_address(url)}' if url else ''}" for text, url in _sources(pins)]
    # 64 digits are wider than the column of a paper.
    algorithm, digits = pins.digest.split(":")
    digest = "\\allowbreak ".join([f"{algorithm}:", *(digits[at : at + 16] for at in range(0, len(digits), 16))])
    return "\n".join([*lines, f"{_FILE_SENTENCE} \\texttt{{{digest}}}."]) + "\n"


def cite_bibtex(pins: PinFile) -> str:
    """The datasets' own entries, as they are, and one ``@misc`` entry for each pin.

    A dataset's citation that is no BibTeX becomes the note of an entry of its own; it would break a bibliography.
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
    """The key under which a pin is cited: ``digits-1.0.0-f9c5a485``."""
    told = Citation.of(entry)
    return f"{told.dataset.replace('/', '-')}-{told.version}-{told.sha256[:_KEY_DIGITS]}"


def _sentence(pin: Pin) -> str:
    records = "1 record" if pin.num_examples == 1 else f"{pin.num_examples} records"
    return f"We used {records} of {pin.reference.dataset}, version {pin.entry.version}, slice {pin.split}"


def _sources(pins: PinFile) -> list[tuple[str, str]]:
    """Who made each version, what they call it, and when, as far as its citation says; and where it is to be had."""
    found: dict[tuple[str, str], None] = {}
    for pin in pins.values():
        source, homepage = _source_of(pin.entry), pin.entry.provenance.homepage.strip()
        citation = " ".join(pin.entry.citation.split())
        if source is not None:
            parts = [_listed(source.authors), source.title, source.year]
        else:
            parts = ["" if is_bibtex(citation) else citation]
        told = " ".join(part if part.endswith((".", "?", "!")) else f"{part}." for part in parts if part)
        url = (source.url if source is not None else "") or homepage
        if told or url:
            found[f"{pin.reference.dataset}, version {pin.entry.version}:{f' {told}' if told else ''}", url] = None
    return list(found)


def _source_of(entry: PinEntry) -> BibEntry | None:
    """The entry of a dataset's own citation that is about the dataset: the first that names authors, or the first."""
    entries = read_bibtex(entry.citation) if is_bibtex(entry.citation) else []
    return next((one for one in entries if one.authors), entries[0] if entries else None)


def _listed(names: Sequence[str]) -> str:
    """Names as a sentence has them: ``A, B and C``, or ``A and others``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def is_bibtex(text: str) -> bool:
    """Whether ``text`` holds an entry of BibTeX, and leaves no brace open that would swallow what follows.

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
    """The entry of a dataset whose citation is a sentence."""
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
    return _entry(
        _unused(bibtex_key(entry), taken),
        key=escape_latex(dataset),
        title=f"{{{escape_latex(f'{dataset}, version {entry.version}, slice {entry.split}')}}}",
        author=source.fields.get("author", "") if source is not None else "",
        year=escape_latex(source.year) if source is not None else "",
        howpublished=_address(entry.provenance.homepage or url),
        url=_closed(url) if url != entry.provenance.homepage.strip() else "",
        version=entry.version,
        note=f"\\texttt{{{escape_latex(line)}}}",
    )


def _entry(name: str, **fields: str) -> str:
    lines = [f"  {field} = {{{value}}}," for field, value in fields.items() if value]
    return "\n".join([f"@misc{{{name},", *lines, "}"])


def _address(homepage: str) -> str:
    r"""A homepage as ``\url{...}``, or as text where it is no URL."""
    homepage = homepage.strip()
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", homepage):
        return escape_latex(homepage)
    return f"\\url{{{_closed(homepage)}}}"


def _closed(url: str) -> str:
    r"""A URL without what would end the argument of ``\url``, or leave a brace open."""
    return re.sub(r"[\s\x00-\x1f\x7f{}\\^`|<>]", lambda found: quote(found[0]), url)


def _unused(name: str, taken: set[str]) -> str:
    """``name``, or with a number behind it where another entry has it; taken from now on."""
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    found = next(name for name in names if name not in taken)
    taken.add(found)
    return found
