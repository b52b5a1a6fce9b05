"""Exact sums of numbers and of their squares: Python integers, the same for any order and division of the values.

    integers -> limbs of 23 bits -> sums and products of limbs, which fit 63 bits -> one integer
    floats, and their exact squares -> limbs of 46 bits -> sums of limbs         -> one integer

A float is an integer times a power of two, so a sum of floats is an integer in units of ``2**-SCALE``. Only the final
result is rounded: a mean does not depend on SIMD instructions, threads or the order of files.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

SCALE: Final = 1200
"""Sums of floats are in units of 2**-1200: the lowest bit of the smallest float is 2**-1074."""

_WIDTH: Final = 23
_FLOAT_WIDTH: Final = 46
_CHUNK: Final = 2**15
"""The sum of 2**15 limbs of 46 bits, or products of two limbs of 23 bits, has 61 bits."""

_FAR: Final = 400
"""Squares of floats beyond 2**400 or below 2**-400 may not fit a float, so such values are scaled."""

_MOST_REPEATED: Final = 2**18


def exact_sums(values: npt.NDArray[Any]) -> tuple[int, int]:
    """Return the sum of ``values`` (finite float64, int64 or uint64) and the sum of their squares.

    For floats, the units are 2**-SCALE and 2**(-2 * SCALE).

    >>> exact_sums(np.array([3, -4])), exact_sums(np.array([1e300, 1.0, -1e300]))[0] == 1 << SCALE
    ((-1, 25), True)
    """
    total = squares = 0
    for start in range(0, values.size, _CHUNK):
        chunk = values[start : start + _CHUNK]
        sums = _sums_of_floats(chunk) if chunk.dtype.kind == "f" else _sums_of_integers(chunk)
        total, squares = total + sums[0], squares + sums[1]
    return total, squares


def weighted_sums(values: npt.NDArray[Any], counts: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Return ``exact_sums`` of values that each occur ``counts`` times."""
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


def _sums_of_integers(values: npt.NDArray[Any]) -> tuple[int, int]:
    limbs: list[npt.NDArray[np.int64]] = []
    low, high = int(values.min()), int(values.max())
    while low < -(2**_WIDTH) or high >= 2**_WIDTH:
        limbs.append((values & values.dtype.type(2**_WIDTH - 1)).astype(np.int64, copy=False))
        values, low, high = values >> values.dtype.type(_WIDTH), low >> _WIDTH, high >> _WIDTH
    limbs.append(values.astype(np.int64, copy=False))
    total = squares = 0
    for place, limb in enumerate(limbs):
        total += int(limb.sum()) << place * _WIDTH
        squares += int(np.dot(limb, limb)) << 2 * place * _WIDTH
        for other in range(place):
            squares += int(np.dot(limb, limbs[other])) << (place + other) * _WIDTH + 1
    return total, squares


def _sums_of_floats(values: npt.NDArray[np.float64]) -> tuple[int, int]:
    sizes = np.abs(values)
    largest = float(sizes.max(initial=0))
    is_small = sizes < 2.0**-_FAR
    if largest > 2.0**_FAR or sizes[is_small].any():
        is_large = sizes > 2.0**_FAR
        total, squares = _sums_of_floats(values[~(is_small | is_large)])
        large, large_squares = _sums_of_floats(values[is_large] * 2.0 ** (-2 * _FAR))
        small, small_squares = _sums_of_floats(values[is_small] * 2.0 ** (2 * _FAR))
        total += (large << 2 * _FAR) + (small >> 2 * _FAR)
        return total, squares + (large_squares << 4 * _FAR) + (small_squares >> 4 * _FAR)
    top, bits = math.frexp(largest)[1], values.view(np.int64)
    total = _sum(values, top, SCALE)
    if not int(np.bitwise_or.reduce(bits)) & (2**29 - 1):  # 24 bits, as float32 has: their squares are exact
        return total, _sum(values * values, 2 * top, 2 * SCALE)
    high = ((bits + 2**26) & -(2**27)).view(np.float64)  # 26 bits; the rest also has 26 bits
    low = values - high
    squares = _sum(high * high, 2 * top, 2 * SCALE) + _sum(low * low, 2 * top - 52, 2 * SCALE)
    return total, squares + 2 * _sum(high * low, 2 * top - 26, 2 * SCALE)


def _sum(values: npt.NDArray[np.float64], top: int, scale: int) -> int:
    """The sum of values of at most 2**top, in units of 2**-scale."""
    total = 0
    while True:
        top -= _FLOAT_WIDTH
        # This number is so large that a sum with it is rounded to a multiple of 2**top. The bits of the sum, as an
        # integer, are those of the number plus this multiple.
        anchor = np.float64(math.ldexp(1.5, top + 52))
        limbs = values + anchor
        whole = int(limbs.view(np.int64).sum()) - limbs.size * int(anchor.view(np.int64))
        total += ((whole + 2**63) % 2**64 - 2**63) << scale + top  # numpy adds modulo 2**64
        limbs -= anchor
        if (limbs == values).all():
            return total
        values = values - limbs
