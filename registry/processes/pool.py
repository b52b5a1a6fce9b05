"""How is a function called by several processes at once? Worker processes, started and ended by whoever needs them.

Each worker is a fresh interpreter that runs ``registry.processes.worker``, never a fork (a fork of a program with
threads can hang), and not a process of ``multiprocessing``: those import the caller's main script again, which repeats
the whole work where a script has no ``if __name__ == "__main__"``, and fails where the code came through a pipe.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, Final, cast

from registry.errors import RegistryError
from registry.processes.worker import ItemFailedError, UnreadableMessageError, receive, send

# sys.path travels first: `-P` keeps the current folder out, and the parent's path may have been changed by its program.
_BOOTSTRAP: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from registry.processes.worker import main; main()"
)


class NotSendableError(Exception):
    """Items or a function that cannot travel to another process; the caller does the work itself."""


class WorkerPool:
    """Worker processes that call ``function`` for each item of a chunk. A context manager.

    Leaving it ends every worker at once, whatever it is doing. ``failure`` is the error that a worker's death becomes,
    and ``doing`` what it says of its work: "while it encoded examples".

    Raises:
        NotSendableError: the function cannot be pickled, or there is no interpreter to start.
    """

    def __init__(
        self, function: Callable[[Any], Any], *, processes: int, doing: str, failure: type[RegistryError]
    ) -> None:
        if not sys.executable:
            raise NotSendableError("this program has no Python interpreter of its own to start")
        message = _pickled(function)
        self.processes = processes
        self._workers: list[_Worker] = []
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="registry-worker")
        try:
            for _ in range(processes):
                self._workers.append(_Worker(doing=doing, failure=failure))
            for worker in self._workers:
                worker.send(message)
                self._idle.put(worker)
        except BaseException:
            self.close()
            raise

    def submit(self, items: Sequence[Any]) -> Future[list[Any]]:
        """What the function gives for each of ``items``, in order, as soon as a worker has called it.

        The future raises ItemFailedError for an item on which it fails, NotSendableError for a chunk that cannot
        travel, and ``failure`` where the worker died.
        """
        return self._threads.submit(self._call, items)

    def close(self) -> None:
        """End all workers and wait for them; what they were doing is lost."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.kill()
        self._threads.shutdown(wait=True)  # a thread that was reading or writing found the end of its pipe
        for worker in self._workers:
            worker.close_pipes()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, items: Sequence[Any]) -> list[Any]:
        message = _pickled(items)
        worker = self._idle.get()
        try:
            return worker.call(message)
        finally:
            self._idle.put(worker)


class _Worker:
    """One worker process and the two pipes to it."""

    def __init__(self, *, doing: str, failure: type[RegistryError]) -> None:
        self._doing = doing
        self._failure = failure
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own code
                [sys.executable, "-P", "-c", _BOOTSTRAP, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Ctrl-C in a terminal goes to the whole group: the starter answers it and ends its workers, silently.
                process_group=0 if os.name == "posix" else None,
            )
        except OSError as error:
            raise failure(
                f"cannot start a worker process: {error.strerror or error}",
                hint="The system allows no further process, or has no memory for one: ask for fewer, or for one.",
            ) from error
        self._stdin = cast("BinaryIO", self._process.stdin)  # both were asked for above
        self._stdout = cast("BinaryIO", self._process.stdout)
        self._ready = False
        self._refusal: NotSendableError | None = None

    def send(self, message: bytes) -> None:
        try:
            send(self._stdin, message)
        except OSError as error:
            raise self._died() from error

    def call(self, message: bytes) -> list[Any]:
        if not self._ready:  # the answer to the function: interpreters start side by side, not one after the other
            try:
                self._receive()
            except NotSendableError as error:
                self._refusal = error
            self._ready = True
        if self._refusal is not None:
            raise self._refusal
        self.send(message)
        results: list[Any] = self._receive()
        return results

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close_pipes(self) -> None:
        self._stdout.close()
        try:
            self._stdin.close()
        except OSError:  # what is left in the buffer has nowhere to go
            return

    def _receive(self) -> Any:
        try:
            answer = pickle.loads(receive(self._stdout))  # noqa: S301 - from the process started above
        except (EOFError, OSError) as error:
            raise self._died() from error
        if isinstance(answer, UnreadableMessageError):
            raise NotSendableError(str(answer))
        if isinstance(answer, ItemFailedError):
            raise answer
        return answer

    def _died(self) -> RegistryError:
        code = self._process.wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return self._failure(
            f"a worker process {how} while it {self._doing}",
            hint="Signal 9 is often the system running out of memory: ask for fewer processes, or for one.",
            details={"exit_code": code},
        )


def _pickled(value: object) -> bytes:
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise NotSendableError(f"{type(error).__name__}: {error}") from error
