"""Finds records by their position in the order of all runs, from the first sort keys of blocks.

    tables of runs -> BlockOrder: the blocks that may contain some positions -> find_starts reads keys of these blocks

The first keys of all blocks give the fewest and the most records that can come before a block. Both numbers grow with
the key, so they bound the blocks that may contain a position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from registry.building.run_format import Run, Start
from registry.building.sorter import order_keys

_Integers = npt.NDArray[np.int64]

MOST_BOUNDS: Final = 4 * 2**20
"""The number of blocks whose order is computed, in 250 MB of memory. If there are more, only every n-th is used."""


class BlockOrder:
    """The blocks of all runs of a split, in the order of their first keys.

    Args:
        runs: contain all records. Their files are not opened.
        most_bounds: the most blocks whose order is computed.
    """

    def __init__(self, runs: Sequence[Run], *, most_bounds: int = MOST_BOUNDS) -> None:
        self._runs = runs
        num_blocks = [len(run.table.first_keys) for run in runs]
        self._step = max(1, -(-sum(num_blocks) // most_bounds))
        starts = [np.arange(0, count, self._step) for count in num_blocks]
        keys = np.concatenate([run.table.first_keys[:: self._step] for run in runs])
        order, _ = order_keys(keys)
        places = np.empty_like(order)
        places[order] = np.arange(order.size)
        firsts = np.cumsum([0, *map(len, starts)])
        # For each run, the places of its bounds, which grow: equal keys keep their order.
        self._places = [places[first:stop] for first, stop in pairwise(firsts)]
        counts, earlier = [], []
        for run, start in zip(runs, starts, strict=True):
            count = np.diff(np.append(run.table.positions[start], run.num_records))
            counts.append(count)
            earlier.append(np.append(0, count[:-1])[: count.size])
        self._keys = keys[order]
        self._most_before: _Integers = np.cumsum(np.concatenate(counts)[order])
        self._fewest_before: _Integers = np.cumsum(np.concatenate(earlier)[order])

    def parts(self, first: int, stop: int) -> tuple[int, tuple[Run, ...]]:
        """Return the parts of runs that contain the records ``first``..``stop`` (stop excluded).

        Also returns the number of records that come before all of these parts.
        """
        low = int(np.searchsorted(self._most_before, first, "right")) - 1
        high = self._last_equal(int(np.searchsorted(self._fewest_before, stop - 1, "right")))
        parts, num_before = [], 0
        for run, places in zip(self._runs, self._places, strict=True):
            begin = self._step * max(0, int(np.searchsorted(places, low, "right")) - 1)
            end = min(self._step * int(np.searchsorted(places, high, "right")), len(run.table.first_keys))
            num_before += int(run.table.positions[begin])
            if begin < end:
                parts.append(replace(run, table=run.table.part(begin, end)))
        return num_before, tuple(parts)

    def _last_equal(self, place: int) -> int:
        """The last place with the key of ``place``. If a key is used twice, one task must see both of its records."""
        last = place
        while last + 1 < len(self._keys) and (self._keys[last + 1] == self._keys[place]).all():
            last += 1
        return last


def find_starts(runs: Sequence[Run], positions: Sequence[int]) -> list[Start]:
    """Return the records at ``positions`` in the order of all ``runs``.

    It reads only the sort keys of blocks that may contain a position according to the first keys of all blocks.
    """
    blocks = BlockOrder(runs)
    result = []
    for position in positions:
        num_before, parts = blocks.parts(position, position + 1)
        keys = np.concatenate([run.keys(0, len(run.table.first_keys)) for run in parts])
        order, _ = order_keys(keys)
        result.append(Start(position, keys[order[position - num_before]].tobytes()))
    return result
