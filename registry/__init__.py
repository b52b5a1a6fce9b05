"""A registry of dataset versions: publish a version once, find it by name, slice it, read it, and pin it in a paper.

    >>> import registry
    >>> registry.Version.parse("3.0.1").bump("minor")
    Version(major=3, minor=1, patch=0)

Stable names: from 0.2 the names in ``registry.__all__``, ``registry.features``, ``registry.slim``, ``registry.torch``
and ``registry.errors``, their documented methods, attributes and arguments, error codes and exit codes follow
semantic versioning: a release that breaks one of them raises MAJOR (before 1.0: MINOR). Everything else is internal
and may change in any release, even if it can be imported under a name without an underscore.

Names are loaded when they are first used, so ``import registry`` costs next to nothing.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry import slim
    from registry import torch as torch
    from registry.api import (
        AddReport,
        Catalog,
        Dataset,
        DatasetLike,
        add,
        as_dataframe,
        builder,
        cache,
        connect,
        is_locked,
        load,
        load_pin,
        locked,
        restore,
        verify_webhook,
    )
    from registry.building import BuilderConfig, DatasetBuilder, Pieces
    from registry.engines import use_engine
    from registry.errors import RegistryError, RegistryWarning, YankedVersionWarning
    from registry.model import (
        DatasetVersion,
        Progress,
        Reference,
        SlicingRule,
        Split,
        Version,
        VersionRequest,
        VersionStatus,
    )
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

__version__ = "0.2.0"

__all__ = [
    "AddReport",
    "BuilderConfig",
    "Catalog",
    "Dataset",
    "DatasetBuilder",
    "DatasetLike",
    "DatasetVersion",
    "Explanation",
    "FileInstruction",
    "Pieces",
    "Pin",
    "PinFile",
    "Plan",
    "Progress",
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
    "add",
    "as_dataframe",
    "builder",
    "cache",
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
    "restore",
    "slim",
    "split_for_process",
    "use_engine",
    "verify_webhook",
    # registry.torch is not listed: "from registry import *" has to work without torch
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "": "slim torch",
        "api": "AddReport Catalog Dataset DatasetLike add as_dataframe builder cache connect is_locked load load_pin "
        "locked restore verify_webhook",
        "building": "BuilderConfig DatasetBuilder Pieces",
        "engines": "use_engine",
        "errors": "RegistryError RegistryWarning YankedVersionWarning",
        "model": "DatasetVersion Progress Reference SlicingRule Split Version VersionRequest VersionStatus",
        "order": "ReadConfig",
        "pins": "Pin PinFile",
        "reading": "Reader",
        "splits": "Explanation FileInstruction Plan ReadInstruction RecordRange Relation even_splits explain k_fold "
        "relation resolve split_for_process",
    },
)
