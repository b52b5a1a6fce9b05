"""The default places of a catalog, its data and its caches: arguments, then environment variables, then defaults."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from registry.catalog import sqlite_path
from registry.errors import StorageError, UsageError

if TYPE_CHECKING:  # numpy is loaded when something is read
    from registry.tfrecord import IndexFolder

CATALOG_VARIABLE: Final = "REGISTRY_CATALOG"
DATA_DIR_VARIABLE: Final = "REGISTRY_DATA_DIR"
CACHE_VARIABLE: Final = "REGISTRY_CACHE"

_OLD_NAME: Final = "dataset-registry"
"""The distribution's name before version 0.2; on the package index it belongs to another project."""


def catalog_url(url: str | os.PathLike[str] | None = None) -> str:
    """The catalog that ``connect(url)`` opens."""
    if url is not None and not os.fspath(url):
        raise UsageError("the catalog's URL is empty", hint="Name one, or leave it out for the default.")
    chosen = url or os.environ.get(CATALOG_VARIABLE)
    return os.fspath(chosen) if chosen else str(_user_folder() / "catalog.db")


def data_folder(url: str, data_dir: str | os.PathLike[str] | None = None) -> str:
    """The data directory that ``connect(url, data_dir=data_dir)`` uses.

    Raises:
        UsageError: it is a URL that holds a password.
    """
    if chosen := data_dir or os.environ.get(DATA_DIR_VARIABLE):
        from registry.storage import require_no_secrets

        return require_no_secrets(chosen, "the data directory")
    beside = sqlite_path(url)
    return str((beside.parent if beside is not None else _user_folder()) / "datasets")


def index_folder() -> str:
    """The folder in which the places of records are kept: what is in it can be removed at any time."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return str(Path(chosen) / "indexes")
    import platformdirs

    return str(Path(platformdirs.user_cache_dir("shardbook", appauthor=False)) / "indexes")


def open_indexes() -> IndexFolder:
    """The folder in which readers keep what they found out of files: places of records, and stamps."""
    from registry.tfrecord import IndexFolder

    return IndexFolder(index_folder())


def make_catalog_folder(url: str) -> None:
    """Make the folder of an SQLite catalog, so that naming a new file is all it takes to begin; else nothing."""
    path = sqlite_path(url)
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot make the folder {path.parent}: {error.strerror}",
            hint="Name another catalog with --catalog or $REGISTRY_CATALOG.",
            details={"path": str(path.parent), "errno": error.errno},
        ) from error


def _user_folder() -> Path:
    """The user's data folder; one that was made while the distribution had its old name stays in use."""
    import platformdirs

    folder, old = (Path(platformdirs.user_data_dir(name, appauthor=False)) for name in ("shardbook", _OLD_NAME))
    return old if old.is_dir() and not folder.is_dir() else folder
