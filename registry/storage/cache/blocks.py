"""``CachedBlocks``: the blocks of one published file that a cache holds; they are read, checked and written here.

A block is a file: a seal, then up to 256 KiB of the published file. The seal is a digest of the content, the published
sha256 and the number of the block, with the key of the folder. It is checked when an open file first uses the block. A
block that is damaged, or that another user made, is deleted and fetched again.

Bytes may be damaged on their way, before they are sealed. So once all blocks are there, their sha256 is compared with
the published one; the file ``proved`` says so.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from registry.storage.cache.folder import FileCache
from registry.storage.cache.room import lock_file, unlock_file
from registry.storage.folder_key import InvalidKeyError

if TYPE_CHECKING:
    from threading import Event

    from registry.storage.faults import Range

BLOCK_BYTES: Final = 2**18
"""As many bytes as one request fetches too many to save another one (see ``remote``), so a larger block costs time."""

_SEAL_BYTES: Final = 32
_MAGIC: Final = b"shardbl1"
_PROVED: Final = "proved"


class CachedBlocks:
    """The blocks of one published file. Each open file has its own object, which one thread at a time may use."""

    def __init__(self, cache: FileCache, sha256: str, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self._cache = cache
        self._sha256 = sha256
        self._folder = cache.folder / sha256[:2] / sha256
        self._checked: dict[int, tuple[int, int]] = {}  # the inode and time of each block whose seal is right

    @property
    def num_blocks(self) -> int:
        """Number of blocks of the whole file."""
        return -(-self.num_bytes // BLOCK_BYTES)

    def range_of(self, number: int) -> Range:
        """The bytes of the file that are in block ``number``."""
        start = number * BLOCK_BYTES
        return start, min(start + BLOCK_BYTES, self.num_bytes)

    def is_complete(self) -> bool:
        """Whether there is a file for every block. The seal of each is checked when it is used."""
        if not self.num_blocks:
            return True
        try:
            result = {path.name for path in self._folder.iterdir()}
        except OSError:
            return False
        return len(result) >= self.num_blocks and all(_name_of(number) in result for number in range(self.num_blocks))

    def num_kept_bytes(self) -> int:
        """How many bytes the whole file needs in the cache."""
        return self.num_bytes + (self.num_blocks + 1) * _SEAL_BYTES

    def num_missing_bytes(self) -> int:
        """How many bytes of the file are in blocks that are not held."""
        missing = (self.range_of(number) for number in range(self.num_blocks) if not self.holds(number))
        return sum(stop - start for start, stop in missing)

    @property
    def can_be_kept(self) -> bool:
        """Whether a whole block could be kept now, as far as is known without writing one."""
        return not self._cache.is_paused and self._cache.room.may_hold(BLOCK_BYTES + _SEAL_BYTES)

    def is_proved(self) -> bool:
        """Whether all blocks together were compared with the published sha256."""
        if not self.num_blocks:
            return True
        file = self._folder / _PROVED
        try:
            seal = file.read_bytes()
            is_right = secrets.compare_digest(seal, self._seal(_PROVED, b"", self._cache.key.read_again(make=False)))
        except OSError:
            return False
        with suppress(OSError):
            os.utime(file)  # it is evicted after the blocks that are not used
        return is_right

    def prove(self, stop: Event | None = None) -> bool:
        """Compare all blocks with the published sha256, and delete them if they differ.

        Args:
            stop: once it is set, hashing ends with an error.

        Returns:
            Whether they are the published file.

        Raises:
            InterruptedError: ``stop`` was set.
        """
        digest = hashlib.sha256()
        for number in range(self.num_blocks):
            if stop is not None and stop.is_set():
                raise InterruptedError("the read was ended")
            found = self.load(number, *self.range_of(number))
            if found is None:  # it was damaged, or evicted meanwhile
                return False
            digest.update(found)
        if digest.hexdigest() != self._sha256:
            self.forget()
            return False
        self.note_proof()
        return True

    def note_proof(self) -> None:
        """Remember that all blocks are those of the published file."""
        if not self.is_proved():
            with suppress(OSError):
                path, key = self._folder / _PROVED, self._cache.make_key()
                if (written := self._write_file(path, self._seal(_PROVED, b"", key))) is not None:
                    written.rename(path)

    def holds(self, number: int) -> bool:
        """Whether there is a file for a block."""
        return self._path(number).exists()

    def load(self, number: int, start: int, stop: int) -> memoryview | None:
        """Bytes ``start`` to ``stop`` of the published file, all in block ``number``; None if it is not held.

        It becomes the most recently used block, and no process evicts it while it is read.
        """
        first, last = self.range_of(number)
        path = self._path(number)
        try:
            # Without O_NONBLOCK, a pipe of this name would never be opened.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            lock_file(descriptor, is_shared=True)
            try:
                facts = os.fstat(descriptor)
                state = facts.st_ino, facts.st_mtime_ns
                is_whole = facts.st_size == _SEAL_BYTES + last - first
                if is_whole and self._checked.get(number) == state:
                    result = memoryview(os.pread(descriptor, stop - start, _SEAL_BYTES + start - first))
                elif is_whole and self._is_sealed(number, content := os.pread(descriptor, facts.st_size, 0)):
                    self._checked[number] = state
                    result = memoryview(content)[_SEAL_BYTES + start - first : _SEAL_BYTES + stop - first]
                else:
                    path.unlink()
                    return None
                with suppress(OSError):  # a cache that is only read may be on a disk that is mounted read-only
                    os.utime(descriptor, ns=(time.time_ns(), facts.st_mtime_ns))
            finally:
                unlock_file(descriptor)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return result.toreadonly() if len(result) == stop - start else None

    def keep(self, number: int, content: memoryview) -> None:
        """Keep the content of a block that was fetched. All blocks have to be compared with the sha256 again."""
        if not self.holds(number) and (written := self.write(number, content)) is not None:
            with suppress(OSError):
                (self._folder / _PROVED).unlink(missing_ok=True)
            self.finish(number, written)

    def fill(self) -> Filling:
        """Keep the whole file while it is hashed: the blocks become visible when the digest is known to be right."""
        return Filling(self)

    def forget(self) -> bool:
        """Delete the blocks of this file, because their records are damaged; False if there were none."""
        self._checked.clear()
        try:
            files = list(self._folder.iterdir())
        except OSError:
            return False
        for file in files:
            with suppress(OSError):
                file.unlink()
        return bool(files)

    def write(self, number: int, content: memoryview) -> Path | None:
        """Write a block under a temporary name; None if there is no room for it, or the disk fails."""
        if self._cache.is_paused:
            return None
        try:
            seal = self._seal(_name_of(number), content, self._cache.make_key())
        except OSError:
            self._cache.pause()
            return None
        return self._write_file(self._path(number), seal, content)

    def finish(self, number: int, temporary: Path) -> None:
        """Give a block that was written its name."""
        with suppress(OSError):  # somebody has deleted the folder
            temporary.rename(self._path(number))

    def _is_sealed(self, number: int, content: bytes) -> bool:
        key, seal, block = self._cache.key, content[:_SEAL_BYTES], memoryview(content)[_SEAL_BYTES:]
        try:
            if secrets.compare_digest(seal, self._seal(_name_of(number), block, key.read(make=False))):
                return True
            # The folder may have been deleted, and made again with another key.
            return secrets.compare_digest(seal, self._seal(_name_of(number), block, key.read_again(make=False)))
        except (FileNotFoundError, InvalidKeyError):  # nothing can prove the block any more
            return False

    def _seal(self, name: str, content: bytes | memoryview, key: bytes) -> bytes:
        # SHA-256, because processors have instructions for it: more than twice as fast as blake2b.
        seal = hmac.new(key, _MAGIC + f"{self._sha256}/{name}".encode(), "sha256")
        seal.update(content)
        return seal.digest()

    def _write_file(self, path: Path, *parts: bytes | memoryview) -> Path | None:
        """Write a file under a temporary name; None if there is no room for it, or the disk fails."""
        cache, num_bytes = self._cache, sum(map(len, parts))
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        try:
            descriptor = cache.room.create(temporary, num_bytes)
            if descriptor is None:
                return None
            try:
                _write(descriptor, *parts)
            except BaseException:
                with suppress(OSError):
                    temporary.unlink()
                    cache.room.give_back(num_bytes)
                raise
        except OSError:
            cache.pause()
            return None
        return temporary

    def _path(self, number: int) -> Path:
        return self._folder / _name_of(number)


class Filling:
    """Keeps a whole file while it is hashed. At the end of the ``with`` block, it is discarded unless ``is_right``.

    Attributes:
        is_right: set it when the digest of the bytes is known to be the published one.
    """

    def __init__(self, blocks: CachedBlocks) -> None:
        self.is_right = False
        self._blocks = blocks
        self._rest = bytearray()
        self._next = 0
        self._written: list[tuple[int, Path]] = []
        self._has_room = True
        self._is_own = True

    def add(self, piece: memoryview) -> None:
        """Keep the next bytes of the file."""
        if not self._has_room:
            return
        self._rest += piece
        while len(self._rest) >= BLOCK_BYTES:
            self._write(bytes(self._rest[:BLOCK_BYTES]))
            del self._rest[:BLOCK_BYTES]

    def __enter__(self) -> Filling:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_right and self._rest and self._has_room:
            self._write(bytes(self._rest))
        for number, temporary in self._written:
            if self.is_right:
                self._blocks.finish(number, temporary)
            else:
                with suppress(OSError):
                    temporary.unlink()
        if self.is_right and self._next == self._blocks.num_blocks and self._is_own:
            self._blocks.note_proof()

    def _write(self, content: bytes) -> None:
        number, self._next = self._next, self._next + 1
        if self._blocks.holds(number):
            self._is_own = False
            return
        written = self._blocks.write(number, memoryview(content))
        if written is None:  # the file is larger than the cache: its first blocks are as good as any others
            self._has_room = False
            self._rest.clear()
        else:
            self._written.append((number, written))


def _name_of(number: int) -> str:
    return f"{number:08x}"


def _write(descriptor: int, *parts: bytes | memoryview) -> None:
    """Fill a new file. It is not synced: after a power cut, its seal may be wrong."""
    with os.fdopen(descriptor, "wb") as file:
        file.writelines(parts)
