"""Encoding in this process and in others: the same entries, the earliest error, an end for every process."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from registry.building import encoding as engine_module
from registry.building.encoding import Engine, KeyedExample
from registry.building.sorter import Entry
from registry.errors import BuildError, FeatureError, MissingExtraError, UsageError

ENCODER = '''
import os, sys
from registry.errors import FeatureError, MissingExtraError

class Encoder:
    """Encodes text; some texts are orders."""

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


def pids(engine: Engine) -> list[int]:
    assert engine._pool is not None
    return [worker._process.pid for worker in engine._pool._workers]


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@PROCESSES
@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 5000])
def test_entries_come_in_order_whoever_encodes(encoder: Any, processes: int, count: int) -> None:
    texts = [f"example {number}" for number in range(count)]
    with Engine(encoder, processes=processes) as engine:
        assert list(engine.encode("train", keyed(*texts))) == [
            Entry(number.to_bytes(16, "big"), str(number), text.encode()) for number, text in enumerate(texts)
        ]


def test_one_pool_serves_all_splits_and_ends_with_the_build(encoder: Any) -> None:
    with Engine(encoder, processes=2) as engine:
        first = {entry.record for entry in engine.encode("train", keyed(*["pid"] * 2000))}
        second = {entry.record for entry in engine.encode("test", keyed(*["pid"] * 2000))}
        started = pids(engine)
    assert first | second <= {str(pid).encode() for pid in started}
    assert not any(map(is_running, started))


def test_a_small_dataset_starts_no_process(encoder: Any) -> None:
    with Engine(encoder) as engine:
        records = {entry.record for entry in engine.encode("train", keyed(*["pid"] * 500))}
        assert engine._pool is None
    assert records == {str(os.getpid()).encode()}


def test_a_big_dataset_with_slow_features_takes_processes(encoder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "num_cpus", lambda: 2)
    monkeypatch.setattr(engine_module, "SMALL_EXAMPLES", 100)
    monkeypatch.setattr(engine_module, "_SLOW_SECONDS", 0.0)
    with Engine(encoder) as engine:
        entries = list(engine.encode("train", keyed(*["pid"] * 700)))
        started = {str(pid).encode() for pid in pids(engine)}
    here = str(os.getpid()).encode()
    assert [entry.record for entry in entries[:100]] == [here] * 100
    assert {entry.record for entry in entries[100:]} <= started
    assert [entry.label for entry in entries] == [str(number) for number in range(700)]


def test_a_big_dataset_with_quick_features_stays_here(encoder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "num_cpus", lambda: 2)
    monkeypatch.setattr(engine_module, "SMALL_EXAMPLES", 100)
    monkeypatch.setattr(engine_module, "_SLOW_SECONDS", 3600.0)
    with Engine(encoder) as engine:
        assert len(list(engine.encode("train", keyed(*["pid"] * 700)))) == 700
        assert engine._pool is None


@PROCESSES
def test_a_value_that_does_not_fit_names_split_and_key(encoder: Any, processes: int) -> None:
    with Engine(encoder, processes=processes) as engine, pytest.raises(FeatureError) as caught:
        list(engine.encode("train", keyed("a", "b", "refuse", "c", "fail")))
    assert str(caught.value) == "split 'train', example with key 2: text: not this one"
    assert caught.value.hint == "Another."
    assert caught.value.details == {"feature": "text", "split": "train", "key": "2"}
    assert isinstance(caught.value.__cause__, FeatureError)


@PROCESSES
def test_features_that_fail_are_a_build_error_with_the_cause(encoder: Any, processes: int) -> None:
    with Engine(encoder, processes=processes) as engine, pytest.raises(BuildError) as caught:
        list(engine.encode("train", keyed("a", "fail")))
    assert str(caught.value) == (
        "split 'train', example with key 1: its features failed with ZeroDivisionError: by zero"
    )
    cause = caught.value.__cause__
    assert cause is not None
    assert "encode_example" in "".join(traceback.format_exception(cause))


@PROCESSES
def test_a_missing_extra_keeps_its_hint(encoder: Any, processes: int) -> None:
    with Engine(encoder, processes=processes) as engine, pytest.raises(BuildError) as caught:
        list(engine.encode("train", keyed("extra")))
    assert caught.value.hint == MissingExtraError(package="p", extra="image", needed_for="x").hint


@PROCESSES
def test_the_earliest_error_is_reported_before_one_of_the_generator(encoder: Any, processes: int) -> None:
    def examples() -> Iterator[KeyedExample]:
        yield from keyed(*["a"] * 700, "refuse", "b")
        raise BuildError("the generator failed")

    with Engine(encoder, processes=processes) as engine, pytest.raises(FeatureError, match="key 700"):
        list(engine.encode("train", examples()))


@PROCESSES
def test_an_error_of_the_generator_comes_through_after_what_it_yielded(encoder: Any, processes: int) -> None:
    def examples() -> Iterator[KeyedExample]:
        yield from keyed(*["a"] * 700)
        raise BuildError("the generator failed")

    with Engine(encoder, processes=processes) as engine:
        entries = engine.encode("train", examples())
        assert [next(entries).record for _ in range(700)] == [b"a"] * 700
        with pytest.raises(BuildError, match="the generator failed"):
            next(entries)


@pytest.mark.parametrize(
    ("order", "how"), [("die", "was ended by signal 9"), ("leave", "ended with exit code 3")], ids=["killed", "exited"]
)
def test_a_worker_that_dies_ends_the_build_with_a_typed_error(encoder: Any, order: str, how: str) -> None:
    with Engine(encoder, processes=2) as engine:
        started = pids(engine)
        with pytest.raises(BuildError) as caught:
            list(engine.encode("train", keyed(*["a"] * 3000, order, *["a"] * 3000)))
    assert str(caught.value) == f"a worker process {how} while it encoded examples"
    assert "out of memory" in str(caught.value.hint)
    assert not any(map(is_running, started))


def test_what_cannot_be_sent_is_encoded_here(encoder: Any, caplog: pytest.LogCaptureFixture) -> None:
    class OnlyHere:
        def __bytes__(self) -> bytes:
            return b"only here"

    with caplog.at_level(logging.WARNING), Engine(encoder, processes=2) as engine:
        entries = list(engine.encode("train", keyed(*["a"] * 600, OnlyHere(), *["b"] * 600)))
    assert [entry.record for entry in entries] == [b"a"] * 600 + [b"only here"] + [b"b"] * 600
    assert len(caplog.records) == 1


def test_features_that_cannot_be_sent_encode_here(caplog: pytest.LogCaptureFixture) -> None:
    class OnlyHere:
        def encode(self, example: str) -> bytes:
            return example.encode()

    with caplog.at_level(logging.WARNING), Engine(OnlyHere(), processes=2) as engine:
        assert [entry.record for entry in engine.encode("train", keyed("a", "b"))] == [b"a", b"b"]
    assert "cannot be sent to another" in caplog.text


def test_features_that_a_worker_cannot_import_encode_here(
    encoder: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not Path(entry, "engine_encoder.py").exists()])
    with caplog.at_level(logging.WARNING), Engine(encoder, processes=2) as engine:
        entries = list(engine.encode("train", keyed(*["a"] * 2000)))
    assert [entry.record for entry in entries] == [b"a"] * 2000
    assert "No module named 'engine_encoder'" in caplog.text


def test_a_system_that_allows_no_process_is_a_build_error(encoder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(BuildError, match="cannot start a worker process: No such file or directory"):
        Engine(encoder, processes=2)


def test_what_features_print_does_not_disturb(encoder: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with Engine(encoder, processes=2) as engine:
        assert [entry.record for entry in engine.encode("train", keyed("print"))] == [b"print"]
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "printed by an encoder" in captured.err


def test_a_build_that_is_left_in_the_middle_leaves_nothing_behind(encoder: Any) -> None:
    threads = threading.active_count()
    with Engine(encoder, processes=2) as engine:
        started = pids(engine)
        entries = engine.encode("train", keyed(*["a"] * 100_000))
        next(entries)
    assert not any(map(is_running, started))
    assert threading.active_count() == threads


@pytest.mark.parametrize("processes", [0, -1])
def test_a_build_takes_one_process_at_least(encoder: Any, processes: int) -> None:
    with pytest.raises(UsageError, match=f"^a build takes 1 process or more, not {processes}$"):
        Engine(encoder, processes=processes)


ENDLESS = """
import itertools, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background ignores it
from engine_encoder import Encoder
from registry.building.encoding import Engine, KeyedExample

examples = (KeyedExample(b"k" * 16, "k", "a") for _ in itertools.count())
with Engine(Encoder(), processes=2) as engine:
    for number, _ in enumerate(engine.encode("train", examples)):
        if number == 5000:
            print(*[worker._process.pid for worker in engine._pool._workers], flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_no_worker_outlives_a_build_that_is_interrupted_or_killed(
    encoder: Any, tmp_path: Path, number: signal.Signals
) -> None:
    # The script stands in a file with no guard against being imported: workers do not run it.
    (tmp_path / "endless.py").write_text(ENDLESS)
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "endless.py")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as build:
        assert build.stdout is not None
        try:
            assert len(build.stdout.readline().split()) == 2
            build.send_signal(number)
            _, errors = build.communicate(timeout=30)  # stderr ends when the last process that holds it has ended
        finally:
            build.kill()
    if number == signal.SIGINT:
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert errors.count("Traceback") == 1  # the build's own; its workers say nothing
    assert build.returncode == -number
