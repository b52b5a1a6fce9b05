"""Resolved expressions, and every reason for a refusal; the examples of the TFDS documents are in conformance."""

from __future__ import annotations

import copy
import pickle
import sys
from functools import partial
from pathlib import Path
from subprocess import run
from typing import Any

import numpy as np
import pytest
from support.golden import check_errors

from registry.errors import SliceError, SplitNotFoundError, UsageError
from registry.model import ShardLengths, Split
from registry.splits import FileInstruction, Plan, ReadInstruction, RecordRange, explain, resolve, round_percent

GOLDEN = Path(__file__).with_name("golden")


def find_range(expression: str | ReadInstruction, lengths: list[int], **options: Any) -> tuple[int, int]:
    (found,) = resolve(expression, {"train": lengths}, **options).ranges
    return found.start, found.stop


def test_rounding_by_call_replaces_that_of_the_instruction() -> None:
    instruction = ReadInstruction("train", to=50, unit="%", rounding="pct1_dropremainder")
    assert find_range(instruction, [199]) == (0, 50)
    plan = resolve(instruction, {"train": [199]}, rounding="closest")
    assert plan.ranges[0].stop == 100
    assert plan.instruction == ReadInstruction("train", to=50, unit="%")


def test_a_million_shards_cost_a_plan_nothing() -> None:
    layout = {"train": ShardLengths([1_000_000] * 1_000_000)}
    plan = resolve("train[10%:]", layout)
    assert (len(plan), plan.num_examples) == (900_000, 900_000_000_000)
    assert plan[-1].filename == "train-0999999-of-1000000"


def test_a_slice_that_the_layout_cannot_answer_is_refused() -> None:
    check_errors(
        GOLDEN / "split_resolve" / "a_slice_that_the_layout_cannot_answer_is_refused.txt",
        (
            partial(lambda expression: resolve(expression, {"train": [50, 51], "test": [10]}), row)
            for row in [
                "train[:200]",
                "train[-102:]",
                "train[5shard]",
                "train[:5shard]",
                "all[999:]",
                "train[90:-80]",
                "train[50.1%:50%]",
            ]
        ),
    )


def test_an_error_has_its_position_as_values() -> None:
    with pytest.raises(SliceError) as caught:
        resolve("test+train[5:200]", {"train": [50, 51], "test": []})
    assert caught.value.details == {
        "slice": "train[5:200]",
        "split": "train",
        "from": "5",
        "to": "200",
        "unit": "abs",
        "num_examples": 101,
        "num_shards": 2,
    }


def test_pct1_dropremainder_refuses_splits_that_it_cannot_divide() -> None:
    check_errors(
        GOLDEN / "split_resolve" / "pct1_dropremainder_refuses_splits_that_it_cannot_divide.txt",
        (
            partial(resolve, expression, {"train": lengths}, rounding="pct1_dropremainder")
            for expression, lengths in [("train[:5%]", [99]), ("train[:5.5%]", [200])]
        ),
    )


def test_an_unknown_split_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SplitNotFoundError) as caught:
        resolve("train+tset[:5]", {"train": [1], "test": [1]})
    assert str(caught.value) == "no split 'tset'"
    assert caught.value.hint == "Did you mean 'test'? There are: train, test."
    with pytest.raises(SplitNotFoundError):
        resolve("all", {})


def test_unknown_options_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^unknown slicing rule 'tfds-3'(?m:$)"):
        resolve("train", {"train": [1]}, slicing="tfds-3")
    with pytest.raises(UsageError, match=r"^unknown rounding 'floor'(?m:$)"):
        resolve("train[:5%]", {"train": [1]}, rounding="floor")
    with pytest.raises(UsageError, match=r"^a split cannot be named 'all'"):
        resolve("all", {"all": [1]})
    with pytest.raises(UsageError, match=r"^the layout lists split 'train' under the name 'test'(?m:$)"):
        resolve("test", {"test": Split(name="train", shard_lengths=ShardLengths([1]))})


def test_plans_are_values() -> None:
    layout = {"train": [3, 4]}
    plan = resolve("train[50%:]", layout)
    assert isinstance(plan, Plan)
    assert plan == resolve("train[4:]", layout)
    assert hash(plan) == hash(resolve("train[4:]", layout))
    assert plan != resolve("train[3:]", layout)
    assert plan != resolve("train[4:]", {"train": [7]})
    assert plan != list(plan)
    assert repr(plan) == "<Plan 'train[50%:]': 3 examples by 1 file instruction, documented slicing>"
    assert plan.expression == "train[50%:]"
    assert plan[0] == FileInstruction(
        filename="train-00001-of-00002", skip=1, take=3, examples_in_shard=4, split="train", shard=1
    )
    assert plan[0] in plan


@pytest.mark.parametrize(("skip", "take"), [(-1, 1), (0, 0), (0, -1), (3, 3), (6, 1)])
def test_an_instruction_reads_something_within_its_file(skip: int, take: int) -> None:
    with pytest.raises(SliceError, match=f"cannot skip {skip} and take {take} of 5 records"):
        FileInstruction(filename="f", skip=skip, take=take, examples_in_shard=5, split="train", shard=0)


def test_a_range_does_not_run_backwards() -> None:
    with pytest.raises(SliceError, match="is not a range of records"):
        RecordRange(split="train", start=2, stop=1)


def test_rounding_is_exact_beyond_the_precision_of_floats() -> None:
    # In floats, 0.29 * 50 * 100 and the like are below the half, and 2**53 + 1 is not representable.
    assert round_percent(50, 2**53 + 1, "closest") == 2**52 + 1
    assert round_percent(100, 10**30 + 1, "closest") == 10**30 + 1


def test_an_invalid_layout_is_refused() -> None:
    check_errors(
        GOLDEN / "split_resolve" / "an_invalid_layout_is_refused.txt",
        (
            partial(resolve, "all" if layout and "train" not in layout else "train", layout)
            for layout in [
                None,
                [5],
                {"train": 5},
                {"train": {5}},
                {"train": {5: 5}.keys()},
                {"train": "12345678"},
                {"train": b"12345678"},
                {"train": [1.5]},
                {"train": [2**62, 2**62]},
                {"train": [-1]},
                {"../../etc": [5]},
                {"a b": [5]},
                {None: [5]},
            ]
        ),
    )


def test_no_split_is_found_in_a_layout_without_splits() -> None:
    for name in ("train", "all"):
        with pytest.raises(SplitNotFoundError) as caught:
            resolve(name, {})
        assert (str(caught.value), caught.value.hint) == (f"no split {name!r}", "The layout has no splits at all.")


def test_shard_lengths_may_be_an_array_of_numpy() -> None:
    assert resolve("train[1:]", {"train": np.array([3, 4])}).num_examples == 6


@pytest.mark.parametrize("slicing", ["nonsense", "", 0])
def test_a_rule_that_there_is_not_is_refused_wherever_it_is_named(slicing: Any) -> None:
    for action in (resolve, explain):
        with pytest.raises(UsageError, match=r"^unknown slicing rule"):
            action("train", {"train": [5]}, slicing=slicing)
    with pytest.raises(UsageError, match=r"^unknown slicing rule"):
        ReadInstruction.from_spec("train", slicing=slicing)
    assert str(ReadInstruction.from_spec("train[10:50%]", slicing="tfds-4")) == "train[10%:50%]"


def test_a_plan_travels_between_processes() -> None:
    plan = resolve("train[2:]+all[50%:]", {"train": [0, 3, 0, 4, 0], "test": [2]})
    for again in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):  # noqa: S301 (our own)
        assert (again, list(again), again.splits) == (plan, list(plan), plan.splits)
        assert (again.instruction, again.slicing, again.overlaps) == (plan.instruction, plan.slicing, plan.overlaps)
    file = plan[0]
    assert pickle.loads(pickle.dumps(file)) == file  # noqa: S301 (our own)
    with pytest.raises(IndexError, match=r"^index 9 is out of range: the plan has 4 file instructions(?m:$)"):
        plan[9]


def test_the_resolver_imports_nothing_heavy() -> None:
    program = (
        "import sys, registry.splits; "
        "print(sorted({name.partition('.')[0] for name in sys.modules} "
        "& {'numpy', 'sqlalchemy', 'fsspec', 'pydantic', 'google', 'click', 'rich'}))"
    )
    result = run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
