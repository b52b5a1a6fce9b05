"""Reads records of a reference implementation: their description, and each patch with its values and place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from registry.builders.earth_engine.patch_reader import Patches
from registry.builders.earth_engine.stored.export import open_export

FILES = Path(__file__).parent / "files"
DERIVED = json.loads((FILES.parent / "ee.json").read_text())["derived"]

NAMES = ["F1_patch2x2_kernel2x2", "F2_patch2x2_kernel1x1", "F3_patch2x2_kernel3x3", "F4_patch3x2_kernel2x0"]
SUFFIXES = ["tfrecord", "tfrecord.gz"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", NAMES)
def test_an_opened_export_knows_its_files_mixer_tile_and_bands(name: str, suffix: str) -> None:
    expected = DERIVED[name]
    export = open_export(FILES / f"{name}-00000.{suffix}", kernel_size=expected["kernelSize"], count=True)
    assert export.found.filenames == (f"{name}-00000.{suffix}",)
    assert export.mixer.to_value() == expected["mixer"]
    assert list(export.tile.size) == expected["tile"]
    assert list(export.tile.margin) == expected["pad"]
    assert export.counts == (expected["totalPatches"],)
    assert [(band.name, band.kind, band.depth) for band in export.bands] == [("b1", "float", 1), ("b2", "float", 1)]
    assert export.warnings == ()


@pytest.mark.parametrize("name", NAMES[:3])
def test_the_kernel_of_square_patches_need_not_be_given(name: str) -> None:
    expected = DERIVED[name]
    export = open_export(FILES / f"{name}-00000.tfrecord")
    assert list(export.tile.margin) == expected["pad"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", NAMES)
def test_patches_have_their_values_and_places(name: str, suffix: str) -> None:
    expected: dict[str, Any] = DERIVED[name]
    file, options = FILES / f"{name}-00000.{suffix}", {"kernel_size": expected["kernelSize"]}
    width, height = expected["patchDimensions"]
    raster = np.array(expected["raster"])
    for patch in Patches.of_files(file, **options):
        assert (patch.row, patch.column) == divmod(patch.index, expected["patchesPerRow"])
        assert patch.row is not None
        assert patch.column is not None
        core = raster[patch.row * height : (patch.row + 1) * height, patch.column * width : (patch.column + 1) * width]
        np.testing.assert_array_equal(patch.values, np.stack([core, core + 100]))
        assert patch.crs == "EPSG:32610"
    for patch in Patches.of_files(file, margin=True, layout="bands", **options):
        assert isinstance(patch.values, dict)
        assert patch.values["b1"].reshape(-1).tolist() == expected["tiles"][patch.index]


def test_a_patch_is_at_the_position_given_in_the_guide() -> None:
    file = FILES / "F1_patch2x2_kernel2x2-00000.tfrecord.gz"
    core, tile = Patches.of_files(file)[5], Patches.of_files(file, margin=True)[5]
    assert [core.transform.c, core.transform.f] == DERIVED["F1_patch5_core_origin"]
    assert [tile.transform.c, tile.transform.f] == DERIVED["F1_patch5_tile_origin_with_padding"]


def test_predictions_in_two_files_are_read_with_the_mixer_of_their_input() -> None:
    expected = DERIVED["F12"]
    patches = Patches.of_files(FILES, prefix="F12_pred", mixer=expected["mixer"], layout="bands")
    assert [patch.index for patch in patches] == list(range(6))
    raster = np.zeros((4, 6))
    for patch in patches:
        assert isinstance(patch.values, dict)
        assert patch.window is not None
        column, row, width, height = patch.window
        assert patch.values["class"].dtype == expected["class_dtype"]
        raster[row : row + height, column : column + width] = patch.values["class"]
    assert raster.tolist() == expected["class"]


def test_a_table_is_described_by_its_rows() -> None:
    export = open_export(FILES, prefix="F11_table")
    assert export.is_table
    assert [(one.name, one.kind, one.size, one.square) for one in export.columns] == [
        ("B2", "float", 1, None),
        ("landcover", "float", 1, None),
        ("name", "bytes", 1, None),
        ("patch", "float", 4, 2),
    ]
