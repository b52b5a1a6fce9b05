"""How do values of many records become one array? Stacked where they have one shape, or filled up to the largest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from registry.errors import UsageError, WrongTypeError

_MOST_AT_ONCE: Final = 2**28
"""No more is asked for before all values are known to be alike: one of them may be much larger than the others."""


def stack_items(values: list[Any]) -> npt.NDArray[Any]:
    """The values as one array, where they are of one shape and dtype; else an object array (n,) of them."""
    first = values[0] if values else None
    if isinstance(first, np.generic) and all(
        type(value) is type(first) and value.dtype == first.dtype for value in values
    ):
        return np.array(values, first.dtype)
    if isinstance(first, np.ndarray) and all(
        isinstance(value, np.ndarray) and value.shape == first.shape and value.dtype == first.dtype for value in values
    ):
        return np.stack(values)
    return np.fromiter(values, object, len(values))


def stack_each(values: Iterator[Any], count: int) -> npt.NDArray[Any]:
    """The same of ``count`` values that are put in place as they come, so that they need not be held twice.

    Raises:
        UsageError: they are more, or fewer.
    """
    first = next(values, None)
    if not isinstance(first, np.ndarray) or first.dtype.kind == "O" or count * first.nbytes > _MOST_AT_ONCE:
        found = [first, *values]
        return stack_items(found) if len(found) == count else _raise_other_number(count)
    stacked = np.empty((count, *first.shape), first.dtype)
    stacked[0], place = first, 0
    for place, value in enumerate(values, 1):
        is_alike = isinstance(value, np.ndarray) and value.shape == first.shape and value.dtype == first.dtype
        if not is_alike or place == count:
            found = [*(row.copy() for row in stacked[:place]), value, *values]
            return stack_items(found) if len(found) == count else _raise_other_number(count)
        stacked[place] = value
    return stacked if place + 1 == count else _raise_other_number(count)


def stack_arrays(arrays: Sequence[npt.NDArray[Any]], *, pad: bool) -> npt.NDArray[Any]:
    """The arrays as one; with ``pad`` those of other sizes are filled up with zeros, or ``b""``, to the largest.

    Raises:
        WrongTypeError: their shapes differ, and ``pad`` is off; or they differ in dimensions or dtype.
    """
    shapes = {array.shape for array in arrays}
    if len({array.ndim for array in arrays}) > 1:
        raise not_alike("numbers of dimensions", [array.shape for array in arrays])
    if len(shapes) > 1 and not pad:
        raise not_alike("shapes", [array.shape for array in arrays])
    if len({array.dtype for array in arrays}) > 1:
        raise not_alike("dtypes", [str(array.dtype) for array in arrays])
    if len(shapes) == 1:
        return np.stack(arrays)
    largest = np.array(sorted(shapes)).max(axis=0)
    stacked = np.zeros((len(arrays), *largest), arrays[0].dtype)  # of texts of fixed size the empty ones
    if stacked.dtype.kind == "O":
        stacked[...] = b""
    for place, array in enumerate(arrays):
        inside: tuple[int | slice, ...] = (place, *map(slice, array.shape))
        stacked[inside] = array
    return stacked


def _raise_other_number(count: int) -> NoReturn:
    raise UsageError(
        f"a handler gave another number of items than the {count} records that it was given",
        hint="columns_to_items gives an item for each record, or None.",
    )


def fill_up(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An object array (n,) of arrays as one array, filled up as ``stack_arrays`` does; any other array as it is."""
    if isinstance(column, np.ma.MaskedArray):  # its values are alike
        return column
    if column.dtype.kind == "O" and column.ndim == 1 and all(isinstance(value, np.ndarray) for value in column):
        return stack_arrays(column.tolist(), pad=True) if column.size else column
    return column


def as_array(value: Any) -> npt.NDArray[Any]:
    """One value as an array; a text as an array of one object of ``bytes``, without a dimension."""
    if isinstance(value, str | bytes):
        array = np.empty((), object)
        array[()] = value.encode() if isinstance(value, str) else value
        return array
    return np.asarray(value)


def not_alike(what: str, found: Sequence[Any]) -> WrongTypeError:
    """What is raised where the ``what`` of elements, which were ``found``, are not the same."""
    shown = ", ".join(map(str, dict.fromkeys(map(str, found))))
    return WrongTypeError(
        f"elements of different {what} cannot be stacked: {shown:.200}",
        hint="Give dynamic_pad=True to fill up with zeros what is shorter, or take the elements one by one."
        if what == "shapes"
        else "Take the elements one by one, or make them alike.",
    )
