"""Reading a plan gives exactly the records of its ranges, in order, for any shard lengths and any expression."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.reading_samples import Stored, readable, reader_of, stored

from registry.errors import CorruptExampleError, CorruptRecordError, NotStoredError, ShardMismatchError
from registry.features import FeaturesDict
from registry.model import ShardLengths, Split
from registry.reading import Reader
from registry.splits import resolve

LENGTHS = st.lists(st.integers(0, 7), min_size=1, max_size=8)


@given(lengths=LENGTHS, data=st.data())
def test_reading_a_range_gives_its_records_in_order(lengths: list[int], data: st.DataObject) -> None:
    files = stored(lengths)
    start = data.draw(st.integers(0, files.split.num_examples))
    stop = data.draw(st.integers(start, files.split.num_examples))
    reader = reader_of(f"train[{start}:{stop}]", files)
    assert [int(example["id"]) for example in reader] == list(range(start, stop))
    assert len(reader) == stop - start
    assert len(list(reader.records())) == stop - start


@given(lengths=LENGTHS, percent=st.integers(0, 100))
def test_the_two_sides_of_a_percentage_are_the_whole_split(lengths: list[int], percent: int) -> None:
    files = stored(lengths)
    below = [int(example["id"]) for example in reader_of(f"train[:{percent}%]", files)]
    above = [int(example["id"]) for example in reader_of(f"train[{percent}%:]", files)]
    assert below + above == list(range(files.split.num_examples))


@given(lengths=LENGTHS)
def test_a_union_is_read_as_written(lengths: list[int]) -> None:
    files = stored(lengths)
    half = files.split.num_examples // 2
    reader = reader_of(f"train[{half}:]+train[:{half}]+train", files)
    everything = list(range(files.split.num_examples))
    assert [int(example["id"]) for example in reader] == everything[half:] + everything[:half] + everything


def test_a_reader_starts_again_each_time() -> None:
    reader = reader_of("train[1:4]", stored([2, 3]))
    first = iter(reader)
    assert int(next(first)["id"]) == 1
    assert [int(example["id"]) for example in reader] == [1, 2, 3]
    assert int(next(first)["id"]) == 2
    assert repr(reader) == "<Reader train[1:4]: 3 examples>"


def test_a_missing_file_is_named_when_it_is_reached() -> None:
    files = stored([2, 2])
    files.store.remove_tree(files.split.filename(1))
    examples = iter(reader_of("train", files))
    assert [int(next(examples)["id"]), int(next(examples)["id"])] == [0, 1]
    with pytest.raises(NotStoredError, match=r"tfrecord-00001-of-00002"):
        next(examples)


def test_a_shorter_file_than_promised_is_an_error() -> None:
    files = stored([4])
    promised = Split(name="train", shard_lengths=ShardLengths([5]), files=files.split.files)
    with pytest.raises(ShardMismatchError, match=r"tfrecord-00000-of-00001"):
        list(reader_of("train", Stored(files.store, promised)))


def test_a_record_of_other_features_is_named() -> None:
    files = stored([3])
    plan = resolve("train[1:]", {"train": files.split})
    other = Reader(readable(files.store, [files.split], FeaturesDict({"name": "string"})), plan)
    with pytest.raises(CorruptExampleError, match="record 1: feature 'name'") as caught:
        list(other)
    assert caught.value.details["path"] == files.split.filename(0)
    assert caught.value.details["record"] == 1


def test_a_flipped_bit_is_named_with_record_and_offset() -> None:
    files = stored([3])
    damaged = bytearray(files.store.read_bytes(files.split.filename(0)))
    record_size = len(damaged) // 3
    damaged[record_size + 14] ^= 1
    with files.store.create(files.split.filename(0), overwrite=True) as file:
        file.write(damaged)
    with pytest.raises(CorruptRecordError) as caught:
        list(reader_of("train", files))
    assert (caught.value.details["record"], caught.value.details["offset"]) == (1, record_size)
