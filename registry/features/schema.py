"""How is a schema written down? As TFDS's features.json, both ways.

Each feature is an object with ``pythonClassName``, TFDS's class, and one content field, a message of its feature.proto
(``schema_contents``). What TFDS 4.3 and older wrote is read as well (``schema_old``). A feature of another class, or of
a form that is not known, becomes a ``RawFeature``; fields that are not known are kept beside the feature.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from registry.errors import FeatureError
from registry.features.audio import Audio
from registry.features.containers import Dataset, FeaturesDict, Sequence
from registry.features.dtypes import BFLOAT16, DTYPES, as_dtype, dtype_name
from registry.features.feature import TEXT, Feature, Leaf, RawFeature, Shape
from registry.features.image import BBOX_FORMATS, BBox, Image, LabeledImage, Video
from registry.features.json_node import JsonNode, parse_json
from registry.features.schema_old import NormalizedFeature, read_old_form
from registry.features.tensor import ENCODINGS, Scalar, Tensor
from registry.features.text import ClassLabel, Text, Translation, TranslationVariableLanguages

FILENAME: Final = "features.json"

_PACKAGE: Final = "tensorflow_datasets.core.features."
_ABOUT: Final = {"description": "description", "valueRange": "value_range"}


def features_to_json(features: FeaturesDict) -> str:
    r"""The text of features.json: keys sorted, defaults left out, indented by 4 as TFDS writes it.

    >>> features_to_json(FeaturesDict({}))[:24]
    '{\n    "featuresDict": {}'
    """
    return json.dumps(_write(features), indent=4, sort_keys=True)


def features_from_json(text: str) -> FeaturesDict:
    """The schema in the text of a features.json. Names of labels are not in it: see ``FeaturesDict.with_labels``.

    A feature that is not known is a ``RawFeature``: see ``FeaturesDict.unknown_features``.

    Raises:
        PreparedFormatError: no JSON, or not of this form; ``details['key']`` is the path of the field.
        MissingExtraError: a tensor of bfloat16, and ml_dtypes is not installed.
    """
    root = parse_json(text, FILENAME)
    features = _read(root)
    if isinstance(features, RawFeature):
        root.fail(f"the outermost feature is of a class that is not known, {features.class_name!r:.200}")
    if not isinstance(features, FeaturesDict):
        root.fail(f"the outermost feature is a {type(features).__name__}, not a FeaturesDict")
    return features


def _write(feature: Feature) -> dict[str, Any]:
    if isinstance(feature, RawFeature):
        return dict(feature.node)
    kind = next((kind for kind in KINDS if kind.feature is type(feature)), None)
    if kind is None:
        raise FeatureError(f"features.json has no form for a {type(feature).__name__}", details={"feature": ""})
    name = feature.class_name if isinstance(feature, (FeaturesDict, Sequence)) else ""
    written = {"pythonClassName": name or _PACKAGE + kind.class_name, kind.content: kind.write(feature, _write)}
    written |= without_defaults(description=feature.description, valueRange=feature.value_range)
    return _merge(written, feature.unknown_fields or {})


def _read(node: JsonNode) -> Feature:
    fields = node.fields()
    if "pythonClassName" in fields:
        about = {ours: fields[theirs].text() for theirs, ours in _ABOUT.items() if theirs in fields}
        contents = {name: fields[name] for name in CONTENTS if name in fields}
        known: dict[str, Any] = dict.fromkeys(("pythonClassName", *_ABOUT))
        return _read_described(
            NormalizedFeature(fields["pythonClassName"].text(), contents, node.value), node, about, known
        )
    if "type" not in fields:
        node.fail("it has no pythonClassName, so it is no feature")
    old = read_old_form(node, _read, _PACKAGE)
    return old if isinstance(old, Feature) else _read_described(old, node, {}, None)


def _read_described(
    described: NormalizedFeature, node: JsonNode, about: dict[str, Any], known: dict[str, Any] | None
) -> Feature:
    """The feature of a class name and its content; ``known`` are the other fields of ``node`` that may be there.

    None in the old form, of which nothing else is kept: it would stand in a message of today, where it means nothing.
    """
    name, contents = described.class_name, described.contents
    kind = _kind_of(name)
    content = kind.content if kind is not None else next(iter(contents), "")
    if kind is not None and not contents:
        node.fail(f"a {kind.feature.__name__} has the field {kind.content!r}, which is not here")
    raw = RawFeature(class_name=name, node=described.node, **about)
    if content not in contents or (kind is None and content not in ("featuresDict", "sequence")):
        return raw
    here = contents[content]
    if not isinstance(here.value, dict):
        here.fields()  # says that it is no object
    unknown = {} if known is None else _unknown_fields(node, known | {content: None})
    inside = {} if known is None else _unknown_fields(here, CONTENTS[content])
    if inside:
        unknown[content] = inside
    options = about | ({"unknown_fields": unknown} if unknown else {})
    try:
        if kind is not None:
            feature = kind.read(here, options, _read)
            if described.label_names is not None and isinstance(feature, Leaf):
                return feature.with_label_names(described.label_names)
            return feature
        read_plain = read_features_dict if content == "featuresDict" else read_sequence
        return read_plain(here, options | {"class_name": name}, _read)
    except UnknownFormError:
        return raw
    except FeatureError as error:
        here.fail(error.message, hint=error.hint, cause=error)


def _kind_of(class_name: str) -> Kind | None:
    if not class_name.startswith(_PACKAGE):
        return None
    short = class_name.removeprefix(_PACKAGE)
    return next((kind for kind in KINDS if short in (kind.class_name, *kind.aliases)), None)


def _unknown_fields(node: JsonNode, known: Known) -> dict[str, Any]:
    """What stands in a message besides its ``known`` fields, at any depth; a known one by its camelCase name."""
    found: dict[str, Any] = {}
    for name, inner in node.fields().items():
        if name not in known:
            found[inner.key] = inner.value
        elif (
            known[name] is not None and isinstance(inner.value, dict) and (below := _unknown_fields(inner, known[name]))
        ):
            found[name] = below
    return found


def _merge(written: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(written)
    for name, value in more.items():
        here = found.get(name)
        found[name] = _merge(here, value) if isinstance(here, dict) and isinstance(value, dict) else value
    return found


Read = Callable[[JsonNode], Feature]
Write = Callable[[Feature], dict[str, Any]]
Known = Mapping[str, Any]
"""The fields of a message, None for each that is no message itself."""

_SHAPE: Final[Known] = {"dimensions": None}
_PICTURE: Final[Known] = {"shape": _SHAPE, "dtype": None, "encodingFormat": None, "useColormap": None}


class UnknownFormError(Exception):
    """A content that is sound, as far as can be told, and of a form that is not known here."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of feature: TFDS's class, the content field, and how the content is written and read."""

    feature: type[Feature]
    class_name: str
    content: str
    write: Callable[[Any, Write], dict[str, Any]]
    read: Callable[[JsonNode, dict[str, Any], Read], Feature]
    aliases: tuple[str, ...] = field(default=())


def without_defaults(**fields: Any) -> dict[str, Any]:
    """Those of ``fields`` that are no default of proto3."""
    return {name: value for name, value in fields.items() if value}


def _write_tensor(feature: Tensor, _: Write) -> dict[str, Any]:
    # minimum and maximum are int64 with presence: written as text, and a 0 that is set is written.
    bounds = {"minimum": feature.minimum, "maximum": feature.maximum}
    return {
        "dtype": dtype_name(feature.dtype),
        "encoding": feature.encoding,
        "shape": _write_shape(feature.shape),
        **without_defaults(optional=feature.optional),
    } | {name: str(bound) for name, bound in bounds.items() if bound is not None}


def _read_tensor(node: JsonNode, about: dict[str, Any], _: Read) -> Tensor:
    shape, options = _read_shape(node), _tensor_options(node)
    if options["optional"] and None in shape:
        raise UnknownFormError
    return Tensor(shape=shape, **options, **about)


def _read_scalar(node: JsonNode, about: dict[str, Any], _: Read) -> Scalar:
    if shape := _read_shape(node):
        node.fail(f"a Scalar has the shape (), not {shape}")
    return Scalar(**_tensor_options(node), **about)


def _tensor_options(node: JsonNode) -> dict[str, Any]:
    fields = node.fields()
    options: dict[str, Any] = {name: fields[name].integer() for name in ("minimum", "maximum") if name in fields}
    options["dtype"] = _read_dtype(node)
    options["encoding"] = _read_encoding(node)
    options["optional"] = "optional" in fields and fields["optional"].boolean()
    return options


def _write_class_label(feature: ClassLabel, _: Write) -> dict[str, Any]:
    return without_defaults(numClasses=str(feature.num_classes) if feature.num_classes else "")


def _read_class_label(node: JsonNode, about: dict[str, Any], _: Read) -> ClassLabel:
    return ClassLabel(num_classes=_num_classes(node), **about)


def _num_classes(node: JsonNode) -> int:
    fields = node.fields()
    return fields["numClasses"].integer() if "numClasses" in fields else 0


def _write_image(feature: Image, _: Write) -> dict[str, Any]:
    return {"dtype": dtype_name(feature.dtype), "shape": _write_shape(feature.shape)} | without_defaults(
        encodingFormat=feature.encoding_format, useColormap=feature.use_colormap
    )


def _read_image(node: JsonNode, about: dict[str, Any], _: Read) -> Image:
    options = _image_options(node)
    if len(options["shape"]) > 3:  # TFDS takes one for a moving GIF
        raise UnknownFormError
    return Image(**options, **about)


def _write_labeled_image(feature: LabeledImage, write: Write) -> dict[str, Any]:
    return _write_image(feature, write) | {"label": _write_class_label(feature.label, write)}


def _read_labeled_image(node: JsonNode, about: dict[str, Any], _: Read) -> LabeledImage:
    options = _image_options(node)
    del options["use_colormap"]
    fields = node.fields()
    return LabeledImage(num_classes=_num_classes(fields["label"]) if "label" in fields else 0, **options, **about)


def _image_options(node: JsonNode) -> dict[str, Any]:
    fields = node.fields()
    encoding_format = fields["encodingFormat"].text() if "encodingFormat" in fields else ""
    if encoding_format not in ("", "png", "jpeg"):
        raise UnknownFormError
    return {
        "shape": _read_shape(node),
        "dtype": _read_dtype(node) if "dtype" in fields else "uint8",
        "encoding_format": encoding_format or None,
        "use_colormap": "useColormap" in fields and fields["useColormap"].boolean(),
    }


def _write_video(feature: Video, _: Write) -> dict[str, Any]:
    return {"dtype": dtype_name(feature.dtype), "shape": _write_shape(feature.shape)} | without_defaults(
        encodingFormat=feature.encoding_format,
        useColormap=feature.use_colormap,
        ffmpegExtraArgs=list(feature.ffmpeg_extra_args),
    )


def _read_video(node: JsonNode, about: dict[str, Any], _: Read) -> Video:
    fields = node.fields()
    if "shape" not in fields:
        node.fail("it has no shape")
    arguments = fields["ffmpegExtraArgs"].elements() if "ffmpegExtraArgs" in fields else []
    return Video(ffmpeg_extra_args=tuple(one.text() for one in arguments), **_image_options(node), **about)


def _write_audio(feature: Audio, _: Write) -> dict[str, Any]:
    return {
        "dtype": dtype_name(feature.dtype),
        "encoding": feature.encoding.upper(),
        "shape": _write_shape(feature.shape),
    } | without_defaults(
        fileFormat=feature.file_format,
        sampleRate=str(feature.sample_rate) if feature.sample_rate else "",
        lazyDecode=feature.lazy_decode,
    )


def _read_audio(node: JsonNode, about: dict[str, Any], _: Read) -> Audio:
    fields = node.fields()
    return Audio(
        shape=_read_shape(node),
        dtype=_read_dtype(node),
        encoding=_read_encoding(node),
        file_format=(fields["fileFormat"].text() or None) if "fileFormat" in fields else None,
        sample_rate=(fields["sampleRate"].integer() or None) if "sampleRate" in fields else None,
        lazy_decode="lazyDecode" in fields and fields["lazyDecode"].boolean(),
        **about,
    )


def _write_bbox(feature: BBox, _: Write) -> dict[str, Any]:
    return {"dtype": dtype_name(feature.dtype), "shape": _write_shape(feature.shape)} | without_defaults(
        bboxFormat=feature.bbox_format
    )


def _read_bbox(node: JsonNode, about: dict[str, Any], _: Read) -> BBox:
    fields = node.fields()
    box_format = (fields["bboxFormat"].text() or None) if "bboxFormat" in fields else None
    if box_format is not None and box_format not in BBOX_FORMATS:
        raise UnknownFormError
    if ("shape" in fields and _read_shape(node) != (4,)) or (
        "dtype" in fields and dtype_name(_read_dtype(node)) != "float32"
    ):
        node.fail("a box is four float32")
    return BBox(bbox_format=box_format, **about)


def _write_text(_feature: Text, _: Write) -> dict[str, Any]:
    return {}


def _read_text(node: JsonNode, about: dict[str, Any], _: Read) -> Text:
    node.fields()
    return Text(**about)


def _write_translation(feature: Translation, _: Write) -> dict[str, Any]:
    return without_defaults(languages=list(feature.languages))


def _read_translation(node: JsonNode, about: dict[str, Any], _: Read) -> Translation:
    languages, is_variable = _read_languages(node)
    if is_variable:
        raise UnknownFormError
    return Translation(languages=languages, **about)


def _write_variable(feature: TranslationVariableLanguages, _: Write) -> dict[str, Any]:
    return without_defaults(languages=list(feature.languages or ()), variableLanguagesPerExample=True)


def _read_variable(node: JsonNode, about: dict[str, Any], _: Read) -> TranslationVariableLanguages:
    languages, is_variable = _read_languages(node)
    if not is_variable:
        raise UnknownFormError
    return TranslationVariableLanguages(languages=languages or None, **about)


def _read_languages(node: JsonNode) -> tuple[tuple[str, ...], bool]:
    fields = node.fields()
    languages = fields["languages"].elements() if "languages" in fields else []
    is_variable = "variableLanguagesPerExample" in fields and fields["variableLanguagesPerExample"].boolean()
    return tuple(language.text() for language in languages), is_variable


def _write_sequence(feature: Sequence, write: Write) -> dict[str, Any]:
    written: dict[str, Any] = {"feature": write(feature.feature)}
    return written | ({} if feature.length == 0 else {"length": str(-1 if feature.length is None else feature.length)})


def read_sequence(node: JsonNode, about: dict[str, Any], read: Read, kind: type[Sequence] = Sequence) -> Sequence:
    """The Sequence, or Dataset, of a content ``sequence``."""
    fields = node.fields()
    if "feature" not in fields:
        node.fail(f"a {kind.__name__} has the field 'feature', which is not here")
    length = fields["length"].integer() if "length" in fields else 0
    return kind(read(fields["feature"]), None if length == -1 else length, **about)


def _read_dataset(node: JsonNode, about: dict[str, Any], read: Read) -> Sequence:
    return read_sequence(node, about, read, Dataset)


def _write_features_dict(feature: FeaturesDict, write: Write) -> dict[str, Any]:
    return without_defaults(features={name: write(inner) for name, inner in feature.items()})


def read_features_dict(node: JsonNode, about: dict[str, Any], read: Read) -> FeaturesDict:
    """The FeaturesDict of a content ``featuresDict``."""
    fields = node.fields()
    entries = fields["features"].entries() if "features" in fields else {}
    return FeaturesDict({name: read(inner) for name, inner in entries.items()}, **about)


def _write_shape(shape: Shape) -> dict[str, Any]:
    return without_defaults(dimensions=[str(-1 if size is None else size) for size in shape])


def _read_shape(node: JsonNode) -> Shape:
    """The field ``shape`` of a content; absent or empty is the shape ()."""
    shape = node.fields().get("shape")
    dimensions = shape.fields().get("dimensions") if shape else None
    sizes: list[int | None] = []
    for element in dimensions.elements() if dimensions else ():
        size = element.integer()
        if not -1 <= size < 2**31:
            element.fail(f"{size} is no dimension")
        sizes.append(None if size == -1 else size)
    return tuple(sizes)


def _read_dtype(node: JsonNode) -> Any:
    found = node.fields().get("dtype")
    if found is None:
        node.fail("it has no dtype")
    name = found.text()
    if name in ("object", "str", "bytes"):  # what some versions of TFDS wrote for text
        return TEXT
    if name not in DTYPES and name != BFLOAT16:
        raise UnknownFormError
    return as_dtype(name)


def _read_encoding(node: JsonNode) -> str:
    """The encoding of a tensor, in any case: TFDS writes that of audio in capitals."""
    fields = node.fields()
    encoding = (fields["encoding"].text() if "encoding" in fields else "").lower() or "none"
    if encoding not in ENCODINGS:
        raise UnknownFormError
    return encoding


CONTENTS: Final[dict[str, Known]] = {
    "jsonFeature": {"json": None},
    "featuresDict": {"features": None},
    "tensor": dict.fromkeys(("dtype", "encoding", "minimum", "maximum", "optional")) | {"shape": _SHAPE},
    "classLabel": {"numClasses": None},
    "image": {**_PICTURE, "label": {"numClasses": None}},
    "video": {**_PICTURE, "ffmpegExtraArgs": None},
    "audio": dict.fromkeys(("dtype", "fileFormat", "sampleRate", "encoding", "lazyDecode")) | {"shape": _SHAPE},
    "boundingBox": {"shape": _SHAPE, "dtype": None, "bboxFormat": None},
    "text": {},
    "translation": {"languages": None, "variableLanguagesPerExample": None},
    "sequence": {"feature": None, "length": None},
}
"""Every content field of a feature, and the fields of its message."""

_TRANSLATION: Final = "translation_feature.TranslationVariableLanguages"

KINDS: Final = (
    Kind(FeaturesDict, "features_dict.FeaturesDict", "featuresDict", _write_features_dict, read_features_dict),
    Kind(Sequence, "sequence_feature.Sequence", "sequence", _write_sequence, read_sequence),
    Kind(Dataset, "dataset_feature.Dataset", "sequence", _write_sequence, _read_dataset),
    Kind(Tensor, "tensor_feature.Tensor", "tensor", _write_tensor, _read_tensor, ("feature.Tensor",)),
    Kind(Scalar, "scalar.Scalar", "tensor", _write_tensor, _read_scalar),
    Kind(ClassLabel, "class_label_feature.ClassLabel", "classLabel", _write_class_label, _read_class_label),
    Kind(Text, "text_feature.Text", "text", _write_text, _read_text),
    Kind(Image, "image_feature.Image", "image", _write_image, _read_image),
    Kind(LabeledImage, "labeled_image.LabeledImage", "image", _write_labeled_image, _read_labeled_image),
    Kind(Video, "video_feature.Video", "video", _write_video, _read_video),
    Kind(Audio, "audio_feature.Audio", "audio", _write_audio, _read_audio),
    Kind(BBox, "bounding_boxes.BBoxFeature", "boundingBox", _write_bbox, _read_bbox),
    Kind(Translation, "translation_feature.Translation", "translation", _write_translation, _read_translation),
    Kind(TranslationVariableLanguages, _TRANSLATION, "translation", _write_variable, _read_variable),
)
