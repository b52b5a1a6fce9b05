"""What does a paper do to a line of text, and how is that undone? Escapes of LaTeX, and characters of typesetters."""

from __future__ import annotations

import re
from typing import Final

from registry.errors import CitationSyntaxError

MOST_CHARACTERS: Final = 16_384
"""Longest text that is read as a line of a paper."""

_LATEX: Final = {
    "\\": "\\textbackslash{}",
    "{": "\\textbraceleft{}",  # not \{: BibTeX counts the braces of that, too
    "}": "\\textbraceright{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    "`": "\\textasciigrave{}",
    "'": "\\textquotesingle{}",
} | {character: f"\\{character}" for character in "$&#%_"}


def escape_latex(text: str) -> str:
    r"""``text`` so that LaTeX prints it: nothing in it is a command, a comment or a ligature of hyphens.

    >>> escape_latex("50% of a_b -- #1")
    '50\\% of a\\_b -{}- \\#1'
    """
    escaped = "".join(_LATEX.get(character, character) for character in re.sub(r"[\s\x00-\x1f\x7f]+", " ", text))
    return re.sub(r"-(?=-)", "-{}", escaped)


_SYMBOLS: Final = dict.fromkeys("%#_&", "") | dict.fromkeys(", ;:!\n\t\r\\", " ")
_COMMANDS: Final = (
    dict.fromkeys(("texttt", "textsf", "textrm", "textnormal", "ttfamily", "tt", "mbox", "hbox", "code"), "")
    | dict.fromkeys(("path", "url", "nolinkurl", "seqsplit", "allowbreak", "textls", "protect"), "")
    | dict.fromkeys(("newline", "linebreak", "space", "nobreakspace", "thinspace", "quad"), " ")
    | dict.fromkeys(("dots", "ldots", "textellipsis"), "...")
    | {"textunderscore": "_", "textasciitilde": " "}
)
_MARKUP = re.compile(r"\\(?:(?P<command>[A-Za-z]+)\s*|(?P<symbol>.)|$)|[{}]|~", flags=re.DOTALL)
_INVISIBLE = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
_PRINTED: Final = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d", "-"))
_LIGATURES: Final = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl"})
_AROUND: Final = " \"'`“”‘’„«»()"


def plain_text(text: str) -> str:
    """``text`` as one line without markup of LaTeX and what typesetting does to characters."""
    if len(text) > MOST_CHARACTERS:
        raise CitationSyntaxError(
            f"a citation is one line, this has {len(text)} characters", citation=text, start=0, stop=1
        )

    def undone(found: re.Match[str]) -> str:
        if found["command"] is not None and found["command"] in _COMMANDS:
            return _COMMANDS[found["command"]]
        if found["symbol"] is not None and (found["symbol"] in _SYMBOLS or found["symbol"] in "-/"):
            return "" if found["symbol"] in "-/" else _SYMBOLS[found["symbol"]] or found["symbol"]
        if found[0] in ("{", "}", "~"):
            return " " if found[0] == "~" else ""
        raise CitationSyntaxError(
            "a command of LaTeX that is not known here", citation=text, start=found.start(), stop=found.end()
        )

    plain = _INVISIBLE.sub("", _MARKUP.sub(undone, text)).translate(_PRINTED)
    if "tfds-4" not in plain:  # whose splits may have such letters in their names; no other part of a citation has
        plain = plain.translate(_LIGATURES)
    plain = re.sub(r"\s+", " ", plain).lstrip(_AROUND)
    return plain.rstrip(_AROUND + ".…,;")
