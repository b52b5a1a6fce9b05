"""Converts between the numbers of a band and the list of a tf.train.Feature that stores them.

    float     float_list, 32 bits        floats; with ``encoding="float"`` every band ("coerced to float" in the guide)
    int64     int64_list                 with ``encoding="native"`` integers other than uint8
    bytes     bytes_list of one value    with ``encoding="native"`` uint8: a byte a pixel

Real exports use all three, so readers accept each kind for any band.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, FeatureError, UsageError
from registry.wire import FlatValue

Kind: TypeAlias = Literal["bytes", "int64", "float"]
Encoding: TypeAlias = Literal["float", "native"]

PROMOTED: Final[tuple[Kind, ...]] = ("bytes", "int64", "float")
"""Kinds in ascending order: each can store the values of the kinds before it."""

STORED: Final[dict[Kind, np.dtype[Any]]] = {
    "bytes": np.dtype(np.uint8),
    "int64": np.dtype(np.int64),
    "float": np.dtype(np.float32),
}


def kind_of(dtype: npt.DTypeLike, name: str, encoding: Encoding = "native") -> Kind:
    """Return the kind that stores the band ``name`` of ``dtype``.

    >>> kind_of("uint8", "b1"), kind_of("int16", "b1"), kind_of("float64", "b1"), kind_of("uint8", "b1", "float")
    ('bytes', 'int64', 'float', 'float')

    Raises:
        FeatureError: bands cannot have this dtype: complex numbers, text or objects.
    """
    dtype = np.dtype(dtype)
    if dtype.kind not in "buif":
        raise FeatureError(
            f"band {name!r}: expected booleans, integers or floats, found {dtype}",
            hint="Convert it first: array.astype('float32').",
            details={"feature": name, "dtype": str(dtype)},
        )
    if encoding == "float" or dtype.kind == "f":
        return "float"
    return "bytes" if dtype in (np.dtype(np.uint8), np.dtype(np.bool_)) else "int64"


def furthest(kinds: Iterable[Kind]) -> Kind:
    """Return the kind that can store all of ``kinds``, which must not be empty.

    >>> furthest(["bytes", "int64"]), furthest(["bytes", "bytes"])
    ('int64', 'bytes')
    """
    return max(kinds, key=PROMOTED.index)


def fit_default(value: float, dtype: npt.DTypeLike, name: str) -> int | float:
    """Return ``defaultValue`` for the band ``name`` of ``dtype``: truncated and clamped to the range of integers.

    >>> fit_default(-7.9, "uint8", "b1"), fit_default(300, "uint8", "b1"), fit_default(0.25, "float64", "b1")
    (0, 255, 0.25)

    Raises:
        UsageError: NaN for a band of integers.
    """
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return float(value)
    low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    if math.isnan(value):
        raise UsageError(
            f"the default value NaN cannot be stored in the band {name!r} of {dtype}",
            hint="Choose a number (default_value=0; --default-value 0), or convert the band: array.astype('float32').",
            details={"band": name, "dtype": str(dtype)},
        )
    if math.isinf(value):
        return high if value > 0 else low
    return min(max(int(value), low), high)


def to_flat(values: npt.NDArray[Any], kind: Kind, name: str) -> FlatValue:
    """Convert pixels of any shape, in C order, to a flat value for ``registry.wire.encode_example``.

    Raises:
        FeatureError: a uint64 exceeds int64.
    """
    if kind == "bytes":
        return [np.ascontiguousarray(values, np.uint8).tobytes()]
    if kind == "int64":
        if values.dtype == np.uint64 and values.size and int(values.max()) > np.iinfo(np.int64).max:
            raise FeatureError(
                f"band {name!r} contains {int(values.max())}, which exceeds int64",
                hint="Export with encoding='float' (--encoding float), or divide the band first.",
                details={"feature": name},
            )
        return np.ascontiguousarray(values, np.int64).reshape(-1)
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinite, as in Earth Engine's casts
        return np.ascontiguousarray(values, np.float32).reshape(-1)


def from_flat(value: FlatValue | None, name: str) -> tuple[Kind, npt.NDArray[Any]]:
    """Return the kind of a stored feature and its numbers: uint8, int64 or float32, of shape (n,).

    Raises:
        CorruptExampleError: the feature has no list, or several strings, so it does not contain pixels.
    """
    if isinstance(value, np.ndarray):
        return ("int64" if value.dtype == np.int64 else "float"), value
    if value is None or len(value) != 1:
        found = "an empty feature" if value is None else f"{len(value)} strings"
        raise CorruptExampleError(
            f"band {name!r}: expected pixels (a list of numbers, or one string of uint8), found {found}",
            hint=f"If {name!r} is not a band, name the bands to read: bands=[...]; --band NAME.",
            details={"feature": name},
        )
    return "bytes", np.frombuffer(value[0], np.uint8)
