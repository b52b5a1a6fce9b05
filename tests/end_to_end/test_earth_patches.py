"""Builds the shipped photographs, reads them with their places, and compares their records with an export."""

import hashlib
import re
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from registry import connect
from registry.api import Catalog
from registry.builders import earth_patches
from registry.builders.earth_engine.exporting.image import export_image
from registry.builders.earth_engine.patch_reader import Patches
from registry.builders.earth_engine.stored.importing import import_export
from registry.builders.earth_patches import BANDS, GRID, PLACES, read_pixels
from registry.storage import open_store
from registry.tfrecord import read_records


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = connect(tmp_path_factory.mktemp("earth") / "catalog.db")
    catalog.build("earth_patches")
    return catalog


def test_patches_are_read_with_their_places(catalog: Catalog) -> None:
    dataset = catalog.dataset("earth_patches")
    assert {name: split.num_examples for name, split in dataset.splits.items()} == {"china": 260, "flower": 260}
    patches = Patches(dataset, "china")
    assert (len(patches), patches.channels, patches.crs) == (260, BANDS, "EPSG:32650")
    pixels = read_pixels("china")
    for patch in patches:
        assert patch.window is not None
        column, row, width, height = patch.window
        np.testing.assert_array_equal(
            np.moveaxis(np.asarray(patch.values), 0, -1), pixels[row : row + height, column : column + width]
        )
    last = patches[259]
    assert (last.row, last.column, last.bounds) == (12, 19, (446080, 4425840, 446400, 4426160))


@pytest.mark.parametrize("split", list(PLACES))
def test_the_records_equal_those_of_an_export(catalog: Catalog, split: str, tmp_path: Path) -> None:
    crs, transform = PLACES[split]
    pixels = read_pixels(split)
    exported = export_image(
        {name: pixels[..., place] for place, name in enumerate(BANDS)},
        tmp_path,
        split,
        patch_dimensions=[32, 32],
        kernel_size=[8, 8],
        encoding="native",
        transform=transform,
        crs=crs,
    )
    records = [record for name in exported.filenames for record in read_records(open_store(tmp_path), name)]
    assert list(catalog.dataset("earth_patches").read(split).records()) == records
    kept = catalog.dataset("earth_patches").metadata.custom["earth_engine"]["splits"][split]
    assert kept["mixer"] == exported.mixer.to_value()
    import_export(catalog, tmp_path, split=split)
    imported = catalog.dataset(split).metadata.custom["earth_engine"]["splits"][split]
    assert {**imported, "bands": sorted(imported["bands"], key=str)} == {
        **kept,
        "bands": sorted(kept["bands"], key=str),
    }


def test_the_pictures_match_their_attribution(catalog: Catalog) -> None:
    text = files(earth_patches).joinpath("ATTRIBUTION.md").read_text("utf-8")
    stated = dict(re.findall(r"`(\w+\.png)` sha256 `([0-9a-f]{64})`", text))
    assert stated == {
        f"{split}.png": hashlib.sha256(files(earth_patches).joinpath(f"{split}.png").read_bytes()).hexdigest()
        for split in PLACES
    }
    assert (GRID.num_patches, GRID.tile) == (260, (40, 40))
