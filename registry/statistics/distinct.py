"""Estimates how many distinct values there are: HyperLogLog over hashes that are the same on every machine.

    values -> 64-bit hashes -> registers (merged by their maximum) -> estimate

Sources: Flajolet et al., HyperLogLog (2007); Ertl, New cardinality estimation algorithms for HyperLogLog sketches
(2017, algorithm 6), whose estimator has no bias at any number of values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

_BITS: Final = 12
_REST: Final = 64 - _BITS
_LOG_2: Final = 0.6931471805599453  # its last bit may differ between machines

_LAST_FACTOR: Final = 0x94D049BB133111EB
_LAST_SHIFT: Final = 31

HASHES_PER_STEP: Final = 2**14
"""The number of hashes per step, whose arrays take memory that was used before: new pages cost more than the work."""

_FACTORS: Final = np.uint64(0x9E3779B97F4A7C15) ** np.arange(1, 11, dtype=np.uint64)

ERROR: Final = 0.01625
"""The relative standard error of an estimate: 1.04 / sqrt(4096)."""


def hash_numbers(values: npt.NDArray[Any]) -> Hashes:
    """Mix the bits of numbers of 64 bits (the finalizer of splitmix64)."""
    return _end_hashes(_begin_hashes(values)[0])


def equal_places(*hashes: Hashes) -> npt.NDArray[np.int32]:
    """Return for each place of the arrays a place with equal hashes, which is the same for all that are equal.

    Each hash writes its place into a table. Those that read another place are equal to it, or go to the next table.
    Sorting would take five times as long.

    >>> equal_places(np.array([7, 8, 7], np.uint64)).tolist()
    [2, 1, 2]
    """
    size = hashes[0].size
    result, left, first = np.arange(size, dtype=np.int32), np.arange(size, dtype=np.int32), hashes[0]
    for factor in _FACTORS:
        shift = np.uint64(63 - left.size.bit_length())
        table = np.empty(2 ** (64 - int(shift)), np.int32)
        parts = [slice(start, start + HASHES_PER_STEP) for start in range(0, left.size, HASHES_PER_STEP)]
        for part in parts:
            table[(first[part] * factor >> shift).view(np.int64)] = left[part]
        rest = [left[:0]]
        for part in parts:
            here = left[part]
            places = table.take((first[part] * factor >> shift).view(np.int64), mode="clip")
            others = np.flatnonzero(places != here)
            if 2 * others.size < here.size:
                places, here = places[others], here[others]
            is_equal = hashes[0][places] == hashes[0][here]
            if is_equal.any():
                for column in hashes[1:]:
                    is_equal &= column[places] == column[here]
                result[here] = np.where(is_equal, places, here)
                here = here[np.flatnonzero(~is_equal)]
            rest.append(here)
        left = np.concatenate(rest)
        if not left.size:
            return result
        first = hashes[0][left]
    if left.size:  # hashes that have been chosen to collide
        columns = np.stack([column[left] for column in hashes])
        _, firsts, groups = np.unique(columns, axis=1, return_index=True, return_inverse=True)
        result[left] = left[firsts[groups]]
    return result


def crowded_places(parts: Sequence[Hashes], *, is_mixed: bool) -> list[npt.NDArray[np.int64]] | None:
    """Return the places in each part of the hashes that may be equal to others, or None if many of the first part are.

    A hash that is alone in its slot of a table equals no other. The table has a byte for each slot: writing places, as
    ``equal_places`` does, takes twice the time if few hashes are equal. ``is_mixed`` chooses other slots.

    >>> crowded_places([np.array([7, 8 << 60], np.uint64), np.array([9 << 60, 7], np.uint64)], is_mixed=False)
    [array([0]), array([1])]
    """
    shift = np.uint64(61 - sum(part.size for part in parts).bit_length())

    def slots(part: Hashes) -> npt.NDArray[np.int64]:
        places: npt.NDArray[np.int64] = ((part * _FACTORS[0] if is_mixed else part) >> shift).view(np.int64)
        return places

    table = np.ones(2 ** (64 - int(shift)), np.uint8)
    for place, part in enumerate(parts):
        np.multiply.at(table, slots(part), np.uint8(16))  # results in 16 for one hash, and in 0 for several
        if place in (0, len(parts) - 1):  # of its own hashes, or of all
            alone = np.count_nonzero(table.take(slots(parts[0]), mode="clip"))
            if 2 * alone < parts[0].size:
                return None
    return [np.flatnonzero(table.take(slots(part), mode="clip") == 0) for part in parts]


def _begin_hashes(values: npt.NDArray[Any]) -> tuple[Hashes, Hashes]:
    """Return the hashes before the last multiplication, and an array of their size for other use."""
    hashes = values.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    shifted = hashes >> np.uint64(30)
    hashes ^= shifted
    hashes *= np.uint64(0xBF58476D1CE4E5B9)
    hashes ^= np.right_shift(hashes, np.uint64(27), out=shifted)
    return hashes, shifted


def _end_hashes(hashes: Hashes) -> Hashes:
    hashes *= np.uint64(_LAST_FACTOR)
    hashes ^= hashes >> np.uint64(_LAST_SHIFT)
    return hashes


class Registers:
    """The state of an estimate: the maximum number of trailing zeros, plus one, in each of 4,096 groups of hashes."""

    def __init__(self) -> None:
        self.ranks = np.zeros(2**_BITS, np.uint8)

    def add(self, hashes: Hashes) -> None:
        """Add the hashes of values."""
        bits = hashes | np.uint64(2**_REST)
        bits ^= bits - np.uint64(1)  # the lowest bit that is 1, and all bits below it
        np.maximum.at(self.ranks, (hashes >> np.uint64(_REST)).view(np.int64), np.bitwise_count(bits))

    def add_numbers(self, values: npt.NDArray[Any]) -> None:
        """Add ``hash_numbers`` of values, without those that raise no register."""
        hashes, products = _begin_hashes(values)
        if lowest := min(_LAST_SHIFT, int(self.ranks.min())):
            # A hash raises a register only if it has as many trailing zeros as the lowest register: if these bits of
            # the product are those that the last shift moves there. Then their difference, moved to the leading bits,
            # is 0. A multiplication moves and subtracts.
            factor = _LAST_FACTOR * (2 ** (64 - _LAST_SHIFT - lowest) - 2 ** (64 - lowest)) % 2**64
            np.multiply(hashes, np.uint64(factor), out=products)
            hashes = hashes.compress(products < np.uint64(2 ** (64 - lowest)))
        self.add(_end_hashes(hashes))

    def merge(self, later: Registers) -> None:
        """Add the values of another state."""
        np.maximum(self.ranks, later.ranks, out=self.ranks)

    def estimate(self) -> int:
        """The number of distinct values."""
        size = 2**_BITS
        counts = np.bincount(self.ranks, minlength=_REST + 2).tolist()
        result = size * _tau(1 - counts[_REST + 1] / size)
        for rank in range(_REST, 0, -1):
            result = 0.5 * (result + counts[rank])
        result += size * _sigma(counts[0] / size)
        return round(size * size / (2 * _LOG_2 * result))


def _sigma(x: float) -> float:
    if x == 1:
        return math.inf
    result, before, weight = x, -1.0, 1.0
    while result != before:
        x, before = x * x, result
        result += x * weight
        weight *= 2
    return result


def _tau(x: float) -> float:
    if x in (0, 1):
        return 0.0
    result, before, weight = 1 - x, -1.0, 1.0
    while result != before:
        x, before, weight = math.sqrt(x), result, weight / 2
        result -= (1 - x) ** 2 * weight
    return result / 3
