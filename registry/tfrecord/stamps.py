"""Stamps of files that were hashed: the state of a file when its sha256 was found, kept for the next time.

A stamp binds the state of a file (size, times, inode and device; of an object its URL and ETag) to its sha256. It is a
seal over both, made with the key of the cache folder and kept beside the indexes: nobody without the key can forge one,
and none counts for another file, another state or another sha256. A stamp goes with the file, not with its path, so a
staged folder that is renamed keeps its stamps.

A file that changes twice within the resolution of its clock has one state before and after the second change. So, as
git does with "racily clean" entries, no stamp is kept of a file that changed shortly before it was hashed.
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

_MAGIC: Final = b"shardst1"
_SEAL_BYTES: Final = 32
_STATE: Final = struct.Struct("<5q")
_SECOND_NS: Final = 10**9
_FINE_CLOCK_NS: Final = 100 * 10**6
"""Ten ticks of the slowest clock that Linux stamps files by."""
_COARSE_CLOCK_NS: Final = 2_500 * 10**6
"""FAT counts in steps of two seconds, older file systems in steps of one."""


class State(Protocol):
    """What a file looks like from outside: it differs as soon as the file is changed or replaced."""

    def place(self) -> bytes:
        """What one stamp at a time is kept for."""

    def content(self) -> bytes:
        """All of it; of equal length for files, and never equal for a file and an object."""

    def is_settled(self, now_ns: int) -> bool:
        """Whether a change from ``now_ns`` on is sure to give another state."""

    @property
    def may_be_kept(self) -> bool:
        """Whether it still tells the file's states apart when this process has ended."""


class FileState(NamedTuple):
    """The state of a file of this machine: a file that is written to has another change time."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int

    @classmethod
    def of(cls, facts: os.stat_result) -> FileState:
        """The state that ``stat`` told."""
        positive = 2**63 - 1
        return cls(
            facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino & positive, facts.st_dev & positive
        )

    def place(self) -> bytes:
        """The file, by inode and device."""
        return struct.pack("<2q", self.inode, self.device)

    def content(self) -> bytes:
        """The five numbers."""
        return _STATE.pack(*self)

    def is_settled(self, now_ns: int) -> bool:
        """Whether its last change lies far enough back."""
        step = _FINE_CLOCK_NS if self.ctime_ns % _SECOND_NS else _COARSE_CLOCK_NS
        return max(self.mtime_ns, self.ctime_ns) + step < now_ns

    @property
    def may_be_kept(self) -> bool:
        """Not where files have no inode or, as on Windows, no change time: the time of modification can be set back."""
        return os.name != "nt" and self.inode != 0


class ObjectState(NamedTuple):
    """The state of an object in a store: its URL, and the ETag of its bytes; ``""`` where the store has none."""

    url: str
    entity_tag: str

    def place(self) -> bytes:
        """The object, by its URL."""
        return self.url.encode()

    def content(self) -> bytes:
        """Both, of no length that a file has."""
        return b"object\0" + self.url.encode() + b"\0" + self.entity_tag.encode() + bytes(_STATE.size)

    def is_settled(self, now_ns: int) -> bool:  # noqa: ARG002 (an ETag is not a time)
        """Always: an ETag belongs to the bytes."""
        return True

    @property
    def may_be_kept(self) -> bool:
        """Where the store has ETags."""
        return bool(self.entity_tag)


def state_of(store: Store, name: str) -> State | None:
    """The present state of a stored file; None where the store has nothing that tells its states apart.

    Raises:
        StorageError: it is missing, or cannot be looked at.
    """
    if store.local_root is None:
        tag = store.entity_tag(name)
        return None if tag is None else ObjectState(store.locate(name), tag)
    path = store.locate(name)
    with storage_errors("read", path):
        return FileState.of(os.stat(path))  # noqa: PTH116 (a text, as the store has it)


@dataclass(frozen=True, slots=True)
class Watch:
    """A file whose sha256 is about to be found: what it looked like before."""

    look: Callable[[], State | None]
    before: State | None
    since_ns: int

    @classmethod
    def begin(cls, store: Store, name: str) -> Watch:
        """Look at a stored file, which may be missing: whoever hashes it will say so."""

        def look() -> State | None:
            try:
                return state_of(store, name)
            except StorageError:
                return None

        return cls(look, look(), time.time_ns())

    def proved_state(self) -> State | None:
        """The state that the sha256 found since belongs to; None where the file changed, or may have."""
        if self.before is None or not self.before.is_settled(self.since_ns):
            return None
        return self.before if self.look() == self.before else None


class StampFolder:
    """The folder in which stamps are kept, one small file for each. Where it cannot be written, none is kept."""

    def __init__(self, folder: str | os.PathLike[str], key: FolderKey | None = None) -> None:
        self._folder = Path(folder)
        self._key = FolderKey(self._folder) if key is None else key

    def holds(self, state: State, sha256: str) -> bool:
        """Whether a file in this state was found to have this ``sha256``."""
        try:
            found = self._file(state).read_bytes()
            return secrets.compare_digest(found, self._seal(state, sha256, make=False))
        except OSError:
            return False

    def keep(self, state: State, sha256: str) -> None:
        """Keep that a file in this state has this ``sha256``; the state must have been settled when it was hashed."""
        if not state.may_be_kept:
            return
        with suppress(OSError):
            replace_file(self._file(state), self._seal(state, sha256, make=True))

    def keep_watched(self, watch: Watch, sha256: str) -> None:
        """Keep the ``sha256`` of a file that was hashed since the ``watch`` began, unless it changed meanwhile."""
        state = watch.proved_state()
        if state is not None:
            self.keep(state, sha256)

    def _seal(self, state: State, sha256: str, *, make: bool) -> bytes:
        content, key = _MAGIC + sha256.encode() + state.content(), self._key.read(make=make)
        return blake2b(content, key=key, digest_size=_SEAL_BYTES).digest()

    def _file(self, state: State) -> Path:
        name = blake2b(state.place(), digest_size=20).hexdigest()
        return self._folder / name[:2] / f"{name}.stamp"


def replace_file(target: Path, *parts: bytes | memoryview) -> None:
    """Write a file beside ``target``, then give it that name. Raises OSError.

    No fsync: what a power cut tore has the wrong seal, and is made again.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            file.writelines(parts)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


_KEY_BYTES: Final = 32


class FolderKey:
    """The key of a folder, made when something is sealed there for the first time, and read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: bytes | None = None

    def read(self, *, make: bool) -> bytes:
        """The key itself: nobody who cannot read it can make a seal.

        Raises:
            OSError: there is no key yet and ``make`` is False, or it cannot be read or written.
        """
        if self._known is None:
            self._known = self._read(make=make)
        return self._known

    def __reduce__(self) -> tuple[type[FolderKey], tuple[Path]]:
        return FolderKey, (self._folder,)  # who holds a pickled reader does not get the key

    def _read(self, *, make: bool) -> bytes:
        file = self._folder / "key"
        if make and not file.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary = file.with_name(f"key.{secrets.token_hex(8)}")
            try:
                descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "wb") as out:
                    out.write(secrets.token_bytes(_KEY_BYTES))
                with suppress(FileExistsError):
                    os.link(temporary, file)
            finally:
                temporary.unlink(missing_ok=True)
        key = file.read_bytes()
        if len(key) != _KEY_BYTES:
            raise OSError(f"{file} is not a key of {_KEY_BYTES} bytes")
        return key
