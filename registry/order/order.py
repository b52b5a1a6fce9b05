"""``Order``: the order of one epoch, which ``Plan.order`` returns and ``reading`` reads.

It chooses the pattern for a config: ``FileByFile`` here, ``Interleave``, or ``GlobalShuffle``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from operator import index
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from registry.errors import UsageError
from registry.model import ShardSpan, whole_number
from registry.order.config import ReadConfig
from registry.order.files import Files, Integers, Pattern, Pieces, Run, Selection, join, spell_out, starts_of
from registry.order.interleave import Interleave
from registry.order.shuffles import GlobalShuffle, shuffle_permutation

__all__ = ["Order", "Run"]

_LIMIT: Final = 2**62
_SELECTED_AT_ONCE: Final = 2**20
_MOST_TABLED: Final = 2**22
_TABLE_COST: Final = 256
"""``find`` makes a table of an order, 16 bytes for each position, after one look-up for 256 positions. It costs about
as much as the look-ups before it, and makes each of the next ones 70 times faster (measured)."""


class Order:
    """The order of one epoch: one record of the plan at each position from 0 to ``num_examples`` (excluded).

    No file is opened. Iterating gives runs of consecutive records, as long as possible. ``runs`` and ``locate`` start
    at any position and skip everything before it without computing it.

    Attributes:
        config: the options of the read.
        epoch: the number of the epoch, from 0.
        num_examples: number of positions.
        file_order: the indices of the plan's instructions after sorting and shuffling, int64; None for plan order.
    """

    __slots__ = ("_files", "_num_finds", "_pattern", "_table", "config", "epoch", "file_order", "num_examples")

    def __init__(
        self,
        spans: Sequence[ShardSpan],
        config: ReadConfig,
        *,
        epoch: int = 0,
        sorted_files: Sequence[int] | None = None,
    ) -> None:
        """Create the order of the files in ``spans``, in plan order or as ``sorted_files`` lists them.

        Raises:
            UsageError: the shuffle has no seed, or there are too many positions.
        """
        if config.needs_seed:
            name = "seed" if config.shuffle == "global" else "shuffle_seed"
            raise UsageError(
                f"the shuffle has no {name}, without which every read has a different order",
                hint=f"Write ReadConfig({name}=42, ...), or config.with_seed(42).",
            )
        epoch = whole_number(epoch, "epoch", least=0, below=_LIMIT)
        files = Files(spans)
        self.config = config
        self.epoch = epoch
        self.num_examples = files.num_examples
        self._files = files
        self._num_finds = 0
        self._table: tuple[Integers, Integers] | None = None
        self.file_order = _order_files(files.count, config, epoch, sorted_files)
        self._pattern = _choose_pattern(files, config, epoch, self.file_order)

    def __iter__(self) -> Iterator[Run]:
        """The runs from the first position to the last."""
        return self.runs()

    def runs(self, start: int = 0, stop: int | None = None) -> Iterator[Run]:
        """The runs of the positions ``start``..``stop`` (stop excluded, None for the last), cut at both ends.

        Raises:
            UsageError: not 0 <= start <= stop <= num_examples.
        """
        start, stop = self._bounds(start, self.num_examples if stop is None else stop)
        return join(self._pattern.pieces(start, stop)) if start < stop else iter(())

    def locate(self, positions: Integers | Sequence[int] | tuple[int, int]) -> tuple[Integers, Integers]:
        """The record at each of ``positions``: indices of the plan's instructions, and indices in their files.

        Args:
            positions: an array or a list of whole numbers, shape (n,), in any order; or a tuple ``(start, stop)``,
                which is faster.

        Returns:
            Two int64 arrays of shape (n,). An index in a file also counts its skipped records.

        Raises:
            UsageError: a position outside 0..num_examples, or not a whole number.
        """
        if isinstance(positions, tuple):
            start, stop = self._bounds(*positions)
            return spell_out(self._pattern.pieces(start, stop) if start < stop else ())
        array = np.asarray(positions)
        if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
            raise UsageError("positions must be a list of whole numbers, or a tuple (start, stop)")
        if array.size and not 0 <= array.min() <= array.max() < self.num_examples:
            wrong = array.min() if array.min() < 0 else array.max()
            raise UsageError(f"position {wrong} is out of range: the order has {self.num_examples} positions, from 0")
        if not array.size:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        return self._pattern.locate(array.astype(np.int64, copy=False))

    def select(self, selected: NDArray[np.bool_]) -> Order:
        """The order of some of the records: they follow each other as in this order. It takes 8 bytes for each.

        Args:
            selected: which records of the plan, in plan order, as if the files were read one after the other. An
                array of shape (num_examples,).
        """
        positions = self.positions_of(selected)
        order = copy(self)
        order.num_examples = positions.size
        order._pattern = Selection(self._pattern, positions)
        order._num_finds, order._table = 0, None
        return order

    def positions_of(self, selected: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The positions of the records that are ``selected``, as ``select`` takes them, ascending."""
        parts = [np.empty(0, dtype=np.int64)]
        for start in range(0, self.num_examples, _SELECTED_AT_ONCE):
            located = self.locate((start, min(start + _SELECTED_AT_ONCE, self.num_examples)))
            parts.append(start + np.flatnonzero(selected[self._files.positions_of(*located)]))
        return np.concatenate(parts)

    def find(self, position: int) -> tuple[int, int]:
        """The record at one position, 0..num_examples: its instruction, and its index in the file, as ``locate``."""
        if isinstance(self._pattern, FileByFile) and self.file_order is None:
            return self._files.record_at(position)
        if self._table is None:
            self._num_finds += 1
            if self.num_examples > min(_MOST_TABLED, _TABLE_COST * self._num_finds):
                instructions, records = self._pattern.locate(np.array([position]))
                return instructions.item(), records.item()
            self._table = self.locate((0, self.num_examples))
        instructions, records = self._table
        return instructions.item(position), records.item(position)

    def __repr__(self) -> str:
        return f"<Order of epoch {self.epoch}: {self.num_examples} examples>"

    def _bounds(self, *bounds: Any) -> tuple[int, int]:
        try:
            start, stop = map(index, bounds)
        except (TypeError, ValueError):
            raise UsageError(f"start and stop must be two whole numbers, not {bounds!r:.60}") from None
        if not 0 <= start <= stop <= self.num_examples:
            raise UsageError(
                f"positions {start}..{stop} are out of range: the order has {self.num_examples} positions, from 0"
            )
        return start, stop


def _order_files(count: int, config: ReadConfig, epoch: int, sorted_files: Sequence[int] | None) -> Integers | None:
    files = None if sorted_files is None else np.array(sorted_files, dtype=np.int64)
    if not config.shuffle_files:
        return files
    shuffled = shuffle_permutation(
        count,
        seed=config.shuffle_seed,
        reshuffle_each_iteration=config.shuffle_reshuffle_each_iteration is not False,
        epoch=epoch,
        global_seed=config.global_seed,
        op_seed_index=config.op_seed_index,
    )
    return shuffled if files is None else files[shuffled]


def _choose_pattern(files: Files, config: ReadConfig, epoch: int, file_order: Integers | None) -> Pattern:
    if files.num_examples >= _LIMIT:
        raise UsageError(f"an order must have fewer than 2**62 positions, not {files.num_examples}")
    if config.shuffle == "global" and config.seed is not None:
        return GlobalShuffle(files, seed=config.seed, epoch=epoch)
    slots = min(config.interleave_cycle_length, files.count)
    block = config.interleave_block_length
    if slots <= 1 or block > files.num_examples:
        # A block that is longer than every file reads one file after the other.
        return FileByFile(files, file_order)
    if (
        files.num_examples + files.count * block >= _LIMIT
        or slots * (files.num_examples // block + files.count) >= _LIMIT
    ):
        raise UsageError(
            f"{files.num_examples} records of {files.count} files in blocks of {block} are too many to count",
            hint="Choose a smaller interleave_block_length or interleave_cycle_length.",
        )
    return Interleave(files, file_order, slots=slots, block_length=block)


_FIRST_BLOCK: Final = 64
_LARGEST_BLOCK: Final = 16_384


class FileByFile:
    """Reads all records of one file, then all of the next. ``file_order`` lists the files; None is plan order.

    Plan order needs no table, so the first records of a plan of a million files are as cheap as those of a small one.
    """

    __slots__ = ("_file_order", "_files", "_starts")

    def __init__(self, files: Files, file_order: Integers | None) -> None:
        self._files = files
        self._file_order = file_order
        self._starts = None if file_order is None else starts_of(files.takes_of(file_order))

    def locate(self, positions: Integers) -> tuple[Integers, Integers]:
        """The files and records at ``positions``."""
        if self._file_order is None or self._starts is None:
            return self._files.locate(positions)
        places = np.searchsorted(self._starts, positions, side="right") - 1
        files = self._file_order[places]
        return files, positions - self._starts[places] + self._files.skips_of(files)

    def pieces(self, start: int, stop: int) -> Iterator[Pieces]:
        """The records of the positions ``start``..``stop`` (at least one), one piece for each file."""
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
