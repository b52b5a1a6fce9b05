"""A shard on another machine returns the records of its file, whatever was read, wanted or kept before."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.levels import examples
from support.remote_samples import MemoryObjects

from registry.errors import CorruptRecordError, ShardMismatchError
from registry.tfrecord import IndexFolder, Places, frame_record, open_shard
from registry.tfrecord.shard import StreamedShard

MOST = 60


def places(records: list[int]) -> Places:
    return np.array(records, np.int64)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(0, MOST), st.integers(0, MOST)),
        st.tuples(st.sampled_from(["gather", "want"]), st.lists(st.integers(0, MOST), min_size=1, max_size=12)),
        st.tuples(st.just("open again")),
    ),
    max_size=12,
)


def opened(store: MemoryObjects, indexes: IndexFolder | None, num_records: int) -> StreamedShard:
    shard = open_shard(store, "shard", num_records=num_records, indexes=indexes)
    assert isinstance(shard, StreamedShard)
    return shard


@settings(max_examples=examples(200))
@given(sizes=st.lists(st.sampled_from([0, 1, 50, 70_000, 300_000]), min_size=1, max_size=MOST), steps=STEPS)
@pytest.mark.parametrize("is_kept", [True, False])
def test_any_sequence_of_reads_returns_the_records(
    sizes: list[int], steps: list[tuple[Any, ...]], is_kept: bool
) -> None:
    records = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    store = MemoryObjects({"shard": b"".join(map(frame_record, records))})
    with tempfile.TemporaryDirectory() as folder:
        indexes = IndexFolder(folder) if is_kept else None
        shard = opened(store, indexes, len(records))
        for name, *given_ in steps:
            if name == "open again":
                shard = opened(store, indexes, len(records))
            elif name == "read":
                first = given_[0] % len(records)
                count = given_[1] % (len(records) - first + 1)
                assert shard.read(first, count).records() == records[first : first + count]
            else:
                chosen = [one % len(records) for one in given_[0]]
                if name == "want":
                    assert shard.want(places(chosen)) <= 40 * 2**20
                else:
                    assert shard.gather(places(chosen)).records() == [records[one] for one in chosen]


@settings(max_examples=examples(100))
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7), order=st.permutations(range(40)), is_indexed=st.booleans())
def test_no_damaged_record_is_returned(place: int, bit: int, order: list[int], is_indexed: bool) -> None:
    records = [bytes([number]) * 100 for number in range(40)]
    sound = b"".join(map(frame_record, records))
    damaged = bytearray(sound)
    damaged[place % len(damaged)] ^= 1 << bit
    with tempfile.TemporaryDirectory() as folder:
        indexes = IndexFolder(folder)
        store = MemoryObjects({"shard": sound})
        if is_indexed:
            opened(store, indexes, 40).read(0, 40)
        store.files["shard"] = bytes(damaged)
        shard = opened(store, indexes, 40)
        for record in order:
            try:
                found = shard.gather(places([record])).records()
            except (CorruptRecordError, ShardMismatchError):
                continue
            assert found == [records[record]]


def test_scattered_records_are_requested_directly_once_a_file_was_read(tmp_path: Any) -> None:
    records = [bytes([number]) * 400_000 for number in range(40)]
    store, indexes = MemoryObjects({"shard": b"".join(map(frame_record, records))}), IndexFolder(tmp_path)
    assert opened(store, indexes, 40).read(0, 40).records() == records
    store.requests.clear()
    shard = opened(store, indexes, 40)
    assert shard.gather(places([30, 2, 17])).records() == [records[30], records[2], records[17]]
    frame_bytes = 400_016
    expected = [("shard", one * frame_bytes, (one + 1) * frame_bytes) for one in (2, 17, 30)]
    assert sorted(store.requests) == expected


def test_what_is_wanted_is_requested_before_it_is_read(tmp_path: Any) -> None:
    records = [bytes([number]) * 100_000 for number in range(40)]
    store = MemoryObjects({"shard": b"".join(map(frame_record, records))})
    shard = opened(store, IndexFolder(tmp_path), 40)
    assert shard.want(places(list(range(20)))) > 19 * 100_000
    wanted = list(store.requests)
    assert shard.read(0, 9).records() == records[:9]
    assert store.requests == wanted
