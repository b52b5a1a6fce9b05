"""The states of files, and stamps of files that were hashed, so that an unchanged file need not be hashed again.

A stamp states that a file in a certain state (size, times, inode and device; for an object, URL and ETag) has a certain
sha256. It is a note of the memory (``registry.storage.memory``), next to the indexes. It belongs to the inode, not to
the path, so a staged folder that is renamed keeps its stamps.

A file that changes twice within the resolution of its clock has the same state before and after the second change. So,
as git does with "racily clean" entries, no stamp is kept for a file that changed shortly before it was hashed.
"""

from __future__ import annotations

import os
import struct
import time
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from registry.storage import Store
from registry.storage.memory import Memory

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
