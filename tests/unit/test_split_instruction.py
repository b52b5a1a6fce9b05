"""ReadInstruction as a value: exact bounds, sums, equality, texts."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.golden import check_errors

from registry.errors import UsageError
from registry.splits import ReadInstruction

GOLDEN = Path(__file__).with_name("golden")


@pytest.mark.parametrize(
    ("bound", "printed"),
    [
        (10, "10%"),
        (33.3, "33.3%"),
        (0.1, "0.1%"),
        (1e-7, "0.0000001%"),
        (-0.0, "0%"),
        (np.float64(0.1), "0.1%"),
        (np.int64(7), "7%"),
        (np.float32(33.3), "33.3%"),
        (Fraction(np.int64(5), np.int64(2)), "2.5%"),
        (Decimal("12.500"), "12.5%"),
        (Decimal("1E+1"), "10%"),
        (Fraction(1, 8), "0.125%"),
        (Fraction(-200, 2), "-100%"),
    ],
)
def test_a_percentage_is_exactly_its_decimal_text(bound: Any, printed: str) -> None:
    instruction = ReadInstruction("train", to=bound, unit="%")
    assert str(instruction) == f"train[:{printed}]"
    assert ReadInstruction.from_spec(str(instruction)) == instruction


def test_every_float_has_a_decimal_text_that_is_short_enough() -> None:
    smallest = ReadInstruction("train", 5e-324, unit="%")
    assert ReadInstruction.from_spec(str(smallest)) == smallest


def test_a_bound_that_its_unit_cannot_have_is_refused() -> None:
    check_errors(
        GOLDEN / "split_instruction" / "a_bound_that_its_unit_cannot_have_is_refused.txt",
        (
            partial(lambda arguments: ReadInstruction("train", **arguments), row)
            for row in [
                {"to": 101, "unit": "%"},
                {"from_": 10**5000, "unit": "%"},
                {"to": float("nan"), "unit": "%"},
                {"to": Decimal("Infinity"), "unit": "%"},
                {"to": "5", "unit": "%"},
                {"to": Fraction(1, 3), "unit": "%"},
                {"to": Decimal("1e-1000000"), "unit": "%"},
                {"to": 1.5},
                {"to": float("inf")},
                {"to": 2.0, "unit": "shard"},
                {"to": "5"},
                {"to": Decimal("0." + "3" * 1_000_000), "unit": "%"},
                {"to": 10**400},
                {"to": True},
            ]
        ),
    )


def test_a_name_unit_or_rounding_that_there_is_not_is_refused() -> None:
    check_errors(
        GOLDEN / "split_instruction" / "a_name_unit_or_rounding_that_there_is_not_is_refused.txt",
        (
            partial(ReadInstruction, **arguments)
            for arguments in [
                {"split_name": "train", "unit": "pct"},
                {"split_name": "train", "rounding": "down"},
                {"split_name": "train[:5]"},
                {"split_name": ""},
                {"split_name": None},
                {"split_name": "a" * 201},
            ]
        ),
    )


def test_a_float_that_is_whole_counts_records() -> None:
    assert ReadInstruction("train", to=1e6) == ReadInstruction("train", to=1_000_000)


def test_what_a_slice_ignores_does_not_make_it_another_value() -> None:
    whole = ReadInstruction("train")
    assert ReadInstruction("train", unit="%", rounding="pct1_dropremainder") == whole
    assert ReadInstruction("train", to=5, rounding="pct1_dropremainder") == ReadInstruction("train", to=5)
    assert ReadInstruction("train", to=5, unit="%", rounding="pct1_dropremainder") != ReadInstruction(
        "train", to=5, unit="%"
    )
    assert whole != "train"


def test_instructions_and_texts_add_up() -> None:
    train, test = ReadInstruction("train", to=5), ReadInstruction("test")
    both = ReadInstruction.from_spec("train[:5]+test")
    assert train + test == train + "test" == "train[:5]" + test == both
    assert len({train + test, both}) == 1
    assert [str(part) for part in both.terms] == ["train[:5]", "test"]
    with pytest.raises(TypeError):
        train + 5  # type: ignore[operator]
    with pytest.raises(TypeError):
        5 + train  # type: ignore[operator]


def test_from_spec_gives_an_instruction_back() -> None:
    instruction = ReadInstruction("train")
    assert ReadInstruction.from_spec(instruction) is instruction


def test_an_empty_sum_is_refused() -> None:
    with pytest.raises(UsageError, match="must read at least one slice"):
        ReadInstruction.of(())


def test_repr_makes_the_same_value_again() -> None:
    instruction = ReadInstruction("train", Decimal("0.5"), 3, "%", "pct1_dropremainder") + "test[1shard:]"
    assert repr(instruction) == (
        "ReadInstruction('train', from_=Decimal('0.5'), to=3, unit='%', rounding='pct1_dropremainder')"
        " + ReadInstruction('test', from_=1, unit='shard')"
    )


def test_rounding_is_given_to_every_percentage_and_to_nothing_else() -> None:
    rounded = ReadInstruction.from_spec("train[:5%]+train[:5]").with_rounding("pct1_dropremainder")
    assert [part.rounding for part in rounded.terms] == ["pct1_dropremainder", "closest"]
