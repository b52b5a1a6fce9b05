"""Exact sums of numbers and of their squares: Python integers, the same for any order and division of the values.

    integers -> limbs of 31 bits -> sums and products of limbs, which fit 63 bits       -> one integer
    floats   -> limbs of 47 bits -> sums and products of limbs, modulo 2**64, and about -> one integer

A float is an integer times a power of two, so a sum of floats is an integer in units of ``2**-SCALE``. Only the final
result is rounded: a mean does not depend on SIMD instructions, threads or the order of files.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

SCALE: Final = 1200
"""Sums of floats are in units of 2**-1200: the lowest bit of the smallest float is 2**-1074."""

_WIDTH: Final = 31
_FLOAT_WIDTH: Final = 46
_LAST_WIDTH: Final = _FLOAT_WIDTH + 1
"""The last limb is not rounded, so it cannot be 2**47."""

_CHUNK: Final = 2**16
"""The sum of 2**16 limbs of 47 bits has 63 bits. Products of limbs of 31 bits are added in halves of 32 bits."""

_SMALL: Final = 2**23
"""The sum of 2**16 squares of integers of at most this size has 62 bits."""

_MOST_SPREAD: Final = 3 * _FLOAT_WIDTH - 53
"""Floats whose exponents differ by at most this much have three limbs. Others are divided at the middle exponent."""

_FAR: Final = 400
_MOVE: Final = 700
"""Squares of floats beyond 2**400 or below 2**-400 may not fit a float, so such values are scaled by 2**700."""

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
    if magnitudes is None:
        magnitudes = magnitudes_of(values, values.min().item(), values.max().item()) if values.size else (0, 0)
    least, greatest = magnitudes
    is_float = values.dtype.kind == "f"
    if is_float:
        first, last = math.frexp(least)[1], math.frexp(greatest)[1]
        if last - first > _MOST_SPREAD:
            is_large = np.abs(values) >= math.ldexp(1.0, (first + last) // 2)
            pairs = zip(exact_sums(values[is_large]), exact_sums(values[~is_large]), strict=True)
            total, squares = map(sum, pairs)
            return total, squares
        if last > _FAR:
            total, squares = exact_sums(values * 2.0**-_MOVE)
            return total << _MOVE, squares << 2 * _MOVE
        if first < -_FAR:
            total, squares = exact_sums(values * 2.0**_MOVE)
            return total >> _MOVE, squares >> 2 * _MOVE
    sums_of = _sums_of_floats if is_float else _sums_of_integers
    total = squares = 0
    for start in range(0, values.size if greatest else 0, _CHUNK):
        sums = sums_of(values[start : start + _CHUNK], least, greatest)
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
    fraction = int(np.bitwise_or.reduce(values.view(np.int64))) & (2**52 - 1) | 2**52
    num_bits = 54 - (fraction & -fraction).bit_length()  # of the longest fraction: for float32, at most 24
    unit, last = math.frexp(greatest)[1], math.frexp(least)[1] - num_bits
    limbs: list[_Limb] = []
    total = squares = 0
    while not limbs or unit > last:
        unit = last if unit - last <= _LAST_WIDTH else unit - _FLOAT_WIDTH
        # This number is so large that a sum with it is rounded to a multiple of 2**unit. The bits of the sum, as an
        # integer, are those of the number plus this multiple.
        anchor = np.float64(math.ldexp(1.5, unit + 52))
        sums = values + anchor
        bits, base = sums.view(np.int64), int(anchor.view(np.int64))
        multiples = sums - anchor if unit > last else values
        limb = _Limb(multiples, bits, unit, base, _signed(int(bits.sum()) - bits.size * base))
        limbs.append(limb)
        total += limb.total << unit + SCALE
        for other in limbs:
            squares += _sum_of_products(limb, other) << unit + other.unit + 2 * SCALE + (other is not limb)
        if unit > last:
            values = values - multiples
    return total, squares


class _Limb(NamedTuple):
    """Multiples of ``2**unit``, as floats, and as ``bits`` of integers to which ``base`` is added.

    ``total`` is the sum of the integers.
    """

    multiples: npt.NDArray[np.float64]
    bits: npt.NDArray[np.int64]
    unit: int
    base: int
    total: int


def _sum_of_products(limb: _Limb, other: _Limb) -> int:
    """Return the sum of the products of the integers of two limbs.

    NumPy adds and multiplies integers modulo 2**64. Of all numbers that are equal modulo 2**64, the sum is the nearest
    to the sum of floats: it has at most 110 bits, of which 48 are right, because NumPy adds in pairs.
    """
    products = limb.bits * other.bits
    remainder = int(products.sum()) - limb.base * (other.total + products.size * other.base) - other.base * limb.total
    floats = np.multiply(limb.multiples, other.multiples, out=products.view(np.float64))
    estimate = int(math.ldexp(float(floats.sum()), -limb.unit - other.unit))
    return estimate + _signed(remainder - estimate)


def _signed(number: int) -> int:
    """Return the integer of 64 bits that is equal to ``number`` modulo 2**64."""
    return (number + 2**63) % 2**64 - 2**63
