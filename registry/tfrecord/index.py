"""Finds the positions of a file's records by walking its frames, and keeps them in an index for the next time.

An index is a note of the memory (``registry.storage.memory``), in the user's cache folder, never next to the data. It
is found only for the state of the file from which it was made (size, times and inode, or the URL and the ETag of an
object). It only saves the walk: every frame that is read is still checked.
"""

from __future__ import annotations

import os
from typing import Final

import numpy as np

from registry.storage.memory import Memory, ObjectState, StampFolder, State
from registry.tfrecord.block import Octets, Places, find_fault, walk_frames
from registry.tfrecord.framing import FRAMING_BYTES

_STEP: Final = 2**16
"""The number of frames that are walked, then checked, at a time."""

_MANY_RECORDS: Final = 4096
_MANY_BYTES: Final = 2**23
"""Walking a local file with fewer records and fewer bytes takes less time than writing its index."""


class IndexFolder:
    """The folder in which indexes are kept. If it cannot be read or written, nothing is kept, and files are walked.

    Attributes:
        stamps: the files that were already hashed, kept in the same folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._memory = Memory(folder)
        self.stamps = StampFolder(self._memory)

    def load(self, path: str, state: State) -> Places | None:
        """Load the starts of the frames of the file at ``path`` in this ``state``; None if they are not known."""
        value = self._memory.load("index", _subject(path, state), state.content())
        return None if value is None else np.frombuffer(value, "<i8")

    def keep(self, path: str, state: State, starts: Places) -> None:
        """Keep ``starts`` for the file at ``path``, which was in this ``state`` when it was opened."""
        value = np.ascontiguousarray(starts, "<i8")
        self._memory.keep("index", _subject(path, state), state.content(), value.data.cast("B"))

    def forget(self, path: str, state: State) -> None:
        """Delete the index of the file at ``path``."""
        self._memory.forget("index", _subject(path, state))


def _subject(path: str, state: State) -> bytes:
    """The subject of the index.

    For a file that is identified by its content, this is the content, at every location.
    """
    return os.fsencode(state.entity_tag if isinstance(state, ObjectState) and not state.url else path)


class FramePlaces:
    """The starts of the frames of one file, from the first one on, as far as an index has them or they were read."""

    def __init__(
        self,
        path: str,
        state: State | None,
        *,
        num_bytes: int,
        indexes: IndexFolder | None,
    ) -> None:
        self._path = path
        self._num_bytes = num_bytes
        self._kept_for = None if indexes is None or state is None else (indexes, state)
        self._buffer: Places = np.zeros(1, np.int64)  # only the first `_size` are valid
        self._size = 1
        self._num_kept = 0
        starts = None if self._kept_for is None else self._kept_for[0].load(path, self._kept_for[1])
        if starts is not None and 0 <= starts[-1] <= num_bytes:
            self._buffer, self._size, self._num_kept = starts, starts.size, starts.size - 1
        self._is_loaded = self._num_kept > 0

    @property
    def known(self) -> Places:
        """The starts of the first frames, and the end of the last of them; int64, in bytes."""
        return self._buffer[: self._size]

    def bounds_of(self, record: int) -> tuple[int, int] | None:
        """Start and end of the frame of ``record``; None if they are not known."""
        if record + 1 >= self._size:
            return None
        return self._buffer.item(record), self._buffer.item(record + 1)

    def add(self, first: int, bounds: Places) -> None:
        """Add the bounds of sound frames from record ``first`` on: their starts, and the end of the last one."""
        new = self._size - 1 - first
        if 0 <= new < bounds.size - 1:
            self._append(bounds[new + 1 :])
            self.keep()

    def distrust(self) -> None:
        """Forget all starts, and the index: one of them is wrong, or its frame is damaged."""
        self._buffer, self._size, self._num_kept, self._is_loaded = np.zeros(1, np.int64), 1, 0, False
        if self._kept_for is not None:
            self._kept_for[0].forget(self._path, self._kept_for[1])

    def _append(self, starts: Places) -> None:
        if not starts.size:
            return
        size = self._size + starts.size
        if size > self._buffer.size:  # always so for a loaded index, which is read-only
            grown = np.empty(max(size, 2 * self._buffer.size), np.int64)
            grown[: self._size] = self._buffer[: self._size]
            self._buffer = grown
        self._buffer[self._size : size] = starts
        self._size = size

    def keep(self) -> None:
        """Write the index whenever the known part has doubled, and at the end of the file."""
        num_known = self._size - 1
        if self._kept_for is None or num_known <= self._num_kept:
            return
        is_long = num_known >= _MANY_RECORDS or self._buffer[num_known] >= _MANY_BYTES
        if (is_long and num_known >= 2 * self._num_kept) or self._buffer[num_known] == self._num_bytes:
            indexes, state = self._kept_for
            indexes.keep(self._path, state, self.known)
            self._num_kept = num_known


class WalkedPlaces(FramePlaces):
    """The starts of the frames of one mapped file, found as far as they were needed.

    They were checked by the checksums of all lengths before them, or come from an index of this file. A caller who
    finds a wrong start calls ``distrust_index`` and tries again.
    """

    def __init__(
        self,
        data: Octets,
        path: str,
        state: State | None,
        *,
        num_records: int | None,
        indexes: IndexFolder | None,
    ) -> None:
        may_be_kept = num_records is None or num_records >= _MANY_RECORDS or data.size >= _MANY_BYTES
        super().__init__(path, state, num_bytes=data.size, indexes=indexes if may_be_kept else None)
        self._data = data
        self._ended = False

    def up_to(self, stop: int, *, first: int) -> Places:
        """Return the starts of at least frames ``first`` to ``stop`` (included), or fewer if the file ends before.

        Frames before ``first`` are checked here if they are walked now; the caller checks the others.
        """
        while self._size <= stop and not self._ended:
            known = self._size - 1
            start = int(self._buffer[known])
            most = min(stop - known, _STEP)
            frames = walk_frames(self._data, start, limit=self._data.size, most=most)
            skipped = frames[: max(0, first - known) + 1]
            if skipped.size > 1:
                fault = find_fault(self._data, skipped[:-1], np.diff(skipped) - FRAMING_BYTES, verify="off")
                if fault is not None:
                    frames = frames[: fault.place + 1]
            self._ended = frames.size - 1 < most
            self._append(frames[1:])
        return self.known

    def distrust_index(self) -> bool:
        """Drop the index that was loaded; False if there was none, so that the file itself is at fault."""
        if not self._is_loaded:
            return False
        self.distrust()
        self._ended = False
        return True

    def end_at(self, record: int) -> None:
        """Drop the starts after ``record``: it is damaged, and they were found by its length."""
        self._size = min(self._size, record + 1)
        self._ended = False
