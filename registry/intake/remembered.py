"""The version before is the schema of the next addition: its types, its classes, and the columns that were left out.

    --feature when=date32 --feature label=ClassLabel   ->   {"requested": ["label", "when"]} in the version's metadata

The types themselves are those of its features. Values are converted to requested types; they must have the others
already. Classes keep their numbers, and new ones follow them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from registry.features import ClassLabel, Feature, FeaturesDict, Scalar, Tensor
from registry.features import Sequence as SequenceFeature
from registry.features.feature import TEXT
from registry.intake.feature_text import Wish, arrow_type_of, as_optional, parse_feature
from registry.intake.schema import read_type, write_type
from registry.intake.value_types import is_list, is_nullable, nullable_type
from registry.shards.arrow_values import import_pyarrow

AS_BEFORE: Final = "as in the version before"


def describe_requests(
    wishes: Mapping[str, Wish], stored: FeaturesDict, without_values: Sequence[str] = ()
) -> dict[str, Any]:
    """The entries of ``custom["intake"]`` that say what was requested.

    ``requested`` types are those of ``stored``, except that a list may be ``null_as_empty``. The types of columns that
    are ``absent`` are written as in a schema file. Columns ``without_values`` have only nulls, so that the first values
    decide their types.
    """
    requested = {name: wish for name, wish in sorted(wishes.items()) if wish.action != "skip" and not wish.is_inferred}
    lists = [name for name in requested if requested[name].optional and not isinstance(stored.get(name), Scalar)]
    entries = {
        "requested": [name for name in requested if name in stored],
        "null_as_empty": [name for name in lists if name in stored],
        "skipped": sorted(name for name, wish in wishes.items() if wish.action == "skip"),
        "without_values": [name for name in without_values if name in stored],
        "absent": {name: _write_wish(wish) for name, wish in requested.items() if name not in stored},
    }
    return {key: value for key, value in entries.items() if value}


def _write_wish(wish: Wish) -> Any:
    feature = wish.classes or wish.feature
    if feature is None:  # classes, of which no value is known
        return wish.text
    kind = arrow_type_of(feature) if wish.arrow_type is None else wish.arrow_type
    optional = bool(wish.optional)
    return write_type(as_optional(feature) if optional else feature, kind, null_as_empty=optional and is_list(kind))


def remembered_wishes(features: FeaturesDict, custom: Mapping[str, Any]) -> dict[str, Wish]:
    """The types of the version before, by column.

    Args:
        features: the features of the version before.
        custom: its custom metadata: ``intake``, and ``arrow_types`` with the types of times.
    """
    entry = custom.get("intake")
    if not isinstance(entry, Mapping):
        return {}
    kinds, requested = custom.get("arrow_types"), _names(entry.get("requested"))
    words = {path: word for path, word in (kinds.items() if isinstance(kinds, Mapping) else ()) if _is_word(word)}
    lists, absent = _names(entry.get("null_as_empty")), entry.get("absent")
    wishes = {name: Wish(text="skip", action="skip", is_remembered=True) for name in _names(entry.get("skipped"))}
    for name, written in absent.items() if isinstance(absent, Mapping) else ():
        wish = read_type(written, name, "the metadata of the version before")
        if isinstance(wish.feature, ClassLabel):
            wish = Wish(text=AS_BEFORE, action="classes", classes=wish.feature)
        wishes[name] = replace(wish, is_remembered=True)
    without_values = _names(entry.get("without_values"))
    for name, feature in features.items():
        if name in without_values:
            continue
        is_inferred = name not in requested
        if isinstance(feature, ClassLabel) and not is_inferred:
            wishes[name] = Wish(text=AS_BEFORE, action="classes", classes=feature, is_remembered=True)
            continue
        has_words = any(path.split("/")[0] == name for path in words)
        wishes[name] = Wish(
            text=AS_BEFORE,
            feature=feature,
            arrow_type=_arrow_type(name, feature, words) if has_words and not is_inferred else None,
            optional=name in lists or bool(getattr(feature, "optional", False)),
            is_remembered=True,
            is_inferred=is_inferred,
            words=words,
        )
    return wishes


def keep_types(
    path: str, before: Feature, words: Mapping[str, str], feature: Feature, kind: Any
) -> tuple[Feature, Any]:
    """The feature and the Arrow type of a column with the types of the version before.

    Args:
        path: the name of the column, or the path of a field.
        before: its feature in the version before.
        words: the Arrow types that features do not tell, by path.
        feature: the feature that its values have now. Its fields that are new are kept.
        kind: their Arrow type.
    """
    if type(before) is FeaturesDict and type(feature) is FeaturesDict:
        pairs = {
            name: keep_types(f"{path}/{name}", before[name], words, inner, kind.field(name).type)
            if name in before
            else (inner, kind.field(name).type)
            for name, inner in feature.items()
        }
        struct = import_pyarrow().struct([(field.name, pairs[field.name][1]) for field in kind])
        return FeaturesDict({name: inner for name, (inner, _) in pairs.items()}), struct
    if isinstance(before, SequenceFeature) and isinstance(feature, SequenceFeature) and before.length == feature.length:
        inner, value = keep_types(path, before.feature, words, feature.feature, kind.value_type)
        result = nullable_type(value) if is_nullable(kind) else _list_type(value, [before.length])
        return SequenceFeature(inner, length=before.length), result
    return before, _arrow_type(path, before, words)


def _arrow_type(path: str, feature: Feature, words: Mapping[str, str]) -> Any:
    """The Arrow type of the values of ``feature`` in the version before."""
    if isinstance(feature, FeaturesDict):
        fields = [(name, _arrow_type(f"{path}/{name}", inner, words)) for name, inner in feature.items()]
        return import_pyarrow().struct(fields)
    if isinstance(feature, SequenceFeature):
        return _list_type(_arrow_type(path, feature.feature, words), [feature.length])
    if isinstance(feature, Tensor) and path in words:
        return _list_type(parse_feature(words[path]).arrow_type, feature.shape)
    is_bytes = type(feature) is Tensor and feature.dtype == TEXT and not feature.shape
    return import_pyarrow().binary() if is_bytes else arrow_type_of(feature)


def _list_type(inner: Any, sizes: Sequence[int | None]) -> Any:
    for size in reversed(sizes):
        inner = import_pyarrow().list_(inner, -1 if size is None else size)
    return inner


def _is_word(word: Any) -> bool:
    """Whether an entry of the Arrow types is not that of decimals, which are text."""
    return isinstance(word, str) and not word.startswith("decimal")


def _names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
