"""Exact sums of numbers and of their squares: Python integers, the same for any order and division of the values.

    integers -> limbs of 31 bits -> sums and products of limbs, which fit 63 bits -> one integer
    floats in a small range -> integers of 47 bits -> sums modulo 2**64          -> one integer
    other floats, and their exact squares -> limbs of 46 bits -> sums of limbs   -> one integer

A float is an integer times a power of two, so a sum of floats is an integer in units of ``2**-SCALE``. Only the final
result is rounded: a mean does not depend on SIMD instructions, threads or the order of files.
"""

from __future__ import annotations

import math
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

SCALE: Final = 1200
"""Sums of floats are in units of 2**-1200: the lowest bit of the smallest float is 2**-1074."""

_WIDTH: Final = 31
_FLOAT_WIDTH: Final = 46
_MULTIPLE_WIDTH: Final = 47
_HALF: Final = 26
_CHUNK: Final = 2**16
"""The sum of 2**16 limbs of 46 bits has 62 bits. Products of limbs of 31 bits are added in halves of 32 bits."""

_SMALL: Final = 2**23
"""The sum of 2**16 squares of integers of at most this size has 62 bits."""

_FAR: Final = 400
"""Squares of floats beyond 2**400 or below 2**-400 may not fit a float, so such values are scaled."""

_MOST_REPEATED: Final = 2**18

Magnitudes: TypeAlias = tuple[int | float, int | float]
"""Bounds of the absolute values of numbers other than zero; (0, 0) if all are zero."""


def magnitudes_of(values: npt.NDArray[Any], low: int | float, high: int | float) -> Magnitudes:
    """Return the bounds of absolute values; for floats, the least one other than zero and the greatest one.

    ``low`` and ``high`` are the minimum and maximum of the values, which are at least one.
    """
    greatest = max(abs(low), abs(high))  # not -0.0, as max(-0.0, 0.0) is
    if low > 0 or high < 0:
        return min(abs(low), abs(high)), greatest
    if values.dtype.kind != "f":
        return min(1, greatest), greatest
    bits = np.abs(values).view(f"u{values.itemsize}")
    bits -= bits.dtype.type(1)  # in the order of the values, except that zero becomes the greatest
    least = bits.min(keepdims=True) + bits.dtype.type(1)
    return least.view(values.dtype).item(), greatest


def exact_sums(values: npt.NDArray[Any], magnitudes: Magnitudes | None = None) -> tuple[int, int]:
    """Return the sum of ``values`` (finite float64, int64 or uint64) and the sum of their squares.

    For floats, the units are 2**-SCALE and 2**(-2 * SCALE). ``magnitudes`` are those of more values, if they are known.

    >>> exact_sums(np.array([3, -4])), exact_sums(np.array([1e300, 1.0, -1e300]))[0] == 1 << SCALE
    ((-1, 25), True)
    """
    total = squares = 0
    if magnitudes is None:
        magnitudes = magnitudes_of(values, values.min().item(), values.max().item()) if values.size else (0, 0)
    sums_of = _sums_of_floats if values.dtype.kind == "f" else _sums_of_integers
    for start in range(0, values.size if magnitudes[1] else 0, _CHUNK):
        sums = sums_of(values[start : start + _CHUNK], *magnitudes)
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


def _sums_of_integers(values: npt.NDArray[Any], _least: int | float, greatest: int | float) -> tuple[int, int]:
    if greatest <= _SMALL:
        return int(values.sum()), int((values * values).sum())
    limbs: list[npt.NDArray[np.int64]] = []
    bits = int(greatest).bit_length()
    while bits > _WIDTH:
        limbs.append((values & values.dtype.type(2**_WIDTH - 1)).astype(np.int64, copy=False))
        values, bits = values >> values.dtype.type(_WIDTH), bits - _WIDTH
    limbs.append(values.astype(np.int64, copy=False))
    total = squares = 0
    for place, limb in enumerate(limbs):
        total += int(limb.sum()) << place * _WIDTH
        for other in range(place + 1):
            products = limb * limbs[other]
            halves = int((products & (2**32 - 1)).sum()), int((products >> 32).sum())
            squares += halves[0] + (halves[1] << 32) << (place + other) * _WIDTH + (place > other)
    return total, squares


def _sums_of_floats(values: npt.NDArray[np.float64], least: float, greatest: float) -> tuple[int, int]:
    """Return the sums of floats whose absolute values, except for zeros, are from ``least`` to ``greatest``."""
    if greatest > 2.0**_FAR or least < 2.0**-_FAR:
        sizes = np.abs(values)
        is_large, is_small = sizes > 2.0**_FAR, sizes < 2.0**-_FAR
        total, squares = exact_sums(values[~(is_small | is_large)])
        large, large_squares = exact_sums(values[is_large] * 2.0 ** (-2 * _FAR))
        small, small_squares = exact_sums(values[is_small] * 2.0 ** (2 * _FAR))
        total += (large << 2 * _FAR) + (small >> 2 * _FAR)
        return total, squares + (large_squares << 4 * _FAR) + (small_squares >> 4 * _FAR)
    bits = values.view(np.int64)
    fraction = int(np.bitwise_or.reduce(bits)) & (2**52 - 1) | 2**52
    num_bits = 54 - (fraction & -fraction).bit_length()  # of the longest fraction: for float32, at most 24
    top, last = math.frexp(greatest)[1], math.frexp(least)[1] - num_bits
    if top - last <= _MULTIPLE_WIDTH:
        total, squares = _sums_of_multiples(values, last)
        return total << SCALE + last, squares << 2 * (SCALE + last)
    total = _sum(values, top, last, SCALE)
    if num_bits <= _HALF:  # the squares are exact
        return total, _sum(values * values, 2 * top, 2 * last, 2 * SCALE)
    high = ((bits + 2**26) & -(2**27)).view(np.float64)  # 26 bits; the rest also has 26 bits
    low = values - high
    middle = last + num_bits - _HALF
    squares = _sum(high * high, 2 * top, 2 * middle, 2 * SCALE) + _sum(low * low, 2 * top - 52, 2 * last, 2 * SCALE)
    return total, squares + 2 * _sum(high * low, 2 * top - 26, middle + last, 2 * SCALE)


def _sums_of_multiples(values: npt.NDArray[np.float64], last: int) -> tuple[int, int]:
    """Return the sums of ``values / 2**last``, which are integers of at most 47 bits, and of their squares.

    NumPy adds and multiplies integers modulo 2**64. Of all numbers that are equal modulo 2**64, the sum of squares is
    the nearest to the sum of floats: it has at most 110 bits, of which 48 are right, because NumPy adds in pairs.
    """
    anchor = np.float64(math.ldexp(1.5, last + 52))  # see _sum
    sums = values + anchor
    bits, base = sums.view(np.int64), int(anchor.view(np.int64))
    total = _signed(int(bits.sum()) - bits.size * base)
    bits *= bits
    remainder = int(bits.sum()) - base * (2 * total + bits.size * base)  # the bits are the base plus the integer
    estimate = int(math.ldexp(float(np.multiply(values, values, out=sums).sum()), -2 * last))
    return total, estimate + _signed(remainder - estimate)


def _signed(number: int) -> int:
    """Return the integer of 64 bits that is equal to ``number`` modulo 2**64."""
    return (number + 2**63) % 2**64 - 2**63


def _sum(values: npt.NDArray[np.float64], top: int, last: int, scale: int) -> int:
    """Return the sum of values of at most 2**top, which are multiples of 2**last, in units of 2**-scale."""
    total = 0
    while True:
        top -= _FLOAT_WIDTH
        # This number is so large that a sum with it is rounded to a multiple of 2**top. The bits of the sum, as an
        # integer, are those of the number plus this multiple.
        anchor = np.float64(math.ldexp(1.5, top + 52))
        limbs = values + anchor
        whole = int(limbs.view(np.int64).sum()) - limbs.size * int(anchor.view(np.int64))
        total += _signed(whole) << scale + top
        if top <= last:
            return total
        limbs -= anchor
        values = values - limbs
