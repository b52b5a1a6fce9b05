"""Puts the files of a version at their location in an object store, which has no renames and no locks.

    1. reserve   one row of the catalog reserves the location for one content (catalog/reservations.py)
    2. mark      a marker object, created only if there is none, keeps other catalogs away
    3. put       each file is uploaded once, to its final name, which must be free
    4. row       one transaction writes the row and ends the reservation; then the marker is removed

If nobody reserved the location before, it is not listed: N files take N + 3 requests, and those of large files; one
more, before the version is hashed or built, asks whether it may be written (``Store.require_writable``). Only if a name
is taken, or an earlier publisher has left the reservation, are the objects listed and compared.

Each object names the reservation of its writer. Objects of others are never removed. Objects that a killed publisher
put there are completed by a run of the same content. A run of other content removes them while no other publisher holds
the location. A publisher that is killed at any step leaves the reservation and the marker, which tell the next run what
it may do.
"""

from __future__ import annotations

import random
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeVar

from registry.catalog import CatalogBackend, Holder, Reservation, is_published
from registry.engines import Piece, TaskWatch, choose_engine, watch_tasks
from registry.errors import (
    AlreadyStoredError,
    ConflictError,
    NotStoredError,
    RegistryError,
    ReservationLostError,
    ReservedError,
    StorageError,
)
from registry.model import Advance, DatasetVersion, Shard, listed_below, shards_by_filename
from registry.prepared.info import FILENAME as INFO_FILENAME
from registry.publishing.markers import (
    folder_name,
    is_left_after_row,
    is_promised,
    location_key,
    mark,
    read_marker,
    write_marker,
)
from registry.publishing.verify import absolute_location, digest_of
from registry.splits import counted
from registry.storage import StagedFolder, Store
from registry.storage.names import MARKER_FILE
from registry.storage.staged import write_owner
from registry.storage.store import warn_of_leftover

T = TypeVar("T")

WAIT_SECONDS: Final = 60.0
"""How long a publisher waits for another running publisher before it is refused."""

_PAUSES: Final = (0.05, 1.0)
_RETAKES: Final = 5


class ObjectPlace:
    """The location of one version in an object store, reserved for one or more publishers of the same content."""

    def __init__(
        self,
        staged: StagedFolder,
        store: Store,
        catalog: CatalogBackend,
        version: DatasetVersion,
        shards: Mapping[str, tuple[Shard, ...]],
        *,
        actor: str,
        sent: Advance | None = None,
        replaces: bool = True,
    ) -> None:
        self.notes: list[str] = []
        # ETags of exactly the bytes that were hashed or copied. A later request might return the tag of a newer object.
        self.entity_tags: dict[str, str | None] = {}
        self.holder = Holder.of_this_process(actor)
        self.held: Reservation
        self._before: Reservation | None = None
        self._staged = staged
        self._store = store
        self._final = store.child(version.location)
        self._catalog = catalog
        self._reservations = catalog.reservations
        self._version = version
        self._promised = shards_by_filename(version.splits, shards)
        self._replaces = replaces
        self._is_published = False  # and files at this place may be replaced
        self._is_marked = False
        self._is_alone = False
        self._put_here: set[str] = set()  # by this process
        self._sent = sent
        self._counted: set[str] = set()  # shards that ``sent`` knows

    def take(self) -> None:
        """Reserve the location. Waits for others that hold it."""
        self.held, self._before = _patiently(
            lambda: self._reservations.reserve(
                location_key(self._final), self._version.reference, self._version.content_digest, self.holder
            )
        )

    def fill(self) -> None:
        """Put every missing file in place."""
        for _ in range(_RETAKES):
            self._is_published = is_published(self._catalog, self._version) and self._replaces
            try:
                return self._fill()
            except ReservedError:
                # Others with the same content may have been faster: their row ended the shared reservation.
                if not is_published(self._catalog, self._version):
                    raise
                self.take()  # now only check and repair
        return self._fill()

    def _fill(self) -> None:
        was_listed = self.held.found is not None
        created = _patiently(self._mark)
        self._is_marked = True
        is_first = created and self._before is None and not was_listed
        if is_first and self._final.keeps_writers and not self._is_published and self._put_all():
            self._is_alone = True
            self._require_marker()
            return
        present = self._final.list()
        if created and was_listed:
            # The marker has vanished: a person or another catalog removed it, and all objects may be theirs.
            self.held = self._reservations.note_found(self.held, self.holder, present, anew=True)
        else:
            self._note_found(present)
        state = self._compare(present)
        # The digest does not cover file names, and the row names these files.
        has_shards = state.equal.issuperset(self._promised)
        is_disturbed = bool(state.different or state.extra)
        if not self.held.is_cleaning and is_disturbed and has_shards and self._is_whole():
            return
        if self._must_clean(state):
            state = self._clean(state)
        self._put_missing(state)
        self._require_marker()

    def tidy(self) -> None:
        """After the row: remove the marker. Warn if it cannot be removed."""
        self._end(forget=True)
        if not self._others():
            self._unmark()

    def leave(self) -> None:
        """After a fault: leave everything for the next run to continue."""
        self._end(forget=False)

    def give_back(self) -> None:
        """After a final refusal: remove the objects of this reservation's publishers, if no other one is left."""
        if not self._replaces and self._is_marked:  # the row was there before: what was put here is of use to the next
            self.tidy()
            return
        try:
            if not self._is_marked:  # earlier holders may have left objects, with their marker
                self._end(forget=self._before is None)
                return
            cleaning = self._reservations.begin_cleaning(self.held, self.holder)
            if cleaning is None:
                self.leave()
                return
            self.held = cleaning
            # Objects that a row names stay, even if they are ours. If the marker is no longer ours, another catalog may
            # rely on them.
            if is_promised(self._catalog, self._version) or self._is_imported() or not self._is_marked_by_us():
                self.leave()
                return
            present = self._final.list()
            self._note_found(present)
            found = self._found
            self._remove([name for name in present if name not in found])
            self._final.remove(MARKER_FILE)
        except ReservedError:  # the reservation was taken away: nothing there is ours any more
            return
        except StorageError as error:
            warn_of_leftover(self._final.url, error)
            self.leave()
        except RegistryError:
            self.leave()
        else:
            self._end(forget=True)

    @property
    def _found(self) -> frozenset[str]:
        """The objects that were not written under this reservation."""
        if self.held.found is None:
            raise AssertionError("the objects were not listed")
        return frozenset(self.held.found)

    def _note_found(self, present: list[str]) -> None:
        """Note which of the objects are others', unless a publisher with this reservation has noted it."""
        if self.held.found is not None:
            return

        def writer_of(name: str) -> str | None:
            try:
                return self._final.writer_of(name)
            except NotStoredError:
                return None

        writers = dict(self._each(writer_of, present, doing="asked for writers"))
        others = [name for name in present if writers[name] != self.held.token]
        self.held = self._reservations.note_found(self.held, self.holder, others)

    def _end(self, *, forget: bool) -> None:
        # If the catalog does not answer now, it finds out later, because the process of this holder has ended.
        with suppress(RegistryError):
            self._reservations.leave(self.held, self.holder, forget=forget)

    def _others(self) -> bool:
        with suppress(RegistryError):
            return any(reservation.token == self.held.token for reservation in self._reservations.list())
        return True

    def _is_imported(self) -> bool:
        """Whether a row of another version names this location: it was imported in place."""
        return bool(self._catalog.published_at(absolute_location(self._final)))

    def _is_marked_by_us(self) -> bool:
        marker = read_marker(self._final)
        return marker is not None and marker.get("token") == self.held.token

    def _mark(self) -> bool:
        """Whether this call created the marker; False if the marker of our reservation is there."""
        is_left = partial(is_left_after_row, catalog=self._catalog, version=self._version)
        return mark(self._final, self.held, self.holder, self._catalog, self._version.reference, is_left=is_left)

    def _require_marker(self) -> None:
        """The last check before the row: a person may have given the location to another catalog meanwhile."""
        if self._is_marked_by_us() or is_promised(self._catalog, self._version):
            return  # in the second case, others with the same content were faster
        raise ReservedError(
            f"the marker of {self._version.reference} was removed while its files were put in place: {self._final.url}",
            hint="Run the same command again.",
            details={"location": self.held.location, "reference": self.held.reference},
        )

    def _require_reserved(self) -> None:
        """The last check before a large object appears, which may replace another one.

        This process may have been paused for so long that a person gave the location to another publisher.
        """
        self._reservations.require(self.held, self.holder)
        self._require_marker()

    def _unmark(self) -> None:
        try:
            if self._is_alone or self._is_marked_by_us():  # a moment ago, it was ours
                self._final.remove(MARKER_FILE)
        except StorageError as error:
            warn_of_leftover(self._final.locate(MARKER_FILE), error)

    def _compare(self, present: list[str]) -> _State:
        staged, there = self._staged.store.list(), frozenset(present)
        both = there.intersection(staged)
        equal = self._find_equal(sorted(both))
        return _State(staged=tuple(staged), equal=equal, different=both - equal, extra=there.difference(staged))

    def _find_equal(self, names: list[str]) -> frozenset[str]:
        """Those of ``names`` whose objects at the final names have the staged bytes.

        Shards are hashed on a cluster if one is used: after a publisher has died between the last upload and the row,
        these are all bytes of the version.
        """
        # After an outage, those that this process has put there are not read again.
        orders = [
            (name, self._promised[name].num_bytes if name in self._promised else self._staged.store.size(name))
            for name in names
            if name not in self._put_here
        ]
        num_bytes = sum(size for _, size in orders)
        hasher, equal, location = partial(_hash, self._final), self._put_here.intersection(names), self._final.url
        pieces = (Piece(hasher, order) for order in orders)
        with choose_engine(num_bytes=num_bytes, is_local=False, is_unlocked=True, reads=(location,)) as engine:
            watch = watch_tasks(self._sent, "files", total=len(orders))
            for (name, _), found in engine.run(pieces, doing="compared files", failure=StorageError, watch=watch):
                promised = self._promised.get(name)
                expected = promised.sha256 if promised else self._staged.store.sha256(name)
                if found is not None and found.sha256 == expected:
                    equal.add(name)
                    if promised:
                        self._note_put(name, found.entity_tag)
        return frozenset(equal)

    def _is_whole(self) -> bool:
        """Whether there is an intact folder with the same content, with other descriptions or additional files."""
        return digest_of(self._final, self._version.slicing) == self._version.content_digest

    def _must_clean(self, state: _State) -> bool:
        """Whether objects have to be removed before ours can be put there.

        Raises:
            ConflictError: they were there before the reservation, and the version is not published.
        """
        kept = (state.different | state.extra) & self._found
        if kept and not self._is_published:
            raise self._other_data(sorted(kept))
        return self.held.is_cleaning or bool(state.different)

    def _clean(self, state: _State) -> _State:
        """Remove objects of publishers that have died, and move damaged objects of a published version aside."""
        cleaning = _patiently(self._begin_cleaning)
        from_others = self.held.is_cleaning
        self.held = cleaning
        # The marker of our reservation may name the content of earlier publishers. Make it name ours, so that it can be
        # recognised if it is left behind after the row.
        marker = read_marker(self._final) or {}
        if marker.get("token") == cleaning.token and marker.get("content_digest") != cleaning.content_digest:
            write_marker(self._final, cleaning, self.holder, self._catalog, overwrite=True)
        if not from_others:
            state = self._compare(self._final.list())  # others who joined may have put objects there
            self._begin_cleaning()
        removable = state.different | (state.extra if from_others else frozenset())
        if removable and not self._is_published and self._is_imported():
            raise self._other_data(sorted(removable))
        # An object in the place of an expected file is kept, unless it is known to belong to other content.
        aside = sorted(state.different if self._is_published and not from_others else state.different & self._found)
        removed = sorted(removable.difference(self._found, aside))
        self._remove(removed)
        parent, _, last_part = self._version.location.rpartition("/")
        folder = f"{parent}/damaged.{self.held.token[:8]}_{last_part}"
        for name in aside:
            with suppress(AlreadyStoredError):  # saved by a run that was killed before it removed the object
                self._store.copy_to(f"{self._version.location}/{name}", f"{folder}/{name}")
            self._begin_cleaning()
            self._final.remove_tree(name)
        if aside:
            with suppress(StorageError):  # without it, the folder is never garbage
                write_owner(self._store, folder)
        self.held = self._reservations.end_cleaning(self.held, self.holder)
        if removed:
            who = ", ".join(map(str, self._before.holders)) if self._before else ""
            self.notes.append(
                f"removed {counted(len(removed), 'file')} of other content that an earlier run left behind"
                + (f": {who}" if who else "")
            )
        if aside:
            self.notes.append(f"replaced {counted(len(aside), 'damaged file')}, moved to {self._store.locate(folder)}")
        return state

    def _remove(self, names: list[str]) -> None:
        """Remove objects that publishers of this reservation put there."""
        folders = {found[:place] for found in self._found for place, sign in enumerate(found) if sign == "/"}
        for name in names:
            if name not in folders:  # otherwise objects of others are below it and would be removed too
                self._begin_cleaning()
                self._final.remove_tree(name)

    def _begin_cleaning(self) -> Reservation:
        """Get exclusive use of the location.

        Called again before objects are removed: hashing takes hours, and a person may have released the reservation
        meanwhile, so that objects of the next publisher are there.
        """
        result = self._reservations.begin_cleaning(self.held, self.holder)
        if result is None:
            raise ReservedError(
                f"{self._version.reference} is being published by another process with the same records and other "
                f"descriptions: {self._final.url}",
                hint="Wait until it has ended, then run the same command again.",
                details={"location": self.held.location, "reference": self.held.reference},
            )
        return result

    def _put_all(self) -> bool:
        """Upload every file; False if a name is taken.

        Descriptions first: if the location contains another version, this is known before large files are sent.
        """
        names = self._staged.store.list()
        descriptions = [name for name in names if name not in self._promised]
        return not self._put(descriptions) and not self._put([name for name in names if name in self._promised])

    def _put(self, names: list[str]) -> list[str]:
        """Upload files to their final names. Returns those whose names are taken."""
        taken = []
        for name, put in self._put_each(names):
            if not put.is_new:
                taken.append(name)
                continue
            self._put_here.add(name)
            if name in self._promised:
                self._note_put(name, put.entity_tag)
        return taken

    def _note_put(self, name: str, entity_tag: str | None) -> None:
        """Note a shard that is in place, and count it once, even if it is compared and put again."""
        self.entity_tags[name] = entity_tag
        if self._sent is not None and name not in self._counted:
            self._counted.add(name)
            self._sent(self._promised[name].num_bytes)

    def _put_each(self, names: list[str]) -> Iterator[tuple[str, _Put]]:
        """Upload each file from here; shards that are not in the staged folder, from a cluster if one is used.

        Those in the staged folder are in TMPDIR, which only this machine has.
        """
        shards = [name for name in names if name in self._promised]
        sources = self._staged.store.sources_of(shards)
        if len(sources) == 1 and sources[0] is not self._staged.store:
            num_bytes = sum(self._promised[name].num_bytes for name in shards)
            urls = (sources[0].url, self._final.url)
            with choose_engine(num_bytes=num_bytes, is_local=False, is_unlocked=True, reads=urls) as engine:
                if not engine.shares_files:
                    put = _Putter(sources[0], self._final, self.held.token, None)
                    pieces = (Piece(put, (name, self._promised[name].sha256)) for name in shards)
                    watch = watch_tasks(self._sent, "files", total=len(shards))
                    run = engine.run(pieces, doing="uploaded files", failure=StorageError, watch=watch)
                    for (name, _), result in run:
                        self._require_reserved()
                        yield name, result
                    names = [name for name in names if name not in self._promised]
        put_here = _Putter(self._staged.store, self._final, self.held.token, self._require_reserved)

        def put_one(name: str) -> _Put:
            return put_here((name, self._promised[name].sha256 if name in self._promised else None))

        watch = watch_tasks(self._sent, "files", total=len(names))
        yield from self._each(put_one, names, doing="uploaded files", watch=watch)

    def _each(
        self, ask: Callable[[str], T], names: list[str], *, doing: str, watch: TaskWatch[T] | None = None
    ) -> Iterator[tuple[str, T]]:
        """Send the requests of ``ask`` for each name, several at the same time."""
        with choose_engine(num_bytes=None, is_local=False, is_unlocked=True) as engine:
            pieces = (Piece(ask, name) for name in names)
            yield from engine.run(pieces, doing=doing, failure=StorageError, watch=watch)

    def _put_missing(self, state: _State) -> None:
        """Upload every missing file."""
        late = self._put([name for name in state.staged if name not in state.equal])  # others were faster
        wrong = sorted(set(late) - self._find_equal(sorted(late)))
        if wrong and not self._is_whole():
            raise self._other_data(wrong)
        is_left = self._before is None or not self._before.living
        left = len(state.equal - self._put_here)
        # Without a reservation, a whole folder is that of another catalog, whose files this one shares.
        is_shared = self._before is None and left == len(state.staged)
        if left and is_left and not is_shared and not self._is_published:
            self.notes.append(
                f"finished an earlier run: {left} of {counted(len(state.staged), 'file')} "
                f"{'was' if left == 1 else 'were'} already in place"
            )

    def _other_data(self, names: list[str]) -> ConflictError:
        """The error for objects that must not be removed without a person's decision."""
        folder = folder_name(self._final)
        hint = (
            "It is a complete version that is not in this catalog, but may be in another one. To publish it: "
            f"registry publish {shlex.quote(folder)}\nOr raise your version."
        )
        is_theirs = INFO_FILENAME in self._found  # not one that was put there a moment ago
        if not is_theirs or digest_of(self._final, self._version.slicing) is None:
            data_dir = shlex.quote(folder_name(self._store))
            hint = (
                "These files are not in this catalog. If no other catalog has them, move them aside: "
                f"registry reservation clear {self._version.reference} --data-dir {data_dir}"
            )
        return ConflictError(
            f"the folder of {self._version.reference} contains other data: {folder}{listed_below(names, 10)}",
            hint=hint,
            details={"folder": folder, "files": names[:100]},
        )


class _Put(NamedTuple):
    """Whether a file was uploaded, or its name is taken; and the ETag of what was uploaded."""

    is_new: bool
    entity_tag: str | None


@dataclass(frozen=True, slots=True)
class _Putter:
    """The function of a piece of work: uploads a file, given by its name and its sha256, to its free final name.

    Only the process that has the catalog can ask whether the location is still reserved: ``require_reserved``.
    """

    source: Store
    final: Store
    writer: str
    require_reserved: Callable[[], None] | None

    def __call__(self, order: tuple[str, str | None]) -> _Put:
        """Upload the file."""
        name, sha256 = order
        try:
            tag = self.final.create_from(
                name,
                self.source,
                name,
                sha256=sha256,
                writer=self.writer,
                require_reserved=self.require_reserved or _require_nothing,
            )
        except AlreadyStoredError:
            return _Put(is_new=False, entity_tag=None)
        return _Put(is_new=True, entity_tag=tag)


class _Hashed(NamedTuple):
    """The sha256 of an object, and the ETag of exactly the bytes that were hashed."""

    sha256: str
    entity_tag: str | None


def _hash(final: Store, order: tuple[str, int]) -> _Hashed | None:
    """Hash an object, given by its name and size; None if it has another size, or another publisher just removed it."""
    name, num_bytes = order
    with suppress(NotStoredError), final.open(name) as file:
        if file.num_bytes == num_bytes:
            return _Hashed(file.sha256(), file.entity_tag)
    return None


def _require_nothing() -> None:
    """Elsewhere, nobody knows the reservation. The process that reserved the location checks it after each upload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """The object names at a location, compared with the staged files."""

    staged: tuple[str, ...]
    equal: frozenset[str]
    different: frozenset[str]
    extra: frozenset[str]


def _patiently(attempt: Callable[[], T]) -> T:
    """Retry ``attempt`` while others hold the location; raises ReservedError after ``WAIT_SECONDS``."""
    deadline = time.monotonic() + WAIT_SECONDS
    pause, longest = _PAUSES
    while True:
        try:
            return attempt()
        except ReservationLostError:
            raise
        except ReservedError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(random.uniform(pause / 2, pause))  # noqa: S311 (spreads rivals, guards no secret)
        pause = min(pause * 1.5, longest)
