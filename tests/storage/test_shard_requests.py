"""How many requests it takes to read shards of an object store."""

from __future__ import annotations

import io
import os

import pyarrow as pa
import pytest
from pyarrow import parquet
from support.fault_proxy import FaultProxy

from registry.features import FeaturesDict, Tensor
from registry.shards import open_shard, read_records, walk_file
from registry.storage import Store, open_store
from registry.tfrecord import frame_record

RECORDS = [os.urandom(100_000) for _ in range(90)]


@pytest.fixture
def objects(bucket: str) -> Store:
    return open_store(f"{bucket}/data")


def put(store: Store, name: str, content: bytes) -> None:
    with store.create(name) as file:
        file.write(content)


def test_a_file_is_walked_by_requests_of_four_megabytes(objects: Store, fault_proxy: FaultProxy) -> None:
    put(store := open_store(objects.url), "shard", b"".join(map(frame_record, RECORDS)))
    fault_proxy.reset()
    facts = walk_file(store, "shard")
    assert (facts.num_records, facts.num_payload_bytes) == (90, 9_000_000)
    assert (fault_proxy.count("HEAD"), fault_proxy.count("GET")) == (1, 4)  # its first bytes say that it is not gzip


def test_a_row_group_is_one_request_for_the_columns_that_are_wanted(objects: Store, fault_proxy: FaultProxy) -> None:
    columns = {name: pa.array([os.urandom(50_000) for _ in range(40)]) for name in "abc"}
    content = io.BytesIO()
    parquet.write_table(pa.table(columns), content, row_group_size=20, use_dictionary=False)
    put(store := open_store(objects.url), "shard", content.getvalue())
    fault_proxy.reset()
    features = FeaturesDict({name: Tensor(shape=(), dtype="string") for name in "ab"})
    shard = open_shard(store, "shard", file_format="parquet_columns", features=features)
    assert fault_proxy.count() == 2  # how long it is, and the footer
    assert shard.read(0, 20).num_records == 20
    assert fault_proxy.count() == 3  # two columns of a megabyte
    assert len(list(read_records(store, "shard", file_format="parquet_columns", features=features))) == 40
