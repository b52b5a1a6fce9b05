"""The Arrow type in which the values of a feature are handed to the writers of records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from registry.errors import SourceError
from registry.features import Audio, ClassLabel, Feature, FeaturesDict, Image, Scalar, Sequence, Tensor, Text
from registry.features.feature import TEXT
from registry.intake.value_types import is_list, name_type
from registry.shards.arrow_values import import_pyarrow

_OTHER_TYPE: Final = "Choose another type for the column, such as float64, Text or bytes."


def arrow_type_of(feature: Feature, found: Any = None) -> Any:
    """The Arrow type of the values of ``feature``.

    Args:
        feature: a feature.
        found: the type of the values in the source. It decides between text and bytes, and keeps the unit and zone of
            times, which a feature tells only in its description. None if it is unknown.

    Raises:
        SourceError: columns cannot have this feature.
    """
    arrow = import_pyarrow()
    if isinstance(feature, FeaturesDict):
        inside = _types_of_fields(found)
        return arrow.struct([(name, arrow_type_of(inner, inside.get(name))) for name, inner in feature.items()])
    if isinstance(feature, Sequence):
        inner = arrow_type_of(feature.feature, getattr(found, "value_type", None))
        return arrow.list_(inner) if feature.length is None else arrow.list_(inner, feature.length)
    if isinstance(feature, Image) or (isinstance(feature, Audio) and feature.lazy_decode):
        return arrow.binary()
    if isinstance(feature, Text):
        return arrow.string()
    if isinstance(feature, ClassLabel):
        return arrow.int64()
    if not isinstance(feature, Tensor):
        name = type(feature).__name__
        raise SourceError(f"a column cannot have the feature {name}", hint=_OTHER_TYPE, details={"feature": name})
    value = found
    for _ in feature.shape:
        value = getattr(value, "value_type", None)
    kind = _type_of_dtype(feature.dtype, value)
    for size in reversed(feature.shape):
        kind = arrow.list_(kind) if size is None else arrow.list_(kind, size)
    return kind


def leaf_types(path: str, feature: Feature, kind: Any) -> Iterator[tuple[str, Any]]:
    """The Arrow types of the leaves of ``feature`` that the feature does not tell, by path: times, and some bytes."""
    types = import_pyarrow().types
    if types.is_null(kind):  # of a source whose columns are not converted
        return
    if isinstance(feature, FeaturesDict):
        for name, inner in feature.items():
            yield from leaf_types(f"{path}/{name}", inner, kind.field(name).type)
        return
    while is_list(kind):
        kind = kind.value_type
        if isinstance(feature, Sequence):
            feature = feature.feature
            if isinstance(feature, FeaturesDict):
                yield from leaf_types(path, feature, kind)
                return
    is_bytes = isinstance(feature, Scalar) and feature.dtype == TEXT and types.is_binary(kind)
    if types.is_temporal(kind) or is_bytes:
        yield path, kind


def type_word(kind: Any) -> str:
    """The word for an Arrow type that ``parse_feature`` reads.

    >>> import pyarrow as pa
    >>> type_word(pa.timestamp("us", tz="UTC")), type_word(pa.float64()), type_word(pa.date32())
    ('timestamp[us, tz=UTC]', 'float64', 'date32')
    """
    types = import_pyarrow().types
    if types.is_date(kind):
        return "date32" if kind.bit_width == 32 else "date64"
    word = name_type(str(kind))
    return "Text" if word == "text" else word


def as_optional(feature: Feature) -> Feature:
    """``feature`` for values that may be null; unchanged if it has no such form."""
    if type(feature) not in (Text, Tensor, Scalar) or not isinstance(feature, Tensor) or feature.shape:
        return feature
    return Scalar(
        feature.dtype,
        encoding=feature.encoding,
        minimum=feature.minimum,
        maximum=feature.maximum,
        description=feature.description,
        value_range=feature.value_range,
        optional=True,
    )


def _types_of_fields(found: Any) -> dict[str, Any]:
    if found is None or not import_pyarrow().types.is_struct(found):
        return {}
    return {field.name: field.type for field in found}


def _type_of_dtype(dtype: np.dtype[Any], found: Any) -> Any:
    arrow = import_pyarrow()
    if dtype == TEXT:
        return arrow.binary() if found is not None and arrow.types.is_binary(found) else arrow.string()
    is_time = found is not None and arrow.types.is_temporal(found) and found.bit_width in (32, 64)
    if is_time and dtype == np.dtype(f"int{found.bit_width}"):
        return found
    try:
        return arrow.from_numpy_dtype(dtype)
    except (arrow.ArrowNotImplementedError, ValueError) as error:
        raise SourceError(
            f"a column cannot have the dtype {dtype}", hint=_OTHER_TYPE, details={"dtype": str(dtype)}
        ) from error
