"""Laws of encoding in blocks: an example encoded in a block gives the same bytes as one encoded alone."""

from __future__ import annotations

import io
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from property.test_wire_laws import EXAMPLES
from support.block_checks import joined
from support.feature_strategies import schemas, values

from registry.building.encoding import CollectedExamples
from registry.features import Dataset, FeaturesDict, Image, NestedExamples, Ragged, Sequence, Tensor, codec_of
from registry.features.example_table import ExampleTable
from registry.wire import BlockDecoder, FlatValue, decode_example, encode_block, encode_example


@st.composite
def schemas_and_examples(draw: st.DrawFn) -> tuple[FeaturesDict, list[dict[str, Any]]]:
    """A schema and examples of it; a few different ones, each of them maybe many times."""
    features = draw(schemas())
    different = [values(draw, features) for _ in range(draw(st.integers(0, 4)))]
    order = draw(st.lists(st.sampled_from(range(len(different))), max_size=20)) if different else []
    # A block of less than eight examples is encoded one by one.
    return features, [different[place] for place in order] * draw(st.sampled_from([1, 2, 8]))


def check(features: FeaturesDict, examples: list[Any] | ExampleTable) -> None:
    """A block has the records, and the error, that encoding one example after the other gives."""
    records, fault = [], None
    for example in examples:
        try:
            records.append(codec_of(features).encode(example))
        except Exception as error:  # noqa: BLE001 - any error of the values
            fault = error
            break
    block = codec_of(features).encode_block(examples)
    assert block.records() == records
    assert outline(block.fault) == outline(fault)


def outline(error: Exception | None) -> object:
    """The type, the message, the hint and the details of an error."""
    return (
        error if error is None else (type(error), error.args, getattr(error, "hint", 0), getattr(error, "details", 0))
    )


@given(schemas_and_examples())
def test_a_block_is_its_examples_one_by_one(given_: tuple[FeaturesDict, list[dict[str, Any]]]) -> None:
    check(*given_)


@given(schemas_and_examples(), st.data())
def test_examples_that_were_collected_are_encoded_as_they_were(
    given_: tuple[FeaturesDict, list[dict[str, Any]]], data: st.DataObject
) -> None:
    features, examples = given_
    if examples and features and data.draw(st.booleans()):  # an example that may not fit
        place = data.draw(st.integers(0, len(examples) - 1))
        name = data.draw(st.sampled_from(list(features)))
        examples[place] = {**examples[place], name: data.draw(st.sampled_from(["x", 1, None, np.zeros((1, 2))]))}
    collected = CollectedExamples()
    for example in examples:
        collected.add(example)
    found, expected = (
        codec_of(features).encode_block(one) for one in (collected.collected()[: len(examples)], examples)
    )
    assert found.records() == expected.records()
    assert outline(found.fault) == outline(expected.fault)


@given(schemas_and_examples())
def test_examples_of_equal_form_are_encoded_as_one_by_one(given_: tuple[FeaturesDict, list[dict[str, Any]]]) -> None:
    features, examples = given_
    codec = codec_of(features)
    decoded = [codec.decode(codec.encode(example)) for example in examples]
    check(features, decoded)
    check(features, plain(decoded))
    check(features, plain(decoded) + decoded)


def plain(value: Any) -> Any:
    """``value`` as Python values: lists for arrays, int and float for scalars."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, NestedExamples):
        return plain(value.columns())
    if isinstance(value, Ragged):
        return plain(list(value))
    if isinstance(value, list):
        return list(map(plain, value))
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


@given(schemas_and_examples(), st.data())
def test_a_table_of_examples_is_encoded_as_its_examples(
    given_: tuple[FeaturesDict, list[dict[str, Any]]], data: st.DataObject
) -> None:
    features, examples = given_
    codec = codec_of(features)
    columns: dict[str, Any] = {}
    for name in features:
        columns[name] = [codec.decode(codec.encode(example))[name] for example in examples]
        shapes = {value.shape if isinstance(value, np.ndarray) else () for value in columns[name]}
        if len(shapes) == 1 and shapes != {()} and columns[name][0].dtype != object:
            columns[name] = np.stack(columns[name])
        elif columns[name] and not data.draw(st.integers(0, 5)):
            columns[name][data.draw(st.integers(0, len(examples) - 1))] = data.draw(st.sampled_from(ODD))
    check(features, ExampleTable(len(examples), columns))


ODD = [
    None,
    -1,
    2,
    0.5,
    np.nan,
    300,
    2**40,
    2**63,
    "x",
    b"x",
    "\ud800",
    True,
    [],
    [1],
    {},
    np.zeros(2),
    np.int8(1),
    object(),
]


@given(schemas_and_examples(), st.data())
def test_a_block_ends_at_the_example_that_does_not_fit(
    given_: tuple[FeaturesDict, list[dict[str, Any]]], data: st.DataObject
) -> None:
    features, examples = given_
    for _ in range(data.draw(st.integers(1, 3)) if examples else 0):
        place = data.draw(st.integers(0, len(examples) - 1))
        examples[place] = changed(examples[place], data)
    check(features, examples)


def changed(value: Any, data: st.DataObject) -> Any:
    """``value`` with a part of it replaced, removed or added."""
    if isinstance(value, dict) and value and data.draw(st.integers(0, 5)):
        name = data.draw(st.sampled_from([*value, "other"]))
        found = {**value, name: changed(value.get(name), data)}
        if not data.draw(st.integers(0, 5)):
            del found[name]
        return found
    if isinstance(value, list) and value and data.draw(st.integers(0, 5)):
        place = data.draw(st.integers(0, len(value) - 1))
        return [*value[:place], changed(value[place], data), *value[place + data.draw(st.integers(0, 1)) :]]
    return data.draw(st.sampled_from(ODD))


def test_values_that_are_read_once_are_read_once() -> None:
    features = FeaturesDict({"id": "int64", "steps": Dataset({"x": "int64"}), "image": Image(shape=(2, 2, 1))})
    png = codec_of(FeaturesDict({"x": Image(shape=(2, 2, 1))})).flatten({"x": np.zeros((2, 2, 1), np.uint8)})["x"][0]

    def examples() -> list[dict[str, Any]]:
        return [
            {"id": place, "steps": iter([{"x": 5}] * 3), "image": io.BytesIO(png)} for place in (*range(9), "no", 4)
        ]

    block = codec_of(features).encode_block(examples())
    assert block.records() == [codec_of(features).encode(example) for example in examples()[:9]]
    assert str(block.fault) == "feature 'id': expected dtype int64, found 'no'"
    rest = examples()
    assert codec_of(features).encode_block(rest).num_records == 9
    assert codec_of(features).encode_block(rest[10:]).records() == [codec_of(features).encode(examples()[10])]


def test_a_feature_class_that_changes_only_flatten_is_honoured() -> None:
    @dataclass(frozen=True, kw_only=True, repr=False)
    class Doubled(Tensor):
        def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
            return super().flatten(np.multiply(value, 2), path)

    features = FeaturesDict({"x": Doubled(shape=(2,), dtype="int64")})
    check(features, [{"x": np.array([place, 1])} for place in range(9)])
    first = decode_example(codec_of(features).encode_block([{"x": [1, 3]}] * 9).records()[0])
    assert np.asarray(first["x"]).tolist() == [2, 6]


def test_a_whole_number_is_not_rounded_by_its_neighbours() -> None:
    large = 2**53 + 1
    for dtype in ("int64", "uint64", "float32", "float64"):
        for pair in (
            [large, 0.5],
            [large, 1.0],
            [0.5, 2**53],
            [1, 2.0],
            [-large, 2.0],
            [2**63, 1],
            [2**63 + 2**39 + 1, 1],
            [2**63, -1],
            [True, 2],
        ):
            features = FeaturesDict({"x": dtype, "list": Sequence(dtype), "row": Tensor(shape=(2,), dtype=dtype)})
            check(features, [{"x": x, "list": pair, "row": pair} for x in pair] * 8)
            check(features, [{"x": 1, "list": [x], "row": [x, x]} for x in pair] * 8)


@given(st.lists(EXAMPLES, max_size=5), st.data())
def test_the_columns_of_a_block_are_encoded_as_its_records(
    examples: list[dict[str, FlatValue]], data: st.DataObject
) -> None:
    different = list(map(encode_example, examples))
    order = data.draw(st.lists(st.sampled_from(range(len(different))), max_size=40)) if different else []
    check_columns([different[place] for place in order] * data.draw(st.sampled_from([1, 2, 5])))


def check_columns(records: list[bytes]) -> None:
    """Decoding ``records`` to columns, and encoding these, gives the same records."""
    block = BlockDecoder().decode(*joined(records))
    encoded = encode_block(block.num_records, [block])
    assert encoded.records() == records


SIZES = [0, 1, 62, 63, 64, 65, 120, 127, 128, 129, 511, 512, 513, 600, 2**14 - 1, 2**14, 2**14 + 1]


def test_contents_of_any_sizes_are_encoded_at_once() -> None:
    chance = np.random.default_rng(0)
    texts = [chance.bytes(size) for size in SIZES]
    numbers = [np.int64(sign * 2**bits - less) for bits in range(63) for sign, less in product((-1, 1), (0, 1))]
    numbers.append(np.int64(-(2**63)))
    records = []
    for place, text in enumerate(texts * 20):
        some = chance.integers(0, len(numbers), place % 7 % 4)
        flat: dict[str, FlatValue] = {
            "text": [text],
            "number": np.array([numbers[place % len(numbers)]]),
            "numbers": np.array([numbers[at] for at in some], np.int64),
            "floats": chance.random(place % 5, np.float32),
            "texts": [texts[at % len(texts)] for at in some],
        }
        records.append(encode_example({key: flat[key] for key in flat if chance.random() < 0.7}))
        records.append(encode_example({"text": [text], "pixels": np.arange(9), "words": [b"a", b"bc"]}))
    check_columns(records)
    check_columns(records[1::2])
    check_columns([encode_example({"last": [text]}) for text in texts])
