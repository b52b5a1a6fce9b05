"""Progress bars: on a terminal, on stderr, while something takes long. In a pipe nothing is drawn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from registry.cli.output import Output

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from registry.building import BuildPhase, BuildProgress


def _wanted(out: Output) -> bool:
    return sys.stderr.isatty() and not out.as_json


@contextmanager
def record_progress(out: Output, verb: str, total: int | None) -> Iterator[Callable[[int], None] | None]:
    """A bar that counts records; its value is called with the number done since the last call. None in a pipe."""
    if not _wanted(out):
        yield None
        return
    with _bar() as bar:
        task: TaskID | None = None

        def advance(count: int) -> None:
            nonlocal task
            if task is None:  # the bar appears with the first record, not before there is work
                task = bar.add_task(verb, total=total)
            bar.advance(task, count)

        yield advance


@contextmanager
def build_progress(out: Output) -> Iterator[BuildProgress | None]:
    """Bars for a build: each split is encoded, then written. None in a pipe."""
    if not _wanted(out):
        yield None
        return
    with _bar() as bar:
        yield _BuildBars(bar)


class _BuildBars:
    """One bar at a time, for the phase that runs."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task: TaskID | None = None

    def start(self, *, split: str, phase: BuildPhase, num_examples: int | None) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(f"{phase} {split}", total=num_examples)

    def advance(self, num_examples: int) -> None:
        if self._task is not None:
            self._bar.advance(self._task, num_examples)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
