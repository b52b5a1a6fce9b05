"""Decides which engine runs a piece of work, and how many pieces at the same time.

processes are given            that many, whatever the work is
little to do                   this process, one piece after the other
much, outside of the lock      threads of this process: reading, hashing, waiting for a store
much, inside the lock          worker processes: decoding records, hashing many small ones
nobody knows how much          this process, until the work turns out to be worth workers
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable
from typing import Final

from registry.engines.engine import Engine, Piece, R, T, ThisProcess
from registry.engines.workers import WorkerProcesses
from registry.errors import RegistryError
from registry.model import whole_number

_SMALL_ITEMS: Final = 20_000
_SMALL_BYTES: Final = 16 * 2**20
_MOST_PROCESSES: Final = 16
"""One process draws the pieces and takes the results of all; it cannot feed more."""

_REQUESTS: Final = 8
"""That are sent to a remote store at the same time, however few cores there are: they wait."""

_TRIAL_SECONDS: Final = 1.0
_SLOW_SECONDS: Final = 40e-6
"""A piece that takes longer is worth its way to another process and back."""


def num_cpus() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def choose_engine(
    wanted: int | None = None,
    *,
    num_bytes: int | None,
    num_items: int = 0,
    is_local: bool = True,
    is_unlocked: bool = False,
) -> Engine:
    """The engine for some work.

    Args:
        wanted: how many pieces run at the same time, where a person says so; None decides by the rest.
        num_bytes: how much is read; None where nobody knows before it is done.
        num_items: how many records are decoded.
        is_local: whether the bytes are on this machine.
        is_unlocked: whether the work mostly runs, or waits, outside of the interpreter's lock.

    Raises:
        UsageError: ``wanted`` is no whole number, or below 1.
    """
    if wanted is not None:
        width = whole_number(wanted, "processes", least=1, hint="Leave it out to take as many as there are cores.")
    elif not is_local:
        # Workers would each open connections of their own, and wait for the same network.
        width = _REQUESTS if is_unlocked else 1
    elif num_bytes is not None and num_bytes < _SMALL_BYTES and num_items < _SMALL_ITEMS:
        width = 1
    else:
        width = min(num_cpus(), _MOST_PROCESSES)
    if is_unlocked or width == 1:
        return ThisProcess(threads=width)
    return Growing(width) if wanted is None and num_bytes is None else WorkerProcesses(width)


class Growing(Engine):
    """Runs pieces in this process, and in workers as soon as that pays: for work that nobody knows in advance.

    A small dataset is built at once, without waiting for an interpreter to start. After a second of work the mean
    piece decides: sending one that is quick to another process takes longer than doing it here.
    """

    def __init__(self, processes: int) -> None:
        self._here = ThisProcess()
        self._workers = WorkerProcesses(processes)
        self._uses_workers = False
        self._is_tried = False
        self._seconds = 0.0
        self._num_pieces = 0

    @property
    def width(self) -> int:
        """1 until workers are used."""
        return self._workers.width if self._uses_workers else 1

    def run(
        self, pieces: Iterable[Piece[T, R]], *, doing: str, failure: type[RegistryError]
    ) -> Generator[tuple[T, R], None, None]:
        """As the protocol says."""
        source = iter(pieces)
        while not self._is_tried:
            piece = next(source, None)
            if piece is None:
                return
            started = time.thread_time()  # other programs on a busy machine do not count
            result = piece.function(piece.input)
            self._seconds += time.thread_time() - started
            self._num_pieces += 1
            yield piece.input, result
            if self._seconds >= _TRIAL_SECONDS:
                self._is_tried = True
                self._uses_workers = self._seconds / self._num_pieces >= _SLOW_SECONDS
        engine = self._workers if self._uses_workers else self._here
        yield from engine.run(source, doing=doing, failure=failure)

    def close(self) -> None:
        """End the workers."""
        self._workers.close()
