"""Chooses the engine for some work, and the number of pieces that run at the same time.

the caller gives a number      that number, for any work
little work                    this process, one piece after the other
much, releases the lock        threads of this process: reading, hashing, waiting for a store
much, holds the lock           worker processes: decoding records, hashing many small ones
an unknown amount              this process, until workers prove worthwhile

In a block of ``use_engine``, the engine of the block runs all pieces that it can run, except for small amounts of work.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from inspect import signature
from typing import Any, Final

from registry.argument_types import typed_arguments
from registry.engines.announcing import LITTLE, NEEDS_THIS_MACHINE, ONE_PROCESS, chosen_engine, current_work
from registry.engines.engine import Engine, ThisProcess, closed_engine
from registry.engines.pieces import Piece, R, T, Tally, TaskWatch
from registry.engines.workers import WorkerProcesses
from registry.errors import RegistryError, UsageError, spell, suggest
from registry.masking import mask
from registry.model import whole_number
from registry.plugins import ENGINES, find_plugin, list_plugins, load_plugin

_SMALL_ITEMS: Final = 20_000
_SMALL_BYTES: Final = 16 * 2**20
_MOST_PROCESSES: Final = 16
"""A single process draws all pieces and takes all results, so it cannot keep more workers busy."""

_REQUESTS: Final = 8
"""Simultaneous requests to a remote store. Requests mostly wait, so the number of cores does not matter."""

_TRIAL_SECONDS: Final = 1.0
_SLOW_SECONDS: Final = 40e-6
"""Sending an item to another process and back pays off only if it takes longer than this."""

_WAITING_TRIAL_SECONDS: Final = 3.0
_WAITING_SECONDS: Final = 1e-3
"""An item that takes longer, while the processor has little to do, is waiting for a download or another program."""


def num_cpus() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_SETTINGS: Final = {
    "address": "an address",
    "runtime_env": "a runtime environment",
    "task_memory": "the memory of a task",
    "object_store_memory": "the memory of an object store",
}


@typed_arguments
@contextmanager
def use_engine(
    engine: str | Engine | None,
    *,
    address: str | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    task_memory: int | None = None,
    object_store_memory: int | None = None,
) -> Iterator[Engine | None]:
    """Run all work in the block with another engine: builds, imports, verification, fingerprints and pins.

    Small amounts of work still run on this machine, except ``Pieces`` of a builder. So does work that needs files or
    the memory of this process. ``processes=N`` then means N pieces at the same time on the cluster. The block connects
    once, and ends the connection. It applies to this thread, and to the threads that the work in the block starts.

    >>> import registry
    >>> with registry.use_engine("local") as engine:
    ...     print(engine)
    None

    Args:
        engine: ``"ray"``, a cluster of Ray, or another engine that an installed package offers under the entry point
            ``registry.engines``; ``"local"`` or None, this machine; or an engine object, which stays open.
        address: of the cluster, ``host:port``. None: ``RAY_ADDRESS``, else a cluster on this machine, else a new one.
        runtime_env: what Ray sends to the workers, e.g. ``{"py_modules": ["./my_package"]}`` for the code of a builder.
            Ray logs and displays it, so it must not contain passwords. See "Runtime environments" in Ray's
            documentation.
        task_memory: the memory that a task may use, in bytes, at least 256 MiB. Ray then starts only as many tasks on a
            node as its memory allows, and each task of a build sorts in a quarter of the memory that the interpreter
            leaves free. None: Ray starts a task for each CPU, and each sorts in 64 MiB.
        object_store_memory: the maximum number of bytes of inputs, functions and results that a run keeps in Ray's
            object store, so that large inputs do not fill it. At least one piece is always sent. A new cluster gets a
            store of this size, at least 75 MiB. None: only the number of pieces is limited.

    Yields:
        The engine; None for this machine.

    Raises:
        UsageError: the engine is unknown, cannot be loaded, or lacks a setting; a setting is too small; no node has
            ``task_memory``; or there is no cluster.
        MissingExtraError: Ray is not installed (extra ``ray``).
    """
    values = (address, runtime_env, task_memory, object_store_memory)
    settings = {name: value for name, value in zip(_SETTINGS, values, strict=True) if value is not None}
    open_engine = _find_engine(engine) if isinstance(engine, str) and engine != "local" else None
    accepted = () if open_engine is None else signature(open_engine).parameters
    for name in filter(lambda setting: setting not in accepted, settings):
        raise UsageError(
            f"{_SETTINGS[name]} cannot be set for {'this engine' if engine is None else f'the engine {engine}'}",
            hint=f"Use {spell('engine', 'ray')}.",
        )
    with ExitStack() as stack:
        used = None if isinstance(engine, str) else engine
        if open_engine is not None:
            used = stack.enter_context(open_engine(**settings))
        token = chosen_engine.set(used)
        stack.callback(chosen_engine.reset, token)
        yield used


def has_engine_of_block() -> bool:
    """Whether a block of ``use_engine`` applies.

    If so, do one part of the work at a time, because each uses the whole engine.
    """
    return chosen_engine.get() is not None


def choose_engine(
    wanted: int | None = None,
    *,
    num_bytes: int | None,
    num_items: int = 0,
    is_local: bool = True,
    is_unlocked: bool = False,
    is_divided: bool = False,
    reads: Sequence[str] | None = None,
) -> Engine:
    """Return the engine for some work: one of this machine, or the one of ``use_engine``.

    Args:
        wanted: the number of pieces that run at the same time, if the user set it. If None, the other arguments decide.
        num_bytes: the number of bytes that are read; None if it is unknown.
        num_items: the number of records that are decoded.
        is_local: whether the bytes are on this machine.
        is_unlocked: whether the work mostly runs, or waits, without holding the interpreter's lock.
        is_divided: whether the author has divided the work into pieces. A cluster then runs all of them, although the
            amount is unknown, because each may be large and read data that only the cluster can access.
        reads: the URLs of the folders that pieces read, if they depend on nothing else on this machine. None: they
            depend on files or memory of this process, so only this machine can run them.

    Raises:
        UsageError: ``wanted`` is not a whole number, or is below 1.

    >>> choose_engine(num_bytes=1000).width, choose_engine(3, num_bytes=1000).width
    (1, 3)
    """
    is_little = num_bytes is not None and num_bytes < _SMALL_BYTES and num_items < _SMALL_ITEMS
    if wanted is not None:
        wanted = whole_number(wanted, "processes", least=1, hint="Leave it out to use one process per core.")
    chosen = chosen_engine.get()
    if chosen is not None:
        work = current_work()
        if wanted == 1:
            work.stays(ONE_PROCESS)
        elif wanted is None and is_little:
            work.stays(LITTLE)
        elif reads is None:
            work.stays(NEEDS_THIS_MACHINE)
        elif (lent := _lend(chosen, wanted, reads)) is not None:
            if wanted is not None or num_bytes is not None or (is_divided and not lent.shares_files):
                work.runs_on(lent)
                return lent
            work.stays(LITTLE)  # until the amount turns out to be large
            return Growing(lent, on_use=lambda: work.runs_on(lent))
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


def _find_engine(name: str) -> Callable[..., Engine]:
    """Return the function that opens the engine ``name`` of an installed package."""
    point = find_plugin(ENGINES, name)
    if point is None:
        names = ["local", *(point.name for point in list_plugins(ENGINES))]
        raise UsageError(f"unknown engine {name!r}", hint=suggest(name, names), details={"engines": names})
    result: Callable[..., Engine] = load_plugin(point, Callable, f"the engine {name!r}")
    return result


def _lend(engine: Engine, wanted: int | None, reads: Sequence[str]) -> Engine | None:
    """Return ``engine`` for one block of work, which leaves it open, or None if it cannot read the data."""
    for location in reads:
        if not engine.can_read(location):
            current_work().warn(
                f"working on this machine, because the nodes of the cluster cannot read {mask(location)}"
            )
            return None
    return engine.with_width(wanted) or Lent(engine)


class _Wrapped(Engine):
    """Runs pieces with another engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_closed = False

    @property
    def shares_files(self) -> bool:
        """The value of the other engine."""
        return self._engine.shares_files

    @property
    def memory_of_piece(self) -> int | None:
        """That of the other engine."""
        return self._engine.memory_of_piece

    @property
    def bytes_of_input(self) -> int:
        """That of the other engine."""
        return self._engine.bytes_of_input


class Lent(_Wrapped):
    """Runs pieces with another engine. Closing this engine ends its runs, but leaves the other engine open."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._runs: list[Generator[Any, None, None]] = []

    @property
    def width(self) -> int:
        """That of the engine."""
        return self._engine.width

    def describe(self) -> str:
        """Describe the engine in a line for messages."""
        return self._engine.describe()

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


class Growing(_Wrapped):
    """Runs pieces in this process, and in ``workers`` as soon as that is faster: for an unknown amount of work.

    ``workers`` is closed with this engine. ``on_use`` is called before they are used.

    A small dataset is therefore built without waiting for an interpreter to start. After each second of work, or three
    seconds in which items mostly waited, the mean time per item decides: sending a quick item to another process takes
    longer than running it here.
    """

    def __init__(self, workers: Engine, *, on_use: Callable[[], None] | None = None) -> None:
        super().__init__(workers)
        self._on_use = on_use
        self._uses_workers = False
        self._seconds = 0.0  # processor time, which excludes other programs
        self._waited_seconds = 0.0
        self._num_items = 0

    @property
    def width(self) -> int:
        """1 until workers are used."""
        return self._engine.width if self._uses_workers else 1

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
        while not self._uses_workers:
            piece = next(source, None)
            if piece is None:
                return
            started = time.thread_time(), time.monotonic()
            tally.start()
            result = tally.take(piece, piece)
            self._seconds += time.thread_time() - started[0]
            self._waited_seconds += time.monotonic() - started[1]
            self._num_items += piece.num_items
            yield piece.input, result
            is_over = self._seconds >= _TRIAL_SECONDS or self._waited_seconds >= _WAITING_TRIAL_SECONDS
            if is_over and self._num_items:  # it is 0 if another run has just decided
                self._decide()
        rest = None if watch is None else replace(watch, before=tally.counts)
        yield from self._engine.run(source, doing=doing, failure=failure, watch=rest)

    def _decide(self) -> None:
        """Use the workers if the last items were slow; otherwise decide again after the next items."""
        self._uses_workers = (
            self._seconds / self._num_items >= _SLOW_SECONDS
            or self._waited_seconds / self._num_items >= _WAITING_SECONDS
        )
        self._seconds, self._waited_seconds, self._num_items = 0.0, 0.0, 0
        if self._uses_workers and self._on_use is not None:
            self._on_use()

    def close(self) -> None:
        """End the workers."""
        self._is_closed = True
        self._engine.close()
