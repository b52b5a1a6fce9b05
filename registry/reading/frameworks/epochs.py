"""Which epoch does an iteration read that several processes begin, each for itself? A count that they share.

A loader starts its workers anew for each iteration, or keeps them, and its own process never iterates: nobody could
count alone. So all workers of one iteration, which know each other by a number that the loader drew for it, are given
one epoch, and the next iteration the next.
"""

from __future__ import annotations

from multiprocessing import get_context
from multiprocessing.context import get_spawning_popen
from typing import Any, Final, NamedTuple

_SLOTS: Final = 64
"""Iterations that have begun in some of their workers and not yet in others."""

_WIDTH: Final = 4


class Begun(NamedTuple):
    """What an iteration is known by: the number that its loader drew, and how often its workers began one before."""

    drawn: int
    before: int


class EpochCounter:
    """Gives out epochs, to threads and processes that were forked from this one or were sent it when they started.

    >>> counter = EpochCounter()
    >>> counter.take(), counter.take()
    (0, 1)
    >>> [counter.take(Begun(77, 0), workers=2) for _ in range(4)]
    [2, 2, 3, 3]
    """

    def __init__(self, epoch: int = 0) -> None:
        # Of the spawn context, because its lock is good for forked processes, too, and not the other way round.
        self._numbers: Any = get_context("spawn").Array("q", 1 + _SLOTS * _WIDTH)
        self._numbers[0] = epoch

    @property
    def next_epoch(self) -> int:
        """The epoch of the iteration that is begun next."""
        return int(self._numbers[0])

    def set(self, epoch: int) -> None:
        """Let the iteration that is begun next read ``epoch``."""
        self._numbers[0] = epoch

    def take(self, begun: Begun | None = None, *, workers: int = 1, at: int | None = None) -> int:
        """The epoch of an iteration: ``at`` where that is given, and then the next one follows that.

        ``begun`` says which iteration it is, where each of its ``workers`` asks once.
        """
        with self._numbers.get_lock():
            numbers = self._numbers.get_obj()
            if begun is None or workers == 1:
                return self._begin(at)
            free, oldest = None, 1
            for slot in range(1, len(numbers), _WIDTH):
                drawn, before, epoch, missing = numbers[slot : slot + _WIDTH]
                if missing and (drawn, before) == begun:
                    numbers[slot + 3] = missing - 1
                    return int(epoch)
                if not missing and free is None:
                    free = slot
                if epoch < numbers[oldest + 2]:
                    oldest = slot
            epoch = self._begin(at)
            slot = oldest if free is None else free  # an iteration whose workers died is never complete
            numbers[slot : slot + _WIDTH] = [*begun, epoch, workers - 1]
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
