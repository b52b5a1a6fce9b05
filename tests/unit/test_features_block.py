"""Blocks of examples: the form of columns, shared memory, and the state after a bad record."""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest
from support.block_checks import joined

from registry.errors import CorruptExampleError, MissingExtraError
from registry.features import FeaturesDict, Image, Ragged, Scalar, Sequence, Tensor, Text, codec_of
from registry.features.content import ContentReader
from registry.images import pictures
from registry.wire import encode_example

FEATURES = FeaturesDict(
    {"label": Scalar("int64"), "vec": Tensor(shape=(8,), dtype="float32"), "id": Text(), "inner": {"score": "float16"}}
)
IMAGES = FeaturesDict({"image": Tensor(shape=(4, 5), dtype="uint8", encoding="bytes"), "name": Text()})


def example(number: int) -> dict[str, Any]:
    return {"label": number, "vec": np.arange(8) + number, "id": f"{number:03}", "inner": {"score": number / 2}}


def image(number: int) -> dict[str, Any]:
    return {"image": np.full((4, 5), number), "name": f"{number:03}"}


def records(features: FeaturesDict, examples: Iterator[dict[str, Any]]) -> list[bytes]:
    return [codec_of(features).encode(one) for one in examples]


@pytest.mark.parametrize("number", [1, 12, 13, 64, 65, 300])
def test_columns_are_arrays_nested_as_an_example_is(number: int) -> None:
    columns = codec_of(FEATURES).decode_block(*joined(records(FEATURES, map(example, range(number))))).columns()
    assert list(columns) == ["label", "vec", "id", "inner"]
    assert columns["label"].dtype == np.int64
    assert columns["label"].tolist() == list(range(number))
    assert columns["vec"].dtype == np.float32
    np.testing.assert_array_equal(columns["vec"], np.arange(8) + np.arange(number)[:, np.newaxis])
    assert columns["id"].dtype == object
    assert columns["id"].tolist() == [f"{place:03}".encode() for place in range(number)]
    assert columns["inner"]["score"].dtype == np.float16
    assert columns["inner"]["score"].tolist() == [place / 2 for place in range(number)]


def test_columns_of_zero_records_have_the_declared_shapes() -> None:
    features = FeaturesDict(
        {
            "box": Tensor(shape=(2, None), dtype="uint8"),
            "text": Text(),
            "texts": Sequence(Text()),
            "deep": Sequence(Sequence("int64")),
            "image": Image(shape=(None, 4, 3)),
        }
    )
    block = codec_of(features).decode_block(*joined([]))
    columns = block.columns()
    assert {name: (column.shape, column.dtype.name) for name, column in columns.items()} == {
        "box": ((0, 2, 0), "uint8"),
        "text": ((0,), "object"),
        "texts": ((0, 0), "object"),
        "deep": ((0,), "object"),
        "image": ((0, 0, 4, 3), "uint8"),
    }
    assert list(block.examples()) == []


@pytest.mark.parametrize("number", [10, 100])
def test_values_of_different_shapes_are_an_object_array(number: int) -> None:
    features = FeaturesDict({"a": Sequence("int32"), "b": Sequence(Text()), "c": Sequence(Sequence("int64"))})
    examples = [{"a": [1] * (n % 3), "b": ["x"] * (n % 2), "c": [[1]] * (n % 2)} for n in range(number)]
    columns = codec_of(features).decode_block(*joined(records(features, iter(examples)))).columns()
    for column in columns.values():
        assert (column.shape, column.dtype) == ((number,), object)
    assert [value.dtype for value in columns["a"][:3]] == [np.int32] * 3
    assert [value.tolist() for value in columns["a"][:3]] == [[], [1], [1, 1]]
    assert [value.tolist() for value in columns["b"][:2]] == [[], [b"x"]]
    assert columns["c"][1] == Ragged(np.array([1]), [np.array([1])])


@pytest.mark.parametrize("number", [10, 100])
def test_sequences_of_one_length_are_stacked(number: int) -> None:
    features = FeaturesDict({"a": Sequence("int32"), "b": Sequence(Tensor(shape=(2,), dtype="float32"))})
    examples = [{"a": [n, n, n], "b": np.full((4, 2), n)} for n in range(number)]
    columns = codec_of(features).decode_block(*joined(records(features, iter(examples)))).columns()
    assert columns["a"].shape == (number, 3)
    assert columns["b"].shape == (number, 4, 2)


def test_without_copies_images_are_views_and_large_texts_memoryviews() -> None:
    large = ({**image(number), "name": f"{number:03}" * 200} for number in range(100))
    data, offsets, lengths = joined(records(IMAGES, large))
    columns = codec_of(IMAGES).decode_block(data, offsets, lengths, copy=False).columns()
    assert np.shares_memory(columns["image"], data)
    assert not columns["image"].flags.writeable
    assert columns["image"].shape == (100, 4, 5)
    assert isinstance(columns["name"][7], memoryview)
    assert columns["name"][7].readonly
    assert columns["name"][7] == b"007" * 200
    small = codec_of(IMAGES).decode_block(*joined(records(IMAGES, map(image, range(100)))), copy=False).columns()
    assert small["name"][7] == b"007"
    assert isinstance(small["name"][7], bytes)  # a copy costs less than a view
    for one in codec_of(IMAGES).decode_block(data, offsets, lengths, copy=False).examples():
        assert np.shares_memory(one["image"], data)


def test_without_copies_a_writable_buffer_is_not_written_to_through_a_value() -> None:
    large = ({**image(number), "name": f"{number:03}" * 200} for number in range(100))
    data, offsets, lengths = joined(records(IMAGES, large))
    data = data.copy()
    one = next(codec_of(IMAGES).decode_block(data, offsets, lengths, copy=False).examples())
    assert not one["image"].flags.writeable
    assert one["name"].readonly
    assert data.flags.writeable


@pytest.mark.parametrize("size", [(4, 5), (200, 300)])
def test_copied_examples_share_no_memory(size: tuple[int, int]) -> None:
    features = FeaturesDict({"image": Tensor(shape=size, dtype="uint8", encoding="bytes"), "vec": FEATURES["vec"]})
    examples = ({"image": np.full(size, n), "vec": np.full(8, n)} for n in range(20))
    data, offsets, lengths = joined(records(features, examples))
    block = codec_of(features).decode_block(data, offsets, lengths)
    columns = block.columns()
    found = list(block.examples())
    for name in features:
        found[3][name][...] = 99
        assert not np.shares_memory(columns[name], data)
        assert not np.shares_memory(columns[name], found[3][name])
        assert (columns[name][3] == 3).all()
        assert (found[2][name] == 2).all()


def test_a_kept_example_keeps_only_a_part_of_its_block_in_memory() -> None:
    kept = next(codec_of(FEATURES).decode_block(*joined(records(FEATURES, map(example, range(3000))))).examples())
    assert kept["vec"].base.size <= 512 * 8


def bad_at(place: int, number: int) -> list[bytes]:
    made = records(FEATURES, map(example, range(number)))
    flat = codec_of(FEATURES).flatten(example(place))
    flat["vec"] = flat["vec"][:7]
    made[place] = encode_example(flat)
    return made


@pytest.mark.parametrize("number", [10, 100])
@pytest.mark.parametrize("copy", [True, False])
def test_examples_before_a_bad_record_are_given(number: int, copy: bool) -> None:
    block = codec_of(FEATURES).decode_block(*joined(bad_at(7, number)), copy=copy)
    found = []
    with pytest.raises(CorruptExampleError) as caught:
        found.extend(block.examples())
    assert caught.value.message == "feature 'vec': expected values of shape (8,), found 7 values"
    assert caught.value.details == {
        "feature": "vec",
        "problem": "expected values of shape (8,), found 7 values",
        "record": 7,
    }
    assert [one["label"] for one in found] == list(range(7))
    assert len(block) == 7


def test_columns_of_a_block_with_a_bad_record_are_refused_and_earlier_records_are_readable() -> None:
    block = codec_of(FEATURES).decode_block(*joined(bad_at(7, 100)))
    with pytest.raises(CorruptExampleError, match="expected values of shape"):
        block.columns()
    columns = block.sound.columns()
    assert columns["vec"].shape == (7, 8)
    assert columns["label"].tolist() == list(range(7))
    assert block.sound.fault is None


def test_the_first_bad_record_is_reported_with_any_fault() -> None:
    made = bad_at(50, 100)
    made[30] = b"\xff"
    made[40] = encode_example({**codec_of(FEATURES).flatten(example(40)), "label": [b"5"]})
    assert (
        codec_of(FEATURES)
        .decode_block(*joined(made))
        .fault.message.startswith("these 1 bytes are not a tf.train.Example")
    )
    made[20] = made[40]
    fault = codec_of(FEATURES).decode_block(*joined(made)).fault
    assert (fault.message, fault.details["record"]) == (
        "feature 'label': expected int64 values, found bytes",
        20,
    )


def test_of_two_features_that_are_wrong_in_a_record_the_first_is_named() -> None:
    made = records(FEATURES, map(example, range(100)))
    made[5] = encode_example({"label": np.array([1, 2]), "vec": np.ones(3, np.float32)})
    assert codec_of(FEATURES).decode_block(*joined(made)).fault.message == "feature 'label': expected 1 value, found 2"


@pytest.mark.parametrize(
    ("feature", "problem"),
    [
        (Text(), "expected 1 value, found 2"),
        (Scalar("float64", encoding="bytes"), "expected 1 stored arrays, found 2"),
    ],
)
def test_a_record_with_two_values_among_others_with_one_is_named(feature: Any, problem: str) -> None:
    features = FeaturesDict({"a": feature})
    made = [encode_example({"a": [b"12345678"]})] * 90
    made[70] = encode_example({"a": [b"12345678", b""]})
    fault = codec_of(features).decode_block(*joined(made)).fault
    assert (fault.message, fault.details["record"]) == (f"feature 'a': {problem}", 70)
    block = codec_of(features).flat_records(*joined(made))
    with pytest.raises(CorruptExampleError, match=problem):
        ContentReader(features).hash_block(block, [(90, [hashlib.sha256()])])


def test_a_missing_extra_is_not_blamed_on_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    features = FeaturesDict({"image": Image(encoding_format="jpeg")})
    made = records(features, iter([{"image": np.zeros((4, 4, 3), np.uint8)}] * 20))
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setattr(pictures, "jpeg_library", lambda: None)
    with pytest.raises(MissingExtraError):
        codec_of(features).decode(made[0])
    with pytest.raises(MissingExtraError):
        list(codec_of(features).decode_block(*joined(made)).examples())


def test_features_that_have_decoded_blocks_are_pickled_without_their_caches() -> None:
    codec_of(FEATURES).decode_block(*joined(records(FEATURES, map(example, range(100)))))
    assert pickle.loads(pickle.dumps(FEATURES)) == FEATURES  # noqa: S301 - our own bytes


def test_lists_that_were_left_out_where_empty_are_empty() -> None:
    features = FeaturesDict({"a": Sequence("int64"), "b": Sequence(Text()), "id": "int64"})
    whole = codec_of(features).flatten({"a": [1, 2], "b": ["x"], "id": 5})
    made = [encode_example(whole), encode_example({"id": whole["id"]}), encode_example({**whole, "a": []})] * 40
    columns = codec_of(features).decode_block(*joined(made)).columns()
    assert [value.tolist() for value in columns["a"][:3]] == [[1, 2], [], []]
    assert [value.tolist() for value in columns["b"][:3]] == [[b"x"], [], [b"x"]]
    assert {value.dtype for value in columns["a"]} == {np.dtype(np.int64)}


LISTS = FeaturesDict(
    {
        "deep": Sequence(Sequence("float16")),
        "pairs": Sequence(Sequence(Tensor(shape=(2,), dtype="uint64"), length=2)),
        "rows": Sequence(Sequence(Sequence("bool")), length=2),
        "same": Sequence(Sequence("int8", length=1), length=3),
        "words": Sequence(Sequence(Text())),
        "wide": Tensor(shape=(2, None, 3), dtype="int32"),
    }
)


def lists(number: int) -> dict[str, Any]:
    return {
        "deep": [[number, -0.0]] * (number % 3) + [[]] * (number % 2),
        "pairs": [[[number, 2**64 - 1], [1, 2]]] * (number % 4),
        "rows": [[[True] * (number % 3), []], [] if number % 2 else [[False]]],
        "same": [[number % 100]] * 3,
        "words": [["a", "bc"][: number % 3]] * (number % 2),
        "wide": np.full((2, number % 5, 3), number),
    }


@pytest.mark.parametrize("copy", [True, False])
def test_lists_of_lists_are_decoded_and_hashed_together_as_one_by_one(copy: bool) -> None:
    made = records(LISTS, map(lists, range(100)))
    codec, reader = codec_of(LISTS), ContentReader(LISTS)
    block = codec.flat_records(*joined(made))
    assert None not in [column.read_block(block.flats[0], copy=copy) for column in codec.columns]
    decoded = list(codec.decode_block(*joined(made), copy=copy).examples())
    for record, found in zip(made, decoded, strict=True):
        for name, value in codec.decode(record).items():
            assert np.array_equal(found[name], value) if name == "wide" else found[name] == value
            assert found[name].dtype == value.dtype
    contents = [b"".join(map(bytes, chain.from_iterable(runs))) for runs in reader.read_block(block, [0, 33, 33, 100])]
    assert contents == [b"".join(parts) for parts in zip(*map(reader.read, made), strict=True)]


@pytest.mark.parametrize(
    ("lengths", "problem"),
    [
        ([1, 1], "row lengths of level 0 do not add up to 3"),
        ([4, -1], "row lengths of level 0 do not add up to 3"),
        ([2**62, 2**62, 2**62, 2**62, 3], "row lengths of level 0 do not add up to 3"),
    ],
)
def test_row_lengths_that_do_not_add_up_are_reported_as_for_one_record(lengths: list[int], problem: str) -> None:
    features = FeaturesDict({"a": Sequence(Sequence("int64"))})
    values = np.arange(3)
    good = encode_example({"a/ragged_flat_values": values, "a/ragged_row_lengths_0": np.array([3, 0])})
    bad = encode_example({"a/ragged_flat_values": values, "a/ragged_row_lengths_0": np.array(lengths)})
    # The sums over all records are right: only those of records 70 and 71 are not.
    other = encode_example({"a/ragged_flat_values": values, "a/ragged_row_lengths_0": np.array([2, 2])})
    made = [good] * 70 + [bad, other] + [good] * 20
    fault = codec_of(features).decode_block(*joined(made)).fault
    assert (fault.message, fault.details["record"]) == (f"feature 'a': {problem}", 70)
    with pytest.raises(CorruptExampleError, match=problem):
        ContentReader(features).hash_block(codec_of(features).flat_records(*joined(made)), [(92, [hashlib.sha256()])])


def test_rows_that_do_not_have_their_declared_length_are_reported() -> None:
    for features, lengths in (
        (FeaturesDict({"a": Sequence(Sequence("int64", length=2))}), [3, 1]),
        (FeaturesDict({"a": Sequence(Sequence("int64"), length=2)}), [1, 1, 2]),
    ):
        made = [encode_example({"a/ragged_flat_values": np.arange(4), "a/ragged_row_lengths_0": np.array([2, 2])})] * 80
        made[7] = encode_example({"a/ragged_flat_values": np.arange(4), "a/ragged_row_lengths_0": np.array(lengths)})
        fault = codec_of(features).decode_block(*joined(made)).fault
        assert fault.details["record"] == 7
        assert "does not have the declared length 2" in fault.message
