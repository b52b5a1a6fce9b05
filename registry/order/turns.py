"""Whose turn is it? The visits of an interleave, numbered: where each begins, and which file it reads.

A file of L records stays in its slot for L // block_length + 1 rounds in a row, and the next file goes to the slot that
is free first. Visits are numbered in order, leaving out those to slots that stay empty for ever. Visit ``v`` begins at
position ``v * block_length`` minus what earlier visits lacked, and only the last visit to a file lacks anything. That
is one number for each file, a search among them, and arithmetic.
"""

from __future__ import annotations

from array import array
from heapq import heapreplace

import numpy as np

from registry.order.files import Integers, starts_of
from registry.order.survivors import Survivors


class Turns:
    """The turns of the files opened so far, in the order of opening; ``takes`` says how many records each of them has.

    Attributes:
        takes: number of records of each file, int64.
        known: the position up to which all is known; later ones depend on files that are not opened yet.
        alone: the visit from which on a single file is left, or one that never comes.
    """

    __slots__ = (
        "_alive", "_block", "_by_slot", "_free", "_full", "_keys", "_lacks", "_moments", "_num_rounds", "_opened",
        "_rounds", "_short_ends", "_slots", "_starts", "_survivors", "alone", "known", "takes",
    )  # fmt: skip

    def __init__(self, *, slots: int, block_length: int) -> None:
        """No file yet, for ``slots`` slots (at least 2) and blocks of ``block_length`` records."""
        self._slots = slots
        self._block = block_length
        # A moment is ``round * slots + slot``. The heap holds the moments from which on slots are free.
        self._free = list(range(slots))
        self._moments = array("q")
        self.takes = np.empty(0, dtype=np.int64)
        self.known = 0
        self.alone = 0

    def with_files(self, takes: Integers, *, is_all: bool) -> Turns:
        """The turns of these files and of more, which have ``takes`` records; ``is_all``: no others will follow."""
        turns = Turns(slots=self._slots, block_length=self._block)
        free, moments = self._free.copy(), self._moments[:]
        for stay in ((takes // self._block + 1) * self._slots).tolist():
            moments.append(free[0])
            heapreplace(free, free[0] + stay)
        turns._free, turns._moments = free, moments
        turns.takes = np.concatenate((self.takes, takes))
        turns._number(is_all=is_all)
        return turns

    def visits_of(self, positions: Integers) -> tuple[Integers, Integers]:
        """The visits that read ``positions``, and how many records they read before."""
        lacked = self._lacks[np.searchsorted(self._short_ends, positions, side="right")]
        visits, offsets = np.divmod(positions + lacked, self._block)
        return visits, offsets

    def places_of(self, visits: Integers) -> tuple[Integers, Integers]:
        """The files of visits, by their place in the order of opening, and how many visits they had before."""
        rounds, slots = np.divmod(visits, self._slots)
        is_late = visits >= self._full
        if is_late.any():
            late = visits[is_late]
            stretch = np.searchsorted(self._starts, late, side="right") - 1
            alive = self._alive[stretch]
            since, k = np.divmod(late - self._starts[stretch], alive)
            rounds[is_late] = self._rounds[stretch] + since
            slots[is_late] = self._survivors.kth(alive, k)
        keys = slots * self._num_rounds + np.minimum(rounds, self._num_rounds - 1)
        places = self._by_slot[np.searchsorted(self._keys, keys, side="right") - 1]
        return places, rounds - self._opened[places]

    def _number(self, *, is_all: bool) -> None:
        """Number the visits, and find where those begin that come after one that lacked something."""
        moments = np.array(self._moments, dtype=np.int64)
        self._opened, slots = np.divmod(moments, self._slots)
        # The files of each slot, in the order in which they were opened there.
        self._by_slot = np.lexsort((moments, slots))
        self._num_rounds = int(self._opened[-1]) + 1
        self._keys = (slots * self._num_rounds + self._opened)[self._by_slot]
        last = moments + self.takes // self._block * self._slots
        lacks = self._block - self.takes % self._block
        if is_all:
            last = self._wind_down(slots, last)
        else:
            # As long as files are left no slot is left out, so that visits are moments.
            self._full = self._free[0]
            self.alone = self._full + 1
            last, lacks = last[last < self._full], lacks[last < self._full]
        in_order = np.argsort(last)
        self._lacks = starts_of(lacks[in_order])
        self._short_ends = self._block * (last[in_order] + 1) - self._lacks[1:]
        self.known = int(self.takes.sum()) if is_all else self._block * self._full - int(self._lacks[-1])

    def _wind_down(self, slots: Integers, last: Integers) -> Integers:
        """What happens when no file is left to open: slots stay empty, one after the other.

        ``last`` are the moments of the last visits to files; what is returned are the numbers of these visits.
        """
        final = self._by_slot[np.flatnonzero(np.diff(slots[self._by_slot], append=-1))]  # the last file of each slot
        ends = last[final] // self._slots
        # Up to the round ``full`` every slot has a file. In the next one a slot finds none to open, so that none is
        # opened after that, and all that changes is which slots are left.
        full = int(ends.min())
        self._full = (full + 1) * self._slots
        survivors = np.flatnonzero(ends > full)
        survivors = survivors[np.argsort(-ends[survivors], kind="stable")]
        falling = ends[survivors]
        # Stretches of rounds in which the same slots are left: the first round of each, and the number of slots.
        closing = np.unique(falling)
        self._rounds = np.concatenate(([full], closing)) + 1
        self._alive = np.searchsorted(-falling, -closing, side="right")
        self._starts = self._full + starts_of(self._alive * np.diff(self._rounds))
        self._survivors = Survivors(survivors)
        is_alone = len(self._alive) > 0 and self._alive[-1] == 1
        self.alone = int(self._starts[-2]) if is_alone else int(self._starts[-1]) + 1
        stretch = np.searchsorted(closing, falling)
        alive = self._alive[stretch]
        visits = last.copy()
        visits[final[survivors]] = self._starts[stretch + 1] - alive + self._survivors.rank(alive, survivors)
        return visits
