"""Encoding by each engine, in blocks and in runs: the same entries in order, and errors that name split and key."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from registry.building.encoding import encode_examples
from registry.building.example_runs import make_runs
from registry.building.generation import Keyer
from registry.building.keys import number_key
from registry.building.run_format import KeyedFrames
from registry.building.sorter import ExternalSorter
from registry.engines import Engine, choose_engine
from registry.errors import BuildError, FeatureError, MissingExtraError
from registry.wire import EncodedBlock

ENCODER = '''
import os, sys
from registry.errors import FeatureError, MissingExtraError
from registry.wire import EncodedBlock

class Encoder:
    """Encodes text; some texts are commands."""

    def encode(self, example):
        match example:
            case "refuse":
                raise FeatureError("text: not this one", hint="Another.", details={"feature": "text"})
            case "fail":
                raise ZeroDivisionError("by zero")
            case "extra":
                raise MissingExtraError(package="pillow", extra="image", needed_for="JPEG")
            case "die":
                os.kill(os.getpid(), 9)
            case "leave":
                os._exit(3)
            case "print":
                print("printed by an encoder")
            case "pid":
                return str(os.getpid()).encode()
        return example.encode() if isinstance(example, str) else bytes(example)

    def encode_block(self, examples):
        return encode_all(self.encode, examples)

def encode_all(encode, examples):
    records = []
    try:
        for example in examples:
            records.append(encode(example))
    except Exception as error:
        return EncodedBlock.of(records, error)
    return EncodedBlock.of(records)
'''

PROCESSES = pytest.mark.parametrize("processes", [1, 2, "runs"])


@pytest.fixture
def encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "engine_encoder.py").write_text(ENCODER)
    monkeypatch.syspath_prepend(str(tmp_path))
    import engine_encoder  # type: ignore[import-not-found]  # made by this fixture

    yield engine_encoder.Encoder()
    del sys.modules["engine_encoder"]


def keyed(*examples: Any) -> Iterator[tuple[int, Any]]:
    yield from enumerate(examples)


def opened(processes: int | None) -> Engine:
    return choose_engine(processes, num_bytes=None)


def encoded(
    encoder: Any, processes: int | str, examples: Iterator[tuple[int, Any]]
) -> Iterator[tuple[bytes, str, bytes]]:
    """The sort key, label and record of each example, encoded in blocks, or in runs of two workers."""
    with (
        opened(processes if isinstance(processes, int) else 2) as engine,
        ExternalSorter(split="train") as unsorted_keys,
    ):
        keyer = Keyer("train", shuffled=False, unsorted_keys=unsorted_keys)
        blocks: Iterator[KeyedFrames] = encode_examples(engine, encoder, keyer, examples)
        if processes == "runs":
            made = make_runs(engine, encoder, keyer, examples, folder=None, budget_bytes=2**20)
            blocks = (block for one in made for block in one.run.blocks())
        for block in blocks:
            ends = np.cumsum(block.frames.lengths).tolist()
            for index, (start, end) in enumerate(pairwise([0, *ends])):
                yield (
                    block.sort_keys[index].tobytes(),
                    block.labels[index],
                    bytes(block.frames.data[start + 12 : end - 4]),
                )


@PROCESSES
@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 5000])
def test_entries_come_in_order_whichever_process_encodes_them(encoder: Any, processes: int | str, count: int) -> None:
    texts = [f"example {number}" for number in range(count)]
    assert list(encoded(encoder, processes, keyed(*texts))) == [
        (number_key(number), str(number), text.encode()) for number, text in enumerate(texts)
    ]


@PROCESSES
def test_a_value_that_does_not_fit_names_split_and_key(encoder: Any, processes: int | str) -> None:
    with pytest.raises(FeatureError) as caught:
        list(encoded(encoder, processes, keyed("a", "b", "refuse", "c", "fail")))
    assert str(caught.value) == "split 'train', example with key 2: text: not this one"
    assert caught.value.hint == "Another."
    assert caught.value.details == {"feature": "text", "split": "train", "key": "2"}
    assert isinstance(caught.value.__cause__, FeatureError)


@PROCESSES
def test_features_that_fail_are_a_build_error_with_the_cause(encoder: Any, processes: int | str) -> None:
    with pytest.raises(BuildError) as caught:
        list(encoded(encoder, processes, keyed("a", "fail")))
    assert str(caught.value) == ("split 'train', example with key 1: encoding failed: ZeroDivisionError: by zero")
    cause = caught.value.__cause__
    assert cause is not None
    assert ", in encode\n" in "".join(traceback.format_exception(cause))


@PROCESSES
def test_a_missing_extra_keeps_its_hint(encoder: Any, processes: int | str) -> None:
    with pytest.raises(BuildError) as caught:
        list(encoded(encoder, processes, keyed("extra")))
    assert caught.value.hint == MissingExtraError(package="p", extra="image", needed_for="x").hint


@PROCESSES
def test_the_earliest_error_is_reported_before_one_of_the_generator(encoder: Any, processes: int | str) -> None:
    def examples() -> Iterator[tuple[int, Any]]:
        yield from keyed(*["a"] * 700, "refuse", "b")
        raise BuildError("the generator failed")

    with pytest.raises(FeatureError, match="key 700"):
        list(encoded(encoder, processes, examples()))


@PROCESSES
def test_an_error_of_the_generator_comes_through_after_what_it_yielded(encoder: Any, processes: int | str) -> None:
    def examples() -> Iterator[tuple[int, Any]]:
        yield from keyed(*["a"] * 700)
        raise BuildError("the generator failed")

    entries = encoded(encoder, processes, examples())
    assert [next(entries)[2] for _ in range(700)] == [b"a"] * 700
    with pytest.raises(BuildError, match="the generator failed"):
        next(entries)


@pytest.mark.parametrize(
    ("order", "how", "hint"),
    [
        ("die", "was killed by signal 9 (SIGKILL)", "The system probably ran out of memory. "),
        ("leave", "ended with exit code 3", "Code that ran in the worker ended the process. "),
    ],
    ids=["killed", "exited"],
)
@pytest.mark.parametrize("processes", [2, "runs"])
def test_a_worker_that_dies_ends_the_build_with_a_typed_error(
    encoder: Any, order: str, how: str, hint: str, processes: int | str
) -> None:
    with pytest.raises(BuildError) as caught:
        list(encoded(encoder, processes, keyed(*["a"] * 3000, order, *["a"] * 3000)))
    assert str(caught.value) == f"a worker process {how} while it encoded examples"
    assert str(caught.value.hint).startswith(hint)


@pytest.mark.parametrize("processes", [2, "runs"])
def test_an_example_that_cannot_be_pickled_is_encoded_here(
    encoder: Any, caplog: pytest.LogCaptureFixture, processes: int | str
) -> None:
    class OnlyHere:
        def __bytes__(self) -> bytes:
            return b"only here"

    with caplog.at_level(logging.WARNING):
        entries = list(encoded(encoder, processes, keyed(*["a"] * 600, OnlyHere(), *["b"] * 600)))
    assert [entry[2] for entry in entries] == [b"a"] * 600 + [b"only here"] + [b"b"] * 600
    assert len(caplog.records) == 1
    assert "cannot be sent to another process" in caplog.text


@pytest.mark.parametrize("processes", [2, "runs"])
def test_an_example_that_only_this_process_can_unpickle_is_encoded_here(encoder: Any, processes: int | str) -> None:
    entries = list(encoded(encoder, processes, keyed(*["a"] * 600, HereAgain(), *["b"] * 600)))
    assert [entry[2] for entry in entries] == [b"a"] * 600 + [b"here again"] + [b"b"] * 600


class HereAgain:
    """Can be unpickled in the process of the tests only."""

    def __bytes__(self) -> bytes:
        return b"here again"

    def __reduce__(self) -> tuple[Any, ...]:
        return made_in, (os.getpid(),)


def made_in(pid: int) -> HereAgain:
    assert pid == os.getpid()
    return HereAgain()


def test_runs_have_no_names_in_any_process(encoder: Any, tmp_path: Path) -> None:
    folder = tmp_path / "sorting"
    folder.mkdir()
    with opened(2) as engine, ExternalSorter(split="train") as sorter:
        keyer = Keyer("train", shuffled=True, unsorted_keys=sorter)
        texts = (str(number) * 100 for number in range(3_000))
        for made in make_runs(engine, encoder, keyer, keyed(*texts), folder=folder, budget_bytes=10_000):
            assert list(folder.iterdir()) == []
            sorter.add_run(made.run, num_payload_bytes=made.num_payload_bytes)
        assert sum(frames.num_records for frames in sorter.sorted_frames()) == 3_000


def test_this_process_encodes_an_example_before_the_next_is_yielded(encoder: Any) -> None:
    def examples() -> Iterator[tuple[int, Any]]:
        array = bytearray(1)  # authors fill one array again and again
        for number in range(700):
            array[0] = number % 251
            yield number, array

    records = [entry[2] for entry in encoded(encoder, 1, examples())]
    assert records == [bytes([number % 251]) for number in range(700)]


@PROCESSES
@pytest.mark.parametrize("is_nested", [False, True])
def test_an_author_may_write_every_example_into_the_same_objects(processes: int | str, is_nested: bool) -> None:
    def examples() -> Iterator[tuple[Any, Any]]:
        key, array, texts = np.zeros(1, np.int64), np.zeros(3, np.int64), [""]
        example: dict[str, Any] = {"array": array, "number": 0}
        if is_nested:
            example["nested"] = {"texts": texts}
        for number in range(700):
            key[0] = example["number"] = number
            array += number
            texts[0] = str(number)
            yield key, example

    class Showing:
        def encode_block(self, examples: Any) -> EncodedBlock:
            return EncodedBlock.of([repr(sorted(one.items())).encode() for one in examples])

    found = list(encoded(Showing(), processes, examples()))
    total = 0
    for number, (sort_key, label, record) in enumerate(found):
        total += number
        expected = [("array", np.full(3, total)), *([("nested", {"texts": [str(number)]})] if is_nested else [])]
        assert record.decode() == repr([*expected, ("number", number)])
        assert (sort_key, label) == (number_key(number), str(number))
    assert len(found) == 700


def test_examples_of_a_megabyte_are_sent_one_by_one(encoder: Any) -> None:
    drawn = 0

    def examples() -> Iterator[tuple[int, Any]]:
        nonlocal drawn
        while True:
            drawn += 1
            yield drawn, bytes(2**20)

    entries = encoded(encoder, 2, examples())
    for taken in range(1, 20):
        next(entries)
        assert drawn <= taken + 5
