"""Imports exports as versions: in place and as copies; images, series and tables; one or several splits."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.earth_engine_samples import mixer_of, ramp, record_of, tiles_of, write_image, write_records
from support.golden import check_texts

from registry.api import Catalog
from registry.builders.earth_engine.exporting.image import export_image
from registry.builders.earth_engine.mixer import Mixer
from registry.builders.earth_engine.patch_reader import Patches
from registry.builders.earth_engine.pixel_series import PixelSeries
from registry.builders.earth_engine.stored.importing import import_export, preview_export
from registry.errors import (
    CorruptRecordError,
    OtherSourceError,
    PreparedFormatError,
    RegistryError,
    ShardMismatchError,
    UsageError,
    VersionExistsError,
)
from registry.features import FeaturesDict, Scalar, Tensor, Text
from registry.storage import open_store
from registry.wire import encode_example

GOLDEN = Path(__file__).with_name("golden")


BANDS = {"grey": ramp(8, 4, "uint8"), "class": ramp(8, 4, "int16"), "ndvi": ramp(8, 4)}


def refused(catalog: Catalog, folder: Path, **options: Any) -> RegistryError:
    with pytest.raises(RegistryError) as caught:
        import_export(catalog, folder, **options)
    caught.value.message = caught.value.message.replace(f"file://{folder}", "DIR").replace(f"{folder}", "DIR")
    assert not catalog.datasets()
    return caught.value


@pytest.mark.parametrize("copy", [False, True], ids=["in place", "copied"])
def test_an_image_is_published_with_its_mixer(catalog: Catalog, tmp_path: Path, copy: bool) -> None:
    folder = write_image(tmp_path / "exports", "Area_1", BANDS, (4, 2), margin=(1, 1), native=True, shards=2)
    before = sorted(path.name for path in folder.iterdir())
    publication = import_export(catalog, folder, kernel_size=2, copy=copy)
    assert sorted(path.name for path in folder.iterdir()) == before
    dataset = catalog.dataset("area_1")
    assert dataset.reference == publication.version.reference
    assert dataset.features == FeaturesDict(
        {
            "class": Tensor(shape=(4, 6), dtype="int64"),
            "grey": Tensor(shape=(4, 6), dtype="uint8", encoding="bytes"),
            "ndvi": Tensor(shape=(4, 6), dtype="float32"),
        }
    )
    assert dataset.splits["train"].filenames == ["Area_1-00000.tfrecord.gz", "Area_1-00001.tfrecord.gz"]
    assert dataset.facts.disable_shuffling
    assert dataset.folder == (f"file://{tmp_path / 'data/area_1/1.0.0'}" if copy else f"file://{folder}")
    mixer = json.loads((folder / "Area_1-mixer.json").read_text())
    assert dataset.info.metadata["earth_engine"]["splits"]["train"] == {
        "prefix": "Area_1",
        "mixer": mixer,
        "kernel_size": [2, 2],
        "patch": [4, 2],
        "tile": [6, 4],
        "bands": [
            {"name": "class", "kind": "int64", "dtype": "int64", "depth": 1},
            {"name": "grey", "kind": "bytes", "dtype": "uint8", "depth": 1},
            {"name": "ndvi", "kind": "float", "dtype": "float32", "depth": 1},
        ],
        "sequence": False,
        "collapsed": None,
        "patches": None,
    }
    for example, tile in zip(dataset.read("train"), tiles_of(BANDS, (4, 2), (1, 1)), strict=True):
        for name, values in tile.items():
            np.testing.assert_array_equal(example[name], values)
    assert dataset.verify(deep=True).faults == ()
    assert not import_export(catalog, folder, kernel_size=2, copy=copy).newly


def test_a_published_version_does_not_change_with_its_source_files(catalog: Catalog, tmp_path: Path) -> None:
    folder = write_image(tmp_path / "exports", "p", BANDS, (4, 2))
    import_export(catalog, folder)
    write_image(folder, "p", {name: pixels + 1 for name, pixels in BANDS.items()}, (4, 2))
    with pytest.raises(VersionExistsError):
        import_export(catalog, folder)
    assert catalog.dataset("p").verify().faults


def test_names_that_no_template_gives_are_imported_as_a_copy(catalog: Catalog, tmp_path: Path) -> None:
    folder = write_image(tmp_path / "exports", "a{b}", BANDS, (4, 2), shards=2)
    error = refused(catalog, folder)
    assert isinstance(error, PreparedFormatError)
    assert error.message == "DIR: file names such as a{b}-00000.tfrecord.gz cannot be read in place"
    assert error.hint == "Import a copy, whose files are renamed: copy=True; --copy."
    import_export(catalog, folder, copy=True)
    dataset = catalog.dataset("a_b")
    assert dataset.splits["train"].filenames == [
        "a_b-train.tfrecord-00000-of-00002",
        "a_b-train.tfrecord-00001-of-00002",
    ]
    assert len(Patches(dataset)) == 4


@pytest.mark.parametrize("suffix", [".TFRecord", ".tfrecord", ".TFRECORD.GZ"])
def test_suffixes_of_any_case_are_read_in_place(catalog: Catalog, tmp_path: Path, suffix: str) -> None:
    folder = write_image(tmp_path / "exports", "p", BANDS, (4, 2), shards=2, suffix=suffix)
    import_export(catalog, folder)
    assert [patch.index for patch in Patches(catalog.dataset("p"))] == [0, 1, 2, 3]


def test_older_names_without_a_dash_are_read_in_place(catalog: Catalog, tmp_path: Path) -> None:
    folder = write_image(tmp_path / "exports", "p_2019", BANDS, (4, 2), shards=2)
    for file in list(folder.iterdir()):
        file.rename(folder / file.name.replace("-", ""))
    import_export(catalog, folder)
    assert catalog.dataset("p_2019").splits["train"].filenames == [
        "p_201900000.tfrecord.gz",
        "p_201900001.tfrecord.gz",
    ]


def test_several_exports_are_splits_of_one_version(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "My fields"
    write_image(folder, "training_patches", BANDS, (4, 2), shards=3)
    write_image(folder, "eval_patches", {name: pixels[:2] for name, pixels in BANDS.items()}, (4, 2))
    error = refused(catalog, folder)
    assert isinstance(error, UsageError)
    assert error.message == f"{open_store(folder).url} contains 2 exports: eval_patches, training_patches"
    import_export(catalog, folder, prefix={"train": "training_patches", "eval": "eval_patches"})
    dataset = catalog.dataset("my_fields")
    assert {name: split.num_examples for name, split in dataset.splits.items()} == {"train": 4, "eval": 2}
    assert [patch.row for patch in Patches(dataset, "eval+train")] == [0, 0, 0, 0, 1, 1]


def test_splits_that_are_not_alike_or_the_same_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    write_image(folder, "a", BANDS, (4, 2))
    write_image(folder, "b", {"ndvi": ramp(8, 4), "grey": ramp(8, 4)}, (4, 2), margin=(1, 1))
    error = refused(catalog, folder, prefix={"train": "a", "eval": "b"}, kernel_size=2)
    assert error.message == (
        "the splits of a version must have the same features: train and eval differ in class, grey, ndvi"
    )
    error = refused(catalog, folder, prefix={"train": "a", "eval": "a"})
    assert error.message == "two splits have the same files"
    assert refused(catalog, folder, prefix={}).message == "prefix does not name a split"
    error = refused(catalog, folder, prefix={"train": "a", "eval": "b"}, patches=[0])
    assert error.message == "mixer and patches apply to a single export, but several are imported"


def write_table(folder: Path, name: str = "Samples") -> Path:
    rows: list[dict[str, Any]] = [
        {
            "class": np.array([n], np.float32),
            "patch": np.arange(4, dtype=np.float32) + n,
            "name": [f"plötz {n}".encode()],
        }
        | ({"elevation": np.array([n / 2], np.float32), "tags": [b"x"] * n} if n else {})
        for n in range(3)
    ]
    write_records(folder, name, [encode_example(row) for row in rows])
    (folder / f"{name}-00000.tfrecord.gz").rename(folder / f"{name}.tfrecord.gz")
    return folder


def test_a_table_is_published_with_types_and_shapes_of_its_columns(catalog: Catalog, tmp_path: Path) -> None:
    folder = write_table(tmp_path / "tables")
    plan = preview_export(folder)
    assert plan.notes == (
        "The column 'patch' has 4 values, which may be 2 x 2: give its shape if they are (--shape patch=2,2).",
        "The column 'tags' has no value in some rows; these read as empty.",
    )
    import_export(catalog, folder, name="samples", shapes={"patch": (2, 2)}, split="all_samples")
    dataset = catalog.dataset("samples")
    assert dataset.features == FeaturesDict(
        {
            "class": Scalar("float32"),
            "elevation": Scalar("float32", optional=True),
            "name": Text(),
            "patch": Tensor(shape=(2, 2), dtype="float32"),
            "tags": Tensor(shape=(None,), dtype=bytes),
        }
    )
    rows = list(dataset.read("all_samples"))
    assert [row["elevation"] for row in rows] == [None, 0.5, 1.0]
    assert rows[2]["name"].decode() == "plötz 2"
    assert rows[1]["patch"].tolist() == [[1, 2], [3, 4]]
    assert [row["tags"].tolist() for row in rows] == [[], [b"x"], [b"x", b"x"]]
    assert dataset.info.metadata["earth_engine"]["splits"]["all_samples"]["table"] is True
    with pytest.raises(UsageError, match="split all_samples is a table, which does not have patches"):
        Patches(dataset, "all_samples")


def test_a_shape_that_does_not_fit_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    folder = write_table(tmp_path / "tables")
    shapes = [{"patch": (2, 3)}, {"patch": (-2, -2)}, {"tags": (2,)}, {"pach": (2, 2)}]
    messages = [f"{refused(catalog, folder, shapes=each).message}\n" for each in shapes]
    check_texts(GOLDEN / "earth_engine_import.txt", messages)


def test_bad_folders_publish_nothing(catalog: Catalog, tmp_path: Path) -> None:
    folder = write_image(tmp_path / "exports", "p", BANDS, (4, 2), shards=4)
    second = (folder / "p-00001.tfrecord.gz").read_bytes()
    (folder / "p-00001.tfrecord.gz").unlink()
    error = refused(catalog, folder)
    assert isinstance(error, PreparedFormatError)
    assert error.details["missing"] == ["p-00001.tfrecord.gz"]
    (folder / "p-00001.tfrecord.gz").write_bytes(second[: len(second) // 2])
    error = refused(catalog, folder)
    assert isinstance(error, CorruptRecordError)
    assert error.details["path"] == str(folder / "p-00001.tfrecord.gz")
    (folder / "p-00001.tfrecord.gz").write_bytes(second)
    (folder / "p-00003.tfrecord.gz").unlink()  # the last one: its number reveals nothing
    error = refused(catalog, folder)
    assert isinstance(error, ShardMismatchError)
    assert error.message.startswith("DIR: expected 4 records for the patches in p-mixer.json, found 3 records\n")
    odd = record_of({"grey": ramp(4, 2), "class": ramp(4, 2), "ndvi": ramp(3, 2)})
    write_records(tmp_path / "odd", "q", [odd])
    (folder / "p-00003.tfrecord.gz").write_bytes((tmp_path / "odd/q-00000.tfrecord.gz").read_bytes())
    error = refused(catalog, folder)
    assert error.message == (
        "DIR/p-00003.tfrecord.gz: record 0: band 'ndvi': expected 8 values as in the first record, found 6"
    )


def test_a_name_is_derived_from_the_prefix_or_must_be_given(catalog: Catalog, tmp_path: Path) -> None:
    folder = write_image(tmp_path / "2024", "2024_", BANDS, (4, 2))
    error = refused(catalog, folder)
    assert error.message == "cannot derive a dataset name from '2024_' or the folder"
    assert error.hint == "Name the dataset: name='...'; --name NAME."
    import_export(catalog, folder, name="y2024", config="small", version="2.1.0", description="All of 2024.")
    dataset = catalog.dataset("y2024/small:2.1.0")
    assert dataset.metadata.description == "All of 2024."


def test_a_derived_name_is_not_generic_and_continues_only_its_own_folder(catalog: Catalog, tmp_path: Path) -> None:
    here = write_image(tmp_path / "alps/exports", "train", BANDS, (4, 2))
    assert str(import_export(catalog, here).version.reference) == "alps:1.0.0"
    assert not import_export(catalog, here).newly
    assert str(import_export(catalog, here, version="2.0.0").version.reference) == "alps:2.0.0"
    there = write_image(tmp_path / "other/alps", "data", {"other": BANDS["grey"]}, (4, 2))
    with pytest.raises(OtherSourceError) as caught:
        import_export(catalog, there, version="3.0.0")
    assert caught.value.message == f"alps:2.0.0 comes from an import of {here}, not from an import of {there}"
    assert caught.value.hint == ("Make it another dataset: name=NAME. Or make it the next version of alps: name='alps'")
    assert str(import_export(catalog, there, version="3.0.0", name="alps").version.reference) == "alps:3.0.0"


@pytest.mark.parametrize("encoding", ["float", "native"])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": [4, 2]},
        {"kernel_size": [3, 3], "compressed": False, "max_file_size": 2000},
        {"mask_band": "valid"},
        {"edge": "pad"},
        {"tensor_depths": {"series": 3}},
        {"tensor_depths": {"series": 3}, "collapse_bands": True},
    ],
    ids=["margin", "files", "mask", "pad", "depth", "collapsed"],
)
def test_our_own_exports_come_back_with_any_options(
    catalog: Catalog, tmp_path: Path, options: dict[str, Any], encoding: str
) -> None:
    height, width = 7, 13
    bands: dict[str, Any] = {"grey": ramp(width, height, "uint8"), "class": ramp(width, height, "int16")}
    if "tensor_depths" in options:
        bands["series"] = np.stack([ramp(width, height) + 100 * level for level in range(3)], axis=-1)
    exported = export_image(
        bands,
        tmp_path / "exports",
        "p",
        patch_dimensions=[4, 3],
        encoding=encoding,
        transform=(30, 0, 500000, 0, -30, 4100000),
        crs="EPSG:32610",
        **options,
    )
    is_collapsed = options.get("collapse_bands", False)
    import_export(
        catalog,
        tmp_path / "exports",
        kernel_size=options.get("kernel_size"),
        tensor_depths=options.get("tensor_depths"),
        bands=["grey", "class", "series"] if is_collapsed else None,
    )
    patches = Patches(catalog.dataset("p"), layout="bands")
    assert len(patches) == exported.num_written
    for patch in patches:
        assert patch.window is not None
        column, row, across, down = patch.window
        for name in ("grey", "class"):
            values = patch.values[name]
            inside = bands[name][row : row + down, column : column + across]
            np.testing.assert_array_equal(values[: inside.shape[0], : inside.shape[1]], inside)
        if is_collapsed:
            np.testing.assert_array_equal(
                patch.values["series_2"], bands["series"][row : row + down, column : column + across, 2]
            )
        elif "series" in bands:
            inside = np.moveaxis(bands["series"][row : row + down, column : column + across], -1, 0)
            np.testing.assert_array_equal(patch.values["series"], inside)


def test_our_own_series_come_back_pixel_by_pixel(catalog: Catalog, tmp_path: Path) -> None:
    height, width = 4, 6
    label = ramp(width, height, "int16")
    series = np.empty((height, width), object)
    for row in range(height):
        for column in range(width):
            series[row, column] = np.arange((row + column) % 4, dtype=np.float32) + row
    export_image(
        {"label": label, "ndvi": series},
        tmp_path / "exports",
        "p",
        patch_dimensions=[3, 2],
        sequence_data=True,
        encoding="native",
        tensor_depths={"ndvi": 3},
        default_value=-1,
        transform=(30, 0, 500000, 0, -30, 4100000),
        crs="EPSG:32610",
    )
    import_export(catalog, tmp_path / "exports")
    pixels = list(PixelSeries(catalog.dataset("p")))
    assert len(pixels) == height * width
    for pixel in pixels:
        assert pixel.row is not None
        assert pixel.column is not None
        assert pixel.values["label"] == label[pixel.row, pixel.column]
        own = series[pixel.row, pixel.column][:3]
        np.testing.assert_array_equal(pixel.values["ndvi"], [*own, *[-1] * (3 - len(own))])


def test_an_export_that_left_patches_out_keeps_their_numbers(catalog: Catalog, tmp_path: Path) -> None:
    mask = np.zeros((4, 6), bool)
    mask[:2, 2:4] = True
    exported = export_image(
        {"a": ramp(6, 4)},
        tmp_path / "exports",
        "p",
        patch_dimensions=[2, 2],
        masked_threshold=0.5,
        mask=mask,
        transform=(30, 0, 500000, 0, -30, 4100000),
        crs="EPSG:32610",
    )
    assert exported.patches == (0, 2, 3, 4, 5)
    mixer = Mixer.of(exported.grid, exported.crs, exported.transform)
    import_export(catalog, tmp_path / "exports", mixer=mixer, patches=exported.patches)
    assert [(one.index, one.row, one.column) for one in Patches(catalog.dataset("p"))] == [
        (0, 0, 0),
        (2, 0, 2),
        (3, 1, 0),
        (4, 1, 1),
        (5, 1, 2),
    ]
    for wrong in ([0, 2, 3, 4, 6], [0, 0, 1, 2, 3], [4, 3, 2, 1, 0]):
        with pytest.raises(UsageError, match="patches: expected ascending indexes of patches from 0 to 5"):
            import_export(catalog, tmp_path / "exports", mixer=mixer, patches=wrong, name="q")
    with pytest.raises(
        ShardMismatchError, match="expected 4 records for the patches that were not dropped, found 5 records"
    ):
        import_export(catalog, tmp_path / "exports", mixer=mixer, patches=[0, 1, 2, 3], name="q")


def test_unknown_keys_of_a_mixer_are_kept(catalog: Catalog, tmp_path: Path) -> None:
    folder = write_image(tmp_path / "exports", "p", BANDS, (4, 2))
    mixer = mixer_of((4, 2), 2, 4) | {"future": {"key": [1, None]}}
    (folder / "p-mixer.json").write_text(json.dumps(mixer))
    import_export(catalog, folder)
    assert catalog.dataset("p").metadata.custom["earth_engine"]["splits"]["train"]["mixer"] == mixer


def test_a_file_of_several_gzip_members_is_read(catalog: Catalog, tmp_path: Path) -> None:
    folder = write_image(tmp_path / "exports", "p", BANDS, (4, 2), suffix=".tfrecord")
    content = (folder / "p-00000.tfrecord").read_bytes()
    (folder / "p-00000.tfrecord").unlink()
    (folder / "p-00000.tfrecord.gz").write_bytes(gzip.compress(content[:100]) + gzip.compress(content[100:]))
    import_export(catalog, folder)
    assert len(Patches(catalog.dataset("p"))) == 4


def test_exports_in_an_object_store_are_read_in_place(catalog: Catalog, tmp_path: Path) -> None:
    write_image(tmp_path / "north", "p", BANDS, (4, 2), shards=2)
    store = open_store("memory://earth-engine-import/exports")
    for folder in ("north", "south"):
        for file in (tmp_path / "north").iterdir():
            with store.create(f"{folder}/{file.name}", overwrite=True) as target:
                target.write(file.read_bytes())
    import_export(catalog, f"{store.url}/north/p-mixer.json", name="one")
    assert [patch.index for patch in Patches(catalog.dataset("one"), "train[1:3]")] == [1, 2]
    import_export(catalog, store.url, prefix={"train": "north/p", "eval": "south/p"})
    assert catalog.dataset("earth_engine_import").splits["eval"].filenames == [
        "south/p-00000.tfrecord.gz",
        "south/p-00001.tfrecord.gz",
    ]
    assert len(Patches(catalog.dataset("earth_engine_import"), "eval")) == 4
