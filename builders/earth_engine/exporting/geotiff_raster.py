"""Reads a GeoTIFF, or any other format of GDAL, as a raster: through rasterio, in windows of whole rows."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import reduce
from itertools import chain
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.assembling.geotiff import import_rasterio, read_crs
from registry.builders.earth_engine.exporting.raster import (
    Band,
    BandRows,
    Mask,
    check_band_name,
    crs_text,
    either,
    is_nodata,
    nodata_by_band,
)
from registry.builders.earth_engine.grid import Size, Transform
from registry.errors import NotStoredError, RegistryWarning, StorageError, UsageError, suggest
from registry.storage import expand_home

_CACHE_BYTES: Final = 2**26
"""Minimum bytes of GDAL's block cache; it is larger if two rows of blocks need more."""


class GeoTiffRaster:
    """A raster in a file. Use it as a context manager; it closes the file if it opened it.

    Bands are named by their descriptions, or b1, b2, ... as in Earth Engine. A pixel is masked if it is nodata, if the
    file's mask says so, or if an alpha band is 0. An alpha band is a mask instead of a band, unless ``bands`` names it
    or its description is not "alpha"; then it is an ordinary band and masks nothing. By default GDAL marks the fourth
    band of uint8 as alpha, even if it is near infrared, so a warning reports an alpha band with more than two values.

    Args:
        source: path or URL of the file, or an open dataset of rasterio, which stays open.
        bands: the bands to read, in order: names, or numbers from 1; or a mapping of new names to these. In a mapping,
            a list makes an array band, such as a time series; its pixel is masked if any element is. None reads all.
        transform: replaces the transform of the file.
        crs: replaces the CRS of the file.
        nodata: an additional number that means no data in all bands, or a mapping of band name to number.

    Raises:
        UsageError: the CRS or transform is missing or invalid, or a band does not exist.
        StorageError: the file cannot be read.
        MissingExtraError: rasterio is not installed.
    """

    def __init__(
        self,
        source: Any,
        *,
        bands: Sequence[str | int] | Mapping[str, str | int | Sequence[str | int]] | None = None,
        transform: Iterable[float] | None = None,
        crs: Any = None,
        nodata: float | Mapping[str, float] | None = None,
    ) -> None:
        rasterio = import_rasterio("reading a GeoTIFF")
        self._stack = ExitStack()
        try:
            self._stack.enter_context(rasterio.Env())
            with warnings.catch_warnings():  # a missing transform is reported below, by an error
                warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
                self._data = self._open(source)
                found = Transform.of(self._data.transform) if transform is None else Transform.given(transform)
            if transform is None and tuple(found) == (1.0, 0.0, 0.0, 0.0, 1.0, 0.0):
                raise UsageError(
                    f"{self._data.name} has no transform, so its place on the map is unknown",
                    hint="For example: transform=(30, 0, 500000, 0, -30, 4100000); "
                    "--transform 30,0,500000,0,-30,4100000.",
                    details={"option": "transform"},
                )
            self.transform = found
            self.crs = crs_text(self._data.crs) if crs is None else _check_crs(crs_text(crs))
            self.size = Size(self._data.width, self._data.height)
            # Read once for all bands, because each access makes rasterio inspect every band.
            self._dtypes = tuple(self._data.dtypes)
            self._flags = [{flag.name for flag in flags} for flags in self._data.mask_flag_enums]
            chosen = self._choose(bands)
            self._numbers = list(chosen.values())
            alpha = {number for number, is_alpha in enumerate(self._alpha, start=1) if is_alpha}
            self._is_alpha_named = any(not alpha.isdisjoint(numbers) for numbers in self._numbers)
            self._is_alpha_told = False
            self.bands = tuple(self._band(name, numbers) for name, numbers in chosen.items())
            self._nodata = nodata_by_band(nodata, chosen)
            self._bound_cache()
        except BaseException:
            self._stack.close()
            raise

    def read(self, start: int, stop: int) -> list[BandRows]:
        """Read the pixel rows start..stop (stop excluded) of every band."""
        from rasterio.errors import RasterioError
        from rasterio.windows import Window

        window = Window(0, start, self.size.width, stop - start)
        rows: list[BandRows] = []
        try:
            values, masks = self._read_values(window), self._read_masks(window)
            for band, numbers in zip(self.bands, self._numbers, strict=True):
                nodata = self._nodata.get(band.name)
                found = [
                    BandRows(values[number], either(masks.get(number), is_nodata(values[number], nodata)))
                    for number in numbers
                ]
                if band.is_array:
                    joined = np.stack([one.values for one in found], axis=2)
                    found = [BandRows(joined, reduce(either, (one.mask for one in found)))]
                rows += found
        except RasterioError as error:
            raise _as_ours(error, self._data.name) from error
        return rows

    def _read_values(self, window: Any) -> dict[int, npt.NDArray[Any]]:
        """The chosen bands by number. Bands with the same dtype are read in one call, which is faster."""
        groups: dict[str, dict[int, None]] = {}
        for number in chain.from_iterable(self._numbers):
            groups.setdefault(self._dtypes[number - 1], {})[number] = None
        values: dict[int, npt.NDArray[Any]] = {}
        for group in groups.values():
            values |= zip(group, self._data.read(list(group), window=window), strict=True)
        return values

    def _read_masks(self, window: Any) -> dict[int, Mask]:
        """The masks of the chosen bands that have one; a shared mask is read once."""
        masked = [
            number
            for number in dict.fromkeys(chain.from_iterable(self._numbers))
            if "all_valid" not in self._flags[number - 1] and not self._is_data(number)
        ]
        shared = [number for number in masked if "per_dataset" in self._flags[number - 1]]
        masks: dict[int, Mask] = {}
        if shared:
            opacity = self._data.read_masks(shared[0], window=window)
            if "alpha" in self._flags[shared[0] - 1]:
                self._look_at_alpha(opacity)
            masks |= dict.fromkeys(shared, opacity == 0)
        if own := [number for number in masked if number not in masks]:
            masks |= zip(own, self._data.read_masks(own, window=window) == 0, strict=True)
        return masks

    def _is_data(self, number: int) -> bool:
        """Whether an alpha band that would mask this band is treated as data."""
        return "alpha" in self._flags[number - 1] and (self._is_alpha_named or not any(self._alpha))

    def _look_at_alpha(self, opacity: Any) -> None:
        """Warn once about an alpha band that seems to be data."""
        lit = opacity[opacity > 0]
        if self._is_alpha_told or lit.size == 0 or lit.min() == lit.max():
            return
        self._is_alpha_told = True
        number = self._alpha.index(True) + 1
        named = range(1, len(self._alpha) + 1)
        warnings.warn(
            f"band {number} of {self._data.name} is marked as alpha, so it masks the other bands where it is 0 and "
            "is not written, but it has more than two values. If it is data, such as near infrared, name the bands: "
            f"bands={list(named)}; {' '.join(f'--band {name}' for name in named)}",
            RegistryWarning,
            stacklevel=2,
        )

    @property
    def _alpha(self) -> list[bool]:
        """Whether each band of the file is alpha: marked, and not described otherwise. If all are marked, none is."""
        marked = [
            color.name == "alpha" and (text or "alpha").lower() == "alpha"
            for color, text in zip(self._data.colorinterp, self._data.descriptions, strict=True)
        ]
        return [is_alpha and not all(marked) for is_alpha in marked]

    def close(self) -> None:
        """Close the file, if it was opened here."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, source: Any) -> Any:
        rasterio = import_rasterio()
        if not isinstance(source, str | os.PathLike):
            if getattr(source, "closed", False):
                raise UsageError(f"{source.name} is closed", hint="Export it within its with block, or pass its path.")
            return source
        path = os.fspath(source)
        if "://" not in path and not path.startswith("/vsi"):
            path = str(expand_home(path))
            if not os.path.isfile(path) and not os.path.isdir(path):  # noqa: PTH112, PTH113 (of any length)
                is_there = os.path.lexists(path)  # reading from a pipe would wait for ever
                raise NotStoredError(
                    f"cannot read {path}: {'it is not a file' if is_there else 'the file does not exist'}",
                    details={"path": path, "doing": "read"},
                )
        try:
            return self._stack.enter_context(rasterio.open(path))
        except rasterio.errors.RasterioError as error:
            raise _as_ours(error, path) from error

    def _band(self, name: str, numbers: Sequence[int]) -> Band:
        dtypes = [self._dtypes[number - 1] for number in numbers]
        if len(set(dtypes)) > 1:
            raise UsageError(
                f"all elements of array band {name!r} must have the same dtype, found {', '.join(sorted(set(dtypes)))}",
                hint="Choose bands with the same dtype.",
                details={"band": name},
            )
        try:
            dtype = np.dtype(dtypes[0])
        except TypeError:  # complex integers, which numpy does not support
            dtype = np.dtype(np.complex64)
        return Band(name=name, dtype=dtype, is_array=isinstance(numbers, list))

    def _choose(
        self, bands: Sequence[str | int] | Mapping[str, str | int | Sequence[str | int]] | None
    ) -> dict[str, Sequence[int]]:
        """Map band names, in order, to numbers in the file: a list for an array band, else a tuple of one."""
        names = [text or f"b{number}" for number, text in enumerate(self._data.descriptions, start=1)]
        wanted: list[tuple[str | None, Any]]
        if bands is None:
            wanted = [(None, number) for number, is_alpha in enumerate(self._alpha, start=1) if not is_alpha]
        elif isinstance(bands, Mapping):
            wanted = list(bands.items())
        else:
            wanted = [(None, band) for band in ([bands] if isinstance(bands, str) else bands)]
        chosen: dict[str, Sequence[int]] = {}
        for new, which in wanted:
            if new is not None and isinstance(which, list | tuple | range) and which:
                chosen[check_band_name(new)] = [self._number_of(band, names) for band in which]
                continue
            number = self._number_of(which, names)
            name = check_band_name(names[number - 1] if new is None else new)
            if name in chosen:
                raise UsageError(
                    f"two bands are called {name!r}, but each feature needs its own name",
                    hint="Rename them: bands={'first': 1, 'second': 2}; --band first=1 --band second=2.",
                    details={"band": name},
                )
            chosen[name] = (number,)
        if not chosen:
            raise UsageError("no band to export", hint=f"Name at least one of: {', '.join(names)}.")
        return chosen

    def _number_of(self, which: Any, names: list[str]) -> int:
        if isinstance(which, int) and not isinstance(which, bool) and 0 < which <= len(names):
            return which
        if isinstance(which, str) and names.count(which) == 1:
            return names.index(which) + 1
        if isinstance(which, str) and which in names:
            numbers = [number for number, name in enumerate(names, start=1) if name == which]
            raise UsageError(
                f"{len(numbers)} bands are called {which!r}: {', '.join(map(str, numbers))}",
                hint="Choose bands by number: bands={'first': 1}; --band first=1.",
                details={"band": which},
            )
        raise UsageError(
            f"{self._data.name} has no band {which!r}",
            hint=suggest(which, names) if isinstance(which, str) else f"Its bands are numbered 1 to {len(names)}.",
            details={"band": which, "known": names[:100]},
        )

    def _bound_cache(self) -> None:
        """Limit GDAL's cache, by default 5 % of the machine's memory: rows are read only once."""
        from rasterio.env import get_gdal_config, set_gdal_config

        dtypes = [8 if dtype.startswith("complex") else np.dtype(dtype).itemsize for dtype in self._dtypes]
        row = max(height for height, _ in self._data.block_shapes) * self.size.width * sum(dtypes)
        before, wanted = get_gdal_config("GDAL_CACHEMAX"), max(_CACHE_BYTES, 2 * row)
        if before > wanted:
            set_gdal_config("GDAL_CACHEMAX", wanted)
            self._stack.callback(set_gdal_config, "GDAL_CACHEMAX", before)


def _check_crs(text: str) -> str:
    """Return a CRS if PROJ knows it, because assembly needs it later. Raises UsageError."""
    authority, colon, _ = text.partition(":")
    if colon and authority == "SR-ORG":  # e.g. SR-ORG:6974 of MODIS, which Earth Engine knows and PROJ does not
        return text
    read_crs(text)
    return text


def _as_ours(error: Exception, path: str) -> StorageError:
    """Convert an error of rasterio or GDAL to a StorageError."""
    return StorageError(
        f"cannot read {path}: {error}",
        hint=f"Check that the file is a complete raster: gdalinfo {path}",
        details={"path": path, "doing": "read"},
    )
