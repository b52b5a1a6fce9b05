"""Makes calls in a thread, while the caller prepares the next: writing and hashing release the interpreter's lock.

``sorter`` writes runs with it, and ``writing`` shards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from operator import call
from typing import Any, Final, Self

from registry.engines.engine import submit

_MOST_BEHIND: Final = 2
"""Calls that wait, each with about 1 MB."""


class Behind:
    """Makes calls in order in a thread. A context manager that ends the thread; calls that wait are then dropped.

    Args:
        is_used: False makes each call at once: little work is done before a thread has started.
    """

    def __init__(self, *, is_used: bool) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="registry-write") if is_used else None
        self._waiting: deque[Future[Any]] = deque()

    def call(self, function: Callable[[], Any]) -> None:
        """Make the call soon, or now if no thread is used. Raises the error of an earlier call."""
        if self._pool is None:
            function()
            return
        self._waiting.append(submit(self._pool, call, function))
        if len(self._waiting) > _MOST_BEHIND:
            self._waiting.popleft().result()

    def wait(self) -> None:
        """Wait for all calls. Raises the first error of one."""
        while self._waiting:
            self._waiting.popleft().result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
