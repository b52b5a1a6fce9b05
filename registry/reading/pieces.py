"""How is an order read in pieces? So many positions at a time that fixed costs vanish, and memory stays bounded.

A piece is located, fetched, checked and decoded as a whole. Where one of its records is bad it is halved until that
record stands alone, so that all before it are handed out and it is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from registry.errors import CorruptExampleError, RegistryError, StorageError, VerificationError
from registry.features import ExampleBlock, FeaturesDict
from registry.order import Order, tfds_id
from registry.reading.shares import Intervals, cut, size_of
from registry.reading.source import RecordSource
from registry.shards import Block, decode_block, name_record
from registry.tfrecord import Places, RecordBlock

_FIRST_RECORDS: Final = 1
_MOST_RECORDS: Final = 8192
_COPIED_BYTES: Final = 4 * 2**20
_MAPPED_BYTES: Final = 32 * 2**20
_LARGE_BYTES: Final = 16 * 2**10
"""Records of this size are not copied together to be decoded together."""


class Piece(NamedTuple):
    """Records of consecutive positions: where they are stored, and their bytes."""

    instructions: Places
    records: Places
    block: Block


class PieceReader:
    """Reads an order piece by piece, as records or decoded."""

    def __init__(self, source: RecordSource, features: FeaturesDict, *, copy: bool) -> None:
        self._source = source
        self._features = features
        self._copy = copy
        self._mean_bytes = 0.0

    def pieces(self, order: Order, left: Intervals, *, unit: int = 1) -> Iterator[Piece]:
        """The positions ``left`` of ``order``, in pieces that are a multiple of ``unit`` long, but for the last.

        Raises:
            CorruptRecordError, ShardMismatchError, StorageError: as ``RecordSource.fetch``; all before was yielded.
        """
        size = _FIRST_RECORDS
        while left:
            count = min(self._size(order, left, size, unit), size_of(left))
            size = min(8 * size, _MOST_RECORDS)
            for piece in self._fetch(order, cut(left, 0, count), unit):
                self._mean_bytes = piece.block.num_bytes / piece.block.num_records
                yield piece
            left = cut(left, count, size_of(left))

    def located(self, order: Order, left: Intervals) -> Iterator[tuple[Places, Places]]:
        """Where the records of ``left`` are stored, thousands at a time: instructions, and indices in their files."""
        while left:
            yield _locate(order, cut(left, 0, _MOST_RECORDS))
            left = cut(left, _MOST_RECORDS, size_of(left))

    def fetch(self, order: Order, positions: Places) -> Piece:
        """The records at any ``positions``."""
        instructions, records = order.locate(positions)
        return Piece(instructions, records, self._source.fetch(instructions, records))

    def records(self, piece: Piece) -> tuple[Sequence[bytes | memoryview], RegistryError | None]:
        """The records of a piece as they are stored; those before the first that is none, and what is wrong with it."""
        block = piece.block
        try:
            return (block.records() if self._copy else block.views()), None
        except CorruptExampleError as error:  # only rows of columns are not at hand as records
            place = error.details["record"]
            return block.take(np.arange(place)).records(), self._name_fault(error, piece)

    def decode(self, piece: Piece) -> ExampleBlock:
        """The examples of a piece; a fault names file and record."""
        decoded = decode_block(self._features, piece.block, copy=self._copy)
        if decoded.fault is not None:
            decoded.fault = self._name_fault(decoded.fault, piece)
        return decoded

    def decode_one(self, piece: Piece) -> dict[str, Any]:
        """The only example of a piece: what a block costs at least is more than a record does."""
        if not self._copy or not isinstance(piece.block, RecordBlock):
            return next(self.decode(piece).examples())
        (record,) = piece.block.views()
        try:
            return self._features.decode_example(record)
        except CorruptExampleError as error:
            raise self._name_record(error, piece, place=0) from error

    def ids(self, instructions: Places, records: Places) -> list[str]:
        """The TFDS id of each record."""
        names = {index: self._source.instruction(index).filename for index in np.unique(instructions).tolist()}
        places = zip(instructions.tolist(), records.tolist(), strict=True)
        return [tfds_id(names[index], record) for index, record in places]

    def _size(self, order: Order, left: Intervals, size: int, unit: int) -> int:
        """How many positions the next piece takes."""
        if self._mean_bytes:
            budget = _COPIED_BYTES if self._copy else _MAPPED_BYTES
            size = max(1, min(size, int(budget / self._mean_bytes)))
            if self._mean_bytes >= _LARGE_BYTES and unit == 1:
                run = next(order.runs(*left[0])).count
                size = min(size, run) if run > 3 else size
        return max(1, size // unit) * unit

    def _fetch(self, order: Order, part: Intervals, unit: int) -> Iterator[Piece]:
        instructions, records = _locate(order, part)
        try:
            piece = Piece(instructions, records, self._source.fetch(instructions, records))
        except (VerificationError, StorageError):
            count = instructions.size
            if count <= unit:
                raise
        else:
            yield piece
            return
        half = -(-count // (2 * unit)) * unit
        yield from self._fetch(order, cut(part, 0, half), unit)
        yield from self._fetch(order, cut(part, half, count), unit)

    def _name_fault(self, fault: RegistryError, piece: Piece) -> RegistryError:
        if not isinstance(fault, CorruptExampleError):
            return fault
        named = self._name_record(fault, piece, place=fault.details["record"])
        named.__cause__ = fault
        return named

    def _name_record(self, fault: CorruptExampleError, piece: Piece, *, place: int) -> CorruptExampleError:
        filename = self._source.instruction(int(piece.instructions[place])).filename
        return name_record(fault, filename, int(piece.records[place]))


def _locate(order: Order, part: Intervals) -> tuple[Places, Places]:
    if len(part) == 1:
        return order.locate(part[0])
    return order.locate(np.concatenate([np.arange(*interval) for interval in part]))
