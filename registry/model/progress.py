"""The progress of a long call: the argument of a ``progress`` callback, and the counter that calls it.

The Python API and the command line share ``Progress``. Inner layers only report counts, through the counter that
``count_progress`` returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Unit: TypeAlias = Literal["records", "bytes", "rows", "seconds"]
TaskUnit: TypeAlias = Literal["inputs", "shards", "files", "tasks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """The tasks into which a stage is divided, so that threads, processes or the nodes of a cluster share it.

    Tasks end in any order. If the engine can observe it, their records count as done when the task ends.

    >>> print(TaskProgress(unit="inputs", done=37, total=120, running=8, retried=1))
    37 of 120 inputs, 8 running, 1 retried

    Attributes:
        unit: the unit of ``done`` and ``total``: ``inputs`` of ``Pieces``, ``shards``, ``files``, or ``tasks`` for
            mixed work. A task may use several inputs.
        done: the number of units done, in any order.
        total: the number of all units, or None if unknown, such as for a generator of inputs.
        running: the number of tasks that are running.
        failed: the number of tasks that raised an error. The stage may continue, to find all failures.
        retried: how often a task was restarted because its worker or node died.
        cancelling: the number of tasks of a cluster that were cancelled, by Ctrl-C or after an error, but have not
            ended.
    """

    unit: TaskUnit = "tasks"
    done: int = 0
    total: int | None = None
    running: int = 0
    failed: int = 0
    retried: int = 0
    cancelling: int = 0

    def __str__(self) -> str:
        parts = [f"{self.done:,} {'' if self.total is None else f'of {self.total:,} '}{self.unit}"]
        parts += [
            f"{count:,} {name}"
            for name, count in (
                ("running", self.running),
                ("failed", self.failed),
                ("retried", self.retried),
                ("being cancelled", self.cancelling),
            )
            if count
        ]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a long call. Every long call of the API takes ``progress``, a function of one ``Progress``.

    A call has one or more stages, one after the other. ``done`` starts at 0 in each stage and never decreases. The
    function is called in the thread that made the call or, if the call uses threads, by one of them at a time.

    >>> print(Progress(stage="verifying", subject="digits:1.0.0", done=1200, total=1797))
    verifying digits:1.0.0: 1,200 of 1,797 records
    >>> tasks = TaskProgress(unit="inputs", done=30, total=120, running=8)
    >>> one = Progress(stage="encoding", subject="train", done=1200, num_bytes=960_000, tasks=tasks)
    >>> print(one, one.fraction)
    encoding train: 1,200 records, 960,000 bytes, 30 of 120 inputs, 8 running 0.25

    Attributes:
        stage: the current activity, e.g. ``encoding``, ``writing``, ``verifying``, ``hashing``.
        subject: the object of the activity: a version, a split or a file, or ``""``.
        done: number of units done in this stage so far.
        total: number of units in this stage, or None if it is not known yet.
        unit: the unit: ``records``, ``bytes``, ``rows`` of the catalog, or ``seconds`` of waiting.
        num_bytes: bytes of the records done so far, or None if they are not counted.
        tasks: the tasks of the stage, or None if it is not divided into tasks.
    """

    stage: str
    subject: str = ""
    done: int
    total: int | None = None
    unit: Unit = "records"
    num_bytes: int | None = None
    tasks: TaskProgress | None = None

    @property
    def fraction(self) -> float | None:
        """The fraction of the stage that is done, from 0 to 1, by units or else by tasks. None if it is unknown."""
        if self.total is not None:
            return min(1.0, self.done / self.total) if self.total else 1.0
        if self.tasks is not None and self.tasks.total is not None:
            return min(1.0, self.tasks.done / self.tasks.total) if self.tasks.total else 1.0
        return None

    def __str__(self) -> str:
        subject = f"{self.stage} {self.subject}".rstrip()
        parts = [f"{self.done:,} {'' if self.total is None else f'of {self.total:,} '}{self.unit}"]
        if self.num_bytes is not None:
            parts.append(f"{self.num_bytes:,} bytes")
        if self.tasks is not None:
            parts.append(str(self.tasks))
        return f"{subject}: {', '.join(parts)}"


ProgressCallback: TypeAlias = Callable[[Progress], None]
Advance: TypeAlias = Callable[[int], None]
"""Called with the number of units done since the last call."""


class ProgressCounter:
    """Counts the units of one stage, and calls a ``progress`` callback with their sum. An ``Advance``.

    Attributes:
        tasks: the last report about the tasks of the stage.
    """

    def __init__(self, progress: ProgressCallback, stage: str, subject: str, total: int | None, unit: Unit) -> None:
        self._progress = progress
        self._stage = stage
        self._subject = subject
        self._total = total
        self._unit = unit
        self._done = 0
        self._num_bytes: int | None = None
        self.tasks: TaskProgress | None = None

    def __call__(self, count: int, *, num_bytes: int | None = None, tasks: TaskProgress | None = None) -> None:
        """Add ``count`` units and ``num_bytes`` to the sums, and replace the counts of tasks."""
        self._done += count
        if num_bytes is not None:
            self._num_bytes = (self._num_bytes or 0) + num_bytes
        if tasks is not None:
            self.tasks = tasks
        self._progress(
            Progress(
                stage=self._stage,
                subject=self._subject,
                done=self._done,
                total=self._total,
                unit=self._unit,
                num_bytes=self._num_bytes,
                tasks=self.tasks,
            )
        )


def count_progress(
    progress: ProgressCallback | None,
    stage: str,
    subject: str = "",
    *,
    total: int | None = None,
    unit: Unit = "records",
    announce: bool = False,
) -> ProgressCounter | None:
    """A counter that inner layers call with counts, and that calls ``progress`` with their sum; None for None.

    ``announce`` calls ``progress`` once before the first count, with 0 done.

    >>> advance = count_progress(print, "hashing", "train", total=10, unit="bytes")
    >>> advance(4), advance(6)
    hashing train: 4 of 10 bytes
    hashing train: 10 of 10 bytes
    (None, None)
    """
    if progress is None:
        return None
    counter = ProgressCounter(progress, stage, subject, total, unit)
    if announce:
        counter(0)
    return counter
