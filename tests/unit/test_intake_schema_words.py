"""The types that users request for columns: what is accepted, and the message for each kind of mistake."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from registry.errors import UsageError
from registry.features import ClassLabel, Image, Sequence, Tensor, Text
from registry.intake.feature_text import ACCEPTED, parse_feature


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


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "txet",
            "unknown type 'txet'\n    txet\n    ^",
            "Did you mean 'text'? There are: text, bytes, bool, int8, int16, int32, int64, uint8, uint16, uint32, "
            "uint64, float16, float32, float64, ClassLabel, Image, timestamp, time32, time64, duration, date32, "
            "date64, skip.",
        ),
        ("", "expected a type here\n    \n    ^", f"Accepted: {ACCEPTED}."),
        ("int32[0]", "expected a size of 1 or more here\n    int32[0]\n          ^", f"Accepted: {ACCEPTED}."),
        ("int32 3", "expected the end of the type here\n    int32 3\n          ^", f"Accepted: {ACCEPTED}."),
        (
            "timestamp",
            "timestamp requires a unit\n    timestamp\n    ^",
            "Write timestamp[s], with one of: s, ms, us, ns.",
        ),
        (
            "time32[us]",
            "expected a unit of time32 here\n    time32[us]\n           ^",
            "Units of time32: s, ms.",
        ),
        (
            "ClassLabel(a,a)",
            "duplicate label name 'a'\n    ClassLabel(a,a)\n              ^",
            f"Accepted: {ACCEPTED}.",
        ),
        (
            "ClassLabel()",
            "expected the names of classes here\n    ClassLabel()\n              ^",
            f"Accepted: {ACCEPTED}.",
        ),
    ],
)
def test_a_mistake_is_pointed_at(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_feature(text)
    assert (caught.value.message, caught.value.hint) == (message, hint)
