"""A version in a bucket: a wrong object is not read, and a right one is not downloaded to be proved."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from end_to_end.test_wrong_files import COUNT, FIRST, READS, SECOND, SHARDS, same_sizes
from support.fault_proxy import FaultProxy
from support.prepared_samples import prepare
from support.s3_server import S3Server

import registry
from registry.api import Catalog
from registry.errors import ShardMismatchError
from registry.shards import proved
from registry.storage import Store, open_store

LARGE = 400_000
"""Bytes of a record, so that a shard takes several requests."""


@pytest.fixture
def catalog(bucket: str, tmp_path: Path) -> Iterator[Catalog]:
    """``animals:1.0.0`` and ``2.0.0`` in a bucket, with shards of equal size and different records."""
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as opened:
        for version, start in (("1.0.0", 10), ("2.0.0", 50)):
            folder = prepare(tmp_path / version, version, {"train": same_sizes(COUNT, start)}, shards=SHARDS)
            opened.publish(folder)
        yield opened


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test reads as a new process on a new machine does."""
    monkeypatch.setattr(proved, "_proofs", proved._Proofs())
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def store(bucket: str) -> Store:
    return open_store(f"{bucket}/data/animals/1.0.0")


def put(store: Store, name: str, content: bytes) -> None:
    with store.create(name, overwrite=True) as file:
        file.write(content)


def swap(store: Store) -> None:
    first, second = store.read_bytes(FIRST), store.read_bytes(SECOND)
    put(store, FIRST, second)
    put(store, SECOND, first)


@pytest.mark.parametrize("way", READS)
def test_no_way_of_reading_hands_out_a_record_of_a_wrong_object(catalog: Catalog, store: Store, way: str) -> None:
    swap(store)
    with pytest.raises(ShardMismatchError, match="sha256 mismatch"):
        READS[way](catalog.dataset("animals:1.0.0"))


def test_an_object_from_another_version_is_not_read(catalog: Catalog, store: Store, bucket: str) -> None:
    put(store, FIRST, open_store(f"{bucket}/data/animals/2.0.0").read_bytes(FIRST))
    with pytest.raises(ShardMismatchError, match=f"{bucket}/data/animals/1.0.0/{FIRST}: sha256 mismatch"):
        list(catalog.dataset("animals:1.0.0").read("train"))


def test_an_object_that_is_replaced_after_it_was_proved_is_not_read(catalog: Catalog, store: Store) -> None:
    dataset = catalog.dataset("animals:1.0.0")
    assert len(list(dataset.read("train"))) == COUNT
    swap(store)
    with pytest.raises(ShardMismatchError):
        list(dataset.read("train"))


def test_the_etag_of_each_object_is_recorded_when_it_is_published(catalog: Catalog, store: Store) -> None:
    shards = catalog.dataset("animals:1.0.0").shards("train")
    names = catalog.dataset("animals:1.0.0").splits["train"].filenames
    assert [shard.entity_tag for shard in shards] == [store.entity_tag(name) for name in names]
    assert all(shard.entity_tag for shard in shards)


@pytest.fixture
def large(catalog: Catalog, tmp_path: Path) -> Catalog:
    """``animals:3.0.0``, two shards of twelve megabytes."""
    examples = [{"name": f"{number:02}" * (LARGE // 2), "kind": 0, "age": number} for number in range(60)]
    catalog.publish(prepare(tmp_path / "3.0.0", "3.0.0", {"train": examples}, shards=2))
    return catalog


def hashed_for_one_example(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sha256 of every object that a new process hashes to read one example."""
    hashed: list[str] = []
    inner = proved._hash

    def counted(file: Any, stop: Any) -> str:
        hashed.append(inner(file, stop))
        return hashed[-1]

    with monkeypatch.context() as patch:
        patch.setattr(proved, "_hash", counted)
        patch.setattr(proved, "_proofs", proved._Proofs())
        reader = catalog.dataset("animals:3.0.0").read("train[:1]")
        assert [int(example["age"]) for example in reader] == [0]
    return hashed


def test_a_new_reader_downloads_no_whole_object_to_prove_it(
    large: Catalog, fault_proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=str(large.data_dir)) as opened:
        fault_proxy.reset()
        assert hashed_for_one_example(opened, monkeypatch) == []
    assert [request.method for request in fault_proxy.requests] == ["GET"]  # 4 MiB; the object has three times as much


@pytest.mark.parametrize("recorded", [None, '"of the same bytes, uploaded in other parts"'])
def test_without_the_right_etag_an_object_is_hashed_once_on_this_machine(
    large: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: str | None
) -> None:
    """An older registry recorded None; another tag is valid if the objects were copied to another bucket."""
    connection = sqlite3.connect(tmp_path / "catalog.db")
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("UPDATE shard SET entity_tag = ?", (recorded,))
    connection.commit()
    connection.close()
    assert len(hashed_for_one_example(large, monkeypatch)) == 1
    assert hashed_for_one_example(large, monkeypatch) == []


@pytest.mark.parametrize("way", ["copied", "in place"])
def test_an_object_that_is_replaced_before_the_row_is_written_is_not_read(
    bucket: str, s3_server: S3Server, fault_proxy: FaultProxy, tmp_path: Path, way: str
) -> None:
    """Its bytes were hashed, or copied from hashed ones; the look at the marker is the last one before the row."""
    mine, other = (
        prepare(tmp_path / str(start), splits={"train": same_sizes(COUNT, start)}, shards=SHARDS) for start in (10, 50)
    )
    place = f"{bucket}/data/animals/1.0.0"
    if way == "in place":
        for path in mine.iterdir():
            put(open_store(place), path.name, path.read_bytes())
    content = (other / FIRST).read_bytes()
    assert len(content) == (mine / FIRST).stat().st_size
    fault_proxy.inject(
        "hook",
        when=lambda request: (
            request.method == "GET" and request.key.endswith("/.reservation.json")
            if way == "copied"
            else request.key.endswith("/.reservation.json")
        ),
        times=1,
        hook=lambda: s3_server.request("PUT", f"/{place.removeprefix('s3://')}/{FIRST}", content),
    )
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as opened:
        assert opened.publish(mine if way == "copied" else place).newly
        assert open_store(place).read_bytes(FIRST) == content
        with pytest.raises(ShardMismatchError, match=f"{place}/{FIRST}: sha256 mismatch"):
            list(opened.dataset("animals:1.0.0").read("train"))
