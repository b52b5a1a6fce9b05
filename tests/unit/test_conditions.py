"""The errors of conditions, whole; their limits; and what a filtered reader says of itself before it reads."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.golden import check_errors
from support.reading_samples import Stored, reader_of, stored

from registry.display import TimeType
from registry.errors import StateMismatchError, UsageError, WrongTypeError
from registry.features import ClassLabel, FeaturesDict, Image, Scalar, Sequence, Tensor, Text
from registry.order import ReadConfig
from registry.reading.conditions import MAX_DEPTH, MAX_ITEMS, MAX_LENGTH, parse_condition

GOLDEN = Path(__file__).with_name("golden")

FEATURES = FeaturesDict(
    {
        "price": "float32",
        "count": "int16",
        "label": ClassLabel(names=["cat", "dog"]),
        "number": ClassLabel(num_classes=3),
        "note": Text(),
        "flag": "bool",
        "born": "int32",
        "seen": "int64",
        "sent": "int64",
        "photo": Image(shape=(None, None, 3)),
        "boxes": Sequence({"area": "float32"}),
        "vector": Tensor(shape=(3,), dtype="float32"),
        "place": {"name": Text(), "zip": Scalar("int64", optional=True)},
        "class": "int64",
        "größe": "int64",
        "a b/c": "int64",
    }
)
TIMES = {"born": TimeType("date", "D"), "seen": TimeType("timestamp", "s"), "sent": TimeType("timestamp", "ms")}


def test_a_mistake_is_named_with_its_place() -> None:
    texts = [
        "prise > 3",
        "place == 'x'",
        "photo == 3",
        "1 < boxes/area",
        "vector is None",
        "price > 'ten'",
        "label in ('cat', 'cow')",
        "number == 'cat'",
        "3 == note",
        "flag == 1",
        "born < '2024-02-30'",
        "seen > '12:00:00'",
        "price == note",
        "seen < sent",
        "label == number",
        "count",
        "price == None",
        "3 < 4",
        "'cat' in label",
        "price = 3",
        "note == 'cat",
        r"note == 'a\x00'",
        "price > 1 AND count > 2",
        "flag && count > 2",
        "price is null",
        "NOT flag",
        "price => 3",
        "note like 'c%'",
        "label in (cat, 'dog')",
        "__import__('os')",
        "",
    ]
    check_errors(
        GOLDEN / "conditions" / "a_mistake_is_named_with_its_place.txt",
        (partial(parse_condition, text, FEATURES, TIMES) for text in texts),
    )


def test_limits_end_hostile_conditions() -> None:
    def refused(text: str) -> str:
        with pytest.raises(UsageError) as caught:
            parse_condition(text, FEATURES, TIMES)
        return str(caught.value).partition("\n")[0]

    assert parse_condition("(" * MAX_DEPTH + "flag" + ")" * MAX_DEPTH, FEATURES, TIMES)
    assert refused("(" * 20_000) == f"conditions can be nested at most {MAX_DEPTH} deep"
    assert refused("not " * 10_000 + "flag") == f"conditions can be nested at most {MAX_DEPTH} deep"
    assert refused(f"count in ({'1,' * (MAX_ITEMS + 1)})") == "a list has at most 10,000 items"
    assert refused(f"count == {'1' * MAX_LENGTH}") == "a condition has at most 65,536 characters, not 65,545"
    with pytest.raises(WrongTypeError, match="condition must be str, not bytes"):
        parse_condition(b"flag", FEATURES, TIMES)  # type: ignore[arg-type]
    many = parse_condition(" or ".join(["flag"] * 5000), FEATURES, TIMES)  # no recursion
    assert many.matches({"flag": np.array([True, False])}).tolist() == [True, False]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("price == 0.1", [True, False, False]),  # in float32, as it is printed
        ("price > 1e300", [False, False, True]),
        ("price < 1e999", [True, True, False]),
        ("count < 70000", [True, True, True]),
        ("count >= 1.5", [False, True, True]),
        ("count in (1, 70000, 2.0, 2.5)", [True, True, False]),
        ("count in ()", [False, False, False]),
        ("count not in [1,]", [False, True, True]),
        ("`class` == größe", [True, False, True]),
        ("`a b/c` >= -1_000", [True, True, True]),
        ("note == 'it\\'s'", [False, True, False]),
        ('note > "a" and note < "c"', [False, False, True]),
        ("label == 'dog' or label < 0", [True, False, True]),
        ("born == '2024-01-08'", [True, False, False]),
        ("born in ('2024-01-09', 19730)", [True, True, False]),
        ("seen >= '1970-01-01 00:01:30'", [False, True, True]),
        ("seen == '1970-01-02T00:00Z'", [False, False, True]),
        ("seen == '1970-01-02'", [False, False, True]),
        ("flag and not flag", [False, False, False]),
        ("place/zip != 1", [False, False, True]),
        ("not (place/zip == 1)", [False, False, True]),
        ("place/zip is None or place/zip == 1", [True, True, False]),
    ],
)
def test_a_condition_matches_arrays(text: str, expected: list[bool]) -> None:
    def texts(*values: bytes) -> Any:
        return np.array(values, object)

    block = {
        "price": np.array([0.1, 1, np.inf], np.float32),
        "count": np.array([1, 2, 3], np.int16),
        "label": np.array([1, 0, -1]),
        "note": texts(b"a", b"it's", b"b"),
        "flag": np.array([True, False, True]),
        "born": np.array([19_730, 19_731, 0], np.int32),
        "seen": np.array([0, 90, 86_400]),
        "place": {"zip": np.ma.MaskedArray([5, 1, 2], [True, False, False])},
        "class": np.array([1, 2, 3]),
        "größe": np.array([1, 3, 3]),
        "a b/c": np.array([0, 1, 2]),
    }
    condition = parse_condition(text, FEATURES, TIMES)
    assert condition.matches(block).tolist() == expected
    assert set(condition.features) <= set(block)


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">="])
def test_nan_in_bfloat16_is_compared_without_a_warning(sign: str) -> None:
    features = FeaturesDict({"score": Tensor(shape=(), dtype="bfloat16", encoding="bytes")})
    values = np.array([1, np.nan, 3], features["score"].dtype)
    for text in (f"score {sign} 2", f"score {sign} score"):
        assert not parse_condition(text, features, {}).matches({"score": values})[1]


@pytest.fixture
def files(tmp_path: Path) -> Stored:
    return stored([20, 20, 7], str(tmp_path / "data"))


def test_a_filter_reads_when_it_is_first_needed(files: Stored) -> None:
    reader = reader_of("train", files).where("id >= 5 and id < 40")
    assert repr(reader) == "<Reader train where id >= 5 and id < 40>"
    assert len(reader) == 35
    assert repr(reader) == "<Reader train where id >= 5 and id < 40: 35 examples>"
    assert repr(reader.where("id in (7, 41)")) == "<Reader train where (id >= 5 and id < 40) and (id in (7, 41))>"
    view = reader.as_supervised("id").where("id == 7")
    assert [int(number) for (number,) in view] == [7]
    assert repr(view) == "<SupervisedReader train where (id >= 5 and id < 40) and (id == 7): 1 examples as ('id',)>"


def test_a_state_names_the_filter_that_it_belongs_to(files: Stored) -> None:
    whole = reader_of("train", files, ReadConfig(shuffle="global"))
    state = whole.where("id < 9").state()
    assert len(list(reader_of("train", files, ReadConfig(shuffle="global")).where("id < 9", state=state))) == 9
    with pytest.raises(StateMismatchError) as caught:
        whole.where("id < 10", state=state)
    message = "this state belongs to the records train where id < 9, and this reads train where id < 10"
    assert str(caught.value) == message
    with pytest.raises(StateMismatchError, match="train where id < 9, and this reads train\n"):
        whole.reopened(state=state)
    assert whole.where("9 > id", state=state).state() != {}  # the same records


def test_progress_of_a_filter_counts_records(files: Stored) -> None:
    steps: list[str] = []
    len(reader_of("train", files).where("id < 3", progress=lambda progress: steps.append(str(progress))))
    assert len(steps) > 1
    assert steps[-1] == "filtering ids:1.0.0 train: 47 of 47 records"


def test_record_numbers_count_in_the_split(files: Stored) -> None:
    reader = reader_of("train[19:23]+train[:2]", files, ReadConfig(interleave_cycle_length=1))
    assert reader.record_numbers()["train"].tolist() == [19, 20, 21, 22, 0, 1]
    no_match = reader.where("id > 100").record_numbers()["train"]
    assert (no_match.tolist(), no_match.dtype) == ([], np.int64)
    shares = [reader.reopened(process=(index, 2)).where("id != 20").record_numbers() for index in range(2)]
    assert [share["train"].tolist() for share in shares] == [[19, 21, 22], [0, 1]]
