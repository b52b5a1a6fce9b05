"""Escapes text for LaTeX, and removes LaTeX's markup from text that an author or a paper wrote."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Final

_ESCAPES: Final = {
    "\\": "\\textbackslash{}",
    "{": "\\textbraceleft{}",  # not \{, because BibTeX would count its brace
    "}": "\\textbraceright{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    "`": "\\textasciigrave{}",
    "'": "\\textquotesingle{}",
} | {character: f"\\{character}" for character in "$&#%_"}

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

_COMMANDS: Final = (
    dict.fromkeys(("texttt", "textsf", "textrm", "textnormal", "ttfamily", "tt", "mbox", "hbox", "code"), "")
    | dict.fromkeys(("path", "url", "nolinkurl", "seqsplit", "allowbreak", "textls", "protect"), "")
    | dict.fromkeys(("newline", "linebreak", "space", "nobreakspace", "thinspace", "quad"), " ")
    | dict.fromkeys(("dots", "ldots", "textellipsis"), "...")
    | {"textunderscore": "_", "textasciitilde": " "}
)
_SYMBOLS: Final = (
    {character: character for character in "%#_&"} | dict.fromkeys(", ;:!\n\t\r\\", " ") | dict.fromkeys("-/", "")
)
_LINE_MARKUP = re.compile(r"\\(?:(?P<command>[A-Za-z]+)\s*|(?P<symbol>.)|$)|[{}]|~", flags=re.DOTALL)


def escape_latex(text: str) -> str:
    r"""``text`` as LaTeX prints it: nothing in it is a command, a comment or a ligature of hyphens.

    >>> escape_latex("50% of a_b -- #1")
    '50\\% of a\\_b -{}- \\#1'
    """
    escaped = "".join(_ESCAPES.get(character, character) for character in re.sub(r"[\s\x00-\x1f\x7f]+", " ", text))
    return re.sub(r"-(?=-)", "-{}", escaped)


def plain(text: str) -> str:
    r"""Prose without LaTeX markup: accents and letters become Unicode, unknown commands are left out.

    >>> plain("{\\'E}t{\\'e} \\& {\\\"O}l --- \\emph{50\\%} of {NumPy}")
    'Été & Öl — 50% of NumPy'
    """

    def replaced(match: re.Match[str]) -> str:
        if match["mark"]:
            return unicodedata.normalize("NFC", (match["held"] or match["bare"]) + _ACCENTS[match["mark"]])
        if match["word"]:
            return _LETTERS.get(match["word"], "")
        if match["symbol"]:
            return " " if match["symbol"] in ", ;:\n" else "" if match["symbol"] in "-/!@" else match["symbol"]
        if match["dashes"]:
            return "–" if match["dashes"] == "--" else "—"
        return '"' if match["quotes"] else " " if match["tie"] else ""

    return " ".join(_MARKUP.sub(replaced, text).split())


def plain_line(text: str, refuse: Callable[[int, int], str]) -> str:
    r"""A line of code without LaTeX markup. Unlike ``plain``, it keeps hyphens and quotes.

    ``refuse`` is called with the start and stop of an unknown command; its result replaces the command.

    >>> plain_line("\\texttt{train[:80\\%]~\\#1438}", lambda start, stop: "?")
    'train[:80%] #1438'
    """

    def replaced(match: re.Match[str]) -> str:
        if match[0] in ("{", "}", "~"):
            return " " if match[0] == "~" else ""
        known = _COMMANDS.get(match["command"]) if match["command"] else _SYMBOLS.get(match["symbol"] or "")
        return refuse(*match.span()) if known is None else known

    return _LINE_MARKUP.sub(replaced, text)
