"""A registry of dataset versions: published once, found by name, sliced by an expression, read, and pinned in a paper.

    >>> import registry
    >>> registry.Version.parse("3.0.1").bump("minor")
    Version(major=3, minor=1, patch=0)

Names are loaded when they are first used, so that ``import registry`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from registry import slim
    from registry.api import (
        Catalog,
        Dataset,
        as_dataframe,
        as_numpy,
        builder,
        connect,
        is_locked,
        load,
        load_pin,
        locked,
    )
    from registry.building import BuilderConfig, DatasetBuilder
    from registry.errors import RegistryError, RegistryWarning, YankedVersionWarning
    from registry.model import DatasetVersion, Reference, SlicingRule, Split, Version, VersionRequest, VersionStatus
    from registry.order import ReadConfig
    from registry.pins import Pin, PinFile
    from registry.reading import Reader
    from registry.splits import (
        Explanation,
        FileInstruction,
        Plan,
        ReadInstruction,
        RecordRange,
        Relation,
        even_splits,
        explain,
        k_fold,
        relation,
        resolve,
        split_for_process,
    )

__version__ = "0.1.0"

_HOMES: Final = {
    "registry.api": (
        "Catalog",
        "Dataset",
        "as_dataframe",
        "as_numpy",
        "builder",
        "connect",
        "is_locked",
        "load",
        "load_pin",
        "locked",
    ),
    "registry.building": ("BuilderConfig", "DatasetBuilder"),
    "registry.errors": ("RegistryError", "RegistryWarning", "YankedVersionWarning"),
    "registry.model": (
        "DatasetVersion",
        "Reference",
        "SlicingRule",
        "Split",
        "Version",
        "VersionRequest",
        "VersionStatus",
    ),
    "registry.order": ("ReadConfig",),
    "registry.pins": ("Pin", "PinFile"),
    "registry.reading": ("Reader",),
    "registry.splits": (
        "Explanation",
        "FileInstruction",
        "Plan",
        "ReadInstruction",
        "RecordRange",
        "Relation",
        "even_splits",
        "explain",
        "k_fold",
        "relation",
        "resolve",
        "split_for_process",
    ),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BuilderConfig",
    "Catalog",
    "Dataset",
    "DatasetBuilder",
    "DatasetVersion",
    "Explanation",
    "FileInstruction",
    "Pin",
    "PinFile",
    "Plan",
    "ReadConfig",
    "ReadInstruction",
    "Reader",
    "RecordRange",
    "Reference",
    "RegistryError",
    "RegistryWarning",
    "Relation",
    "SlicingRule",
    "Split",
    "Version",
    "VersionRequest",
    "VersionStatus",
    "YankedVersionWarning",
    "as_dataframe",
    "as_numpy",
    "builder",
    "connect",
    "even_splits",
    "explain",
    "is_locked",
    "k_fold",
    "load",
    "load_pin",
    "locked",
    "relation",
    "resolve",
    "slim",
    "split_for_process",
]


def __getattr__(name: str) -> Any:
    if name == "slim":
        return import_module("registry.slim")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'registry' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})
