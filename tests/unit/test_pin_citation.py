"""Citations of pins: the short form, copies of it, and the text that an author pastes."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.golden import check_errors
from support.pin_samples import BIBTEX, digest_of, empty_entry, sample_entry, sample_pins

from registry.errors import CitationSyntaxError, UsageError
from registry.model import Reference, Version
from registry.pins.citation import Citation
from registry.pins.cite import cite_bibtex, cite_latex, cite_text
from registry.pins.document import PinEntry

GOLDEN = Path(__file__).with_name("golden")

ORDERED = digest_of("ordered").removeprefix("sha256:")
LINE = f"digits@1.0.0 train[:80%] #8 sha256:{ORDERED[:16]}"
CITED = Citation(
    reference=Reference.exactly("mnist", "plain", Version(3, 0, 1)),
    split="train[:80%]+test",
    num_examples=1438,
    sha256="f9c5a485541c42ac",
)


def entry_of(**changes: Any) -> PinEntry:
    return sample_pins(sample_entry(**changes)).document.pins[0]


def test_a_pin_is_one_line() -> None:
    citation = Citation.of(entry_of())
    assert str(citation) == LINE
    assert citation.full == f"digits@1.0.0 train[:80%] #8 sha256:{ORDERED}"
    assert str(citation.shortened()) == LINE
    assert str(CITED) == "mnist/plain@3.0.1 train[:80%]+test #1438 sha256:f9c5a485541c42ac"


def test_a_citation_states_options_that_change_the_meaning_of_the_expression() -> None:
    assert str(replace(CITED, slicing="tfds-4")) == (  # type: ignore[arg-type]
        "mnist/plain@3.0.1 train[:80%]+test (tfds-4 slicing) #1438 sha256:f9c5a485541c42ac"
    )
    assert str(replace(CITED, rounding="pct1_dropremainder")) == (
        "mnist/plain@3.0.1 train[:80%]+test (pct1_dropremainder rounding) #1438 sha256:f9c5a485541c42ac"
    )
    assert replace(CITED, rounding="closest") == CITED


def test_an_alias_is_never_cited() -> None:
    pinned = entry_of(
        request="digits@paper", alias={"name": "paper", "set_at": "2026-11-21", "set_by": "ada", "message": ""}
    )
    assert str(Citation.of(pinned)) == LINE
    for text in ("digits@paper", "digits:1.*", "digits"):
        with pytest.raises(UsageError, match=r"a citation must name an exact version, found digits"):
            replace(CITED, reference=Reference.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        LINE,
        f"\n  digits@1.0.0\u00a0train[:80%]\n#8\r\n  sha256:{ORDERED[:8]}\n{ORDERED[8:16]}\n",
        LINE.replace("%", "\\%").replace("#", "\\#"),
        f"digits:1.0.0 train [:80 %] #8 sha256:{ORDERED[:8]} {ORDERED[8:16]}",
    ],
)
def test_a_copy_may_have_other_white_space_and_backslashes(text: str) -> None:
    assert str(Citation.parse(text)) == LINE


@pytest.mark.parametrize(
    "text",
    [
        Citation.parse(LINE).latex(),
        LINE.replace("sha256", "SHA256"),
        f"dig-\n{LINE[3:]}",
        f"{LINE}.",
        f"({LINE})",
        LINE.replace("digits", "di\u00adgits"),
        "tf_ﬂowers@3.0.1 train[100:] #100 sha256:f9c5a485",
        "tf_flowers@3.0.1 train[\u2212100:] #100 sha256:f9c5a485",
    ],
)
def test_text_that_was_changed_otherwise_is_refused(text: str) -> None:
    with pytest.raises(CitationSyntaxError, match=r"^expected|^invalid") as caught:
        Citation.parse(text)
    assert caught.value.hint


def test_an_invalid_citation_is_pointed_at() -> None:
    check_errors(
        GOLDEN / "pin_citation" / "an_invalid_citation_is_pointed_at.txt",
        (
            partial(Citation.parse, row)
            for row in [
                "",
                "digits 1.0.0 train",
                "di-gits@1.0.0 train #3 sha256:f9c5a485",
                "digits@paper train #3 sha256:f9c5a485",
                "digits@1.0.0 train[:8O%] #3 sha256:f9c5a485",
                "digits@1.0.0 train [ : 8O % ] #3 sha256:f9c5a485",
                "digits@1.0.0 train (tfds-3 slicing) #3 sha256:f9c5a485",
                "digits@1.0.0 train[:80%]",
                "digits@1.0.0 train #03 sha256:f9c5a485",
                "digits@1.0.0 train #9223372036854775808 sha256:f9c5a485",
                "digits@1.0.0 train #3 md5:f9c5a485",
                "digits@1.0.0 train #3 sha256:f9c5a48...",
            ]
        ),
    )


def test_an_error_says_how_a_citation_is_written() -> None:
    with pytest.raises(CitationSyntaxError) as caught:
        Citation.parse("digits")
    assert caught.value.hint == (
        "Write dataset@version split #records sha256:digits, "
        "e.g. digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac. "
        "Undo what a PDF changed, such as hyphens at line breaks."
    )
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("between", ["\n", " ", "; ", ", ", f"; {LINE}\n"])
def test_several_citations_are_refused_at_the_second(between: str) -> None:
    with pytest.raises(CitationSyntaxError, match="expected one citation, but another begins here") as caught:
        Citation.parse(f"{LINE}{between}faces/big:1.0.1 test #9 sha256:{'0' * 10}")
    assert caught.value.details["start"] == len(f"{LINE}{between.partition(LINE)[0].rstrip()} ")
    with pytest.raises(CitationSyntaxError, match="may contain a password") as caught:
        Citation.parse(f"{LINE} {LINE} ann:PW@host")
    assert caught.value.details["citation"] == "***"


@pytest.mark.parametrize("text", ["x", "x@1.0.0 " + "(tfds-4 ", "x@1.0.0 a #1 sha256:0 "])
def test_a_long_text_is_refused_at_once(text: str) -> None:
    with pytest.raises(CitationSyntaxError):
        Citation.parse(text + text[-2:] * 500_000)


def test_a_pin_that_is_another_one_differs_in_words() -> None:
    entry = entry_of()
    assert Citation.parse(LINE).matches(entry)
    assert Citation.parse(LINE).differences(entry) == ()
    assert Citation.of(entry).matches(entry)
    other = Citation.parse(f"mnist/plain@1.0.1 train[:81%] (tfds-4 slicing) #9 sha256:{'0' * 10}")
    assert not other.matches(entry)
    assert other.differences(entry) == (
        "dataset: the citation has mnist/plain, the pin has digits",
        "version: the citation has 1.0.1, the pin has 1.0.0",
        "slice: the citation has train[:81%], the pin has train[:80%]",
        "slicing rule: the citation has tfds-4, the pin has documented",
        "number of records: the citation has 9, the pin has 8",
        f"sha256 of the records: the citation has 0000000000, the pin has {ORDERED[:10]}",
    )


def test_an_author_pastes_sentences() -> None:
    pins = sample_pins(sample_entry(), empty_entry())
    nothing = str(Citation.of(pins["none"].entry))
    assert cite_text(pins) == (
        f"We used 8 records of digits, version 1.0.0, slice train[:80%] ({LINE}).\n"
        f"We used 0 records of digits, version 1.0.0, slice train[:0] ({nothing}).\n"
        "digits, version 1.0.0 (licence: CC BY 4.0): https://example.org/digits\n"
        f"The exact records are listed in dataset.lock.yaml ({pins.digest}), which shardbook verifies.\n"
    )


def test_an_author_pastes_latex() -> None:
    pins = sample_pins()
    digits = pins.digest.removeprefix("sha256:")
    assert cite_latex(pins) == (
        "We used 8 records of digits, version 1.0.0, slice train[:80\\%] "
        f"(\\texttt{{digits@1.0.0 train[:80\\%] \\#8 sha256:{ORDERED[:16]}}}).\n"
        "digits, version 1.0.0 (licence: CC BY 4.0): \\url{https://example.org/digits}\n"
        "The exact records are listed in dataset.lock.yaml "
        f"(\\texttt{{sha256:\\allowbreak {digits[:16]}\\allowbreak {digits[16:32]}"
        f"\\allowbreak {digits[32:48]}\\allowbreak {digits[48:]}}}), which shardbook verifies.\n"
    )


def test_the_sentences_hold_citations_that_parse() -> None:
    pins = sample_pins()
    [cited] = re.findall(r"\((\S*digits@.*)\)\.", cite_text(pins))
    assert Citation.parse(cited).matches(pins["train"].entry)


PIN_ENTRY = f"""@misc{{digits-1.0.0-{ORDERED[:8]},
  key = {{digits}},
  title = {{{{digits, version 1.0.0, slice train[:80\\%]}}}},
  howpublished = {{\\url{{https://example.org/digits}}}},
  version = {{1.0.0}},
  note = {{\\texttt{{digits@1.0.0 train[:80\\%] \\#8 sha256:{ORDERED[:16]}}}. Licence: CC BY 4.0}},
}}
"""


def test_an_author_pastes_bibtex() -> None:
    assert cite_bibtex(sample_pins()) == f"{BIBTEX}\n\n{PIN_ENTRY}"


@pytest.mark.parametrize(
    ("citation", "source"),
    [
        ("", "https://example.org/digits"),
        ("Alpaydin & Kaynak,\n1998", "Alpaydin & Kaynak, 1998. https://example.org/digits"),
        ("@misc{a, title = {A", "@misc{a, title = {A. https://example.org/digits"),
        ("@misc{a, author={A. Author}, year={2020}}", "https://example.org/digits"),
    ],
)
def test_a_citation_is_quoted_in_a_sentence_unless_it_is_bibtex(citation: str, source: str) -> None:
    line = cite_text(sample_pins(sample_entry(citation=citation))).splitlines()[1]
    assert line == f"digits, version 1.0.0 (licence: CC BY 4.0): {source}"


@pytest.mark.parametrize(
    ("terms", "homepage", "line"),
    [
        ("", "https://example.org", "digits, version 1.0.0: https://example.org"),
        (" MIT \n", "", "digits, version 1.0.0 (licence: MIT)."),
        ("word " * 100, "", f"digits, version 1.0.0 (licence: {'word ' * 39}...)."),
    ],
)
def test_the_licence_is_named_on_one_line(terms: str, homepage: str, line: str) -> None:
    provenance = sample_entry()["provenance"] | {"homepage": homepage}
    pins = sample_pins(sample_entry(citation="", license=terms, provenance=provenance))
    assert cite_text(pins).splitlines()[1] == line
    assert ("Licence:" in cite_bibtex(pins)) == bool(terms)


def test_a_version_without_licence_and_source_has_no_line() -> None:
    provenance = sample_entry()["provenance"] | {"homepage": ""}
    pins = sample_pins(sample_entry(citation="", license="", provenance=provenance))
    assert len(cite_text(pins).splitlines()) == 2


def test_the_sentence_names_the_file() -> None:
    assert "listed in paper.lock.yaml (" in cite_text(sample_pins(), "paper.lock.yaml")
    assert "listed in my\\_paper.yaml (" in cite_latex(sample_pins(), "my_paper.yaml")


def test_what_several_pins_have_in_common_is_cited_once() -> None:
    again = sample_entry("again")
    assert cite_bibtex(sample_pins(sample_entry(), again)) == f"{BIBTEX}\n\n{PIN_ENTRY}"
    other = cite_bibtex(sample_pins(sample_entry(), sample_entry("other", split="train[:8]")))
    assert re.findall(r"^@.*", other, flags=re.MULTILINE) == [
        "@misc{kaynak1998digits,",
        f"@misc{{digits-1.0.0-{ORDERED[:8]},",
        f"@misc{{digits-1.0.0-{ORDERED[:8]}-2,",
    ]


@pytest.mark.parametrize("citation", ["", "   \n"])
def test_a_dataset_without_a_citation_has_no_entry(citation: str) -> None:
    assert cite_bibtex(sample_pins(sample_entry(citation=citation))) == PIN_ENTRY


@pytest.mark.parametrize(
    ("citation", "note"),
    [
        ("Alpaydin & Kaynak,\n1998, 100% of it", "Alpaydin \\& Kaynak, 1998, 100\\% of it"),
        ("@misc{a, title = {A}", "@misc\\textbraceleft{}a, title = \\textbraceleft{}A\\textbraceright{}"),
        ("Große Ziffern, 手書き数字", "Große Ziffern, 手書き数字"),
    ],
)
def test_a_citation_that_is_not_bibtex_becomes_a_note(citation: str, note: str) -> None:
    text = cite_bibtex(sample_pins(sample_entry(citation=citation)))
    assert text == (
        "@misc{digits,\n  key = {digits},\n  title = {{digits}},\n"
        f"  howpublished = {{\\url{{https://example.org/digits}}}},\n  note = {{{note}}},\n}}\n\n{PIN_ENTRY}"
    )


@pytest.mark.parametrize(
    ("homepage", "field"),
    [
        ("", ""),
        ("https://example.org/a_b#c%20", "  howpublished = {\\url{https://example.org/a_b#c%20}},\n"),
        ("https://example.org/{a} \\x", "  howpublished = {\\url{https://example.org/%7Ba%7D%20%5Cx}},\n"),
        ("the library, 3rd floor & left", "  howpublished = {the library, 3rd floor \\& left},\n"),
    ],
)
def test_no_homepage_breaks_the_bibliography(homepage: str, field: str) -> None:
    entry = sample_entry(citation="", provenance=sample_entry()["provenance"] | {"homepage": homepage})
    assert cite_bibtex(sample_pins(entry)) == PIN_ENTRY.replace(
        "  howpublished = {\\url{https://example.org/digits}},\n", field
    )
