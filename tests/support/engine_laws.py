"""The guarantees of every engine, as tests that several files import. Each file provides its engines as fixtures.

``engine`` is a new engine, ``lasting`` one for all examples of a law (a run does not affect the next one), and
``workers`` one that sends pieces to other processes.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.engines import Engine, Piece, TaskCounts, TaskWatch, ThisProcess, WorkerProcesses
from registry.errors import BuildError, StorageError, UsageError, VerificationError
from support.engine_pieces import Unreadable, follow, square


def run(engine: Engine, *inputs: Any, function: Callable[[Any], Any] = follow) -> Iterator[tuple[Any, Any]]:
    pieces = (Piece(function, one) for one in inputs)
    return engine.run(pieces, doing="followed orders", failure=VerificationError)


def results(engine: Engine, *inputs: Any, function: Callable[[Any], Any] = follow) -> list[Any]:
    return [result for _, result in run(engine, *inputs, function=function)]


@given(numbers=st.lists(st.integers(), max_size=40))
def test_results_come_in_the_order_of_the_pieces(lasting: Engine, numbers: list[int]) -> None:
    assert list(run(lasting, *numbers, function=square)) == [(number, number**2) for number in numbers]


@given(before=st.lists(st.integers(), max_size=20), after=st.lists(st.integers() | st.just("refuse"), max_size=20))
def test_an_error_is_raised_at_the_position_of_its_piece(lasting: Engine, before: list[Any], after: list[Any]) -> None:
    outcomes = run(lasting, *before, "refuse", *after)
    assert [result for _, result in itertools.islice(outcomes, len(before))] == before
    with pytest.raises(StorageError) as caught:
        next(outcomes)
    assert str(caught.value) == "a.tfrecord: record 7 is damaged"
    assert (caught.value.hint, caught.value.details) == ("Fetch it again.", {"record": 7})


@given(numbers=st.lists(st.integers(), max_size=20))
def test_an_error_of_the_input_iterator_comes_after_all_earlier_results(lasting: Engine, numbers: list[int]) -> None:
    def pieces() -> Iterator[Piece[int, int]]:
        yield from (Piece(square, number) for number in numbers)
        raise BuildError("the source failed")

    outcomes = lasting.run(pieces(), doing="tested", failure=VerificationError)
    assert [next(outcomes)[1] for _ in numbers] == [number**2 for number in numbers]
    with pytest.raises(BuildError, match="the source failed"):
        next(outcomes)


@given(taken=st.integers(0, 60))
def test_pieces_are_drawn_as_results_are_taken(lasting: Engine, taken: int) -> None:
    drawn = 0

    def pieces() -> Iterator[Piece[int, int]]:
        nonlocal drawn
        for number in itertools.count():
            drawn += 1
            yield Piece(square, number)

    outcomes = lasting.run(pieces(), doing="tested", failure=VerificationError)
    assert drawn == 0
    for _ in range(taken):
        next(outcomes)
    assert drawn <= taken + 2 * lasting.width + 1
    outcomes.close()
    assert results(lasting, 1, 2) == [1, 2]


@given(numbers=st.lists(st.integers(), max_size=10))
def test_a_piece_gives_the_same_result_on_every_call(lasting: Engine, numbers: list[int]) -> None:
    pieces = [Piece(square, number) for number in numbers]
    copied = pickle.loads(pickle.dumps(pieces))  # noqa: S301 (made here)
    assert list(lasting.run(pieces, doing="tested", failure=VerificationError)) == list(
        lasting.run(copied, doing="tested", failure=VerificationError)
    )
    assert [piece() for piece in pieces] == [number**2 for number in numbers]


def test_no_pieces_give_no_results(engine: Engine) -> None:
    assert results(engine) == []


def test_runs_of_several_functions_may_be_mixed(engine: Engine) -> None:
    one, other = run(engine, 1, 2, 3), run(engine, 1, 2, 3, function=square)
    assert list(zip(one, other, strict=True)) == [((1, 1), (1, 1)), ((2, 2), (2, 4)), ((3, 3), (3, 9))]


def test_a_huge_result_arrives(engine: Engine) -> None:
    size = 64 * 2**20
    assert [len(result) for result in results(engine, ("bytes", 1), ("bytes", size), ("bytes", 2))] == [1, size, 2]


def test_another_error_names_its_class(engine: Engine) -> None:
    with pytest.raises((ZeroDivisionError, VerificationError)) as caught:
        results(engine, 1, 2, "fail", 3)
    assert "by zero" in str(caught.value)
    if isinstance(caught.value, VerificationError):
        assert str(caught.value) == "a worker process raised ZeroDivisionError while it followed orders: by zero"
        assert "engine_pieces.py" in "".join(getattr(caught.value.__cause__, "__notes__", []))


def test_an_error_keeps_its_cause(engine: Engine) -> None:
    with pytest.raises(StorageError) as caught:
        results(engine, 1, 2, "refuse from", 3)
    assert "bad checksum" in str(caught.value.__cause__)


def test_the_earliest_error_is_raised_if_others_follow(engine: Engine) -> None:
    def pieces() -> Iterator[Piece[Any, Any]]:
        yield from (Piece(follow, one) for one in (1, "slow pid", "refuse", "fail"))
        raise BuildError("the source failed")

    with pytest.raises(StorageError):
        list(engine.run(pieces(), doing="tested", failure=VerificationError))


def test_a_piece_that_calls_sys_exit_is_an_error_of_that_piece(workers: Engine) -> None:
    pattern = r"^a worker process raised SystemExit while it followed orders: no data(?m:$)"
    with pytest.raises(VerificationError, match=pattern):
        results(workers, 1, 2, "exit", 3)


def test_a_closed_engine_refuses_to_run(engine: Engine) -> None:
    started = run(engine, *range(40))
    assert next(started) == (0, 0)
    engine.close()
    with pytest.raises(UsageError) as caught:
        results(engine, 1, 2, 3)
    assert caught.value.message == "this engine is closed"
    assert caught.value.hint == "Run pieces inside its with block, or open another engine."
    if isinstance(engine, WorkerProcesses):
        with pytest.raises(UsageError, match=r"^this engine is closed(?m:$)"):
            engine.submit(Piece(square, 3))
    started.close()


def test_a_piece_that_cannot_be_pickled_runs_in_this_process_in_order(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    lock = threading.Lock()
    unreadable = Unreadable()
    with caplog.at_level(logging.WARNING):
        found = results(engine, 0, lock, 1, unreadable, "generator", 2)
    assert found[:4] == [0, lock, 1, unreadable]
    assert list(found[4]) == [0, 1, 2]
    assert found[5] == 2
    warned = [one for one in caplog.records if one.name.startswith("registry.")]
    assert len(warned) == (0 if isinstance(engine, ThisProcess) else 1)


def test_a_function_that_cannot_be_pickled_is_called_here(engine: Engine) -> None:
    seen = []

    def remember(number: int) -> int:
        seen.append(number)
        return os.getpid()

    assert results(engine, *range(9), function=remember) == [os.getpid()] * 9
    assert sorted(seen) == list(range(9))


def test_a_function_that_a_worker_cannot_import_is_called_here(
    workers: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def pid(_):\n    import os\n    return os.getpid()\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        import only_here  # type: ignore[import-not-found]  # made above
    assert set(results(workers, *range(5), function=only_here.pid)) == {os.getpid()}
    del sys.modules["only_here"]


def test_an_error_that_cannot_be_pickled_is_named(workers: Engine) -> None:
    with pytest.raises(VerificationError, match=r"raised NeverError while it followed orders: only here(?m:$)"):
        results(workers, 1, 2, "own", 3)


@given(numbers=st.lists(st.integers(), max_size=30))
def test_a_watch_sees_each_piece_end_once_and_results_stay_in_order(lasting: Engine, numbers: list[int]) -> None:
    seen: list[TaskCounts] = []
    ended: list[tuple[int, int]] = []
    watch: TaskWatch[int] = TaskWatch(seen.append, lambda piece, result: ended.append((piece.input, result)))
    pieces = (Piece(square, number) for number in numbers)
    outcomes = list(lasting.run(pieces, doing="tested", failure=VerificationError, watch=watch))
    assert outcomes == [(number, number**2) for number in numbers]
    assert sorted(ended) == sorted(outcomes)
    for before, after in itertools.pairwise(seen):
        assert (after.num_started, after.num_done) >= (before.num_started, before.num_done)
    assert all(one.num_done + one.num_running <= one.num_started for one in seen)
    assert all(one.num_started - one.num_done <= 2 * lasting.width + 1 for one in seen)
    if numbers:
        assert seen[-1] == TaskCounts(num_started=len(numbers), num_done=len(numbers))


def test_a_watch_without_results_counts_pieces_that_fail_or_cannot_be_sent(lasting: Engine) -> None:
    seen: list[TaskCounts] = []
    pieces = [Piece(follow, one) for one in (1, "generator", 2, "refuse")]
    outcomes = lasting.run(pieces, doing="tested", failure=VerificationError, watch=TaskWatch(seen.append))
    assert [one for one, _ in itertools.islice(outcomes, 3)] == [1, "generator", 2]
    with pytest.raises(StorageError):
        next(outcomes)
    assert seen[-1] == TaskCounts(num_started=4, num_done=3, num_failed=1)


@pytest.mark.parametrize("order", ["refuse", "fail"])
def test_a_watch_with_results_counts_pieces_that_fail(lasting: Engine, order: str) -> None:
    seen: list[TaskCounts] = []
    watch: TaskWatch[Any] = TaskWatch(seen.append, lambda _piece, _result: None)
    pieces = [Piece(follow, one) for one in (1, "generator", 2, order)]
    with pytest.raises((StorageError, VerificationError, ZeroDivisionError)):
        list(lasting.run(pieces, doing="tested", failure=VerificationError, watch=watch))
    assert seen[-1] == TaskCounts(num_started=4, num_done=3, num_failed=1)
