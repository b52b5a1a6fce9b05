"""The progress of builds on a Ray cluster, what their workers print, and Ctrl-C in a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from support import TESTS
from support.engine_laws import results
from support.ray_builders import InOrder, Talking, Told
from support.ray_clusters import MOST_SECONDS, wait_for_rest, wait_until
from support.ray_pieces import rest, wait_until_interrupted

import registry
from registry.building import build_dataset
from registry.engines import Piece, TaskCounts, TaskWatch, announced
from registry.engines.ray.tasks import RayTasks
from registry.errors import BuildError
from registry.storage import open_store


def test_progress_shows_tasks_that_end_out_of_order_bytes_and_a_retry(
    connected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_TEST_FOLDER", str(tmp_path))
    seen: list[registry.Progress] = []

    def watch(progress: registry.Progress) -> None:
        seen.append(progress)
        tasks = progress.tasks
        if tasks is not None and tasks.done >= 3 and tasks.retried:
            (tmp_path / "go on").touch()  # the first input ends only after others

    with (
        registry.use_engine("ray"),
        build_dataset(Told(), open_store(tmp_path / "data"), processes=4, progress=watch) as build,
    ):
        split = build.prepared.splits[0]
    encoding = [one for one in seen if one.stage == "encoding"]
    tasks = [one.tasks for one in encoding if one.tasks is not None]
    assert len(tasks) == len(encoding)
    assert {(one.unit, one.total) for one in tasks} == {("inputs", 24)}
    early = next(one for one in encoding if one.tasks is not None and one.tasks.done >= 3)
    assert early.done == 10 * (early.tasks.done if early.tasks else 0)
    assert early.fraction == early.done / 240
    last = encoding[-1]
    assert (last.done, last.num_bytes) == (240, split.num_bytes)
    assert (last.tasks.done, last.tasks.running, last.tasks.failed) == (24, 0, 0)
    assert last.tasks.retried >= 1
    assert max(one.running for one in tasks) == 4
    written = [one for one in seen if one.stage == "writing"][-1]
    assert (written.done, written.total, written.num_bytes) == (240, 240, split.num_bytes)
    assert written.tasks is not None
    assert str(written.tasks) == "3 of 3 shards"
    for before, after in pairwise(seen):
        if before.stage == after.stage:
            assert after.done >= before.done
            assert (after.num_bytes or 0) >= (before.num_bytes or 0)


def test_the_check_of_keys_shows_tasks(connected: Any, tmp_path: Path) -> None:
    seen: list[registry.Progress] = []
    with registry.use_engine("ray"), build_dataset(InOrder(), open_store(tmp_path), processes=4, progress=seen.append):
        pass
    assert list(dict.fromkeys(one.stage for one in seen)) == ["encoding", "checking", "writing"]
    checked = [one for one in seen if one.stage == "checking"][-1]
    count = checked.tasks.total
    assert str(checked) == f"checking train: 1,600 of 1,600 records, {count} of {count} tasks"


def test_progress_shows_inputs_that_failed(connected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_TEST_FOLDER", str(tmp_path))
    for name in ("fail", "go on", "killed"):
        (tmp_path / name).touch()
    seen: list[registry.Progress] = []
    with registry.use_engine("ray"), pytest.raises(BuildError, match="2 inputs failed"):
        build_dataset(Told(), open_store(tmp_path / "data"), processes=2, progress=seen.append)
    tasks = seen[-1].tasks
    assert (tasks.done, tasks.failed, tasks.retried) == (22, 2, 0)
    assert str(seen[-1].tasks) == "22 of 24 inputs, 2 failed"


def test_verifying_on_a_cluster_shows_tasks(connected: Any, tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.build("digits", num_shards=4, processes=1)
        seen: list[registry.Progress] = []
        with RayTasks(processes=2) as engine, registry.use_engine(engine):
            catalog.dataset("digits").verify(deep=True, processes=2, progress=seen.append)
    last = seen[-1]
    assert (last.done, last.total, last.tasks.unit, last.tasks.done) == (1797, 1797, "shards", last.tasks.total)


@pytest.mark.parametrize("is_watched", [True, False], ids=["watched", "unwatched"])
def test_tasks_that_are_cancelled_are_shown_until_they_have_ended(
    is_watched: bool, connected: Any, tmp_path: Path
) -> None:
    seen: list[TaskCounts] = []
    told: list[str] = []
    with announced("testing", tell=told.append), RayTasks(processes=2) as engine:
        pieces = [Piece(wait_until_interrupted, (str(tmp_path), 1))] * 4
        watch = TaskWatch(seen.append) if is_watched else None
        run = engine.run([Piece(rest, 0.0), *pieces], doing="tested", failure=BuildError, watch=watch)
        next(run)
        deadline = time.monotonic() + 60
        while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
    if is_watched:
        cancelling = [one.num_cancelling for one in seen if one.num_cancelling]
        assert cancelling[0] == 4
        assert (seen[-1].num_cancelling, seen[-1].num_running) == (0, 0)
        assert {one.num_running for one in seen if one.num_cancelling} == {0}
        assert told == []
    else:
        assert told == ["cancelling 4 tasks; press Ctrl-C again to quit now"]


class Terminal:
    """A command in a terminal of its own, in which it is the foreground group."""

    def __init__(self, arguments: list[str], environment: dict[str, str], *, columns: int = 100) -> None:
        main, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        start = (
            "import fcntl, os, signal, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
            "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
        )
        self._main = main
        self._text = b""
        self.process = subprocess.Popen(
            [sys.executable, "-c", start, *arguments],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), **environment},
        )
        os.close(terminal)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # Linux's way to say that nobody holds the other end any more
            while piece := os.read(self._main, 65536):
                self._text += piece

    @property
    def text(self) -> str:
        """What was written so far, without colors and movements of the cursor."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._text.decode(errors="replace"))

    def press(self, key: bytes) -> None:
        """Press a key; the terminal makes a signal of Ctrl-C."""
        os.write(self._main, key)

    def wait_for(self, pattern: str) -> None:
        """Wait until the text has a match of ``pattern``, while the command runs."""

        def is_shown() -> bool:
            assert self.process.poll() is None, self.text
            return re.search(pattern, self.text) is not None

        wait_until(is_shown, f"the terminal shows {pattern}")

    def end(self) -> int:
        """Wait for the end of the command; returns its exit code."""
        try:
            return self.process.wait(MOST_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join()
            os.close(self._main)


COMMAND: Final = (str(Path(sys.executable).parent / "registry"),)
PATIENT: Final = """
from registry.cli.main import main
from registry.engines.ray import connection as ray_connection

ray_connection._LINES_SECONDS *= 6  # the last lines of workers take longer on a busy machine
ray_connection._MOST_LINES_SECONDS *= 6
main()
"""


@contextmanager
def terminal_build(
    builder: str, cluster: Any, folder: Path, *, environment: dict[str, str], command: Sequence[str] = COMMAND
) -> Iterator[Terminal]:
    """``registry build`` on the cluster, in a terminal."""
    variables = {
        "PYTHONPATH": str(TESTS),
        "REGISTRY_CATALOG": str(folder / "catalog.db"),
        "REGISTRY_DATA_DIR": str(folder / "data"),
        "REGISTRY_TEST_FOLDER": str(folder),
    }
    arguments = ["build", f"support.ray_builders:{builder}", "--engine", "ray", "--address", cluster.address, "-j", "4"]
    terminal = Terminal([*command, *arguments], variables | environment)
    try:
        yield terminal
    finally:
        if terminal.process.poll() is None:
            terminal.process.kill()
            terminal.end()


def worked(folder: Path) -> tuple[int, int]:
    """A number that grows while workers generate, and one that grows while they write."""
    beats = sum(path.stat().st_size for path in folder.glob("beats-*"))
    return beats, sum(1 for path in (folder / "data").rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("stage", "times", "number"),
    [
        ("encoding", 1, signal.SIGINT),
        ("writing", 1, signal.SIGINT),
        ("encoding", 2, signal.SIGINT),
        ("encoding", 1, signal.SIGTERM),
        ("writing", 1, signal.SIGTERM),
    ],
)
def test_ctrl_c_and_sigterm_end_a_build_its_tasks_and_nothing_else(
    stage: str, times: int, number: signal.Signals, cluster: Any, connected: Any, tmp_path: Path
) -> None:
    seconds = "0.3" if stage == "encoding" else "0"
    with terminal_build("Talking", cluster, tmp_path, environment={"REGISTRY_TEST_SECONDS": seconds}) as terminal:
        terminal.wait_for(rf"{stage} train .* [1-9]\d* records|{stage} train .* [1-9][\d,]*/")
        for _ in range(times):
            if number == signal.SIGINT:
                terminal.press(b"\x03")
            else:
                terminal.process.send_signal(number)
            time.sleep(0.3)
        assert terminal.end() == 128 + number, terminal.text
    if stage == "encoding":  # tasks that write end sooner than the bar is drawn
        assert re.search(r"cancelling \d+ tasks? \.\.\.  press Ctrl-C again to quit now", terminal.text), terminal.text
    assert "interrupted" in terminal.text
    assert "Run the same command again to finish." in terminal.text
    assert "Traceback" not in terminal.text
    assert "SIGTERM received" not in terminal.text  # Ray's own handler would say so
    wait_for_rest(lambda: worked(tmp_path))
    if stage == "encoding":
        assert worked(tmp_path)[0] < len(Talking.COUNTS)  # the other inputs were not generated
    assert not (tmp_path / "data" / "talking" / "1.0.0").exists()
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        assert [str(one) for one in catalog.search("talking")] == []
    with RayTasks(processes=2) as engine:  # the cluster serves others
        assert results(engine, 0.1, 0.2, function=rest) == [0.1, 0.2]


def test_what_workers_print_and_log_is_shown_with_its_origin_above_the_bar(cluster: Any, tmp_path: Path) -> None:
    environment = {"REGISTRY_TEST_SECONDS": "0.2", "RAY_DEDUP_LOGS": "0"}
    command = (sys.executable, "-c", PATIENT)
    with terminal_build("TalkingLittle", cluster, tmp_path, environment=environment, command=command) as terminal:
        assert terminal.end() == 0, terminal.text
    lines = terminal.text.replace("\r", "\n").split("\n")
    for number in range(12):
        for said in ("printed", "on stderr", "logged"):
            found = [line for line in lines if line.rstrip().endswith(f"{said} for input {number}")]
            assert len(found) == 1, (said, number, terminal.text)
            assert re.fullmatch(r"\(generated examples pid=\d+(, ip=[\d.]+)?\) .*", found[0].strip()), found
        assert f"warned for input {number}" in terminal.text
    bars = [line for line in lines if line.startswith(("encoding train ", "writing train "))]
    assert bars
    assert max(map(len, bars)) <= 100
    assert any("/12 inputs" in line for line in bars)
