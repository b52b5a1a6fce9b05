"""Defines the protocol of an engine, and the engine that runs pieces of work in this process.

    pieces of work  --drawn as they are needed-->  engine  --in order-->  (input, result) of each piece

A piece of work is a value: a function and its input. Calling it twice gives the same result, so it can be sent to
another process, or called again after a fault.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from functools import lru_cache
from typing import Final, Protocol, Self, TypeVar

from registry.engines.pieces import Piece, R, T, Tally, TaskWatch, WatchedFutures
from registry.errors import RegistryError, UsageError

_WAITING_BYTES: Final = 128 * 2**20
"""Memory for the inputs of all waiting pieces, in bytes; a single input may be larger."""


class Cancellable(Protocol):
    """The result of a piece that was started."""

    def cancel(self) -> object:
        """Give up the piece. It may still run to its end."""


S = TypeVar("S", bound=Cancellable)


class Engine(Protocol):
    """Runs pieces of work. A context manager that ends everything it started.

    Every engine guarantees:

    * **Order.** Results come in the order of the pieces, and are the same for every engine.
    * **Back-pressure.** Pieces are drawn while results are taken. Of the drawn pieces, at most ``2 * width + 1`` have
    results that were not yielded yet, and fewer if an engine limits their bytes. Nothing is drawn before the first
    result is requested. If a watch takes results before their turn, a cluster does not count pieces that have ended, so
    that one slow piece does not stop the others: the limit is then 16 times as high.
    * **Errors.** An error of a piece is raised in its place, after the results of the pieces before it; later pieces
      are cancelled. An error of drawing a piece is raised after the results of all pieces drawn before it. Errors of
      the registry keep their class, text, hint and details. Other errors keep their class if the piece ran in this
      process; errors from another process become ``failure``, whose message names their class.
    * **Faults.** If a worker dies while it runs a piece, that piece raises ``failure``, or the engine calls the piece
      again. The next run gets a new worker. A piece whose function, input or result cannot be pickled is called in
      this process.
    * **The end.** Closing a run early cancels its pieces. Leaving the engine, also by Ctrl-C, ends every worker at once
      and waits for threads, which end with their current piece. A closed engine refuses to run.

    The engine decides when and where a piece runs, and how often it is called.

    >>> from registry.errors import BuildError
    >>> with ThisProcess() as engine:
    ...     list(engine.run([Piece(len, "ab"), Piece(len, "abc")], doing="measured text", failure=BuildError))
    [('ab', 2), ('abc', 3)]
    """

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of pieces that run at the same time. 1: one after the other, each before the next one is drawn."""

    @property
    def shares_files(self) -> bool:
        """Whether pieces run on this machine, and may open files of this process below ``/proc``."""
        return True

    @property
    def memory_of_piece(self) -> int | None:
        """The bytes of memory that one piece may use; None if nobody set it."""
        return None

    @property
    def bytes_of_input(self) -> int:
        """The size of an input up to which all waiting inputs fit into memory. Some inputs may be larger."""
        return _WAITING_BYTES // most_drawn(self.width)

    def can_read(self, location: str) -> bool:  # noqa: ARG002 (this machine reads what this process can)
        """Whether pieces can read the folder at this URL. Otherwise this process does the work."""
        return True

    def with_width(self, processes: int | None) -> Engine | None:  # noqa: ARG002
        """Return another engine on the same machines, for one block of work, or None to use this engine.

        Args:
            processes: the number of pieces that run at the same time; if None, the engine decides.
        """
        return None

    def describe(self) -> str:
        """The engine in a line for people."""
        return f"{self.width} piece{'s' * (self.width > 1)} at a time on this machine"

    @abstractmethod
    def run(
        self,
        pieces: Iterable[Piece[T, R]],
        *,
        doing: str,
        failure: type[RegistryError],
        watch: TaskWatch[R] | None = None,
    ) -> Generator[tuple[T, R], None, None]:
        """Yield the input and the result of each piece, in order.

        Args:
            pieces: the work; it may be endless.
            doing: what the pieces do, for error messages, in the past tense: "encoded examples".
            failure: the class of the error if a worker dies, or if code outside the registry raises an error in another
                process.
            watch: receives the numbers of pieces that were started, ended, failed and started again, whenever they
                change.

        Raises:
            UsageError: the engine is closed.
        """

    def close(self) -> None:
        """End everything that was started. Unfinished work is lost."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ThisProcess(Engine):
    """Runs pieces in this process: one after the other, or in threads if they release the interpreter's lock."""

    def __init__(self, *, threads: int = 1) -> None:
        self._width = threads
        self._pool: ThreadPoolExecutor | None = None
        self._is_closed = False

    @property
    def width(self) -> int:
        """The number of threads."""
        return self._width

    def run(
        self,
        pieces: Iterable[Piece[T, R]],
        *,
        doing: str,  # noqa: ARG002 (there is no worker that could die)
        failure: type[RegistryError],  # noqa: ARG002
        watch: TaskWatch[R] | None = None,
    ) -> Generator[tuple[T, R], None, None]:
        """See ``Engine.run``. With one thread, each piece is called when its result is requested."""
        if self._is_closed:
            raise closed_engine()
        tally = Tally(watch, self._width)
        if self._width == 1:
            for piece in pieces:
                tally.start()
                yield piece.input, tally.take(piece, piece)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._width, thread_name_prefix="registry")
        pool, watched = self._pool, WatchedFutures(tally)

        def start(piece: Piece[T, R]) -> Future[R]:
            # The context of this block, such as the chosen engine, also applies to its threads
            context = copy_context()
            return watched.start(piece, submit(pool, lambda item: context.run(piece.function, item), piece.input))

        def finish(piece: Piece[T, R], future: Future[R]) -> R:
            return watched.take(piece, future, future.result)

        yield from in_order(start, pieces, most=most_drawn(self._width), finish=finish)

    def close(self) -> None:
        """Wait for the pieces that are running, and cancel the others."""
        self._is_closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None


def closed_engine() -> UsageError:
    """Make the error for a run of a closed engine."""
    return UsageError("this engine is closed", hint="Run pieces inside its with block, or open another engine.")


def most_drawn(width: int) -> int:
    """Return the number of pieces that are drawn before waiting for the first result."""
    return 2 * width + 1


def in_order(
    start: Callable[[Piece[T, R]], S],
    pieces: Iterable[Piece[T, R]],
    *,
    most: int,
    finish: Callable[[Piece[T, R], S], R],
    fits: Callable[[Piece[T, R]], bool] | None = None,
) -> Generator[tuple[T, R], None, None]:
    """Yield the input and the result of each piece, in order. At most ``most`` pieces are started, but not yielded yet.

    ``start`` starts a piece, and ``finish`` waits for its result. A piece that does not fit is started as soon as it
    fits, or no other piece is left.
    """
    waiting: deque[tuple[Piece[T, R], S]] = deque()
    failed: Exception | None = None
    source = iter(pieces)
    try:
        while True:
            try:
                piece = next(source, None)
            except Exception as error:  # noqa: BLE001 (raised below, after the results of the pieces before it)
                failed, piece = error, None
            if piece is None:
                break
            while fits is not None and waiting and not fits(piece):
                first = waiting.popleft()
                yield first[0].input, finish(*first)
            waiting.append((piece, start(piece)))
            if len(waiting) == most:
                first = waiting.popleft()
                yield first[0].input, finish(*first)
        while waiting:
            first = waiting.popleft()
            yield first[0].input, finish(*first)
        if failed is not None:
            raise failed
    finally:
        for _, future in waiting:
            future.cancel()


def call_ahead(
    pool: Executor, function: Callable[[T], R], items: Iterable[T], *, most: int
) -> Generator[tuple[T, R], None, None]:
    """Yield each of ``items`` and the result of ``function`` for it, in order, using the threads of a shared pool."""

    def start(piece: Piece[T, R]) -> Future[R]:
        return submit(pool, piece.function, piece.input)

    pieces = (Piece(function, item) for item in items)
    return in_order(start, pieces, most=most, finish=lambda _, future: future.result())


def call_in_thread(
    function: Callable[[T], R], items: Iterable[T], *, most: int, is_used: bool = True
) -> Generator[tuple[T, R], None, None]:
    """Yield each of ``items``, and the result of ``function`` for it in a thread, which ends with the iterator.

    The caller can therefore draw the next items while a call reads, writes or hashes, which releases the interpreter's
    lock. At most ``most`` items are drawn, but not yielded yet. With ``is_used=False``, this thread makes each call,
    because a small amount of work takes less time than starting a thread.
    """
    if not is_used:
        yield from ((item, function(item)) for item in items)
        return
    with (
        ThreadPoolExecutor(1, thread_name_prefix="registry") as thread,
        closing(call_ahead(thread, function, items, most=most)) as results,
    ):
        yield from results


def submit(pool: Executor, function: Callable[[T], R], item: T) -> Future[R]:
    """Return the call as a future. This thread makes the call if the pool cannot start it.

    A pool refuses calls after the main thread has ended, although other threads continue, and if the system has no
    thread left. In the latter case the pool may still run the call, so that it runs twice.
    """
    try:
        return pool.submit(function, item)
    except RuntimeError:
        future: Future[R] = Future()
        try:
            future.set_result(function(item))
        except BaseException as error:  # noqa: BLE001 (raised again by future.result())
            future.set_exception(error)
        return future


@lru_cache(maxsize=1)
def shared_threads(process: int) -> Executor:  # noqa: ARG001 (another process needs threads of its own)
    """Return the shared threads of the process with this id: one per core, for short calls that do not wait."""
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="registry")
