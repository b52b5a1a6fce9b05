"""A GeoTIFF is written once, block by block, and appears only when complete; invalid input is refused."""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import rasterio
from support import warm_python
from support.golden import check_errors
from support.levels import cases

from registry.builders.earth_engine.assembling.geotiff import check_output, create_geotiff
from registry.builders.earth_engine.grid import Size, Transform
from registry.errors import AlreadyStoredError, FeatureError, RegistryError, StorageError, UsageError

GOLDEN = Path(__file__).parent / "golden" / "earth_engine_geotiff"
PLACE = Transform(30.0, 0.0, 500000.0, 0.0, -30.0, 4100000.0)


def write(path: Any, raster: npt.NDArray[Any], *, step: int = 7, **options: Any) -> None:
    """Write (C, H, W), ``step`` rows at a time."""
    names = [f"b{number}" for number in range(1, len(raster) + 1)]
    size = Size(raster.shape[2], raster.shape[1])
    settings = {"names": names, "dtype": raster.dtype, "transform": PLACE, "crs": "EPSG:32610", "block": 16, **options}
    with create_geotiff(path, size=size, **settings) as file:
        for start in range(0, raster.shape[1], step):
            file.write(list(raster[:, start : start + step]))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def made(channels: int = 2, height: int = 53, width: int = 41, dtype: str = "int16") -> npt.NDArray[Any]:
    return np.random.default_rng(0).integers(0, 100, (channels, height, width)).astype(dtype)


@pytest.mark.parametrize("channels", [2, 3, 4, 5])
def test_no_band_of_bytes_masks_the_others(tmp_path: Path, channels: int) -> None:
    write(tmp_path / "p.tif", np.zeros((channels, 4, 4), "uint8"))
    with rasterio.open(tmp_path / "p.tif") as file:
        assert "alpha" not in [color.name for color in file.colorinterp]
        assert file.read_masks().all()


@pytest.mark.parametrize("step", [1, 7, 15, 16, 17, 32, 53, 100])
@pytest.mark.parametrize("height", [5, 32, 53])
def test_rows_of_any_number_make_the_same_file(tmp_path: Path, height: int, step: int) -> None:
    raster = made(height=height)
    write(tmp_path / "whole.tif", raster, step=height)
    write(tmp_path / "rows.tif", raster, step=step)
    with rasterio.open(tmp_path / "rows.tif") as file:
        assert (file.read() == raster).all()
    # a block that is written twice occupies space twice
    assert (tmp_path / "rows.tif").read_bytes() == (tmp_path / "whole.tif").read_bytes()


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"]
)
@pytest.mark.parametrize("compress", ["deflate", "lzw", "zstd", "none"])
def test_every_dtype_and_compression_is_read_back(tmp_path: Path, dtype: str, compress: str) -> None:
    raster = made(dtype=dtype)
    predictor = None if compress == "none" else 3 if dtype.startswith("float") else 2
    write(tmp_path / "x.tif", raster, compress=compress, predictor=predictor, nodata=7)
    with rasterio.open(tmp_path / "x.tif") as file:
        assert (file.read() == raster).all()
        assert file.dtypes == (dtype, dtype)
        assert file.nodata == 7
        assert file.descriptions == ("b1", "b2")
        assert file.profile.get("compress") == (None if compress == "none" else compress)
        assert file.block_shapes == [(16, 16), (16, 16)]
        assert tuple(file.transform)[:6] == PLACE
        assert file.crs.to_epsg() == 32610


@pytest.mark.parametrize("name", ["über straße.tif", "a#b?c!d.tif", "x.tif.tif", "ends in.TIFF", "50%.tif"])
def test_any_name_will_do_and_no_other_file_is_left(tmp_path: Path, name: str) -> None:
    write(tmp_path / "new" / name, made())
    assert names_in(tmp_path / "new") == [name]


def test_a_crs_that_has_no_code_leaves_no_second_file(tmp_path: Path) -> None:
    crs = "+proj=sinu +lon_0=0 +x_0=0 +y_0=0 +R=6371007.181 +units=m +no_defs"
    write(tmp_path / "x.tif", made(), crs=crs)
    with rasterio.open(tmp_path / "x.tif") as file:
        assert file.crs == rasterio.CRS.from_user_input(crs)
    wkt = rasterio.CRS.from_user_input(crs).to_wkt()
    write(tmp_path / "wkt.tif", made(), crs=wkt)
    assert names_in(tmp_path) == ["wkt.tif", "x.tif"]


@pytest.mark.parametrize("step", [1.0, -1.0])
def test_a_transform_of_plain_pixels_is_kept_without_a_warning(tmp_path: Path, step: float) -> None:
    write(tmp_path / "x.tif", made(), transform=Transform(1.0, 0.0, 0.0, 0.0, step, 0.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with rasterio.open(tmp_path / "x.tif") as file:
            assert tuple(file.transform)[:6] == (1.0, 0.0, 0.0, 0.0, step, 0.0)


@pytest.mark.parametrize(("dtype", "predictor"), [("float32", "3"), ("float64", "3"), ("uint8", None), ("int32", None)])
def test_floats_are_stored_as_differences(tmp_path: Path, dtype: str, predictor: str | None) -> None:
    write(tmp_path / "x.tif", made(dtype=dtype))
    with rasterio.open(tmp_path / "x.tif") as file:
        assert file.tags(ns="IMAGE_STRUCTURE").get("PREDICTOR") == predictor


def test_an_existing_file_is_replaced_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "x.tif"
    path.write_bytes(b"mine")
    with pytest.raises(AlreadyStoredError) as caught:
        write(path, made())
    assert caught.value.message == f"{path} already exists"
    assert caught.value.hint == "Choose another file, or replace it: overwrite=True; --overwrite."
    assert path.read_bytes() == b"mine"
    write(path, made(), overwrite=True)
    with rasterio.open(path) as file:
        assert file.shape == (53, 41)


@pytest.mark.parametrize("before", [None, b"mine"])
def test_a_failure_leaves_existing_files_unchanged(tmp_path: Path, before: bytes | None) -> None:
    path = tmp_path / "x.tif"
    if before is not None:
        path.write_bytes(before)

    def fail() -> None:
        options: Any = {"names": ["a"], "dtype": "uint8", "transform": PLACE, "crs": "EPSG:4326", "overwrite": True}
        with create_geotiff(path, size=Size(100, 100), **options) as file:
            file.write([np.zeros((50, 100), np.uint8)])
            raise FeatureError("no")

    with pytest.raises(FeatureError, match="no"):
        fail()
    assert {name: (tmp_path / name).read_bytes() for name in names_in(tmp_path)} == (
        {} if before is None else {"x.tif": before}
    )


def test_a_file_written_meanwhile_by_another_process_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.tif"

    def late() -> None:
        with create_geotiff(path, size=Size(1, 1), names=["a"], dtype="u1", transform=PLACE, crs="EPSG:4326") as file:
            file.write([np.zeros((1, 1), np.uint8)])
            path.write_bytes(b"first")

    with pytest.raises(AlreadyStoredError) as caught:
        late()
    assert caught.value.message == f"cannot write {path}: it exists already"
    assert names_in(tmp_path) == ["x.tif"]
    assert path.read_bytes() == b"first"


_SLOW = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
import numpy as np
from registry.builders.earth_engine.assembling.assemble import assemble

def patches():
    for number in range(64):
        if number == 32:
            print("half", flush=True)
            time.sleep(600)
        yield np.random.default_rng(number).integers(0, 255, (64, 64)).astype("uint8")

mixer = {"projection": {"crs": "EPSG:32610", "affine": {"doubleMatrix": [30, 0, 0, 0, -30, 0]}},
         "patchDimensions": [64, 64], "patchesPerRow": 8, "totalPatches": 64}
assemble(patches(), mixer, sys.argv[1], block=16, overwrite=True)
"""


@pytest.mark.parametrize("killed_by", [signal.SIGKILL, signal.SIGINT], ids=["SIGKILL", "SIGINT"])
@pytest.mark.parametrize("before", [None, b"mine"], ids=["new", "old"])
def test_a_process_killed_half_way_leaves_no_partial_file(
    tmp_path: Path, killed_by: signal.Signals, before: bytes | None
) -> None:
    path = tmp_path / "x.tif"
    if before is not None:
        path.write_bytes(before)
    with warm_python.Popen(
        [sys.executable, "-c", _SLOW, str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout.readline() == "half\n"
        process.send_signal(killed_by)
        process.wait(60)
    names = names_in(tmp_path)
    assert (path.read_bytes() if path.exists() else None) == before
    left = [name for name in names if name != "x.tif"]
    assert all(name.startswith("incomplete.") for name in left)
    if killed_by == signal.SIGINT:
        assert not left


_LIMITED = """
import resource, signal, sys
import numpy as np
from registry.builders.earth_engine.assembling.assemble import assemble
from registry.errors import StorageError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
mixer = {"projection": {"crs": "EPSG:32610", "affine": {"doubleMatrix": [30, 0, 0, 0, -30, 0]}},
         "patchDimensions": [64, 64], "patchesPerRow": 8, "totalPatches": 64}
random = np.random.default_rng(0)
try:
    assemble((random.integers(0, 255, (64, 64)).astype("uint8") for _ in range(64)), mixer, sys.argv[1], block=64)
except StorageError as error:
    print(error.message)
"""


@pytest.mark.parametrize("share", cases([0.3, 0.9, 0.999], everyday=1))
def test_a_full_disk_is_reported_and_leaves_no_files(tmp_path: Path, share: float) -> None:
    path = tmp_path / "x.tif"
    command = [sys.executable, "-c", _LIMITED, str(path)]
    whole = warm_python.run([*command, str(2**30)], capture_output=True, text=True, check=True)
    assert (whole.stdout, whole.stderr) == ("", "")
    size = path.stat().st_size
    path.unlink()
    limited = warm_python.run([*command, str(int(size * share))], capture_output=True, text=True, check=True)
    assert limited.stdout.startswith(f"cannot write {path}: ")
    assert names_in(tmp_path) == []


def test_invalid_file_options_are_refused(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"compress": "jpeg"},
        {"predictor": 4},
        {"predictor": 3},
        {"predictor": 2, "compress": "none"},
        {"block": 100},
        {"block": 0},
    ]
    calls: list[Any] = [partial(write, tmp_path / "x.tif", made(), **row) for row in rows]
    check_errors(GOLDEN / "invalid_file_options.txt", [*calls, partial(check_output, tmp_path / "classes.PNG")])
    check_output(tmp_path / "classes")
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("crs", ["SR-ORG:6974", "EPSG:999999", "", "north", 5.5, None], ids=str)
def test_a_crs_that_is_not_known_is_refused_with_the_mend(tmp_path: Path, crs: Any) -> None:
    with pytest.raises(UsageError) as caught:
        write(tmp_path / "x.tif", made(), crs=crs)
    assert caught.value.message.startswith(f"unknown CRS {crs!r}")
    assert caught.value.hint == "Give the CRS as a code or as WKT: crs='EPSG:32610'; --crs EPSG:32610."
    assert names_in(tmp_path) == []


def test_paths_that_cannot_be_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    for path, kind in (
        ("s3://bucket/x.tif", UsageError),
        (f"{tmp_path}/", UsageError),
        ("", UsageError),
        (tmp_path / "file" / "x.tif", StorageError),
        (tmp_path / "folder", StorageError),
    ):
        with pytest.raises(RegistryError) as caught:
            write(path, made(), overwrite=True)
        assert isinstance(caught.value, kind), caught.value
    assert names_in(tmp_path) == ["file", "folder"]


def test_without_rasterio_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rasterio", None)
    check_errors(GOLDEN / "without_rasterio.txt", [partial(write, tmp_path / "x.tif", made())])


def test_gdal_keeps_the_settings_that_it_had(tmp_path: Path) -> None:
    from rasterio.env import get_gdal_config

    before = get_gdal_config("GDAL_CACHEMAX"), get_gdal_config("GDAL_PAM_ENABLED")
    write(tmp_path / "x.tif", made())
    assert (get_gdal_config("GDAL_CACHEMAX"), get_gdal_config("GDAL_PAM_ENABLED")) == before
