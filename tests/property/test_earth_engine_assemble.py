"""Laws of assembling: an export assembled again is exactly the covered area of the raster, in place."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import rasterio
from affine import Affine
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio.windows import Window, bounds, transform
from support.levels import examples

from registry.builders.earth_engine.assembling.assemble import assemble
from registry.builders.earth_engine.assembling.predictions import write_predictions
from registry.builders.earth_engine.exporting.image import export_image
from registry.builders.earth_engine.grid import Grid, Size, Transform
from registry.storage import open_store
from registry.tfrecord import RecordWriter, read_records

CRS = "EPSG:32610"
PLACES = {
    "north up": Transform(30.0, 0.0, 500_000.0, 0.0, -30.0, 4_100_000.0),
    "south up": Transform(30.0, 0.0, 500_000.0, 0.0, 30.0, 4_000_000.0),
    "turned": Transform(8.66, -5.0, 500_000.0, -5.0, -8.66, 4_100_000.0),
}
sides = st.integers(1, 9)
kernels = st.tuples(st.integers(0, 7), st.integers(0, 7))


@st.composite
def rasters(draw: Any) -> dict[str, npt.NDArray[Any]]:
    """Up to three bands of different dtypes, random values over the whole range of each."""
    height, width = draw(st.tuples(st.integers(1, 30), st.integers(1, 30)))
    dtypes = draw(st.lists(st.sampled_from(["uint8", "int16", "int32", "float32"]), min_size=1, max_size=3))
    made = np.random.default_rng(draw(st.integers(0, 2**32)))
    found: dict[str, npt.NDArray[Any]] = {}
    for number, dtype in enumerate(dtypes):
        if dtype == "float32":
            band = made.normal(size=(height, width)).astype(dtype)
            band[made.random((height, width)) < 0.1] = np.nan
        else:
            info = np.iinfo(dtype)
            band = made.integers(info.min, info.max, (height, width), dtype=dtype, endpoint=True)
        found[f"band{number}"] = band
    return found


@settings(max_examples=examples(60), deadline=None)
@given(rasters(), sides, sides, kernels, st.sampled_from([1, 500, 2**30]), st.booleans(), st.data())
def test_an_exported_image_comes_back_exactly(
    raster: dict[str, npt.NDArray[Any]],
    width: int,
    height: int,
    kernel: tuple[int, int],
    limit: int,
    compressed: bool,
    data: Any,
) -> None:
    rows, columns = next(iter(raster.values())).shape
    edge = data.draw(st.sampled_from(["drop", "pad"]))
    if edge == "drop":
        width, height = min(width, columns), min(height, rows)
    masked = data.draw(st.sampled_from(["none", "some"]))
    mask = None if masked == "none" else np.random.default_rng(rows).random((rows, columns)) < 0.3
    place = PLACES[data.draw(st.sampled_from(sorted(PLACES)))]
    folder = Path(tempfile.mkdtemp(prefix="laws-"))
    try:
        export_image(
            raster,
            folder,
            "area",
            transform=place,
            crs=CRS,
            mask=mask,
            patch_dimensions=[width, height],
            kernel_size=list(kernel),
            encoding="native",
            max_file_size=limit,
            compressed=compressed,
            edge=edge,
        )
        size = None if edge == "drop" else (columns, rows)
        output = folder / "out.tif"
        assembly = assemble(folder, output=output, kernel_size=list(kernel), block=16, size=size)
        covered = {
            name: np.where(mask, 0, band).astype(band.dtype) if mask is not None else band
            for name, band in raster.items()
        }
        if edge == "drop":
            whole = slice(rows // height * height), slice(columns // width * width)
            covered = {name: band[whole] for name, band in covered.items()}
        found = assembly.to_arrays()
        for name, band in covered.items():
            assert np.array_equal(found[name], band, equal_nan=band.dtype.kind == "f"), name
        with rasterio.open(output) as file:
            assert file.descriptions == tuple(sorted(raster))
            assert file.transform == Affine(*place)
            assert file.crs == rasterio.CRS.from_string(CRS)
            for number, name in enumerate(sorted(raster), 1):
                band = file.read(number)
                assert np.array_equal(band, covered[name], equal_nan=band.dtype.kind == "f")
    finally:
        shutil.rmtree(folder)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 5),
    sides,
    sides,
    kernels,
    st.sampled_from(["uint8", "int16", "float32"]),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_predictions_come_back_with_any_split_into_files(
    num_rows: int, per_row: int, width: int, height: int, kernel: tuple[int, int], dtype: str, padded: bool, chance: Any
) -> None:
    grid = Grid.over(Size(per_row * width, num_rows * height), Size(width, height), kernel=Size(*kernel))
    tile = grid.tile if padded else grid.patch
    made = np.random.default_rng(chance.randrange(2**32))
    patches = made.integers(0, 200, (grid.num_patches, 2, tile.height, tile.width)).astype(dtype)
    folder = Path(tempfile.mkdtemp(prefix="laws-"))
    try:
        mixer = {
            "projection": {"crs": CRS, "affine": {"doubleMatrix": list(PLACES["north up"])}},
            "patchDimensions": list(grid.patch),
            "patchesPerRow": per_row,
            "totalPatches": grid.num_patches,
        }
        cuts = sorted(chance.choices(range(grid.num_patches + 1), k=chance.randrange(3)))
        write_predictions(np.array_split(patches, cuts), mixer, folder, "p", bands=["x", "y"], kernel_size=list(kernel))
        records = [record for name in _shards(folder) for record in read_records(open_store(folder), name)]
        files = _cut_anew(records, folder, chance)
        shuffled = assemble(folder, kernel_size=list(kernel), prefix="p").to_array()
        listed = assemble(files, mixer, kernel_size=list(kernel)).to_array()
        arrays = assemble(iter(patches), mixer, bands=["x", "y"], kernel_size=list(kernel)).to_array()
        left, top = grid.margin if padded else (0, 0)
        for index, patch in enumerate(patches):
            column, row, *_ = grid.core(index)
            core = patch[:, top : top + height, left : left + width]
            for found in (shuffled, listed, arrays):
                assert (found[:, row : row + height, column : column + width] == core).all()
        assert shuffled.shape == listed.shape == arrays.shape == (2, grid.covered.height, grid.covered.width)
    finally:
        shutil.rmtree(folder)


def _shards(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.tfrecord*"))


def _cut_anew(records: list[bytes], folder: Path, chance: random.Random) -> list[Path]:
    """The records in files of other sizes, some of them empty, with meaningless names."""
    cuts = sorted(chance.choices(range(len(records) + 1), k=3))
    names = [folder / f"{chance.randrange(10**9)}-{number}.bin" for number in range(4)]
    for path, start, stop in zip(names, [0, *cuts], [*cuts, len(records)], strict=True):
        with path.open("wb") as file:
            writer = RecordWriter(file)
            for record in records[start:stop]:
                writer.write(record)
    return names


@pytest.mark.parametrize("place", PLACES)
@given(st.integers(1, 40), st.integers(1, 40), sides, sides, kernels)
def test_every_patch_is_at_the_position_that_rasterio_computes(
    place: str, width: int, height: int, patch_width: int, patch_height: int, kernel: tuple[int, int]
) -> None:
    at = PLACES[place]
    patch = Size(min(width, patch_width), min(height, patch_height))
    grid = Grid.over(Size(width, height), patch, kernel=Size(*kernel))
    for index in range(grid.num_patches):
        for margin in (False, True):
            window = Window(*(grid.window(index) if margin else grid.core(index)))
            assert tuple(grid.transform(index, at, margin=margin)) == tuple(transform(window, Affine(*at)))[:6]
            if place != "turned":  # for it rasterio returns another rectangle, which two of its corners span
                assert tuple(grid.bounds(index, at, margin=margin)) == bounds(window, Affine(*at))
