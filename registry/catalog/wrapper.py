"""``CatalogWrapper``: the base of a catalog that passes calls to another one, and acts around them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextvars import ContextVar
from typing import Any, Final, Self

IS_BRIEF: Final[ContextVar[bool]] = ContextVar("is_brief", default=False)
"""Whether the answer to the present call is known, too: the catalog is asked with ``Limits.brief``."""


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
        return _Call(self, name)


class _Call:
    """A call of the protocol, such as ``find``; or a group of calls, such as ``reservations``."""

    def __init__(self, catalog: CatalogWrapper, name: str) -> None:
        self._catalog = catalog
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._catalog._call(self._name, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Call(self._catalog, f"{self._name}.{name}")


def pass_call(catalog: Any, call: str, *args: Any, **kwargs: Any) -> Any:
    """Let ``catalog`` answer a call."""
    group, _, name = call.rpartition(".")
    return getattr(getattr(catalog, group) if group else catalog, name)(*args, **kwargs)
