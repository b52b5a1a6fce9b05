"""Chooses the engine for some work, and the number of pieces that run at the same time.

the caller gives a number      that number, for any work
little work                    this process, one piece after the other
much, releases the lock        threads of this process: reading, hashing, waiting for a store
much, holds the lock           worker processes: decoding records, hashing many small ones
an unknown amount              this process, until workers prove worthwhile

In a block of ``use_engine``, all but little work runs with the engine of the block, if its pieces can be sent.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Final

from registry.engines.engine import Engine, Piece, R, T, ThisProcess, closed_engine
from registry.engines.watching import Tally, TaskWatch
from registry.engines.workers import WorkerProcesses
from registry.errors import RegistryError, UsageError, suggest
from registry.masking import mask
from registry.model import whole_number

_log = logging.getLogger(__name__)

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


ENGINES: Final = ("local", "ray")
"""The names of engines that ``use_engine`` knows."""

_chosen: ContextVar[Engine | None] = ContextVar("chosen engine", default=None)


@contextmanager
def use_engine(engine: str | Engine | None, *, address: str | None = None) -> Iterator[Engine | None]:
    """Run all work in the block with another engine: builds, imports, verification, fingerprints and pins.

    Small work, and work that depends on files or the memory of this process, is done on this machine as always. A
    number of processes is the number of pieces that run on the cluster at the same time. The block connects once, and
    ends the connection. It applies to this thread and to the threads that work in it starts.

    >>> import registry
    >>> with registry.use_engine("local") as engine:
    ...     print(engine)
    None

    Args:
        engine: ``"ray"``, a cluster of Ray; ``"local"`` or None, this machine; or an engine, which stays open.
        address: of the cluster, ``host:port``. None: ``RAY_ADDRESS``, else a cluster on this machine, else a new one.

    Yields:
        The engine; None for this machine.

    Raises:
        UsageError: the engine is unknown, an address was given without ``"ray"``, or there is no cluster.
        MissingExtraError: Ray is not installed (extra ``ray``).
    """
    if isinstance(engine, str) and engine not in ENGINES:
        raise UsageError(
            f"there is no engine {engine!r}", hint=suggest(engine, ENGINES), details={"engines": list(ENGINES)}
        )
    if address is not None and engine != "ray":
        raise UsageError(
            "an address belongs to the engine ray",
            hint="Use use_engine('ray', address=...) in Python, --engine ray on the command line.",
        )
    with ExitStack() as stack:
        used = None if isinstance(engine, str) else engine
        if engine == "ray":
            from registry.engines.ray_tasks import RayTasks

            ray_tasks = stack.enter_context(RayTasks(address))
            _log.info("working with %s", ray_tasks.describe())
            used = ray_tasks
        token = _chosen.set(used)
        stack.callback(_chosen.reset, token)
        yield used


def has_engine_of_block() -> bool:
    """Whether a block of ``use_engine`` applies, so that one piece of work after the other uses all of that engine."""
    return _chosen.get() is not None


def choose_engine(
    wanted: int | None = None,
    *,
    num_bytes: int | None,
    num_items: int = 0,
    is_local: bool = True,
    is_unlocked: bool = False,
    reads: Sequence[str] | None = None,
) -> Engine:
    """Return the engine for some work: one of this machine, or the one of ``use_engine``.

    Args:
        wanted: the number of pieces that run at the same time, if the user set it. None: decide by the other arguments.
        num_bytes: the number of bytes that are read; None if it is unknown.
        num_items: the number of records that are decoded.
        is_local: whether the bytes are on this machine.
        is_unlocked: whether the work mostly runs, or waits, without holding the interpreter's lock.
        reads: the URLs of the folders that pieces read, if they depend on nothing else of this machine. None: they
            depend on files or memory of this process, so that only this machine can run them.

    Raises:
        UsageError: ``wanted`` is not a whole number, or is below 1.

    >>> choose_engine(num_bytes=1000).width, choose_engine(3, num_bytes=1000).width
    (1, 3)
    """
    is_little = num_bytes is not None and num_bytes < _SMALL_BYTES and num_items < _SMALL_ITEMS
    if wanted is not None:
        wanted = whole_number(wanted, "processes", least=1, hint="Leave it out to use one for each core.")
    chosen = _chosen.get()
    if chosen is not None and reads is not None and wanted != 1 and (wanted is not None or not is_little):
        lent = _lend(chosen, wanted, reads)
        if lent is not None:
            return Growing(lent) if wanted is None and num_bytes is None else lent
    if wanted is not None:
        width = wanted
    elif not is_local:
        # Every worker would open its own connections, and wait for the same network.
        width = _REQUESTS if is_unlocked else 1
    elif is_little:
        width = 1
    else:
        width = min(num_cpus(), _MOST_PROCESSES)
    if is_unlocked or width == 1:
        return ThisProcess(threads=width)
    workers = WorkerProcesses(width)
    return Growing(workers) if wanted is None and num_bytes is None else workers


def _lend(engine: Engine, wanted: int | None, reads: Sequence[str]) -> Engine | None:
    """The engine for one block of work on ``engine``, which stays open; None if it cannot read what is needed."""
    from registry.engines.ray_tasks import RayTasks

    if not isinstance(engine, RayTasks):
        return Lent(engine)
    for location in reads:
        if not engine.can_read(location):
            _log.warning("working on this machine, because the nodes of the cluster cannot read %s", mask(location))
            return None
    return engine.with_width(wanted)


class Lent(Engine):
    """Runs pieces with an engine that stays open when this one is closed; its runs end."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._runs: list[Generator[Any, None, None]] = []
        self._is_closed = False

    @property
    def width(self) -> int:
        """That of the engine."""
        return self._engine.width

    @property
    def shares_files(self) -> bool:
        """Whether the engine does."""
        return self._engine.shares_files

    def run(
        self,
        pieces: Iterable[Piece[T, R]],
        *,
        doing: str,
        failure: type[RegistryError],
        watch: TaskWatch[R] | None = None,
    ) -> Generator[tuple[T, R], None, None]:
        """See ``Engine.run``."""
        if self._is_closed:
            raise closed_engine()
        started = self._engine.run(pieces, doing=doing, failure=failure, watch=watch)
        self._runs.append(started)
        try:
            yield from started
        finally:
            self._runs.remove(started)

    def close(self) -> None:
        """Close the runs."""
        self._is_closed = True
        for run in list(self._runs):
            run.close()


class Growing(Engine):
    """Runs pieces in this process, and in ``workers`` as soon as that is faster: for an unknown amount of work.

    ``workers`` is closed with this engine.

    A small dataset is built without waiting for an interpreter to start. After one second of work, the mean time of
    an item decides: sending a quick one to another process takes longer than running it here.
    """

    def __init__(self, workers: Engine) -> None:
        self._here = ThisProcess()
        self._workers = workers
        self._uses_workers = False
        self._is_tried = False
        self._is_closed = False
        self._seconds = 0.0
        self._num_items = 0

    @property
    def width(self) -> int:
        """1 until workers are used."""
        return self._workers.width if self._uses_workers else 1

    @property
    def shares_files(self) -> bool:
        """Whether the workers do."""
        return self._workers.shares_files

    def run(
        self,
        pieces: Iterable[Piece[T, R]],
        *,
        doing: str,
        failure: type[RegistryError],
        watch: TaskWatch[R] | None = None,
    ) -> Generator[tuple[T, R], None, None]:
        """See ``Engine.run``."""
        if self._is_closed:
            raise closed_engine()
        source, tally = iter(pieces), Tally(watch, 1)
        while not self._is_tried:
            piece = next(source, None)
            if piece is None:
                return
            started = time.thread_time()  # excludes the time of other programs
            tally.start()
            result = tally.take(piece, piece)
            self._seconds += time.thread_time() - started
            self._num_items += piece.num_items
            yield piece.input, result
            if self._seconds >= _TRIAL_SECONDS:
                self._is_tried = True
                self._uses_workers = self._seconds / self._num_items >= _SLOW_SECONDS
        engine = self._workers if self._uses_workers else self._here
        rest = None if watch is None else watch.after(tally.counts)
        yield from engine.run(source, doing=doing, failure=failure, watch=rest)

    def close(self) -> None:
        """End the workers."""
        self._is_closed = True
        self._workers.close()
