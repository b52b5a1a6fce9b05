"""What is read when files take turns? tf.data's interleave, found at any position without simulating what is before it.

The rule: there are ``cycle_length`` slots, visited in turn, round after round. A visit to an empty slot opens the next
file in it. A visit reads ``block_length`` records of the slot's file, or what is left of it; where that is less, also
where it is nothing, the slot becomes empty, and the next visit is the next slot's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from registry.order.files import Files, Integers
from registry.order.pieces import Pieces
from registry.order.turns import Turns

_FIRST_FILES: Final = 64
_VISITS: Final = 4096


class Interleave:
    """Files in turns: ``slots`` of them (at least 2, and no more than there are files), a block of records each time.

    ``file_order`` are the files in the order in which they are opened, or None for plan order. Files are looked at as
    far as positions are asked for, in portions that grow, so that all costs are O(files) in the end.
    """

    __slots__ = ("_block", "_file_order", "_files", "_slots", "_turns")

    def __init__(self, files: Files, file_order: Integers | None, *, slots: int, block_length: int) -> None:
        self._files = files
        self._file_order = file_order
        self._slots = slots
        self._block = block_length
        self._turns = Turns(slots=slots, block_length=block_length)

    def locate(self, positions: Integers) -> tuple[Integers, Integers]:
        """The files and records that stand at ``positions``."""
        turns = self._turns_until(int(positions.max(initial=0)))
        visits, offsets = turns.visits_of(positions)
        places, rounds = turns.places_of(visits)
        files = self._files_at(places)
        return files, self._files.skips_of(files) + rounds * self._block + offsets

    def pieces(self, start: int, stop: int) -> Iterator[Pieces]:
        """The records of the positions ``start``..``stop``, a piece for each visit."""
        while start < stop:
            end = min(stop, start + _VISITS * self._block)
            turns = self._turns_until(end - 1)
            (first, last), (skipped, _) = (found.tolist() for found in turns.visits_of(np.array([start, end - 1])))
            if first >= turns.alone:
                end, last = stop, first  # one file is left: however long it is, it is one piece
            places, rounds = turns.places_of(np.arange(first, last + 1))
            begins = rounds * self._block
            counts = (turns.takes[places] - begins).clip(0, self._block)
            begins[0] += skipped
            counts[0] -= skipped
            counts[-1] += end - start - int(counts.sum())
            files = self._files_at(places)
            yield files, self._files.skips_of(files) + begins, counts
            start = end

    def _files_at(self, places: Integers) -> Integers:
        return places if self._file_order is None else self._file_order[places]

    def _turns_until(self, position: int) -> Turns:
        """The turns as far as ``position`` at least."""
        turns = self._turns
        while position >= turns.known:
            # As many files again as are open already. What is known is replaced, not changed: threads may share it.
            first = len(turns.takes)
            stop = min(max(2 * first, _FIRST_FILES, 4 * self._slots), self._files.count)
            if self._file_order is None:
                more = self._files.takes(first, stop)
            else:
                more = self._files.takes_of(self._file_order[first:stop])
            self._turns = turns = turns.with_files(more, is_all=stop == self._files.count)
        return turns
