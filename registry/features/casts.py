"""How do values become the arrays that are stored, and those arrays values again? Casts that change no number.

As TFDS stores them in a tf.train.Example: bool and all integers as int64 (uint64 with its bits kept), all floats as
float32, text and bytes as bytes, flattened in C order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from registry.features.dtypes import is_bfloat16, wire_kind
from registry.features.feature import TEXT, FlatValue, corrupt_fault, feature_fault


def exact_array(value: Any, dtype: np.dtype[Any], path: str) -> npt.NDArray[Any]:
    """``value`` as an array of ``dtype``; FeatureError where the cast changes a number (floats are rounded)."""
    if dtype == TEXT:
        return _text_array(value, path)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise feature_fault(path, f"{show_value(value)} does not make an array: its rows differ in length") from error
    if array.dtype == dtype:
        return array
    if array.dtype.kind == "f" and dtype.kind in "iu" and not isinstance(value, np.ndarray):
        array = _keep_whole(value, array)
    if is_bfloat16(array.dtype):
        array = array.astype(np.float32)
    if array.dtype.kind not in "biuf":
        raise feature_fault(path, f"{show_value(value)} does not fit {dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
    if wire_kind(dtype) == "float":
        changed = np.isinf(cast) & np.isfinite(array)
    elif dtype.kind == "b":
        changed = (array != 0) & (array != 1)
    else:
        bounds = np.iinfo(dtype)
        changed = (array < bounds.min) | (array > bounds.max)
        if array.dtype.kind == "f":  # bounds.max is not a float where it has more than 53 bits: compare with the next
            changed = ~((array >= bounds.min) & (array < float(bounds.max) + 1) & (np.trunc(array) == array))
    if changed.any():
        raise feature_fault(path, f"{array[changed].flat[0]} does not fit {dtype}")
    return cast


def _keep_whole(value: Any, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``value`` in 64 bits where all of it is whole: NumPy makes floats of small and large numbers together."""
    items = np.asarray(value, object)
    if items.shape != array.shape or not all(isinstance(item, int | np.integer) for item in items.flat):
        return array
    is_negative = any(item < 0 for item in items.flat)
    try:
        return items.astype(np.int64 if is_negative else np.uint64)
    except OverflowError:
        return array


def to_bytes(item: Any, path: str) -> bytes:
    """Text as UTF-8, bytes as they are."""
    if isinstance(item, np.ndarray) and not item.ndim:
        item = item[()]
    if isinstance(item, bytes):
        return bytes(item)
    if not isinstance(item, str):
        raise feature_fault(path, f"{show_value(item)} is neither text nor bytes")
    try:
        return item.encode()
    except UnicodeEncodeError as error:
        raise feature_fault(path, f"{show_value(item)} is no Unicode text: {error.reason}") from error


def _text_array(value: Any, path: str) -> npt.NDArray[Any]:
    # Never through an array of kind S: it drops trailing zero bytes.
    try:
        array = np.asarray(value, dtype=object)
    except ValueError as error:
        raise feature_fault(path, f"{show_value(value)} does not make an array: its rows differ in length") from error
    encoded = np.empty(array.size, object)
    encoded[:] = [to_bytes(item, path) for item in array.flat]
    return encoded.reshape(array.shape)


def to_flat(array: npt.NDArray[Any], path: str) -> FlatValue:
    """The flat value that stores ``array``."""
    flat = array.reshape(-1)
    kind = wire_kind(array.dtype)
    if kind == "bytes":
        return list(flat)
    if kind == "int64":
        return flat.view(np.int64) if array.dtype == np.uint64 else flat.astype(np.int64, copy=False)
    return exact_array(flat, np.dtype(np.float32), path)


def from_flat(values: npt.NDArray[Any], dtype: np.dtype[Any], path: str) -> npt.NDArray[Any]:
    """Stored numbers cast to ``dtype``. Raises CorruptExampleError where that changes one."""
    if values.dtype == dtype:
        return values
    if dtype == np.uint64:
        return values.view(np.uint64)
    if dtype == np.float16:
        with np.errstate(over="ignore"):
            return values.astype(dtype)
    cast = values.astype(dtype)
    if dtype.kind != "f" and (cast != values).any():
        raise corrupt_fault(path, f"holds {values[cast != values][0]}, which is no {dtype}")
    return cast


def show_value(value: Any) -> str:
    """``value`` in an error's message: the start of its repr."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
