"""How is a raster gone through? In strips: the pixels of one row of patches with its margin, and no more in memory.

A strip begins where the margin of its first patch begins, and ends where that of its last one does. What of it lies
outside of the raster is the default value, and masked. Rows that two strips share are read once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.exporting.array_bands import stack_arrays
from registry.builders.earth_engine.exporting.plan import ExportedBand, ExportPlan
from registry.builders.earth_engine.exporting.raster import BandRows, Mask, Raster
from registry.errors import FeatureError

_CHUNK_BYTES: Final = 2**25
"""About so many bytes of a raster are asked for at once, a row at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One row of patches.

    Attributes:
        row: of patches.
        bands: the pixels of each band of the plan, of shape (depth, height, width); of an array band without a depth
            objects of shape (height, width), 1-d arrays or None outside of the raster. They are valid until the next
            strip is asked for.
        masked: pixels of which any band is masked, of shape (height, width); None where nobody asks.
    """

    row: int
    bands: list[npt.NDArray[Any]]
    masked: Mask | None


def iterate_strips(raster: Raster, plan: ExportPlan) -> Iterator[Strip]:
    """The rows of patches from top to bottom.

    Raises:
        FeatureError: a raster that does not read what it says it has.
    """
    reader = _StripReader(raster, plan)
    for row in range(plan.grid.num_rows):
        yield reader.read(row)


class _StripReader:
    """Holds the arrays of a strip, whose lower rows become the upper ones of the next."""

    def __init__(self, raster: Raster, plan: ExportPlan) -> None:
        self._raster = raster
        self._plan = plan
        grid, options = plan.grid, plan.options
        self._height, self._width = grid.tile.height, grid.covered.width + 2 * grid.margin.width
        self._left = grid.margin.width
        self._used = min(plan.size.width, grid.covered.width + grid.margin.width)
        """Columns of the raster that are in a patch or in a margin."""
        self._num_read = len(raster.bands)
        self._bands = [self._empty(band) for band in plan.bands]
        wanted = options.masked == "pixel" or options.mask_band is not None or options.masked_threshold != 1
        self._masked = np.ones((self._height, self._width), np.bool_) if wanted else None

    def read(self, row: int) -> Strip:
        """The strip of one row of patches; rows are asked for in order."""
        grid = self._plan.grid
        first = row * grid.patch.height - grid.margin.height
        kept = self._height - grid.patch.height if row else 0
        if kept:
            for whole in self._all_arrays():
                whole[..., :kept, :] = whole[..., grid.patch.height :, :]
        start, stop = max(0, first + kept), max(0, min(first + self._height, self._plan.size.height))
        self._clear(start - first if row == 0 else kept, stop - first, before=row == 0)
        if start < stop:
            bands = self._raster.bands
            row_bytes = sum(band.dtype.itemsize for band in bands) * max(1, self._plan.size.width)
            step = max(1, _CHUNK_BYTES // row_bytes)
            for at in range(start, stop, step):
                self._fill(at, min(at + step, stop), first)
        return Strip(row=row, bands=self._bands, masked=self._masked)

    def _fill(self, start: int, stop: int, first: int) -> None:
        """Read the pixel rows start..stop; ``first`` is the row of the raster in which the strip begins."""
        found = self._raster.read(start, stop)
        self._check(found, stop - start)
        rows, columns = slice(start - first, stop - first), slice(self._left, self._left + self._used)
        any_masked: Mask | None = None
        if self._masked is not None:
            any_masked = np.zeros((stop - start, self._used), np.bool_)
            for _, mask in found:
                if mask is not None:
                    any_masked |= mask[:, : self._used]
            self._masked[rows, columns] = any_masked
        by_pixel = any_masked if self._plan.options.masked == "pixel" else None
        for band, out, (values, mask) in zip(self._plan.bands, self._bands, found, strict=False):
            own = by_pixel if by_pixel is not None else None if mask is None else mask[:, : self._used]
            _place(band, out[..., rows, columns], values[:, : self._used], own)
        if self._num_read < len(self._bands):
            assert any_masked is not None  # noqa: S101 (there is a mask band)
            np.logical_not(any_masked, out=self._bands[-1][0, rows, columns].view(np.bool_))

    def _check(self, found: list[BandRows], rows: int) -> None:
        shape = (rows, self._plan.size.width)
        for band, (values, mask) in zip(self._raster.bands, found, strict=True):
            dtype = values.dtype.newbyteorder("=") if values.dtype.kind != "O" else band.dtype
            axes = 3 if band.is_array and values.dtype.kind != "O" else 2
            if values.shape[:2] != shape or values.ndim != axes or dtype != band.dtype:
                raise FeatureError(
                    f"the band {band.name!r} is of {band.dtype} and {shape[1]} pixels wide; read were {values.dtype} "
                    f"of shape {values.shape}",
                    hint="Raster.read gives arrays of (rows, width), of array bands (rows, width, depth).",
                    details={"feature": band.name},
                )
            if mask is not None and (mask.shape != shape or mask.dtype != np.bool_):
                raise FeatureError(
                    f"the mask of the band {band.name!r} is of {mask.dtype} and shape {mask.shape}, not of bool and "
                    f"shape {shape}",
                    hint="Raster.read gives a mask of (rows, width), True where masked.",
                    details={"feature": band.name},
                )

    def _empty(self, band: ExportedBand) -> npt.NDArray[Any]:
        if band.depth is None:
            return np.full((self._height, self._width), None, object)
        return np.full((band.depth, self._height, self._width), band.default, band.dtype)

    def _all_arrays(self) -> list[npt.NDArray[Any]]:
        return self._bands if self._masked is None else [*self._bands, self._masked]

    def _clear(self, start: int, stop: int, *, before: bool) -> None:
        """Make those rows of the strip that are not of the raster the default value: below, and ``before`` the first.

        Columns outside of the raster were made so at the start, and stay.
        """
        outside = [slice(max(stop, start), self._height)] + ([slice(0, start)] if before else [])
        for rows in outside:
            for band, out in zip(self._plan.bands, self._bands, strict=True):
                out[..., rows, :] = None if band.depth is None else band.default
            if self._masked is not None:
                self._masked[rows] = True


def _place(band: ExportedBand, out: npt.NDArray[Any], values: npt.NDArray[Any], mask: Mask | None) -> None:
    """Write rows of one band into its strip, the default value where it is masked."""
    if band.depth is None:
        out[...] = _native_arrays(band, values, mask)
    elif band.is_array:
        out[...] = stack_arrays(values, mask, depth=band.depth, dtype=band.dtype, default=band.default)
    else:
        out[0] = values
        if mask is not None:
            out[0][mask] = band.default


def _native_arrays(band: ExportedBand, values: npt.NDArray[Any], mask: Mask | None) -> npt.NDArray[Any]:
    """Arrays of their own length; of a masked pixel as many default values as it has elements."""
    out = np.empty(values.shape[:2], object)
    for place in np.ndindex(out.shape):
        found: Any = values[place]
        array = np.asarray([] if found is None else found, band.dtype)
        if mask is not None and mask[place]:
            array = np.full(array.shape, band.default, band.dtype)
        out[place] = array
    return out
