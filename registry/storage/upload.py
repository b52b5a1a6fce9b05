"""Staged folders for stores of other machines: they are filled in TMPDIR, and uploaded when they are complete.

``remote.RemoteStore.stage`` makes them. A version's files are uploaded by ``publishing.object_place`` instead, under a
reservation of their location.
"""

from __future__ import annotations

from registry.errors import AlreadyStoredError
from registry.storage.faults import folder_exists
from registry.storage.names import check_relative_name
from registry.storage.staged import StagedFolder
from registry.storage.store import Store
from registry.storage.temporary import TemporaryStore


class StagedUpload(StagedFolder):
    """A staged folder in TMPDIR whose files are uploaded when they are complete."""

    def __init__(self, target: Store, *, final: str) -> None:
        self._folder = TemporaryStore()
        super().__init__(self._folder, final=check_relative_name(final))
        self._target = target

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
        self._folder.discard()
