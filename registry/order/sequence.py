"""What is read when files come one after the other? Plan order, or any other order of the files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from registry.order.files import Files, Integers, starts_of
from registry.order.pieces import Pieces

_FIRST_BLOCK: Final = 64
_LARGEST_BLOCK: Final = 16_384


class FileByFile:
    """All records of one file, then all of the next. ``file_order`` are the files so ordered, or None for plan order.

    Plan order needs no table: the first records of a plan of a million files cost what those of a small one do.
    """

    __slots__ = ("_file_order", "_files", "_starts")

    def __init__(self, files: Files, file_order: Integers | None) -> None:
        self._files = files
        self._file_order = file_order
        self._starts = None if file_order is None else starts_of(files.takes_of(file_order))

    def locate(self, positions: Integers) -> tuple[Integers, Integers]:
        """The files and records that stand at ``positions``."""
        if self._file_order is None or self._starts is None:
            return self._files.locate(positions)
        places = np.searchsorted(self._starts, positions, side="right") - 1
        files = self._file_order[places]
        return files, positions - self._starts[places] + self._files.skips_of(files)

    def pieces(self, start: int, stop: int) -> Iterator[Pieces]:
        """The records of the positions ``start``..``stop``, at least one, a piece for each file."""
        first, begin = self._find(start)
        last, _ = self._find(stop - 1)
        size = _FIRST_BLOCK
        while first <= last:
            end = min(first + size, last + 1)
            if self._file_order is None or self._starts is None:
                files = np.arange(first, end)
                starts = begin + starts_of(self._files.takes(first, end))
            else:
                files = self._file_order[first:end]
                starts = self._starts[first : end + 1]
            bounds = starts.clip(start, stop)
            yield files, self._files.skips_of(files) + bounds[:-1] - starts[:-1], np.diff(bounds)
            first, begin = end, int(starts[-1])
            size = min(2 * size, _LARGEST_BLOCK)

    def _find(self, position: int) -> tuple[int, int]:
        """The place in the file order that holds ``position``, and the position of its first record."""
        if self._starts is None:
            return self._files.find(position)
        place = int(np.searchsorted(self._starts, position, side="right")) - 1
        return place, int(self._starts[place])
