"""FeaturesDict and Sequence: keys as TFDS writes them, both forms of a sequence of dicts, ragged values."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.golden import check_errors

from registry.errors import CorruptExampleError, FeatureError
from registry.features import (
    BBox,
    ClassLabel,
    FeaturesDict,
    Image,
    Ragged,
    Scalar,
    Sequence,
    Tensor,
    Text,
    codec_of,
    features_to_json,
)

GOLDEN = Path(__file__).with_name("golden")

OBJECTS = FeaturesDict({"objects": Sequence({"name": Text(), "at": {"box": BBox()}, "tags": Sequence(Text())})})


def test_a_schema_is_printed_as_tfds_prints_it() -> None:
    features = FeaturesDict({"id": "int64", "box": {"height": "uint8", "note": Text()}})
    assert str(features) == (
        "FeaturesDict({\n"
        "    'id': Tensor(shape=(), dtype=int64),\n"
        "    'box': FeaturesDict({\n"
        "        'height': Tensor(shape=(), dtype=uint8),\n"
        "        'note': Text(),\n"
        "    }),\n"
        "})"
    )
    assert "\n" not in repr(features)


def test_nested_names_are_joined_and_ragged_levels_are_stored_as_tfds_does() -> None:
    features = FeaturesDict({"a": {"b": "int32"}, "r": Sequence(Sequence(Sequence("int64")))})
    flat = codec_of(features).flatten({"a": {"b": 5}, "r": [[[1, 2], []], [], [[3]]]})
    assert {key: list(value) for key, value in flat.items()} == {
        "a/b": [5],
        "r/ragged_flat_values": [1, 2, 3],
        "r/ragged_row_lengths_0": [2, 0, 1],
        "r/ragged_row_lengths_1": [2, 0, 1],
    }


def test_sequence_of_dicts_takes_both_forms() -> None:
    box = (0.0, 0.25, 0.5, 1.0)
    listed = [{"name": "a", "at": {"box": box}, "tags": ["x"]}, {"name": "b", "at": {"box": box}, "tags": []}]
    by_name = {"name": ["a", "b"], "at": {"box": np.array([box, box])}, "tags": [["x"], []]}
    assert codec_of(OBJECTS).encode({"objects": listed}) == codec_of(OBJECTS).encode({"objects": by_name})


def test_sequence_of_dicts_decodes_to_a_dict_of_sequences_that_encodes_again() -> None:
    example = {"objects": [{"name": "a", "at": {"box": (0.0, 0.0, 1.0, 1.0)}, "tags": ["x", "y"]}]}
    record = codec_of(OBJECTS).encode(example)
    decoded = codec_of(OBJECTS).decode(record)
    assert list(decoded["objects"]) == ["name", "at", "tags"]
    assert decoded["objects"]["name"].tolist() == [b"a"]
    assert decoded["objects"]["at"]["box"].shape == (1, 4)
    assert decoded["objects"]["tags"].to_list() == [[b"x", b"y"]]
    assert codec_of(OBJECTS).encode(decoded) == record


def test_empty_sequences_keep_their_dtype_and_shape() -> None:
    decoded = codec_of(OBJECTS).decode(codec_of(OBJECTS).encode({"objects": []}))["objects"]
    assert (decoded["name"].shape, decoded["name"].dtype) == ((0,), object)
    assert (decoded["at"]["box"].shape, decoded["at"]["box"].dtype) == ((0, 4), np.float32)
    assert len(decoded["tags"]) == 0


def test_example_of_the_wrong_form_names_the_feature() -> None:
    check_errors(
        GOLDEN / "features_containers" / "example_of_the_wrong_form_names_the_feature.txt",
        (
            partial(codec_of(OBJECTS).encode, example)
            for example in [
                {},
                {"objects": [], "object": 1},
                {"objects": 5},
                {"objects": "text"},
                {"objects": [5]},
                {"objects": {"name": []}},
                {"objects": {"name": ["a"], "at": {"box": []}, "tags": []}},
                {"objects": {"name": "a", "at": {"box": []}, "tags": []}},
                {"objects": [{"name": "a", "at": {"box": [1, 2, 3]}, "tags": []}]},
            ]
        ),
        details=["feature"],
    )


def test_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(FeatureError) as caught:
        codec_of(FeaturesDict({"label": "int64"})).encode({"labl": 3})
    assert caught.value.hint == "Did you mean 'label'? There are: label."


def test_fixed_length_is_kept() -> None:
    features = FeaturesDict({"x": Sequence("int8", length=2)})
    assert features.shape == {"x": (2,)}
    with pytest.raises(FeatureError, match="expected 2 elements, found 3"):
        codec_of(features).encode({"x": [1, 2, 3]})
    with pytest.raises(CorruptExampleError, match="expected 2 elements, found 3"):
        codec_of(features).restore({"x": np.arange(3)})


def test_array_is_taken_without_an_object_for_each_value() -> None:
    features = FeaturesDict({"x": Sequence(Tensor(shape=(2,), dtype="float32"))})
    value = np.arange(200_000, dtype=np.float64).reshape(-1, 2)
    np.testing.assert_array_equal(codec_of(features).decode(codec_of(features).encode({"x": value}))["x"], value)


def test_row_lengths_that_do_not_add_up_are_corrupt() -> None:
    codec = codec_of(FeaturesDict({"r": Sequence(Sequence("int64"))}))
    lengths = [[2, 2], [4, -1], [2**62, 2**62, 2**62, 2**62, 3]]
    flats = [{"r/ragged_flat_values": np.arange(3), "r/ragged_row_lengths_0": np.array(each)} for each in lengths]
    flats.append({"r/ragged_flat_values": np.arange(3)})
    flats.append({"r/ragged_flat_values": np.ones(3, np.float32), "r/ragged_row_lengths_0": np.array([3])})
    calls = (partial(codec.restore, flat) for flat in flats)
    check_errors(GOLDEN / "features_containers" / "row_lengths.txt", calls, details=["feature"])


def test_ragged_reads_like_nested_lists() -> None:
    ragged = Ragged(np.arange(4), (np.array([2, 0, 1]), np.array([1, 2, 1])))
    assert ragged.to_list() == [[[0], [1, 2]], [], [[3]]]
    assert ragged[-1].to_list() == [[3]]
    assert [row.to_list() for row in ragged[:2]] == [[[0], [1, 2]], []]
    assert [len(row) for row in ragged] == [2, 0, 1]
    assert ragged == Ragged(np.arange(4), ragged.row_lengths)
    assert ragged != Ragged(np.arange(4) + 1, ragged.row_lengths)
    assert ragged != [1]
    assert repr(ragged) == "Ragged([[[0], [1, 2]], [], [[3]]], dtype=int64)"
    with pytest.raises(IndexError):
        ragged[3]
    with pytest.raises(ValueError, match="at least one level"):
        Ragged(np.arange(4), ())


def test_schema_that_cannot_be_stored_is_refused() -> None:
    elements: list[Any] = [Tensor(shape=(None,), dtype="int8"), Tensor(shape=(0,), dtype="int8"), {}]
    dicts: list[Any] = [{"a": 5}, {"": "int8"}, {"a\0": "int8"}, {"\ud800": "int8"}, {3: "int8"}]
    calls = [partial(Sequence, element) for element in elements]
    calls += [partial(Sequence, "int8", length=-1)]
    calls += [partial(FeaturesDict, each) for each in [*dicts, {"a/b": "int8", "a": {"b": "int8"}}]]
    check_errors(GOLDEN / "features_containers" / "schemas.txt", calls)


def test_labels_are_found_by_the_stem_of_their_file() -> None:
    label, lang = ClassLabel(names=["x", "y"]), ClassLabel(num_classes=2)
    features = FeaturesDict({"a/b": label, "c": {"d": Sequence({"e": lang})}})
    assert features.labels() == {"a.b": ["x", "y"]}
    named = features.with_labels({"c-d-e": ["u", "v"], "nobody": ["z"]})
    assert named.labels() == {"a.b": ["x", "y"], "c-d-e": ["u", "v"]}
    assert features_to_json(named) == features_to_json(features)
    with pytest.raises(FeatureError, match="expected 2 label names, found 3"):
        features.with_labels({"c-d-e": ["u", "v", "w"]})
    with pytest.raises(FeatureError, match="already has different label names"):
        features.with_labels({"a.b": ["y", "x"]})
    with pytest.raises(FeatureError, match=r"another feature uses the same label file, a-b\.labels\.txt"):
        FeaturesDict({"a-b": label, "a": {"b": lang}}).labels()


def test_schema_survives_a_copy_into_another_process() -> None:
    features = FeaturesDict({"x": Sequence(Image(shape=(2, 2, 1)))})
    example = {"x": np.zeros((3, 2, 2, 1), np.uint8)}
    record = codec_of(features).encode(example)
    assert codec_of(copy.deepcopy(features)).encode(example) == record


def test_the_repr_of_a_feature_shows_arguments_and_no_defaults() -> None:
    features = FeaturesDict(
        {
            "image": Image(shape=(8, 8, 1)),
            "label": ClassLabel(names=["cat", "dog"]),
            "boxes": Sequence(BBox()),
            "score": Scalar("float32"),
            "kind": ClassLabel(names=[str(number) for number in range(1000)]),
        }
    )
    assert [repr(feature) for feature in features.values()] == [
        "Image(shape=(8, 8, 1))",
        "ClassLabel(num_classes=2, names=('cat', 'dog'))",
        "Sequence(feature=BBox())",
        "Scalar(dtype=float32)",
        "ClassLabel(num_classes=1000, names=('0', '1', '2', '3', '4', '5', '6', '7', '8', '9', ... 1000 in all))",
    ]
