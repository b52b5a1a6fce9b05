"""Relations between plans: every kind, with the ranges that prove it."""

from __future__ import annotations

import pytest

from registry.errors import UsageError
from registry.splits import RecordRange, overlaps_between, print_ranges, relation, resolve, uncovered

LAYOUT = {"train": [50, 51], "test": [20]}


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("train", "train[:50%]+train[50%:]", "equal"),
        ("train[:0]", "test[:0]", "equal"),
        ("train[:10]", "train", "subset"),
        ("all", "test", "superset"),
        ("train[:80%]", "train[80%:]", "disjoint"),
        ("train", "test", "disjoint"),
        ("train[:60]", "train[40:]", "overlapping"),
        ("even(train, 3)[0]", "train[:34]", "equal"),
    ],
)
def test_two_plans_have_exactly_one_relation(first: str, second: str, kind: str) -> None:
    assert relation(resolve(first, LAYOUT), resolve(second, LAYOUT)).kind == kind


def test_all_names_every_split_when_covering_is_checked() -> None:
    whole = resolve("all[:50%]", LAYOUT)
    assert relation(whole, resolve("train[60:]", LAYOUT)).missing == (RecordRange(split="test", start=0, stop=20),)
    assert relation(whole, resolve("all[50%:]", LAYOUT)).is_covering


def test_an_exact_part_names_the_splits_inside_it() -> None:
    half = resolve("even(even(train+test, 2)[0], 2)[0]", LAYOUT)
    assert [split.name for split in half.splits] == ["train", "test"]
    assert uncovered([half]) == (
        RecordRange(split="train", start=31, stop=101),
        RecordRange(split="test", start=0, stop=20),
    )


def test_very_many_ranges_are_counted() -> None:
    said = print_ranges([RecordRange(split="train", start=2 * place, stop=2 * place + 1) for place in range(25)])
    assert said.endswith("train 36..37 + train 38..39 + 5 more ranges")


def test_overlaps_are_named_by_pair() -> None:
    plans = [resolve(part, LAYOUT) for part in ("train[:50]", "train[50:]", "train[45:55]+test", "train[:0]")]
    assert overlaps_between(plans) == {
        (0, 2): (RecordRange(split="train", start=45, stop=50),),
        (1, 2): (RecordRange(split="train", start=50, stop=55),),
    }


def test_plans_may_be_given_by_an_iterator() -> None:
    assert overlaps_between(resolve(one, LAYOUT) for one in ("train", "train[:5]")) == {
        (0, 1): (RecordRange(split="train", start=0, stop=5),)
    }
    assert uncovered(resolve(one, LAYOUT) for one in ("train[:5]",)) == (RecordRange(split="train", start=5, stop=101),)


def test_a_plan_names_what_it_reads_twice() -> None:
    assert resolve("train+test", LAYOUT).overlaps == ()
    assert resolve("train[:30]+train[20:40]+train[25:35]+test+all[:5]", LAYOUT).overlaps == (
        RecordRange(split="train", start=0, stop=5),
        RecordRange(split="train", start=20, stop=35),
    )


def test_plans_of_different_layouts_are_not_compared() -> None:
    with pytest.raises(UsageError) as caught:
        relation(resolve("train", {"train": [101]}), resolve("train", LAYOUT))
    assert str(caught.value) == ("these plans belong to different layouts: their shards of split 'train' differ")
    with pytest.raises(UsageError, match="these plans belong to different layouts"):
        relation(resolve("train", {"train": [50, 51]}), resolve("train", {"train": [51, 50]}))
    with pytest.raises(UsageError, match="expected a Plan to compare, found 'train'"):
        relation("train", resolve("train", LAYOUT))  # type: ignore[arg-type]
    assert caught.value.hint == "Resolve both expressions on the same dataset version."
