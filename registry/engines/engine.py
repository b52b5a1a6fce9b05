"""The protocol of an engine, and the engine that runs pieces of work in this process.

    pieces of work  --drawn as they are needed-->  engine  --in order-->  (input, result) of each piece

A piece of work is a value: a function, its input, and the bytes that it reads. It can be sent to another process,
placed near its data, and called again after a fault, because calling it twice gives the same result.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from registry.errors import RegistryError

T = TypeVar("T")
R = TypeVar("R")


class FileRange(NamedTuple):
    """Bytes ``start``..``stop`` (stop excluded) of a stored file that a piece of work reads.

    ``location`` is the URL of its folder. ``stop`` is None for the end of the file: its size would take a request.
    """

    location: str
    name: str
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class Piece(Generic[T, R]):
    """One piece of work: ``function(input)``.

    Attributes:
        function: called with the input. It holds values only and gives the same result whenever and wherever it is
            called. Pieces of one run share one function object, which is sent to each worker once.
        input: what the function is called with.
        needs: the bytes that it reads. An engine may place the piece near them; they change nothing else.
    """

    function: Callable[[T], R]
    input: T
    needs: tuple[FileRange, ...] = ()

    def __call__(self) -> R:
        """Do the work here."""
        return self.function(self.input)


class Engine(Protocol):
    """Runs pieces of work. A context manager: leaving it ends all that it started.

    What every engine promises:

    * **Order.** Results come in the order of the pieces, and are the same whatever the engine is.
    * **Back-pressure.** Pieces are drawn while results are taken. At most ``2 * width + 1`` pieces have been drawn
      whose results have not been given. Nothing is drawn before the first result is asked for.
    * **Errors.** An error of a piece is raised in its place, after the results of the pieces before it; the pieces
      behind it are cancelled. An error of drawing a piece comes after the results of all pieces drawn before it.
      Errors of the registry keep their class, text, hint and details. Others keep their class in this process;
      one that has to travel becomes ``failure``, which names it.
    * **Faults.** A worker that dies while it runs a piece is an error of that piece, of the class ``failure``, or the
      engine calls the piece again. A piece whose function, input or result cannot travel is called in this process.
    * **The end.** A run that is closed early cancels its pieces. Leaving the engine, also by Ctrl-C, ends every worker
      at once and waits for threads, which end with the piece they run.

    The engine decides when and where a piece runs, how often it is called, and what of this is remembered.
    """

    @property
    @abstractmethod
    def width(self) -> int:
        """How many pieces run at the same time. 1 is one after the other, in this thread, as they are drawn."""

    @abstractmethod
    def run(
        self, pieces: Iterable[Piece[T, R]], *, doing: str, failure: type[RegistryError]
    ) -> Generator[tuple[T, R], None, None]:
        """The input and the result of each piece, in order.

        Args:
            pieces: the work; it may be endless.
            doing: what a worker did when it failed, for people: "encoded examples".
            failure: the error for a worker that dies, and for an error that cannot travel.
        """

    def close(self) -> None:
        """End all that was started; what it was doing is lost."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ThisProcess(Engine):
    """Runs pieces in this process: one after the other, or in threads where they run outside the interpreter's lock."""

    def __init__(self, *, threads: int = 1) -> None:
        self._width = threads
        self._pool: ThreadPoolExecutor | None = None

    @property
    def width(self) -> int:
        """The number of threads."""
        return self._width

    def run(
        self,
        pieces: Iterable[Piece[T, R]],
        *,
        doing: str,  # noqa: ARG002 (nobody dies here, and errors need not travel)
        failure: type[RegistryError],  # noqa: ARG002
    ) -> Generator[tuple[T, R], None, None]:
        """As the protocol says. With one thread each piece is called when its result is asked for."""
        if self._width == 1:
            for piece in pieces:
                yield piece.input, piece.function(piece.input)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._width, thread_name_prefix="registry")
        pool = self._pool
        yield from in_order(
            lambda piece: submit(pool, piece.function, piece.input), pieces, most=most_drawn(self._width)
        )

    def close(self) -> None:
        """Wait for the pieces that are running; the others are cancelled."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None


def most_drawn(width: int) -> int:
    """How many pieces are drawn before the first of their results is waited for."""
    return 2 * width + 1


def in_order(
    start: Callable[[Piece[T, R]], Future[R]],
    pieces: Iterable[Piece[T, R]],
    *,
    most: int,
    finish: Callable[[Piece[T, R], Future[R]], R] = lambda _, future: future.result(),
) -> Generator[tuple[T, R], None, None]:
    """The input and the result of each piece, in order; at most ``most`` have been drawn and not been given.

    ``start`` starts a piece, and ``finish`` waits for it.
    """
    waiting: deque[tuple[Piece[T, R], Future[R]]] = deque()
    failed: Exception | None = None
    source = iter(pieces)
    try:
        while True:
            try:
                piece = next(source, None)
            except Exception as error:  # noqa: BLE001 (raised below, after the results of what was drawn before it)
                failed, piece = error, None
            if piece is None:
                break
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
    """Each of ``items`` and what ``function`` gives for it, in order, by the threads of a pool that others use, too."""
    return in_order(
        lambda piece: submit(pool, piece.function, piece.input), (Piece(function, item) for item in items), most=most
    )


def submit(pool: Executor, function: Callable[[T], R], item: T) -> Future[R]:
    """The call as a future; it is done here where the pool has no thread to give.

    A pool takes no more calls once the main thread has ended, while other threads go on; and the system may have no
    thread left. What it took before it found that out, it may call, too.
    """
    try:
        return pool.submit(function, item)
    except RuntimeError:
        future: Future[R] = Future()
        try:
            future.set_result(function(item))
        except BaseException as error:  # noqa: BLE001 (raised again where its result is asked for)
            future.set_exception(error)
        return future


@lru_cache(maxsize=1)
def shared_threads(process: int) -> Executor:  # noqa: ARG001 (another process needs threads of its own)
    """The threads of a process, given by its id, for short calls that wait for nothing; as many as it has cores."""
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="registry")
