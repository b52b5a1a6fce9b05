"""Calls a source ahead of its consumer, in short-lived threads, and returns its values in order.

``PrefetchQueue`` computes elements with it, and each slot of a reader reads the next records of its file with it.

A thread calls the source until enough values are ready, and then ends. No thread waits for room, so none has to be
stopped, and a consumer that is dropped leaves nothing behind. The threads are daemons instead of the threads of a
``concurrent.futures`` executor, which the interpreter joins at exit: a read that hangs, for example on an unreachable
network file system, would prevent the process from exiting. A consumer waits on a ``SimpleQueue``, which is one call in
C, and not on a ``Future``: a KeyboardInterrupt inside ``threading.Condition`` can leave its lock in either state, and
values would be lost.
"""

from __future__ import annotations

import abc
import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import repeat
from queue import SimpleQueue
from types import TracebackType
from typing import ClassVar, Final, Generic, NoReturn, Self, TypeVar

from registry.errors import UsageError

T = TypeVar("T")

CLOSE_SECONDS: Final = 1.0
"""How long closing waits for calls in progress, in seconds."""

_EXIT_SECONDS: Final = 1.0
_NO_THREAD: Final = "new thread"
"""Part of CPython's message "can't start new thread", if the system has no more threads or the interpreter exits."""


class _Thread(threading.Thread):
    """A thread that computes values ahead."""


class ReadAhead(Generic[T]):
    """The values of ``source``, computed ahead; any number of threads may take them.

    A consumer that is interrupted loses no values: those that it had taken are put back. An error of the source is
    raised after all values before it, and again with every later call.

    Args:
        source: returns the next value; raises StopIteration if there are no more.
        capacity: maximum number of values that are ready or in progress.
        num_threads: number of threads that call the source. With several, values come in the order in which they are
            ready.
        name: the name of the threads.
        of: the noun of the error for taking a value after ``close``.
        changed: gets an entry, unless it has one, whenever a value is ready or the source has raised, and by ``close``.
            A consumer of several objects waits for all of them if they share it.
    """

    def __init__(
        self,
        source: Callable[[], T],
        *,
        capacity: int,
        num_threads: int = 1,
        name: str,
        of: str,
        changed: SimpleQueue[None] | None = None,
    ) -> None:
        self._source: Callable[[], T] | None = source
        self._capacity, self._num_threads = capacity, num_threads
        self._name, self._of = name, of
        self._turn = threading.RLock()  # held by the consumer that takes values, also while it waits
        self._lock = threading.RLock()  # guards all attributes below, and is never held while waiting
        self._changed: SimpleQueue[None] = SimpleQueue() if changed is None else changed
        self._ready: deque[T] = deque()
        self._making: set[object] = set()  # a token for each thread; a thread without its token does nothing
        self.threads: list[threading.Thread] = []  # the threads that may still run
        self._end: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._closed = False

    def num_ready(self) -> int:
        """The number of values that can be taken without waiting."""
        return len(self._ready)

    def is_ready(self) -> bool:
        """Whether the next value, or the error in its place, can be taken without waiting."""
        with self._lock:
            return bool(self._ready) or not self._making or self._closed

    def take(self, n: int = 1, *, all_of_them: bool = True) -> list[T]:
        """The next ``n`` values, without values of other consumers in between.

        If fewer are left, it returns them. With ``all_of_them``, it puts them back and raises the source's error, which
        may be StopIteration. After ``close`` it raises UsageError.
        """
        taken: list[T] = []
        try:
            with self._turn:
                while len(taken) < n and self._take_some(taken, n, all_of_them=all_of_them):
                    pass
            return taken
        except BaseException:
            self.give_back(taken)
            raise

    def give_back(self, taken: list[T]) -> None:
        """Put values back, before all others."""
        with self._lock:
            self._ready.extendleft(reversed(taken))
            self._wake()

    def close(self) -> None:
        """Stop calling the source, drop the ready values, and wake up consumers. Does not wait for threads."""
        self.abandon()
        if self._lock.acquire(timeout=CLOSE_SECONDS):
            self._ready.clear()
            self._lock.release()
        self._wake()

    def abandon(self) -> None:
        """Stop calling the source. Takes no lock, because garbage collection may call it in a thread that holds one."""
        self._closed = True
        self._source = None

    def start_threads(self) -> None:
        """Start threads if at least half of the capacity is free."""
        with self._lock:
            if 2 * len(self._ready) > self._capacity:
                return
            while len(self._making) < min(self._num_threads, self._capacity - len(self._ready)):
                if self._end is not None or self._closed:
                    return
                token = object()
                try:
                    self._making.add(token)
                    self.threads = [thread for thread in self.threads if thread.is_alive()]
                    self.threads += start(partial(self._make, token), name=self._name)
                except BaseException:  # interrupted: the thread may or may not have started
                    self._making.discard(token)
                    raise

    def _take_some(self, taken: list[T], n: int, *, all_of_them: bool) -> bool:
        """Move ready values to ``taken``, up to ``n`` in all, or wait for one; False if no more will come."""
        with self._lock:
            self.start_threads()
            if self._closed:
                raise closed(self._of)
            if self._ready:
                # One C call, which cannot be interrupted: a value removed but not yet appended would be lost.
                taken.extend(map(deque.popleft, repeat(self._ready, min(n - len(taken), len(self._ready)))))
                self.start_threads()
                return True
            if not self._making:
                if taken and not all_of_them:
                    return False
                raise (self._end or StopIteration()).with_traceback(self._traceback)
        self._changed.get()
        return True

    def _wake(self) -> None:
        if self._changed.empty():
            self._changed.put(None)

    def _make(self, token: object) -> None:
        """Compute values while there is room. A value in progress already counts towards the capacity."""
        while token in self._making:
            source = self._source
            values, error = _outcome_of(source) if source is not None else ([], None)
            with self._lock:
                self._ready.extend(values)
                if error is not None and (self._end is None or isinstance(self._end, StopIteration)):
                    self._end, self._traceback = error, error.__traceback__
                has_room = len(self._ready) + len(self._making) <= self._capacity
                if not has_room or self._end is not None or self._closed:
                    self._making.discard(token)
            self._wake()  # outside the lock, which the consumer needs next


class OfOneProcess(abc.ABC):
    """An iterator that a ``with`` statement closes, and that only works in the process that created it."""

    _refusal: ClassVar[tuple[str, str]]
    """The error message and hint for use in another process, where its locks may be held forever."""

    def __init__(self) -> None:
        self._process = os.getpid()

    @abc.abstractmethod
    def close(self) -> None:
        """Stop computing values."""

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            self.__reduce__()

    def __iter__(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise UsageError(self._refusal[0], hint=self._refusal[1])


def closed(of: str) -> UsageError:
    """The error for using a reader or a queue, named ``of``, after ``close``."""
    return UsageError(f"this {of} was closed", hint="Create a new one.")


def start(work: Callable[[], object], *, name: str) -> list[threading.Thread]:
    """Do ``work`` in a thread, or immediately in this thread if the system has no more threads.

    After a KeyboardInterrupt in this function it is unknown whether the work will be done.

    Returns:
        The thread, or an empty list if the work is already done.
    """
    thread = _Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        if _NO_THREAD not in str(error):
            raise _interrupt_in(error) or error from None
        work()
        return []
    return [thread]


def join(threads: Iterable[threading.Thread], *, seconds: float = CLOSE_SECONDS) -> None:
    """Wait until all threads have ended, for at most ``seconds``."""
    end = time.monotonic() + seconds
    for thread in threads:
        with suppress(RuntimeError):  # raised for the current thread, and for a thread that is not started yet
            thread.join(timeout=max(0.0, end - time.monotonic()))


def _outcome_of(source: Callable[[], T]) -> tuple[list[T], BaseException | None]:
    """The value that ``source`` returned, or its error. As a separate function, its frame holds no ``ReadAhead``."""
    try:
        return [source()], None
    except BaseException as error:  # noqa: BLE001 (raised again in place of the value)
        return [], error


def _interrupt_in(error: BaseException) -> BaseException | None:
    """The KeyboardInterrupt, or similar, that ``error`` replaced.

    ``Thread.start`` waits on a ``threading.Condition``. An interrupt there may leave it without the lock, and the
    release of the lock then raises a RuntimeError instead.
    """
    context = error.__context__
    while context is not None and isinstance(context, Exception):
        context = context.__context__
    return context


@atexit.register
def _wait_at_exit() -> None:
    """Wait a moment for reads in progress, because the interpreter is about to unload the libraries that they use."""
    join([thread for thread in threading.enumerate() if isinstance(thread, _Thread)], seconds=_EXIT_SECONDS)
