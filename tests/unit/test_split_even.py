"""Equal parts of a split: percent texts, exact records, whole files; folds and processes."""

from __future__ import annotations

import numpy as np
import pytest

from registry.errors import SliceError, SplitSyntaxError, UsageError
from registry.model import ShardLengths
from registry.splits import EvenPart, Fold, Plan, ReadInstruction, even_splits, k_fold, resolve, split_for_process

LAYOUT = {"train": [4, 0, 3, 3], "test": [5]}


def ranges(plan: Plan) -> list[tuple[str, int, int]]:
    return [(one.split, one.start, one.stop) for one in plan.ranges]


def test_even_splits_are_the_documented_percent_strings() -> None:
    assert even_splits("train", n=1) == ["train[0%:100%]"]
    assert even_splits("train", n=3) == ["train[0%:33%]", "train[33%:67%]", "train[67%:100%]"]
    assert even_splits("all", n=8)[1] == "all[13%:25%]"
    assert even_splits("train + test", 2) == ["train[0%:50%]+test[0%:50%]", "train[50%:100%]+test[50%:100%]"]
    assert even_splits("train", n=100)[37] == "train[37%:38%]"
    assert even_splits("train", n=101)[:2] == ["train[0%:1%]", "train[1%:2%]"]
    assert even_splits("train", n=1000)[999] == "train[99.9%:100%]"


def test_even_splits_by_shard_share_no_file() -> None:
    parts = even_splits("train[:9]+test", n=3, unit="shard")
    assert [[(file.split, file.shard, file.skip, file.take) for file in resolve(part, LAYOUT)] for part in parts] == [
        [("train", 0, 0, 4), ("train", 2, 0, 3)],
        [("train", 3, 0, 2)],
        [("test", 0, 0, 5)],
    ]
    (alone, *dropped) = even_splits("all", n=3, unit="shard", drop_remainder=True)
    assert [len(resolve(part, LAYOUT)) for part in (alone, *dropped)] == [1, 1, 1]


def test_parts_are_divided_again_and_added() -> None:
    half = even_splits("train", n=2, unit="abs")[1]
    quarter = even_splits(half, n=2, unit="abs")[0]
    assert ranges(resolve(quarter + "test[:1]", LAYOUT)) == [("train", 5, 8), ("test", 0, 1)]
    assert ranges(resolve(quarter, LAYOUT, slicing="tfds-4")) == [("train", 5, 8)]
    assert eval(repr(quarter), {"ReadInstruction": ReadInstruction}) == quarter  # noqa: S307 (our own repr)


def test_the_rule_that_resolves_a_part_reads_its_text() -> None:
    mixed = even_splits("train[10:50%]", n=2, unit="abs")[1]
    assert ranges(resolve(mixed, {"train": [100]}, slicing="tfds-4")) == [("train", 30, 50)]
    with pytest.raises(SplitSyntaxError, match=r"^mixed units"):
        resolve(mixed, {"train": [100]})
    open_slice = even_splits("train[:]", n=2, unit="abs")[1]
    assert ranges(resolve(open_slice, {"train": [100]})) == [("train", 50, 100)]
    with pytest.raises(SplitSyntaxError, match=r"^TFDS expects a number"):
        resolve(open_slice, {"train": [100]}, slicing="tfds-4")


def test_a_reversed_slice_is_divided_by_neither_rule() -> None:
    part = even_splits("train[75%:25%]", n=2, unit="abs")[0]
    for slicing in ("documented", "tfds-4"):
        with pytest.raises(SliceError, match=r"^train\[75%:25%\] is reversed"):
            resolve(part, {"train": [10] * 10}, slicing=slicing)


def test_even_splits_refuse_expressions_that_they_cannot_divide() -> None:
    with pytest.raises(UsageError, match=r"^n must be 1 or more, not 0(?m:$)"):
        even_splits("train", n=0)
    with pytest.raises(UsageError, match=r"^n must be 1 or more, not 0(?m:$)"):
        even_splits("train", n=0, unit="abs")
    with pytest.raises(UsageError, match=r"^train\[:50%\] is already a slice, and a percentage of a slice") as caught:
        even_splits("train[:50%]", n=2)
    hint = "Pass split names, or divide exactly: even_splits('train[:50%]', 2, unit='abs')."
    assert caught.value.hint == hint
    with pytest.raises(UsageError, match="drop_remainder requires unit='abs' or unit='shard', not percent"):
        even_splits("train", n=2, drop_remainder=True)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="unknown unit 'record' of exact parts"):
        even_splits("train", n=2, unit="record")  # type: ignore[call-overload]
    with pytest.raises(SplitSyntaxError):
        even_splits("train[", n=2, unit="abs")


def test_counts_are_whole_numbers_of_any_kind() -> None:
    assert even_splits("train", np.int64(3)) == even_splits("train", 3)
    assert k_fold("train", np.int64(3)) == k_fold("train", 3)
    huge = 10**5000
    for action in (
        lambda: even_splits("train", 3.0),  # type: ignore[call-overload]
        lambda: even_splits("train", None),  # type: ignore[call-overload]
        lambda: even_splits("train", -huge),
        lambda: k_fold("train", 2.5),  # type: ignore[arg-type]
        lambda: split_for_process("train", index=None, count=3),  # type: ignore[arg-type]
        lambda: split_for_process("train", index=0, count=huge),
        lambda: split_for_process("train", index=huge, count=3),
        lambda: ReadInstruction("train").part(huge, of=3),
    ):
        with pytest.raises(UsageError) as caught:
            action()
        assert len(str(caught.value)) < 120


def test_a_deferred_text_prints_the_call_that_created_it() -> None:
    part = even_splits("train[10:50%]", n=2, unit="abs")[1]
    assert repr(part) == "even_splits('train[10:50%]', n=2, unit='abs')[1]"
    assert part.with_rounding("pct1_dropremainder").roundings == ("pct1_dropremainder",)


def test_some_parts_of_a_deferred_text_are_printed_unchanged() -> None:
    train = k_fold("train[10:50%]+test", 3, unit="abs")[2].train
    assert eval(repr(train), {"ReadInstruction": ReadInstruction, "EvenPart": EvenPart}) == train  # noqa: S307 (ours)


def test_no_number_of_parts_is_too_large_to_divide_by() -> None:
    part = ReadInstruction("train", 0, 99, "%", "pct1_dropremainder").part(0, of=10**309)
    assert resolve(part, {"train": [1797]}, slicing="tfds-4").num_examples == 1
    part = ReadInstruction("train", 0.5, 99, "%", "pct1_dropremainder").part(0, of=10**309)
    with pytest.raises(SliceError, match="TFDS cannot divide the fractions of records"):
        resolve(part, {"train": [1797]}, slicing="tfds-4")


def test_a_process_reads_its_part_of_any_number() -> None:
    plan = resolve(split_for_process("train", index=7 * 10**8, count=10**9), {"train": ShardLengths([10**12])})
    assert ranges(plan) == [("train", 7 * 10**11, 7 * 10**11 + 1000)]
    assert split_for_process("train", index=1, count=3, unit="shard", drop_remainder=True) == ReadInstruction.from_spec(
        "even(train, 3shard, drop_remainder)[1]"
    )
    for index in (-1, 3):
        with pytest.raises(UsageError, match=f"index {index} is out of range for 3 processes"):
            split_for_process("train", index=index, count=3)


def test_ten_folds_are_written_as_the_splits_document_writes_them() -> None:
    folds = k_fold("train", k=10)
    assert folds[0] == Fold("train[0%:10%]", "train[10%:100%]")
    assert folds[1] == Fold("train[10%:20%]", "train[0%:10%]+train[20%:100%]")
    assert folds[9] == Fold("train[90%:100%]", "train[0%:90%]")
    assert k_fold("train+test", k=2)[0] == Fold("train[0%:50%]+test[0%:50%]", "train[50%:100%]+test[50%:100%]")


def test_folds_refuse_expressions_that_they_cannot_divide() -> None:
    with pytest.raises(UsageError, match=r"^k must be 2 or more, not 1(?m:$)"):
        k_fold("train", k=1)
    with pytest.raises(UsageError, match=r"^train\[:5\] is already a slice"):
        k_fold("train[:5]", k=2)
    with pytest.raises(UsageError, match="unknown unit 'x' of exact parts"):
        k_fold("train", k=2, unit="x")  # type: ignore[arg-type]


def test_a_part_beyond_the_parts_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^parts 3\.\.4 are out of range: there are 3 parts, counted from 0(?m:$)"):
        ReadInstruction("train").part(3, of=3)
    with pytest.raises(UsageError, match=r"^the number of parts must be a whole number, not 2\.0(?m:$)"):
        ReadInstruction("train").part(0, of=2.0)  # type: ignore[arg-type]
