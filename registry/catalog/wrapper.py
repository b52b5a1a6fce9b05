"""``CatalogWrapper``: the base of a catalog that passes calls to another one, and acts around them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Any, Final, Self

_GROUPS: Final = frozenset(
    (
        "access",
        "aliases",
        "configs",
        "experiments",
        "lifecycle",
        "locations",
        "log",
        "reservations",
        "shards",
        "webhooks",
    )
)


class CatalogWrapper(ABC):
    """A ``CatalogBackend`` whose calls all go through ``_call``."""

    @abstractmethod
    def _call(self, call: str, *args: Any, **kwargs: Any) -> Any:
        """Answer a call, such as ``find`` or ``reservations.list``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # e.g. asked by pickle
            raise AttributeError(name)
        return _Group(self, name) if name in _GROUPS else partial(self._call, name)


class _Group:
    """A group of calls of the protocol, such as ``reservations``."""

    def __init__(self, catalog: CatalogWrapper, name: str) -> None:
        self._catalog = catalog
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(self._catalog._call, f"{self._name}.{name}")


def pass_call(catalog: Any, call: str, *args: Any, **kwargs: Any) -> Any:
    """Let ``catalog`` answer a call."""
    group, _, name = call.rpartition(".")
    return getattr(getattr(catalog, group) if group else catalog, name)(*args, **kwargs)
