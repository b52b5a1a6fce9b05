"""The disk space of published versions: ``Catalog.usage``.

Sizes come from the rows of the catalog. Versions that were published in place may share files; each file is counted
once. With ``check``, every location is listed and compared; one that cannot be listed does not end the check.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from registry.catalog import CatalogBackend, RemovalStep, VersionSize
from registry.errors import ConflictError, MissingExtraError, RegistryError, StorageError, VersionNotFoundError
from registry.masking import mask
from registry.model import ATTACHMENTS_FOLDER, Reference, VersionState

if TYPE_CHECKING:  # fsspec is loaded when a store is opened
    from registry.storage import Store

_SHOWN: Final = 100
_GROUPS: Final = 200
_Key: TypeAlias = tuple[str, str]
_Files: TypeAlias = Mapping[Reference, Sequence[tuple[str, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionUsage:
    """The shard files of one version at one location; at the first one, also its attachments.

    Attributes:
        reference: the exact version.
        state: its state.
        location: the path or URL of its folder.
        num_files, num_bytes: the number and the size of these files.
        num_shared_bytes: the size of those that other versions name, too.
    """

    reference: Reference
    state: VersionState
    location: str
    num_files: int
    num_bytes: int
    num_shared_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUsage:
    """What a location contains, compared with the versions whose files are there.

    Attributes:
        location: the path or URL of the folder.
        references: the versions.
        num_files, num_bytes: all files that are stored there, descriptions and unfinished ones included.
        missing: names of shard files, and of attachments in the data directory, that are not there, at most 100.
        differing: names of those that have another size, at most 100.
        num_faults: the number of both.
        error: why the location could not be listed, or not completely; else None. Files that could not be listed are
            not called missing.
    """

    location: str
    references: tuple[Reference, ...]
    num_files: int
    num_bytes: int
    missing: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    num_faults: int = 0
    error: RegistryError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """Distinct files: of a dataset, at a location, or of everything."""

    num_versions: int = 0
    num_files: int = 0
    num_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The disk space of versions. Files that several versions name are counted once in every total.

    Attributes:
        versions: each version at each of its locations, sorted by dataset and version.
        datasets: the total of each dataset (``name/config``).
        locations: the total of each location.
        total: of everything.
        stored: what each location contains, with ``check=True``.
    """

    versions: tuple[VersionUsage, ...]
    datasets: Mapping[str, Total]
    locations: Mapping[str, Total]
    total: Total
    stored: tuple[StoredUsage, ...] = ()


def measure_usage(
    backend: CatalogBackend, data: Store, reference: Reference | None, *, named: str = "", check: bool = False
) -> Usage:
    """The disk space of the versions that ``reference`` means: a dataset, all configs of a name, or one version.

    ``named`` is the reference as the caller wrote it, for messages.

    Raises:
        VersionNotFoundError: no such version is published.
    """
    sizes = [version for version in backend.sizes() if reference is None or _is_meant(version, reference)]
    if not sizes and reference is not None:
        raise VersionNotFoundError(f"no version matches {named or reference}", hint="To list datasets: registry list")
    if any(version.state is VersionState.DROPPED for version in sizes):
        ended = {removal.reference for removal in backend.lifecycle.removals() if removal.step is RemovalStep.ENDED}
        sizes = [version for version in sizes if version.reference not in ended]
    groups = _group(backend, data, sizes)
    totals = _Totals()
    for group in groups:
        totals.add(group)
    versions = [
        VersionUsage(
            reference=copy.size.reference,
            state=copy.size.state,
            location=copy.shown,
            num_files=copy.size.num_files + copy.num_attachments,
            num_bytes=copy.size.num_bytes + copy.attachment_bytes,
            num_shared_bytes=totals.shared[copy],
        )
        for group in groups
        for copy in group.copies
    ]
    order = {version.reference: number for number, version in enumerate(sizes)}
    versions.sort(key=lambda version: (order[version.reference], version.location))
    return Usage(
        versions=tuple(versions),
        datasets={
            name: totals.of("dataset", name) for name in dict.fromkeys(version.reference.dataset for version in sizes)
        },
        locations={place: totals.of("location", place) for place in sorted({version.location for version in versions})},
        total=totals.of("all", ""),
        stored=tuple(_compare_all(backend, groups)) if check else (),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Copy:
    """A version at one of its locations; ``store`` is an error if this machine cannot open such a place.

    ``is_first``: whether the version is read there first. ``is_home``: whether all of its attachments must be there.
    """

    size: VersionSize
    store: Store | RegistryError
    shown: str
    is_first: bool
    is_home: bool

    @property
    def num_attachments(self) -> int:
        """The number of attachments that it counts: a version has one copy of each."""
        return self.size.num_attachments if self.is_first else 0

    @property
    def attachment_bytes(self) -> int:
        """The size of these attachments."""
        return self.size.attachment_bytes if self.is_first else 0

    @property
    def keys(self) -> tuple[_Key, ...]:
        """The totals that count it."""
        return ("dataset", self.size.reference.dataset), ("location", self.shown), ("all", "")


class _SharedCopies:
    """The copies at one location, or at locations inside each other, which may share files.

    Attributes:
        copies: at least one.
        files: the size of each file and the copies that name it, by its complete path; empty for a single copy.
    """

    def __init__(self, copies: list[_Copy], named: _Files) -> None:
        self.copies = copies
        self.files: dict[str, tuple[int, list[_Copy]]] = {}
        for copy in copies if len(copies) > 1 else ():
            for name, num_bytes in named[copy.size.reference]:
                self.files.setdefault(f"{copy.shown}/{name}", (num_bytes, []))[1].append(copy)


class _Totals:
    """Adds up the distinct files of each dataset, of each location, and of everything, in one pass over all groups.

    Attributes:
        shared: for each copy, the size of the files that others name, too.
    """

    def __init__(self) -> None:
        self.shared: Counter[_Copy] = Counter()
        self._num_files: Counter[_Key] = Counter()
        self._num_bytes: Counter[_Key] = Counter()
        self._references: defaultdict[_Key, set[Reference]] = defaultdict(set)

    def add(self, group: _SharedCopies) -> None:
        """Count the files of a group."""
        for copy in group.copies:
            for key in copy.keys:
                self._references[key].add(copy.size.reference)
            self._count(copy.keys, copy.num_attachments, copy.attachment_bytes)
        if not group.files:  # of several copies only if none of them has a file
            for copy in group.copies:
                self._count(copy.keys, copy.size.num_files, copy.size.num_bytes)
        for num_bytes, namers in group.files.values():
            self._count({key for copy in namers for key in copy.keys}, 1, num_bytes)
            if len(namers) > 1:
                for copy in set(namers):
                    self.shared[copy] += num_bytes

    def _count(self, keys: Collection[_Key], num_files: int, num_bytes: int) -> None:
        for key in keys:
            self._num_files[key] += num_files
            self._num_bytes[key] += num_bytes

    def of(self, kind: str, name: str) -> Total:
        """The total of a dataset, of a location, or of everything."""
        key = kind, name
        return Total(
            num_versions=len(self._references[key]), num_files=self._num_files[key], num_bytes=self._num_bytes[key]
        )


def find_neighbours(
    backend: CatalogBackend, data: Store, reference: Reference, *, without: Collection[Reference]
) -> tuple[tuple[Reference, ...], frozenset[str]]:
    """The versions that name files of ``reference``, too, and the locations of versions inside or around its own.

    Raises:
        ConflictError: the dataset has another name by now.
    """
    sizes = [version for version in backend.sizes() if version.reference not in without]
    if all(version.reference != reference for version in sizes):
        raise ConflictError(f"{reference} was renamed in the meantime", hint="Try again.")
    sharing: set[Reference] = set()
    around: set[str] = set()
    for group in _group(backend, data, sizes, of=reference):
        around.update(copy.shown for copy in group.copies if copy.size.reference != reference)
        for _, namers in group.files.values():
            references = {copy.size.reference for copy in namers}
            sharing |= references if reference in references else set()
    return tuple(sorted(sharing - {reference}, key=str)), frozenset(around)


def _group(
    backend: CatalogBackend, data: Store, sizes: Sequence[VersionSize], *, of: Reference | None = None
) -> list[_SharedCopies]:
    """The copies at each place, and at places inside it; ``of`` keeps only the places of one version."""
    from registry.publishing.attachments import home_of
    from registry.storage import open_location

    copies = []
    for version in sizes:
        for location in version.locations:
            roles = location == version.locations[0], location == home_of(version)
            try:
                store = open_location(data, location)
            except (StorageError, MissingExtraError) as error:
                copies.append(_Copy(version, error, mask(location), *roles))
            else:
                copies.append(_Copy(version, store, mask(store.locate("x")[:-2]), *roles))
    copies.sort(key=lambda copy: f"{copy.shown}/")
    groups: list[list[_Copy]] = []
    for copy in copies:
        if groups and f"{copy.shown}/".startswith(f"{groups[-1][0].shown}/"):
            groups[-1].append(copy)
        else:
            groups.append([copy])
    groups = [group for group in groups if of is None or any(copy.size.reference == of for copy in group)]
    shared = {copy.size.reference for group in groups if len(group) > 1 for copy in group}
    named = backend.shards.files_of(shared) if shared else {}
    return [_SharedCopies(group, named) for group in groups]


def _compare_all(backend: CatalogBackend, groups: Sequence[_SharedCopies]) -> Iterator[StoredUsage]:
    """Compare the groups, some hundred at a time: a catalog may name millions of files."""
    for start in range(0, len(groups), _GROUPS):
        block = groups[start : start + _GROUPS]
        references = {copy.size.reference for group in block for copy in group.copies}
        named = backend.shards.files_of(references, attachments=True)
        for group in block:
            yield _compare(group, named)


def _compare(group: _SharedCopies, named: _Files) -> StoredUsage:
    """List the location of a group, and compare the files that versions name."""
    outer = group.copies[0]
    result: dict[str, int] = {}
    unlisted: list[tuple[str, str]] = []  # folders, each with the name that prevents its listing
    error: RegistryError | None = None
    if isinstance(outer.store, RegistryError):
        error, unlisted = outer.store, [(f"{outer.shown}/", "")]
    else:
        try:
            for entry in outer.store.scan_listable():
                if entry.unlisted is not None:
                    inside = f"{outer.shown}/{entry.unlisted}".rstrip("/")
                    unlisted.append((f"{inside}/", f"{outer.shown}/{entry.name}"))
                elif not entry.is_folder:
                    result[f"{outer.shown}/{entry.name}"] = entry.num_bytes
        except StorageError as fault:
            error, unlisted = fault, [(f"{outer.shown}/", "")]
    if error is None and unlisted:
        names = ", ".join(name for _, name in unlisted[:_SHOWN])
        error = StorageError(
            f"these names are invalid, so other files in their folders cannot be listed: {names}",
            hint="Remove these objects with the tools of the store.",
        )
    folders = tuple(folder for folder, _ in unlisted)
    missing, differing = [], []
    for copy in group.copies:
        for name, num_bytes in named[copy.size.reference]:
            path = f"{copy.shown}/{name}"
            if name.startswith(ATTACHMENTS_FOLDER) and not copy.is_home:
                continue  # a mirror may lack them
            if path not in result:
                if not path.startswith(folders):
                    missing.append(path)
            elif result[path] != num_bytes:
                differing.append(path)
    return StoredUsage(
        location=outer.shown,
        references=tuple(dict.fromkeys(copy.size.reference for copy in group.copies)),
        num_files=len(result),
        num_bytes=sum(result.values()),
        missing=tuple(missing[:_SHOWN]),
        differing=tuple(differing[:_SHOWN]),
        num_faults=len(missing) + len(differing),
        error=error,
    )


def _is_meant(version: VersionSize, reference: Reference) -> bool:
    if reference.name not in (version.name, *version.names) or reference.config not in (None, version.config):
        return False
    return reference.request is None or reference.request.allows(version.version)
