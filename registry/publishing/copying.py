"""Copies a published version to another catalog: first its files, which are hashed while they are sent, then its rows.

    another catalog  ->  proved files  ->  their place below the data directory  ->  rows, in one transaction

If the other catalog has the version, but its data directory lacks files of it, only these files are sent.

If a run is killed, the next run finishes it. In an object store, the reservation of the place remains, and the existing
objects are compared (``object_place``). On a disk, files of a folder that a dead run was filling are reused. Files that
arrived with the right sha256 are not sent again.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from registry.catalog import CatalogBackend, Holder, Origin, PublicationDetails, Reservation, is_published
from registry.engines import Piece, choose_engine, watch_tasks
from registry.errors import AlreadyStoredError, ConflictError, NotStoredError, StorageError
from registry.model import (
    Advance,
    Attachment,
    DatasetVersion,
    Shard,
    SplitFingerprint,
    VersionState,
    shards_by_filename,
    version_folder,
)
from registry.prepared import describe, extra_files, write_prepared
from registry.prepared.info import FILENAME as INFO_FILENAME
from registry.publishing.attachments import attach_files, copy_attachments, home_of, is_intact
from registry.publishing.placing import other_data, place_folder
from registry.publishing.proof import prove_by_fingerprints
from registry.publishing.publish import Publication, Target, note_metadata, tag_shards, tell_default_config, unchanged
from registry.publishing.verify import verify_shards
from registry.shards.asking import ask_sizes
from registry.storage import StagedFolder, Store
from registry.storage.local import LocalStore, StagedOnDisk
from registry.storage.staged import abandoned_folders
from registry.storage.store import RenamedStore

T = TypeVar("T")

_MOST_NAMED: Final = 5


def copy_version(
    version: DatasetVersion,
    files: Store,
    folder: Store,
    shards: Mapping[str, tuple[Shard, ...]],
    target: Target,
    *,
    origin: Origin,
    fingerprints: Mapping[str, SplitFingerprint],
    attachments: Mapping[Attachment, Store],
    sent: Advance | None = None,
) -> Publication:
    """Copy a version of another catalog. If the target has it, only files that its data directory lacks are copied.

    Its number is not proved again. If the changes since the next lower version in the target exceed what the number
    allows, ``Publication.notes`` says so.

    Args:
        version: the version, as the other catalog describes it.
        files: its shards; each is verified when it is opened.
        folder: its folder, for other files next to the shards.
        shards: its shards by split.
        target: the destination and the options.
        origin: the other catalog, and its facts about the version.
        fingerprints: those of the other catalog.
        attachments: those of the other catalog, each with the folder that has its file.
        sent: called with the number of bytes of shards that were sent, or found in place, since the last call.

    Raises:
        VersionExistsError: the number is published with other content.
        ConflictError: the place contains other data that is not in the catalog; or the version overrides a flag that is
            retired there.
        ReservedError: another publisher has reserved the place in the object store.
        ShardMismatchError, CorruptRecordError, StorageError: a file cannot be read, or is not the published one.
    """
    place = version_folder(version.name, version.config, version.version)
    copied = replace(version, location=place, location_steps=(), canonical=None)
    num_bytes = sum(shard.num_bytes for of_split in shards.values() for shard in of_split)
    if is_published(target.catalog, copied):
        promotion = unchanged(target.catalog, copied)
        notes = []
        if (known := find_without_files(target.catalog, target.store, copied)) is not None:
            notes = _put_files(known, version, files, folder, shards, target, sent)
        notes += _attach_others(copied, attachments, target, has_files=known is None)
        published = target.catalog.published(copied.name, copied.config, copied.version)
        differing = () if published is None else note_metadata(published, copied.metadata)
        notes += [f"{note} --catalog {shlex.quote(target.catalog.url)}" for note in differing]
        if published is not None and published.name != copied.name:
            notes.append(f"{copied.name} is named {published.name} in the other catalog")
        return Publication(version=copied, newly=False, num_bytes=num_bytes, promotion=promotion, notes=tuple(notes))
    notes = _note_number(copied, fingerprints, target)
    patience = target.patience

    def write_rows(
        tagged: Mapping[str, tuple[Shard, ...]], holders: tuple[Reservation, Holder] | None = None
    ) -> Publication:
        if holders is None:  # otherwise they came with the shards
            final = target.store.child(place)
            patience.call(lambda: _take_attachments(final, attachments))
        details = PublicationDetails(
            fingerprints=fingerprints, held=holders, origin=origin, attachments=tuple(attachments)
        )
        return target.write_row(copied, tagged, details)

    if _is_in_place(copied, shards, target):
        with target.store.exclusive(place):
            publication = write_rows(shards)
        notes += _note_others(copied, folder, target)
        if sent is not None:
            sent(num_bytes)
    else:
        with target.store.stage(place) as staged:
            is_local = isinstance(staged, StagedOnDisk)
            patience.call(lambda: _fill(staged, copied, files, shards, target, sent if is_local else None))
            notes += _take_others(staged, copied, folder, shards, target)
            patience.call(lambda: _take_attachments(staged.store, attachments))
            placing = place_folder(
                staged,
                target.store,
                target.catalog,
                copied,
                shards,
                actor=target.actor,
                sent=None if is_local else sent,
                patience=patience,
            )
            with placing as placement:
                tagged = tag_shards(copied.splits, shards, placement.entity_tags)
                publication = write_rows(tagged, placement.held)
                notes += placement.notes
        target.store.clear_abandoned(place.rpartition("/")[0])
    tell_default_config(copied, target)
    return replace(publication, notes=(*patience.take_notes(), *notes))


def _take_attachments(folder: Store, attachments: Mapping[Attachment, Store]) -> None:
    copy_attachments(folder, {attachment: (source, attachment.place) for attachment, source in attachments.items()})


def _attach_others(
    version: DatasetVersion, attachments: Mapping[Attachment, Store], target: Target, *, has_files: bool
) -> list[str]:
    """Copy attachments that were added to the original after the version was copied.

    Without ``has_files``, its folder lacked files, so it may also lack the files of its own attachments.
    """
    notes: list[str] = []
    known = target.catalog.published(version.name, version.config, version.version)
    if known is None or not attachments:
        return notes
    present, final = target.catalog.attachments(known), target.store.child(home_of(known))
    for attachment, source in attachments.items():
        put = partial(_take_attachments, final, {attachment: source})
        try:
            if attachment not in present or not has_files:
                attach_files(target.catalog, target.store, known, {attachment: put}, actor=target.actor)
        except (ConflictError, StorageError) as error:
            notes.append(f"the attachment {attachment.name} was not copied: {error.message}")
    return notes


def find_without_files(catalog: CatalogBackend, store: Store, version: DatasetVersion) -> DatasetVersion | None:
    """The published version with the number of ``version`` if the data directory ``store`` lacks files of it.

    Its ``location`` is the folder below ``store`` in which readers look first. None if all files are there, or if
    readers look elsewhere first, or if it was dropped.

    Raises:
        StorageError: the folder cannot be listed.
    """
    known = catalog.published(version.name, version.config, version.version)
    if known is None or known.is_elsewhere or known.state is VersionState.DROPPED:
        return None
    if store.url.startswith(("http://", "https://")):  # web servers list nothing and take nothing
        return None
    known = replace(known, location=known.locations[0], location_steps=())
    present = set(store.child(known.location).list())
    return None if all(present.issuperset(split.filenames) for split in known.splits) else known


def _put_files(
    dataset_version: DatasetVersion,
    version: DatasetVersion,
    files: Store,
    folder: Store,
    shards: Mapping[str, tuple[Shard, ...]],
    target: Target,
    sent: Advance | None,
) -> list[str]:
    """Copy the files of a version whose row already exists, and return notes for people. Existing files are kept.

    Raises:
        ConflictError: a file with other content has the name of one of its files.
    """
    names = {
        new: old
        for split in dataset_version.splits
        for new, old in zip(split.filenames, version.layout[split.name].filenames, strict=True)
    }
    renamed = RenamedStore(files, names)
    with target.store.stage(dataset_version.location) as staged:
        notes = _take_others(staged, dataset_version, folder, shards, target)
        if isinstance(target.store, LocalStore):
            with target.store.exclusive(dataset_version.location):
                is_published(target.catalog, dataset_version)  # raises an error if its files are removed by now
                _put_on_disk(dataset_version, staged, renamed, shards, target.store, sent)
            return notes
        for name in names:
            staged.take(renamed, name)
        # Those that are there belong to the version, whether or not the other catalog has them.
        final = target.store.child(dataset_version.location)
        for attachment in target.catalog.attachments(dataset_version):
            if is_intact(final, attachment):
                staged.take(final, attachment.place, sha256=attachment.sha256)
        placing = place_folder(
            staged,
            target.store,
            target.catalog,
            dataset_version,
            shards,
            actor=target.actor,
            sent=sent,
            replaces=False,
            patience=target.patience,
        )
        with placing as placement:
            return [*notes, *placement.notes]


def _put_on_disk(
    version: DatasetVersion,
    staged: StagedFolder,
    files: Store,
    shards: Mapping[str, tuple[Shard, ...]],
    store: LocalStore,
    sent: Advance | None,
) -> None:
    """Put each missing file into the folder of a version, while no other process fills it."""
    final = store.child(version.location)
    present = set(final.list())
    named = shards_by_filename(version.splits, shards)

    # Nothing is written if one of those that are there is wrong.
    compare = partial(_is_right, final)
    for name, is_right in _each(compare, named, present, reads=(store,), doing="compared files", sent=sent):
        if not is_right:
            raise other_data(version, store)
        if sent is not None:
            sent(named[name].num_bytes)
    missing = named.keys() - present
    for name, _ in _each(_Taker(files, final), named, missing, reads=(files, store), doing="copied files", sent=sent):
        if sent is not None:
            sent(named[name].num_bytes)
    for name in staged.store.list():
        if name not in present:
            final.create_from(name, staged.store, name)


def _note_number(version: DatasetVersion, fingerprints: Mapping[str, SplitFingerprint], target: Target) -> list[str]:
    """A note if the number is too small for the changes since its neighbours in the target; no file is read."""
    proof = prove_by_fingerprints(target.catalog, target.store, version, fingerprints)
    return [] if proof is None or proof.refused is None else [proof.refusal().message]


def _is_in_place(version: DatasetVersion, shards: Mapping[str, tuple[Shard, ...]], target: Target) -> bool:
    """Whether all files are in their folder on this machine: a run was killed before it wrote the row.

    Raises:
        ConflictError: the folder contains other data.
    """
    store = target.store
    if not isinstance(store, LocalStore) or not (final := store.child(version.location)).list():
        return False
    if verify_shards(final, version.splits, shards, walk=False, indexes=target.indexes).faults:
        raise other_data(version, store)
    return True


def _fill(
    staged: StagedFolder,
    version: DatasetVersion,
    files: Store,
    shards: Mapping[str, tuple[Shard, ...]],
    target: Target,
    sent: Advance | None,
) -> None:
    """Take every shard: copy it to a disk, several at the same time, or let it be uploaded from where it is."""
    named = shards_by_filename(version.splits, shards)
    if not isinstance(staged, StagedOnDisk):
        for name, shard in named.items():
            staged.take(files, name, sha256=shard.sha256)
        return
    taker = _Taker(files, staged.store, _Leftovers(target.store, staged, version))
    # Shards go to the staged folder of this program, which renames it when all are there. Until then, its owner file
    # keeps other runs from removing it, also if nodes of a cluster write the shards.
    for name, _ in _each(taker, named, named, reads=(files, target.store), doing="copied files", sent=sent):
        if sent is not None:
            sent(named[name].num_bytes)


def _each(
    function: Callable[[tuple[str, str]], T],
    named: Mapping[str, Shard],
    names: Collection[str],
    *,
    reads: Sequence[Store],
    doing: str,
    sent: Advance | None,
) -> Iterator[tuple[str, T]]:
    """Call a function with the name and the sha256 of each of the ``names`` that is a shard, several at a time.

    A cluster does it if its nodes can read the stores in ``reads``.
    """
    orders = [(name, named[name].sha256) for name in sorted(names) if name in named]
    num_bytes, urls = sum(named[name].num_bytes for name, _ in orders), [store.url for store in reads]
    pieces = (Piece(function, order) for order in orders)
    with choose_engine(num_bytes=num_bytes, is_local=False, is_unlocked=True, reads=urls) as engine:
        watch = watch_tasks(sent, "files", total=len(orders))
        for (name, _), result in engine.run(pieces, doing=doing, failure=StorageError, watch=watch):
            yield name, result


def _is_right(folder: Store, order: tuple[str, str]) -> bool:
    """Whether a file, given by its name, has a sha256."""
    name, sha256 = order
    return folder.sha256(name) == sha256


@dataclass(frozen=True, slots=True)
class _Taker:
    """The function of a piece of work: copies a file, given by its name and sha256, into a folder on a disk.

    If a dead run left the file behind, it is reused.
    """

    source: Store
    folder: Store
    left: _Leftovers | None = None

    def __call__(self, order: tuple[str, str]) -> None:
        """Put the file into the folder."""
        name, sha256 = order
        if self.left is not None and self.left.give(name, sha256):
            return
        try:
            self.folder.create_from(name, self.source, name, sha256=sha256)
        except AlreadyStoredError:
            # The worker of an earlier attempt put it there, and died before it could say so.
            if self.folder.sha256(name) != sha256:
                raise


class _Leftovers:
    """Files of the same version in folders on a disk that dead runs were filling. Can be sent to another process."""

    def __init__(self, store: Store, staged: StagedOnDisk, version: DatasetVersion) -> None:
        parent, _, last_part = version.location.rpartition("/")
        self._store = store
        self._folder = staged.store
        self._folders = [name for name in abandoned_folders(store, parent) if name.endswith(f"_{last_part}")]

    def give(self, name: str, sha256: str) -> bool:
        """Move a file with this sha256 into the staged folder. False if no such file exists."""
        for folder in self._folders:
            with suppress(StorageError):  # missing, or another run was faster
                if self._store.child(folder).sha256(name) == sha256:
                    self._folder.move_in(name, self._store.child(folder), content_type="")
                    return True
        return False


def _take_others(
    staged: StagedFolder,
    version: DatasetVersion,
    folder: Store,
    shards: Mapping[str, tuple[Shard, ...]],
    target: Target,
) -> list[str]:
    """Write the files that describe the version, and take other files of a prepared folder, such as a licence."""
    written = write_prepared(staged.store, describe(version))
    try:
        names = [name for name in _other_names(folder, version) if name not in written]
        # The shards may come from a mirror, and the first location is a text in the other catalog: it may be another
        # dataset of the person who copies, whose files would then be published.
        if names and not _has_shards(folder, version, shards, target):
            location = folder.locate("").rstrip("/")
            return [f"other files of its folder were not copied: {location} does not contain its shards"]
        for name in names:
            staged.take(folder, name)
    except StorageError as error:  # no record depends on them
        return [f"other files of its folder were not copied: {error.message}"]
    return []


def _note_others(version: DatasetVersion, folder: Store, target: Target) -> list[str]:
    """A note if other files of a folder that is in place differ from those of the folder that it is a copy of."""
    final = target.store.child(version.location)
    if final.url == folder.url:
        return []
    try:
        differing = [
            name
            for name in _other_names(folder, version)
            if not final.exists(name) or final.sha256(name) != folder.sha256(name)
        ]
    except StorageError as error:
        return [f"other files of its folder were not compared: {error.message}"]
    if not differing:
        return []
    listing = ", ".join(differing[:_MOST_NAMED]) + (" ..." if len(differing) > _MOST_NAMED else "")
    return [f"other files of its folder are missing or differ there, and were not changed: {listing}"]


def _other_names(folder: Store, version: DatasetVersion) -> list[str]:
    """Only those of a prepared folder: files that were published in place may be next to anything else."""
    return extra_files(folder, describe(version)) if folder.exists(INFO_FILENAME) else []


def _has_shards(
    folder: Store, version: DatasetVersion, shards: Mapping[str, tuple[Shard, ...]], target: Target
) -> bool:
    """Whether a folder has all shards, of which there is at least one: first by their sizes, then by their sha256."""
    named = shards_by_filename(version.splits, shards)
    with closing(ask_sizes(folder, named)) as sizes:
        for name, size in sizes:
            if isinstance(size, StorageError) and not isinstance(size, NotStoredError):
                raise size
            if size != named[name].num_bytes:
                return False
    with suppress(NotStoredError):
        return (
            bool(named) and not verify_shards(folder, version.splits, shards, walk=False, indexes=target.indexes).faults
        )
    return False
