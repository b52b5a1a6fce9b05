"""Reads the features.json of TFDS 4.3 and older, which has ``type`` and ``content`` instead of ``pythonClassName``.

    {"type": class, "content": {...}}                       -> the class's own JSON, translated to a current message
    {"type": class, "content": {...} or text, "proto_cls"}  -> a current message, possibly as text

``schema`` calls it and reads the resulting message. Containers are read here, because their features are at another
path than in the current form.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from registry.errors import FeatureError, PreparedFormatError
from registry.features.containers import Dataset, FeaturesDict, Sequence
from registry.features.feature import Feature
from registry.json_node import JsonNode, parse_json

_MESSAGES: Final = {
    f"tensorflow_datasets.{message}": content
    for message, content in {
        "JsonFeature": "jsonFeature", "FeaturesDict": "featuresDict", "TensorFeature": "tensor",
        "ClassLabel": "classLabel", "ImageFeature": "image", "VideoFeature": "video", "AudioFeature": "audio",
        "BoundingBoxFeature": "boundingBox", "TextFeature": "text", "TranslationFeature": "translation",
        "Sequence": "sequence",
    }.items()
}  # fmt: skip

_CONTENTS: Final = {
    "tensor_feature.Tensor": "tensor",
    "feature.Tensor": "tensor",
    "scalar.Scalar": "tensor",
    "class_label_feature.ClassLabel": "classLabel",
    "text_feature.Text": "text",
    "image_feature.Image": "image",
    "labeled_image.LabeledImage": "image",
    "video_feature.Video": "video",
    "audio_feature.Audio": "audio",
    "bounding_boxes.BBoxFeature": "boundingBox",
    "translation_feature.Translation": "translation",
    "translation_feature.TranslationVariableLanguages": "translation",
}
"""The current message into which the own JSON of a class is translated."""

_LABELS: Final = {"class_label_feature.ClassLabel": "names", "labeled_image.LabeledImage": "labels"}
"""The key of the label names in the own JSON of a class."""

_ENCODERS: Final = ("useEncoder", "encoder", "encoderConfig")


@dataclass(frozen=True, slots=True)
class NormalizedFeature:
    """A feature in the form of a current features.json: its class, its contents by field, and the whole JSON object."""

    class_name: str
    contents: dict[str, JsonNode]
    node: dict[str, Any]
    label_names: tuple[str, ...] | None = None


def read_old_form(node: JsonNode, read: Callable[[JsonNode], Feature], package: str) -> Feature | NormalizedFeature:
    """Read an object with ``type``: a container as a feature, anything else as a NormalizedFeature.

    Raises:
        PreparedFormatError: it has no content, or its content has the wrong type.
    """
    fields = node.fields()
    class_name = fields["type"].text()
    short = class_name.removeprefix(package) if class_name.startswith(package) else ""
    if "content" not in fields:
        node.fail("expected a feature, found an object without content")
    content = fields["content"]
    message = fields["protoCls"].text() if "protoCls" in fields else ""
    if message:
        if isinstance(content.value, str):
            content = JsonNode(_parse_inside(content), content.path, content.source)
        content.fields()
        return _described(class_name, _MESSAGES.get(message, ""), content)
    try:
        match short:
            case "features_dict.FeaturesDict":
                return FeaturesDict({name: read(inner) for name, inner in content.entries().items()})
            case "sequence_feature.Sequence" | "dataset_feature.Dataset":
                inside = content.fields()
                if "feature" not in inside:
                    content.fail("the field 'feature' of the Sequence is missing")
                length = inside["length"].integer() if "length" in inside else None
                kind = Dataset if short.startswith("dataset") else Sequence
                return kind(read(inside["feature"]), length)
    except FeatureError as error:
        content.fail(error.message, hint=error.hint, cause=error)
    if short not in _CONTENTS or _is_unreadable(content):
        return _described(class_name, "", content)
    names = _label_names(short, content)
    return replace(_described(class_name, _CONTENTS[short], _translated(short, content)), label_names=names)


def _parse_inside(content: JsonNode) -> Any:
    """Parse the JSON document that is a text inside another JSON document."""
    try:
        return parse_json(content.value, content.source).value
    except PreparedFormatError as error:
        content.fail(error.details["problem"], cause=error)


def _described(class_name: str, field: str, content: JsonNode) -> NormalizedFeature:
    """The normalized feature. A content that is not a current message is kept as the JSON of its class."""
    if not field:
        field = "jsonFeature"
        own = {"json": json.dumps(content.value, sort_keys=True)}
        content = JsonNode(own, content.path, content.source)
    return NormalizedFeature(class_name, {field: content}, {"pythonClassName": class_name, field: content.value})


def _is_unreadable(content: JsonNode) -> bool:
    """Whether the stored form is unknown: an encoder made numbers of text, or label names are in a separate file."""
    fields = content.fields()
    return any(fields[name].value for name in _ENCODERS if name in fields) or "namesFile" in fields


def _label_names(short: str, content: JsonNode) -> tuple[str, ...] | None:
    """The label names that are in the schema itself."""
    names = content.fields().get(_LABELS.get(short, ""))
    if names is None or not isinstance(names.value, list):
        return None
    return tuple(name.text() for name in names.elements())


def _translated(short: str, content: JsonNode) -> JsonNode:
    """The current message for a class's own JSON. Its keys stay snake_case, which JsonNode accepts too."""
    result = {key: value for key, value in content.value.items() if value is not None}
    names = result.pop(_LABELS.get(short, ""), None)
    count = len(names) if isinstance(names, list) else names
    shape = result.get("shape")
    if isinstance(shape, list):
        result["shape"] = {"dimensions": [-1 if size is None else size for size in shape]}
    for bound in ("minimum", "maximum"):
        if isinstance(result.get(bound), float) and not result[bound].is_integer():
            del result[bound]  # current messages hold whole numbers only
    if short == "bounding_boxes.BBoxFeature" and "bbox_format" not in content.value:
        result["bbox_format"] = "REL_YXYX"
    if short == "labeled_image.LabeledImage":
        result.setdefault("shape", {"dimensions": [-1, -1, 1]})
        result["label"] = {"numClasses": count} if isinstance(count, int) else {}
    elif count is not None:
        result["num_classes"] = count
    if short == "translation_feature.TranslationVariableLanguages":
        result["variable_languages_per_example"] = True
    for name in ("encoder", "encoder_config", "use_encoder"):
        result.pop(name, None)
    return JsonNode(result, content.path, content.source)
