"""One reader for several threads and for forked processes, and which epoch each of them reads; Grain reads it too.

A fork would share the place in an open file with its parent, and a loader asks from many threads.
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
    from registry.reading.reader import Reader


_SLOTS: Final = 64
"""Iterations that have begun in some of their workers and not yet in others."""
_WIDTH: Final = 4


class SharedReader:
    """A reader with nothing open, opened anew in each process; one thread at a time has it."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader.reopened()
        self._owner = os.getpid()
        self._lock = Lock()

    @contextmanager
    def acquire(self) -> Iterator[Reader]:
        """The reader, which is this thread's until the block ends."""
        if self._owner != os.getpid():  # a fork: the lock may have been taken at that moment
            self._lock, self._reader, self._owner = Lock(), self._reader.reopened(), os.getpid()
        with self._lock:
            yield self._reader

    def __len__(self) -> int:
        return len(self._reader)

    def __repr__(self) -> str:
        return repr(self._reader)

    def __reduce__(self) -> tuple[type[SharedReader], tuple[Reader]]:
        return SharedReader, (self._reader,)


class IterationKey(NamedTuple):
    """What an iteration is known by: the number that its loader drew, and how often its workers began one before."""

    drawn: int
    before: int


class EpochCounter:
    """Gives out epochs, to threads and processes that were forked from this one or were sent it when they started.

    >>> counter = EpochCounter()
    >>> counter.take(), counter.take()
    (0, 1)
    >>> [counter.take(IterationKey(77, 0), workers=2) for _ in range(4)]
    [2, 2, 3, 3]
    """

    def __init__(self, epoch: int = 0) -> None:
        # Of the spawn context, because its lock is good for forked processes, too, and not the other way round.
        self._numbers: Any = get_context("spawn").Array("q", 1 + _SLOTS * _WIDTH)
        self._numbers[0] = epoch

    @property
    def next_epoch(self) -> int:
        """The epoch of the next iteration."""
        return int(self._numbers[0])

    def set(self, epoch: int) -> None:
        """Let the next iteration read ``epoch``."""
        self._numbers[0] = epoch

    def take(self, key: IterationKey | None = None, *, workers: int = 1, at: int | None = None) -> int:
        """The epoch of an iteration: ``at`` where that is given, and then the next one follows that.

        ``key`` identifies the iteration, of which each of the ``workers`` asks once.
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
            slot = oldest if free is None else free  # an iteration whose workers died is never complete
            numbers[slot : slot + _WIDTH] = [*key, epoch, workers - 1]
            return epoch

    def _begin(self, at: int | None) -> int:
        numbers = self._numbers.get_obj()
        epoch = int(numbers[0] if at is None else at)
        numbers[0] = epoch + 1
        return epoch

    def __reduce__(self) -> tuple[Any, ...]:
        if get_spawning_popen() is None:  # a copy in a file, which shares nothing
            return EpochCounter, (self.next_epoch,)
        return _shared_counter, (self._numbers,)


def _shared_counter(numbers: Any) -> EpochCounter:
    counter = EpochCounter.__new__(EpochCounter)
    counter._numbers = numbers
    return counter


class ReaderSource:
    """The examples of a reader's first epoch by number. Picklable; for several threads, and for forked processes.

    Its ``repr`` names the version, the split, the records and the order by their digests: Grain compares it when it
    goes on from a checkpoint.
    """

    def __init__(self, reader: Reader) -> None:
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
