"""What turns a record into items? Anything that names its items and decodes some of them: one record, or many."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import Any

from registry.errors import CorruptExampleError, ItemNotFoundError
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

    def check_items(self, items: Sequence[str] | None) -> list[str]:
        """``items``, or all there are where that is None or empty; ItemNotFoundError for one that is not listed."""
        known = self.list_items()
        for item in items or ():
            if item not in known:
                raise ItemNotFoundError.of(item, known, where="this decoder")
        return list(items) if items else known


def at_place(error: CorruptExampleError, place: int) -> CorruptExampleError:
    """``error`` of the record at ``place`` of a block, which ``details["record"]`` then says."""
    return CorruptExampleError(error.message, hint=error.hint, details={**error.details, "record": place})
