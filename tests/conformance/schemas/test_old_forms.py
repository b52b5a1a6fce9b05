"""A features.json of TFDS 4.3 and older is read as TFDS 4.9.10 reads it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.golden import check_errors

from registry.features import BBox, FeaturesDict, Image, Sequence, Tensor, features_from_json, features_to_json

GOLDEN = Path(__file__).with_name("golden")

PACKAGE = "tensorflow_datasets.core.features."
CASES = json.loads((Path(__file__).parent / "old_forms.json").read_text())["cases"]


def old(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": PACKAGE + kind, "content": content, **more}


def read(feature: Any) -> FeaturesDict:
    return features_from_json(json.dumps(old("features_dict.FeaturesDict", {"f": feature})))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_old_schema_is_converted_as_tfds_converts_it(case: Any) -> None:
    features = features_from_json(json.dumps(case["old"]))
    assert json.loads(features_to_json(features)) == case["new"]
    assert features.unknown_features() == {}
    named = features_from_json(features_to_json(features)).with_labels(features.labels())
    assert named == features


def test_names_of_labels_in_the_schema_are_read() -> None:
    found = {case["name"]: features_from_json(json.dumps(case["old"])).labels() for case in CASES}
    assert {name: labels for name, labels in found.items() if labels} == {
        "class_label_with_names": {"f": ["cat", "dog"]},
        "labeled_image": {"f": ["sky", "road"]},
    }


def test_old_and_new_forms_may_be_mixed() -> None:
    new = {"pythonClassName": f"{PACKAGE}tensor_feature.Tensor", "tensor": {"dtype": "int8", "shape": {}}}
    inner = old("sequence_feature.Sequence", {"feature": new, "length": 2})
    assert read(inner) == FeaturesDict({"f": Sequence("int8", length=2)})


@pytest.mark.parametrize(
    ("feature", "class_name", "written"),
    [
        (old("text_feature.Text", {"use_encoder": True}), f"{PACKAGE}text_feature.Text", '{"use_encoder": true}'),
        (
            old("translation_feature.Translation", {"languages": ["en"], "encoder": {"a": 1}}),
            f"{PACKAGE}translation_feature.Translation",
            '{"encoder": {"a": 1}, "languages": ["en"]}',
        ),
        (
            old("class_label_feature.ClassLabel", {"names_file": "names.txt"}),
            f"{PACKAGE}class_label_feature.ClassLabel",
            '{"names_file": "names.txt"}',
        ),
        ({"type": "my.Own", "content": {"size": 3}}, "my.Own", '{"size": 3}'),
        ({"type": "my.Own", "content": {"size": 3}, "proto_cls": "my.Message"}, "my.Own", '{"size": 3}'),
    ],
)
def test_an_unknown_feature_becomes_a_class_that_keeps_its_json(feature: Any, class_name: str, written: str) -> None:
    features = read(feature)
    assert features.unknown_features() == {"f": class_name}
    again = json.loads(features_to_json(features))["featuresDict"]["features"]["f"]
    assert again == {"pythonClassName": class_name, "jsonFeature": {"json": written}}


def test_a_message_of_another_class_is_kept_as_it_is() -> None:
    message = {"dtype": "int8", "shape": {}}
    features = read({"type": "my.Own", "content": message, "proto_cls": "tensorflow_datasets.TensorFeature"})
    again = json.loads(features_to_json(features))["featuresDict"]["features"]["f"]
    assert again == {"pythonClassName": "my.Own", "tensor": message}


def test_fields_without_a_meaning_today_are_left_out() -> None:
    feature = old(
        "image_feature.Image", {"shape": [2, 2, 1], "dtype": "uint8", "encoding_format": "png", "old": 1}, x=2
    )
    assert read(feature) == FeaturesDict({"f": Image(shape=(2, 2, 1), encoding_format="png")})


def test_bounds_that_are_not_whole_are_left_out() -> None:
    feature = old("tensor_feature.Tensor", {"shape": [], "dtype": "float32", "minimum": 0.5, "maximum": 2.0})
    assert read(feature) == FeaturesDict({"f": Tensor(shape=(), dtype="float32", maximum=2)})


def test_fault_names_its_key() -> None:
    check_errors(
        GOLDEN / "old_forms" / "fault_names_its_key.txt",
        (
            partial(read, feature)
            for feature in [
                old("tensor_feature.Tensor", []),
                old("tensor_feature.Tensor", {"shape": []}),
                old("tensor_feature.Tensor", {"shape": 5, "dtype": "int8"}),
                old("image_feature.Image", {"shape": [1], "dtype": "uint8"}),
                old("sequence_feature.Sequence", {"length": 3}),
                old("sequence_feature.Sequence", {"feature": 5}),
                old(
                    "sequence_feature.Sequence",
                    {"feature": old("tensor_feature.Tensor", {"shape": [None], "dtype": "int8"})},
                ),
                old("features_dict.FeaturesDict", {"a": {}}),
                old("class_label_feature.ClassLabel", {"names": ["a", "a"]}),
                old("class_label_feature.ClassLabel", {"names": [5]}),
                old("text_feature.Text", "[", proto_cls="tensorflow_datasets.TextFeature"),
            ]
        ),
        details=["key"],
    )


def test_a_box_without_a_format_has_the_only_format_of_its_time() -> None:
    assert read(old("bounding_boxes.BBoxFeature", {})) == FeaturesDict({"f": BBox()})
