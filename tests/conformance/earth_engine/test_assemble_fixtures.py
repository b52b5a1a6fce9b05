"""Records that a reference implementation made come back as the raster that it made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

from registry.builders.earth_engine.assembling.assemble import assemble

FILES = Path(__file__).parent / "files"
DERIVED = json.loads((FILES.parent / "ee.json").read_text())["derived"]

NAMES = ["F1_patch2x2_kernel2x2", "F2_patch2x2_kernel1x1", "F3_patch2x2_kernel3x3", "F4_patch3x2_kernel2x0"]
KERNELS = {"F4_patch3x2_kernel2x0": [2, 0]}
"""Where patches are no squares, the number of values does not tell the margin."""


@pytest.mark.parametrize("suffix", ["tfrecord", "tfrecord.gz"])
@pytest.mark.parametrize("name", NAMES)
def test_an_export_comes_back_as_its_geotiff(tmp_path: Path, name: str, suffix: str) -> None:
    files = [FILES / f"{name}-00000.{suffix}"]  # the mixer is next to them
    output = tmp_path / "out.tif"
    assembly = assemble(files, output=output, kernel_size=KERNELS.get(name))
    expected = DERIVED[name]
    assert assembly.to_arrays()["b1"].tolist() == expected["reconstructed"]
    with rasterio.open(FILES / f"{name}.tif") as theirs, rasterio.open(output) as ours:
        assert (ours.read(1) == theirs.read(1)).all()
        assert (ours.read(2) == theirs.read(1) + 100).all()
        assert ours.descriptions == ("b1", "b2")
        assert ours.transform == theirs.transform
        assert ours.crs == theirs.crs
        assert list(ours.bounds) == expected["geotiff_bounds"] == list(assembly.bounds)
        assert ours.dtypes == ("float32", "float32")


@pytest.mark.parametrize("mixer", ["document", "text"])
def test_padded_predictions_over_two_files_come_back(tmp_path: Path, mixer: str) -> None:
    expected: Any = DERIVED["F12"]
    document = expected["mixer"] if mixer == "document" else json.dumps(expected["mixer"])
    output = tmp_path / "out.tif"
    assembly = assemble([FILES / name for name in expected["files"]], document, output, nodata=0)
    assert [(band.name, str(band.dtype)) for band in assembly.bands] == [
        ("class", expected["class_dtype"]),
        ("prob", expected["prob_dtype"]),
    ]
    arrays = assembly.to_arrays()
    assert arrays["class"].dtype == np.uint8
    assert arrays["class"].tolist() == expected["class"]
    assert arrays["prob"].tolist() == (np.float32(expected["class"]) / np.float32(100)).tolist()
    with rasterio.open(output) as file:
        assert file.descriptions == ("class", "prob")
        assert file.nodata == 0
        assert (file.read() == np.stack([arrays["class"], arrays["prob"]])).all()
        assert file.profile["tiled"]
        assert file.profile["compress"] == "deflate"


def test_only_the_named_bands_come_back_in_the_given_order() -> None:
    expected = DERIVED["F12"]
    files = [FILES / name for name in expected["files"]]
    assert [band.name for band in assemble(files, expected["mixer"], bands=["prob", "class"]).bands] == [
        "prob",
        "class",
    ]
    only = assemble(files, expected["mixer"], bands=["class"], names=["kind"], dtypes="int16")
    assert only.to_array().tolist() == [expected["class"]]
    assert str(only.to_arrays()["kind"].dtype) == "int16"
