"""``registry import earth-engine`` and ``registry earth-engine inspect``: what they print and refuse."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.earth_engine_samples import ramp, write_image

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

BANDS = {"red": ramp(8, 4, "uint8"), "ndvi": ramp(8, 4)}


@pytest.fixture
def folder(workspace: Path) -> Path:
    return write_image(workspace / "exports", "area", BANDS, (4, 4), margin=(1, 1), native=True, shards=2)


DESCRIBED = """\
{title}prefix   area
form     patches of an image
{records}patches  2, 1 rows of 2
raster   8 x 4 pixels
patch    4 x 4 pixels
tile     6 x 6 pixels: a margin of 1 x 1, kernelSize 2 x 2
crs      EPSG:32610
pixel    30 x -30
bounds   500000, 4099880, 500240, 4100000

BAND  KIND   DTYPE    DEPTH
ndvi  float  float32  1
red   bytes  uint8    1

"""


def test_an_export_is_inspected(cli: Cli, folder: Path) -> None:
    sizes = [(folder / f"area-0000{index}.tfrecord.gz").stat().st_size for index in range(2)]
    ran = cli("earth-engine", "inspect", str(folder))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == DESCRIBED.format(title="", records="") + (
        f"FILE                    BYTES\narea-00000.tfrecord.gz  {sizes[0]} B\narea-00001.tfrecord.gz  {sizes[1]} B\n"
    )
    ran = cli("earth-engine", "inspect", str(folder / "area-mixer.json"), "--count")
    assert ran.out == DESCRIBED.format(title="", records="records  2\n") + (
        "FILE                    RECORDS  BYTES\n"
        f"area-00000.tfrecord.gz        1  {sizes[0]} B\n"
        f"area-00001.tfrecord.gz        1  {sizes[1]} B\n"
    )


def test_what_is_inspected_is_json_too(cli: Cli, folder: Path) -> None:
    ran = cli("earth-engine", "inspect", str(folder), "--kernel", "3x3", "--band", "red", "--format", "json")
    document = ran.json()
    assert document["schema"] == "registry.earth-engine.inspect/1"
    data = document["data"]
    assert {key: data[key] for key in ("form", "patch", "tile", "margin", "kernel_size", "mixer", "num_records")} == {
        "form": "image",
        "patch": [4, 4],
        "tile": [6, 6],
        "margin": [1, 1],
        "kernel_size": [3, 3],
        "mixer": "area-mixer.json",
        "num_records": None,
    }
    assert data["bands"] == [{"name": "red", "kind": "bytes", "dtype": "uint8", "depth": 1, "series": False}]
    assert data["bounds"] == [500000, 4099880, 500240, 4100000]


def test_an_export_is_imported_and_read(cli: Cli, folder: Path) -> None:
    ran = cli("import", "earth-engine", str(folder), "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(DESCRIBED.format(title="split    train\n", records="records  2\n"))
    assert ran.out.endswith("\narea:1.0.0: 2 examples\na version with this number is not published yet\n")
    ran = cli("import", "earth-engine", str(folder))
    assert (ran.code, ran.err) == (0, "")
    assert "\npublished area:1.0.0: 2 examples in 2 shards, " in ran.out
    assert "features   ndvi: Tensor(shape=(6, 6), dtype=float32)\n" in cli("show", "area").out
    assert cli("verify", "area", "--deep").code == 0
    again = cli("import", "earth-engine", str(folder)).out
    assert again.splitlines()[-2].startswith("area:1.0.0 is already published (sha256:")
    assert again.splitlines()[-1] == "canonical: area:1.0.0, as before"
    assert (
        "a version with this number is already published" in cli("import", "earth-engine", str(folder), "--dry-run").out
    )


def test_several_prefixes_are_splits(cli: Cli, workspace: Path, folder: Path) -> None:
    write_image(folder, "more", BANDS, (4, 4), margin=(1, 1), native=True)
    refused = cli("import", "earth-engine", str(folder))
    assert refused.code == 2
    assert refused.err == (
        f"error: file://{folder} contains 2 exports: area, more\nhint: Choose one: prefix='area'; --prefix area\n"
    )
    options = (
        "--prefix",
        "train=area",
        "--prefix",
        "eval=more",
        "--name",
        "both",
        "--config",
        "c",
        "--version",
        "2.0.0",
    )
    ran = cli("import", "earth-engine", str(folder), *options, "--copy", "--format", "json")
    document = ran.json()
    assert document["schema"] == "registry.import.earth-engine/1"
    data = document["data"]
    assert (data["dataset"], data["version"], data["newly"]) == ("both/c", "2.0.0", True)
    assert data["splits"] == {"train": 2, "eval": 2}
    assert data["exports"]["eval"]["files"][0]["num_records"] == 2
    assert (workspace / "datasets/both/c/2.0.0/more-00000.tfrecord.gz").exists()
    refused = cli("import", "earth-engine", str(folder), "--prefix", "area", "--prefix", "eval=more")
    assert refused.err == (
        "error: expected SPLIT=PREFIX for each of several prefixes, found 'area'\nhint: For "
        "example: --prefix train=area\n"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--kernel", "a"), "invalid --kernel 'a': expected a whole number or several, such as 128,128"),
        (("--depth", "ndvi"), "invalid --depth 'ndvi': expected BAND=N"),
        (("--depth", "ndvi=1,2"), "invalid --depth '1,2': expected one whole number"),
        (("--depth", "a=1", "--depth", "a=2"), "invalid --depth 'a=2': a occurs twice"),
        (("--shape", "ndvi=2,2"), "shapes contains 'ndvi', which is not a column"),
        (("--patch", "8,8"), "patch_dimensions: expected (4, 4) as in the mixer, found (8, 8)"),
    ],
    ids=["kernel", "pair", "number", "twice", "shape", "patch"],
)
def test_options_that_cannot_be_are_refused(cli: Cli, folder: Path, options: tuple[str, ...], message: str) -> None:
    ran = cli("import", "earth-engine", str(folder), *options)
    assert ran.code == 2
    assert ran.err.splitlines()[0] == f"error: {message}"


def test_a_lost_file_is_named(cli: Cli, folder: Path) -> None:
    (folder / "area-00000.tfrecord.gz").unlink()
    for command in (("import", "earth-engine"), ("earth-engine", "inspect")):
        ran = cli(*command, str(folder), "--format", "json")
        assert ran.code == 1
        assert ran.error()["code"] == "prepared_format"
        assert ran.error()["details"]["missing"] == ["area-00000.tfrecord.gz"]
