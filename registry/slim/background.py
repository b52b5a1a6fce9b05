"""How is something done ahead, so that nobody can come to wait for ever? By a short-lived thread for each piece of it.

A thread is started for one piece of work and ends with it: none waits for a queue to have room, so none has to be told
to stop, and what is dropped half-way leaves nothing behind. They are daemons: a read that hangs, of a file on a machine
that went away, does not keep the interpreter from ending.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, Final, TypeVar

T = TypeVar("T")

_EXIT_SECONDS: Final = 1.0
_NO_THREAD: Final = "new thread"
"""What CPython says where the system has no thread left to give, or the interpreter is ending: "can't start ..."."""

_running: set[threading.Thread] = set()


def start(work: Callable[[], T], *, name: str) -> Future[T]:
    """Do ``work`` in a thread; the future has what it gave, or raised: SystemExit and the like too.

    Whoever is interrupted here (KeyboardInterrupt) does not know whether the work will be done.
    """
    future: Future[T] = Future()
    thread = threading.Thread(target=_run, args=(work, future), name=name, daemon=True)
    _running.add(thread)
    try:
        thread.start()
    except RuntimeError as error:
        if _NO_THREAD not in str(error):
            raise interrupt_in(error) or error from None
        _running.discard(thread)
        _run(work, future)
    return future


def interrupt_in(error: BaseException) -> BaseException | None:
    """The KeyboardInterrupt, or the like, that ``error`` came instead of.

    Who is interrupted in ``threading.Condition.wait``, which starting a thread and asking a future do too, may come out
    of it without the lock, and be told that it cannot be released.
    """
    context = error.__context__
    while context is not None and isinstance(context, Exception):
        context = context.__context__
    return context


def wait_for(futures: Iterable[Future[Any]], *, seconds: float) -> None:
    """Wait until all are done, but no longer than ``seconds``."""
    end = time.monotonic() + seconds
    for future in futures:
        try:
            future.exception(timeout=max(0.0, end - time.monotonic()))
        except TimeoutError:
            return


def _run(work: Callable[[], T], future: Future[T]) -> None:
    with suppress(InvalidStateError):  # nobody waits for it any more: it was closed
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 (whoever waits for the future is told, whatever it is)
            future.set_exception(error)
        else:
            future.set_result(result)
    _running.discard(threading.current_thread())


@atexit.register
def _wait_at_exit() -> None:
    """Let reads that are under way end, if they do so soon: the libraries they are in are about to be taken down."""
    end = time.monotonic() + _EXIT_SECONDS
    for thread in list(_running):
        with suppress(RuntimeError):  # another thread is about to start this one
            thread.join(timeout=max(0.0, end - time.monotonic()))
