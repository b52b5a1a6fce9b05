"""A published version becomes a folder in TFDS's layout: the same shards, described as TFDS describes them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.prepared_samples import animals, prepare

import registry
from registry.errors import ConflictError, ShardMismatchError
from registry.prepared import read_prepared
from registry.storage import open_store

GOLDEN = Path(__file__).parent.parent / "conformance" / "prepared"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[registry.Catalog]:
    with registry.connect(tmp_path / "catalog" / "catalog.db") as opened:
        yield opened


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("version", ["lab_mnist/3.0.1", "lab_text/1.0.0"])
def test_files_written_by_tfds_are_exported_unchanged(catalog: registry.Catalog, tmp_path: Path, version: str) -> None:
    list(catalog.import_tfds(GOLDEN / version))
    exported = catalog.dataset(version.replace("/", ":")).export_tfds(tmp_path / "out")
    assert (exported.folder, exported.newly) == (str(tmp_path / "out" / version), True)
    theirs, ours = contents(GOLDEN / version), contents(tmp_path / "out" / version)
    assert ours.keys() == theirs.keys()
    for name in ours:
        if name.endswith(".json"):
            assert json.loads(ours[name]) == json.loads(theirs[name])
        else:
            assert ours[name].rstrip(b"\n") == theirs[name].rstrip(b"\n"), name


def test_a_default_config_is_written_if_the_folder_has_none(catalog: registry.Catalog, tmp_path: Path) -> None:
    for config in ("plain", "tall"):
        catalog.publish(prepare(tmp_path / config, "1.0.0", name="pets", config=config))
    catalog.lifecycle.set_default_config("pets/tall")
    metadata = tmp_path / "out/pets/.config/metadata.json"
    catalog.dataset("pets/plain").export_tfds(tmp_path / "out")
    assert not metadata.exists()
    catalog.dataset("pets/tall").export_tfds(tmp_path / "out")
    assert json.loads(metadata.read_text()) == {"default_config_name": "tall"}
    catalog.lifecycle.set_default_config("pets/plain")
    catalog.dataset("pets/plain").export_tfds(tmp_path / "out")
    assert json.loads(metadata.read_text()) == {"default_config_name": "tall"}


@pytest.mark.parametrize("compress", [False, True])
def test_exporting_again_compares_and_changes_nothing(
    catalog: registry.Catalog, tmp_path: Path, compress: bool
) -> None:
    catalog.publish(prepare(tmp_path / "1.0.0", shards=3, compress=compress))
    dataset = catalog.dataset("animals")
    seen: list[registry.Progress] = []
    first = dataset.export_tfds(tmp_path / "out", progress=seen.append)
    total = sum(shard.num_bytes for shard in dataset.shards("train"))
    assert (first.newly, seen[-1].done, seen[-1].total, seen[-1].unit, len(seen)) == (True, total, total, "bytes", 3)
    before = contents(tmp_path / "out")
    again = dataset.export_tfds(tmp_path / "out")
    assert (again.newly, again.num_bytes) == (False, first.num_bytes)
    assert contents(tmp_path / "out") == before


def test_compressed_shards_are_written_as_tfds_reads_them(catalog: registry.Catalog, tmp_path: Path) -> None:
    plain = prepare(tmp_path / "plain", shards=3)
    catalog.publish(prepare(tmp_path / "gzip", shards=3, compress=True))
    catalog.dataset("animals").export_tfds(tmp_path / "out")
    assert contents(tmp_path / "out/animals/1.0.0") == contents(plain)


def test_a_damaged_shard_is_not_exported(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.publish(prepare(tmp_path / "1.0.0", shards=2))
    dataset = catalog.dataset("animals")
    shard = Path(catalog.data_dir) / "animals/1.0.0/animals-train.tfrecord-00001-of-00002"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ShardMismatchError, match=r"^animals-train.tfrecord-00001-of-00002: expected 700 bytes"):
        dataset.export_tfds(tmp_path / "out")
    assert contents(tmp_path / "out") == {}
    shard.write_bytes(whole)
    assert dataset.export_tfds(tmp_path / "out").newly


@pytest.mark.parametrize("change", ["other records", "a missing shard", "another schema"])
def test_other_data_in_the_way_is_left_alone(catalog: registry.Catalog, tmp_path: Path, change: str) -> None:
    catalog.publish(prepare(tmp_path / "1.0.0", shards=2))
    dataset = catalog.dataset("animals")
    folder = Path(dataset.export_tfds(tmp_path / "out").folder)
    shard = folder / "animals-train.tfrecord-00001-of-00002"
    if change == "other records":
        other = prepare(tmp_path / "other", "1.0.0", {"train": animals(20, age=99)}, shards=2)
        shard.write_bytes((other / shard.name).read_bytes())
    elif change == "a missing shard":
        shard.unlink()
    else:
        schema = folder / "features.json"
        schema.write_text(schema.read_text().replace("int32", "int64"))
    before = contents(folder)
    with pytest.raises(ConflictError) as error:
        dataset.export_tfds(tmp_path / "out")
    assert error.value.message == f"{folder} contains other data"
    assert error.value.hint == "Move it away, or export into another folder."
    assert contents(folder) == before


@pytest.mark.parametrize("kind", ["link", "pipe", "dangling"])
def test_a_licence_outside_the_folder_is_not_copied(catalog: registry.Catalog, tmp_path: Path, kind: str) -> None:
    folder = prepare(tmp_path / "animals/1.0.0", shards=2)
    (folder / "NOTES").write_text("mine")
    (folder / "README").symlink_to("NOTES")
    outside = tmp_path / "LICENSE"
    outside.write_text("secret")
    if kind == "pipe":
        os.mkfifo(folder / "LICENSE")
    else:
        (folder / "LICENSE").symlink_to(outside if kind == "link" else tmp_path / "nowhere")
    whole = sorted({path.name for path in folder.iterdir()} - {"LICENSE"})
    list(catalog.import_tfds(folder))
    exported = catalog.dataset("animals").export_tfds(tmp_path / "out")
    assert sorted(path.name for path in Path(exported.folder).iterdir()) == whole
    assert (Path(exported.folder) / "README").read_text() == "mine"


def test_an_exported_version_can_be_imported(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.build("digits")
    catalog.dataset("digits").export_tfds(tmp_path / "out")
    with registry.connect(tmp_path / "other.db") as other:
        (imported,) = other.import_tfds(tmp_path / "out")
        assert imported.num_examples == 1797
        reported = read_prepared(open_store(tmp_path / "out/digits/1.0.0"))
        assert reported.metadata == catalog.dataset("digits").metadata == other.dataset("digits").metadata


def test_typed_columns_become_records(catalog: registry.Catalog, tmp_path: Path) -> None:
    for index, start in enumerate((0, 7)):
        columns = {"n": list(range(start, start + 7)), "name": [f"n{n}" for n in range(start, start + 7)]}
        (tmp_path / "numbers").mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), tmp_path / f"numbers/train-{index:05d}-of-00002.parquet")
    catalog.import_parquet(tmp_path / "numbers")
    dataset = catalog.dataset("numbers")
    exported = dataset.export_tfds(tmp_path / "out")
    assert sorted(contents(Path(exported.folder))) == [
        "dataset_info.json",
        "features.json",
        "numbers-train.tfrecord-00000-of-00002",
        "numbers-train.tfrecord-00001-of-00002",
    ]
    assert not dataset.export_tfds(tmp_path / "out").newly
    with registry.connect(tmp_path / "other.db") as other:
        (imported,) = other.import_tfds(tmp_path / "out")
        assert str(imported.outcome) == "imported"
        again = other.dataset("numbers")
        assert list(again.read("train[3:10]")) == list(dataset.read("train[3:10]"))
        assert again.splits["train"].shard_lengths == dataset.splits["train"].shard_lengths
        assert again.splits["train"].num_bytes == sum(map(len, again.read("train").records()))
