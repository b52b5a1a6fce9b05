"""Laws of keys, shard boundaries, frames and the sorter."""

from __future__ import annotations

from ast import literal_eval
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from registry.building.block_order import BlockOrder, find_starts
from registry.building.keys import SORT_KEY_BYTES, hash_key, hash_keys, join_sort_keys, number_key
from registry.building.run_format import KeyedFrames
from registry.building.sorter import ExternalSorter, order_keys
from registry.building.writing import plan_num_shards, plan_shards, write_split
from registry.engines import Engine, ThisProcess
from registry.errors import DuplicateKeyError
from registry.features import FeaturesDict, codec_of
from registry.features.fold import FingerprintFold, SplitFold
from registry.model import Shard
from registry.storage import open_store
from registry.tfrecord import Frames, RecordBlock, frame_record, frame_records
from registry.tfrecord.frames import regroup

plans = st.integers(1, 10**12).flatmap(lambda count: st.tuples(st.just(count), st.integers(1, min(count, 300))))


@given(plans)
def test_shards_cover_every_example_once_and_differ_by_one_at_most(plan: tuple[int, int]) -> None:
    num_examples, num_shards = plan
    lengths = plan_shards(num_examples=num_examples, num_shards=num_shards)
    assert len(lengths) == num_shards
    assert lengths.num_examples == num_examples
    assert max(lengths) - min(lengths) <= 1
    assert min(lengths) >= 1


@given(plans)
def test_a_shard_starts_at_the_nearest_whole_record_and_at_the_even_one_of_two(plan: tuple[int, int]) -> None:
    num_examples, num_shards = plan
    lengths = plan_shards(num_examples=num_examples, num_shards=num_shards)
    for index in range(num_shards + 1):
        assert lengths.start(index) == round(Fraction(num_examples * index, num_shards))


@given(num_examples=st.integers(1, 10**9), num_bytes=st.integers(0, 2**39))
def test_the_number_of_shards_can_always_be_written(num_examples: int, num_bytes: int) -> None:
    num_shards = plan_num_shards(num_examples=num_examples, num_payload_bytes=num_bytes)
    assert plan_shards(num_examples=num_examples, num_shards=num_shards).num_examples == num_examples


@given(st.lists(st.integers(-(2**127), 2**127 - 1)))
def test_number_keys_sort_as_the_numbers_do(numbers: list[int]) -> None:
    keys = sorted(map(number_key, numbers))
    assert keys == [number_key(number) for number in sorted(numbers)]
    assert all(len(key) == SORT_KEY_BYTES for key in keys)


@given(st.text(alphabet=st.characters(codec="utf-8")), st.text(alphabet=st.characters(codec="utf-8"), max_size=20))
def test_text_and_its_utf8_bytes_are_one_key_unless_it_holds_a_backslash(text: str, salt: str) -> None:
    text = text.replace("\\", "/")
    assert hash_key(salt, text) == hash_key(salt, text.encode())


@given(st.integers(), st.sampled_from(["train", "test"]))
def test_a_number_and_its_decimal_text_are_one_key(number: int, salt: str) -> None:
    assert hash_key(salt, number) == hash_key(salt, str(number))


blocks_of_records = st.lists(
    st.dictionaries(st.binary(min_size=16, max_size=16), st.binary(max_size=300), max_size=8), max_size=12
)


@given(blocks=blocks_of_records, budget_bytes=st.integers(1, 9000), fan_in=st.integers(2, 6))
def test_the_sorter_returns_all_records_in_order_or_names_a_key_of_two(
    blocks: list[dict[bytes, bytes]], budget_bytes: int, fan_in: int
) -> None:
    counts = Counter(key for block in blocks for key in block)
    expected = b"".join(frame_record(record) for _, record in sorted(one for block in blocks for one in block.items()))
    found: list[Frames] = []
    named: list[str] = []
    with (
        ExternalSorter(split="train", budget_bytes=budget_bytes, fan_in=fan_in) as sorter,
        collect_duplicates(named),
    ):
        for block in blocks:
            frames = frame_records(list(block.values()))
            sorter.add(KeyedFrames(join_sort_keys(block), list(map(repr, block)), frames))
        found += sorter.sorted_frames()
    if max(counts.values(), default=1) > 1:
        assert len(set(named)) == 1
        assert counts[literal_eval(named[0])] > 1
    else:
        assert named == []
        assert b"".join(bytes(frames.data) for frames in found) == expected
        assert sum(frames.num_records for frames in found) == len(counts) == sorter.num_examples


@contextmanager
def collect_duplicates(named: list[str]) -> Iterator[None]:
    """Add the keys that a DuplicateKeyError names to ``named``."""
    try:
        yield
    except DuplicateKeyError as error:
        named += error.details["keys"]


@given(st.lists(st.binary(min_size=16, max_size=16), unique=True), st.data())
def test_sort_keys_are_ordered_as_their_bytes_and_twins_are_found(keys: list[bytes], data: st.DataObject) -> None:
    order, twin = order_keys(join_sort_keys(keys))
    assert [keys[place] for place in order] == sorted(keys)
    assert twin is None
    if keys:
        again = data.draw(st.integers(0, len(keys) - 1))
        order, twin = order_keys(join_sort_keys([*keys, keys[again]]))
        assert twin is not None
        assert order[twin : twin + 2].tolist() == [again, len(keys)]


@given(st.lists(st.binary(max_size=200), max_size=30), st.integers(0, 30), st.integers(0, 30))
def test_many_records_are_framed_as_each_is(records: list[bytes], start: int, count: int) -> None:
    frames = frame_records(records)
    assert frames.data == b"".join(map(frame_record, records))
    assert frames.num_payload_bytes == sum(map(len, records))
    joined = np.frombuffer(b"".join(records), np.uint8)
    lengths = np.array(list(map(len, records)), np.int64)
    again = frame_records(RecordBlock(joined, np.cumsum(lengths) - lengths, lengths))
    assert again.data == frames.data
    assert again.lengths.tolist() == frames.lengths.tolist()
    part = frames.part(start, start + count)
    assert bytes(part.data) == b"".join(map(frame_record, records[start : start + count]))


@given(st.lists(st.lists(st.binary(max_size=20), max_size=9), max_size=9), st.integers(1, 5), st.integers(0, 200))
def test_groups_of_frames_are_the_same_frames(blocks: list[list[bytes]], multiple: int, least_bytes: int) -> None:
    groups = list(regroup(map(frame_records, blocks), multiple=multiple, least_bytes=least_bytes))
    whole = frame_records([record for block in blocks for record in block])
    assert b"".join(bytes(group.data) for group in groups) == whole.data
    assert [length for group in groups for length in group.lengths.tolist()] == whole.lengths.tolist()
    for group in groups[:-1]:
        assert group.num_records % multiple == 0
        assert group.num_records > 0


@given(
    keys=st.sets(st.binary(min_size=1, max_size=2), min_size=1, max_size=200),
    budget_bytes=st.integers(1, 4000),
    few_keys=st.booleans(),
    data=st.data(),
)
def test_the_record_at_every_position_of_all_runs_is_found(
    keys: set[bytes], budget_bytes: int, few_keys: bool, data: st.DataObject
) -> None:
    padding = b"\0" * 16 if few_keys else b"\xff" * 16
    sort_keys = [(key + padding)[:SORT_KEY_BYTES] for key in keys]
    sort_keys = list(dict.fromkeys(sort_keys))
    with ExternalSorter(split="train", budget_bytes=budget_bytes) as sorter:
        for start in range(0, len(sort_keys), 3):
            some = sort_keys[start : start + 3]
            sorter.add(KeyedFrames(join_sort_keys(some), ["key"] * len(some), frame_records([b"x" * 99] * len(some))))
        sorter.spill()
        starts = find_starts(sorter.runs, range(len(sort_keys)))
        assert [start.key for start in starts] == sorted(sort_keys)
        order = BlockOrder(sorter.runs, most_bounds=data.draw(st.integers(1, 50)))
        for first, key in enumerate(sorted(sort_keys)):
            num_before, parts = order.parts(first, first + 1)
            assert find_starts(parts, [first - num_before])[0].key == key


@given(
    num_records=st.integers(1, 3500),
    num_shards=st.integers(1, 9),
    num_bytes=st.integers(1, 300),
    budget_bytes=st.integers(10_000, 300_000),
)
def test_shards_that_are_written_at_the_same_time_are_the_same(
    num_records: int, num_shards: int, num_bytes: int, budget_bytes: int
) -> None:
    def write(engine: Engine) -> tuple[tuple[Shard, ...], list[Any] | None]:
        fold = SplitFold(features, [FingerprintFold])
        with TemporaryDirectory() as folder, ExternalSorter(split="train", budget_bytes=budget_bytes) as sorter:
            for start in range(0, num_records, 500):
                block = range(start, min(start + 500, num_records))
                frames = frame_records([encode({"number": n, "text": "x" * (n % num_bytes)}) for n in block])
                sorter.add(KeyedFrames(hash_keys("train", block), list(map(str, block)), frames))
            _, shards = write_split(
                sorter,
                split="train",
                dataset="made",
                reference="made:1.0.0",
                store=open_store(folder),
                num_shards=min(num_shards, num_records),
                fold=fold,
                engine=engine,
            )
        return shards, fold.results()

    features = FeaturesDict({"number": "int64", "text": "str"})
    encode = codec_of(features).encode
    with ThisProcess() as one, ThisProcess(threads=2) as two:
        assert write(one) == write(two)
