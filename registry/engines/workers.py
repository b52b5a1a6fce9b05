"""How is a function called by several processes at once? Worker processes, started and ended by whoever needs them.

Each worker is a fresh interpreter that runs ``registry.engines.workers``, never a fork (a fork of a program with
threads can hang), and not a process of ``multiprocessing``: those import the caller's main script again, which repeats
the whole work where a script has no ``if __name__ == "__main__"``, and fails where the code came through a pipe.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import queue
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, Final, cast

from registry.errors import RegistryError

# sys.path travels first: `-P` keeps the current folder out, and the parent's path may have been changed by its program.
_BOOTSTRAP: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from registry.engines.workers import main; main()"
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


_LENGTH: Final = struct.Struct("<Q")


class UnreadableMessageError(Exception):
    """The answer of a worker that cannot unpickle what it was sent: a class that only the sender can import."""


class ForeignError(Exception):
    """Stands for an error that is not one of the registry's, and so may not travel: ``args`` is (class name, text)."""


class ItemFailedError(Exception):
    """The answer of a worker for a chunk that holds an item on which the function failed.

    ``args`` is ``(index, error)``: the item's place in the chunk, and what was raised, or a ForeignError for it.
    """

    @property
    def index(self) -> int:
        """Place of the item in its chunk."""
        return int(self.args[0])

    @property
    def error(self) -> Exception:
        """What was raised."""
        error = self.args[1]
        assert isinstance(error, Exception)  # noqa: S101 - narrows for the type checker
        return error


def call_each(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """What ``function`` gives for each of ``items``, in order.

    Raises:
        ItemFailedError: at the first item on which it fails.
    """
    results = []
    for index, item in enumerate(items):
        try:
            results.append(function(item))
        except Exception as error:
            raise ItemFailedError(index, error) from error
    return results


def send(file: BinaryIO, message: bytes) -> None:
    """Write one message."""
    file.write(_LENGTH.pack(len(message)))
    file.write(message)
    file.flush()


def receive(file: BinaryIO) -> bytes:
    """Read one message.

    Raises:
        EOFError: the other side is gone.
    """
    head = file.read(_LENGTH.size)
    if len(head) == _LENGTH.size:
        message = file.read(size := _LENGTH.unpack(head)[0])
        if len(message) == size:
            return message
    raise EOFError


def main() -> None:
    """Serve until stdin ends. What the function prints goes to stderr, because stdout belongs to the answers."""
    tasks = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # the worker is killed in the end, with what it holds back
    function: Callable[[Any], Any] | None = None
    while True:
        try:
            message = receive(tasks)
        except EOFError:
            return
        answer: object
        try:
            payload = pickle.loads(message)  # noqa: S301 - from the process that started this one
        except Exception as error:  # noqa: BLE001 - unpickling runs whatever module the classes live in
            answer = UnreadableMessageError(f"{type(error).__name__}: {error}")
        else:
            if function is None:
                function, answer = payload, None
            else:
                answer = _answer(function, payload)
        try:
            send(answers, pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL))
        except BrokenPipeError:
            return


def _answer(function: Callable[[Any], Any], items: Sequence[Any]) -> object:
    try:
        return call_each(function, items)
    except ItemFailedError as failure:
        return ItemFailedError(failure.index, _portable(failure.error))


def _portable(error: Exception) -> Exception:
    """``error`` as something that certainly unpickles; the traceback travels as a note."""
    portable: Exception = ForeignError(type(error).__name__, str(error))
    if isinstance(error, RegistryError):
        try:
            portable = pickle.loads(pickle.dumps(error))  # noqa: S301 - made in this line
        except Exception:  # noqa: BLE001 - details of author code may hold anything
            portable = ForeignError(type(error).__name__, error.message)
    portable.add_note("In a worker process:\n" + "".join(traceback.format_exception(error)).rstrip())
    return portable
