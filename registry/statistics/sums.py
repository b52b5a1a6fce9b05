"""Exact sums of numbers and of their squares: Python integers, the same for any order and division of the values.

    values -> limbs of 23 bits (int64) -> sums and products of limbs, which fit 63 bits -> one integer

A float is an integer times a power of two, so that a sum of floats is an integer in units of ``2**-SCALE``. Nothing is
rounded before the end: a mean does not depend on SIMD instructions, threads or the order of files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

SCALE: Final = 1200
"""Sums of floats are in units of 2**-1200: the lowest bit of a limb of the smallest float is above 2**-1100."""

_WIDTH: Final = 23
_CHUNK: Final = 2**15
"""A product of two limbs has 46 bits, and the sum of 2**15 products 61."""

_NEAR: Final = 16
"""Floats are divided into limbs together if their exponents differ by less than this: 2 or 3 limbs each."""

_MOST_REPEATED: Final = 2**18


def exact_sums(values: npt.NDArray[Any]) -> tuple[int, int]:
    """The sum of ``values``, finite float64, int64 or uint64, and the sum of their squares.

    In units of 2**-SCALE and 2**(-2 * SCALE) for floats.

    >>> exact_sums(np.array([3, -4])), exact_sums(np.array([1e300, 1.0, -1e300]))[0] == 1 << SCALE
    ((-1, 25), True)
    """
    total = squares = 0
    for start in range(0, values.size, _CHUNK):
        chunk = values[start : start + _CHUNK]
        for limbs, units in _limbs_of_floats(chunk) if chunk.dtype.kind == "f" else _limbs_of_integers(chunk):
            for place, limb in enumerate(limbs):
                total += int(limb.sum()) << units[place]
                squares += int(np.dot(limb, limb)) << 2 * units[place]
                for other in range(place):
                    squares += int(np.dot(limb, limbs[other])) << units[place] + units[other] + 1
    return total, squares


def weighted_sums(values: npt.NDArray[Any], counts: npt.NDArray[np.int64]) -> tuple[int, int]:
    """``exact_sums`` of values that each occur ``counts`` times."""
    if counts.sum() <= _MOST_REPEATED:
        return exact_sums(np.repeat(values, counts))
    total = squares = 0
    if values.dtype.kind != "f":
        numbers, units = values.tolist(), [0] * values.size
    else:
        fractions, exponents = np.frexp(values)
        numbers = (fractions * 2.0**53).astype(np.int64).tolist()
        units = (exponents.astype(np.int64) + (SCALE - 53)).tolist()
    for number, unit, count in zip(numbers, units, counts.tolist(), strict=True):
        total += number * count << unit
        squares += number * number * count << 2 * unit
    return total, squares


def mean_of(total: int, count: int, scale: int) -> float:
    """The mean, rounded once."""
    return total / (count << scale)


def deviation_of(total: int, squares: int, count: int, scale: int) -> float:
    """The standard deviation of all values (not of a sample of more), to the last bit."""
    root = math.isqrt((count * squares - total * total) << 256)
    return root / (count << scale + 128)


def _limbs_of_integers(values: npt.NDArray[Any]) -> Sequence[tuple[list[npt.NDArray[np.int64]], list[int]]]:
    limbs: list[npt.NDArray[np.int64]] = []
    low, high = int(values.min()), int(values.max())
    while low < -(2**_WIDTH) or high >= 2**_WIDTH:
        limbs.append((values & values.dtype.type(2**_WIDTH - 1)).astype(np.int64))
        values, low, high = values >> values.dtype.type(_WIDTH), low >> _WIDTH, high >> _WIDTH
    limbs.append(values.astype(np.int64, copy=False))
    return [(limbs, [place * _WIDTH for place in range(len(limbs))])]


def _limbs_of_floats(values: npt.NDArray[Any]) -> list[tuple[list[npt.NDArray[np.int64]], list[int]]]:
    """The limbs of the values, grouped by exponent, and the unit of each limb as a power of two above 2**-SCALE."""
    result = []
    while values.size:
        sizes = np.abs(values)
        largest = float(sizes.max())
        if not largest:
            break
        top = math.frexp(largest)[1]
        is_near = sizes >= math.ldexp(1.0, top - _NEAR)
        near, values = (values, values[:0]) if is_near.all() else (values[is_near], values[~is_near])
        shift = _WIDTH - top
        part = near * math.ldexp(1.0, shift) if -1000 < shift < 1000 else np.ldexp(near, shift)
        limbs = []
        while True:
            whole = np.trunc(part)
            limbs.append(whole.astype(np.int64))
            part -= whole
            if not part.any():
                break
            part *= 2.0**_WIDTH
        result.append((limbs, [SCALE + top - _WIDTH * (place + 1) for place in range(len(limbs))]))
    return result
