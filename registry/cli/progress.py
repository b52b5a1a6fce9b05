"""Progress bars: on a terminal, on stderr, while something takes long. In a pipe, and for JSON, nothing is drawn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeVar

from registry.cli.output import Output, printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from registry.building import BuildPhase

_T = TypeVar("_T")


class _Bar:
    """One bar at a time, for the work that is done now."""

    def __init__(self, drawn: Progress) -> None:
        self._drawn = drawn
        self._task: TaskID | None = None

    def begin(self, description: str, total: int | None) -> None:
        """Other work begins: its bar takes the place of the one before."""
        if self._task is not None:
            self._drawn.remove_task(self._task)
        self._task = self._drawn.add_task(printable(description), total=total)

    def advance(self, count: int) -> None:
        """Count what is done."""
        if self._task is not None:
            self._drawn.advance(self._task, count)


class _CountBar(_Bar):
    """A bar that is drawn with the first count, not before there is work."""

    def __init__(self, drawn: Progress, description: str, total: int | None) -> None:
        super().__init__(drawn)
        self._begin = description, total

    def advance(self, count: int) -> None:
        if self._task is None:
            self.begin(*self._begin)
        super().advance(count)


class BuildBar(_Bar):
    """Each split is encoded, then written: a ``BuildProgress`` of ``registry.building``. At last all is verified."""

    _is_verifying = False

    def start(self, *, split: str, phase: BuildPhase, num_examples: int | None) -> None:
        """A phase of one split begins."""
        self.begin(f"{phase} {split}", num_examples)

    def verify(self, num_examples: int) -> None:
        """Count examples that are verified."""
        if not self._is_verifying:
            self._is_verifying = True
            self.begin("verifying", None)
        self.advance(num_examples)


class ImportBar(_Bar):
    """A bar for each version, whose records are read ``passes`` times: an ``ImportProgress`` of ``registry.api``."""

    def __init__(self, drawn: Progress, passes: int) -> None:
        super().__init__(drawn)
        self._passes = passes

    def start(self, what: str, *, place: int, count: int, num_examples: int) -> None:
        """Another version begins."""
        which = f" ({place} of {count})" if count > 1 else ""
        self.begin(f"importing {what}{which}", self._passes * num_examples)


def progress_bar(
    out: Output, verb: str, total: int | None, *, in_bytes: bool = False, beside_stdout: bool = False
) -> AbstractContextManager[Callable[[int], None] | None]:
    """A bar that counts records, or bytes. The value is called with the number done since the last call, or is None.

    With ``beside_stdout`` records are printed all the while: the bar is drawn where they do not go to the terminal too.
    """
    if beside_stdout and sys.stdout.isatty():
        return nullcontext()
    return _draw(
        out,
        lambda drawn: _CountBar(drawn, verb, total).advance,
        in_bytes=in_bytes,
        redirect_stdout=not beside_stdout,
    )


def build_progress(out: Output) -> AbstractContextManager[BuildBar | None]:
    """The bars of a build, or None."""
    return _draw(out, BuildBar)


def import_progress(out: Output, *, passes: int) -> AbstractContextManager[ImportBar | None]:
    """The bars of an import, or None."""
    return _draw(out, lambda drawn: ImportBar(drawn, passes))


@contextmanager
def _draw(
    out: Output, make: Callable[[Progress], _T], *, in_bytes: bool = False, redirect_stdout: bool = True
) -> Iterator[_T | None]:
    """Draw what ``make`` shows; None where nobody would see it."""
    if out.as_json or not sys.stderr.isatty():
        yield None
        return
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

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *((DownloadColumn(binary_units=True), TransferSpeedColumn()) if in_bytes else (MofNCompleteColumn(),)),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=redirect_stdout,
    ) as drawn:
        yield make(drawn)
