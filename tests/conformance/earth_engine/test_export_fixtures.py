"""Compares exported rasters with the fixtures, record for record and byte for byte; F11 and F12 are elsewhere."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from registry.builders.earth_engine.exporting.image import Exported, export_image
from registry.builders.earth_engine.exporting.options import ExportOptions
from registry.builders.earth_engine.exporting.plan import plan_raster
from registry.builders.earth_engine.exporting.raster import ArrayRaster
from registry.builders.earth_engine.exporting.records import iterate_patches, iterate_sequences
from registry.builders.earth_engine.grid import Size
from registry.builders.earth_engine.kinds import fit_default, from_flat
from registry.errors import RegistryWarning
from registry.wire import decode_example

HERE = Path(__file__).parent
FIXTURES: dict[str, Any] = json.loads((HERE / "ee.json").read_text(encoding="utf-8"))
EXPECTED, DERIVED = FIXTURES["hand_expected"], FIXTURES["derived"]
PLACE: dict[str, Any] = {"transform": (30, 0, 500000, 0, -30, 4100000), "crs": "EPSG:32610"}
GRIDS = sorted(name for name in DERIVED if "kernel" in name)
KERNELS = {name: DERIVED[name]["kernelSize"] for name in GRIDS}


def records(bands: dict[str, Any], **options: Any) -> list[bytes]:
    """The records of an image, one for each patch."""
    raster = ArrayRaster(bands, **PLACE)
    return [record for _, record in iterate_patches(raster, plan_raster(raster, ExportOptions.of(options)))]


def export(name: str, folder: Path, dtype: str = "float32", **options: Any) -> Exported:
    """The export of one of the fixtures F1 to F4; b2 is b1 plus 100."""
    first = np.array(DERIVED[name]["raster"], dtype)
    wanted = {"patchDimensions": DERIVED[name]["patchDimensions"], "kernelSize": KERNELS[name], **options}
    return export_image({"b2": first + np.array(100, dtype), "b1": first}, folder, name, **PLACE, options=wanted)


@pytest.mark.parametrize("compressed", [True, False], ids=["gzip", "plain"])
@pytest.mark.parametrize("name", GRIDS)
def test_the_files_of_an_export_are_the_fixtures(name: str, compressed: bool, tmp_path: Path) -> None:
    exported = export(name, tmp_path, compressed=compressed)
    suffix = ".tfrecord.gz" if compressed else ".tfrecord"
    assert (exported.filenames, exported.mixer_filename) == ((f"{name}-00000{suffix}",), f"{name}-mixer.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}-00000{suffix}", f"{name}-mixer.json"]
    for file in tmp_path.iterdir():
        assert file.read_bytes() == (HERE / "files" / file.name).read_bytes()
    assert exported.num_bytes == sum(file.stat().st_size for file in tmp_path.iterdir())


@pytest.mark.parametrize("name", GRIDS)
def test_the_first_record_and_the_mixer_equal_the_derived_ones(name: str, tmp_path: Path) -> None:
    exported = export(name, tmp_path, compressed=False)
    first = (tmp_path / exported.filenames[0]).read_bytes()[12:][: DERIVED[name]["record_bytes"]]
    assert first.hex() == DERIVED[name]["record0_hex"]
    assert json.loads((tmp_path / f"{name}-mixer.json").read_text(encoding="utf-8")) == DERIVED[name]["mixer"]
    assert list(exported.grid.tile) == DERIVED[name]["tile"]
    assert list(exported.grid.margin) == DERIVED[name]["pad"]


@pytest.mark.parametrize("encoding", ["float", "native"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float64"])
@pytest.mark.parametrize("name", GRIDS)
def test_the_tiles_equal_those_written_by_hand(name: str, dtype: str, encoding: str) -> None:
    raster = np.array(DERIVED[name]["raster"], dtype)
    patch = DERIVED[name]["patchDimensions"]
    found = records({"b1": raster}, patchDimensions=patch, kernelSize=KERNELS[name], encoding=encoding)
    kinds, tiles = zip(*[from_flat(decode_example(record)["b1"], "b1") for record in found], strict=True)
    assert [tile.tolist() for tile in tiles] == EXPECTED[name]
    native = {"uint8": "bytes", "int16": "int64", "float64": "float"}[dtype]
    assert set(kinds) == {native if encoding == "native" else "float"}


def test_the_margin_of_the_first_patch_is_at_the_derived_position(tmp_path: Path) -> None:
    exported = export("F1_patch2x2_kernel2x2", tmp_path)
    core = exported.grid.transform(5, exported.transform)
    assert [core.c, core.f] == DERIVED["F1_patch5_core_origin"]
    tile = exported.grid.transform(5, exported.transform, margin=True)
    assert [tile.c, tile.f] == DERIVED["F1_patch5_tile_origin_with_padding"]


@pytest.mark.parametrize(("dtype", "default", "expected"), EXPECTED["F5_default_value"])
def test_the_default_value_is_clamped_to_the_type_of_its_band(dtype: str, default: float, expected: float) -> None:
    assert fit_default(default, dtype, "b1") == expected
    band = np.ma.array(np.ones((1, 2), dtype), mask=[[True, False]])
    for encoding in ("float", "native"):
        (record,) = records({"b": band}, patchDimensions=[2, 1], defaultValue=default, encoding=encoding)
        assert from_flat(decode_example(record)["b"], "b")[1].tolist() == [expected, 1]


@pytest.mark.parametrize("encoding", ["float", "native"])
def test_arrays_are_cut_off_or_filled_up_to_their_depth(encoding: str) -> None:
    band = [[[1, 2], [3]], [[4, 5, 6], []]]
    (record,) = records({"a": band}, patchDimensions=[2, 2], tensorDepths={"a": 2}, defaultValue=-1, encoding=encoding)
    assert from_flat(decode_example(record)["a"], "a")[1].tolist() == EXPECTED["F6_tensor_depths"]


def test_a_pixel_of_a_time_series_is_a_sequence_example() -> None:
    raster = ArrayRaster({"s": np.array([[10, 20], [30, 40]]), "ts": [[[1, 2], [3]], [[4, 5, 6], []]]}, **PLACE)
    with pytest.warns(RegistryWarning, match="no depth for the array band 'ts'"):
        plan = plan_raster(raster, ExportOptions(patch_dimensions=Size(2, 2), sequence_data=True))
    found = list(iterate_sequences(raster, plan))
    assert [patch for patch, _ in found] == [0, 0, 0, 0]
    assert [base64.b64encode(record).decode() for _, record in found] == DERIVED["F8_sequence_records"]


@pytest.mark.parametrize("bands", sorted(EXPECTED["F7_collapse"]))
def test_collapsed_bands_have_the_furthest_kind(bands: str) -> None:
    known = {
        "a": np.array([[1, 2]], "uint8"),
        "b": np.array([[-3, 4]], "int16"),
        "c": np.array([[0.5, 1.5]], "float32"),
    }
    first, *others = bands.split(",")
    named = {first: known[first], **{f"{name}2" if name == first else name: known[name] for name in others}}
    (record,) = records(named, patchDimensions=[2, 1], collapseBands=True, encoding="native")
    kind, values = from_flat(decode_example(record)[first], first)
    assert [kind, values.tolist()] == EXPECTED["F7_collapse"][bands]
    assert record == base64.b64decode(DERIVED["F7_records"][bands])


@pytest.mark.parametrize("threshold", sorted(EXPECTED["F9_masked"]))
def test_patches_with_too_many_masked_pixels_are_left_out(threshold: str, tmp_path: Path) -> None:
    mask = np.array([[1, 0, 1, 1], [0, 0, 0, 0]], bool)
    exported_patches = EXPECTED["F9_masked"][threshold]
    raster = ArrayRaster({"b": np.ones((2, 4), "uint8")}, mask=mask, **PLACE)
    options = ExportOptions.of({"patchDimensions": 2, "maskedThreshold": float(threshold)})
    plan = plan_raster(raster, options)
    assert [patch for patch, _ in iterate_patches(raster, plan)] == exported_patches
    assert (plan.mixer is None) is (float(threshold) != 1)


@pytest.mark.parametrize("limit", sorted(EXPECTED["F10_shards"], key=int))
def test_a_file_is_full_when_the_next_record_would_exceed_the_limit(limit: str, tmp_path: Path) -> None:
    from registry.builders.earth_engine.exporting.files import ExportFiles
    from registry.storage import open_store

    with ExportFiles(open_store(tmp_path), "p", compressed=False, max_file_size=int(limit)) as files:
        for _ in range(5):
            files.write(bytes(84))
        written = files.commit(None)
    assert list(written.records) == EXPECTED["F10_shards"][limit]
    assert [(tmp_path / name).stat().st_size for name in written.filenames] == [
        100 * count for count in EXPECTED["F10_shards"][limit]
    ]
