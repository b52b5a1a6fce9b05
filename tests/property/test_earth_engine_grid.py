"""Laws of the grid: patches tile the covered pixels, and have the map positions that rasterio computes."""

from __future__ import annotations

import numpy as np
import rasterio.windows
from affine import Affine
from hypothesis import given
from hypothesis import strategies as st

from registry.builders.earth_engine.grid import Grid, Size, Transform, infer_tile
from registry.builders.earth_engine.mixer import Mixer

SIDES = st.integers(1, 12)
KERNELS = st.builds(Size, st.integers(0, 5), st.integers(0, 5))
SCALES = st.floats(1e-4, 1e4).flatmap(lambda scale: st.sampled_from([scale, -scale]))
OFFSETS = st.floats(-1e7, 1e7)
UPRIGHT = st.builds(Transform, SCALES, st.just(0.0), OFFSETS, st.just(0.0), SCALES, OFFSETS)
TURNED = st.builds(Transform, SCALES, SCALES, OFFSETS, SCALES, SCALES, OFFSETS).filter(
    lambda one: one.a * one.e - one.b * one.d != 0
)


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    patch = Size(draw(SIDES), draw(SIDES))
    raster = Size(
        patch.width * draw(SIDES) + draw(st.integers(0, 3)), patch.height * draw(SIDES) + draw(st.integers(0, 3))
    )
    return Grid.over(raster, patch, kernel=draw(KERNELS))


@given(grids())
def test_patches_cover_each_pixel_once_row_by_row(grid: Grid) -> None:
    width, height = grid.covered
    seen = np.zeros((height, width), int)
    for index in range(grid.num_patches):
        column, row, patch_width, patch_height = grid.core(index)
        seen[row : row + patch_height, column : column + patch_width] += 1
        assert grid.place(index) == (row // grid.patch.height, column // grid.patch.width)
    assert (seen == 1).all()
    assert [grid.place(index) for index in range(grid.num_patches)] == sorted(map(grid.place, range(grid.num_patches)))


@given(grids(), UPRIGHT, st.data())
def test_transform_and_bounds_equal_those_of_rasterio(grid: Grid, transform: Transform, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, grid.num_patches - 1))
    for margin, (column, row, width, height) in ((False, grid.core(index)), (True, grid.window(index))):
        window = rasterio.windows.Window(column, row, width, height)
        assert Affine(*grid.transform(index, transform, margin=margin)) == rasterio.windows.transform(
            window, Affine(*transform)
        )
        assert grid.bounds(index, transform, margin=margin) == rasterio.windows.bounds(window, Affine(*transform))


@given(grids(), TURNED, st.data())
def test_of_a_turned_raster_too(grid: Grid, transform: Transform, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, grid.num_patches - 1))
    column, row, width, height = grid.core(index)
    window = rasterio.windows.Window(column, row, width, height)
    assert Affine(*grid.transform(index, transform)) == rasterio.windows.transform(window, Affine(*transform))
    left, bottom, right, top = grid.bounds(index, transform)
    xs, ys = zip(*[transform.apply(column + x, row + y) for x in (0, width) for y in (0, height)], strict=True)
    assert (left, bottom, right, top) == (min(xs), min(ys), max(xs), max(ys))


@given(grids(), UPRIGHT, st.text(st.characters(codec="utf-8"), min_size=1))
def test_a_mixer_comes_back(grid: Grid, transform: Transform, crs: str) -> None:
    mixer = Mixer.of(grid, crs, transform)
    assert Mixer.from_json(mixer.to_json()) == mixer
    assert mixer.grid().covered == grid.covered


@given(st.builds(Size, SIDES, SIDES), KERNELS)
def test_the_margin_is_known_from_the_kernel_and_of_squares_without(patch: Size, kernel: Size) -> None:
    grid = Grid(patch=patch, patches_per_row=1, num_rows=1).over(patch, patch, kernel=kernel)
    tile = infer_tile(grid.tile.width * grid.tile.height, patch, kernel)
    if grid.tile.width * grid.tile.height != patch.width * patch.height:
        assert (tile.size, tile.margin, tile.is_uneven) == (grid.tile, grid.margin, False)
    values = np.arange(tile.num_pixels).reshape(tile.size.height, tile.size.width)
    assert tile.crop(values).shape == (patch.height, patch.width)
    if patch.width == patch.height and kernel.width == kernel.height:
        assert infer_tile(tile.num_pixels, patch) == tile
