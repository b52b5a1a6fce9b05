"""Where do right bytes of a pinned file come from? Places tried in turn, each byte hashed on its way.

pins --choose--> PinnedFile, each once --places tried in turn--> right bytes, or what was wrong at every place

Used by whoever copies pinned files: ``restore`` into a folder, ``bundle`` into a tar.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
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
from registry.pins.layout import folder_of
from registry.pins.pin import Pin
from registry.pins.places import Places, agreement_hint, not_asked
from registry.splits import counted
from registry.storage import Store
from registry.storage.names import check_relative_name

NO_SUCH_FILE: Final = "no such file"
"""What is told of a place that lacks a file: of most places it is true, and no reason to worry."""

_PIECE: Final = 4 * 2**20
_MOST_TOLD: Final = 10


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
class Refusal:
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
    def of(cls, place: str, error: RegistryError) -> Refusal:
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


def list_files(pins: Collection[Pin]) -> list[PinnedFile]:
    """The files that pins need, each once, sorted by path.

    Raises:
        ConflictError: two pins want different bytes at one path.
    """
    found: dict[str, PinnedFile] = {}
    for pin in pins:
        for file in pin.entry.files:
            # A pin may come from anywhere, so what it names is checked here too, where it becomes a path.
            path = check_relative_name(f"{folder_of(pin.entry)}/{check_relative_name(file.name)}")
            other = found.setdefault(path, PinnedFile(path=path, file=file, pin=pin.entry))
            if (other.file.sha256, other.file.num_bytes) != (file.sha256, file.num_bytes):
                raise ConflictError(
                    f"the pins {other.pin.name!r} and {pin.name!r} want different bytes in {path}",
                    hint="They are of two versions of the same name. Take one of them at a time, by its name.",
                    details={"path": path, "pins": [other.pin.name, pin.name]},
                )
    return [found[path] for path in sorted(found)]


class Finding:
    """Looks for one file, place by place, and remembers what was wrong. ``refused`` are places not to be tried."""

    def __init__(self, wanted: PinnedFile, places: Places, *, refused: Collection[Refusal] = ()) -> None:
        self._wanted = wanted
        self._places = places
        self.refusals: list[Refusal] = list(refused)

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
                self.refusals.append(Refusal(place=source.url, problem=NO_SUCH_FILE))
            except StorageError as error:
                self.refusals.append(Refusal.of(source.url, error))
            else:
                if num_bytes == self._wanted.file.num_bytes:
                    yield source
                else:
                    problem = f"it has {num_bytes} bytes, {self._wanted.file.num_bytes} are pinned"
                    self.refusals.append(Refusal(place=source.url, problem=problem, is_wrong=True))

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
                self.refusals.append(Refusal(place=location, problem="this is no URL of a file"))
            elif (opened := self._open(folder, shown=location)) is not None:
                yield Source(store=opened, name=unquote(last_part) if folder.startswith("file://") else last_part)

    def _open(self, url: str, *, shown: str | None = None) -> Store | None:
        try:
            return self._places.open_named(url)
        except FetchNotAllowedError as error:
            allow = error.details["allow"]
            self.refusals.append(
                Refusal(place=mask(shown or url), problem=not_asked(self._places.allowed), allow=allow)
            )
            return None
        except (StorageError, MissingExtraError) as error:
            self.refusals.append(Refusal.of(mask(shown or url), error))
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


def no_right_bytes(missing: list[tuple[PinnedFile, list[Refusal]]]) -> RegistryError:
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
