"""The dtypes and shapes of tensors, and casts between values, arrays and flat values that never change a number.

The flat values are those that TFDS stores in a tf.train.Example: bool and all integers as int64 (uint64 by its bits),
all floats as float32, text and bytes as bytes, flattened in C order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from registry.errors import require_extra
from registry.features.feature import TEXT, Shape, corrupt_fault, feature_fault
from registry.lazy import np, npt

if TYPE_CHECKING:
    from registry.wire import FlatValue, WireKind

STRING: Final = "string"
"""The name of ``TEXT`` in features.json."""

DTYPES: Final = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", STRING),
)
"""The name of every dtype of tensors in features.json, except ``BFLOAT16``, which is not part of NumPy."""

BFLOAT16: Final = "bfloat16"
"""The upper half of a float32; the package ml_dtypes adds it to NumPy."""

MAX_VALUES: Final = 2**40
"""Most values that a shape may have. NumPy cannot create arrays with much larger shapes, even empty ones."""

_HINT: Final = f"Supported dtypes: {', '.join(DTYPES)}, {BFLOAT16}."
_SHAPE_HINT: Final = "Pass a tuple of int or None, e.g. (28, None)."


class DtypeField:
    """The attribute ``dtype`` of a feature, which becomes a NumPy dtype when it is read.

    Until then a feature has only ``dtype_name``, so that a schema is read from JSON and printed without NumPy.
    ``settle_dtype`` must be called in ``__post_init__``.

    Args:
        default: the name of the dtype of features that are created without one; None if it is required.
    """

    def __init__(self, default: str | None = None) -> None:
        self._default = default

    def __get__(self, feature: Any, owner: type) -> Any:
        if feature is not None:
            dtype: np.dtype[Any] = as_dtype(feature.dtype_name)
            feature.__dict__["dtype"] = dtype  # later look-ups find it first
            return dtype
        if self._default is None:
            raise AttributeError("dtype")  # dataclasses look for a default here
        return self._default


def settle_dtype(feature: Any) -> None:
    """Replace the ``dtype`` that a new feature was created with by ``dtype_name``, its name in features.json.

    Raises:
        FeatureError, MissingExtraError: as ``as_dtype``.
    """
    values = feature.__dict__
    dtype = values.pop("dtype") if "dtype" in values else type(feature).dtype
    values["dtype_name"] = dtype if isinstance(dtype, str) and dtype in DTYPES else dtype_name(as_dtype(dtype))


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """Convert ``dtype`` to a NumPy dtype in native byte order; text of any kind becomes ``object``.

    Raises:
        FeatureError: it is not a dtype that a tensor can have.
        MissingExtraError: it is bfloat16, and ml_dtypes is not installed.
    """
    if isinstance(dtype, str) and dtype in DTYPES:
        return np.dtype(TEXT if dtype == STRING else dtype)
    if isinstance(dtype, str) and dtype == BFLOAT16:
        return _bfloat16()
    try:
        if dtype is None:  # NumPy's float64, and here a mistake, such as a function without a return
            raise TypeError
        result = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise feature_fault("", f"unknown dtype {dtype!r}", _HINT) from error
    if is_bfloat16(result):
        return _bfloat16()
    if result.kind in "OSUT":
        return np.dtype(TEXT)
    if result.name not in DTYPES:
        raise feature_fault("", f"cannot store a tensor of dtype {result}", _HINT)
    native: np.dtype[Any] = np.dtype(result.name)
    return native


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name of ``dtype`` in features.json."""
    return STRING if dtype == TEXT else dtype.name


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Whether ``dtype`` is bfloat16. Its NumPy kind is ``V``, so it has to be recognized by name."""
    return dtype.kind == "V" and dtype.name == BFLOAT16


def wire_kind(dtype_name: str) -> WireKind:
    """The list of a tf.train.Feature that holds values of a dtype: ``bytes``, ``int64`` or ``float``."""
    return "bytes" if dtype_name == STRING else "float" if "float" in dtype_name else "int64"


def lowest_value(dtype: np.dtype[Any], *, exact: bool) -> Any:
    """The value that TFDS reads through TensorFlow for a missing value of ``dtype``.

    Without ``exact``, a float goes through float32, the form in which it is stored.

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
    """``shape`` as a tuple of non-negative int or None. Raises FeatureError if it is invalid."""
    try:
        sizes = tuple(shape)
    except TypeError as error:
        raise feature_fault("", f"invalid shape {shape!r}", _SHAPE_HINT) from error
    if any(size is not None and (type(size) is not int or not 0 <= size < 2**31) for size in sizes) or len(sizes) > 32:
        raise feature_fault("", f"invalid shape {sizes!r}", _SHAPE_HINT)
    if not is_sane_shape(sizes):
        raise feature_fault("", f"shape {sizes} has more than {MAX_VALUES} values")
    return sizes


def is_sane_shape(sizes: Iterable[int | None]) -> bool:
    """Whether an array of these sizes has at most ``MAX_VALUES`` values. A size of 0 or None counts as 1."""
    return math.prod(size or 1 for size in sizes) <= MAX_VALUES


def _bfloat16() -> np.dtype[Any]:
    with require_extra(BFLOAT16, package="ml_dtypes", needed_for="a tensor of bfloat16"):
        from ml_dtypes import bfloat16
    result: np.dtype[Any] = np.dtype(bfloat16)
    return result


def exact_array(value: Any, dtype: np.dtype[Any], path: str) -> npt.NDArray[Any]:
    """Convert ``value`` to an array of ``dtype``. Floats are rounded to the nearest float.

    Raises:
        FeatureError: the cast would change a number, or ``value`` is not an array of numbers; the error names ``path``.
    """
    if dtype == TEXT:
        return _text_array(value, path)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise feature_fault(
            path, f"cannot convert {show_value(value)} to an array: its rows differ in length"
        ) from error
    if array.dtype == dtype:
        return array
    if array.dtype.kind == "f" and dtype.kind in "iu" and not isinstance(value, np.ndarray):
        array = _keep_whole(value, array)
    if is_bfloat16(array.dtype):
        array = array.astype(np.float32)
    if array.dtype.kind not in "biuf":
        raise feature_fault(path, f"expected dtype {dtype}, found {show_value(value)}")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
    if dtype.kind not in "biu":
        changed = np.isinf(cast) & np.isfinite(array)
    elif dtype.kind == "b":
        changed = (array != 0) & (array != 1)
    else:
        bounds = np.iinfo(dtype)
        changed = (array < bounds.min) | (array > bounds.max)
        # bounds.max of a 64-bit integer has no exact float, but bounds.max + 1 has one.
        if array.dtype.kind == "f":
            changed = ~((array >= bounds.min) & (array < float(bounds.max) + 1) & (np.trunc(array) == array))
    if changed.any():
        raise feature_fault(path, f"expected dtype {dtype}, found {array[changed].flat[0]}")
    return cast


def _keep_whole(value: Any, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``value`` as 64-bit integers if all its numbers are whole.

    NumPy converts a list that mixes integers above 2**63 with smaller ones to floats, which would round them.
    """
    items = np.asarray(value, object)
    if items.shape != array.shape or not all(isinstance(item, int | np.integer) for item in items.flat):
        return array
    is_negative = any(item < 0 for item in items.flat)
    try:
        return items.astype(np.int64 if is_negative else np.uint64)
    except OverflowError:
        return array


def to_bytes(item: Any, path: str) -> bytes:
    """``item`` as bytes: text is encoded as UTF-8, bytes are returned unchanged."""
    if isinstance(item, np.ndarray) and not item.ndim:
        item = item[()]
    if isinstance(item, bytes):
        return bytes(item)
    if not isinstance(item, str):
        raise feature_fault(path, f"expected text or bytes, found {show_value(item)}")
    try:
        return item.encode()
    except UnicodeEncodeError as error:
        raise feature_fault(path, f"{show_value(item)} is not valid Unicode text: {error.reason}") from error


def _text_array(value: Any, path: str) -> npt.NDArray[Any]:
    # An array of kind S would drop trailing zero bytes, so the array has to be of objects.
    try:
        array = np.asarray(value, dtype=object)
    except ValueError as error:
        raise feature_fault(
            path, f"cannot convert {show_value(value)} to an array: its rows differ in length"
        ) from error
    encoded = np.empty(array.size, object)
    encoded[:] = [to_bytes(item, path) for item in array.flat]
    return encoded.reshape(array.shape)


def to_flat(array: npt.NDArray[Any], path: str) -> FlatValue:
    """The flat value that stores ``array``."""
    flat = array.reshape(-1)
    if array.dtype == TEXT:
        return list(flat)
    if array.dtype.kind in "biu":
        return flat.view(np.int64) if array.dtype == np.uint64 else flat.astype(np.int64, copy=False)
    return exact_array(flat, np.dtype(np.float32), path)


def from_flat(values: npt.NDArray[Any], dtype: np.dtype[Any], path: str) -> npt.NDArray[Any]:
    """Cast stored numbers to ``dtype``. Raises CorruptExampleError if the cast changes a number."""
    if values.dtype == dtype:
        return values
    if dtype == np.uint64:
        return values.view(np.uint64)
    if dtype == np.float16:
        with np.errstate(over="ignore"):
            return values.astype(dtype)
    cast = values.astype(dtype)
    if dtype.kind != "f" and (cast != values).any():
        raise corrupt_fault(path, f"expected dtype {dtype}, found {values[cast != values][0]}")
    return cast


def show_value(value: Any) -> str:
    """``value`` in an error message: its repr, shortened to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
