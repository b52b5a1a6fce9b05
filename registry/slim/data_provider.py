"""The base class of data providers, which return the items of one record after another."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from registry.slim.data_decoder import check_names


class DataProvider(abc.ABC):
    """Provides items by name. Subclasses implement ``get``, ``list_items`` and ``num_samples``.

    Follows ``tf_slim.data.data_provider.DataProvider``.
    """

    @abc.abstractmethod
    def get(self, items: Sequence[str]) -> list[Any]:
        """The values of ``items`` in the next record, in the order of ``items``.

        Raises:
            WrongTypeError: ``items`` is not a list or tuple.
            ItemNotFoundError: ``items`` has a name that ``list_items`` does not.
            OutOfRangeError: there are no more records; it is a StopIteration.
        """

    @abc.abstractmethod
    def list_items(self) -> list[str]:
        """The names of the available items."""

    @abc.abstractmethod
    def num_samples(self) -> int | None:
        """The number of records that the dataset declares; None if it declares none. They are not counted."""

    def check_items(self, items: Any) -> tuple[str, ...]:
        """``items`` as a tuple.

        Raises:
            WrongTypeError: ``items`` is not a list or tuple.
            ItemNotFoundError: ``items`` has a name that ``list_items`` does not.
        """
        check_names(items, self.list_items(), where="this provider", example="get(['image', 'label'])")
        return tuple(items)
