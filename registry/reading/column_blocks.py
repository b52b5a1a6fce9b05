"""Blocks of examples from kept columns, which ``pieces`` decodes like blocks of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from registry.columns import KeptColumn, Rows
from registry.features import ExampleBlock, FeaturesDict, codec_of
from registry.features.codec import fill_tree
from registry.features.nested import plain_tree
from registry.order import Order
from registry.reading.attached import Damaged
from registry.reading.conditions import Bounds
from registry.tfrecord import Places

Mender: TypeAlias = Callable[[Damaged, Callable[[], Damaged]], bool]
"""Writes damaged blocks again, or returns False. Its second argument finds the remaining damaged blocks."""

BoundedBlock: TypeAlias = tuple[int, Mapping[str, Bounds]]
"""The number of examples of a block, and the bounds of its columns by path, for ``Condition.may_match``."""

_MOST_ROWS: Final = 2**22
"""If an order has at most this number of positions, their rows are computed only once."""


class ColumnBlock(NamedTuple):
    """Examples of kept columns: ``rows`` of ``columns``."""

    columns: KeptColumns
    rows: Rows

    @property
    def num_records(self) -> int:
        """Number of examples."""
        return self.rows.stop - self.rows.start if isinstance(self.rows, slice) else self.rows.size

    @property
    def num_bytes(self) -> int:
        """Approximate size of the examples in memory."""
        return self.num_records * self.columns.row_bytes

    @property
    def num_new_bytes(self) -> int:
        """Approximate size of the copies: views take no memory, and once their blocks are proved, no time."""
        are_views = isinstance(self.rows, slice) and self.columns.is_proved
        return self.num_records * self.columns.stored_row_bytes if are_views else self.num_bytes

    def take(self, places: Places) -> ColumnBlock:
        """The examples at ``places``, in that order."""
        rows = self.rows
        return ColumnBlock(self.columns, places + rows.start if isinstance(rows, slice) else rows[places])

    def decode(self, *, copy: bool) -> ExampleBlock:
        """The examples. Without ``copy``, the values of consecutive examples are read-only views."""
        return self.columns.decode(self.rows, copy=copy)


class KeptColumns:
    """The kept columns of all leaves of a schema, for the records of a plan.

    Attributes:
        features: the schema.
        row_bytes: the size of an example in bytes.
        stored_row_bytes: the size of its values that have to be decoded, in bytes.
    """

    def __init__(
        self, features: FeaturesDict, columns: Sequence[KeptColumn], starts: Places, num_records: int, mend: Mender
    ) -> None:
        """``starts`` has the row of record 0 of the file of each file instruction."""
        self.features = features
        sizes = [column.num_bytes // max(1, num_records) for column in columns]
        self.row_bytes = max(1, sum(sizes))
        stored = (size for size, column in zip(sizes, columns, strict=True) if not column.is_dense)
        self.stored_row_bytes = max(1, sum(stored))
        self._codec = codec_of(features)
        self._plain = plain_tree(self._codec.tree)
        self._columns = columns
        self._starts = starts
        self._mend = mend
        folder = columns[0].folder if columns else None
        self._block_records = folder.block_records if folder else 1
        self._is_proved = np.zeros(folder.num_blocks, np.bool_) if folder else None
        self._unsearched = [column for column in columns if column.is_searched]
        self._makers: dict[bool, Callable[[int], dict[str, Any]]] = {}
        self._takers: dict[bool, list[Callable[[Places], Any]]] = {}
        self._row_table: tuple[Order, Places | None, int] | None = None

    @property
    def is_proved(self) -> bool:
        """Whether all blocks were compared with their digests."""
        return self._is_proved is None

    def fetch(self, instructions: Places, records: Places) -> ColumnBlock | None:
        """The examples of these records; None if a column is damaged and cannot be repaired."""
        places = self._rows_of(instructions, records)
        first, count = int(places[0]), places.size
        is_run = int(places[-1]) == first + count - 1 and bool((places[1:] - places[:-1] == 1).all())
        rows = slice(first, first + count) if is_run else places
        return ColumnBlock(self, rows) if self.prove(rows) else None

    def columns_at(self, order: Order, positions: Places, *, copy: bool) -> dict[str, Any] | None:
        """The examples at ``positions`` as a dict of arrays; None as ``fetch``."""
        rows = self._rows_at(order, positions)
        if not self.prove(rows):
            return None
        pairs = zip(self._columns, self._codec.columns, strict=True)
        if self._is_proved is not None:
            arrays = [column.values.block(reader, rows, copy=copy).array(rows.size) for column, reader in pairs]
        else:
            if copy not in self._takers:
                self._takers[copy] = [column.values.taker(reader, copy=copy) for column, reader in pairs]
            arrays = [take(rows) for take in self._takers[copy]]
        return fill_tree(self._plain, arrays)

    def example_at(self, order: Order, position: int, *, copy: bool) -> dict[str, Any] | None:
        """The example at ``position``; None as ``fetch``."""
        if self._row_table is None or self._row_table[0] is not order:
            row = int(self._rows_at(order, position))
        else:
            _, table, first = self._row_table
            row = position + first if table is None else table.item(position)
        return self.example_in(row, copy=copy)

    def example_in(self, row: int, *, copy: bool) -> dict[str, Any] | None:
        """The example in a row; None as ``fetch``."""
        is_proved = self._is_proved
        if is_proved is not None and not is_proved[row // self._block_records] and not self.prove(slice(row, row + 1)):
            return None
        return (self._makers.get(copy) or self._maker(copy=copy))(row)

    def bounded_blocks(self, order: Order) -> Iterator[BoundedBlock] | None:
        """The positions of an order in blocks.

        None if its positions are not consecutive rows, or if no column has bounds.
        """
        first = int(self._rows_at(order, 0)) if order.num_examples else 0
        if self._row_table is None or self._row_table[1] is not None:
            return None
        return self.blocks_between(first, first + order.num_examples)

    def blocks_between(self, start: int, stop: int) -> Iterator[BoundedBlock] | None:
        """The rows from ``start`` to ``stop`` in blocks; None if a column is in memory, where it has no bounds."""
        named = zip(self._codec.columns, self._columns, strict=True)
        bounded = {reader.path: column for reader, column in named if column.folder is not None}
        return self._bounded(start, stop, bounded) if len(bounded) == len(self._columns) else None

    def _bounded(self, start: int, stop: int, columns: Mapping[str, KeptColumn]) -> Iterator[BoundedBlock]:
        size = max((column.folder.block_records for column in columns.values() if column.folder), default=1)
        while start < stop:
            end = min(stop, (start // size + 1) * size)
            bounds = {
                path: block
                for path, column in columns.items()
                if (block := column.blocks[start // size].bounds) is not None
            }
            yield end - start, bounds
            start = end

    def decode(self, rows: Rows, *, copy: bool) -> ExampleBlock:
        """The examples of ``rows``, which were proved."""
        pairs = zip(self._columns, self._codec.columns, strict=True)
        leaves = [column.values.block(reader, rows, copy=copy) for column, reader in pairs]
        count = rows.stop - rows.start if isinstance(rows, slice) else rows.size
        return ExampleBlock(self._codec.tree, leaves, count)

    def _maker(self, *, copy: bool) -> Callable[[int], dict[str, Any]]:
        """A function that returns the example in a row."""
        pairs = zip(self._columns, self._codec.columns, strict=True)
        getters = [column.values.getter(reader, copy=copy) for column, reader in pairs]
        tree = self._codec.tree
        if all(type(at) is int for at in tree.values()):
            named = [(name, getters[at]) for name, at in tree.items()]
            self._makers[copy] = lambda row: {name: getter(row) for name, getter in named}
        else:
            self._makers[copy] = lambda row: fill_tree(tree, [getter(row) for getter in getters])
        return self._makers[copy]

    def _rows_of(self, instructions: Any, records: Any) -> Any:
        return self._starts[instructions] + records

    def prove(self, rows: Rows) -> bool:
        """Compare each block of ``rows`` once with its digest. Returns False if damaged blocks cannot be repaired."""
        is_proved, size = self._is_proved, self._block_records
        if is_proved is None:
            return True
        blocks = np.arange(rows.start // size, -(-rows.stop // size)) if isinstance(rows, slice) else rows // size
        new = np.unique(blocks[~is_proved[blocks]])
        if not new.size:
            return True
        find = partial(self._damaged, new.tolist(), range(is_proved.size))
        if damaged := find():
            if not self._mend(damaged, find):
                return False
            self._makers.clear()  # a column may have new arrays now
        self._unsearched.clear()
        is_proved[new] = True
        if is_proved.all():
            self._is_proved = None
        return True

    def _damaged(self, blocks: Sequence[int], every: Sequence[int]) -> Damaged:
        result = {}
        for column in self._columns:
            searched = every if column in self._unsearched else ()
            parts = {block: 1 for block in searched if not column.is_sound(block, 1)}
            parts |= {block: len(column.arrays) for block in blocks if not column.is_sound(block)}
            if parts:
                result[column] = parts
        return result

    def _rows_at(self, order: Order, positions: Any) -> Any:
        """The row at each position, or at a single position."""
        if self._row_table is None or self._row_table[0] is not order:
            if order.num_examples > _MOST_ROWS:
                return self._rows_of(*(order.locate(positions) if np.ndim(positions) else order.find(positions)))
            rows = self._rows_of(*order.locate((0, order.num_examples)))
            is_run = bool((rows[1:] - rows[:-1] == 1).all())
            self._row_table = order, None if is_run else rows, int(rows[0]) if rows.size else 0
        _, table, first = self._row_table
        return positions + first if table is None else table[positions]


class JoinedColumns(KeptColumns):
    """The kept columns of several consecutive splits, such as those of a union ``train+test``."""

    def __init__(self, parts: Sequence[KeptColumns], sizes: Sequence[int], starts: Places) -> None:
        """``sizes`` are the numbers of records of the splits."""
        super().__init__(parts[0].features, (), starts, 0, lambda _, __: False)
        self.row_bytes = max(part.row_bytes for part in parts)
        self.stored_row_bytes = max(part.stored_row_bytes for part in parts)
        self._parts = parts
        self._ends = np.cumsum(sizes)
        self._firsts = self._ends - sizes

    @property
    def is_proved(self) -> bool:
        """Whether all blocks were compared with their digests."""
        return all(part.is_proved for part in self._parts)

    def columns_at(self, order: Order, positions: Places, *, copy: bool) -> dict[str, Any] | None:
        """The examples at ``positions`` as a dict of arrays; None as ``fetch``."""
        rows = self._rows_at(order, positions)
        return self.decode(rows, copy=copy).columns() if self.prove(rows) else None

    def example_at(self, order: Order, position: int, *, copy: bool) -> dict[str, Any] | None:
        """The example at ``position``; None as ``fetch``."""
        row = int(self._rows_at(order, position))
        place = int(np.searchsorted(self._ends, row, side="right"))
        return self._parts[place].example_in(row - int(self._firsts[place]), copy=copy)

    def bounded_blocks(self, order: Order) -> None:
        """None: their blocks have different bounds."""

    def decode(self, rows: Rows, *, copy: bool) -> ExampleBlock:
        """The examples of ``rows``, whose blocks were proved.

        Without ``copy``, those of a slice of one split are views.
        """
        parts = list(self._divide(rows))
        if len(parts) < 2:
            part, some, _ = parts[0] if parts else (self._parts[0], slice(0, 0), None)
            return part.decode(some, copy=copy)
        blocks = [part.decode(some, copy=copy) for part, some, _ in parts]  # the join keeps views of lists
        return self._codec.join_blocks(blocks, [places for _, _, places in parts], copy=copy)

    def prove(self, rows: Rows) -> bool:
        """See ``KeptColumns.prove``."""
        return all(part.prove(some) for part, some, _ in self._divide(rows))

    def _divide(self, rows: Rows) -> Iterator[tuple[KeptColumns, Rows, Places]]:
        """Yield the columns of each split that has some of ``rows``, its rows, and their places in ``rows``."""
        for part, start, end in zip(self._parts, self._firsts.tolist(), self._ends.tolist(), strict=True):
            if isinstance(rows, slice):
                first, stop = max(rows.start, start), min(rows.stop, end)
                if first < stop:
                    places = np.arange(first - rows.start, stop - rows.start)
                    yield part, slice(first - start, stop - start), places
            elif (places := np.flatnonzero((rows >= start) & (rows < end))).size:
                yield part, rows[places] - start, places
