"""``FileCache``: the folder in which blocks of published files are kept, for all processes of a user.

Several users of a machine may share a folder, if each of them says so. Then a block of another user is used only if
this process knows its digest: it has compared all blocks of the file with the published sha256, or fetched the block
itself. The digest is compared at each use, because its owner may change it at any time.
"""

from __future__ import annotations

import errno
import os
import re
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from registry.environment import malformed_setting
from registry.storage.cache.room import Room
from registry.storage.faults import storage_errors
from registry.storage.memory import log_fault, replace_file, require_group, require_private

_PAUSE_SECONDS: Final = 1.0
"""After a fault of its disk, nothing is written to the cache for this time."""

_UNITS: Final[dict[str, int]] = {
    "": 1,
    "B": 1,
    **{f"{letter}{end}": 1000**power for power, letter in enumerate("KMGT", 1) for end in ("", "B")},
    **{f"{letter}IB": 1024**power for power, letter in enumerate("KMGT", 1)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUsage:
    """What a cache holds.

    Attributes:
        num_files: published files of which it holds blocks.
        num_blocks: blocks of all of them.
        num_columns: decoded columns.
        num_bytes: the size of all files of the cache.
        max_bytes: the most that they may have.
    """

    num_files: int
    num_blocks: int
    num_columns: int
    num_bytes: int
    max_bytes: int


class FileCache:
    """A folder that keeps blocks of published files. Threads may share it, and it can be pickled.

    No file is open, and nothing is created before the first block is kept. ``registry.cache()`` opens the user's.

    >>> import registry
    >>> usage = registry.cache().usage()
    >>> usage.num_bytes <= usage.max_bytes
    True

    Attributes:
        folder: its path.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, max_bytes: int | None = None, is_shared: bool = False
    ) -> None:
        """Describe a cache.

        Args:
            folder: its path.
            max_bytes: limits the size of all its files; None is a tenth of what the disk has free.
            is_shared: whether other users may write to the folder; their blocks are not believed.
        """
        self.folder = Path(folder)
        self.room = Room(self.folder, max_bytes, is_shared=is_shared)
        self._paused_until = 0.0

    @property
    def is_shared(self) -> bool:
        """Whether other users may write to the folder."""
        return self.room.is_shared

    @property
    def is_usable(self) -> bool:
        """Whether it is not switched off, and only this user can write to the folder; if others can, this is logged.

        All members of a group may write to a folder that is shared, and no others.
        """
        with suppress(OSError):
            (require_group if self.is_shared else require_private)(self.folder)
            return self.room.may_hold(1)
        return False

    def require_own(self) -> None:
        """Raise OSError if other users can write to the folder, so that what is in it can change while it is mapped."""
        if self.is_shared:
            raise PermissionError(errno.EPERM, "decoded columns need a cache that is not shared", str(self.folder))
        require_private(self.folder)

    def owns(self, facts: os.stat_result) -> bool:
        """Whether no other user can have written a file; root can write everything."""
        return not self.is_shared or facts.st_uid in (os.geteuid(), 0)

    @property
    def is_paused(self) -> bool:
        """Whether the cache could not be written a moment ago."""
        return time.monotonic() < self._paused_until

    def pause(self, error: OSError) -> None:
        """Write nothing for a moment: the disk is full, or the folder cannot be written."""
        log_fault(self.folder, error)
        self._paused_until = time.monotonic() + _PAUSE_SECONDS

    def usage(self) -> CacheUsage:
        """Look what the folder holds now.

        Raises:
            StorageError: the disk does not report its free space.
        """
        folders, num_blocks, num_columns, num_bytes = set(), 0, 0, 0
        for file in self.room.files():
            if file.is_block:
                folders.add(file.folder)
                num_blocks += 1
            num_columns += file.path.endswith("/column.json")
            num_bytes += file.num_bytes
        with storage_errors("read", str(self.folder)):
            limit = self.room.limit(num_bytes)
        return CacheUsage(
            num_files=len(folders),
            num_blocks=num_blocks,
            num_columns=num_columns,
            num_bytes=num_bytes,
            max_bytes=limit,
        )

    def clear(self, *, dry_run: bool = False) -> CacheUsage:
        """Delete every block. A read that uses the cache meanwhile continues with the store.

        Args:
            dry_run: delete nothing.

        Returns:
            What it held before.

        Raises:
            StorageError: the folder cannot be written.
        """
        before = self.usage()
        if self.folder.is_dir() and not dry_run:
            with storage_errors("remove", str(self.folder)):
                self.room.clear()
        return before

    def require_writable(self) -> None:
        """Try everything that is done to keep a block.

        Raises:
            StorageError: the folder cannot be created or written, others can write to it, its disk is full, or another
                process keeps it locked.
        """
        probe = self.folder / "probe"
        with self.write_errors():
            (require_group if self.is_shared else require_private)(self.folder)
            with self.room.locked():
                replace_file(probe, bytes(2**16))
                probe.unlink(missing_ok=True)

    def write_errors(self) -> AbstractContextManager[None]:
        """Convert every OSError of the block to a StorageError: the folder cannot be written."""
        elsewhere = "another cache folder with REGISTRY_CACHE or REGISTRY_CACHE_DIR"
        return storage_errors("write", str(self.folder), elsewhere=elsewhere)

    def __reduce__(self) -> tuple[type[FileCache], tuple[Path], dict[str, Room]]:
        return FileCache, (self.folder,), {"room": self.room}

    def __repr__(self) -> str:
        return f"FileCache({str(self.folder)!r})"


def parse_bytes(text: str, name: str, *, hint: str | None = None) -> int:
    """Read a number of bytes, with or without a unit; ``name`` is the variable or option, for the message.

    ``hint`` replaces the one about the cache.

    >>> parse_bytes("20GB", "REGISTRY_CACHE_BYTES"), parse_bytes("1.5 KiB", "REGISTRY_CACHE_BYTES")
    (20000000000, 1536)

    Raises:
        UsageError: it is not a number, or has an unknown unit.
    """
    match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,18})?) ?([A-Za-z]{0,3})", text.strip())
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        usual = f"Write the number alone or with a unit, e.g. {name}=500MB, 20GB or 1.5TiB; 0 switches the cache off."
        raise malformed_setting(name, text, "a number of bytes", hint=hint or usual)
    whole, _, part = match[1].partition(".")
    return int(whole) * unit + (int(part) * unit // 10 ** len(part) if part else 0)
