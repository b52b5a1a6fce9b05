"""Versions in a bucket are read in every order as on disk, by few requests that begin before they are needed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fault_proxy import FaultProxy
from support.prepared_samples import prepare

import registry
from registry.api import Catalog
from registry.images import encode_png
from registry.reading import pieces

COUNT, NAME_BYTES, SHARDS = 240, 50_000, 3
ORDERS = {
    "interleaved": None,
    "file by file": registry.ReadConfig(interleave_cycle_length=1),
    "shuffled files": registry.ReadConfig(shuffle_files=True, shuffle_seed=3, interleave_block_length=5),
    "shuffled": registry.ReadConfig(shuffle="global", seed=5),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """``animals:1.0.0``: 12 MB in three shards."""
    examples = [{"name": f"{number:05}" * (NAME_BYTES // 5), "kind": 0, "age": number} for number in range(COUNT)]
    return prepare(tmp_path / "prepared", "1.0.0", {"train": examples}, shards=SHARDS)


@pytest.fixture
def catalog(
    bucket: str, fault_proxy: FaultProxy, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Catalog]:
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "indexes"))
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as opened:
        opened.publish(folder)
        fault_proxy.reset()
        yield opened


def ages(reader: Any) -> list[int]:
    return [int(example["age"]) for example in reader]


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("cache_bytes", ["0", "3MB", "100MB"])
def test_every_order_is_that_of_the_files_on_disk(
    catalog: Catalog, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, cache_bytes: str
) -> None:
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", cache_bytes)
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    with registry.connect(tmp_path / "local.db", data_dir=tmp_path / "data") as local:
        local.publish(folder)
        expected = ages(local.dataset("animals").read("train", ORDERS[name]))
        tail = ages(local.dataset("animals").read("train[37%:]", ORDERS[name]))
    assert sorted(expected) == list(range(COUNT))
    for _ in range(2):  # without an index of the records, then with it
        reader = catalog.dataset("animals").read("train", ORDERS[name])
        assert ages(reader) == expected
        assert [int(age) for age in reader[[3, 200, 77, 3]]["age"]] == [expected[place] for place in (3, 200, 77, 3)]
        assert ages(catalog.dataset("animals").read("train[37%:]", ORDERS[name])) == tail


@pytest.mark.parametrize("name", ORDERS)
def test_a_first_read_fetches_each_byte_once_by_few_requests(
    catalog: Catalog, fault_proxy: FaultProxy, name: str
) -> None:
    assert len(ages(catalog.dataset("animals").read("train", ORDERS[name]))) == COUNT
    assert fault_proxy.count("GET") == fault_proxy.count() <= 4 * SHARDS  # of four megabytes each, in growing pieces
    num_bytes = sum(len(range_of(request.headers["range"])) for request in fault_proxy.requests)
    assert num_bytes == sum(shard.num_bytes for shard in catalog.dataset("animals").shards("train"))


def test_a_shuffle_without_a_cache_fetches_few_bytes_twice(
    catalog: Catalog, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "0")
    ages(catalog.dataset("animals").read("train"))  # the places of the records are known now
    fault_proxy.reset()
    assert len(ages(catalog.dataset("animals").read("train", ORDERS["shuffled"]))) == COUNT
    num_bytes = sum(len(range_of(request.headers["range"])) for request in fault_proxy.requests)
    assert num_bytes < 1.1 * COUNT * NAME_BYTES


def test_a_shuffle_fetches_files_of_many_pixels_together(
    bucket: str, fault_proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "0")
    monkeypatch.setattr(pieces, "_MAPPED_BYTES", 2**16)  # the pixels of one image
    pixels = np.zeros((256, 256, 3), np.uint8)
    pixels[:200] = np.random.default_rng(1).integers(0, 256, (200, 256, 3))
    image = encode_png(pixels)
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as catalog:
        catalog.add([{"image": image, "age": number} for number in range(120)], "images")
        dataset = catalog.dataset("images")
        ages(dataset.read("train").select("age"))  # the places of the records are known now
        fault_proxy.reset()
        assert sorted(ages(dataset.read("train", ORDERS["shuffled"]))) == list(range(120))
    assert fault_proxy.count() <= 8, fault_proxy.count()


def test_any_record_is_one_request_once_its_place_is_known(catalog: Catalog, fault_proxy: FaultProxy) -> None:
    reader = catalog.dataset("animals").read("train")
    expected = ages(reader)
    fault_proxy.reset()
    reader = catalog.dataset("animals").read("train")
    assert int(reader[150]["age"]) == expected[150]
    assert [request.method for request in fault_proxy.requests] == ["GET"]
    assert len(range_of(fault_proxy.requests[0].headers["range"])) < 2 * NAME_BYTES


def range_of(header: str) -> range:
    first, _, last = header.removeprefix("bytes=").partition("-")
    return range(int(first), int(last) + 1)


@pytest.mark.parametrize("name", ORDERS)
def test_requests_begin_before_their_bytes_are_needed(catalog: Catalog, fault_proxy: FaultProxy, name: str) -> None:
    ages(catalog.dataset("animals").read("train", ORDERS[name]))
    fault_proxy.reset()
    examples = iter(catalog.dataset("animals").read("train", ORDERS[name]))
    next(examples)
    next(examples)
    end = time.monotonic() + 300
    while sum(len(range_of(one.headers["range"])) for one in fault_proxy.requests) < COUNT * NAME_BYTES:
        assert time.monotonic() < end, "the records after the second one were not requested"
        time.sleep(0.01)


def test_a_forked_child_continues_a_read_that_its_parent_began(catalog: Catalog) -> None:
    examples = iter(catalog.dataset("animals").read("train"))
    first = [int(next(examples)["age"]) for _ in range(12)]
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write_end, " ".join(str(int(one["age"])) for one in examples).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        in_child = [int(age) for age in answer.read().split()]
    os.waitpid(child, 0)
    in_parent = [int(one["age"]) for one in examples]
    assert in_child == in_parent
    assert sorted(first + in_parent) == list(range(COUNT))


@pytest.mark.parametrize("name", ["interleaved", "shuffled"])
def test_bytes_that_were_damaged_on_their_way_are_requested_again(
    catalog: Catalog, fault_proxy: FaultProxy, name: str
) -> None:
    """A range of an object has no digest of its own: the checksum of a record notices the damage."""
    for _ in range(2):  # without an index of the records, then with it
        fault_proxy.reset()
        fault_proxy.inject("corrupt", at=2, times=1)
        assert sorted(ages(catalog.dataset("animals").read("train", ORDERS[name]))) == list(range(COUNT))
