"""``registry earth-engine assemble``: what it writes, prints, and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import rasterio
from support.golden import check_texts

from registry.builders.earth_engine.assembling.predictions import write_predictions

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)
GOLDEN = Path(__file__).parent / "golden" / "cli_earth_engine_assemble"


@pytest.fixture
def predictions(earth_engine: Cli, workspace: Path) -> Path:
    return workspace / "predictions"


def test_the_same_as_json(cli: Cli, predictions: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.tif"
    ran = cli(
        "earth-engine", "assemble", str(predictions / "F12_pred-00000.tfrecord"), "-o", str(output),
        "--band", "prob", "--band", "class", "--name", "p", "--name", "c", "--dtype", "class=int16",
        "--crs", "EPSG:32611", "--format", "json",
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, "")
    check_texts(
        GOLDEN / "the_same_as_json.txt",
        [json.dumps(ran.json() | {"data": ran.json()["data"] | {"num_bytes": 0}}, indent=1)],
        folder=tmp_path,
    )
    assert ran.json()["data"]["num_bytes"] == output.stat().st_size


def test_files_in_their_order_with_a_mixer_of_another_place(cli: Cli, predictions: Path, tmp_path: Path) -> None:
    mixer = (predictions / "F12_pred-mixer.json").rename(tmp_path / "area-mixer.json")
    files = [str(predictions / f"F12_pred-0000{number}.tfrecord") for number in (0, 1)]
    output = tmp_path / "out.tif"
    command = ("earth-engine", "assemble", *files, "--mixer", str(mixer), "-o", str(output), "--kernel", "2,2")
    ran = cli(*command, "--compress", "zstd", "--block", "16", "--predictor", "3", "--nodata", "0")
    assert ran.code == 0
    with rasterio.open(output) as file:
        assert (file.profile["compress"], file.block_shapes[0]) == ("zstd", (16, 16))
        assert (file.descriptions, file.nodata, file.crs.to_epsg()) == (("class", "prob"), 0, 32610)
        assert file.read(1)[0].tolist() == [11, 12, 13, 14, 15, 16]


def test_array_bands_and_their_depths(cli: Cli, predictions: Path, tmp_path: Path) -> None:
    mixer = predictions / "F12_pred-mixer.json"
    write_predictions({"t": np.zeros((6, 3, 2, 2), "f4")}, mixer, tmp_path / "p", "p", tensor_depths={"t": 3})
    command = ("earth-engine", "assemble", str(tmp_path / "p"), "-o", str(tmp_path / "out.tif"), "--dry-run")
    ran = cli(*command, "--depth", "t=3", "--format", "json")
    assert [band["name"] for band in ran.json()["data"]["bands"]] == ["t_0", "t_1", "t_2"]


def test_help_has_examples(cli: Cli) -> None:
    ran = cli("earth-engine", "assemble", "--help")
    assert ran.code == 0
    assert "registry earth-engine assemble predictions/ -o classes.tif" in ran.out


def test_a_raster_whose_patches_were_filled_up_gets_its_own_size(cli: Cli, predictions: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.tif"
    ran = cli("earth-engine", "assemble", str(predictions), "-o", str(output), "--size", "5,3", "--band", "class")
    assert (ran.code, ran.err) == (0, "")
    with rasterio.open(output) as file:
        assert file.read(1).tolist() == [[11, 12, 13, 14, 15], [21, 22, 23, 24, 25], [31, 32, 33, 34, 35]]
