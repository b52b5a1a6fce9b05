"""A raster: bands of pixels with a place on the map, read a few rows at a time.

    numpy arrays        ArrayRaster     transform and CRS are given
    GeoTIFF             GeoTiffRaster   geotiff_raster.py: through rasterio, which reads windows
    anything else       Raster          four attributes and ``read``

Bands of numbers have two axes, arrays of one length have three, and arrays of any length are objects.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.grid import Size, Transform
from registry.builders.earth_engine.kinds import kind_of
from registry.errors import FeatureError, UsageError, suggest

Mask: TypeAlias = npt.NDArray[np.bool_]
"""True where a pixel is masked, as in ``numpy.ma``."""
_EMPTY = np.empty(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """One band.

    Attributes:
        name: its id, which names its feature.
        dtype: of its numbers.
        is_array: whether a pixel is a 1-d array, and not one number.
    """

    name: str
    dtype: np.dtype[Any]
    is_array: bool = False


class BandRows(NamedTuple):
    """Some rows of one band.

    Attributes:
        values: of shape (rows, width). Of an array band (rows, width, depth); where the arrays differ in length,
            objects of shape (rows, width), each a 1-d array, or None without values.
        mask: of shape (rows, width); None where no pixel is masked.
    """

    values: npt.NDArray[Any]
    mask: Mask | None = None


@runtime_checkable
class Raster(Protocol):
    """Bands of pixels, of which rows can be read. Rows are asked for from top to bottom, each once."""

    @property
    def size(self) -> Size:
        """Width and height, in pixels."""

    @property
    def transform(self) -> Transform:
        """Of the pixels' outer corners."""

    @property
    def crs(self) -> str:
        """What the transform leads to: the code of an authority, such as EPSG:32610, or WKT."""

    @property
    def bands(self) -> tuple[Band, ...]:
        """At least one; no two of a name."""

    def read(self, start: int, stop: int) -> list[BandRows]:
        """The pixel rows start..stop (stop excluded) of every band, in the order of ``bands``."""


class ArrayRaster:
    """A raster of numpy arrays.

    Args:
        bands: arrays of shape (height, width) by the name of their band, numpy.ma masked or not. An array band is of
            shape (height, width, depth), or holds 1-d arrays of any length: objects, or lists of rows of lists. Without
            names: one array of shape (height, width), or (bands, height, width) as rasterio reads them; bands are then
            called b1, b2, ... as Earth Engine does.
        transform: six numbers as Earth Engine has them, or an ``affine.Affine``.
        crs: the code of an authority, WKT, or an object of rasterio or pyproj.
        nodata: the number that means no data, for all bands that hold one number a pixel; or a number for each of
            some bands by name. NaN is a number like others. None: every number is data.
        mask: True where a pixel is masked, of shape (height, width); or one for each of some bands by name.

    >>> place = {"transform": (30, 0, 500000, 0, -30, 4100000), "crs": "EPSG:32610"}
    >>> raster = ArrayRaster({"b1": np.zeros((5, 7), "uint8")}, **place)
    >>> raster.size, raster.bands[0].dtype
    (Size(width=7, height=5), dtype('uint8'))

    Raises:
        UsageError: no bands, two sizes, or a name in ``nodata`` or ``mask`` that is no band's.
        FeatureError: numbers that are no pixels, or arrays of more than one dimension; the band is named.
    """

    def __init__(
        self,
        bands: Mapping[str, Any] | npt.NDArray[Any],
        *,
        transform: Iterable[float],
        crs: Any,
        nodata: float | Mapping[str, float] | None = None,
        mask: Any = None,
    ) -> None:
        named = name_bands(bands)
        self.transform = Transform.given(transform)
        self.crs = crs_text(crs)
        self._values: dict[str, npt.NDArray[Any]] = {}
        self._masks: dict[str, Mask] = {}
        found: list[Band] = []
        for name, given in named.items():
            pixels = as_pixels(given, name)
            found.append(Band(name=name, dtype=pixels.dtype, is_array=pixels.is_array))
            self._values[name] = pixels.values
            if pixels.mask is not None:
                self._masks[name] = pixels.mask
        self.bands = tuple(found)
        self.size = self._one_size()
        self._nodata = nodata_by_band(nodata, [band.name for band in found if not band.is_array])
        self._add_masks(mask)

    def read(self, start: int, stop: int) -> list[BandRows]:
        """The pixel rows start..stop of every band: views."""
        rows = []
        for band in self.bands:
            values, mask = self._values[band.name][start:stop], self._masks.get(band.name)
            mask = None if mask is None else mask[start:stop]
            rows.append(BandRows(values, either(mask, is_nodata(values, self._nodata.get(band.name)))))
        return rows

    def _one_size(self) -> Size:
        shapes = {name: values.shape[:2] for name, values in self._values.items()}
        first, (height, width) = next(iter(shapes.items()))
        for name, shape in shapes.items():
            if shape != (height, width):
                raise UsageError(
                    f"the band {name!r} has {shape[1]} x {shape[0]} pixels, and {first!r} has {width} x {height}",
                    hint="Resample one to the grid of the other first: the bands of an image share its pixels.",
                    details={"bands": [first, name]},
                )
        return Size(width, height)

    def _add_masks(self, mask: Any) -> None:
        if mask is None:
            return
        masks = mask if isinstance(mask, Mapping) else dict.fromkeys(self._values, mask)
        for name, one in masks.items():
            if name not in self._values:
                raise UsageError(f"mask has {name!r}, which is no band", hint=suggest(name, self._values))
            found = np.asarray(one)
            if found.dtype != np.bool_ or found.shape != (self.size.height, self.size.width):
                raise UsageError(
                    f"the mask of {name!r} is of {found.dtype} and shape {found.shape}; a mask is of bool and shape "
                    f"({self.size.height}, {self.size.width})",
                    hint="True is masked. A mask of rasterio has 0 there: mask=(found == 0).",
                    details={"band": name},
                )
            self._masks[name] = either(self._masks.get(name), found)


def name_bands(bands: Any) -> dict[str, Any]:
    """Arrays by the name of their band; b1, b2, ... where they have none. Raises UsageError where there are none."""
    if isinstance(bands, Mapping):
        named = dict(bands)
        for name in named:
            check_band_name(name)
    elif isinstance(bands, np.ndarray) and bands.ndim in (2, 3):
        named = {f"b{number}": band for number, band in enumerate(bands if bands.ndim == 3 else bands[None], start=1)}
    else:
        found = f"an array of shape {bands.shape}" if isinstance(bands, np.ndarray) else f"a {type(bands).__name__}"
        raise UsageError(
            f"{found} is no raster",
            hint="Give arrays of shape (height, width) by the name of their band: {'b1': array}.",
        )
    if not named:
        raise UsageError("a raster without bands cannot be exported", hint="Give at least one.")
    return named


def check_band_name(name: Any) -> str:
    """``name`` if it can name a feature. Raises UsageError."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise UsageError(
            f"a band cannot be called {name!r:.60}: its name is a printable text", hint="Give it one, such as 'b1'."
        )
    return name


def crs_text(crs: Any) -> str:
    """A CRS as the mixer has it: text as it is; objects of rasterio and pyproj by their code, else as WKT.

    >>> crs_text("EPSG:32610"), crs_text(4326), crs_text("4326")
    ('EPSG:32610', 'EPSG:4326', 'EPSG:4326')

    Raises:
        UsageError: there is none.
    """
    if (type(crs) is int and crs > 0) or (isinstance(crs, str) and crs.isascii() and crs.isdigit()):
        return f"EPSG:{crs}"
    text = crs if isinstance(crs, str) else getattr(crs, "to_string", lambda: "")() if crs is not None else ""
    if not text or not isinstance(text, str):
        raise UsageError(
            "the raster has no CRS, so nothing tells where on the map it is",
            hint="Give the one that its coordinates are in: crs='EPSG:32610'; --crs EPSG:32610.",
            details={"option": "crs"},
        )
    return text


def nodata_by_band(nodata: float | Mapping[str, float] | None, bands: Iterable[str]) -> dict[str, float]:
    """The number that means no data, for each of ``bands`` that has one; they hold one number a pixel."""
    if nodata is None:
        return {}
    known = list(bands)
    if not isinstance(nodata, Mapping):
        return dict.fromkeys(known, nodata)
    for name in nodata:
        if name not in known:
            raise UsageError(
                f"nodata has {name!r}, which is no band of one number a pixel",
                hint=suggest(name, known),
                details={"band": name},
            )
    return dict(nodata)


def is_nodata(values: npt.NDArray[Any], nodata: float | None) -> Mask | None:
    """Where ``values`` is the number for no data; None where it cannot be."""
    if nodata is None:
        return None
    if values.dtype.kind == "f":
        return np.isnan(values) if math.isnan(nodata) else np.asarray(values == values.dtype.type(nodata))
    low, high = (0, 1) if values.dtype.kind == "b" else (np.iinfo(values.dtype).min, np.iinfo(values.dtype).max)
    if not low <= nodata <= high or nodata != int(nodata):  # NaN is between no two numbers
        return None
    return np.asarray(values == values.dtype.type(int(nodata)))


def either(one: Mask | None, other: Mask | None) -> Any:
    """Masked in any of two masks; None where nothing is."""
    if one is None or other is None:
        return other if one is None else one
    return one | other


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
        default: the value where an element is missing.
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
