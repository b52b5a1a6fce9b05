"""Reads a GeoTIFF, or any format that GDAL reads, as a raster: through rasterio, by windows of whole rows."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import reduce
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

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
from registry.errors import NotStoredError, RegistryWarning, StorageError, UsageError, require_extra, suggest

_CACHE_BYTES: Final = 2**26
"""What GDAL keeps of decoded blocks, at least; it takes more where two rows of blocks are more."""


class GeoTiffRaster:
    """A raster in a file, a context manager that closes what it opened.

    Bands are called as their descriptions, else b1, b2, ... as Earth Engine does. A pixel is masked where it is nodata,
    where the file's mask says so, and where an alpha band is 0. An alpha band is a mask and no band, unless it is
    named, or described as another: then it is a band like others, and masks nothing. GDAL marks the fourth band of
    uint8 so where nobody tells it otherwise, near infrared, too: a warning tells of one that holds more than two
    numbers.

    Args:
        source: path or URL of the file, or an open dataset of rasterio, which stays open.
        bands: which bands, in order: names, or numbers from 1; or a mapping of new names to these. There, a list of
            several makes an array band of them, such as a time series; a pixel of it is masked where any of them is.
            None: all bands.
        transform: instead of the file's own.
        crs: instead of the file's own.
        nodata: one more number that means no data, for all bands, or for each of some by name.

    Raises:
        UsageError: the file has no CRS or no transform and none is given, or no band of that name.
        UsageError: an invalid ``crs``, or a ``transform`` in GDAL's order.
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
        with require_extra("earth-engine", package="rasterio", needed_for="reading a GeoTIFF"):
            import rasterio
        self._stack = ExitStack()
        try:
            self._stack.enter_context(rasterio.Env())
            with warnings.catch_warnings():  # that it has no transform is told below, by an error
                warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
                self._data = self._open(source)
                found = Transform.of(self._data.transform) if transform is None else Transform.given(transform)
            if transform is None and tuple(found) == (1.0, 0.0, 0.0, 0.0, 1.0, 0.0):
                raise UsageError(
                    f"{self._data.name} has no transform, so nothing tells where on the map it is",
                    hint="Give it: transform=(xScale, xShear, xTranslate, yShear, yScale, yTranslate); --transform.",
                    details={"option": "transform"},
                )
            self.transform = found
            self.crs = crs_text(self._data.crs) if crs is None else _check_crs(crs_text(crs))
            self.size = Size(self._data.width, self._data.height)
            # Of all bands at once: rasterio looks at each of them whenever it is asked for one.
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
        """The pixel rows start..stop of every band."""
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
        """The bands of the file that are wanted, by number; those of one type at once, as each call looks at all."""
        groups: dict[str, dict[int, None]] = {}
        for number in chain.from_iterable(self._numbers):
            groups.setdefault(self._dtypes[number - 1], {})[number] = None
        values: dict[int, npt.NDArray[Any]] = {}
        for group in groups.values():
            values |= zip(group, self._data.read(list(group), window=window), strict=True)
        return values

    def _read_masks(self, window: Any) -> dict[int, Mask]:
        """The masks of those of these bands that have one; a mask that all share is read once."""
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
        """Whether an alpha band, which would mask this one, is data here."""
        return "alpha" in self._flags[number - 1] and (self._is_alpha_named or not any(self._alpha))

    def _look_at_alpha(self, opacity: Any) -> None:
        """Tell, once, of an alpha band that seems to be more than a mask."""
        lit = opacity[opacity > 0]
        if self._is_alpha_told or lit.size == 0 or lit.min() == lit.max():
            return
        self._is_alpha_told = True
        number = self._alpha.index(True) + 1
        named = range(1, len(self._alpha) + 1)
        warnings.warn(
            f"band {number} of {self._data.name} is marked as alpha: it masks the others where it is 0, and is not "
            "written; but it holds more than two numbers. If it is data, such as near infrared, name the bands: "
            f"bands={list(named)}; {' '.join(f'--band {one}' for one in named)}",
            RegistryWarning,
            stacklevel=2,
        )

    @property
    def _alpha(self) -> list[bool]:
        """Whether each band of the file is alpha: marked so, and not described as another; of alpha alone, none is."""
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
        import rasterio

        if not isinstance(source, str | os.PathLike):
            if getattr(source, "closed", False):
                raise UsageError(f"{source.name} is closed", hint="Export it within its with block, or give its path.")
            return source
        path = os.fspath(source)
        if "://" not in path and not path.startswith("/vsi"):
            path = str(Path(path).expanduser())
        if "://" not in path and not path.startswith("/vsi") and not Path(path).exists():
            raise NotStoredError(f"cannot read {path}: there is no such file", details={"path": path, "doing": "read"})
        try:
            return self._stack.enter_context(rasterio.open(path))
        except rasterio.errors.RasterioError as error:
            raise _as_ours(error, path) from error

    def _band(self, name: str, numbers: Sequence[int]) -> Band:
        dtypes = [self._dtypes[number - 1] for number in numbers]
        if len(set(dtypes)) > 1:
            raise UsageError(
                f"the array band {name!r} would be made of {', '.join(sorted(set(dtypes)))}",
                hint="Make it of bands of one type.",
                details={"band": name},
            )
        try:
            dtype = np.dtype(dtypes[0])
        except TypeError:  # integers of two parts, of which numpy has none
            dtype = np.dtype(np.complex64)
        return Band(name=name, dtype=dtype, is_array=isinstance(numbers, list))

    def _choose(
        self, bands: Sequence[str | int] | Mapping[str, str | int | Sequence[str | int]] | None
    ) -> dict[str, Sequence[int]]:
        """The numbers of the bands that are wanted, by name, in order: a list of an array band, else a tuple of one."""
        names = [text or f"b{number}" for number, text in enumerate(self._data.descriptions, start=1)]
        wanted: list[tuple[str | None, Any]]
        if bands is None:
            wanted = [(None, number) for number, is_alpha in enumerate(self._alpha, start=1) if not is_alpha]
        elif isinstance(bands, Mapping):
            wanted = list(bands.items())
        else:
            wanted = [(None, one) for one in ([bands] if isinstance(bands, str) else bands)]
        chosen: dict[str, Sequence[int]] = {}
        for new, which in wanted:
            if new is not None and isinstance(which, list | tuple | range) and which:
                chosen[check_band_name(new)] = [self._number_of(one, names) for one in which]
                continue
            number = self._number_of(which, names)
            name = check_band_name(names[number - 1] if new is None else new)
            if name in chosen:
                raise UsageError(
                    f"two bands are called {name!r}; each is a feature of its name",
                    hint="Name them anew: bands={'first': 1, 'second': 2}; --band first=1 --band second=2.",
                    details={"band": name},
                )
            chosen[name] = (number,)
        if not chosen:
            raise UsageError("no band is left to export", hint=f"Name one of them: {', '.join(names)}.")
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
                hint="Name them by number: bands={'first': 1}; --band first=1.",
                details={"band": which},
            )
        raise UsageError(
            f"{self._data.name} has no band {which!r}",
            hint=suggest(which, names) if isinstance(which, str) else f"Its bands are numbered 1 to {len(names)}.",
            details={"band": which, "known": names[:100]},
        )

    def _bound_cache(self) -> None:
        """Keep GDAL from caching a twentieth of the machine's memory: rows are read once, from top to bottom."""
        from rasterio.env import get_gdal_config, set_gdal_config

        dtypes = [8 if dtype.startswith("complex") else np.dtype(dtype).itemsize for dtype in self._dtypes]
        row = max(height for height, _ in self._data.block_shapes) * self.size.width * sum(dtypes)
        before, wanted = get_gdal_config("GDAL_CACHEMAX"), max(_CACHE_BYTES, 2 * row)
        if before > wanted:
            set_gdal_config("GDAL_CACHEMAX", wanted)
            self._stack.callback(set_gdal_config, "GDAL_CACHEMAX", before)


def _check_crs(text: str) -> str:
    """A CRS that was given, if it is one: later, predictions are brought back by it. Raises UsageError."""
    from rasterio.crs import CRS
    from rasterio.errors import CRSError

    authority, colon, _ = text.partition(":")
    if colon and authority == "SR-ORG":  # as that of MODIS, which Earth Engine knows and PROJ does not
        return text
    try:
        CRS.from_user_input(text)
    except CRSError as error:
        raise UsageError(
            f"{text!r:.120} is no CRS that is known here: {error}",
            hint="Give the CRS as a code or as WKT: crs='EPSG:32610'; --crs EPSG:32610.",
            details={"option": "crs"},
        ) from error
    return text


def _as_ours(error: Exception, path: str) -> StorageError:
    """What rasterio and GDAL raise, as an error of a file."""
    return StorageError(
        f"cannot read {path}: {error}",
        hint="Is it a GeoTIFF, and is it whole? gdalinfo tells.",
        details={"path": path, "doing": "read"},
    )
