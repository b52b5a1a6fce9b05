"""Draws progress bars on stderr while a command runs. Nothing is drawn if stderr is a pipe, or for JSON.

A bar is one line, and never wider than the terminal: a narrow terminal shows fewer parts. Lines that are printed or
logged in the meantime, e.g. by Ray for the workers of a cluster, go through rich's console and appear above the bar.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final, NamedTuple

from registry import model
from registry.cli.output import Output, printable, size

if TYPE_CHECKING:
    import rich.progress

    from registry.model import Progress, ProgressCallback


_LEAST_BAR: Final = 8
_MOST_BAR: Final = 40
_RATE_SECONDS: Final = 60.0
_RATE_SAMPLES: Final = 10


class BarPart(NamedTuple):
    """A part of the line of a bar. If not all parts fit, those with the highest ``rank`` are left out first."""

    text: str
    rank: int
    style: str = ""


def describe_parts(progress: Progress) -> list[BarPart]:
    """The parts of a bar that describe a stage, apart from its name and the time.

    >>> from registry.model import Progress, TaskProgress
    >>> tasks = TaskProgress(unit="inputs", done=37, total=120, running=8, failed=2)
    >>> one = Progress(stage="encoding", done=1234567, num_bytes=2**30, tasks=tasks)
    >>> [part.text for part in describe_parts(one)]
    ['1,234,567 records', '1.0 GiB', '37/120 inputs', '8 running', '2 failed']

    While the tasks of a cluster are cancelled, nothing else matters:

    >>> one = Progress(stage="encoding", done=1234567, tasks=TaskProgress(cancelling=8))
    >>> [part.text for part in describe_parts(one)]
    ['cancelling 8 tasks ...', 'press Ctrl-C again to quit now']
    """
    done, total = progress.done, progress.total
    if progress.tasks is not None and progress.tasks.cancelling:
        count = progress.tasks.cancelling
        text = f"cancelling {count:,} task{'s' * (count > 1)} ..."
        return [BarPart(text, 0, "yellow"), BarPart("press Ctrl-C again to quit now", 1)]
    if progress.unit == "bytes":
        text = size(done) if total is None else f"{size(done)}/{size(total)}"
    else:
        text = f"{done:,} {progress.unit}" if total is None else f"{done:,}/{total:,} {progress.unit}"
    parts = [BarPart(text, 0, "progress.download")]
    if progress.num_bytes is not None:
        parts.append(BarPart(size(progress.num_bytes), 5, "progress.filesize"))
    tasks = progress.tasks
    if tasks is not None:
        of = "" if tasks.total is None else f"/{tasks.total:,}"
        parts.append(BarPart(f"{tasks.done:,}{of} {tasks.unit}", 3 if tasks.unit != "tasks" else 7))
        if tasks.running > 1:
            parts.append(BarPart(f"{tasks.running:,} running", 6))
        if tasks.failed:
            parts.append(BarPart(f"{tasks.failed:,} failed", 1, "red"))
        if tasks.retried:
            parts.append(BarPart(f"{tasks.retried:,} retried", 4, "yellow"))
    return parts


def fit_parts(parts: list[BarPart], width: int) -> list[BarPart]:
    """Choose the ``parts`` that fit in ``width`` columns with two spaces before each, in their order.

    >>> [part.text for part in fit_parts([BarPart("12 records", 0), BarPart("1 KiB", 2), BarPart("0:12 left", 1)], 25)]
    ['12 records', '0:12 left']
    """
    result = list(parts)
    while len(result) > 1 and sum(2 + len(part.text) for part in result) > width:
        result.remove(max(result, key=lambda part: part.rank))
    return result


class TimeLeft:
    """Estimates the time left from the rate of the last minute, or of the last ten reports if they span more time."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque()
        self._ends_at: float | None = None

    def update(self, fraction: float | None, now: float) -> None:
        """Record which part of the work is done at the time ``now``."""
        if fraction is None:
            self._ends_at = None
            return
        if self._samples and fraction <= self._samples[-1][1]:
            return
        self._samples.append((now, fraction))
        while len(self._samples) > _RATE_SAMPLES and now - self._samples[1][0] > _RATE_SECONDS:
            self._samples.popleft()
        (first, before), (last, after) = self._samples[0], self._samples[-1]
        if last > first:
            self._ends_at = last + (1 - after) * (last - first) / (after - before)

    def seconds(self, now: float) -> float | None:
        """The time left, or None if it is not known yet."""
        if self._ends_at is None or now <= self._ends_at:
            return None if self._ends_at is None else self._ends_at - now
        # The next report is late: if it came now, it would give this rate. The true one may be lower.
        (first, before), (_, after) = self._samples[0], self._samples[-1]
        return (1 - after) * (now - first) / (after - before)


def duration(seconds: float) -> str:
    """Format a duration for people.

    >>> duration(12), duration(3605), duration(90000)
    ('0:12', '1:00:05', '25:00:00')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _Shown:
    """The stage that a bar shows."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.started = time.monotonic()
        self.left = TimeLeft()
        self.update(progress)

    def update(self, progress: Progress) -> None:
        self.progress = progress
        self.left.update(progress.fraction, time.monotonic())

    def parts(self) -> list[BarPart]:
        """The parts of the line, with the time left, or else the time that has passed."""
        if self.progress.tasks is not None and self.progress.tasks.cancelling:
            return describe_parts(self.progress)
        now = time.monotonic()
        seconds = self.left.seconds(now)
        time_text = f"{duration(now - self.started)} elapsed" if seconds is None else f"{duration(seconds)} left"
        return [*describe_parts(self.progress), BarPart(time_text, 2, "progress.remaining")]


class _Bar:
    """Draws the ``Progress`` of an API call: a bar for each stage, as soon as it is reported."""

    def __init__(self, drawn: rich.progress.Progress) -> None:
        self._drawn = drawn
        self._task: rich.progress.TaskID | None = None
        self._shown: _Shown | None = None

    def __call__(self, progress: Progress) -> None:
        before = self._shown
        if before is not None and (before.progress.stage, before.progress.subject) == (
            progress.stage,
            progress.subject,
        ):
            before.update(progress)
            return
        if self._task is not None:
            self._drawn.remove_task(self._task)
        self._shown = _Shown(progress)
        self._task = self._drawn.add_task("", shown=self._shown)


@contextmanager
def progress_bar(
    out: Output, verb: str, total: int | None, *, in_bytes: bool = False, beside_stdout: bool = False
) -> Iterator[Callable[[int], None] | None]:
    """A bar that counts records or bytes. Yields a function to call with the number done since its last call, or None.

    The bar appears with the first count, so nothing is drawn if there is no work. ``beside_stdout`` means that records
    are printed at the same time: the bar is then drawn only if stdout is not a terminal.
    """
    if beside_stdout and sys.stdout.isatty():
        yield None
        return
    with _draw(out, redirect_stdout=not beside_stdout) as bar:
        yield model.count_progress(bar, verb, total=total, unit="bytes" if in_bytes else "records")


def show_progress(out: Output) -> AbstractContextManager[ProgressCallback | None]:
    """Bars for one API call. Yields its ``progress`` argument, or None if nothing would be drawn."""
    return _draw(out) if out.watch is None else nullcontext(out.watch)


@contextmanager
def _draw(out: Output, *, redirect_stdout: bool = True) -> Iterator[_Bar | None]:
    """Draw bars; None if nothing would be drawn."""
    if out.as_json or not sys.stderr.isatty():
        yield None
        return
    from rich import progress as rich_progress
    from rich.console import Console, Group, RenderableType
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    console = Console(stderr=True, soft_wrap=True)  # long lines above the bar are not broken into words

    class Line(rich_progress.Progress):
        """Draws each task as a line of the width of the terminal."""

        def get_renderables(self) -> Iterator[RenderableType]:
            yield Group(*(line_of(task.fields["shown"]) for task in self.tasks))

    def line_of(state: _Shown) -> Table:
        progress, room = state.progress, console.width - 1  # some terminals wrap after the last column
        name = Text(printable(f"{progress.stage} {progress.subject}".rstrip()))
        parts = state.parts()
        least = sum(2 + len(part.text) for part in parts if part.rank <= 2)
        name.truncate(max(8, room - least - _LEAST_BAR - 1), overflow="ellipsis")
        kept = fit_parts(parts, room - name.cell_len - _LEAST_BAR - 1)
        used = name.cell_len + 1 + sum(2 + len(part.text) for part in kept)
        width = max(1, min(_MOST_BAR, room - used))
        fraction = progress.fraction
        bar = ProgressBar(total=1.0, completed=fraction or 0.0, width=width, pulse=fraction is None)
        text = Text.assemble(*((f"  {part.text}", part.style) for part in kept))
        text.truncate(max(1, room - name.cell_len - 1 - width))
        line = Table.grid()
        for needed in (name.cell_len + 1, width, text.cell_len):
            line.add_column(no_wrap=True, width=needed)
        line.add_row(name, bar, text)
        return line

    with Line(console=console, transient=True, redirect_stdout=redirect_stdout) as drawn:
        yield _Bar(drawn)
