"""Which dtypes and shapes may a tensor have? Their names in features.json, and which list of a record holds them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from registry.errors import MissingExtraError
from registry.features.feature import TEXT, Shape, WireKind, feature_fault

DTYPES: Final[dict[str, np.dtype[Any]]] = {
    name: np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
    )
} | {"string": TEXT}
"""Every dtype that a tensor may have, by its name in features.json, but ``BFLOAT16``, which NumPy does not have."""

BFLOAT16: Final = "bfloat16"
"""The upper half of a float32; the package ml_dtypes adds it to NumPy."""

MAX_VALUES: Final = 2**40
"""Most values that a shape may ask for; NumPy makes no array of far larger ones, not even an empty one."""

_HINT: Final = f"There are: {', '.join(DTYPES)}, {BFLOAT16}."
_SHAPE_HINT: Final = "Write a tuple of int or None, e.g. (28, None)."


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype that ``dtype`` names, native byte order.

    Raises:
        FeatureError: a tensor cannot have it.
        MissingExtraError: it is bfloat16, and ml_dtypes is not installed.
    """
    if isinstance(dtype, str) and dtype in DTYPES:
        return DTYPES[dtype]
    if isinstance(dtype, str) and dtype == BFLOAT16:
        return _bfloat16()
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise feature_fault("", f"{dtype!r} is no dtype", _HINT) from error
    if is_bfloat16(found):
        return _bfloat16()
    if found.kind in "OSUT":
        return TEXT
    if found.name not in DTYPES:
        raise feature_fault("", f"a tensor of {found} cannot be stored", _HINT)
    return DTYPES[found.name]


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name of ``dtype`` in features.json."""
    return "string" if dtype == TEXT else dtype.name


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Whether it is bfloat16, which for NumPy is of the kind ``V``: none of its own."""
    return dtype.name == BFLOAT16


def wire_kind(dtype: np.dtype[Any]) -> WireKind:
    """Which of the three lists of a tf.train.Feature holds values of ``dtype``."""
    return "bytes" if dtype == TEXT else "int64" if dtype.kind in "biu" else "float"


def lowest_value(dtype: np.dtype[Any], *, exact: bool) -> Any:
    """What TFDS reads, through TensorFlow, where a value of ``dtype`` is missing; without ``exact`` through a float32.

    >>> int(lowest_value(np.dtype("int8"), exact=True)), float(lowest_value(np.dtype("float64"), exact=False))
    (-128, -inf)
    """
    if dtype == TEXT:
        return b""
    if dtype.kind == "b":
        return np.False_
    if dtype.kind in "iu":
        return dtype.type(np.iinfo(dtype).min)
    if is_bfloat16(dtype):
        return np.array(-3.3895313892515355e38, dtype)[()]
    lowest = np.finfo(dtype).min
    if exact:
        return dtype.type(lowest)
    with np.errstate(over="ignore"):
        return dtype.type(np.float32(lowest))


def check_shape(shape: Any) -> Shape:
    """``shape`` as a tuple of non-negative int or None."""
    try:
        sizes = tuple(shape)
    except TypeError as error:
        raise feature_fault("", f"{shape!r} is no shape", _SHAPE_HINT) from error
    if any(size is not None and (type(size) is not int or not 0 <= size < 2**31) for size in sizes) or len(sizes) > 32:
        raise feature_fault("", f"{sizes!r} is no shape", _SHAPE_HINT)
    if not is_sane_shape(sizes):
        raise feature_fault("", f"shape {sizes} asks for more than {MAX_VALUES} values")
    return sizes


def is_sane_shape(sizes: Iterable[int | None]) -> bool:
    """Whether an array of these sizes can be, a size of 0 or None taken for 1."""
    return math.prod(size or 1 for size in sizes) <= MAX_VALUES


def _bfloat16() -> np.dtype[Any]:
    try:
        from ml_dtypes import bfloat16
    except ImportError as error:
        raise MissingExtraError(package="ml_dtypes", extra=BFLOAT16, needed_for="a tensor of bfloat16") from error
    found: np.dtype[Any] = np.dtype(bfloat16)
    return found
