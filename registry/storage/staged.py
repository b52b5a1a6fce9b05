"""Staged folders: the files of a version before they have their final place.

    on a disk           mnist/incomplete.5f0a9c31_1.0.0/  ->  commit() renames it to mnist/1.0.0/
    in an object store  a folder in TMPDIR                ->  commit() uploads each file once, to mnist/1.0.0/

On a disk, an owner file in the folder names its process and machine. A later run removes a staged folder only if its
owner is known to be dead: it keeps folders of other machines, and folders with files but no owner file. A single file
that is being written has its owner's mark in its name, and the same rule applies.
"""

from __future__ import annotations

import abc
import json
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from registry.errors import LeftoverWarning, NotStoredError, StorageError
from registry.storage.faults import folder_exists
from registry.storage.names import (
    FINISHED_FILE,
    OWNER_FILE,
    RUNS_SUFFIX,
    Owner,
    check_folder_name,
    check_relative_name,
    is_own_staged,
    is_unfinished,
    new_unfinished_name,
)

if TYPE_CHECKING:
    from registry.storage.local import LocalStore
    from registry.storage.store import Store

_STAGING_ATTEMPTS: Final = 10


class StagedFolder(abc.ABC):
    """A folder that is being filled. Leaving its ``with`` block without ``commit`` discards it.

    Attributes:
        store: rooted at the staged folder, which is on this machine; ``commit`` publishes the files in it.
        final: the name that ``commit`` gives it, relative to the store that staged it.
    """

    def __init__(self, store: Store, *, final: str) -> None:
        self._open = True
        self.store = store
        self.final = final

    def commit(self) -> None:
        """Make the folder visible under its final name, complete and safely stored.

        On a disk this is one rename. An object store receives the files one by one, and readers who go through the
        catalog see none of them before its row exists.

        Raises:
            FolderExistsError: something is stored under the final name. The staged folder is unchanged.
            StorageError: the folder was already committed or discarded.
        """
        if not self._open:
            raise StorageError(
                f"{self.store.locate('')} was already committed or discarded",
                hint="Stage a new folder.",
                details={"path": self.store.locate("")},
            )
        self._commit()
        self._open = False

    def take(self, source: Store, name: str, *, sha256: str | None = None) -> None:
        """Make a file of ``source`` part of the folder, under the same name.

        Raises:
            StorageError: a copy was made, and its digest is not ``sha256``.
        """
        if sha256 is None:
            source.copy(name, self.store)
        else:
            self.store.create_from(name, source, name, sha256=sha256)

    def discard(self) -> None:
        """Remove the folder and everything in it. After ``commit`` or another ``discard`` it does nothing."""
        if self._open:
            self._open = False
            self._remove()

    def give_up(self) -> None:
        """Discard the folder when the work has ended; files that cannot be removed cause a warning, not an error.

        So an error that ended the work is the one that the caller sees.
        """
        try:
            self.discard()
        except StorageError as error:
            warn_of_leftover(self.store.locate(""), error)

    def keep(self) -> str:
        """Leave the folder, complete or not, for a later run; returns its path, for people."""
        if self._open:
            self._open = False
            self._release()
        return self.store.locate("").rstrip("/")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_up()

    @abc.abstractmethod
    def _commit(self) -> None: ...

    @abc.abstractmethod
    def _remove(self) -> None: ...

    @abc.abstractmethod
    def _release(self) -> None:
        """Let other processes use the folder."""


class InnerFolder:
    """A new folder ``incomplete.<8 hex>_<last part>`` next to ``final``, with an owner file.

    Attributes:
        store: rooted at the folder.
        name: its name, relative to the store that contains it.
    """

    def __init__(self, parent: Store, final: str, *, name: str = "") -> None:
        """``name`` is that of an existing folder, which belongs to this process from now on."""
        if name:
            write_owner(parent, name)
            self._parent, self.name, self.store = parent, name, parent.child(name)
            return
        folder, slash, last_part = check_relative_name(final).rpartition("/")
        for attempt in range(1, _STAGING_ATTEMPTS + 1):
            name = folder + slash + new_unfinished_name(last_part)
            try:
                write_owner(parent, name)
            except NotStoredError:  # another process took the empty folder for an abandoned one and removed it: retry
                if attempt == _STAGING_ATTEMPTS:
                    raise
            else:
                break
        self._parent = parent
        self.name = name
        self.store = parent.child(name)

    def discard(self) -> None:
        """Remove the folder and everything in it."""
        self._parent.remove_tree(self.name)


class StagedOnDisk(StagedFolder):
    """A staged folder next to its final place. Discarding it also removes the empty folders that were made for it."""

    def __init__(self, parent: LocalStore, *, final: str, name: str = "") -> None:
        """``name`` is that of a folder that an earlier process left."""
        # A dry run or a build that fails must not leave the empty folders of a dataset that was never published.
        self._missing = parent.missing_folders(final)
        self._folder = InnerFolder(parent, final, name=name)
        super().__init__(self._folder.store, final=final)
        self._parent = parent
        self.name = self._folder.name

    def _commit(self) -> None:
        self._parent.rename_folder(self.name, self.final)
        self.store = self._parent.child(self.final)

    def _remove(self) -> None:
        self._folder.discard()
        self._parent.remove_empty(self._missing)

    def _release(self) -> None:
        release_owner(self.store, self._parent.catalog)


class PlacedFolder(StagedFolder):
    """A folder that has its final name already, because an earlier process ended before the row was written."""

    def __init__(self, parent: LocalStore, *, final: str) -> None:
        super().__init__(parent.child(final), final=final)

    def _commit(self) -> None:
        raise folder_exists(self.store.locate("").rstrip("/"))

    def _remove(self) -> None:
        """Do nothing: others may rely on the folder."""

    def _release(self) -> None:
        """Do nothing: no process owns the folder."""


def warn_of_leftover(place: str, error: StorageError) -> None:
    """Warn that files which are no longer needed could not be removed."""
    warnings.warn(
        f"{place} is no longer needed but could not be removed ({error.message}); a later run removes it",
        LeftoverWarning,
        stacklevel=2,
    )


def clear_abandoned(store: Store, parent: str) -> list[str]:
    """Remove the staged folders in ``parent`` that dead processes left, and return their names.

    Folders of runs and finished shards stay: a later build goes on from them.
    """
    removed = []
    for name, owner in _staged_folders(store, parent):
        if owner is not None and owner.is_dead():
            try:
                store.remove_tree(name)
            except StorageError as error:
                warn_of_leftover(store.locate(name), error)
            else:
                removed.append(name)
        elif owner is None and is_own_staged(name.rpartition("/")[2]) and store.remove_stump(name):
            removed.append(name)
    return removed


def abandoned_folders(store: Store, parent: str) -> Iterator[str]:
    """Find the staged folders directly in ``parent`` that dead processes left: names relative to the store."""
    return (name for name, owner in _staged_folders(store, parent) if owner is not None and owner.is_dead())


def _staged_folders(store: Store, parent: str) -> Iterator[tuple[str, Owner | None]]:
    prefix = f"{check_folder_name(parent)}/" if parent else ""
    for folder in filter(is_unfinished, store.folders(parent)):
        if folder.endswith(RUNS_SUFFIX) or store.exists(f"{prefix}{folder}/{FINISHED_FILE}"):
            continue
        owner, claim = read_claim(store, f"{prefix}{folder}/{OWNER_FILE}")
        if claim in (None, store.catalog):  # the next run of another catalog may go on from its folders
            yield prefix + folder, owner


def write_owner(store: Store, folder: str) -> None:
    """Name this process in a folder of ``store``, and the catalog of the store."""
    store.write_bytes(f"{folder}/{OWNER_FILE}", owner_text(store.catalog), overwrite=True)


def owner_text(catalog: str | None) -> bytes:
    """Return the content of an owner file: this process, and the catalog for which it works, if that is known."""
    values = asdict(Owner.this_process()) | ({} if catalog is None else {"catalog": catalog})
    return json.dumps(values, sort_keys=True).encode()


def release_owner(folder: Store, catalog: str | None) -> None:
    """Let a folder belong to no process, but still to the catalog for which it was made."""
    if catalog is None:
        folder.remove(OWNER_FILE)
    else:
        folder.write_bytes(OWNER_FILE, json.dumps({"catalog": catalog}).encode(), overwrite=True)


def read_claim(store: Store, name: str) -> tuple[Owner | None, str | None]:
    """Read an owner file: the process, and the catalog for which it worked; None for what is missing or malformed."""
    try:
        content: Any = json.loads(store.read_bytes(name, limit=10_000))
        catalog = content.pop("catalog", None)
        claim = catalog if isinstance(catalog, str) else None
        if not content:
            return None, claim  # the process has given the folder up
        owner = Owner(**content)
    except (StorageError, ValueError, TypeError, AttributeError, RecursionError):  # TFDS's own, or one being removed
        return None, None
    texts = (owner.host, owner.machine, owner.boot, owner.namespace, owner.started)
    if not all(isinstance(text, str) for text in texts) or type(owner.pid) is not int or owner.pid <= 0:
        return None, None
    return owner, claim
