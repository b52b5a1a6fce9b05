"""What is handed out of an order? Its pieces as examples, batches, records or ids, in lists of as many as there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import RegistryError
from registry.order import Order
from registry.reading.pieces import Piece, PieceReader
from registry.reading.shares import Intervals

TFDS_ID: Final = "tfds_id"
"""The feature that tells which record of which file an example is, where it is asked for."""


class Items(NamedTuple):
    """Some items to hand out, and how many positions of the order each takes, and all of them."""

    items: list[Any]
    positions_each: int
    num_positions: int


ItemLists: TypeAlias = Callable[[Order, Intervals], Iterator[Items]]
"""What gives the items of some positions of an order. A fault is raised after all that stands before it."""


class ItemReader:
    """Turns pieces into what is handed out; ``add_ids`` adds the TFDS id to every example."""

    def __init__(self, reader: PieceReader, *, add_ids: bool) -> None:
        self._reader = reader
        self._add_ids = add_ids

    def examples(self, order: Order, left: Intervals) -> Iterator[Items]:
        """Dicts, one for each position."""
        for piece in self._reader.pieces(order, left):
            for examples in self._example_lists(piece):
                yield Items(examples, 1, len(examples))

    def records(self, order: Order, left: Intervals) -> Iterator[Items]:
        """The stored records: ``bytes``, or views where nothing is to be copied."""
        for piece in self._reader.pieces(order, left):
            records, fault = self._reader.records(piece)
            yield Items(list(records), 1, len(records))
            if fault is not None:
                raise fault

    def ids(self, order: Order, left: Intervals) -> Iterator[Items]:
        """TFDS ids; nothing is read."""
        for instructions, records in self._reader.located(order, left):
            yield Items(self._reader.ids(instructions, records), 1, records.size)

    def batches(self, order: Order, left: Intervals, *, size: int, drop_remainder: bool) -> Iterator[Items]:
        """Dicts of arrays of ``size`` examples; fewer in the last, unless that is dropped."""
        for piece in self._reader.pieces(order, left, unit=size):
            columns, num_sound, fault = self._sound_columns(piece)
            stop = num_sound - (num_sound % size if drop_remainder or fault is not None else 0)
            batches = [slice_columns(columns, slice(start, min(start + size, stop))) for start in range(0, stop, size)]
            yield Items(batches, size, stop if fault is not None else num_sound)
            if fault is not None:
                raise fault

    def blocks(self, order: Order, left: Intervals) -> Iterator[Items]:
        """Dicts of arrays of as many examples as are read at once."""
        for piece in self._reader.pieces(order, left):
            columns, num_sound, fault = self._sound_columns(piece)
            if num_sound:
                yield Items([columns], num_sound, num_sound)
            if fault is not None:
                raise fault

    def example_at(self, order: Order, positions: npt.NDArray[np.int64]) -> dict[str, Any]:
        """The example at the only one of ``positions``."""
        piece = self._reader.fetch(order, positions)
        example = self._reader.decode_one(piece)
        if self._add_ids:
            example[TFDS_ID] = self._reader.ids(piece.instructions, piece.records)[0].encode()
        return example

    def examples_at(self, order: Order, positions: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
        """The examples at ``positions``."""
        return list(chain.from_iterable(self._example_lists(self._reader.fetch(order, positions))))

    def columns_at(self, order: Order, positions: npt.NDArray[np.int64]) -> dict[str, Any]:
        """The examples at ``positions`` as a dict of arrays."""
        columns, _, fault = self._sound_columns(self._reader.fetch(order, positions))
        if fault is not None:
            raise fault
        return columns

    def _example_lists(self, piece: Piece) -> Iterator[list[dict[str, Any]]]:
        ids = self._reader.ids(piece.instructions, piece.records) if self._add_ids else None
        done = 0
        for examples in self._reader.decode(piece).example_lists():
            if ids is not None:
                for example, name in zip(examples, ids[done : done + len(examples)], strict=True):
                    example[TFDS_ID] = name.encode()
            done += len(examples)
            yield examples

    def _sound_columns(self, piece: Piece) -> tuple[dict[str, Any], int, RegistryError | None]:
        """The columns of the examples before the first bad one, how many these are, and what is wrong with that one."""
        decoded = self._reader.decode(piece)
        columns = decoded.sound.columns()
        if self._add_ids:
            column = np.empty(piece.records.size, object)
            column[:] = [name.encode() for name in self._reader.ids(piece.instructions, piece.records)]
            columns[TFDS_ID] = column[: len(decoded)]
        return columns, len(decoded), decoded.fault


def slice_columns(columns: Mapping[str, Any], part: slice) -> dict[str, Any]:
    """``part`` of each array in a nested dict of them."""
    return {
        name: slice_columns(column, part) if isinstance(column, Mapping) else column[part]
        for name, column in columns.items()
    }
