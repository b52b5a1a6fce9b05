"""Implements the engine of worker processes. They start with the first pieces and end with the engine.

Each worker is a new interpreter that runs ``main`` of this module. It is not a fork, because a fork of a program with
threads can hang. It is not a process of ``multiprocessing`` either, which would import the caller's main script again:
a script without ``if __name__ == "__main__"`` would repeat all of its work, and code from a pipe would fail.

Messages over a worker's stdin and stdout are ``length (u64) is_function (bool) pickle``. Both ends are in this module,
and in processes of one program, so only the program's own data is unpickled. A message is either a function, which the
worker keeps until the next function arrives, or an input for it. Every message is answered. A worker ends when its
stdin is closed, so it never outlives the process that started it, even if that process is killed.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any, BinaryIO, Final, NamedTuple, cast

from registry.engines.engine import Engine, closed_engine, in_order, most_drawn
from registry.engines.messages import NotSendableError, Taking, WorkerDiedError, call_function, not_sendable, pickled
from registry.engines.pieces import Piece, R, T, Tally, TaskWatch, WatchedFutures
from registry.errors import RegistryError, spell

# sys.path is set first, because `-P` excludes the current folder, and the program may have changed its own path.
_BOOTSTRAP: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from registry.engines.workers import main; main()"
)
_SIGKILL: Final = 9
_NOT_STARTED: Final = {"exit_code": None}
_HEAD: Final = struct.Struct("<Q?")


class WorkerProcesses(Engine):
    """Runs pieces in worker processes, for work that holds the interpreter's lock (the GIL).

    Workers start with the second piece of the first run, because a single piece is done before an interpreter has
    started. They serve all runs. A worker that has died is replaced when the next piece needs it.
    """

    def __init__(self, processes: int) -> None:
        self._width = processes
        self._workers: list[_Worker] = []
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="registry-worker")
        self._function: _Function | None = None
        self._taking = Taking()
        self._is_closed = False
        self._lock = threading.Lock()  # no worker starts after close() has begun to kill them

    @property
    def width(self) -> int:
        """The number of processes."""
        return self._width

    def run(
        self,
        pieces: Iterable[Piece[T, R]],
        *,
        doing: str,
        failure: type[RegistryError],
        watch: TaskWatch[R] | None = None,
    ) -> Generator[tuple[T, R], None, None]:
        """See ``Engine.run``.

        Raises:
            UsageError: the engine is closed.
            failure: a worker died or cannot be started, or a piece raised an error from outside the registry.
        """
        if self._is_closed:
            raise closed_engine()
        source, tally = iter(pieces), Tally(watch, self._width)
        if not self._workers:
            first = next(source, None)
            if first is None:
                return
            second, failed = None, None
            try:
                second = next(source, None)
            except Exception as error:  # noqa: BLE001 (raised below, after the result of the first piece)
                failed = error
            if second is None:
                tally.start()
                yield first.input, tally.take(first, first)
                if failed is not None:
                    raise failed
                return
            source = chain((first, second), source)

        watched = WatchedFutures(tally)

        def start(piece: Piece[T, R]) -> Future[R]:
            return watched.start(piece, self.submit(piece))

        def finish(piece: Piece[T, R], future: Future[R]) -> R:
            take = partial(self._taking.take, piece, future.result, doing=doing, failure=failure)
            return watched.take(piece, future, take)

        yield from in_order(start, source, most=most_drawn(self._width), finish=finish)

    def submit(self, piece: Piece[T, R]) -> Future[R]:
        """Return the result of one piece as a future. Starts a worker, up to the number of processes.

        The future raises the error of the piece if it is an error of the registry, and ForeignError for other errors;
        NotSendableError if something cannot be pickled, or if this program has no interpreter to start; and
        WorkerDiedError if the worker died or cannot be started.

        Raises:
            UsageError: the engine is closed.
        """
        if self._function is None or self._function.called is not piece.function:
            self._function = _Function.of(piece.function)
        try:
            if isinstance(self._function.message, NotSendableError):
                raise self._function.message
            if len(self._workers) < self._width:
                self._idle.put(self._start())
            return self._threads.submit(self._call, self._function, piece.input)
        except (WorkerDiedError, NotSendableError) as error:
            refused: Future[R] = Future()
            refused.set_exception(error)
            return refused
        except RuntimeError as error:  # the pool is shut down, or the system cannot start another thread
            if self._is_closed:
                raise closed_engine() from error
            refused = Future()
            hint = f"Use fewer processes: {spell('processes', 1)}."
            refused.set_exception(
                WorkerDiedError(f"cannot start a thread: {error}", hint=hint, details=_NOT_STARTED, is_of_start=True)
            )
            return refused

    def close(self) -> None:
        """Kill all workers and wait for them. Their unfinished work is lost."""
        with self._lock:
            self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.kill()
        self._threads.shutdown(wait=True)  # threads that were reading or writing have reached the end of the pipe
        for worker in self._workers:
            worker.close_pipes()

    def _call(self, function: _Function, item: Any) -> Any:
        message = pickled(item)
        worker = self._idle.get()
        try:
            if worker.has_ended():
                worker = self._start(instead=worker)
            return worker.call(function, message)
        finally:
            self._idle.put(worker)

    def _start(self, *, instead: _Worker | None = None) -> _Worker:
        """Start a worker, which replaces ``instead`` if that has ended."""
        with self._lock:
            if self._is_closed:
                raise closed_engine()
            worker = _Worker()
            if instead is not None:
                self._workers.remove(instead)
                instead.close_pipes()
            self._workers.append(worker)
            return worker


class _Function(NamedTuple):
    """A function and the message that sends it to a worker, or the reason why it cannot be sent."""

    called: Callable[[Any], Any]
    message: bytes | NotSendableError

    @classmethod
    def of(cls, function: Callable[[Any], Any]) -> _Function:
        try:
            return cls(function, pickled(function))
        except NotSendableError as error:
            return cls(function, error)


class _Worker:
    """One worker process and the two pipes to it."""

    def __init__(self) -> None:
        if not sys.executable:
            raise NotSendableError("this program has no Python interpreter to start")
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own code
                [sys.executable, "-P", "-c", _BOOTSTRAP, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Ctrl-C in a terminal reaches the whole process group. Only the parent handles it, and ends its
                # workers.
                process_group=0 if os.name == "posix" else None,
            )
        except OSError as error:
            raise WorkerDiedError(
                f"cannot start a worker process: {error.strerror or error}",
                hint="The system allows no more processes, or is out of memory. Use fewer processes: "
                + spell("processes", 1),
                details=_NOT_STARTED,
                is_of_start=True,
            ) from error
        self._stdin = cast("BinaryIO", self._process.stdin)  # stdin and stdout are pipes, see above
        self._stdout = cast("BinaryIO", self._process.stdout)
        self._function: _Function | None = None
        self._refusal: NotSendableError | None = None

    def call(self, function: _Function, message: bytes) -> Any:
        if self._function is not function:
            self._function, self._refusal = function, None
            try:
                self._ask(cast("bytes", function.message), is_function=True)
            except NotSendableError as error:
                self._refusal = error
        if self._refusal is not None:
            raise self._refusal
        return self._ask(message)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close_pipes(self) -> None:
        self._stdout.close()
        try:
            self._stdin.close()
        except OSError:  # the rest of the buffer cannot be written any more
            return

    def _ask(self, message: bytes, *, is_function: bool = False) -> Any:
        try:
            _send(self._stdin, message, is_function=is_function)
            _, answer = _receive(self._stdout)
        except (EOFError, OSError) as error:
            raise self._died() from error
        try:
            result, raised, cause = pickle.loads(answer)  # noqa: S301 - from the process started above
        except Exception as error:
            raise not_sendable(error) from error
        if raised is not None:
            raise raised from cause
        return result

    def _died(self) -> WorkerDiedError:
        code = self._process.wait()
        how = f"was killed by signal {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        if code == -_SIGKILL:
            hint = f"The system probably ran out of memory. Use fewer processes: {spell('processes', 1)}."
        elif code < 0:
            hint = "A native library crashed, or another program sent the signal. To see where, use "
            hint += f"{spell('processes', 1)}, with PYTHONFAULTHANDLER=1 in the environment."
        else:
            hint = "Code that ran in the worker ended the process. Its output is above. To debug it, use "
            hint += f"{spell('processes', 1)}."
        return WorkerDiedError(f"a worker process {how}", hint=hint, details={"exit_code": code})


def _signal_name(number: int) -> str:
    """Return ``9 (SIGKILL)``, or only the number if the signal has no name on this system."""
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


_MOST_FREED_BYTES: Final = 31 * 2**20  # glibc's limit is 32 MiB


def keep_freed_memory() -> None:
    """Let the C library keep the memory of freed arrays for the next ones. Work on blocks then takes a tenth less time.

    Each block of records allocates and frees arrays of a few MB. By default, glibc returns their memory to the system
    each time. Once a larger block was freed, it keeps freed memory up to twice that size. Other C libraries are not
    affected.
    """
    import numpy as np

    np.empty(_MOST_FREED_BYTES, np.uint8)


def main() -> None:
    """The main function of a worker: answer messages until stdin ends.

    The output of a function goes to stderr, because stdout carries the answers.
    """
    tasks = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a killed worker would lose buffered output
    keep_freed_memory()
    function: Callable[[Any], Any] | None = None
    while True:
        try:
            is_function, message = _receive(tasks)
        except EOFError:
            return
        answer: tuple[Any, Exception | None, Exception | None] = (None, None, None)
        try:
            payload = pickle.loads(message)  # noqa: S301 - from the process that started this one
        except Exception as error:  # noqa: BLE001 - unpickling imports and runs any module
            answer = (None, not_sendable(error), None)
        else:
            if is_function:
                function = payload
            else:
                answer = call_function(cast("Callable[[Any], Any]", function), payload)
        try:
            reply = pickled(answer)
        except NotSendableError as error:
            reply = pickled((None, error, None))
        try:
            _send(answers, reply)
        except BrokenPipeError:
            return


def _send(file: BinaryIO, message: bytes, *, is_function: bool = False) -> None:
    file.write(_HEAD.pack(len(message), is_function))
    file.write(message)
    file.flush()


def _receive(file: BinaryIO) -> tuple[bool, bytes]:
    """Read a message, and whether it is a function. Raises EOFError if the other side has ended."""
    head = file.read(_HEAD.size)
    if len(head) == _HEAD.size:
        size, is_function = _HEAD.unpack(head)
        message = file.read(size)
        if len(message) == size:
            return is_function, message
    raise EOFError
