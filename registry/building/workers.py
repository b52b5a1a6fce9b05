"""How are examples encoded by several processes at once? Worker processes, started and ended by the build.

Each worker is a fresh interpreter that runs ``registry.building.worker``, never a fork (a fork of a program with
threads can hang), and not a process of ``multiprocessing``: those import the caller's main script again, which repeats
the whole build where a script has no ``if __name__ == "__main__"``, and fails where the code came through a pipe.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, Final, cast

from registry.building.worker import EncodingFailedError, RecordEncoder, UnreadableMessageError, receive, send
from registry.errors import BuildError

# sys.path travels first: `-P` keeps the current folder out, and the parent's path may have been changed by its program.
_BOOTSTRAP: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from registry.building.worker import main; main()"
)


class NotSendableError(Exception):
    """Examples or features that cannot travel to another process; the caller encodes them itself."""


class WorkerPool:
    """Worker processes that encode chunks of examples with one dataset's features. A context manager.

    Leaving it ends every worker at once, whatever it is doing.

    Raises:
        NotSendableError: the features cannot be pickled, or there is no interpreter to start.
    """

    def __init__(self, features: RecordEncoder, *, processes: int) -> None:
        if not sys.executable:
            raise NotSendableError("this program has no Python interpreter of its own to start")
        message = _pickled(features)
        self.processes = processes
        self._workers: list[_Worker] = []
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="registry-build")
        try:
            for _ in range(processes):
                self._workers.append(_Worker())
            for worker in self._workers:
                worker.send(message)
                self._idle.put(worker)
        except BaseException:
            self.close()
            raise

    def submit(self, examples: Sequence[Any]) -> Future[list[bytes]]:
        """The records of ``examples``, in order, as soon as a worker has made them.

        The future raises EncodingFailedError for an example that cannot be encoded, NotSendableError for a chunk that
        cannot travel, and BuildError where the worker died.
        """
        return self._threads.submit(self._encode, examples)

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

    def _encode(self, examples: Sequence[Any]) -> list[bytes]:
        message = _pickled(examples)
        worker = self._idle.get()
        try:
            return worker.encode(message)
        finally:
            self._idle.put(worker)


class _Worker:
    """One worker process and the two pipes to it."""

    def __init__(self) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own code
                [sys.executable, "-P", "-c", _BOOTSTRAP, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Ctrl-C in a terminal goes to the whole group: the build answers it and ends its workers, silently.
                process_group=0 if os.name == "posix" else None,
            )
        except OSError as error:
            raise BuildError(
                f"cannot start a worker process: {error.strerror or error}",
                hint="The system allows no further process, or has no memory for one: build with fewer, or with one.",
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

    def encode(self, message: bytes) -> list[bytes]:
        if not self._ready:  # the answer to the features: interpreters start side by side, not one after the other
            try:
                self._receive()
            except NotSendableError as error:
                self._refusal = error
            self._ready = True
        if self._refusal is not None:
            raise self._refusal
        self.send(message)
        records: list[bytes] = self._receive()
        return records

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
        if isinstance(answer, EncodingFailedError):
            raise answer
        return answer

    def _died(self) -> BuildError:
        code = self._process.wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return BuildError(
            f"a worker process {how} while it encoded examples",
            hint="Signal 9 is often the system running out of memory: build with fewer processes, or with one.",
            details={"exit_code": code},
        )


def _pickled(value: object) -> bytes:
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise NotSendableError(f"{type(error).__name__}: {error}") from error
