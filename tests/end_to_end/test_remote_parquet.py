"""Parquet shards in a bucket are read in every order as on disk; their next row groups are requested early."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from support.fault_proxy import FaultProxy

import registry
from registry.api import Catalog

COUNT, SHARDS, GROUP_ROWS, NAME_BYTES = 240, 3, 10, 20_000
ORDERS = {
    "file by file": None,
    "shuffled files": registry.ReadConfig(shuffle_files=True, shuffle_seed=3),
    "shuffled": registry.ReadConfig(shuffle="global", seed=5),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three shards of eight row groups, each 200 kB."""
    folder = tmp_path / "animals"
    folder.mkdir()
    size = COUNT // SHARDS
    for index in range(SHARDS):
        ages = range(index * size, (index + 1) * size)
        table = pa.table({"age": pa.array(ages, pa.int64()), "name": [os.urandom(NAME_BYTES) for _ in ages]})
        path = folder / f"train-{index:05}-of-{SHARDS:05}.parquet"
        parquet.write_table(table, path, row_group_size=GROUP_ROWS, use_dictionary=False)
    return folder


@pytest.fixture
def catalog(
    bucket: str, fault_proxy: FaultProxy, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Catalog]:
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "indexes"))
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "0")
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as opened:
        opened.import_parquet(folder, copy=True)
        fault_proxy.reset()
        yield opened


def ages(reader: Any) -> list[int]:
    return [int(example["age"]) for example in reader]


def requested_bytes(proxy: FaultProxy) -> int:
    total = 0
    for one in proxy.requests:
        first, _, last = one.headers.get("range", "bytes=0--1").removeprefix("bytes=").partition("-")
        total += int(last) + 1 - int(first)
    return total


@pytest.mark.parametrize("name", ORDERS)
def test_every_order_is_that_of_the_files_on_disk(catalog: Catalog, folder: Path, tmp_path: Path, name: str) -> None:
    with registry.connect(tmp_path / "local.db") as local:
        local.import_parquet(folder)
        expected = ages(local.dataset("animals").read("train", ORDERS[name]))
        tail = ages(local.dataset("animals").read("train[37%:]", ORDERS[name]))
    assert sorted(expected) == list(range(COUNT))
    reader = catalog.dataset("animals").read("train", ORDERS[name])
    assert ages(reader) == expected
    assert [int(age) for age in reader[[3, 200, 77, 3]]["age"]] == [expected[place] for place in (3, 200, 77, 3)]
    assert ages(catalog.dataset("animals").read("train[37%:]", ORDERS[name])) == tail


@pytest.mark.parametrize("name", ORDERS)
def test_row_groups_are_requested_once_and_before_they_are_needed(
    catalog: Catalog, fault_proxy: FaultProxy, name: str
) -> None:
    examples = iter(catalog.dataset("animals").read("train", ORDERS[name]))
    next(examples)
    next(examples)
    end = time.monotonic() + 300
    while requested_bytes(fault_proxy) < COUNT * NAME_BYTES:
        assert time.monotonic() < end, "the row groups after the first one were not requested"
        time.sleep(0.01)
    assert len(list(examples)) == COUNT - 2
    assert requested_bytes(fault_proxy) < 1.2 * COUNT * NAME_BYTES


def test_a_forked_child_continues_a_read_that_its_parent_began(catalog: Catalog) -> None:
    examples = iter(catalog.dataset("animals").read("train"))
    assert [int(next(examples)["age"]) for _ in range(12)] == list(range(12))
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
    assert in_child == [int(one["age"]) for one in examples] == list(range(12, COUNT))


def test_a_request_that_was_dropped_is_sent_again(catalog: Catalog, fault_proxy: FaultProxy) -> None:
    fault_proxy.inject("drop", at=4, times=1)
    assert ages(catalog.dataset("animals").read("train")) == list(range(COUNT))


def test_only_a_bounded_number_of_bytes_is_requested_ahead(
    catalog: Catalog, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    group_bytes = GROUP_ROWS * NAME_BYTES
    monkeypatch.setattr("registry.shards.row_groups._MOST_WANTED", 2.5 * group_bytes)
    examples = iter(catalog.dataset("animals").read("train"))
    for _ in range(COUNT // 4):
        next(examples)
    assert requested_bytes(fault_proxy) < COUNT // 4 * NAME_BYTES + 5 * group_bytes
    assert len(list(examples)) == COUNT * 3 // 4
    assert requested_bytes(fault_proxy) < 1.2 * COUNT * NAME_BYTES
