"""How a store is asked about many files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Barrier, current_thread

import pytest
from support.fault_proxy import FaultProxy
from support.prepared_samples import animals, prepare

import registry
from registry.errors import NotStoredError
from registry.features import FeaturesDict, Scalar, codec_of
from registry.intake.feature_text import Wish
from registry.intake.in_place import describe_records
from registry.intake.options import AddOptions
from registry.prepared import read_prepared
from registry.publishing.verify import stamp_shards
from registry.shards.asking import ask_sizes, find_sizes, list_sizes
from registry.storage import Store, open_store
from registry.storage.object_store import ObjectStore
from registry.tfrecord import frame_record

AT_ONCE = 4


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, requests for sizes are answered only if four are waiting at the same time."""
    barrier, size = Barrier(AT_ONCE), ObjectStore.size

    def wait(self: ObjectStore, name: str) -> int:
        barrier.wait(timeout=60)
        return size(self, name)

    return lambda: monkeypatch.setattr(ObjectStore, "size", wait)


def fill(url: str, count: int) -> Store:
    store = open_store(url)
    for number in range(count):
        store.write_bytes(f"{number}", bytes(number))
    return store


def test_a_bucket_is_asked_for_several_sizes_at_the_same_time_and_answers_in_order(
    bucket: str, together: Callable[[], None]
) -> None:
    store = fill(f"{bucket}/data", 7)
    together()
    names = [*map(str, range(7)), "missing"]
    *found, (name, error) = ask_sizes(store, names)
    assert found == [(str(number), number) for number in range(7)]
    assert name == "missing"
    assert isinstance(error, NotStoredError)
    with pytest.raises(NotStoredError, match="missing"):
        find_sizes(store, names)


def test_the_sizes_of_a_folder_in_a_bucket_are_listed(bucket: str, fault_proxy: FaultProxy) -> None:
    fill(f"{bucket}/data", 12)
    store = open_store(f"{bucket}/data")
    store.write_bytes("incomplete.5f0a9c31_12", b"")
    fault_proxy.reset()
    assert list_sizes(store) == {str(number): number for number in sorted(range(12), key=str)}
    assert fault_proxy.count("GET") == 2
    assert fault_proxy.count("HEAD") <= 4  # whether empty objects are folders of a web console


def test_the_sizes_of_a_folder_on_a_disk_are_those_of_files_not_of_links(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(bytes(1000))
    (tmp_path / "link").symlink_to("one")
    assert list_sizes(open_store(tmp_path)) == {"link": 1000, "one": 1000}


def test_a_pin_in_a_bucket_is_created_without_asking_for_sizes_and_verified_by_several_requests_at_a_time(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_in, size = [], ObjectStore.size

    def note(self: ObjectStore, name: str) -> int:
        asked_in.append(current_thread())
        return size(self, name)

    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as catalog:
        catalog.build("digits", num_shards=AT_ONCE)
        dataset = catalog.dataset("digits")
        monkeypatch.setattr(ObjectStore, "size", note)
        pin = dataset.pin("train")["train"]
        assert asked_in == []
        assert pin.verify().faults == ()
        # Several places are looked at for a folder that has all files, and then their sizes are compared.
        assert len(asked_in) > 2 * AT_ONCE
        assert asked_in.count(current_thread()) <= 2  # for a description, and for the mean size of records


def test_record_files_in_a_bucket_are_described_without_asking_for_the_size_of_each(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, features = open_store(f"{bucket}/data"), FeaturesDict({"number": Scalar("int64")})
    for index in range(AT_ONCE):
        record = codec_of(features).encode({"number": index})
        store.write_bytes(f"n-train.tfrecord-{index:05}-of-{AT_ONCE:05}", frame_record(record))
    monkeypatch.setattr(ObjectStore, "size", None)
    wishes = {"number": Wish(text="int64", feature=features["number"])}
    found = describe_records(store, registry.Reference.parse("n"), wishes, AddOptions())
    assert [split.num_examples for split in found.prepared.splits] == [AT_ONCE]
    assert {one.num_bytes for one in found.plan.source.files} == {store.open(store.list()[0]).num_bytes}


def test_shards_that_are_published_in_place_are_stamped_by_several_requests_at_a_time(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepare(tmp_path / "animals", splits={"train": animals(20)}, shards=AT_ONCE)
    prepared = read_prepared(open_store(folder))
    store = open_store(f"{bucket}/animals")
    for name in open_store(folder).list():
        store.create_from(name, open_store(folder), name)
    expected = stamp_shards(store, prepared)
    barrier, stamp = Barrier(AT_ONCE), ObjectStore.stamp

    def wait(self: ObjectStore, name: str) -> str:
        barrier.wait(timeout=60)
        return stamp(self, name)

    monkeypatch.setattr(ObjectStore, "stamp", wait)
    assert stamp_shards(store, prepared) == expected is not None
