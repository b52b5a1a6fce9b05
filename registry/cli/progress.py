"""Draws progress bars on stderr while a command runs. Nothing is drawn if stderr is a pipe, or for JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeVar

from registry.cli.output import Output, printable

if TYPE_CHECKING:
    import rich.progress

    from registry.model import Progress, ProgressCallback
    from registry.model.progress import Unit

_T = TypeVar("_T")


class _Bar:
    """Shows one bar at a time, for the current work."""

    def __init__(self, drawn: rich.progress.Progress) -> None:
        self._drawn = drawn
        self._task: rich.progress.TaskID | None = None

    def begin(self, description: str, total: int | None, unit: Unit) -> None:
        """Replace the bar by one for the next work."""
        if self._task is not None:
            self._drawn.remove_task(self._task)
        self._task = self._drawn.add_task(printable(description), total=total, unit=unit)

    def show(self, done: int, total: int | None) -> None:
        """Set the number of finished units."""
        if self._task is not None:
            self._drawn.update(self._task, completed=done, total=total)

    def advance(self, count: int) -> None:
        """Add to the number of finished units."""
        if self._task is not None:
            self._drawn.advance(self._task, count)


class _CountBar(_Bar):
    """A bar that is drawn with the first count, so that nothing is drawn if there is no work."""

    def __init__(self, drawn: rich.progress.Progress, description: str, total: int | None, unit: Unit) -> None:
        super().__init__(drawn)
        self._begin = description, total, unit

    def advance(self, count: int) -> None:
        if self._task is None:
            self.begin(*self._begin)
        super().advance(count)


class _StageBar(_Bar):
    """Draws the ``Progress`` of an API call: a bar for each stage, as soon as it is reported."""

    def __init__(self, drawn: rich.progress.Progress) -> None:
        super().__init__(drawn)
        self._stage: tuple[str, str] | None = None

    def __call__(self, progress: Progress) -> None:
        if self._stage != (progress.stage, progress.subject):
            self._stage = progress.stage, progress.subject
            self.begin(f"{progress.stage} {progress.subject}".rstrip(), progress.total, progress.unit)
        self.show(progress.done, progress.total)


def progress_bar(
    out: Output, verb: str, total: int | None, *, in_bytes: bool = False, beside_stdout: bool = False
) -> AbstractContextManager[Callable[[int], None] | None]:
    """A bar that counts records or bytes. Yields a function to call with the number done since its last call, or None.

    ``beside_stdout`` means that records are printed meanwhile: then the bar is drawn only if stdout is not a terminal.
    """
    if beside_stdout and sys.stdout.isatty():
        return nullcontext()
    return _draw(
        out,
        lambda drawn: _CountBar(drawn, verb, total, "bytes" if in_bytes else "records").advance,
        redirect_stdout=not beside_stdout,
    )


def show_progress(out: Output) -> AbstractContextManager[ProgressCallback | None]:
    """Bars for one API call. Yields its ``progress`` argument, or None if nothing would be drawn."""
    return _draw(out, _StageBar)


@contextmanager
def _draw(
    out: Output, make: Callable[[rich.progress.Progress], _T], *, redirect_stdout: bool = True
) -> Iterator[_T | None]:
    """Draw the bar that ``make`` creates; None if nothing would be drawn."""
    if out.as_json or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class CountColumn(ProgressColumn):
        """Show sizes for bytes and numbers for other units, because the stages of one call may have different units."""

        def __init__(self) -> None:
            super().__init__()
            self._in_bytes, self._in_numbers = DownloadColumn(binary_units=True), MofNCompleteColumn()

        def render(self, task: Task) -> Text:
            return (self._in_bytes if task.fields.get("unit") == "bytes" else self._in_numbers).render(task)

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        CountColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=redirect_stdout,
    ) as drawn:
        yield make(drawn)
