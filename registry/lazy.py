"""Loads modules when their names are first used, so that importing a package costs next to nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ForwardRef

__all__ = ["asyncio", "lazy_exports", "lazy_module", "lazy_types", "np", "npt", "yaml"]


def lazy_exports(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of ``package``.

    ``homes`` maps each module of the package to its names, separated by spaces; the names under ``""`` are modules.
    ``.module`` is a module beside the package.
    After the first look-up a name is an attribute of the package.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = home_of[name]
        value = getattr(import_module(f".{home}", package), name) if home else import_module(f"{package}.{name}")
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return load, names


def lazy_types(namespace: dict[str, Any], homes: Mapping[str, str]) -> None:
    """Let ``typing.get_type_hints`` find names that a module imports only for type checkers.

    It imports them when it resolves an annotation, so the module itself loads as fast as before. ``namespace`` has the
    globals of the module, and ``homes`` maps other modules to their names, separated by spaces.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}
    types = f"_types_of_{namespace['__name__'].replace('.', '_')}"  # an alias of it may be resolved in another module
    namespace[types] = _Types(home_of)
    namespace |= {name: ForwardRef(f"{types}.{name}", module=namespace["__name__"]) for name in home_of}


class _Types:
    def __init__(self, home_of: Mapping[str, str]) -> None:
        self._home_of = home_of

    def __getattr__(self, name: str) -> Any:
        if name not in self._home_of:  # doctest asks every global for __wrapped__
            raise AttributeError(name)
        return getattr(import_module(self._home_of[name]), name)


def lazy_module(name: str) -> Any:
    """A module whose attributes are those of the module ``name``, which the first use of an attribute imports.

    >>> lazy_module("math").floor(1.5)
    1
    """
    module = ModuleType(name)

    def load(attribute: str) -> Any:
        value = getattr(import_module(name), attribute)
        setattr(module, attribute, value)
        return value

    module.__dict__["__getattr__"] = load
    return module


if TYPE_CHECKING:
    import asyncio

    import numpy as np
    import numpy.typing as npt
    import yaml
else:
    asyncio, yaml = lazy_module("asyncio"), lazy_module("yaml")
    """For modules that also do something without them: both together take half as long to import as NumPy."""

    npt = lazy_module("numpy.typing")
    np = lazy_module("numpy")
    """NumPy for modules that also do something without it: importing NumPy takes as long as a look-up in a catalog."""
