"""Which is the k-th of those that are still there? Members leave one after the other, and keep their numbers.

A wavelet matrix (F. Claude, G. Navarro, "The wavelet matrix", 2012) over the members, the last to leave first: those
still there are then a prefix, and the k-th smallest number of a prefix is found by one step for each bit of a number.
"""

from __future__ import annotations

import numpy as np

from registry.order.files import Integers


class Survivors:
    """``members`` are distinct numbers from 0, the last to leave first; memory is O(n log n) bits, rounded up to words.

    >>> survivors = Survivors(np.array([4, 0, 3, 1]))
    >>> survivors.kth(np.array([3, 3, 3, 2]), np.array([0, 1, 2, 1])).tolist()
    [0, 3, 4, 4]
    >>> survivors.rank(np.array([3, 2]), np.array([4, 4])).tolist()
    [2, 1]
    """

    __slots__ = ("_levels",)

    def __init__(self, members: Integers) -> None:
        self._levels: list[tuple[int, Integers]] = []
        for bit in reversed(range(int(members.max(initial=0)).bit_length())):
            is_one = (members >> bit & 1).astype(bool)
            # How many of the members before a place have no such bit; all that have none come first at the next level.
            self._levels.append((bit, np.concatenate(([0], np.cumsum(~is_one)))))
            members = np.concatenate((members[~is_one], members[is_one]))

    def kth(self, alive: Integers, k: Integers) -> Integers:
        """When ``alive`` members are left, the one with ``k`` smaller ones (0 <= k < alive): int64 of their shape."""
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
        """When ``alive`` members are left, how many of them are smaller than ``member``: int64 of their shape."""
        start, stop, smaller = np.zeros_like(alive), alive, np.zeros_like(alive)
        for bit, zeros in self._levels:
            left, right = zeros[start], zeros[stop]
            is_one = (member >> bit & 1).astype(bool)
            smaller += np.where(is_one, right - left, 0)
            start = np.where(is_one, zeros[-1] + start - left, left)
            stop = np.where(is_one, zeros[-1] + stop - right, right)
        return smaller
