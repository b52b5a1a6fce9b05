"""A raster in xarray: coordinates are the centres of pixels, and rioxarray reads its georeference."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from registry.builders.earth_engine.assembling.assemble import assemble
from registry.errors import MissingExtraError

RASTER = np.arange(24, dtype=np.float32).reshape(4, 6)
PATCHES = [RASTER[row : row + 2, column : column + 2] for row in (0, 2) for column in (0, 2, 4)]


def mixer_of(matrix: list[float]) -> dict[str, Any]:
    return {
        "projection": {"crs": "EPSG:32610", "affine": {"doubleMatrix": matrix}},
        "patchDimensions": [2, 2],
        "patchesPerRow": 3,
        "totalPatches": 6,
    }


@pytest.mark.parametrize("step", [-30.0, 30.0], ids=["north-up", "south-up"])
def test_coordinates_are_the_centres_of_pixels(step: float) -> None:
    array = assemble(PATCHES, mixer_of([30.0, 0, 500000.0, 0, step, 4100000.0]), bands=["class"], nodata=0).to_xarray()
    assert array.dims == ("band", "y", "x")
    assert array.dtype == np.float32
    assert array.band.values.tolist() == ["class"]
    assert array.x.values.tolist() == [500015.0 + 30 * column for column in range(6)]
    assert array.y.values.tolist() == [4100000.0 + step * (row + 0.5) for row in range(4)]
    assert array.sel(band="class").values.tolist() == RASTER.tolist()
    assert array.attrs["crs"] == "EPSG:32610"
    assert array.attrs["transform"] == (30.0, 0.0, 500000.0, 0.0, step, 4100000.0)
    assert array.attrs["nodata"] == 0
    assert array.rio.crs.to_epsg() == 32610
    assert tuple(array.rio.transform())[:6] == array.attrs["transform"]
    assert array.rio.nodata == 0


def test_a_turned_raster_has_coordinates_of_two_dimensions() -> None:
    matrix = [8.66, -5.0, 500000.0, -5.0, -8.66, 4100000.0]
    assembly = assemble(PATCHES, mixer_of(matrix))
    array = assembly.to_xarray()
    assert "x" not in array.coords
    assert "y" not in array.coords
    assert array.xc.dims == array.yc.dims == ("y", "x")
    for row in range(4):
        for column in range(6):
            found = float(array.xc[row, column]), float(array.yc[row, column])
            assert found == pytest.approx(assembly.transform.apply(column + 0.5, row + 0.5))
    assert tuple(array.rio.transform(recalc=False))[:6] == tuple(matrix)


def test_without_rioxarray_the_attributes_hold_the_georeference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rioxarray", None)
    monkeypatch.setitem(sys.modules, "rasterio", None)
    array = assemble(PATCHES, mixer_of([30.0, 0, 500000.0, 0, -30.0, 4100000.0])).to_xarray()
    assert array.attrs == {"crs": "EPSG:32610", "transform": (30.0, 0.0, 500000.0, 0.0, -30.0, 4100000.0)}
    assert "spatial_ref" not in array.coords


def test_without_xarray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(MissingExtraError) as caught:
        assemble(PATCHES, mixer_of([30.0, 0, 500000.0, 0, -30.0, 4100000.0])).to_xarray()
    assert caught.value.message == "a DataArray needs the package 'xarray', which is not installed"
    assert caught.value.hint == "Install it with: pip install 'shardbook[xarray]'"
