"""How is a schema written down? As TFDS's features.json, both ways.

Each feature is an object with ``pythonClassName``, TFDS's class, and one content field, a message of its feature.proto
(``schema_contents``). What TFDS 4.3 and older wrote is read as well (``schema_old``). A feature of another class, or of
a form that is not known, becomes a ``RawFeature``; fields that are not known are kept beside the feature.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from registry.errors import FeatureError
from registry.features.class_label import ClassLabel
from registry.features.containers import FeaturesDict, Sequence
from registry.features.feature import Feature
from registry.features.json_node import JsonNode, parse_json
from registry.features.labeled_image import LabeledImage
from registry.features.raw import RawFeature
from registry.features.schema_contents import (
    CONTENTS,
    KINDS,
    Kind,
    Known,
    UnknownFormError,
    read_features_dict,
    read_sequence,
    without_defaults,
)
from registry.features.schema_old import Described, read_old_form

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
        return _read_described(Described(fields["pythonClassName"].text(), contents, node.value), node, about, known)
    if "type" not in fields:
        node.fail("it has no pythonClassName, so it is no feature")
    found = read_old_form(node, _read, _PACKAGE)
    if isinstance(found, Feature):
        return found
    return _read_described(found, node, {}, None)


def _read_described(
    described: Described, node: JsonNode, about: dict[str, Any], known: dict[str, Any] | None
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
            if described.label_names is not None and isinstance(feature, (ClassLabel, LabeledImage)):
                return replace(feature, num_classes=None, names=described.label_names)
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
