"""How is a raster handed to xarray? A DataArray (band, y, x), with the coordinates of the pixels' centres."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from registry.errors import MissingExtraError

if TYPE_CHECKING:
    from registry.builders.earth_engine.assembling.assembly import Assembly


def to_xarray(predictions: Any, mixer: Any = None, **options: Any) -> Any:
    """The raster that predictions make, as a DataArray; all of it in memory.

    Args:
        predictions: as of ``assemble``.
        mixer: as of ``assemble``.
        **options: its others.

    Returns:
        A DataArray of dims (band, y, x). ``band`` has the names. ``x`` and ``y`` are the centres of the pixels; where
        the raster is turned or sheared they depend on both, and are coordinates ``xc`` and ``yc`` of dims (y, x), as
        rioxarray names them. ``attrs`` has ``crs`` (text), ``transform`` (six numbers) and, if there is one,
        ``nodata``. Where rioxarray is installed, ``.rio.crs`` and ``.rio.transform()`` say the same.

    Raises:
        MissingExtraError: xarray is not installed.
        Otherwise as ``assemble`` and ``Assembly.rows``.
    """
    from registry.builders.earth_engine.assembling.assemble import assemble

    return make_data_array(assemble(predictions, mixer, **options))


def make_data_array(assembly: Assembly, advance: Callable[[int], None] | None = None) -> Any:
    """The DataArray of ``to_xarray``."""
    try:
        import xarray
    except ImportError as error:
        raise MissingExtraError(package="xarray", extra="xarray", needed_for="a DataArray") from error
    transform, (width, height) = assembly.transform, assembly.size
    columns, rows = np.arange(width) + 0.5, np.arange(height) + 0.5
    coords: dict[str, Any] = {"band": [band.name for band in assembly.bands]}
    if transform.b == 0 and transform.d == 0:
        coords["x"] = transform.c + transform.a * columns
        coords["y"] = transform.f + transform.e * rows
    else:
        coords["xc"] = ("y", "x"), transform.c + transform.a * columns[None] + transform.b * rows[:, None]
        coords["yc"] = ("y", "x"), transform.f + transform.d * columns[None] + transform.e * rows[:, None]
    attrs: dict[str, Any] = {"crs": str(assembly.crs), "transform": tuple(transform)}
    if assembly.nodata is not None:
        attrs["nodata"] = attrs["_FillValue"] = assembly.nodata
    array = xarray.DataArray(assembly.to_array(advance), dims=("band", "y", "x"), coords=coords, attrs=attrs)
    try:
        import rioxarray  # noqa: F401 - it adds `.rio` to what xarray makes
    except ImportError:
        return array
    from registry.builders.earth_engine.assembling.geotiff import import_rasterio, read_crs

    rasterio = import_rasterio("a CRS for rioxarray")
    located = array.rio.write_crs(read_crs(assembly.crs)).rio.write_transform(rasterio.Affine(*transform))
    located.attrs = attrs  # of which rioxarray takes some away
    return located
