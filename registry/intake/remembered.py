"""The previous version is the schema of the next addition: its types, its classes, and the columns that were left out.

    --feature when=date32 --feature label=ClassLabel   ->   {"requested": ["label", "when"]} in the version's metadata

The types themselves are those of its features. Values are converted to types that were requested; inferred types must
match without a conversion. Classes keep their numbers, and new classes follow them. ``ClassValues`` collects the values
of a column that becomes a ClassLabel on request, and decides the order of its classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn

import numpy as np

from registry.errors import FeatureError, SourceError, spell
from registry.features import ClassLabel, Feature, FeaturesDict, Scalar, Tensor
from registry.features import Sequence as SequenceFeature
from registry.features.feature import TEXT
from registry.intake.feature_text import Wish, arrow_type_of, as_optional, leaf_types, parse_feature
from registry.intake.schema import read_type, write_type
from registry.intake.value_types import (
    ValueTypes,
    conflict,
    is_list,
    is_nullable,
    name_type,
    nullable_paths,
    nullable_type,
    plain_type,
)
from registry.intake.values import Place, quote, show_place, without_nulls
from registry.shards.arrow_values import import_pyarrow

MAX_CLASSES: Final = 10_000
"""The maximum number of classes. More distinct values are hardly classes, and all names are kept in memory."""

MAX_NAME: Final = 1_000
"""The maximum number of characters in the name of a class."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
BOOLEANS: Final = ("false", "true")
"""The names of the classes of a column of booleans."""


@dataclass(slots=True)
class ClassValues:
    """The distinct texts of a column.

    Attributes:
        names: the first place of each text, for at most ``MAX_CLASSES + 1`` texts.
        not_utf8: the place of the first block with text that is not UTF-8.
    """

    names: dict[str, Place] = field(default_factory=dict)
    not_utf8: Place | None = None

    def update(self, array: Any, place_of: Callable[[int], Place]) -> None:
        """Add the values of an array."""
        is_text = import_pyarrow().types.is_string(plain_type(array.type))
        if not is_text or array.null_count == len(array) or len(self.names) > MAX_CLASSES:
            return
        start = place_of(0)
        array, place_of = without_nulls(array, place_of)
        encoded = array.dictionary_encode()
        _, indices = np.unique(encoded.indices.to_numpy(zero_copy_only=False), return_index=True)
        try:
            texts = encoded.dictionary.to_pylist()
        except UnicodeDecodeError:
            self.not_utf8 = min(self.not_utf8 or start, start)
            return
        for text, index in zip(texts, indices.tolist(), strict=True):
            name = text[: MAX_NAME + 1]
            if len(self.names) <= MAX_CLASSES or name in self.names:
                place = place_of(index)
                self.names[name] = min(self.names.get(name, place), place)

    def decide(
        self, column: str, types: ValueTypes, *, is_text: bool, before: ClassLabel | None = None
    ) -> tuple[ClassLabel, str]:
        """Return the label, and the reason for the order of its classes.

        Args:
            column: the name of the column, for errors.
            types: the types of its values.
            is_text: whether texts of integers are the numbers of classes.
            before: the label of the previous version, whose classes keep their numbers.

        Raises:
            SourceError: the values cannot be classes.
        """
        if before is not None:
            return self._continue(column, types, before, is_text=is_text)
        kinds = {name: seen for name, seen in types.seen.items() if seen.has_values}
        if not kinds:
            _refuse(column, "every value is null, so it has no classes")
        if len(kinds) > 1 and not kinds.keys().isdisjoint(("string", "bool")):
            _refuse(column, conflict(column, kinds).problem)
        if "bool" in kinds:
            return ClassLabel(names=BOOLEANS), "classes false and true, as requested"
        is_integer = import_pyarrow().types.is_integer
        integers = [seen for seen in kinds.values() if seen.kind is not None and is_integer(seen.kind)]
        if integers:
            bounds = [bound for seen in integers for bound in (seen.low, seen.high) if bound is not None]
            return self._decide_numbers(column, min(bounds), max(bounds))
        if self.not_utf8 is not None:
            _refuse(column, f"text that is not UTF-8 at {show_place(self.not_utf8)} cannot be a class")
        if not self.names:
            name, seen = max(kinds.items())
            _refuse(column, f"{name_type(name)} at {show_place(seen.first)} cannot be a class")
        if len(self.names) > MAX_CLASSES:
            _refuse(column, f"it has more than {MAX_CLASSES:,} different values, which is too many for classes")
        if is_text and all(map(_INTEGER.fullmatch, self.names)) and "-0" not in self.names:
            numbers = list(map(int, self.names))
            return self._decide_numbers(column, min(numbers), max(numbers))
        return self._decide_names(column)

    def _continue(self, column: str, types: ValueTypes, before: ClassLabel, *, is_text: bool) -> tuple[ClassLabel, str]:
        """Return the label of the previous version, extended by the new classes."""
        kinds = {name for name, seen in types.seen.items() if seen.has_values}
        if not kinds:
            return before, AS_BEFORE
        are_few = 0 < len(self.names) <= MAX_CLASSES and self.not_utf8 is None
        are_names = before.names is not None and are_few and kinds == {"string"}
        try:
            label, reason = self._decide_names(column) if are_names else self.decide(column, types, is_text=is_text)
        except SourceError as error:
            more = f"{error.hint}. To infer all types anew, not as in the previous version: {spell('retype', True)}"
            raise SourceError(error.message, hint=more, details=error.details) from error
        return continue_classes(column, before, label, reason, is_by_name=True)

    def _decide_names(self, column: str) -> tuple[ClassLabel, str]:
        names = sorted(self.names)
        for name in names:
            try:
                if len(name) > MAX_NAME:
                    _refuse(column, f"{quote(name)} at {show_place(self.names[name])} is too long for a class")
                ClassLabel(names=[name])
            except FeatureError as error:
                _refuse(column, f"{error.message} at {show_place(self.names[name])}")
        return ClassLabel(names=names), f"{_count(len(names))} as requested, sorted by name"

    @staticmethod
    def _decide_numbers(column: str, low: int, high: int) -> tuple[ClassLabel, str]:
        if low < -1:
            _refuse(column, f"the number {low} cannot be a class")
        if high >= MAX_CLASSES:
            _refuse(column, f"the number {high} is too large: a ClassLabel has at most {MAX_CLASSES:,} classes")
        note = ", and -1 for no label" if low < 0 else ""
        label = ClassLabel(num_classes=high + 1)
        return label, f"{_count(high + 1)} as requested, numbered from 0 as in the data{note}"


def continue_classes(
    column: str, before: ClassLabel, label: ClassLabel, reason: str, *, is_by_name: bool
) -> tuple[ClassLabel, str]:
    """Append the new classes of ``label`` to those of the previous version.

    Returns them, and the reason for their order.

    Args:
        column: the name of the column, for errors.
        before: the label of the previous version.
        label: the label of the values.
        reason: the reason for the order of ``label``.
        is_by_name: whether the values are the names of classes, and not their numbers in ``label``.

    Raises:
        SourceError: classes of the previous version have other numbers in ``label``.
    """
    if before.names is not None and label.names is not None:
        known = set(before.names)
        more = [name for name in label.names if name not in known]
        names = [*before.names, *more]
        if is_by_name or names[: len(label.names)] == list(label.names):
            new = f"; new: {', '.join(map(quote, more[:5]))}" + (f" and {len(more) - 5:,} more" if more[5:] else "")
            return ClassLabel(names=names), f"{_count(len(names))}, {AS_BEFORE}{new if more else ''}"
    num_before = before.num_classes or 0
    if label.names is None and (label.num_classes or 0) <= num_before:
        return before, AS_BEFORE
    if before.names is None and label.names is None:
        return label, f"{reason}; {num_before:,} in the previous version"
    raise SourceError(
        f"column {quote(column)}: its classes were {_describe(before)} in the previous version, and are "
        f"{_describe(label)} now",
        hint=f"To number the classes anew: {spell('retype', True)}",
        details={"column": column},
    )


def _describe(label: ClassLabel) -> str:
    if label.names is None:
        return "numbers"
    return f"the names {', '.join(map(quote, label.names[:5]))}{' ...' if label.names[5:] else ''}"


def _count(number: int) -> str:
    return f"{number:,} class{'es' if number != 1 else ''}"


def _refuse(column: str, problem: str) -> NoReturn:
    raise SourceError(
        f"column {quote(column)}: {problem}",
        hint=f"To store it as text: {spell('features', {column: 'Text'})}",
        details={"column": column},
    )


AS_BEFORE: Final = "as in the previous version"


def describe_requests(
    wishes: Mapping[str, Wish], stored: FeaturesDict, without_values: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the entries of ``custom["intake"]`` that record the requested types.

    ``requested`` types are those of ``stored``, except that a list may be ``null_as_empty``. The types of ``absent``
    columns are written as in a schema file. Columns ``without_values`` have only nulls; the first values will decide
    their types.
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
    if feature is None:  # classes without any known value
        return wish.text
    kind = arrow_type_of(feature) if wish.arrow_type is None else wish.arrow_type
    optional = bool(wish.optional)
    return write_type(as_optional(feature) if optional else feature, kind, null_as_empty=optional and is_list(kind))


def remembered_wishes(features: FeaturesDict, custom: Mapping[str, Any]) -> dict[str, Wish]:
    """Return the types of the previous version, by column.

    Args:
        features: the features of the previous version.
        custom: its custom metadata: ``intake``, and ``arrow_types`` with the types of times.
    """
    entry = custom.get("intake")
    if not isinstance(entry, Mapping):
        return {}
    kinds, requested = custom.get("arrow_types"), _names(entry.get("requested"))
    words = {path: word for path, word in (kinds.items() if isinstance(kinds, Mapping) else ()) if _is_word(word)}
    nullable = frozenset(_names(entry.get("nullable")))
    lists, absent = _names(entry.get("null_as_empty")), entry.get("absent")
    wishes = {name: Wish(text="skip", action="skip", is_remembered=True) for name in _names(entry.get("skipped"))}
    for name, written in absent.items() if isinstance(absent, Mapping) else ():
        wish = read_type(written, name, "the metadata of the previous version")
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
        kind = _arrow_type(name, feature, words, nullable)
        is_described = any(leaf_types(name, feature, kind)) or any(nullable_paths(name, kind))
        wishes[name] = Wish(
            text=AS_BEFORE,
            feature=feature,
            arrow_type=kind if is_inferred or is_described else None,
            optional=name in lists or bool(getattr(feature, "optional", False)),
            is_remembered=True,
            is_inferred=is_inferred,
        )
    return wishes


def keep_types(before: Feature, known: Any, feature: Feature, kind: Any) -> tuple[Feature, Any]:
    """The feature and the Arrow type of a column with the types of the previous version.

    A nullable field of objects in lists is kept even if no object has it any more: it is null in all objects, and
    exports to JSON lines omit the key.

    Args:
        before: its feature in the previous version.
        known: its Arrow type in the previous version.
        feature: the feature that its values have now. Its fields that are new are kept.
        kind: their Arrow type.
    """
    if is_nullable(kind):  # otherwise a null makes its row unusable
        feature, kind = feature.feature, kind.value_type  # type: ignore[attr-defined]  # a Sequence
    if is_nullable(known) and isinstance(before, SequenceFeature):
        inner, value = keep_types(before.feature, known.value_type, feature, kind)
        return SequenceFeature(inner), nullable_type(value)
    if type(before) is FeaturesDict and type(feature) is FeaturesDict:
        pairs = {
            name: keep_types(before[name], known.field(name).type, inner, kind.field(name).type)
            if name in before
            else (inner, kind.field(name).type)
            for name, inner in feature.items()
        }
        for name, inner in before.items():
            if name not in feature and is_nullable(known.field(name).type):
                pairs[name] = inner, known.field(name).type
        struct = import_pyarrow().struct([(name, inner_kind) for name, (_, inner_kind) in pairs.items()])
        return FeaturesDict({name: inner for name, (inner, _) in pairs.items()}), struct
    if isinstance(before, SequenceFeature) and isinstance(feature, SequenceFeature) and before.length == feature.length:
        inner, value = keep_types(before.feature, known.value_type, feature.feature, kind.value_type)
        return SequenceFeature(inner, length=before.length), _list_type(value, [before.length])
    return before, known


def _arrow_type(path: str, feature: Feature, words: Mapping[str, str], nullable: frozenset[str]) -> Any:
    """The Arrow type of the values of ``feature`` in the previous version.

    Args:
        path: the name of the column, or the path of a field, with ``[]`` for elements.
        feature: the feature.
        words: the Arrow types of times and of some bytes, by the path of the feature.
        nullable: the paths in lists at which a value may be null; see ``value_types.nullable_paths``.
    """
    if path in nullable and isinstance(feature, SequenceFeature):
        return nullable_type(_arrow_type(path, feature.feature, words, nullable - {path}))
    if isinstance(feature, FeaturesDict):
        fields = [(name, _arrow_type(f"{path}/{name}", inner, words, nullable)) for name, inner in feature.items()]
        return import_pyarrow().struct(fields)
    if isinstance(feature, SequenceFeature):
        return _list_type(_arrow_type(f"{path}[]", feature.feature, words, nullable), [feature.length])
    word = words.get(path) or words.get(path.replace("[]", ""))  # the name of a column may end in []
    if isinstance(feature, Tensor) and word is not None:
        return _list_type(parse_feature(word).arrow_type, feature.shape)
    is_bytes = type(feature) is Tensor and feature.dtype == TEXT and not feature.shape
    return import_pyarrow().binary() if is_bytes else arrow_type_of(feature)


def _list_type(inner: Any, sizes: Sequence[int | None]) -> Any:
    for size in reversed(sizes):
        inner = import_pyarrow().list_(inner, -1 if size is None else size)
    return inner


def _is_word(word: Any) -> bool:
    """Whether an entry of the Arrow types is not the type of decimals, which are stored as text."""
    return isinstance(word, str) and not word.startswith("decimal")


def _names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
