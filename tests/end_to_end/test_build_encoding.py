"""Encoding by each engine: the same entries in order, and errors that name split and key."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from registry.building.encoding import KeyedExample, encode_examples
from registry.building.sorter import Entry
from registry.engines import Engine, choose_engine
from registry.errors import BuildError, FeatureError, MissingExtraError

ENCODER = '''
import os, sys
from registry.errors import FeatureError, MissingExtraError

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
'''

PROCESSES = pytest.mark.parametrize("processes", [1, 2])


@pytest.fixture
def encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "engine_encoder.py").write_text(ENCODER)
    monkeypatch.syspath_prepend(str(tmp_path))
    import engine_encoder  # type: ignore[import-not-found]  # made by this fixture

    yield engine_encoder.Encoder()
    del sys.modules["engine_encoder"]


def keyed(*examples: Any) -> Iterator[KeyedExample]:
    for number, example in enumerate(examples):
        yield KeyedExample(number.to_bytes(16, "big"), str(number), example)


def opened(processes: int | None) -> Engine:
    return choose_engine(processes, num_bytes=None)


def encoded(encoder: Any, processes: int, examples: Iterator[KeyedExample]) -> Iterator[Entry]:
    with opened(processes) as engine:
        yield from encode_examples(engine, encoder, "train", examples)


@PROCESSES
@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 5000])
def test_entries_come_in_order_whichever_process_encodes_them(encoder: Any, processes: int, count: int) -> None:
    texts = [f"example {number}" for number in range(count)]
    assert list(encoded(encoder, processes, keyed(*texts))) == [
        Entry(number.to_bytes(16, "big"), str(number), text.encode()) for number, text in enumerate(texts)
    ]


@PROCESSES
def test_a_value_that_does_not_fit_names_split_and_key(encoder: Any, processes: int) -> None:
    with pytest.raises(FeatureError) as caught:
        list(encoded(encoder, processes, keyed("a", "b", "refuse", "c", "fail")))
    assert str(caught.value) == "split 'train', example with key 2: text: not this one"
    assert caught.value.hint == "Another."
    assert caught.value.details == {"feature": "text", "split": "train", "key": "2"}
    assert isinstance(caught.value.__cause__, FeatureError)


@PROCESSES
def test_features_that_fail_are_a_build_error_with_the_cause(encoder: Any, processes: int) -> None:
    with pytest.raises(BuildError) as caught:
        list(encoded(encoder, processes, keyed("a", "fail")))
    assert str(caught.value) == ("split 'train', example with key 1: encoding failed: ZeroDivisionError: by zero")
    cause = caught.value.__cause__
    assert cause is not None
    assert ", in encode\n" in "".join(traceback.format_exception(cause))


@PROCESSES
def test_a_missing_extra_keeps_its_hint(encoder: Any, processes: int) -> None:
    with pytest.raises(BuildError) as caught:
        list(encoded(encoder, processes, keyed("extra")))
    assert caught.value.hint == MissingExtraError(package="p", extra="image", needed_for="x").hint


@PROCESSES
def test_the_earliest_error_is_reported_before_one_of_the_generator(encoder: Any, processes: int) -> None:
    def examples() -> Iterator[KeyedExample]:
        yield from keyed(*["a"] * 700, "refuse", "b")
        raise BuildError("the generator failed")

    with pytest.raises(FeatureError, match="key 700"):
        list(encoded(encoder, processes, examples()))


@PROCESSES
def test_an_error_of_the_generator_comes_through_after_what_it_yielded(encoder: Any, processes: int) -> None:
    def examples() -> Iterator[KeyedExample]:
        yield from keyed(*["a"] * 700)
        raise BuildError("the generator failed")

    entries = encoded(encoder, processes, examples())
    assert [next(entries).record for _ in range(700)] == [b"a"] * 700
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
def test_a_worker_that_dies_ends_the_build_with_a_typed_error(encoder: Any, order: str, how: str, hint: str) -> None:
    with pytest.raises(BuildError) as caught:
        list(encoded(encoder, 2, keyed(*["a"] * 3000, order, *["a"] * 3000)))
    assert str(caught.value) == f"a worker process {how} while it encoded examples"
    assert str(caught.value.hint).startswith(hint)


def test_an_example_that_cannot_be_pickled_is_encoded_here(encoder: Any, caplog: pytest.LogCaptureFixture) -> None:
    class OnlyHere:
        def __bytes__(self) -> bytes:
            return b"only here"

    with caplog.at_level(logging.WARNING):
        entries = list(encoded(encoder, 2, keyed(*["a"] * 600, OnlyHere(), *["b"] * 600)))
    assert [entry.record for entry in entries] == [b"a"] * 600 + [b"only here"] + [b"b"] * 600
    assert len(caplog.records) == 1
    assert "cannot be sent to another process" in caplog.text


def test_this_process_encodes_an_example_before_the_next_is_yielded(encoder: Any) -> None:
    def examples() -> Iterator[KeyedExample]:
        array = bytearray(1)  # authors fill one array again and again
        for number in range(700):
            array[0] = number % 251
            yield KeyedExample(number.to_bytes(16, "big"), str(number), array)

    records = [entry.record for entry in encoded(encoder, 1, examples())]
    assert records == [bytes([number % 251]) for number in range(700)]


def test_examples_of_a_megabyte_are_sent_one_by_one(encoder: Any) -> None:
    drawn = 0

    def examples() -> Iterator[KeyedExample]:
        nonlocal drawn
        while True:
            drawn += 1
            yield KeyedExample(drawn.to_bytes(16, "big"), str(drawn), bytes(2**20))

    entries = encoded(encoder, 2, examples())
    for taken in range(1, 20):
        next(entries)
        assert drawn <= taken + 5
