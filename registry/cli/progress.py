"""Progress bars: on a terminal, on stderr, while something takes long. In a pipe nothing is drawn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from registry.cli.output import Output, printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from registry.building import BuildPhase


def _wanted(out: Output, *, beside_stdout: bool = False) -> bool:
    return sys.stderr.isatty() and not out.as_json and not (beside_stdout and sys.stdout.isatty())


@contextmanager
def record_progress(
    out: Output, verb: str, total: int | None, *, beside_stdout: bool = False
) -> Iterator[Callable[[int], None] | None]:
    """A bar that counts records; its value is called with the number done since the last call. None in a pipe.

    With ``beside_stdout`` records are printed all the while: the bar is drawn where they do not go to the terminal too.
    """
    if not _wanted(out, beside_stdout=beside_stdout):
        yield None
        return
    with _bar(redirect_stdout=not beside_stdout) as bar:
        task: TaskID | None = None

        def advance(count: int) -> None:
            nonlocal task
            if task is None:  # the bar appears with the first record, not before there is work
                task = bar.add_task(verb, total=total)
            bar.advance(task, count)

        yield advance


@contextmanager
def byte_progress(out: Output, verb: str, total: int | None) -> Iterator[Callable[[int], None] | None]:
    """A bar that counts bytes; its value is called with the number done since the last call. None in a pipe."""
    if not _wanted(out):
        yield None
        return
    with _bar(in_bytes=True) as bar:
        task = bar.add_task(verb, total=total)
        yield lambda num_bytes: bar.advance(task, num_bytes)


@contextmanager
def build_progress(out: Output) -> Iterator[BuildBars | None]:
    """Bars for a build: each split is encoded, then written; at last all is verified. None in a pipe."""
    if not _wanted(out):
        yield None
        return
    with _bar() as bar:
        yield BuildBars(bar)


class BuildBars:
    """One bar at a time, for the phase that runs: a ``BuildProgress`` of ``registry.building``, and what follows it."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task: TaskID | None = None
        self._verifying = False

    def start(self, *, split: str, phase: BuildPhase, num_examples: int | None) -> None:
        """A phase of one split begins."""
        self._show(f"{phase} {split}", num_examples)

    def advance(self, num_examples: int) -> None:
        """So many more examples are encoded or written."""
        if self._task is not None:
            self._bar.advance(self._task, num_examples)

    def verify(self, num_examples: int) -> None:
        """So many more examples are verified."""
        if not self._verifying:
            self._verifying = True
            self._show("verifying", None)
        self.advance(num_examples)

    def _show(self, description: str, total: int | None) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(printable(description), total=total)


@contextmanager
def import_progress(out: Output, *, passes: int) -> Iterator[ImportBar | None]:
    """A bar for each version that is imported; its records are gone through ``passes`` times. None in a pipe."""
    if not _wanted(out):
        yield None
        return
    with _bar() as bar:
        yield ImportBar(bar, passes)


class ImportBar:
    """One bar at a time, for the version that is imported: an ``ImportProgress`` of ``registry.api``."""

    def __init__(self, bar: Progress, passes: int) -> None:
        self._bar = bar
        self._passes = passes
        self._task: TaskID | None = None

    def start(self, what: str, *, place: int, count: int, num_examples: int) -> None:
        """Another version begins."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        which = f" ({place} of {count})" if count > 1 else ""
        self._task = self._bar.add_task(printable(f"importing {what}{which}"), total=self._passes * num_examples)

    def advance(self, num_examples: int) -> None:
        """So many more records are done."""
        if self._task is not None:
            self._bar.advance(self._task, num_examples)


def _bar(*, redirect_stdout: bool = True, in_bytes: bool = False) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *((DownloadColumn(binary_units=True), TransferSpeedColumn()) if in_bytes else (MofNCompleteColumn(),)),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=redirect_stdout,
    )
