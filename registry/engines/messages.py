"""Errors that are sent from one process to another, and the call of a piece whose outcome is sent back.

The engines of other processes (``workers``, ``ray``) use them at both ends.
"""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final

from registry.engines.pieces import Piece, R, T
from registry.errors import RegistryError

_log = logging.getLogger(__name__)

REACH_HINT: Final = (
    "All nodes of a cluster must be able to read the data of the tasks: put it in a bucket, or in a folder that all "
    "nodes share."
)


class NotSendableError(Exception):
    """A function, an input or a result cannot be pickled or unpickled. The caller then does the work itself."""


class ForeignError(Exception):
    """Replaces an error from outside the registry, which might not unpickle. Its args are (class name, text)."""


class WorkerDiedError(Exception):
    """A worker ended while it ran a piece, or no worker could be started.

    Attributes:
        message: what happened. ``Taking`` adds what the worker was doing.
        hint: what to do.
        details: facts for programs.
        is_of_start: whether no worker could be started.
    """

    def __init__(self, message: str, *, hint: str, details: dict[str, Any], is_of_start: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details
        self.is_of_start = is_of_start


class Taking:
    """Takes the results of pieces that ran in other processes. Each engine has one instance, so it warns only once.

    ``hints`` maps the names of error classes from outside the registry to hints.
    """

    def __init__(self, hints: Mapping[str, str] | None = None) -> None:
        self._hints = hints or {}
        self._has_warned = False

    def take(self, piece: Piece[T, R], result: Callable[[], R], *, doing: str, failure: type[RegistryError]) -> R:
        """Return ``result()``. A piece that cannot be sent is called in this process.

        Raises:
            failure: a worker died or cannot be started, or the piece raised an error from outside the registry.
        """
        try:
            return result()
        except NotSendableError as error:
            if not self._has_warned:
                self._has_warned = True
                _log.warning("working in this process, because data cannot be sent to another process: %s", error)
            return piece.function(piece.input)
        except WorkerDiedError as error:
            how = "" if error.is_of_start else f" while it {doing}"
            raise failure(f"{error.message}{how}", hint=error.hint, details=error.details) from error
        except ForeignError as error:
            kind, text = error.args
            message = f"a worker process raised {kind} while it {doing}: {text}"
            raise failure(message, hint=self._hints.get(kind)) from error


def call_function(function: Callable[[Any], Any], item: Any) -> tuple[Any, Exception | None, Exception | None]:
    """Call the function and return the result, or the error and its cause."""
    try:
        return function(item), None, None
    except (Exception, SystemExit) as error:  # noqa: BLE001 (raised in the process that sent the input)
        cause = error.__cause__
        return None, portable(error), portable(cause) if isinstance(cause, Exception) else None


def portable(error: BaseException) -> Exception:
    """Return ``error``, or a ForeignError if it might not unpickle, with the traceback as a note."""
    if isinstance(error, NotSendableError):  # a function may read data outside of the message
        return NotSendableError(*error.args)
    exception: Exception = ForeignError(type(error).__name__, str(error))
    if isinstance(error, RegistryError):
        try:
            exception = pickle.loads(pickle.dumps(error))  # noqa: S301 - made in this line
        except Exception:  # noqa: BLE001 - details from author code may be anything
            exception = ForeignError(type(error).__name__, error.message)
    exception.add_note("In a worker process:\n" + "".join(traceback.format_exception(error)).rstrip())
    return exception


def pickled(value: object) -> bytes:
    """Pickle ``value``. Raises NotSendableError if that is not possible."""
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise not_sendable(error) from error


def not_sendable(error: Exception) -> NotSendableError:
    """Make the NotSendableError for a failure of pickling or unpickling."""
    return NotSendableError(f"{type(error).__name__}: {error}")
