"""Defines the input of an export: a georeferenced raster whose rows are read a few at a time.

    numpy arrays        ArrayRaster     with a transform and CRS from the caller
    GeoTIFF             GeoTiffRaster   read through rasterio; see geotiff_raster.py
    anything else       Raster          a protocol of four attributes and ``read``

Bands of numbers have two axes, array bands of one length have three, and array bands of any length are object arrays.
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
        name: name of the band and its feature.
        dtype: dtype of its numbers.
        is_array: whether a pixel is a 1-d array instead of one number.
    """

    name: str
    dtype: np.dtype[Any]
    is_array: bool = False


class BandRows(NamedTuple):
    """Some rows of one band.

    Attributes:
        values: an array of shape (rows, width). For an array band: (rows, width, depth), or if the arrays differ in
            length, objects of shape (rows, width), each a 1-d array or None.
        mask: True where masked, of shape (rows, width); None if no pixel is masked.
    """

    values: npt.NDArray[Any]
    mask: Mask | None = None


@runtime_checkable
class Raster(Protocol):
    """The protocol of a raster. An export reads its rows once, from top to bottom."""

    @property
    def size(self) -> Size:
        """Width and height in pixels."""

    @property
    def transform(self) -> Transform:
        """The transform from the corners of pixels to the map."""

    @property
    def crs(self) -> str:
        """The coordinate reference system of the map: a code such as EPSG:32610, or WKT."""

    @property
    def bands(self) -> tuple[Band, ...]:
        """The bands: at least one, with unique names."""

    def read(self, start: int, stop: int) -> list[BandRows]:
        """Read the pixel rows start..stop (stop excluded) of every band, in the order of ``bands``."""


class ArrayRaster:
    """A raster in numpy arrays.

    Args:
        bands: a mapping of band name to an array of shape (height, width), or a ``numpy.ma`` masked array. An array
            band has shape (height, width, depth), or contains 1-d arrays of any length: an object array, or lists of
            rows of lists. Alternatively one array of shape (height, width), or (bands, height, width) as rasterio
            reads it; its bands are called b1, b2, ... as in Earth Engine.
        transform: (xScale, xShear, xTranslate, yShear, yScale, yTranslate), or an ``affine.Affine``.
        crs: a code such as EPSG:32610, WKT, or a CRS of rasterio or pyproj.
        nodata: the number that means no data in all bands with one number a pixel, or a mapping of band name to
            number. It may be NaN. None means that every number is data.
        mask: a boolean array of shape (height, width), True where masked, or a mapping of band name to such an array.

    >>> place = {"transform": (30, 0, 500000, 0, -30, 4100000), "crs": "EPSG:32610"}
    >>> raster = ArrayRaster({"b1": np.zeros((5, 7), "uint8")}, **place)
    >>> raster.size, raster.bands[0].dtype
    (Size(width=7, height=5), dtype('uint8'))

    Raises:
        UsageError: there are no bands, their sizes differ, ``nodata`` or ``mask`` names an unknown band, or
            ``transform`` or ``crs`` is invalid.
        FeatureError: a band has a dtype or shape that cannot be exported.
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
        """Return the pixel rows start..stop (stop excluded) of every band, as views."""
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
                    f"all bands must have the same size: {first!r} has {width} x {height} pixels, {name!r} has "
                    f"{shape[1]} x {shape[0]}",
                    hint=f"Resample {name!r} to the grid of {first!r} first.",
                    details={"bands": [first, name]},
                )
        return Size(width, height)

    def _add_masks(self, mask: Any) -> None:
        if mask is None:
            return
        masks = mask if isinstance(mask, Mapping) else dict.fromkeys(self._values, mask)
        for name, one in masks.items():
            if name not in self._values:
                raise UsageError(f"mask contains {name!r}, which is not a band", hint=suggest(name, self._values))
            array = np.asarray(one)
            if array.dtype != np.bool_ or array.shape != (self.size.height, self.size.width):
                raise UsageError(
                    f"mask of {name!r}: expected bool of shape ({self.size.height}, {self.size.width}), found "
                    f"{array.dtype} of shape {array.shape}",
                    hint="Pass True where masked. rasterio's masks are 0 there: mask=(rasterio_mask == 0).",
                    details={"band": name},
                )
            self._masks[name] = either(self._masks.get(name), array)


def name_bands(bands: Any) -> dict[str, Any]:
    """Map band names to arrays; bands without a name become b1, b2, ... Raises UsageError if there are no bands."""
    if isinstance(bands, Mapping):
        named = dict(bands)
        for name in named:
            check_band_name(name)
    elif isinstance(bands, np.ndarray) and bands.ndim in (2, 3):
        named = {f"b{number}": band for number, band in enumerate(bands if bands.ndim == 3 else bands[None], start=1)}
    else:
        found = f"an array of shape {bands.shape}" if isinstance(bands, np.ndarray) else f"a {type(bands).__name__}"
        raise UsageError(
            f"expected the path of a GeoTIFF, a Raster, or arrays by the name of their band, found {found}",
            hint="Pass arrays of shape (height, width): {'b1': array}.",
        )
    if not named:
        raise UsageError("a raster without bands cannot be exported", hint="Pass at least one band: {'b1': array}.")
    return named


def check_band_name(name: Any) -> str:
    """Return ``name`` if it is a valid name of a feature. Raises UsageError otherwise."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise UsageError(f"invalid band name {name!r:.60}: expected printable text", hint="Choose a name such as 'b1'.")
    return name


def crs_text(crs: Any) -> str:
    """Return a CRS as the text that a mixer contains: a code such as EPSG:32610, or WKT.

    >>> crs_text("EPSG:32610"), crs_text(4326), crs_text("4326")
    ('EPSG:32610', 'EPSG:4326', 'EPSG:4326')

    Raises:
        UsageError: ``crs`` is missing.
    """
    if (type(crs) is int and crs > 0) or (isinstance(crs, str) and crs.isascii() and crs.isdigit()):
        return f"EPSG:{crs}"
    text = crs if isinstance(crs, str) else getattr(crs, "to_string", lambda: "")() if crs is not None else ""
    if not text or not isinstance(text, str):
        raise UsageError(
            "the raster has no CRS, so its place on the map is unknown",
            hint="Give the CRS of its coordinates: crs='EPSG:32610'; --crs EPSG:32610.",
            details={"option": "crs"},
        )
    return text


def nodata_by_band(nodata: float | Mapping[str, float] | None, bands: Iterable[str]) -> dict[str, float]:
    """Map each of ``bands`` that has a nodata number to it. Array bands cannot have one."""
    if nodata is None:
        return {}
    known = list(bands)
    if not isinstance(nodata, Mapping):
        return dict.fromkeys(known, nodata)
    for name in nodata:
        if name not in known:
            raise UsageError(
                f"nodata contains {name!r}, which is not a band with one number a pixel",
                hint=suggest(name, known),
                details={"band": name},
            )
    return dict(nodata)


def is_nodata(values: npt.NDArray[Any], nodata: float | None) -> Mask | None:
    """Where ``values`` equals the nodata number; None if the dtype cannot represent it."""
    if nodata is None:
        return None
    if values.dtype.kind == "f":
        return np.isnan(values) if math.isnan(nodata) else np.asarray(values == values.dtype.type(nodata))
    low, high = (0, 1) if values.dtype.kind == "b" else (np.iinfo(values.dtype).min, np.iinfo(values.dtype).max)
    if not low <= nodata <= high or nodata != int(nodata):  # the comparison is also False for NaN
        return None
    return np.asarray(values == values.dtype.type(int(nodata)))


def either(mask: Mask | None, other: Mask | None) -> Any:
    """The union of two masks; None if both are None."""
    if mask is None or other is None:
        return other if mask is None else mask
    return mask | other


class Pixels(NamedTuple):
    """The pixels of one band.

    Attributes:
        values: of shape (height, width), or (height, width, depth), or objects of shape (height, width).
        mask: True where masked, of shape (height, width); None if nothing is.
        dtype: dtype of the numbers.
        is_array: whether a pixel is an array.
    """

    values: npt.NDArray[Any]
    mask: npt.NDArray[np.bool_] | None
    dtype: np.dtype[Any]
    is_array: bool


def as_pixels(given: Any, name: str) -> Pixels:
    """Check and convert the pixels of the band ``name``.

    Args:
        given: an array of shape (height, width) or (height, width, depth), or a ``numpy.ma`` masked array; or objects
            or lists of any length with two axes, where None is a masked pixel.
        name: name of the band, for errors.

    Raises:
        FeatureError: wrong number of axes, a dtype that cannot be exported, or a partly masked pixel.
    """
    array = _rows_of_arrays(given, name) if isinstance(given, list | tuple) else np.asanyarray(given)
    mask = (
        _pixel_mask(np.ma.getmaskarray(array), name)
        if isinstance(array, np.ma.MaskedArray) and np.any(array.mask)
        else None
    )
    array = np.asarray(array)
    if array.dtype.kind == "O" and array.ndim == 2:
        return _as_arrays(array, mask, name)
    if array.ndim not in (2, 3):
        axes = "1 axis" if array.ndim == 1 else f"{array.ndim} axes"
        raise FeatureError(
            f"band {name!r}: expected shape (height, width), or (height, width, depth) for an array band, found {axes}",
            hint="An export cannot store pixels with more than one dimension: flatten them, or make several bands."
            if array.ndim > 3
            else "Reshape it to (height, width).",
            details={"feature": name, "shape": list(array.shape)},
        )
    kind_of(array.dtype, name)
    return Pixels(array, mask, array.dtype.newbyteorder("="), array.ndim == 3)


def stack_arrays(
    values: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None, *, depth: int, dtype: np.dtype[Any], default: float
) -> npt.NDArray[Any]:
    """Convert rows of an array band to (depth, rows, width): cut longer arrays, fill shorter ones with ``default``.

    Args:
        values: of shape (rows, width, any depth), or (rows, width) with 1-d arrays and None.
        mask: pixels whose elements all become ``default``, or None.
        depth: number of elements of each pixel.
        dtype: dtype of the result.
        default: the value of missing elements.
    """
    rows, width = values.shape[:2]
    out = np.full((depth, rows, width), default, dtype)
    if values.ndim == 3:
        used = min(depth, values.shape[2])
        out[:used] = np.moveaxis(values[:, :, :used], 2, 0)
    else:
        flat = [_EMPTY if series is None else series[:depth] for series in values.reshape(-1)]
        lengths = np.fromiter(map(len, flat), np.int64, count=len(flat))
        if lengths.any():
            pixels = np.repeat(np.arange(len(flat)), lengths)
            steps = np.arange(pixels.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            out.reshape(depth, -1)[steps, pixels] = np.concatenate([array for array in flat if len(array)], dtype=dtype)
    if mask is not None:
        out[:, mask] = default
    return out


def _rows_of_arrays(given: Any, name: str) -> npt.NDArray[Any]:
    """Convert lists of rows of numbers, or of pixels of any length, to an array."""
    rows = [list(row) for row in given]
    width = len(rows[0]) if rows else 0
    if any(len(row) != width for row in rows):
        raise FeatureError(
            f"band {name!r} has rows of different lengths", hint="Pass the same number of pixels in each row."
        )
    pixels = [pixel for row in rows for pixel in row]
    if all(np.ndim(pixel) == 0 and pixel is not None for pixel in pixels):
        return np.asarray(rows)
    out = np.empty((len(rows), width), object)
    for place, pixel in enumerate(pixels):  # one by one, because numpy would stack arrays of equal length
        out[divmod(place, width)] = pixel
    return out


def _as_arrays(pixels: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None, name: str) -> Pixels:
    """Convert objects to 1-d arrays with their common dtype, or float64 if all are empty."""
    out = np.empty(pixels.shape, object)
    missing = np.zeros(pixels.shape, np.bool_) if mask is None else mask.copy()
    dtypes: set[np.dtype[Any]] = set()
    for place in np.ndindex(pixels.shape):
        pixel: Any = pixels[place]
        if pixel is None:
            missing[place] = True
            continue
        try:
            array = np.asarray(pixel)
        except ValueError:  # lists within lists, of different lengths
            array = np.empty((0, 0))
        if array.ndim != 1:
            row, column = place
            raise FeatureError(
                f"band {name!r}, row {row}, column {column}: expected an array of 1 dimension, found "
                + ("a number" if array.ndim == 0 else f"{array.ndim} dimensions"),
                hint="Flatten it, or make a band of each element: an export cannot store more dimensions.",
                details={"feature": name, "row": row, "column": column},
            )
        out[place] = array
        if array.size:
            dtypes.add(array.dtype)
    for dtype in dtypes:
        kind_of(dtype, name)
    common = np.result_type(*dtypes) if dtypes else np.dtype(np.float64)
    return Pixels(out, missing if missing.any() else None, common.newbyteorder("="), True)


def _pixel_mask(mask: npt.NDArray[np.bool_], name: str) -> npt.NDArray[np.bool_]:
    """Convert a mask of values to a mask of pixels."""
    if mask.ndim != 3:
        return np.asarray(mask)
    whole: npt.NDArray[np.bool_] = np.any(mask, axis=2)
    if not np.array_equal(whole, np.all(mask, axis=2)):
        raise FeatureError(
            f"band {name!r} has pixels in which only some elements are masked",
            hint="Mask all elements of a pixel, or fill the masked ones: array.filled(0).",
            details={"feature": name},
        )
    return whole
