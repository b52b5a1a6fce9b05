"""What turns a record into items? Anything that names its items and decodes some of them: one record, or many."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, ItemNotFoundError, WrongTypeError
from registry.tfrecord import RecordBlock


class DataDecoder(abc.ABC):
    """Decodes records into the items that it lists. Subclasses write ``decode`` and ``list_items``."""

    @abc.abstractmethod
    def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[Any]:
        """The values of ``items`` in one record, in that order; of all items where that is None or empty."""

    @abc.abstractmethod
    def list_items(self) -> list[str]:
        """The names of the items that can be decoded."""

    def decode_rows(self, block: RecordBlock, items: Sequence[str]) -> Iterator[list[Any]]:
        """What ``decode`` gives for each record of a block, in order.

        Raises:
            CorruptExampleError: a record does not hold the items, after those of all before it; ``details["record"]``
                is its place in the block.
        """
        for place, record in enumerate(block.records()):
            try:
                yield self.decode(record, items)
            except CorruptExampleError as error:
                raise at_place(error, place) from error

    def decode_batch(self, records: RecordBlock | Sequence[bytes], items: Sequence[str] | None = None) -> list[Any]:
        """The values of ``items`` in many records, in that order: for each item an array, its first dimension records.

        An object array (records,) of the values where their shapes differ, or they are sparse. ``column[i]`` is what
        ``decode`` gives for record ``i``. Errors as ``decode``; ``details["record"]`` is the record's place.
        """
        names = self.check_items(items)
        rows = list(self.decode_rows(as_block(records), names))
        return [stack_items([row[place] for row in rows]) for place in range(len(names))]

    def check_items(self, items: Sequence[str] | None) -> list[str]:
        """``items``, or all there are where that is None or empty.

        Raises:
            ItemNotFoundError: one is not listed.
            WrongTypeError: a text, where a list of them belongs.
        """
        known = self.list_items()
        if isinstance(items, str):
            raise WrongTypeError(
                f"items={items!r:.60} is a text, and has to be a list of names", hint=f"Ask for [{items!r:.60}]."
            )
        for item in items or ():
            if item not in known:
                raise ItemNotFoundError.of(item, known, where="this decoder")
        return list(items) if items else known


def at_place(error: CorruptExampleError, place: int) -> CorruptExampleError:
    """``error`` of the record at ``place`` of a block, which ``details["record"]`` then says."""
    return CorruptExampleError(error.message, hint=error.hint, details={**error.details, "record": place})


def stack_items(values: list[Any]) -> npt.NDArray[Any]:
    """The values as one array, where they are of one shape and dtype; else an object array (n,) of them."""
    first = values[0] if values else None
    if isinstance(first, np.generic) and all(type(value) is type(first) for value in values):
        return np.array(values, first.dtype)
    if isinstance(first, np.ndarray) and all(
        isinstance(value, np.ndarray) and value.shape == first.shape and value.dtype == first.dtype for value in values
    ):
        return np.stack(values)
    return np.fromiter(values, object, len(values))


def as_block(records: RecordBlock | Sequence[bytes]) -> RecordBlock:
    """Some records as a block."""
    if isinstance(records, RecordBlock):
        return records
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    return RecordBlock(np.frombuffer(b"".join(records), np.uint8), lengths.cumsum() - lengths, lengths)
