"""The base class of data providers, which give the items of one record after the other."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from registry.slim.data_decoder import check_names


class DataProvider(abc.ABC):
    """Provides items by name. Subclasses write ``get``, ``list_items`` and ``num_samples``."""

    @abc.abstractmethod
    def get(self, items: Sequence[str]) -> list[Any]:
        """The values of ``items``, in that order, of the next record.

        Raises:
            WrongTypeError: ``items`` is not a list or tuple.
            ItemNotFoundError: one of them is not listed.
            OutOfRangeError: there are no more records; it is a StopIteration.
        """

    @abc.abstractmethod
    def list_items(self) -> list[str]:
        """The names of the items that can be asked for."""

    @abc.abstractmethod
    def num_samples(self) -> int | None:
        """How many records the dataset says it has; it is not counted."""

    def check_items(self, items: Any) -> tuple[str, ...]:
        """``items`` where they are a list or tuple of names that are listed. Errors as ``get``."""
        check_names(items, self.list_items(), where="this provider", example="get(['image', 'label'])")
        return tuple(items)
