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
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from registry.catalog import CatalogBackend, Origin, PublicationDetails, is_published
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
from registry.publishing.placing import Placement, other_data, place_folder
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
    copy = _Copy(copied, files, folder, shards, target, attachments, sent)
    if is_published(target.catalog, copied):
        return copy.complete()
    return copy.publish(origin, fingerprints)


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


@dataclass(frozen=True, slots=True)
class _Copy:
    """A version that is copied.

    Attributes:
        version: the version, with its own folder below the data directory of the target.
        files, folder, shards, target, attachments, sent: see ``copy_version``.
    """

    version: DatasetVersion
    files: Store
    folder: Store
    shards: Mapping[str, tuple[Shard, ...]]
    target: Target
    attachments: Mapping[Attachment, Store]
    sent: Advance | None

    @property
    def num_bytes(self) -> int:
        """The size of all shards."""
        return sum(shard.num_bytes for of_split in self.shards.values() for shard in of_split)

    def complete(self) -> Publication:
        """Copy what the target lacks of a version that it has published."""
        version, catalog = self.version, self.target.catalog
        promotion = unchanged(catalog, version)
        known = find_without_files(catalog, self.target.store, version)
        notes = [] if known is None else self._put_files(known)
        notes += self._attach_others(has_files=known is None)
        published = catalog.published(version.name, version.config, version.version)
        differing = () if published is None else note_metadata(published, version.metadata)
        notes += [f"{note} --catalog {shlex.quote(catalog.url)}" for note in differing]
        if published is not None and published.name != version.name:
            notes.append(f"{version.name} is named {published.name} in the other catalog")
        return Publication(
            version=version, newly=False, num_bytes=self.num_bytes, promotion=promotion, notes=tuple(notes)
        )

    def publish(self, origin: Origin, fingerprints: Mapping[str, SplitFingerprint]) -> Publication:
        """Copy the whole version."""
        version, target, place, patience = self.version, self.target, self.version.location, self.target.patience
        notes = self._note_number(fingerprints)
        details = PublicationDetails(fingerprints=fingerprints, origin=origin, attachments=tuple(self.attachments))

        def write_rows(placement: Placement) -> Publication:
            if placement.held is None:  # otherwise they came with the shards
                patience.call(lambda: self._take_attachments(target.store.child(place)))
            tagged = tag_shards(version.splits, self.shards, placement.entity_tags)
            return target.write_row(version, tagged, replace(details, held=placement.held))

        if self._is_in_place():
            with target.store.exclusive(place):
                publication = write_rows(Placement())
            notes += self._note_others()
            if self.sent is not None:
                self.sent(self.num_bytes)
        else:
            with target.store.stage(place) as staged:
                patience.call(lambda: self._fill(staged))
                notes += self._take_others(staged, version)
                patience.call(lambda: self._take_attachments(staged.store))
                with self._placing(staged, version) as placement:
                    publication = write_rows(placement)
                    notes += placement.notes
            target.store.clear_abandoned(place.rpartition("/")[0])
        tell_default_config(version, target)
        return replace(publication, notes=(*patience.take_notes(), *notes))

    def _placing(
        self, staged: StagedFolder, version: DatasetVersion, *, replaces: bool = True
    ) -> AbstractContextManager[Placement]:
        return place_folder(
            staged,
            self.target.store,
            self.target.catalog,
            version,
            self.shards,
            actor=self.target.actor,
            sent=None if isinstance(staged, StagedOnDisk) else self.sent,  # those on a disk were counted when copied
            replaces=replaces,
            patience=self.target.patience,
        )

    def _take_attachments(self, folder: Store) -> None:
        copy_attachments(folder, {file: (source, file.place) for file, source in self.attachments.items()})

    def _attach_others(self, *, has_files: bool) -> list[str]:
        """Copy attachments that were added to the original after the version was copied.

        Without ``has_files``, its folder lacked files, so it may also lack the files of its own attachments.
        """
        notes: list[str] = []
        version, target = self.version, self.target
        known = target.catalog.published(version.name, version.config, version.version)
        if known is None or not self.attachments:
            return notes
        present, final = target.catalog.attachments(known), target.store.child(home_of(known))
        for attachment, source in self.attachments.items():
            put = partial(copy_attachments, final, {attachment: (source, attachment.place)})
            try:
                if attachment not in present or not has_files:
                    attach_files(target.catalog, target.store, known, {attachment: put}, actor=target.actor)
            except (ConflictError, StorageError) as error:
                notes.append(f"the attachment {attachment.name} was not copied: {error.message}")
        return notes

    def _put_files(self, known: DatasetVersion) -> list[str]:
        """Copy the files of a version whose row already exists, and return notes for people. Existing files are kept.

        Raises:
            ConflictError: a file with other content has the name of one of its files.
        """
        names = {
            new: old
            for split in known.splits
            for new, old in zip(split.filenames, self.version.layout[split.name].filenames, strict=True)
        }
        renamed, store = RenamedStore(self.files, names), self.target.store
        with store.stage(known.location) as staged:
            notes = self._take_others(staged, known)
            if isinstance(store, LocalStore):
                with store.exclusive(known.location):
                    is_published(self.target.catalog, known)  # raises an error if its files are removed by now
                    self._put_on_disk(known, staged, renamed, store)
                return notes
            for name in names:
                staged.take(renamed, name)
            # Those that are there belong to the version, whether or not the other catalog has them.
            final = store.child(known.location)
            for attachment in self.target.catalog.attachments(known):
                if is_intact(final, attachment):
                    staged.take(final, attachment.place, sha256=attachment.sha256)
            with self._placing(staged, known, replaces=False) as placement:
                return [*notes, *placement.notes]

    def _put_on_disk(self, known: DatasetVersion, staged: StagedFolder, files: Store, store: LocalStore) -> None:
        """Put each missing file into the folder of a version, while no other process fills it."""
        final = store.child(known.location)
        present = set(final.list())
        named = shards_by_filename(known.splits, self.shards)

        # Nothing is written if one of those that are there is wrong.
        compare = partial(_is_right, final)
        for is_right in self._each(compare, named, present, reads=(store,), doing="compared files"):
            if not is_right:
                raise other_data(known, store)
        missing = named.keys() - present
        for _ in self._each(_Taker(files, final), named, missing, reads=(files, store), doing="copied files"):
            pass
        for name in staged.store.list():
            if name not in present:
                final.create_from(name, staged.store, name)

    def _note_number(self, fingerprints: Mapping[str, SplitFingerprint]) -> list[str]:
        """A note if the number is too small for the changes since its neighbours in the target; no file is read."""
        proof = prove_by_fingerprints(self.target.catalog, self.target.store, self.version, fingerprints)
        return [] if proof is None or proof.refused is None else [proof.refusal().message]

    def _is_in_place(self) -> bool:
        """Whether all files are in their folder on this machine: a run was killed before it wrote the row.

        Raises:
            ConflictError: the folder contains other data.
        """
        store = self.target.store
        if not isinstance(store, LocalStore) or not (final := store.child(self.version.location)).list():
            return False
        if not self._are_in(final, self.version):
            raise other_data(self.version, store)
        return True

    def _are_in(self, folder: Store, version: DatasetVersion) -> bool:
        """Whether a folder has all shards, by their sha256."""
        indexes = self.target.indexes
        return not verify_shards(folder, version.splits, self.shards, walk=False, indexes=indexes).faults

    def _fill(self, staged: StagedFolder) -> None:
        """Take every shard: copy it to a disk, several at the same time, or let it be uploaded from where it is."""
        named = shards_by_filename(self.version.splits, self.shards)
        if not isinstance(staged, StagedOnDisk):
            for name, shard in named.items():
                staged.take(self.files, name, sha256=shard.sha256)
            return
        taker = _Taker(self.files, staged.store, _Leftovers(self.target.store, staged, self.version))
        # Shards go to the staged folder of this program, which renames it when all are there. Until then, its owner
        # file keeps other runs from removing it, also if nodes of a cluster write the shards.
        for _ in self._each(taker, named, named, reads=(self.files, self.target.store), doing="copied files"):
            pass

    def _each(
        self,
        function: Callable[[tuple[str, str]], T],
        named: Mapping[str, Shard],
        names: Collection[str],
        *,
        reads: Sequence[Store],
        doing: str,
    ) -> Iterator[T]:
        """Call a function with the name and the sha256 of each of the ``names`` that is a shard, several at a time.

        A cluster does it if its nodes can read the stores in ``reads``. A shard counts as sent once its result was
        used.
        """
        orders = [(name, named[name].sha256) for name in sorted(names) if name in named]
        num_bytes, urls = sum(named[name].num_bytes for name, _ in orders), [store.url for store in reads]
        pieces = (Piece(function, order) for order in orders)
        with choose_engine(num_bytes=num_bytes, is_local=False, is_unlocked=True, reads=urls) as engine:
            watch = watch_tasks(self.sent, "files", total=len(orders))
            for (name, _), result in engine.run(pieces, doing=doing, failure=StorageError, watch=watch):
                yield result
                if self.sent is not None:
                    self.sent(named[name].num_bytes)

    def _take_others(self, staged: StagedFolder, version: DatasetVersion) -> list[str]:
        """Write the files that describe the version, and take other files of a prepared folder, such as a licence."""
        written = write_prepared(staged.store, describe(version))
        try:
            names = [name for name in _other_names(self.folder, version) if name not in written]
            # The shards may come from a mirror, and the first location is a text in the other catalog: it may be
            # another dataset of the person who copies, whose files would then be published.
            if names and not self._has_shards(version):
                location = self.folder.locate("").rstrip("/")
                return [f"other files of its folder were not copied: {location} does not contain its shards"]
            for name in names:
                staged.take(self.folder, name)
        except StorageError as error:  # no record depends on them
            return [f"other files of its folder were not copied: {error.message}"]
        return []

    def _note_others(self) -> list[str]:
        """A note if other files of a folder that is in place differ from those of the folder that it is a copy of."""
        final, folder = self.target.store.child(self.version.location), self.folder
        if final.url == folder.url:
            return []
        try:
            differing = [
                name
                for name in _other_names(folder, self.version)
                if not final.exists(name) or final.sha256(name) != folder.sha256(name)
            ]
        except StorageError as error:
            return [f"other files of its folder were not compared: {error.message}"]
        if not differing:
            return []
        listing = ", ".join(differing[:_MOST_NAMED]) + (" ..." if len(differing) > _MOST_NAMED else "")
        return [f"other files of its folder are missing or differ there, and were not changed: {listing}"]

    def _has_shards(self, version: DatasetVersion) -> bool:
        """Whether the folder has all shards, of which there is at least one: first by their sizes, then by sha256."""
        named = shards_by_filename(version.splits, self.shards)
        with closing(ask_sizes(self.folder, named)) as sizes:
            for name, size in sizes:
                if isinstance(size, StorageError) and not isinstance(size, NotStoredError):
                    raise size
                if size != named[name].num_bytes:
                    return False
        with suppress(NotStoredError):
            return bool(named) and self._are_in(self.folder, version)
        return False


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


def _other_names(folder: Store, version: DatasetVersion) -> list[str]:
    """Only those of a prepared folder: files that were published in place may be next to anything else."""
    return extra_files(folder, describe(version)) if folder.exists(INFO_FILENAME) else []
