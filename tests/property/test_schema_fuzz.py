"""Hostile schemas and records: after any change in either, decoding ends in a value or in an error of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.block_checks import joined
from support.feature_strategies import schemas_and_examples
from support.levels import examples

import registry
from registry.errors import CorruptExampleError, FeatureError, PreparedFormatError
from registry.features import FeaturesDict, NestedExamples, codec_of, features_from_json, features_to_json
from registry.features.content import ContentReader

OLD_FORMS = json.loads((Path(__file__).parents[1] / "conformance/schemas/old_forms.json").read_text(encoding="utf-8"))[
    "cases"
]
CONTENTS = ["tensor", "text", "image", "video", "audio", "boundingBox", "translation", "sequence", "featuresDict", "x"]
CLASSES = [
    *("tensor_feature.Tensor", "scalar.Scalar", "text_feature.Text", "image_feature.Image", "video_feature.Video"),
    *("audio_feature.Audio", "bounding_boxes.BBoxFeature", "labeled_image.LabeledImage", "dataset_feature.Dataset"),
    *("sequence_feature.Sequence", "features_dict.FeaturesDict", "class_label_feature.ClassLabel", "new.New"),
    *("translation_feature.Translation", "translation_feature.TranslationVariableLanguages"),
]
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 5)
    | st.sampled_from([2**31 - 1, 2**63, 0.5, "-1", "2147483647", "none", "ZLIB", "bfloat16", "int8", "string", "png"])
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


def change(data: st.DataObject, root: Any) -> Any:
    """``root`` with one place in it changed: another value, another name, another class."""
    tree = {"root": root}
    place: Any = tree
    while True:
        key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else list(range(len(place)))))
        inner = place[key]
        if not isinstance(inner, (dict, list)) or not inner or data.draw(st.integers(0, 3)) == 0:
            break
        place = inner
    kind = data.draw(st.sampled_from(["value", "value", "name", "class", "drop"]))
    if kind == "name" and isinstance(place, dict) and place is not tree:
        place[data.draw(st.sampled_from(CONTENTS))] = place.pop(key)
    elif kind == "drop" and place is not tree:
        del place[key]
    elif kind == "class" and isinstance(place.get(key) if isinstance(place, dict) else None, dict):
        name = "pythonClassName" if "pythonClassName" in place[key] else "type"
        place[key][name] = "tensorflow_datasets.core.features." + data.draw(st.sampled_from(CLASSES))
    else:
        place[key] = data.draw(json_values)
    return tree["root"]


def read_schema(root: Any) -> FeaturesDict | None:
    """The schema, or None if it is refused with a key path that is in it."""
    try:
        features = features_from_json(json.dumps(root))
    except PreparedFormatError as error:
        assert {"file", "key", "problem"} <= error.details.keys()  # noqa: PT017 - either end is right
        return None
    text = features_to_json(features)
    assert features_to_json(features_from_json(text)) == text
    return features


def use(value: Any) -> None:
    if isinstance(value, dict):
        for inner in value.values():
            use(inner)
    if isinstance(value, NestedExamples):
        use(list(value)[:2])
    if isinstance(value, list):
        for inner in value:
            use(inner)


def read_record(features: FeaturesDict, record: bytes) -> None:
    """Decodes the record in every way; all of them give a value, or all an error that names the feature."""
    try:
        use(codec_of(features).decode(record))
    except CorruptExampleError as error:
        assert isinstance(error.details["feature"], str)  # noqa: PT017
    except FeatureError as error:  # the tensor stores no shape: not a fault of a record
        assert error.message.endswith("has several unknown dimensions")  # noqa: PT017
        return
    for num_records in (1, 70):
        block = codec_of(features).decode_block(*joined([record] * num_records))
        assert len(block) == 0 or block.fault is None
        use(block.sound.columns())
    try:
        ContentReader(features).read(record)
    except CorruptExampleError as error:
        assert isinstance(error.details["feature"], str)  # noqa: PT017


@given(schemas_and_examples(), st.data())
def test_a_record_of_another_schema_decodes_or_is_corrupt(
    given_: tuple[FeaturesDict, dict[str, Any]], data: st.DataObject
) -> None:
    features, example = given_
    record = codec_of(features).encode(example)
    root = json.loads(features_to_json(features))
    for _ in range(data.draw(st.integers(1, 3))):
        root = change(data, root)
        if not isinstance(root, (dict, list)) or not root:
            break
    changed = read_schema(root)
    if changed is not None:
        read_record(changed, record)
        read_record(changed.missing_as_tfds(), record)


@settings(max_examples=examples(300))
@given(st.sampled_from(OLD_FORMS), st.data())
def test_a_changed_schema_of_the_old_form_is_read_or_names_the_key(case: Any, data: st.DataObject) -> None:
    features = read_schema(change(data, json.loads(json.dumps(case["old"]))))
    if features is not None:
        read_record(features, codec_of(registry.features.FeaturesDict({"f": "int64"})).encode({"f": 1}))
