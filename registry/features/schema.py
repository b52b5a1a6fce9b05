"""Reads and writes a schema as TFDS's features.json.

Each feature is an object with ``pythonClassName``, the class in TFDS, and one content field, a message of TFDS's
feature.proto. The table ``KINDS``, at the end, lists all feature types; add new ones there. The form of TFDS 4.3 and
older is read too (``schema_old``). A feature of an unknown class or form becomes a ``RawFeature``; unknown fields are
kept in ``Feature.unknown_fields`` and written back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, TypeAlias

from registry.errors import FeatureError
from registry.features.audio import Audio
from registry.features.containers import Dataset, FeaturesDict, Sequence
from registry.features.dtypes import BFLOAT16, DTYPES, STRING, dtype_name
from registry.features.feature import Feature, Leaf, RawFeature, Shape
from registry.features.image import BBOX_FORMATS, BBox, Image, LabeledImage, Video
from registry.features.schema_old import NormalizedFeature, read_old_form
from registry.features.tensor import ENCODINGS, Scalar, Tensor
from registry.features.text import ClassLabel, Text, Translation, TranslationVariableLanguages
from registry.json_node import JsonNode, parse_json

FILENAME: Final = "features.json"

_PACKAGE: Final = "tensorflow_datasets.core.features."
_ABOUT: Final = {"description": "description", "valueRange": "value_range"}

_Known: TypeAlias = Mapping[str, Any]
"""The known fields of a message; None for each field that is not a message itself."""


class UnknownFormError(Exception):
    """A content that may be valid, but has a form that this version does not know."""


def features_to_json(features: FeaturesDict) -> str:
    r"""Write ``features`` as the text of a features.json: sorted keys, no defaults, indented by 4, as TFDS writes it.

    >>> features_to_json(FeaturesDict({}))[:24]
    '{\n    "featuresDict": {}'

    Raises:
        FeatureError: features.json has no form for the class of a feature.
    """
    return json.dumps(_write(features), indent=4, sort_keys=True)


@lru_cache(4)  # each page looks its version up, and a schema of 200 features takes ten milliseconds to parse
def features_from_json(text: str) -> FeaturesDict:
    """Read the schema from the text of a features.json.

    The text does not contain label names; ``FeaturesDict.with_labels`` adds them. A feature of an unknown class becomes
    a ``RawFeature``, which ``FeaturesDict.unknown_features`` lists.

    >>> features = FeaturesDict({"id": "int64"})
    >>> features_from_json(features_to_json(features)) == features
    True

    Raises:
        PreparedFormatError: the text is not JSON, or is malformed; ``details['key']`` is the path of the field.
        MissingExtraError: a tensor has the dtype bfloat16, and ml_dtypes is not installed.
    """
    root = parse_json(text, FILENAME)
    features = _read(root)
    if isinstance(features, RawFeature):
        root.fail(f"expected a FeaturesDict as the outermost feature, found the class {features.class_name!r:.200}")
    if not isinstance(features, FeaturesDict):
        root.fail(f"expected a FeaturesDict as the outermost feature, found a {type(features).__name__}")
    return features


def _write(feature: Feature) -> dict[str, Any]:
    if isinstance(feature, RawFeature):
        return dict(feature.node)
    kind = next((kind for kind in KINDS if kind.feature is type(feature)), None)
    if kind is None:
        raise FeatureError(f"cannot write a {type(feature).__name__} to features.json", details={"feature": ""})
    name = feature.class_name if isinstance(feature, (FeaturesDict, Sequence)) else ""
    written = {"pythonClassName": name or _PACKAGE + kind.class_name, kind.content: kind.write(feature)}
    written |= {theirs: text for theirs, ours in _ABOUT.items() if (text := getattr(feature, ours))}
    return _merge(written, feature.unknown_fields or {})


def _read(node: JsonNode) -> Feature:
    fields = node.fields()
    if "pythonClassName" in fields:
        about = {ours: fields[theirs].text() for theirs, ours in _ABOUT.items() if theirs in fields}
        contents = {name: fields[name] for name in _CONTENTS if name in fields}
        known: dict[str, Any] = dict.fromkeys(("pythonClassName", *_ABOUT))
        feature = NormalizedFeature(fields["pythonClassName"].text(), contents, node.value)
        return _read_described(feature, node, about, known)
    if "type" not in fields:
        node.fail("expected a feature, found an object without pythonClassName")
    old = read_old_form(node, _read, _PACKAGE)
    return old if isinstance(old, Feature) else _read_described(old, node, {}, None)


def _read_described(
    described: NormalizedFeature, node: JsonNode, about: dict[str, Any], known: dict[str, Any] | None
) -> Feature:
    """Read a feature from its class name and content; ``known`` are the other known fields of ``node``.

    ``known`` is None for the old form. Its unknown fields are not kept, because they would have no meaning in the
    current message, in which the feature is written back.
    """
    name, contents = described.class_name, described.contents
    short = name.removeprefix(_PACKAGE) if name.startswith(_PACKAGE) else ""
    kind = next((kind for kind in KINDS if short in (kind.class_name, *kind.aliases)), None)
    content = kind.content if kind is not None else next(iter(contents), "")
    if kind is not None and not contents:
        node.fail(f"the field {kind.content!r} of the {kind.feature.__name__} is missing")
    raw = RawFeature(class_name=name, node=described.node, **about)
    if kind is None and content in _PLAIN:
        kind, about = _PLAIN[content], about | {"class_name": name}
    if content not in contents or kind is None:
        return raw
    here = contents[content]
    if not isinstance(here.value, dict):
        here.fields()  # raises, because it is not an object
    unknown = {} if known is None else _unknown_fields(node, known | {content: None})
    inside = {} if known is None else _unknown_fields(here, _CONTENTS[content])
    if inside:
        unknown[content] = inside
    try:
        feature = kind.read(here, about | ({"unknown_fields": unknown} if unknown else {}))
        if described.label_names is not None and isinstance(feature, Leaf):
            return feature.with_label_names(described.label_names)
        return feature
    except UnknownFormError:
        return raw
    except FeatureError as error:
        here.fail(error.message, hint=error.hint, cause=error)


def _unknown_fields(node: JsonNode, known: _Known) -> dict[str, Any]:
    """The unknown fields of a message, at any depth. Known fields around them get their camelCase names."""
    result: dict[str, Any] = {}
    for name, inner in node.fields().items():
        if name not in known:
            result[inner.key] = inner.value
        elif (
            known[name] is not None and isinstance(inner.value, dict) and (below := _unknown_fields(inner, known[name]))
        ):
            result[name] = below
    return result


def _merge(written: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(written)
    for name, value in more.items():
        here = result.get(name)
        result[name] = _merge(here, value) if isinstance(here, dict) and isinstance(value, dict) else value
    return result


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a content message.

    Attributes:
        name: its name in features.json.
        option: the attribute of the feature, and the argument of its class; if empty, ``write`` gets the whole feature.
        read: converts the JSON value to the argument.
        write: converts the attribute to the JSON value; None omits the field, as proto3 does for defaults.
        default: the argument if the field is absent.
        is_required: whether the field must be present.
        known: the known fields in it, if it is a message.
    """

    name: str
    option: str
    read: Callable[[JsonNode], Any]
    write: Callable[[Any], Any] = lambda value: value or None
    default: Any = None
    is_required: bool = False
    known: _Known | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """One feature type: its class, the class and the content field in TFDS, and the fields of the content.

    ``make`` creates the feature from its arguments; it also gets the content, for errors. Without it, the class is
    called. It raises UnknownFormError for arguments that the class does not support.
    """

    feature: type[Feature]
    class_name: str
    content: str
    fields: tuple[Field, ...]
    make: Callable[[JsonNode, dict[str, Any]], Feature] | None = None
    aliases: tuple[str, ...] = ()

    def write(self, feature: Feature) -> dict[str, Any]:
        """The content message of ``feature``."""
        pairs = (
            (field.name, field.write(getattr(feature, field.option) if field.option else feature))
            for field in self.fields
        )
        return {name: value for name, value in pairs if value is not None}

    def read(self, node: JsonNode, about: dict[str, Any]) -> Feature:
        """Read the feature from its content; ``about`` are the arguments from the fields next to the content."""
        fields = node.fields()
        options = dict(about)
        for field in self.fields:
            if field.name in fields:
                options[field.option or field.name] = field.read(fields[field.name])
            elif field.is_required:
                node.fail(f"it has no {field.name}")
            else:
                options[field.option or field.name] = field.default
        return self.feature(**options) if self.make is None else self.make(node, options)


def _write_shape(shape: Shape) -> dict[str, Any]:
    return {"dimensions": [str(-1 if size is None else size) for size in shape]} if shape else {}


def _read_shape(node: JsonNode) -> Shape:
    dimensions = node.fields().get("dimensions")
    sizes: list[int | None] = []
    for element in dimensions.elements() if dimensions else ():
        size = element.integer()
        if not -1 <= size < 2**31:
            element.fail(f"invalid dimension {size}")
        sizes.append(None if size == -1 else size)
    return tuple(sizes)


def _read_dtype(node: JsonNode) -> str:
    name = node.text()
    if name in ("object", "str", "bytes"):  # some versions of TFDS wrote these for text
        return STRING
    if name not in DTYPES and name != BFLOAT16:
        raise UnknownFormError
    return name


def _read_encoding(node: JsonNode) -> str:
    """The encoding of a tensor, in upper or lower case: TFDS writes the encoding of audio in upper case."""
    return _one_of(node.text().lower() or "none", ENCODINGS)


def _one_of(text: str, known: tuple[str, ...]) -> str:
    if text not in known:
        raise UnknownFormError
    return text


def _read_texts(node: JsonNode) -> tuple[str, ...]:
    return tuple(element.text() for element in node.elements())


def _write_texts(texts: tuple[str, ...] | None) -> list[str] | None:
    return list(texts) if texts else None


def _write_number(number: int | None) -> str | None:
    """A 64-bit integer, which proto3 JSON writes as text; 0 is the default and is omitted."""
    return str(number) if number else None


def _write_bound(bound: int | None) -> str | None:
    """A bound of values. It has explicit presence in proto3, so a 0 is written."""
    return None if bound is None else str(bound)


def _read_label(node: JsonNode) -> int:
    return number.integer() if (number := node.fields().get("numClasses")) else 0


def _write_label(num_classes: int) -> dict[str, Any]:
    return {"numClasses": str(num_classes)} if num_classes else {}


def _read_length(node: JsonNode) -> int | None:
    return None if (length := node.integer()) == -1 else length


def _read_features(node: JsonNode) -> dict[str, Feature]:
    return {name: _read(inner) for name, inner in node.entries().items()}


def _write_features(features: Mapping[str, Feature]) -> dict[str, Any] | None:
    return {name: _write(inner) for name, inner in features.items()} or None


def _make_tensor(_: JsonNode, options: dict[str, Any]) -> Feature:
    if options["optional"] and None in options["shape"]:
        raise UnknownFormError
    return Tensor(**options)


def _make_scalar(node: JsonNode, options: dict[str, Any]) -> Feature:
    if shape := options.pop("shape"):
        node.fail(f"a Scalar must have the shape (), not {shape}")
    return Scalar(**options)


def _make_image(_: JsonNode, options: dict[str, Any]) -> Feature:
    if len(options["shape"]) > 3:  # TFDS accepts four dimensions for an animated GIF
        raise UnknownFormError
    return Image(**options)


def _make_labeled_image(_: JsonNode, options: dict[str, Any]) -> Feature:
    del options["use_colormap"]
    return LabeledImage(**options)


def _make_bbox(node: JsonNode, options: dict[str, Any]) -> Feature:
    if (options.pop("shape"), options.pop("dtype")) != ((4,), "float32"):
        node.fail("a box must be float32 of shape (4,)")
    return BBox(**options)


def _make_translation(_: JsonNode, options: dict[str, Any]) -> Feature:
    if options.pop(_IS_VARIABLE.name):
        raise UnknownFormError
    return Translation(**options)


def _make_variable_translation(_: JsonNode, options: dict[str, Any]) -> Feature:
    if not options.pop(_IS_VARIABLE.name):
        raise UnknownFormError
    return TranslationVariableLanguages(**options | {"languages": options["languages"] or None})


_SHAPE: Final = Field("shape", "shape", _read_shape, _write_shape, (), known={"dimensions": None})
_DTYPE: Final = Field("dtype", "dtype", _read_dtype, dtype_name, is_required=True)
_ENCODING: Final = Field("encoding", "encoding", _read_encoding, default="none")
_TENSOR: Final = (
    *(_SHAPE, _DTYPE, _ENCODING),
    Field("minimum", "minimum", JsonNode.integer, _write_bound),
    Field("maximum", "maximum", JsonNode.integer, _write_bound),
    Field("optional", "optional", JsonNode.boolean, default=False),
)
_PICTURE: Final = (
    *(
        replace(_SHAPE, option="", write=lambda image: _write_shape(image.stored_shape or image.shape)),
        replace(_DTYPE, is_required=False, default="uint8"),
    ),
    Field("encodingFormat", "encoding_format", lambda node: _one_of(node.text(), ("", "png", "jpeg")) or None),
    Field("useColormap", "use_colormap", JsonNode.boolean, default=False),
)
_VIDEO: Final = (
    *(replace(_SHAPE, is_required=True), *_PICTURE[1:]),
    Field("ffmpegExtraArgs", "ffmpeg_extra_args", _read_texts, _write_texts, ()),
)
_AUDIO: Final = (
    *(_SHAPE, _DTYPE, replace(_ENCODING, write=str.upper)),
    Field("fileFormat", "file_format", lambda node: node.text() or None),
    Field("sampleRate", "sample_rate", lambda node: node.integer() or None, _write_number),
    Field("lazyDecode", "lazy_decode", JsonNode.boolean, default=False),
)
_BOX: Final = (
    Field("bboxFormat", "bbox_format", lambda node: _one_of(node.text(), ("", *BBOX_FORMATS)) or None),
    replace(_SHAPE, default=(4,)),
    replace(_DTYPE, is_required=False, default="float32"),
)
_NUM_CLASSES: Final = Field("numClasses", "num_classes", JsonNode.integer, _write_number, 0)
_LABEL: Final = Field("label", "num_classes", _read_label, _write_label, 0, known={"numClasses": None})
_IS_VARIABLE: Final = Field(
    "variableLanguagesPerExample",
    "",
    JsonNode.boolean,
    lambda feature: isinstance(feature, TranslationVariableLanguages) or None,
    default=False,
)
_LANGUAGES: Final = (Field("languages", "languages", _read_texts, _write_texts, ()), _IS_VARIABLE)
_SEQUENCE: Final = (
    Field("feature", "feature", _read, _write, is_required=True),
    Field("length", "length", _read_length, lambda length: _write_number(-1 if length is None else length), 0),
)
_FEATURES: Final = Field("features", "features", _read_features, _write_features, {})
_VARIABLE: Final = "translation_feature.TranslationVariableLanguages"

KINDS: Final = (
    Kind(FeaturesDict, "features_dict.FeaturesDict", "featuresDict", (_FEATURES,)),
    Kind(Tensor, "tensor_feature.Tensor", "tensor", _TENSOR, _make_tensor, ("feature.Tensor",)),
    Kind(Scalar, "scalar.Scalar", "tensor", _TENSOR, _make_scalar),
    Kind(ClassLabel, "class_label_feature.ClassLabel", "classLabel", (_NUM_CLASSES,)),
    Kind(Image, "image_feature.Image", "image", _PICTURE, _make_image),
    Kind(LabeledImage, "labeled_image.LabeledImage", "image", (*_PICTURE, _LABEL), _make_labeled_image),
    Kind(Video, "video_feature.Video", "video", _VIDEO),
    Kind(Audio, "audio_feature.Audio", "audio", _AUDIO),
    Kind(BBox, "bounding_boxes.BBoxFeature", "boundingBox", _BOX, _make_bbox),
    Kind(Text, "text_feature.Text", "text", ()),
    Kind(Translation, "translation_feature.Translation", "translation", _LANGUAGES, _make_translation),
    Kind(TranslationVariableLanguages, _VARIABLE, "translation", _LANGUAGES, _make_variable_translation),
    Kind(Sequence, "sequence_feature.Sequence", "sequence", _SEQUENCE),
    Kind(Dataset, "dataset_feature.Dataset", "sequence", _SEQUENCE),
)
"""Every feature type that features.json can represent."""

_PLAIN: Final = {kind.content: kind for kind in KINDS if kind.feature in (FeaturesDict, Sequence)}
"""By content field, the container as which a container class of another package is read."""

_CONTENTS: Final[dict[str, dict[str, Any]]] = {"jsonFeature": {"json": None}}
"""Every content field of a feature, and the known fields of its message."""
for _kind in KINDS:
    _CONTENTS.setdefault(_kind.content, {}).update({field.name: field.known for field in _kind.fields})
