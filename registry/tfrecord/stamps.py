"""Keeps stamps of files that were hashed, so that an unchanged file need not be hashed again.

A stamp binds the state of a file (size, times, inode and device; for an object, URL and ETag) to its sha256. It is a
seal over both with the key of the cache folder, and is kept next to the indexes. It cannot be forged without the key,
and is invalid for any other file, state or sha256. A stamp belongs to the inode, not to the path, so a staged folder
that is renamed keeps its stamps.

A file that changes twice within the resolution of its clock has the same state before and after the second change. So,
as git does with "racily clean" entries, no stamp is kept for a file that changed shortly before it was hashed.
"""

from __future__ import annotations

import os
import secrets
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from registry.errors import StorageError
from registry.storage import Store
from registry.storage.faults import storage_errors
from registry.storage.folder_key import FolderKey, replace_file

_MAGIC: Final = b"shardst1"
_SEAL_BYTES: Final = 32
_PLACE_BYTES: Final = 20
_MOST_BYTES: Final = 2**18
"""Of one of the 256 files: 5,000 stamps. A look-up searches one file."""

_STATE: Final = struct.Struct("<5q")
_SECOND_NS: Final = 10**9
_FINE_CLOCK_NS: Final = 100 * 10**6
"""Ten ticks of the slowest clock that Linux uses for file times."""
_COARSE_CLOCK_NS: Final = 2_500 * 10**6
"""FAT has a resolution of two seconds, older file systems of one second."""


class State(Protocol):
    """The state of a file without its bytes: it differs once the file is changed or replaced."""

    def place(self) -> bytes:
        """The identity of the file; one stamp is kept for each."""

    def content(self) -> bytes:
        """The state as bytes: of equal length for all files, and never equal for a file and an object."""

    def is_settled(self, now_ns: int) -> bool:
        """Whether any change after ``now_ns`` gives another state."""

    @property
    def may_be_kept(self) -> bool:
        """Whether the state still distinguishes the file's contents after this process has ended."""


class FileState(NamedTuple):
    """The state of a local file: every write changes its ctime."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int

    @classmethod
    def of(cls, facts: os.stat_result) -> FileState:
        """Make the state from the result of ``stat``."""
        positive = 2**63 - 1
        return cls(
            facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino & positive, facts.st_dev & positive
        )

    def place(self) -> bytes:
        """The inode and device."""
        return struct.pack("<2q", self.inode, self.device)

    def content(self) -> bytes:
        """The five numbers."""
        return _STATE.pack(*self)

    def is_settled(self, now_ns: int) -> bool:
        """Whether the last change is longer ago than the resolution of the clock."""
        step = _FINE_CLOCK_NS if self.ctime_ns % _SECOND_NS else _COARSE_CLOCK_NS
        return max(self.mtime_ns, self.ctime_ns) + step < now_ns

    @property
    def may_be_kept(self) -> bool:
        """False without inodes or, as on Windows, without a change time: programs can set the mtime back."""
        return os.name != "nt" and self.inode != 0


class ObjectState(NamedTuple):
    """The state of an object in a store: its URL, and its ETag, or ``""`` if the store has none."""

    url: str
    entity_tag: str

    def place(self) -> bytes:
        """The URL."""
        return self.url.encode()

    def content(self) -> bytes:
        """The URL and the ETag, of a length that no file's state has."""
        return b"object\0" + self.url.encode() + b"\0" + self.entity_tag.encode() + bytes(_STATE.size)

    def is_settled(self, now_ns: int) -> bool:  # noqa: ARG002 (an ETag is not a time)
        """Always True: an ETag identifies the bytes."""
        return True

    @property
    def may_be_kept(self) -> bool:
        """True if the store has ETags."""
        return bool(self.entity_tag)


class PublishedState(NamedTuple):
    """The state of a published file, which is its content: the same at every location."""

    sha256: str

    def place(self) -> bytes:
        """The digest."""
        return self.sha256.encode()

    def content(self) -> bytes:
        """The digest, of a length that no other state has."""
        return b"published\0" + self.sha256.encode()

    def is_settled(self, now_ns: int) -> bool:  # noqa: ARG002 (a digest is not a time)
        """Always True: a digest identifies the bytes."""
        return True

    @property
    def may_be_kept(self) -> bool:
        """Always True."""
        return True


def state_of(store: Store, name: str) -> State | None:
    """Return the present state of a stored file, or None if the store cannot tell changes.

    Raises:
        StorageError: the file is missing, or its metadata cannot be read.
    """
    if store.local_root is None:
        tag = store.entity_tag(name)
        return None if tag is None else ObjectState(store.locate(name), tag)
    path = store.locate(name)
    with storage_errors("read", path):
        return FileState.of(os.stat(path))  # noqa: PTH116 (the store returns a str)


@dataclass(frozen=True, slots=True)
class Watch:
    """The state of a file before it is hashed, to detect changes meanwhile."""

    look: Callable[[], State | None]
    before: State | None
    since_ns: int

    @classmethod
    def begin(cls, store: Store, name: str) -> Watch:
        """Record the state of a stored file. A missing file is not an error here: hashing it raises."""

        def look() -> State | None:
            try:
                return state_of(store, name)
            except StorageError:
                return None

        return cls(look, look(), time.time_ns())

    def proved_state(self) -> State | None:
        """The state to which the sha256 belongs, or None if the file has, or may have, changed meanwhile."""
        if self.before is None or not self.before.is_settled(self.since_ns):
            return None
        return self.before if self.look() == self.before else None


class StampFolder:
    """The folder of the stamps: at most 256 files, to which they are appended. If it cannot be written, none are kept.

    A file for each stamp would be a hundred thousand small files after the check of a dataset with as many shards. An
    entry is a digest of the place and the seal. A torn one, of a process that was killed, is never found: entries are
    searched, not counted. Two processes append at the same time without a lock.
    """

    def __init__(self, folder: str | os.PathLike[str], key: FolderKey | None = None) -> None:
        self._folder = Path(folder)
        self._key = FolderKey(self._folder) if key is None else key
        self._known: dict[Path, tuple[tuple[int, int, int], bytes]] = {}  # files as they were when they were last read

    def holds(self, state: State, sha256: str) -> bool:
        """Whether a file in this state is known to have this ``sha256``."""
        place = _digest_of_place(state)
        try:
            entries, seal = self._read(self._file(place)), self._seal(state, sha256, make=False)
        except OSError:
            return False
        start = entries.find(place)
        while start >= 0:
            first = start + _PLACE_BYTES
            if secrets.compare_digest(entries[first : first + _SEAL_BYTES], seal):
                return True
            start = entries.find(place, start + 1)
        return False

    def keep(self, state: State, sha256: str) -> None:
        """Keep a stamp: a file in this state has this ``sha256``. It must have been settled when it was hashed."""
        if not state.may_be_kept or self.holds(state, sha256):
            return
        place = _digest_of_place(state)
        with suppress(OSError):
            entry, path = place + self._seal(state, sha256, make=True), self._file(place)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab", buffering=0) as file:
                num_bytes = file.tell()
                file.write(entry)
            if num_bytes > _MOST_BYTES:  # the older half is of files that changed, or is made again when it is needed
                replace_file(path, path.read_bytes()[-_MOST_BYTES // 2 :])

    def keep_watched(self, watch: Watch, sha256: str) -> None:
        """Keep a stamp of a file that was hashed since the ``watch`` began, unless it changed meanwhile."""
        state = watch.proved_state()
        if state is not None:
            self.keep(state, sha256)

    def _read(self, path: Path) -> bytes:
        """The entries in a file. It is read again once it has another size or time, or is another file."""
        facts = path.stat()
        now = facts.st_ino, facts.st_size, facts.st_mtime_ns
        before = self._known.get(path)
        if before is not None and before[0] == now:
            return before[1]
        with path.open("rb") as file:
            entries = file.read(2 * _MOST_BYTES)
        self._known[path] = now, entries
        return entries

    def _seal(self, state: State, sha256: str, *, make: bool) -> bytes:
        content, key = _MAGIC + sha256.encode() + state.content(), self._key.read(make=make)
        return blake2b(content, key=key, digest_size=_SEAL_BYTES).digest()

    def _file(self, place: bytes) -> Path:
        return self._folder / f"{place[:1].hex()}.stamp"

    def __reduce__(self) -> tuple[type[StampFolder], tuple[Path, FolderKey]]:
        return StampFolder, (self._folder, self._key)  # without the entries


def _digest_of_place(state: State) -> bytes:
    return blake2b(state.place(), digest_size=_PLACE_BYTES).digest()
