"""Which records lie in one of so many equal parts? Ranges cut at exact places: records, or whole files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from registry.splits.files import FileRun
from registry.splits.layout import Located, RecordRange
from registry.splits.parts import EvenPart


def divide(part: EvenPart, located: Sequence[Located]) -> Iterator[Located]:
    """What ``part`` reads of ``located``, divided as one sequence; a range that it does not touch is left out."""
    return _cut_files(part, located) if part.unit == "shard" else _cut_records(part, located)


def divide_each(parts: Iterable[EvenPart], located: Iterable[Located]) -> Iterable[Located]:
    """What is left of each range where it is divided on its own, by the first of ``parts``, then by the next."""
    for part in parts:
        located = [piece for one in located for piece in divide(part, [one])]
    return located


def _cut_records(part: EvenPart, located: Sequence[Located]) -> Iterator[Located]:
    sizes = [records.num_examples for records, _ in located]
    for place, start, stop in _cut(sizes, part):
        records, split = located[place]
        yield RecordRange(split=records.split, start=records.start + start, stop=records.start + stop), split


def _cut_files(part: EvenPart, located: Sequence[Located]) -> Iterator[Located]:
    runs = [FileRun.of(records, split) for records, split in located if records.num_examples]
    for place, start, stop in _cut([run.count for run in runs], part):
        yield runs[place].records_of(start, stop), runs[place].split


def _cut(sizes: Sequence[int], part: EvenPart) -> Iterator[tuple[int, int, int]]:
    """Of things of these sizes, one after the other: which does the part touch, from where to where in each?"""
    start, stop = part.bounds(sum(sizes))
    first = 0
    for place, size in enumerate(sizes):
        begin, end = max(start - first, 0), min(stop - first, size)
        if begin < end:
            yield place, begin, end
        first += size
