"""Assembles a raster from patches, one row of patches at a time.

    predictions -> PatchValues -> Assembly.rows() -> GeoTIFF, numpy, xarray

Patch i of an export is in row i // patchesPerRow of the grid, whichever file contains it. Margins are cut off. One row
of patches is in memory at a time, unless the whole raster is requested as an array.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.assembling.band_layout import (
    BandLayout,
    check_nodata,
    common_dtype,
    fit_exactly,
    measure_bands,
)
from registry.builders.earth_engine.assembling.patches import (
    ArrayPatches,
    PatchValues,
    RecordPatches,
    listed,
    other_bands,
)
from registry.builders.earth_engine.grid import Bounds, Grid, Size, Transform
from registry.builders.earth_engine.mixer import Mixer
from registry.builders.earth_engine.stored.kept_split import FoundMixer
from registry.errors import RegistryWarning, ShardMismatchError, UsageError, require_extra
from registry.splits import counted

if TYPE_CHECKING:
    from registry.builders.earth_engine.assembling.geotiff import GeoTiffArguments

_MOST_INFLATION: Final = 1032
"""The maximum compression ratio of gzip."""


class RasterRows(NamedTuple):
    """One row of patches: pixel rows from ``start`` on, each band of shape (patch height, width) and its own dtype."""

    start: int
    bands: dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RasterBand:
    """A band of the assembled raster."""

    name: str
    dtype: np.dtype[Any]


class Assembly:
    """A raster that is assembled from patches. Its bands are known from the first patch; the rest is read on demand.

    ``rows()`` and ``write_geotiff`` keep one row of patches in memory; ``to_array``, ``to_arrays`` and ``to_xarray``
    the whole raster. An Assembly of files can be read repeatedly, one of an iterator only once.

    Attributes:
        mixer: the places of the patches.
        bands: the bands in order; an array band of depth 2 becomes the bands ``name_0`` and ``name_1``.
        nodata: the pixel value that means no data, or None.
        crs: the CRS of the mixer, or the one that replaces it.
        size: width and height of the raster in pixels.
        is_sorted: whether the bands are sorted by name because their order is unknown.
    """

    def __init__(
        self,
        patches: RecordPatches | ArrayPatches,
        mixer: FoundMixer,
        *,
        bands: Sequence[str] | None,
        kernel: Size | None,
        depths: Mapping[str, int],
        dtypes: Mapping[str, Any] | Any,
        names: Sequence[str] | None,
        nodata: float | None,
        crs: Any,
        size: Size | None,
    ) -> None:
        self.mixer = mixer.mixer
        self.size = self.grid.covered if size is None else _check_raster_size(size, self.grid)
        self._patches = patches
        self._is_read = False
        _check_size(patches, self.mixer)
        self._waiting: Iterator[PatchValues] = iter(patches)
        first = next(self._waiting, None)
        if first is None:
            raise self._wrong_count(0)
        self._waiting = chain([first], self._waiting)
        self._first_bands = list(first.bands)
        self.is_sorted = bands is None and not mixer.bands and first.place.file is not None
        order = _band_order(first, bands, mixer)
        depths = {**{name: depth for name, depth in mixer.depths.items() if name in first.bands}, **depths}
        self._layouts = measure_bands(first, order, self.mixer.patch, kernel=kernel, depths=depths, dtypes=dtypes)
        self.bands = _name_bands(self._layouts, names, mixer.channels)
        self.crs: Any = self.mixer.crs if crs is None else crs
        self.nodata = nodata
        if nodata is not None:
            check_nodata(nodata, self.dtype)
        self._warn()

    @property
    def grid(self) -> Grid:
        """The grid of patches."""
        return self.mixer.grid()

    @property
    def transform(self) -> Transform:
        """The transform from pixels to the map."""
        return self.mixer.transform

    @property
    def bounds(self) -> Bounds:
        """The bounds of the raster, in units of its CRS."""
        return self.transform.bounds(0, 0, *self.size)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The common dtype of all bands, which a GeoTIFF requires: float32 for uint8 and float32."""
        return common_dtype([band.dtype for band in self.bands])

    def rows(self, advance: Callable[[int], None] | None = None) -> Iterator[RasterRows]:
        """Yield the raster one row of patches at a time; ``advance`` is called with the number of patches in each.

        Raises:
            ShardMismatchError: the number of patches differs from the mixer, or a patch has another size.
            FeatureError: a value does not fit the dtype of its band.
            CorruptRecordError, CorruptExampleError: a record is damaged; the error names file and record.
            UsageError: the patches came from an iterator that was already read.
        """
        patches = self._start()
        grid = self.grid
        for row in range(grid.num_rows):
            arrays = {layout.name: _new_row(layout, grid) for layout in self._layouts}
            for column in range(grid.patches_per_row):
                patch = next(patches, None)
                if patch is None:
                    raise self._wrong_count(row * grid.patches_per_row + column)
                if len(patch.bands) != len(self._first_bands):
                    raise other_bands(patch, self._first_bands)
                start = column * grid.patch.width
                for layout in self._layouts:
                    core = layout.core(patch)
                    arrays[layout.name][:, :, start : start + grid.patch.width] = core
            if row == grid.num_rows - 1 and next(patches, None) is not None:
                raise self._wrong_count(grid.num_patches + 1, others=patches)
            top = row * grid.patch.height
            height = min(grid.patch.height, self.size.height - top)
            planes = [plane[:height, : self.size.width] for layout in self._layouts for plane in arrays[layout.name]]
            if advance is not None:
                advance(grid.patches_per_row)
            yield RasterRows(top, {band.name: plane for band, plane in zip(self.bands, planes, strict=True)})

    def to_arrays(self, advance: Callable[[int], None] | None = None) -> dict[str, npt.NDArray[Any]]:
        """Every band as an array of shape (height, width) with its own dtype. Raises the errors of ``rows``."""
        width, height = self.size
        result = {band.name: _empty((height, width), band.dtype) for band in self.bands}
        for start, bands in self.rows(advance):
            for name, values in bands.items():
                result[name][start : start + len(values)] = values
        return result

    def to_array(self, advance: Callable[[int], None] | None = None) -> npt.NDArray[Any]:
        """All bands as one array of shape (bands, height, width) and ``dtype``. Raises the errors of ``rows``."""
        width, height = self.size
        result = _empty((len(self.bands), height, width), self.dtype)
        for start, bands in self.rows(advance):
            for channel, (name, values) in enumerate(bands.items()):
                result[channel, start : start + len(values)] = fit_exactly(values, self.dtype, name)
        return result

    def to_xarray(self, advance: Callable[[int], None] | None = None) -> Any:
        """Return a DataArray, which is in memory as a whole.

        Returns:
            A DataArray with dims (band, y, x). ``band`` has the names, ``x`` and ``y`` the centres of pixels in units
            of the CRS. For a rotated or sheared raster, these are coordinates ``xc`` and ``yc`` with dims (y, x), as
            in rioxarray. ``attrs`` contains ``crs`` (text), ``transform`` (six numbers) and ``nodata`` if it is set.
            If rioxarray is installed, ``.rio.crs`` and ``.rio.transform()`` agree with them.

        Raises:
            MissingExtraError: xarray is not installed.
            The errors of ``to_array``.
        """
        with require_extra("xarray", package="xarray", needed_for="a DataArray"):
            import xarray
        transform, (width, height) = self.transform, self.size
        columns, rows = np.arange(width) + 0.5, np.arange(height) + 0.5
        coords: dict[str, Any] = {"band": [band.name for band in self.bands]}
        if transform.b == 0 and transform.d == 0:
            coords["x"] = transform.c + transform.a * columns
            coords["y"] = transform.f + transform.e * rows
        else:
            coords["xc"] = ("y", "x"), transform.c + transform.a * columns[None] + transform.b * rows[:, None]
            coords["yc"] = ("y", "x"), transform.f + transform.d * columns[None] + transform.e * rows[:, None]
        attrs: dict[str, Any] = {"crs": str(self.crs), "transform": tuple(transform)}
        if self.nodata is not None:
            attrs["nodata"] = attrs["_FillValue"] = self.nodata
        array = xarray.DataArray(self.to_array(advance), dims=("band", "y", "x"), coords=coords, attrs=attrs)
        try:
            import rioxarray  # noqa: F401 - it adds `.rio` to what xarray makes
        except ImportError:
            return array
        from registry.builders.earth_engine.assembling.geotiff import import_rasterio, read_crs

        rasterio = import_rasterio("a CRS for rioxarray")
        located = array.rio.write_crs(read_crs(self.crs)).rio.write_transform(rasterio.Affine(*transform))
        located.attrs = attrs  # rioxarray removes some of them
        return located

    def write_geotiff(
        self,
        path: str | PathLike[str],
        *,
        advance: Callable[[int], None] | None = None,
        **geotiff: Unpack[GeoTiffArguments],
    ) -> str:
        """Write the raster to a GeoTIFF and return its path. The options are described at ``assemble``."""
        from registry.builders.earth_engine.assembling.geotiff import create_geotiff

        with create_geotiff(
            path,
            size=self.size,
            names=[band.name for band in self.bands],
            dtype=self.dtype,
            transform=self.transform,
            crs=self.crs,
            nodata=self.nodata,
            **geotiff,
        ) as file:
            for _, bands in self.rows(advance):
                file.write([fit_exactly(values, self.dtype, name) for name, values in bands.items()])
        return file.path

    def _start(self) -> Iterator[PatchValues]:
        """An iterator over all patches, from the first."""
        if not self._is_read:
            self._is_read = True
            return self._waiting
        items = self._patches.items if isinstance(self._patches, ArrayPatches) else ()
        if isinstance(items, Iterator):
            raise UsageError(
                "the patches came from an iterator, which was already read",
                hint="Call assemble again with new patches, or write them to files: write_predictions(...).",
            )
        return iter(self._patches)

    def _wrong_count(self, actual: int, *, others: Iterator[PatchValues] | None = None) -> ShardMismatchError:
        """The error if the number of patches, ``actual`` plus ``others``, differs from the mixer."""
        expected, per_row = self.mixer.total_patches, self.mixer.patches_per_row
        details: dict[str, Any] = {"expected": expected, "found": actual}
        text, where = counted(actual, "patch"), ""
        if isinstance(self._patches, RecordPatches):
            actual += sum(1 for _ in others or ())
            counts = self._patches.counts
            details |= {"found": actual, "files": [[file, count] for file, count in counts.items()]}
            text, where = counted(actual, "patch"), f" in {counted(len(counts), 'file')}"
        elif actual > expected:
            text = "more"  # an iterator may have no end
        message = (
            f"expected {counted(expected, 'patch')} as in the mixer, {counted(expected // per_row, 'row')} of "
            f"{per_row}; found {text}{where}"
        )
        if actual < expected:
            rows, rest = divmod(actual, per_row)
            message += f": {counted(rows, 'whole row')} and {counted(rest, 'patch')} more"
        return ShardMismatchError(
            message,
            hint="Check that all files are complete and that the mixer belongs to this export. Predictions have one "
            "record for each record of the export, in its order."
            if isinstance(self._patches, RecordPatches)
            else "Give one patch for each record of the export, in its order, with the mixer of that export.",
            details=details,
        )

    def _warn(self) -> None:
        uneven = [layout for layout in self._layouts if layout.tile.is_uneven]
        if uneven:
            width, height = uneven[0].tile.size
            warnings.warn(
                f"the tiles of {uneven[0].name!r} are {width} x {height}, one pixel more than with equal margins on "
                "both sides; it is assumed to be on the right and at the bottom",
                RegistryWarning,
                stacklevel=4,
            )


def _band_order(first: PatchValues, bands: Sequence[str] | None, mixer: FoundMixer) -> list[str]:
    """The order of bands: as requested, as in the imported version, as in the arrays, else sorted."""
    if bands is not None:
        return list(bands)
    if not first.bands:
        raise ShardMismatchError(
            f"{first.place}: the record has no bands",
            hint="Check the file: the Example of a patch has a feature for each band.",
            details=first.place.details,
        )
    if mixer.bands and set(mixer.bands) == set(first.bands):
        return list(mixer.bands)
    return list(first.bands) if first.place.file is None else sorted(first.bands)


def _name_bands(
    layouts: Sequence[BandLayout], names: Sequence[str] | None, channels: Sequence[str]
) -> tuple[RasterBand, ...]:
    """The bands of the raster: one for each element of an array band."""
    own = [
        (f"{layout.name}_{number}" if layout.is_array else layout.name, layout.dtype)
        for layout in layouts
        for number in range(layout.depth)
    ]
    if names is None and len(layouts) == 1 and len(channels) == len(own):
        names = channels  # a collapsed export's
    if names is not None and len(names) != len(own):
        raise UsageError(
            f"names: expected {counted(len(own), 'name')}, found {counted(len(names), 'name')}; the bands are "
            f"{listed([name for name, _ in own])}",
            hint="Name each band of the raster; an array band needs a name for each element.",
            details={"option": "names", "expected": len(own), "found": len(names)},
        )
    final = [name for name, _ in own] if names is None else list(names)
    if len(set(final)) != len(final):
        raise UsageError(
            f"two bands of the raster have the same name: {', '.join(map(repr, final[:10]))}",
            hint="Name each band: names=[...]; --name NAME, once for each.",
            details={"option": "names"},
        )
    return tuple(RasterBand(name=name, dtype=dtype) for name, (_, dtype) in zip(final, own, strict=True))


def _check_raster_size(size: Size, grid: Grid) -> Size:
    """Return the size of a padded raster. Raises UsageError if it does not match the grid."""
    for own, whole, patch in zip(size, grid.covered, grid.patch, strict=True):
        if not whole - patch < own <= whole:
            raise UsageError(
                f"a raster of {size.width} x {size.height} pixels does not fill {grid.patches_per_row} x "
                f"{grid.num_rows} patches of {grid.patch.width} x {grid.patch.height}",
                hint="Give the width and height of the raster that was exported with edge='pad': size=[width, height]; "
                "--size WIDTH,HEIGHT.",
                details={"option": "size", "size": list(size), "covered": list(grid.covered)},
            )
    return size


def _check_size(patches: RecordPatches | ArrayPatches, mixer: Mixer) -> None:
    """Refuse a mixer with more pixels than the files can contain, before memory is allocated for it."""
    if not isinstance(patches, RecordPatches):
        return
    num_bytes = patches.num_stored_bytes()
    width, height = mixer.patch
    if width * height * mixer.total_patches > num_bytes * _MOST_INFLATION:
        raise ShardMismatchError(
            f"expected {counted(mixer.total_patches, 'patch')} of {width} x {height} pixels as in the mixer, more "
            f"than {counted(len(patches.files), 'file')} of {counted(num_bytes, 'byte')} can contain",
            hint="Check that all files are complete and that the mixer belongs to this export.",
            details={"expected": mixer.total_patches, "num_bytes": num_bytes},
        )


def _new_row(layout: BandLayout, grid: Grid) -> npt.NDArray[Any]:
    return _empty((layout.depth, grid.patch.height, grid.covered.width), layout.dtype)


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Allocate an array. Raises UsageError if it does not fit into memory."""
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError) as error:
        raise UsageError(
            f"{' x '.join(map(str, shape))} values of {dtype} do not fit into memory",
            hint="Check that the mixer belongs to these patches, or write a GeoTIFF, which needs less memory: "
            "output='out.tif'; -o out.tif.",
            details={"shape": list(shape), "dtype": str(dtype)},
        ) from error
