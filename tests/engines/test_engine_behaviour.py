"""The guarantees of every engine (``registry.engines.Engine``): order, back-pressure, errors, faults, and the end."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_pieces import Unreadable, follow, square
from hypothesis import given
from hypothesis import strategies as st

from registry.engines import Engine, FileRange, Piece, ThisProcess, WorkerProcesses, choice, choose_engine
from registry.engines.choice import Growing
from registry.errors import BuildError, StorageError, UsageError, VerificationError

MAKERS: dict[str, Callable[[], Engine]] = {
    "here": ThisProcess,
    "threads": lambda: ThisProcess(threads=3),
    "workers": lambda: WorkerProcesses(2),
    "growing": lambda: Growing(2),
}
IN_WORKERS = ("workers", "growing")


@pytest.fixture(autouse=True, scope="module")
def _soon_grown() -> Iterator[None]:
    """Let a growing engine use workers after its first piece."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "_TRIAL_SECONDS", 0.0)
        patch.setattr(choice, "_SLOW_SECONDS", 0.0)
        yield


@pytest.fixture(params=MAKERS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with MAKERS[request.param]() as made:
        yield made


@pytest.fixture(params=IN_WORKERS)
def workers(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with MAKERS[request.param]() as made:
        yield made


@pytest.fixture(params=MAKERS, scope="module")
def lasting(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """One engine for all examples of a law: a run does not affect the next one."""
    with MAKERS[request.param]() as made:
        yield made


def run(engine: Engine, *inputs: Any, function: Callable[[Any], Any] = follow) -> Iterator[tuple[Any, Any]]:
    pieces = (Piece(function, one, (FileRange("memory://folder", "file"),)) for one in inputs)
    return engine.run(pieces, doing="followed orders", failure=VerificationError)


def results(engine: Engine, *inputs: Any, function: Callable[[Any], Any] = follow) -> list[Any]:
    return [result for _, result in run(engine, *inputs, function=function)]


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def is_alive(pid: int) -> bool:
    """Whether the process runs. One that was killed stays a zombie until its starter waits for it."""
    return is_running(pid) and Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"


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


def test_the_width_says_how_many_pieces_run_together() -> None:
    assert {name: make().width for name, make in MAKERS.items()} == {
        "here": 1, "threads": 3, "workers": 2, "growing": 1
    }  # fmt: skip


def test_pieces_run_at_the_same_time() -> None:
    barrier = threading.Barrier(3, timeout=30)
    with ThisProcess(threads=3) as engine:
        assert len(results(engine, *range(3), function=lambda _: barrier.wait())) == 3


def test_a_huge_result_arrives(engine: Engine) -> None:
    size = 64 * 2**20
    assert [len(result) for result in results(engine, ("bytes", 1), ("bytes", size), ("bytes", 2))] == [1, size, 2]


def test_another_error_names_its_class(engine: Engine) -> None:
    with pytest.raises((ZeroDivisionError, VerificationError)) as caught:
        results(engine, 1, 2, "fail", 3)
    assert "by zero" in str(caught.value)
    if isinstance(caught.value, VerificationError):
        assert str(caught.value) == "a worker process met ZeroDivisionError while it followed orders: by zero"
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


def both_pids(workers: Engine) -> set[int]:
    """The numbers of two worker processes. On a busy machine, one does all pieces before the other has started."""
    deadline, pids = time.monotonic() + 60, set[int]()
    while len(pids) < 2 and time.monotonic() < deadline:
        pids = set(results(workers, *["slow pid"] * 20))
    assert len(pids) == 2
    return pids


@pytest.mark.parametrize(
    ("order", "how", "code", "hint"),
    [
        ("die", "was killed by signal 9 (SIGKILL)", -9, "The system probably ran out of memory. Use fewer processes: "),
        ("crash", "was killed by signal 11 (SIGSEGV)", -11, "A native library crashed, or another program sent "),
        ("leave", "ended with exit code 3", 3, "Code that ran in the worker ended the process. Its output is above. "),
    ],
    ids=["killed", "crashed", "exited"],
)
def test_a_dead_worker_raises_a_typed_error_for_its_piece_and_is_replaced(
    workers: Engine, order: str, how: str, code: int, hint: str
) -> None:
    outcomes = run(workers, *range(20), order, *range(20))
    assert [next(outcomes)[1] for _ in range(20)] == list(range(20))
    with pytest.raises(VerificationError) as caught:
        next(outcomes)
    assert str(caught.value) == f"a worker process {how} while it followed orders"
    assert str(caught.value.hint).startswith(hint)
    assert caught.value.details == {"exit_code": code}
    pids = both_pids(workers)
    assert os.getpid() not in pids
    workers.close()
    assert not any(map(is_running, pids))


def test_a_worker_that_dies_between_two_runs_is_replaced(workers: Engine) -> None:
    results(workers, 1, 2)
    before = both_pids(workers)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    while any(map(is_alive, before)):
        time.sleep(0.01)
    assert not both_pids(workers) & before


def test_a_piece_that_calls_sys_exit_is_an_error_of_that_piece(workers: Engine) -> None:
    pattern = r"^a worker process met SystemExit while it followed orders: no data(?m:$)"
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


def test_a_system_that_allows_no_process_is_a_typed_error(workers: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(VerificationError, match=r"^cannot start a worker process: No such file or directory(?m:$)"):
        results(workers, 1, 2, 3)


def test_a_program_without_an_interpreter_does_the_work_itself(
    workers: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "")
    assert set(results(workers, *["pid"] * 5)) == {os.getpid()}


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
    assert len(caplog.records) == (1 if isinstance(engine, WorkerProcesses | Growing) else 0)


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


def test_what_a_piece_prints_does_not_disturb(workers: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    assert results(workers, 1, "print", "print", 2) == [1, "print", "print", 2]
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "printed by a piece" in captured.err


def test_the_same_workers_serve_every_run_and_end_with_the_engine(workers: Engine) -> None:
    results(workers, 1, 2)  # a growing engine runs the first of these itself
    first, second = set(results(workers, *["slow pid"] * 20)), set(results(workers, *["slow pid"] * 20))
    assert first == second
    assert os.getpid() not in first
    assert len(first) == 2
    workers.close()
    assert not any(map(is_running, first))


def test_a_single_piece_starts_no_worker() -> None:
    with WorkerProcesses(2) as engine:
        assert results(engine, "pid") == [os.getpid()]


def test_leaving_early_leaves_no_processes_behind(engine: Engine) -> None:
    threads = threading.active_count()
    with engine:
        outcomes = engine.run(
            (Piece(follow, "slow pid") for _ in itertools.count()), doing="tested", failure=VerificationError
        )
        pids = {result for _, result in itertools.islice(outcomes, 8)} - {os.getpid()}
    assert not any(map(is_running, pids))
    assert threading.active_count() <= threads


@pytest.mark.parametrize("where", ["the source", "the consumer"])
def test_ctrl_c_ends_an_engine(engine: Engine, where: str) -> None:
    def pieces() -> Iterator[Piece[Any, Any]]:
        for number in itertools.count():
            if number == 20 and where == "the source":
                raise KeyboardInterrupt
            yield Piece(follow, "slow pid")

    threads, pids = threading.active_count(), set()
    with pytest.raises(KeyboardInterrupt), engine:  # noqa: PT012
        for number, (_, pid) in enumerate(engine.run(pieces(), doing="tested", failure=VerificationError)):
            pids.add(pid)
            if number == 5 and where == "the consumer":
                raise KeyboardInterrupt
    assert not any(map(is_running, pids - {os.getpid()}))
    assert threading.active_count() <= threads


ENDLESS = """
import itertools, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored if the tests run in the background
from engine_pieces import follow
from registry.engines import Piece, choose_engine
from registry.errors import VerificationError

pieces = (Piece(follow, "pid") for _ in itertools.count())
with choose_engine(2, num_bytes=None) as engine:
    pids = set()
    for _, pid in engine.run(pieces, doing="tested", failure=VerificationError):
        if len(pids) < 2:
            pids.add(pid)
            if len(pids) == 2:
                print(*pids, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_no_worker_outlives_a_program_that_is_interrupted_or_killed(tmp_path: Path, number: signal.Signals) -> None:
    # The script has no `if __name__ == "__main__"`: workers must not run it.
    (tmp_path / "endless.py").write_text(ENDLESS)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "endless.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as program:
        assert program.stdout is not None
        try:
            assert len(program.stdout.readline().split()) == 2
            program.send_signal(number)
            _, errors = program.communicate(timeout=30)  # stderr ends when the last process that holds it has ended
        finally:
            program.kill()
    if number == signal.SIGINT:
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert errors.count("Traceback") == 1  # of the program; workers print nothing
    assert program.returncode == -number


# Which engine is chosen


BIG = 2**40


@pytest.mark.parametrize(
    ("asked", "kind", "width"),
    [
        ({"wanted": 1, "num_bytes": BIG}, ThisProcess, 1),
        ({"wanted": 3, "num_bytes": 0}, WorkerProcesses, 3),
        ({"wanted": 3, "num_bytes": 0, "is_unlocked": True}, ThisProcess, 3),
        ({"num_bytes": 1000}, ThisProcess, 1),
        ({"num_bytes": 1000, "num_items": 10**6}, WorkerProcesses, 4),
        ({"num_bytes": BIG}, WorkerProcesses, 4),
        ({"num_bytes": BIG, "is_unlocked": True}, ThisProcess, 4),
        ({"num_bytes": BIG, "is_local": False}, ThisProcess, 1),
        ({"num_bytes": 1000, "is_local": False, "is_unlocked": True}, ThisProcess, 8),
        ({"num_bytes": None}, Growing, 1),
    ],
)
def test_the_arguments_decide_which_engine_runs(
    asked: dict[str, Any], kind: type[Engine], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "num_cpus", lambda: 4)
    with choose_engine(asked.pop("wanted", None), **asked) as engine:
        assert type(engine) is kind
        assert engine.width == width


@pytest.mark.parametrize("wanted", [0, -1])
def test_an_engine_takes_one_process_at_least(wanted: int) -> None:
    with pytest.raises(UsageError, match=f"^processes must be 1 or more, not {wanted}(?m:$)"):
        choose_engine(wanted, num_bytes=None)


@pytest.mark.parametrize(("trial", "slow", "grows"), [(0.0, 0.0, True), (0.0, 3600.0, False), (3600.0, 0.0, False)])
def test_an_unknown_amount_of_work_uses_workers_if_they_are_faster(
    trial: float, slow: float, grows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "_TRIAL_SECONDS", trial)
    monkeypatch.setattr(choice, "_SLOW_SECONDS", slow)
    with Growing(2) as engine:
        found = results(engine, *["pid"] * 50)
        assert engine.width == (2 if grows else 1)
    assert found[0] == os.getpid()
    assert (os.getpid() in found[1:]) is not grows


def test_an_error_that_cannot_be_pickled_is_named(workers: Engine) -> None:
    with pytest.raises(VerificationError, match=r"met NeverError while it followed orders: only here(?m:$)"):
        results(workers, 1, 2, "own", 3)
