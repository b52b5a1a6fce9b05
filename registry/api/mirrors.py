"""``catalog.mirrors``: the locations of the files of a version, verified by digest before they are recorded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from registry.api.arguments import read_reference
from registry.api.locations import log_actor, open_data, open_indexes
from registry.api.reports import LocationReport, RelocatedVersion, RelocationReport
from registry.argument_types import typed_methods
from registry.catalog import EventFilter, load_shards, published_version, stream_events
from registry.errors import (
    CatalogError,
    MissingExtraError,
    NotFoundError,
    RegistryError,
    ShardMismatchError,
    StorageError,
    UsageError,
    warn,
)
from registry.model import VersionState, count_progress, is_absolute
from registry.splits import counted

if TYPE_CHECKING:  # numpy is loaded when files are compared
    from registry.api.arguments import DatasetLike
    from registry.catalog import CatalogBackend, LocationChange
    from registry.model import Attachment, DatasetVersion, ProgressCallback, Reference
    from registry.publishing import VerifyReport
    from registry.storage import Store

_ADDING: Final = ("mirror-add", "relocate")
"""The events that record a location."""

_SAME: Final = "Nothing would change: name two different places."


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A place where the files of a version are stored.

    Attributes:
        location: the place as the catalog records it: a path below the data directory, an absolute path, or a URL.
        url: the complete path or URL.
        is_published: whether the version was published there.
        added_at: when the version was published there, or the location was recorded, in UTC.
        added_by: the actor of that change in the event log, which is a claim and not verified.
    """

    location: str
    url: str
    is_published: bool
    added_at: datetime | None = None
    added_by: str | None = None


@typed_methods
class Mirrors:
    """``catalog.mirrors``: the locations of the files of a version.

    A version is read from its first location. If that location fails, or has a file that differs from the published
    one, the next location is read, with a warning. A location is recorded only after every file there was verified by
    sha256. Every change is one transaction with its event, and the published row never changes.

    >>> [one.location for one in catalog.mirrors.list("digits")]
    ['digits/1.0.0']
    """

    def __init__(self, catalog: CatalogBackend, *, data_dir: str, is_recorded: bool) -> None:
        """``data_dir`` is the directory that the catalog records or, if it records none, the client's."""
        self._catalog = catalog
        self._data_dir = data_dir
        self._is_recorded = is_recorded

    def list(self, reference: DatasetLike) -> tuple[Location, ...]:
        """The locations of a version, in the order in which they are read.

        Args:
            reference: the version, see ``Catalog.dataset``.

        Raises:
            NotFoundError, VersionWithdrawnError, UsageError: see ``Catalog.dataset``.
        """
        return self._locations(self._catalog.find(read_reference(reference)))

    def list_all(self) -> tuple[tuple[Reference, tuple[Location, ...]], ...]:
        """The versions with more than one location that are not dropped, with their locations as in ``list``."""
        result = [
            published_version(self._catalog, version.reference)
            for version in self._catalog.sizes()
            if len(version.locations) > 1 and version.state is not VersionState.DROPPED
        ]
        return tuple((version.reference, self._locations(version)) for version in result)

    def _locations(self, version: DatasetVersion) -> tuple[Location, ...]:
        by: dict[str, tuple[datetime | None, str | None]] = {
            version.location: (version.published_at, version.published_by)
        }
        if len(version.locations) > 1 or version.locations[0] != version.location:
            dataset, number = version.reference.dataset, str(version.version)
            for event in stream_events(self._catalog.log, EventFilter(dataset=dataset, actions=_ADDING)):
                if (event.dataset, event.version) == (dataset, number):
                    added = event.details.get("after") or event.details.get("location")
                    by[str(added)] = event.at, event.actor
        return tuple(
            Location(
                location=location,
                url=self.locate(location),
                is_published=location == version.location,
                added_at=by.get(location, (None, None))[0],
                added_by=by.get(location, (None, None))[1],
            )
            for location in version.locations
        )

    def add(
        self,
        reference: DatasetLike,
        url: str | os.PathLike[str],
        *,
        processes: int | None = None,
        dry_run: bool = False,
        progress: ProgressCallback | None = None,
    ) -> LocationChange:
        """Record a folder with copies of a version's files as its last location. Adding it again changes nothing.

        The folder may lack attachments, which readers find elsewhere; a warning counts missing attached columns.

        Args:
            reference: the version, see ``Catalog.dataset``.
            url: path or URL of the folder. A folder below the data directory is recorded relative to it.
            processes: the number of files that are hashed at the same time. None decides by their size.
            dry_run: compare the files, and record nothing.
            progress: called with a ``Progress``, in records.

        Raises:
            NotFoundError, VersionWithdrawnError: see ``Catalog.dataset``.
            ShardMismatchError: files there are missing, or differ from the published ones; the message names each.
            StorageUnavailableError: the store does not answer.
            UsageError: ``url`` contains a password or another secret, or ``reference`` has a wrong type.
        """
        version = self._catalog.find(read_reference(reference))
        location = self._meant(version, url)
        if location not in version.locations:
            self._require_copy(version, location, processes=processes, progress=progress)
            if columns := [file for file in self._lacking(version, self._open(location)) if file.kind == "columns"]:
                warn(
                    f"{self.locate(location)} lacks {counted(len(columns), 'file')} of the columns attached to "
                    f"{version.reference}: to have them there, also copy the hidden folder .attachments"
                )
        return self._catalog.locations.add(version.reference, location, actor=log_actor(), dry_run=dry_run)

    def remove(self, reference: DatasetLike, url: str | os.PathLike[str], *, dry_run: bool = False) -> LocationChange:
        """Withdraw a location: it is no longer read. Its files stay where they are.

        Args:
            reference: the version, see ``Catalog.dataset``.
            url: the path or URL of the location, or its text in ``list``.
            dry_run: compute the change, and write nothing.

        Raises:
            NotFoundError: the version does not exist, or has no such location.
            ConflictError: this is the only location.
            ShardMismatchError: no other location has the version's attachments; the message names each.
            UsageError: ``reference`` has a wrong type.
        """
        version = self._catalog.find(read_reference(reference))
        location = self._known(version, url) or os.fspath(url)
        if location in version.locations and len(version.locations) > 1:
            self._require_attachments(version, location, [each for each in version.locations if each != location])
        return self._catalog.locations.remove(version.reference, location, actor=log_actor(), dry_run=dry_run)

    def check(
        self,
        reference: DatasetLike,
        url: str | os.PathLike[str] | None = None,
        *,
        processes: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> tuple[LocationReport, ...]:
        """Compare the files at every location of a version with the catalog, by size and sha256.

        Attachments are compared as well. All of them must be present in the data directory; mirrors may lack some,
        which ``num_lacking`` counts.

        Args:
            reference: the version, see ``Catalog.dataset``.
            url: only this location.
            processes: the number of files that are hashed at the same time. None decides by their size.
            progress: called with a ``Progress``, in records; ``subject`` is the location.

        Returns:
            One result for each location. A location that cannot be reached has an ``error``.

        Raises:
            NotFoundError: the version does not exist, or has no location ``url``.
            UsageError: ``reference`` has a wrong type, or ``processes`` is not a positive whole number.
        """
        version = self._catalog.find(read_reference(reference))
        wanted = version.locations
        if url is not None:
            known = self._known(version, url)
            if known is None:
                raise NotFoundError(
                    f"{os.fspath(url)} is not a location of {version.reference}",
                    hint=f"To list its locations: registry mirror list {version.reference}",
                    details={"name": os.fspath(url), "known": list(wanted)},
                )
            wanted = (known,)
        return tuple(self._check(version, location, processes=processes, progress=progress) for location in wanted)

    def relocate(
        self,
        reference: DatasetLike,
        url: str | os.PathLike[str],
        *,
        processes: int | None = None,
        dry_run: bool = False,
        progress: ProgressCallback | None = None,
    ) -> LocationChange:
        """Record that the folder of a version was moved: ``url`` replaces its first location.

        If ``url`` is one of the mirrors, that mirror becomes the first location.

        Args:
            reference: the version, see ``Catalog.dataset``.
            url: path or URL of the folder where the files are now.
            processes: the number of files that are hashed at the same time. None decides by their size.
            dry_run: compare the files, and record nothing.
            progress: called with a ``Progress``, in records.

        Raises:
            NotFoundError, VersionWithdrawnError: see ``Catalog.dataset``.
            ShardMismatchError: files there are missing, or differ from the published ones, or attachments would be
                lost; the message names each.
            StorageUnavailableError: the store does not answer.
            ConflictError: another call changed the locations meanwhile.
            UsageError: ``url`` contains a password or another secret, or ``reference`` has a wrong type.
        """
        version = self._catalog.find(read_reference(reference))
        first, after = version.locations[0], self._meant(version, url)
        return self._relocate(version, first, after, processes=processes, dry_run=dry_run, progress=progress)

    def relocate_all(
        self,
        old: str | os.PathLike[str],
        new: str | os.PathLike[str],
        *,
        processes: int | None = None,
        dry_run: bool = False,
        progress: ProgressCallback | None = None,
    ) -> RelocationReport:
        """Record that everything below a folder was moved: ``new`` replaces ``old`` at the start of every location.

        If a version is refused, the others are still relocated. Relocating again changes nothing. Locations below the
        data directory are recorded relative to it, but are also compared as complete paths or URLs. If the whole data
        directory was moved, they need no change: ``Catalog.set_data_dir`` records the new directory.

        Args:
            old: the path or URL that locations begin with.
            new: the path or URL that replaces it.
            processes: the number of files that are hashed at the same time. None decides by their size.
            dry_run: compare the files, and record nothing.
            progress: called with a ``Progress``, in records; ``subject`` is the new location.

        Returns:
            One result for each location below ``old``, in the order of publication. ``require_all()`` raises if a
            location was refused.

        Raises:
            CatalogError: the catalog failed. Locations that were recorded before stay recorded.
            UsageError: ``new`` contains a password or another secret, or is the same as ``old``.
        """
        befores, after = _spellings(old), _absolute(new)
        if after in befores:
            raise UsageError(f"{after} is both the old place and the new one", hint=_SAME)
        result = []
        for reference, locations in (*self._catalog.locations.outside(), *self._inside(befores)):
            for location in locations:
                full = self.locate(location)
                rest = next((rest for one in befores if (rest := _below(full, one)) is not None), None)
                if rest is None:
                    continue
                place = f"{after}{rest}"
                error = None
                try:
                    version, to = published_version(self._catalog, reference), self._location_of(place)
                    self._relocate(version, location, to, processes=processes, dry_run=dry_run, progress=progress)
                except CatalogError:
                    raise
                except RegistryError as fault:
                    error = fault
                result.append(
                    RelocatedVersion(reference=reference, before=full, after=place, is_dry_run=dry_run, error=error)
                )
        return RelocationReport(result)

    def _inside(self, befores: tuple[str, ...]) -> Iterator[tuple[Reference, tuple[str, ...]]]:
        """The versions that have only locations below the data directory, if those may be in one of ``befores``."""
        data = open_data(self._data_dir)
        top = data.url if data.local_root is None else str(data.local_root)
        if not any(_below(top, place) is not None or _below(place, top) is not None for place in befores):
            return
        for version in self._catalog.sizes():
            if version.state is not VersionState.DROPPED and not any(map(is_absolute, version.locations)):
                yield version.reference, version.locations

    def _relocate(
        self,
        version: DatasetVersion,
        before: str,
        after: str,
        *,
        processes: int | None,
        dry_run: bool,
        progress: ProgressCallback | None,
    ) -> LocationChange:
        if before != after:
            self._require_copy(version, after, processes=processes, progress=progress)
            others = [after if each == before else each for each in version.locations]
            self._require_attachments(version, before, others)
        return self._catalog.locations.relocate(version.reference, before, after, actor=log_actor(), dry_run=dry_run)

    def _require_copy(
        self, version: DatasetVersion, location: str, *, processes: int | None, progress: ProgressCallback | None
    ) -> None:
        """Refuse a place that does not contain exactly the published files."""
        report = self._compare(version, self._open(location), processes=processes, progress=progress)
        first = self.locate(version.locations[0])
        report.raise_for_faults(
            f"{self.locate(location)} is not a copy of {version.reference}",
            recovery=f"Copy the files of {first} there first, then run the same command again.",
        )

    def _require_attachments(self, version: DatasetVersion, before: str, after: Sequence[str]) -> None:
        """Refuse locations without ``before`` if they lack attachments of a version that it has."""
        from registry.publishing.attachments import find_faults, home_of

        attachments, data = self._catalog.attachments(version), open_data(self._data_dir)
        try:
            absent = {fault.filename for fault in find_faults(data, (before, home_of(version)), attachments)}
        except StorageError:  # files that cannot be read are not lost by this change
            return
        present = [attachment for attachment in attachments if attachment.place not in absent]
        places = [place for place in (*after, home_of(version, after)) if place != before]
        if faults := list(find_faults(data, places, present)):
            problems = "\n".join(f"  {fault.problem}" for fault in faults)
            raise ShardMismatchError(
                f"without {self.locate(before)}, attachments of {version.reference} would be lost:\n{problems}",
                hint=f"Copy these files, which are in a hidden folder, to {self.locate(after[0])}\n"
                "Then run the same command again. Nothing was changed.",
                details={"faults": [{"filename": fault.filename, "problem": fault.problem} for fault in faults]},
            )

    def _check(
        self, version: DatasetVersion, location: str, *, processes: int | None, progress: ProgressCallback | None
    ) -> LocationReport:
        from registry.publishing.attachments import find_faults, home_of

        report, error, num_lacking = None, None, 0
        try:
            store = self._open(location)
            report = self._compare(version, store, processes=processes, progress=progress)
            lacking = () if location == home_of(version) else self._lacking(version, store)  # mirrors may lack them
            attachments = [file for file in self._catalog.attachments(version) if file not in lacking]
            num_lacking = len(lacking)
            faults = find_faults(open_data(self._data_dir), [location], attachments)
            report = replace(report, faults=(*report.faults, *faults))
        except (StorageError, MissingExtraError) as fault:
            error = fault
        return LocationReport(
            location=location, url=self.locate(location), report=report, error=error, num_lacking=num_lacking
        )

    def _lacking(self, version: DatasetVersion, store: Store) -> tuple[Attachment, ...]:
        """The attachments that a folder lacks."""
        return tuple(file for file in self._catalog.attachments(version) if not store.exists(file.place))

    def _compare(
        self, version: DatasetVersion, store: Store, *, processes: int | None, progress: ProgressCallback | None
    ) -> VerifyReport:
        from registry.publishing import verify_shards

        return verify_shards(
            store,
            version.splits,
            {split.name: load_shards(self._catalog.shards, version, split.name) for split in version.splits},
            walk=False,
            indexes=open_indexes(),
            processes=processes,
            advance=count_progress(progress, "hashing", store.url, total=version.num_examples),
        )

    def _open(self, location: str) -> Store:
        from registry.storage import open_location

        return open_location(open_data(self._data_dir), location)

    def locate(self, location: str) -> str:
        """The path or URL of the recorded ``location``. The place is not opened.

        >>> catalog.mirrors.locate("s3://mirror/digits/1.0.0")
        's3://mirror/digits/1.0.0'
        """
        if is_absolute(location):
            return location
        store = open_data(self._data_dir).child(location)
        return store.url if store.local_root is None else str(store.local_root)

    def _location_of(self, url: str | os.PathLike[str]) -> str:
        """How the catalog records a place: relative to the recorded data directory if it is inside it."""
        place = _absolute(url)
        return self._relative(place) if self._is_recorded else place

    def _relative(self, place: str) -> str:
        data = open_data(self._data_dir)
        rest = _below(place, data.url if data.local_root is None else str(data.local_root))
        return rest.removeprefix("/") if rest else place

    def _meant(self, version: DatasetVersion, url: str | os.PathLike[str]) -> str:
        """How the catalog records a place. The text of a current location, or of the first one, means that location."""
        text = os.fspath(url)
        return text if text == version.location else self._known(version, url) or self._location_of(url)

    def _known(self, version: DatasetVersion, url: str | os.PathLike[str]) -> str | None:
        """The location of ``version`` that a caller means, or None."""
        from registry.storage import require_plain

        text = require_plain(os.fspath(url))
        return next((spelling for spelling in (text, *self._spelled(text)) if spelling in version.locations), None)

    def _spelled(self, text: str) -> Iterator[str]:
        try:
            yield from _spellings(text)
            yield self._relative(_absolute(text))
        except (StorageError, MissingExtraError, UsageError):  # the location itself can still be named
            return


def _absolute(url: str | os.PathLike[str]) -> str:
    """The path or URL of a folder that a caller named.

    Raises:
        UsageError: the URL contains a password, which would be stored where others can read it.
    """
    from registry.storage import open_store, require_no_secrets

    store = open_store(require_no_secrets(url, "the location"))
    return (store.url if store.local_root is None else str(store.local_root)).rstrip("/") or "/"


def _spellings(url: str | os.PathLike[str]) -> tuple[str, ...]:
    """The prefixes that locations in a folder may have: links in the path may have changed since they were recorded."""
    text = os.fspath(url)
    from registry.storage import expand_home

    if "://" in text:
        return (_absolute(text),)
    path = str(expand_home(text).absolute())
    return tuple(dict.fromkeys((path.rstrip("/") or "/", _absolute(text))))


def _below(location: str, folder: str) -> str | None:
    """The part of a location after ``folder``, from the slash on; ``""`` for ``folder`` itself; None if outside."""
    start = folder.rstrip("/")
    return location[len(start) :] if location == start or location.startswith(f"{start}/") else None
