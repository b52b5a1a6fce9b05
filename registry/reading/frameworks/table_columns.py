"""Converts the columns of a read to Arrow record batches for other tools. All tables are made here.

    reader --blocks--> ``TableColumns.batch`` --> Arrow, pandas, polars, SQL, Ray; csv, jsonl, parquet, Hugging Face

Images and sounds are not decoded: a table has the bytes of their files. A Sequence of a dict becomes a list of
structs, and a column of counts since 1970 gets back the Arrow type that it was imported with. The schema describes
class names, images and sounds as Hugging Face's software does.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from registry.display import TimeType, file_features, media_kind, named_types, time_types
from registry.errors import FeatureError, UsageError, spell
from registry.features import (
    Audio,
    ClassLabel,
    Feature,
    FeaturesDict,
    Image,
    Leaf,
    RawFeature,
    Scalar,
    Sequence,
    Text,
)
from registry.features.containers import Column, columns_of
from registry.features.feature import TEXT
from registry.model import DatasetMetadata, listed
from registry.reading.frameworks.arrays import check_text_form, no_examples
from registry.reading.frameworks.leaf_arrays import LeafArrays

if TYPE_CHECKING:
    from registry.reading.frameworks.arrays import TextForm

Labels: TypeAlias = Literal["names", "numbers", "dictionary"]
"""The forms of class labels: names, numbers, or an Arrow dictionary, which has both."""

_ADDED: Final = "intake"
"""The key of the custom metadata of a version that was added without a builder. It has the order
of the columns, and implies that their types are known."""

_DECIMAL: Final = re.compile(r"(decimal(?:32|64|128|256))\(([0-9]{1,2}), ([0-9]{1,2})\)")
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_SECONDS: Final = 86_400
_NOT_A_TIME: Final = np.iinfo(np.int64).min


class TableColumns:
    """The conversion of the features of a version to Arrow columns.

    Attributes:
        features: the features to read with. They give the files of images and sounds as bytes.
        schema: the Arrow schema of every batch. It has Hugging Face's metadata unless ``as_text`` is set.
    """

    def __init__(
        self,
        features: FeaturesDict,
        metadata: DatasetMetadata,
        *,
        labels: Labels,
        as_text: bool = False,
        text: TextForm = "str",
        decode: bool = False,
        widen: bool = False,
        hint: str | None = None,
    ) -> None:
        """Plan the conversion.

        Args:
            features: the features of the version.
            metadata: its metadata: the types of temporal columns, and the texts about the dataset.
            labels: write class labels as names, numbers or a dictionary. A label without names is always a number.
            as_text: make values that text formats can hold: times become ISO 8601 texts, and files of images and sounds
                become structs of a text ``base64``. Texts are ``binary``, because they may not be UTF-8.
            text: ``bytes`` keeps texts as they are stored.
            decode: decode images and sounds into lists of numbers.
            widen: make float16 a float32, for tools that do not have it.
            hint: the hint for text that is not UTF-8; None suggests a format that can store it.

        Raises:
            FeatureError: a feature cannot be exported, because its class is unknown or it has no values.
        """
        self._original = features
        self._leaves = columns_of(features)
        self._as_text, self._labels = as_text, labels
        self._decode, self._widen, self._hint = decode, widen, hint
        _check_features(features)
        self.features = features if decode else file_features(features)
        self._types = temporal_types(features, metadata)
        self._texts = text_paths(features, metadata) if check_text_form(text) and not as_text else frozenset()
        self._decimals = decimal_types(metadata)
        self._nullable = metadata.nullable_paths
        self._maker = LeafArrays(self.features)
        self._names: dict[str, pa.Array] = {}
        schema = self._assemble(no_examples(self.features)).schema
        self.schema: pa.Schema = schema if as_text else schema.with_metadata(self._describe(schema, metadata))

    def batch(self, columns: Mapping[str, Any]) -> pa.RecordBatch:
        """The record batch of a block of examples, with ``schema``.

        Raises:
            FeatureError: a text is not UTF-8, or a value does not fit the type of its column.
        """
        return self._assemble(columns).replace_schema_metadata(self.schema.metadata)

    def _assemble(self, columns: Mapping[str, Any]) -> pa.RecordBatch:
        arrays = self._maker.of(columns)
        converted = (
            _map_values(array, partial(self._convert, leaf)) for leaf, array in zip(self._leaves, arrays, strict=True)
        )
        nested = {name: _nest(feature, converted) for name, feature in self._original.items()}
        if self._nullable:
            nested = {name: _restore_nulls(array, name, self._nullable) for name, array in nested.items()}
        return pa.RecordBatch.from_pydict(nested)

    def _convert(self, column: Column, values: pa.Array) -> pa.Array:
        """The innermost values of a leaf as they are exported."""
        leaf, kind = column.leaf, self._types.get(column.path)
        if media_kind(leaf) is not None and not (self._decode and isinstance(leaf, Audio | Image)):
            return _encode_files(values) if self._as_text else _wrap_files(values)
        if isinstance(leaf, ClassLabel) and leaf.names is not None and self._labels != "numbers":
            if column.path not in self._names:  # a label may have a million names
                self._names[column.path] = pa.array(leaf.names, pa.string())
            labels = _label_dictionary(values, self._names[column.path], column.path)
            return labels if self._labels == "dictionary" else labels.cast(pa.string())
        if kind is not None:
            return _time_texts(values, kind, column.path) if self._as_text else values.view(kind)
        if column.path in self._texts:
            texts = decode_text(values, column.path, hint=self._hint)
            return _restore_decimals(texts, self._decimals.get(column.path), column.path)
        return values.cast(pa.float32()) if self._widen and pa.types.is_float16(values.type) else values

    def _describe(self, schema: pa.Schema, metadata: DatasetMetadata) -> dict[bytes, bytes]:
        """Hugging Face's schema metadata: features, and the texts about the dataset."""
        features = {
            field.name: self._describe_type(field.type, self._original[field.name], field.name) for field in schema
        }
        about = {name: getattr(metadata, name) for name in ("description", "citation", "homepage", "license")}
        info = {"features": features} | {name: text for name, text in about.items() if text}
        return {b"huggingface": json.dumps({"info": info}).encode()}

    def _describe_type(self, kind: pa.DataType, feature: Feature, path: str) -> Any:
        if path in self._nullable and isinstance(feature, Sequence):
            feature = feature.feature
        if isinstance(feature, FeaturesDict):
            return {
                field.name: self._describe_type(field.type, feature[field.name], f"{path}/{field.name}")
                for field in kind
            }
        if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
            element = feature.feature if isinstance(feature, Sequence) else feature
            inner = self._describe_type(kind.value_type, element, f"{path}[]")
            return _describe_list(inner, kind.list_size if pa.types.is_fixed_size_list(kind) else -1)
        media = media_kind(feature)
        if media is not None and pa.types.is_struct(kind):
            rate = feature.sample_rate if isinstance(feature, Audio) else None
            return {"_type": media.capitalize()} | ({} if rate is None else {"sampling_rate": rate})
        if isinstance(feature, ClassLabel) and feature.names is not None and pa.types.is_integer(kind):
            return {"names": list(feature.names), "_type": "ClassLabel"}
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return {"dtype": _VALUE_TYPES.get(str(kind), str(kind)), "_type": "Value"}


_VALUE_TYPES: Final = {
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    "date32[day]": "date32",
    "date64[ms]": "date64",
}
"""Hugging Face's names of types that differ from Arrow's."""


def _describe_list(inner: Any, length: int) -> Any:
    """Describe a list in Hugging Face's schema, if possible in a form that releases before 4.0 can also read."""
    is_dict = isinstance(inner, dict) and not isinstance(inner.get("_type"), str)
    if is_dict and length < 0:
        return [inner]
    # To every release, a Sequence of a dict is a dict of lists.
    return {"feature": inner, "length": length, "_type": "List" if is_dict else "Sequence"}


def in_source_order(features: FeaturesDict, metadata: DatasetMetadata) -> FeaturesDict:
    """The features in the order of ``DatasetMetadata.in_source_order``."""
    return FeaturesDict({name: features[name] for name in metadata.in_source_order(list(features))})


def without_unknown(features: FeaturesDict) -> FeaturesDict:
    """The features that have a type: without those of an unknown class, and without empty dicts."""

    def strip(feature: Feature) -> Feature | None:
        if isinstance(feature, FeaturesDict):
            return without_unknown(feature) or None
        if isinstance(feature, Sequence):
            inner = strip(feature.feature)
            return feature if inner is feature.feature else inner and Sequence(inner, length=feature.length)
        return None if isinstance(feature, RawFeature) else feature

    typed = {name: strip(feature) for name, feature in features.items()}
    same = all(typed[name] is feature for name, feature in features.items())
    return features if same else FeaturesDict({name: feature for name, feature in typed.items() if feature is not None})


def temporal_types(features: FeaturesDict, metadata: DatasetMetadata) -> dict[str, pa.DataType]:
    """The Arrow types of ``time_types``: a column of a malformed type is exported as numbers."""
    return {path: arrow_type(time) for path, time in time_types(features, metadata).items()}


def arrow_type(time: TimeType) -> pa.DataType:
    """The Arrow type of dates, times or durations."""
    if time.kind == "timestamp":
        return pa.timestamp(time.unit, time.zone)
    if time.kind == "date":
        return pa.date32() if time.is_short else pa.date64()
    make = pa.duration if time.kind == "duration" else pa.time32 if time.is_short else pa.time64
    return make(time.unit)


def text_paths(features: FeaturesDict, metadata: DatasetMetadata) -> frozenset[str]:
    """The paths of the features that hold text: ``Text``, and text that may be missing.

    Optional text and optional bytes have the same feature. Only a version that was added without a builder
    distinguishes them; otherwise the values count as bytes.
    """
    named, is_added = named_types(metadata), _ADDED in metadata.custom

    def is_text(column: Column) -> bool:
        leaf = column.leaf
        may_be = is_added and isinstance(leaf, Scalar) and leaf.dtype == TEXT and media_kind(leaf) is None
        return isinstance(leaf, Text) or (may_be and named.get(column.path) != "bytes")

    return frozenset(column.path for column in columns_of(features) if is_text(column))


def decimal_types(metadata: DatasetMetadata) -> dict[str, pa.DataType]:
    """The Arrow types of texts that were decimals when they were added, by path."""
    types: dict[str, pa.DataType] = {}
    for path, text in named_types(metadata).items():
        if isinstance(text, str) and (match := _DECIMAL.fullmatch(text)):
            try:
                types[path] = getattr(pa, match[1])(int(match[2]), int(match[3]))
            except ValueError:  # a precision that this type does not have
                continue
    return types


def _restore_decimals(texts: pa.Array, kind: pa.DataType | None, path: str) -> pa.Array:
    """Text as decimals of the type ``kind``; unchanged if it is None."""
    if kind is None:
        return texts
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid as error:
        raise FeatureError(
            f"feature {path!r}: a text is not a {kind}, which the metadata names: {error}",
            details={"feature": path},
        ) from error


def _check_features(feature: Feature, path: str = "") -> None:
    if isinstance(feature, RawFeature):
        raise FeatureError(
            f"feature {path!r} has the unknown class {feature.class_name!r:.200}, so it has no type to export",
            hint=f"Export the other features: name them with {spell('columns')}.",
            details={"feature": path},
        )
    if isinstance(feature, FeaturesDict):
        if not feature:
            raise FeatureError(
                f"feature {path!r} is an empty dict" if path else "the version has no features",
                hint=f"Export other features: name them with {spell('columns')}." if path else None,
                details={"feature": path},
            )
        for name, inner in feature.items():
            _check_features(inner, f"{path}/{name}" if path else name)
    elif isinstance(feature, Sequence):
        _check_features(feature.feature, path)


def _nest(feature: Feature, arrays: Iterator[pa.Array]) -> pa.Array:
    """The array of ``feature`` from the next arrays of its leaves."""
    if isinstance(feature, FeaturesDict):
        fields = {name: _nest(inner, arrays) for name, inner in feature.items()}
        return pa.StructArray.from_arrays(list(fields.values()), list(fields))
    if isinstance(feature, Sequence) and not isinstance(feature.feature, Leaf):
        below = [next(arrays) for _ in columns_of(feature)]
        return _with_values(below[0], _nest(feature.feature, iter([array.values for array in below])))
    return next(arrays)


def _restore_nulls(array: pa.Array, path: str, nullable: frozenset[str]) -> pa.Array:
    """``array`` in which each list of none or one at a nullable path is a null or the value."""
    if path in nullable and pa.types.is_list(array.type):
        lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        if lengths.size and lengths.max() > 1:
            raise FeatureError(
                f"feature {path!r}: expected at most one value, as in the metadata, found {lengths.max()}",
                details={"feature": path},
            )
        places = pa.array(np.cumsum(lengths) - 1, mask=lengths == 0)
        return _restore_nulls(array.flatten(), path, nullable - {path}).take(places)
    if pa.types.is_struct(array.type):
        fields = {
            field.name: _restore_nulls(array.field(index), f"{path}/{field.name}", nullable)
            for index, field in enumerate(array.type)
        }
        return pa.StructArray.from_arrays([*fields.values()], [*fields], mask=array.is_null())
    if pa.types.is_list(array.type) or pa.types.is_fixed_size_list(array.type):
        return _with_values(array, _restore_nulls(array.values, f"{path}[]", nullable))
    return array


def _map_values(array: pa.Array, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """``array`` with its innermost values changed."""
    if isinstance(array, (pa.ListArray, pa.FixedSizeListArray)):
        return _with_values(array, _map_values(array.values, change))
    return change(array)


def _with_values(lists: pa.Array, values: pa.Array) -> pa.Array:
    """The lists of ``lists`` with other values in them."""
    kind = lists.type
    if not pa.types.is_fixed_size_list(kind):
        return pa.Array.from_buffers(pa.list_(values.type), len(lists), lists.buffers()[:2], children=[values])
    if not kind.list_size:  # no other tool accepts lists of the fixed size 0
        empty = pa.py_buffer(np.zeros(len(lists) + 1, np.int32))
        return pa.Array.from_buffers(pa.list_(values.type), len(lists), [lists.buffers()[0], empty], children=[values])
    return pa.Array.from_buffers(
        pa.list_(values.type, kind.list_size), len(lists), lists.buffers()[:1], children=[values]
    )


def _wrap_files(files: pa.Array) -> pa.Array:
    """Hugging Face's storage of a file: a struct of its bytes and its path, which is null."""
    columns = [files, pa.nulls(len(files), pa.string())]
    return pa.StructArray.from_arrays(columns, ["bytes", "path"], mask=files.is_null())


def _encode_files(files: pa.Array) -> pa.Array:
    texts = [None if file is None else base64.b64encode(file).decode("ascii") for file in files.to_pylist()]
    return pa.StructArray.from_arrays([pa.array(texts, pa.string())], ["base64"], mask=files.is_null())


def _label_dictionary(values: pa.Array, names: pa.Array, path: str) -> pa.Array:
    """Class numbers as indices of ``names``; null for -1, which means no label."""
    numbers = values.to_numpy(zero_copy_only=False)
    outside = (numbers < -1) | (numbers >= len(names))
    if outside.any():
        raise FeatureError(
            f"feature {path!r}: class number {numbers[outside][0]} has no name among {len(names)}",
            hint=f"Export labels as numbers: {spell('labels', 'numbers')}.",
            details={"feature": path},
        )
    indices = pa.array(numbers.astype(np.min_scalar_type(-len(names) - 1)), mask=numbers < 0)
    return pa.DictionaryArray.from_arrays(indices, names)


def decode_text(values: pa.Array, path: str, *, hint: str | None = None) -> pa.Array:
    """A ``string`` array of UTF-8 in a ``binary`` array.

    Raises:
        FeatureError: a value is not UTF-8; its ``hint`` is ``hint``, or names a format that can hold the value.
    """
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid as error:
        for value in values.to_pylist():
            try:
                value is None or value.decode("utf-8")
            except UnicodeDecodeError as found:
                raise FeatureError(
                    f"feature {path!r}: {value[:20]!r} is not UTF-8: {found.reason} at byte {found.start}",
                    hint=hint or "Export JSON lines: there, such a value is {'base64': ...}.",
                    details={"feature": path},
                ) from error
        raise  # Arrow and Python agree on the definition of UTF-8


def _time_texts(values: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    """Temporal values as ISO 8601 texts. An instant of a time zone is written in UTC, with a Z."""
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    texts = pa.array(_format_times(numbers, kind, path), pa.string())
    return texts if not values.null_count else pc.if_else(values.is_null(), pa.scalar(None, pa.string()), texts)


def _format_times(numbers: npt.NDArray[np.int64], kind: pa.DataType, path: str) -> list[str]:
    if pa.types.is_duration(kind):
        return [_format_duration(number, _PER_SECOND[kind.unit]) for number in numbers.tolist()]
    if pa.types.is_time(kind):
        limit = _DAY_SECONDS * _PER_SECOND[kind.unit]
        _refuse_times(numbers[(numbers < 0) | (numbers >= limit)], kind, path)
        midnight = np.zeros(1, f"datetime64[{kind.unit}]")
        return [text[11:] for text in _format_instants(midnight + numbers)]
    _refuse_times(numbers[numbers == _NOT_A_TIME], kind, path)
    if pa.types.is_date32(kind):
        return _format_instants(numbers.astype("datetime64[D]"))
    if pa.types.is_date64(kind):
        days = _format_instants(numbers.astype("datetime64[ms]"))
        return [text.removesuffix("T00:00:00.000") for text in days]
    texts = _format_instants(numbers.astype(f"datetime64[{kind.unit}]"))
    return texts if kind.tz is None else [f"{text}Z" for text in texts]


def _format_instants(instants: npt.NDArray[Any]) -> list[str]:
    texts: list[str] = np.datetime_as_string(instants).tolist() if instants.size else []
    return texts


def _format_duration(number: int, per_second: int) -> str:
    seconds, rest = divmod(abs(number), per_second)
    fraction = f".{rest:0{len(str(per_second)) - 1}}" if rest else ""
    return f"{'-' if number < 0 else ''}PT{seconds}{fraction}S"


def _refuse_times(numbers: npt.NDArray[np.int64], kind: pa.DataType, path: str) -> None:
    if numbers.size:
        raise FeatureError(
            f"feature {path!r}: {numbers[0]} is not a value of {kind}",
            hint="Export Parquet or Arrow, which store the number.",
            details={"feature": path},
        )


def csv_problems(features: FeaturesDict) -> dict[str, str]:
    """The columns that CSV cannot hold, each with a description of its values."""
    problems = {}
    for name, feature in features.items():
        if isinstance(feature, FeaturesDict):
            problems[name] = "a dict"
        elif isinstance(feature, Sequence):
            problems[name] = "a list"
        elif (media := media_kind(feature)) is not None:
            problems[name] = "an image" if media == "image" else "a sound"
        elif feature.shape:
            problems[name] = f"an array of shape {feature.shape}"
    return problems


def require_flat(features: FeaturesDict) -> None:
    """Refuse features that CSV cannot hold.

    Raises:
        UsageError: a column is not one number, text or time.
    """
    problems = csv_problems(features)
    if problems:
        described = listed([f"{name} ({kind})" for name, kind in problems.items()], 10)
        flat = [name for name in features if name not in problems]
        others = f", or only some columns: {spell('columns', flat[:10])}" if flat else ""
        raise UsageError(
            f"CSV cannot hold the column{'s' * (len(problems) > 1)} {described}",
            hint=f"Export jsonl or parquet{', or imagefolder' * ('an image' in problems.values())}{others}",
            details={"columns": list(problems)[:100]},
        )
