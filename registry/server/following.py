"""Answers calls of ``events`` that wait, without using a thread or a database connection while they wait.

    a request with ``wait``  ->  read  ->  nothing new  ->  ``EventWatch`` wakes it  ->  read again  ->  the answer

While any request waits, a worker reads the number of the newest event twice a second, for all of them together.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from registry.errors import RegistryError

_PAUSE_SECONDS: Final = 0.5
_MOST_SECONDS: Final = 30

_logger = logging.getLogger(__name__)


class EventWatch:
    """Knows the newest event while somebody waits for the next one. Only the thread of the event loop uses it."""

    def __init__(self, read_newest: Callable[[], Awaitable[int]]) -> None:
        """``read_newest`` returns the id of the newest event, or 0 if the log is empty."""
        self._read_newest = read_newest
        self._newest = 0
        self._waiting = 0
        self._is_stopped = False
        self._changed = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def wait(self, after: int, seconds: float) -> bool:
        """Wait until there is an event after the one with the id ``after``; at most some seconds.

        Returns whether it may be waited for again: False if the service ends.
        """
        self._waiting += 1
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read())
        try:
            async with asyncio.timeout(seconds):
                while self._newest <= after and not self._is_stopped:
                    await self._changed.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1
        return not self._is_stopped

    def stop(self) -> None:
        """Answer all waiting requests at once, because the service ends."""
        self._is_stopped = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _read(self) -> None:
        while self._waiting and not self._is_stopped:
            try:
                newest = await self._read_newest()
            except RegistryError as error:
                _logger.warning("the catalog does not answer while requests wait for events: %s", error)
                newest = self._newest
            if newest != self._newest:  # it is smaller after the catalog was exchanged
                self._newest = newest
                self._wake()
            await asyncio.sleep(_PAUSE_SECONDS)


async def answer_events(
    values: Mapping[str, Any],
    ask: Callable[[Mapping[str, Any]], Awaitable[Any]],
    watch: EventWatch,
    waiting: Callable[[], AbstractContextManager[None]],
) -> Any:
    """The answer to ``events`` with these arguments: as soon as it has an event, or when its time is over.

    Args:
        values: the arguments as JSON.
        ask: makes the call.
        watch: wakes it.
        waiting: what holds while it waits.
    """
    seconds = values.get("wait", 0)
    if type(seconds) not in (int, float) or not 0 < seconds <= _MOST_SECONDS:
        return await ask(values)
    loop = asyncio.get_running_loop()
    values, end = {**values, "wait": 0}, loop.time() + seconds
    may_wait = True
    while True:
        answered = await ask(values)
        page = json.loads(answered.body)
        if page["events"] or not may_wait or (left := end - loop.time()) <= 0:
            return answered
        values["after"] = page["after"]
        with waiting():
            may_wait = await watch.wait(page["after"], left)
