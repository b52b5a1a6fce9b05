"""Where do the files of a pin lie? Looked for in folders of this machine, then where the pin says.

A location of a pin is a URL or path of the folder that holds its files, or a path below a data directory. A folder
counts where it holds every file of the pin with the pinned size; what is in them, ``verify`` proves.

Whoever wrote the pin chose its locations, so a URL or an absolute path is asked once the reader agreed to it.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
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
)
from registry.masking import mask
from registry.pins.document import FileEntry, PinEntry
from registry.pins.layout import folder_of, reference_of
from registry.prepared.info import FILENAME as INFO_FILENAME
from registry.splits import counted
from registry.storage import Allowed, Store, open_named, open_store
from registry.storage.consent import entry_for, needs_name
from registry.storage.names import check_relative_name
from registry.tfrecord import IndexFolder

_NOT_ALLOWED: Final = "not asked: only the pin names it, and you have not allowed it"
_NOT_FETCHED: Final = "not asked: --fetch does not cover this place"
"""What is told of a place that nobody allowed."""

_MOST_TOLD: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Places:
    """Where to look, in this order.

    Attributes:
        data_dir: the folder that was named: a data directory, or the folder of the files itself. Where it is given,
            nowhere else is looked.
        beside: the folder of the pin file; a bundle holds its shards in ``data`` beside it.
        data_dirs: data directories of this machine.
        folders: where a catalog reads versions that lie elsewhere, by their place below a data directory.
        index_folder: where readers keep the places of records, or None.
        allowed: which of the places that pins name may be asked. The other places are the reader's own.
    """

    data_dir: str | None = None
    beside: str | None = None
    data_dirs: tuple[str, ...] = ()
    folders: Mapping[str, str] = field(default_factory=dict)
    index_folder: str | None = None
    allowed: Allowed = field(default_factory=Allowed)

    def __repr__(self) -> str:
        return mask(f"<Places {self.data_dir or [self.beside, *self.data_dirs, *self.folders.values()]}>")

    def indexes(self) -> IndexFolder | None:
        """Where the places of records are kept for the next time."""
        return None if self.index_folder is None else IndexFolder(self.index_folder)

    def find(self, entry: PinEntry) -> Store:
        """The first folder that holds all files of a pin.

        Raises:
            NotStoredError: none does; the message names them all, with what each lacks.
            StorageUnavailableError: the same, and one of them could not be reached.
            FetchNotAllowedError: the same, and places that the pin names were not asked.
        """
        told = []
        allow: dict[str, None] = {}
        kind: type[StorageError] = NotStoredError
        for store in self.candidates(entry):
            try:
                lacking = first_missing(store, entry)
            except StorageUnavailableError as error:
                lacking, kind = error.message, StorageUnavailableError
            except FetchNotAllowedError as error:  # a server that was asked sends on to another one
                lacking = error.message
                allow |= dict.fromkeys(filter(None, [error.details["allow"]]))
            if lacking is None:
                return store
            told.append(f"{store.url}: {lacking}")
        for url in self.unasked(entry):
            told.append(f"{url}: {not_asked(self.allowed)}")
            allow |= dict.fromkeys(filter(None, [entry_for(url)]))
        unopened = list(self._unopened(entry))
        told += [f"{mask(url)}: {error.message}" for url, error in unopened]
        listed = "".join(f"\n  {line}" for line in dict.fromkeys(told))
        if allow:
            num_bytes = sum(file.num_bytes for file in entry.files)
            raise FetchNotAllowedError(
                f"the files of {reference_of(entry)} {entry.split} ({counted(len(entry.files), 'file')}, "
                f"{counted(num_bytes, 'byte')}) are not in any folder that was searched{listed}",
                hint=agreement_hint(list(allow)),
                details={"places": told[:100], "allow": list(allow)[:100]},
            )
        lacking_extra = next((error.hint for _, error in unopened if isinstance(error, MissingExtraError)), None)
        raise kind(
            f"the files of {reference_of(entry)} {entry.split} are not in any folder that was searched{listed}",
            hint=lacking_extra
            or "Name their folder with --data DIR (data_dir= in Python), or get them with: "
            "registry pin restore FILE --to DIR",
            details={"places": told[:100]},
        )

    def find_any(self, entry: PinEntry) -> Store:
        """As ``find``; where nobody has all files as pinned, the first folder that has one of them, or a version.

        Raises:
            NotStoredError, StorageUnavailableError, FetchNotAllowedError: none has anything.
        """
        try:
            return self.find(entry)
        except (NotStoredError, StorageUnavailableError, FetchNotAllowedError):
            for store in self.candidates(entry):
                if any(holds(store, name) for name in (*(file.name for file in entry.files[:100]), INFO_FILENAME)):
                    return store
            raise

    def candidates(self, entry: PinEntry) -> Iterator[Store]:
        """The folders that may hold the files of a pin, the nearest first; each once. Only those that may be asked."""
        seen = set()
        for url, open_place in self._urls(entry):
            try:
                store = open_place(url)
            except (StorageError, MissingExtraError):
                continue
            if store.url not in seen:
                seen.add(store.url)
                yield store

    def unasked(self, entry: PinEntry) -> list[str]:
        """The folders that a pin names and that may not be asked."""
        if self.data_dir is not None:
            return []
        return [text for text in entry.locations if _is_absolute(text) and not self.allowed.covers(text)]

    def _unopened(self, entry: PinEntry) -> Iterator[tuple[str, RegistryError]]:
        """The places that a pin names and that cannot be opened, which ``candidates`` passes over, and why."""
        if self.data_dir is not None:
            return
        for text in entry.locations:
            if _is_absolute(text) and self.allowed.covers(text):
                try:
                    self.open_named(text)
                except (StorageError, MissingExtraError) as error:
                    yield text, error

    def open_named(self, url: str) -> Store:
        """The folder at a place that a pin names.

        Raises:
            FetchNotAllowedError: the reader did not agree to it.
            StorageError, MissingExtraError: it cannot be opened.
        """
        return open_named(url, self.allowed)

    def allowing(self, *, fetch: bool, hosts: Iterable[str]) -> Places:
        """The same places, where more of those that pins name may be asked; see ``Allowed.of``."""
        return replace(self, allowed=self.allowed | Allowed.of(fetch=fetch, hosts=hosts))

    def _open_beside(self, url: str) -> Store:
        """A folder beside the pin file. A web server that the reader named may send on to nobody else."""
        if not url.startswith(("http://", "https://")):
            return open_store(url)
        return open_named(url, self.allowed.with_typed(url))

    def _urls(self, entry: PinEntry) -> Iterator[tuple[str, Callable[[str], Store]]]:
        """Each place, and how it is opened: the reader's own, and those that the pin names."""
        relative = [folder_of(entry), *(text for text in entry.locations if not _is_absolute(text))]
        roots = [self.data_dir] if self.data_dir is not None else []
        if self.data_dir is not None:
            yield self.data_dir, open_store
            roots.append(f"{self.data_dir}/data")  # an unpacked bundle
        else:
            if self.beside is not None:
                for folder in relative:
                    yield f"{self.beside.rstrip('/')}/data/{folder}", self._open_beside
            roots += self.data_dirs
        for root in roots:
            for folder in relative:
                yield f"{root.rstrip('/')}/{folder}", open_store
        if self.data_dir is None:
            if folder_of(entry) in self.folders:
                yield self.folders[folder_of(entry)], open_store
            yield from ((text, self.open_named) for text in entry.locations if _is_absolute(text))


def not_asked(allowed: Allowed) -> str:
    """Why a place that a pin names was not asked."""
    return _NOT_FETCHED if allowed.fetch else _NOT_ALLOWED


def agreement_hint(allow: Sequence[str]) -> str:
    """How to agree to places; ``allow`` is what ``--allow-host`` takes for each."""
    chosen = list(allow[:_MOST_TOLD])
    options = " ".join(f"--allow-host {shlex.quote(one)}" for one in chosen)
    is_covered = not any(needs_name(one if "://" in one else f"https://{one}") for one in allow)
    covered = " (or --fetch, for every place that a pin names)" if is_covered else ""
    return (
        f"If you trust whoever made the pin, add {options}{covered}; in Python allow_hosts={chosen}. "
        "If you have the files, name their folder with --data DIR (data_dir= in Python)."
    )


def first_missing(store: Store, entry: PinEntry) -> str | None:
    """What of a pin's files ``store`` lacks first, in words; None where all are there with their sizes.

    Raises:
        FetchNotAllowedError, StorageUnavailableError: nobody knows what it lacks.
    """
    for file in entry.files:
        try:
            num_bytes = store.size(file.name)
        except NotStoredError:
            return f"no {file.name}"
        except (FetchNotAllowedError, StorageUnavailableError):
            raise
        except StorageError as error:
            return error.message
        if num_bytes != file.num_bytes:
            return f"{file.name} has {num_bytes} bytes, {file.num_bytes} are pinned"
    return None


def holds(store: Store, name: str) -> bool:
    """Whether ``store`` holds a file of that name and can be read."""
    try:
        return store.size(name) >= 0
    except StorageError:
        return False


def _is_absolute(location: str) -> bool:
    return "://" in location or location.startswith("/")


NO_SUCH_FILE: Final = "no such file"
"""What is told of a place that lacks a file: of most places it is true, and no reason to worry."""

_PIECE: Final = 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedFile:
    """A file that pins need, and where it lies below a data directory.

    Attributes:
        path: ``name[/config]/version/file``.
        file: what the pin says of it.
        pin: the first pin that needs it.
    """

    path: str
    file: FileEntry
    pin: PinEntry

    @property
    def sha256(self) -> str:
        """64 hex digits."""
        return self.file.sha256.removeprefix("sha256:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One place at which a file is looked for: a store, and the file's name in it."""

    store: Store
    name: str

    @property
    def url(self) -> str:
        """The file's place, for people."""
        return self.store.locate(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedSource:
    """A place that was passed over, and why.

    Attributes:
        place, problem: the file's place, and what is wrong there.
        is_wrong: a file is there, and is not the pinned one.
        is_temporary: the place could not be reached, or broke off: another try may find the file.
        allow: what ``--allow-host`` takes to agree to the place, where the reader did not.
    """

    place: str
    problem: str
    is_wrong: bool = False
    is_temporary: bool = False
    allow: str | None = None

    @classmethod
    def of(cls, place: str, error: RegistryError) -> RejectedSource:
        """The refusal of a place for an error, which may name the place itself."""
        problem = error.message.removeprefix(f"cannot read {place}: ")
        if isinstance(error, FetchNotAllowedError):  # a server sends on to another one
            return cls(place=place, problem=problem, allow=error.details["allow"])
        if isinstance(error, MissingExtraError):
            problem = f"{problem}. {error.hint}"
        return cls(
            place=place,
            problem=problem,
            is_wrong=isinstance(error, ShardMismatchError),
            is_temporary=isinstance(error, StorageUnavailableError),
        )

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


def list_files(entries: Iterable[PinEntry]) -> list[PinnedFile]:
    """The files that pins need, each once, sorted by path.

    Raises:
        ConflictError: two pins want different bytes at one path.
    """
    found: dict[str, PinnedFile] = {}
    for entry in entries:
        for file in entry.files:
            # A pin may come from anywhere, so what it names is checked here too, where it becomes a path.
            path = check_relative_name(f"{folder_of(entry)}/{check_relative_name(file.name)}")
            other = found.setdefault(path, PinnedFile(path=path, file=file, pin=entry))
            if (other.file.sha256, other.file.num_bytes) != (file.sha256, file.num_bytes):
                raise ConflictError(
                    f"the pins {other.pin.name!r} and {entry.name!r} want different bytes in {path}",
                    hint="They are of two versions of the same name. Take one of them at a time, by its name.",
                    details={"path": path, "pins": [other.pin.name, entry.name]},
                )
    return [found[path] for path in sorted(found)]


class ShardLocator:
    """Looks for one file, place by place, and remembers what was wrong. ``refused`` are places not to be tried."""

    def __init__(self, wanted: PinnedFile, places: Places, *, refused: Collection[RejectedSource] = ()) -> None:
        self._wanted = wanted
        self._places = places
        self.refusals: list[RejectedSource] = list(refused)

    def sources(self) -> Iterator[Source]:
        """Places where the file is with its pinned size, the nearest first."""
        tried = {refusal.place for refusal in self.refusals}
        for source in self._all():
            if source.url in tried:
                continue
            tried.add(source.url)
            try:
                num_bytes = source.store.size(source.name)
            except NotStoredError:
                self.refusals.append(RejectedSource(place=source.url, problem=NO_SUCH_FILE))
            except StorageError as error:
                self.refusals.append(RejectedSource.of(source.url, error))
            else:
                if num_bytes == self._wanted.file.num_bytes:
                    yield source
                else:
                    problem = f"it has {num_bytes} bytes, {self._wanted.file.num_bytes} are pinned"
                    self.refusals.append(RejectedSource(place=source.url, problem=problem, is_wrong=True))

    def _all(self) -> Iterator[Source]:
        entry, file = self._wanted.pin, self._wanted.file
        for store in self._places.candidates(entry):
            yield Source(store=store, name=file.name)
        if self._places.data_dir is not None:  # one folder was named: nowhere else is looked
            return
        for location in entry.locations:  # candidates pass over what cannot be opened; here it is told
            if "://" in location or location.startswith("/"):
                self._open(location)
        for location in file.locations:
            folder, _, last_part = location.rpartition("/")
            if not folder or ("://" not in location and not location.startswith("/")):
                self.refusals.append(RejectedSource(place=location, problem="this is no URL of a file"))
            elif (opened := self._open(folder, shown=location)) is not None:
                yield Source(store=opened, name=unquote(last_part) if folder.startswith("file://") else last_part)

    def _open(self, url: str, *, shown: str | None = None) -> Store | None:
        try:
            return self._places.open_named(url)
        except FetchNotAllowedError as error:
            allow = error.details["allow"]
            self.refusals.append(
                RejectedSource(place=mask(shown or url), problem=not_asked(self._places.allowed), allow=allow)
            )
            return None
        except (StorageError, MissingExtraError) as error:
            self.refusals.append(RejectedSource.of(mask(shown or url), error))
            return None


def copy_checked(wanted: PinnedFile, source: Source, write: Callable[[bytes], object]) -> None:
    """Read a file from one place and hand on its bytes, piece by piece; they are right if this returns.

    Raises:
        ShardMismatchError: other bytes than the pinned ones; some of them were handed on.
        StorageError: it cannot be read, or not be handed on.
    """
    hasher, num_bytes = hashlib.sha256(), 0
    with source.store.open(source.name) as file:
        while piece := file.read(_PIECE):
            num_bytes += len(piece)
            if num_bytes > wanted.file.num_bytes:
                break
            hasher.update(piece)
            write(piece)
    if num_bytes != wanted.file.num_bytes:
        found = f"it gave {num_bytes} bytes, {wanted.file.num_bytes} are pinned"
        if num_bytes > wanted.file.num_bytes:
            found = f"it gave more than the pinned {wanted.file.num_bytes} bytes"
        raise ShardMismatchError(found, details={"path": source.url})
    if hasher.hexdigest() != wanted.sha256:
        raise ShardMismatchError(
            f"its sha256 is {hasher.hexdigest()}, {wanted.sha256} is pinned", details={"path": source.url}
        )


def no_right_bytes(missing: list[tuple[PinnedFile, list[RejectedSource]]]) -> RegistryError:
    """The error for files that are nowhere as they were pinned: every place, and what is wrong there."""
    told = []
    for wanted, refusals in missing[:_MOST_TOLD]:
        told.append(f"\n  {wanted.path} ({wanted.file.sha256}, {wanted.file.num_bytes} bytes)")
        told += [f"\n    {refusal}" for refusal in refusals] or ["\n    there is no place to look at"]
    if len(missing) > _MOST_TOLD:
        told.append(f"\n  and {len(missing) - _MOST_TOLD} more")
    count = counted(len(missing), "pinned file")
    details = {
        "files": [
            {"path": wanted.path, "sha256": wanted.sha256, "places": [str(one) for one in refusals]}
            for wanted, refusals in missing[:100]
        ]
    }
    unasked = dict.fromkeys(one.allow for _, refusals in missing for one in refusals if one.allow is not None)
    if unasked:
        num_bytes = sum(wanted.file.num_bytes for wanted, _ in missing)
        return FetchNotAllowedError(
            f"cannot find {count} ({counted(num_bytes, 'byte')}) in the places that may be asked{''.join(told)}",
            hint=agreement_hint(list(unasked)),
            details={**details, "allow": list(unasked)[:100]},
        )
    every = [refusal for _, refusals in missing for refusal in refusals]
    kind: type[RegistryError] = NotStoredError
    if any(refusal.is_wrong for refusal in every):
        kind = ShardMismatchError
    elif any(refusal.is_temporary for refusal in every):
        kind = StorageUnavailableError
    return kind(
        f"cannot find {count} with the pinned content{''.join(told)}",
        hint="Name a folder that holds them with --data DIR (data_dir= in Python), or download them yourself: "
        "the right files have the sha256 above.",
        details=details,
    )
