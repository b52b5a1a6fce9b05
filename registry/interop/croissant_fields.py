"""What is an example to a reader of Croissant? The features of a version as ``cr:Field``s, nested as they are.

A dict has subfields; a Sequence, and a tensor of numbers, is an array with its shape; an image, sound or box is one
value of its own type. Each leaf says in which column of the shards it is found: the key that it has in a record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from registry.features import ClassLabel, Feature, FeaturesDict, Sequence
from registry.features.feature import TEXT, Shape

_MEDIA: Final[dict[str, str | list[str]]] = {
    "Image": "sc:ImageObject",
    "LabeledImage": ["cr:SegmentationMask", "sc:ImageObject"],
    "Video": "sc:VideoObject",
    "Audio": "sc:AudioObject",
    "BBox": "cr:BoundingBox",
}
"""Features that are one value to Croissant, whatever the shape of their arrays; by class name, of a base class too."""

_ATOMS: Final = {"b": "sc:Boolean", "i": "sc:Integer", "u": "sc:Integer", "f": "sc:Float"}
_PRECISE: Final = {"i": "cr:Int", "u": "cr:UInt", "f": "cr:Float"}
_BOX_FORMAT: Final = "REL_YXYX"
"""The format of a box that names none; the names are those of Keras, and TFDS's."""


def describe_fields(features: FeaturesDict, *, parent: str, file_set: str) -> list[dict[str, Any]]:
    """One ``cr:Field`` for each feature, in the order of the schema.

    Args:
        features: the schema of an example.
        parent: the id of the record set, with which the ids of its fields begin.
        file_set: the id of the ``cr:FileSet`` that has the shards.
    """
    return _fields(features, parent, file_set, names=(), stems=())


def label_set_id(stem: str) -> str:
    """The id of the record set that lists the classes of a label, by the stem of its file."""
    return f"labels/{id_part(stem)}"


def id_part(name: str) -> str:
    """``name`` as one part of an id; other names give other parts.

    Ids are relative IRIs, and their readers take no spaces, not even escaped ones: what is no letter, digit, ``_``,
    ``-`` or ``.`` becomes its code point between tildes.

    >>> id_part("größe"), id_part("a/b c"), id_part("..")
    ('größe', 'a~2f~b~20~c', '~2e~~2e~')
    """
    pattern = r"[^\w-]" if not name.strip(".") else r"[^\w.-]"  # "." and ".." would lead elsewhere
    return re.sub(pattern, lambda match: f"~{ord(match[0]):x}~", name)


def _fields(
    features: Mapping[str, Feature], parent: str, file_set: str, *, names: tuple[str, ...], stems: tuple[str, ...]
) -> list[dict[str, Any]]:
    found = []
    for name, feature in features.items():
        place = {"@type": "cr:Field", "@id": f"{parent}/{id_part(name)}", "name": name}
        field = _field(feature, place, file_set, names=(*names, name), stems=(*stems, name.replace("/", ".")))
        if field is not None:
            found.append(field)
    return found


def _field(
    feature: Feature, place: dict[str, Any], file_set: str, *, names: tuple[str, ...], stems: tuple[str, ...]
) -> dict[str, Any] | None:
    """One field; None for a dict of nothing, which stores nothing."""
    described = _described(feature)
    lengths: Shape = ()
    while isinstance(feature, Sequence) and not _media(feature):
        lengths = (*lengths, feature.length)
        feature = feature.feature
        described = described or _described(feature)
    field = place | ({"description": described} if described else {})
    if isinstance(feature, FeaturesDict):
        subfields = _fields(feature, place["@id"], file_set, names=names, stems=stems)
        return field | _array(lengths) | {"subField": subfields} if subfields else None
    media = _media(feature)
    shape = lengths if media else lengths + _shape(feature)
    source: dict[str, Any] = {"fileSet": {"@id": file_set}, "extract": {"column": "/".join(names)}}
    if media == "cr:BoundingBox" and (box_format := getattr(feature, "bbox_format", _BOX_FORMAT)):
        source["format"] = box_format
    if media == "sc:AudioObject" and (rate := getattr(feature, "sample_rate", None)):
        source["samplingRate"] = rate
    field |= {"dataType": media or _data_type(feature), **_array(shape), "source": source}
    if isinstance(feature, ClassLabel) and feature.names:
        field["references"] = {"field": {"@id": f"{label_set_id('-'.join(stems))}/index"}}
    return field


def _media(feature: Feature) -> str | list[str] | None:
    return next((_MEDIA[kind.__name__] for kind in type(feature).__mro__ if kind.__name__ in _MEDIA), None)


def _data_type(feature: Feature) -> str | list[str]:
    dtype = getattr(feature, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype == TEXT:
        return "sc:Text"
    if dtype.name == "bfloat16":  # not NumPy's own, and Croissant has no name for it
        return "sc:Float"
    atom = _ATOMS[dtype.kind]
    if dtype.kind not in _PRECISE:
        return atom
    # The precise type first, which is what readers take; the atomic one for those that know schema.org alone.
    types = [f"{_PRECISE[dtype.kind]}{8 * dtype.itemsize}", atom]
    return [*types, "cr:Label"] if isinstance(feature, ClassLabel) else types


def _array(shape: Shape) -> dict[str, Any]:
    """The array that a field is: sizes joined by commas, -1 where one differs from example to example."""
    if not shape:
        return {}
    return {"isArray": True, "arrayShape": ",".join("-1" if size is None else str(size) for size in shape)}


def _shape(feature: Feature) -> Shape:
    shape = getattr(feature, "shape", ())
    return shape if isinstance(shape, tuple) else ()


def _described(feature: Feature) -> str:
    values = f"Values: {feature.value_range}." if feature.value_range else ""
    return " ".join(filter(None, (feature.description, values)))
