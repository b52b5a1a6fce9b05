"""Builders whose inputs come in pieces: the same files for any division, and errors that name the inputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.piece_builders import (
    Input,
    Pieced,
    PiecedByNumber,
    PiecedInOrder,
    built,
    fail_in_some_way,
    generate,
    generate_bad,
)

from registry.building import Pieces, build_dataset, piece_runs
from registry.building.input_labels import InputLabels
from registry.building.piece_runs import GroupMaker, make_group_runs
from registry.engines import ThisProcess, choice
from registry.errors import BuildError, DuplicateKeyError
from registry.features import codec_of
from registry.model.progress import Progress, TaskProgress
from registry.storage import open_store
from registry.tfrecord import read_records


def make(kind: type[Pieced], inputs: Any, *, is_pieced: bool = True, **attributes: Any) -> Pieced:
    builder = kind()
    builder.inputs, builder.is_pieced = inputs, is_pieced
    for name, value in attributes.items():
        setattr(builder, name, value)
    return builder


@pytest.fixture
def _soon_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_TRIAL_SECONDS", 0.0)
    monkeypatch.setattr(choice, "_SLOW_SECONDS", 0.0)


INPUTS: list[Input] = [("a", 700), ("empty", 0), ("b", 1), *((f"small {index}", 3) for index in range(60)), ("z", 200)]


@pytest.mark.parametrize("kind", [Pieced, PiecedInOrder])
@pytest.mark.usefixtures("_soon_grown")
def test_the_files_are_those_of_one_generator_for_any_division(kind: type[Pieced], tmp_path: Path) -> None:
    expected = built(make(kind, INPUTS, is_pieced=False), tmp_path, processes=1, num_shards=3)
    assert sum(shard.num_examples for shard in expected[0]["train"]) == sum(count for _, count in INPUTS)
    for processes, budget_bytes, inputs in [(1, 10**8, INPUTS), (2, 5_000, iter(INPUTS)), (None, 50_000, INPUTS)]:
        options = {"processes": processes, "budget_bytes": budget_bytes, "num_shards": 3}
        assert built(make(kind, inputs), tmp_path, **options) == expected
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=12), shards=st.integers(1, 4))
def test_any_counts_of_examples_give_the_files_of_one_generator(counts: list[int], shards: int) -> None:
    inputs = [(f"input {index}", count) for index, count in enumerate(counts)]
    options: dict[str, Any] = {"processes": 1, "num_shards": min(shards, sum(counts))}
    assume(sum(counts))
    with TemporaryDirectory() as folder:
        expected = built(make(Pieced, inputs, is_pieced=False), Path(folder), **options)
        assert built(make(Pieced, inputs), Path(folder), **options, budget_bytes=1000) == expected


def test_a_split_without_examples_is_refused(tmp_path: Path) -> None:
    for inputs in ([], [("a", 0)]):
        with pytest.raises(BuildError, match=r"^split 'train' of pieced:1.0.0 has no examples"):
            built(make(Pieced, inputs), tmp_path, processes=1)


def test_numbers_as_keys_order_the_records_of_all_inputs(tmp_path: Path) -> None:
    builder = make(PiecedByNumber, [("0", 3), ("1", 2), ("2", 2)])
    with build_dataset(builder, open_store(tmp_path), processes=2) as build:
        (split,) = build.prepared.splits
        codec = codec_of(build.prepared.features)
        records = read_records(build.staged.store, split.filename(0))
        examples = [codec.decode(record) for record in records]
    assert [(one["name"], int(one["number"])) for one in examples] == [
        (name, number) for name, count in ((b"2", 2), (b"1", 2), (b"0", 3)) for number in range(count)
    ]


@pytest.mark.parametrize("processes", [1, 2])
def test_all_inputs_that_fail_are_named(processes: int, tmp_path: Path) -> None:
    inputs = [("fine", 5), ("fail 1", 4), ("also fine", 5), ("fail 2", 1)]
    with pytest.raises(BuildError) as caught:
        built(make(Pieced, inputs), tmp_path, processes=processes)
    first, second = caught.value.details["inputs"]
    assert caught.value.message.splitlines() == [
        "split 'train': 2 inputs failed",
        f"  ValueError ({first['where']})",
        "    ('fail 1', 4), after 3 examples: fail 1 is damaged",
        "    ('fail 2', 1): fail 2 is damaged",
    ]
    assert "piece_builders.py, line " in first["where"]
    assert first["input"] == "('fail 1', 4)"
    assert first["error"] == (
        "split 'train', input ('fail 1', 4): the generator failed after 3 examples, the last with key 'fail 1 2': "
        f"ValueError: fail 1 is damaged ({first['where']})"
    )
    assert second["input"] == "('fail 2', 1)"
    assert first["traceback"].endswith("\nValueError: fail 1 is damaged")
    assert caught.value.details["traceback"] == first["traceback"]  # once for each place
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("processes", [1, 2])
def test_a_single_failure_is_the_error(processes: int, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"^split 'train', input \('fail', 2\): the generator failed after 1 example"):
        built(make(Pieced, [("fine", 5), ("fail", 2)]), tmp_path, processes=processes)


def test_a_build_ends_when_twenty_inputs_have_failed(tmp_path: Path) -> None:
    drawn = []

    def inputs() -> Iterator[Input]:
        for index in range(10_000):
            drawn.append(index)
            yield f"fail {index}", 1

    with pytest.raises(BuildError, match=r"^split 'train': 20 inputs failed, and the build ended\n") as caught:
        built(make(Pieced, inputs()), tmp_path, processes=1)
    names = [f"('fail {index}', 1)" for index in range(20)]
    assert [one["input"] for one in caught.value.details["inputs"]] == names
    assert len(drawn) < 200


def test_a_group_of_many_inputs_ends_when_twenty_have_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "calls").touch()
    monkeypatch.setenv("PIECE_CALLS", str(tmp_path / "calls"))
    monkeypatch.setattr(piece_runs, "_next_count", lambda *_: 1000)
    with pytest.raises(BuildError, match=r"^split 'train': 20 inputs failed, and the build ended\n"):
        built(make(Pieced, [(f"fail {index}", 1) for index in range(1000)]), tmp_path / "data", processes=1)
    assert len((tmp_path / "calls").read_text().splitlines()) == 20


def test_failures_of_one_kind_are_one_group_with_a_short_line_for_each_input(tmp_path: Path) -> None:
    folder = str(tmp_path / "a folder with a long name" / "another folder with a long name")
    inputs = [f"{folder}/part-{number:05}.csv" for number in range(6)]
    with pytest.raises(BuildError) as caught:
        built(make(Pieced, inputs, generate=fail_in_some_way), tmp_path, processes=1)
    places = list(dict.fromkeys(one["where"] for one in caught.value.details["inputs"]))
    labels = [one["input"] for one in caught.value.details["inputs"]]  # long ones are shortened in the middle
    assert len(places) == 4
    assert [label[-16:] for label in labels] == [f"/part-{number:05}.csv'"[-16:] for number in range(6)]
    assert caught.value.message.splitlines() == [
        "split 'train': 6 inputs failed",
        f"  2 inputs: FileNotFoundError: [Errno 2] No such file or directory: … ({places[0]})",
        f"    {labels[0]}",
        f"    {labels[1]}",
        f"  2 inputs: ValueError ({places[1]})",
        f"    {labels[2]}, after 1 example: the table has t…2 have no name",
        f"    {labels[3]}, after 1 example: the table has t…3 have no name",
        f"  1 input: the key 'twice' is used twice, by examples 0 and 1 ({places[2]})",
        f"    {labels[4]}",
        f"  1 input: KeyError: 'price' ({places[3]})",
        f"    {labels[5]}",
    ]
    assert caught.value.hint == "Yield a key that is unique in the split, e.g. a file name or a row number."
    traces = [caught.value.details["inputs"][first]["traceback"] for first in (0, 2, 5)]
    assert caught.value.details["traceback"] == "\n".join(traces)


def test_a_wrong_example_names_its_input_and_key(tmp_path: Path) -> None:
    builder = make(Pieced, [("a", 5), ("b", 3)], generate=generate_bad)
    with pytest.raises(BuildError) as caught:
        built(builder, tmp_path, processes=1)
    place = caught.value.details["inputs"][0]["where"]
    assert caught.value.message.splitlines() == [
        "split 'train': 2 inputs failed",
        f"  feature 'number': expected dtype int64, found 'no number' ({place})",
        "    ('a', 5), key 'a 3'",
        "    ('b', 3), key 'b 1'",
    ]


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("kind", [Pieced, PiecedInOrder])
def test_a_key_of_two_inputs_is_named(kind: type[Pieced], processes: int, tmp_path: Path) -> None:
    inputs = [("a", 50), ("twin 1", 3), ("b", 50), ("twin 2", 3)]
    with pytest.raises(DuplicateKeyError) as caught:
        built(make(kind, iter(inputs)), tmp_path, processes=processes)
    named = r"split 'train': the key '[012]' is used twice, in inputs \('twin 1', 3\) and \('twin 2', 3\) \("
    assert re.match(named, caught.value.message)
    assert caught.value.details.keys() == {"split", "keys", "inputs", "where"}
    assert caught.value.details["inputs"] == ["('twin 1', 3)", "('twin 2', 3)"]


@pytest.mark.parametrize("budget_bytes", [2_000, 10**8])
@pytest.mark.parametrize("kind", [Pieced, PiecedInOrder])
def test_a_key_that_an_input_uses_twice_is_named(kind: type[Pieced], budget_bytes: int, tmp_path: Path) -> None:
    def generate_twins(given: Input) -> Iterator[tuple[str, dict[str, Any]]]:
        yield from generate(given)
        if given[1] > 1:
            yield f"{given[0]} 0", {"name": "again", "number": 0, "text": ""}

    builder = make(kind, [("a", 1), ("b", 300)], generate=generate_twins)
    named = "split 'train': the key 'b 0' is used twice, in input ('b', 300) ("
    with pytest.raises(BuildError) as caught:
        built(builder, tmp_path, processes=1, budget_bytes=budget_bytes)
    assert named in caught.value.message


def test_a_number_and_its_text_are_one_key_of_two_inputs(tmp_path: Path) -> None:
    def generate_either(given: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
        yield given, {"name": "", "number": 0, "text": ""}

    named = r"the keys 7 and '7' are the same key, in inputs 7 and '7' \("
    with pytest.raises(DuplicateKeyError, match=named):
        built(make(Pieced, [7, "8", "7"], generate=generate_either), tmp_path, processes=1)


def test_only_the_latest_of_many_inputs_is_in_memory() -> None:
    with InputLabels() as labels:
        for number in range(200_000):
            labels.add(f"{'x' * 20} {number}")
        error = DuplicateKeyError("the key 1 is used twice", details={"input_numbers": [0, 199_999]})
        labels.add_to(error)
    assert error.details == {"inputs": [repr(f"{'x' * 20} {number}") for number in (0, 199_999)]}


def test_inputs_that_fail_name_the_place(tmp_path: Path) -> None:
    def inputs() -> Iterator[Input]:
        yield "a", 3
        raise OSError("no listing")

    with pytest.raises(BuildError, match=r"^split 'train': the inputs failed after 1 input: OSError: no listing \("):
        built(make(Pieced, inputs()), tmp_path, processes=1)


def test_a_worker_that_dies_ends_the_build_with_a_typed_error(tmp_path: Path) -> None:
    inputs = [("a", 5), ("b", 5), ("die", 1), ("c", 5)]
    with pytest.raises(BuildError, match=r"^split 'train', input \('die', 1\): a worker process was killed "):
        built(make(Pieced, inputs), tmp_path, processes=2)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def nothing(_: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """An input without examples."""
    return iter(())


def test_inputs_that_failed_before_a_worker_died_are_named(tmp_path: Path) -> None:
    inputs = [("fail a", 5), ("b", 5), ("fail c", 2), *((f"small {index}", 1) for index in range(8)), ("die", 1)]
    with pytest.raises(BuildError, match=r"^split 'train', input \('die', 1\): a worker process was killed ") as caught:
        built(make(Pieced, inputs), tmp_path, processes=2)
    found = caught.value.message.split("\n")
    assert found[1] == "Before that, split 'train': 2 inputs failed"
    assert [line.partition(",")[0].strip() for line in found[-2:]] == ["('fail a'", "('fail c'"]
    assert [one["input"] for one in caught.value.details["failed"]] == ["('fail a', 5)", "('fail c', 2)"]


@pytest.mark.parametrize("kind", [bytes, tuple])
def test_inputs_that_are_data_are_sent_in_small_groups(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece_runs, "_GROUP_SECONDS", 3600.0)
    codec = codec_of(Pieced().features())
    maker = GroupMaker(codec, "train", True, nothing, None, 10**9)
    inputs = [kind([bytes(100_000)] if kind is tuple else 100_000) for _ in range(400)]
    sizes = []

    class Noting(ThisProcess):
        """Gives pieces at most 1 MB, and notes how many inputs they have."""

        bytes_of_input = 1_000_000

        def run(self, pieces: Any, **options: Any) -> Any:
            return super().run((sizes.append(len(piece.input.inputs)) or piece for piece in pieces), **options)

    with InputLabels() as labels:
        assert list(make_group_runs(Noting(), maker, Pieces(inputs, nothing), labels)) == []
    assert sum(sizes) == len(inputs)
    assert max(sizes) == 10


@pytest.mark.parametrize("wrong", [Pieces("a.csv", len), Pieces(3, len), Pieces(["a"], "len")])  # type: ignore[arg-type]
def test_pieces_without_inputs_or_a_function_are_refused(wrong: Pieces, tmp_path: Path) -> None:
    builder = make(Pieced, [])
    builder.splits = lambda: {"train": wrong}  # type: ignore[method-assign]
    with pytest.raises(BuildError, match=r"found Pieces without inputs or without a function") as caught:
        built(builder, tmp_path)
    assert caught.value.hint == "Write Pieces([...], self._generate)."


def nothing_returned(_given: Any) -> Any:
    return None


@pytest.mark.parametrize("examples", [nothing_returned, Pieces(["a"], nothing_returned)])
def test_a_function_that_yields_nothing_is_named_with_what_it_returned(examples: Any, tmp_path: Path) -> None:
    builder = make(Pieced, [])
    once = examples if isinstance(examples, Pieces) else partial(examples, "a")
    builder.splits = lambda: {"train": once}  # type: ignore[method-assign]
    expected = (
        r"TypeError: it must yield or return pairs \(key, example\), and returned None \(.*test_build_pieces.py, line"
    )
    with pytest.raises(BuildError, match=expected):
        built(builder, tmp_path)


def test_a_function_that_cannot_be_sent_is_called_here(tmp_path: Path) -> None:
    builder = make(
        Pieced, [("a", 40), ("b", 20)], generate=lambda given: [(given[0], {"name": "", "number": 0, "text": ""})]
    )
    shards, _ = built(builder, tmp_path, processes=2)
    assert shards["train"][0].num_examples == 2


@pytest.mark.parametrize("processes", [1, 2, None])
@pytest.mark.parametrize("is_list", [True, False])
@pytest.mark.usefixtures("_soon_grown")
def test_progress_counts_the_inputs_that_are_done(processes: int | None, is_list: bool, tmp_path: Path) -> None:
    seen: list[Progress] = []
    builder = make(Pieced, INPUTS if is_list else iter(INPUTS))
    with build_dataset(builder, open_store(tmp_path), processes=processes, num_shards=3, progress=seen.append) as build:
        split = build.prepared.splits[0]
    encoding = [one for one in seen if one.stage == "encoding"]
    tasks = [one.tasks for one in encoding if one.tasks is not None]
    assert (encoding[0].done, tasks[0].done) == (0, 0)
    assert {(one.unit, one.total) for one in tasks} == {("inputs", len(INPUTS) if is_list else None)}
    assert (encoding[-1].done, encoding[-1].num_bytes) == (split.num_examples, split.num_bytes)
    assert tasks[-1] == TaskProgress(unit="inputs", done=len(INPUTS), total=tasks[0].total)
    assert encoding[-1].fraction == (1.0 if is_list else None)
    written = seen[-1]
    assert (written.stage, written.done, written.total) == ("writing", split.num_examples, split.num_examples)
    assert written.num_bytes == split.num_bytes
    if processes != 1:
        assert str(written.tasks) == "3 of 3 shards"
    for before, after in pairwise(seen):
        assert before.stage != after.stage or after.done >= before.done


def test_progress_counts_the_inputs_that_failed(tmp_path: Path) -> None:
    seen: list[Progress] = []
    builder = make(Pieced, [("a", 3), ("fail here", 4), ("b", 3)])
    with pytest.raises(BuildError):
        build_dataset(builder, open_store(tmp_path), processes=1, progress=seen.append)
    assert seen[-1].tasks == TaskProgress(unit="inputs", done=2, total=3, failed=1)
