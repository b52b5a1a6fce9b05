"""Laws of orders: they equal a simulation of tf.data's rule at any position, and an epoch reads every record."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import layouts

from registry.model import ShardLengths, ShardSpan
from registry.order import KeyedPermutation, ReadConfig, Run, shuffle_permutation
from registry.order.interleave import ActiveSlots
from registry.splits import FileInstruction, Plan, resolve

SEEDS = st.integers(-(2**70), 2**70)


def played(takes: list[int], *, cycle_length: int, block_length: int) -> list[tuple[int, int]]:
    """(file, record) in order, by visiting one slot after the other as tf.data does."""
    slots: list[list[int] | None] = [None] * cycle_length
    waiting = list(range(len(takes)))
    found: list[tuple[int, int]] = []
    slot = 0
    while waiting or any(slots):
        if slots[slot] is None and waiting:
            slots[slot] = [waiting.pop(0), 0]
        current = slots[slot]
        if current is not None:
            file, first = current
            records = range(first, min(first + block_length, takes[file]))
            found.extend((file, record) for record in records)
            slots[slot] = [file, first + block_length] if len(records) == block_length else None
        slot = (slot + 1) % cycle_length
    return found


def spelled(runs: Iterable[Run]) -> list[tuple[int, int]]:
    return [(run.instruction, run.first + place) for run in runs for place in range(run.count)]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Whole splits, slices and unions of unequal shards, some of them empty; often many more files than slots."""
    if draw(st.booleans()):
        layout = draw(layouts())
    else:
        length = st.integers(0, draw(st.sampled_from([1, 3, 40])))
        layout = {"train": ShardLengths(draw(st.lists(length, min_size=60, max_size=200)))}
    terms = []
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from([*layout, "all"]))
        size = sum(split.num_examples for split in layout.values()) if name == "all" else layout[name].num_examples
        start = draw(st.integers(0, size))
        terms.append(draw(st.sampled_from([name, f"{name}[{start}:]", f"{name}[:{start}]"])))
    return resolve("+".join(terms), layout)


@st.composite
def configs(draw: st.DrawFn) -> ReadConfig:
    """Any order, with a seed if it needs one."""
    if draw(st.integers(0, 3)) == 0:
        return ReadConfig(shuffle="global", seed=draw(st.integers(0, 2**64 - 1)))
    shuffled = {
        "shuffle_files": True,
        "shuffle_seed": draw(SEEDS),
        "shuffle_reshuffle_each_iteration": draw(st.sampled_from([None, True, False])),
    }
    return ReadConfig(
        interleave_cycle_length=draw(st.sampled_from([1, 2, 3, 5, 16, 70, 10**6])),
        interleave_block_length=draw(st.sampled_from([1, 2, 3, 16, 10**6])),
        interleave_sort_fn=draw(st.sampled_from([None, backwards])),
        **draw(st.sampled_from([{}, shuffled])),
    )


def backwards(files: list[FileInstruction]) -> list[FileInstruction]:
    return files[::-1]


def all_records(plan: Plan) -> list[tuple[int, int]]:
    return [(place, file.skip + index) for place, file in enumerate(plan) for index in range(file.take)]


@given(
    takes=st.lists(st.integers(1, 40), max_size=40) | st.lists(st.integers(1, 3), min_size=65, max_size=300),
    cycle_length=st.integers(1, 30) | st.sampled_from([64, 1000]),
    block_length=st.integers(1, 20) | st.just(1000),
)
def test_turns_equal_a_simulation_of_the_rule(takes: list[int], cycle_length: int, block_length: int) -> None:
    config = ReadConfig(interleave_cycle_length=cycle_length, interleave_block_length=block_length)
    expected = played(takes, cycle_length=cycle_length, block_length=block_length)
    assert spelled(resolve("train", {"train": takes}).order(config)) == expected


@given(plan=plans(), config=configs(), epoch=st.integers(0, 2**40))
def test_an_epoch_reads_every_record_as_often_as_the_plan_does(plan: Plan, config: ReadConfig, epoch: int) -> None:
    order = plan.order(config, epoch)
    assert order.num_examples == plan.num_examples
    assert sorted(spelled(order)) == all_records(plan)


@given(plan=plans(), config=configs(), epoch=st.integers(0, 3))
def test_runs_are_as_long_as_they_can_be(plan: Plan, config: ReadConfig, epoch: int) -> None:
    runs = list(plan.order(config, epoch))
    assert all(run.count > 0 for run in runs)
    assert not any((run.instruction, run.first + run.count) == later[:2] for run, later in pairwise(runs))


@given(plan=plans(), config=configs(), epoch=st.integers(0, 3), data=st.data())
def test_any_position_is_found_without_the_positions_before_it(
    plan: Plan, config: ReadConfig, epoch: int, data: st.DataObject
) -> None:
    expected = spelled(plan.order(config, epoch))
    if not expected:
        return
    order = plan.order(config, epoch)  # which knows nothing yet
    positions = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=50))
    files, records = order.locate(positions)
    assert list(zip(files.tolist(), records.tolist(), strict=True)) == [expected[position] for position in positions]
    assert (files.dtype, records.dtype) == (np.int64, np.int64)
    for num_finds in (-(2**40), 2**40):  # without a table, and with one
        order._num_finds = num_finds
        assert [order.find(position) for position in positions] == [expected[position] for position in positions]


@given(plan=plans(), config=configs(), epoch=st.integers(0, 3), seed=st.integers(0, 99), data=st.data())
def test_selected_records_follow_each_other_as_in_the_order(
    plan: Plan, config: ReadConfig, epoch: int, seed: int, data: st.DataObject
) -> None:
    selected = np.random.default_rng(seed).random(plan.num_examples) < data.draw(st.sampled_from([0, 0.1, 0.9, 1]))
    records = dict(zip(all_records(plan), selected.tolist(), strict=True))
    expected = [record for record in spelled(plan.order(config, epoch)) if records[record]]
    order = plan.order(config, epoch).select(selected)
    assert order.num_examples == len(expected)
    assert spelled(order) == expected
    start = data.draw(st.integers(0, len(expected)))
    stop = data.draw(st.integers(start, len(expected)))
    assert spelled(order.runs(start, stop)) == expected[start:stop]
    files, numbers = order.locate((start, stop))
    assert list(zip(files.tolist(), numbers.tolist(), strict=True)) == expected[start:stop]
    positions = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=20)) if expected else []
    files, numbers = order.locate(positions)
    assert list(zip(files.tolist(), numbers.tolist(), strict=True)) == [expected[place] for place in positions]


@given(plan=plans(), config=configs(), epoch=st.integers(0, 3), data=st.data())
def test_a_part_of_an_order_is_that_part(plan: Plan, config: ReadConfig, epoch: int, data: st.DataObject) -> None:
    expected = spelled(plan.order(config, epoch))
    start = data.draw(st.integers(0, len(expected)))
    stop = data.draw(st.integers(start, len(expected)))
    order = plan.order(config, epoch)
    assert spelled(order.runs(start, stop)) == expected[start:stop]
    assert spelled(order.runs(start)) == expected[start:]
    files, records = order.locate((start, stop))
    assert list(zip(files.tolist(), records.tolist(), strict=True)) == expected[start:stop]
    again = pickle.loads(pickle.dumps(order))  # noqa: S301 (what was dumped here)
    assert spelled(again.runs(start, stop)) == expected[start:stop]


@given(plan=plans(), seed=SEEDS, cycle_length=st.sampled_from([1, 2, 16]))
def test_a_file_shuffle_permutes_the_instructions_and_then_takes_turns(
    plan: Plan, seed: int, cycle_length: int
) -> None:
    config = ReadConfig(shuffle_files=True, shuffle_seed=seed, interleave_cycle_length=cycle_length)
    for epoch in range(2):
        shuffled = shuffle_permutation(len(plan), seed=seed, epoch=epoch).tolist()
        turns = played([plan[place].take for place in shuffled], cycle_length=cycle_length, block_length=16)
        expected = [(shuffled[place], plan[shuffled[place]].skip + index) for place, index in turns]
        order = plan.order(config, epoch)
        assert spelled(order) == expected
        assert order.file_order.tolist() == shuffled


@given(plan=plans())
def test_one_file_after_the_other_is_plan_order(plan: Plan) -> None:
    order = plan.order(ReadConfig(interleave_cycle_length=1))
    assert list(order) == [(place, file.skip, file.take) for place, file in enumerate(plan)]


@given(n=st.integers(0, 300), seed=st.integers(0, 2**64 - 1), epoch=st.integers(0, 2**64 - 1))
def test_a_keyed_permutation_is_a_permutation(n: int, seed: int, epoch: int) -> None:
    assert sorted(KeyedPermutation(n, seed=seed, epoch=epoch).at(np.arange(n)).tolist()) == list(range(n))


@given(
    n=st.integers(1, 2**62 - 1) | st.integers(1, 40),
    seed=st.integers(0, 2**64 - 1),
    data=st.data(),
)
def test_a_keyed_permutation_maps_each_place_to_a_different_number_in_range(
    n: int, seed: int, data: st.DataObject
) -> None:
    permutation = KeyedPermutation(n, seed=seed, epoch=1)
    places = data.draw(st.lists(st.integers(0, n - 1), unique=True, max_size=20))
    found = permutation.at(np.array(places, dtype=np.int64)).tolist()
    assert len(set(found)) == len(places)
    assert all(0 <= number < n for number in found)
    assert [permutation.at(np.array([place]))[0] for place in places] == found


@given(members=st.integers(1, 60).flatmap(lambda n: st.permutations(range(n))), data=st.data())
def test_active_slots_are_found_and_counted(members: list[int], data: st.DataObject) -> None:
    members = members[: data.draw(st.integers(1, len(members)))]
    active_slots = ActiveSlots(np.array(members))
    for alive in range(1, len(members) + 1):
        left = sorted(members[:alive])
        many = np.full(alive, alive)
        assert active_slots.kth(many, np.arange(alive)).tolist() == left
        wanted = np.array(members)
        ranks = active_slots.rank(np.full(len(members), alive), wanted).tolist()
        assert ranks == [sum(other < member for other in left) for member in members]


@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=30), data=st.data())
def test_a_span_lists_the_shards_that_it_touches(lengths: list[int], data: st.DataObject) -> None:
    total = sum(lengths)
    if not total:
        return
    start = data.draw(st.integers(0, total - 1))
    stop = data.draw(st.integers(start + 1, total))
    span = ShardSpan.of(ShardLengths(lengths), start, stop)
    shards = [shard for shard, length in enumerate(lengths) for _ in range(length)]
    touched = sorted(set(shards[start:stop]))
    assert span.count == len(touched)
    assert [span.shard_at(place) for place in range(span.count)] == touched
    assert [span.place_of(shard) for shard in touched] == list(range(span.count))
    expected = [shards[start:stop].count(shard) for shard in touched]
    assert [span.cut(shard)[1] for shard in touched] == expected
    first = data.draw(st.integers(0, span.count))
    last = data.draw(st.integers(first, span.count))
    assert list(span.takes(first, last)) == expected[first:last]
    assert pickle.loads(pickle.dumps(span)) == span  # noqa: S301 (what was dumped here)
