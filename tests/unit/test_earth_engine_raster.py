"""Accepted and refused rasters: numpy arrays of every form, and files that rasterio reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from affine import Affine
from rasterio.enums import ColorInterp
from support.golden import check_errors

from registry.builders.earth_engine import export_image
from registry.builders.earth_engine.exporting.geotiff_raster import GeoTiffRaster
from registry.builders.earth_engine.exporting.raster import ArrayRaster, Raster, crs_text
from registry.builders.earth_engine.grid import Size, Transform
from registry.errors import FeatureError, NotStoredError, RegistryError, RegistryWarning, StorageError, UsageError

GOLDEN = Path(__file__).with_name("golden")

PLACE: dict[str, Any] = {"transform": (30, 0, 500000, 0, -30, 4100000), "crs": "EPSG:32610"}
HERE = (30, 0, 500000, 0, -30, 4100000)


def masks(raster: Raster) -> list[Any]:
    """The mask of each band; None if nothing is masked."""
    return [None if mask is None else mask.tolist() for _, mask in raster.read(0, raster.size.height)]


def message(make: Callable[[], object], kind: type[RegistryError]) -> str:
    with pytest.raises(kind) as caught:
        make()
    return caught.value.message


def test_an_array_of_rasterio_has_bands_with_the_names_of_earth_engine() -> None:
    raster = ArrayRaster(np.zeros((3, 5, 7), "int16"), **PLACE)
    assert [(band.name, band.dtype.name, band.is_array) for band in raster.bands] == [
        ("b1", "int16", False),
        ("b2", "int16", False),
        ("b3", "int16", False),
    ]
    assert raster.size == Size(width=7, height=5)
    assert isinstance(raster, Raster)
    assert [band.name for band in ArrayRaster(np.zeros((5, 7)), **PLACE).bands] == ["b1"]


def test_rows_are_read_of_every_band() -> None:
    first, second = np.arange(35).reshape(5, 7), np.ma.masked_equal(np.arange(35.0).reshape(5, 7), 9)
    raster = ArrayRaster({"a": first, "b": second}, **PLACE)
    (a, no_mask), (b, mask) = raster.read(1, 3)
    assert (a.tolist(), b.tolist(), no_mask) == (first[1:3].tolist(), second.data[1:3].tolist(), None)
    assert mask is not None
    assert np.argwhere(mask).tolist() == [[0, 2]]


@pytest.mark.parametrize(
    ("dtype", "nodata", "expected"),
    [
        ("uint8", 0, [[True, False, False]]),
        ("uint8", 300, None),
        ("uint8", -1, None),
        ("uint8", 0.5, None),
        ("uint8", float("nan"), None),
        ("float32", 0.1, [[False, True, False]]),
        ("float32", float("nan"), [[False, False, True]]),
        ("float64", -1e400, [[False, False, False]]),
        ("bool", 0, [[True, False, False]]),
    ],
)
def test_nodata_is_compared_as_the_type_of_the_band(dtype: str, nodata: float, expected: Any) -> None:
    values = {"u": [0, 2, 3], "f": [0, 0.1, float("nan")], "b": [False, True, True]}[np.dtype(dtype).kind]
    raster = ArrayRaster({"b1": np.array([values], dtype)}, nodata=nodata, **PLACE)
    assert masks(raster) == [expected]


def test_nodata_and_masks_may_be_of_some_bands_and_add_up() -> None:
    ones = np.ma.array([[1, 2]], mask=[[True, False]])
    raster = ArrayRaster(
        {"a": ones, "b": np.array([[1, 2]]), "c": [[[1], [2, 3]]]},
        nodata={"a": 2},
        mask={"b": np.array([[True, False]])},
        **PLACE,
    )
    assert masks(raster) == [[[True, True]], [[True, False]], None]
    raster = ArrayRaster({"a": ones, "b": np.array([[1, 2]])}, mask=np.array([[False, True]]), **PLACE)
    assert masks(raster) == [[[True, True]], [[False, True]]]


def test_array_bands_have_arrays_of_one_length_or_of_any() -> None:
    ragged = np.empty((1, 3), object)
    ragged[0, 0], ragged[0, 1] = np.array([1, 2], "int16"), np.array([], "float64")
    deep = np.ma.array(np.zeros((1, 3, 4), "uint8"), mask=[[[True] * 4, [False] * 4, [False] * 4]])
    raster = ArrayRaster({"r": ragged, "d": deep, "l": [[[1.5], [], (1, 2)]], "n": [[1, 2, 3]]}, **PLACE)
    assert [(band.name, band.dtype.name, band.is_array) for band in raster.bands] == [
        ("r", "int16", True),
        ("d", "uint8", True),
        ("l", "float64", True),
        ("n", "int64", False),
    ]
    assert masks(raster) == [[[False, False, True]], [[True, False, False]], None, None]


def test_a_value_that_is_not_a_raster_is_refused() -> None:
    check_errors(
        GOLDEN / "earth_engine_raster" / "a_value_that_is_not_a_raster_is_refused.txt",
        (
            partial(ArrayRaster, bands, **PLACE)
            for bands in [
                {},
                5,
                np.zeros(3),
                {"": np.zeros((2, 2))},
                {1: np.zeros((2, 2))},
                {"a": np.zeros((2, 2)), "b": np.zeros((2, 3))},
                {"a": np.zeros((2, 2), complex)},
                {"a": np.zeros((2, 2, 2, 2))},
                {"a": [[[1], [[2, 3]]]]},
                {"a": [[[1], 2]]},
                {"a": [[["x"], [2]]]},
                {"a": [[1, 2], [3]]},
                {"a": np.ma.array(np.zeros((1, 1, 2)), mask=[[[True, False]]])},
            ]
        ),
    )


def test_masks_and_nodata_of_unknown_bands_are_refused() -> None:
    one = {"a": np.zeros((2, 3)), "t": np.zeros((2, 3, 4))}
    assert message(lambda: ArrayRaster(one, nodata={"t": 1}, **PLACE), UsageError) == (
        "nodata contains 't', which is not a band with one number a pixel"
    )
    assert message(lambda: ArrayRaster(one, mask={"b": np.zeros((2, 3), bool)}, **PLACE), UsageError) == (
        "mask contains 'b', which is not a band"
    )
    assert message(lambda: ArrayRaster(one, mask=np.zeros((2, 3), "uint8"), **PLACE), UsageError) == (
        "mask of 'a': expected bool of shape (2, 3), found uint8 of shape (2, 3)"
    )


@pytest.mark.parametrize(
    ("crs", "expected"),
    [("EPSG:4326", "EPSG:4326"), (32610, "EPSG:32610"), (rasterio.CRS.from_epsg(32633), "EPSG:32633")],
    ids=["text", "number", "rasterio"],
)
def test_a_crs_is_given_in_any_form(crs: Any, expected: str) -> None:
    assert crs_text(crs) == expected


@pytest.mark.parametrize("crs", [None, "", 0, rasterio.CRS()], ids=["none", "empty", "zero", "rasterio"])
def test_a_raster_without_a_crs_is_refused(crs: Any) -> None:
    expected = "the raster has no CRS, so its place on the map is unknown"
    assert message(lambda: crs_text(crs), UsageError) == expected


@pytest.fixture
def scene(tmp_path: Path) -> Callable[..., Path]:
    """Write a GeoTIFF of the values of its bands."""

    def write(bands: list[np.ndarray[Any, Any]], *, names: tuple[str, ...] = (), mask: Any = None, **more: Any) -> Path:
        path = tmp_path / "scene.tif"
        height, width = bands[0].shape
        profile = {"crs": "EPSG:32610", "transform": Affine(*HERE), **more}
        colors = profile.pop("colors", None)
        with (
            rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
            rasterio.open(
                path, "w", driver="GTiff", width=width, height=height, count=len(bands), dtype=bands[0].dtype, **profile
            ) as data,
        ):
            if colors:
                data.colorinterp = colors
            for number, band in enumerate(bands, start=1):
                data.write(band, number)
            for number, name in enumerate(names, start=1):
                data.set_band_description(number, name)
            if mask is not None:
                data.write_mask(mask)
        return path

    return write


BAND = np.arange(35, dtype="uint8").reshape(5, 7)


def test_a_geotiff_has_its_place_and_names(scene: Callable[..., Path]) -> None:
    path = scene([BAND, BAND + 1, BAND + 2], names=("red", "", "nir"))
    with GeoTiffRaster(path) as raster:
        assert (raster.size, raster.crs) == (Size(7, 5), "EPSG:32610")
        assert raster.transform == Transform(30, 0, 500000, 0, -30, 4100000)
        assert [band.name for band in raster.bands] == ["red", "b2", "nir"]
        rows = raster.read(1, 3)
        assert [values.tolist() for values, _ in rows] == [(BAND[1:3] + place).tolist() for place in range(3)]
        assert [mask for _, mask in rows] == [None, None, None]


@pytest.mark.parametrize(
    ("wanted", "names", "first"),
    [
        (["nir", "red"], ["nir", "red"], 2),
        ([3, "b2"], ["nir", "b2"], 2),
        ({"a": 2, "b": "red", "c": 2}, ["a", "b", "c"], 1),
        ("red", ["red"], 0),
    ],
    ids=["names", "numbers", "new names", "one"],
)
def test_bands_are_chosen_and_named(scene: Callable[..., Path], wanted: Any, names: list[str], first: int) -> None:
    with GeoTiffRaster(scene([BAND, BAND + 1, BAND + 2], names=("red", "", "nir")), bands=wanted) as raster:
        assert [band.name for band in raster.bands] == names
        assert raster.read(0, 1)[0].values[0, 0] == first


def test_bands_that_are_not_there_or_doubled_are_refused(scene: Callable[..., Path]) -> None:
    path = scene([BAND, BAND, BAND], names=("B4", "B4", ""))
    for wanted, expected in (
        (None, "two bands are called 'B4', but each feature needs its own name"),
        (["B4"], "2 bands are called 'B4': 1, 2"),
        (["B5"], f"{path} has no band 'B5'"),
        ([0], f"{path} has no band 0"),
        ([4], f"{path} has no band 4"),
        ([True], f"{path} has no band True"),
        ([], "no band to export"),
    ):
        assert message(lambda wanted=wanted: GeoTiffRaster(path, bands=wanted), UsageError) == expected  # type: ignore[misc]


def test_bands_of_a_file_are_the_elements_of_an_array_band(scene: Callable[..., Path]) -> None:
    path = scene([BAND, BAND + 1, BAND + 2], names=("m1", "m2", "dem"), nodata=3)
    with GeoTiffRaster(path, bands={"ndvi": ["m2", 1], "dem": "dem"}) as raster:
        assert [(band.name, band.is_array) for band in raster.bands] == [("ndvi", True), ("dem", False)]
        (series, mask), (dem, _) = raster.read(0, 1)
        assert series[0].tolist() == [[one + 1, one] for one in range(7)]
        assert mask.tolist() == [[False, False, True, True, False, False, False]]
        assert dem[0, 0] == 2


def test_nodata_masks_and_alpha_mask_pixels(scene: Callable[..., Path]) -> None:
    with GeoTiffRaster(scene([BAND, BAND + 1], nodata=3), nodata={"b1": 0}) as raster:
        one, other = masks(raster)
        assert np.argwhere(one).tolist() == [[0, 0], [0, 3]]
        assert np.argwhere(other).tolist() == [[0, 2]]
    with GeoTiffRaster(scene([BAND, BAND], mask=(BAND != 9))) as raster:
        assert [np.argwhere(mask).tolist() for mask in masks(raster)] == [[[1, 2]], [[1, 2]]]
    colors = (ColorInterp.gray, ColorInterp.alpha)
    path = scene([BAND, np.minimum(BAND, 1)], colors=colors, photometric="minisblack", alpha=True)
    with GeoTiffRaster(path) as raster:
        assert [band.name for band in raster.bands] == ["b1"]
        assert np.argwhere(masks(raster)[0]).tolist() == [[0, 0]]
    with GeoTiffRaster(path, bands=["b2"]) as raster:
        assert raster.read(0, 1)[0].values.tolist() == [[0, 1, 1, 1, 1, 1, 1]]


def test_a_fourth_band_of_bytes_is_an_alpha_band_unless_it_is_described(scene: Callable[..., Path]) -> None:
    bands = [BAND + 1, BAND + 1, BAND + 1, np.minimum(BAND, 1)]
    path = scene(bands, names=("red", "green", "blue", "nir"))
    with GeoTiffRaster(path) as raster:
        assert [band.name for band in raster.bands] == ["red", "green", "blue", "nir"]
        assert masks(raster) == [None, None, None, None]
    with GeoTiffRaster(scene(bands)) as raster:
        assert [band.name for band in raster.bands] == ["b1", "b2", "b3"]
        assert np.argwhere(masks(raster)[0]).tolist() == [[0, 0]]
    with GeoTiffRaster(scene(bands, names=("red", "green", "blue", "Alpha"))) as raster:
        assert [band.name for band in raster.bands] == ["red", "green", "blue"]


def test_nan_is_data_unless_it_is_nodata(scene: Callable[..., Path]) -> None:
    band = np.array([[1, np.nan]], "float32")
    with GeoTiffRaster(scene([band])) as raster:
        assert masks(raster) == [None]
    with GeoTiffRaster(scene([band], nodata=float("nan"))) as raster:
        assert masks(raster) == [[[False, True]]]


def test_an_open_dataset_stays_open_and_the_cache_is_as_before(scene: Callable[..., Path]) -> None:
    from rasterio.env import get_gdal_config

    path = scene([BAND])
    with rasterio.open(path) as data:
        before = get_gdal_config("GDAL_CACHEMAX")
        with GeoTiffRaster(data) as raster:
            assert raster.read(0, 5)[0].values.tolist() == BAND.tolist()
            assert get_gdal_config("GDAL_CACHEMAX") <= 2**26
        assert get_gdal_config("GDAL_CACHEMAX") == before
        assert data.read(1).tolist() == BAND.tolist()
    assert message(lambda: GeoTiffRaster(data), UsageError) == f"{path} is closed"


def test_a_file_without_a_place_is_refused_unless_one_is_given(scene: Callable[..., Path]) -> None:
    with pytest.warns(rasterio.errors.NotGeoreferencedWarning):
        path = scene([BAND], crs=None, transform=None)
    assert message(lambda: GeoTiffRaster(path), UsageError) == (
        f"{path} has no transform, so its place on the map is unknown"
    )
    assert message(lambda: GeoTiffRaster(path, transform=HERE), UsageError) == (
        "the raster has no CRS, so its place on the map is unknown"
    )
    with GeoTiffRaster(path, transform=[1, 0, 0, 0, 1, 0], crs=4326) as raster:
        assert (raster.crs, raster.transform) == ("EPSG:4326", Transform(1, 0, 0, 0, 1, 0))


def test_files_that_cannot_be_read_are_refused(scene: Callable[..., Path], tmp_path: Path) -> None:
    missing, text = tmp_path / "none.tif", tmp_path / "text.tif"
    assert message(lambda: GeoTiffRaster(missing), NotStoredError) == f"cannot read {missing}: the file does not exist"
    text.write_text("no raster")
    assert message(lambda: GeoTiffRaster(text), StorageError).startswith(f"cannot read {text}: ")
    whole = scene([np.arange(300 * 300, dtype="uint32").reshape(300, 300) * 2654435761])
    whole.write_bytes(whole.read_bytes()[:-200_000])
    with GeoTiffRaster(whole) as raster:
        assert message(lambda: raster.read(0, 300), StorageError).startswith(f"cannot read {whole}: ")


def test_a_band_marked_as_alpha_that_holds_data_is_reported_and_can_be_named(scene: Callable[..., Path]) -> None:
    colors = (ColorInterp.gray, ColorInterp.alpha)
    path = scene([BAND, BAND], colors=colors, photometric="minisblack", alpha=True)
    expected = (
        f"band 2 of {path} is marked as alpha, so it masks the other bands where it is 0 and is "
        f"not written, but it has more than two values. If it is data, such as near infrared, "
        f"name the bands: bands=[1, 2]; --band 1 --band 2"
    )
    with GeoTiffRaster(path) as raster:
        with pytest.warns(RegistryWarning) as caught:
            raster.read(0, 3)
        raster.read(3, 5)  # once is enough
    assert [str(one.message) for one in caught] == [expected]
    with GeoTiffRaster(path, bands=[1, 2]) as raster:
        assert masks(raster) == [None, None]
        assert all(np.array_equal(values, BAND) for values, _ in raster.read(0, raster.size.height))


@pytest.mark.parametrize("crs", ["hello", "EPSG:99999999"])
def test_an_invalid_crs_is_refused_before_anything_is_written(scene: Callable[..., Path], crs: str) -> None:
    assert message(lambda: GeoTiffRaster(scene([BAND]), crs=crs), UsageError).startswith(f"unknown CRS {crs!r}")


def test_a_crs_of_an_authority_that_only_earth_engine_knows_is_kept(scene: Callable[..., Path]) -> None:
    with GeoTiffRaster(scene([BAND]), crs="SR-ORG:6974") as raster:
        assert raster.crs == "SR-ORG:6974"
    with GeoTiffRaster(scene([BAND]), crs="32610") as raster:
        assert raster.crs == "EPSG:32610"


def test_a_transform_in_the_order_of_gdal_is_refused_with_the_numbers_reordered() -> None:
    gdal = (500000, 30, 0, 4100000, 0, -30)
    with pytest.raises(UsageError) as caught:
        ArrayRaster({"b1": BAND}, transform=gdal, crs="EPSG:32610")
    assert caught.value.message == "(500000.0, 30.0, 0.0, 4100000.0, 0.0, -30.0) is a transform in GDAL's order"
    assert caught.value.hint == (
        "Use the order of Earth Engine, affine and rasterio: transform=(30, 0, 500000, 0, "
        "-30, 4100000); --transform 30,0,500000,0,-30,4100000."
    )


def test_a_geotiff_of_complex_integers_is_refused_by_its_band(tmp_path: Path) -> None:
    place = {"transform": rasterio.Affine(30, 0, 500000, 0, -30, 4100000), "crs": "EPSG:32610"}
    path = tmp_path / "x.tif"
    rasterio.open(path, "w", driver="GTiff", width=4, height=4, count=1, dtype="complex_int16", **place).close()
    with pytest.raises(FeatureError, match="band 'b1': expected booleans, integers or floats, found complex64"):
        export_image(path, tmp_path, "p", patch_dimensions=2)


def test_bands_of_several_types_and_masks_are_read_in_their_order(tmp_path: Path) -> None:
    place = {"transform": rasterio.Affine(30, 0, 500000, 0, -30, 4100000), "crs": "EPSG:32610"}
    path = tmp_path / "x.vrt"
    for name, dtype, nodata in (("a", "uint8", 3), ("b", "float32", None), ("c", "uint8", None)):
        with rasterio.open(
            tmp_path / f"{name}.tif",
            "w",
            driver="GTiff",
            width=4,
            height=4,
            count=1,
            dtype=dtype,
            nodata=nodata,
            **place,
        ) as file:
            file.write(np.arange(16, dtype=dtype).reshape(1, 4, 4) + ord(name) - ord("a"))
    bands = "".join(
        f'<VRTRasterBand dataType="{dtype}" band="{number}">{nodata}'
        f'<SimpleSource><SourceFilename relativeToVRT="1">{name}.tif</SourceFilename></SimpleSource></VRTRasterBand>'
        for number, (name, dtype, nodata) in enumerate(
            [("a", "Byte", "<NoDataValue>3</NoDataValue>"), ("b", "Float32", ""), ("c", "Byte", "")], start=1
        )
    )
    path.write_text(
        '<VRTDataset rasterXSize="4" rasterYSize="4"><SRS>EPSG:32610</SRS>'
        f"<GeoTransform>500000,30,0,4100000,0,-30</GeoTransform>{bands}</VRTDataset>"
    )
    with GeoTiffRaster(path, bands={"last": 3, "first": 1, "middle": 2}) as raster:
        last, first, middle = raster.read(1, 3)
    assert (last.values[0, 0], first.values[0, 0], middle.values[0, 0]) == (6, 4, 5)
    assert [one.values.dtype.name for one in (last, first, middle)] == ["uint8", "uint8", "float32"]
    assert last.mask is None
    assert middle.mask is None
    with GeoTiffRaster(path) as raster:
        mask = raster.read(0, 1)[0].mask
    assert mask.tolist() == [[False, False, False, True]]


@pytest.mark.parametrize("dtype", ["int16", "float32"])
def test_only_the_exact_nodata_value_is_masked(dtype: str) -> None:
    values = np.array([[-9, -8, -7]], dtype)
    raster = ArrayRaster({"b": values}, transform=(1, 0, 0, 0, -1, 0), crs="EPSG:4326", nodata=-8)
    mask = raster.read(0, 1)[0].mask
    assert mask.tolist() == [[False, True, False]]
