"""Which versions did TFDS prepare in a folder? Found by their layout, described by their own files.

    <data_dir>/<name>[/<config>]/<version>/      a version folder: dataset_info.json, features.json, shards
    <data_dir>/<name>/.config/metadata.json      the default config

The folder that is given may be any of these levels. What TFDS ignores is ignored: ``incomplete.*`` and hidden folders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from registry.errors import PreparedFormatError, ReferenceSyntaxError, StorageError
from registry.model import Version, check_config
from registry.prepared import PreparedDataset, default_config, read_prepared
from registry.prepared.info import FILENAME as INFO_FILENAME
from registry.storage import Store, open_store
from registry.storage.faults import storage_errors

_DEPTH: Final = 3
"""A version lies at most so deep: name, config, version."""

_UNFINISHED: Final = "incomplete."
"""What TFDS writes, or was writing when it died, at whatever level."""

_DOWNLOADS: Final = "downloads"
"""Where TFDS keeps what it downloaded, thousands of files: no dataset, unless it is one."""


@dataclass(frozen=True, slots=True)
class VersionFolder:
    """A folder that should hold a version: a prepared one, or one whose name says so."""

    store: Store

    @property
    def path(self) -> str:
        """Its path, or its URL where it is elsewhere."""
        return self.store.url if self.store.local_root is None else str(self.store.local_root)

    def read(self) -> PreparedDataset:
        """What its files say. Where an older TFDS did not write the config down, the folders' names tell it.

        Raises:
            PreparedFormatError: the folder is none, a file is malformed, or it lies below the name of another version.
            StorageError: a file cannot be read.
        """
        prepared = read_prepared(self.store)
        name, config, folder = self._names
        if Version.is_valid(folder) and folder != str(prepared.version):
            raise PreparedFormatError(
                f"{self.path}: its {INFO_FILENAME} says that it is version {prepared.version}",
                hint=f"Rename the folder to {prepared.version}, or prepare version {folder} again.",
                details={"file": INFO_FILENAME, "key": "version", "problem": f"the folder is called {folder}"},
            )
        if prepared.config is None and prepared.name == name and config != name and _is_config(config):
            return replace(prepared, config=config)
        return prepared

    def is_default_config(self, prepared: PreparedDataset) -> bool:
        """Whether the dataset's folder says that the config of ``prepared`` is the default one.

        Raises:
            PreparedFormatError, StorageError: the file that says so cannot be read.
        """
        name, config, folder = self._names  # the name of its folder: it may be published under another one
        if prepared.config is None or (config, folder) != (prepared.config, str(prepared.version)):
            return False
        data_dir = self.path.rstrip("/").rsplit("/", 3)[0]
        return default_config(open_store(data_dir or "/"), name) == prepared.config

    @property
    def dataset_folder(self) -> str:
        """The path or URL of the folder of its config, or of the dataset where that has none: one level up."""
        return self.path.rstrip("/").rpartition("/")[0] or "/"

    @property
    def _names(self) -> tuple[str, str, str]:
        """The last three parts of its path: what TFDS calls after a dataset's name, its config and its version."""
        *_, name, config, folder = ["", "", *self.path.rstrip("/").split("/")]
        return name, config, folder


def find_version_folders(root: Store) -> Iterator[VersionFolder]:
    """Every version folder at or below ``root``: of one dataset after the other, the lowest version first.

    A folder with the name of a version is one, though files are missing in it: whoever reads it is told which. On this
    machine links to folders are followed, as people spread datasets over disks.

    A folder that cannot be looked into is given, too: it may be one, and whoever reads it is told why not.

    Raises:
        StorageError: ``root`` itself cannot be looked into.
    """
    if root.exists(INFO_FILENAME):
        yield VersionFolder(root)
    else:
        yield from _search(root, _folders(root), _DEPTH)


def _search(folder: Store, names: Iterable[str], depth: int) -> Iterator[VersionFolder]:
    versions: list[Version] = []
    others: list[str] = []
    for name in names:
        if name.startswith((".", _UNFINISHED)) or f".{_UNFINISHED[:-1]}" in name:  # 1.0.0.incompleteAB12CD, long ago
            continue
        if Version.is_valid(name):
            versions.append(Version.parse(name))
        elif not (depth == _DEPTH and name == _DOWNLOADS):
            others.append(name)
    for version in sorted(versions):
        yield VersionFolder(_child(folder, str(version)))
    for name in others:
        inner = _child(folder, name)
        try:
            is_version = inner.exists(INFO_FILENAME)
            below = [] if is_version or depth == 1 else _folders(inner)
        except StorageError:
            is_version, below = True, []
        if is_version:
            yield VersionFolder(inner)
        else:
            yield from _search(inner, below, depth - 1)


def _folders(folder: Store) -> list[str]:
    if folder.local_root is None:
        return folder.folders()
    with storage_errors("list", str(folder.local_root)):
        try:
            return sorted(entry.name for entry in folder.local_root.iterdir() if entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []


def _child(folder: Store, name: str) -> Store:
    return folder.child(name) if folder.local_root is None else open_store(folder.local_root / name)


def _is_config(name: str) -> bool:
    try:
        check_config(name)
    except ReferenceSyntaxError:
        return False
    return True
