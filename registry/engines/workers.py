"""The engine of worker processes: interpreters of our own, started with the first pieces and ended with the engine.

Each worker is a fresh interpreter that runs ``main`` of this module, never a fork (a fork of a program with threads
can hang), and not a process of ``multiprocessing``: those import the caller's main script again, which repeats the
whole work where a script has no ``if __name__ == "__main__"``, and fails where the code came through a pipe.

Messages over a worker's stdin and stdout are ``length (u64) is_function (bool) pickle``. Both ends are in this module,
in processes of one program, so nothing is unpickled that the program did not make itself. A message is a function,
which the worker keeps until the next one, or an input to call it with; every message is answered. The end of stdin is
the end of the worker, so that it never outlives its starter, not even one that was killed.
"""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
import queue
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import Any, BinaryIO, Final, NamedTuple, cast

from registry.engines.engine import Engine, Piece, R, T, in_order, most_drawn
from registry.errors import RegistryError

_log = logging.getLogger(__name__)

# sys.path travels first: `-P` keeps the current folder out, and the parent's path may have been changed by its program.
_BOOTSTRAP: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from registry.engines.workers import main; main()"
)
_HEAD: Final = struct.Struct("<Q?")


class NotSendableError(Exception):
    """A function, an input or a result that cannot travel between processes; the caller does the work itself."""


class ForeignError(Exception):
    """Takes the place of an error that is not one of the registry's, and so may not travel: (class name, text)."""


class WorkerDiedError(Exception):
    """A worker that ended while it ran a piece, or that could not be started; then ``exit_code`` is None."""

    def __init__(self, message: str, *, hint: str, exit_code: int | None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code


class WorkerProcesses(Engine):
    """Runs pieces in worker processes, for work inside the interpreter's lock.

    They start with the second piece of the first run, because a single piece is done sooner than an interpreter
    starts, and serve all runs.
    """

    def __init__(self, processes: int) -> None:
        self._width = processes
        self._workers: list[_Worker] = []
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="registry-worker")
        self._function: _Function | None = None
        self._has_warned = False

    @property
    def width(self) -> int:
        """The number of processes."""
        return self._width

    def run(
        self, pieces: Iterable[Piece[T, R]], *, doing: str, failure: type[RegistryError]
    ) -> Generator[tuple[T, R], None, None]:
        """As the protocol says.

        Raises:
            failure: a worker died or cannot be started, or a piece raised an error that is not one of the registry's.
        """
        source = iter(pieces)
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
                yield first.input, first.function(first.input)
                if failed is not None:
                    raise failed
                return
            source = chain((first, second), source)

        def finish(piece: Piece[T, R], future: Future[R]) -> R:
            try:
                return future.result()
            except NotSendableError as error:
                if not self._has_warned:
                    self._has_warned = True
                    _log.warning("working in this process, because something cannot be sent to another: %s", error)
                return piece.function(piece.input)
            except WorkerDiedError as error:
                how = "" if error.exit_code is None else f" while it {doing}"
                details = {"exit_code": error.exit_code}
                raise failure(f"{error.message}{how}", hint=error.hint, details=details) from error
            except ForeignError as error:
                kind, text = error.args
                raise failure(f"a worker process met {kind} while it {doing}: {text}") from error

        yield from in_order(self.submit, source, most=most_drawn(self._width), finish=finish)

    def submit(self, piece: Piece[T, R]) -> Future[R]:
        """The result of one piece, which a worker calls. Starts one, up to the number of processes.

        The future raises what the piece raised, if that is an error of the registry, or else ForeignError;
        NotSendableError where something cannot travel, or this program has no interpreter to start; and
        WorkerDiedError.
        """
        if self._function is None or self._function.called is not piece.function:
            self._function = _Function.of(piece.function)
        try:
            if isinstance(self._function.message, NotSendableError):
                raise self._function.message
            if len(self._workers) < self._width:
                self._workers.append(_Worker())
                self._idle.put(self._workers[-1])
        except (WorkerDiedError, NotSendableError) as error:
            refused: Future[R] = Future()
            refused.set_exception(error)
            return refused
        return self._threads.submit(self._call, self._function, piece.input)

    def close(self) -> None:
        """Kill all workers and wait for them; what they were doing is lost."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.kill()
        self._threads.shutdown(wait=True)  # a thread that was reading or writing found the end of its pipe
        for worker in self._workers:
            worker.close_pipes()

    def _call(self, function: _Function, item: Any) -> Any:
        message = _pickled(item)
        worker = self._idle.get()
        try:
            return worker.call(function, message)
        finally:
            self._idle.put(worker)


class _Function(NamedTuple):
    """A function and the message that takes it to a worker, or why none does."""

    called: Callable[[Any], Any]
    message: bytes | NotSendableError

    @classmethod
    def of(cls, function: Callable[[Any], Any]) -> _Function:
        try:
            return cls(function, _pickled(function))
        except NotSendableError as error:
            return cls(function, error)


class _Worker:
    """One worker process and the two pipes to it."""

    def __init__(self) -> None:
        if not sys.executable:
            raise NotSendableError("this program has no Python interpreter of its own to start")
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own code
                [sys.executable, "-P", "-c", _BOOTSTRAP, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Ctrl-C in a terminal goes to the whole group: the starter answers it and ends its workers, silently.
                process_group=0 if os.name == "posix" else None,
            )
        except OSError as error:
            raise WorkerDiedError(
                f"cannot start a worker process: {error.strerror or error}",
                hint="The system allows no further process, or has no memory for one: ask for fewer, or for one.",
                exit_code=None,
            ) from error
        self._stdin = cast("BinaryIO", self._process.stdin)  # both were asked for above
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

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close_pipes(self) -> None:
        self._stdout.close()
        try:
            self._stdin.close()
        except OSError:  # what is left in the buffer has nowhere to go
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
            raise _not_sendable(error) from error
        if raised is not None:
            raise raised from cause
        return result

    def _died(self) -> WorkerDiedError:
        code = self._process.wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        hint = "Signal 9 is often the system running out of memory: ask for fewer processes, or for one."
        return WorkerDiedError(f"a worker process {how}", hint=hint, exit_code=code)


def main() -> None:
    """What a worker runs: serve until stdin ends.

    What a function prints goes to stderr, because stdout belongs to the answers.
    """
    tasks = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # the worker is killed in the end, with what it holds back
    function: Callable[[Any], Any] | None = None
    while True:
        try:
            is_function, message = _receive(tasks)
        except EOFError:
            return
        answer: tuple[Any, Exception | None, Exception | None] = (None, None, None)
        try:
            payload = pickle.loads(message)  # noqa: S301 - from the process that started this one
        except Exception as error:  # noqa: BLE001 - unpickling runs whatever module the classes live in
            answer = (None, _not_sendable(error), None)
        else:
            if is_function:
                function = payload
            else:
                answer = _call(cast("Callable[[Any], Any]", function), payload)
        try:
            reply = _pickled(answer)
        except NotSendableError as error:
            reply = _pickled((None, error, None))
        try:
            _send(answers, reply)
        except BrokenPipeError:
            return


def _call(function: Callable[[Any], Any], item: Any) -> tuple[Any, Exception | None, Exception | None]:
    """The result, or the error and its cause."""
    try:
        return function(item), None, None
    except Exception as error:  # noqa: BLE001 (raised in the process that asked)
        cause = error.__cause__
        return None, _portable(error), _portable(cause) if isinstance(cause, Exception) else None


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


def _pickled(value: object) -> bytes:
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise _not_sendable(error) from error


def _not_sendable(error: Exception) -> NotSendableError:
    return NotSendableError(f"{type(error).__name__}: {error}")


def _send(file: BinaryIO, message: bytes, *, is_function: bool = False) -> None:
    file.write(_HEAD.pack(len(message), is_function))
    file.write(message)
    file.flush()


def _receive(file: BinaryIO) -> tuple[bool, bytes]:
    """One message, and whether it is a function; EOFError where the other side is gone."""
    head = file.read(_HEAD.size)
    if len(head) == _HEAD.size:
        size, is_function = _HEAD.unpack(head)
        message = file.read(size)
        if len(message) == size:
            return is_function, message
    raise EOFError
