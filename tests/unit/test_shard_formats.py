"""One door to shard files: ArrayRecord and Parquet give the records that TFRecord gives; faults have a place."""

from __future__ import annotations

import hashlib
import shutil
import sys
from functools import partial
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from support.golden import check_errors
from support.levels import either
from support.shard_samples import WRITERS, write_array_record, write_parquet

from registry.errors import (
    CorruptRecordError,
    NotStoredError,
    StorageError,
    UsageError,
    VerificationError,
)
from registry.shards import BlockCache, as_records, join_blocks, open_shard, read_records, walk_file
from registry.storage import Store, open_store

GOLDEN = Path(__file__).parent / "golden" / "shard_formats"
RECORDS = [b"first", b"", b"the third record" * 50, b"12345", b"54321", b"abcde", b"\0" * 9]
FORMATS = tuple(WRITERS)
OTHERS = ("array_record", "parquet")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "data")


@pytest.mark.parametrize("file_format", FORMATS)
def test_records_are_read_by_number_in_runs_and_in_any_order(store: Store, file_format: str) -> None:
    WRITERS[file_format](store, "shard", RECORDS)
    shard = open_shard(store, "shard", file_format=file_format, num_records=len(RECORDS))
    for first in range(len(RECORDS) + 1):
        for stop in range(first, len(RECORDS) + 1):
            assert shard.read(first, stop - first).records() == RECORDS[first:stop]
    order = np.array([6, 0, 3, 3, 1, 5, 0])
    assert shard.gather(order).records() == [RECORDS[place] for place in order]
    assert shard.gather(order[:0]).records() == []
    assert list(map(bytes, as_records(shard.gather(order)).views())) == [RECORDS[place] for place in order]


@pytest.mark.parametrize("file_format", FORMATS)
def test_read_records_skips_and_takes(store: Store, file_format: str) -> None:
    WRITERS[file_format](store, "shard", RECORDS)

    def read(**options: int | None) -> list[bytes]:
        return list(read_records(store, "shard", file_format=file_format, **options))  # type: ignore[arg-type]

    assert read() == read(num_records=7) == RECORDS
    assert read(skip=2, take=3) == read(skip=2, take=3, num_records=7) == RECORDS[2:5]
    assert read(skip=6) == RECORDS[6:]
    assert read(take=0) == []
    with pytest.raises(UsageError, match="skip must be 0 or more, not -1"):
        read(skip=-1)


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("records", [RECORDS, []], ids=["some", "none"])
def test_a_walk_counts_and_hashes(store: Store, file_format: str, records: list[bytes]) -> None:
    WRITERS[file_format](store, "shard", records)
    content = Path(store.locate("shard")).read_bytes()
    facts = walk_file(store, "shard", file_format=file_format)
    assert facts.num_records == len(records)
    assert facts.num_payload_bytes == sum(map(len, records))
    assert (facts.num_bytes, facts.sha256) == (len(content), hashlib.sha256(content).hexdigest())


@pytest.mark.parametrize("file_format", FORMATS)
def test_another_number_of_records_than_promised_is_refused(tmp_path: Path, store: Store, file_format: str) -> None:
    WRITERS[file_format](store, "shard", RECORDS)
    more, fewer, shard = (
        open_shard(store, "shard", file_format=file_format, num_records=number) for number in (6, 9, None)
    )
    assert more.read(0, 5).records() == RECORDS[:5]
    assert fewer.read(0, 7).records() == RECORDS
    calls = (
        lambda: more.read(0, 6),
        lambda: more.read(6, 1),
        lambda: fewer.read(5, 4),
        lambda: list(read_records(store, "shard", file_format=file_format, num_records=8)),
        lambda: shard.gather(np.array([2, 7])),
    )
    check_errors(GOLDEN / "another_number_of_records.txt", calls, folder=tmp_path)


@pytest.mark.parametrize("content", [b"", b"no shard" * 20_000], ids=["empty", "other"])
def test_a_file_of_another_format_is_named(tmp_path: Path, store: Store, content: bytes) -> None:
    with store.create("shard") as file:
        file.write(content)
    calls = (partial(call, store, "shard", file_format=name) for name in OTHERS for call in (open_shard, walk_file))
    check_errors(GOLDEN / "a_file_of_another_format.txt", calls, folder=tmp_path)


@pytest.mark.parametrize("file_format", OTHERS)
def test_a_file_that_is_cut_off_is_refused(store: Store, file_format: str) -> None:
    WRITERS[file_format](store, "whole", RECORDS * 40)
    content = Path(store.locate("whole")).read_bytes()
    for stop in np.linspace(0, len(content) - 1, 60).astype(int).tolist():
        Path(store.locate("shard")).write_bytes(content[:stop])
        with pytest.raises(VerificationError):
            open_shard(store, "shard", file_format=file_format).read(0, 1)
        with pytest.raises(VerificationError):
            walk_file(store, "shard", file_format=file_format)


def test_a_flipped_bit_in_a_record_of_array_record_is_caught_and_the_record_named(store: Store) -> None:
    records = [b"record %d " % number * 20 for number in range(50)]
    write_array_record(store, "whole", records)
    content = Path(store.locate("whole")).read_bytes()
    digest = walk_file(store, "whole", file_format="array_record").sha256
    named: set[int] = set()
    for place in range(100, 4000, 79):
        damaged = bytearray(content)
        damaged[place] ^= 4
        Path(store.locate("shard")).write_bytes(damaged)
        shard = open_shard(store, "shard", file_format="array_record", num_records=50)
        fault = None
        try:
            assert shard.read(0, 50).records() == records
        except CorruptRecordError as error:
            fault = error
        if fault is None:  # the byte belongs to no record
            assert walk_file(store, "shard", file_format="array_record").sha256 != digest
            continue
        record = fault.details["record"]
        named.add(record)
        path = store.locate("shard")
        assert str(fault) == f"{path}: record {record}: it cannot be read, or does not match its checksum"
        assert shard.read(0, record).records() == records[:record]
        with pytest.raises(CorruptRecordError):
            shard.gather(np.array([record, 0]))
        with pytest.raises(CorruptRecordError):
            walk_file(store, "shard", file_format="array_record")
    assert len(named) > 10


def test_damage_of_a_row_group_names_its_first_record_and_other_groups_are_readable(store: Store) -> None:
    records = [b"record %d " % number * 20 for number in range(12)]
    write_parquet(store, "shard", records, group_size=4)
    path = Path(store.locate("shard"))
    about = parquet.ParquetFile(path).metadata.row_group(1).column(0)
    offset = about.data_page_offset
    damaged = bytearray(path.read_bytes())
    damaged[offset : offset + 20] = b"\xff" * 20  # the header of its page
    path.write_bytes(damaged)
    shard = open_shard(store, "shard", file_format="parquet", num_records=12)
    assert shard.read(0, 4).records() == records[:4]
    assert shard.gather(np.array([11, 0])).records() == [records[11], records[0]]
    with pytest.raises(CorruptRecordError) as caught:
        shard.read(2, 5)
    assert str(caught.value) == (f"{path}: record 4: its row group, records 4 to 7, cannot be decoded")
    with pytest.raises(CorruptRecordError, match="record 4: its row group"):
        walk_file(store, "shard", file_format="parquet")


@pytest.mark.parametrize("step", either(3, 1))
def test_every_damaged_parquet_file_is_read_or_refused(store: Store, step: int) -> None:
    records = [b"record %d " % number for number in range(12)]
    write_parquet(store, "whole", records, group_size=4)
    content = Path(store.locate("whole")).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    refused = 0
    for place in range(0, len(content), step):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        Path(store.locate("shard")).write_bytes(damaged)
        try:
            facts = walk_file(store, "shard", file_format="parquet")
        except VerificationError:
            refused += 1
        else:  # a page has no checksum unless its writer adds one: the file's digest detects it
            assert facts.sha256 != digest
    assert refused > len(content) // 5 // step


def test_page_checksums_are_checked_if_they_exist(store: Store) -> None:
    table = pa.table({"data": pa.array([b"record %d" % number for number in range(100)], pa.binary())})
    path = Path(store.locate("shard"))
    path.parent.mkdir()
    parquet.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    damaged = bytearray(path.read_bytes())
    place = damaged.index(b"record 17")
    damaged[place + 8] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptRecordError, match="records 0 to 99, cannot be decoded"):
        open_shard(store, "shard", file_format="parquet").read(0, 1)
    unchecked = open_shard(store, "shard", file_format="parquet", verify="off")
    assert unchecked.read(17, 1).records() == [b"record 16"]


def test_only_the_column_of_examples_is_read(store: Store) -> None:
    path = Path(store.locate("shard"))
    path.parent.mkdir()
    columns = {"data.x": [b"other", b"other"], "id": [1, 2], "data": [b"first", b"second"]}
    parquet.write_table(pa.table(columns), path)
    assert list(read_records(store, "shard", file_format="parquet")) == [b"first", b"second"]


def test_a_null_is_refused_as_a_record(store: Store) -> None:
    path = Path(store.locate("shard"))
    path.parent.mkdir()
    parquet.write_table(pa.table({"data": pa.array([b"a", None], pa.binary())}), path)
    with pytest.raises(CorruptRecordError) as caught:
        open_shard(store, "shard", file_format="parquet").read(0, 1)
    assert caught.value.details["reason"] == "it holds a null"


def test_formats_and_columns_that_are_not_read_are_named(tmp_path: Path, store: Store) -> None:
    path = Path(store.locate("shard"))
    path.parent.mkdir()
    parquet.write_table(pa.table({"label": [1, 2]}), path)
    calls = [partial(open_shard, store, "shard", file_format=name) for name in ("parquet", "parket", "riegeli")]
    calls += [partial(call, store, "shard", file_format="riegeli") for call in (walk_file, read_records)]
    check_errors(GOLDEN / "formats_and_columns_that_are_not_read.txt", calls, folder=tmp_path)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
def test_records_of_parquet_are_not_copied(store: Store, kind: pa.DataType) -> None:
    path = Path(store.locate("shard"))
    path.parent.mkdir()
    parquet.write_table(pa.table({"data": pa.array(RECORDS, kind)}), path)
    cache = BlockCache()
    first, second = (open_shard(store, "shard", file_format="parquet", cache=cache) for _ in range(2))
    assert first.read(1, 3).records() == RECORDS[1:4]
    assert np.shares_memory(as_records(first.read(0, 3)).data, as_records(second.read(2, 4)).data)


def test_the_cache_keeps_what_fits_and_always_the_last() -> None:
    cache = BlockCache(max_bytes=100)
    blocks = [join_blocks([]) for _ in range(5)]
    for group, block in enumerate(blocks):
        cache.keep("shard", group, block, 40)
    assert [cache.find("shard", group) is not None for group in range(5)] == [False, False, False, True, True]
    cache.keep("shard", 9, blocks[0], 1000)
    assert [cache.find("shard", group) is not None for group in (3, 4, 9)] == [False, False, True]
    assert cache.find("other", 9) is None


@pytest.mark.parametrize("file_format", OTHERS)
def test_a_missing_file_is_named(store: Store, file_format: str) -> None:
    with pytest.raises(NotStoredError, match=r"cannot read .*shard: No such file"):
        open_shard(store, "shard", file_format=file_format)


@pytest.fixture
def remote(store: Store) -> Store:
    """A store elsewhere with a shard of each format."""
    made = open_store(f"memory://{uuid4().hex}")
    for file_format, write in WRITERS.items():
        write(store, file_format, RECORDS)
        with store.open(file_format) as source, made.create(file_format) as file:
            shutil.copyfileobj(source, file)
    return made


def test_parquet_is_read_from_elsewhere(remote: Store) -> None:
    shard = open_shard(remote, "parquet", file_format="parquet", num_records=7)
    assert shard.gather(np.array([6, 2])).records() == [RECORDS[6], RECORDS[2]]
    assert walk_file(remote, "parquet", file_format="parquet").num_records == 7


def test_array_record_elsewhere_is_to_be_copied(remote: Store) -> None:
    with pytest.raises(StorageError) as caught:
        open_shard(remote, "array_record", file_format="array_record")
    path = remote.locate("array_record")
    assert str(caught.value) == f"cannot read {path}: ArrayRecord files can be read on this machine only"
    assert caught.value.hint == "Copy the dataset's folder to this machine, and import or read it there."


def test_a_missing_package_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, file_format in (("array_record.python", "array_record"), ("pyarrow", "parquet")):
        WRITERS[file_format](store, file_format, RECORDS)
        monkeypatch.setitem(sys.modules, module, None)
    calls = (partial(open_shard, store, file_format, file_format=file_format) for file_format in OTHERS)
    check_errors(GOLDEN / "a_missing_package.txt", calls)
