"""How do pieces of files become runs, and positions? Arrays of pieces, joined where they touch, or spelled out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from registry.order.files import Integers

Pieces: TypeAlias = tuple[Integers, Integers, Integers]
"""Files, the first record of each piece in its file, and numbers of records, which may be 0: int64 of one shape."""


class Pattern(Protocol):
    """A rule of reading: which record stands where."""

    def locate(self, positions: Integers) -> tuple[Integers, Integers]:
        """The files and records that stand at ``positions``, in any order: two int64 of the same shape."""

    def pieces(self, start: int, stop: int) -> Iterator[Pieces]:
        """The records of the positions ``start``..``stop`` (at least one) in order, a few thousand pieces at a time."""


class Run(NamedTuple):
    """Records ``first``..``first + count`` of the file of a plan's ``instruction``, read one after the other.

    ``instruction`` is an index into the plan, ``first`` an index in the file, skipped records included.
    """

    instruction: int
    first: int
    count: int  # type: ignore[assignment] # hides the method of tuples, which nobody asks a run for


def join(blocks: Iterable[Pieces]) -> Iterator[Run]:
    """The longest runs there are: pieces of a file that follow each other are one."""
    last: Run | None = None
    for block in blocks:
        runs = list(map(Run, *(column.tolist() for column in _joined(block))))
        if not runs:
            continue
        if last is not None:
            # Within a block everything is joined; only its first piece may go on where the last block ended.
            if runs[0][:2] == (last.instruction, last.first + last.count):
                runs[0] = Run(last.instruction, last.first, last.count + runs[0].count)
            else:
                yield last
        last = runs.pop()
        yield from runs
    if last is not None:
        yield last


def _joined(block: Pieces) -> Pieces:
    """The same without empty pieces, and with those joined that touch."""
    files, firsts, counts = block
    if not counts.all():
        files, firsts, counts = (column[block[2] > 0] for column in block)
    touches = (files[1:] == files[:-1]) & (firsts[1:] == firsts[:-1] + counts[:-1])
    if not touches.any():
        return files, firsts, counts
    heads = np.flatnonzero(np.concatenate(([True], ~touches)))
    return files[heads], firsts[heads], np.add.reduceat(counts, heads)


def spell_out(blocks: Iterable[Pieces]) -> tuple[Integers, Integers]:
    """The file and the record of every position."""
    files, records = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for some, firsts, counts in blocks:
        ends = np.cumsum(counts)
        files.append(np.repeat(some, counts))
        records.append(np.repeat(firsts - ends + counts, counts) + np.arange(len(files[-1])))
    return np.concatenate(files), np.concatenate(records)
