"""Finds and removes unneeded files in a data directory: unfinished files, folders moved aside, abandoned uploads.

One listing gives every file and its age. A file is garbage only if all of these agree:

    its name       the registry made it: ``incomplete.*``, ``damaged.*``, ``leftover.*``, a marker, or an object with
                   the mark of a reservation of this catalog
    its owner      it names an owner: the process in the owner file, in the name, or in the reservation has ended; or
                   this machine cannot tell, it belongs to this catalog, and nothing was written there for the grace
                   period
    the catalog    no row of any version, in any state, names it, or anything inside or around it

All three are checked again just before the removal. Files in use and recent files are kept. Other files without a row,
and files that may belong to another catalog with the same data directory, are only reported: a person decides.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from itertools import chain, groupby
from typing import Any, Final, TypeAlias

from registry.catalog import CatalogBackend, Holder, Reservation, VersionSize, catalog_identity, is_of_catalog
from registry.errors import (
    MissingExtraError,
    NotStoredError,
    RegistryError,
    ReservedError,
    StorageError,
    StorageUnavailableError,
)
from registry.model import ATTACHMENTS_FOLDER, DatasetVersion, Reference, ShardedFileTemplate, Version, is_absolute
from registry.prepared import is_description
from registry.prepared.folder import METADATA_FILENAME
from registry.publishing.attachments import CLAIM_SUFFIX, home_of
from registry.publishing.markers import is_left_after_row, location_key, read_marker, remove_marker
from registry.storage import Store, open_location
from registry.storage.multipart import UnfinishedUpload, abort_upload, list_unfinished
from registry.storage.names import (
    FINISHED_FILE,
    MARKER_FILE,
    OWNER_FILE,
    RUNS_SUFFIX,
    Owner,
    is_own_staged,
    is_unfinished,
    owner_of_file,
)
from registry.storage.staged import is_left, read_claim
from registry.storage.store import StoredEntry

_ASIDE: Final = re.compile(r"(?P<kind>damaged|leftover)\.[0-9a-f]{8}_(?P<version>.+)", flags=re.DOTALL)
_KEY_OF_RUNS: Final = re.compile(re.escape(RUNS_SUFFIX) + r"/[0-9a-f]{16}\.key")
_FRESH_SECONDS: Final = 2.0
_DEPTH: Final = 5
"""Names are recognized in the first parts of a path: dataset, config, version, folder of attachments, file."""

_MOST_FILENAMES: Final = 5
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")


class GarbageOutcome(StrEnum):
    """The outcome for a leftover.

    ``found``: it is garbage, and would be removed. ``removed``. ``kept``: it is in use, or younger than the grace
    period. ``unknown``: its owner is unknown, so a person decides. ``failed``: it could not be removed.
    """

    FOUND = "found"
    REMOVED = "removed"
    KEPT = "kept"
    UNKNOWN = "unknown"
    FAILED = "failed"


_FOUND: Final = GarbageOutcome.FOUND
_KEPT: Final = GarbageOutcome.KEPT
_UNKNOWN: Final = GarbageOutcome.UNKNOWN
_Verdict: TypeAlias = tuple[GarbageOutcome, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Files that no version needs, or may not need.

    Attributes:
        kind: ``staged`` (an unfinished folder), ``upload`` (an unfinished file), ``multipart`` (parts of an upload),
            ``damaged`` and ``leftover`` (folders that were moved aside), ``reservation`` (the files of a publisher that
            has ended), ``orphan`` (files beside a published version that another publisher put there), ``marker``,
            ``attachment`` (a file that a killed program was about to attach), ``unpublished`` (a version folder that no
            row names), ``extra`` (other files in the folder of a version), ``invalid`` (files whose names the registry
            cannot use, such as ``a//b``), ``temporary`` (in TMPDIR), ``cache``, ``removal`` (the files of a dropped
            version that are to be removed).
        name: the name relative to the data directory, or the complete path; for a removal, the version.
        place: the path or URL, for people.
        outcome: see ``GarbageOutcome``.
        why: the reason, for people.
        num_files, num_bytes: the number and the size of its files.
        filenames: the first of its files, at most five, relative to ``place``.
        changed_at: the time of the last change of any of them, or None if unknown.
        details: what ``remove`` needs to find it again.
        error: why it could not be removed, or None.
    """

    kind: str
    name: str
    place: str
    outcome: GarbageOutcome
    why: str
    num_files: int = 0
    num_bytes: int = 0
    filenames: tuple[str, ...] = ()
    changed_at: datetime | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    error: StorageError | None = None


@dataclass(slots=True)
class _Found:
    """Files that belong together."""

    kind: str
    name: str
    entries: list[StoredEntry] = field(default_factory=list)

    @property
    def files(self) -> list[StoredEntry]:
        return [entry for entry in self.entries if not entry.is_folder]

    @property
    def changed_at(self) -> datetime | None:
        return _latest(entry.changed_at for entry in self.entries)


class GarbageCollector:
    """Looks for garbage in the data directory of a catalog, and removes it.

    Attributes:
        notes: what could not be searched for, for people.
    """

    def __init__(
        self,
        store: Store,
        catalog: CatalogBackend,
        *,
        older_than: timedelta,
        actor: str,
    ) -> None:
        """``older_than`` is the grace period; ``actor`` is who collects, for reservations."""
        self.notes: list[str] = []
        self._store = store
        self._catalog = catalog
        self._grace = older_than
        self._actor = actor
        self._begun = time.monotonic()
        self._root = _key_of(store)
        self._identity = catalog_identity(catalog.log)
        self._named: dict[str, list[VersionSize]] = {}
        self._around: set[str] = set()
        self._unlisted: set[str] = set()
        self._read_at = 0.0
        self._reservations: dict[str, Reservation] = {}

    def find(self) -> Iterator[Leftover]:
        """Every leftover, one dataset after the other.

        Raises:
            StorageError: the data directory cannot be listed.
        """
        # The listing comes after the rows: what is published or reserved later is younger than the listing shows.
        self._read_catalog(at_once=True)
        unseen = dict(self._reservations)
        for _, entries in groupby(self._scan(), key=lambda entry: entry.name.partition("/")[0]):
            for found in _sort_out(entries):
                if found.kind == "version":
                    unseen.pop(self._key(found.name), None)
                yield from self._judge(found)
        for key, reservation in sorted(unseen.items()):
            if key.startswith(f"{self._root}/"):
                yield self._judge_reservation(reservation, _Found("version", key[len(self._root) + 1 :]))
        for upload in list_unfinished(self._store, self.notes):  # their parts, which listings do not show
            entry = StoredEntry(name=upload.name, num_bytes=upload.num_bytes, changed_at=upload.begun_at)
            parts = _Found("multipart", upload.name, [entry])
            yield self._leftover(parts, *self._judge_parts(upload), upload=upload.upload_id)

    def _scan(self, folder: str = "") -> Iterator[StoredEntry]:
        """All files below a folder. In a folder that cannot be listed, those of the places that the catalog knows."""
        for entry in self._store.scan_listable(folder):
            yield entry
            if entry.unlisted is not None:
                around = self._key(entry.unlisted) if entry.unlisted else self._root
                self._unlisted.add(around)
                keys = (*self._named, *self._reservations)
                inside = {key[len(around) + 1 :].partition("/")[0] for key in keys if key.startswith(f"{around}/")}
                for part in sorted(inside):
                    yield from self._scan(f"{entry.unlisted}/{part}" if entry.unlisted else part)

    def remove(self, leftover: Leftover) -> bool:
        """Remove garbage that ``find`` found. False if it is now in use or named by a row.

        Raises:
            StorageError: it cannot be removed.
        """
        self._read_catalog()
        match leftover.kind:
            case "staged" | "upload" | "damaged" | "leftover":
                judged = list(self._judge(_Found(leftover.kind, leftover.name, self._look_again(leftover))))
                if not judged or any(each.outcome is not _FOUND for each in judged):
                    return False
                self._store.remove_tree(leftover.name)
            case "reservation":
                return self._abandon(self._reservations.get(self._key(leftover.name)))
            case "orphan":
                return self._remove_orphan(leftover)
            case "marker":
                version = self._published(leftover.details["reference"])
                if version is None or self._key(leftover.name) in self._reservations:
                    return False
                remove_marker(self._store.child(leftover.name), self._catalog, version)
            case "attachment":
                return self._remove_attachment(leftover)
            case "multipart":
                if self._in_use(leftover.name) is not None:
                    return False
                abort_upload(self._store, leftover.name, leftover.details["upload"])
            case _:
                raise AssertionError(f"{leftover.kind} is never removed")
        return True

    def _read_catalog(self, *, at_once: bool = False) -> None:
        """Read the reservations, and the rows unless they were read a moment ago: there may be very many leftovers."""
        self._reservations = {reservation.location: reservation for reservation in self._catalog.reservations.list()}
        if not at_once and time.monotonic() - self._read_at < _FRESH_SECONDS:
            return
        self._read_at = time.monotonic()
        self._named, self._around = {}, set()
        for version in self._catalog.sizes():
            home = (home_of(version),) if version.num_attachments else ()
            for location in dict.fromkeys((*version.locations, *version.former, *home)):
                key = self._key_of_location(location)
                self._named.setdefault(key, []).append(version)
                self._around.update(_parents(key))

    def _key_of_location(self, location: str) -> str:
        try:
            return _key_of(open_location(self._store, location))
        except (StorageError, MissingExtraError):  # it cannot be read here, e.g. a link that leads out of the folder
            return location if is_absolute(location) else self._key(location)

    def _key(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _is_old(self, changed_at: datetime | None) -> bool:
        """Whether a file was last changed before the grace period; without a grace period, every file is old."""
        if not self._grace:
            return True
        now = None if changed_at is None else self._store_now
        return changed_at is not None and now is not None and now - changed_at >= self._grace

    @cached_property
    def _store_now(self) -> datetime | None:
        """The creation time of this object, by the clock that dates the files, not by that of this machine."""
        reason = "the store does not date its files"
        try:
            now = self._store.now()
        except StorageError as error:
            now, reason = None, str(error)
        if now is None:
            self.notes.append(f"the age of files is unknown, so they are kept: {reason}")
            return None
        return now - timedelta(seconds=time.monotonic() - self._begun)

    @cached_property
    def _catalog_now(self) -> datetime:
        """The creation time of this object, by the clock that dates reservations."""
        return self._catalog.now() - timedelta(seconds=time.monotonic() - self._begun)

    def _leftover(
        self, group: _Found, outcome: GarbageOutcome, why: str, *, kind: str = "", **details: str
    ) -> Leftover:
        files, inside = group.files, len(group.name) + 1 if group.name else 0
        return Leftover(
            kind=kind or group.kind,
            name=group.name,
            place=self._store.locate(group.name),
            outcome=outcome,
            why=why,
            num_files=len(files),
            num_bytes=sum(file.num_bytes for file in files),
            filenames=tuple(file.name[inside:] for file in files[:_MOST_FILENAMES] if file.name != group.name),
            changed_at=group.changed_at,
            details=details,
        )

    def _judge(self, found: _Found) -> Iterator[Leftover]:
        if found.kind == "version":
            yield from self._judge_version(found)
            return
        if found.kind == "invalid":
            why = "the registry did not make these names"
            if any(entry.unlisted is not None for entry in found.entries):
                why = "because of this name, which is invalid, other files in this folder cannot be listed"
            yield self._leftover(found, _UNKNOWN, why)
            return
        key = self._key(found.name)
        if key in self._named or key in self._around:
            return  # a folder that was published in place, under a name that looks like ours
        if found.kind == "upload":
            folder, _, name = found.name.rpartition("/")
            if any(_names_file(version, name) for version in self._versions_at(self._key(folder))):
                return
        elif self._is_near_rows(key):
            yield self._leftover(found, _UNKNOWN, "it is inside the folder of a version")
            return
        yield self._leftover(found, *self._judge_unfinished(found))

    def _judge_unfinished(self, found: _Found) -> _Verdict:
        """Decide about a folder or a file that a process was writing, or that was moved aside."""
        if self._is_unlisted(self._key(found.name)):
            return _UNKNOWN, "its files cannot be listed"
        last_part = found.name.rpartition("/")[2]
        aside = _ASIDE.fullmatch(last_part)
        if _is_written_to(found):
            return _KEPT, "a process is writing a file in it"
        if aside is not None:
            return self._judge_aside(found, aside)
        if not is_own_staged(last_part):
            return _UNKNOWN, "another program, such as TFDS, is writing it or left it"
        is_file = found.kind == "upload"
        owner, claim = (None, None) if is_file else read_claim(self._store, f"{found.name}/{OWNER_FILE}")
        if _is_finished(found) and (owner is None or owner.is_dead()):
            return judge_finished(is_old=self._is_old(found.changed_at), is_ours=self._is_ours(claim))
        is_of_runs = any(_KEY_OF_RUNS.search(file.name) for file in found.files)
        if is_of_runs and owner is None and claim is None and is_left(self._store.child(found.name)):
            # No catalog records runs. A build that fails before its catalog exists gives them up without a claim.
            return (_FOUND if self._is_old(found.changed_at) else _KEPT), "a build left it and has ended"
        return self._judge_owner(found, owner or owner_of_file(last_part), claim)

    def _is_ours(self, claim: object) -> bool:
        """Whether the catalog that a file names is this one."""
        return claim is not None and claim == self._identity

    def _is_below_ours(self, name: str) -> bool:
        """Whether a place that this catalog names or reserves is around a file."""
        return any(key in self._named or key in self._reservations for key in _parents(self._key(name)))

    def _is_unlisted(self, key: str) -> bool:
        """Whether a folder, or one inside it, cannot be listed."""
        return any(folder == key or folder.startswith(f"{key}/") for folder in self._unlisted)

    def _judge_owner(self, folder: _Found, owner: Owner | str | None, claim: str | None) -> _Verdict:
        """Decide about unfinished files by their owner: a process, or its mark in a name.

        ``claim`` is the catalog for which it worked. A file names no catalog, so it is ours if it is below a place of
        this one.
        """
        is_ours = self._is_ours(claim) or (folder.kind == "upload" and self._is_below_ours(folder.name))
        here = Owner.this_process()
        if isinstance(owner, str):
            is_dead, is_here, who = here.knows_dead(owner), here.can_judge(owner), "a process"
        elif owner is not None:
            is_dead, is_here = owner.is_dead(), owner.is_of_this_machine()
            who = f"process {owner.pid} on {owner.host}"
        else:
            is_dead, is_here, who = False, False, "an unknown process"
        if claim is not None and not is_ours:
            return _UNKNOWN, f"{who} worked on it for another catalog"
        if owner is None and not is_ours and folder.files:
            return _UNKNOWN, "it names no owner: another catalog may have recorded it"
        if is_dead and folder.kind == "staged" and not self._is_old(folder.changed_at):
            # `registry copy` and `registry add` continue with what an earlier run has staged.
            return _KEPT, f"{who} left it and has ended; its next run may use it"
        if is_dead:
            return _FOUND, f"{who} left it and has ended"
        if is_here:
            return _KEPT, f"{who} is writing it"
        if not self._is_old(folder.changed_at):
            return _KEPT, f"{who} may be writing it"
        if not is_ours and folder.files:
            return _UNKNOWN, f"{who} may be writing it for another catalog"
        return _FOUND, f"{who} has not written to it for the grace period"

    def _judge_aside(self, folder: _Found, aside: re.Match[str]) -> _Verdict:
        parent = folder.name.rpartition("/")[0]
        if aside["kind"] == "damaged" and self._key(f"{parent}/{aside['version']}") not in self._named:
            return _UNKNOWN, "its version is not in this catalog"
        if not self._is_ours(read_claim(self._store, f"{folder.name}/{OWNER_FILE}")[1]):
            return _UNKNOWN, "it does not say that this catalog moved it aside"
        if not self._is_old(folder.changed_at):
            return _KEPT, "it was moved aside within the grace period"
        if aside["kind"] == "damaged":
            return _FOUND, "it was damaged, and replaced"
        return _FOUND, "`registry reservation clear` moved it aside"

    def _judge_version(self, folder: _Found) -> Iterator[Leftover]:
        key = self._key(folder.name)
        rows, reservation = self._named.get(key, []), self._reservations.get(key)
        if reservation is not None:
            yield self._judge_reservation(reservation, folder)
        if rows:
            yield from self._judge_extras(folder, rows, reservation)
        elif reservation is None and folder.files and not self._is_near_rows(key):
            yield self._leftover(folder, _UNKNOWN, self._why_unpublished(folder), kind="unpublished")

    def _is_near_rows(self, key: str) -> bool:
        """Whether a row names a folder inside or around this one."""
        return key in self._around or any(parent in self._named for parent in _parents(key))

    def _why_unpublished(self, folder: _Found) -> str:
        if all(entry.name != f"{folder.name}/{MARKER_FILE}" for entry in folder.entries):
            return "no version of this catalog is there"
        marker = _marker_at(self._store.child(folder.name)) or {}
        return f"another catalog holds it: {str(marker.get('catalog', 'unknown'))[:300]}"

    def _judge_extras(
        self, folder: _Found, rows: list[VersionSize], reservation: Reservation | None
    ) -> Iterator[Leftover]:
        """The files in the folder of a version that its row does not name."""
        versions = list(self._versions_at(self._key(folder.name)))
        extra = _Found("extra", folder.name)
        files = {file.name[len(folder.name) + 1 :]: file for file in folder.files}
        has_attachments = any(name.startswith(f"{ATTACHMENTS_FOLDER}/") for name in files)
        attached = self._attached(versions) if has_attachments else frozenset()
        for name, file in files.items():
            if name.startswith(f"{ATTACHMENTS_FOLDER}/"):
                if name in attached or name + CLAIM_SUFFIX in files:  # the claim decides about the latter
                    continue
                if name.endswith(CLAIM_SUFFIX):
                    yield self._judge_claim(folder.name, name.removesuffix(CLAIM_SUFFIX), files, attached)
                    continue
            if name == MARKER_FILE:
                if reservation is None:
                    yield self._judge_marker(_Found("marker", folder.name, [file]), versions)
                continue
            if name in (OWNER_FILE, FINISHED_FILE, METADATA_FILENAME) or is_description(name):
                continue
            if any(_names_file(version, name) for version in versions):
                continue
            if reservation is None and self._is_orphan(file, name, versions):
                of_one = _Found("orphan", file.name, [file])
                outcome = _FOUND if self._is_old(file.changed_at) else _KEPT
                yield self._leftover(of_one, outcome, "a publisher of other content put it there", folder=folder.name)
            else:
                extra.entries.append(file)
        if extra.entries:
            whose = ", ".join(str(row.reference) for row in rows[:3])
            yield self._leftover(extra, _UNKNOWN, f"not among the shards of {whose}")

    def _attached(self, versions: Iterable[DatasetVersion]) -> frozenset[str]:
        """The files of the attachments of versions, relative to their folder."""
        return frozenset(attachment.place for version in versions for attachment in self._catalog.attachments(version))

    def _judge_claim(
        self, folder: str, name: str, files: Mapping[str, StoredEntry], attached: frozenset[str]
    ) -> Leftover:
        """Decide about a file, and the claim of the process that was about to attach it."""
        claim = f"{name}{CLAIM_SUFFIX}"
        names = [claim] if name in attached else [name, claim]
        group = _Found("attachment", f"{folder}/{name}", [files[each] for each in names if each in files])
        verdict = self._judge_owner(group, *read_claim(self._store, f"{folder}/{claim}"))
        return self._leftover(group, *verdict, folder=folder)

    def _remove_attachment(self, leftover: Leftover) -> bool:
        """Remove a claim, and its file unless a row names it by now, while no other process attaches files here."""
        folder = leftover.details["folder"]
        name = leftover.name[len(folder) + 1 :]
        with self._store.exclusive(leftover.name):
            owner, claim = read_claim(self._store, leftover.name + CLAIM_SUFFIX)
            group = _Found("attachment", leftover.name, self._look_again(leftover))
            if self._judge_owner(group, owner, claim)[0] is not _FOUND:
                return False  # another process has claimed the file since
            if name not in self._attached(self._versions_at(self._key(folder))):
                self._store.remove(leftover.name)
            self._store.remove(leftover.name + CLAIM_SUFFIX)
        return True

    def _is_orphan(self, entry: StoredEntry, name: str, versions: Iterable[DatasetVersion]) -> bool:
        """Whether a publisher of the registry put an object there whose name is that of a shard of this dataset.

        Other files that no row names, such as a licence, may be part of the published folder.
        """
        if not self._store.keeps_writers:
            return False
        if not any(_is_like_shard(version, name) for version in versions):
            return False
        with suppress(NotStoredError):
            return is_of_catalog(self._store.writer_of(entry.name), self._identity)
        return False

    def _judge_marker(self, folder: _Found, versions: list[DatasetVersion]) -> Leftover:
        marker = _marker_at(self._store.child(folder.name))
        for version in versions:
            is_ours = marker is not None and self._is_ours(marker.get("identity"))
            if marker is not None and is_ours and is_left_after_row(marker, self._catalog, version):
                outcome = _FOUND if self._is_old(folder.changed_at) else _KEPT
                why = "the marker of a publisher that has ended"
                return self._leftover(folder, outcome, why, reference=str(version.reference))
        return self._leftover(folder, _UNKNOWN, "another catalog holds the place")

    def _judge_reservation(self, reservation: Reservation, folder: _Found) -> Leftover:
        """Decide about the files of a publisher by its reservation. They are removed if no row names the place."""
        folder = _Found("reservation", folder.name, [] if self._key(folder.name) in self._named else folder.entries)
        result = self._why_held(reservation, folder.changed_at)
        if result is not None:
            return self._leftover(folder, _KEPT, result)
        who = ", ".join(map(str, reservation.holders)) or "its publisher"
        return self._leftover(folder, _FOUND, f"reserved for {reservation.reference}; {who} has ended")

    def _why_held(self, reservation: Reservation, changed_at: datetime | None) -> str | None:
        """Why a reservation may be in use, or None."""
        alive = [holder for holder in reservation.living if holder.owner.is_of_this_machine()]
        if alive:
            return f"{', '.join(map(str, alive))} is publishing {reservation.reference}"
        if self._is_unlisted(reservation.location):
            return f"reserved for {reservation.reference}; its files cannot be listed"
        stamped = max([reservation.reserved_at, *(holder.since for holder in reservation.holders)])
        is_old = changed_at is None or self._is_old(changed_at)
        if is_old and (not self._grace or self._catalog_now - stamped >= self._grace):
            return None
        return f"reserved for {reservation.reference} within the grace period"

    def _in_use(self, name: str) -> str | None:
        """Why an object without an owner may be in use: the reservation of an enclosing place."""
        for key in _parents(self._key(name)):
            held = self._reservations.get(key)
            if held is not None and (why := self._why_held(held, None)) is not None:
                return why
        return None

    def _abandon(self, reservation: Reservation | None) -> bool:
        """Remove the objects of a reservation's publishers, its marker, and then the reservation itself."""
        if reservation is None:
            return True  # somebody else was faster
        name, holder = reservation.location[len(self._root) + 1 :], Holder.of_this_process(self._actor)
        final, calls = self._store.child(name), self._catalog.reservations
        uploads = [*list_unfinished(final, [])]
        changed = chain((it.changed_at for it in self._store.scan(name)), (it.begun_at for it in uploads))
        if self._why_held(reservation, _latest(changed)) is not None:
            return False
        taken = calls.take_over(reservation, holder, older_than=self._grace)
        if taken is None:
            return False
        try:
            marker = _marker_at(final)
            # Without our marker, another catalog may rely on what is there.
            is_ours = marker is not None and marker.get("token") == taken.token
            self._read_catalog(at_once=True)
            if is_ours and self._key(name) not in self._named:
                for entry in self._written_under(final, taken):
                    calls.begin_cleaning(taken, holder)  # raises if a person has released the reservation meanwhile
                    final.remove(entry)
            for upload in uploads if is_ours or marker is None else ():  # no later run would know whose they are
                abort_upload(final, upload.name, upload.upload_id)
            if is_ours:
                final.remove(MARKER_FILE)
        except ReservedError:
            return False
        except BaseException:
            with suppress(RegistryError):
                calls.leave(taken, holder, forget=False)
            raise
        calls.leave(taken, holder, forget=True)
        return True

    def _written_under(self, final: Store, reservation: Reservation) -> list[str]:
        """The objects at a place that publishers of this reservation put there."""
        names = [name for name in final.list() if _before_bad_part(name) is None]  # others are never ours
        if reservation.found is not None:
            before = set(reservation.found)
            return [name for name in names if name not in before]
        mine = []
        for name in names if final.keeps_writers else ():
            with suppress(NotStoredError):
                if final.writer_of(name) == reservation.token:
                    mine.append(name)
        return mine

    def _remove_orphan(self, leftover: Leftover) -> bool:
        """Remove an object beside a published version, while nobody else can publish there."""
        folder = leftover.details["folder"]
        versions, holder = list(self._versions_at(self._key(folder))), Holder.of_this_process(self._actor)
        name = leftover.name[len(folder) + 1 :]
        if not versions or any(_names_file(version, name) for version in versions):
            return False
        calls, version = self._catalog.reservations, versions[0]
        try:
            held, before = calls.reserve(self._key(folder), version.reference, version.content_digest, holder)
        except ReservedError:
            return False
        try:
            is_alone = before is None and calls.begin_cleaning(held, holder) is not None
            if is_alone:
                self._store.remove(leftover.name)
        finally:
            calls.leave(held, holder, forget=before is None)
        return is_alone

    def _judge_parts(self, upload: UnfinishedUpload) -> _Verdict:
        """Decide about the parts of an upload that was never completed."""
        why = self._in_use(upload.name)
        if why is not None:
            return _KEPT, why
        if not self._is_old(upload.begun_at):
            return _KEPT, "the upload was begun within the grace period"
        if _classify(upload.name, is_folder=False) is None:
            return _UNKNOWN, "another program began the upload"
        if not self._is_below_ours(upload.name):
            return _UNKNOWN, "another catalog may have begun the upload; if not, registry reservation clear removes it"
        return _FOUND, "the upload was never completed"

    def _look_again(self, leftover: Leftover) -> list[StoredEntry]:
        """The files of a folder, which a process may be filling; each name is used only once."""
        is_folder = leftover.kind != "upload"
        inside = list(self._store.scan(leftover.name)) if is_folder else []
        return inside or [
            StoredEntry(
                name=leftover.name, num_bytes=leftover.num_bytes, changed_at=leftover.changed_at, is_folder=is_folder
            )
        ]

    def _versions_at(self, key: str) -> Iterator[DatasetVersion]:
        for owner in self._named.get(key, ()):
            version = self._published(str(owner.reference))
            if version is not None:
                yield version

    def _published(self, reference: str) -> DatasetVersion | None:
        parsed = Reference.parse(reference)
        number = None if parsed.request is None else parsed.request.exact
        return None if number is None else self._catalog.published(parsed.name, parsed.config, number)


def judge_finished(*, is_old: bool, is_ours: bool) -> _Verdict:
    """Decide about finished shards that could not be published, and that no process uses."""
    if not is_old:
        return _KEPT, "finished shards that could not be published; a later run may publish them"
    if not is_ours:
        return _UNKNOWN, "finished shards that another catalog may publish"
    return _FOUND, "finished shards that nobody published for the grace period"


def _sort_out(entries: Iterable[StoredEntry]) -> list[_Found]:
    """Sort the files of a dataset into folders and files with names of the registry; others are left out."""
    groups: dict[str, _Found] = {}
    for entry in entries:
        place = _classify(entry.name, is_folder=entry.is_folder)
        if entry.unlisted is not None:
            place = "invalid", entry.unlisted
        elif (bad := _before_bad_part(place[1] if place else entry.name)) is not None:
            place = "invalid", bad
        if place is not None:
            kind, name = place
            groups.setdefault(name, _Found(kind, name)).entries.append(entry)
    return list(groups.values())


def _before_bad_part(name: str) -> str | None:
    r"""The folder in which the first invalid part of a name is; None if the name is valid.

    >>> _before_bad_part("mnist/a\\b/c"), _before_bad_part("mnist//1.0.0"), _before_bad_part("mnist/1.0.0")
    ('mnist', 'mnist', None)
    """
    before: list[str] = []
    for part in name.split("/"):
        if part in ("", ".", "..") or "\\" in part or _CONTROL.search(part):
            return "/".join(before)
        before.append(part)
    return None


def _classify(name: str, *, is_folder: bool) -> tuple[str, str] | None:
    """The kind of what a file belongs to, and its name; None for names that the registry does not make.

    >>> _classify("mnist/incomplete.0a1b2c3d_1.0.0/shard", is_folder=False)
    ('staged', 'mnist/incomplete.0a1b2c3d_1.0.0')
    >>> _classify("mnist/plain/1.0.0/features.json", is_folder=False)
    ('version', 'mnist/plain/1.0.0')
    """
    parts = name.split("/")
    for place, part in enumerate(parts[:_DEPTH]):
        is_inside = is_folder or place < len(parts) - 1
        if is_unfinished(part):
            return "staged" if is_inside else "upload", "/".join(parts[: place + 1])
        aside = _ASIDE.fullmatch(part)
        if aside is not None and is_inside and place in (1, 2):
            return aside["kind"], "/".join(parts[: place + 1])
    for place, part in enumerate(parts[1:3], 1):
        if Version.is_valid(part) and (is_folder or place < len(parts) - 1):
            return "version", "/".join(parts[: place + 1])
    return None


def _marker_at(folder: Store) -> dict[str, Any] | None:
    """The content of a place's marker; an empty dict for something else of that name, such as a folder."""
    try:
        return read_marker(folder)
    except StorageUnavailableError:
        raise
    except StorageError:
        return {}


def _is_finished(folder: _Found) -> bool:
    """Whether all shards of a staged folder are written, as its record says."""
    return any(entry.name == f"{folder.name}/{FINISHED_FILE}" for entry in folder.entries)


def _is_written_to(folder: _Found) -> bool:
    """Whether a process of this machine that has not ended is writing one of the files."""
    here = Owner.this_process()
    parts = {part for file in folder.files for part in file.name[len(folder.name) + 1 :].split("/")}
    marks = map(owner_of_file, parts)
    return any(mark is not None and here.can_judge(mark) and not here.knows_dead(mark) for mark in marks)


def _names_file(version: DatasetVersion, name: str) -> bool:
    """Whether a row names a file as one of its shards."""
    for split in version.splits:
        parsed = split.files.parse(name)
        if parsed is not None and parsed[1] < split.num_shards and split.filename(parsed[1]) == name:
            return True
    return False


def _is_like_shard(version: DatasetVersion, name: str) -> bool:
    templates = [split.files for split in version.splits]
    templates.append(ShardedFileTemplate(dataset=version.name, file_format=version.file_format))
    return any(template.parse(name) is not None for template in templates)


def _key_of(store: Store) -> str:
    """What identifies a folder: its real path, or its URL as reservations have it."""
    return location_key(store) if store.local_root is None else str(store.local_root)


def _parents(key: str) -> Iterator[str]:
    while "/" in key:
        key = key.rpartition("/")[0]
        yield key


def _latest(moments: Iterable[datetime | None]) -> datetime | None:
    return max((moment for moment in moments if moment is not None), default=None)
