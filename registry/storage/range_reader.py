"""A stored object as a raw file that is read range by range."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from typing import Any


class RangeReader:
    """An object as a raw file: each ``readinto`` is one request. It has a place of its own, so readers may share."""

    def __init__(self, fetch: Callable[[int, int], Any], *, size: int) -> None:
        """``fetch(start, stop)`` gives the bytes of one range, whole or not at all."""
        self._fetch = fetch
        self._size = size
        self._place = 0

    def readinto(self, buffer: memoryview) -> int:
        """The next bytes, as many as there are, up to the length of ``buffer``: one request."""
        stop = min(self._place + len(buffer), self._size)
        if self._place >= stop:
            return 0
        content = self._fetch(self._place, stop)
        buffer[: len(content)] = content
        self._place += len(content)
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; nothing is asked for."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, "the place is before the start of the file")
        self._place = start + offset
        return self._place

    def tell(self) -> int:
        """The place of the next byte."""
        return self._place

    def write(self, _: memoryview) -> int:
        """Nothing is written here."""
        raise io.UnsupportedOperation("write")

    def fileno(self) -> int:
        """There is no descriptor."""
        raise io.UnsupportedOperation("fileno")

    def close(self) -> None:
        """Nothing is open between two requests."""
