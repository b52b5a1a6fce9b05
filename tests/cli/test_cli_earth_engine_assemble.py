"""``registry earth-engine assemble``: what it writes, prints, and refuses."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import rasterio
from support.golden import check_texts

from registry.builders.earth_engine.assembling.predictions import write_predictions
from registry.builders.earth_engine.exporting.image import export_image
from registry.builders.earth_engine.table import write_table

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)
GOLDEN = Path(__file__).parent / "golden" / "cli_earth_engine_assemble"

FILES = Path(__file__).parents[1] / "conformance" / "earth_engine" / "files"
MIXER = {
    "projection": {"crs": "EPSG:32610", "affine": {"doubleMatrix": [30.0, 0.0, 500000.0, 0.0, -30.0, 4100000.0]}},
    "patchDimensions": [2, 2],
    "patchesPerRow": 3,
    "totalPatches": 6,
}


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    folder = tmp_path / "predictions"
    folder.mkdir()
    for name in ("F12_pred-00000.tfrecord", "F12_pred-00001.tfrecord"):
        shutil.copy(FILES / name, folder)
    (folder / "F12_pred-mixer.json").write_text(json.dumps(MIXER))
    return folder


def test_a_folder_becomes_a_geotiff(cli: Cli, predictions: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.tif"
    ran = cli("earth-engine", "assemble", str(predictions), "-o", str(output), "--nodata", "0")
    note = "note: the bands are sorted by name; to choose another order, repeat --band NAME\n"
    assert (ran.code, ran.err) == (0, note)
    assert ran.out == (
        f"wrote {output}, {output.stat().st_size / 1024:.1f} KiB\n"
        "size     6 x 4 pixels of float32\n"
        "patches  6, 2 rows of 3\n"
        "crs      EPSG:32610\n"
        "bounds   500000, 4099880, 500180, 4100000\n"
        "nodata   0\n"
        "\n"
        "BAND  NAME   DTYPE\n"
        "   1  class  uint8\n"
        "   2  prob   float32\n"
    )
    with rasterio.open(output) as file:
        assert file.read(1)[0].tolist() == [11, 12, 13, 14, 15, 16]
        assert (file.descriptions, file.nodata, file.crs.to_epsg()) == (("class", "prob"), 0, 32610)


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
    ran = cli(*command, "--compress", "zstd", "--block", "16", "--predictor", "3")
    assert ran.code == 0
    with rasterio.open(output) as file:
        assert (file.profile["compress"], file.block_shapes[0]) == ("zstd", (16, 16))
    again = cli(*command)
    assert again.code == 1
    assert again.err == (
        f"error: {output} already exists\nhint: Choose another file, or replace it: overwrite=True; --overwrite.\n"
    )
    assert cli(*command, "--overwrite").code == 0


def test_array_bands_and_their_depths(cli: Cli, tmp_path: Path) -> None:
    write_predictions({"t": np.zeros((6, 3, 2, 2), "f4")}, MIXER, tmp_path / "p", "p", tensor_depths={"t": 3})
    command = ("earth-engine", "assemble", str(tmp_path / "p"), "-o", str(tmp_path / "out.tif"), "--dry-run")
    ran = cli(*command, "--depth", "t=3", "--format", "json")
    assert [band["name"] for band in ran.json()["data"]["bands"]] == ["t_0", "t_1", "t_2"]
    refused = cli(*command, "--depth", "3")
    assert (refused.code, refused.err) == (2, "error: invalid --depth '3': expected BAND=N\n")


def test_a_dry_run_writes_nothing(cli: Cli, predictions: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.tif"
    ran = cli("earth-engine", "assemble", str(predictions), "-o", str(output), "--dry-run")
    assert (ran.code, ran.out.splitlines()[0]) == (0, f"would write {output}")
    assert not output.exists()
    refused = cli("earth-engine", "assemble", str(predictions), "-o", str(output), "--dry-run", "--crs", "SR-ORG:6974")
    assert refused.code == 2
    assert refused.err.endswith("hint: Give the CRS as a code or as WKT: crs='EPSG:32610'; --crs EPSG:32610.\n")


def test_a_lost_file_and_a_mixer_of_another_export_are_told(cli: Cli, predictions: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.tif"
    (predictions / "F12_pred-00001.tfrecord").unlink()
    ran = cli("earth-engine", "assemble", str(predictions), "-o", str(output), "--format", "json")
    assert ran.error()["message"] == (
        "expected 6 patches as in the mixer, 2 rows of 3; found 4 patches in 1 file: 1 whole row and 1 patch more"
    )
    assert ran.error()["details"]["files"] == [[str(predictions / "F12_pred-00000.tfrecord"), 4]]
    assert not list(tmp_path.glob("*out.tif"))


def test_a_table_becomes_rows(cli: Cli, tmp_path: Path) -> None:
    write_table([{"a": 1.5, "b": "x"}, {"a": 2.5, "b": "y"}], tmp_path, "t")
    source, output = tmp_path / "t.tfrecord.gz", tmp_path / "t.csv"
    dry = cli("earth-engine", "assemble", str(source), "-o", str(output), "--dry-run")
    assert (dry.out, output.exists()) == (f"would write {output}, 2 rows\n", False)
    ran = cli("earth-engine", "assemble", str(source), "-o", str(output))
    assert (ran.code, ran.out) == (0, f"wrote {output}, 2 rows\n")
    with output.open(newline="") as file:
        assert list(csv.DictReader(file)) == [{"a": "1.5", "b": "x"}, {"a": "2.5", "b": "y"}]
    two = cli("earth-engine", "assemble", str(source), str(source), "-o", str(tmp_path / "u.csv"))
    assert two.err == (
        "error: expected one file of a table, found 2\nhint: Run the command once for each "
        "file, each with its own -o FILE.\n"
    )


def test_other_suffixes_and_numbers_that_are_none_are_refused(cli: Cli, predictions: Path, tmp_path: Path) -> None:
    ran = cli("earth-engine", "assemble", str(predictions), "-o", str(tmp_path / "out.png"))
    assert ran.code == 2
    assert ran.err == (
        f"error: expected an output file that ends in .tif, .tiff, .csv, .geojson, .json or .jsonl, "
        f"found {tmp_path / 'out.png'}\nhint: Write an image to a GeoTIFF: -o FILE.tif; write a table to -o "
        f"FILE.csv or -o FILE.geojson.\n"
    )
    ran = cli("earth-engine", "assemble", str(predictions), "-o", str(tmp_path / "out.tif"), "--kernel", "a")
    assert (ran.code, ran.err) == (
        2,
        "error: invalid --kernel 'a': expected a whole number or several, such as 128,128\n",
    )
    ran = cli("earth-engine", "assemble", str(predictions), "-o", str(tmp_path / "out.tif"), "--dtype", "unit8")
    assert ran.err.startswith("error: invalid dtype 'unit8' for a band\n")


def test_help_has_examples(cli: Cli) -> None:
    ran = cli("earth-engine", "assemble", "--help")
    assert ran.code == 0
    assert "registry earth-engine assemble predictions/ -o classes.tif" in ran.out


def test_a_folder_of_a_table_becomes_rows_and_one_of_an_image_does_not(cli: Cli, tmp_path: Path) -> None:
    write_table([{"a": 1.5}], tmp_path / "table", "t")
    ran = cli("earth-engine", "assemble", str(tmp_path / "table"), "-o", str(tmp_path / "t.csv"))
    assert (ran.code, ran.out) == (0, f"wrote {tmp_path / 't.csv'}, 1 row\n")
    place = {"transform": (30, 0, 500000, 0, -30, 4100000), "crs": "EPSG:32610"}
    export_image({"b1": np.zeros((2, 2), "uint8")}, tmp_path / "image", "p", patch_dimensions=2, **place)
    refused = cli("earth-engine", "assemble", str(tmp_path / "image"), "-o", str(tmp_path / "u.csv"))
    assert (refused.code, refused.err) == (
        2,
        (
            f"error: expected the export of a table, found the export of an image: 'p' in {tmp_path / 'image'}\n"
            f"hint: Write its patches to a GeoTIFF: -o FILE.tif.\n"
        ),
    )


def test_a_raster_whose_patches_were_filled_up_gets_its_own_size(cli: Cli, predictions: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.tif"
    ran = cli("earth-engine", "assemble", str(predictions), "-o", str(output), "--size", "5,3", "--band", "class")
    assert (ran.code, ran.err) == (0, "")
    assert "size     5 x 3 pixels of uint8\n" in ran.out
    with rasterio.open(output) as file:
        assert file.read(1).tolist() == [[11, 12, 13, 14, 15], [21, 22, 23, 24, 25], [31, 32, 33, 34, 35]]
    for wrong in ("4,3", "7,4", "5,2"):
        ran = cli("earth-engine", "assemble", str(predictions), "-o", str(output), "--overwrite", "--size", wrong)
        width, height = wrong.split(",")
        assert (ran.code, ran.err) == (
            2,
            f"error: a raster of {width} x {height} pixels does not fill 3 x 2 patches of 2 x 2\nhint: Give the width "
            "and height of the raster that was exported with edge='pad': size=[width, height]; --size WIDTH,HEIGHT.\n",
        )
