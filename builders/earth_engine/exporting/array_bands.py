"""How are the pixels of a band held? Numbers in two axes, arrays of one length in three, of any length as objects."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.kinds import kind_of
from registry.errors import FeatureError

_EMPTY = np.empty(0)


class Pixels(NamedTuple):
    """The pixels of one band.

    Attributes:
        values: of shape (height, width), or (height, width, depth), or objects of shape (height, width).
        mask: True where masked, of shape (height, width); None where nothing is.
        dtype: of the numbers.
        is_array: whether a pixel is an array.
    """

    values: npt.NDArray[Any]
    mask: npt.NDArray[np.bool_] | None
    dtype: np.dtype[Any]
    is_array: bool


def as_pixels(given: Any, name: str) -> Pixels:
    """The pixels of the band ``name``.

    Args:
        given: numbers of shape (height, width) or (height, width, depth), numpy.ma masked or not; or of two axes
            objects or lists of any length, where None is a masked pixel.
        name: of the band, in errors.

    Raises:
        FeatureError: another number of axes, numbers that are no pixels, or a pixel that is masked in part.
    """
    found = _rows_of_arrays(given, name) if isinstance(given, list | tuple) else np.asanyarray(given)
    mask = (
        _pixel_mask(np.ma.getmaskarray(found), name)
        if isinstance(found, np.ma.MaskedArray) and np.any(found.mask)
        else None
    )
    found = np.asarray(found)
    if found.dtype.kind == "O" and found.ndim == 2:
        return _as_arrays(found, mask, name)
    if found.ndim not in (2, 3):
        axes = "1 axis" if found.ndim == 1 else f"{found.ndim} axes"
        raise FeatureError(
            f"the band {name!r} has {axes}; a band has (height, width), an array band (height, width, depth)",
            hint="Arrays of more than one dimension have no form in an export: make a band of each, or flatten them."
            if found.ndim > 3
            else "Reshape it to (height, width).",
            details={"feature": name, "shape": list(found.shape)},
        )
    check_dtype(found.dtype, name)
    return Pixels(found, mask, found.dtype.newbyteorder("="), found.ndim == 3)


def check_dtype(dtype: np.dtype[Any], name: str) -> None:
    """Raise FeatureError, which names the band, where numbers of ``dtype`` are no pixels."""
    try:
        kind_of(dtype)
    except FeatureError as error:
        raise FeatureError(
            f"the band {name!r} is of {dtype}; bands hold booleans, integers or floats",
            hint=error.hint,
            details={"feature": name, "dtype": str(dtype)},
        ) from error


def stack_arrays(
    values: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None, *, depth: int, dtype: np.dtype[Any], default: float
) -> npt.NDArray[Any]:
    """Rows of an array band as (depth, rows, width): longer arrays cut off, shorter ones filled up with ``default``.

    Args:
        values: (rows, width, any depth), or (rows, width) of 1-d arrays and None.
        mask: pixels that are ``default`` all through; None for none.
        depth: elements of each pixel.
        dtype: of the result.
        default: what stands where there is no element.
    """
    rows, width = values.shape[:2]
    out = np.full((depth, rows, width), default, dtype)
    if values.ndim == 3:
        used = min(depth, values.shape[2])
        out[:used] = np.moveaxis(values[:, :, :used], 2, 0)
    else:
        flat = [_EMPTY if one is None else one[:depth] for one in values.reshape(-1)]
        lengths = np.fromiter(map(len, flat), np.int64, count=len(flat))
        if lengths.any():
            pixels = np.repeat(np.arange(len(flat)), lengths)
            steps = np.arange(pixels.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            out.reshape(depth, -1)[steps, pixels] = np.concatenate([one for one in flat if len(one)], dtype=dtype)
    if mask is not None:
        out[:, mask] = default
    return out


def _rows_of_arrays(given: Any, name: str) -> npt.NDArray[Any]:
    """Lists of rows of numbers, or of pixels of any length."""
    rows = [list(row) for row in given]
    width = len(rows[0]) if rows else 0
    if any(len(row) != width for row in rows):
        raise FeatureError(f"the band {name!r} has rows of different lengths", hint="Give as many pixels in each row.")
    pixels = [pixel for row in rows for pixel in row]
    if all(np.ndim(pixel) == 0 and pixel is not None for pixel in pixels):
        return np.asarray(rows)
    out = np.empty((len(rows), width), object)
    for place, pixel in enumerate(pixels):  # one by one: numpy would make axes of arrays of the same length
        out[divmod(place, width)] = pixel
    return out


def _as_arrays(pixels: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None, name: str) -> Pixels:
    """Objects as 1-d arrays of one dtype: that which holds the numbers of all; float64 where all are empty."""
    out = np.empty(pixels.shape, object)
    missing = np.zeros(pixels.shape, np.bool_) if mask is None else mask.copy()
    dtypes: set[np.dtype[Any]] = set()
    for place in np.ndindex(pixels.shape):
        pixel: Any = pixels[place]
        if pixel is None:
            missing[place] = True
            continue
        try:
            found = np.asarray(pixel)
        except ValueError:  # lists within lists, of different lengths
            found = np.empty((0, 0))
        if found.ndim != 1:
            row, column = place
            raise FeatureError(
                f"the band {name!r} has at row {row}, column {column} "
                + ("a number" if found.ndim == 0 else f"an array of {found.ndim} dimensions")
                + "; a pixel of an array band is an array of one",
                hint="Flatten it, or make a band of each element: arrays of more dimensions have no form in an export.",
                details={"feature": name, "row": row, "column": column},
            )
        out[place] = found
        if found.size:
            dtypes.add(found.dtype)
    for dtype in dtypes:
        check_dtype(dtype, name)
    common = np.result_type(*dtypes) if dtypes else np.dtype(np.float64)
    return Pixels(out, missing if missing.any() else None, common.newbyteorder("="), True)


def _pixel_mask(mask: npt.NDArray[np.bool_], name: str) -> npt.NDArray[np.bool_]:
    """The mask of pixels, made of one of values."""
    if mask.ndim != 3:
        return np.asarray(mask)
    whole: npt.NDArray[np.bool_] = np.any(mask, axis=2)
    if not np.array_equal(whole, np.all(mask, axis=2)):
        raise FeatureError(
            f"the band {name!r} has pixels of which some elements are masked and some are not",
            hint="Mask a pixel as a whole, or fill the elements in: array.filled(0).",
            details={"feature": name},
        )
    return whole
