"""Laws of reading many files at the same time: every record once an epoch, in an order that only the seed decides."""

from __future__ import annotations

import gzip
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.levels import examples

from registry.errors import CorruptRecordError
from registry.slim.data_decoder import DataDecoder
from registry.slim.data_files import DataFile
from registry.slim.dataset import Dataset
from registry.slim.dataset_data_provider import DatasetDataProvider
from registry.slim.interleaving import permuted, random_words, shuffled
from registry.slim.parallel_reader import ParallelReader
from registry.storage import open_store
from registry.tfrecord import frame_record

SIZES = st.lists(st.one_of(st.just(0), st.integers(0, 9), st.integers(0, 40)), min_size=1, max_size=7)
OPTIONS = st.fixed_dictionaries(
    {
        "num_readers": st.integers(1, 5),
        "shuffle": st.booleans(),
        "capacity": st.integers(5, 60),
        "least": st.integers(0, 4),
        "seed": st.integers(-(2**70), 2**70),
        "mix_epochs": st.booleans(),
    }
)
Files = list[DataFile]


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as path:
        yield path


def files_of(folder: str, sizes: list[int]) -> Files:
    """A file with that number of records for each size, every other one gzip; cached, because laws reuse them."""
    store, files = open_store(folder), []
    for file, size in enumerate(sizes):
        name = f"{file}-{size}"
        if not store.exists(name):
            records = [b"%d.%d" % (file, record) for record in range(size)]
            with store.create(name) as out:
                if file % 2:
                    out.writelines(gzip.compress(frame_record(record)) for record in records)
                else:
                    out.write(b"".join(map(frame_record, records)))
        files.append(DataFile(store=store, filename=name))
    return files


def read_by_function(path: str) -> Iterator[tuple[str, bytes]]:
    file, size = Path(path).name.split("-")
    for record in range(int(size)):
        yield f"{record}", f"{file}.{record}".encode()


def values(reader: ParallelReader) -> list[bytes]:
    with reader:
        return [value for _, value in reader]


def in_turn(sizes: list[int], num_slots: int) -> list[bytes]:
    """The order of the rule, one visit after the other."""
    files = iter([iter([b"%d.%d" % (file, record) for record in range(size)]) for file, size in enumerate(sizes)])
    slots: list[Iterator[bytes] | None] = [None] * num_slots
    found: list[bytes] = []
    left = len(sizes)
    for slot in itertools.cycle(range(num_slots)):
        if not left:
            return found
        if slots[slot] is None:
            slots[slot] = next(files, None)
        current = slots[slot]
        if current is not None:
            value = next(current, None)
            if value is None:
                slots[slot] = None
                left -= 1
            else:
                found.append(value)
    raise AssertionError


@given(sizes=SIZES, num_readers=st.integers(1, 6), by_function=st.booleans())
def test_files_take_turns_as_the_rule_says(folder: str, sizes: list[int], num_readers: int, by_function: bool) -> None:
    reader = read_by_function if by_function else None
    files = files_of(folder, sizes)
    found = values(ParallelReader(files, reader, num_epochs=1, num_readers=num_readers, shuffle=False))
    assert found == in_turn(sizes, num_readers)


@given(sizes=SIZES, options=OPTIONS, num_epochs=st.integers(1, 3), deterministic=st.booleans())
def test_every_record_comes_once_an_epoch(
    folder: str, sizes: list[int], options: dict[str, Any], num_epochs: int, deterministic: bool
) -> None:
    reader = ParallelReader(
        files_of(folder, sizes), None, num_epochs=num_epochs, deterministic=deterministic, **options
    )
    found = values(reader)
    everything = Counter(in_turn(sizes, 1))
    assert Counter(found) == Counter(dict.fromkeys(everything, num_epochs))
    assert reader.num_records_produced == num_epochs * sum(sizes)
    assert reader.num_work_units_completed == num_epochs * len(sizes)
    if not options["mix_epochs"]:
        size = sum(sizes)
        assert all(Counter(found[epoch * size :][:size]) == everything for epoch in range(num_epochs))


@given(sizes=SIZES, options=OPTIONS, num_epochs=st.integers(1, 3))
def test_the_seed_decides_the_order_with_any_reader(
    folder: str, sizes: list[int], options: dict[str, Any], num_epochs: int
) -> None:
    files = files_of(folder, sizes)
    first, again, other = (
        values(ParallelReader(files, reader, num_epochs=num_epochs, **options))
        for reader in (None, None, read_by_function)
    )
    assert first == again == other


@given(sizes=SIZES.filter(any), options=OPTIONS, count=st.integers(1, 100))
def test_for_ever_begins_as_some_epochs_do(folder: str, sizes: list[int], options: dict[str, Any], count: int) -> None:
    files = files_of(folder, sizes)
    options["mix_epochs"] = False  # if epochs mix, the records of an epoch depend on whether another one follows
    with ParallelReader(files, None, num_epochs=None, **options) as reader:
        found = [value for _, value in itertools.islice(reader, count)]
    num_epochs = -(-count // sum(sizes))
    assert found == values(ParallelReader(files, None, num_epochs=num_epochs, **options))[:count]


@given(sizes=SIZES.filter(lambda sizes: sizes[0] > 0), options=OPTIONS, data=st.data())
def test_all_records_before_a_damaged_one_are_returned(
    folder: str, sizes: list[int], options: dict[str, Any], data: st.DataObject
) -> None:
    bad = data.draw(st.integers(0, sizes[0] - 1))
    files = files_of(folder, sizes)
    content = bytearray(open_store(folder).read_bytes(files[0].filename))
    start = sum(len(b"0.%d" % record) + 16 for record in range(bad))
    content[start + 12] ^= 1
    with open_store(folder).create("damaged", overwrite=True) as out:
        out.write(content)
    files[0] = DataFile(store=files[0].store, filename="damaged", path="damaged")
    found = []
    with pytest.raises(CorruptRecordError) as caught:
        found.extend(ParallelReader(files, None, num_epochs=1, **options))
    assert caught.value.details["offset"] == start
    assert len(found) == len({value for _, value in found})
    of_file = {value for _, value in found if value.startswith(b"0.")}
    assert of_file == {b"0.%d" % record for record in range(bad)}


@given(sizes=SIZES, chunk=st.integers(1, 9), size=st.integers(1, 20), seed=st.integers(0, 2**64))
def test_how_records_arrive_does_not_change_the_shuffle(sizes: list[int], chunk: int, size: int, seed: int) -> None:
    items = list(range(sum(sizes)))
    chunks = [items[start : start + chunk] for start in range(0, len(items), chunk)]
    found = list(itertools.chain.from_iterable(shuffled(chunks, random_words(seed, 1), size=size)))
    at_once = list(itertools.chain.from_iterable(shuffled([items], random_words(seed, 1), size=size)))
    assert found == at_once
    assert sorted(found) == items
    # Nothing comes before it was in the buffer.
    assert all(item < place + size + 1 for place, item in enumerate(found))


@settings(max_examples=examples(20))
@given(seed=st.integers(0, 2**64 - 1))
def test_every_order_of_a_full_buffer_is_as_likely(seed: int) -> None:
    orders: Counter[tuple[int, ...]] = Counter()
    words = random_words(seed, 0)
    for _ in range(1200):
        orders[tuple(itertools.chain.from_iterable(shuffled([[0, 1, 2]], words, size=3)))] += 1
        orders[tuple(permuted([0, 1, 2], words))] += 1
    counts = np.array([orders[order] for order in itertools.permutations(range(3))])
    assert counts.sum() == 2400
    assert (np.abs(counts - 400) < 6 * np.sqrt(400)).all()  # six sigma


@given(SIZES, OPTIONS, st.integers(1, 70), st.booleans(), st.lists(st.integers(0, 3), max_size=8))
def test_batches_are_the_records_one_after_the_other(
    folder: str, sizes: list[int], options: dict[str, Any], size: int, drop_remainder: bool, gets: list[int]
) -> None:
    files, items = files_of(folder, sizes), ["text", "record_key"]
    expected = [tuple(row) for row in provide(files, options).iter(items)]
    provider, found = provide(files, options), []
    batches = provider.batches(items, size, drop_remainder=drop_remainder)
    for count in gets:  # single records between the batches
        found += [tuple(row) for row in itertools.islice(provider.iter(items), count)]
        found += list(zip(*next(batches, ([], [])), strict=True))
    for texts, keys in batches:
        assert len(texts) == size or not drop_remainder
        found += list(zip(texts.tolist(), keys.tolist(), strict=True))
    assert found == (expected[: len(found)] if drop_remainder else expected)
    assert len(expected) - len(found) < size


class Text(DataDecoder):
    """The record, as it is."""

    def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[Any]:
        return [data] * len(self.check_items(items))

    def list_items(self) -> list[str]:
        return ["text"]


def provide(files: Files, options: dict[str, Any]) -> DatasetDataProvider:
    names = {"capacity": "common_queue_capacity", "least": "common_queue_min"}
    dataset = Dataset(files, None, Text(), None, None)
    return DatasetDataProvider(dataset, num_epochs=1, **{names.get(name, name): one for name, one in options.items()})
