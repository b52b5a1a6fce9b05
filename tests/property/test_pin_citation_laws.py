"""Laws of citations: printed citations parse back; every text ends in a value or one error."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.pin_samples import sample_entry, sample_pins
from support.strategies import read_instructions, versions

from registry.errors import CitationSyntaxError
from registry.model import Reference, SlicingRule
from registry.pins.citation import Citation, escape_latex
from registry.pins.cite import cite_bibtex

NAMES = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,20}", fullmatch=True)
CONFIGS = st.from_regex(r"(?=[+._-]*[a-zA-Z0-9])[a-zA-Z0-9_+.-]{1,20}", fullmatch=True)
REFERENCES = st.builds(Reference.exactly, NAMES, st.none() | CONFIGS, versions())
DIGITS = st.text("0123456789abcdef", min_size=8, max_size=64)
ROUNDINGS = st.sampled_from([None, "closest", "pct1_dropremainder"])
FOREIGN_NAMES = st.from_regex(r"[\w-]{1,10}", fullmatch=True)
PIECES = st.sampled_from(
    [
        *("digits", "mnist/plain", "@", ":", "1.0.0", "@1.0.0 ", " ", "\n", "-", "train[:80%]", "train", "[", "]"),
        *("even(", "(", ")", "(tfds-4 slicing)", "slicing)", "#", "#1438", "1438", "sha256:", "SHA-256", "f9c5a485"),
        *("541c", "…", ".", "\\", "\\%", "\\texttt{", "{", "}", "~", "\\bad", "\u00ad", "é", "ﬁ"),
    ]
)


@st.composite
def citations(draw: st.DrawFn) -> Citation:
    """Citations of everything that a pin can be of."""
    slicing = draw(st.sampled_from(list(SlicingRule)))
    names = FOREIGN_NAMES if slicing is SlicingRule.TFDS_4 else None
    return Citation(
        reference=draw(REFERENCES),
        split=str(draw(read_instructions(names))),
        num_examples=draw(st.integers(0, 2**63 - 1)),
        sha256=draw(DIGITS),
        slicing=slicing,
        rounding=draw(ROUNDINGS),
    )


@given(citations())
def test_what_is_printed_parses_back(citation: Citation) -> None:
    assert Citation.parse(citation.full) == citation
    assert Citation.parse(str(citation)) == citation.shortened()
    assert str(Citation.parse(str(citation))) == str(citation)


@given(citations())
def test_what_is_printed_is_one_line(citation: Citation) -> None:
    assert len(str(citation).splitlines()) == 1


@given(citations(), st.data())
def test_white_space_of_any_kind_between_words_is_one_space(citation: Citation, data: st.DataObject) -> None:
    space = st.text(" \n\t\r\u00a0\u2009\u202f\u3000", min_size=1, max_size=3)
    broken = "".join(data.draw(space) if character == " " else character for character in str(citation))
    assert Citation.parse(broken) == citation.shortened()


@given(citations(), st.data())
def test_a_digest_may_be_broken_anywhere(citation: Citation, data: st.DataObject) -> None:
    text = citation.full
    place = data.draw(st.integers(len(text) - len(citation.sha256) + 1, len(text) - 1))
    broken = data.draw(st.sampled_from(["\n", " ", " \r\n\t", "\u00a0"]))
    assert Citation.parse(text[:place] + broken + text[place:]) == citation


@given(citations(), st.sampled_from(["...", "…", ".", "\\dots", ",", ";", ")", "`", "”", "}"]))
def test_text_after_a_citation_is_refused(citation: Citation, tail: str) -> None:
    with pytest.raises(CitationSyntaxError):
        Citation.parse(citation.full + tail)


@given(citations(), st.data())
def test_a_word_that_is_left_out_is_missed(citation: Citation, data: st.DataObject) -> None:
    words = str(citation).split(" ")
    place = data.draw(st.sampled_from([0, len(words) - 2, len(words) - 1]))
    with pytest.raises(CitationSyntaxError):
        Citation.parse(" ".join(words[:place] + words[place + 1 :]))


@example("train[:80%]@")
@given(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=60))
def test_every_text_is_a_citation_or_a_syntax_error(text: str) -> None:
    with suppress(CitationSyntaxError):
        citation = Citation.parse(text)
        assert Citation.parse(citation.full) == citation


@given(citations(), st.text("§;*", min_size=1, max_size=1), st.data())
def test_a_character_that_belongs_nowhere_is_refused(citation: Citation, alien: str, data: st.DataObject) -> None:
    text = citation.full
    place = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(CitationSyntaxError) as caught:
        Citation.parse(text[:place] + alien + text[place:])
    assert 0 <= caught.value.details["start"] < caught.value.details["stop"]


@given(st.text() | st.text("\\{}$&#%_^~<>|`'- a", max_size=12))
def test_nothing_of_a_text_is_left_that_latex_would_read(text: str) -> None:
    bare = re.sub(r"\\(?:[a-zA-Z]+\{\}|[$&#%_])|-\{\}(?=-)", "", escape_latex(text))
    assert set(bare).isdisjoint("\\{}$&#%_^~<>|`'\n\r\0")
    assert "--" not in escape_latex(text)


@given(
    st.text("ab@{}\\% \n(", max_size=20) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.text("https:/.{}\\% \n", max_size=20),
)
def test_every_brace_of_a_bibliography_is_closed(citation: str, homepage: str) -> None:
    entry = sample_entry(citation=citation, provenance=sample_entry()["provenance"] | {"homepage": homepage})
    text = cite_bibtex(sample_pins(entry))
    depth = 0
    for brace in re.findall(r"[{}]", text):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0
    assert text.count("@misc{digits-1.0.0-") == 1
