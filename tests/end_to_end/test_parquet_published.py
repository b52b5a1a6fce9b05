"""Folders of Parquet shards with typed columns: published in place or copied, read, verified, refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from support.shard_samples import assert_same

import registry
from registry.api import Catalog
from registry.errors import (
    CorruptExampleError,
    CorruptRecordError,
    NotStoredError,
    PreparedFormatError,
    ReferenceSyntaxError,
    ShardMismatchError,
    VersionExistsError,
    VersionTooSmallError,
)
from registry.features import codec_of
from registry.interop.parquet import describe_parquet
from registry.order import ReadConfig
from registry.publishing.fingerprint import StoredSplits, fingerprint_splits
from registry.shards.row_groups import RowGroupShard
from registry.storage import open_store

COUNT = 120


def table_of(count: int = COUNT, **changed: Any) -> pa.Table:
    columns = {
        "id": pa.array(range(count), pa.int64()),
        "name": [f"animal {number}" for number in range(count)],
        "weight": pa.array([number / 7 for number in range(count)], pa.float64()),
        "tags": [["small", "grey"][: number % 3] for number in range(count)],
        "box": pa.array([[number, 0, 1, 2] for number in range(count)], pa.list_(pa.float32(), 4)),
    }
    return pa.table(columns | changed)


def write(folder: Path, table: pa.Table | None = None, *, shards: int = 3) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    table = table_of() if table is None else table
    size = table.num_rows // shards
    for index in range(shards):
        part = table.slice(index * size, size)
        parquet.write_table(part, folder / f"train-{index:05}-of-{shards:05}.parquet", row_group_size=9)
    parquet.write_table(table.slice(0, 10), folder / "test.parquet")
    return folder


def ids(reader: Any) -> list[int]:
    return [int(example["id"]) for example in reader]


def test_a_folder_is_read_in_place(catalog: Catalog, tmp_path: Path) -> None:
    folder = write(tmp_path / "animals")
    before = sorted(path.name for path in folder.iterdir())
    publication = catalog.import_parquet(folder)
    assert publication.newly
    assert sorted(path.name for path in folder.iterdir()) == before
    dataset = catalog.dataset("animals:1.*")
    assert dataset.facts.location == str(folder)
    assert dataset.facts.file_format == "parquet_columns"
    assert ids(dataset.read("train[:10%]")) == list(range(12))
    assert ids(dataset.read("train")) == list(range(COUNT))
    assert ids(dataset.read("train[38:42]+test[:2]")) == [38, 39, 40, 41, 0, 1]
    assert sorted(ids(dataset.read("train", ReadConfig(shuffle="global", seed=1)))) == list(range(COUNT))
    assert list(dataset.read("train[39:41]").ids()) == [
        "train-00000-of-00003.parquet__39",
        "train-00001-of-00003.parquet__0",
    ]
    assert_same(
        dataset.read("train")[50],
        {
            "box": np.array([50, 0, 1, 2], np.float32),
            "id": np.int64(50),
            "name": b"animal 50",
            "tags": np.array([b"small", b"grey"], object),
            "weight": np.float64(50 / 7),
        },
    )
    assert not catalog.import_parquet(folder).newly
    catalog.verify_log().require_sound()


def test_published_files_are_opened_without_a_worker_process(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "animals")
    catalog.import_parquet(folder)
    for module in ("parquet_footer", "row_groups"):
        monkeypatch.setattr(f"registry.shards.{module}.call_isolated", None)
    for path in folder.iterdir():
        path.touch()  # so that nothing is remembered of it
    dataset = catalog.dataset("animals")
    assert ids(dataset.read("train")) == list(range(COUNT))
    assert not dataset.verify().faults
    with pytest.raises(TypeError, match="not callable"):
        describe_parquet(open_store(folder), name="animals")


def test_batches_resume_pickles_and_exports(catalog: Catalog, tmp_path: Path) -> None:
    catalog.import_parquet(write(tmp_path / "animals"))
    dataset = catalog.dataset("animals")
    reader = dataset.read("train[:50]")
    batches = list(reader.batches(16))
    assert [batch["weight"].shape for batch in batches] == [(16,), (16,), (16,), (2,)]
    assert batches[0]["box"].shape == (16, 4)
    batches[0]["id"][:] = 0  # the caller owns the arrays that it read
    batches[0]["box"][:] = 0
    begun = iter(reader)
    for _ in range(7):
        next(begun)
    assert ids(dataset.read("train[:50]", state=reader.state())) == list(range(7, 50))
    assert ids(pickle.loads(pickle.dumps(dataset.read("train[:50]")))) == list(range(50))  # noqa: S301 (our own)
    assert dataset.read("train").to_arrow()["name"].to_pylist() == table_of()["name"].to_pylist()
    views = list(dataset.read("train[:3]", copy=False))
    assert [bytes(example["name"]) for example in views] == [b"animal 0", b"animal 1", b"animal 2"]
    decoded = [codec_of(dataset.features).decode(record) for record in reader.records()]
    for one, other in zip(decoded, dataset.read("train[:50]"), strict=True):
        assert_same(one, other)


def test_a_copy_needs_nothing_else(catalog: Catalog, tmp_path: Path) -> None:
    folder = write(tmp_path / "animals" / "data")
    publication = catalog.import_parquet(folder, name="beasts", config="small", version="2.0.0", copy=True)
    assert publication.version.location == "beasts/small/2.0.0"
    for path in folder.iterdir():
        path.unlink()
    dataset = catalog.dataset("beasts/small")
    assert ids(dataset.read("train")) == list(range(COUNT))
    assert dataset.verify(deep=True).faults == ()
    assert not catalog.publish(dataset.folder).newly


def test_a_file_that_is_changed_later_is_found(catalog: Catalog, tmp_path: Path) -> None:
    folder = write(tmp_path / "animals")
    catalog.import_parquet(folder)
    dataset = catalog.dataset("animals")
    other = table_of(40, name=["other"] * 40)
    parquet.write_table(other, folder / "train-00001-of-00003.parquet")
    (fault,) = dataset.verify().faults
    assert (fault.filename, fault.code) == ("train-00001-of-00003.parquet", "shard_mismatch")
    parquet.write_table(other.slice(0, 30), folder / "train-00001-of-00003.parquet")
    with pytest.raises(ShardMismatchError, match="expected 40 records, found 30"):
        ids(dataset.read("train"))
    parquet.write_table(other.drop_columns(["tags"]), folder / "train-00001-of-00003.parquet")
    with pytest.raises(ShardMismatchError) as caught:
        ids(dataset.read("train"))
    assert str(caught.value) == f"{folder}/train-00001-of-00003.parquet: feature 'tags': the file has no such column"
    parquet.write_table(other.set_column(0, "id", [["x"] * 40]), folder / "train-00001-of-00003.parquet")
    with pytest.raises(ShardMismatchError) as caught:
        ids(dataset.read("train"))
    assert str(caught.value) == (
        f"{folder}/train-00001-of-00003.parquet: feature 'id': expected int64, the column has string"
    )
    small = other.set_column(0, "id", pa.array(range(40), pa.int32()))
    parquet.write_table(small, folder / "train-00001-of-00003.parquet")
    with pytest.raises(ShardMismatchError, match="sha256 mismatch"):  # though it could be read
        ids(dataset.read("train"))
    (folder / "train-00001-of-00003.parquet").unlink()
    with pytest.raises(NotStoredError):
        ids(dataset.read("train"))


def test_damage_gives_the_files_before_it_and_an_error_that_names_the_record(catalog: Catalog, tmp_path: Path) -> None:
    folder = write(tmp_path / "animals")
    catalog.import_parquet(folder)
    path = folder / "train-00001-of-00003.parquet"
    content = path.read_bytes()
    about = parquet.ParquetFile(path).metadata.row_group(2).column(1)
    damaged = bytearray(content)
    start = about.dictionary_page_offset or about.data_page_offset
    damaged[start : start + 12] = b"\xff" * 12
    path.write_bytes(damaged)
    found: list[int] = []
    with pytest.raises(CorruptRecordError) as caught:
        found.extend(int(example["id"]) for example in catalog.dataset("animals").read("train"))
    assert str(caught.value) == f"{path}: record 18: its row group, records 18 to 26, cannot be decoded"
    assert found == list(range(40))  # nothing of a file that is not the published one
    (fault,) = catalog.dataset("animals").verify().faults
    assert fault.code == "corrupt_record"


@pytest.mark.parametrize(
    ("column", "path"),
    [
        (pa.array([[1], None, *[[]] * (COUNT - 2)], pa.list_(pa.int64())), "value"),
        (pa.array([[1], [2, None], *[[]] * (COUNT - 2)], pa.list_(pa.int64())), "value"),
        (pa.array([{"x": 1}, None, *[{"x": 2}] * (COUNT - 2)], pa.struct({"x": pa.int8()})), "value"),
        (pa.array([[{"x": 1}], [{"x": None}], *[[]] * (COUNT - 2)], pa.list_(pa.struct({"x": pa.int8()}))), "value/x"),
    ],
    ids=["list", "in a list", "struct", "in a list of structs"],
)
def test_a_null_is_refused_by_column_and_record(catalog: Catalog, tmp_path: Path, column: pa.Array, path: str) -> None:
    folder = write(tmp_path / "animals", table_of(value=column))
    with pytest.raises(CorruptExampleError) as caught:
        catalog.import_parquet(folder)
    assert str(caught.value) == f"train-00000-of-00003.parquet: record 1: feature {path!r}: is null"
    assert caught.value.hint == (
        "Numbers, text and bytes may be null; lists, structs, images and elements of lists may not. Fill the "
        "nulls, or leave the column out, and write the files again. Or copy the records: an addition that is not in "
        "place can read a null list as an empty one or leave the row out."
    )
    assert catalog.datasets() == ()


def test_scalars_may_be_null(catalog: Catalog, tmp_path: Path) -> None:
    ages = [None if number % 3 else number for number in range(COUNT)]
    names = ["" if number == 1 else None for number in range(COUNT)]
    folder = write(tmp_path / "animals", table_of(age=pa.array(ages, pa.int8()), name=pa.array(names, pa.string())))
    catalog.import_parquet(folder)
    dataset = catalog.dataset("animals")
    found = list(dataset.read("train"))
    assert [one["age"] for one in found] == ages
    assert [one["name"] for one in found] == [name if name is None else name.encode() for name in names]
    for one in dataset.read("train", ReadConfig(shuffle="global", seed=1)):
        assert one["age"] == ages[int(one["id"])]
    records = list(dataset.read("train").records())
    assert [codec_of(dataset.features).decode(one)["age"] for one in records] == ages
    loaded = registry.load("animals", split="train", catalog=catalog)
    assert [int(one["age"]) for one in loaded] == [-128 if age is None else age for age in ages]
    assert [one["name"] for one in loaded] == [b""] * COUNT
    whole = registry.load("animals", split="train", catalog=catalog, batch_size=-1)
    assert (type(whole["age"]), whole["age"].dtype) == (np.ndarray, np.int8)
    assert dataset.verify().faults == ()
    other = write(tmp_path / "other" / "animals", table_of(age=pa.array([-128] * COUNT, pa.int8())))
    with pytest.raises(VersionTooSmallError):  # the lowest number is not the same as none
        catalog.import_parquet(other, name="animals", version="1.0.1")


def test_a_copy_gets_names_of_ours(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "animals"
    (folder / "data").mkdir(parents=True)
    for index in range(3):
        part = table_of().slice(40 * index, 40)
        parquet.write_table(part, folder / "data" / f"train-{index:05}-of-00003-{3 - index:016x}.parquet")
    (folder / "data" / "test").mkdir()
    parquet.write_table(table_of().slice(0, 10), folder / "data" / "test" / "0000.parquet")
    with pytest.raises(PreparedFormatError, match="no known template matches the names of the Parquet files"):
        catalog.import_parquet(folder)
    assert catalog.import_parquet(folder, copy=True).newly
    dataset = catalog.dataset("animals")
    assert ids(dataset.read("train")) == list(range(COUNT))
    assert ids(dataset.read("test")) == list(range(10))
    assert [split.filenames for split in dataset.facts.splits] == [
        [f"train-{index:05}-of-00003.parquet" for index in range(3)],
        ["test-00000-of-00001.parquet"],
    ]
    assert dataset.verify().faults == ()
    assert not catalog.import_parquet(folder, copy=True).newly


def test_the_number_is_proved(catalog: Catalog, tmp_path: Path) -> None:
    folder = write(tmp_path / "one" / "animals")
    catalog.import_parquet(folder)
    others = write(tmp_path / "two" / "animals", table_of(name=["other"] * COUNT))
    with pytest.raises(VersionExistsError, match="published with other content"):
        catalog.import_parquet(others)
    with pytest.raises(VersionTooSmallError):
        catalog.import_parquet(others, name="animals", version="1.0.1")
    assert catalog.import_parquet(others, name="animals", version="2.0.0").newly
    again = write(tmp_path / "three" / "animals", shards=4)
    assert catalog.import_parquet(again, name="animals", version="1.0.1").newly  # the same records in other files


def test_what_cannot_be_is_said(catalog: Catalog, tmp_path: Path) -> None:
    folder = write(tmp_path / "animals")
    with pytest.raises(ReferenceSyntaxError):
        catalog.import_parquet(folder, version="1.0")
    with pytest.raises(ReferenceSyntaxError):
        catalog.import_parquet(folder, name="MyAnimals")


def test_a_folder_elsewhere_is_read_there(catalog: Catalog, tmp_path: Path) -> None:
    elsewhere = open_store(f"memory://{tmp_path.name}/animals")
    local = open_store(write(tmp_path / "animals"))
    for name in local.list():
        elsewhere.create_from(name, local, name)
    catalog.import_parquet(elsewhere.url)
    dataset = catalog.dataset("animals")
    assert dataset.facts.location == elsewhere.url
    assert ids(dataset.read("train[35:45]")) == list(range(35, 45))


def test_a_row_group_of_many_leaves_is_decoded_once_for_its_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"id": pa.array(range(5000), pa.int64())})
    fingerprints = []
    decoded: list[str] = []
    open_tables = RowGroupShard._open_tables

    def counted(shard: RowGroupShard, group: int, *options: Any) -> Any:
        decoded.append(f"{shard.num_records} rows, group {group}")
        return open_tables(shard, group, *options)

    monkeypatch.setattr(RowGroupShard, "_open_tables", counted)
    for size in (5000, 700):
        folder = tmp_path / str(size)
        folder.mkdir()
        parquet.write_table(table, folder / "train.parquet", row_group_size=size)
        store = open_store(folder)
        prepared = describe_parquet(store, name="many")
        decoded.clear()
        stored = StoredSplits(store, prepared.splits, prepared.features)
        fingerprints.append(fingerprint_splits(stored, processes=1))
        # A process goes through runs of 4 leaves, so that others have something to do: two runs meet in one group.
        assert len(decoded) == -(-5000 // size) + 1
    assert fingerprints[0] == fingerprints[1]


def test_an_import_that_copies_creates_the_catalog(tmp_path: Path) -> None:
    (tmp_path / "things").mkdir()
    parquet.write_table(pa.table({"number": [1]}), tmp_path / "things" / "train.parquet")
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        assert catalog.import_parquet(tmp_path / "things", copy=True).newly
