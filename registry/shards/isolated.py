"""Calls a function in a process of its own, for a library that ends its process on some files.

A worker process is started when it is first needed, and used again by every later call of this process. Where a call
ends it, hangs, or takes too much memory, the caller is told, and the next call gets another worker.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import TimeoutError as WaitedTooLongError
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from registry.engines import ForeignError, ItemFailedError, NotSendableError, WorkerPool, num_cpus
from registry.errors import RegistryError, StorageError

_MOST_SECONDS: Final = 600
"""Of one call, which reads some megabytes."""
_MOST_MEMORY: Final = 8 * 2**30
"""Of address space that a worker may have."""


class WorkerEndedError(Exception):
    """A call that ended its worker, or met an error that is not one of the registry's; ``args`` says how."""


def call_isolated(function: Callable[[Any], Any], request: Any, *, path: str) -> Any:
    """What ``function`` gives for ``request`` in a worker process.

    Args:
        function: of a module, so that the worker can import it.
        request: a value that pickles.
        path: of the file that it reads, for errors.

    Raises:
        WorkerEndedError: the worker ended, or the function failed.
        StorageError: the worker was killed, as a system that is out of memory does, did not answer for ten minutes, or
            could not be started.
        RegistryError: the function raised it.
    """
    return _workers().call(function, request, path)


class _EndedError(RegistryError):
    """What ``WorkerPool`` raises where its worker died; ``details`` has the exit code."""


class _Workers:
    """The workers of this process: as many as calls ran at the same time, one for each core at most."""

    def __init__(self) -> None:
        self._turns = threading.BoundedSemaphore(num_cpus())
        self._idle: dict[Callable[[Any], Any], list[WorkerPool]] = {}
        atexit.register(self.close)

    def call(self, function: Callable[[Any], Any], request: Any, path: str) -> Any:
        with self._turns:
            try:
                worker = self._take(function)
            except NotSendableError:  # this program has no interpreter to start: it is embedded in another one
                return function(request)
            answered = False
            try:
                (answer,) = worker.submit([request]).result(timeout=_MOST_SECONDS)
                answered = True
            except ItemFailedError as failed:
                answered = True
                if isinstance(failed.error, ForeignError):
                    kind, text = failed.error.args
                    is_ours = kind == WorkerEndedError.__name__
                    raise WorkerEndedError(text if is_ours else f"{kind}: {text}") from failed
                raise failed.error from failed
            except _EndedError as error:
                raise _ended(error, path) from error
            except WaitedTooLongError as error:
                raise StorageError(
                    f"cannot read {path}: the process that reads it did not answer for {_MOST_SECONDS} seconds",
                    hint="Check the disk, and the file with: registry verify",
                    details={"path": path, "errno": None, "doing": "read"},
                ) from error
            finally:
                if answered:
                    self._idle.setdefault(function, []).append(worker)
                else:
                    worker.close()
            return answer

    def close(self) -> None:
        """End the workers that are idle."""
        for workers in self._idle.values():
            while workers:
                workers.pop().close()

    def _take(self, function: Callable[[Any], Any]) -> WorkerPool:
        try:
            return self._idle.setdefault(function, []).pop()
        except IndexError:
            return WorkerPool(_Limited(function), processes=1, doing="read a file", failure=_EndedError)


def _ended(error: _EndedError, path: str) -> Exception:
    code = error.details.get("exit_code")
    if code is None or code == -signal.SIGKILL:
        reason = error.message if code is None else "the process that reads it was killed"
        return StorageError(
            f"cannot read {path}: {reason}",
            hint="The system is perhaps out of memory. Close other programs and try again.",
            details={"path": path, "errno": None, "doing": "read"},
        )
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return WorkerEndedError(f"reading it ended the process that read it, with {how}")


_OF_PROCESS: Final[dict[int, _Workers]] = {}
_LOCK = threading.Lock()


def _workers() -> _Workers:
    """The workers of this process; one that was forked starts its own, and leaves its parent's alone."""
    found = _OF_PROCESS.get(os.getpid())
    if found is not None:
        return found
    with _LOCK:
        return _OF_PROCESS.setdefault(os.getpid(), _Workers())


def _renew_lock() -> None:
    global _LOCK  # noqa: PLW0603 - a thread that is not in the fork may have held it
    _LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


@dataclass(frozen=True, slots=True)
class _Limited:
    """``function`` in a worker that may have no more address space than any sound file needs."""

    function: Callable[[Any], Any]

    def __call__(self, request: Any) -> Any:
        _limit_memory()
        return self.function(request)


@cache
def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = _MOST_MEMORY if hard == resource.RLIM_INFINITY else min(_MOST_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
