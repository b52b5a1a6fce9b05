"""Laws of equal parts and of relations: nothing twice, nothing lost, sizes within one, and sets as sets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st
from support.strategies import large_shard_lengths, layouts, percents, read_instructions, shard_lengths

from registry.errors import SliceError, SplitNotFoundError
from registry.model import ShardLengths
from registry.splits import (
    Plan,
    ReadInstruction,
    RecordRange,
    even_splits,
    k_fold,
    overlaps_between,
    relation,
    resolve,
    split_for_process,
    uncovered,
)

ANY_LENGTHS = st.one_of(shard_lengths(), large_shard_lengths())
RULES = st.sampled_from(["documented", "tfds-4"])


@st.composite
def divided(draw: st.DrawFn) -> tuple[dict[str, ShardLengths], ReadInstruction]:
    """A layout and a union of slices within it."""
    lengths = draw(st.dictionaries(st.sampled_from(["train", "test", "extra"]), ANY_LENGTHS, min_size=1))
    names = draw(st.lists(st.sampled_from(sorted(lengths)), min_size=1, max_size=3))
    parts = []
    for name in names:
        size = lengths[name].num_examples
        parts.append(ReadInstruction(name, *sorted((draw(st.integers(0, size)), draw(st.integers(0, size))))))
    return lengths, sum(parts[1:], parts[0])


def records(ranges: tuple[RecordRange, ...]) -> list[RecordRange]:
    """Ranges in order without empty ones; adjacent ranges are joined."""
    joined: list[RecordRange] = []
    for one in ranges:
        if one.start == one.stop:
            continue
        if joined and joined[-1].split == one.split and joined[-1].stop == one.start:
            joined[-1] = RecordRange(split=one.split, start=joined[-1].start, stop=one.stop)
        else:
            joined.append(one)
    return joined


def positions(plan: Plan) -> set[tuple[str, int]]:
    return {(one.split, position) for one in plan.ranges for position in range(one.start, one.stop)}


@given(ANY_LENGTHS, st.integers(1, 1200))
def test_even_splits_cover_every_example_once(lengths: ShardLengths, n: int) -> None:
    layout = {"train": lengths}
    ranges = [found for part in even_splits("train", n) for found in resolve(part, layout).ranges]
    assert len(ranges) == n
    assert [ranges[0].start, *(found.stop for found in ranges)] == [
        *(found.start for found in ranges),
        lengths.num_examples,
    ]
    assert all(
        part.terms[0].from_ != part.terms[0].to for part in map(ReadInstruction.from_spec, even_splits("train", n))
    )


@given(divided(), st.integers(1, 40))
def test_exact_parts_are_the_whole_in_order_with_sizes_within_one(
    case: tuple[dict[str, ShardLengths], ReadInstruction], n: int
) -> None:
    layout, whole = case
    plans = [resolve(part, layout) for part in even_splits(whole, n, unit="abs")]
    sizes = [plan.num_examples for plan in plans]
    assert records(tuple(one for plan in plans for one in plan.ranges)) == records(resolve(whole, layout).ranges)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@given(divided(), st.integers(1, 40))
def test_exact_parts_without_remainder_have_one_size_and_lose_less_than_a_record_each(
    case: tuple[dict[str, ShardLengths], ReadInstruction], n: int
) -> None:
    layout, whole = case
    plans = [resolve(part, layout) for part in even_splits(whole, n, unit="abs", drop_remainder=True)]
    assert len({plan.num_examples for plan in plans}) == 1
    assert 0 <= resolve(whole, layout).num_examples - sum(plan.num_examples for plan in plans) < n


@given(divided(), st.integers(1, 40))
def test_under_tfds_4_every_range_is_divided_on_its_own(
    case: tuple[dict[str, ShardLengths], ReadInstruction], n: int
) -> None:
    layout, whole = case
    plans = [resolve(part, layout, slicing="tfds-4") for part in even_splits(whole, n, unit="abs")]
    alone = [
        [resolve(part, layout) for part in even_splits(ReadInstruction.of((term,)), n, unit="abs")]
        for term in whole.terms
    ]
    for place, plan in enumerate(plans):
        assert list(plan) == [file for parts in alone for file in parts[place]]


@given(divided(), st.integers(1, 12), RULES)
def test_parts_of_files_are_the_files_of_the_whole_in_order(
    case: tuple[dict[str, ShardLengths], ReadInstruction], n: int, slicing: str
) -> None:
    layout, whole = case
    plans = [resolve(part, layout, slicing=slicing) for part in even_splits(whole, n, unit="shard")]
    assert [file for plan in plans for file in plan] == list(resolve(whole, layout, slicing=slicing))
    assert max(map(len, plans)) - min(map(len, plans)) <= 1


@given(divided(), st.integers(1, 9), st.data())
def test_neighbouring_parts_are_one_range_of_parts(
    case: tuple[dict[str, ShardLengths], ReadInstruction], n: int, data: st.DataObject
) -> None:
    layout, whole = case
    first, stop = sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))
    together = resolve(whole.part(first, stop, of=n), layout)
    alone = [resolve(whole.part(place, of=n), layout) for place in range(first, stop)]
    assert records(together.ranges) == records(tuple(one for plan in alone for one in plan.ranges))


@given(divided(), st.integers(1, 10**15), st.data())
def test_processes_share_the_work_without_a_list(
    case: tuple[dict[str, ShardLengths], ReadInstruction], count: int, data: st.DataObject
) -> None:
    layout, whole = case
    index = data.draw(st.integers(0, count - 1))
    size = resolve(whole, layout).num_examples
    mine = resolve(split_for_process(whole, index=index, count=count), layout)
    assert mine.num_examples == size // count + (index < size % count)


@given(divided(), st.integers(2, 12), st.sampled_from(["abs", "shard"]), RULES)
def test_each_exact_fold_is_a_part_and_its_complement(
    case: tuple[dict[str, ShardLengths], ReadInstruction], k: int, unit: str, slicing: str
) -> None:
    layout, whole = case
    assume(not resolve(whole, layout).overlaps)
    for fold in k_fold(whole, k, unit=unit):  # type: ignore[arg-type]
        validation, train = (resolve(one, layout, slicing=slicing) for one in fold)
        found = relation(validation, train)
        assert found.is_disjoint
        assert uncovered([validation, train], of=resolve(whole, layout, slicing=slicing)) == ()


@given(layouts(), st.integers(2, 150), RULES)
def test_each_percent_fold_is_a_part_and_its_complement(layout: dict[str, ShardLengths], k: int, slicing: str) -> None:
    folds = k_fold("+".join(layout), k)
    for fold in (folds[0], folds[k // 2], folds[-1]):
        validation, train = (resolve(one, layout, slicing=slicing) for one in fold)
        found = relation(validation, train)
        assert (found.common, found.missing) == ((), ())
    validations = [resolve(fold.validation, layout, slicing=slicing) for fold in folds]
    assert (overlaps_between(validations), uncovered(validations)) == ({}, ())


@given(layouts(), st.data())
def test_relations_between_plans_equal_those_between_sets_of_records(
    layout: dict[str, ShardLengths], data: st.DataObject
) -> None:
    def union() -> Plan:
        names = data.draw(st.lists(st.sampled_from([*layout, "all"]), min_size=1, max_size=4))
        bounds = [sorted(data.draw(st.tuples(percents(low=0), percents(low=0)))) for _ in names]
        parts = [ReadInstruction(name, *two, "%") for name, two in zip(names, bounds, strict=True)]
        return resolve(sum(parts[1:], parts[0]), layout)

    first, second = union(), union()
    a, b = positions(first), positions(second)
    found = relation(first, second)
    assert (found.is_disjoint, found.is_equal) == (not a & b, a == b)
    assert (found.is_subset, found.is_superset) == (a <= b, a >= b)
    named = {name for plan in (first, second) for name in (split.name for split in plan.splits)}
    whole = {(name, position) for name in named for position in range(layout[name].num_examples)}
    assert found.is_covering == (whole == a | b)
    for ranges, expected in (
        (found.common, a & b),
        (found.only_first, a - b),
        (found.only_second, b - a),
        (found.missing, whole - a - b),
        (overlaps_between([first, second]).get((0, 1), ()), a & b),
    ):
        listed = [(one.split, position) for one in ranges for position in range(one.start, one.stop)]
        assert len(listed) == len(set(listed))
        assert set(listed) == expected
        assert all(one.stop < two.start for one, two in pairwise(ranges) if one.split == two.split)


@given(layouts(), st.data())
def test_overlaps_are_the_records_that_are_read_more_than_once(
    layout: dict[str, ShardLengths], data: st.DataObject
) -> None:
    plan = resolve("+".join(data.draw(st.lists(st.sampled_from([*layout, "all"]), min_size=1, max_size=4))), layout)
    listed = [(one.split, position) for one in plan.ranges for position in range(one.start, one.stop)]
    twice = {record for record in listed if listed.count(record) > 1}
    assert {(one.split, place) for one in plan.overlaps for place in range(one.start, one.stop)} == twice


@given(read_instructions(st.sampled_from(["train", "test"])), layouts(), ANY_LENGTHS, RULES)
def test_every_instruction_ends_in_a_plan_or_a_typed_error(
    instruction: ReadInstruction, layout: dict[str, ShardLengths], lengths: ShardLengths, slicing: str
) -> None:
    layout = {**layout, "train": lengths}
    try:
        plan = resolve(instruction, layout, slicing=slicing)
    except (SliceError, SplitNotFoundError):
        return
    assert sum(file.take for file in plan) == plan.num_examples
    assert resolve(str(plan.instruction), layout, slicing=slicing) == plan
    assert [plan[place] for place in range(len(plan))] == list(plan)


def test_bounds_beyond_the_precision_of_floats_are_exact() -> None:
    """Floats are inexact for 10**17 + 1 records and a third of them; every bound is exact."""
    layout = {"train": ShardLengths([10**17 + 1])}
    (one,) = resolve("even(train, 3)[2]", layout).ranges
    assert (one.start, one.stop) == (66666666666666668, 10**17 + 1)
    (one,) = resolve("train[33.333333333333333%:50%]", layout).ranges
    assert (one.start, one.stop) == (33333333333333333, 50000000000000001)
