"""Chooses whether a reader reads from kept columns, and fills them: in memory, or in the cache of this user.

ColumnKeeper.choose, at the beginning of an epoch -> RecordSource.columns
Filling, in turns as long as those of the caller  -> SplitColumns.fill
"""

from __future__ import annotations

import atexit
import math
import time
from collections.abc import Sequence
from threading import Thread
from typing import Final, Literal, TypeAlias

from registry.errors import RegistryError, UsageError, warn
from registry.reading.column_blocks import KeptColumns
from registry.reading.pieces import RecordSource
from registry.reading.readable import ReadableVersion
from registry.reading.split_columns import MOST_FILES, SplitColumns, fill_memory, open_columns
from registry.splits import Plan
from registry.tfrecord import Verify

Keep: TypeAlias = Literal["auto", "memory", "disk"]
"""The options for the place of the decoded columns of a read."""

_SMALL_BYTES: Final = 2**26
"""Slices of at most this size are kept in memory by ``auto``."""

_TURN_SECONDS: Final = 0.5
_MOST_PAUSE_SECONDS: Final = 10.0
_END_SECONDS: Final = 5.0


def check_keep(keep: str | None) -> Keep | None:
    """Return ``keep`` if it is valid; raises UsageError otherwise."""
    if keep not in ("auto", "memory", "disk", None):
        raise UsageError(
            f"unknown keep={keep!r:.40}", hint="Write keep='auto', 'memory' or 'disk', or None to keep nothing."
        )
    return keep  # type: ignore[return-value]  # mypy does not narrow by a tuple


class ColumnKeeper:
    """Lets the source of a reader use kept columns as soon as they are available.

    Attributes:
        mode: the caller's choice.
    """

    def __init__(
        self, mode: Keep | None, readable: ReadableVersion, plan: Plan, source: RecordSource, verify: Verify
    ) -> None:
        self.mode = mode
        self._readable = readable
        self._plan = plan
        self._source = source
        self._verify = verify
        self._num_read = 0
        self._next_choice = 0
        self._filling: Filling | None = None

    @property
    def columns(self) -> KeptColumns | None:
        """The kept columns that the reader reads now."""
        return self._source.columns

    @property
    def is_in_use(self) -> bool:
        """Whether the reader reads from kept columns now."""
        return self._source.columns is not None

    def count(self, num_records: int, seconds: float) -> None:
        """Count records that were read. A small slice is read from memory once all of it was read.

        ``seconds`` is the time that the caller took since then, and that filling may take as well; infinite after an
        epoch. Once the columns are filled, they are read from the next piece on.
        """
        self._num_read += num_records
        if self._filling is not None and self._source.columns is None and self._filling.allow(seconds):
            self.choose()

    def use(self, num_records: int) -> None:
        """Prepare to read records by number."""
        if self.mode is not None and self._source.columns is None and self._num_read >= self._next_choice:
            self._next_choice = max(self._plan.num_examples, 2 * self._num_read)
            self.choose()
        self.count(num_records, math.inf if self._num_read >= self._plan.num_examples else 0.0)

    def choose(self) -> None:
        """Begin an epoch: read from columns if they exist, or fill them."""
        if self.mode is None or self._source.columns is not None:
            return
        if self._filling is not None:
            self._filling.wait()
        if self.mode == "memory" or (self.mode == "auto" and self._was_read and self._is_small()):
            self._fill_memory()
        elif self.mode == "disk" or self._was_read or self._readable.may_have_columns:
            self._open(self._splits())

    def _fill_memory(self) -> None:
        features = self._readable.features
        try:
            self._source.columns = fill_memory(self._readable, self._plan, features, self._verify)
        except RegistryError:  # reading the shards raises the same error at its place
            self._source.columns = None
        if self._source.columns is None:
            self.mode = None

    def _open(self, splits: Sequence[SplitColumns]) -> None:
        if not splits:
            return
        columns = open_columns(splits, self._plan)
        if columns is not None:
            self._source.columns = columns
        elif self._filling is None and (self.mode == "disk" or self._was_read):
            self._filling = Filling(splits)
        if columns is None and self._filling is not None and self._filling.error is not None:
            if self.mode == "disk":
                warn(f"the columns are not kept: {self._filling.error}")
            self.mode = self._filling = None

    @property
    def _was_read(self) -> bool:
        """Whether as many records were read as the plan has, so that it is likely to be read again."""
        return self._num_read >= max(1, self._plan.num_examples)

    def _is_small(self) -> bool:
        num_bytes = 0.0
        for part in self._plan.ranges:
            split = self._readable.facts.split(part.split)
            num_bytes += split.num_bytes * (part.stop - part.start) / max(1, split.num_examples)
        return 0 < num_bytes <= _SMALL_BYTES

    def _splits(self) -> list[SplitColumns]:
        """The splits of the plan; empty if it has too many files."""
        names = dict.fromkeys(part.split for part in self._plan.ranges) if len(self._plan) <= MOST_FILES else ()
        return [SplitColumns(self._readable, name, self._readable.features) for name in names]


class Filling:
    """Fills columns in a thread, in turns as long as the time that the caller has taken between pieces of an epoch.

    A loop that only waits for examples takes almost no time, so its first epoch is as fast as without filling. No lock
    is held between turns. A thread that still ran at the end of the process would be stopped within native code, which
    can abort the process.

    Attributes:
        error: the reason why the columns cannot be kept, or None.
        thread: the thread of this turn, or of the one before; None before the first.
        num_filled: the number of filled records of all splits; a later turn begins again with the first split.
    """

    def __init__(self, splits: Sequence[SplitColumns]) -> None:
        self.error: Exception | None = None
        self.thread: Thread | None = None
        self.num_filled = 0
        self._splits = splits
        try:
            for split in splits:
                split.require_folders()
        except UsageError as error:
            self.error = error
        self._is_over = self.error is not None
        self._seconds = 0.0
        self._least_seconds = _TURN_SECONDS
        self._until = 0.0

    def allow(self, seconds: float) -> bool:
        """Grant the thread more time, and start a turn once it is enough. Returns True once the filling has ended."""
        self._seconds += seconds
        if self.is_running:
            if seconds == math.inf:
                self._until = seconds
            return False
        if not self._is_over and self._seconds >= self._least_seconds:
            # Each turn reads the journals, so turns become longer as the journals grow.
            self._least_seconds += self._seconds / 8
            self._until, self._seconds = time.monotonic() + self._seconds, 0.0
            self.thread = Thread(target=self._run, name="registry-columns", daemon=True)
            atexit.register(self._end)
            self.thread.start()
        return self._is_over

    def wait(self) -> None:
        """Wait a few seconds for a turn without a limit, because two decoding threads are slower than one."""
        if self.thread is not None and self._until == math.inf:
            self.thread.join(_MOST_PAUSE_SECONDS)

    @property
    def is_running(self) -> bool:
        """Whether a turn is in progress."""
        return self.thread is not None and self.thread.is_alive()

    def _run(self) -> None:
        self.num_filled = 0
        try:
            for split in self._splits:
                split.fill(must_stop=self._is_late, advance=self._advance)
            self._is_over = not self._is_late()
        # RuntimeError: no thread can be started while the interpreter exits
        except (RegistryError, OSError, RuntimeError) as error:
            self.error, self._is_over = error, True
        finally:
            atexit.unregister(self._end)

    def _advance(self, count: int) -> None:
        self.num_filled += count

    def _is_late(self) -> bool:
        return time.monotonic() >= self._until

    def _end(self) -> None:
        self._until = 0.0
        if self.thread is not None:
            self.thread.join(_END_SECONDS)
