"""tf.data's interleave: the record at any position, without simulating what comes before it.

The rule: ``cycle_length`` slots are visited in turn, round after round. A visit to an empty slot opens the next file
in it. A visit reads ``block_length`` records of the slot's file. If fewer are left, it reads these (maybe 0), the slot
becomes empty, and the next slot is visited.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from heapq import heapreplace
from typing import Final

import numpy as np

from registry.order.files import Files, Integers, Pieces, starts_of

_FIRST_FILES: Final = 64
_VISITS: Final = 4096


class Interleave:
    """Reads files in turns, a block of records each time: ``slots`` files at once, from 2 to the number of files.

    ``file_order`` lists the files in the order in which they are opened; None is plan order. File lengths are loaded
    only as far as the requested positions need, in growing portions, so the total cost is O(files).
    """

    __slots__ = ("_block", "_file_order", "_files", "_slots", "_turns")

    def __init__(self, files: Files, file_order: Integers | None, *, slots: int, block_length: int) -> None:
        self._files = files
        self._file_order = file_order
        self._slots = slots
        self._block = block_length
        self._turns = Turns(slots=slots, block_length=block_length)

    def locate(self, positions: Integers) -> tuple[Integers, Integers]:
        """The files and records at ``positions``."""
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
                end, last = stop, first  # one file is left, and the rest of it is one piece
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
        """The turns up to ``position`` or further."""
        turns = self._turns
        while position >= turns.known:
            # Doubles the number of known files. The turns are replaced, not changed, because threads may share them.
            first = len(turns.takes)
            stop = min(max(2 * first, _FIRST_FILES, 4 * self._slots), self._files.count)
            if self._file_order is None:
                more = self._files.takes(first, stop)
            else:
                more = self._files.takes_of(self._file_order[first:stop])
            self._turns = turns = turns.with_files(more, is_all=stop == self._files.count)
        return turns


class Turns:
    """The turns of the files opened so far, in the order of opening; ``takes`` is the number of records of each.

    A file of L records stays in its slot for L // block_length + 1 rounds in a row, and the next file goes to the slot
    that becomes free first. Visits are numbered in order; visits to slots that stay empty do not count. Only the last
    visit to a file reads less than a whole block. So visit ``v`` starts at position ``v * block_length`` minus the
    records that earlier last visits lacked: one number for each file, a search among them, and arithmetic.

    Attributes:
        takes: number of records of each file, int64.
        known: the end of the known positions; later ones depend on files that are not opened yet.
        alone: the first visit at which a single file is left, or a number after the last visit.
    """

    __slots__ = (
        "_active_slots", "_alive", "_block", "_by_slot", "_free", "_full", "_keys", "_lacks", "_moments", "_num_rounds",
        "_opened", "_rounds", "_short_ends", "_slots", "_starts", "alone", "known", "takes",
    )  # fmt: skip

    def __init__(self, *, slots: int, block_length: int) -> None:
        """Turns without files, for ``slots`` slots (at least 2) and blocks of ``block_length`` records."""
        self._slots = slots
        self._block = block_length
        # A moment is ``round * slots + slot``. The heap holds the moments at which slots become free.
        self._free = list(range(slots))
        self._moments = array("q")
        self.takes = np.empty(0, dtype=np.int64)
        self.known = 0
        self.alone = 0

    def with_files(self, takes: Integers, *, is_all: bool) -> Turns:
        """The turns with more files, which have ``takes`` records. ``is_all`` means that no files follow them."""
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
        """The visits that read ``positions``, and the number of records that each visit reads before."""
        lacked = self._lacks[np.searchsorted(self._short_ends, positions, side="right")]
        visits, offsets = np.divmod(positions + lacked, self._block)
        return visits, offsets

    def places_of(self, visits: Integers) -> tuple[Integers, Integers]:
        """The files of visits, as places in the order of opening, and the number of earlier visits to each file."""
        rounds, slots = np.divmod(visits, self._slots)
        is_late = visits >= self._full
        if is_late.any():
            late = visits[is_late]
            stretch = np.searchsorted(self._starts, late, side="right") - 1
            alive = self._alive[stretch]
            since, k = np.divmod(late - self._starts[stretch], alive)
            rounds[is_late] = self._rounds[stretch] + since
            slots[is_late] = self._active_slots.kth(alive, k)
        keys = slots * self._num_rounds + np.minimum(rounds, self._num_rounds - 1)
        places = self._by_slot[np.searchsorted(self._keys, keys, side="right") - 1]
        return places, rounds - self._opened[places]

    def _number(self, *, is_all: bool) -> None:
        """Number the visits, and find the positions after visits that read less than a block."""
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
            # As long as files are left, every slot is visited in every round, so a visit has the number of its moment.
            self._full = self._free[0]
            self.alone = self._full + 1
            last, lacks = last[last < self._full], lacks[last < self._full]
        in_order = np.argsort(last)
        self._lacks = starts_of(lacks[in_order])
        self._short_ends = self._block * (last[in_order] + 1) - self._lacks[1:]
        self.known = int(self.takes.sum()) if is_all else self._block * self._full - int(self._lacks[-1])

    def _wind_down(self, slots: Integers, last: Integers) -> Integers:
        """Number the visits after the last file is opened, when slots become empty for ever one after the other.

        ``last`` has the moments of the last visits to files. Returns the numbers of these visits.
        """
        final = self._by_slot[np.flatnonzero(np.diff(slots[self._by_slot], append=-1))]  # the last file of each slot
        ends = last[final] // self._slots
        # Up to the round ``full`` every slot has a file. In the next round a slot finds no file to open. No file is
        # opened after that, and only the set of active slots changes.
        full = int(ends.min())
        self._full = (full + 1) * self._slots
        active_slots = np.flatnonzero(ends > full)
        active_slots = active_slots[np.argsort(-ends[active_slots], kind="stable")]
        falling = ends[active_slots]
        # Stretches of rounds with the same active slots: the first round of each, and the number of slots.
        closing = np.unique(falling)
        self._rounds = np.concatenate(([full], closing)) + 1
        self._alive = np.searchsorted(-falling, -closing, side="right")
        self._starts = self._full + starts_of(self._alive * np.diff(self._rounds))
        self._active_slots = ActiveSlots(active_slots)
        is_alone = len(self._alive) > 0 and self._alive[-1] == 1
        self.alone = int(self._starts[-2]) if is_alone else int(self._starts[-1]) + 1
        stretch = np.searchsorted(closing, falling)
        alive = self._alive[stretch]
        visits = last.copy()
        visits[final[active_slots]] = self._starts[stretch + 1] - alive + self._active_slots.rank(alive, active_slots)
        return visits


class ActiveSlots:
    """Slots that become empty one after the other. It finds the k-th of the slots that are still active.

    ``members`` are distinct numbers from 0; the slot that stays active longest is first. The active slots are always a
    prefix of it. A wavelet matrix (F. Claude, G. Navarro, "The wavelet matrix", 2012) finds the k-th smallest number
    of a prefix in one step for each bit of a number. Memory is O(n log n) bits, rounded up to words.

    >>> active_slots = ActiveSlots(np.array([4, 0, 3, 1]))
    >>> active_slots.kth(np.array([3, 3, 3, 2]), np.array([0, 1, 2, 1])).tolist()
    [0, 3, 4, 4]
    >>> active_slots.rank(np.array([3, 2]), np.array([4, 4])).tolist()
    [2, 1]
    """

    __slots__ = ("_levels",)

    def __init__(self, members: Integers) -> None:
        self._levels: list[tuple[int, Integers]] = []
        for bit in reversed(range(int(members.max(initial=0)).bit_length())):
            is_one = (members >> bit & 1).astype(bool)
            # The number of members before each place without this bit. At the next level these members come first.
            self._levels.append((bit, np.concatenate(([0], np.cumsum(~is_one)))))
            members = np.concatenate((members[~is_one], members[is_one]))

    def kth(self, alive: Integers, k: Integers) -> Integers:
        """The k-th smallest (0 <= k < alive) of the first ``alive`` members: int64 of the same shape."""
        start, stop, members = np.zeros_like(alive), alive, np.zeros_like(alive)
        for bit, zeros in self._levels:
            left, right = zeros[start], zeros[stop]
            is_one = k >= right - left
            k = np.where(is_one, k - right + left, k)
            start = np.where(is_one, zeros[-1] + start - left, left)
            stop = np.where(is_one, zeros[-1] + stop - right, right)
            members |= is_one.astype(np.int64) << bit
        return members

    def rank(self, alive: Integers, member: Integers) -> Integers:
        """The number of the first ``alive`` members that are smaller than ``member``: int64 of the same shape."""
        start, stop, smaller = np.zeros_like(alive), alive, np.zeros_like(alive)
        for bit, zeros in self._levels:
            left, right = zeros[start], zeros[stop]
            is_one = (member >> bit & 1).astype(bool)
            smaller += np.where(is_one, right - left, 0)
            start = np.where(is_one, zeros[-1] + start - left, left)
            stop = np.where(is_one, zeros[-1] + stop - right, right)
        return smaller
