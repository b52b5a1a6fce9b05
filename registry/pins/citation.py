r"""Writes and reads the citation of a pin in one line: ``digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac``.

It is always written in this short form. Parsing also accepts line breaks, additional spaces and LaTeX's backslashes.
Any other text is rejected with a caret under the place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from registry.errors import CitationSyntaxError, SplitSyntaxError, UsageError
from registry.masking import MASK, may_hide_secret
from registry.model import Reference, SlicingRule, Version
from registry.pins.document import PinEntry
from registry.pins.layout import reference_of
from registry.splits import ReadInstruction

SHORT_DIGITS: Final = 16
"""Number of hex digits of the digest that are printed."""

FEWEST_DIGITS: Final = 8
ALL_DIGITS: Final = 64
ROUNDINGS: Final = ("closest", "pct1_dropremainder")

_LARGEST: Final = 2**63 - 1
_HEX = re.compile(rf"[0-9a-f]{{{FEWEST_DIGITS},{ALL_DIGITS}}}")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    r"""A pin in one line: the version, the slice, and the first digits of the digest that proves the records.

    Attributes:
        reference: the exact version; neither an alias nor a range.
        split: the split expression in its normal form.
        num_examples: number of records.
        sha256: hex digits of the pin's ``records.ordered``: 8 or more, or all 64.
        slicing: the rule that resolves the expression; written if it is not ``documented``.
        rounding: the rounding of percentages; None means ``closest``, which is not written.

    >>> text = "digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac"
    >>> str(Citation.parse(text)) == text
    True
    >>> Citation.parse(text).latex()
    '\\texttt{digits@1.0.0 train[:80\\%] \\#1438 sha256:f9c5a485541c42ac}'
    >>> str(replace(Citation.parse(text), slicing="tfds-4", rounding="pct1_dropremainder"))
    'digits@1.0.0 train[:80%] (tfds-4 slicing, pct1_dropremainder rounding) #1438 sha256:f9c5a485541c42ac'

    Raises:
        UsageError: the reference is not an exact version, a number or digest is invalid, or a rule is unknown.
        SplitSyntaxError: ``split`` is not an expression of that rule.
    """

    reference: Reference
    split: str
    num_examples: int
    sha256: str
    slicing: SlicingRule = SlicingRule.DOCUMENTED
    rounding: str | None = None

    def __post_init__(self) -> None:
        if self.reference.request is None or self.reference.request.exact is None:
            raise UsageError(
                f"a citation must name an exact version, found {self.reference}",
                hint="Write the version that was used, e.g. digits:1.0.0",
            )
        if not 0 <= self.num_examples <= _LARGEST:
            raise UsageError(f"invalid number of records: {self.num_examples}")
        if not _HEX.fullmatch(self.sha256):
            raise UsageError(
                f"expected {FEWEST_DIGITS} to {ALL_DIGITS} hex digits of the digest, found {self.sha256!r:.80}"
            )
        if self.rounding not in (None, *ROUNDINGS):
            raise UsageError(f"unknown rounding {self.rounding!r:.60}", hint=f"Use one of: {', '.join(ROUNDINGS)}")
        slicing = SlicingRule.of(self.slicing)
        put = object.__setattr__
        put(self, "slicing", slicing)
        put(self, "rounding", None if self.rounding == "closest" else self.rounding)
        put(self, "split", str(ReadInstruction.from_spec(self.split, slicing=slicing).read_by(slicing)))

    @classmethod
    def of(cls, entry: PinEntry) -> Citation:
        """The citation of a pin with all digits of its digest. ``str`` prints the first 16, ``full`` all."""
        return cls(
            reference=reference_of(entry),
            split=entry.split,
            num_examples=entry.num_examples,
            sha256=entry.records.ordered.removeprefix("sha256:"),
            slicing=SlicingRule(entry.slicing),
            rounding=entry.rounding,
        )

    @classmethod
    def parse(cls, text: str) -> Citation:
        r"""The citation in ``text``.

        White space of any kind counts as one space; within the split expression and the digits, it is left out.
        LaTeX's backslashes are left out, too. Anything else must be as printed: ligatures, hyphens at line breaks and
        commands of LaTeX are not undone. Grammar::

            citation  := reference split notes? "#" number "sha256:" digits
            reference := name ( "/" config )? ( "@" | ":" ) MAJOR.MINOR.PATCH
            notes     := "(" note ( "," note )? ")"       note := "tfds-4 slicing" | "pct1_dropremainder rounding"
            digits    := 8 to 64 hex digits

        >>> str(Citation.parse("digits@1.0.0  train[:80\\%]\n \\#1438 sha256:f9c5a485\n541c42ac"))
        'digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac'

        Raises:
            CitationSyntaxError: the text is not a citation; the message shows the place with a caret.
        """
        if not isinstance(text, str):
            raise UsageError(f"citation: expected a string, found {type(text).__name__}")
        line, at = " ".join(text.replace("\\", "").split()), 0
        values: list[str] = []
        for pattern, expected in _PARTS:
            match = pattern.match(line, at)
            if match is None:
                if several := _SEVERAL.fullmatch(line):
                    raise CitationSyntaxError(
                        "expected one citation, but another begins here",
                        citation=line,
                        start=several.start("second"),
                        stop=several.end("second"),
                        hint="Pass each citation by itself.",
                    )
                if may_hide_secret(line):
                    raise CitationSyntaxError(
                        "the text is not a citation, and is not shown because it may contain a password",
                        citation=MASK,
                        start=0,
                        stop=len(MASK),
                        hint="Write dataset@version split #records sha256:digits, as registry pin cite prints it.",
                    )
                raise CitationSyntaxError(expected, citation=line, start=at, stop=at + 1)
            values += match.groups("")
            at = match.end()
        name, version, split, notes, num_examples, digits = values
        (dataset, slash, config), (slicing, rounding) = name.partition("/"), _NOTES[notes]
        start, expression = len(f"{name}@{version} "), split.replace(" ", "")
        line = line[:start] + expression + line[start + len(split) :]
        try:
            return cls(
                reference=Reference.exactly(dataset, config if slash else None, Version.parse(version)),
                split=expression,
                num_examples=int(num_examples),
                sha256=digits.replace(" ", ""),
                slicing=slicing,
                rounding=rounding,
            )
        except SplitSyntaxError as error:
            first, last = start + error.details["start"], start + error.details["stop"]
            expected = error.details["expected"]
            raise CitationSyntaxError(expected, citation=line, start=first, stop=last, hint=error.hint) from error
        except UsageError as error:
            raise CitationSyntaxError(error.message, citation=line, start=0, stop=len(line), hint=error.hint) from error

    @property
    def version(self) -> Version:
        """The exact version."""
        exact = self.reference.request.exact if self.reference.request is not None else None
        assert exact is not None  # noqa: S101 (checked when it was made)
        return exact

    @property
    def dataset(self) -> str:
        """``name`` or ``name/config``."""
        return self.reference.dataset

    @property
    def full(self) -> str:
        """The line with all known digits of the digest."""
        notes = _write_notes(self.slicing, self.rounding)
        return f"{self.dataset}@{self.version} {self.split}{notes} #{self.num_examples} sha256:{self.sha256}"

    def shortened(self) -> Citation:
        """A copy with only the digits of the digest that ``str`` prints."""
        return replace(self, sha256=self.sha256[:SHORT_DIGITS])

    def latex(self) -> str:
        r"""The line for LaTeX: ``\texttt{...}``, escaped."""
        return f"\\texttt{{{escape_latex(str(self))}}}"

    def differences(self, entry: PinEntry) -> tuple[str, ...]:
        """How a pin differs from the cited one, a line for each difference."""
        pinned = Citation.of(entry)
        rows: tuple[tuple[str, object, object], ...] = (
            ("dataset", self.dataset, pinned.dataset),
            ("version", self.version, pinned.version),
            ("slice", self.split, pinned.split),
            ("slicing rule", self.slicing.value, pinned.slicing.value),
            ("rounding", self.rounding or ROUNDINGS[0], pinned.rounding or ROUNDINGS[0]),
            ("number of records", self.num_examples, pinned.num_examples),
            ("sha256 of the records", self.sha256, pinned.sha256[: len(self.sha256)]),
        )
        return tuple(
            f"{subject}: the citation has {ours}, the pin has {theirs}"
            for subject, ours, theirs in rows
            if ours != theirs
        )

    def matches(self, entry: PinEntry) -> bool:
        """Whether a pin is the cited one, as far as the digits in the citation show."""
        return not self.differences(entry)

    def __str__(self) -> str:
        return self.full if len(self.sha256) <= SHORT_DIGITS else self.shortened().full


def escape_latex(text: str) -> str:
    r"""``text`` as LaTeX prints it: nothing in it is a command, a comment or a ligature of hyphens.

    >>> escape_latex("50% of a_b -- #1")
    '50\\% of a\\_b -{}- \\#1'
    """
    escaped = "".join(_ESCAPES.get(character, character) for character in re.sub(r"[\s\x00-\x1f\x7f]+", " ", text))
    return re.sub(r"-(?=-)", "-{}", escaped)


def _write_notes(slicing: SlicingRule, rounding: str | None) -> str:
    """The options that change the meaning of the split expression, in brackets, or ``""``."""
    notes = [] if slicing is SlicingRule.DOCUMENTED else [f"{slicing.value} slicing"]
    notes += [] if rounding is None else [f"{rounding} rounding"]
    return f" ({', '.join(notes)})" if notes else ""


_NOTES: Final = {
    _write_notes(rule, rounding): (rule, rounding) for rule in SlicingRule for rounding in (None, ROUNDINGS[1])
}
_PARTS: Final = tuple(
    (re.compile(pattern), f"expected {expected} here")
    for pattern, expected in (
        (r"([\w/+.-]+)[@:]", "the name of a dataset and '@'"),
        (r"([0-9]+\.[0-9]+\.[0-9]+) ", "an exact version such as 1.0.0 and a space"),
        (rf"([^#]+?)({'|'.join(map(re.escape, _NOTES))}) #", "a split expression, a space and '#'"),
        (r"(0|[1-9][0-9]{0,18}) ", "the number of records"),
        (
            rf"sha256:((?:[0-9a-f] ?){{{FEWEST_DIGITS},{ALL_DIGITS}}})\Z",
            f"'sha256:' and {FEWEST_DIGITS} to {ALL_DIGITS} hex digits",
        ),
    )
)
_CITATION: Final = "".join(part.pattern.removesuffix(r"\Z") for part, _ in _PARTS)
_BETWEEN: Final = "(?:[;,.] |(?<= ))"
_SEVERAL: Final = re.compile(rf"{_CITATION}{_BETWEEN}(?P<second>{_CITATION})(?:{_BETWEEN}{_CITATION})*[.]?")
