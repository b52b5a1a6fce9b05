"""Infers the layout of each band in a patch, and its dtype in the raster, from the first patch.

    bytes -> uint8       int64 -> int32, or as declared       float -> float32

Arrays keep their dtype, except for int64 (often class indexes), booleans and float16. Numbers are never rounded or
clipped silently: a number that does not fit is an error that names it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.assembling.patches import PatchOrigin, PatchValues, listed, missing_band, read_at
from registry.builders.earth_engine.grid import Size, Tile, infer_tile, tile_of_array
from registry.errors import FeatureError, ShardMismatchError, UsageError, suggest

DTYPES: Final = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64")
"""The dtypes that a band of a GeoTIFF can have."""

_DEFAULT: Final[Mapping[np.dtype[Any], np.dtype[Any]]] = {
    np.dtype(np.int64): np.dtype(np.int32),
    np.dtype(np.bool_): np.dtype(np.uint8),
    np.dtype(np.float16): np.dtype(np.float32),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BandLayout:
    """The layout of one band in every patch, and its dtype in the raster.

    Attributes:
        name: name of the feature.
        shape: shape of its values, the same in all patches.
        source: dtype of its values.
        depth: number of bands in the raster that it becomes.
        is_array: whether it is an array band, even with a depth of 1.
        tile: the tile and the position of the patch in it.
        dtype: dtype in the raster.
    """

    name: str
    shape: tuple[int, ...]
    source: np.dtype[Any]
    depth: int
    is_array: bool
    tile: Tile
    dtype: np.dtype[Any]

    def core(self, patch: PatchValues) -> npt.NDArray[Any]:
        """The band of a patch without its margin: (depth, patch height, patch width), of ``dtype``.

        Raises:
            ShardMismatchError: the patch lacks the band, or its size or kind differs from the first patch.
            FeatureError: a value does not fit the dtype.
        """
        values = patch.bands.get(self.name)
        if values is None:
            raise missing_band(self.name, patch.bands, patch.place)
        check_same_form(patch.place, self.name, values, shape=self.shape, dtype=self.source)
        width, height = self.tile.size
        core = self.tile.crop(values.reshape(self.depth, height, width))
        if values.dtype == self.dtype:
            return core
        return fit_exactly(core, self.dtype, self.name, str(patch.place))


def measure_bands(
    first: PatchValues,
    order: Sequence[str],
    patch: Size,
    *,
    kernel: Size | None,
    depths: Mapping[str, int],
    dtypes: Any,
) -> tuple[BandLayout, ...]:
    """The layout of each band in ``order``, inferred from the first patch.

    Raises:
        ShardMismatchError: a band has a number of values that no tile around the patch has.
        UsageError: the size of the margin is ambiguous, or an option names a band that does not exist.
    """
    declared = _read_dtypes(dtypes, order)
    for name in depths:
        if name not in first.bands:
            raise _unknown_band("tensor_depths", name, list(first.bands))
    layouts = []
    for name in order:
        values = first.bands[name]
        is_array = name in depths or values.ndim == 3
        depth, tile = read_at(first.place, _measure, values, name, patch, kernel, depths.get(name))
        layouts.append(
            BandLayout(
                name=name,
                shape=values.shape,
                source=values.dtype,
                depth=depth,
                is_array=is_array,
                tile=tile,
                dtype=declared.get(name) or _DEFAULT.get(values.dtype, values.dtype),
            )
        )
    if kernel is None and len({layout.tile.size for layout in layouts}) > 1:
        _check_margins(layouts, first.place, patch)
    return tuple(layouts)


def check_same_form(
    place: PatchOrigin, name: str, values: npt.NDArray[Any], *, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> None:
    """Refuse a band of another size or kind than in the first patch. Raises ShardMismatchError."""
    if values.shape != shape:
        raise ShardMismatchError(
            f"{place}: band {name!r}: expected {_count(shape)} values as in the first patch, found "
            f"{_count(values.shape)}",
            hint="All patches of a raster must have the same size: do not mix patches with and without a margin.",
            details={**place.details, "band": name, "expected": list(shape), "found": list(values.shape)},
        )
    if values.dtype != dtype and values.dtype.kind != dtype.kind:
        raise ShardMismatchError(
            f"{place}: band {name!r}: expected {dtype} as in the first patch, found {values.dtype}",
            hint="Write all patches with the same dtype.",
            details={**place.details, "band": name},
        )


def fit_exactly(values: npt.NDArray[Any], dtype: npt.DTypeLike, name: str, where: str = "") -> npt.NDArray[Any]:
    """``values`` as ``dtype``, if each is the same number there; a float may become a shorter float.

    Raises:
        FeatureError: a value would change. The message has the value, the ``name`` of the band and ``where`` it is.

    >>> fit_exactly(np.array([7, 8]), "int16", "class")
    array([7, 8], dtype=int16)
    """
    dtype = np.dtype(dtype)
    if values.dtype == dtype:
        return values
    with np.errstate(invalid="ignore", over="ignore"):
        result = values.astype(dtype)
    if np.can_cast(values.dtype, dtype, "safe") and not (values.dtype.kind in "iu" and values.dtype.itemsize == 8):
        return result  # numpy calls int64 to float64 safe, which it is not beyond 2**53
    if values.dtype.kind == "f" and dtype.kind == "f":
        wrong = np.isinf(result) & np.isfinite(values)
    elif values.dtype.kind in "iu" and dtype.kind in "iu":
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        if values.size == 0 or (int(values.min()) >= low and int(values.max()) <= high):
            return result
        wrong = (values < low) | (values > high)
    else:
        wrong = _differs(result, values)
    if wrong.any():
        value = values[wrong][0].item()
        wider = _wider(values.dtype, dtype)
        raise FeatureError(
            f"{where}{': ' if where else ''}band {name!r} contains {value!r}, which {dtype} cannot store",
            hint=f"Choose another dtype: dtypes={{{name!r}: {wider!r}}}; --dtype {name}={wider}.",
            details={"band": name, "value": value if math.isfinite(value) else str(value), "dtype": str(dtype)},
        )
    return result


def common_dtype(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """The smallest dtype that holds the numbers of all, as numpy promotes them.

    >>> common_dtype([np.dtype("uint8"), np.dtype("float32")])
    dtype('float32')
    """
    return np.result_type(*dtypes)


def check_nodata(nodata: Any, dtype: np.dtype[Any]) -> None:
    """Refuse a number that ``dtype`` cannot store. Raises UsageError."""
    why = ""
    if isinstance(nodata, bool) or not isinstance(nodata, int | float):
        why = "expected a number"
    elif dtype.kind in "iu":
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        if not math.isfinite(nodata) or nodata != int(nodata) or not low <= nodata <= high:
            why = f"the raster is {dtype}, which stores whole numbers from {low} to {high}"
    elif math.isfinite(nodata) and abs(nodata) > float(np.finfo(dtype).max):
        why = f"the raster is {dtype}, which stores numbers up to {float(np.finfo(dtype).max):.6g}"
    if why:
        raise UsageError(
            f"invalid nodata {nodata!r:.60}: {why}",
            hint="Choose a number that no valid pixel has, or another dtype: dtypes='float32'; --dtype float32.",
            details={"option": "nodata", "dtype": str(dtype)},
        )


def _measure(
    values: npt.NDArray[Any], name: str, patch: Size, kernel: Size | None, depth: int | None
) -> tuple[int, Tile]:
    """The depth of a band, and its tile."""
    subject = f"the band {name!r}"
    if values.ndim == 1:
        if depth is None:
            return 1, infer_tile(values.size, patch, kernel, what=subject)
        if values.size % depth:
            raise ShardMismatchError(
                f"{subject}: expected a multiple of its depth {depth}, found {values.size} values",
                hint="Give the depth of the export: tensor_depths={...}; --depth BAND=N.",
                details={"values": values.size, "depth": depth},
            )
        return depth, infer_tile(values.size // depth, patch, kernel, what=f"{subject} of depth {depth}")
    result = 1 if values.ndim == 2 else values.shape[0]
    if result != (depth or result) or not result:
        raise ShardMismatchError(
            f"{subject} has a depth of {result}" + (f", expected {depth}" if depth else ""),
            hint="Give its depth: tensor_depths={...}; --depth BAND=N.",
            details={"found": result, "depth": depth},
        )
    axes = "Arrays are (height, width) or (bands, height, width); if bands come last, pass layout='HWC'. "
    return result, tile_of_array(Size(values.shape[-1], values.shape[-2]), patch, kernel, subject, advice=axes)


def _check_margins(layouts: Sequence[BandLayout], place: PatchOrigin, patch: Size) -> None:
    """Refuse to guess whether a larger band has a margin or is an array band.

    It must have a margin if its number of values is not a multiple of the patch, as 384 x 384 around 256 x 256.
    """
    margins = {layout.tile.size: layout.tile.num_pixels for layout in layouts if layout.tile.size != patch}
    if len(margins) == 1 and not any(pixels % (patch.width * patch.height) == 0 for pixels in margins.values()):
        return
    sizes = ", ".join(
        f"{layout.name!r} {layout.tile.size.width} x {layout.tile.size.height}" for layout in layouts[:10]
    )
    if all(len(layout.shape) > 1 for layout in layouts):
        return  # the shapes of arrays are unambiguous
    raise UsageError(
        f"{place}: the bands seem to have tiles of different sizes: {sizes}. Is one of them an array band?",
        hint="Give the kernel size (kernel_size; --kernel), and the depths of array bands (tensor_depths; --depth).",
        details=place.details,
    )


def _read_dtypes(dtypes: Any, order: Sequence[str]) -> dict[str, np.dtype[Any]]:
    if dtypes is None:
        return {}
    named = dtypes if isinstance(dtypes, Mapping) else dict.fromkeys(order, dtypes)
    result = {}
    for name, given in named.items():
        if name not in order:
            raise _unknown_band("dtypes", name, order)
        try:
            dtype = np.dtype(given)
        except TypeError:
            dtype = None
        if dtype is None or str(dtype) not in DTYPES:
            raise UsageError(
                f"invalid dtype {given!r:.60} for a band",
                hint=f"Choose one of {', '.join(DTYPES)}.",
                details={"option": "dtypes", "band": name},
            )
        result[name] = dtype
    return result


def _unknown_band(option: str, name: str, known: Sequence[str]) -> UsageError:
    return UsageError(
        f"{option} contains {name!r:.80}, which is not a band; the bands are {listed(known)}",
        hint=suggest(str(name), known),
        details={"option": option, "band": str(name), "known": sorted(known)},
    )


def _differs(made: npt.NDArray[Any], values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Where a cast between integers and floats changed a number."""
    if values.dtype.kind == "f":
        info = np.iinfo(made.dtype)
        # floats cannot represent the largest integers, so compared as floats they would equal overflowing values
        with np.errstate(invalid="ignore"):
            outside = ~((values >= float(info.min)) & (values < float(info.max) + 1))
        inside = np.where(outside, 0, values)
        return np.asarray(outside | (inside != np.trunc(inside)))
    info = np.iinfo(values.dtype)
    with np.errstate(invalid="ignore"):
        back = np.where(made < float(info.max), made, 0).astype(values.dtype)
    return np.asarray((back != values) | (made >= float(info.max)))


def _wider(source: np.dtype[Any], dtype: np.dtype[Any]) -> str:
    """A dtype for values that do not fit ``dtype``."""
    return "float64" if source.kind in "iu" and dtype.kind == "f" and source.itemsize < 8 else str(source)


def _count(shape: tuple[int, ...]) -> str:
    return str(shape[0]) if len(shape) == 1 else " x ".join(map(str, shape))
