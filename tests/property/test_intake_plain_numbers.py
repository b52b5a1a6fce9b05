"""Numbers in text columns: texts of digits, points and signs are recognised without patterns."""

import re

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from registry.intake.text_types import TextTypes, parse_texts

_DECIMAL = re.compile(r"-?((0|[1-9][0-9]*)(\.[0-9]+)?|\.[0-9]+)")
_PARTS = st.sampled_from([*"0123456789", "0", ".", "-", "0.", "-0"])
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
TEXTS = st.lists(st.lists(_PARTS, min_size=1, max_size=5).map("".join) | st.just("2.5"), min_size=1, max_size=4)


@given(TEXTS, st.booleans())
def test_texts_that_are_no_plain_decimals_are_faults(texts: list[str], has_null: bool) -> None:
    array = pa.array(["7.", *texts, None, "7."][: None if has_null else -2]).slice(1, len(texts) + has_null)
    values, faults = parse_texts(array, pa.float64(), is_requested=False)
    assert sorted(faults) == [place for place, text in enumerate(texts) if not _DECIMAL.fullmatch(text)]
    assert [values[place].as_py() for place, text in enumerate(texts) if place not in faults] == [
        float(text) for text in texts if _DECIMAL.fullmatch(text)
    ]


@given(TEXTS, st.booleans())
def test_texts_that_are_no_plain_integers_are_faults(texts: list[str], has_null: bool) -> None:
    texts = [text.replace("2.5", "25") for text in texts]
    array = pa.array(["7.", *texts, None, "7."][: None if has_null else -2]).slice(1, len(texts) + has_null)
    values, faults = parse_texts(array, pa.int64(), is_requested=False)
    places = [place for place, text in enumerate(texts) if _INTEGER.fullmatch(text)]
    assert sorted(faults) == [place for place in range(len(texts)) if place not in places]
    assert [values[place].as_py() for place in places] == [int(texts[place]) for place in places]


@given(TEXTS)
def test_a_column_is_of_decimals_if_all_its_texts_are(texts: list[str]) -> None:
    texts = ["0.5", *texts]  # else it may be a column of integers
    types = TextTypes()
    types.update(pa.array(texts[:1]), lambda index: ("file", index))
    types.update(pa.array(texts[1:]), lambda index: ("file", 1 + index))
    assert (types.decide()[0] == "double") == all(map(_DECIMAL.fullmatch, texts))


def test_a_number_that_float64_cannot_hold_makes_a_column_text() -> None:
    for text in ("2.5e-400", "2.5E-400"):
        types = TextTypes()
        types.update(pa.array(["0.5", text]), lambda index: ("file", index))
        assert types.decide()[0] == "string"
