"""The TFDS documents say it, so it is so: every example and number of "Splits and slicing", of its API pages, and of
the slices in "TFDS and determinism", under the slicing rule ``documented``.

The documents are https://www.tensorflow.org/datasets/splits, .../determinism and .../api_docs/python/tfds (even_splits,
split_for_jax_process, core.ReadInstruction). Reading orders are tested with the reader.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from registry.model import ShardedFileTemplate, ShardLengths, Split
from registry.splits import (
    FileInstruction,
    Plan,
    ReadInstruction,
    even_splits,
    k_fold,
    overlaps_between,
    relation,
    resolve,
    split_for_process,
    uncovered,
)

MNIST = {"train": [7500] * 8, "test": [10_000]}


def ranges(plan: Plan) -> list[tuple[str, int, int]]:
    return [(one.split, one.start, one.stop) for one in plan.ranges]


@pytest.fixture(scope="module")
def imagenet() -> dict[str, Split]:
    """1,281,167 records in 1,024 shards, with the boundaries that TFDS's writer makes: round(n * i / 1024)."""
    bounds = [round(1_281_167 * index / 1024) for index in range(1025)]
    lengths = ShardLengths(stop - start for start, stop in pairwise(bounds))
    files = ShardedFileTemplate(dataset="imagenet2012")
    return {"train": Split(name="train", shard_lengths=lengths, files=files)}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("train", [("train", 0, 60_000)]),
        ("train[:75%]", [("train", 0, 45_000)]),
        ("test+train[:75%]", [("test", 0, 10_000), ("train", 0, 45_000)]),
        ("train[123:450]", [("train", 123, 450)]),
        ("train[:4000]", [("train", 0, 4000)]),
        ("train[25%:75%]", [("train", 15_000, 45_000)]),
        ("train[:4shard]", [("train", 0, 30_000)]),
        ("train[4shard]", [("train", 30_000, 37_500)]),
        ("train+test", [("train", 0, 60_000), ("test", 0, 10_000)]),
        ("train[:25%]+test", [("train", 0, 15_000), ("test", 0, 10_000)]),
        ("all", [("train", 0, 60_000), ("test", 0, 10_000)]),
        ("test[:50%]", [("test", 0, 5000)]),
        ("train[75%:]", [("train", 45_000, 60_000)]),
        ("train[:800]+test[:100]", [("train", 0, 800), ("test", 0, 100)]),
        ("train[10:20]", [("train", 10, 20)]),
        ("train[:10%]+train[-80%:]", [("train", 0, 6000), ("train", 12_000, 60_000)]),
        ("test[10:]", [("test", 10, 10_000)]),
        ("test[:-5%]+train[40%:60%]", [("test", 0, 9500), ("train", 24_000, 36_000)]),
        ("test[:33%]+train[1:-1]", [("test", 0, 3300), ("train", 1, 59_999)]),
    ],
)
def test_each_slice_of_the_documents_names_these_records(expression: str, expected: list[tuple[str, int, int]]) -> None:
    assert ranges(resolve(expression, MNIST)) == expected


@pytest.mark.parametrize(
    ("instruction", "expression"),
    [
        (ReadInstruction("train"), "train"),
        (ReadInstruction("train") + ReadInstruction("test"), "train+test"),
        (ReadInstruction("train", from_=10, to=20, unit="abs"), "train[10:20]"),
        (ReadInstruction("train", to=10, unit="%"), "train[:10%]"),
        (
            ReadInstruction("train", to=10, unit="%") + ReadInstruction("train", from_=-80, unit="%"),
            "train[:10%]+train[-80%:]",
        ),
        (ReadInstruction("test", to=33, unit="%"), "test[:33%]"),
        (ReadInstruction("test", from_=0, to=33, unit="%"), "test[0%:33%]"),
        (ReadInstruction.from_spec("test[:33%]"), "test[:33%]"),
        (
            ReadInstruction("test", to=33, unit="%") + ReadInstruction("train", from_=1, to=-1, unit="abs"),
            "test[:33%]+train[1:-1]",
        ),
    ],
)
def test_an_instruction_and_its_expression_are_the_same(instruction: ReadInstruction, expression: str) -> None:
    assert resolve(instruction, MNIST) == resolve(expression, MNIST)
    assert str(instruction) == expression


def test_train_of_75_percent_is_cut_as_python_cuts() -> None:
    """Slices have the semantics of Python's slice notation if the bounds are within the split."""
    records = range(60_000)
    for start, stop in ((None, 10), (5, None), (-100, None), (None, -1), (10, 20), (-20, -10), (0, 0), (60_000, None)):
        (found,) = resolve(ReadInstruction("train", start, stop), MNIST).ranges
        assert range(found.start, found.stop) == records[start:stop]


def test_three_even_splits_are_written_as_the_document_writes_them() -> None:
    split0, split1, split2 = even_splits("train", n=3)
    assert [split0, split1, split2] == ["train[0%:33%]", "train[33%:67%]", "train[67%:100%]"]
    plans = [resolve(one, MNIST) for one in (split0, split1, split2)]
    assert [plan.num_examples for plan in plans] == [19_800, 20_400, 19_800]
    assert (overlaps_between(plans), uncovered(plans)) == ({}, ())


def test_eleven_examples_make_parts_of_four_four_and_three() -> None:
    layout = {"train": [11]}
    assert [resolve(one, layout).num_examples for one in even_splits("train", n=3, unit="abs")] == [4, 4, 3]
    dropped = even_splits("train", n=3, unit="abs", drop_remainder=True)
    assert [resolve(one, layout).num_examples for one in dropped] == [3, 3, 3]


@pytest.mark.parametrize("split", ["train", "train[75%:]", "train[:800]+test[:100]"])
def test_every_process_gets_its_own_share(split: str) -> None:
    plans = [resolve(split_for_process(split, index=index, count=7, drop_remainder=True), MNIST) for index in range(7)]
    assert len({plan.num_examples for plan in plans}) == 1
    assert overlaps_between(plans) == {}


@pytest.mark.parametrize("num_examples", [60_000, 101, 999, 99])
def test_ten_fold_cross_validation_tiles_the_split(num_examples: int) -> None:
    layout = {"train": [num_examples]}
    validation = [f"train[{k}%:{k + 10}%]" for k in range(0, 100, 10)]
    train = [f"train[:{k}%]+train[{k + 10}%:]" for k in range(0, 100, 10)]
    assert [fold.validation for fold in k_fold("train", k=10)] == validation
    plans = [resolve(one, layout) for one in validation]
    assert (overlaps_between(plans), uncovered(plans)) == ({}, ())
    for fold, by_hand, plan in zip(k_fold("train", k=10), train, plans, strict=True):
        assert relation(resolve(fold.train, layout), resolve(by_hand, layout)).is_equal
        found = relation(plan, resolve(by_hand, layout))
        assert (found.is_disjoint, found.is_covering) == (True, True)


@pytest.mark.parametrize(
    ("num_examples", "expression", "expected"),
    [
        (101, "train[:99%]", (0, 100)),
        (101, "train[49%:50%]", (49, 51)),
        (101, "train[50%:51%]", (51, 52)),
        (999, "train[50%:52%]", (500, 519)),
        (999, "train[52%:54%]", (519, 539)),
    ],
)
def test_percent_are_rounded_to_the_closest_record(
    num_examples: int, expression: str, expected: tuple[int, int]
) -> None:
    (found,) = resolve(expression, {"train": [num_examples]}).ranges
    assert (found.start, found.stop) == expected


def test_under_pct1_dropremainder_five_percent_are_five_times_one() -> None:
    def size(start: int, stop: int, num_examples: int) -> int:
        instruction = ReadInstruction("train", from_=start, to=stop, unit="%", rounding="pct1_dropremainder")
        return resolve(instruction, {"train": [num_examples]}).num_examples

    assert (size(0, 99, 101), size(49, 50, 101)) == (99, 1)
    assert (size(50, 52, 999), size(52, 54, 999)) == (18, 18)
    for num_examples in (100, 101, 199, 999, 1_281_167):
        assert all(size(k, k + 5, num_examples) == 5 * size(k, k + 1, num_examples) for k in range(96))


def test_the_shards_of_imagenet(imagenet: dict[str, Split]) -> None:
    train = imagenet["train"]
    assert (train.num_shards, train.num_examples) == (1024, 1_281_167)
    starts = [train.shard_lengths.start(index) for index in range(1024)]
    assert (starts[1], starts[2], starts[-1]) == (1251, 2502, 1_279_916)
    assert train.filename(1023) == "imagenet2012-train.tfrecord-01023-of-01024"


def test_a_slice_of_imagenet_begins_at_the_record_that_the_document_prints(imagenet: dict[str, Split]) -> None:
    plan = resolve("train[67%:84%]", imagenet)
    starts = [imagenet["train"].shard_lengths.start(file.shard) + file.skip for file in plan[:2]]
    assert starts == [858_382, 859_533]
    assert plan.ranges[0].stop == 1_076_180


def test_the_file_instructions_of_one_percent_of_imagenet(imagenet: dict[str, Split]) -> None:
    def instruction(shard: int, **changes: Any) -> FileInstruction:
        length = imagenet["train"].shard_lengths[shard]
        given = {"skip": 0, "take": length, **changes}
        name = f"imagenet2012-train.tfrecord-{shard:05d}-of-01024"
        return FileInstruction(filename=name, examples_in_shard=length, split="train", shard=shard, **given)

    plan = resolve("train[44%:45%]", imagenet)
    assert ranges(plan) == [("train", 563_713, 576_525)]
    assert list(plan) == [
        instruction(450, skip=700, take=551),
        *(instruction(shard) for shard in range(451, 460)),
        instruction(460, take=1001),
    ]


def test_the_first_and_the_rest_of_imagenet(imagenet: dict[str, Split]) -> None:
    assert ranges(resolve("train[:25]", imagenet)) == [("train", 0, 25)]
    assert (len(resolve("train[:25]", imagenet)), len(resolve("train[40:]", imagenet))) == (1, 1024)
    assert resolve("train[40:]", imagenet)[0].skip == 40
