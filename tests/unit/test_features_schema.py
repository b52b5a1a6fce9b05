"""features.json: TFDS's form of every feature, both cases of its names, and the key path of every fault."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.golden import check_errors

from registry.features import (
    Audio,
    BBox,
    ClassLabel,
    Dataset,
    FeaturesDict,
    Image,
    LabeledImage,
    Scalar,
    Sequence,
    Tensor,
    Text,
    Translation,
    TranslationVariableLanguages,
    Video,
    features_from_json,
    features_to_json,
)

GOLDEN = Path(__file__).with_name("golden")

PACKAGE = "tensorflow_datasets.core.features."
EVERYTHING = FeaturesDict(
    {
        "image": Image(shape=(None, 4, 1), dtype="uint16", encoding_format="png", use_colormap=True),
        "plain": Image(shape=(None, None, None), description="A picture.", value_range="0 to 255"),
        "label": ClassLabel(num_classes=3),
        "unknown_label": ClassLabel(num_classes=0),
        "text": Text(),
        "box": BBox(),
        "tensor": Tensor(shape=(None, None), dtype="float64", encoding="bytes", minimum=0, maximum=2**53 + 1),
        "string": Tensor(shape=(2,), dtype=str),
        "scalar": Scalar("bool"),
        "sequence": Sequence({"a": "int8", "b": Sequence(Text(), length=3)}),
        "none_at_all": Sequence("int8", length=0),
        "zlib": Tensor(shape=(2,), dtype="float64", encoding="zlib", optional=True),
        "optional": Scalar("int8", optional=True),
        "box_of_pixels": BBox(bbox_format="XYWH"),
        "any_box": BBox(bbox_format=None),
        "mask": LabeledImage(num_classes=3, shape=(4, 4, 1)),
        "mask_of_anything": LabeledImage(num_classes=0),
        "video": Video(shape=(None, 4, 4, 1), encoding_format=None, ffmpeg_extra_args=["-r", "3"], use_colormap=True),
        "translation": Translation(languages=["en", "de"]),
        "translations": TranslationVariableLanguages(languages=["en", "de"]),
        "any_translations": TranslationVariableLanguages(),
        "audio": Audio(shape=(None, 2), dtype="int16", sample_rate=8000, file_format="wav", lazy_decode=True),
        "samples": Audio(encoding="zlib"),
        "steps": Dataset({"reward": "float32", "frames": Sequence(Image())}, length=3),
        "plain_steps": Dataset("int64", description="Steps."),
        "empty": FeaturesDict({}),
        "é": {"nested": "uint64"},
    },
    description="Everything.",
)


def of(content: Any, name: str = "f") -> str:
    """A features.json with one feature."""
    return json.dumps(
        {
            "pythonClassName": f"{PACKAGE}features_dict.FeaturesDict",
            "featuresDict": {"features": {name: content}},
        }
    )


def tensor(**content: Any) -> dict[str, Any]:
    return {"pythonClassName": f"{PACKAGE}tensor_feature.Tensor", "tensor": {"dtype": "int8", "shape": {}} | content}


def snake(value: Any) -> Any:
    names = {"pythonClassName": "python_class_name", "featuresDict": "features_dict", "classLabel": "class_label"}
    names |= {"numClasses": "num_classes", "encodingFormat": "encoding_format", "boundingBox": "bounding_box"}
    names |= {"useColormap": "use_colormap", "bboxFormat": "bbox_format", "valueRange": "value_range"}
    names |= {"ffmpegExtraArgs": "ffmpeg_extra_args", "sampleRate": "sample_rate", "lazyDecode": "lazy_decode"}
    names |= {"fileFormat": "file_format", "variableLanguagesPerExample": "variable_languages_per_example"}
    if isinstance(value, dict):
        return {names.get(key, key): snake(inner) for key, inner in value.items()}
    return value


def only(text: str) -> Any:
    """The description of the one feature of a features.json."""
    return json.loads(text)["featuresDict"]["features"]["f"]


def test_every_feature_is_read_back() -> None:
    text = features_to_json(EVERYTHING)
    assert text.isascii()
    assert features_from_json(text) == EVERYTHING
    assert features_to_json(features_from_json(text)) == text


def test_snake_case_is_read_as_well() -> None:
    assert features_from_json(json.dumps(snake(json.loads(features_to_json(EVERYTHING))))) == EVERYTHING


def test_defaults_are_left_out_as_proto3_does() -> None:
    written = json.loads(features_to_json(EVERYTHING))["featuresDict"]["features"]
    assert written["unknown_label"]["classLabel"] == {}
    assert written["empty"]["featuresDict"] == {}
    assert "length" not in written["none_at_all"]["sequence"]
    assert written["scalar"]["tensor"] == {"dtype": "bool", "encoding": "none", "shape": {}}
    assert written["tensor"]["tensor"]["minimum"] == "0"
    assert written["plain"]["image"] == {"dtype": "uint8", "shape": {"dimensions": ["-1", "-1", "-1"]}}


def test_dtype_is_written_as_the_tensor_that_tfds_makes_of_it() -> None:
    features = FeaturesDict({"f": "int8"})
    assert features == FeaturesDict({"f": Tensor(shape=(), dtype="int8")})
    written = json.loads(features_to_json(features))["featuresDict"]["features"]["f"]["pythonClassName"]
    assert written == f"{PACKAGE}tensor_feature.Tensor"


@pytest.mark.parametrize("written", ["9", 9, 9.0])
def test_bounds_are_64_bit_integers_that_tfds_writes_as_text(written: Any) -> None:
    features = features_from_json(of(tensor(minimum="0", maximum=written)))
    assert features == FeaturesDict({"f": Tensor(shape=(), dtype="int8", minimum=0, maximum=9.0)})  # type: ignore[arg-type]  # whole
    content = json.loads(features_to_json(features))["featuresDict"]["features"]["f"]["tensor"]
    assert (content["minimum"], content["maximum"]) == ("0", "9")


@pytest.mark.parametrize("dtype", ["string", "object", "str", "bytes"])
def test_every_name_of_text_is_read(dtype: str) -> None:
    assert features_from_json(of(tensor(dtype=dtype))) == FeaturesDict({"f": Tensor(shape=(), dtype=str)})


def test_the_encoding_of_audio_is_written_in_capitals_and_read_in_any_case() -> None:
    content = only(features_to_json(FeaturesDict({"f": Audio(encoding="zlib")})))
    assert content["audio"] == {"dtype": "int64", "encoding": "ZLIB", "shape": {"dimensions": ["-1"]}}
    for encoding in ("zlib", "Zlib", "ZLIB"):
        content["audio"]["encoding"] = encoding
        assert features_from_json(of(content)) == FeaturesDict({"f": Audio(encoding="zlib")})


def test_a_box_without_a_format_has_the_format_none() -> None:
    content = {"pythonClassName": f"{PACKAGE}bounding_boxes.BBoxFeature", "boundingBox": {}}
    assert features_from_json(of(content)) == FeaturesDict({"f": BBox(bbox_format=None)})


def test_fields_that_are_not_known_are_kept_for_writing() -> None:
    content = tensor(shape={"dimensions": ["2"], "unknownRank": True}, newer=[1]) | {"alsoNew": {"a": 1}}
    features = features_from_json(of(content))
    assert features["f"].shape == (2,)
    written = only(features_to_json(features))
    assert written == content | {"tensor": content["tensor"] | {"encoding": "none"}}
    assert features_from_json(features_to_json(features)) == features


def test_older_class_path_of_tensor_is_read() -> None:
    content = tensor() | {"pythonClassName": f"{PACKAGE}feature.Tensor"}
    assert features_from_json(of(content)) == FeaturesDict({"f": Tensor(shape=(), dtype="int8")})


def test_fault_names_its_key() -> None:
    check_errors(
        GOLDEN / "features_schema" / "fault_names_its_key.txt",
        (
            partial(features_from_json, text)
            for text in [
                "",
                "[]",
                "{}",
                '{"a": NaN}',
                '{"a": -1.5e999}',
                '{"a": 1, "a": 2}',
                "[" * 100_000,
                "9" * 5000,
                '{"\\ud800": 1}',
                json.dumps(tensor()),
                of(5),
                of({"type": "x"}),
                of({"type": "x", "content": "{", "proto_cls": "x"}),
                of({"pythonClassName": f"{PACKAGE}video_feature.Video", "video": {}}),
                json.dumps({"pythonClassName": "my.Own", "jsonFeature": {"json": "{}"}}),
                of(tensor() | {"pythonClassName": 5}),
                of({"pythonClassName": f"{PACKAGE}tensor_feature.Tensor"}),
                of(tensor(dtype=None)),
                of(tensor(minimum=0.5)),
                of(tensor(shape=[])),
                of(tensor(shape={"dimensions": ["-2"]})),
                of(tensor(shape={"dimensions": ["x"]})),
                of(tensor() | {"python_class_name": "x"}),
                of({"pythonClassName": f"{PACKAGE}class_label_feature.ClassLabel", "classLabel": {"numClasses": "-1"}}),
                of({"pythonClassName": f"{PACKAGE}image_feature.Image", "image": {"shape": {"dimensions": ["1"]}}}),
                of({"pythonClassName": f"{PACKAGE}sequence_feature.Sequence", "sequence": {"length": "2"}}),
                of(
                    {
                        "pythonClassName": f"{PACKAGE}sequence_feature.Sequence",
                        "sequence": {"feature": tensor(shape={"dimensions": ["-1"]}), "length": "-1"},
                    }
                ),
            ]
        ),
        details=["key"],
    )
