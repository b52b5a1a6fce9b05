"""``FileCache``: the folder with cached blocks of published files, for all processes of a user.

Several users of a machine may share a folder, if each of them enables sharing. A block of another user is used only if
this process knows its digest, because it has compared all blocks of the file with the published sha256, or fetched the
block itself. The digest is verified at each use, because the owner may change the block at any time.
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
"""After a fault of its disk, nothing is written to the cache for this number of seconds."""

_UNITS: Final[dict[str, int]] = {
    "": 1,
    "B": 1,
    **{f"{letter}{end}": 1000**power for power, letter in enumerate("KMGT", 1) for end in ("", "B")},
    **{f"{letter}IB": 1024**power for power, letter in enumerate("KMGT", 1)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUsage:
    """The content of a cache.

    Attributes:
        num_files: the number of published files with cached blocks.
        num_blocks: the number of their blocks.
        num_columns: the number of decoded columns.
        num_bytes: the total size of the cache in bytes.
        max_bytes: the maximum size of the cache in bytes.
    """

    num_files: int
    num_blocks: int
    num_columns: int
    num_bytes: int
    max_bytes: int


class FileCache:
    """A folder that keeps blocks of published files. Threads may share it, and it can be pickled.

    It keeps no file open, and creates nothing before the first block is cached. ``registry.cache()`` opens the user's
    cache.

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
            max_bytes: the maximum total size of its files; None for a tenth of the free space of the disk.
            is_shared: whether other users may write to the folder; their blocks are not trusted.
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
        """Whether the cache is enabled, and only this user can write to the folder. If others can, a warning is logged.

        A shared folder may only be writable by the members of its group.
        """
        with suppress(OSError):
            (require_group if self.is_shared else require_private)(self.folder)
            return self.room.may_hold(1)
        return False

    def require_own(self) -> None:
        """Raise OSError if other users can write to the folder, so that its files may change while they are mapped."""
        if self.is_shared:
            raise PermissionError(errno.EPERM, "decoded columns need a cache that is not shared", str(self.folder))
        require_private(self.folder)

    def owns(self, facts: os.stat_result) -> bool:
        """Whether no other user can have written a file, except for root."""
        return not self.is_shared or facts.st_uid in (os.geteuid(), 0)

    @property
    def is_paused(self) -> bool:
        """Whether writing to the cache is suspended after a fault."""
        return time.monotonic() < self._paused_until

    def pause(self, error: OSError) -> None:
        """Suspend writing for a while, because the disk is full, or the folder is not writable."""
        log_fault(self.folder, error)
        self._paused_until = time.monotonic() + _PAUSE_SECONDS

    def usage(self) -> CacheUsage:
        """Measure the present content of the folder.

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
        """Delete every block. A read that is using the cache continues with the store.

        Args:
            dry_run: delete nothing.

        Returns:
            The previous content.

        Raises:
            StorageError: the folder cannot be written.
        """
        before = self.usage()
        if self.folder.is_dir() and not dry_run:
            with storage_errors("remove", str(self.folder)):
                self.room.clear()
        return before

    def require_writable(self) -> None:
        """Try all steps of caching a block.

        Raises:
            StorageError: the folder cannot be created or written, other users can write to it, its disk is full, or
                another process keeps it locked.
        """
        probe = self.folder / "probe"
        with self.write_errors():
            (require_group if self.is_shared else require_private)(self.folder)
            with self.room.locked():
                replace_file(probe, bytes(2**16))
                probe.unlink(missing_ok=True)

    def write_errors(self) -> AbstractContextManager[None]:
        """Convert every OSError of the block to a StorageError that says that the folder cannot be written."""
        elsewhere = "another cache folder with REGISTRY_CACHE or REGISTRY_CACHE_DIR"
        return storage_errors("write", str(self.folder), elsewhere=elsewhere)

    def __reduce__(self) -> tuple[type[FileCache], tuple[Path], dict[str, Room]]:
        return FileCache, (self.folder,), {"room": self.room}

    def __repr__(self) -> str:
        return f"FileCache({str(self.folder)!r})"


def parse_bytes(text: str, name: str, *, hint: str | None = None) -> int:
    """Parse a number of bytes, with or without a unit. The message names the variable or option ``name``.

    ``hint`` replaces the hint about the cache.

    >>> parse_bytes("20GB", "REGISTRY_CACHE_BYTES"), parse_bytes("1.5 KiB", "REGISTRY_CACHE_BYTES")
    (20000000000, 1536)

    Raises:
        UsageError: the text is not a number, or has an unknown unit.
    """
    match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,18})?) ?([A-Za-z]{0,3})", text.strip())
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        usual = f"Write the number alone or with a unit, e.g. {name}=500MB, 20GB or 1.5TiB; 0 switches the cache off."
        raise malformed_setting(name, text, "a number of bytes", hint=hint or usual)
    whole, _, part = match[1].partition(".")
    return int(whole) * unit + (int(part) * unit // 10 ** len(part) if part else 0)
