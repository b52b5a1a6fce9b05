"""Features that are not known: read as raw values, kept in features.json as they were, never written."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from registry.errors import FeatureError
from registry.features import Dataset, FeaturesDict, Sequence, Text, codec_of, features_from_json, features_to_json
from registry.features.content import ContentReader
from registry.wire import encode_example

PACKAGE = "tensorflow_datasets.core.features."
OWN = {"pythonClassName": "my.package.Own", "jsonFeature": {"json": '{"size": 3}'}, "description": "Ours."}


def schema(**features: Any) -> str:
    return json.dumps(
        {"pythonClassName": f"{PACKAGE}features_dict.FeaturesDict", "featuresDict": {"features": features}},
        indent=4,
        sort_keys=True,
    )


NUMBER = {
    "pythonClassName": f"{PACKAGE}scalar.Scalar",
    "tensor": {"dtype": "int64", "encoding": "none", "shape": {}},
}


def decode(features: FeaturesDict, flat: Any) -> dict[str, Any]:
    return codec_of(features).decode(encode_example(flat))


@pytest.mark.parametrize(
    "node",
    [
        OWN,
        {"pythonClassName": "my.package.Bare"},
        {"pythonClassName": f"{PACKAGE}text_feature.Text", "jsonFeature": {"json": '{"use_encoder": true}'}},
        {"pythonClassName": f"{PACKAGE}tensor_feature.Tensor", "tensor": {"dtype": "complex64", "shape": {}}},
        {"pythonClassName": f"{PACKAGE}tensor_feature.Tensor", "tensor": {"dtype": "int8", "encoding": "lz4"}},
        {
            "python_class_name": f"{PACKAGE}tensor_feature.Tensor",
            "tensor": {"dtype": "int8", "optional": True, "shape": {"dimensions": ["-1"]}},
        },
        {"pythonClassName": f"{PACKAGE}bounding_boxes.BBoxFeature", "boundingBox": {"bboxFormat": "CENTER"}},
        {"pythonClassName": f"{PACKAGE}image_feature.Image", "image": {"encodingFormat": "webp"}},
        {
            "pythonClassName": f"{PACKAGE}image_feature.Image",
            "image": {"shape": {"dimensions": ["-1", "-1", "-1", "3"]}},
        },
        {"pythonClassName": f"{PACKAGE}new_feature.New", "newContent": {"a": [1, None]}},
    ],
)
def test_what_is_not_known_is_kept_as_it_was(node: Any) -> None:
    text = schema(f=node, known=NUMBER)
    features = features_from_json(text)
    assert features_to_json(features) == text
    name = node.get("pythonClassName") or node["python_class_name"]
    assert features.unknown_features() == {"f": name}
    assert decode(features, {"f": [b"raw"], "known": np.array([7])})["known"] == 7


def test_raw_values_are_what_the_record_stores() -> None:
    features = features_from_json(schema(f=OWN, g=OWN, h=OWN, i=OWN))
    flat = {
        "f": np.array([1, 2]),
        "g": [b"a", b"b"],
        "h/x": np.array([0.5], np.float32),
        "h/y/z": [b"c"],
        "hh": np.array([1]),
    }
    found = decode(features, flat)
    assert (found["f"].dtype, found["f"].tolist()) == (np.int64, [1, 2])
    assert (found["g"].dtype, found["g"].tolist()) == (object, [b"a", b"b"])
    assert {suffix: value.tolist() for suffix, value in found["h"].items()} == {"x": [0.5], "y/z": [b"c"]}
    assert found["i"] == {}


def test_raw_values_omit_the_values_of_known_features() -> None:
    features = features_from_json(schema(**{"f": OWN, "f/known": NUMBER}))
    found = decode(features, {"f/x": np.array([1]), "f/known": np.array([2])})
    assert list(found["f"]) == ["x"]
    assert found["f/known"] == 2


def test_raw_values_inside_of_containers_are_not_taken_apart() -> None:
    inner = {"pythonClassName": f"{PACKAGE}features_dict.FeaturesDict", "featuresDict": {"features": {"raw": OWN}}}
    inner["featuresDict"]["features"]["n"] = NUMBER  # type: ignore[index]
    for kind in ("sequence_feature.Sequence", "dataset_feature.Dataset"):
        outer = {"pythonClassName": PACKAGE + kind, "sequence": {"feature": inner, "length": "-1"}}
        features = features_from_json(schema(f=outer))
        assert features.unknown_features() == {"f/raw": "my.package.Own"}
        found = decode(features, {"f/raw": np.array([1, 2, 3, 4]), "f/n": np.array([5, 6])})["f"]
        assert found["raw"].tolist() == [1, 2, 3, 4]
        assert found["n"].tolist() == [5, 6]


def test_containers_of_another_package_are_read_as_plain_ones() -> None:
    mine = {"pythonClassName": "my.package.Dict", "featuresDict": {"features": {"n": NUMBER}}}
    many = {"pythonClassName": "my.package.List", "sequence": {"feature": NUMBER, "length": "-1"}}
    text = schema(d=mine, s=many)
    features = features_from_json(text)
    assert features.unknown_features() == {}
    assert features["d"] == FeaturesDict({"n": features["d"]["n"]}, class_name="my.package.Dict")  # type: ignore[index]
    assert features_to_json(features) == text
    found = decode(features, {"d/n": np.array([1]), "s": np.array([1, 2])})
    assert found["d"] == {"n": 1}
    assert found["s"].tolist() == [1, 2]


def test_a_feature_that_is_not_known_cannot_be_written() -> None:
    with pytest.raises(FeatureError) as caught:
        codec_of(features_from_json(schema(f=OWN))).encode({"f": 1})
    assert caught.value.message == ("feature 'f': cannot encode values of the unknown feature class 'my.package.Own'")
    assert (
        caught.value.hint
        == "Declare it as a known feature, e.g. registry.features.Tensor(shape=(None,), dtype='float32')."
    )


def test_content_tells_raw_values_of_different_keys_and_kinds_apart() -> None:
    reader = ContentReader(features_from_json(schema(f=OWN)))
    flats: list[Any] = [
        {"f": np.array([1])},
        {"f": np.array([1], np.float32)},
        {"f": [b"\1"]},
        {"f/x": np.array([1])},
        {"f/y": np.array([1])},
        {},
    ]
    contents = [reader.read(encode_example(flat))[0] for flat in flats]
    assert len(set(contents)) == len(flats)


def test_a_dataset_of_raw_values_has_its_shape() -> None:
    features = features_from_json(schema(f=OWN))
    assert features.shape == {"f": (None,)}
    assert Sequence({"a": features["f"], "b": Text()}).shape == {"a": (None, None), "b": (None,)}
    assert Dataset({"a": features["f"]}).shape == {"a": (None,)}
