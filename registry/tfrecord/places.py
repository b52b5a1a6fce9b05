"""Where does each record of a mapped file begin? What is known of it: an index that was kept, or what was walked."""

from __future__ import annotations

import os
from typing import Final

import numpy as np

from registry.tfrecord.block import Octets, Places
from registry.tfrecord.checking import find_fault
from registry.tfrecord.faults import FRAMING_BYTES
from registry.tfrecord.index import IndexFolder, KeptIndex
from registry.tfrecord.walking import walk_frames

_STEP: Final = 2**16
"""So many frames are walked, then proved, at a time."""

_MANY_RECORDS: Final = 4096
_MANY_BYTES: Final = 2**23
"""Fewer records, in fewer bytes, are walked in less time than a file takes to write."""


class FramePlaces:
    """The starts of the frames of one file, and the end of the last of them, as far as somebody asked.

    All that is handed out was proved by the checksums of the lengths on the way there, or comes from an index that this
    user made of this very file. Whoever finds that it does not fit calls ``distrust`` and asks again.
    """

    def __init__(
        self,
        data: Octets,
        path: str,
        facts: os.stat_result,
        *,
        num_records: int | None,
        indexes: IndexFolder | None,
    ) -> None:
        self._data = data
        self._path = path
        self._facts = facts
        may_be_kept = num_records is None or num_records >= _MANY_RECORDS or data.size >= _MANY_BYTES
        self._indexes = indexes if may_be_kept else None
        self._kept: KeptIndex | None = None if self._indexes is None else self._indexes.load(path, facts)
        self._buffer: Places = np.zeros(1, np.int64)  # of which the first `_size` count
        self._size = 1
        self._num_kept = 0
        self._is_own = True
        self._ended = False

    def up_to(self, first: int, stop: int) -> Places:
        """At least the starts of frames ``first`` to ``stop`` (included); fewer where the file has no more."""
        if self._kept is not None:
            if stop < self._kept.num_starts and self._kept.check(first, stop):
                return self._kept.starts
            self._take_over()
        return self._walk(first, stop)

    def of(self, records: Places, stop: int) -> Places:
        """At least the starts of the frames of ``records`` and of those after them, all below ``stop``."""
        if self._kept is not None:
            if stop < self._kept.num_starts and self._kept.check_records(records):
                return self._kept.starts
            self._take_over()
        return self._walk(stop, stop)

    def distrust(self) -> bool:
        """Forget an index that was kept; False where there was none, and the file itself is at fault."""
        if self._is_own and self._kept is None:
            return False
        self._kept = None
        self._buffer, self._size, self._is_own, self._ended = np.zeros(1, np.int64), 1, True, False
        if self._indexes is not None:
            self._indexes.forget(self._path)
        return True

    def end_at(self, record: int) -> None:
        """Forget what follows the start of ``record``, which is damaged: it was found with its help."""
        self._size = min(self._size, record + 1)
        self._ended = False

    def keep(self) -> None:
        """Keep what was walked, if it is worth it: each time that it doubled, and when the end was reached."""
        num_known = self._size - 1
        if self._indexes is None or self._kept is not None or num_known <= self._num_kept:
            return
        if num_known < _MANY_RECORDS and self._buffer[num_known] < _MANY_BYTES:
            return
        if num_known >= 2 * self._num_kept or self._buffer[num_known] == self._data.size:
            self._indexes.keep(self._path, self._facts, self._buffer[: self._size])
            self._num_kept = num_known

    def _take_over(self) -> None:
        """Go on from the end of an index that was kept, or from the beginning where it is damaged."""
        kept = self._kept
        if kept is not None and kept.check(0, kept.num_starts - 1):
            self._buffer, self._size, self._is_own = np.array(kept.starts), kept.num_starts, False
            self._num_kept, self._kept = kept.num_starts - 1, None
        else:
            self.distrust()

    def _walk(self, first: int, stop: int) -> Places:
        """Walk on until frame ``stop`` begins; what lies before frame ``first`` is proved, the rest is the caller's."""
        while self._size <= stop and not self._ended:
            known = self._size - 1
            start = int(self._buffer[known])
            most = min(stop - known, _STEP)
            found = walk_frames(self._data, start, limit=self._data.size, most=most)
            skipped = found[: max(0, first - known) + 1]
            if skipped.size > 1:
                fault = find_fault(self._data, skipped[:-1], np.diff(skipped) - FRAMING_BYTES, verify="off")
                if fault is not None:
                    found = found[: fault.place + 1]
            self._ended = found.size - 1 < most
            self._append(found[1:])
        return self._buffer[: self._size]

    def _append(self, starts: Places) -> None:
        size = self._size + starts.size
        if size > self._buffer.size:
            grown = np.empty(max(size, 2 * self._buffer.size), np.int64)
            grown[: self._size] = self._buffer[: self._size]
            self._buffer = grown
        self._buffer[self._size : size] = starts
        self._size = size
