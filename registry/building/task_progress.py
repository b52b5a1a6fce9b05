"""Reports the progress of a stage whose records are made by tasks, which end in any order.

    engine  --each result, when its task ends-->  StageTasks  -->  Progress: records, bytes, tasks

``writing.watch_frames`` does the same for records that pass through this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Self, TypeVar

from registry.engines import Piece, TaskCounts, TaskWatch
from registry.model import ProgressCallback, TaskProgress, TaskUnit, count_progress

T = TypeVar("T")
R = TypeVar("R")

PROGRESS_SECONDS: Final = 0.05
"""Progress is reported at most this often: drawing a bar takes longer than writing a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a task: how many of its units are done or failed, and the numbers of its records and bytes.

    ``num_bytes`` is None in a stage that reads no bytes of records.
    """

    num_units: int = 1
    num_failed: int = 0
    num_records: int
    num_bytes: int | None = None


class StageTasks(Generic[T, R]):
    """Reports one stage of a split. A context manager that reports the last counts.

    Attributes:
        watch: watches the run of the engine. Without a progress callback, too: an engine that gives results to a watch
            before their turn does not stop behind a slow piece.
    """

    def __init__(
        self,
        progress: ProgressCallback | None,
        stage: str,
        split: str,
        *,
        measure: Callable[[T, R], Outcome],
        unit: TaskUnit,
        num_units: int | None,
        num_examples: int | None = None,
    ) -> None:
        self._advance = count_progress(progress, stage, split, total=num_examples)
        self._measure = measure
        self._unit: TaskUnit = unit
        self._num_units = num_units
        self._counts = TaskCounts()
        self._units_done = self._units_failed = 0
        self._num_records = 0  # since the last report
        self._num_bytes: int | None = None
        self._reported_at = 0.0
        self._reported: TaskProgress | None = None
        self.watch: TaskWatch[R] = TaskWatch(self._change, self._end, is_shown=self._advance is not None)

    def __enter__(self) -> Self:
        self._report()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None or isinstance(error, Exception):  # not for Ctrl-C
            self._report()

    def _end(self, piece: Piece[T, R], result: R) -> None:
        outcome = self._measure(piece.input, result)
        self._units_done += outcome.num_units
        self._units_failed += outcome.num_failed
        self._num_records += outcome.num_records
        if outcome.num_bytes is not None:
            self._num_bytes = (self._num_bytes or 0) + outcome.num_bytes

    def _change(self, counts: TaskCounts) -> None:
        self._counts = counts
        if counts.num_cancelling or time.monotonic() - self._reported_at > PROGRESS_SECONDS:
            self._report()

    def _report(self) -> None:
        if self._advance is None:
            return
        tasks = TaskProgress(
            unit=self._unit,
            done=self._units_done,
            total=self._num_units,
            running=self._counts.num_running,
            failed=self._units_failed + self._counts.num_failed,
            retried=self._counts.num_retried,
            cancelling=self._counts.num_cancelling,
        )
        if tasks == self._reported and not self._num_records:
            return
        self._advance(self._num_records, num_bytes=self._num_bytes, tasks=tasks)
        self._num_records, self._num_bytes = 0, None
        self._reported, self._reported_at = tasks, time.monotonic()
