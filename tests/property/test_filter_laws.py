"""Laws of filters: a filtered reader equals brute force in Python over the examples, in any order, share and state."""

from __future__ import annotations

import json
import math
import operator
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.levels import examples
from support.reading_samples import readable

from registry.display import TimeType, moment_text, parse_moment_text, time_types
from registry.errors import StateMismatchError, UsageError
from registry.features import ClassLabel, FeaturesDict, Scalar, Tensor, Text, codec_of
from registry.model import ShardedFileTemplate, ShardLengths, Split
from registry.order import ReadConfig
from registry.reading import Reader
from registry.reading.conditions import Bounds, Condition, parse_condition
from registry.splits import resolve
from registry.storage import open_store
from registry.tfrecord import RecordWriter

CLASSES: Final = ("cat", "dog", "two words")
DAY: Final = TimeType("date", "D")
FEATURES: Final = FeaturesDict(
    {
        "id": "int64",
        "tiny": "int8",
        "big": "uint64",
        "ratio": "float32",
        "exact": Tensor(shape=(), dtype="float64", encoding="bytes"),
        "age": Scalar("int64", optional=True),
        "height": Scalar("float32", optional=True),
        "note": Text(),
        "nick": Scalar("string", optional=True),
        "label": ClassLabel(names=CLASSES),
        "flag": "bool",
        "sure": Scalar("bool", optional=True),
        "born": Tensor(shape=(), dtype="int32", description="date32[day]: days since 1970-01-01."),
        "place": {"name": Text(), "size": "int16"},
        "unit price": "int32",
    }
)
TIMES: Final = time_types(FEATURES)
PATHS: Final = {
    "number": ("id", "tiny", "big", "ratio", "exact", "age", "height", "place/size", "unit price"),
    "text": ("note", "nick", "place/name"),
    "class": ("label",),
    "bool": ("flag", "sure"),
    "date": ("born",),
}
WHOLE: Final = ("id", "tiny", "big", "age", "place/size", "unit price")
TEXTS: Final = st.sampled_from(
    ["", "a", "ab", "b", "grün", "数", "it's", 'a "b"', "back\\slash", "two\nlines", "nul\0"]
)
FLOATS: Final = st.sampled_from([0.0, -0.0, 0.1, 0.5, 1.0, -2.5, math.inf, -math.inf, math.nan, 3e38])
INTEGERS: Final = st.integers(-3, 3)

Row = dict[str, Any]


def int_or(*edges: int) -> st.SearchStrategy[int]:
    return INTEGERS | st.sampled_from(edges)


ROWS: Final = st.fixed_dictionaries(
    {
        "tiny": int_or(-128, 127),
        "big": st.integers(0, 3) | st.sampled_from([2**53, 2**53 + 1, 2**63, 2**64 - 1]),
        "ratio": FLOATS.map(np.float32),
        "exact": FLOATS,
        "age": st.none() | int_or(-(2**63), 2**53 + 1, 2**63 - 1),
        "height": st.none() | FLOATS.map(np.float32),
        "note": TEXTS,
        "nick": st.none() | TEXTS,
        "label": st.integers(-1, 2),
        "flag": st.booleans(),
        "sure": st.none() | st.booleans(),
        "born": st.integers(-2, 2) | st.just(19_730),
        "place": st.fixed_dictionaries({"name": TEXTS, "size": int_or(2**15 - 1)}),
        "unit price": INTEGERS,
    }
)
CONFIGS: Final = st.one_of(
    st.builds(
        ReadConfig,
        interleave_cycle_length=st.integers(1, 4),
        interleave_block_length=st.integers(1, 5),
        repeat=st.integers(1, 3),
    ),
    st.builds(
        ReadConfig,
        interleave_cycle_length=st.integers(1, 3),
        shuffle_files=st.just(True),
        shuffle_seed=st.integers(0, 99),
        repeat=st.integers(1, 3),
    ),
    st.builds(ReadConfig, shuffle=st.just("global"), seed=st.integers(0, 99), repeat=st.integers(1, 3)),
)
EXPRESSIONS: Final = st.sampled_from(["train", "train[25%:]", "train[:50%]+train[30%:]"])


@dataclass(frozen=True)
class Expression:
    """A condition as text, and the same condition in Python: True, False, or None if it is unknown."""

    text: str
    test: Callable[[Row], bool | None]


def at(example: Row, path: str) -> Any:
    for name in path.split("/"):
        example = example[name]
    return example


def spelled(path: str) -> str:
    return f"`{path}`" if " " in path else path


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


SIGNS: Final = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compare(sign: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if isinstance(left, np.integer) or isinstance(right, np.integer):  # Python's numbers are exact
        left, right = (x.item() if isinstance(x, np.generic) else x for x in (left, right))
    with np.errstate(over="ignore"):
        return bool(SIGNS[sign](left, right))


@st.composite
def literals(draw: st.DrawFn, path: str, *, ordered: bool = False) -> tuple[str, Any]:
    """A literal that may be compared with the column at ``path``: its text, and the value as the reader gives it."""
    if path in PATHS["text"]:
        text = draw(TEXTS)
        return quoted(text), text.encode()
    if path in PATHS["bool"]:
        value = draw(st.booleans())
        return str(value), value
    if path == "label" and not ordered and draw(st.booleans()):
        number = draw(st.integers(0, 2))
        return quoted(CLASSES[number]), number
    if path == "born" and draw(st.booleans()):
        number = draw(st.integers(-2, 2))
        return quoted(str(moment_text(number, DAY))), number
    if path in WHOLE or path in ("label", "born"):
        number = draw(INTEGERS | st.sampled_from([2**53 + 1, 2**63, 2**64, -(2**70), 200, 1.5, 2.0, -0.5]))
    else:
        number = draw(INTEGERS | st.sampled_from([0.1, 0.5, -2.5, 1e-50, 3e38, 7]))
    return repr(number), number


@st.composite
def comparisons(draw: st.DrawFn) -> Expression:
    kind = draw(st.sampled_from(list(PATHS)))
    path = draw(st.sampled_from(PATHS[kind]))
    form = draw(st.sampled_from(["compare", "mirrored", "columns", "chain", "in", "is", "bare"]))
    name = spelled(path)
    if form == "is":
        negated = draw(st.booleans())
        return Expression(
            f"{name} is {'not ' if negated else ''}None", lambda row: (at(row, path) is None) is not negated
        )
    if form == "in":
        items = draw(st.lists(literals(path), max_size=4))
        negated = draw(st.booleans())
        listing = ", ".join(text for text, _ in items)
        brackets = draw(st.sampled_from(["()", "[]"]))

        def contains(row: Row) -> bool | None:
            if at(row, path) is None:
                return None
            return any(compare("==", at(row, path), item) for _, item in items) is not negated

        return Expression(f"{name} {'not ' if negated else ''}in {brackets[0]}{listing}{brackets[1]}", contains)
    if form == "bare" and kind == "bool":
        return Expression(name, lambda row: None if at(row, path) is None else bool(at(row, path)))
    sign = draw(st.sampled_from(list(SIGNS)))
    if form == "columns":
        numbers = st.sampled_from(["id", "tiny", "age", "place/size", "unit price"])
        floats = st.sampled_from(["ratio", "height"])
        path, other = draw(st.tuples(numbers, numbers) | st.tuples(floats, floats) | st.just(("note", "nick")))
        return Expression(
            f"{spelled(path)} {sign} {spelled(other)}", lambda row: compare(sign, at(row, path), at(row, other))
        )
    ordered = sign not in ("==", "!=") or form == "chain"
    text, value = draw(literals(path, ordered=ordered))
    if form == "chain":
        low, least = draw(literals(path, ordered=True))

        def between(row: Row) -> bool | None:
            return both(compare("<=", least, at(row, path)), compare(sign, at(row, path), value))

        return Expression(f"{low} <= {name} {sign} {text}", between)
    if form == "mirrored":
        return Expression(f"{text} {sign} {name}", lambda row: compare(sign, value, at(row, path)))
    return Expression(f"{name} {sign} {text}", lambda row: compare(sign, at(row, path), value))


def both(left: bool | None, right: bool | None) -> bool | None:
    return False if left is False or right is False else None if left is None or right is None else True


def negation(value: bool | None) -> bool | None:
    return None if value is None else not value


def joined(word: str, left: Expression, right: Expression) -> Expression:
    if word == "and":
        return Expression(f"({left.text}) and ({right.text})", lambda row: both(left.test(row), right.test(row)))
    return Expression(
        f"({left.text}) or ({right.text})",
        lambda row: negation(both(negation(left.test(row)), negation(right.test(row)))),
    )


CONDITIONS: Final = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.builds(lambda one: Expression(f"not ({one.text})", lambda row: negation(one.test(row))), inner),
        st.builds(joined, st.sampled_from(["and", "or"]), inner, inner),
    ),
    max_leaves=5,
)


def reader_of(
    rows: Sequence[Row], expression: str = "train", config: ReadConfig | None = None, *, shards: int = 3, **options: Any
) -> Reader:
    """A reader of these rows in some shards; record ``n`` has the id ``n``."""
    lengths = [len(rows) * (shard + 1) // shards - len(rows) * shard // shards for shard in range(shards)]
    store = open_store(f"memory://{uuid4().hex}")
    split = Split(name="train", shard_lengths=ShardLengths(lengths), files=ShardedFileTemplate(dataset="ids"))
    numbered = iter(enumerate(rows))
    for index, length in enumerate(lengths):
        with store.create(split.filename(index)) as file:
            writer = RecordWriter(file)
            for number, row in islice(numbered, length):
                writer.write(codec_of(FEATURES).encode({**row, "id": number}))
    return Reader(
        readable(store, [split], FEATURES), resolve(expression, {"train": split}), read_config=config, **options
    )


def ids(found: Iterator[Row] | Sequence[Row]) -> list[int]:
    return [int(example["id"]) for example in found]


def saved(reader: Reader) -> Any:
    return json.loads(json.dumps(reader.state()))


SEVERAL: Final = st.lists(CONDITIONS, min_size=1, max_size=12)
MANY_ROWS: Final = st.lists(ROWS, max_size=25)


@settings(max_examples=examples(200))
@given(rows=MANY_ROWS, conditions=SEVERAL)
def test_a_condition_is_what_python_says(rows: list[Row], conditions: list[Expression]) -> None:
    reader = reader_of(rows)
    every, block = list(reader), reader[:]
    for condition in conditions:
        expected = [condition.test(example) is True for example in every]
        assert parse_condition(condition.text, FEATURES, TIMES).matches(block).tolist() == expected, condition.text


@settings(max_examples=examples(100))
@given(
    rows=MANY_ROWS,
    condition=CONDITIONS,
    expression=EXPRESSIONS,
    config=CONFIGS,
    size=st.integers(1, 7),
    keep=st.sampled_from([None, "memory"]),
)
def test_a_filtered_reader_equals_brute_force(
    rows: list[Row], condition: Expression, expression: str, config: ReadConfig, size: int, keep: str | None
) -> None:
    whole = reader_of(rows, expression, config, keep=keep)
    every = [example for example in whole if condition.test(example) is True]
    reader = whole.reopened().where(condition.text)
    assert ids(list(reader)) == ids(every), condition.text
    first = ids(every)[: len(reader)]
    assert len(reader) * (config.repeat or 1) == len(every)
    again = reader.reopened()
    assert [number for batch in again.batches(size) for number in batch["id"].tolist()] == ids(every)
    assert reader[:]["id"].tolist() == first
    assert ids(reader.examples_at(range(len(reader)))) == first
    assert [int(reader[place]["id"]) for place in range(-len(reader), 0)] == first
    assert reader.to_numpy()["id"].tolist() == first
    assert reader.to_arrow()["id"].to_pylist() == first
    assert [reader.to_grain()[place]["id"] for place in range(len(reader))] == first
    assert ids([codec_of(FEATURES).decode(record) for record in reader.reopened().records()]) == ids(every)
    known = dict(zip(whole.reopened().ids(), ids(list(whole.reopened())), strict=True))
    assert [known[name] for name in reader.reopened().ids()] == ids(every)
    copy = pickle.loads(pickle.dumps(reader.reopened()))  # noqa: S301 (made here)
    assert ids(list(copy)) == ids(every)
    assert ids(list(reader.reopened().select("id"))) == ids(every)
    assert reader.record_numbers()["train"].tolist() == first


@settings(max_examples=examples(100))
@given(rows=MANY_ROWS, condition=CONDITIONS, config=CONFIGS, counts=st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_processes_share_the_matching_examples_and_resume_with_another_number(
    rows: list[Row], condition: Expression, config: ReadConfig, counts: tuple[int, int]
) -> None:
    every = sorted(ids([row for row in reader_of(rows, config=config) if condition.test(row) is True]))
    before, after = counts
    whole = reader_of(rows, config=config)
    readers = [whole.reopened(process=(index, before)).where(condition.text) for index in range(before)]
    sizes = [len(reader) for reader in readers]
    assert max(sizes) - min(sizes) <= 1
    seen = list(chain.from_iterable(ids(list(islice(reader, 2 + place))) for place, reader in enumerate(readers)))
    states = [saved(reader) for reader in readers]
    for index in range(after):
        seen += ids(list(whole.reopened(process=(index, after)).where(condition.text, state=states)))
    assert sorted(seen) == every


@settings(max_examples=examples(100))
@given(rows=MANY_ROWS, condition=CONDITIONS, config=CONFIGS, data=st.data())
def test_a_filtered_read_resumes_at_any_place_and_only_with_its_own_filter(
    rows: list[Row], condition: Expression, config: ReadConfig, data: st.DataObject
) -> None:
    whole = reader_of(rows, config=config)
    reader = whole.where(condition.text)
    uncut = ids(list(whole.where(condition.text)))
    place = data.draw(st.integers(0, len(uncut)))
    head = ids(list(islice(reader, place)))
    state = saved(reader)
    assert head + ids(list(whole.where(condition.text, state=state))) == uncut
    assert ids(list(reader.reopened(state=state))) == uncut[place:]
    other = whole.where(f"not ({condition.text})") if len(reader) else whole.where("id >= 0")
    if len(rows):
        for stranger in (other, whole):
            with pytest.raises(StateMismatchError) as caught:
                stranger.reopened(state=state)
            assert caught.value.details["differs"] == "plan"


@settings(max_examples=examples(100))
@given(rows=MANY_ROWS, conditions=st.tuples(CONDITIONS, CONDITIONS), config=CONFIGS, data=st.data())
def test_a_filter_continues_with_the_next_match_after_the_place_of_its_reader(
    rows: list[Row], conditions: tuple[Expression, Expression], config: ReadConfig, data: st.DataObject
) -> None:
    condition, before = conditions
    is_filtered = data.draw(st.booleans())
    whole = reader_of(rows, config=config)
    whole = whole.where(before.text) if is_filtered else whole
    uncut = list(whole.reopened())
    place = data.draw(st.integers(0, len(uncut)))
    head = list(islice(whole, place))
    assert ids(head) == ids(uncut[:place])
    expected = [row for row in uncut[place:] if condition.test(row) is True]
    resumed = whole.reopened(state=saved(whole))
    assert ids(list(resumed.where(condition.text))) == ids(expected)
    if place < len(uncut):
        rest = whole.where(condition.text)
        assert ids(list(rest)) == ids(expected)
        assert [number for (number,) in whole.as_supervised("id").where(condition.text)] == ids(expected)
        again = whole.where(condition.text)
        start = data.draw(st.integers(0, len(expected)))
        assert ids(list(islice(again, start))) == ids(expected[:start])
        assert ids(list(again.reopened(state=saved(again)))) == ids(expected[start:])
        assert ids(list(rest)) == ids([row for row in whole if condition.test(row) is True])  # the next epoch


def test_a_shared_epoch_is_filtered_at_its_start_only() -> None:
    row = dict.fromkeys(("tiny", "big", "ratio", "exact", "label", "born", "unit price"), 0)
    texts = {"note": "", "nick": None, "age": None, "height": None, "sure": None, "flag": False}
    rows = [{**row, **texts, "place": {"name": "", "size": 0}}] * 12
    reader = reader_of(rows, config=ReadConfig(shuffle="global", seed=1), process=(1, 2))
    next(iter(reader))
    for begun in (reader, reader.reopened(state=reader.state())):
        with pytest.raises(UsageError) as caught:
            begun.where("id > 3")
        assert caught.value.message == (
            "a reader that shares an epoch with other processes cannot be filtered in the middle of it"
        )
        assert caught.value.hint == (
            "Filter a reader that was not iterated, and pass the state of a filtered one: where(..., state=)."
        )
    start = reader.reopened()
    first = ids(list(start))
    assert len(first) == 6
    following = start.where("id >= 0")  # the place is the start of the next epoch
    assert ids(list(following)) == ids(list(start))


@settings(max_examples=examples(100))
@given(rows=MANY_ROWS, first=CONDITIONS, second=CONDITIONS, config=CONFIGS)
def test_filters_follow_each_other(rows: list[Row], first: Expression, second: Expression, config: ReadConfig) -> None:
    whole = reader_of(rows, config=config)
    both_at_once = whole.where(f"({first.text}) and ({second.text})")
    assert ids(list(whole.where(first.text).where(second.text))) == ids(list(both_at_once))
    expression = "+".join(f"train[{n}:{n + 1}]" for n in sorted(both_at_once.record_numbers()["train"]))
    if expression:
        assert sorted(both_at_once[:]["id"].tolist()) == reader_of(rows, expression)[:]["id"].tolist()


@settings(max_examples=examples(60))
@given(rows=st.lists(ROWS, min_size=1, max_size=12), condition=CONDITIONS)
def test_a_filter_sees_the_values_that_its_reader_gives(rows: list[Row], condition: Expression) -> None:
    filled = reader_of(rows).fill_missing({"age": -1, "height": 0.5, "nick": b"a", "sure": True})
    expected = ids([row for row in filled if condition.test(row) is True])
    assert ids(list(filled.where(condition.text))) == expected


def bounds_of(examples: Sequence[Row], path: str, *, wider: bool) -> Bounds | None:
    """The bounds of a column of a block; None if a value is missing, or if all are NaN."""
    values = [at(example, path) for example in examples]
    numbers = [value for value in values if value == value]  # noqa: PLR0124 (NaN)
    if None in values or not numbers:
        return None
    least, greatest = min(numbers), max(numbers)
    if wider and path in ("place/size", "unit price", "id"):
        least, greatest = least - 1 if least > -(2**15) else least, greatest + 1 if greatest < 2**15 - 1 else greatest
    return least, greatest


@settings(max_examples=examples(200))
@given(rows=st.lists(ROWS, max_size=6), conditions=SEVERAL, wider=st.booleans(), data=st.data())
def test_a_block_is_skipped_only_if_none_of_its_examples_matches(
    rows: list[Row], conditions: list[Expression], wider: bool, data: st.DataObject
) -> None:
    block = list(reader_of(rows))
    paths = sorted(data.draw(st.sets(st.sampled_from(sorted(chain.from_iterable(PATHS.values()))))))
    bounds = {path: edges for path in paths if (edges := bounds_of(block, path, wider=wider)) is not None}
    for condition in conditions:
        if any(condition.test(example) is True for example in block):
            assert parse_condition(condition.text, FEATURES, TIMES).may_match(bounds), condition.text


def may_match(text: str, **columns: Bounds) -> bool:
    bounds = {name.replace("__", "/"): edges for name, edges in columns.items()}
    parsed: Condition = parse_condition(text, FEATURES, TIMES)
    return parsed.may_match(bounds)


def test_bounds_rule_out_blocks() -> None:
    assert not may_match("id > 10", id=(0, 10))
    assert may_match("id >= 10", id=(0, 10))
    assert not may_match("3 < id < 5 and tiny == 7", id=(0, 3), tiny=(7, 7))
    assert not may_match("not (id >= 0)", id=(0, 3))
    assert may_match("not (ratio >= 0)", ratio=(0, 3))  # NaN
    assert not may_match("ratio > 3", ratio=(0, 3))
    assert not may_match("label in ('cat', 'two words')", label=(1, 1))
    assert may_match("label in ('cat', 'two words')", label=(0, 1))
    assert not may_match("label not in ('dog',)", label=(1, 1))
    assert not may_match("age is None", age=(0, 3))
    assert may_match("age is not None", age=(0, 3))
    assert may_match("age is None")
    assert not may_match("note < 'b'", note=(b"b", b"c"))
    assert not may_match("born < '2024-01-01'", born=(19_730, 19_731))
    assert not may_match("id > tiny", id=(0, 3), tiny=(3, 9))
    assert not may_match("id != 3", id=(3, 3))
    assert not may_match("flag", flag=(False, False))
    assert not may_match("place/size == 4", place__size=(5, 9))
    assert may_match("id > 10 or tiny > 10", id=(0, 10))  # nothing is known of tiny
    assert may_match("id != 3", id=(3, 4))
    assert may_match("id != 3", id=(2, 3))
    assert may_match("not (ratio in (1,))", ratio=(1, 1))  # NaN
    assert may_match("ratio != 1", ratio=(1, 1))


@given(text=st.text(max_size=60) | st.lists(st.sampled_from(
    ["id", "note", "label", "(", ")", "[", "]", ",", "and", "or", "not", "in", "is", "None", "True", "==", "<", "'cat'",
     "1", "-2.5", "`", "'", "\\", "\0", "place", "place/name", "1e5", "__import__('os')"]), max_size=12).map(" ".join)
)  # fmt: skip
def test_any_text_is_a_condition_or_a_usage_error(text: str) -> None:
    refused: UsageError | None = None
    try:
        parse_condition(text, FEATURES, TIMES)
    except UsageError as error:
        refused = error
    if refused is not None:
        assert refused.hint
        start, stop = refused.details["start"], refused.details["stop"]
        assert 0 <= start < stop <= max(len(text), start + 1)


@given(
    value=st.integers(-(10**15), 10**15),
    time=st.sampled_from(
        [
            DAY,
            TimeType("date", "ms"),
            *(TimeType(kind, unit, zone) for kind, zone in (("timestamp", None), ("timestamp", "UTC"), ("time", None))
              for unit in ("s", "ms", "us", "ns")),
        ]
    ),
)  # fmt: skip
def test_a_moment_is_parsed_as_it_is_printed(value: int, time: TimeType) -> None:
    days = {"D": 1, "s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}[time.unit]
    value %= days if time.kind == "time" else 30_000 * days
    value -= value % days if time.kind == "date" else 0
    for iso in (False, True):
        text = moment_text(value, time, iso=iso)
        assert text is not None
        assert parse_moment_text(text, time) == value
