"""A small Parquet file of a billion values that are all one: refused, or read a thousand rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from support.levels import either
from support.thrift_trees import field, read_struct, write_struct

from registry.errors import ShardMismatchError
from registry.interop.parquet import describe_parquet
from registry.publishing.fingerprint import StoredSplits, fingerprint_splits
from registry.shards import open_shard, read_records, row_groups, walk_file
from registry.storage import open_store

HINT = "Write the file again with smaller row groups, e.g. of 1,000 rows."
FORMAT = "parquet_columns"
MANY = 2**15


@pytest.fixture(params=[True, False], ids=["statistics", "none"])
def bomb(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with a file of some kilobytes; one of its row groups decodes to 131 MB of text."""
    codes = pa.array(np.zeros(MANY, np.int32))
    table = pa.table({"text": pa.DictionaryArray.from_arrays(codes, ["x" * 4000]).cast(pa.string())})
    path = tmp_path / "train.parquet"
    parquet.write_table(table, path, row_group_size=MANY, write_statistics=request.param)
    assert path.stat().st_size < 2**15
    return tmp_path


@pytest.fixture
def most_memory() -> Iterator[Callable[[], int]]:
    """The most memory that Arrow had at a time since the test began."""
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counted)
    yield counted.max_memory
    pa.set_memory_pool(before)


def test_a_description_a_walk_and_a_fingerprint_take_little_memory(bomb: Path, most_memory: Callable[[], int]) -> None:
    store = open_store(bomb)
    prepared = describe_parquet(store, name="bomb")
    facts = walk_file(store, "train.parquet", file_format=FORMAT)
    assert facts.num_records == MANY
    assert facts.num_payload_bytes > 4000 * MANY
    assert 0 < most_memory() < 2**25
    found = fingerprint_splits(StoredSplits(store, prepared.splits, prepared.features), processes=1).folded.fingerprints
    assert found["train"].num_examples == MANY
    assert most_memory() < 2**25


def test_a_row_group_that_is_too_large_once_it_is_decoded_is_refused(
    bomb: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_groups, "_MOST_BYTES", 2**24)
    store = open_store(bomb)
    shard = open_shard(store, "train.parquet", file_format=FORMAT)
    with pytest.raises(ShardMismatchError) as refused:
        shard.read(5, 1)
    assert str(refused.value) == (
        f"{bomb}/train.parquet: its row group, records 0 to {MANY - 1}, "
        f"takes more than {2**24} bytes once it is decoded"
    )
    assert refused.value.hint == HINT
    assert refused.value.details == {"path": f"{bomb}/train.parquet", "first": 0, "stop": MANY}
    assert walk_file(store, "train.parquet", file_format=FORMAT).num_records == MANY


@pytest.mark.parametrize(
    ("most", "problem"),
    [
        (1000, "takes {size} bytes, more than 1000"),
        (20_000, "holds 2000 rows of 2 columns, more than 2500 values"),
    ],
)
def test_what_the_footer_tells_is_refused_when_the_file_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, problem: str
) -> None:
    table = pa.table({"one": pa.array([1] * 2010, pa.int8()), "two": pa.array(range(2010), pa.int32())})
    parquet.write_table(table, tmp_path / "train.parquet", row_group_size=2000, use_dictionary=False)
    size = parquet.read_metadata(tmp_path / "train.parquet").row_group(0).total_byte_size
    monkeypatch.setattr(row_groups, "_MOST_BYTES", most)
    with pytest.raises(ShardMismatchError) as refused:
        describe_parquet(open_store(tmp_path), name="bomb")
    assert str(refused.value) == (
        f"{tmp_path}/train.parquet: its row group, records 0 to 1999, {problem.format(size=size)}"
    )
    assert refused.value.hint == HINT


@pytest.mark.parametrize("step", either(4, 1))
def test_rows_are_the_same_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    count = 23
    table = pa.table(
        {
            "id": range(count),
            "text": [f"text {number % 5}" for number in range(count)],
            "kind": pa.array([f"kind {number % 3}" for number in range(count)]).dictionary_encode(),
            "list": [[number] * (number % 4) for number in range(count)],
            "fixed": pa.array([[[number, 1], [2, 3]] for number in range(count)], pa.list_(pa.list_(pa.int8(), 2), 2)),
            "some": [None if number % 3 else number for number in range(count)],
            "in": [{"a": number, "b": {"c": str(number)}} for number in range(count)],
        }
    )
    parquet.write_table(table, tmp_path / "train.parquet", row_group_size=10)
    store = open_store(tmp_path)
    features = describe_parquet(store, name="things").features

    def read(skip: int, take: int) -> list[bytes]:
        return list(read_records(store, "train.parquet", file_format=FORMAT, features=features, skip=skip, take=take))

    whole = read(0, count)
    monkeypatch.setattr(row_groups, "_BATCH_ROWS", 3)
    monkeypatch.setattr(row_groups, "_STREAM_ROWS", 2)
    shard = open_shard(store, "train.parquet", file_format=FORMAT, features=features)
    for first in range(0, count + 1, step):
        for stop in range(first, count + 1):
            assert read(first, stop - first) == whole[first:stop]
            assert first == stop or shard.read(first, stop - first).records() == whole[first:stop]
    order = np.array([22, 0, 9, 10, 9, 3])
    assert shard.gather(order).records() == [whole[place] for place in order]
    assert describe_parquet(store, name="things").features == features


def test_pages_that_claim_more_than_the_footer_are_refused_before_they_are_inflated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The footer says that the columns take some bytes, and each has a page of megabytes. A worker tries them."""
    table = pa.table({name: pa.array([bytes(2**16)] * 100) for name in ("one", "two")})
    path = tmp_path / "train.parquet"
    parquet.write_table(table, path, compression="zstd", use_dictionary=False, data_page_size=2**26)
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    footer, _ = read_struct(content, start)
    (group,) = field(footer, 4)[1]  # type: ignore[index]
    for chunk in field(group, 1)[1]:  # type: ignore[index]
        field(field(chunk, 3), 6)[1] = 100  # type: ignore[arg-type, index]
    field(group, 2)[1] = 200  # type: ignore[index]
    written = write_struct(footer)
    path.write_bytes(content[:start] + written + len(written).to_bytes(4, "little") + b"PAR1")
    assert walk_file(open_store(tmp_path), "train.parquet", file_format=FORMAT).num_records == 100
    monkeypatch.setattr(row_groups, "_MOST_BYTES", 2**23)
    path.touch()
    with pytest.raises(ShardMismatchError) as refused:
        walk_file(open_store(tmp_path), "train.parquet", file_format=FORMAT)
    expected = f"its row group, records 0 to 99, has pages that take more than {2**23} bytes of memory"
    assert str(refused.value) == f"{path}: {expected}"
    assert refused.value.hint == HINT
