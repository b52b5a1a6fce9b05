"""The schema of a source: the feature and the Arrow type of each column, and the conversion of rows to these types.

Rows -> Inference -> Schema;   Rows -> Schema.convert -> Rows of equal types, which the pipeline writes as records
--schema FILE -> read_schema_file -> requested types;   Schema -> write_schema_file -> --schema-out FILE
Schema -> describe_requests -> metadata of a version -> remembered_wishes -> types of the next addition

The previous version is the schema of the next addition. Values are converted to types that were requested; inferred
types must match without a conversion.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO

from registry.errors import FeatureError, PinFormatError, PreparedFormatError, SourceError, UsageError
from registry.features import (
    ClassLabel,
    Feature,
    FeaturesDict,
    Image,
    Leaf,
    Scalar,
    Tensor,
    features_from_json,
    features_to_json,
)
from registry.features import Sequence as SequenceFeature
from registry.features.feature import TEXT
from registry.intake.conversion import ColumnSchema, convert_values
from registry.intake.feature_text import Wish, arrow_type_of, as_optional, is_type, leaf_types, parse_feature, type_word
from registry.intake.source import Rows, quote
from registry.intake.value_types import column_array, column_errors, is_list, is_nullable, nullable_paths, nullable_type
from registry.pins.yaml_text import join_key, read_yaml, write_yaml
from registry.shards.arrow_values import import_pyarrow
from registry.storage import read_file

arrow: Any = import_pyarrow("adding data")
types: Any = arrow.types


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns that become features, in order, and the names of the columns that are left out."""

    columns: tuple[ColumnSchema, ...]
    skipped: tuple[str, ...] = ()

    def features(self) -> FeaturesDict:
        """The features of a record."""
        return FeaturesDict({column.name: column.feature for column in self.columns})

    def arrow_types(self) -> dict[str, str]:
        """The Arrow types that an export restores, because the features do not show them.

        By the path of the feature: the type of times; ``bytes`` for bytes that may be null; and the type of decimals,
        which are stored as text. For example ``{"when": "timestamp[us, tz=UTC]", "price": "decimal128(10, 2)"}``.
        """
        decimals = {path: kind for column in self.columns for path, kind in column.decimals}
        return decimals | {
            path: type_word(kind)
            for column in self.columns
            for path, kind in leaf_types(column.name, column.feature, column.arrow_type)
        }

    def without_values(self, num_rows: int | None) -> list[str]:
        """Return the columns whose type is unknown, because they are null in all of ``num_rows`` rows."""
        return [
            column.name
            for column in self.columns
            if num_rows and column.num_nulls == num_rows and not column.is_requested and not column.anew
        ]

    def nullable_paths(self) -> list[str]:
        """The paths inside of lists at which a list of zero or one element stores a value that may be null."""
        return [path for column in self.columns for path in nullable_paths(column.name, column.arrow_type)]

    def convert(self, part_name: str, rows: Rows) -> Rows:
        """Convert ``rows`` to the columns of this schema, in its order and with its types.

        Args:
            part_name: the name of the part, to report rows that do not fit.
            rows: rows of the source.

        Returns:
            The rows whose values fit. The others are appended to ``bad``.

        Raises:
            SourceError: the rows have a column that is not in the schema.
        """
        names = [column.name for column in self.columns]
        more = sorted(set(rows.table.schema.names) - {*names, *self.skipped})
        if more:
            raise SourceError(
                f"{part_name}: column {quote(more[0])} is not in the schema",
                hint=f"Add it to the schema, with the type `skip` to leave it out. Columns: {', '.join(names[:20])}.",
                details={"column": more[0]},
            )
        arrays: list[Any] = []
        faults: dict[int, list[tuple[str | None, str]]] = {}
        for column in self.columns:
            with column_errors(column.name, column.arrow_type):
                array, problems = convert_values(column_array(rows.table, column.name), column)
            arrays.append(array)
            for row, problem in problems.items():
                faults.setdefault(row, []).append((column.name, problem))
        return replace(rows, table=arrow.table(arrays, names=names)).without(part_name, faults)


_EXPECTED: Final = (
    "expected a type such as int64, or a mapping with the key fields, list, nullable, names, num_classes or json"
)
_MOST_NAMES: Final = 12
"""The maximum number of names of classes on one line."""

_COMMENT: Final = "The types of columns: registry add SOURCE --schema FILE\nA type that ends with ? may be null."


def read_schema_file(path: str | Path) -> Mapping[str, Wish]:
    """Read the types in a schema file, by column.

    Raises:
        SourceError: the file cannot be read, is not strict YAML, or contains an invalid type; the message names the
            line.
        MissingExtraError: pyarrow is not installed.
    """
    try:
        data = read_file(path)
    except OSError as error:
        raise SourceError(
            f"{path}: {error.strerror}",
            hint="Write a schema file with: registry add SOURCE --dry-run --schema-out FILE",
            details={"path": str(path)},
        ) from error
    return parse_schema_file(data, str(path))


def parse_schema_file(data: bytes, source: str) -> Mapping[str, Wish]:
    """Parse the types in the text of a schema file, by column.

    Args:
        data: the text.
        source: the name of the file, for errors.

    Raises:
        SourceError: the text is not strict YAML, or contains an invalid type; the message names the line.
        MissingExtraError: pyarrow is not installed.
    """
    try:
        document = read_yaml(data, source)
    except PinFormatError as error:
        raise SourceError(
            error.message.replace("in a pin file", "in a schema file"),
            hint="Write a schema file with: registry add SOURCE --dry-run --schema-out FILE",
            details={"path": source},
        ) from error
    return _SchemaReader(source, document.lines).read(document.value)


def read_type(value: Any, column: str, source: str) -> Wish:
    """Read a type of ``column`` that ``write_type`` wrote.

    Raises:
        SourceError: the value is not a type; the message names ``source``.
    """
    return _SchemaReader(source, {})._column(value, column)


def write_schema_file(schema: Schema, stream: TextIO) -> None:
    """Write ``schema`` as YAML that ``read_schema_file`` reads."""
    columns = {
        column.name: write_type(column.feature, column.arrow_type, null_as_empty=column.null_as_empty)
        for column in schema.columns
    }
    skipped = dict.fromkeys(schema.skipped, "skip")
    stream.write(write_yaml({"columns": columns | skipped}, comment=_COMMENT))


def describe_type(column: ColumnSchema) -> str:
    """Describe the type of a column for messages, if possible by the word that ``parse_feature`` reads.

    >>> from registry.features import Text
    >>> describe_type(ColumnSchema(name="t", feature=Text(), arrow_type=arrow.string()))
    'Text'
    """
    if type(column.feature) is Tensor and not column.feature.shape and not types.is_null(column.arrow_type):
        return type_word(column.arrow_type)  # a description, such as that of the bytes of videos, does not matter
    return _describe(write_type(column.feature, column.arrow_type))


def _describe(written: Any) -> str:
    if isinstance(written, str):
        return written
    if "fields" in written:
        return "{" + ", ".join(f"{name}: {_describe(node)}" for name, node in written["fields"].items()) + "}"
    if "nullable" in written:
        word = _describe(written["nullable"])
        return f"({word})?" if word.endswith("?") else f"{word}?"
    if "list" in written:
        length = f" of {written['length']}" if "length" in written else ""
        return f"list{length} of {_describe(written['list'])}"
    if "names" in written or "num_classes" in written:
        return f"ClassLabel of {written.get('num_classes') or len(written['names']):,} classes"
    return str(written["json"].get("pythonClassName", "feature")).rpartition(".")[2]


def write_type(feature: Feature, kind: Any, *, null_as_empty: bool = False) -> Any:
    """Write a feature as a word if there is a suitable word, otherwise as a mapping. ``read_type`` reads both."""
    if types.is_null(kind):  # a feature of TFDS, for records that are not converted
        return {"json": json.loads(features_to_json(FeaturesDict({"x": feature})))["featuresDict"]["features"]["x"]}
    if is_nullable(kind):
        return {"nullable": write_type(feature.feature, kind.value_type)}  # type: ignore[attr-defined]  # a Sequence
    if type(feature) is FeaturesDict:
        return {"fields": {name: write_type(inner, kind.field(name).type) for name, inner in feature.items()}}
    word = _word(feature, kind)
    if word is not None:
        return f"{word}?" if null_as_empty else word
    if type(feature) is SequenceFeature:
        length = {} if feature.length is None else {"length": feature.length}
        return {"list": write_type(feature.feature, kind.value_type)} | length
    if type(feature) is ClassLabel and feature == ClassLabel(num_classes=feature.num_classes, names=feature.names):
        return {"num_classes": feature.num_classes} if feature.names is None else {"names": list(feature.names)}
    document = json.loads(features_to_json(FeaturesDict({"x": feature})))
    result: dict[str, Any] = {"json": document["featuresDict"]["features"]["x"]}
    if isinstance(feature, Leaf) and feature.class_label is not None and feature.class_label.names is not None:
        result["names"] = list(feature.class_label.names)
    if arrow_type_of(feature) != kind:
        result["type"] = type_word(kind)
    return result


def _word(feature: Feature, kind: Any) -> str | None:
    """Return the word that ``parse_feature`` reads as ``feature``, or None."""
    sizes: list[str] = []
    inner = feature
    while is_list(kind):
        if is_nullable(kind):
            return None
        size = getattr(kind, "list_size", None)
        sizes.append("" if size is None else str(size))
        kind = kind.value_type
        inner = inner.feature if isinstance(inner, SequenceFeature) else inner
    if isinstance(inner, ClassLabel):
        if len(inner.names or ()) not in range(1, _MOST_NAMES + 1):
            return None
        word = f"ClassLabel({', '.join(map(_quote_name, inner.names or ()))})"
    else:
        word = type_word(kind)
    if isinstance(inner, Image):
        word = "Image" if inner.shape == (None, None, None) else f"Image[{', '.join(map(str, inner.shape))}]"
    shape = f"[{', '.join(sizes)}]" if sizes else ""
    nested = "".join(f"[{size}]" for size in reversed(sizes))
    for candidate in (f"{word}{shape}", f"{word}{nested}", f"{word}{nested}?"):
        try:
            wish = parse_feature(candidate)
        except UsageError:
            continue
        if wish.feature is not None and feature == (as_optional(wish.feature) if wish.optional else wish.feature):
            return candidate
    return None


def _quote_name(name: str) -> str:
    return name if re.fullmatch(r"[^\s\",()?]+( [^\s\",()?]+)*", name) else json.dumps(name, ensure_ascii=False)


class _SchemaReader:
    """Reads the values of a schema file. ``lines`` has the line of each key path."""

    def __init__(self, source: str, lines: Mapping[str, int]) -> None:
        self._source = source
        self._lines = lines

    def read(self, value: Mapping[str, Any]) -> dict[str, Wish]:
        if set(value) != {"columns"} or not isinstance(value["columns"], dict):
            self._fail("", "expected the key 'columns' with a mapping of columns to types, and no other key")
        return {name: self._column(inner, join_key("columns", name)) for name, inner in value["columns"].items()}

    def _column(self, value: Any, path: str) -> Wish:
        if isinstance(value, str):
            return self._parse(value, path)
        feature, kind = self._nested(value, path)
        return Wish(text="a type of the schema file", feature=feature, arrow_type=kind, optional=False)

    def _parse(self, text: str, path: str) -> Wish:
        try:
            wish = parse_feature(text)
        except UsageError as error:
            self._fail(path, error.message, error.hint)
        return wish if wish.action == "skip" else replace(wish, optional=bool(wish.optional))

    def _nested(self, value: Any, path: str) -> tuple[Feature, Any]:
        """Return a feature and its Arrow type, which is None if it depends on the data."""
        if isinstance(value, str):
            wish = self._parse(value, path)
            if wish.feature is None:
                self._fail(path, f"{wish.text} is possible for whole columns only")
            return as_optional(wish.feature) if wish.optional else wish.feature, wish.arrow_type
        if not isinstance(value, dict):
            self._fail(path, _EXPECTED)
        try:
            return self._mapping(value, path)
        except (FeatureError, PreparedFormatError) as error:
            self._fail(path, error.message, error.hint)

    def _mapping(self, value: dict[str, Any], path: str) -> tuple[Feature, Any]:
        keys = set(value)
        if keys == {"fields"} and isinstance(value["fields"], dict) and value["fields"]:
            inside = join_key(path, "fields")
            fields = {name: self._nested(inner, join_key(inside, name)) for name, inner in value["fields"].items()}
            struct = arrow.struct([(name, kind) for name, (_, kind) in fields.items()])
            return FeaturesDict({name: feature for name, (feature, _) in fields.items()}), struct
        if keys in ({"list"}, {"list", "length"}) and type(value.get("length", 0)) is int:
            feature, kind = self._nested(value["list"], join_key(path, "list"))
            length = value.get("length")
            return SequenceFeature(feature, length=length), arrow.list_(kind, -1 if length is None else length)
        if keys == {"nullable"}:
            feature, kind = self._nested(value["nullable"], join_key(path, "nullable"))
            return SequenceFeature(feature), nullable_type(arrow_type_of(feature) if kind is None else kind)
        if keys == {"names"} and isinstance(value["names"], list):
            return ClassLabel(names=value["names"]), arrow.int64()
        if keys == {"num_classes"} and type(value["num_classes"]) is int:
            return ClassLabel(num_classes=value["num_classes"]), arrow.int64()
        if "json" in keys and keys <= {"json", "names", "type"} and isinstance(value["json"], dict):
            return self._json(value, path)
        return self._fail(path, _EXPECTED)

    def _json(self, value: dict[str, Any], path: str) -> tuple[Feature, Any]:
        document = {
            "pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
            "featuresDict": {"features": {"x": value["json"]}},
        }
        feature = features_from_json(json.dumps(document))["x"]
        if isinstance(feature, Leaf) and isinstance(value.get("names"), list):
            feature = feature.with_label_names(tuple(value["names"]))
        kind = self._parse(value["type"], path).arrow_type if isinstance(value.get("type"), str) else None
        return feature, arrow_type_of(feature) if kind is None else kind

    def _fail(self, path: str, problem: str, hint: str | None = None) -> NoReturn:
        line = self._lines.get(path)
        where = ", ".join(filter(None, (f"line {line}" if line else "", path)))
        raise SourceError(
            f"{self._source}: {where}: {problem}" if where else f"{self._source}: {problem}",
            hint=hint or "Write a schema file with: registry add SOURCE --dry-run --schema-out FILE",
            details={"path": self._source, "key": path, "line": line},
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
    optional = [name for name, wish in sorted(wishes.items()) if wish.optional and wish.action != "skip"]
    lists = [name for name in optional if not isinstance(stored.get(name), Scalar)]
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
    words, requested = custom.get("arrow_types"), _names(entry.get("requested"))
    texts = words.items() if isinstance(words, Mapping) else ()  # decimals among them are stored as text
    kinds = {path: parse_feature(text).arrow_type for path, text in texts if isinstance(text, str) and is_type(text)}
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
            wishes[name] = Wish(text=AS_BEFORE, is_remembered=True, is_inferred=True)
            continue
        is_inferred = name not in requested
        if isinstance(feature, ClassLabel) and not is_inferred:
            wishes[name] = Wish(text=AS_BEFORE, action="classes", classes=feature, is_remembered=True)
            continue
        kind = _arrow_type(name, feature, kinds, nullable)
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


def with_remembered(wishes: Mapping[str, Wish], features: FeaturesDict, custom: Mapping[str, Any]) -> dict[str, Wish]:
    """Return ``wishes``, and the types of other columns of the previous version; see ``remembered_wishes``.

    A column that is requested with ``?`` keeps its type, and may be null.
    """
    before = remembered_wishes(features, custom)
    optional = {name: before[name] for name, wish in wishes.items() if wish.text == "?" and name in before}
    for name, wish in optional.items():
        optional[name] = replace(wish, optional=True, feature=wish.feature and as_optional(wish.feature))
    return {**before, **wishes, **optional}


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
        struct = arrow.struct([(name, inner_kind) for name, (_, inner_kind) in pairs.items()])
        return FeaturesDict({name: inner for name, (inner, _) in pairs.items()}), struct
    if isinstance(before, SequenceFeature) and isinstance(feature, SequenceFeature) and before.length == feature.length:
        inner, value = keep_types(before.feature, known.value_type, feature.feature, kind.value_type)
        return SequenceFeature(inner, length=before.length), _list_type(value, [before.length])
    return before, known


def _arrow_type(path: str, feature: Feature, kinds: Mapping[str, Any], nullable: frozenset[str]) -> Any:
    """The Arrow type of the values of ``feature`` in the previous version.

    Args:
        path: the name of the column, or the path of a field, with ``[]`` for elements.
        feature: the feature.
        kinds: the Arrow types of times and of some bytes, by the path of the feature.
        nullable: the paths in lists at which a value may be null; see ``value_types.nullable_paths``.
    """
    if path in nullable and isinstance(feature, SequenceFeature):
        return nullable_type(_arrow_type(path, feature.feature, kinds, nullable - {path}))
    if isinstance(feature, FeaturesDict):
        fields = [(name, _arrow_type(f"{path}/{name}", inner, kinds, nullable)) for name, inner in feature.items()]
        return arrow.struct(fields)
    if isinstance(feature, SequenceFeature):
        return _list_type(_arrow_type(f"{path}[]", feature.feature, kinds, nullable), [feature.length])
    kind = kinds.get(path, kinds.get(path.replace("[]", "")))  # the name of a column may end in []
    if isinstance(feature, Tensor) and kind is not None:
        return _list_type(kind, feature.shape)
    is_bytes = type(feature) is Tensor and feature.dtype == TEXT and not feature.shape
    return arrow.binary() if is_bytes else arrow_type_of(feature)


def _list_type(inner: Any, sizes: Sequence[int | None]) -> Any:
    for size in reversed(sizes):
        inner = arrow.list_(inner, -1 if size is None else size)
    return inner


def _names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
