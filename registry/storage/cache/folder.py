"""``FileCache``: the folder with cached blocks of published files, for all processes of a user.

Several users of a machine may share a folder, if each of them enables sharing. A block of another user is used only if
this process knows its digest, because it has compared all blocks of the file with the published sha256, or fetched the
block itself. The digest is verified at each use, because the owner may change the block at any time.

``Room`` limits the total size of the files, and deletes the least recently used files first. Every process reserves
the size of a file, and creates the file with this size, before it writes the content. The file ``size`` contains the
number of reserved bytes, and is locked while it changes. The number may be too high after a fault, but never too low.
When it reaches the limit, a walk over the folder finds the right number and the files to delete.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import Path
from typing import Final, NamedTuple

from registry.environment import malformed_setting
from registry.storage.faults import storage_errors
from registry.storage.memory import log_fault, open_own, replace_file, require_group, require_private

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


_LOCK_SECONDS: Final = 0.5
_LOCK_STEP_SECONDS: Final = 0.005
_LEFT_BEHIND_NS: Final = 3600 * 10**9
"""An unfinished file that was not written to for an hour was left by a killed process."""

_FOLDER: Final = re.compile(r"/[0-9a-f]{2}/[0-9a-f]{64}")
_BLOCK_NAME: Final = re.compile(r"[0-9a-f]{8}")
_FILE_NAME: Final = re.compile(r"([0-9a-f]{8}|proved|column\.json|[a-z0-9.]{1,40}\.npy)(\.[0-9a-f]{16})?")
_SPARE_PART: Final = 16
_SMALL_BYTES: Final = 64 * 2**20
"""Freeing room requires a walk over the whole folder, so a sixteenth of a large cache is freed at a time."""

_MOST_DELETED: Final = 2**17
"""The maximum number of files that are deleted after a walk: 32 GiB of blocks. It bounds memory."""

_NUMBER_BYTES: Final = 20


class KeptFile(NamedTuple):
    """A file in the folder: a block, a note that all blocks are proved, a file of a column, or an unfinished file."""

    used_ns: int
    num_bytes: int
    path: str

    @property
    def folder(self) -> str:
        """The folder of the published file to which it belongs."""
        return self.path.rpartition("/")[0]

    @property
    def is_block(self) -> bool:
        """Whether it is a complete block."""
        return _BLOCK_NAME.fullmatch(self.path.rpartition("/")[2]) is not None

    @property
    def is_in_work(self) -> bool:
        """Whether another process may still be writing it."""
        name = _FILE_NAME.fullmatch(self.path.rpartition("/")[2])
        return name is not None and name[2] is not None and self.used_ns >= time.time_ns() - _LEFT_BEHIND_NS


class Room:
    """The room in a folder. ``max_bytes`` is its limit; None means a tenth of the free space of the disk.

    Several users may share a folder: new folders have its mode, and its group may read the files.
    """

    def __init__(self, folder: Path, max_bytes: int | None, *, is_shared: bool = False) -> None:
        self.is_shared = is_shared
        self._folder = folder
        self._max_bytes = max_bytes

    def limit(self, num_held: int) -> int:
        """The maximum total size of all files, which have ``num_held`` bytes now. Raises OSError."""
        if self._max_bytes is not None:
            return self._max_bytes
        existing = self._folder if self._folder.exists() else next(filter(Path.exists, self._folder.parents))
        disk = os.statvfs(existing)
        return (disk.f_bavail * disk.f_frsize + num_held) // 10

    def may_hold(self, num_bytes: int) -> bool:
        """Whether a file of this size can ever fit."""
        return self._max_bytes is None or num_bytes <= self._max_bytes

    def create(self, path: Path, num_bytes: int) -> int | None:
        """Reserve room for a new file that only this user can read, and delete others if necessary.

        The file has its full size at once, so that walks of other processes count it before it is written.

        Returns:
            A descriptor to write to, or None if there is not enough room.

        Raises:
            OSError: the folder cannot be written, or another process does not release its lock.
        """
        with self.locked() as ledger:
            return self._create(path, num_bytes) if self._reserve(ledger, num_bytes) else None

    def reserve(self, num_bytes: int) -> bool:
        """Reserve room to extend a file, like ``create``. Returns False if there is not enough room. Raises OSError."""
        with self.locked() as ledger:
            return self._reserve(ledger, num_bytes)

    def _reserve(self, ledger: int, num_bytes: int) -> bool:
        number = _read_number(ledger)
        if number is None:
            number = sum(file.num_bytes for file in self.files())
        limit = self.limit(number)
        if num_bytes > limit:
            return False
        if number + num_bytes > limit:
            number = self._evict(limit - num_bytes - _spare(limit - num_bytes))
        has_room = number + num_bytes <= limit
        # Before the write: after a fault, the number may be too high, but not too low.
        _write_number(ledger, number + num_bytes if has_room else number)
        return has_room

    def files(self) -> Iterator[KeptFile]:
        """Every file of the cache, in any order. Foreign files are left out, and links are not followed."""
        top = os.fspath(self._folder)
        for folder, _, names in os.walk(top):
            if _FOLDER.fullmatch(folder.removeprefix(top)):
                for name in filter(_FILE_NAME.fullmatch, names):
                    with suppress(OSError):
                        facts = os.lstat(path := f"{folder}/{name}")
                        if stat.S_ISREG(facts.st_mode):
                            yield KeptFile(max(facts.st_atime_ns, facts.st_mtime_ns), facts.st_size, path)

    def clear(self) -> None:
        """Delete every file that is not in use. Raises OSError."""
        with self.locked() as ledger:
            _write_number(ledger, sum(0 if _delete(file) else file.num_bytes for file in self.files()))

    def _evict(self, target: int) -> int:
        """Delete the least recently used files until the folder has ``target`` bytes, or all others are in use.

        Returns:
            The number of bytes afterwards.
        """
        total = 0

        def walk() -> Iterator[KeptFile]:
            nonlocal total
            for file in self.files():
                total += file.num_bytes
                if not file.is_in_work:
                    yield file

        for file in nsmallest(_MOST_DELETED, walk()):
            if total <= target:
                break
            if _delete(file):
                total -= file.num_bytes
        return total

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Lock the folder against other processes and threads; yields the descriptor of the file ``size``."""
        self.make_folder(self._folder)
        descriptor = self._open_ledger()
        try:
            _wait_for_lock(descriptor)
            try:
                yield descriptor
            finally:
                unlock_file(descriptor)
        finally:
            os.close(descriptor)

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents if they do not exist, with the mode of the parent, or for this user alone.

        Raises OSError.
        """
        if not self.is_shared:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not folder.is_dir():
            self.make_folder(folder.parent)
            with suppress(FileExistsError):  # another process was faster
                folder.mkdir()
                # Not chmod, because another user may have replaced it by a link.
                descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
                try:
                    os.fchmod(descriptor, stat.S_IMODE(folder.parent.stat().st_mode))
                finally:
                    os.close(descriptor)

    def _create(self, path: Path, num_bytes: int) -> int:
        """Create a file of this size and return its descriptor. Raises OSError."""
        self.make_folder(path.parent)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if self.is_shared:
                os.fchmod(descriptor, 0o640)
            os.ftruncate(descriptor, num_bytes)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _open_ledger(self) -> int:
        """Open the file ``size``, to which every user of the folder writes. Raises OSError."""
        path, flags = self._folder / "size", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)
        while True:
            with suppress(FileNotFoundError):  # in a sticky folder, Linux refuses O_CREAT for the file of another user
                return os.open(path, flags)
            with suppress(FileExistsError):
                descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
                if self.is_shared:
                    os.fchmod(descriptor, 0o660)
                return descriptor


def _delete(file: KeptFile) -> bool:
    """Delete a file, and its folder if it is empty. Returns False if a process uses it, or if it cannot be deleted."""
    try:
        descriptor = open_own(file.path)
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    try:
        lock_file(descriptor)
        os.unlink(file.path)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    with suppress(OSError):
        os.rmdir(file.folder)
    return True


def lock_file(descriptor: int, *, is_shared: bool = False) -> None:
    """Lock an open file against other processes and threads.

    Raises:
        BlockingIOError: the file is already locked.
        OSError: its file system does not support locks.
    """
    if sys.platform == "win32":
        raise OSError("there are no such locks on Windows")
    import fcntl

    fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def unlock_file(descriptor: int) -> None:
    """Unlock a file before it is closed, because a forked child may also have the descriptor."""
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _spare(limit: int) -> int:
    """Return the number of bytes to free in addition to those that are needed."""
    return max(0, limit - _SMALL_BYTES) // _SPARE_PART


def _wait_for_lock(descriptor: int) -> None:
    """Lock an open file. Raises TimeoutError if another process keeps the lock, e.g. because it is suspended."""
    end = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            lock_file(descriptor)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise TimeoutError("another process keeps the cache locked") from None
            time.sleep(_LOCK_STEP_SECONDS)
        else:
            return


def _read_number(descriptor: int) -> int | None:
    text = os.pread(descriptor, _NUMBER_BYTES + 1, 0)
    if len(text) == _NUMBER_BYTES and text.isdigit():
        return int(text)
    os.ftruncate(descriptor, 0)
    return None


def _write_number(descriptor: int, number: int) -> None:
    # Always the same length, because truncating a file writes it to the disk at once, which takes milliseconds.
    os.pwrite(descriptor, str(number).zfill(_NUMBER_BYTES).encode(), 0)
