"""Converts many values to one array, if the result has the same numbers as converting each value alone.

NumPy chooses the dtype of an array by all of its values, so values of different types could affect each other: in
``[2**53 + 1, 0.5]`` the integer is rounded. Values that could be changed are not converted together. ``flatten_block``
of the leaves uses these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from registry.features.feature import Shape, fits_shape
from registry.lazy import np, npt

_MOST_EXACT: Final = 2**53


def stack_alike(values: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """``values`` as one array along a new first dimension; None if their types, dtypes or shapes differ.

    Of different types, only int and float are stacked, as float64, which holds integers up to 2**53.

    >>> stack_alike([1, 2]), stack_alike([1, "2"]), stack_alike([[1, 2], [3, 4]]).shape
    (array([1, 2]), None, (2, 2))
    """
    if isinstance(values, np.ndarray):
        return values
    if not (kind := type_of_all(values)):
        if set(map(type, values)) == {int, float} and _are_exact([value for value in values if type(value) is int]):
            return np.array(values, np.float64)
        return None
    if kind is np.ndarray:
        dtype, shape = values[0].dtype, values[0].shape
        if [value.shape for value in values].count(shape) < len(values) or not _have_dtype(values, dtype):
            return None
        return _join_bytes(values, dtype).reshape(len(values), *shape)
    if kind is int:
        return _stack_integers(values)
    if kind is float or kind is bool or issubclass(kind, np.number | np.bool_):
        return np.array(values, kind)
    if kind is list or kind is tuple:
        size = len(values[0])
        if size and list(map(len, values)).count(size) == len(values):
            inner = stack_alike(list(chain.from_iterable(values)))
            return None if inner is None else inner.reshape(len(values), size, *inner.shape[1:])
    return None


def join_alike(
    values: Sequence[Any] | npt.NDArray[Any], shape: Shape
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]] | None:
    """The numbers of all ``values`` in one array, and their number in each value; the shapes may differ.

    None if their types or dtypes differ, or if a value does not have the declared ``shape``.
    """
    kind = type_of_all(values)
    if kind is np.ndarray:
        shapes = [value.shape for value in values]
        if not all(fits_shape(found, shape) for found in set(shapes)) or not _have_dtype(values, values[0].dtype):
            return None
        counts = np.fromiter((value.size for value in values), np.int64, len(values))
        return _join_bytes(values, values[0].dtype), counts
    if (kind is list or kind is tuple) and shape == (None,):
        stacked = stack_alike(list(chain.from_iterable(values)))
        if stacked is not None and stacked.ndim == 1:
            return stacked, np.fromiter(map(len, values), np.int64, len(values))
    return None


def type_of_all(values: Sequence[Any] | npt.NDArray[Any]) -> type | None:
    """The type of each of ``values``, or None if their types differ or there are none."""
    kinds = set(map(type, values))
    return kinds.pop() if len(kinds) == 1 else None


def encode_texts(values: Sequence[Any] | npt.NDArray[Any]) -> list[bytes] | None:
    """Each text as UTF-8, and bytes unchanged; None if a value is something else or has half a surrogate pair."""
    if isinstance(values, np.ndarray):
        if values.ndim != 1 or values.dtype.kind not in "OUS":
            return None
        values = values.tolist()
    kinds = set(map(type, values))
    if kinds == {bytes}:
        return list(values)
    if not kinds <= {str, bytes}:
        return None
    try:
        return [value.encode() if type(value) is str else value for value in values]
    except UnicodeEncodeError:
        return None


def _are_exact(integers: list[int]) -> bool:
    """Whether float64 holds all ``integers``."""
    return min(integers) >= -_MOST_EXACT and max(integers) <= _MOST_EXACT


def _stack_integers(values: Sequence[int]) -> npt.NDArray[Any] | None:
    for dtype in (np.int64, np.uint64):
        try:
            return np.array(values, dtype)
        except OverflowError:
            continue
    return None


def _have_dtype(values: Sequence[Any] | npt.NDArray[Any], dtype: np.dtype[Any]) -> bool:
    return [value.dtype for value in values].count(dtype) == len(values)


def _join_bytes(values: Sequence[Any] | npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The items of all arrays, in C order, in one array."""
    if dtype.kind in "biufc" and dtype.isnative:
        try:
            return np.frombuffer(b"".join(values) or b"", dtype)
        except ValueError:  # an array that is not contiguous
            pass
    return np.concatenate([value.reshape(-1) for value in values])
