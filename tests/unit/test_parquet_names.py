"""The names of Parquet files on the hub, of all years: found, in order, held against gaps, and copied under ours."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from support.golden import check_errors

from registry.errors import NotStoredError, PreparedFormatError, StorageError
from registry.interop.parquet import NAMES_HINT, describe_parquet, find_splits, with_fitting_names
from registry.storage import RenamedStore, Store, open_store

GOLDEN = Path(__file__).with_name("golden")

HASHED = [
    f"data/train-{index:05}-of-00003-{mark}.parquet"
    for index, mark in enumerate(["c0ffee0012345678", "a" * 16, "b" * 16])
]
CONVERTED = ["default/test/0000.parquet", *(f"default/train/{index:04}.parquet" for index in range(3))]


def write(folder: Path, *names: str) -> Store:
    """A folder in which each file holds its own name."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table({"name": [name]}), path)
    return open_store(folder)


def splits_of(store: Store) -> dict[str, tuple[str, ...]]:
    return {split.name: split.filenames for split in find_splits(store)}


def test_hashed_and_converted_names_are_found_in_order(tmp_path: Path) -> None:
    hashed = write(tmp_path / "hashed", *HASHED, "data/test-00000-of-00001-0123456789abcdef.parquet")
    assert splits_of(hashed) == {
        "train": tuple(HASHED),
        "test": ("data/test-00000-of-00001-0123456789abcdef.parquet",),
    }
    converted = write(tmp_path / "converted", *CONVERTED)
    assert splits_of(converted) == {"train": tuple(CONVERTED[1:]), "test": (CONVERTED[0],)}


def test_a_template_is_found_if_one_matches_the_names(tmp_path: Path) -> None:
    """One shard has one hash, and our names have five digits."""
    names = ["data/test-00000-of-00001-0123456789abcdef.parquet", "train/00000.parquet", "train/00001.parquet"]
    store = write(tmp_path / "things", *names)
    assert {split.name: split.template for split in find_splits(store)} == {
        "train": "{SPLIT}/{SHARD_INDEX}.parquet",
        "test": "data/{SPLIT}-{SHARD_X_OF_Y}-0123456789abcdef.parquet",
    }
    assert with_fitting_names(store) is store
    prepared = describe_parquet(store)
    assert [name for split in prepared.splits for name in split.filenames] == [*names[1:], names[0]]


def test_names_that_no_template_gives_are_refused_in_place(tmp_path: Path) -> None:
    store = write(tmp_path / "things", *HASHED, "data/test-00000-of-00001.parquet")
    with pytest.raises(PreparedFormatError) as caught:
        describe_parquet(store)
    assert str(caught.value) == (
        f"{store.url}: no known template matches the names of the Parquet files\n"
        f"  {HASHED[0]}\n  {HASHED[1]}\n  {HASHED[2]}"
    )
    assert caught.value.hint == "Import a copy, in which the files are renamed: registry import parquet DIR --copy"


def test_a_copy_has_names_of_ours(tmp_path: Path) -> None:
    for folder, names, ours in (
        ("hashed", HASHED, [f"train-{index:05}-of-00003.parquet" for index in range(3)]),
        (
            "converted",
            CONVERTED,
            ["test-00000-of-00001.parquet", *(f"train-{index:05}-of-00003.parquet" for index in range(3))],
        ),
    ):
        store = with_fitting_names(write(tmp_path / folder, *names))
        assert store.list() == ours
        for name, new in zip(names, ours, strict=True):
            with store.open(new) as file:
                assert parquet.read_table(file).column("name").to_pylist() == [name]
        assert describe_parquet(store).name == folder


def test_gaps_and_twins_are_named(tmp_path: Path) -> None:
    cases: list[list[str]] = [
        [HASHED[0], HASHED[2]],
        [*HASHED, "data/train-00001-of-00003-cccccccccccccccc.parquet"],
        ["train/0001.parquet", "train/0003.parquet"],
        ["train/0000.parquet", "train/00001.parquet"],
        ["train/9999999999.parquet"],
    ]
    stores = (write(tmp_path / str(number), *names) for number, names in enumerate(cases))
    check_errors(
        GOLDEN / "parquet_names" / "gaps_and_twins_are_named.txt",
        (partial(with_fitting_names, store) for store in stores),
        details=("problems",),
        folder=tmp_path,
    )


def test_numbers_in_names_are_shards_only_if_they_count_from_zero(tmp_path: Path) -> None:
    store = write(tmp_path, "years/2023.parquet", "years/2024.parquet")
    assert splits_of(store) == {"2023": ("years/2023.parquet",), "2024": ("years/2024.parquet",)}
    assert splits_of(write(tmp_path / "part", "partial-train/0000.parquet")) == {
        "partial-train": ("partial-train/0000.parquet",)
    }


def test_configs_are_named(tmp_path: Path) -> None:
    cases: list[list[str]] = [
        ["de/train-00000-of-00001.parquet", "en/test-00000-of-00001.parquet", "en/train-00000-of-00001.parquet"],
        [f"{config}/train/0000.parquet" for config in ("en US", "fr")],
        [f"data/{config}/data/train.parquet" for config in ("x", "y")],
        [f"c{number:02}/train.parquet" for number in range(22)],
    ]
    stores = (write(tmp_path / str(number) / "animals", *names) for number, names in enumerate(cases))
    check_errors(
        GOLDEN / "parquet_names" / "configs_are_named.txt",
        (partial(describe_parquet, store) for store in stores),
        folder=tmp_path,
    )


def test_folders_of_splits_are_not_configs(tmp_path: Path) -> None:
    store = write(tmp_path, "train/train-00000-of-00001.parquet", "test/test.parquet", "README.md.parquet/x.parquet")
    assert list(splits_of(store)) == ["train", "test", "x"]
    with pytest.raises(PreparedFormatError) as caught:
        find_splits(write(tmp_path / "mixed", "train.parquet", "data/train.parquet"))
    assert caught.value.hint == (f"{NAMES_HINT} Import each config from its own folder, with config=CONFIG.")


def test_a_renamed_store_is_only_read(tmp_path: Path) -> None:
    folder = open_store(tmp_path)
    for name in ("old", "other"):
        with folder.create(name) as file:
            file.write(name.encode())
    store = RenamedStore(folder, {"new": "old", "in/new": "old"})
    assert (store.list(), store.list("in"), store.folders(), store.folders("in")) == (
        ["in/new", "new"],
        ["in/new"],
        ["in"],
        [],
    )
    assert [store.exists(name) for name in ("new", "in", "in/new", "old", "other")] == [True, True, True, False, False]
    assert (store.size("new"), store.read_bytes("in/new"), store.locate("new")) == (3, b"old", f"{tmp_path}/old")
    assert store.child("in").list() == ["new"]
    assert pickle.loads(pickle.dumps(store)).read_bytes("new") == b"old"  # noqa: S301 - our own
    target = open_store(tmp_path / "target")
    target.create_from("in/new", store, "in/new")
    assert target.read_bytes("in/new") == b"old"
    with pytest.raises(NotStoredError) as missing:
        store.open("other")
    assert str(missing.value) == f"cannot read {tmp_path}/other: no such file exists"
    for refused in (
        lambda: store.create("new"),
        lambda: store.remove_tree("new"),
        lambda: store.stage("new"),
    ):
        with pytest.raises(StorageError, match="renamed files are read-only"):
            refused()
