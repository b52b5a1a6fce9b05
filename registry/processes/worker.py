"""What does a worker process do? It calls one function for the process that started it, and ends with it.

Messages over the worker's stdin and stdout are ``length (u64) pickle``: the only two ends are this module and
``registry.processes.pool``, in processes of one program, so nothing is unpickled that the program did not make
itself. First the function comes, then chunks of items; every message is answered. The end of stdin is the end of the
worker, so that it never outlives its starter, not even one that was killed.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Final

from registry.errors import RegistryError

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
