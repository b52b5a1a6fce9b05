"""The types that users request for columns: what is accepted, and the message for each kind of mistake."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from support.golden import check_errors

from registry.features import ClassLabel, Image, Sequence, Tensor, Text
from registry.intake.feature_text import parse_feature

GOLDEN = Path(__file__).with_name("golden")


@pytest.mark.parametrize(
    ("text", "feature", "arrow_type"),
    [
        ("Text", Text(), pa.string()),
        ("str", Text(), pa.string()),
        ("bytes", Tensor(shape=(), dtype=bytes), pa.binary()),
        ("int", Tensor(shape=(), dtype="int64"), pa.int64()),
        ("float16", Tensor(shape=(), dtype="float16"), pa.float16()),
        ("float64", Tensor(shape=(), dtype="float64", encoding="bytes"), pa.float64()),
        ("bool", Tensor(shape=(), dtype="bool"), pa.bool_()),
        ("Image", Image(shape=(None, None, None)), pa.binary()),
        (" uint8 [ 28 , 28 ] ", Tensor(shape=(28, 28), dtype="uint8"), pa.list_(pa.list_(pa.uint8(), 28), 28)),
        ("float32[3][]", Sequence(Tensor(shape=(3,), dtype="float32")), pa.list_(pa.list_(pa.float32(), 3))),
        ("Text[]", Sequence(Text()), pa.list_(pa.string())),
        ("ClassLabel(cat, big dog)", ClassLabel(names=["cat", "big dog"]), pa.int64()),
        (r'ClassLabel("a, (b)", "\u00e9")', ClassLabel(names=["a, (b)", "é"]), pa.int64()),
        ("ClassLabel(a,b)[2]", Sequence(ClassLabel(names=["a", "b"]), length=2), pa.list_(pa.int64(), 2)),
        (
            "timestamp[us, tz=Europe/Berlin]",
            Tensor(
                shape=(),
                dtype="int64",
                description="timestamp[us, tz=Europe/Berlin]: microseconds since 1970-01-01T00:00:00 UTC.",
            ),
            pa.timestamp("us", tz="Europe/Berlin"),
        ),
        (
            "date",
            Tensor(shape=(), dtype="int32", description="date32[day]: days since 1970-01-01."),
            pa.date32(),
        ),
    ],
)
def test_a_type_gives_a_feature_and_an_arrow_type(text: str, feature: object, arrow_type: object) -> None:
    wish = parse_feature(text)
    assert (wish.action, wish.feature, wish.arrow_type, wish.optional) == ("convert", feature, arrow_type, None)
    assert wish.text == text.strip()
    assert pickle.loads(pickle.dumps(wish)) == wish  # noqa: S301 - our own bytes


def test_a_question_mark_allows_nulls() -> None:
    assert parse_feature("int8?").optional is True
    assert parse_feature("ClassLabel?").optional is True


def test_a_mistake_is_pointed_at() -> None:
    check_errors(
        GOLDEN / "intake_schema_words" / "a_mistake_is_pointed_at.txt",
        (
            partial(parse_feature, row)
            for row in [
                "txet",
                "",
                "int32[0]",
                "int32 3",
                "timestamp",
                "time32[us]",
                "ClassLabel(a,a)",
                "ClassLabel()",
                "ClassLabel[]",
            ]
        ),
    )
