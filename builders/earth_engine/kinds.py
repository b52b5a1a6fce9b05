"""How the numbers of a band are stored: in one of the three lists of a tf.train.Feature, by the band's type.

    float     float_list, 32 bits        every band, where numbers are "coerced to float" as the guide says
    int64     int64_list                 with ``encoding="native"`` integers other than uint8
    bytes     bytes_list of one value    with ``encoding="native"`` uint8: a byte a pixel

Real exports use all three, and a reader takes each as it finds it.
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
"""Each can hold what those before it hold: bands that share a feature have the furthest of theirs."""

STORED: Final[dict[Kind, np.dtype[Any]]] = {
    "bytes": np.dtype(np.uint8),
    "int64": np.dtype(np.int64),
    "float": np.dtype(np.float32),
}


def kind_of(dtype: npt.DTypeLike, encoding: Encoding = "native") -> Kind:
    """The kind in which a band of ``dtype`` is stored.

    >>> kind_of("uint8"), kind_of("int16"), kind_of("float64"), kind_of("uint8", "float")
    ('bytes', 'int64', 'float', 'float')

    Raises:
        FeatureError: numbers of that dtype are no pixels: complex ones, text, objects.
    """
    dtype = np.dtype(dtype)
    if dtype.kind not in "buif":
        raise FeatureError(
            f"a band of {dtype} cannot be exported; bands hold booleans, integers or floats",
            hint="Make it one of them first: array.astype('float32').",
            details={"dtype": str(dtype)},
        )
    if encoding == "float" or dtype.kind == "f":
        return "float"
    return "bytes" if dtype in (np.dtype(np.uint8), np.dtype(np.bool_)) else "int64"


def furthest(kinds: Iterable[Kind]) -> Kind:
    """The kind that holds all of ``kinds``, of which there is one at least.

    >>> furthest(["bytes", "int64"]), furthest(["bytes", "bytes"])
    ('int64', 'bytes')
    """
    return max(kinds, key=PROMOTED.index)


def fit_default(value: float, dtype: npt.DTypeLike) -> int | float:
    """``defaultValue`` as a band of ``dtype`` holds it: without its fraction and within the type's range, if integer.

    >>> fit_default(-7.9, "uint8"), fit_default(300, "uint8"), fit_default(-3.9, "int16"), fit_default(0.25, "float64")
    (0, 255, -3, 0.25)

    Raises:
        UsageError: NaN for a band of integers.
    """
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return float(value)
    low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    if math.isnan(value):
        raise UsageError(
            f"the default value NaN cannot stand in a band of {dtype}",
            hint="Give a number, or make the band one of floats.",
            details={"dtype": str(dtype)},
        )
    if math.isinf(value):
        return high if value > 0 else low
    return min(max(int(value), low), high)


def to_flat(values: npt.NDArray[Any], kind: Kind, name: str) -> FlatValue:
    """The pixels of one feature, of any shape and in C order, as ``registry.wire.encode_example`` takes them.

    Raises:
        FeatureError: an unsigned number beyond int64.
    """
    if kind == "bytes":
        return [np.ascontiguousarray(values, np.uint8).tobytes()]
    if kind == "int64":
        if values.dtype == np.uint64 and values.size and int(values.max()) > np.iinfo(np.int64).max:
            raise FeatureError(
                f"the band {name!r} holds {int(values.max())}; an int64_list has no number that large",
                hint="Export with encoding='float', or divide the band first.",
                details={"feature": name},
            )
        return np.ascontiguousarray(values, np.int64).reshape(-1)
    with np.errstate(over="ignore"):  # beyond float32 is infinite, as a cast of Earth Engine makes it
        return np.ascontiguousarray(values, np.float32).reshape(-1)


def from_flat(value: FlatValue | None, name: str) -> tuple[Kind, npt.NDArray[Any]]:
    """The kind in which a feature was stored, and its numbers: uint8, int64 or float32, of shape (n,).

    Raises:
        CorruptExampleError: the feature is empty of any kind, or several strings: no pixels.
    """
    if isinstance(value, np.ndarray):
        return ("int64" if value.dtype == np.int64 else "float"), value
    if value is None or len(value) != 1:
        found = "a feature of no kind" if value is None else f"{len(value)} strings"
        raise CorruptExampleError(
            f"the band {name!r} is {found}, and no pixels: those of uint8 are one string, others a list of numbers",
            hint="Is it a band? Name those that are: bands=[...]; --band NAME.",
            details={"feature": name},
        )
    return "bytes", np.frombuffer(value[0], np.uint8)
