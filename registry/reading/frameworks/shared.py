"""How is one reader used by several threads, and by processes that were forked? One at a time, and none with our files.

A fork would share the place in an open file with its parent, and a loader asks from many threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from registry.reading.reader import Reader


class SharedReader:
    """A reader with nothing open, opened anew in each process; lent to one thread at a time."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader.reopened()
        self._owner = os.getpid()
        self._lock = Lock()

    @contextmanager
    def lent(self) -> Iterator[Reader]:
        """The reader, which is this thread's until the block ends."""
        if self._owner != os.getpid():  # a fork: the lock may have been taken at that moment
            self._lock, self._reader, self._owner = Lock(), self._reader.reopened(), os.getpid()
        with self._lock:
            yield self._reader

    def __len__(self) -> int:
        return len(self._reader)

    def __repr__(self) -> str:
        return repr(self._reader)

    def __reduce__(self) -> tuple[type[SharedReader], tuple[Reader]]:
        return SharedReader, (self._reader,)
