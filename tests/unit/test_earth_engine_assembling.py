"""Assembles patches and a mixer into a raster: bands, dtypes, forms of input, and refused input."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.golden import check_errors

from registry.builders.earth_engine.assembling.assemble import assemble
from registry.builders.earth_engine.exporting.image import export_image
from registry.errors import (
    CorruptExampleError,
    FeatureError,
    RegistryError,
    RegistryWarning,
    ShardMismatchError,
    UsageError,
)
from registry.tfrecord import RecordWriter
from registry.tfrecord.window import WINDOW_BYTES
from registry.wire import encode_example, encode_sequence_example

GOLDEN = Path(__file__).parent / "golden" / "earth_engine_assembling"
MATRIX = [30.0, 0.0, 500000.0, 0.0, -30.0, 4100000.0]


def mixer_of(patch: tuple[int, int] = (2, 2), per_row: int = 3, total: int = 6) -> dict[str, Any]:
    return {
        "projection": {"crs": "EPSG:32610", "affine": {"doubleMatrix": MATRIX}},
        "patchDimensions": list(patch),
        "patchesPerRow": per_row,
        "totalPatches": total,
    }


MIXER = mixer_of()
RASTER = np.arange(24, dtype=np.float32).reshape(4, 6)
PATCHES = [RASTER[row : row + 2, column : column + 2] for row in (0, 2) for column in (0, 2, 4)]


def write(path: Path, records: list[bytes]) -> Path:
    with path.open("wb") as file:
        writer = RecordWriter(file)
        for record in records:
            writer.write(record)
    return path


def flat(values: Any, dtype: str = "float32") -> npt.NDArray[Any]:
    return np.asarray(values, dtype).reshape(-1)


@pytest.fixture
def records() -> list[bytes]:
    return [encode_example({"b1": flat(patch)}) for patch in PATCHES]


def refuse(name: str, calls: Iterable[Callable[[], Any]], tmp_path: Path | None = None, **options: Any) -> None:
    """Compare the errors of these calls with those in the golden file of a test."""
    check_errors(GOLDEN / f"{name}.txt", calls, folder=tmp_path, **options)


FORMS: dict[str, Any] = {
    "patches (H, W)": lambda: PATCHES,
    "an iterator": lambda: iter(PATCHES),
    "patches (1, H, W)": lambda: [patch[None] for patch in PATCHES],
    "batches (N, 1, H, W)": lambda: [np.stack(PATCHES[:4])[:, None], np.stack(PATCHES[4:])[:, None]],
    "one array (N, H, W)": lambda: np.stack(PATCHES),
    "one array (N, 1, H, W)": lambda: np.stack(PATCHES)[:, None],
    "mappings of (H, W)": lambda: [{"b1": patch} for patch in PATCHES],
    "a mapping of (N, H, W)": lambda: {"b1": np.stack(PATCHES)},
    "mappings of (N, H, W)": lambda: [{"b1": np.stack(PATCHES[:5])}, {"b1": np.stack(PATCHES[5:])}],
    "lists": lambda: [patch.tolist() for patch in PATCHES],
    "with a margin": lambda: [np.pad(patch, ((1, 1), (2, 2)), constant_values=9) for patch in PATCHES],
}


@pytest.mark.parametrize("form", FORMS)
def test_arrays_of_every_form_make_the_raster(form: str) -> None:
    assembly = assemble(FORMS[form](), MIXER)
    assert [band.name for band in assembly.bands] == ["b1"]
    assert assembly.to_arrays()["b1"].tolist() == RASTER.tolist()


def test_the_layout_names_the_order_of_the_axes() -> None:
    last = [patch[:, :, None] * [1, 2] for patch in PATCHES]
    for items in (last, [np.stack(last)], [{"b1": patch[..., :1], "b2": patch[..., 1:]} for patch in last]):
        assert assemble(items, MIXER, layout="HWC").to_array().tolist() == [RASTER.tolist(), (RASTER * 2).tolist()]
    assert assemble([np.stack(PATCHES)], MIXER, layout="HW").to_array().tolist() == [RASTER.tolist()]


class Tensor:
    """The interface that tensors of other frameworks share."""

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self._values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> npt.NDArray[Any]:
        return self._values


def test_tensors_of_other_frameworks_are_taken() -> None:
    assert assemble(map(Tensor, PATCHES), MIXER).to_array().tolist() == [RASTER.tolist()]


@pytest.mark.parametrize("given", ["document", "text", "path", "kept"])
def test_a_mixer_is_taken_in_every_form(tmp_path: Path, given: str) -> None:
    path = tmp_path / "any-mixer.json"
    path.write_text(json.dumps(MIXER))
    kept = {"mixer": MIXER, "kernel_size": [2, 2], "bands": [{"name": "b1", "kind": "float", "depth": 1}]}
    forms = {
        "document": MIXER,
        "text": json.dumps(MIXER),
        "path": path,
        "kept": {"earth_engine": {"splits": {"train": kept}}},
    }
    assert assemble(PATCHES, forms[given]).to_array().tolist() == [RASTER.tolist()]


def test_what_a_version_keeps_tells_the_order_of_bands_the_kernel_and_depths(tmp_path: Path) -> None:
    mixer = mixer_of((2, 1), 1, 1)
    record = encode_example({"z": flat([0, 0, 5, 6, 0, 0]), "a": flat([1, 2, 3, 4])})
    path = write(tmp_path / "p.bin", [record])
    bands = [{"name": "z", "kind": "float", "depth": 1}, {"name": "a", "kind": "float", "depth": 2}]
    kept = {"mixer": mixer, "kernel_size": [1, 2], "bands": bands}
    for document in (kept, {"splits": {"train": kept}}, {"splits": {"train": kept, "test": {"mixer": None}}}):
        assembly = assemble([path], document, split="train")
        assert [band.name for band in assembly.bands] == ["z", "a_0", "a_1"]
        assert assembly.to_array().tolist() == [[[5, 6]], [[1, 2]], [[3, 4]]]


def test_files_are_found_by_folder_file_prefix_and_list(tmp_path: Path, records: list[bytes]) -> None:
    first, second = write(tmp_path / "p-00000.tfrecord", records[:4]), write(tmp_path / "p-00001.tfrecord", records[4:])
    mixer = tmp_path / "p-mixer.json"
    mixer.write_text(json.dumps(MIXER))
    other = write(tmp_path / "q-00000.tfrecord", records)
    for source, prefix in (
        (tmp_path, "p"),
        (first, None),
        (second, None),
        (mixer, None),
        (tmp_path / "p", None),
        (tmp_path / "p-", None),
        ([first, second], None),
        ([mixer, first, second], None),
        ((str(first), str(second)), None),
    ):
        assert assemble(source, prefix=prefix).to_array().tolist() == [RASTER.tolist()]
    assert assemble(other, mixer).to_array().tolist() == [RASTER.tolist()]


def test_an_assembly_of_files_is_read_again_and_one_of_an_iterator_once(tmp_path: Path, records: list[bytes]) -> None:
    again = assemble([write(tmp_path / "p.bin", records)], MIXER)
    assert again.to_array().tolist() == again.to_array().tolist()
    listed = assemble(PATCHES, MIXER)
    assert listed.to_array().tolist() == listed.to_array().tolist()
    once = assemble(iter(PATCHES), MIXER)
    once.to_array()
    with pytest.raises(UsageError, match=r"^the patches came from an iterator, which was already read(?m:$)"):
        once.to_array()


def test_rows_come_one_row_of_patches_at_a_time() -> None:
    taken: list[int] = []

    def patches() -> Iterator[Any]:
        for number, patch in enumerate(PATCHES):
            taken.append(number)
            yield patch

    assembly = assemble(patches(), MIXER)
    assert taken == [0]  # the bands are known by the first
    steps: list[int] = []
    rows = assembly.rows(steps.append)
    first = next(rows)
    assert (first.start, first.bands["b1"].tolist(), taken, steps) == (0, RASTER[:2].tolist(), [0, 1, 2], [3])
    second = next(rows)
    assert (second.start, second.bands["b1"].tolist(), steps) == (2, RASTER[2:].tolist(), [3, 3])


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("uint8", "uint8"),
        ("bool", "uint8"),
        ("int64", "int32"),
        ("int16", "int16"),
        ("uint16", "uint16"),
        ("float16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
    ],
)
def test_arrays_keep_their_dtype_if_a_raster_has_it(dtype: str, expected: str) -> None:
    assembly = assemble([np.ones((2, 2), dtype)] * 6, MIXER)
    assert str(assembly.bands[0].dtype) == expected
    assert (assembly.to_array() == 1).all()


def test_declared_dtypes_must_hold_the_values_of_the_records(tmp_path: Path) -> None:
    values = {
        "a": flat([-7] * 4, "int64"),
        "b": flat([2**40] * 4, "int64"),
        "c": flat([3] * 4),
        "d": [bytes([200] * 4)],
    }
    path = write(tmp_path / "p.bin", [encode_example(values)])
    mixer = mixer_of((2, 2), 1, 1)
    assembly = assemble([path], mixer, dtypes={"a": "int16", "b": np.int64, "c": "uint8"})
    assert [str(band.dtype) for band in assembly.bands] == ["int16", "int64", "uint8", "uint8"]
    assert str(assembly.dtype) == "int64"
    assert assembly.to_array()[:, 0, 0].tolist() == [-7, 2**40, 3, 200]
    assert assemble([path], mixer, bands=["a", "d"], dtypes="float32").to_array()[:, 0, 0].tolist() == [-7, 200]


def test_a_number_that_does_not_fit_is_named() -> None:
    def store(value: Any, dtype: str | None = None) -> None:
        patches = [{"p": np.full((2, 2), 0.5), "b1": np.zeros((2, 2), value.dtype)} for _ in range(6)]
        patches[4]["b1"][1, 0] = value
        assemble(patches, MIXER, dtypes={"b1": dtype} if dtype else None).to_arrays()

    cases: list[Any] = [
        (np.int64(2**31),),
        (np.int64(-(2**31) - 1),),
        (np.int64(-1), "uint8"),
        (np.float32(0.5), "uint8"),
        (np.float32("nan"), "int16"),
        (np.float32("inf"), "int64"),
        (np.float32(2**63), "int64"),
        (np.float64(1e300), "float32"),
        (np.int64(2**24 + 1), "float32"),
        (np.int64(2**53 + 1), "float64"),
        (np.int64(2**63 - 1), "float64"),
        (np.uint64(2**64 - 1), "int64"),
        (np.uint64(2**64 - 1), "float32"),
    ]
    calls = (partial(store, *case) for case in cases)
    refuse("a_number_that_does_not_fit_is_named", calls, details=("band", "value", "dtype"))


def test_numbers_at_the_edge_of_a_dtype_fit() -> None:
    for value, dtype in (
        (np.int64(2**31 - 1), "int32"),
        (np.float32(255), "uint8"),
        (np.float64(-(2.0**63)), "int64"),
        (np.int64(2**53), "float64"),
        (np.int64(-(2**63)), "float32"),
    ):
        found = assemble([np.full((2, 2), value)] * 6, MIXER, dtypes=dtype).to_array()
        assert int(found[0, 0, 0]) == int(value)


def test_bands_of_several_dtypes_share_one_that_holds_them_all() -> None:
    patch = {"a": np.uint8([[255, 0], [1, 2]]), "b": np.int16([[-300, 0], [0, 0]]), "c": np.float32([[0.5, 0], [0, 0]])}
    assembly = assemble([patch] * 6, MIXER)
    assert str(assembly.dtype) == "float32"
    assert assembly.to_array()[:, 0, 0].tolist() == [255, -300, 0.5]
    wide = assemble([{"a": np.int64([[2**53 + 1] * 2] * 2), "b": patch["c"]}] * 6, MIXER, dtypes={"a": "int64"})
    assert str(wide.dtype) == "float64"
    with pytest.raises(FeatureError, match=r"^band 'a' contains 9007199254740993, which float64 cannot store(?m:$)"):
        wide.to_array()


def test_array_bands_become_a_band_for_each_element(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    mixer = mixer_of((2, 2), 1, 1)
    path = write(tmp_path / "p.bin", [encode_example({"ndvi": flat(values), "b": flat([9] * 4)})])
    by_record = assemble([path], mixer, tensor_depths={"ndvi": 3})
    by_array = assemble([{"ndvi": values, "b": np.full((2, 2), 9, "f4")}], mixer, tensor_depths={"ndvi": 3})
    batch = {"ndvi": values[None], "b": np.full((1, 2, 2), 9, "f4")}
    for assembly in (by_record, by_array, assemble(batch, mixer, tensor_depths={"ndvi": 3})):
        arrays = assembly.to_arrays()
        assert set(arrays) == {"b", "ndvi_0", "ndvi_1", "ndvi_2"}
        assert [arrays[f"ndvi_{number}"].tolist() for number in range(3)] == values.tolist()
    named = assemble([path], mixer, bands=["ndvi"], tensor_depths={"ndvi": 3}, names=["may", "june", "july"])
    assert [band.name for band in named.bands] == ["may", "june", "july"]


def test_a_collapsed_export_comes_back_with_its_depth_and_names(tmp_path: Path) -> None:
    bands = {"red": RASTER.astype("u1"), "green": RASTER.astype("i2") * 2}
    options = {"patch_dimensions": 2, "collapse_bands": True, "encoding": "native"}
    export_image(bands, tmp_path, "p", transform=MATRIX, crs="EPSG:32610", **options)
    assembly = assemble(tmp_path, tensor_depths={"red": 2}, names=["red", "green"])
    assert assembly.to_array().tolist() == [RASTER.tolist(), (RASTER * 2).tolist()]


def test_an_export_of_pixels_comes_back(tmp_path: Path) -> None:
    series = np.arange(48, dtype=np.float32).reshape(4, 6, 2)
    export_image(
        {"b": RASTER, "ndvi": series},
        tmp_path,
        "p",
        transform=MATRIX,
        crs="EPSG:32610",
        patch_dimensions=2,
        sequence_data=True,
        tensor_depths={"ndvi": 2},
    )
    arrays = assemble(tmp_path).to_arrays()
    assert arrays["b"].tolist() == RASTER.tolist()
    assert np.stack([arrays["ndvi_0"], arrays["ndvi_1"]], -1).tolist() == series.tolist()


def test_pixels_of_scalar_bands_only_come_back(tmp_path: Path) -> None:
    values = {"class": RASTER.astype("u1")}
    options = {"patch_dimensions": 2, "sequence_data": True, "encoding": "native"}
    export_image(values, tmp_path, "p", transform=MATRIX, crs="EPSG:32610", **options)
    for sequence in (None, True):
        found = assemble(tmp_path, sequence=sequence).to_arrays()["class"]
        assert (found.dtype, found.tolist()) == (np.uint8, RASTER.tolist())


def test_series_of_unequal_length_cannot_become_a_raster(tmp_path: Path) -> None:
    records = [encode_sequence_example({}, {"t": [flat([1.0])] * length}) for length in (2, 2, 3, 2)]
    paths = [write(tmp_path / "p.bin", records), write(tmp_path / "q.bin", records[:2])]
    calls = (partial(assemble, [path], mixer_of((2, 2), 1, 1)) for path in paths)
    refuse("series_of_unequal_length_cannot_become_a_raster", calls, tmp_path)


def test_too_few_and_too_many_patches_are_counted(tmp_path: Path, records: list[bytes]) -> None:
    ends = {"all": 6, "four": 4, "one": 1, "none": 0}
    whole, first, second, empty = (write(tmp_path / f"{name}.bin", records[:end]) for name, end in ends.items())
    with pytest.raises(ShardMismatchError) as caught:
        assemble([first, second], MIXER).to_array()
    assert caught.value.details == {"expected": 6, "found": 5, "files": [[str(first), 4], [str(second), 1]]}
    calls = (
        lambda: assemble([first, second], MIXER).to_array(),
        lambda: assemble([first, whole], MIXER).to_array(),
        lambda: assemble([empty], mixer_of((1, 1), 1, 1)),
        lambda: assemble(PATCHES[:3], MIXER).to_array(),
        lambda: assemble([*PATCHES, PATCHES[0]], MIXER).to_array(),
        lambda: assemble([], MIXER),
    )
    refuse("too_few_and_too_many_patches_are_counted", calls)


def test_a_mixer_of_more_pixels_than_files_can_hold_allocates_no_memory(tmp_path: Path, records: list[bytes]) -> None:
    path = write(tmp_path / "p.bin", records)
    huge = assemble([np.zeros((2**16, 2, 2))], mixer_of((2, 2), 1, 2**31))
    calls = (
        lambda: assemble([path], mixer_of((2**31, 2**31), 2**31, 2**31)),
        huge.to_array,
        lambda: huge.write_geotiff(tmp_path / "x.tif"),
    )
    refuse("a_mixer_of_more_pixels_than_files_can_hold_allocates_no_memory", calls)


def test_patches_of_unequal_size_kind_or_bands_are_named(tmp_path: Path, records: list[bytes]) -> None:
    def read(bands: dict[str, Any]) -> None:
        path = write(tmp_path / "p.bin", [*records[:4], encode_example(bands), records[5]])
        assemble([path], MIXER).to_array()

    four = flat([0] * 4)
    rows: list[Any] = [{"b1": flat([0] * 16)}, {"b1": [b"1234"]}, {"b2": four}, {"b1": four, "b2": four}]
    calls: list[Callable[[], Any]] = [partial(read, bands) for bands in rows]
    calls.append(lambda: assemble([*PATCHES[:5], PATCHES[5][:, :1]], MIXER).to_array())
    refuse("patches_of_unequal_size_kind_or_bands_are_named", calls, tmp_path)


def test_the_mixer_of_another_export_is_detected_by_its_number_of_patches(tmp_path: Path, records: list[bytes]) -> None:
    path = write(tmp_path / "p.bin", records)
    calls = (
        lambda: assemble([path], mixer_of((4, 4))),
        lambda: assemble([path], mixer_of((3, 1))),
        lambda: assemble(PATCHES, mixer_of((4, 4))),
    )
    refuse("the_mixer_of_another_export_is_detected_by_its_number_of_patches", calls, tmp_path)


def test_margins_that_cannot_be_derived_must_be_given(tmp_path: Path) -> None:
    path = write(tmp_path / "p.bin", [encode_example({"a": flat([0] * 16), "b": flat([0] * 4)})])
    mixer = mixer_of((2, 2), 1, 1)
    refuse("margins_that_cannot_be_derived_must_be_given", [lambda: assemble([path], mixer)], tmp_path)
    bands = assemble([path], mixer, tensor_depths={"a": 4}).bands
    assert [band.name for band in bands] == ["a_0", "a_1", "a_2", "a_3", "b"]
    assert assemble([path], mixer, kernel_size=2).to_array().shape == (2, 2, 2)


def test_one_band_has_a_margin_and_another_has_none_if_no_depth_explains_the_sizes(tmp_path: Path) -> None:
    tile = np.arange(25, dtype=np.float32).reshape(5, 5)
    bands = {"prob": flat(tile), "class": [bytes(range(9))]}
    path = write(tmp_path / "p.bin", [encode_example(bands)])
    assembled = assemble([path], mixer_of((3, 3), 1, 1)).to_arrays()
    assert assembled["class"].tolist() == np.arange(9).reshape(3, 3).tolist()
    assert assembled["prob"].tolist() == tile[1:4, 1:4].tolist()


def test_a_tile_with_a_pixel_more_on_the_right_is_warned_of(tmp_path: Path) -> None:
    tile = np.arange(25, dtype=np.float32).reshape(5, 5)
    path = write(tmp_path / "p.bin", [encode_example({"a": flat(tile)})])
    with pytest.warns(RegistryWarning) as caught:
        found = assemble([path], mixer_of((2, 2), 1, 1), kernel_size=3).to_array()
    assert found.tolist() == [tile[1:3, 1:3].tolist()]
    assert [(str(one.message), one.filename) for one in caught] == [
        (
            (
                "the tiles of 'a' are 5 x 5, one pixel more than with equal margins on both sides; it "
                "is assumed to be on the right and at the bottom"
            ),
            __file__,
        )
    ]


def test_damaged_files_are_named_with_the_record(tmp_path: Path, records: list[bytes]) -> None:
    path = write(tmp_path / "p.bin", [*records[:2], b"\xff\xff\xff", *records[3:]])
    with pytest.raises(CorruptExampleError) as caught:
        assemble([path], MIXER).to_array()
    assert caught.value.message.startswith(f"{path}: record 2 (patch 2): these 3 bytes are not a tf.train.Example")
    cut = tmp_path / "cut.bin"
    cut.write_bytes(write(tmp_path / "all.bin", records).read_bytes()[:-3])
    two = write(tmp_path / "two.bin", [*records[:2], encode_example({"b1": [b"1", b"2"]}), *records[3:]])
    calls = (partial(lambda path: assemble([path], MIXER).to_array(), path) for path in (cut, two))
    refuse("damaged_files_are_named_with_the_record", calls, tmp_path)


def test_options_that_contradict_the_patches_are_refused() -> None:
    options: list[dict[str, Any]] = [
        {"bands": []},
        {"bands": ["b1", "b1"]},
        {"names": ["x", "y"]},
        {"dtypes": {"b2": "uint8"}},
        {"dtypes": "complex64"},
        {"dtypes": "unit8"},
        {"tensor_depths": {"b7": 2}},
        {"nodata": 1e39},
        {"nodata": "none"},
        {"nodata": -1, "dtypes": "uint8"},
        {"nodata": float("nan"), "dtypes": "int16"},
        {"kernel_size": -1},
        {"layout": "NHWC"},
        {"prefix": "p"},
    ]
    calls = (partial(assemble, PATCHES, MIXER, **row) for row in options)
    refuse("options_that_contradict_the_patches_are_refused", calls)


def test_arrays_with_the_wrong_shape_of_patches_are_refused() -> None:
    unequal = {"a": np.zeros((2, 2, 2)), "b": np.zeros((2, 2))}
    sources: list[Any] = [[np.zeros(4)], [np.array(["a"])], [{}], [unequal], 7]
    calls = [partial(assemble, source, MIXER) for source in sources]
    calls.append(partial(assemble, [np.zeros((2, 2, 2))], MIXER, bands=["a"]))
    refuse("arrays_with_the_wrong_shape_of_patches_are_refused", calls)
    for source in (["text"], [[[1, 2], [3]]]):  # their messages name a place and quote NumPy
        with pytest.raises(RegistryError):
            assemble(source, MIXER)


def test_an_invalid_mixer_is_refused(tmp_path: Path, records: list[bytes]) -> None:
    files = [write(tmp_path / "p.bin", records)]
    several: Any = {"splits": {"a": {"mixer": MIXER}, "b": {"mixer": None}}}
    rows: list[tuple[Any, ...]] = [(None,), (several,), (several, "c"), (several, "b"), (5,), ("{}",)]
    calls = (partial(lambda mixer, split=None: assemble(files, mixer, split=split), *row) for row in rows)
    refuse("an_invalid_mixer_is_refused", calls)


def test_the_mixer_of_a_list_is_the_one_whose_prefix_the_first_file_has(tmp_path: Path, records: list[bytes]) -> None:
    path = write(tmp_path / "area-00000.tfrecord", records)
    (tmp_path / "area-mixer.json").write_text(json.dumps(MIXER))
    (tmp_path / "other-mixer.json").write_text("{}")
    assert assemble([path]).to_array().tolist() == [RASTER.tolist()]
    shutil.copy(tmp_path / "area-mixer.json", tmp_path / "area2-mixer.json")
    assert assemble([path]).to_array().tolist() == [RASTER.tolist()]
    with pytest.raises(UsageError, match=r"^the list contains no TFRecord file(?m:$)"):
        assemble([tmp_path / "area-mixer.json"])


def test_memory_is_a_row_of_patches(tmp_path: Path) -> None:
    patch, per_row, num_rows = np.ones((32, 32), np.float32), 16, 100
    record = encode_example({"b": flat(patch)})
    path = write(tmp_path / "p.bin", [record] * (per_row * num_rows))
    assembly = assemble([path], mixer_of((32, 32), per_row, per_row * num_rows))
    row = patch.nbytes * per_row
    sum(1 for _ in assembly.rows())  # load lazy modules once
    tracemalloc.start()
    try:
        for _ in assembly.rows():
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    window = 5 * WINDOW_BYTES  # of the file, while it is moved on
    assert peak < 2 * row + window < row * num_rows
