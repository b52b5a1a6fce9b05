"""Seeded permutations: tf.data's shuffle of files, bit for bit, and a shuffle of all records without a list of them.

All random numbers come from Philox 4x32-10 (J. K. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011):
ten rounds of two multiplications turn a counter of four words into four random words, so word ``n`` costs the same for
every ``n``, and there is no state. The rules of the file shuffle were derived by comparison with TensorFlow 2.21;
the vectors in ``tests/conformance/order`` check them.

The shuffle of records is a generalised Feistel network (J. Black and P. Rogaway, "Ciphers with Arbitrary Finite
Domains", 2002) over a rectangle slightly larger than n; results outside of n are enciphered again. ``docs/order.md``
specifies it. It is part of the pin format: its constants must not change.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from math import isqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from registry.order.files import Files, Integers, Pieces

_MULTIPLIERS: Final = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS: Final = (0x9E3779B9, 0xBB67AE85)
_PHILOX_ROUNDS: Final = 10
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


def philox_words(seed1: int, seed2: int, first: int, count: int) -> NDArray[np.uint32]:
    """Words ``first``..``first + count`` of the random stream of two seeds, uint32 of shape (count,).

    As in TensorFlow, ``seed1`` is the key and ``seed2`` the upper half of the counter, both modulo 2**64; the lower
    half counts blocks of four words from 0.

    >>> [f"{word:08x}" for word in philox_words(0, 0, 0, 4)]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    skipped = first % 4
    blocks = np.arange(first // 4, -(-(first + count) // 4), dtype=np.uint64)
    key = [seed1 & 0xFFFFFFFF, seed1 >> 32 & 0xFFFFFFFF]
    a, b = blocks & _LOW, blocks >> _HALF
    c, d = (np.full_like(blocks, seed2 >> shift & 0xFFFFFFFF) for shift in (0, 32))
    for _ in range(_PHILOX_ROUNDS):
        left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b = right >> _HALF ^ b ^ np.uint64(key[0]), right & _LOW
        c, d = left >> _HALF ^ d ^ np.uint64(key[1]), left & _LOW
        key = [(word + step) & 0xFFFFFFFF for word, step in zip(key, _KEY_STEPS, strict=True)]
    words: NDArray[np.uint32] = np.stack((a, b, c, d), axis=1).astype(np.uint32).reshape(-1)
    return words[skipped : skipped + count]


_LARGEST: Final = 2**31 - 1
_DEFAULT_GRAPH_SEED: Final = 87654321


def shuffle_permutation(
    n: int,
    *,
    seed: int | None,
    reshuffle_each_iteration: bool = True,
    epoch: int = 0,
    global_seed: int | None = None,
    op_seed_index: int = 0,
) -> NDArray[np.int64]:
    """``Dataset.range(n).shuffle(n, seed, reshuffle_each_iteration)`` in its iteration ``epoch``, int64 of shape (n,).

    Args:
        n: number of items; the buffer holds them all.
        seed: the seed of the shuffle; None derives it from ``global_seed``.
        reshuffle_each_iteration: whether every iteration has an order of its own.
        epoch: the number of the iteration, from 0. All cost the same.
        global_seed: the argument of ``tf.random.set_seed``, or None if it was not called.
        op_seed_index: the number of operations that derived a seed from the global one before; ignored with ``seed``.

    >>> shuffle_permutation(7, seed=42).tolist()
    [5, 6, 3, 2, 4, 0, 1]
    """
    graph_seed, op_seed = _seed_pair(seed, global_seed, op_seed_index)
    if reshuffle_each_iteration:
        # A separate generator draws two words for every iteration.
        graph_seed, op_seed = philox_words(graph_seed, op_seed, 2 * epoch, 2).tolist()
    # The item at ``place`` is swapped with one of the ``n - place`` items from there on.
    left = np.arange(n, 0, -1, dtype=np.int64)
    partners = philox_words(graph_seed, op_seed, 0, n) % left + np.arange(n)
    items = array("q", range(n))  # 8 bytes per item; a list would need 36
    for place, partner in enumerate(array("q", partners.tobytes())):
        items[place], items[partner] = items[partner], items[place]
    return np.array(items, dtype=np.int64)


def _seed_pair(seed: int | None, global_seed: int | None, op_seed_index: int) -> tuple[int, int]:
    """The graph seed and the seed of the operation, as TensorFlow derives them."""
    if global_seed is None:
        assert seed is not None, "ReadConfig refuses a shuffle without any seed"  # noqa: S101 (checked by ReadConfig)
        return _DEFAULT_GRAPH_SEED, seed % _LARGEST
    if seed is None:
        drawn = random.Random(global_seed)  # noqa: S311 (TensorFlow draws them so)
        for _ in range(op_seed_index):
            drawn.randint(0, _LARGEST)
        seed = drawn.randint(0, _LARGEST)
    pair = global_seed % _LARGEST, seed % _LARGEST
    return pair if pair != (0, 0) else (0, _LARGEST)


_ROUNDS: Final = 16
_FACTORS: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS: Final = (np.uint64(32), np.uint64(27))
_WORD: Final = 2**64 - 1
_BLOCK: Final = 8192
_MIN_VECTORIZED: Final = 9
"""Fewer places than this are faster one by one."""


class KeyedPermutation:
    """A permutation of 0..n (n < 2**62) chosen by ``seed`` and ``epoch`` (both 0..2**64). It stores a few numbers.

    >>> KeyedPermutation(10, seed=1, epoch=0).at(np.arange(10)).tolist()
    [2, 9, 0, 4, 5, 8, 3, 6, 1, 7]
    """

    __slots__ = ("_keys", "_plain", "_sides", "_sizes", "n")

    def __init__(self, n: int, *, seed: int, epoch: int) -> None:
        self.n = n
        width = 2 * (isqrt(max(n, 1) - 1) // 2 + 1)
        sizes = width, -(-max(n, 1) // width)
        self._sides = tuple(map(np.uint64, sizes))
        # A random word divided by this is a number below the side, uniform except for the last number.
        plain_sizes = tuple(-(-(2**64) // side) for side in sizes)
        self._sizes = tuple(np.uint64(size) if size <= _WORD else None for size in plain_sizes)
        words = philox_words(seed, epoch, 0, 2 * _ROUNDS).astype(np.uint64)
        self._keys = tuple(words[0::2] | words[1::2] << np.uint64(32))
        self._plain = sizes, plain_sizes, tuple(map(int, self._keys))

    def at(self, places: Integers) -> Integers:
        """The members at ``places`` (0..n): int64 of the same shape (k,)."""
        if len(places) < _MIN_VECTORIZED:
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
        """The same for one place, in Python's numbers: for a few places, 16 rounds of array operations are slower."""
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
        """Permute the rectangle in place: in turns, row and column are shifted by a hash of the other."""
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
            # Unsigned numbers below zero wrap around to large ones, so the minimum is the remainder.
            np.subtract(half, side, out=moved)
            np.minimum(half, moved, out=half)
        np.multiply(halves[1], width, out=numbers)
        numbers += halves[0]


class GlobalShuffle:
    """Reads all records of a plan in the order of a keyed permutation."""

    __slots__ = ("_files", "_permutation")

    def __init__(self, files: Files, *, seed: int, epoch: int) -> None:
        self._files = files
        self._permutation = KeyedPermutation(files.num_examples, seed=seed, epoch=epoch)

    def locate(self, positions: Integers) -> tuple[Integers, Integers]:
        """The files and records at ``positions``."""
        return self._files.locate(self._permutation.at(positions))

    def pieces(self, start: int, stop: int) -> Iterator[Pieces]:
        """The records of the positions ``start``..``stop``, one by one."""
        for first in range(start, stop, _BLOCK):
            files, records = self.locate(np.arange(first, min(first + _BLOCK, stop)))
            yield files, records, np.ones_like(files)
