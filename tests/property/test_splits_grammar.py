"""Laws of split expressions as text: printing and parsing are inverse, and every text ends in a value or one error."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.grammar_reading import recogniser
from support.levels import cases
from support.strategies import read_instructions

from registry.errors import SplitSyntaxError
from registry.model import SlicingRule
from registry.splits import ReadInstruction
from registry.splits.grammar import parse_terms

ROOT = Path(__file__).parents[2]

ANY_RULE = st.sampled_from(list(SlicingRule))

PIECES_OF_TEXT = ["+", "1_0", "[", ":", "]", " ", "\t", "\n", "\xa0", "-", "1", "%", ".", "[:1%]", "_"]
PIECES = st.sampled_from(
    [
        "train",
        "all",
        "é",
        "[",
        "]",
        ":",
        "+",
        " ",
        "-",
        "_",
        ".",
        "%",
        "shard",
        "sh",
        "even(",
        ",",
        ")",
        "[0]",
        "drop_remainder",
        "1",
        "10",
        "100",
        "1_0",
        "٣",
        "\n",
    ]
)


@given(read_instructions())
def test_what_is_printed_parses_back(instruction: ReadInstruction) -> None:
    parsed = ReadInstruction.from_spec(str(instruction))
    assert parsed == instruction
    assert hash(parsed) == hash(instruction)
    assert str(parsed) == str(instruction)


@given(read_instructions())
def test_both_rules_parse_printed_expressions_alike(instruction: ReadInstruction) -> None:
    assert ReadInstruction.from_spec(str(instruction), slicing=SlicingRule.TFDS_4) == instruction


@given(st.one_of(st.text("ab[]:-+%.0123shardl ", max_size=20), st.lists(PIECES, max_size=12).map("".join)))
def test_what_both_rules_read_they_read_alike(text: str) -> None:
    read = []
    for slicing in SlicingRule:
        with suppress(SplitSyntaxError):
            read.append(ReadInstruction.from_spec(text, slicing=slicing))
    assert len(read) < 2 or read[0] == read[1]


@given(read_instructions(), read_instructions(), read_instructions())
def test_sums_are_associative_and_print_as_unions(a: ReadInstruction, b: ReadInstruction, c: ReadInstruction) -> None:
    assert (a + b) + c == a + (b + c)
    assert ReadInstruction.from_spec(f"{a} + {b}") == a + str(b) == str(a) + b


@given(st.one_of(st.text(), st.lists(PIECES, max_size=12).map("".join)), ANY_RULE)
def test_any_text_ends_in_a_value_or_a_syntax_error(text: str, slicing: SlicingRule) -> None:
    try:
        instruction = ReadInstruction.from_spec(text, slicing=slicing)
    except SplitSyntaxError as error:
        start, stop = error.details["start"], error.details["stop"]
        is_placed = 0 <= start <= len(text) and start < stop <= len(text) + 1
    else:
        is_placed = True
        assert ReadInstruction.from_spec(str(instruction), slicing=slicing) == instruction
    assert is_placed


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "1",
        "+",
        "[",
        "]",
        " ",
        "_",
        "٣",
        "train+",
        "train[:10%]+",
        "train[:1_0]]",
        "train ",
        "[-",
        "a[:1_",
        "even(",
        "a,",
        "),",
    ],
)
@pytest.mark.parametrize(
    "beginning", cases(["", "train", "train[", "even(", "even(train,", "even(train,3)[", "train[:"], everyday=2)
)
def test_a_megabyte_ends_in_a_value_or_a_syntax_error(beginning: str, piece: str) -> None:
    with pytest.raises(SplitSyntaxError) as caught:
        ReadInstruction.from_spec(beginning + piece * (2**20 // len(piece)) + "!")
    assert len(str(caught.value)) < 400


def test_a_megabyte_of_terms_is_read() -> None:
    assert len(ReadInstruction.from_spec("+".join(["train[:10%]"] * 90_000)).terms) == 90_000


DOCUMENTED = re.search(r"```ebnf\n(.*?)```", (ROOT / "docs" / "splits.md").read_text(encoding="utf-8"), re.DOTALL)
BEYOND_GRAMMAR = re.compile(
    "mixed units: |only a percentage can have a fraction|a percentage must be between|"
    "a split is divided into 1 part or more|there (is|are) [0-9]+ parts?, counted from 0|these parts are reversed"
)


def test_the_grammar_of_the_docs_is_that_of_the_parser() -> None:
    assert DOCUMENTED is not None
    lines = [line.strip() for line in (parse_terms.__doc__ or "").splitlines() if ":=" in line]
    assert [line.strip() for line in DOCUMENTED[1].splitlines()] == lines


SPACED = st.lists(
    st.sampled_from(
        [
            "even(",
            "even",
            "(",
            "train",
            ",",
            "3",
            "shard",
            "drop_remainder",
            ")",
            "[0]",
            "even(train, 3)[0]",
            *PIECES_OF_TEXT,
        ]
    ),
    max_size=14,
).map("".join)


@given(st.one_of(SPACED, st.lists(PIECES, max_size=12).map("".join)))
@example("even( train , 3 shard )[0]")
@example("even (train, 3)[0]")
@example("even(train, 3) [0]")
@example("even(train,3,\tdrop_remainder\n)[:1]")
def test_the_parser_accepts_the_language_of_its_grammar(text: str) -> None:
    is_expression = recogniser(parse_terms.__doc__ or "", "expression")(text)
    refused = ""
    try:
        parse_terms(text)
    except SplitSyntaxError as error:
        refused = error.message
    assert is_expression == (not refused or BEYOND_GRAMMAR.match(refused) is not None), refused
