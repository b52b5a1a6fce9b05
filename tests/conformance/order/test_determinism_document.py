"""The sequences that TFDS's document on determinism prints, on ImageNet's layout: 1,281,167 records in 1,024 shards."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from registry.building.writing import plan_shards
from registry.model import ShardLengths
from registry.order import Order, ReadConfig, tfds_id
from registry.splits import FileInstruction, Plan, resolve

IMAGENET = ShardLengths(plan_shards(num_examples=1_281_167, num_shards=1024))


def plan_of(expression: str) -> Plan:
    return resolve(expression, {"train": IMAGENET}, slicing="tfds-4")


def ids(plan: Plan, order: Order, start: int, stop: int) -> list[int]:
    """The numbers in the split of the records at the positions ``start``..``stop``."""
    files, records = order.locate((start, stop))
    starts = np.array([IMAGENET.start(file.shard) for file in plan])
    found: list[int] = (starts[files] + records).tolist()
    return found


def first_ids(expression: str, count: int, **options: Any) -> list[int]:
    plan = plan_of(expression)
    return ids(plan, plan.order(ReadConfig(**options)), 0, count)


def test_by_default_blocks_of_16_of_16_files_take_turns() -> None:
    starts = [IMAGENET.start(shard) for shard in range(16)]
    assert starts[:3] == [0, 1251, 2502]
    assert first_ids("train", 256) == [start + place for start in starts for place in range(16)]
    assert first_ids("train", 260)[256:] == [16, 17, 18, 19]


def test_three_files_take_turns_by_two_records() -> None:
    found = first_ids("train", 20, interleave_cycle_length=3, interleave_block_length=2)
    assert found == [0, 1, 1251, 1252, 2502, 2503, 2, 3, 1253, 1254, 2504, 2505, 4, 5, 1255, 1256, 2506, 2507, 6, 7]


def test_a_percentage_begins_in_the_middle_of_a_file() -> None:
    plan = plan_of("train[67%:84%]")
    assert plan.ranges[0].start == 858_382
    assert IMAGENET.start(plan[1].shard) == 859_533
    assert first_ids("train[67%:84%]", 33) == [*range(858_382, 858_398), *range(859_533, 859_549), 860_784]


def test_the_first_records_of_a_read_are_not_those_of_a_slice() -> None:
    assert first_ids("train", 25) == [*range(16), *range(1251, 1260)]
    assert first_ids("train[:25]", 25) == list(range(25))


def test_files_are_reversed_by_a_sort_function() -> None:
    def backwards(files: list[FileInstruction]) -> list[FileInstruction]:
        return files[::-1]

    found = first_ids("train", 48, interleave_sort_fn=backwards)
    assert found[:16] == list(range(1_279_916, 1_279_932))
    assert found[16:32] == list(range(IMAGENET.start(1022), IMAGENET.start(1022) + 16))


def test_a_cycle_length_of_one_reads_in_sequence() -> None:
    plan = plan_of("train[40:]")
    order = plan.order(ReadConfig(interleave_cycle_length=1))
    assert ids(plan, order, 0, 3000) == list(range(40, 3040))
    assert list(islice(order, 2)) == [(0, 40, 1211), (1, 0, 1251)]


def test_a_seeded_shuffle_of_files_begins_as_printed() -> None:
    found = first_ids("train", 32, shuffle_files=True, shuffle_seed=32)
    assert found == [*range(176_411, 176_427), *range(710_647, 710_663)]
    assert [IMAGENET.shard_of(found[0]), IMAGENET.shard_of(found[16])] == [141, 568]


def test_ids_name_the_file_and_the_index_in_it() -> None:
    plan = plan_of("train[67%:84%]")
    file, record = (found.item() for found in plan.order().locate([17]))
    assert tfds_id(plan[file].filename, record) == "train-00687-of-01024__1"


@pytest.mark.parametrize("expression", ["train", "train[67%:84%]"])
def test_every_record_is_read_once(expression: str) -> None:
    plan = plan_of(expression)
    found = ids(plan, plan.order(), 0, plan.num_examples)
    assert sorted(found) == list(range(plan.ranges[0].start, plan.ranges[0].stop))
