"""Calls a source ahead of its consumer, in short-lived threads, and hands its values out in order.

``PrefetchQueue`` makes elements with it, and each slot of a reader reads the next records of its file.

A thread calls the source until enough values are ready, and ends: no thread waits for room, so none has to be stopped,
and a consumer that is dropped leaves nothing behind. The threads are daemons and not those of a ``concurrent.futures``
executor, which the interpreter joins at its end: a read that hangs, of a file on a machine that went away, would keep
the process from ending. A consumer waits on a ``SimpleQueue``, which is one call of C, and not on a ``Future``: a
KeyboardInterrupt inside of ``threading.Condition`` can leave its lock in either state, and values would be lost.
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
from typing import Any, ClassVar, Final, Generic, NoReturn, Self, TypeVar

from registry.errors import UsageError

T = TypeVar("T")

CLOSE_SECONDS: Final = 1.0
"""How long closing waits for calls that are under way."""

_EXIT_SECONDS: Final = 1.0
_NO_THREAD: Final = "new thread"
"""What CPython says where the system has no thread left to give, or the interpreter is ending: "can't start ..."."""

_running: set[threading.Thread] = set()


class ReadAhead(Generic[T]):
    """The values of ``source``, made ahead; any number of threads may take them.

    A consumer that is interrupted loses nothing: what it had taken is given back. An error of the source comes after
    all values before it, and again with each call.

    Args:
        source: gives the next value, or raises: StopIteration where there are no more.
        capacity: how many values are ready at most, with those that are being made.
        num_threads: how many threads call the source. Values that several threads make come as they are ready.
        name: of the threads.
        closed_error: makes the error of whoever takes a value after ``close``.
        on_outcome: called, in any thread, whenever a value is ready or the source has raised, and by ``close``.
    """

    def __init__(
        self,
        source: Callable[[], T],
        *,
        capacity: int,
        num_threads: int = 1,
        name: str,
        closed_error: Callable[[], Exception],
        on_outcome: Callable[[], None] | None = None,
    ) -> None:
        self._source: Callable[[], T] | None = source
        self._capacity = capacity
        self._num_threads = num_threads
        self._name = name
        self._closed_error = closed_error
        self._on_outcome = on_outcome
        self._turn = threading.RLock()  # held by whoever takes values, also while it waits
        self._lock = threading.RLock()  # guards all that follows, and is never held while anybody waits
        self._changed: SimpleQueue[None] = SimpleQueue()  # one entry at most: the consumer looks again
        self._ready: deque[T] = deque()
        self._making: set[object] = set()  # a token for each thread: one whose token was taken away makes nothing
        self.threads: list[threading.Thread] = []  # those that were started last
        self._end: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._closed = False

    def num_ready(self) -> int:
        """How many values can be taken at once."""
        with self._lock:
            return len(self._ready)

    def is_ready(self) -> bool:
        """Whether the next value, or the error in its place, can be taken without waiting."""
        with self._lock:
            return bool(self._ready) or not self._making or self._closed

    def take(self) -> T:
        """The next value. Raises what the source raised, StopIteration too, or the error of a closed one."""
        return self.take_many(1, all_of_them=True)[0]

    def take_many(self, n: int, *, all_of_them: bool) -> list[T]:
        """The next ``n`` values together: other consumers get values before or after them.

        Where fewer are left, they are given, or with ``all_of_them`` left there and the source's error raised.
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
        """Have these values taken once more, before all others."""
        with self._lock:
            self._ready.extendleft(reversed(taken))
            self._wake()

    def close(self) -> None:
        """Call the source no more, let go of what is ready, and have whoever waits told. Waits for no thread."""
        self.abandon()
        if self._lock.acquire(timeout=CLOSE_SECONDS):
            self._ready.clear()
            self._lock.release()
        self._wake()
        if self._on_outcome is not None:
            self._on_outcome()

    def abandon(self) -> None:
        """Call the source no more. Takes no lock: a garbage collection may come here in a thread that holds it."""
        self._closed = True
        self._source = None

    def start_threads(self) -> None:
        """Start threads where half of the room is free."""
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
                except BaseException:  # interrupted, and nobody knows whether the thread runs
                    self._making.discard(token)
                    raise

    def _take_some(self, taken: list[T], n: int, *, all_of_them: bool) -> bool:
        """Move what is ready to ``taken``, so that it has ``n`` at most, or wait; False where no more come."""
        with self._lock:
            self.start_threads()
            if self._ready and not self._closed:
                # One call, in which no interrupt comes: what is neither here nor there would be lost.
                taken.extend(map(deque.popleft, repeat(self._ready, min(n - len(taken), len(self._ready)))))
                self.start_threads()
                return True
            if self._closed:
                raise self._closed_error()
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
        """Make values as long as there is room: a value that is being made has its place already."""
        with self._lock:
            if token not in self._making:
                return
        is_going_on = True
        while is_going_on:
            source = self._source
            outcome = None if source is None else _outcome_of(source)
            with self._lock:
                if outcome is not None:
                    self._keep(*outcome)
                has_room = len(self._ready) + len(self._making) <= self._capacity
                is_going_on = has_room and self._end is None and not self._closed
                if not is_going_on:
                    self._making.discard(token)
            self._wake()  # without the lock, which the consumer takes next
            if self._on_outcome is not None and outcome is not None:
                self._on_outcome()

    def _keep(self, values: list[T], error: BaseException | None) -> None:
        self._ready.extend(values)
        if error is not None and (self._end is None or isinstance(self._end, StopIteration)):
            self._end, self._traceback = error, error.__traceback__


class OfOneProcess(abc.ABC):
    """An iterator of its own, closed at the end of a ``with``, of use only in the process that made it."""

    _refusal: ClassVar[tuple[str, str]]
    """What whoever uses it in another process is told, and the hint: locks may be held for ever there."""

    def __init__(self) -> None:
        self._process = os.getpid()

    @abc.abstractmethod
    def close(self) -> None:
        """Make no more values."""

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


def start(work: Callable[[], object], *, name: str) -> list[threading.Thread]:
    """Do ``work`` in a thread; or here, at once, where the system has no thread to give.

    Whoever is interrupted here (KeyboardInterrupt) does not know whether the work will be done.

    Returns:
        The thread; none where the work is done.
    """
    thread = threading.Thread(target=_run, args=(work,), name=name, daemon=True)
    _running.add(thread)
    try:
        thread.start()
    except RuntimeError as error:
        if _NO_THREAD not in str(error):
            raise _interrupt_in(error) or error from None
        _running.discard(thread)
        work()
        return []
    return [thread]


def join(threads: Iterable[threading.Thread], *, seconds: float = CLOSE_SECONDS) -> None:
    """Wait until all have ended, but no longer than ``seconds``."""
    end = time.monotonic() + seconds
    for thread in threads:
        with suppress(RuntimeError):  # it is this thread, or another thread is about to start it
            thread.join(timeout=max(0.0, end - time.monotonic()))


def _outcome_of(source: Callable[[], T]) -> tuple[list[T], BaseException | None]:
    """What a call gave, or raised. A function of its own: the error's frames are not to hold the ``ReadAhead``."""
    try:
        return [source()], None
    except BaseException as error:  # noqa: BLE001 (raised again where the value would have come)
        return [], error


def _interrupt_in(error: BaseException) -> BaseException | None:
    """The KeyboardInterrupt, or the like, that ``error`` came instead of.

    ``Thread.start`` waits on a ``threading.Condition``; whoever is interrupted there may come out of it without the
    lock, and be told that it cannot be released.
    """
    context = error.__context__
    while context is not None and isinstance(context, Exception):
        context = context.__context__
    return context


def _run(work: Callable[[], Any]) -> None:
    try:
        work()
    finally:
        _running.discard(threading.current_thread())


@atexit.register
def _wait_at_exit() -> None:
    """Let reads that are under way end, if they do so soon: the libraries they are in are about to be taken down."""
    join(list(_running), seconds=_EXIT_SECONDS)
