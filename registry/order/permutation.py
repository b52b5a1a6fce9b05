"""How are a billion records shuffled without a list of them? A keyed permutation of range(n), computed at any place.

A generalised Feistel network (J. Black and P. Rogaway, "Ciphers with Arbitrary Finite Domains", 2002) over a rectangle
that is hardly larger than n, with cycle walking for what falls outside. ``docs/order.md`` states the algorithm in full;
it is part of the format of a pin, so that not one of its numbers may change.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from registry.order.files import Files, Integers
from registry.order.philox import philox_words
from registry.order.pieces import Pieces

_ROUNDS: Final = 16
_FACTORS: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS: Final = (np.uint64(32), np.uint64(27))
_WORD: Final = 2**64 - 1
_BLOCK: Final = 8192
_FEW: Final = 8
"""Up to so many places, one by one is faster."""


class KeyedPermutation:
    """A permutation of 0..n (n < 2**62) that ``seed`` and ``epoch`` choose (both 0..2**64); a few numbers in memory.

    >>> KeyedPermutation(10, seed=1, epoch=0).at(np.arange(10)).tolist()
    [2, 9, 0, 4, 5, 8, 3, 6, 1, 7]
    """

    __slots__ = ("_keys", "_plain", "_sides", "_sizes", "n")

    def __init__(self, n: int, *, seed: int, epoch: int) -> None:
        self.n = n
        width = 2 * (isqrt(max(n, 1) - 1) // 2 + 1)
        sizes = width, -(-max(n, 1) // width)
        self._sides = tuple(map(np.uint64, sizes))
        # A random word divided by this is a number below the side; every number has as many words, but for the last.
        plain_sizes = tuple(-(-(2**64) // side) for side in sizes)
        self._sizes = tuple(np.uint64(size) if size <= _WORD else None for size in plain_sizes)
        words = philox_words(seed, epoch, 0, 2 * _ROUNDS).astype(np.uint64)
        self._keys = tuple(words[0::2] | words[1::2] << np.uint64(32))
        self._plain = sizes, plain_sizes, tuple(map(int, self._keys))

    def at(self, places: Integers) -> Integers:
        """What stands at ``places``, which are 0..n: int64 of the same shape (k,)."""
        if len(places) <= _FEW:
            return np.array([self._at(place) for place in places.tolist()], np.int64)
        numbers = places.astype(np.uint64)
        for start in range(0, len(numbers), _BLOCK):
            block = numbers[start : start + _BLOCK]  # small enough to stay in the processor's cache
            self._encipher(block)
            while len(outside := np.flatnonzero(block >= self.n)):
                again = block[outside]
                self._encipher(again)
                block[outside] = again
        return numbers.view(np.int64)

    def _at(self, place: int) -> int:
        """The same for one place, in Python's numbers: a few are not worth 16 rounds of array operations."""
        sides, sizes, keys = self._plain
        width = sides[0]
        while True:
            halves = [place % width, place // width]
            for turn, key in enumerate(keys):
                half = turn % 2
                word = (halves[1 - half] + key) & _WORD
                word = (word ^ word >> 32) * 0xBF58476D1CE4E5B9 & _WORD
                word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
                halves[half] = (halves[half] + word // sizes[half]) % sides[half]
            place = halves[1] * width + halves[0]
            if place < self.n:
                return place

    def _encipher(self, numbers: NDArray[np.uint64]) -> None:
        """Permute the rectangle: row and column by turns are moved on by what a hash makes of the other one."""
        width = self._sides[0]
        rows = numbers // width
        halves = [numbers - rows * width, rows]
        hashed, moved = np.empty_like(numbers), np.empty_like(numbers)
        for turn, key in enumerate(self._keys):
            half, size, side = halves[turn % 2], self._sizes[turn % 2], self._sides[turn % 2]
            if size is None:
                continue
            np.add(halves[1 - turn % 2], key, out=hashed)
            for shift, factor in zip(_SHIFTS, _FACTORS, strict=True):
                np.right_shift(hashed, shift, out=moved)
                hashed ^= moved
                hashed *= factor
            hashed //= size
            half += hashed
            # Below zero, unsigned numbers wrap around to large ones.
            np.subtract(half, side, out=moved)
            np.minimum(half, moved, out=half)
        np.multiply(halves[1], width, out=numbers)
        numbers += halves[0]


class GlobalShuffle:
    """All records of a plan in the order of a keyed permutation."""

    __slots__ = ("_files", "_permutation")

    def __init__(self, files: Files, *, seed: int, epoch: int) -> None:
        self._files = files
        self._permutation = KeyedPermutation(files.num_examples, seed=seed, epoch=epoch)

    def locate(self, positions: Integers) -> tuple[Integers, Integers]:
        """The files and records that stand at ``positions``."""
        return self._files.locate(self._permutation.at(positions))

    def pieces(self, start: int, stop: int) -> Iterator[Pieces]:
        """The records of the positions ``start``..``stop``, one by one."""
        for first in range(start, stop, _BLOCK):
            files, records = self.locate(np.arange(first, min(first + _BLOCK, stop)))
            yield files, records, np.ones_like(files)
