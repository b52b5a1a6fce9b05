"""Chooses the engine for some work, and the number of pieces that run at the same time.

the caller gives a number      that number, for any work
little work                    this process, one piece after the other
much, releases the lock        threads of this process: reading, hashing, waiting for a store
much, holds the lock           worker processes: decoding records, hashing many small ones
an unknown amount              this process, until workers prove worthwhile
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable
from typing import Final

from registry.engines.engine import Engine, Piece, R, T, ThisProcess, closed_engine
from registry.engines.workers import WorkerProcesses
from registry.errors import RegistryError
from registry.model import whole_number

_SMALL_ITEMS: Final = 20_000
_SMALL_BYTES: Final = 16 * 2**20
_MOST_PROCESSES: Final = 16
"""One process draws all pieces and takes all results; it cannot keep more workers busy."""

_REQUESTS: Final = 8
"""Simultaneous requests to a remote store, for any number of cores: requests mostly wait."""

_TRIAL_SECONDS: Final = 1.0
_SLOW_SECONDS: Final = 40e-6
"""If an item takes longer, sending it to another process and back pays off."""


def num_cpus() -> int:
    """Return the number of cores that this process may use."""
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
    """Return the engine for some work.

    Args:
        wanted: the number of pieces that run at the same time, if the user set it. None: decide by the other arguments.
        num_bytes: the number of bytes that are read; None if it is unknown.
        num_items: the number of records that are decoded.
        is_local: whether the bytes are on this machine.
        is_unlocked: whether the work mostly runs, or waits, without holding the interpreter's lock.

    Raises:
        UsageError: ``wanted`` is not a whole number, or is below 1.

    >>> choose_engine(num_bytes=1000).width, choose_engine(3, num_bytes=1000).width
    (1, 3)
    """
    if wanted is not None:
        width = whole_number(wanted, "processes", least=1, hint="Leave it out to use one for each core.")
    elif not is_local:
        # Every worker would open its own connections, and wait for the same network.
        width = _REQUESTS if is_unlocked else 1
    elif num_bytes is not None and num_bytes < _SMALL_BYTES and num_items < _SMALL_ITEMS:
        width = 1
    else:
        width = min(num_cpus(), _MOST_PROCESSES)
    if is_unlocked or width == 1:
        return ThisProcess(threads=width)
    return Growing(width) if wanted is None and num_bytes is None else WorkerProcesses(width)


class Growing(Engine):
    """Runs pieces in this process, and in workers as soon as that is faster: for an unknown amount of work.

    A small dataset is built without waiting for an interpreter to start. After one second of work, the mean time of
    an item decides: sending a quick one to another process takes longer than running it here.
    """

    def __init__(self, processes: int) -> None:
        self._here = ThisProcess()
        self._workers = WorkerProcesses(processes)
        self._uses_workers = False
        self._is_tried = False
        self._is_closed = False
        self._seconds = 0.0
        self._num_items = 0

    @property
    def width(self) -> int:
        """1 until workers are used."""
        return self._workers.width if self._uses_workers else 1

    def run(
        self, pieces: Iterable[Piece[T, R]], *, doing: str, failure: type[RegistryError]
    ) -> Generator[tuple[T, R], None, None]:
        """See ``Engine.run``."""
        if self._is_closed:
            raise closed_engine()
        source = iter(pieces)
        while not self._is_tried:
            piece = next(source, None)
            if piece is None:
                return
            started = time.thread_time()  # excludes the time of other programs
            result = piece.function(piece.input)
            self._seconds += time.thread_time() - started
            self._num_items += piece.num_items
            yield piece.input, result
            if self._seconds >= _TRIAL_SECONDS:
                self._is_tried = True
                self._uses_workers = self._seconds / self._num_items >= _SLOW_SECONDS
        engine = self._workers if self._uses_workers else self._here
        yield from engine.run(source, doing=doing, failure=failure)

    def close(self) -> None:
        """End the workers."""
        self._is_closed = True
        self._workers.close()
