r"""Writes the citation of pins for a paper: sentences as plain text or LaTeX, and BibTeX entries (``pin cite``).

All are made from the pin file alone. They contain the short form (``Citation``), from which the pin can be found again.
The dataset's own citation is quoted unchanged: BibTeX among the entries, and any other text in the sentences.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from itertools import count
from typing import Final
from urllib.parse import quote

from registry.pins.citation import Citation, escape_latex
from registry.pins.document import PinEntry
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
    citation = Citation.of(entry)
    return f"{citation.dataset.replace('/', '-')}-{citation.version}-{citation.sha256[:_KEY_DIGITS]}"


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
    """The licences and sources of the versions: the citation, unless it is BibTeX, and the homepage."""
    lines: dict[tuple[str, str], None] = {}
    for pin in pins.values():
        homepage, terms = pin.entry.provenance.homepage.strip(), _license_of(pin.entry)
        citation = "" if is_bibtex(pin.entry.citation) else " ".join(pin.entry.citation.split())
        sentence = citation if not citation or citation.endswith((".", "?", "!")) else f"{citation}."
        if sentence or homepage or terms:
            version = f"{pin.reference.dataset}, version {pin.entry.version}" + (
                f" (licence: {terms})" if terms else ""
            )
            lines[f"{version}{f': {sentence}' if sentence else ':' if homepage else '.'}", homepage] = None
    return list(lines)


def _license_of(entry: PinEntry) -> str:
    """The licence on one line, shortened if the dataset stores the whole text, or ``""``."""
    return textwrap.shorten(entry.license, _LICENSE_LENGTH, placeholder=" ...")


def is_bibtex(text: str) -> bool:
    """Whether ``text`` contains a BibTeX entry and closes every brace. An open brace would swallow later entries.

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
    dataset, terms = reference_of(entry).dataset, _license_of(entry)
    return _entry(
        _unused(bibtex_key(entry), taken),
        key=escape_latex(dataset),
        title=f"{{{escape_latex(f'{dataset}, version {entry.version}, slice {entry.split}')}}}",
        howpublished=_address(entry.provenance.homepage),
        version=entry.version,
        note=f"\\texttt{{{escape_latex(line)}}}" + (f". Licence: {escape_latex(terms)}" if terms else ""),
    )


def _entry(name: str, **fields: str) -> str:
    lines = [f"  {field} = {{{value}}}," for field, value in fields.items() if value]
    return "\n".join([f"@misc{{{name},", *lines, "}"])


def _address(homepage: str) -> str:
    r"""A homepage as ``\url{...}``, without characters that would end the argument, or as text if it is not a URL."""
    homepage = homepage.strip()
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", homepage):
        return escape_latex(homepage)
    url = re.sub(r"[\s\x00-\x1f\x7f{}\\^`|<>]", lambda match: quote(match[0]), homepage)
    return f"\\url{{{url}}}"


def _unused(name: str, taken: set[str]) -> str:
    """``name``, with a number if another entry has that name; it is added to ``taken``."""
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    result = next(name for name in names if name not in taken)
    taken.add(result)
    return result
