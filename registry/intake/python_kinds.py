"""Tells the kinds of Python values: of numbers, text, times, arrays, images and containers, also of NumPy and torch.

``python_values`` converts the values of a kind.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

EXACT: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    bytearray: "bytes",
    memoryview: "bytes",
    dt.datetime: "datetime",
    dt.date: "date",
    dt.time: "time",
    dt.timedelta: "timedelta",
    decimal.Decimal: "Decimal",
    list: "list",
    tuple: "list",
    dict: "dict",
}
"""The kinds of the types of Python itself."""

_NUMPY: Final = {"b": "bool", "i": "int", "u": "int", "f": "float", "U": "str", "S": "bytes", "M": "datetime64"}
NUMPY_KINDS: Final = _NUMPY | {"m": "timedelta64"}
"""The kinds of scalars of NumPy, by the kind of their dtype."""

_MISSING: Final = frozenset({"NoneType", "NAType", "NaTType", "MaskedConstant"})
"""None, and the missing values of pandas and NumPy, which have types of their own."""

KINDS: Final = frozenset(EXACT.values()) | frozenset(NUMPY_KINDS.values()) | {"array", "image"}
"""The kinds that can be stored."""


_MOST_NESTED: Final = 100


def estimate_bytes(value: Any, depth: int = 0) -> int:
    """Roughly how much memory a value takes as an Arrow value, without converting it."""
    if depth > _MOST_NESTED:  # a list may contain itself; the conversion refuses it
        return 8
    if isinstance(value, (bytes, bytearray, str)):
        return len(value) + 4
    if isinstance(value, Mapping):
        return sum(estimate_bytes(one, depth + 1) for one in value.values())
    if isinstance(value, (list, tuple)):
        return 4 + (len(value) * estimate_bytes(value[0], depth + 1) if value else 0)
    size = getattr(value, "nbytes", None)
    if isinstance(size, int):
        return size
    if kind_of(type(value)) == "image":
        return 4 * int(value.size[0]) * int(value.size[1])
    return 8


def plain_values(values: Sequence[Any]) -> Sequence[Any]:
    """The values, with tensors as NumPy arrays, arrays of shape () as scalars, and every missing value as None."""
    foreign = {one for one in set(map(type, values)) if one not in EXACT and not _is_scalar_type(one)}
    if all(one.__name__ == "NoneType" for one in foreign):
        return values
    return [_plain(one) if type(one) in foreign else one for one in values]


def _is_scalar_type(kind: type) -> bool:
    return issubclass(kind, np.generic)


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind.__name__ in _MISSING:
        return None
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        return value.tolist()  # with None where it is masked
    if isinstance(value, np.ndarray):
        return value if value.ndim else value[()]
    if hasattr(kind, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in kind.__dataclass_fields__}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if _is_image(kind):
        return value
    if hasattr(value, "detach") and hasattr(kind, "__array__"):  # a tensor of torch, on a GPU or with gradients
        value = value.detach().cpu()
    if hasattr(kind, "__array__") and not isinstance(value, (str, bytes)):
        with suppress(TypeError, ValueError):  # NumPy has no bfloat16: the value is reported
            array = np.asarray(value)
            return array if array.ndim else array[()]
    return value


def is_storable(dtype: np.dtype[Any]) -> bool:
    """Whether Arrow has a type for a dtype without Python objects; it has none for long double."""
    return dtype.kind in NUMPY_KINDS and not (dtype.kind == "f" and dtype.itemsize > 8)


def _is_image(kind: type) -> bool:
    return any(one.__module__ == "PIL.Image" and one.__name__ == "Image" for one in kind.__mro__)


def kind_of(kind: type) -> str | None:
    """The kind of the values of a type; None for missing values. Other types are their own kind."""
    exact = EXACT.get(kind)
    if exact is not None:
        return exact
    if kind.__name__ in _MISSING:
        return None
    if issubclass(kind, np.ndarray):
        return "array"
    if issubclass(kind, np.generic):
        dtype = np.dtype(kind)
        return NUMPY_KINDS[dtype.kind] if is_storable(dtype) else f"numpy.{kind.__name__}"
    if _is_image(kind):
        return "image"
    if issubclass(kind, Mapping):
        return "dict"
    # datetime before date, its base class; bool before int
    for known in (bool, int, float, str, bytes, dt.datetime, dt.date, dt.timedelta, list, tuple):
        if issubclass(kind, known):
            return EXACT[known]
    name = kind.__name__  # that of array.array is the name of a kind
    return name if name not in KINDS else f"{kind.__module__}.{name}"
