"""An explanation always agrees with the resolver."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.strategies import large_shard_lengths, layouts, read_instructions, shard_lengths

from registry.errors import SliceError, SplitNotFoundError
from registry.model import ShardLengths
from registry.splits import ReadInstruction, explain, resolve


@given(
    st.dictionaries(st.sampled_from(["train", "test"]), st.one_of(shard_lengths(), large_shard_lengths()), min_size=1),
    st.lists(
        st.tuples(
            st.sampled_from(["train", "test", "all"]),
            st.sampled_from(["abs", "%", "shard"]),
            st.one_of(st.none(), st.integers(-100, 100)),
            st.one_of(st.none(), st.integers(-100, 100)),
        ),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["documented", "tfds-4"]),
    st.sampled_from([None, "closest", "pct1_dropremainder"]),
)
def test_the_explained_bounds_equal_those_of_the_ranges(
    layout: dict[str, ShardLengths], slices: list[tuple[str, str, int, int]], slicing: str, rounding: str | None
) -> None:
    parts = [ReadInstruction(name, start, stop, unit) for name, unit, start, stop in slices]  # type: ignore[arg-type]
    instruction = sum(parts[1:], parts[0])
    try:
        plan = resolve(instruction, layout, slicing=slicing, rounding=rounding)
    except (SliceError, SplitNotFoundError):
        return
    found = explain(instruction, layout, slicing=slicing, rounding=rounding)
    assert found.plan == plan
    assert tuple(one for term in found.terms for one in term.ranges) == plan.ranges
    for term in found.terms:
        if term.bounds:
            start, stop = (bound.record for bound in term.bounds)
            assert max(stop - start, 0) == sum(one.num_examples for one in term.ranges)
            if term.term.startswith("all") or start >= stop:
                continue
            (only,) = term.ranges
            assert (start, stop) == (only.start, only.stop)


@given(
    read_instructions(st.sampled_from(["train", "test"])),
    layouts(),
    st.one_of(shard_lengths(), shard_lengths(max_length=400)),
    st.sampled_from(["documented", "tfds-4"]),
    st.sampled_from([None, "closest", "pct1_dropremainder"]),
)
def test_every_resolved_expression_is_explained_in_sentences(
    instruction: ReadInstruction,
    layout: dict[str, ShardLengths],
    lengths: ShardLengths,
    slicing: str,
    rounding: str | None,
) -> None:
    layout = {**layout, "train": lengths}
    try:
        plan = resolve(instruction, layout, slicing=slicing, rounding=rounding)
    except (SliceError, SplitNotFoundError):
        return
    found = explain(instruction, layout, slicing=slicing, rounding=rounding)
    assert (found.plan, found.plan.splits) == (plan, plan.splits)
    assert found.sentences[-1 - bool(plan.overlaps)].startswith(f"It reads {plan.num_examples:,} record")
    assert all(sentence.endswith(".") and "\n" not in sentence for sentence in found.sentences)


def test_only_a_slice_that_reaches_the_end_drops_the_remainder() -> None:
    def dropped(expression: str, slicing: str) -> bool:
        found = explain(expression, {"train": [199]}, slicing=slicing, rounding="pct1_dropremainder")
        return any("drops the last 99 records of train" in sentence for sentence in found.sentences)

    assert [dropped(f"train[{bounds}]", "documented") for bounds in ("5%:", "5%:100%", ":5%", "-99%:-1%")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert [dropped(f"train[{bounds}]", "tfds-4") for bounds in ("5%:", "5%:100%", ":-99%")] == [False, True, False]


def test_a_part_without_the_fractions_of_its_whole_is_explained() -> None:
    part = ReadInstruction("train", 0.5, 50, "%", "pct1_dropremainder").part(2, of=3)
    found = explain(part, {"train": [100]}, slicing="tfds-4")
    assert found.plan == resolve(part, {"train": [100]}, slicing="tfds-4")
    assert found.sentences == (
        "train[0.5%:50%] begins at record 0.5: 0.5% is 0.5 times trunc(100 / 100.0), in floats 0.5.",
        "train[0.5%:50%] ends before record 50: 50% is 50 times trunc(100 / 100.0), in floats 50.0.",
        "even(train[0.5%:50%], 3)[2]: TFDS divides each range of train[0.5%:50%] into 3 parts.",
        "even(train[0.5%:50%], 3)[2] reads records train 34..50.",
        "It reads 16 records by 1 file instruction: train-00000-of-00001 (skip 34, take 16).",
    )
