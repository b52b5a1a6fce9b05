"""What do ranges of records have in common? Sets of records as ranges, whatever order and however often they are read.

Every answer is ranges that neither touch nor overlap, in order of position, splits in the order in which they come
first. Time grows with the number of ranges (n log n), never with that of records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from registry.splits.layout import RecordRange

Ranges: TypeAlias = tuple[RecordRange, ...]


def merged(ranges: Iterable[RecordRange]) -> Ranges:
    """Every record of ``ranges``, once.

    >>> merged([RecordRange(split="train", start=5, stop=9), RecordRange(split="train", start=0, stop=5)])
    (RecordRange(split='train', start=0, stop=9),)
    """
    return _select([ranges], bool)


def repeated(ranges: Iterable[RecordRange]) -> Ranges:
    """The records that more than one of ``ranges`` holds."""
    return _select([ranges], lambda depths: depths[0] > 1)


def common(first: Iterable[RecordRange], second: Iterable[RecordRange]) -> Ranges:
    """The records that both hold."""
    return _select([first, second], lambda depths: len(depths) == 2)


def without(first: Iterable[RecordRange], second: Iterable[RecordRange]) -> Ranges:
    """The records of ``first`` that ``second`` does not hold."""
    return _select([first, second], lambda depths: 0 in depths and 1 not in depths)


def shared(sets: Sequence[Iterable[RecordRange]]) -> dict[tuple[int, int], Ranges]:
    """The records that any two of ``sets`` have in common, by the places of the two; pairs without any are left out."""
    found: dict[tuple[int, int], list[RecordRange]] = defaultdict(list)
    for segment, depths in _segments(sets):
        holders = sorted(depths)
        for place, first in enumerate(holders):
            for second in holders[place + 1 :]:
                _append(found[first, second], segment)
    return {pair: tuple(found[pair]) for pair in sorted(found)}


def _select(sets: Sequence[Iterable[RecordRange]], is_wanted: Callable[[dict[int, int]], bool]) -> Ranges:
    selected: list[RecordRange] = []
    for segment, depths in _segments(sets):
        if is_wanted(depths):
            _append(selected, segment)
    return tuple(selected)


def _segments(sets: Sequence[Iterable[RecordRange]]) -> Iterator[tuple[RecordRange, dict[int, int]]]:
    """The records of all ``sets``, cut wherever a range begins or ends, and how many ranges of which set hold them."""
    ends: dict[str, list[tuple[int, int, int]]] = {}
    for place, ranges in enumerate(sets):
        for one in ranges:
            if one.start < one.stop:
                ends.setdefault(one.split, []).extend(((one.start, place, 1), (one.stop, place, -1)))
    for split, changes in ends.items():
        changes.sort()
        depths: dict[int, int] = {}
        before = 0
        for position, place, change in changes:
            if depths and before < position:
                yield RecordRange(split=split, start=before, stop=position), depths
            before = position
            depths[place] = depths.get(place, 0) + change
            if not depths[place]:
                del depths[place]


def _append(ranges: list[RecordRange], segment: RecordRange) -> None:
    """Add ``segment`` at the end, as part of the last range where it begins where that one ends."""
    if ranges and ranges[-1].split == segment.split and ranges[-1].stop == segment.start:
        ranges[-1] = RecordRange(split=segment.split, start=ranges[-1].start, stop=segment.stop)
    else:
        ranges.append(segment)
