"""An explanation never says anything else than what the resolver does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from strategies import large_shard_lengths, layouts, read_instructions, shard_lengths

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
def test_the_bounds_that_are_explained_are_those_of_the_ranges(
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
    shard_lengths(),
    st.sampled_from(["documented", "tfds-4"]),
)
def test_whatever_resolves_is_explained_in_sentences(
    instruction: ReadInstruction, layout: dict[str, ShardLengths], lengths: ShardLengths, slicing: str
) -> None:
    layout = {**layout, "train": lengths}
    try:
        plan = resolve(instruction, layout, slicing=slicing)
    except (SliceError, SplitNotFoundError):
        return
    found = explain(instruction, layout, slicing=slicing)
    assert found.plan == plan
    assert found.sentences[-1 - bool(plan.overlaps)].startswith(f"It reads {plan.num_examples:,} record")
    assert all(sentence.endswith(".") and "\n" not in sentence for sentence in found.sentences)
