"""Stores notes of what was proved about files in a certain state, so that other processes need not prove it again.

A note applies to a subject in a certain state: an index to a shard with its size, times and inode, or a stamp to a file
in a state with its sha256. A look-up names both, so it never finds a note about a file that has since changed. Notes
are stored in a folder of the user, in two ways:

    Memory.keep  ->  ab/abcdef....kind   a file for each note: 28 bytes of identity | CRC32C | value
    Memory.add   ->  ab.kind             a line for each note without a value, in one of 256 files

A file is completely written under a temporary name, and then renamed, so that other processes never see half of it,
even on other machines that mount the folder. Nobody else may write to the folder, so a checksum against damage is
enough; notes need no signature. A note only saves time, and is not a proof by itself: the frames prove an index, and
the sha256 proves a file in the cache. A damaged note is deleted and made again, and a folder that cannot be read or
written costs only time.

A stamp is a note that a file in a certain state (size, times, inode and device; for an object, URL and ETag) has a
certain sha256. It belongs to the inode, not to the path, so a staged folder that is renamed keeps its stamps. A file
that changes twice within the resolution of its clock has the same state before and after the second change. So, as git
does with "racily clean" entries, no stamp is kept for a file that changed shortly before it was hashed.
"""

from __future__ import annotations

import errno
import mmap
import os
import shlex
import stat
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from fastcrc.crc32 import iscsi

if TYPE_CHECKING:
    from registry.storage.store import Store

_IDENTITY_BYTES: Final = 28
_HEAD_BYTES: Final = _IDENTITY_BYTES + 4
"""A multiple of 8, so that an array of 64-bit numbers after the header is aligned."""

MOST_LINE_BYTES: Final = 2**18
"""The maximum size of a file of lines: 4,500 notes. A look-up searches one file."""

_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_READ_OPTIONS: Final = "O_BINARY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"  # flags that this system supports
_READ_FLAGS: Final = os.O_RDONLY | sum(getattr(os, name, 0) for name in _READ_OPTIONS)


class Memory:
    """The notes in one folder. Threads and processes may share it, and it can be pickled."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)

    def load(self, kind: str, subject: bytes, state: bytes = b"") -> memoryview | None:
        """Return the value of the note about ``subject`` in this ``state``, mapped from its file, or None."""
        file = self.file(kind, subject)
        try:
            require_private(self._folder)
            descriptor = open_own(file)
            try:
                note = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
            finally:
                os.close(descriptor)
        except (OSError, ValueError):  # an empty file cannot be mapped
            return None
        identity, value = note[:_IDENTITY_BYTES], note[_HEAD_BYTES:]
        if note[_IDENTITY_BYTES:_HEAD_BYTES] != _checksum(identity, value):
            discard_damaged(file)
            return None
        return value if identity == _identify(kind, subject, state) else None

    def keep(self, kind: str, subject: bytes, state: bytes, value: bytes | memoryview) -> None:
        """Store the ``value`` of ``subject`` in this ``state``, in place of the value of an earlier state."""
        identity = _identify(kind, subject, state)
        try:
            make_private(self._folder)
            replace_file(self.file(kind, subject), identity, _checksum(identity, value), value)
        except OSError as error:
            log_fault(self._folder, error)

    def forget(self, kind: str, subject: bytes) -> None:
        """Delete the note about ``subject``."""
        with suppress(OSError):
            self.file(kind, subject).unlink(missing_ok=True)

    def holds(self, kind: str, subject: bytes, state: bytes) -> bool:
        """Whether ``add`` was called with the same arguments."""
        line = _identify(kind, subject, state).hex()
        try:
            require_private(self._folder)
            return line.encode() in read_own(self._lines(kind, line), 2 * MOST_LINE_BYTES)
        except OSError:
            return False

    def add(self, kind: str, subject: bytes, state: bytes) -> None:
        """Store a note without a value.

        With a file for each note, checking a dataset of a hundred thousand shards would leave as many small files.
        """
        line = _identify(kind, subject, state).hex()
        try:
            make_private(self._folder)
            append_line(self._lines(kind, line), line, most_bytes=MOST_LINE_BYTES)
        except OSError as error:
            log_fault(self._folder, error)

    def file(self, kind: str, subject: bytes) -> Path:
        """Return the path of the note about ``subject``, which need not exist.

        Its time is that at which the note was stored.
        """
        name = blake2b(subject, digest_size=20).hexdigest()
        return self._folder / name[:2] / f"{name}.{kind}"

    def _lines(self, kind: str, line: str) -> str:
        """Return the path of the file of lines for a note."""
        return f"{self._folder}/{line[:2]}.{kind}"


def require_private(folder: Path) -> None:
    """Check that only this user can have written to a folder, if it exists.

    Raises:
        PermissionError: it belongs to another user, or others can write to it. A warning is logged as well.
        OSError: the folder cannot be examined.
    """
    _require(folder, lambda facts: facts.st_uid == os.geteuid() and not facts.st_mode & _WRITABLE_BY_OTHERS, "700")


def require_group(folder: Path) -> None:
    """Check that only its owner and group can write to a folder, if it exists.

    Raises the errors of ``require_private``.
    """
    _require(folder, lambda facts: not facts.st_mode & stat.S_IWOTH, "o-w")


def _require(folder: Path, is_right: Callable[[os.stat_result], bool], mode: str) -> None:
    try:
        facts = os.stat(folder)  # noqa: PTH116 (faster, and called for each note)
    except FileNotFoundError:
        return
    if sys.platform != "win32" and not is_right(facts):
        reason = (
            "it belongs to another user, or others can write to it" if mode == "700" else "everybody can write to it"
        )
        command = f"chmod {mode} {shlex.quote(str(folder))}"
        _log_once("warning", folder, f"is not used: {reason}. If it is yours: {command}")
        raise PermissionError(errno.EPERM, reason, str(folder))


def make_private(folder: Path) -> None:
    """Create a folder for this user alone, if it does not exist. Raises the errors of ``require_private``."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    require_private(folder)


def log_fault(folder: Path, error: OSError) -> None:
    """Log once that a cache folder cannot be written, as a warning if its disk is full. Nothing but time is lost."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    _log_once("warning" if is_full else "info", folder, f"cannot be written: {error.strerror}")


@cache
def _log_once(level: Literal["info", "warning"], folder: Path, message: str) -> None:
    _log(level, f"the cache folder {folder} {message}")


def _log(level: Literal["info", "warning"], message: str) -> None:
    import logging  # not imported for look-ups

    getattr(logging.getLogger(__name__), level)("%s", message)


def open_own(file: str | Path) -> int:
    """Open a file of a cache folder for reading; returns its descriptor.

    A link is not followed out of the folder, and opening a pipe does not wait for its writer. Raises OSError.
    """
    return os.open(file, _READ_FLAGS)


def read_own(file: str | Path, most: int) -> bytes:
    """Read at most ``most`` bytes of a file of a cache folder. Raises OSError."""
    descriptor = open_own(file)
    try:
        return os.read(descriptor, min(os.fstat(descriptor).st_size, most))
    finally:
        os.close(descriptor)


def discard_damaged(file: Path) -> None:
    """Delete a damaged file of a cache folder, so that it is made again."""
    _log("info", f"{file} is damaged and will be made again")
    with suppress(OSError):
        file.unlink()


def append_line(file: str | Path, line: str, *, most_bytes: int) -> None:
    """Append a line to a file. If the file exceeds ``most_bytes``, its older half is dropped. Raises OSError.

    Two processes may append at the same time. Half a line that a killed process left does not hide another line,
    because readers search for lines and do not count them.
    """
    with open(file, "ab", buffering=0) as lines:  # noqa: PTH123 (as above)
        num_bytes = lines.tell()
        lines.write(f"{line}\n".encode())
    if num_bytes > most_bytes:
        replace_file(Path(file), Path(file).read_bytes()[-most_bytes // 2 :])


def replace_file(file: Path, *parts: bytes | memoryview) -> None:
    """Write a temporary file next to ``file``, then rename it. Raises OSError.

    The file is not synced. If a power cut damages it, it is made again.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.{os.urandom(8).hex()}")
    try:
        with temporary.open("xb") as new:
            new.writelines(parts)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def _identify(kind: str, subject: bytes, state: bytes) -> bytes:
    name = f"{kind} {len(subject)} ".encode()
    return blake2b(name + subject + state, digest_size=_IDENTITY_BYTES).digest()


def _checksum(identity: bytes | memoryview, value: bytes | memoryview) -> bytes:
    return (iscsi(value) ^ iscsi(identity)).to_bytes(4, "little")


_STATE: Final = struct.Struct("<5q")
_SECOND_NS: Final = 10**9
_FINE_CLOCK_NS: Final = 100 * 10**6
"""Ten ticks of the slowest clock that Linux uses for file times."""
_COARSE_CLOCK_NS: Final = 2_500 * 10**6
"""FAT has a resolution of two seconds, older file systems of one second."""


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

    def content(self) -> bytes:
        """The state as bytes, which no other state has."""
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


State: TypeAlias = FileState | ObjectState
"""The state of a file without its bytes: it differs once the file is changed or replaced."""


class Watch:
    """The state of a stored file before it is hashed, to detect changes meanwhile."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._before = self._look()
        self._since_ns = time.time_ns()

    def proved_state(self) -> State | None:
        """The state to which the sha256 belongs, or None if the file has, or may have, changed meanwhile."""
        if self._before is None or not self._before.is_settled(self._since_ns):
            return None
        return self._before if self._look() == self._before else None

    def _look(self) -> State | None:
        """Its present state; None if the store cannot detect changes, or if the file is missing."""
        with suppress(OSError):  # a StorageError is one
            path = self._store.locate(self._name)
            if self._store.local_root is not None:
                return FileState.of(os.stat(path))  # noqa: PTH116 (the store returns a str)
            tag = self._store.entity_tag(self._name)
            return None if tag is None else ObjectState(path, tag)
        return None


class StampFolder:
    """The stamps in a memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def holds(self, state: State, sha256: str) -> bool:
        """Whether a file in this state is known to have this ``sha256``."""
        return self._memory.holds("stamp", sha256.encode(), state.content())

    def keep(self, state: State, sha256: str) -> None:
        """Keep a stamp: a file in this state has this ``sha256``. It must have been settled when it was hashed."""
        if state.may_be_kept and not self.holds(state, sha256):
            self._memory.add("stamp", sha256.encode(), state.content())

    def keep_watched(self, watch: Watch, sha256: str) -> None:
        """Keep a stamp of a file that was hashed since the ``watch`` began, unless it changed meanwhile."""
        state = watch.proved_state()
        if state is not None:
            self.keep(state, sha256)
