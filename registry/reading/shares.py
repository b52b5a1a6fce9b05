"""Which positions of an order does each process read, and what is left of them? Intervals of whole numbers, divided."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Intervals: TypeAlias = tuple[tuple[int, int], ...]
"""Positions ``start`` to ``stop`` (stop excluded), ascending, none empty, none touching the next."""


def divide(intervals: Intervals, *, index: int, count: int) -> Intervals:
    """Share ``index`` of ``count`` equal ones: sizes differ by one at most, the larger first.

    >>> divide(((0, 4), (10, 13)), index=0, count=2), divide(((0, 4), (10, 13)), index=1, count=2)
    (((0, 4),), ((10, 13),))
    """
    small, extra = divmod(size_of(intervals), count)
    start = small * index + min(index, extra)
    return cut(intervals, start, start + small + (index < extra))


def cut(intervals: Intervals, start: int, stop: int) -> Intervals:
    """What lies between the ``start``-th and the ``stop``-th position of ``intervals``.

    >>> cut(((0, 4), (10, 13)), 3, 6)
    ((3, 4), (10, 12))
    """
    found, passed = [], 0
    for first, end in intervals:
        begin, last = max(start - passed, 0), min(stop - passed, end - first)
        if begin < last:
            found.append((first + begin, first + last))
        passed += end - first
    return tuple(found)


def places_in(intervals: Intervals, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The positions that are the ``places``-th of ``intervals``.

    >>> places_in(((0, 4), (10, 13)), np.array([6, 0])).tolist()
    [12, 0]
    """
    if len(intervals) == 1:
        return intervals[0][0] + places
    starts = np.array([start for start, _ in intervals] or [0], np.int64)
    sizes = np.array([stop - start for start, stop in intervals] or [0], np.int64)
    passed = np.cumsum(sizes) - sizes
    which = np.searchsorted(passed, places, side="right") - 1
    return starts[which] + places - passed[which]


def join(parts: Iterable[Intervals]) -> Intervals | None:
    """All positions of ``parts``; None where two of them share one.

    >>> join([((4, 6),), ((0, 4), (9, 10))])
    ((0, 6), (9, 10))
    """
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(interval for part in parts for interval in part):
        if joined and start < joined[-1][1]:
            return None
        if joined and start == joined[-1][1]:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return tuple(joined)


def size_of(intervals: Intervals) -> int:
    """Number of positions."""
    return sum(stop - start for start, stop in intervals)


def is_well_formed(intervals: Sequence[Sequence[int]], num_positions: int) -> bool:
    """Whether these are intervals of positions below ``num_positions``, as ``Intervals`` says."""
    previous = -1
    for start, stop in intervals:
        if not previous < start < stop <= num_positions:
            return False
        previous = stop
    return True
