"""How do the parsed features of a record become one item? By a handler, which names the features that it needs."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any


class ItemHandler(abc.ABC):
    """Makes an item of the features ``keys``. Subclasses write ``tensors_to_item``.

    Args:
        keys: the name of a feature, or several.
    """

    def __init__(self, keys: str | Sequence[str]) -> None:
        self._keys = [keys] if isinstance(keys, str) else list(keys)

    @property
    def keys(self) -> list[str]:
        """The features that are handed to ``tensors_to_item``."""
        return self._keys

    @abc.abstractmethod
    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """The item, from the parsed value of each of ``keys``: an array, ``bytes``, or a ``SparseTensorValue``."""
