"""The whole loop: a raster is exported, imported, read, predicted, and comes back to its place on the map."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import rasterio

import registry
from registry.builders.earth_engine.assembling.assemble import assemble
from registry.builders.earth_engine.assembling.predictions import write_predictions
from registry.builders.earth_engine.exporting.image import export_image
from registry.builders.earth_engine.patch_reader import Patches
from registry.builders.earth_engine.stored.importing import import_export
from registry.errors import UsageError

PLACE = rasterio.Affine(30.0, 0.0, 500_000.0, 0.0, -30.0, 4_100_000.0)
HEIGHT, WIDTH, PATCH, KERNEL = 50, 71, 16, 8


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A GeoTIFF of three bands."""
    path = tmp_path / "source.tif"
    profile: dict[str, Any] = {"driver": "GTiff", "width": WIDTH, "height": HEIGHT, "count": 3, "dtype": "uint8"}
    with rasterio.open(path, "w", crs="EPSG:32610", transform=PLACE, **profile) as file:
        file.write(np.random.default_rng(0).integers(0, 255, (3, HEIGHT, WIDTH), dtype=np.uint8))
        for number, name in enumerate(("red", "green", "blue"), 1):
            file.set_band_description(number, name)
    return path


def read(path: Path) -> npt.NDArray[Any]:
    with rasterio.open(path) as file:
        found: npt.NDArray[Any] = file.read()
    return found


def test_a_geotiff_goes_through_a_model_and_comes_back(catalog: registry.Catalog, source: Path, tmp_path: Path) -> None:
    exports = tmp_path / "exports"
    options = {"patch_dimensions": PATCH, "kernel_size": KERNEL, "encoding": "native", "max_file_size": 5000}
    exported = export_image(source, exports, "area", **options)
    assert len(exported.filenames) > 2
    import_export(catalog, exports, name="area")
    dataset = catalog.dataset("area")
    batches = Patches(dataset, margin=True).batches(5)
    model = (batch.values.astype(np.float32).mean(axis=1, keepdims=True) for batch in batches)
    written = write_predictions(model, dataset, tmp_path / "out", "mean", bands=["mean"])
    assert written.num_records == exported.num_patches == 12
    output = tmp_path / "mean.tif"
    assemble(tmp_path / "out", output=output, nodata=-1)
    pixels = read(source)[:, : HEIGHT // PATCH * PATCH, : WIDTH // PATCH * PATCH]
    with rasterio.open(output) as file:
        assert (file.read(1) == pixels.astype(np.float32).mean(axis=0)).all()
        assert (file.transform, file.crs.to_epsg(), file.descriptions, file.nodata) == (PLACE, 32610, ("mean",), -1)


def test_a_version_tells_the_order_of_the_bands(catalog: registry.Catalog, source: Path, tmp_path: Path) -> None:
    exports = tmp_path / "exports"
    export_image(source, exports, "area", patch_dimensions=[PATCH, 10], kernel_size=[KERNEL, 2], encoding="native")
    import_export(catalog, exports, name="area", bands=["red", "green", "blue"], kernel_size=[KERNEL, 2])
    dataset = catalog.dataset("area")
    for mixer in (dataset, dataset.metadata, dataset.info.metadata):
        assembly = assemble(exports, mixer)  # type: ignore[arg-type] - read-only views of a mapping are mappings
        assert [band.name for band in assembly.bands] == ["red", "green", "blue"]
        assert (assembly.to_array() == read(source)[:, :50, : WIDTH // PATCH * PATCH]).all()


def test_a_collapsed_export_comes_back_with_the_band_names_of_the_version(
    catalog: registry.Catalog, source: Path, tmp_path: Path
) -> None:
    exports = tmp_path / "exports"
    options = {"patch_dimensions": PATCH, "encoding": "native", "collapse_bands": True}
    export_image(source, exports, "area", **options)
    import_export(catalog, exports, name="area", bands=["red", "green", "blue"])
    assembly = assemble(exports, catalog.dataset("area"))
    assert [band.name for band in assembly.bands] == ["red", "green", "blue"]
    assert (assembly.to_array() == read(source)[:, :48, :64]).all()


def test_predictions_of_two_splits_go_back_to_their_own_places(
    catalog: registry.Catalog, source: Path, tmp_path: Path
) -> None:
    exports = tmp_path / "exports"
    export_image(source, exports, "near", patch_dimensions=PATCH)
    far = dict(zip(("red", "green", "blue"), read(source)[:, :35, :40], strict=True))
    export_image(far, exports, "far", patch_dimensions=PATCH, transform=PLACE, crs="EPSG:32611")
    bands = ["red", "green", "blue"]
    import_export(catalog, exports, prefix={"train": "near", "test": "far"}, name="area", bands=bands)
    dataset = catalog.dataset("area")
    for split, size, crs in (("train", (64, 48), "EPSG:32610"), ("test", (32, 32), "EPSG:32611")):
        assembly = assemble((patch.values for patch in Patches(dataset, split)), dataset, split=split)
        assert (assembly.size, assembly.crs) == (size, crs)
        assert (assembly.to_array() == read(source)[:, : size[1], : size[0]]).all()
    with pytest.raises(UsageError) as caught:
        assemble([], dataset)
    assert caught.value.message == "the version has the mixers of 2 splits: test, train"


def test_patches_go_back_by_their_names_and_only_in_order(
    catalog: registry.Catalog, source: Path, tmp_path: Path
) -> None:
    exports = tmp_path / "exports"
    export_image(source, exports, "area", patch_dimensions=PATCH, kernel_size=KERNEL, max_file_size=8000)
    import_export(catalog, exports, name="area", bands=["red", "green", "blue"])
    dataset = catalog.dataset("area")
    for layout in ("CHW", "bands"):
        patches = Patches(dataset, margin=True, layout=layout)
        for items in (patches, patches.batches(5)):
            found = assemble(items, dataset, bands=["red", "green", "blue"]).to_array()
            assert (found == read(source)[:, :48, :64]).all()
    assert [band.name for band in assemble(Patches(dataset), dataset).bands] == ["red", "green", "blue"]
    shuffled = Patches(dataset, read_config=registry.ReadConfig(shuffle_files=True, shuffle_seed=1))
    for wrong in (shuffled, Patches(dataset, "train[3:]"), Patches(dataset, "train[3:]").batches(2)):
        with pytest.raises(UsageError) as caught:
            assemble(wrong, dataset).to_array()
        assert re.fullmatch(r"expected patch \d+ of the export, found patch \d+", caught.value.message)
