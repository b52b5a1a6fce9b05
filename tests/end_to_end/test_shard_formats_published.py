"""Folders that TFDS prepared as ArrayRecord or Parquet: published, read in TFDS's order, verified, distinguished."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.prepared_samples import ANIMALS, animals, prepare
from support.shard_samples import WRITERS, prepare_as, write_parquet

from registry.api import Catalog
from registry.errors import PreparedFormatError, ShardMismatchError
from registry.features import codec_of
from registry.order import ReadConfig
from registry.storage import open_store

OTHERS = ("array_record", "parquet")
COUNT = 50


def ages(reader: Any) -> list[int]:
    return [int(example["age"]) for example in reader]


@pytest.mark.parametrize("file_format", OTHERS)
def test_what_tfds_prepared_is_published_and_read(catalog: Catalog, tmp_path: Path, file_format: str) -> None:
    assert catalog.publish(prepare_as(tmp_path / "1.0.0", file_format)).newly
    dataset = catalog.dataset("animals")
    assert dataset.facts.file_format == file_format
    assert ages(dataset.read("train[10:13]")) == [10, 11, 12]
    assert sorted(ages(dataset.read("train", ReadConfig(shuffle="global", seed=3)))) == list(range(COUNT))
    assert dataset.verify(deep=True).faults == ()
    assert not catalog.publish(tmp_path / "1.0.0").newly


@pytest.mark.parametrize("file_format", ["tfrecord", *OTHERS])
def test_the_order_is_that_of_tfds(catalog: Catalog, tmp_path: Path, file_format: str) -> None:
    catalog.publish(prepare_as(tmp_path / "1.0.0", file_format))
    dataset = catalog.dataset("animals")
    stored = list(range(COUNT))
    interleaved = ages(dataset.read("train", ReadConfig(interleave_cycle_length=16)))
    assert interleaved != stored
    assert ages(dataset.read("train")) == (stored if file_format == "array_record" else interleaved)
    assert ages(dataset.read("train", ReadConfig(interleave_cycle_length=1))) == stored
    assert next(iter(dataset.read("train").ids())) == f"animals-train.{file_format}-00000-of-00003__0"


@pytest.mark.parametrize("file_format", OTHERS)
def test_a_folder_that_contradicts_its_metadata_is_not_published(
    catalog: Catalog, tmp_path: Path, file_format: str
) -> None:
    folder = prepare_as(tmp_path / "1.0.0", file_format)
    records = [codec_of(ANIMALS).encode(one) for one in animals(4)]
    WRITERS[file_format](open_store(folder), f"animals-train.{file_format}-00001-of-00003", records)
    (folder / f"animals-train.{file_format}-00002-of-00003").write_bytes(b"no shard")
    with pytest.raises(ShardMismatchError) as caught:
        catalog.publish(folder)
    url = open_store(folder).url
    assert str(caught.value) == (
        f"{url}: 2 of 3 shards do not match their description\n"
        f"  {folder}/animals-train.{file_format}-00001-of-00003: expected 17 records, found 4\n"
        f"  {folder}/animals-train.{file_format}-00002-of-00003: not a {file_format} file, or a damaged one"
    )


def test_a_parquet_shard_that_lost_records_when_tfds_wrote_it_is_named(catalog: Catalog, tmp_path: Path) -> None:
    """TFDS 4.9.10 keeps too few records of a shard when it is fed by an iterator."""
    folder = tmp_path / "1.0.0"
    prepare(folder, splits={"train": animals(250)})
    info = json.loads((folder / "dataset_info.json").read_text())
    info["fileFormat"] = "parquet"
    (folder / "dataset_info.json").write_text(json.dumps(info))
    kept = [codec_of(ANIMALS).encode(one) for one in animals(250)[:100]]
    write_parquet(open_store(folder), "animals-train.parquet-00000-of-00001", kept, group_size=100)
    with pytest.raises(ShardMismatchError, match="expected 250 records, found 100"):
        catalog.publish(folder)


def test_riegeli_is_refused_before_a_file_is_opened(catalog: Catalog, tmp_path: Path) -> None:
    folder = prepare_as(tmp_path / "1.0.0", "riegeli")
    with pytest.raises(PreparedFormatError) as caught:
        catalog.publish(folder)
    assert str(caught.value) == f"{open_store(folder).url}: riegeli shards cannot be read"


@pytest.mark.parametrize("file_format", OTHERS)
def test_the_same_records_in_another_format_are_a_patch(catalog: Catalog, tmp_path: Path, file_format: str) -> None:
    catalog.publish(prepare_as(tmp_path / "tfrecord", "tfrecord"))
    folder = prepare_as(tmp_path / "other", file_format)
    info = json.loads((folder / "dataset_info.json").read_text())
    info["version"] = "1.0.1"
    (folder / "dataset_info.json").write_text(json.dumps(info))
    assert catalog.publish(folder).newly
    assert ages(catalog.dataset("animals:1.0.1").read("train", ReadConfig(interleave_cycle_length=16))) == ages(
        catalog.dataset("animals:1.0.0").read("train", ReadConfig(interleave_cycle_length=16))
    )
