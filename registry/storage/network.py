"""Applies timeouts, retries and interrupts to every request to another machine.

    operation  ->  call_with_retries  ->  attempt, attempt, ...  ->  result, or one StorageUnavailableError

An operation is one call of a store: read a range, list a folder, copy an object. Retries of the libraries below are
switched off, so an operation never takes longer than ``Limits.retry_seconds`` and never sends more than
``Limits.tries`` requests of a kind. Exceptions: the parts of one large upload are retried one by one, and bytes that do
not match their ETag are requested twice.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import errno
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from registry.environment import read_number
from registry.errors import StorageError, StorageUnavailableError
from registry.lazy import asyncio
from registry.storage.faults import cannot

T = TypeVar("T")

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 8.0
_GRACE_SECONDS: Final = 0.5
_MOST_AT_ONCE: Final = 64
"""More requests at the same time would only open more connections that share the same bandwidth."""

UNAVAILABLE_HINT: Final = (
    "Try again later. REGISTRY_CONNECT_TIMEOUT, REGISTRY_READ_TIMEOUT, REGISTRY_RETRY_TIMEOUT and REGISTRY_TRIES set "
    "how long to wait."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The timeouts and the number of attempts of one operation.

    Attributes:
        connect_seconds: time to make a connection (REGISTRY_CONNECT_TIMEOUT).
        read_seconds: time to wait for the next bytes of an answer (REGISTRY_READ_TIMEOUT).
        retry_seconds: time for all attempts of one operation, including pauses (REGISTRY_RETRY_TIMEOUT).
        tries: most attempts of one operation (REGISTRY_TRIES).
    """

    connect_seconds: float = 5
    read_seconds: float = 30
    retry_seconds: float = 60
    tries: int = 8

    def brief(self) -> Limits:
        """The limits of a request that has a default answer."""
        return Limits(
            connect_seconds=min(self.connect_seconds, 1),
            read_seconds=min(self.read_seconds, 5),
            retry_seconds=min(self.retry_seconds, 5),
            tries=min(self.tries, 2),
        )

    @classmethod
    def from_environment(cls) -> Limits:
        """Read the limits from environment variables; the defaults apply to variables that are not set.

        Raises:
            UsageError: a variable is not a positive number.
        """
        usual = cls()
        return cls(
            connect_seconds=read_number("REGISTRY_CONNECT_TIMEOUT", usual.connect_seconds),
            read_seconds=read_number("REGISTRY_READ_TIMEOUT", usual.read_seconds),
            retry_seconds=read_number("REGISTRY_RETRY_TIMEOUT", usual.retry_seconds),
            tries=max(1, int(read_number("REGISTRY_TRIES", usual.tries))),
        )


_SETTLE_SECONDS: Final = 0.1

_GIVEN_UP: Final[dict[str, float]] = {}
"""The time at which an operation on a peer last used up its tries, for peers that have not answered since."""


class TransientFault(Exception):  # noqa: N818 (it never leaves this folder)
    """An attempt failed, but another attempt may succeed; the text completes "cannot read X: ...".

    ``was_retried``: the library below has already retried. ``pause``: seconds that the peer asks to wait.
    """

    def __init__(self, reason: str, *, number: int = errno.EIO, was_retried: bool = False, pause: float = 0) -> None:
        super().__init__(reason)
        self.pause = pause
        self.errno = number
        self.was_retried = was_retried


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of a store. Its errors say "cannot <doing> <path>: ..."; ``peer`` is a bucket or a web server."""

    doing: str
    path: str
    peer: str
    limits: Limits


def call_with_retries(operation: Operation, attempt: Callable[[float], T]) -> T:
    """Call ``attempt`` until it returns, with growing random pauses after each TransientFault, and return its result.

    ``attempt`` receives the seconds that are left. Once a peer has used up the tries of one operation, each further
    operation gets one try until the peer answers. Otherwise every clean-up step would wait again for a server that is
    gone.

    Raises:
        StorageUnavailableError: the last attempt that the limits allow failed, too.
    """
    attempts = _Attempts(operation)
    while True:
        try:
            result = attempt(attempts.seconds_left())
        except TransientFault as fault:
            _pause(attempts.pause_after(fault))
        except Exception:
            attempts.end()
            raise
        else:
            attempts.end()
            return result


async def retried(operation: Operation, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do the same as ``call_with_retries`` on the event loop, where up to 64 operations run at the same time."""
    async with _LOOP.slots:
        attempts = _Attempts(operation)
        while True:
            try:
                result = await asyncio.wait_for(attempt(), attempts.seconds_left())
            except (TransientFault, TimeoutError) as error:
                fault = error if isinstance(error, TransientFault) else _too_late(error)
                await asyncio.sleep(attempts.pause_after(fault))
                if _LOOP.interrupted.is_set():
                    raise _interrupted() from None
            except Exception:
                attempts.end()
                raise
            else:
                attempts.end()
                return result


class _Attempts:
    """Counts the attempts of one operation, watches its deadline and computes the pauses between attempts."""

    def __init__(self, operation: Operation) -> None:
        sys.audit("registry.request", operation.peer)  # for tests and tools that count requests
        begun, limits = time.monotonic(), operation.limits
        given_up = _GIVEN_UP.get(operation.peer)
        self._end = begun + limits.retry_seconds
        self._tries = limits.tries if given_up is None or begun > given_up + limits.retry_seconds else 1
        self._number = 0
        self._operation = operation

    def seconds_left(self) -> float:
        """Seconds that the next attempt may take."""
        return max(0.001, self._end - time.monotonic())

    def end(self) -> None:
        """Note that the peer answered; a refusal is an answer, too."""
        _GIVEN_UP.pop(self._operation.peer, None)

    def pause_after(self, fault: TransientFault) -> float:
        """Seconds to wait before the next attempt; raises StorageUnavailableError if this was the last one."""
        self._number += 1
        # Half of the pause is random, so that readers that failed at the same time do not retry at the same time.
        longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** (self._number - 1))
        seconds: float = fault.pause + longest * random.uniform(0.5, 1)  # noqa: S311 (no secret depends on it)
        if self._number == self._tries or time.monotonic() + seconds >= self._end:
            _GIVEN_UP[self._operation.peer] = time.monotonic()
            doing, path = self._operation.doing, self._operation.path
            raise unavailable(fault, doing=doing, path=path, tries=self._number) from fault.__cause__
        return seconds


def unavailable(fault: TransientFault, *, doing: str, path: str, tries: int) -> StorageUnavailableError:
    """Make the error for an operation whose last attempt failed."""
    hint = (f"It was tried {tries} times. " if tries > 1 else "") + UNAVAILABLE_HINT
    kind = StorageUnavailableError
    return cannot(doing, path, str(fault), number=fault.errno, hint=hint, kind=kind, tries=tries)


def run(coroutine: Coroutine[Any, Any, T], *, seconds: float | None) -> T:
    """Run ``coroutine`` on this process's event loop, in a separate thread, and return its result.

    Raises:
        TransientFault: it takes longer than ``seconds``, if that is not None.
    """
    return result_of(begin(coroutine, seconds=seconds))


def begin(coroutine: Coroutine[Any, Any, T], *, seconds: float | None = None) -> concurrent.futures.Future[T]:
    """Start ``coroutine`` on the event loop. ``result_of`` waits for its result, and ``interrupt`` cancels it."""
    loop, is_late = _LOOP.get(), _LOOP.interrupted.is_set()
    if is_late:
        seconds = min(seconds or _GRACE_SECONDS, max(0.001, _LOOP.end_of_grace - time.monotonic()))
    future = asyncio.run_coroutine_threadsafe(_finish(coroutine, seconds), loop)
    _LOOP.watch(future, is_late=is_late)
    return future


async def _finish(coroutine: Coroutine[Any, Any, T], seconds: float | None) -> T:
    """Await ``coroutine`` for at most ``seconds``.

    If a request fails while it is cancelled, nothing retrieves its exception, and asyncio would print a warning. So a
    callback retrieves it.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 (narrows for the type checker: it runs as a task)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.wait_for(coroutine, seconds)


def result_of(future: concurrent.futures.Future[T]) -> T:
    """Wait for a coroutine that ``begin`` started. The caller waits in Python, so Ctrl-C takes effect at once.

    Raises:
        TransientFault: it exceeded its time limit.
    """
    try:
        return future.result()
    except concurrent.futures.CancelledError:
        raise _interrupted() from None
    except TimeoutError as error:
        raise _too_late(error) from error
    except BaseException:
        cancel(future)
        raise


def cancel(future: concurrent.futures.Future[Any]) -> None:
    """Cancel a coroutine that ``begin`` started, unless it has ended."""
    _LOOP.cancel(future)


def _too_late(error: TimeoutError) -> TransientFault:
    fault = TransientFault("the server did not answer in time", number=errno.ETIMEDOUT)
    fault.__cause__ = error
    return fault


def interrupt() -> None:
    """Cancel every request and every pause of this process, in all threads; called at Ctrl-C.

    Requests that start later share half a second and are not retried: enough to clean up if the store answers.
    """
    _LOOP.interrupt()


def is_interrupted() -> bool:
    """Whether ``interrupt`` was called in this process."""
    return _LOOP.interrupted.is_set()


def _pause(seconds: float) -> None:
    if _LOOP.interrupted.wait(seconds):
        raise _interrupted()


def _interrupted() -> StorageError:
    return StorageError("the request was interrupted", hint="Run the same command again.")


class _Loop:
    """The event loop of this process: started at first use, and again in a forked child."""

    def __init__(self) -> None:
        self._start_again()
        if hasattr(os, "register_at_fork"):
            # A forked child does not have the thread, and a lock that another thread held would stay locked.
            os.register_at_fork(after_in_child=self._start_again)

    def _start_again(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._futures: set[concurrent.futures.Future[Any]] = set()
        self.interrupted = threading.Event()
        self.end_of_grace = 0.0
        self._cancelled = self._done = float("-inf")

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop, self.slots = asyncio.new_event_loop(), asyncio.Semaphore(_MOST_AT_ONCE)
                threading.Thread(target=self._loop.run_forever, name="registry-network", daemon=True).start()
            return self._loop

    def watch(self, future: concurrent.futures.Future[Any], *, is_late: bool) -> None:
        """Let ``interrupt`` cancel the future until it is done; ``is_late``: it started after the interrupt."""
        self._futures.add(future)
        future.add_done_callback(self._forget)
        if self.interrupted.is_set() and not is_late:  # the interrupt came in between
            self.cancel(future)

    def _forget(self, future: concurrent.futures.Future[Any]) -> None:
        self._futures.discard(future)
        self._done = time.monotonic()

    def interrupt(self) -> None:
        self.end_of_grace = time.monotonic() + _GRACE_SECONDS
        self.interrupted.set()
        for future in list(self._futures):
            self.cancel(future)

    def cancel(self, future: concurrent.futures.Future[Any]) -> None:
        if future.cancel():
            self._cancelled = time.monotonic()

    def settle(self) -> None:
        """At the end of the process, give requests time to end that were just cancelled or answered.

        They end in threads of the library, which print errors if the interpreter is already gone. A thread that hands
        over its answer then even aborts the process.
        """
        now = time.monotonic()
        if now - self._cancelled < 1:
            time.sleep(_SETTLE_SECONDS)
        elif now - self._done < _SETTLE_SECONDS:
            time.sleep(_SETTLE_SECONDS - (now - self._done))


_LOOP: Final = _Loop()
atexit.register(_LOOP.settle)
