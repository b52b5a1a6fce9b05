"""The guarantees of every engine (``registry.engines.Engine``): order, back-pressure, errors, faults, and the end."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import TESTS
from support.engine_laws import *  # noqa: F403 (the tests)
from support.engine_laws import results, run
from support.engine_pieces import await_file, follow, work_for

from registry.engines import (
    Engine,
    Piece,
    TaskCounts,
    TaskWatch,
    ThisProcess,
    WorkerProcesses,
    choice,
    choose_engine,
    use_engine,
)
from registry.engines.choice import Growing
from registry.errors import UsageError, VerificationError

MAKERS: dict[str, Callable[[], Engine]] = {
    "here": ThisProcess,
    "threads": lambda: ThisProcess(threads=3),
    "workers": lambda: WorkerProcesses(2),
    "growing": lambda: Growing(WorkerProcesses(2)),
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


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def is_alive(pid: int) -> bool:
    """Whether the process runs. One that was killed stays a zombie until its starter waits for it."""
    return is_running(pid) and Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"


def test_the_width_says_how_many_pieces_run_together() -> None:
    assert {name: make().width for name, make in MAKERS.items()} == {
        "here": 1, "threads": 3, "workers": 2, "growing": 1
    }  # fmt: skip


def test_pieces_run_at_the_same_time() -> None:
    barrier = threading.Barrier(3, timeout=300)
    with ThisProcess(threads=3) as engine:
        assert len(results(engine, *range(3), function=lambda _: barrier.wait())) == 3


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


def test_a_system_that_allows_no_process_is_a_typed_error(workers: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(VerificationError, match=r"^cannot start a worker process: No such file or directory(?m:$)"):
        results(workers, 1, 2, 3)


def test_a_program_without_an_interpreter_does_the_work_itself(
    workers: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "")
    assert set(results(workers, *["pid"] * 5)) == {os.getpid()}


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
from support.engine_pieces import await_file, follow
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
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
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
            _, errors = program.communicate(timeout=300)  # stderr ends when the last process that holds it has ended
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
    for name in ("_WAITING_TRIAL_SECONDS", "_WAITING_SECONDS"):  # a busy machine lets pieces wait
        monkeypatch.setattr(choice, name, 3600.0)
    with Growing(WorkerProcesses(2)) as engine:
        found = results(engine, *["pid"] * 50)
        assert engine.width == (2 if grows else 1)
    assert found[0] == os.getpid()
    assert (os.getpid() in found[1:]) is not grows


def test_items_that_wait_use_workers_although_the_processor_has_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_WAITING_TRIAL_SECONDS", 0.1)
    with Growing(WorkerProcesses(2)) as engine:
        found = list(engine.run([Piece(time.sleep, 0.02)] * 10, doing="waited", failure=VerificationError))
        assert engine.width == 2
    assert found == [(0.02, None)] * 10


def test_items_that_become_slow_use_workers_although_the_first_ones_were_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_TRIAL_SECONDS", 0.0)
    monkeypatch.setattr(choice, "_WAITING_TRIAL_SECONDS", 3600.0)
    monkeypatch.setattr(choice, "_SLOW_SECONDS", 0.02)
    with Growing(WorkerProcesses(2)) as engine:
        assert results(engine, *["pid"] * 50) == [os.getpid()] * 50
        assert engine.width == 1
        list(engine.run([Piece(work_for, 0.1)] * 3, doing="worked", failure=VerificationError))
        assert engine.width == 2
        assert os.getpid() not in results(engine, *["pid"] * 4)


# An engine for a block of work


def test_a_block_works_with_its_engine_and_leaves_it_open() -> None:
    with WorkerProcesses(2) as given:
        with use_engine(given) as used:
            assert used is given
            for _ in range(2):
                with choose_engine(num_bytes=BIG, reads=()) as engine:
                    assert os.getpid() not in results(engine, *["pid"] * 4)
            with pytest.raises(UsageError, match=r"^this engine is closed(?m:$)"):
                results(engine, 1)
        assert results(given, 1, 2) == [1, 2]


@pytest.mark.parametrize(
    "asked",
    [
        {"num_bytes": BIG},  # the pieces depend on this process
        {"num_bytes": 1000, "reads": ()},
        {"wanted": 1, "num_bytes": BIG, "reads": ()},
    ],
)
def test_other_work_in_the_block_is_done_as_always(asked: dict[str, Any]) -> None:
    with use_engine(ThisProcess(threads=7)):
        with choose_engine(num_bytes=BIG, reads=()) as engine:
            assert engine.width == 7
        with choose_engine(**asked) as engine:
            assert engine.width != 7
        with use_engine("local"), choose_engine(num_bytes=BIG, reads=()) as engine:
            assert engine.width != 7
    with choose_engine(num_bytes=BIG, reads=()) as engine:
        assert engine.width != 7


def test_the_threads_of_a_block_work_with_its_engine() -> None:
    def width(_: int) -> int:
        with choose_engine(num_bytes=BIG, reads=()) as engine:
            return engine.width

    with use_engine(ThisProcess(threads=7)), ThisProcess(threads=2) as threads:
        assert results(threads, 1, 2, 3, function=width) == [7, 7, 7]


def test_closing_the_engine_of_a_block_of_work_ends_its_runs() -> None:
    ended = []

    def pieces() -> Iterator[Piece[int, int]]:
        try:
            yield from (Piece(len, [number]) for number in range(100))
        finally:
            ended.append(True)

    with use_engine(ThisProcess()):
        with choose_engine(num_bytes=BIG, reads=()) as engine:
            assert next(engine.run(pieces(), doing="tested", failure=VerificationError))[1] == 1
        assert ended == [True]


@pytest.mark.parametrize("name", ["threads", "workers"])
def test_a_watch_sees_later_pieces_end_while_the_first_one_runs(name: str, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    done: list[int] = []

    def change(counts: TaskCounts) -> None:
        done.append(counts.num_done)
        if counts.num_done >= 3:
            go_on.touch()

    watch: TaskWatch[Any] = TaskWatch(change, lambda _piece, _result: None)
    inputs = [str(go_on), "1", "2", "3", "4", "5"]
    with MAKERS[name]() as engine:
        pieces = [Piece(await_file, one) for one in inputs]
        assert [one for one, _ in engine.run(pieces, doing="tested", failure=VerificationError, watch=watch)] == inputs
    assert go_on.exists()
    assert done == sorted(done)
    assert done[-1] == len(inputs)
