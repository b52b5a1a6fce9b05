"""How does a folder look whose files have other names? Read under the new ones; nothing is moved or written."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import BinaryIO, NoReturn

from registry.errors import NotStoredError, StorageError
from registry.storage.names import check_folder_name, check_relative_name
from registry.storage.store import Names, Store


class RenamedStore(Store):
    """Some files of another store under other names. What has no new name is not there, and nothing can be written.

    ``locate`` gives the place of the file itself, so that messages name what a person finds on disk.
    """

    def __init__(self, store: Store, names: Mapping[str, str]) -> None:
        """``names`` are the names in ``store`` by the new ones."""
        self._store = store
        self._names = dict(names)
        self.url = store.url
        self.local_root = store.local_root

    def locate(self, name: str) -> str:
        """The whole path or URL of the file that ``name`` stands for."""
        return self._store.locate(self._names.get(name, name))

    def open(self, name: str) -> BinaryIO:
        """Open a stored file for reading."""
        return self._store.open(self._name(name))

    def size(self, name: str) -> int:
        """Size of a stored file, in bytes."""
        return self._store.size(self._name(name))

    def stamp(self, name: str) -> str:
        """The stamp of the file that ``name`` stands for."""
        return self._store.stamp(self._name(name))

    def entity_tag(self, name: str) -> str | None:
        """The tag of the file that ``name`` stands for."""
        return self._store.entity_tag(self._name(name))

    def exists(self, name: str) -> bool:
        """Whether ``name`` is a new name, or a folder of some."""
        check_relative_name(name)
        return name in self._names or bool(self.list(name))

    def list(self, folder: str = "") -> Names:
        """The new names below ``folder``, sorted."""
        inside = f"{check_folder_name(folder)}/" if folder else ""
        return sorted(name for name in self._names if name.startswith(inside))

    def folders(self, parent: str = "") -> Names:
        """The folders of new names directly in ``parent``."""
        start = len(parent) + 1 if parent else 0
        return sorted({name[start:].partition("/")[0] for name in self.list(parent) if "/" in name[start:]})

    def child(self, name: str) -> RenamedStore:
        """The files below the folder ``name``, under the rest of their new names."""
        own = {one[len(name) + 1 :]: self._names[one] for one in self.list(check_relative_name(name))}
        return RenamedStore(self._store, own)

    def create(self, name: str, *, overwrite: bool = False) -> AbstractContextManager[BinaryIO]:  # noqa: ARG002 - refused
        """Refused."""
        self._refuse("write", name)

    def remove_tree(self, name: str) -> None:
        """Refused."""
        self._refuse("remove", name)

    def publish_folder(self, staged: str, final: str) -> None:  # noqa: ARG002 - refused
        """Refused."""
        self._refuse("publish", final)

    def _name(self, name: str) -> str:
        found = self._names.get(check_relative_name(name))
        if found is None:
            raise NotStoredError(
                f"cannot read {self.locate(name)}: there is no such file",
                details={"path": self.locate(name), "errno": errno.ENOENT, "doing": "read"},
            )
        return found

    def _refuse(self, doing: str, name: str) -> NoReturn:
        raise StorageError(
            f"cannot {doing} {self.locate(check_relative_name(name))}: files under other names are only read",
            details={"path": self.locate(name), "errno": errno.EROFS, "doing": doing},
        )
