"""Derives features from the columns of an Arrow table: from its schema and Hugging Face's schema metadata.

    bool, integers, float16, float32     Tensor () of that dtype
    float64                              Tensor () of its bytes, because float32 would change the number
    string                               Text
    binary                               Tensor () of bytes
    timestamp, date, time, duration      Tensor () of int64 (32 bits: int32), the count of the column's units
    list                                 Sequence; a list of structs is a Sequence of a dict
    fixed-size list                      a dimension of the Tensor in it; so is a length in Hugging Face's metadata
    struct                               FeaturesDict
    dictionary, extension                the feature of its values, or of its storage
    any of the first five with nulls     an optional Scalar of that dtype, but not in lists

Hugging Face's schema metadata is honoured: it adds the names of a ClassLabel, Image and Audio (structs of bytes and
path; the bytes are kept), and Array2D to Array5D. Other types are rejected with the column's name. The first row shows
which images and sounds can be decoded.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import numpy as np

from registry.errors import CorruptExampleError, FeatureError, MissingExtraError, PreparedFormatError
from registry.features import Audio, ClassLabel, Feature, FeaturesDict, Image, Scalar, Sequence, Tensor, Text
from registry.features.audio import SoundError, decode_sound, read_sample_rate
from registry.features.containers import Column, columns_of
from registry.model import DatasetMetadata
from registry.shards.arrow_values import import_pyarrow, plain_type
from registry.shards.blocks import TableBlock
from registry.shards.row_groups import RowGroupShard
from registry.wire import BytesColumn

_HUGGING_FACE: Final = b"huggingface"
_LIST_TYPES: Final = ("Sequence", "List", "LargeList")
_ARRAY_TYPES: Final = ("Array2D", "Array3D", "Array4D", "Array5D")
_UNITS: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_MOST_DEPTH: Final = 30
_HINT: Final = "Write the files again with another type for this column, or without it."


def features_of_schema(
    schema: Any,
    *,
    as_bytes: Collection[str] = (),
    sounds: Mapping[str, Audio] | None = None,
    optional: Collection[str] = (),
) -> FeaturesDict:
    """The features of the rows of a ``pyarrow.Schema``.

    Args:
        schema: the schema of the files.
        as_bytes: paths of images that are not PNG or JPEG: they are kept as the bytes of their files.
        sounds: the features of Audio by path, see ``detect_media``; other Audio is kept as bytes.
        optional: paths of numbers, texts and bytes outside of lists that are null in some rows (``find_nulls``).

    Raises:
        PreparedFormatError: the type or name of a column is not supported; ``details["key"]`` is its path.
    """
    return _SchemaReader(frozenset(as_bytes), sounds or {}, frozenset(optional)).read_schema(schema)


def metadata_of_schema(schema: Any) -> DatasetMetadata:
    """Description, citation, homepage and licence in Hugging Face's schema metadata."""
    return DatasetMetadata(**described_texts(hugging_face_info(schema)))


def described_texts(info: Mapping[str, Any]) -> dict[str, Any]:
    """The texts about a dataset among the values of Hugging Face's ``DatasetInfo``."""
    names = ("description", "citation", "homepage", "license")
    return {name: info[name] for name in names if isinstance(info.get(name), str)}


def hugging_face_info(schema: Any) -> Mapping[str, Any]:
    """Hugging Face's schema metadata; empty if it is missing or unreadable."""
    try:
        document = json.loads((schema.metadata or {}).get(_HUGGING_FACE, b"{}"))
    except (ValueError, RecursionError):
        return {}
    info = document.get("info") if isinstance(document, dict) else None
    return info if isinstance(info, dict) else {}


def describe_sounds(schema: Any) -> tuple[FeaturesDict, Mapping[str, Mapping[str, Any]]]:
    """The features of a schema, and Hugging Face's description of each Audio by its path."""
    reader = _SchemaReader(frozenset(), {}, frozenset())
    return reader.read_schema(schema), reader.found_sounds


class _SchemaReader:
    def __init__(self, as_bytes: frozenset[str], sounds: Mapping[str, Audio], optional: frozenset[str]) -> None:
        self.found_sounds: dict[str, Mapping[str, Any]] = {}
        self._as_bytes = as_bytes
        self._sounds = sounds
        self._optional = optional
        self._arrow = import_pyarrow()

    def read_schema(self, schema: Any) -> FeaturesDict:
        told = hugging_face_info(schema).get("features")
        hints = told if isinstance(told, Mapping) else {}
        names = Counter(schema.names)
        for name, count in names.items():
            if count > 1:
                _refuse(name, "it", "occurs twice")
        if not names:
            raise PreparedFormatError("the files have no columns", details={"key": ""})
        try:
            return FeaturesDict(
                {field.name: self.read(field.type, hints.get(field.name), field.name) for field in schema}
            )
        except FeatureError as error:
            raise PreparedFormatError(
                f"the columns cannot become features: {error.message}",
                hint=error.hint,
                details={"key": error.details["feature"]},
            ) from error

    def read(self, kind: Any, hint: Any, path: str, depth: int = 0) -> Feature:
        """The feature of an Arrow type; ``hint`` is Hugging Face's description of it."""
        if depth > _MOST_DEPTH:
            _refuse(path, "it", "is nested too deeply")
        types = self._arrow.types
        while isinstance(kind, self._arrow.BaseExtensionType):
            kind = kind.storage_type
        if types.is_dictionary(kind):
            kind = kind.value_type
        name = hint.get("_type") if isinstance(hint, Mapping) else None
        if types.is_struct(kind):
            return self._read_struct(kind, hint, name, path, depth)
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            if name in _ARRAY_TYPES and isinstance(hint, Mapping):
                return self._read_array(kind, hint, path)
            inner = hint.get("feature") if name in _LIST_TYPES else hint[0] if isinstance(hint, list) and hint else None
            if types.is_fixed_size_list(kind) and not kind.list_size:
                _refuse(path, str(kind), "has size 0")
            size = kind.list_size if types.is_fixed_size_list(kind) else declared_length(hint)
            item = self.read(kind.value_type, inner, path, depth + 1)
            return Sequence(item) if size is None else _of_size(item, size)
        value = self._read_value(kind, hint, name, path)
        if path not in self._optional or not isinstance(value, Tensor):
            return value
        return Scalar(value.dtype, encoding=value.encoding, description=value.description, optional=True)

    def _read_struct(self, kind: Any, hint: Any, name: Any, path: str, depth: int) -> Feature:
        fields = {field.name: field.type for field in kind}
        if name in ("Image", "Audio") and "bytes" in fields:
            return self._read_file(name, hint, path)
        hints = hint if isinstance(hint, Mapping) else {}
        if name in _LIST_TYPES:  # written as a struct of lists
            inner = hints.get("feature")
            of_lists = inner.items() if isinstance(inner, Mapping) else ()
            hints = {key: {**hint, "feature": value} for key, value in of_lists}
        if len(fields) != kind.num_fields or not fields:
            _refuse(path, str(kind), "has a field twice" if fields else "has no fields")
        inside = f"{path}/"
        return FeaturesDict(
            {key: self.read(value, hints.get(key), inside + key, depth + 1) for key, value in fields.items()}
        )

    def _read_file(self, name: str, hint: Any, path: str) -> Feature:
        if name == "Image" and path not in self._as_bytes:
            return Image(shape=(None, None, None))
        if name == "Audio":
            self.found_sounds[path] = hint
        if name == "Audio" and path in self._sounds:
            return self._sounds[path]
        return Tensor(shape=(), dtype=bytes, description=f"The bytes of an {name.lower()} file.")

    def _read_array(self, kind: Any, hint: Mapping[str, Any], path: str) -> Feature:
        """Hugging Face's ArrayND: nested lists, of which only the outermost may vary in length."""
        value = kind
        shape = hint.get("shape")
        sizes = list(shape) if isinstance(shape, list) else []
        for size in sizes:
            if not hasattr(value, "value_type") or not (size is None or (type(size) is int and 0 < size < 2**31)):
                _refuse(path, str(kind), f"does not have the shape {shape!r:.60}")
            value = value.value_type
        inner = self.read(value, None, path)
        if not sizes or None in sizes[1:] or not isinstance(inner, Tensor) or inner.shape:
            _refuse(path, str(kind), f"does not have the shape {shape!r:.60}")
        return Tensor(shape=tuple(sizes), dtype=inner.dtype, encoding=inner.encoding)

    def _read_value(self, kind: Any, hint: Any, name: Any, path: str) -> Feature:
        types = self._arrow.types
        plain = plain_type(kind)
        if types.is_string(plain):
            return Text()
        if types.is_binary(plain):
            return self._read_file(name, hint, path) if name in ("Image", "Audio") else Tensor(shape=(), dtype=bytes)
        if types.is_integer(kind) and name == "ClassLabel":
            return _class_label(hint.get("names"), kind)
        if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
            dtype = kind.to_pandas_dtype()
            return Tensor(shape=(), dtype=dtype, encoding="bytes" if types.is_float64(kind) else "none")
        if types.is_temporal(kind) and kind.bit_width in (32, 64):
            return Tensor(shape=(), dtype=f"int{kind.bit_width}", description=_describe_time(kind, types))
        return _refuse(path, str(kind), "is not supported")


def declared_length(hint: Any) -> int | None:
    """The length that Hugging Face's description declares for all lists of a column; None if they may vary.

    >>> declared_length({"_type": "List", "feature": {}, "length": 2}), declared_length({"_type": "List", "length": -1})
    (2, None)
    """
    length = hint.get("length") if isinstance(hint, Mapping) and hint.get("_type") in _LIST_TYPES else None
    return length if type(length) is int and 0 < length < 2**31 else None


def _of_size(inner: Feature, size: int) -> Feature:
    """The feature of lists that all have ``size`` items."""
    if isinstance(inner, Tensor) and not isinstance(inner, ClassLabel) and None not in inner.shape:
        return Tensor(
            shape=(size, *inner.shape), dtype=inner.dtype, encoding=inner.encoding, description=inner.description
        )
    return Sequence(inner, length=size)


def _class_label(names: Any, kind: Any) -> Feature:
    """A ClassLabel, or a number if a label cannot have these names."""
    try:
        return ClassLabel(names=names) if isinstance(names, list) and names else ClassLabel(num_classes=0)
    except FeatureError:
        return Tensor(shape=(), dtype=kind.to_pandas_dtype())


def _describe_time(kind: Any, types: Any) -> str:
    if types.is_date(kind):
        return f"{kind}: {'days' if kind.bit_width == 32 else 'milliseconds'} since 1970-01-01."
    unit = _UNITS[kind.unit]
    if types.is_time(kind):
        return f"{kind}: {unit} since midnight."
    if types.is_duration(kind):
        return f"{kind}: {unit}."
    return f"{kind}: {unit} since 1970-01-01T00:00:00{' UTC' if kind.tz else ', in no time zone'}."


def _refuse(path: str, kind: str, problem: str) -> NoReturn:
    raise PreparedFormatError(f"column {path!r}: {kind[:200]} {problem}", hint=_HINT, details={"key": path})


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """How image and sound files in columns are stored.

    Attributes:
        as_bytes: paths of columns of images that are not PNG or JPEG.
        sounds: the features of the Audio that can be decoded, by path; other Audio is stored as bytes.
    """

    as_bytes: frozenset[str] = frozenset()
    sounds: Mapping[str, Audio] = field(default_factory=dict)


def detect_media(shard: RowGroupShard) -> Media:
    """The kinds of the images and sounds in the first row of a file of typed columns.

    Raises:
        PreparedFormatError: the type or name of a column is not supported.
        CorruptRecordError: the row cannot be read.
        StorageError: the file cannot be read.
    """
    features, hints = describe_sounds(shard.schema)
    columns = [column for column in columns_of(features) if isinstance(column.leaf, Image) or column.path in hints]
    if not columns or not shard.filled_groups:
        return Media()
    table = next(shard.read_tables(shard.filled_groups[0], list({column.names[0] for column in columns}))).slice(0, 1)
    as_bytes: set[str] = set()
    sounds: dict[str, Audio] = {}
    for column in columns:
        data = _first_file(table, features, column)
        if data is None:
            continue
        if column.path not in hints:
            if not _is_image(data, column):
                as_bytes.add(column.path)
        elif (sound := describe_sound(data, hints[column.path])) is not None:
            sounds[column.path] = sound
    return Media(as_bytes=frozenset(as_bytes), sounds=sounds)


def _first_file(table: Any, features: FeaturesDict, column: Column) -> bytes | None:
    """The first file in a column of the row; None if the column is empty, or the row is not an example."""
    name = column.names[0]
    try:
        blocks = TableBlock(table, FeaturesDict({name: features[name]})).flat_blocks()
    except CorruptExampleError:  # reading it raises the error
        return None
    (part,) = column.leaf.parts
    for block in blocks:
        files = block.columns.get((column.keys(part)[0], "bytes"))
        if isinstance(files, BytesColumn) and files.sizes.size:
            start, size = int(files.starts[0]), int(files.sizes[0])
            return block.data[start : start + size].tobytes()
    return None


def _is_image(data: bytes, column: Column) -> bool:
    try:
        column.leaf.restore(([data],), None, column.path)
    except MissingExtraError:  # it is an image; reading it raises the error
        return True
    except CorruptExampleError:
        return False
    return True


def describe_sound(data: bytes, hint: Mapping[str, Any]) -> Audio | None:
    """The feature of sounds like ``data``; None if it cannot be decoded, or has another rate than the metadata says."""
    try:
        rate, samples = read_sample_rate(data), decode_sound(data, None)
    except (SoundError, MissingExtraError):
        return None
    if hint.get("sampling_rate") not in (None, rate):  # Hugging Face's software resamples, and nothing here does
        return None
    is_mono = samples.shape[1] == 1 or hint.get("mono") is True or hint.get("num_channels") == 1
    # Other files may have wider samples than the first: 32 bits hold them all.
    return Audio(
        shape=(None,) if is_mono else (None, samples.shape[1]), dtype=np.int32, sample_rate=rate, lazy_decode=True
    )
