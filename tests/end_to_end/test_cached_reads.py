"""Published versions in a bucket, read through the cache: what is asked of the store, and what works without it."""

from __future__ import annotations

import json
import pickle
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from end_to_end.test_wrong_files import COUNT, READS, SHARDS, same_sizes
from support.fault_proxy import Fault, FaultProxy, Request
from support.prepared_samples import prepare
from support.web_server import serve

import registry
from registry.api import Catalog, Dataset
from registry.cli.main import run
from registry.errors import (
    CorruptExampleError,
    ShardMismatchError,
    StorageError,
    StorageUnavailableError,
    UsageError,
    VerificationError,
)
from registry.shards import proved
from registry.storage import Store, open_store
from registry.storage.cache import BLOCK_BYTES

LARGE, LARGE_BYTES = 100, 100_000
"""Records of ``animals:2.0.0``, and bytes of each: a shard has many blocks, and is fetched by two requests."""

IN_ORDER = registry.ReadConfig(interleave_cycle_length=1)


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache that is large enough, on a new machine."""
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "indexes"))
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "100MB")


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forget which files this process has proved."""
    return lambda: monkeypatch.setattr(proved, "_proofs", proved._Proofs())


@pytest.fixture
def catalog(bucket: str, fault_proxy: FaultProxy, tmp_path: Path, new_process: Callable[[], None]) -> Iterator[Catalog]:
    """``animals:1.0.0``, four small shards, and ``2.0.0``, two shards of five megabytes, in a bucket."""
    new_process()
    large = [{"name": f"{number:02}" * (LARGE_BYTES // 2), "kind": 0, "age": number} for number in range(LARGE)]
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as opened:
        opened.publish(prepare(tmp_path / "1.0.0", "1.0.0", {"train": same_sizes(COUNT, 10)}, shards=SHARDS))
        opened.publish(prepare(tmp_path / "2.0.0", "2.0.0", {"train": large}, shards=2))
        fault_proxy.reset()
        yield opened


@pytest.fixture
def shards(bucket: str) -> Store:
    return open_store(f"{bucket}/data/animals/1.0.0")


def ages(reader: Any) -> list[int]:
    return [int(example["age"]) for example in reader]


def begins_at(index: int, request: Request) -> bool:
    return request.index >= index


def is_data(request: Request) -> bool:
    return request.method == "GET"


@pytest.mark.parametrize("way", READS)
def test_a_second_read_makes_no_request(
    catalog: Catalog, fault_proxy: FaultProxy, new_process: Callable[[], None], way: str
) -> None:
    catalog.dataset("animals:1.0.0").fetch()
    fault_proxy.reset()
    for _ in range(2):
        new_process()
        READS[way](catalog.dataset("animals:1.0.0"))
    assert fault_proxy.requests == []


def test_reading_fills_the_cache(catalog: Catalog, fault_proxy: FaultProxy, new_process: Callable[[], None]) -> None:
    first = ages(catalog.dataset("animals:2.0.0").read("train"))
    assert sorted(first) == list(range(LARGE))
    assert fault_proxy.count("GET") <= 8  # they grow from 1 MiB
    fault_proxy.reset()
    new_process()
    assert ages(catalog.dataset("animals:2.0.0").read("train")) == first
    assert fault_proxy.requests == []
    assert registry.cache().usage().num_files == 2


def test_a_slice_is_fetched_and_read_offline(
    catalog: Catalog, fault_proxy: FaultProxy, new_process: Callable[[], None]
) -> None:
    dataset = catalog.dataset("animals:2.0.0")
    told: list[registry.Progress] = []
    report = dataset.fetch("train[:20%]", progress=told.append)
    size = dataset.shards("train")[0].num_bytes
    assert (report.num_files, report.num_bytes, report.num_new_bytes, report.split) == (1, size, size, "train[:20%]")
    assert report.folder == str(registry.cache().folder)
    assert (told[0].done, told[-1].done, told[-1].total, told[-1].unit) == (0, size, size, "bytes")
    assert {request.key.rpartition("-")[0] for request in fault_proxy.requests} == {
        "data/animals/2.0.0/animals-train.tfrecord-00000-of"
    }
    fault_proxy.reset()
    fault_proxy.inject("drop")
    new_process()
    dataset = catalog.dataset("animals:2.0.0")
    expected = list(range(20))
    assert sorted(ages(dataset.read("train[:20%]"))) == expected
    shuffled = registry.ReadConfig(shuffle="global", seed=1)
    assert sorted(ages(dataset.read("train[:20%]", shuffled))) == expected
    assert int(dataset.read("train[:20%]")[7]["age"]) == 7
    assert [len(batch["age"]) for batch in dataset.read("train[:20%]").batches(5)] == [5, 5, 5, 5]
    reader = pickle.loads(pickle.dumps(dataset.slice_of("train[:20%]").readable))  # noqa: S301 (as a worker gets it)
    assert reader.cache.folder == registry.cache().folder
    assert dataset.fetch("train[:20%]").num_new_bytes == 0
    assert fault_proxy.requests == []
    with pytest.raises(StorageUnavailableError):
        list(dataset.read("train[90%:]"))


def test_a_pin_is_read_without_a_request(
    catalog: Catalog, fault_proxy: FaultProxy, tmp_path: Path, bucket: str, new_process: Callable[[], None]
) -> None:
    catalog.dataset("animals:2.0.0").pin({"some": "train[:50%]"}).save(tmp_path / "dataset.lock.yaml")
    catalog.dataset("animals:2.0.0").fetch("train[:50%]")
    fault_proxy.reset()
    new_process()
    pins = registry.load_pin(tmp_path / "dataset.lock.yaml", data_dir=f"{bucket}/data")
    assert sorted(ages(pins["some"].read())) == list(range(50))
    with registry.locked(pins):
        assert len(list(registry.load("animals", split="train[:10%]"))) == 10
    assert fault_proxy.requests == []


def test_the_files_of_a_pin_are_fetched(
    catalog: Catalog, fault_proxy: FaultProxy, tmp_path: Path, bucket: str, new_process: Callable[[], None]
) -> None:
    catalog.dataset("animals:1.0.0").pin("train[:50%]").save(tmp_path / "dataset.lock.yaml")
    pins = registry.load_pin(tmp_path / "dataset.lock.yaml", data_dir=f"{bucket}/data")
    with registry.locked(pins), registry.connect(tmp_path / "catalog.db") as opened:
        report = opened.dataset("animals").fetch()
        assert (report.num_files, report.split) == (SHARDS // 2, None)
        fault_proxy.reset()
        new_process()
        assert len(list(opened.dataset("animals").read("train[:50%]"))) == COUNT // 2
    assert fault_proxy.requests == []


def forget_tags(path: Path) -> None:
    """Make it a catalog from before ETags were recorded."""
    connection = sqlite3.connect(path)
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("UPDATE shard SET entity_tag = NULL")
    connection.commit()
    connection.close()


def test_an_object_that_has_to_be_hashed_is_fetched_once(
    catalog: Catalog, fault_proxy: FaultProxy, tmp_path: Path, new_process: Callable[[], None]
) -> None:
    forget_tags(tmp_path / "catalog.db")
    assert len(ages(catalog.dataset("animals:2.0.0").read("train"))) == LARGE
    assert (fault_proxy.count("HEAD"), fault_proxy.count("GET")) == (2, 4)
    fault_proxy.reset()
    new_process()
    assert len(ages(catalog.dataset("animals:2.0.0").read("train"))) == LARGE
    assert fault_proxy.requests == []


def test_another_object_is_not_kept(catalog: Catalog, tmp_path: Path, shards: Store) -> None:
    forget_tags(tmp_path / "catalog.db")
    first, second = catalog.dataset("animals:1.0.0").splits["train"].filenames[:2]
    with shards.create(first, overwrite=True) as file:
        file.write(shards.read_bytes(second))
    with pytest.raises(ShardMismatchError):
        list(catalog.dataset("animals:1.0.0").read("train[:1]"))
    assert registry.cache().usage().num_bytes == 0


def test_a_version_stays_readable_although_an_object_was_replaced(
    catalog: Catalog, shards: Store, new_process: Callable[[], None]
) -> None:
    """The cache has the published bytes. `verify` looks at the store."""
    before = ages(catalog.dataset("animals:1.0.0").read("train"))
    name = catalog.dataset("animals:1.0.0").splits["train"].filenames[0]
    with shards.create(name, overwrite=True) as file:
        file.write(b"something else")
    new_process()
    assert ages(catalog.dataset("animals:1.0.0").read("train")) == before
    assert [fault.filename for fault in catalog.dataset("animals:1.0.0").verify().faults] == [name]
    registry.cache().clear()
    with pytest.raises(VerificationError):
        list(catalog.dataset("animals:1.0.0").read("train"))


@pytest.mark.parametrize("way", ["read", "gather", "fetch", "unchecked"])
def test_bytes_that_are_damaged_on_their_way_are_fetched_again(
    catalog: Catalog, fault_proxy: FaultProxy, new_process: Callable[[], None], way: str
) -> None:
    fault_proxy.inject("corrupt", when=is_data, times=1)
    dataset = catalog.dataset("animals:2.0.0")
    if way == "fetch":
        dataset.fetch()
    elif way == "unchecked":  # the wrong byte is handed out, but not kept
        with suppress(CorruptExampleError):
            list(dataset.read("train", verify="off"))
    elif way == "gather":
        reader = dataset.read("train", IN_ORDER)
        assert [int(reader[place]["age"]) for place in (20, 3, 7)] == [20, 3, 7]
    else:
        assert sorted(ages(dataset.read("train"))) == list(range(LARGE))
    assert [request.fault for request in fault_proxy.requests].count("corrupt") == 1
    new_process()
    # Whole shards are compared with their sha256 before they are read from the cache, parts of them by their records.
    verify: Any = "off" if way == "unchecked" else "block"
    expected = ages(catalog.dataset("animals:2.0.0").read("train", verify=verify))
    assert sorted(expected) == list(range(LARGE))
    fault_proxy.reset()
    new_process()
    assert ages(catalog.dataset("animals:2.0.0").read("train")) == expected
    assert fault_proxy.requests == []


@pytest.mark.parametrize("fault", ["drop", "cut", "error", "forbidden", "truncate", "corrupt"])
@pytest.mark.parametrize("stays", [False, True])
def test_no_fault_at_any_request_leaves_wrong_bytes_in_the_cache(
    catalog: Catalog, fault_proxy: FaultProxy, new_process: Callable[[], None], fault: Fault, stays: bool
) -> None:
    def names() -> list[str]:
        new_process()
        return [example["name"] for example in catalog.dataset("animals:2.0.0").read("train")]

    expected = names()
    for index in range(5):
        registry.cache().clear()
        fault_proxy.reset()
        fault_proxy.inject(fault, when=partial(begins_at, index), times=None if stays else 1)
        with suppress(StorageError, VerificationError):
            assert names() == expected
        for _ in range(2):  # damage may be noticed late, and then drops all blocks of a file
            fault_proxy.reset()
            assert names() == expected
        fault_proxy.reset()
        assert names() == expected
        assert fault_proxy.requests == []


def test_a_store_that_always_returns_damaged_bytes_is_an_error(catalog: Catalog, fault_proxy: FaultProxy) -> None:
    fault_proxy.inject("corrupt", when=is_data)
    with pytest.raises(ShardMismatchError, match="sha256 mismatch: expected"):
        catalog.dataset("animals:2.0.0").fetch()
    with pytest.raises(registry.RegistryError) as caught:
        list(catalog.dataset("animals:2.0.0").read("train"))
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("order", [None, registry.ReadConfig(shuffle="global", seed=3)])
def test_shards_that_are_larger_than_the_cache_are_read(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, order: registry.ReadConfig | None
) -> None:
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", str(3 * BLOCK_BYTES + 100))
    for _ in range(2):
        assert sorted(ages(catalog.dataset("animals:2.0.0").read("train", order))) == list(range(LARGE))
    assert 0 < sum(path.stat().st_size for path in (tmp_path / "cache/blocks").glob("??/*/*")) <= 3 * BLOCK_BYTES + 100


def test_nothing_is_kept_if_the_cache_is_off(
    catalog: Catalog, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "0")
    for _ in range(2):
        fault_proxy.reset()
        ages(catalog.dataset("animals:1.0.0").read("train"))
        assert fault_proxy.count("GET") == SHARDS
    with pytest.raises(UsageError, match="the cache is switched off: REGISTRY_CACHE_BYTES is 0") as caught:
        catalog.dataset("animals:1.0.0").fetch()
    assert caught.value.hint == "Set REGISTRY_CACHE_BYTES, e.g. to 20GB."
    assert not (tmp_path / "cache").exists()


def test_a_slice_that_does_not_fit_is_not_begun(
    catalog: Catalog, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "1MB")
    with pytest.raises(StorageError, match=r"the files need 5,0.* bytes, but the cache .* is limited to 1,000,000"):
        catalog.dataset("animals:2.0.0").fetch("train[:1%]")
    assert fault_proxy.requests == []


@pytest.mark.parametrize("method", [Dataset.fetch, Dataset.keep_columns])
def test_what_cannot_be_kept_in_the_cache_is_an_error(
    method: Callable[[Dataset], object], catalog: Catalog, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("in the way")
    with pytest.raises(StorageError, match=f"cannot write {tmp_path}/cache/blocks: ") as caught:
        method(catalog.dataset("animals:1.0.0"))
    assert caught.value.hint == (
        "A part of this path is a file, not a folder. Check the path, or choose another cache folder with "
        "REGISTRY_CACHE or REGISTRY_CACHE_DIR."
    )


def test_a_cache_that_others_can_write_to_is_not_used(
    catalog: Catalog, tmp_path: Path, fault_proxy: FaultProxy, new_process: Callable[[], None]
) -> None:
    catalog.dataset("animals:1.0.0").fetch()
    folder = tmp_path / "cache/blocks"
    folder.chmod(0o770)
    new_process()
    fault_proxy.reset()
    ages(catalog.dataset("animals:1.0.0").read("train"))
    assert fault_proxy.requests
    with pytest.raises(StorageError, match=f"cannot write {folder}: it belongs to another user, or others can write"):
        catalog.dataset("animals:1.0.0").fetch()


def test_files_of_this_machine_are_not_kept(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "local.db", data_dir=tmp_path / "data") as opened:
        opened.publish(prepare(tmp_path / "1.0.0"))
        ages(opened.dataset("animals").read("train"))
        report = opened.dataset("animals").fetch()
    assert (report.num_files, report.num_new_bytes, report.folder) == (1, 0, None)
    assert not (tmp_path / "cache").exists()


def test_a_version_on_a_web_server_is_fetched_once(tmp_path: Path, new_process: Callable[[], None]) -> None:
    with registry.connect(tmp_path / "local.db", data_dir=tmp_path / "data") as opened:
        opened.publish(prepare(tmp_path / "1.0.0", shards=2))
    with serve(tmp_path / "data", "ranges") as url, registry.connect(tmp_path / "local.db", data_dir=url) as opened:
        new_process()
        before = ages(opened.dataset("animals:1.0.0").read("train"))
    new_process()
    with registry.connect(tmp_path / "local.db", data_dir=url) as opened:
        assert ages(opened.dataset("animals:1.0.0").read("train")) == before


def test_the_commands_show_fetch_and_clear(
    catalog: Catalog, tmp_path: Path, capsys: pytest.CaptureFixture[str], bucket: str
) -> None:
    options = ["--catalog", str(tmp_path / "catalog.db"), "--data-dir", f"{bucket}/data"]
    folder = str(tmp_path / "cache/blocks")
    assert run(["cache", "fetch", "animals:2.0.0", "train[:20%]", *options]) == 0
    assert capsys.readouterr().out == (
        "animals:2.0.0 train[:20%]: 1 file (4.8 MiB) in the cache, 4.8 MiB of which were fetched now\n"
    )
    assert run(["cache", "fetch", "animals:2.0.0", "--format", "json", *options]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    sizes = [shard.num_bytes for shard in catalog.dataset("animals:2.0.0").shards("train")]
    assert data == {
        "dataset": "animals",
        "version": "2.0.0",
        "split": None,
        "num_files": 2,
        "num_bytes": sum(sizes),
        "num_new_bytes": sizes[1],
        "folder": folder,
    }
    assert run(["cache", "show"]) == 0
    assert capsys.readouterr().out == (
        f"folder    {folder}\nsize      9.5 MiB\nlimit     95.4 MiB\nparts of  2 files\ncolumns   0\n"
    )
    assert run(["cache", "show", "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["schema"], shown["data"]["num_files"], shown["data"]["max_bytes"]) == (
        "registry.cache.show/1",
        2,
        100_000_000,
    )
    assert run(["cache", "clear", "--dry-run"]) == 0
    assert capsys.readouterr().out == f"would delete 9.5 MiB of {folder}\n"
    assert registry.cache().usage().num_bytes > 0
    assert run(["cache", "clear"]) == 0
    assert capsys.readouterr().out == f"deleted 9.5 MiB of {folder}\n"
    assert registry.cache().usage().num_bytes == 0
    assert run(["cache", "clear", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"] == {
        "folder": folder,
        "dry_run": False,
        "num_files": 0,
        "num_blocks": 0,
        "num_columns": 0,
        "num_bytes": 0,
    }
