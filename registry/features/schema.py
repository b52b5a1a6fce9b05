"""How is a schema written down? As TFDS's features.json, both ways.

Each feature is an object with ``pythonClassName``, TFDS's class, and one content field, a message of its feature.proto.
``_KINDS`` is the table of the features that there are; a feature that it does not hold is refused, by its key path.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from registry.errors import FeatureError
from registry.features.bbox import BBox
from registry.features.class_label import ClassLabel
from registry.features.containers import FeaturesDict, Sequence
from registry.features.feature import TEXT, Feature, Shape
from registry.features.image import Image
from registry.features.json_node import JsonNode, parse_json
from registry.features.tensor import DTYPES, Scalar, Tensor
from registry.features.text import Text

FILENAME: Final = "features.json"

_PACKAGE: Final = "tensorflow_datasets.core.features."


def features_to_json(features: FeaturesDict) -> str:
    r"""The text of features.json: keys sorted, defaults left out, indented by 4 as TFDS writes it.

    >>> features_to_json(FeaturesDict({}))[:24]
    '{\n    "featuresDict": {}'
    """
    return json.dumps(_write(features), indent=4, sort_keys=True)


def features_from_json(text: str) -> FeaturesDict:
    """The schema in the text of a features.json. Names of labels are not in it: see ``FeaturesDict.with_labels``.

    Raises:
        PreparedFormatError: no JSON, or not of this form, or an unknown feature; ``details['key']`` is its path.
    """
    root = parse_json(text, FILENAME)
    features = _read(root)
    if not isinstance(features, FeaturesDict):
        root.fail(f"the outermost feature is a {type(features).__name__}, not a FeaturesDict")
    return features


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of feature: TFDS's class, the content field, and how the content is written and read."""

    feature: type[Feature]
    class_name: str
    content: str
    write: Callable[[Any], dict[str, Any]]
    read: Callable[[JsonNode, dict[str, Any]], Feature]
    aliases: tuple[str, ...] = field(default=())


def _write(feature: Feature) -> dict[str, Any]:
    kind = next((kind for kind in _KINDS if kind.feature is type(feature)), None)
    if kind is None:
        raise FeatureError(f"features.json has no form for a {type(feature).__name__}", details={"feature": ""})
    written = {"pythonClassName": _PACKAGE + kind.class_name, kind.content: kind.write(feature)}
    return written | _without_defaults(description=feature.description, valueRange=feature.value_range)


def _read(node: JsonNode) -> Feature:
    fields = node.fields()
    if "pythonClassName" not in fields:
        old_form = "This is the form of TFDS 4.3 and older, which is not read." if "type" in fields else None
        node.fail("it has no pythonClassName, so it is no feature", hint=old_form)
    name = fields["pythonClassName"].text()
    kind = next((kind for kind in _KINDS if name.removeprefix(_PACKAGE) in (kind.class_name, *kind.aliases)), None)
    if kind is None or not name.startswith(_PACKAGE):
        known = ", ".join(kind.feature.__name__ for kind in _KINDS)
        fields["pythonClassName"].fail(f"the feature {name[:200]!r} is not known", hint=f"Known are: {known}.")
    node.only("pythonClassName", "description", "valueRange", kind.content)
    if kind.content not in fields:
        node.fail(f"a {kind.feature.__name__} has the field {kind.content!r}, which is not here")
    about: dict[str, Any] = {
        ours: fields[theirs].text()
        for ours, theirs in (("description", "description"), ("value_range", "valueRange"))
        if theirs in fields
    }
    try:
        return kind.read(fields[kind.content], about)
    except FeatureError as error:
        fields[kind.content].fail(error.message, hint=error.hint, cause=error)


def _write_tensor(feature: Tensor) -> dict[str, Any]:
    # minimum and maximum are int64 with presence: written as text, and a 0 that is set is written.
    bounds = {"minimum": feature.minimum, "maximum": feature.maximum}
    return {
        "dtype": _dtype_name(feature.dtype),
        "encoding": feature.encoding,
        "shape": _write_shape(feature.shape),
    } | {name: str(bound) for name, bound in bounds.items() if bound is not None}


def _read_tensor(node: JsonNode, about: dict[str, Any]) -> Tensor:
    return Tensor(shape=_read_shape(node), **_tensor_options(node), **about)


def _read_scalar(node: JsonNode, about: dict[str, Any]) -> Scalar:
    if shape := _read_shape(node):
        node.fail(f"a Scalar has the shape (), not {shape}")
    return Scalar(**_tensor_options(node), **about)


def _tensor_options(node: JsonNode) -> dict[str, Any]:
    fields = node.only("shape", "dtype", "encoding", "minimum", "maximum", "optional")
    if "optional" in fields and fields["optional"].boolean():
        fields["optional"].fail("an optional tensor is not supported")
    options: dict[str, Any] = {name: fields[name].integer() for name in ("minimum", "maximum") if name in fields}
    options["dtype"] = _read_dtype(node)
    options["encoding"] = fields["encoding"].text() if "encoding" in fields else "none"
    return options


def _write_class_label(feature: ClassLabel) -> dict[str, Any]:
    return _without_defaults(numClasses=str(feature.num_classes) if feature.num_classes else "")


def _read_class_label(node: JsonNode, about: dict[str, Any]) -> ClassLabel:
    fields = node.only("numClasses")
    return ClassLabel(num_classes=fields["numClasses"].integer() if fields else 0, **about)


def _write_image(feature: Image) -> dict[str, Any]:
    return {"dtype": _dtype_name(feature.dtype), "shape": _write_shape(feature.shape)} | _without_defaults(
        encodingFormat=feature.encoding_format, useColormap=feature.use_colormap
    )


def _read_image(node: JsonNode, about: dict[str, Any]) -> Image:
    fields = node.only("shape", "dtype", "encodingFormat", "useColormap")
    return Image(
        shape=_read_shape(node),
        dtype=_read_dtype(node) if "dtype" in fields else "uint8",
        encoding_format=(fields["encodingFormat"].text() or None) if "encodingFormat" in fields else None,
        use_colormap="useColormap" in fields and fields["useColormap"].boolean(),
        **about,
    )


def _write_bbox(feature: BBox) -> dict[str, Any]:
    return {
        "bboxFormat": "REL_YXYX",
        "dtype": _dtype_name(feature.dtype),
        "shape": _write_shape(feature.shape),
    }


def _read_bbox(node: JsonNode, about: dict[str, Any]) -> BBox:
    fields = node.only("shape", "dtype", "bboxFormat")
    if "bboxFormat" in fields and fields["bboxFormat"].text() != "REL_YXYX":
        fields["bboxFormat"].fail(f"the box format {fields['bboxFormat'].text()[:80]!r} is not supported")
    if ("shape" in fields and _read_shape(node) != (4,)) or (
        "dtype" in fields and _dtype_name(_read_dtype(node)) != "float32"
    ):
        node.fail("a box is four float32")
    return BBox(**about)


def _read_text(node: JsonNode, about: dict[str, Any]) -> Text:
    node.only()
    return Text(**about)


def _write_sequence(feature: Sequence) -> dict[str, Any]:
    written: dict[str, Any] = {"feature": _write(feature.feature)}
    return written | ({} if feature.length == 0 else {"length": str(-1 if feature.length is None else feature.length)})


def _read_sequence(node: JsonNode, about: dict[str, Any]) -> Sequence:
    fields = node.only("feature", "length")
    if "feature" not in fields:
        node.fail("a Sequence has the field 'feature', which is not here")
    length = fields["length"].integer() if "length" in fields else 0
    return Sequence(_read(fields["feature"]), None if length == -1 else length, **about)


def _write_features_dict(feature: FeaturesDict) -> dict[str, Any]:
    return _without_defaults(features={name: _write(inner) for name, inner in feature.items()})


def _read_features_dict(node: JsonNode, about: dict[str, Any]) -> FeaturesDict:
    fields = node.only("features")
    entries = fields["features"].entries() if fields else {}
    return FeaturesDict({name: _read(inner) for name, inner in entries.items()}, **about)


def _write_shape(shape: Shape) -> dict[str, Any]:
    return _without_defaults(dimensions=[str(-1 if size is None else size) for size in shape])


def _read_shape(node: JsonNode) -> Shape:
    """The field ``shape`` of a content; absent or empty is the shape ()."""
    shape = node.fields().get("shape")
    dimensions = shape.only("dimensions").get("dimensions") if shape else None
    sizes: list[int | None] = []
    for element in dimensions.elements() if dimensions else ():
        size = element.integer()
        if not -1 <= size < 2**31:
            element.fail(f"{size} is no dimension")
        sizes.append(None if size == -1 else size)
    return tuple(sizes)


def _dtype_name(dtype: Any) -> str:
    name: str = next(name for name, known in DTYPES.items() if known == dtype)
    return name


def _read_dtype(node: JsonNode) -> Any:
    found = node.fields().get("dtype")
    if found is None:
        node.fail("it has no dtype")
    name = found.text()
    if name in ("object", "str", "bytes"):  # what some versions of TFDS wrote for text
        return TEXT
    if name not in DTYPES:
        found.fail(f"the dtype {name[:80]!r} is not supported", hint=f"Known are: {', '.join(DTYPES)}.")
    return DTYPES[name]


def _without_defaults(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


_KINDS: Final = (
    _Kind(FeaturesDict, "features_dict.FeaturesDict", "featuresDict", _write_features_dict, _read_features_dict),
    _Kind(Sequence, "sequence_feature.Sequence", "sequence", _write_sequence, _read_sequence),
    _Kind(Tensor, "tensor_feature.Tensor", "tensor", _write_tensor, _read_tensor, ("feature.Tensor",)),
    _Kind(Scalar, "scalar.Scalar", "tensor", _write_tensor, _read_scalar),
    _Kind(ClassLabel, "class_label_feature.ClassLabel", "classLabel", _write_class_label, _read_class_label),
    _Kind(Text, "text_feature.Text", "text", lambda _: {}, _read_text),
    _Kind(Image, "image_feature.Image", "image", _write_image, _read_image),
    _Kind(BBox, "bounding_boxes.BBoxFeature", "boundingBox", _write_bbox, _read_bbox),
)
