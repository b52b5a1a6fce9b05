"""Removes the files of dropped versions, after their grace period: in the data directory, at mirrors, and in the cache.

    event "begun"  ->  descriptions, attachments, shards at each place  ->  event "ended"

The descriptions are removed first, so that the remaining files are not mistaken for a version. If the process is
killed, the same call, or ``registry gc``, finishes the removal. Only files that the catalog records are removed, by
their names, from the folders of the version, and the descriptions in the folder that the registry wrote. Links are not
followed. All other files are reported but not removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from registry.catalog import CatalogBackend, Removal, RemovalStep, load_shards, published_version
from registry.catalog.service.store import ServiceStore
from registry.columns.folder import forget_columns
from registry.errors import CatalogPermissionError, ConflictError, MissingExtraError, NotFoundError, StorageError, spell
from registry.masking import mask
from registry.model import DatasetVersion, Reference, Use, VersionState, covers, describe_moment, is_absolute
from registry.prepared import is_description
from registry.prepared.folder import METADATA_FILENAME
from registry.publishing.attachments import home_of
from registry.publishing.garbage import GarbageOutcome, Leftover
from registry.publishing.usage import find_neighbours
from registry.storage import Store, open_location
from registry.storage.cache import CachedBlocks, FileCache
from registry.storage.local import LocalStore
from registry.storage.names import FINISHED_FILE, MARKER_FILE, OWNER_FILE
from registry.storage.store import ReadOnlyStore

_MOST_NAMES: Final = 100
_SHOWN: Final = 5
_ALSO_OURS: Final = frozenset((METADATA_FILENAME, FINISHED_FILE, OWNER_FILE))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearedPlace:
    """A place of a version whose files were removed, or would be.

    Attributes:
        place: its path or URL.
        num_files, num_bytes: the files that were removed; in a dry run, those that would be.
        left: the names of files that were not removed, at most 100: the catalog does not record them, or they are
            links.
        why_left: why nothing is removed there, or ``""``.
        error: why the place could not be cleared; the same call tries again.
    """

    place: str
    num_files: int = 0
    num_bytes: int = 0
    left: tuple[str, ...] = ()
    why_left: str = ""
    error: StorageError | MissingExtraError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalReport:
    """The result of ``Catalog.remove``.

    Attributes:
        removal: the state of the removal, and when it is due.
        places: the places that were cleared; empty if the removal is only planned.
        is_dry_run: whether this was a dry run, which changes nothing.
    """

    removal: Removal
    places: tuple[ClearedPlace, ...] = ()
    is_dry_run: bool = False

    def require_all(self) -> RemovalReport:
        """The report itself, if every place could be cleared. Raises the error of the first one that could not."""
        for place in self.places:
            if place.error is not None:
                raise place.error
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """A policy of ``gc``: which dropped versions lose their files without a request for each.

    Attributes:
        after: how long after its drop a version keeps its files.
        datasets: patterns of the datasets to which it applies, as for an access token.
        uses: references in use, such as pins: these versions keep their files.
    """

    after: timedelta
    datasets: tuple[str, ...] = ("*",)
    uses: tuple[Use, ...] = ()


@dataclass(frozen=True, slots=True)
class Remover:
    """Removes the files of dropped versions: of one, for ``Catalog.remove``, or of all that are due, for ``gc``.

    Attributes:
        catalog: the catalog.
        data: the data directory that it records.
        actor: the actor, for the event log.
        cache: the cache of this machine's user.
        retention: the policy for dropped versions; None removes only what somebody has requested.
    """

    catalog: CatalogBackend
    data: Store
    actor: str
    cache: FileCache | None
    retention: Retention | None = None

    def remove(
        self,
        reference: Reference,
        *,
        grace: timedelta | None = None,
        force: bool = False,
        dry_run: bool = False,
        uses: Sequence[Use] = (),
    ) -> RemovalReport:
        """See ``Catalog.remove``."""

        def advance(**options: bool) -> Removal:
            return self.catalog.lifecycle.remove(
                reference, grace=grace, force=force, actor=self.actor, uses=uses, **options
            )

        removal = advance(dry_run=True)
        around = self._refuse_shared(removal, force=force)
        if not dry_run:
            removal = advance()
        if removal.step is RemovalStep.PLANNED:
            return RemovalReport(removal=removal, is_dry_run=dry_run)
        if not dry_run:  # again: from here on nobody publishes files of this version
            around = self._refuse_shared(removal, force=force)
        version = published_version(self.catalog, removal.reference)
        attached = [attachment.place for attachment in self.catalog.attachments(version)]
        shards = [name for split in version.splits for name in split.filenames]
        is_forced = force or removal.force or removal.step is RemovalStep.ENDED
        task = _Task(self.data, attached, shards, around, is_forced=is_forced, is_dry_run=dry_run)
        places = tuple(task.clear(location, why) for location, why in self._places(version))
        if not dry_run:
            self._forget(version)
            has_faults = any(place.error for place in places)
            if has_faults and advance(dry_run=True).step is RemovalStep.ENDED:
                return self.remove(reference)  # another process has ended it, and removed the empty folders
            if removal.step is RemovalStep.BEGUN and not has_faults:
                removal = advance(is_done=True)
            if removal.step is RemovalStep.ENDED:
                self._remove_folders(version)
        return RemovalReport(removal=removal, places=places, is_dry_run=dry_run)

    def find(self) -> Iterator[Leftover]:
        """A leftover for each removal that is planned or has begun; it is garbage if the grace period has passed."""
        now = self.catalog.now()
        for removal in self.catalog.lifecycle.removals():
            if removal.step is RemovalStep.ENDED or removal.due is None:
                continue
            places: tuple[ClearedPlace, ...] = ()
            outcome = GarbageOutcome.FOUND if removal.due <= now else GarbageOutcome.KEPT
            due = describe_moment(removal.due.replace(microsecond=0))
            why = f"the files of a dropped version, whose removal {removal.actor} requested for {due}"
            try:
                if outcome is GarbageOutcome.FOUND:
                    places = self.remove(removal.reference, dry_run=True).places
            except ConflictError as error:
                outcome, why = GarbageOutcome.KEPT, error.message
            yield _leftover(removal.reference, outcome, why, places)
        if self.retention is not None:
            yield from self._find_retained(self.retention)

    def _find_retained(self, retention: Retention) -> Iterator[Leftover]:
        """A leftover for each dropped version whose removal nobody has requested, and which the policy is about."""
        requested = {removal.reference for removal in self.catalog.lifecycle.removals()}
        for size in self.catalog.sizes():
            is_meant = size.state is VersionState.DROPPED and covers(retention.datasets, size.name, size.config)
            if not is_meant or size.reference in requested:
                continue
            places: tuple[ClearedPlace, ...] = ()
            try:
                report = self.remove(size.reference, grace=retention.after, dry_run=True, uses=retention.uses)
                due = "" if report.removal.due is None else describe_moment(report.removal.due.replace(microsecond=0))
                outcome, why = GarbageOutcome.KEPT, f"they are kept until {due}"
                if self.catalog.configs.protection(size.name, size.config) is not None:
                    why = "it is protected; registry remove removes them nevertheless"
                elif report.removal.step is not RemovalStep.PLANNED:
                    outcome, why, places = GarbageOutcome.FOUND, f"they were kept until {due}", report.places
            except ConflictError as error:
                outcome, why = GarbageOutcome.KEPT, error.message
            yield _leftover(size.reference, outcome, f"the files of a dropped version: {why}", places)

    def collect(self, leftover: Leftover) -> bool:
        """Remove the files of a version; False if others use them by now, or this user may not.

        Raises:
            StorageError: a place cannot be cleared.
        """
        reference = Reference.parse(leftover.name)
        options: dict[str, Any] = {}
        if self.retention is not None and all(it.reference != reference for it in self.catalog.lifecycle.removals()):
            options = {"grace": self.retention.after, "uses": self.retention.uses}
        with suppress(ConflictError, NotFoundError, CatalogPermissionError):
            return self.remove(reference, **options).require_all().removal.step is RemovalStep.ENDED
        return False

    def _refuse_shared(self, removal: Removal, *, force: bool) -> frozenset[str]:
        """Refuse to remove files that another version names; the locations of others inside or around its own."""
        removals = self.catalog.lifecycle.removals()
        gone = {other.reference for other in removals if other.step is not RemovalStep.PLANNED} - {removal.reference}
        sharing, around = find_neighbours(self.catalog, self.data, removal.reference, without=gone)
        if sharing and not (force or removal.force):
            raise ConflictError(
                f"the files of {removal.reference} are in use by {', '.join(map(str, sharing[:_SHOWN]))}",
                hint=f"Also drop and remove that version, or remove the files anyway with {spell('force', True)}.",
                details={"versions": [str(reference) for reference in sharing]},
            )
        return around

    def _places(self, version: DatasetVersion) -> Iterator[tuple[str, str]]:
        """The places that a version has or had; each with the reason why its files stay, or ``""``."""
        home = home_of(version)
        has_other_home = home not in version.locations and self.data.exists(home)
        for location in dict.fromkeys((*version.locations, *([home] if has_other_home else []))):
            is_foreign = is_absolute(version.location) and location == version.locations[0]
            yield location, "it was published in place, so the registry did not write these files" if is_foreign else ""
        for size in self.catalog.sizes():
            for location in size.former if size.reference == version.reference else ():
                yield location, "it is no longer a location of the version"

    def _remove_folders(self, version: DatasetVersion) -> None:
        """Remove the empty folders. Until the removal has ended, they show that the disk of the files is mounted."""
        if isinstance(self.data, LocalStore):
            places = [location for location, _ in self._places(version) if not is_absolute(location)]
            self.data.remove_empty([*map(self.data.locate, places)])

    def _forget(self, version: DatasetVersion) -> None:
        if self.cache is not None:
            forget_columns(self.cache, version.content_digest)
            for split in version.splits:
                for shard in load_shards(self.catalog.shards, version, split.name):
                    CachedBlocks(self.cache, shard.sha256, shard.num_bytes).forget()


def _leftover(reference: Reference, outcome: GarbageOutcome, why: str, places: Sequence[ClearedPlace]) -> Leftover:
    return Leftover(
        kind="removal",
        name=str(reference),
        place=str(reference),
        outcome=outcome,
        why=why,
        num_files=sum(place.num_files for place in places),
        num_bytes=sum(place.num_bytes for place in places),
    )


@dataclass(frozen=True, slots=True)
class _Task:
    """Removes files by their names at several places. ``around`` are places that other versions have, too.

    At such a place, another version may name the same attachment: its name is the digest of its content. At a mirror,
    descriptions are not removed: the catalog does not record that it has any, so they may be those of somebody else.
    """

    data: Store
    attached: list[str]
    shards: list[str]
    around: frozenset[str]
    is_forced: bool
    is_dry_run: bool

    def clear(self, location: str, why_left: str) -> ClearedPlace:
        """Remove the files at one place, while nobody else publishes there."""
        is_ours = not is_absolute(location)
        place = self.data.locate(location) if is_ours else mask(location)
        try:
            store = open_location(self.data, location)
            root = store.local_root
            if isinstance(store, ServiceStore) and not why_left:  # files of dropped versions are not there for clients
                reason = "a service does not remove files; run registry gc with the database of the catalog"
                raise StorageError(f"{place} cannot be cleared: {reason}")
            problem = "" if why_left else self._problem_of(store, place if is_ours else location)
            if problem and not self.is_forced:
                hint = f"If its files are gone or may remain, continue with {spell('force', True)}."
                raise StorageError(f"{place} cannot be cleared: {problem}", hint=hint)
            if why_left or problem:
                return ClearedPlace(place=place, why_left=why_left or problem)
            is_folder = is_ours and root is not None and root.is_dir()
            with self.data.exclusive(location) if is_folder else nullcontext():
                return self._clear(store, place, is_ours=is_ours)
        except (StorageError, MissingExtraError) as error:
            return ClearedPlace(place=place, error=error)

    def _problem_of(self, store: Store, path: str) -> str:
        """Why no file can be removed at a place, or ``""``."""
        if isinstance(store, ReadOnlyStore):
            return "it cannot be written"
        if store.local_root is not None and str(store.local_root) != os.path.normpath(path):
            return "a link leads to another folder"
        is_here = store.local_root is None or store.local_root.is_dir()
        return "" if is_here else "it is not on this machine"

    def _clear(self, store: Store, place: str, *, is_ours: bool) -> ClearedPlace:
        entries = {entry.name: entry for entry in store.scan() if not entry.is_folder}
        is_shared = mask(store.locate("x")[:-2]) in self.around
        first = [name for name in entries if is_ours and (is_description(name) or name in _ALSO_OURS)]
        names = self.shards if is_shared else [*first, *self.attached, *self.shards]
        present = [name for name in names if name in entries and not _is_link(store, name)]
        if not self.is_dry_run:
            for name in present:
                store.remove(name)
            if isinstance(store, LocalStore):
                folders = {name.rpartition("/")[0] for name in present} - {""}
                store.remove_empty([*map(store.locate, folders)])
        return ClearedPlace(
            place=place,
            num_files=len(present),
            num_bytes=sum(entries[name].num_bytes for name in present),
            left=tuple(sorted(entries.keys() - set(present) - {MARKER_FILE})[:_MOST_NAMES]),
        )


def _is_link(store: Store, name: str) -> bool:
    path = store.locate(name)
    return store.local_root is not None and os.path.realpath(path) != path
