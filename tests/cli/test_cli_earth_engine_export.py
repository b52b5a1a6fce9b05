"""``registry earth-engine export``: what it writes and prints, its options, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import rasterio

from registry.builders.earth_engine.exporting.image import export_image
from registry.storage import open_store
from registry.tfrecord import read_records
from registry.wire import decode_sequence_example

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)
EXPORT = ("earth-engine", "export")


@pytest.fixture
def scene(earth_engine: Cli, workspace: Path) -> str:
    return str(workspace / "scene.tif")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_every_option_of_a_raster_reaches_the_export(cli: Cli, scene: str, workspace: Path) -> None:
    options = (
        *("--prefix", "sub/area", "--patch", "3,2", "--kernel", "3", "--band", "n=nir", "--band", "all=1-3"),
        *("--max-file-size", "0.2KiB", "--default-value", "-1", "--depth", "all=2", "--encoding", "native"),
        *("--masked", "pixel", "--mask-band", "ok", "--edge", "pad", "--masked-threshold", "0.9", "--collapse"),
        *("--nodata", "7", "--crs", "EPSG:32611", "--transform", "10,0,5,0,-10,6", "--format", "json"),
    )
    data = cli(*EXPORT, scene, str(workspace / "one"), *options).json()["data"]
    exported = export_image(
        scene,
        workspace / "two",
        "sub/area",
        patch_dimensions=[3, 2],
        kernel_size=3,
        bands={"n": "nir", "all": [1, 2, 3]},
        max_file_size=204,
        default_value=-1,
        tensor_depths={"all": 2},
        encoding="native",
        masked="pixel",
        mask_band="ok",
        edge="pad",
        masked_threshold=0.9,
        collapse_bands=True,
        nodata=7,
        crs="EPSG:32611",
        transform=(10, 0, 5, 0, -10, 6),
    )
    assert (
        names(workspace / "one" / "sub")
        == names(workspace / "two" / "sub")
        == [Path(name).name for name in exported.filenames]
    )
    for name in exported.filenames:
        assert (workspace / "one" / name).read_bytes() == (workspace / "two" / name).read_bytes()
    assert data["filenames"] == list(exported.filenames)
    assert (data["crs"], data["transform"]) == ("EPSG:32611", [10, 0, 5, 0, -10, 6])
    assert (data["mixer"], data["collapsed"], data["num_patches"]) == (None, "bytes", 9)
    assert data["bands"][1] == {"name": "all", "dtype": "uint8", "kind": "bytes", "depth": 2, "array": True}


def test_a_stack_of_bands_is_a_time_series(cli: Cli, scene: str, workspace: Path) -> None:
    out = workspace / "out"
    options = ("--patch", "7,5", "--band", "ts=1-2", "--band", "nir", "--depth", "ts=2", "--sequence")
    ran = cli(*EXPORT, scene, str(out), *options, "--format", "json")
    assert (ran.json()["data"]["num_records"], ran.json()["warnings"]) == (35, [])
    last = list(read_records(open_store(out), "scene-00000.tfrecord.gz"))[-1]
    context, lists = decode_sequence_example(last)
    assert ([*context], context["nir"].tolist()) == (["nir"], [36])  # type: ignore[union-attr] # an array
    assert [step.tolist() for step in lists["ts"]] == [[34], [35]]  # type: ignore[union-attr] # arrays


def test_integers_that_floats_may_round_are_told(cli: Cli, workspace: Path) -> None:
    path = workspace / "large.tif"
    place = {"transform": rasterio.Affine(30, 0, 500000, 0, -30, 4100000), "crs": "EPSG:32610"}
    with rasterio.open(path, "w", driver="GTiff", width=2, height=2, count=1, dtype="int32", **place) as file:
        file.write(np.full((1, 2, 2), 2**24 + 1, "int32"))
    said = (
        "note: b1: integers beyond 16,777,216 are rounded, because they are stored as "
        "float32; --encoding native keeps them\n"
    )
    call = ("earth-engine", "export", str(path), "out", "--patch", "2", "--dry-run")
    assert cli(*call).err == said
    assert cli(*call, "--encoding", "native").err == ""
