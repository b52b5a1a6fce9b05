"""Laws of resolved slices under the rule ``documented``, over any shard lengths: empty shards, up to 10**12 records."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.strategies import large_shard_lengths, layouts, percents, shard_lengths

from registry.errors import SliceError
from registry.model import ShardLengths
from registry.splits import Plan, ReadInstruction, RecordRange, resolve, round_percent

ANY_LENGTHS = st.one_of(shard_lengths(), large_shard_lengths())


def percent_range(lengths: ShardLengths, start: object, stop: object, rounding: str = "closest") -> tuple[int, int]:
    instruction = ReadInstruction("train", start, stop, "%", rounding)  # type: ignore[arg-type]
    (found,) = resolve(instruction, {"train": lengths}).ranges
    return found.start, found.stop


def positions(plan: Plan, layout: dict[str, ShardLengths]) -> list[tuple[str, int]]:
    """Every record that a plan reads, by its position in its split."""
    return [
        (file.split, layout[file.split].start(file.shard) + record)
        for file in plan
        for record in range(file.skip, file.skip + file.take)
    ]


def positions_of(ranges: tuple[RecordRange, ...]) -> list[tuple[str, int]]:
    return [(found.split, position) for found in ranges for position in range(found.start, found.stop)]


@given(ANY_LENGTHS, percents())
def test_a_percentage_cuts_a_split_into_two_that_tile_it(lengths: ShardLengths, percent: int | Fraction) -> None:
    before, after = percent_range(lengths, None, percent), percent_range(lengths, percent, None)
    assert (before[0], before[1], after[1]) == (0, after[0], lengths.num_examples)


@given(ANY_LENGTHS, percents(low=0).filter(bool))
def test_a_negative_percentage_is_its_complement(lengths: ShardLengths, percent: int | Fraction) -> None:
    assert percent_range(lengths, -percent, None) == percent_range(lengths, 100 - percent, None)
    assert percent_range(lengths, None, -percent) == percent_range(lengths, None, 100 - percent)


@given(st.integers(0, 10**12), percents())
def test_closest_is_at_most_half_a_record_off_and_rounds_halves_up(num_examples: int, percent: int | Fraction) -> None:
    exact = Fraction(percent + 100 if percent < 0 else percent) * num_examples / 100
    assert -Fraction(1, 2) < round_percent(percent, num_examples, "closest") - exact <= Fraction(1, 2)


@given(ANY_LENGTHS, st.lists(st.integers(0, 100), min_size=2, max_size=2).map(sorted))
def test_under_pct1_every_percent_has_the_same_number_of_records(lengths: ShardLengths, bounds: list[int]) -> None:
    assume(lengths.num_examples >= 100)
    start, stop = percent_range(lengths, *bounds, "pct1_dropremainder")
    assert stop - start == (bounds[1] - bounds[0]) * (lengths.num_examples // 100)
    open_end = percent_range(lengths, bounds[0], None, "pct1_dropremainder")
    assert open_end == percent_range(lengths, bounds[0], 100, "pct1_dropremainder")


@given(ANY_LENGTHS, st.data())
def test_absolute_bounds_equal_those_of_python(lengths: ShardLengths, data: st.DataObject) -> None:
    n = lengths.num_examples
    bound = st.one_of(st.none(), st.integers(-n, n))
    start, stop = data.draw(bound), data.draw(bound)
    first, last, _ = slice(start, stop).indices(n)
    if first > last:
        with pytest.raises(SliceError):
            resolve(ReadInstruction("train", start, stop), {"train": lengths})
    else:
        plan = resolve(ReadInstruction("train", start, stop), {"train": lengths})
        assert plan.ranges == (RecordRange(split="train", start=first, stop=last),)


@given(ANY_LENGTHS, st.data())
def test_shard_bounds_equal_those_of_python(lengths: ShardLengths, data: st.DataObject) -> None:
    bound = st.one_of(st.none(), st.integers(-len(lengths), len(lengths)))
    start, stop = data.draw(bound), data.draw(bound)
    first, last, _ = slice(start, stop).indices(len(lengths))
    assume(first <= last)
    plan = resolve(ReadInstruction("train", start, stop, "shard"), {"train": lengths})
    assert plan.num_examples == sum(lengths[first:last])
    assert [file.shard for file in plan] == [index for index in range(first, last) if lengths[index]]
    assert all(file.take == file.examples_in_shard for file in plan)


@given(layouts(), st.data())
def test_instructions_read_exactly_the_records_of_the_ranges(
    layout: dict[str, ShardLengths], data: st.DataObject
) -> None:
    terms = data.draw(st.lists(st.sampled_from([*layout, "all"]), min_size=1, max_size=3))
    instructions = [
        ReadInstruction(name, *sorted(data.draw(st.tuples(percents(low=0), percents(low=0)))), "%") for name in terms
    ]
    plan = resolve(sum(instructions[1:], instructions[0]), layout)
    assert positions(plan, layout) == positions_of(plan.ranges)
    assert sum(file.take for file in plan) == plan.num_examples == sum(found.num_examples for found in plan.ranges)
    parts = [resolve(instruction, layout) for instruction in instructions]
    assert list(plan) == [file for part in parts for file in part]
    assert plan.ranges == tuple(found for part in parts for found in part.ranges)


@given(layouts(), st.data())
def test_a_plan_is_a_sequence(layout: dict[str, ShardLengths], data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from([*layout, "all"]), min_size=1, max_size=3))
    plan = resolve("+".join(names), layout)
    files = list(plan)
    assert len(plan) == len(files)
    assert [plan[index] for index in range(len(plan))] == files
    assert [plan[index - len(plan)] for index in range(len(plan))] == files
    start, stop = data.draw(st.integers(-9, 9)), data.draw(st.integers(-9, 9))
    step = data.draw(st.sampled_from([-2, -1, 1, 3]))
    assert plan[start:stop:step] == tuple(files[start:stop:step])
    assert resolve(plan.instruction, layout, slicing=plan.slicing) == plan
    for index in (len(plan), -len(plan) - 1):
        with pytest.raises(IndexError):
            plan[index]


@given(layouts(), percents())
def test_a_slice_of_all_is_a_slice_of_the_concatenation(
    layout: dict[str, ShardLengths], percent: int | Fraction
) -> None:
    everything = [(name, position) for name in layout for position in range(layout[name].num_examples)]
    cut = round_percent(percent, len(everything), "closest")
    before = resolve(ReadInstruction("all", None, percent, "%"), layout)
    after = resolve(ReadInstruction("all", percent, None, "%"), layout)
    assert positions(before, layout) == everything[:cut]
    assert positions(after, layout) == everything[cut:]


@given(layouts(), st.data())
def test_shards_of_all_are_counted_through(layout: dict[str, ShardLengths], data: st.DataObject) -> None:
    shards = [(name, index) for name in layout for index in range(len(layout[name]))]
    assume(shards)
    chosen = data.draw(st.integers(-len(shards), len(shards) - 1))
    name, index = shards[chosen]
    plan = resolve(f"all[{chosen}shard]", layout)
    assert [(file.split, file.shard) for file in plan] == ([(name, index)] if layout[name][index] else [])


@given(layouts(), st.data())
def test_both_rules_agree_on_records_and_shards_from_the_start(
    layout: dict[str, ShardLengths], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(list(layout)))
    unit, end = data.draw(st.sampled_from([("", layout[name].num_examples), ("shard", len(layout[name]))]))
    start, stop = sorted(data.draw(st.tuples(st.integers(0, end), st.integers(0, end))))
    assume(unit == "" or stop > 0)  # a shard bound of 0 is the end for TFDS
    expression = f"{name}[{start}{unit}:{stop}{unit}]"
    assert resolve(expression, layout, slicing="tfds-4") == resolve(expression, layout)
