"""Staged folders: the files of a version before they move to their final place.

    on a disk           mnist/incomplete.5f0a9c31_1.0.0/  ->  commit() renames it to mnist/1.0.0/
    in an object store  a folder in TMPDIR                ->  commit() uploads each file once, to mnist/1.0.0/

On a disk, an owner file in the folder names its process and machine. A later run removes a staged folder only if its
owner is known to be dead. It keeps folders of other machines, and folders with files but no owner file. The same rule
applies to a single unfinished file, whose name contains the mark of its owner.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from registry.errors import NotStoredError, StorageError
from registry.storage.names import (
    FINISHED_FILE,
    OWNER_FILE,
    RUNS_SUFFIX,
    Owner,
    is_own_staged,
    is_unfinished,
    new_unfinished_name,
)
from registry.storage.store import Store, check_folder_name, check_relative_name, warn_of_leftover

_STAGING_ATTEMPTS: Final = 10


class InnerFolder:
    """A new folder ``incomplete.<8 hex>_<last part>`` next to ``final``, with an owner file.

    Attributes:
        store: rooted at the folder.
        name: its name, relative to the store that contains it.
    """

    def __init__(self, parent: Store, final: str, *, name: str = "") -> None:
        """Create a folder, or take over the existing folder ``name``."""
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


def clear_abandoned(store: Store, parent: str) -> list[str]:
    """Remove the staged folders in ``parent`` that dead processes left, and return their names.

    Folders of runs and finished shards stay, so that a later build can continue from them.
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
        if claim in (None, store.catalog):  # the next run for another catalog may continue from its folders
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
    """Read an owner file: the process, and the catalog for which it worked; None if missing or malformed."""
    try:
        content: Any = json.loads(store.read_bytes(name, limit=10_000))
        catalog = content.pop("catalog", None)
        claim = catalog if isinstance(catalog, str) else None
        if not content:
            return None, claim  # the process has given the folder up
        owner = Owner(**content)
    # A folder of TFDS, or one that is being removed
    except (StorageError, ValueError, TypeError, AttributeError, RecursionError):
        return None, None
    texts = (owner.host, owner.machine, owner.boot, owner.namespace, owner.started)
    if not all(isinstance(text, str) for text in texts) or type(owner.pid) is not int or owner.pid <= 0:
        return None, None
    return owner, claim


def is_left(folder: Store) -> bool:
    """Return whether no process uses the folder: it has ended, or has given the folder up."""
    if not folder.exists(OWNER_FILE):
        return True
    owner, claim = read_claim(folder, OWNER_FILE)
    return claim is not None if owner is None else owner.is_dead()
