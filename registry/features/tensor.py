"""How are numbers and strings stored? Tensor and Scalar, the features that every other leaf builds on.

As TFDS stores them in a tf.train.Example: bool and all integers as int64 (uint64 with its bits kept), all floats as
float32, text and bytes as bytes, flattened in C order. With ``encoding="bytes"`` the array's own little-endian bytes
are stored instead, which keeps float64 exact and allows several unknown dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from registry.features.feature import (
    TEXT,
    FlatValue,
    Leaf,
    Part,
    Shape,
    WireKind,
    corrupt_fault,
    empty_flat,
    feature_fault,
    fits_shape,
    stack_values,
)

if TYPE_CHECKING:
    from registry.features.block_columns import BlockColumn, BlockParts

DTYPES: Final[dict[str, np.dtype[Any]]] = {
    name: np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
    )
} | {"string": TEXT}
"""Every dtype that a tensor may have, by its name in features.json."""

_ENCODINGS: Final = ("none", "bytes")
_MANY_UNKNOWN: Final = "Store it with Tensor(..., encoding='bytes'), which stores the shape beside the values."


@dataclass(frozen=True, kw_only=True, repr=False)
class Tensor(Leaf):
    """An array of numbers, or of text or bytes.

    A value is anything that NumPy makes an array of; it is refused where the cast would change a number (300 into
    uint8, 1.5 into int32, 1e39 into float32; floats are rounded to the nearest). Decodes to an array of this dtype and
    shape; a NumPy scalar (``bytes`` for text) where the shape is ``()``.

    Attributes:
        shape: None for an unknown dimension; more than one only with ``encoding="bytes"``.
        dtype: bool, any integer, float16, float32, float64, or text (``str``, ``bytes``, ``object``), which decodes to
            ``bytes``. float64 is stored as float32, unless ``encoding="bytes"``; that is TFDS's format.
        encoding: ``none`` or ``bytes``.
        minimum, maximum: bounds for people and agents; they are kept in features.json, which holds them as
            whole numbers of 64 bits, and not enforced.

    >>> Tensor(shape=(2, None), dtype="int32").flatten([[1, 2], [3, 4]], "mat")
    (array([1, 2, 3, 4]),)

    Raises:
        FeatureError: the shape or dtype is none that can be stored, or a value does not fit.
    """

    shape: Shape
    dtype: Any
    encoding: str = "none"
    minimum: int | None = None
    maximum: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", as_dtype(self.dtype))
        object.__setattr__(self, "shape", check_shape(self.shape))
        object.__setattr__(self, "minimum", _check_bound(self.minimum))
        object.__setattr__(self, "maximum", _check_bound(self.maximum))
        if self.encoding not in _ENCODINGS:
            raise feature_fault("", f"unknown encoding {self.encoding!r}", "Use 'none' or 'bytes'.")
        if self.encoding == "bytes" and self.dtype == TEXT:
            raise feature_fault("", "text has no encoding 'bytes'", "Leave the encoding out.")
        if self.encoding == "none" and None in self.shape and 0 in self.shape:
            raise feature_fault("", f"shape {self.shape}: the unknown dimension of an array without values is lost")

    @property
    def has_stored_shape(self) -> bool:
        """Whether the shape is stored beside the values (``k/shape``, ``k/value``): several dimensions are unknown."""
        return self.shape.count(None) > 1

    @cached_property
    def parts(self) -> tuple[Part, ...]:  # asked for with every example
        """One flat value; two, ``/shape`` and ``/value``, where several dimensions are unknown."""
        if self.encoding == "bytes":
            value = Part("/value" if self.has_stored_shape else "", "bytes", 1)
            return (Part("/shape", "int64", len(self.shape)), value) if self.has_stored_shape else (value,)
        size = None if None in self.shape else math.prod(s for s in self.shape if s is not None)
        return (Part("", wire_kind(self.dtype), size),)

    def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
        """One value, cast without change to the dtype, in C order."""
        array = exact_array(value, self.dtype, path)
        self._check_fit(array.shape, self.shape, path)
        if self.encoding == "none":
            return (_to_flat(array, path),)
        data = [array.astype(self.dtype.newbyteorder("<"), copy=False).tobytes()]
        return (np.array(array.shape, np.int64), data) if self.has_stored_shape else (data,)

    def flatten_many(self, values: Sequence[Any] | npt.NDArray[Any], path: str) -> tuple[FlatValue, ...]:
        """All values at once where they are stored as numbers."""
        if self.encoding != "none":
            return super().flatten_many(values, path)
        if not len(values):
            return (empty_flat(wire_kind(self.dtype)),)
        array = exact_array(values, self.dtype, path)
        self._check_fit(array.shape, (len(values), *self.shape), path)
        return (_to_flat(array, path),)

    def restore(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> Any:
        """An array of the dtype and shape; a NumPy scalar or bytes for shape ``()``."""
        if self.encoding == "bytes":
            return self._restore_bytes(flat, count, path)
        if self.has_stored_shape:
            raise feature_fault(path, f"shape {self.shape} has several unknown dimensions", _MANY_UNKNOWN)
        values = flat[0]
        if count is None and not self.shape:
            if len(values) != 1:
                raise corrupt_fault(path, f"holds {len(values)} values, where 1 belongs")
            return values[0] if isinstance(values, list) else _from_flat(values, self.dtype, path)[0]
        known = math.prod(size for size in self.shape if size is not None) * (1 if count is None else count)
        fits = (len(values) == known) if None not in self.shape else (not known or len(values) % known == 0)
        if not fits:
            raise corrupt_fault(path, f"holds {len(values)} values, which do not make shape {self.shape}")
        if isinstance(values, list):
            array = np.empty(len(values), TEXT)
            array[:] = values
        else:
            array = _from_flat(values, self.dtype, path)
        shape = self.shape if count is None else (count, *self.shape)
        if len(shape) == 1:
            return array
        if None in shape and not known:
            return array.reshape([size or 0 for size in shape])
        return array.reshape([-1 if size is None else size for size in shape])

    def restore_block(self, parts: BlockParts, path: str) -> BlockColumn | None:
        """All at once where the shape is known, or the number of values tells it."""
        from registry.features.tensor_block import restore_tensors

        return restore_tensors(self, parts, path)

    def from_flat(self, values: npt.NDArray[Any], path: str) -> npt.NDArray[Any]:
        """Stored numbers cast to the dtype. Raises CorruptExampleError where that changes one."""
        return _from_flat(values, self.dtype, path)

    def _restore_bytes(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> Any:
        blobs, number = flat[-1], 1 if count is None else count
        if len(blobs) != number or (self.has_stored_shape and len(flat[0]) != number * len(self.shape)):
            raise corrupt_fault(path, f"holds {len(blobs)} values, or not a shape for each, where {number} belong")
        shapes = np.asarray(flat[0]).reshape(-1, len(self.shape)).tolist() if self.has_stored_shape else None
        arrays = [
            self._restore_array(blob, None if shapes is None else shapes[index], path)
            for index, blob in enumerate(blobs)
        ]
        if count is None:
            return arrays[0] if self.shape else arrays[0][()]
        return stack_values(arrays, self.shape, self.dtype)

    def _restore_array(self, data: bytes, stored: list[int] | None, path: str) -> npt.NDArray[Any]:
        num_values, rest = divmod(len(data), self.dtype.itemsize)
        known = math.prod(size for size in self.shape if size is not None)
        missing = num_values // known if known else 0
        shape = stored or [missing if size is None else size for size in self.shape]
        if (
            rest
            or not fits_shape(tuple(shape), self.shape)
            or min(shape, default=0) < 0
            or math.prod(shape) != num_values
        ):
            raise corrupt_fault(path, f"holds {len(data)} bytes, which do not make {self.dtype} of shape {shape}")
        array = np.frombuffer(data, self.dtype.newbyteorder("<")).reshape(shape)
        if self.dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1:
            raise corrupt_fault(path, "holds a bool that is neither 0 nor 1")
        return array.astype(self.dtype)

    def _check_fit(self, actual: tuple[int, ...], declared: Shape, path: str) -> None:
        if self.has_stored_shape and self.encoding == "none":
            raise feature_fault(path, f"shape {self.shape} has several unknown dimensions", _MANY_UNKNOWN)
        if not fits_shape(actual, declared):
            raise feature_fault(path, f"shape {actual} does not fit the declared shape {declared}")


@dataclass(frozen=True, repr=False)
class Scalar(Tensor):
    """One number, text or bytes: a Tensor of shape ``()``, with a name of its own in features.json.

    >>> Scalar("uint8").flatten(300, "age")
    Traceback (most recent call last):
    ...
    registry.errors.FeatureError: feature 'age': 300 does not fit uint8
    """

    dtype: Any = field(kw_only=False)
    shape: Shape = field(default=(), init=False)


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype that ``dtype`` names, native byte order; FeatureError where a tensor cannot have it."""
    if isinstance(dtype, str) and dtype in DTYPES:
        return DTYPES[dtype]
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise feature_fault("", f"{dtype!r} is no dtype", f"There are: {', '.join(DTYPES)}.") from error
    if found.kind in "OSUT":
        return TEXT
    if found.name not in DTYPES:
        raise feature_fault("", f"a tensor of {found} cannot be stored", f"There are: {', '.join(DTYPES)}.")
    return DTYPES[found.name]


def check_shape(shape: Any) -> Shape:
    """``shape`` as a tuple of non-negative int or None."""
    try:
        sizes = tuple(shape)
    except TypeError as error:
        raise feature_fault("", f"{shape!r} is no shape", "Write a tuple of int or None, e.g. (28, None).") from error
    if any(size is not None and (type(size) is not int or not 0 <= size < 2**31) for size in sizes) or len(sizes) > 32:
        raise feature_fault("", f"{sizes!r} is no shape", "Write a tuple of int or None, e.g. (28, None).")
    return sizes


def _check_bound(bound: Any) -> int | None:
    if bound is None:
        return None
    is_whole = isinstance(bound, (int, np.integer)) or (isinstance(bound, (float, np.floating)) and bound % 1 == 0)
    if not is_whole or not -(2**63) <= bound < 2**63:
        raise feature_fault(
            "",
            f"{_shown(bound)} is no bound: minimum and maximum are whole numbers of 64 bits",
            "Say what a value means in value_range=, which is free text.",
        )
    return int(bound)


def wire_kind(dtype: np.dtype[Any]) -> WireKind:
    """Which of the three lists of a tf.train.Feature holds values of ``dtype``."""
    return "bytes" if dtype == TEXT else "float" if dtype.kind == "f" else "int64"


def exact_array(value: Any, dtype: np.dtype[Any], path: str) -> npt.NDArray[Any]:
    """``value`` as an array of ``dtype``; FeatureError where the cast changes a number (floats are rounded)."""
    if dtype == TEXT:
        return _text_array(value, path)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise feature_fault(path, f"{_shown(value)} does not make an array: its rows differ in length") from error
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in "biuf":
        raise feature_fault(path, f"{_shown(value)} does not fit {dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
    if dtype.kind == "f":
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


def to_bytes(item: Any, path: str) -> bytes:
    """Text as UTF-8, bytes as they are."""
    if isinstance(item, np.ndarray) and not item.ndim:
        item = item[()]
    if isinstance(item, bytes):
        return bytes(item)
    if not isinstance(item, str):
        raise feature_fault(path, f"{_shown(item)} is neither text nor bytes")
    try:
        return item.encode()
    except UnicodeEncodeError as error:
        raise feature_fault(path, f"{_shown(item)} is no Unicode text: {error.reason}") from error


def _text_array(value: Any, path: str) -> npt.NDArray[Any]:
    # Never through an array of kind S: it drops trailing zero bytes.
    try:
        array = np.asarray(value, dtype=object)
    except ValueError as error:
        raise feature_fault(path, f"{_shown(value)} does not make an array: its rows differ in length") from error
    encoded = np.empty(array.size, object)
    encoded[:] = [to_bytes(item, path) for item in array.flat]
    return encoded.reshape(array.shape)


def _to_flat(array: npt.NDArray[Any], path: str) -> FlatValue:
    flat = array.reshape(-1)
    kind = wire_kind(array.dtype)
    if kind == "bytes":
        return list(flat)
    if kind == "int64":
        return flat.view(np.int64) if array.dtype == np.uint64 else flat.astype(np.int64, copy=False)
    return exact_array(flat, np.dtype(np.float32), path)


def _from_flat(values: npt.NDArray[Any], dtype: np.dtype[Any], path: str) -> npt.NDArray[Any]:
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


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
