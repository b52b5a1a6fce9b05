"""Patches of a version, of a pin and of plain files: their values and places, in any order."""

import json
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.earth_engine_samples import CRS, MATRIX, mixer_of, ramp, tiles_of, write_image
from support.golden import check_errors

from registry import load_pin
from registry.api import Catalog, Dataset
from registry.builders.earth_engine.grid import Size, Transform, Window
from registry.builders.earth_engine.mixer import Mixer
from registry.builders.earth_engine.patch_places import places_of_split
from registry.builders.earth_engine.patch_reader import Patches
from registry.builders.earth_engine.stored.importing import import_export
from registry.errors import ShardMismatchError, UsageError
from registry.features import FeaturesDict, Tensor
from registry.order import ReadConfig

GOLDEN = Path(__file__).with_name("golden")

BANDS = {
    "class": ramp(12, 6, "int16"),
    "grey": ramp(12, 6, "uint8"),
    "ndvi": np.stack([ramp(12, 6), ramp(12, 6) + 0.5]),
}
PATCH, MARGIN = (4, 2), (1, 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_image(tmp_path / "exports", "p", BANDS, PATCH, margin=MARGIN, native=True, shards=4)


@pytest.fixture
def dataset(catalog: Catalog, folder: Path) -> Dataset:
    import_export(catalog, folder, kernel_size=[2, 4])
    return catalog.dataset("p")


def expected(index: int, *, margin: bool = False) -> npt.NDArray[Any]:
    tile = tiles_of(BANDS, PATCH, MARGIN if margin else (0, 0))[index]
    return np.concatenate([tile["class"][None], tile["grey"][None], tile["ndvi"]]).astype(np.float32)


def test_patches_come_in_the_order_of_the_export_with_their_places(dataset: Dataset) -> None:
    patches = Patches(dataset)
    assert (len(patches), patches.channels, patches.crs) == (9, ("class", "grey", "ndvi_0", "ndvi_1"), CRS)
    found = list(patches)
    assert [(patch.index, patch.row, patch.column) for patch in found] == [(i, *divmod(i, 3)) for i in range(9)]
    for patch in found:
        assert isinstance(patch.values, np.ndarray)
        assert patch.values.dtype == np.float32
        np.testing.assert_array_equal(patch.values, expected(patch.index))
    last = found[5]
    assert last.window == Window(8, 2, 4, 2)
    assert last.bounds == (500240, 4099880, 500360, 4099940)
    assert last.transform == Transform(30, 0, 500240, 0, -30, 4099940)
    assert last.crs == CRS
    assert repr(patches) == "<Patches train: 9 of class, grey, ndvi_0, ndvi_1>"


def test_the_margin_is_read_on_demand(dataset: Dataset) -> None:
    patch = Patches(dataset, margin=True)[4]
    assert isinstance(patch.values, np.ndarray)
    np.testing.assert_array_equal(patch.values, expected(4, margin=True))
    assert patch.window == Window(3, 0, 6, 6)
    assert patch.bounds == (500090, 4099820, 500270, 4100000)


def test_layouts_and_dtypes(dataset: Dataset) -> None:
    values = Patches(dataset, layout="HWC")[3].values
    assert isinstance(values, np.ndarray)
    np.testing.assert_array_equal(values, np.moveaxis(expected(3), 0, -1))
    by_band = Patches(dataset, layout="bands")[3].values
    assert isinstance(by_band, dict)
    assert {name: (band.dtype, band.shape) for name, band in by_band.items()} == {
        "class": (np.int64, (2, 4)),
        "grey": (np.uint8, (2, 4)),
        "ndvi": (np.float32, (2, 2, 4)),
    }
    some = Patches(dataset, bands=["grey", "class"])[3].values
    assert isinstance(some, np.ndarray)
    assert some.dtype == np.int64
    np.testing.assert_array_equal(some, expected(3)[[1, 0]])
    grey = Patches(dataset, bands=["grey"], dtype="float64")[0].values
    assert isinstance(grey, np.ndarray)
    assert (grey.dtype, grey.shape) == (np.float64, (1, 2, 4))
    assert Patches(dataset, bands=["grey"])[0].values.dtype == np.uint8  # type: ignore[union-attr] # one array


def test_a_shuffle_keeps_every_place(dataset: Dataset) -> None:
    for config in (
        ReadConfig(shuffle="global", seed=7),
        ReadConfig(shuffle_files=True, shuffle_seed=3, interleave_cycle_length=3, interleave_block_length=1),
    ):
        patches = Patches(dataset, read_config=config)
        found = list(patches)
        assert sorted(patch.index for patch in found) == list(range(9))
        assert [patch.index for patch in found] != list(range(9))
        for patch in [*found, *patches]:  # the next epoch, too
            assert isinstance(patch.values, np.ndarray)
            np.testing.assert_array_equal(patch.values, expected(patch.index))
            assert (patch.row, patch.column) == divmod(patch.index, 3)


def test_slices_work_as_for_any_dataset(dataset: Dataset) -> None:
    assert [patch.index for patch in Patches(dataset, "train[5:]")] == [5, 6, 7, 8]
    assert [patch.index for patch in Patches(dataset, "train[6:8]+train[:1]")] == [6, 7, 0]
    assert Patches(dataset, "train[5:]")[-1].index == 8
    with pytest.raises(IndexError):
        Patches(dataset)[9]


def test_batches_are_arrays_with_their_places(dataset: Dataset) -> None:
    patches = Patches(dataset)
    batches = list(patches.batches(4))
    assert [len(batch) for batch in batches] == [4, 4, 1]
    assert [len(batch) for batch in patches.batches(4, drop_remainder=True)] == [4, 4]
    batch = batches[1]
    assert isinstance(batch.values, np.ndarray)
    assert batch.values.shape == (4, 4, 2, 4)
    for place, index in enumerate(range(4, 8)):
        np.testing.assert_array_equal(batch.values[place], expected(index))
    assert batch.indexes.tolist() == [4, 5, 6, 7]
    assert (batch.rows.tolist(), batch.columns.tolist()) == ([1, 1, 2, 2], [1, 2, 0, 1])
    assert [tuple(row) for row in batch.bounds.tolist()] == [patches[index].bounds for index in range(4, 8)]
    some = patches[[8, 0]]
    assert some.indexes.tolist() == [8, 0]
    assert patches[1:3].indexes.tolist() == [1, 2]


def test_an_iteration_continues_from_its_state_and_in_another_process(dataset: Dataset) -> None:
    config = ReadConfig(shuffle="global", seed=1)
    patches = Patches(dataset, read_config=config)
    whole = [patch.index for patch in patches]
    patches = pickle.loads(pickle.dumps(Patches(dataset, read_config=config)))  # noqa: S301 - our own bytes
    begun = iter(patches)
    first = [next(begun).index for _ in range(4)]
    for bands in (None, ["grey"]):
        rest = Patches(dataset, read_config=config, state=patches.state(), bands=bands)
        assert first + [patch.index for patch in rest] == whole
    shares = [[patch.index for patch in Patches(dataset, process=(index, 2))] for index in range(2)]
    assert shares == [[0, 1, 2, 3, 4], [5, 6, 7, 8]]


def test_plain_files_are_read_without_a_catalog(folder: Path, tmp_path: Path) -> None:
    patches = Patches.of_files(folder, "train[3:5]", kernel_size=[2, 4], margin=True)
    for patch in patches:
        assert isinstance(patch.values, np.ndarray)
        np.testing.assert_array_equal(patch.values, expected(patch.index, margin=True))
    assert [patch.index for patch in patches] == [3, 4]
    (folder / "q-mixer.json").write_text(json.dumps(mixer_of(PATCH, 9, 9)))
    row = Patches.of_files(folder, kernel_size=[2, 4], mixer=folder / "q-mixer.json")
    assert [(patch.row, patch.column) for patch in row] == [(0, column) for column in range(9)]


def test_a_pin_needs_the_metadata_of_its_version(catalog: Catalog, folder: Path, tmp_path: Path) -> None:
    import_export(catalog, folder, kernel_size=[2, 4], copy=True)
    dataset = catalog.dataset("p")
    dataset.pin("train[2:4]").save(tmp_path / "lock.yaml")
    pin = load_pin(tmp_path / "lock.yaml")["train"]
    patches = Patches(pin, mixer=dataset.metadata.custom)
    assert [(patch.index, patch.row, patch.column) for patch in patches] == [(2, 0, 2), (3, 1, 0)]
    np.testing.assert_array_equal(patches[0].values, expected(2))  # type: ignore[arg-type] # one array
    bare = Patches(pin)
    assert [(patch.index, patch.row) for patch in bare] == [(2, None), (3, None)]
    with pytest.raises(UsageError, match=r"^the pin 'train' contains train\[2:4\], not 'train'(?m:$)"):
        Patches(pin, "train")
    whole = Patches(load_pin(tmp_path / "lock.yaml"), mixer=dataset.metadata.custom)
    assert [patch.index for patch in whole] == [2, 3]


def test_a_value_that_is_neither_a_version_nor_one_pin_is_refused(
    catalog: Catalog, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        Patches(str(folder))  # type: ignore[arg-type]  # a folder is read by of_files
    assert caught.value.message.startswith("expected a published version or a pin, found ")
    assert caught.value.hint == "Pass catalog.dataset('NAME'); to read a folder, use of_files('FOLDER')."
    import_export(catalog, folder, kernel_size=[2, 4], copy=True)
    dataset = catalog.dataset("p")
    dataset.pin({"one": "train[:1]", "rest": "train[1:]"}).save(tmp_path / "two.yaml")
    with pytest.raises(UsageError) as caught:
        Patches(load_pin(tmp_path / "two.yaml"))
    assert caught.value.message == "expected a file with one pin, found 2: one, rest"
    assert caught.value.hint == "Choose one, e.g. load_pin(...)['one']"


def test_patches_of_two_splits_each_have_their_own_grid(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    write_image(folder, "north", {"a": ramp(8, 4)}, (2, 2))
    write_image(folder, "south", {"a": ramp(4, 4)}, (2, 2))
    import_export(catalog, folder, prefix={"train": "north", "eval": "south"}, name="two")
    found = list(Patches(catalog.dataset("two"), "eval[2:]+train[5:6]"))
    assert [(patch.index, patch.row, patch.column) for patch in found] == [(2, 1, 0), (3, 1, 1), (5, 1, 1)]
    batch = next(Patches(catalog.dataset("two"), "eval[2:]+train[5:6]").batches(3))
    assert batch.columns.tolist() == [0, 1, 1]


def test_splits_of_files_of_the_same_names_are_read_one_by_one(catalog: Catalog, tmp_path: Path) -> None:
    for place in ("north", "south"):
        write_image(tmp_path / "exports" / place, "p", {"a": ramp(4, 4)}, (2, 2))
    import_export(catalog, tmp_path / "exports", prefix={"train": "north/p", "eval": "south/p"}, name="two")
    two = catalog.dataset("two")
    assert [patch.index for patch in Patches(two, "eval")] == [0, 1, 2, 3]
    with pytest.raises(
        UsageError, match=r"names splits whose files have the same names, such as p-00000\.tfrecord\.gz"
    ):
        Patches(two, "eval+train")


def test_channels_of_one_feature_have_their_names(catalog: Catalog, tmp_path: Path) -> None:
    stack = np.stack([ramp(4, 4) + 100 * level for level in range(3)])
    write_image(tmp_path / "exports", "p", {"red": stack}, (2, 2))
    import_export(catalog, tmp_path / "exports", bands=["red", "green", "blue"])
    patches = Patches(catalog.dataset("p"), layout="bands")
    assert patches.channels == ("red", "green", "blue")
    values = patches[3].values
    assert isinstance(values, dict)
    np.testing.assert_array_equal(values["blue"], stack[2, 2:, 2:])
    with pytest.raises(UsageError) as caught:
        Patches(catalog.dataset("p"), bands=["blue"])
    assert caught.value.hint == "All its channels are in one feature: red, green, blue. Read all, and take some."


def test_patches_have_places_only_with_a_mixer_and_known_numbers(catalog: Catalog, tmp_path: Path) -> None:
    write_image(tmp_path / "exports", "p", {"a": ramp(4, 4)}, (2, 2), mixer=False)
    import_export(catalog, tmp_path / "exports")
    patch = Patches(catalog.dataset("p"))[3]
    assert (patch.index, patch.row, patch.bounds, patch.transform, patch.crs, patch.window) == (3, *[None] * 5)
    assert next(Patches(catalog.dataset("p")).batches(2)).rows is None
    mixer = Mixer(crs=CRS, transform=Transform(*MATRIX), patch=Size(2, 2), patches_per_row=3, total_patches=6)
    import_export(catalog, tmp_path / "exports", mixer=mixer, patches=[0, 2, 3, 5], name="some")
    found = list(Patches(catalog.dataset("some")))
    assert [(patch.index, patch.row, patch.column) for patch in found] == [(0, 0, 0), (2, 0, 2), (3, 1, 0), (5, 1, 2)]


def test_a_mixer_of_another_export_is_refused(dataset: Dataset) -> None:
    with pytest.raises(ShardMismatchError) as caught:
        Patches(dataset, mixer=mixer_of(PATCH, 3, 6))
    assert caught.value.message == "split train: expected 6 records for the mixer's 6 patches, found 9"
    with pytest.raises(
        ShardMismatchError,
        match=r"the tiles: expected 67080 values for a patch of 256 x 256 with a kernel of 2 x 4, found 36",
    ):
        Patches(dataset, mixer=mixer_of((256, 256), 3, 9))


def test_metadata_of_another_form_is_refused(dataset: Dataset) -> None:
    kepts: list[Any] = [
        [],
        {"splits": 1},
        {"splits": {"train": {"bands": [{"name": "a"}]}}},
        {"splits": {"train": {"bands": [{"name": "zz", "kind": "float"}]}}},
        {"splits": {"train": {"patches": [-1]}}},
        {"splits": {"train": {"patches": [0, 1]}}},
        {"splits": {"train": {"tile": [1, 2, 3]}}},
        {"splits": {"train": {"mixer": {"a": 1}}}},
    ]
    check_errors(
        GOLDEN / "earth_engine_patches" / "metadata_of_another_form_is_refused.txt",
        (partial(Patches, dataset, mixer={"earth_engine": kept}) for kept in kepts),
    )


def test_a_band_that_a_record_may_lack_is_refused() -> None:
    features = FeaturesDict(
        {"a": Tensor(shape=(2, 2), dtype="float32"), "b": Tensor(shape=(2, 2), dtype="float32", optional=True)}
    )
    with pytest.raises(UsageError) as refused:
        places_of_split(features, None, num_records=3, split="train")
    assert str(refused.value) == "band 'b' is optional, but patches cannot represent a missing band"
    assert refused.value.hint == "Read the others: bands=['a']."
    assert [one.feature for one in places_of_split(features, None, num_records=3, split="t", bands=["a"]).bands] == [
        "a"
    ]
    with pytest.raises(UsageError) as refused:
        places_of_split(features, None, num_records=3, split="train", bands=["b"])
    assert refused.value.hint == "Read it as a feature: dataset.read(...)."


def test_a_version_without_patches_is_refused(catalog: Catalog) -> None:
    catalog.build("digits")
    with pytest.raises(UsageError, match="this version has no patches: its bands do not share a height and width"):
        Patches(catalog.dataset("digits"))


def test_unknown_bands_and_layouts_are_refused(dataset: Dataset) -> None:
    with pytest.raises(UsageError) as caught:
        Patches(dataset, bands=["nir"])
    assert (caught.value.message, caught.value.hint) == (
        "band 'nir' does not exist",
        "The bands are: class, grey, ndvi.",
    )
    with pytest.raises(UsageError, match="invalid layout 'WHC': expected one of 'CHW', 'HWC', 'bands'"):
        Patches(dataset, layout="WHC")  # type: ignore[arg-type] # what is refused


def test_a_folder_is_read_on_from_a_state_and_by_several_processes(folder: Path) -> None:
    patches = Patches.of_files(folder, kernel_size=[2, 4])
    found = iter(patches)
    first = [next(found).index for _ in range(2)]
    state = patches.state()
    rest = [patch.index for patch in found]
    assert [patch.index for patch in Patches.of_files(folder, kernel_size=[2, 4], state=state)] == rest
    shares = [
        [patch.index for patch in Patches.of_files(folder, kernel_size=[2, 4], process=(which, 2))] for which in (0, 1)
    ]
    assert sorted(shares[0] + shares[1]) == first + rest
