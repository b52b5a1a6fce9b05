"""What the bar of a long command draws, on terminals of several widths."""

from __future__ import annotations

import os
import re
import sys

import pytest
from support.terminals import drawn_on_terminal

from registry.cli.progress import TimeLeft

DRAWN = """
import sys, time
from types import SimpleNamespace
from registry.cli.progress import show_progress
from registry.model import Progress, TaskProgress

total = 120 if sys.argv[1] == "known" else None
with show_progress(SimpleNamespace(as_json=False, watch=None)) as progress:
    for done in (0, 12, 37):
        tasks = TaskProgress(unit="inputs", done=done, total=total, running=8, failed=done // 18, retried=done // 37)
        progress(Progress(stage="encoding", subject="train", done=done * 33367, num_bytes=done * 2**25, tasks=tasks))
        print("printed by a worker " + 5 * "and long " + str(done), file=sys.stderr)
        time.sleep(0.3)
    if sys.argv[2:] == ["cancelled"]:
        progress(Progress(stage="encoding", subject="train", done=9, tasks=TaskProgress(done=2, total=9, cancelling=8)))
        time.sleep(0.3)
"""


def drawn(columns: int, *arguments: str) -> list[str]:
    """The lines that a program draws in a terminal of this width."""
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-c", DRAWN, *arguments]
    text = drawn_on_terminal(command, "stderr", columns=columns, env=environment | {"TERM": "xterm"})
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode()))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (140, "1,234,579 records  1.2 GiB  37/120 inputs  8 running  2 failed  1 retried  0:0"),
        (80, "1,234,579 records  37/120 inputs  2 failed  0:0"),
        (60, "1,234,579 records  2 failed  0:0"),
        (30, "1,234,5"),
    ],
)
def test_a_bar_is_one_line_that_fits_the_terminal(columns: int, expected: str) -> None:
    lines = drawn(columns, "known")
    bars = [line for line in lines if "━" in line]
    assert bars
    assert max(map(len, bars)) < columns
    assert any(expected in line for line in bars), bars[-1]
    for done in (0, 12, 37):  # what is printed meanwhile has lines of its own, and is not broken into words
        assert f"printed by a worker {5 * 'and long '}{done}" in lines


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (80, "━  cancelling 8 tasks ...  press Ctrl-C again to quit now"),
        (60, "━  cancelling 8 tasks ..."),
        (30, "━  cancelling"),
    ],
)
def test_a_bar_says_that_tasks_are_being_cancelled(columns: int, expected: str) -> None:
    bars = [line for line in drawn(columns, "known", "cancelled") if "cancelling" in line]
    assert bars
    assert max(map(len, bars)) < columns
    assert all(expected in line for line in bars), bars[-1]


def test_a_bar_without_a_total_shows_the_time_that_has_passed() -> None:
    bars = [line for line in drawn(140, "unknown") if "━" in line]
    assert any("1,234,579 records  1.2 GiB  37 inputs  8 running  2 failed  1 retried  0:0" in line for line in bars)
    assert all(line.endswith(" elapsed") for line in bars)


def test_the_time_left_is_that_of_the_last_minute() -> None:
    left = TimeLeft()
    left.update(0.0, 100.0)
    assert left.seconds(101.0) is None
    left.update(0.1, 110.0)
    assert left.seconds(110.0) == pytest.approx(90.0)
    assert left.seconds(150.0) == pytest.approx(50.0)
    assert left.seconds(300.0) == pytest.approx(0.9 * 200 / 0.1)  # the next report is late
    for number in range(1, 30):  # faster now
        left.update(0.1 + 0.01 * number, 110.0 + 10 * number)
    assert left.seconds(400.0) == pytest.approx((1 - 0.39) * 1000, rel=0.2)
    left.update(None, 400.0)
    assert left.seconds(400.0) is None
