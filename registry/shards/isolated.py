"""Calls functions that read files in a worker process, because some files end the process that reads them.

A worker is started when it is first needed, and later calls reuse it. If a call crashes it, hangs, or uses too much
memory, the caller gets an error, and the next call gets another worker.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import TimeoutError as WaitedTooLongError
from functools import cache, partial
from typing import Any, Final

from registry.engines import ForeignError, NotSendableError, Piece, WorkerDiedError, WorkerProcesses, num_cpus
from registry.errors import RegistryError
from registry.storage.faults import cannot

_MOST_SECONDS: Final = 600
"""Time limit of one call, which reads some megabytes."""
_MOST_MEMORY: Final = 8 * 2**30
"""Limit of the address space of a worker."""


class WorkerEndedError(Exception):
    """A call crashed its worker, or raised an error that is not a RegistryError, as the text states."""


def call_isolated(function: Callable[[Any], Any], request: Any, *, path: str, seconds: float | None = None) -> Any:
    """Call ``function`` with ``request`` in a worker process, and return its result.

    Args:
        function: a function of a module, so that the worker can import it.
        request: its argument, which must be picklable.
        path: the path of the file that it reads, for errors.
        seconds: how long it may take; None is ten minutes.

    Raises:
        WorkerEndedError: the worker crashed, or the function raised an error that is not a RegistryError.
        StorageError: the worker was killed (as a system without free memory does), did not answer in time, or could
            not be started.
        RegistryError: the function raised it.
    """
    return _workers().call(function, request, path, _MOST_SECONDS if seconds is None else seconds)


class _Workers:
    """The workers of this process: one for each concurrent call, at most one for each core."""

    def __init__(self) -> None:
        self._turns = threading.BoundedSemaphore(num_cpus())
        self._idle: list[WorkerProcesses] = []
        atexit.register(self.close)

    def call(self, function: Callable[[Any], Any], request: Any, path: str, seconds: float) -> Any:
        with self._turns:
            try:
                worker = self._idle.pop()
            except IndexError:
                worker = WorkerProcesses(1)
            answered = False
            try:
                answer = worker.submit(Piece(_limited(function), request)).result(timeout=seconds)
                answered = True
            except NotSendableError:  # Python is embedded in another program, so no worker can be started
                return function(request)
            except ForeignError as error:
                kind, text = error.args
                # After an error of memory, threads of a library may still run the failed call. They would end the
                # process in the next call, whose sound file would be blamed: an ArrayRecord did so in 2 of 60 runs.
                answered = kind != MemoryError.__name__ and "bad_alloc" not in text
                raise WorkerEndedError(text if kind == WorkerEndedError.__name__ else f"{kind}: {text}") from error
            except RegistryError:
                answered = True
                raise
            except WorkerDiedError as error:
                raise _ended(error, path) from error
            except WaitedTooLongError as error:
                reason = f"the process that reads it did not answer for {seconds:g} seconds"
                hint = "Check the disk, and the file with: registry verify"
                raise cannot("read", path, reason, hint=hint) from error
            finally:
                if answered:
                    self._idle.append(worker)
                else:
                    worker.close()
            return answer

    def close(self) -> None:
        """End the workers that are idle."""
        while self._idle:
            self._idle.pop().close()


def _ended(error: WorkerDiedError, path: str) -> Exception:
    code = error.details["exit_code"]
    if code is None or code == -signal.SIGKILL:
        reason = error.message if code is None else "the process that reads it was killed"
        return cannot("read", path, reason, hint="The system may be out of memory. Close other programs and try again.")
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return WorkerEndedError(f"reading it ended the process that read it, with {how}")


_OF_PROCESS: Final[dict[int, _Workers]] = {}


def _workers() -> _Workers:
    """The workers of this process; a forked child starts its own instead of using those of its parent."""
    # With setdefault, all threads use the first pool that is set. A fork could copy a lock while it is held.
    return _OF_PROCESS.get(os.getpid()) or _OF_PROCESS.setdefault(os.getpid(), _Workers())


def _call_limited(function: Callable[[Any], Any], request: Any) -> Any:
    """Call the function in a worker with a limited address space, which is enough for any undamaged file."""
    _limit_memory()
    return function(request)


@cache
def _limited(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One object for each function, so that a worker receives each function once."""
    return partial(_call_limited, function)


@cache
def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = _MOST_MEMORY if hard == resource.RLIM_INFINITY else min(_MOST_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
