"""How is a GeoTIFF read as a raster? Through rasterio, by windows of whole rows; any format that GDAL reads will do."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

from registry.builders.earth_engine.grid import Size
from registry.builders.earth_engine.raster import (
    Band,
    BandRows,
    Mask,
    check_band_name,
    crs_text,
    either,
    is_nodata,
    nodata_by_band,
)
from registry.builders.earth_engine.transform import Transform
from registry.errors import MissingExtraError, NotStoredError, StorageError, UsageError, suggest

_CACHE_BYTES: Final = 2**26
"""What GDAL keeps of decoded blocks, at least; it takes more where two rows of blocks are more."""


class GeoTiffRaster:
    """A raster in a file, a context manager that closes what it opened.

    Bands are called as their descriptions, else b1, b2, ... as Earth Engine does. A pixel is masked where it is nodata,
    where the file's mask says so, and where an alpha band is 0; an alpha band is no band unless it is named.

    Args:
        source: path or URL of the file, or an open dataset of rasterio, which stays open.
        bands: which bands, in order: names, or numbers from 1; or a mapping of new names to these. None: all.
        transform: instead of the file's own.
        crs: instead of the file's own.
        nodata: one more number that stands for no data, for all bands, or by the name of the band.

    Raises:
        UsageError: the file has no CRS or no transform and none is given, or no band of that name.
        StorageError: the file cannot be read.
        MissingExtraError: rasterio is not installed.
    """

    def __init__(
        self,
        source: Any,
        *,
        bands: Sequence[str | int] | Mapping[str, str | int] | None = None,
        transform: Iterable[float] | None = None,
        crs: Any = None,
        nodata: float | Mapping[str, float] | None = None,
    ) -> None:
        try:
            import rasterio
        except ImportError as error:
            raise MissingExtraError(package="rasterio", extra="earth-engine", needed_for="reading a GeoTIFF") from error
        self._stack = ExitStack()
        try:
            self._stack.enter_context(rasterio.Env())
            with warnings.catch_warnings():  # that it has no transform is told below, by an error
                warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
                self._data = self._open(source)
                found = Transform.of(self._data.transform) if transform is None else Transform.of(transform)
            if transform is None and tuple(found) == (1.0, 0.0, 0.0, 0.0, 1.0, 0.0):
                raise UsageError(
                    f"{self._data.name} has no transform, so nothing tells where on the map it is",
                    hint="Give it: transform=(xScale, xShear, xTranslate, yShear, yScale, yTranslate); --transform.",
                    details={"option": "transform"},
                )
            self.transform = found
            self.crs = crs_text(self._data.crs if crs is None else crs)
            self.size = Size(self._data.width, self._data.height)
            chosen = self._choose(bands)
            self._numbers = list(chosen.values())
            self.bands = tuple(
                Band(name=name, dtype=np.dtype(self._data.dtypes[number - 1])) for name, number in chosen.items()
            )
            self._nodata = nodata_by_band(nodata, self.bands)
            self._bound_cache()
        except BaseException:
            self._stack.close()
            raise

    def read(self, start: int, stop: int) -> list[BandRows]:
        """The pixel rows start..stop of every band."""
        from rasterio.errors import RasterioError
        from rasterio.windows import Window

        window = Window(0, start, self.size.width, stop - start)
        rows, shared = [], None
        for band, number in zip(self.bands, self._numbers, strict=True):
            flags = [flag.name for flag in self._data.mask_flag_enums[number - 1]]
            try:
                values = self._data.read(number, window=window)
                mask: Mask | None = None
                if "per_dataset" in flags:  # one for all bands
                    shared = self._data.read_masks(number, window=window) == 0 if shared is None else shared
                    mask = shared
                elif "all_valid" not in flags:
                    mask = self._data.read_masks(number, window=window) == 0
            except RasterioError as error:
                raise _as_ours(error, self._data.name) from error
            rows.append(BandRows(values, either(mask, is_nodata(values, self._nodata.get(band.name)))))
        return rows

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

    def _choose(self, bands: Sequence[str | int] | Mapping[str, str | int] | None) -> dict[str, int]:
        """The numbers of the bands that are wanted, by name, in order."""
        names = [text or f"b{number}" for number, text in enumerate(self._data.descriptions, start=1)]
        if bands is None:
            alpha = [one.name == "alpha" for one in self._data.colorinterp]
            wanted: list[tuple[str | None, str | int]] = [
                (None, number) for number, is_alpha in enumerate(alpha, start=1) if not is_alpha or all(alpha)
            ]
        elif isinstance(bands, Mapping):
            wanted = list(bands.items())
        else:
            wanted = [(None, one) for one in ([bands] if isinstance(bands, str) else bands)]
        chosen: dict[str, int] = {}
        for new, which in wanted:
            number = self._number_of(which, names)
            name = names[number - 1] if new is None else new
            check_band_name(name)
            if name in chosen:
                raise UsageError(
                    f"two bands are called {name!r}; each is a feature of its name",
                    hint="Name them anew: bands={'first': 1, 'second': 2}; --band first=1 --band second=2.",
                    details={"band": name},
                )
            chosen[name] = number
        if not chosen:
            raise UsageError("no band is left to export", hint=f"Name one of them: {', '.join(names)}.")
        return chosen

    def _number_of(self, which: str | int, names: list[str]) -> int:
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

        dtypes = [np.dtype(self._data.dtypes[index - 1]).itemsize for index in self._data.indexes]
        row = max(height for height, _ in self._data.block_shapes) * self.size.width * sum(dtypes)
        before, wanted = get_gdal_config("GDAL_CACHEMAX"), max(_CACHE_BYTES, 2 * row)
        if before > wanted:
            set_gdal_config("GDAL_CACHEMAX", wanted)
            self._stack.callback(set_gdal_config, "GDAL_CACHEMAX", before)


def _as_ours(error: Exception, path: str) -> StorageError:
    """What rasterio and GDAL raise, as an error of a file."""
    return StorageError(
        f"cannot read {path}: {error}",
        hint="Is it a GeoTIFF, and is it whole? gdalinfo tells.",
        details={"path": path, "doing": "read"},
    )
