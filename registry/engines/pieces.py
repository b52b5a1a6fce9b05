"""``Piece``, a piece of work, and the counts of the pieces of a run, which a watch receives while they run.

    engine  --started, ended in any order, failed, started again-->  Tally  -->  TaskWatch  -->  a progress bar

An engine yields results in order. Without a watch, a long first task would hide that all other tasks have ended. The
watch is called in the thread that takes the results.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from registry.model import ProgressCounter, TaskProgress, TaskUnit

T = TypeVar("T")
R = TypeVar("R")

TELL_SECONDS: Final = 0.25
"""The time between two calls of a watch while a result is awaited, in seconds."""


@dataclass(frozen=True, slots=True)
class Piece(Generic[T, R]):
    """One piece of work: ``function(input)``, which an engine calls here or in another process.

    Attributes:
        function: called with the input. It contains only values, and returns the same result on every call in every
            process. The pieces of a run share one function object, which is sent to each worker once.
        input: the argument of the function.
        num_items: the number of items in the input, from which an engine computes the mean time of an item.
    """

    function: Callable[[T], R]
    input: T
    num_items: int = 1

    def __call__(self) -> R:
        """Call the function in this process."""
        return self.function(self.input)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCounts:
    """The tasks of a run: each is a piece of work that was drawn.

    Attributes:
        num_started: pieces that were drawn and sent to run; they may be waiting.
        num_done: pieces that returned a result, in any order.
        num_failed: pieces that raised an error.
        num_retried: the number of restarts of pieces whose worker or node died.
        num_running: pieces that have not ended, at most as many as run at the same time; the others wait.
        num_cancelling: pieces that were cancelled, but have not ended. No piece then counts as running.
    """

    num_started: int = 0
    num_done: int = 0
    num_failed: int = 0
    num_retried: int = 0
    num_running: int = 0
    num_cancelling: int = 0


def _ignore(_piece: Any, _result: Any) -> None:
    """Ignore a result."""


@dataclass(frozen=True, slots=True)
class TaskWatch(Generic[R]):
    """Watches the tasks of a run.

    Attributes:
        changed: called with the counts whenever they change, and a few times a second while a result is waited for.
        ended: called once with each piece and its result, in the order in which pieces end. The engine then takes
            results before their turn and holds them, so they should be small. If None, an engine of other machines
            notices the end of a piece only at its turn.
        is_shown: whether the counts are displayed. If not, a cancelled run is announced in a line.
        before: the counts of the part of the run that another engine did.
    """

    changed: Callable[[TaskCounts], None]
    ended: Callable[[Piece[Any, R], R], None] | None = None
    is_shown: bool = True
    before: TaskCounts = TaskCounts()


class Tally(Generic[R]):
    """Counts the tasks of one run for its watch; does nothing without one."""

    def __init__(self, watch: TaskWatch[R] | None, width: int) -> None:
        self._watch = watch
        self._width = width
        self._counts = TaskCounts() if watch is None else watch.before
        self._num_cancelling: int | None = None

    @property
    def is_watched(self) -> bool:
        """Whether the counts are displayed."""
        return self._watch is not None and self._watch.is_shown

    @property
    def takes_results(self) -> bool:
        """Whether results are taken before their turn."""
        return self._watch is not None and self._watch.ended is not None

    @property
    def counts(self) -> TaskCounts:
        """The counts so far."""
        counts = self._counts
        if self._num_cancelling is not None:
            return replace(counts, num_cancelling=self._num_cancelling)
        num_open = counts.num_started - counts.num_done - counts.num_failed
        return replace(counts, num_running=min(self._width, num_open))

    def tell(self) -> None:
        """Tell the watch the counts."""
        if self._watch is not None:
            self._watch.changed(self.counts)

    def start(self) -> None:
        """Count a piece that was sent."""
        self._add("num_started")

    def end(self, piece: Piece[Any, R], result: R) -> None:
        """Count a piece that returned its result."""
        if self._watch is not None and self._watch.ended is not None:
            self._watch.ended(piece, result)
        self._add("num_done")

    def fail(self) -> None:
        """Count a piece that raised an error."""
        self._add("num_failed")

    def retry(self) -> None:
        """Count a piece that was started again."""
        self._add("num_retried")

    def cancel(self, num_left: int) -> None:
        """Report the number of pieces of a cancelled run that have not ended to the watch."""
        self._num_cancelling = num_left
        self.tell()

    def take(self, piece: Piece[Any, R], result: Callable[[], R], *, is_counted: Callable[[], bool] | None = None) -> R:
        """Return ``result()``, and count its end, unless ``is_counted`` then returns True."""
        try:
            found = result()
        except Exception:
            if is_counted is None or not is_counted():
                self.fail()
            raise
        if is_counted is None or not is_counted():
            self.end(piece, found)
        return found

    def _add(self, name: str) -> None:
        if self._watch is not None:
            self._counts = replace(self._counts, **{name: getattr(self._counts, name) + 1})
            self.tell()


class WatchedFutures(Generic[R]):
    """The pieces of a run as futures. Counts pieces that end while another piece is awaited."""

    def __init__(self, tally: Tally[R]) -> None:
        self._tally = tally
        self._open: dict[Future[R], Piece[Any, R]] = {}
        self._counted: set[Future[R]] = set()

    def start(self, piece: Piece[Any, R], future: Future[R]) -> Future[R]:
        """Add a piece that was sent. Returns the future."""
        if self._tally.is_watched:
            self._open[future] = piece
            self._tally.start()
        return future

    def take(self, piece: Piece[Any, R], future: Future[R], result: Callable[[], R]) -> R:
        """Return ``result()`` when the future has ended."""
        if not self._tally.is_watched:
            return result()
        while future in self._open:
            for done in wait(self._open, TELL_SECONDS, FIRST_COMPLETED).done:
                self._see(done)
            self._tally.tell()
        found = self._tally.take(piece, result, is_counted=lambda: future in self._counted)
        self._counted.discard(future)
        return found

    def _see(self, future: Future[R]) -> None:
        """Count a future that has ended with a result. An error is counted when it is raised, or replaced by a call."""
        piece = self._open.pop(future)
        if not future.cancelled() and future.exception() is None:
            self._counted.add(future)
            self._tally.end(piece, future.result())


def watch_tasks(
    advance: Callable[[int], None] | None,
    unit: TaskUnit = "tasks",
    *,
    total: int | None = None,
    are_results_small: bool = True,
) -> TaskWatch[Any] | None:
    """Return a watch that reports the tasks of a run next to the units of a stage, or None without a progress callback.

    Several runs may belong to one stage; tasks of the same kind add up. ``advance`` is still called with the units of
    results in their order.

    Args:
        advance: the function that ``count_progress`` returns.
        unit: the noun for a piece of the run.
        total: the number of pieces, or None if it is unknown.
        are_results_small: whether all results may be held in memory, so that the end of a piece is noticed at once.
    """
    if not isinstance(advance, ProgressCounter):
        return None
    counter, before = advance, advance.tasks or TaskProgress(unit=unit, total=0)
    is_same = before.unit == unit
    first = before.done if is_same else 0
    known = None if total is None or (is_same and before.total is None) else total
    if known is not None and is_same:
        known += before.total or 0

    def changed(counts: TaskCounts) -> None:
        tasks = TaskProgress(
            unit=unit,
            done=first + counts.num_done,
            total=known,
            running=counts.num_running,
            failed=before.failed + counts.num_failed,
            retried=before.retried + counts.num_retried,
            cancelling=counts.num_cancelling,
        )
        if tasks != counter.tasks:
            counter(0, tasks=tasks)

    return TaskWatch(changed, _ignore if are_results_small else None)
