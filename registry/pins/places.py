"""Finds the files of a pin: first in folders of this machine, then in the places that the pin names.

    Places --visit--> folders, nearest first --find--> one that holds every file of a pin with the pinned size
    list_files --> PinnedFile, each once --ShardLocator--> FileLocation --copy_checked--> right bytes

A location in a pin is the URL or path of the folder with its files, or a path below a data directory. The author of the
pin chose its locations, so a URL or an absolute path is used only if the reader allowed it. ``verify`` checks the
content of a folder; ``copy_checked`` checks a file while ``restore`` and ``bundle`` copy it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import unquote

from registry.errors import (
    ConflictError,
    FetchNotAllowedError,
    MissingExtraError,
    NotStoredError,
    RegistryError,
    ShardMismatchError,
    StorageError,
    StorageUnavailableError,
    spell,
)
from registry.masking import mask
from registry.pins.document import FileEntry, PinEntry
from registry.pins.layout import folder_of, reference_of
from registry.prepared.info import FILENAME as INFO_FILENAME
from registry.shards.asking import ask_sizes
from registry.splits import counted
from registry.storage import Allowed, Store, expand_home, open_named, open_store
from registry.storage.cache import CachedBlocks, FileCache
from registry.storage.consent import needs_name
from registry.storage.store import check_relative_name
from registry.tfrecord import IndexFolder

VERIFY_FILENAME: Final = "verify.py"
"""The check in a bundle, beside its pin file."""

NO_SUCH_FILE: Final = "no such file"
"""The problem of a place that lacks a file. Most places do, so it is not reported as a warning."""

_MOST_LISTED: Final = 10
_ONLY_NAMED: Final = "only the pin names this place"


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedSource:
    """A place that was rejected, and the reason.

    Attributes:
        place: the path or URL of a folder or file.
        problem: the reason.
        is_wrong: whether the file exists but is not the pinned one.
        is_temporary: whether the place could not be reached or the connection broke, so another attempt may succeed.
        allow: the argument of ``--allow-host`` that allows the place, if the reader did not.
        hint: how to make the place usable, if that is known.
    """

    place: str
    problem: str
    is_wrong: bool = False
    is_temporary: bool = False
    allow: str | None = None
    hint: str | None = None

    @classmethod
    def of(cls, place: str, error: RegistryError) -> RejectedSource:
        """The rejection of a place for an error, which may name the place itself."""
        return cls(
            place=place,
            problem=error.message.removeprefix(f"cannot read {place}: "),
            is_wrong=isinstance(error, ShardMismatchError),
            is_temporary=isinstance(error, StorageUnavailableError),
            allow=error.details["allow"] if isinstance(error, FetchNotAllowedError) else None,
            hint=error.hint if isinstance(error, MissingExtraError) else None,
        )

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Places:
    """The places to search for the files of pins, in this order.

    Attributes:
        data_dir: a folder that the reader named: a data directory, or the folder of the files itself. If it is given,
            no other place is searched.
        beside: the folder of the pin file; a bundle has its shards in ``data`` next to the pin file.
        data_dirs: data directories of this machine.
        folders: the folders from which a catalog reads versions stored elsewhere, by their path below a data directory.
        index_folder: where readers cache the offsets of records, or None.
        cache: the cache of files of other machines, or None.
        allowed: which of the places that pins name may be used. The other places are the reader's own.
    """

    data_dir: str | None = None
    beside: str | None = None
    data_dirs: tuple[str, ...] = ()
    folders: Mapping[str, str] = field(default_factory=dict)
    index_folder: str | None = None
    cache: FileCache | None = None
    allowed: Allowed = field(default_factory=Allowed)

    def __repr__(self) -> str:
        return mask(f"<Places {self.data_dir or [self.beside, *self.data_dirs, *self.folders.values()]}>")

    def within_bundle(self) -> Places:
        """These places without the data directories of this machine if the pin file is in an unpacked bundle.

        A bundle is verified by its own files: otherwise an incomplete bundle would pass on a machine that has the data.
        Places that the reader named or allowed are kept.
        """
        if self.beside is None or not is_bundle(self.beside):
            return self
        return replace(self, data_dirs=(), folders={})

    def indexes(self) -> IndexFolder | None:
        """The cache of the offsets of records, or None."""
        return None if self.index_folder is None else IndexFolder(self.index_folder)

    def allowing(self, *, fetch: bool, hosts: Iterable[str]) -> Places:
        """A copy that allows more of the places that pins name; see ``Allowed.of``."""
        return replace(self, allowed=self.allowed | Allowed.of(fetch=fetch, hosts=hosts))

    def find(self, entry: PinEntry) -> Store:
        """The first folder that contains all files of a pin, each with its pinned size.

        Raises:
            NotStoredError: no folder has all files; the message lists the folders and what each lacks.
            StorageUnavailableError: no folder has all files, and one could not be reached.
            FetchNotAllowedError: no folder has all files, and the pin names places that the reader did not allow.
        """
        rejected: list[RejectedSource] = []
        for place in self.visit(entry):
            if isinstance(place, RejectedSource):
                rejected.append(place)
                continue
            try:
                missing = first_missing(place, entry, self.cache)
            except StorageError as error:  # a server does not answer, or redirects to one that is not allowed
                rejected.append(RejectedSource.of(place.url, error))
                continue
            if missing is None:
                return place
            rejected.append(RejectedSource(place=place.url, problem=missing))
        listed = "".join(f"\n  {line}" for line in dict.fromkeys(map(str, rejected)))
        files = f"the files of {reference_of(entry)} {entry.split}"
        num_bytes = sum(file.num_bytes for file in entry.files)
        size = f"{counted(len(entry.files), 'file')}, {counted(num_bytes, 'byte')}"
        raise _not_found(
            rejected,
            f"{files} are not in any folder that was searched{listed}",
            unasked=f"{files} ({size}) are not in any folder that was searched{listed}",
            hint=f"Name their folder with {spell('data_dir=DIR')}, or copy them from a catalog: "
            "registry pin restore FILE --to DIR --catalog URL",
            details={"places": list(map(str, rejected))[:100]},
        )

    def find_any(self, entry: PinEntry) -> Store:
        """Like ``find``, but if no folder has all files, the first folder that has one of them, or a version.

        Raises:
            NotStoredError, StorageUnavailableError, FetchNotAllowedError: no folder does; see ``find``.
        """
        try:
            return self.find(entry)
        except (NotStoredError, StorageUnavailableError, FetchNotAllowedError):
            names = [*(file.name for file in entry.files[:100]), INFO_FILENAME]
            for place in self.visit(entry):
                if isinstance(place, Store) and any(holds(place, name) for name in names):
                    return place
            raise

    def visit(self, entry: PinEntry) -> Iterator[Store | RejectedSource]:
        """The folders that may contain the files of a pin, nearest first, without duplicates.

        A place that the pin names is rejected if the reader did not allow it, or if it cannot be opened.
        """
        seen = set()
        for url, open_place in self._own(entry):
            try:
                store = open_place(url)
            except (StorageError, MissingExtraError):
                continue
            if store.url not in seen:
                seen.add(store.url)
                yield store
        for url in entry.locations if self.data_dir is None else ():
            if _is_absolute(url):
                place = self.open_named(url)
                if isinstance(place, RejectedSource) or place.url not in seen:
                    yield place

    def open_named(self, url: str, *, shown: str | None = None) -> Store | RejectedSource:
        """The folder at a place that a pin names; an error calls it ``shown``."""
        try:
            return open_named(url, self.allowed)
        except FetchNotAllowedError as error:
            why = f"{spell('fetch', True)} does not cover this place" if self.allowed.fetch else _ONLY_NAMED
            return RejectedSource(place=mask(shown or url), problem=f"not allowed: {why}", allow=error.details["allow"])
        except (StorageError, MissingExtraError) as error:
            return RejectedSource.of(mask(shown or url), error)

    def _own(self, entry: PinEntry) -> Iterator[tuple[str, Callable[[str], Store]]]:
        """The reader's own places, and the function that opens each."""
        relative = [folder_of(entry), *(text for text in entry.locations if not _is_absolute(text))]
        if self.data_dir is not None:
            yield self.data_dir, open_store
            roots = [self.data_dir, f"{self.data_dir}/data"]  # an unpacked bundle has its data in the second
        else:
            roots = list(self.data_dirs)
            for folder in relative if self.beside is not None else ():
                yield f"{(self.beside or '').rstrip('/')}/data/{folder}", self._open_beside
        for root in roots:
            for folder in relative:
                yield f"{root.rstrip('/')}/{folder}", open_store
        if self.data_dir is None and folder_of(entry) in self.folders:
            yield self.folders[folder_of(entry)], open_store

    def _open_beside(self, url: str) -> Store:
        """A folder next to the pin file. A web server that the reader named must not redirect to another server."""
        if not url.startswith(("http://", "https://")):
            return open_store(url)
        return open_named(url, self.allowed.with_typed(url))


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedFile:
    """A file that pins need.

    Attributes:
        path: below a data directory, ``name[/config]/version/file``.
        file: the pin's entry for it.
        pin: the first pin that needs it.
    """

    path: str
    file: FileEntry
    pin: PinEntry

    @property
    def sha256(self) -> str:
        """64 hex digits."""
        return self.file.sha256.removeprefix("sha256:")


def list_files(entries: Iterable[PinEntry]) -> list[PinnedFile]:
    """The files that pins need, without duplicates, sorted by path.

    Raises:
        ConflictError: two pins need different bytes at one path.
    """
    files: dict[str, PinnedFile] = {}
    for entry in entries:
        for file in entry.files:
            # A pin may come from anywhere, so its names are checked here too, where they become a path.
            path = check_relative_name(f"{folder_of(entry)}/{check_relative_name(file.name)}")
            other = files.setdefault(path, PinnedFile(path=path, file=file, pin=entry))
            if (other.file.sha256, other.file.num_bytes) != (file.sha256, file.num_bytes):
                raise ConflictError(
                    f"the pins {other.pin.name!r} and {entry.name!r} need different bytes in {path}",
                    hint="They pin different data under one version number. Use one of them at a time, by its name.",
                    details={"path": path, "pins": [other.pin.name, entry.name]},
                )
    return [files[path] for path in sorted(files)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLocation:
    """A place of one file: a store, and the file's name in it."""

    store: Store
    name: str

    @property
    def url(self) -> str:
        """The path or URL of the file, for messages."""
        return self.store.locate(self.name)


class ShardLocator:
    """Looks for one pinned file, place by place. It remembers the rejected places and does not try them again."""

    def __init__(self, file: PinnedFile, places: Places) -> None:
        self.wanted = file
        self.rejected: list[RejectedSource] = []
        self._places = places

    def sources(self) -> Iterator[FileLocation]:
        """The places that have the file with its pinned size, nearest first."""
        tried = {rejected.place for rejected in self.rejected}
        for source in self._all():
            place = source.place if isinstance(source, RejectedSource) else source.url
            if place in tried:
                continue
            tried.add(place)
            if isinstance(source, RejectedSource):
                self.rejected.append(source)
                continue
            try:
                num_bytes = source.store.size(source.name)
            except NotStoredError:
                self.rejected.append(RejectedSource(place=place, problem=NO_SUCH_FILE))
            except StorageError as error:
                self.reject(source, error)
            else:
                if num_bytes == self.wanted.file.num_bytes:
                    yield source
                else:
                    problem = f"expected {self.wanted.file.num_bytes} bytes, found {num_bytes}"
                    self.rejected.append(RejectedSource(place=place, problem=problem, is_wrong=True))

    def reject(self, source: FileLocation, error: RegistryError) -> None:
        """Reject a place that failed with ``error``: it is not tried again."""
        self.rejected.append(RejectedSource.of(source.url, error))

    def _all(self) -> Iterator[FileLocation | RejectedSource]:
        file = self.wanted.file
        for place in self._places.visit(self.wanted.pin):
            yield place if isinstance(place, RejectedSource) else FileLocation(store=place, name=file.name)
        for location in file.locations if self._places.data_dir is None else ():
            folder, _, last_part = location.rpartition("/")
            if not folder or not _is_absolute(location):
                yield RejectedSource(place=location, problem="not the URL of a file")
                continue
            place = self._places.open_named(folder, shown=location)
            name = unquote(last_part) if folder.startswith("file://") else last_part
            yield place if isinstance(place, RejectedSource) else FileLocation(store=place, name=name)


def copy_checked(pinned_file: PinnedFile, source: FileLocation, write: Callable[[memoryview], object]) -> None:
    """Read a file from one place and pass its bytes to ``write``. If this returns, they are the pinned bytes.

    Raises:
        ShardMismatchError: the bytes are not the pinned ones; some of them were written.
        StorageError: the file cannot be read, or its bytes cannot be written.
    """
    hasher, num_bytes = hashlib.sha256(), 0
    with source.store.open(source.name) as file:
        for piece in file.pieces():
            num_bytes += len(piece)
            if num_bytes > pinned_file.file.num_bytes:
                break
            hasher.update(piece)
            write(piece)
    if num_bytes != pinned_file.file.num_bytes:
        found = f"expected {pinned_file.file.num_bytes} bytes, received {num_bytes}"
        if num_bytes > pinned_file.file.num_bytes:
            found = f"expected {pinned_file.file.num_bytes} bytes, received more"
        raise ShardMismatchError(found, details={"path": source.url})
    if hasher.hexdigest() != pinned_file.sha256:
        raise ShardMismatchError(
            f"sha256 mismatch: expected {pinned_file.sha256}, found {hasher.hexdigest()}", details={"path": source.url}
        )


def no_right_bytes(missing: Sequence[ShardLocator]) -> RegistryError:
    """The error for files that no place has as pinned; it lists the places and the problem of each."""
    listed = []
    for locator in missing[:_MOST_LISTED]:
        listed.append(
            f"\n  {locator.wanted.path} ({locator.wanted.file.sha256}, {locator.wanted.file.num_bytes} bytes)"
        )
        listed += [f"\n    {rejected}" for rejected in locator.rejected] or ["\n    there is no place to search"]
    if len(missing) > _MOST_LISTED:
        listed.append(f"\n  and {len(missing) - _MOST_LISTED} more")
    count = counted(len(missing), "pinned file")
    num_bytes = sum(locator.wanted.file.num_bytes for locator in missing)
    files = [
        {"path": locator.wanted.path, "sha256": locator.wanted.sha256, "places": list(map(str, locator.rejected))}
        for locator in missing[:100]
    ]
    return _not_found(
        [rejected for locator in missing for rejected in locator.rejected],
        f"cannot find {count} with the pinned content{''.join(listed)}",
        unasked=f"cannot find {count} ({counted(num_bytes, 'byte')}) in the allowed places{''.join(listed)}",
        hint=f"Name a folder that contains them with {spell('data_dir=DIR')}, or download them yourself: "
        "the right files have the sha256 above. From a catalog: registry pin restore FILE --to DIR --catalog URL",
        details={"files": files},
    )


def _not_found(
    rejected: Sequence[RejectedSource], message: str, *, unasked: str, hint: str, details: dict[str, Any]
) -> RegistryError:
    """The error for files that no place has; its message is ``unasked`` if the reader did not allow some of them."""
    allow = list(dict.fromkeys(place.allow for place in rejected if place.allow is not None))
    if allow:
        return FetchNotAllowedError(unasked, hint=agreement_hint(allow), details={**details, "allow": allow[:100]})
    hint = next((place.hint for place in rejected if place.hint), hint)
    if any(place.is_wrong for place in rejected):
        return ShardMismatchError(message, hint=hint, details=details)
    if any(place.is_temporary for place in rejected):
        hint = f"A place did not answer: try again later. {hint}"
        return StorageUnavailableError(message, hint=hint, details=details)
    return NotStoredError(message, hint=hint, details=details)


def agreement_hint(allow: Sequence[str]) -> str:
    """The hint that shows how to allow places; ``allow`` has the argument of ``--allow-host`` for each."""
    chosen = list(allow[:_MOST_LISTED])
    is_covered = not any(needs_name(host if "://" in host else f"https://{host}") for host in allow)
    covered = f" (or {spell('fetch', True)}, for every place that a pin names)" if is_covered else ""
    return (
        f"If you trust the author of the pin, add {spell('allow_hosts', chosen)}{covered}. "
        f"If you have the files, name their folder with {spell('data_dir=DIR')}."
    )


def first_missing(store: Store, entry: PinEntry, cache: FileCache | None = None) -> str | None:
    """A sentence on the first file of a pin that ``store`` lacks; None if it has all of them with their pinned sizes.

    A store on another machine is not queried for a file that is in the ``cache``.

    Raises:
        FetchNotAllowedError, StorageUnavailableError: the store does not answer.
    """

    def is_cached(file: FileEntry) -> bool:
        sha256 = file.sha256.removeprefix("sha256:")
        return cache is not None and CachedBlocks(cache, sha256, file.num_bytes).is_complete()

    files = [file for file in entry.files if store.local_root is not None or not is_cached(file)]
    with closing(ask_sizes(store, [file.name for file in files])) as sizes:
        for file, (name, result) in zip(files, sizes, strict=True):
            if isinstance(result, NotStoredError):
                return f"no {name}"
            if isinstance(result, FetchNotAllowedError | StorageUnavailableError):
                raise result
            if isinstance(result, StorageError):
                return result.message
            if result != file.num_bytes:
                return f"{name}: expected {file.num_bytes} bytes, found {result}"
    return None


def holds(store: Store, name: str) -> bool:
    """Whether ``store`` has a file of that name and can be read."""
    try:
        return store.size(name) >= 0
    except StorageError:
        return False


def is_bundle(folder: str) -> bool:
    """Whether a local folder is an unpacked bundle: it has a ``verify.py``. The folder at a URL is never one."""
    return "://" not in folder and (expand_home(folder) / VERIFY_FILENAME).is_file()


def _is_absolute(location: str) -> bool:
    return "://" in location or location.startswith("/")
