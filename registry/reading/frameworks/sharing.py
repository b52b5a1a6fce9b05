"""Shares a reader among threads and processes, and assigns an epoch to each of their iterations. Also Grain's source.

Loaders call from many threads, and a forked process would share open files with its parent.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.context import get_spawning_popen
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, SupportsIndex

if TYPE_CHECKING:
    from registry.reading.examples import ExampleReader


_SLOTS: Final = 64
"""The number of iterations that may have started in some of their workers and not yet in others."""
_WIDTH: Final = 4


class SharedReader:
    """A reader that each process opens for itself, and that one thread at a time may use."""

    def __init__(self, reader: ExampleReader) -> None:
        self._reader = reader.reopened()
        self._owner = os.getpid()
        self._lock = Lock()

    @contextmanager
    def acquire(self) -> Iterator[ExampleReader]:
        """Lock the reader for this thread until the block ends."""
        if self._owner != os.getpid():  # after a fork, in which another thread may have held the lock
            self._lock, self._reader, self._owner = Lock(), self._reader.reopened(), os.getpid()
        with self._lock:
            yield self._reader

    def __len__(self) -> int:
        return len(self._reader)

    def __repr__(self) -> str:
        return repr(self._reader)

    def __reduce__(self) -> tuple[type[SharedReader], tuple[ExampleReader]]:
        return SharedReader, (self._reader,)


class IterationKey(NamedTuple):
    """Identifies an iteration: the number that its loader drew, and the number of earlier iterations of its workers."""

    drawn: int
    before: int


class EpochCounter:
    """Counts epochs for threads and for processes that were forked, or that received it when they were spawned.

    >>> counter = EpochCounter()
    >>> counter.take(), counter.take()
    (0, 1)
    >>> [counter.take(IterationKey(77, 0), workers=2) for _ in range(4)]
    [2, 2, 3, 3]
    """

    def __init__(self, epoch: int = 0) -> None:
        # From the spawn context: its lock also works in forked processes, while a fork lock fails in spawned ones.
        self._numbers: Any = get_context("spawn").Array("q", 1 + _SLOTS * _WIDTH)
        self._numbers[0] = epoch

    @property
    def next_epoch(self) -> int:
        """The epoch of the next iteration."""
        return int(self._numbers[0])

    def set(self, epoch: int) -> None:
        """Make the next iteration read ``epoch``."""
        self._numbers[0] = epoch

    def take(self, key: IterationKey | None = None, *, workers: int = 1, at: int | None = None) -> int:
        """The epoch of an iteration: the next one, or ``at`` if that is given; counting then continues after it.

        ``key`` identifies the iteration. Each of its ``workers`` calls this once and gets the same epoch.
        """
        with self._numbers.get_lock():
            numbers = self._numbers.get_obj()
            if key is None or workers == 1:
                return self._begin(at)
            free, oldest = None, 1
            for slot in range(1, len(numbers), _WIDTH):
                drawn, before, epoch, missing = numbers[slot : slot + _WIDTH]
                if missing and (drawn, before) == key:
                    numbers[slot + 3] = missing - 1
                    return int(epoch)
                if not missing and free is None:
                    free = slot
                if epoch < numbers[oldest + 2]:
                    oldest = slot
            epoch = self._begin(at)
            # The workers of the oldest iteration may have died, so it never completes
            slot = oldest if free is None else free
            numbers[slot : slot + _WIDTH] = [*key, epoch, workers - 1]
            return epoch

    def _begin(self, at: int | None) -> int:
        numbers = self._numbers.get_obj()
        epoch = int(numbers[0] if at is None else at)
        numbers[0] = epoch + 1
        return epoch

    def __reduce__(self) -> tuple[Any, ...]:
        # If it is pickled to a file, not to a new process, the copy counts independently
        if get_spawning_popen() is None:
            return EpochCounter, (self.next_epoch,)
        return _shared_counter, (self._numbers,)


def _shared_counter(numbers: Any) -> EpochCounter:
    counter = EpochCounter.__new__(EpochCounter)
    counter._numbers = numbers
    return counter


class ReaderSource:
    """The examples of a reader's first epoch by number. It can be pickled, and shared by threads and forked processes.

    Its ``repr`` has version, split and digests of records and order: Grain compares it when it resumes from a
    checkpoint.
    """

    def __init__(self, reader: ExampleReader) -> None:
        self._reader = SharedReader(reader)
        state = reader.state()
        digests = " ".join(f"{name}={state[name]}" for name in ("plan", "order"))
        share = "" if reader.process[1] == 1 else f" process={reader.process}"
        self._name = f"<ReaderSource {state['dataset']} {state['split']} {digests}{share}>"

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        """Example ``index``; errors as ``Reader.__getitem__``."""
        with self._reader.acquire() as reader:
            return reader[operator.index(index)]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """The examples ``indices``, fetched and decoded together."""
        with self._reader.acquire() as reader:
            return reader.examples_at(indices)

    def __repr__(self) -> str:
        return self._name
