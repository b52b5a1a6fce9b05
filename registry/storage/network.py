"""Timeouts, retries and interrupts of every request to another machine, decided in one place.

    operation  ->  call_with_retries  ->  attempt, attempt, ...  ->  result, or one StorageUnavailableError

An operation is one question to a store: read a range, list a folder, copy an object. The libraries below are told not
to retry by themselves, so that an operation never takes longer than ``Limits.retry_seconds``, and never sends more
than ``Limits.tries`` requests of a kind. Exception: the parts of one large upload are retried one by one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import os
import random
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from registry.errors import StorageError, StorageUnavailableError, UsageError

T = TypeVar("T")

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 8.0

UNAVAILABLE_HINT: Final = (
    "Try again later. REGISTRY_CONNECT_TIMEOUT, REGISTRY_READ_TIMEOUT, REGISTRY_RETRY_TIMEOUT and REGISTRY_TRIES set "
    "how long to wait."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long one operation waits for another machine, and how often it tries.

    Attributes:
        connect_seconds: for a connection to be made (REGISTRY_CONNECT_TIMEOUT).
        read_seconds: for the next bytes of an answer (REGISTRY_READ_TIMEOUT).
        retry_seconds: for all attempts of one operation together, pauses included (REGISTRY_RETRY_TIMEOUT).
        tries: attempts of one operation at most (REGISTRY_TRIES).
    """

    connect_seconds: float = 5
    read_seconds: float = 30
    retry_seconds: float = 60
    tries: int = 8

    @classmethod
    def from_environment(cls) -> Limits:
        """The defaults, changed by environment variables.

        Raises:
            UsageError: a variable holds something else than a positive number.
        """
        usual = cls()
        return cls(
            connect_seconds=_positive("REGISTRY_CONNECT_TIMEOUT", usual.connect_seconds),
            read_seconds=_positive("REGISTRY_READ_TIMEOUT", usual.read_seconds),
            retry_seconds=_positive("REGISTRY_RETRY_TIMEOUT", usual.retry_seconds),
            tries=max(1, int(_positive("REGISTRY_TRIES", usual.tries))),
        )


class TransientFault(Exception):  # noqa: N818 (it never leaves this folder)
    """An attempt failed for a reason that another attempt may not meet; its text completes "cannot read X: ..."."""

    def __init__(self, reason: str, *, number: int = errno.EIO) -> None:
        super().__init__(reason)
        self.errno = number


def call_with_retries(attempt: Callable[[float], T], *, limits: Limits, doing: str, path: str) -> T:
    """What ``attempt`` returns, called again after each TransientFault, with growing random pauses in between.

    Args:
        attempt: is called with the seconds that are left.
        limits: when to give up.
        doing: completes the message "cannot <doing> <path>: ...".
        path: the same.

    Raises:
        StorageUnavailableError: the last attempt that ``limits`` allow failed, too.
    """
    end = time.monotonic() + limits.retry_seconds
    for number in range(1, limits.tries + 1):
        try:
            return attempt(max(0.001, end - time.monotonic()))
        except TransientFault as fault:
            # Half of the pause is random: a crowd of readers that failed together must not come back together.
            longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** (number - 1))
            seconds = longest * random.uniform(0.5, 1)  # noqa: S311 (no secret hangs on it)
            if number == limits.tries or time.monotonic() + seconds >= end:
                raise unavailable(fault, doing=doing, path=path, tries=number) from fault.__cause__
            _pause(seconds)
    raise AssertionError("unreachable")


def unavailable(fault: TransientFault, *, doing: str, path: str, tries: int) -> StorageUnavailableError:
    """The error for an operation that failed at its last attempt."""
    shown = f"cannot {doing} {path}: {fault}" + (f" ({tries} tries)" if tries > 1 else "")
    error = StorageUnavailableError(
        shown, hint=UNAVAILABLE_HINT, details={"path": path, "errno": fault.errno, "doing": doing, "tries": tries}
    )
    error.errno = fault.errno
    return error


def run(coroutine: Coroutine[Any, Any, T], *, seconds: float | None) -> T:
    """What ``coroutine`` returns; it runs on this process's event loop, in a thread of its own.

    The caller waits in Python, so Ctrl-C is answered at once, and the request is cancelled.

    Raises:
        TransientFault: it takes longer than ``seconds``, if that is not None.
    """
    future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, seconds), _LOOP.get())
    with _LOOP.waiting(future):
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise StorageError("the request was interrupted", hint="Run it again.") from None
        except TimeoutError as error:
            raise TransientFault("the server did not answer in time", number=errno.ETIMEDOUT) from error
        except BaseException:
            future.cancel()
            raise


def interrupt() -> None:
    """Cancel every request and every pause of this process, in all threads, and those that begin after; at Ctrl-C."""
    _LOOP.interrupt()


def _pause(seconds: float) -> None:
    if _LOOP.interrupted.wait(seconds):
        raise StorageError("the request was interrupted", hint="Run it again.")


class _Loop:
    """The event loop of this process: started when first used, and again in a forked child."""

    def __init__(self) -> None:
        self._start_again()
        if hasattr(os, "register_at_fork"):
            # The thread is not there in a child, and a lock that another thread held would never be free.
            os.register_at_fork(after_in_child=self._start_again)

    def _start_again(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._futures: set[concurrent.futures.Future[Any]] = set()
        self.interrupted = threading.Event()

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="registry-network", daemon=True).start()
            return self._loop

    def waiting(self, future: concurrent.futures.Future[Any]) -> _Waiting:
        return _Waiting(self._futures, future, self.interrupted)

    def interrupt(self) -> None:
        self.interrupted.set()
        for future in list(self._futures):
            future.cancel()


class _Waiting:
    """Within the block, ``interrupt`` cancels the future."""

    def __init__(
        self,
        futures: set[concurrent.futures.Future[Any]],
        future: concurrent.futures.Future[Any],
        interrupted: threading.Event,
    ) -> None:
        self._futures, self._future = futures, future
        futures.add(future)
        if interrupted.is_set():
            future.cancel()

    def __enter__(self) -> None:
        """Nothing is left to do."""

    def __exit__(self, *_: object) -> None:
        self._futures.discard(self._future)


_LOOP: Final = _Loop()


def _positive(name: str, default: float) -> float:
    text = os.environ.get(name, "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = 0
    if not 0 < value < 1e9:
        raise UsageError(
            f"{name} is {text!r}: expected a positive number",
            hint=f"Set it to a number, e.g. {name}={default:g}, or unset it.",
            details={"name": name, "value": text},
        )
    return value
