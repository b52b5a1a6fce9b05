"""What does a worker process do? It encodes examples for the build that started it, and ends with it.

Messages over the worker's stdin and stdout are ``length (u64) pickle``: the only two ends are this module and
``registry.building.workers``, in processes of one program, so nothing is unpickled that the program did not make
itself. First the features come, then chunks of examples; every message is answered. The end of stdin is the end of the
worker, so that it never outlives the build, not even one that was killed.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import traceback
from collections.abc import Sequence
from typing import Any, BinaryIO, Final, Protocol

from registry.errors import BuildError, FeatureError, RegistryError

_LENGTH: Final = struct.Struct("<Q")


class RecordEncoder(Protocol):
    """What the engine needs of a dataset's features."""

    def encode_example(self, example: Any, /) -> bytes:
        """The record of ``example``; FeatureError where it does not fit."""
        ...


class UnreadableMessageError(Exception):
    """The answer of a worker that cannot unpickle what it was sent: a class that only the sender can import."""


class EncodingFailedError(Exception):
    """The answer of a worker for a chunk that holds an example that cannot be encoded.

    ``args`` is ``(index, error)``: the example's place in the chunk, and what was raised, or a stand-in of the same
    message where that cannot travel.
    """

    @property
    def index(self) -> int:
        """Place of the example in its chunk."""
        return int(self.args[0])

    @property
    def error(self) -> Exception:
        """What was raised."""
        error = self.args[1]
        assert isinstance(error, Exception)  # noqa: S101 - narrows for the type checker
        return error


def encode_chunk(features: RecordEncoder, examples: Sequence[Any]) -> list[bytes]:
    """The records of ``examples``, in order.

    Raises:
        EncodingFailedError: at the first example that cannot be encoded.
    """
    records = []
    for index, example in enumerate(examples):
        try:
            records.append(features.encode_example(example))
        except Exception as error:
            raise EncodingFailedError(index, error) from error
    return records


def describe_failure(error: Exception) -> RegistryError:
    """What went wrong with an example, in our words where it is not ours; the same in every process."""
    if isinstance(error, RegistryError):
        return error
    return BuildError(f"its features failed with {type(error).__name__}: {error}")


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
    """Serve until stdin ends. What features print goes to stderr, because stdout belongs to the answers."""
    tasks = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # the worker is killed in the end, with what it holds back
    features: RecordEncoder | None = None
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
            if features is None:
                features, answer = payload, None
            else:
                answer = _answer(features, payload)
        try:
            send(answers, pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL))
        except BrokenPipeError:
            return


def _answer(features: RecordEncoder, examples: Sequence[Any]) -> object:
    try:
        return encode_chunk(features, examples)
    except EncodingFailedError as failure:
        return EncodingFailedError(failure.index, _portable(failure.error))


def _portable(error: Exception) -> Exception:
    """``error`` as something that certainly unpickles; the traceback travels as a note."""
    kind = FeatureError if isinstance(error, FeatureError) else BuildError
    known = describe_failure(error)
    portable = kind(known.message, hint=known.hint, details=known.details)
    portable.add_note("In a worker process:\n" + "".join(traceback.format_exception(error)).rstrip())
    return portable
