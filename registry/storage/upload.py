"""Staged folders for stores of other machines, which are filled in TMPDIR and uploaded once they are complete.

``remote.RemoteStore.stage`` makes them. A version's files are uploaded by ``publishing.object_place`` instead, under a
reservation of their location.
"""

from __future__ import annotations

from typing import Any

from registry.errors import AlreadyStoredError
from registry.storage.faults import StoredFile, folder_exists
from registry.storage.local import LocalStore
from registry.storage.staged import release_owner
from registry.storage.store import Names, StagedFolder, Store, check_relative_name
from registry.storage.temporary import TemporaryStore


class StagedUpload(StagedFolder):
    """A staged folder in TMPDIR whose files are uploaded when they are complete."""

    def __init__(self, target: Store, *, final: str, path: str = "") -> None:
        """Create a folder in TMPDIR, or take over ``path``, which an earlier process left there."""
        self._written = TemporaryStore(path)
        self._folder = UploadFolder(self._written)
        super().__init__(self._folder, final=check_relative_name(final))
        self._target = target

    def take(self, source: Store, name: str, *, sha256: str | None = None) -> None:  # noqa: ARG002 (checked when it is uploaded)
        """Make a file of ``source`` part of the folder without copying it. It is uploaded from its present place."""
        self._folder.lend(source, name)

    def _commit(self) -> None:
        if self._target.exists(self.final):
            raise folder_exists(self._target.locate(self.final))
        uploaded = []
        try:
            for name in self.store.list():
                final = f"{self.final}/{name}"
                self._target.create_from(final, self.store, name)
                uploaded.append(final)
        except AlreadyStoredError as error:
            for name in uploaded:
                self._target.remove(name)
            raise folder_exists(self._target.locate(self.final)) from error
        self._remove()

    def _remove(self) -> None:
        self._written.discard()

    def _release(self) -> None:
        release_owner(self._written, self._target.catalog)
        self._written.keep()


class UploadFolder(LocalStore):
    """A folder in TMPDIR, and files of other stores that are part of it."""

    def __init__(self, written: LocalStore) -> None:
        super().__init__(written.locate(""))
        self._lent: dict[str, Store] = {}

    def lend(self, source: Store, name: str) -> None:
        """Add the file ``name`` of ``source``."""
        self._lent[check_relative_name(name)] = source

    def source_of(self, name: str) -> Store:
        """The store with the bytes of a file: this store, or the store that lent the file."""
        return self._lent.get(name, self)

    def locate(self, name: str) -> str:
        """The complete path or URL of ``name``."""
        return self._lent[name].locate(name) if name in self._lent else super().locate(name)

    def open(self, name: str) -> StoredFile:
        """Open a file for reading."""
        return self._lent[name].open(name) if name in self._lent else super().open(name)

    def size(self, name: str) -> int:
        """Size of a file, in bytes."""
        return self._lent[name].size(name) if name in self._lent else super().size(name)

    def stamp(self, name: str) -> str:
        """A text that changes whenever the file is rewritten, as far as its store can tell."""
        return self._lent[name].stamp(name) if name in self._lent else super().stamp(name)

    def exists(self, name: str) -> bool:
        """Whether ``name`` is a file or folder."""
        return name in self._lent or super().exists(name)

    def is_regular(self, name: str) -> bool:
        """Whether ``name`` is a regular file."""
        return self._lent[name].is_regular(name) if name in self._lent else super().is_regular(name)

    def list(self, folder: str = "") -> Names:
        """Every file below ``folder``."""
        start = f"{folder}/" if folder else ""
        return sorted({*super().list(folder), *(name for name in self._lent if name.startswith(start))})

    def __reduce__(self) -> tuple[Any, ...]:
        return UploadFolder, (LocalStore(self.locate("")),), {"_lent": self._lent}
