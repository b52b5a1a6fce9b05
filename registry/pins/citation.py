r"""Writes and reads the citation of a pin in one line: ``digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac``.

It is always written in this short form. The parser also accepts it as it appears in papers: escaped for LaTeX, broken
over lines, or copied from a PDF. Any other text is rejected with a caret under the place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from registry.errors import CitationSyntaxError, ReferenceSyntaxError, SplitSyntaxError, UsageError
from registry.model import Reference, SlicingRule, Version
from registry.pins.document import PinEntry
from registry.pins.latex import escape_latex, plain_line
from registry.pins.layout import reference_of
from registry.splits import ReadInstruction

SHORT_DIGITS: Final = 16
"""Number of hex digits of the digest that are printed."""

FEWEST_DIGITS: Final = 8
ALL_DIGITS: Final = 64
ROUNDINGS: Final = ("closest", "pct1_dropremainder")

MOST_CHARACTERS: Final = 16_384
"""Longest text that is read as a citation."""

_LARGEST: Final = 2**63 - 1
_INVISIBLE = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
_PRINTED: Final = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d", "-"))
_LIGATURES: Final = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl"})
_AROUND: Final = " \"'`“”‘’„«»()"
_HEX = re.compile(rf"[0-9a-f]{{{FEWEST_DIGITS},{ALL_DIGITS}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    r"""A pin in one line: which records of which version, and the first digits of the digest that proves them.

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
                f"a citation names an exact version, found {self.reference}",
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
        """The citation of a pin with all digits of its digest. ``str`` prints the first 16 of them, ``full`` all."""
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
        r"""The citation in ``text``, which may come from a paper.

        Grammar, with any white space between the parts::

            citation  := reference split notes? "#" number "sha256:" digits
            reference := name ( "/" config )? ( "@" | ":" ) MAJOR.MINOR.PATCH
            notes     := "(" note ( "," note )* ")"       note := rule " slicing" | rounding " rounding"
            digits    := 8 to 64 hex digits

        It removes escapes and fonts of LaTeX, typographic hyphens, ligatures and line breaks, hyphens at a line break
        in the name of the dataset, a number or the digest, quotes around the citation, and dots after it.

        >>> str(Citation.parse("\\texttt{digits@1.0.0 train[:80\\%]\n \\#1438 SHA256:f9c5a485-\n541c42ac\\dots}"))
        'digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac'

        Raises:
            CitationSyntaxError: it is not a citation; the message draws a caret under the place.
        """
        if not isinstance(text, str):
            raise UsageError(f"citation: expected a text, found {type(text).__name__}")
        return _Parser(_one_line(text)).citation()

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
        notes = []
        if self.slicing is not SlicingRule.DOCUMENTED:
            notes.append(f"{self.slicing.value} slicing")
        if self.rounding is not None:
            notes.append(f"{self.rounding} rounding")
        told = f" ({', '.join(notes)})" if notes else ""
        return f"{self.dataset}@{self.version} {self.split}{told} #{self.num_examples} sha256:{self.sha256}"

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


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(?:- [A-Za-z0-9_]+)*")
_CONFIG = re.compile(r"[A-Za-z0-9_+.-]+")
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
_NUMBER = re.compile(r"[0-9]+(?:- [0-9]+)*")
_ALGORITHM = re.compile(r"sha-?256 ?: ?", flags=re.IGNORECASE)
# In text from a PDF, a line break within the digest becomes a space. Wrongly joined digits match no pin.
_DIGITS = re.compile(r"[0-9a-f]+(?:-? [0-9a-f]+)*", flags=re.IGNORECASE)
_NOTES = re.compile(r" ?\(([^()]*(?:slicing|rounding))\) ?$")
_LOOSE_SPACE = re.compile(r"(?<=[\[\]():+,%]) | (?=[\[\]():+,%])")


class _Parser:
    """Parses one line; ``at`` is the position of the next character. A hyphen at a line break is ``"- "``."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def citation(self) -> Citation:
        """``citation := reference split notes? "#" number "sha256:" digits``."""
        reference = self.reference()
        if not self._take(" "):
            self._refuse("expected a space and a split expression here")
        start, stop = self.at, self.text.find("#", self.at)
        if stop < 0:
            self.at = len(self.text)
            self._refuse("expected '#' and the number of records here")
        body = self.text[start:stop]
        noted = _NOTES.search(body)
        slicing, rounding = SlicingRule.DOCUMENTED, None
        if noted is not None:
            slicing, rounding = self.notes(noted[1], start + noted.start(1))
            body = body[: noted.start()]
        self.at = stop + 1
        num_examples = self.number()
        digits = self.digits()
        result = [place for place in range(len(body)) if not _LOOSE_SPACE.match(body, place)]
        while result and body[result[-1]] == " ":
            result.pop()
        try:
            return Citation(
                reference=reference,
                split="".join(body[place] for place in result),
                num_examples=num_examples,
                sha256=digits,
                slicing=slicing,
                rounding=rounding,
            )
        except SplitSyntaxError as error:
            places = [*(start + place for place in result), start + (result[-1] + 1 if result else 0)]
            first = places[min(error.details["start"], len(result))]
            last = places[min(error.details["stop"] - 1, len(result))]
            raise CitationSyntaxError(
                error.details["expected"], citation=self.text, start=first, stop=last + 1, hint=error.hint
            ) from error

    def reference(self) -> Reference:
        """``reference := name ( "/" config )? ( "@" | ":" ) MAJOR.MINOR.PATCH``."""
        name = self._match(_NAME, "expected the name of a dataset here").replace("- ", "")
        self._take(" ")
        config = None
        if self._take("/"):
            self._take(" ")
            config = self._match(_CONFIG, "expected the name of a config here")
            self._take(" ")
        if not self._take("@") and not self._take(":"):
            self._refuse("expected '@' and a version here" if config else "expected '/', or '@' and a version here")
        self._take(" ")
        start = self.at
        version = self._match(
            _VERSION,
            "expected an exact version here, e.g. 1.0.0",
            hint="An alias or a range may change its version. Write the version that was used.",
        )
        try:
            return Reference.exactly(name, config, Version.parse(version))
        except ReferenceSyntaxError as error:
            is_version = not Version.is_valid(version)
            return self._refuse(error.message, start=start if is_version else 0, stop=self.at, hint=error.hint)

    def notes(self, text: str, start: int) -> tuple[SlicingRule, str | None]:
        """``note := rule " slicing" | rounding " rounding"``, each kind at most once."""
        result: dict[str, str] = {}
        known = {f"{rule.value} slicing": rule.value for rule in SlicingRule}
        known |= {f"{rounding} rounding": rounding for rounding in ROUNDINGS}
        for note in text.split(","):
            kind = note.rpartition(" ")[2]
            if note.strip() not in known or kind in result:
                self._refuse(
                    f"expected {SlicingRule.TFDS_4.value} slicing or {ROUNDINGS[1]} rounding here, each at most once",
                    start=start + len(note) - len(note.lstrip()),
                    stop=start + len(note),
                )
            result[kind] = known[note.strip()]
            start += len(note) + 1
        return SlicingRule(result.get("slicing", SlicingRule.DOCUMENTED)), result.get("rounding")

    def number(self) -> int:
        """The number of records: digits, without a leading zero."""
        self._take(" ")
        start = self.at
        digits = self._match(_NUMBER, "expected the number of records here").replace("- ", "")
        if len(digits) > 19 or int(digits) > _LARGEST or str(int(digits)) != digits:
            self._refuse("expected a number below 2**63 without leading zeros", start=start, stop=self.at)
        return int(digits)

    def digits(self) -> str:
        """``"sha256:"`` and 8 to 64 hex digits, with nothing after them."""
        self._take(" ")
        self._match(_ALGORITHM, "expected 'sha256:' here")
        start = self.at
        digits = re.sub("[- ]", "", self._match(_DIGITS, "expected hex digits here")).lower()
        if self.at < len(self.text):
            self._refuse("expected a hex digit or the end of the citation here")
        if not FEWEST_DIGITS <= len(digits) <= ALL_DIGITS:
            self._refuse(
                f"expected {FEWEST_DIGITS} to {ALL_DIGITS} hex digits, found {len(digits)}",
                start=start,
                stop=self.at,
            )
        return digits

    def _match(self, pattern: re.Pattern[str], expected: str, *, hint: str | None = None) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            self._refuse(expected, hint=hint)
        self.at = match.end()
        return match[0]

    def _take(self, word: str) -> bool:
        if not self.text.startswith(word, self.at):
            return False
        self.at += len(word)
        return True

    def _refuse(
        self, expected: str, *, start: int | None = None, stop: int | None = None, hint: str | None = None
    ) -> NoReturn:
        start = self.at if start is None else start
        raise CitationSyntaxError(
            expected, citation=self.text, start=start, stop=start + 1 if stop is None else stop, hint=hint
        )


def _one_line(text: str) -> str:
    """``text`` as one line, without LaTeX markup and typographic characters."""
    if len(text) > MOST_CHARACTERS:
        raise CitationSyntaxError(
            f"a citation is one line; this text has {len(text)} characters", citation=text, start=0, stop=1
        )

    def refuse(start: int, stop: int) -> str:
        raise CitationSyntaxError("unknown LaTeX command", citation=text, start=start, stop=stop)

    line = _INVISIBLE.sub("", plain_line(text, refuse)).translate(_PRINTED)
    if "tfds-4" not in line:  # only under that rule may split names contain such letters
        line = line.translate(_LIGATURES)
    line = re.sub(r"\s+", " ", line).lstrip(_AROUND)
    return line.rstrip(_AROUND + ".…,;")
