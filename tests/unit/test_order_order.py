"""Tests Order: positions and runs, its errors, and how many shard lengths it loads."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.golden import check_errors

from registry.errors import UsageError
from registry.model import ShardLengths
from registry.order import Order, ReadConfig, shuffle_permutation
from registry.splits import FileInstruction, resolve

GOLDEN = Path(__file__).with_name("golden")


IN_SEQUENCE = ReadConfig(interleave_cycle_length=1)


class WatchedLengths(ShardLengths):
    """Shard lengths that count how many of them were read."""

    __slots__ = ("looks",)

    def __init__(self, lengths: Sequence[int]) -> None:
        super().__init__(lengths)
        self.looks = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.looks += len(found) if isinstance(index, slice) else 1
        return found

    def start(self, index: int) -> int:
        self.looks += 1
        return super().start(index)


def test_an_order_has_a_repr() -> None:
    order = resolve("train", {"train": [3, 4]}).order(IN_SEQUENCE, epoch=2)
    assert repr(order) == "<Order of epoch 2: 7 examples>"
    assert (order.num_examples, order.epoch, order.config, order.file_order) == (7, 2, IN_SEQUENCE, None)


def test_a_plan_without_records_has_an_order_without_runs() -> None:
    for config in (
        None,
        IN_SEQUENCE,
        ReadConfig(shuffle="global", seed=1),
        ReadConfig(shuffle_files=True, shuffle_seed=1),
    ):
        order = resolve("train[:0]", {"train": [3, 4]}).order(config)
        assert list(order) == []
        assert [found.tolist() for found in order.locate((0, 0))] == [[], []]
        assert [found.tolist() for found in order.locate([])] == [[], []]


WRONG_POSITIONS: list[Callable[[Any], Any]] = [
    *(lambda order: order.runs(-1), lambda order: order.runs(0, 8), lambda order: order.runs(5, 4)),
    *(lambda order: order.runs(1.5), lambda order: order.locate((1, 2, 3)), lambda order: order.locate([0, 7])),
    *(lambda order: order.locate([-1]), lambda order: order.locate([0.5]), lambda order: order.locate(3)),
]


@pytest.mark.parametrize("config", [None, IN_SEQUENCE, ReadConfig(shuffle="global", seed=1)])
def test_invalid_positions_are_refused(config: ReadConfig | None) -> None:
    order = resolve("train", {"train": [3, 4]}).order(config)
    check_errors(GOLDEN / "order_positions.txt", (partial(ask, order) for ask in WRONG_POSITIONS))


def test_an_epoch_is_a_number() -> None:
    plan = resolve("train", {"train": [3, 4]})
    epochs: list[Any] = [-1, 1.5, "2", 2**62]
    check_errors(GOLDEN / "order_epochs.txt", (partial(plan.order, epoch=epoch) for epoch in epochs))


@pytest.mark.parametrize(
    "sort",
    [
        lambda files: files[1:],
        lambda files: [*files, files[0]],
        lambda files: [files[0]] * len(files),
        lambda files: [file.filename for file in files],
        len,
        lambda files: [[] for _ in files],
        lambda files: [files[0]._replace(take=1), *files[1:]],
    ],
)
def test_a_sort_function_sorts_and_nothing_else(sort: Any) -> None:
    with pytest.raises(UsageError) as caught:
        resolve("train", {"train": [3, 4]}).order(ReadConfig(interleave_sort_fn=sort))
    assert str(caught.value) == "interleave_sort_fn must return the 2 file instructions that it receives, in any order"
    assert caught.value.hint == "To read fewer files, slice the split expression instead."


def test_a_sort_function_may_sort_what_a_union_reads_twice() -> None:
    def largest_first(files: list[FileInstruction]) -> list[FileInstruction]:
        return sorted(files, key=lambda file: -file.take)

    plan = resolve("train+train+train", {"train": [3, 4]})
    order = plan.order(ReadConfig(interleave_sort_fn=largest_first, interleave_cycle_length=1))
    assert [run.instruction for run in order] == [1, 3, 5, 0, 2, 4]


def test_a_sort_function_receives_a_copy_of_the_list() -> None:
    def in_place(files: list[FileInstruction]) -> list[FileInstruction]:
        files.reverse()
        return files

    plan = resolve("train", {"train": [3, 4, 5]})
    order = plan.order(ReadConfig(interleave_sort_fn=in_place, shuffle_files=True, shuffle_seed=2))
    assert order.file_order.tolist() == [2 - place for place in shuffle_permutation(3, seed=2).tolist()]


def test_the_order_does_not_change_with_epochs_unless_it_is_reshuffled() -> None:
    plan = resolve("train", {"train": [1] * 50})
    fixed = ReadConfig(shuffle_files=True, shuffle_seed=1, shuffle_reshuffle_each_iteration=False)
    anew = ReadConfig(shuffle_files=True, shuffle_seed=1)
    everywhere = ReadConfig(shuffle="global", seed=1)
    assert list(plan.order(fixed, 0)) == list(plan.order(fixed, 7))
    assert list(plan.order(anew, 0)) != list(plan.order(anew, 1))
    assert list(plan.order(everywhere, 0)) != list(plan.order(everywhere, 1))


@pytest.mark.parametrize("config", [IN_SEQUENCE, None])
def test_the_first_records_of_a_million_files_load_few_lengths(config: ReadConfig | None) -> None:
    lengths = WatchedLengths([100] * 10**6)
    plan = resolve("train[50:]", {"train": lengths})
    lengths.looks = 0
    order = plan.order(config)
    order.locate((0, 1000))
    order.locate(np.arange(10))
    assert next(order.runs()).first == 50
    assert lengths.looks < 2000


def test_a_position_in_the_middle_loads_few_lengths() -> None:
    lengths = WatchedLengths([1000] * 10**6)
    order = resolve("train", {"train": lengths}).order(IN_SEQUENCE)
    lengths.looks = 0
    assert list(islice(order.runs(500_000_500), 2)) == [(500_000, 500, 500), (500_001, 0, 1000)]
    files, records = order.locate((500_000_500, 500_008_500))
    assert (files[0], records[0], files[-1], records[-1]) == (500_000, 500, 500_008, 499)
    assert order.locate([999_999_999])[0].tolist() == [999_999]
    assert lengths.looks < 1000


def test_the_last_file_of_many_is_one_run_however_long_it_is() -> None:
    order = resolve("train", {"train": [5, 10**15, 7]}).order()
    assert list(order)[-1] == (1, 16, 10**15 - 16)
    assert list(order.runs(10**15)) == [(1, 10**15 - 12, 12)]
    assert [found.tolist() for found in order.locate([10**15 + 11, 21, 5])] == [[1, 2, 1], [10**15 - 1, 0, 0]]


def test_a_global_shuffle_of_a_billion_records_needs_no_list_of_them() -> None:
    plan = resolve("train", {"train": [10**6] * 1000})
    config = ReadConfig(shuffle="global", seed=3)
    tracemalloc.start()
    order = plan.order(config)
    files, records = order.locate((10**9 - 10_000, 10**9))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 2**20
    assert len(set(zip(files.tolist(), records.tolist(), strict=True))) == 10_000


def test_too_many_positions_are_refused() -> None:
    plan = resolve("train", {"train": [2**61, 2**61]})
    with pytest.raises(UsageError) as caught:
        plan.order()
    assert str(caught.value) == f"an order must have fewer than 2**62 positions, not {2**62}"
    plan = resolve("train", {"train": [2**60, 2**60]})
    with pytest.raises(UsageError) as caught:
        plan.order(ReadConfig(interleave_block_length=2**60))
    assert str(caught.value) == (
        "2305843009213693952 records of 2 files in blocks of 1152921504606846976 are too many to count"
    )
    assert isinstance(plan.order(IN_SEQUENCE), Order)
