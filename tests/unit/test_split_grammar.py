"""The meaning of each split expression, and the whole message for every kind of malformed one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from support.golden import check_errors

from registry.errors import SplitSyntaxError, UsageError
from registry.model import SlicingRule
from registry.splits import ReadInstruction

GOLDEN = Path(__file__).with_name("golden")


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("train", "train"),
        ("all", "all"),
        ("train-2_b", "train-2_b"),
        ("007", "007"),
        ("train[:]", "train"),
        ("train[1_000:2_0_0]", "train[1000:200]"),
        ("train[007:]", "train[7:]"),
        ("train[-0:]", "train[0:]"),
        ("train[:-5]", "train[:-5]"),
        ("train[:10%]", "train[:10%]"),
        ("train[.5%:1.%]", "train[0.5%:1%]"),
        ("train[33.330%:-0.125%]", "train[33.33%:-0.125%]"),
        ("train[1shard:-1shard]", "train[1shard:-1shard]"),
        ("train[3shard]", "train[3shard:4shard]"),
        ("train[-1shard]", "train[-1shard:]"),
        ("train[-2shard]", "train[-2shard:-1shard]"),
        ("all[:75%]", "all[:75%]"),
        ("train + test\t+\nvalidation[:1]", "train+test+validation[:1]"),
        ("all+train", "all+train"),
    ],
)
def test_an_expression_is_read_and_printed(text: str, printed: str) -> None:
    assert str(ReadInstruction.from_spec(text)) == printed


def test_a_malformed_expression_is_refused_with_a_caret() -> None:
    check_errors(
        GOLDEN / "split_grammar" / "a_malformed_expression_is_refused_with_a_caret.txt",
        (
            partial(ReadInstruction.from_spec, text)
            for text in [
                "",
                "+",
                " train",
                "train+",
                "train++test",
                "été",
                "train ",
                "train test",
                "tr@in",
                "train]",
                "train[:5%]test",
                "train[",
                "train[]",
                "train[ :5]",
                "train[:",
                "train[:+5]",
                "train[10",
                "train[:1O%]",
                "train[:5 %]",
                "train[:1e2]",
                "train[:1.2.3%]",
                "train[:10%",
                "train[10%",
                "train[:10shards]",
                "train[1:2:3]",
                "train[:-]",
                "train[:.%]",
                "train[--5:]",
                "train[:1__0]",
                "train[:_1]",
                "train[:1_]",
                "train[75%]",
                "train[3]",
                "train[-1]",
                "train[1.5shard]",
                "train[1.5:]",
                "train[:101%]",
                "train[-100.5%:]",
                "train[10:50%]",
                "train[10%:50]",
                "train[1:3shard]",
                "train[0:١]",
            ]
        ),
        details=["expected", "start"],
    )


def test_the_caret_of_a_long_expression_is_in_sight() -> None:
    with pytest.raises(SplitSyntaxError) as caught:
        ReadInstruction.from_spec("train[:10%]+" * 50 + "test[:1O%]")
    window = "]+train[:10%]+train[:10%]+train[:10%]+train[:10%]+train[:10%]+test[:1O%]"
    problem, shown, marks = str(caught.value).splitlines()
    assert problem == "expected a digit, '%', 'shard' or ']' here"
    assert shown == f"    …{window}"
    assert marks.index("^") == shown.index("O")


def test_too_many_digits_and_too_long_names_are_refused() -> None:
    with pytest.raises(SplitSyntaxError, match=r"^a number has at most 400 digits\n"):
        ReadInstruction.from_spec(f"train[:{'1' * 401}]")
    with pytest.raises(SplitSyntaxError, match=r"^a split name has at most 200 characters\n"):
        ReadInstruction.from_spec("a" * 201)
    assert len(str(ReadInstruction.from_spec(f"train[:{'1' * 400}]"))) == 408
    with pytest.raises(SplitSyntaxError, match=r"^a number has at most 400 digits\n"):
        ReadInstruction.from_spec(f"train[{'9' * 400}shard]")


def test_a_number_is_refused_as_an_expression() -> None:
    with pytest.raises(UsageError, match="a split expression must be text or a ReadInstruction, not int") as caught:
        ReadInstruction.from_spec(3)  # type: ignore[arg-type]
    assert caught.value.hint == (
        "Write it as text, train[:10%], or as a registry.ReadInstruction, which takes TFDS's arguments."
    )


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("train[10:50%]", "train[10%:50%]"),
        ("train[10%:50]", "train[10%:50%]"),
        ("train[1:3shard]", "train[1shard:3shard]"),
        ("train[50%:1shard]", "train[50%:1%]"),
        ("train[1.5:50%]", "train[1.5%:50%]"),
        ("train[١:٢]", "train[1:2]"),
        ("été[:1]+train\n", "été[:1]+train"),
    ],
)
def test_the_tfds_4_rule_accepts_the_expressions_that_tfds_accepts(text: str, printed: str) -> None:
    assert str(ReadInstruction.from_spec(text, slicing=SlicingRule.TFDS_4)) == printed


@pytest.mark.parametrize(
    "text", ["train[:]", "train\n\n", "train[1.5:50]", "train[7.5%]", "train[:150:1%]", "train[:1]\n+test "]
)
def test_the_tfds_4_rule_refuses_the_expressions_that_tfds_refuses(text: str) -> None:
    with pytest.raises(SplitSyntaxError):
        ReadInstruction.from_spec(text, slicing=SlicingRule.TFDS_4)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("even(train, 3)[0]", "even(train, 3)[0]"),
        ("even( train +test ,3shard ,drop_remainder )[-1]", "even(train+test, 3shard, drop_remainder)[2]"),
        ("even(even(train,3)[0],2)[1:]+test", "even(even(train, 3)[0], 2)[1]+test"),
        ("even(all[:10%],1_0)[:]", "even(all[:10%], 10)[0:10]"),
        ("even(train,3)[3:]", "even(train, 3)[3:3]"),
        ("even[:5]+even", "even[:5]+even"),
    ],
)
def test_an_exact_part_is_read_and_printed_under_both_rules(text: str, printed: str) -> None:
    for slicing in SlicingRule:
        assert str(ReadInstruction.from_spec(text, slicing=slicing)) == printed


def test_a_malformed_part_is_refused_with_a_caret() -> None:
    check_errors(
        GOLDEN / "split_grammar" / "a_malformed_part_is_refused_with_a_caret.txt",
        (
            partial(ReadInstruction.from_spec, text)
            for text in [
                "even(",
                "even(train",
                "even(train[:5%])",
                "even(train, x)",
                "even(train, -3)[0]",
                "even(train, 0)[0]",
                "even(train, 3.5)[0]",
                "even(train, 3shards)[0]",
                "even(train, 3, drop)[0]",
                "even(train, 3, drop_remainder[0]",
                "even(train, 3)",
                "even(train, 3)[]",
                "even(train, 3)[-]",
                "even(train, 3)[1%]",
                "even(train, 3)[1:2:3]",
                "even(train, 3)[1:x]",
                "even(train, 3)[3]",
                "even(train, 1)[-2]",
                "even(train, 3)[0:4]",
                "even(train, 3)[2:1]",
                "even(train, 3)[0]x",
                "even (train, 3)[0]",
            ]
        ),
        details=["expected", "start"],
    )


def test_parts_of_parts_are_nested_sixteen_deep_and_no_deeper() -> None:
    text = "train"
    for _ in range(16):
        text = f"even({text}, 2)[0]"
    assert str(ReadInstruction.from_spec(text)) == text
    with pytest.raises(SplitSyntaxError, match=r"^parts can be nested at most 16 deep\n"):
        ReadInstruction.from_spec(f"even({text}, 2)[0]")
    side_by_side = "+".join(["even(train, 2)[0]"] * 40)
    assert str(ReadInstruction.from_spec(side_by_side)) == side_by_side
    with pytest.raises(UsageError, match="parts can be nested at most 16 deep"):
        ReadInstruction.from_spec(text).part(0, of=2)
    with pytest.raises(SplitSyntaxError, match=r"^a number has at most 400 digits\n"):
        ReadInstruction.from_spec(f"even(train, {'1' * 401})[0]")
