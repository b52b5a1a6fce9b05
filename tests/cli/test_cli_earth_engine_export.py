"""``registry earth-engine export``: what it writes and prints, its options, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import rasterio
from affine import Affine
from support.golden import check_texts

from registry.builders.earth_engine.exporting.image import export_image
from registry.storage import open_store
from registry.tfrecord import read_records
from registry.wire import decode_sequence_example

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)
GOLDEN = Path(__file__).parent / "golden" / "cli_earth_engine_export"

EXPORT = ("earth-engine", "export")


@pytest.fixture
def scene(workspace: Path) -> str:
    """A GeoTIFF of 7 x 5 pixels and three bands, of which the first is nodata in a corner."""
    path = workspace / "scene.tif"
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        width=7,
        height=5,
        count=3,
        dtype="uint8",
        crs="EPSG:32610",
        transform=Affine(30, 0, 500000, 0, -30, 4100000),
        nodata=0,
    ) as data:
        for number, name in enumerate(("red", "green", "nir"), start=1):
            data.write(np.arange(35, dtype="uint8").reshape(5, 7) + number - 1, number)
            data.set_band_description(number, name)
    return str(path)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_raster_is_exported(cli: Cli, scene: str, workspace: Path) -> None:
    out = workspace / "out"
    ran = cli(*EXPORT, scene, str(out), "--patch", "2", "--kernel", "2,0", "--no-compress")
    assert (ran.code, ran.err) == (0, "")
    size = sum(file.stat().st_size for file in out.iterdir())
    assert ran.out == (
        f"exported 6 patches in 1 file, {size / 1024:.1f} KiB: {out}\n"
        "\n"
        "BAND   TYPE   STORED AS  DEPTH\n"
        "red    uint8  float          1\n"
        "green  uint8  float          1\n"
        "nir    uint8  float          1\n"
        "\n"
        "raster    7 x 5, EPSG:32610\n"
        "patches   3 x 2 of 2 x 2\n"
        "stored    4 x 2 with a margin of 1 x 0\n"
        "left out  1 column on the right, 1 row at the bottom\n"
        "\n"
        "scene-00000.tfrecord  6 records\n"
        "scene-mixer.json\n"
    )
    assert names(out) == ["scene-00000.tfrecord", "scene-mixer.json"]


def test_a_dry_run_tells_and_writes_nothing(cli: Cli, scene: str, workspace: Path) -> None:
    ran = cli(*EXPORT, scene, str(workspace / "out"), "--patch", "2,5", "--band", "red", "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    check_texts(GOLDEN / "a_dry_run_tells_and_writes_nothing.txt", [ran.out])
    assert names(workspace / "out") == []


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


def test_patches_that_are_left_out_are_told(cli: Cli, scene: str, workspace: Path) -> None:
    ran = cli(*EXPORT, scene, str(workspace / "out"), "--patch", "1", "--masked-threshold", "0.5")
    assert ran.out.splitlines()[1] == "dropped 1 of 35 patches: too many masked pixels"
    assert ran.out.splitlines()[-1] == "no mixer, because --masked-threshold may drop patches"


def test_an_export_is_written_over_only_when_asked(cli: Cli, scene: str, workspace: Path) -> None:
    out = str(workspace / "out")
    assert cli(*EXPORT, scene, out, "--patch", "2").code == 0
    ran = cli(*EXPORT, scene, out, "--patch", "2")
    assert ran.code != 0
    assert ran.err == (
        f"error: an export with the prefix 'scene' already exists: {out}/scene-mixer.json and 1 "
        f"more\nhint: Choose another prefix (--prefix), or replace it: overwrite=True; "
        f"--overwrite.\n"
    )
    assert cli(*EXPORT, scene, out, "--patch", "5", "--overwrite").code == 0
    assert json.loads((workspace / "out" / "scene-mixer.json").read_text())["totalPatches"] == 1


def test_options_that_mean_nothing_are_refused(cli: Cli, scene: str, workspace: Path) -> None:
    cases: list[tuple[str, ...]] = [
        ("--patch", "x"),
        ("--patch", "1,2,3"),
        ("--max-file-size", "1 mile"),
        ("--depth", "red"),
        ("--band", "3", "--band", "r=1"),
        ("--band", "r=2", "--band", "r=1"),
        ("--transform", "1,2"),
        ("--column", "a"),
        ("--sequence", "--kernel", "3"),
    ]
    failed = [cli(*EXPORT, scene, str(workspace / "out"), *options) for options in cases]
    check_texts(GOLDEN / "options_that_mean_nothing_are_refused.txt", [ran.err for ran in failed])
    assert {(ran.code, ran.out) for ran in failed} == {(2, "")}
    assert names(workspace / "out") == []


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
