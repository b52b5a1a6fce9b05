"""Gives a staged folder its final name, so that nobody else's files are lost or mixed with it.

On a disk of this machine by one rename, while the folder above is locked. An object store has neither: there the files
are copied one by one under a reservation (``object_place``).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from registry.catalog import CatalogBackend, Holder, Reservation
from registry.errors import ConflictError, FolderExistsError, NotFoundError, UsageError, VersionTooSmallError
from registry.model import DatasetVersion, Shard
from registry.publishing.markers import is_promised
from registry.publishing.object_place import ObjectPlace
from registry.publishing.verify import absolute_location, digest_of, is_published
from registry.storage import StagedFolder, Store

_REFUSALS: Final = (ConflictError, VersionTooSmallError, UsageError, NotFoundError)


@dataclass(slots=True, kw_only=True)
class Placement:
    """The files of a version at their place, before its row is written.

    Attributes:
        held: the reservation that the row uses up; None on this machine's disks.
        entity_tags: by file name, the ETag of each shard whose bytes are known to be the promised ones.
        notes: what was found there, for people.
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
) -> Iterator[Placement]:
    """Put a staged folder at the location of ``version``, and keep it for us within the block, which writes the row.

    Where the block ends with a refusal for good, the files are taken away again, unless others need them. The
    ``shards``, by split, are as promised in the staged folder; ``store`` is the data directory; ``actor`` publishes.

    Raises:
        VersionExistsError: the number is published with other content.
        ReservedError: another publisher has the location, and did not end within ``WAIT_SECONDS``.
        ConflictError: the location holds other data that no row describes; or the very content is published with files
            of other names, which are damaged.
    """
    if is_published(catalog, version) and not _require_published_names(store, catalog, version):
        yield Placement()
        return
    if store.local_root is not None:
        with _on_disk(staged, store, catalog, version) as placement:
            yield placement
        return
    place = ObjectPlace(staged, store, catalog, version, shards, actor=actor)
    place.take()
    try:
        place.fill()
        yield Placement(held=(place.held, place.holder), entity_tags=place.entity_tags, notes=place.notes)
    except _REFUSALS:
        place.give_back()
        raise
    except BaseException:
        place.leave()
        raise
    place.tidy()


def _require_published_names(store: Store, catalog: CatalogBackend, version: DatasetVersion) -> bool:
    """Whether files of ``version`` may replace those of the row; False where they have other names and none is needed.

    The content digest says nothing of names, and readers open the names of the row.
    """
    published = catalog.published(version.name, version.config, version.version)
    if published is None or published.location != version.location:
        return True
    ours = {one.name: one.filename(0) for one in version.splits if one.num_shards}
    other = [one for one in published.splits if one.num_shards and one.filename(0) != ours[one.name]]
    if not other:
        return True
    if digest_of(store.child(version.location), version.slicing) == version.content_digest:
        return False
    raise ConflictError(
        f"{version.reference} is published with files of other names, and those are damaged: expected "
        f"{other[0].filename(0)}, found {ours[other[0].name]}",
        hint="Publish a copy of it whose files have the published names.",
        details={"folder": store.locate(version.location), "expected": other[0].filename(0)},
    )


@contextmanager
def _on_disk(
    staged: StagedFolder, store: Store, catalog: CatalogBackend, version: DatasetVersion
) -> Iterator[Placement]:
    # One at a time from the look at the catalog to the row: a loser that takes its folder back must not meet a winner
    # that has just put its own there, nor two that repair a damaged folder each other.
    with store.exclusive(version.location):
        notes: list[str] = []
        moved = _rename(staged, store, version, notes, published=is_published(catalog, version))
        try:
            yield Placement(notes=notes)
        except (ConflictError, VersionTooSmallError):  # refused for good: the folder will never have a row
            # Who publishes or imports a folder where it lies does not wait for us: a row may name it by now.
            place = store.child(version.location)
            is_named = is_promised(catalog, version) or catalog.published_at(absolute_location(place))
            if moved and not is_named and digest_of(place, version.slicing) == version.content_digest:
                store.retract(version.location)
            raise


def _rename(staged: StagedFolder, store: Store, version: DatasetVersion, notes: list[str], *, published: bool) -> bool:
    """Whether this call moved the folder; False where a sound folder of the same content is there already.

    Where the catalog says that the place belongs to this very content (``published``), a damaged folder is set aside
    under the name ``damaged.<random>_<version>``, never deleted, and replaced; ``notes`` get a line that says so.
    """
    place = version.location
    try:
        staged.commit()
    except FolderExistsError as error:
        # The digest says nothing of names: the row promises files of these names.
        names = {name for split in version.splits for name in split.filenames}
        is_ours = digest_of(store.child(place), version.slicing) == version.content_digest
        if is_ours and names.issubset(store.child(place).list()):
            return False
        if not published:
            raise ConflictError(
                f"the folder of {version.reference} holds other data: {store.locate(place)}",
                hint="No row describes it. Publish what is there with: registry publish FOLDER, or move it away.",
                details={"folder": store.locate(place)},
            ) from error
        parent, _, last_part = place.rpartition("/")
        aside = f"{parent}/damaged.{secrets.token_hex(4)}_{last_part}"
        store.publish(place, aside)
        staged.commit()
        notes.append(f"replaced a damaged folder; what was there is kept in {store.locate(aside)}")
    return True
