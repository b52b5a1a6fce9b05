"""Moves a staged folder to its final place without losing other files or mixing with them.

On a local disk this is one rename, while the parent folder is locked. An object store has neither renames nor locks:
there, files are uploaded one by one under a reservation (``object_place``). ``publish`` writes the row in the block.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from registry.building.finished import is_damaged, is_superseded
from registry.catalog import CatalogBackend, Holder, Reservation, is_published
from registry.errors import (
    CatalogUnavailableError,
    ConflictError,
    FolderExistsError,
    NotFoundError,
    StorageError,
    UsageError,
    VersionTooSmallError,
)
from registry.model import ATTACHMENTS_FOLDER, Advance, DatasetVersion, Shard, is_absolute
from registry.publishing.markers import is_promised
from registry.publishing.object_place import ObjectPlace
from registry.publishing.patience import Patience
from registry.publishing.verify import absolute_location, digest_of
from registry.storage import StagedFolder, Store
from registry.storage.local import LocalStore, StagedOnDisk
from registry.storage.names import FINISHED_FILE
from registry.storage.staged import write_owner

_REFUSALS: Final = (ConflictError, VersionTooSmallError, UsageError, NotFoundError)


@dataclass(slots=True, kw_only=True)
class Placement:
    """The files of a version at their final place, before its row is written.

    Attributes:
        held: the reservation, which ends with the row; None on local disks.
        entity_tags: the ETag of each shard whose bytes are known to be the expected ones, by file name.
        notes: facts about the place, for people.
    """

    held: tuple[Reservation, Holder] | None = None
    entity_tags: Mapping[str, str | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@contextmanager
def place_folder(
    staged: StagedFolder,
    store: Store,
    catalog: CatalogBackend,
    version: DatasetVersion,
    shards: Mapping[str, tuple[Shard, ...]],
    *,
    actor: str,
    sent: Advance | None = None,
    replaces: bool = True,
    patience: Patience,
) -> Iterator[Placement]:
    """Put a staged folder at the location of ``version``, and hold the location during the block, which writes the row.

    If the block ends with a final refusal, the files are removed again, unless another publisher needs them.

    Args:
        staged: the folder.
        store: the data directory.
        catalog: the catalog that gets the row.
        version: the version.
        shards: the shards of the staged folder by split.
        actor: who publishes.
        sent: called with the number of bytes of shards that were put into an object store, or found in place, since the
            last call.
        replaces: move damaged files of a published version aside. If False, they are other data: they may belong to
            another catalog.
        patience: repeats steps while the catalog or the store is away.

    Raises:
        VersionExistsError: the number is published with other content.
        ReservedError: another publisher holds the location, and did not end within ``WAIT_SECONDS``.
        ConflictError: the location contains other data that is not in the catalog; or the same content is published
            with other file names, and those files are damaged.
    """
    if isinstance(store, LocalStore):
        with _on_disk(staged, store, catalog, version, patience) as placement:
            yield placement
        return
    if patience.call(lambda: is_published(catalog, version) and not _require_published_names(store, catalog, version)):
        yield Placement()
        return
    place = ObjectPlace(staged, store, catalog, version, shards, actor=actor, sent=sent, replaces=replaces)
    patience.call(place.take)
    try:
        patience.call(place.fill)
        yield Placement(held=(place.held, place.holder), entity_tags=place.entity_tags, notes=place.notes)
    except _REFUSALS:
        place.give_back()
        raise
    except BaseException:
        if not isinstance(patience.away, CatalogUnavailableError):  # else the next run finds out that this one ended
            place.leave()
        raise
    place.tidy()


def _require_published_names(store: Store, catalog: CatalogBackend, version: DatasetVersion) -> bool:
    """Whether files of ``version`` may replace the published ones. False if names differ and nothing is damaged.

    The content digest does not cover file names, and readers open the names in the row.
    """
    published = catalog.published(version.name, version.config, version.version)
    if published is None or is_absolute(published.location):
        return True
    place = published.location  # another folder if the dataset was renamed
    ours = {split.name: split.filename(0) for split in version.splits if split.num_shards}
    other = [split for split in published.splits if split.num_shards and split.filename(0) != ours[split.name]]
    if not other and place == version.location:
        return True
    if digest_of(store.child(place), version.slicing) == version.content_digest:
        return False
    if place != version.location:
        raise ConflictError(
            f"{version.reference} is published with its files in {store.locate(place)}, which are damaged",
            hint="Put files with the published names there, or publish them under the dataset's former name.",
            details={"folder": store.locate(place)},
        )
    raise ConflictError(
        f"{version.reference} is published with files of other names, which are damaged: expected "
        f"{other[0].filename(0)}, found {ours[other[0].name]}",
        hint="Rename the files to the published names, then publish again.",
        details={"folder": store.locate(place), "expected": other[0].filename(0)},
    )


@contextmanager
def _on_disk(
    staged: StagedFolder, store: LocalStore, catalog: CatalogBackend, version: DatasetVersion, patience: Patience
) -> Iterator[Placement]:
    # One publisher at a time, from the look at the catalog to the row. A refused publisher that removes its folder must
    # not meet another one that has just put its own there, and only one may repair a damaged folder.
    with store.exclusive(version.location):
        notes: list[str] = []
        published = patience.call(lambda: is_published(catalog, version))
        if published and not patience.call(lambda: _require_published_names(store, catalog, version)):
            yield Placement()
            return
        is_free = not published and patience.call(lambda: _is_free(store, catalog, version))
        moved = _rename(staged, store, version, notes, published=published, is_free=is_free)
        try:
            yield Placement(notes=notes)
            with suppress(StorageError):  # before the lock ends: the next publisher must not take it for unpublished
                store.remove(f"{version.location}/{FINISHED_FILE}")
        except (ConflictError, VersionTooSmallError):  # a final refusal: the folder will never have a row
            # Publishing or importing a folder in place does not wait for this lock: a row may name it by now.
            place = store.child(version.location)
            is_named = is_promised(catalog, version) or catalog.published_at(absolute_location(place))
            is_unnamed = moved and not is_named and digest_of(place, version.slicing) == version.content_digest
            if is_unnamed and isinstance(staged, StagedOnDisk):
                staged.retract()
            raise


def _is_free(store: LocalStore, catalog: CatalogBackend, version: DatasetVersion) -> bool:
    """Whether an earlier run for this catalog made the folder at the place of ``version``, and no row names it."""
    place = store.child(version.location)
    return (
        is_superseded(place, store.catalog)
        and catalog.published_digest(version.name, version.config, version.version) is None
        and not catalog.published_at(absolute_location(place))
    )


def _rename(
    staged: StagedFolder,
    store: LocalStore,
    version: DatasetVersion,
    notes: list[str],
    *,
    published: bool,
    is_free: bool,
) -> bool:
    """Whether this call moved the folder; False if an intact folder with the same content is there already.

    If the same content is ``published``, or an earlier run finished the folder and could not write the row, a damaged
    folder is renamed to ``damaged.<random>_<version>`` and replaced. It is never deleted. A line is added to ``notes``.
    The folder of an unpublished run with other content, ``is_free``, is renamed to ``leftover.<random>_<version>``.
    """
    place = version.location
    if published:
        _keep_attachments(staged, store, place)
    try:
        staged.commit()
    except FolderExistsError as error:
        # The digest does not cover file names, and the row names these files.
        names = {name for split in version.splits for name in split.filenames}
        is_ours = digest_of(store.child(place), version.slicing) == version.content_digest
        if is_ours and names.issubset(store.child(place).list()):
            return False
        # Without a row, nobody may touch it, except what this registry finished and what was damaged since.
        damaged = published or is_damaged(store.child(place))
        if not damaged and not is_free:
            raise other_data(version, store) from error
        parent, _, last_part = place.rpartition("/")
        aside = f"{parent}/{'damaged' if damaged else 'leftover'}.{secrets.token_hex(4)}_{last_part}"
        store.rename_folder(place, aside)
        with suppress(StorageError):  # without it, the folder is never garbage
            write_owner(store, aside)
        staged.commit()
        subject = "a damaged folder" if damaged else "the folder of an earlier run that was not published"
        notes.append(f"replaced {subject}, which was moved to {store.locate(aside)}")
    return True


def _keep_attachments(staged: StagedFolder, store: LocalStore, place: str) -> None:
    """Copy the intact attachments of a published version into the staged folder, before its folder is replaced.

    They are in its folder, or in one that an earlier run moved aside before it was killed.
    """
    parent, _, last_part = place.rpartition("/")
    aside = [name for name in store.folders(parent) if name.startswith("damaged.") and name.endswith(f"_{last_part}")]
    for folder in map(store.child, (place, *(f"{parent}/{name}" for name in aside))):
        for name in folder.list(ATTACHMENTS_FOLDER):
            digest = name.removeprefix(f"{ATTACHMENTS_FOLDER}/").partition("_")[0]
            if not staged.store.exists(name) and folder.sha256(name) == digest:
                staged.store.create_from(name, folder, name)


def other_data(version: DatasetVersion, store: LocalStore) -> ConflictError:
    """Return the error for a folder of this machine that contains other data than ``version``."""
    folder = store.locate(version.location)
    return ConflictError(
        f"the folder of {version.reference} contains other data: {folder}",
        hint=f"It is not in this catalog. To publish it: registry publish {shlex.quote(folder)}\n"
        "Or move the folder elsewhere, and publish again.",
        details={"folder": folder},
    )
