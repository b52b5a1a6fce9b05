"""``CachedBlocks``: reads, checks and writes the cached blocks of a published file.

A block is a file: a digest, then up to 256 KiB of the published file. The digest is the sha256 of the content, the
published sha256 and the number of the block. It is checked when an open file first uses the block. A damaged block is
deleted and fetched again.

Bytes may be damaged in transit, before they are cached. Once all blocks are cached, their sha256 is therefore compared
with the published sha256; the file ``proved`` records the success.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from registry.storage.cache.folder import FileCache, lock_file, unlock_file
from registry.storage.memory import discard_damaged, open_own, read_own

if TYPE_CHECKING:
    from threading import Event

    from registry.storage.faults import Range

BLOCK_BYTES: Final = 2**18
"""A request fetches as many unneeded bytes to save another one (see ``remote``). Larger blocks would cost time."""

_DIGEST_BYTES: Final = 32
_PROVED: Final = "proved"
_OWN_NAME: Final = re.compile(r"([0-9a-f]{8}|proved)(\.[0-9a-f]{16})?")

_TRUSTED: Final[dict[Path, dict[int, bytes]]] = {}
"""The digests of other users' blocks that this process has compared with the published file, by folder."""


class CachedBlocks:
    """The blocks of a published file. Each open file has its own instance, which only one thread at a time may use."""

    def __init__(self, cache: FileCache, sha256: str, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self._cache = cache
        self._sha256 = sha256
        self._folder = cache.folder / sha256[:2] / sha256
        self._checked: dict[int, tuple[int, int]] = {}  # the inode and time of each block whose digest was verified

    @property
    def num_blocks(self) -> int:
        """Number of blocks of the whole file."""
        return -(-self.num_bytes // BLOCK_BYTES)

    def range_of(self, number: int) -> Range:
        """The bytes of the file that are in block ``number``."""
        start = number * BLOCK_BYTES
        return start, min(start + BLOCK_BYTES, self.num_bytes)

    def is_complete(self) -> bool:
        """Whether there is a file for every block. The digest of each is checked when it is used."""
        names: set[str] = set()
        with suppress(OSError):
            names.update(os.listdir(self._folder))  # noqa: PTH208 (names are all that is needed)
        return all(_name_of(number) in names for number in range(self.num_blocks))

    def num_kept_bytes(self) -> int:
        """The number of bytes that the whole file takes in the cache."""
        return self.num_bytes + (self.num_blocks + 1) * _DIGEST_BYTES

    def num_missing_bytes(self) -> int:
        """The number of bytes of the file in blocks that are not cached."""
        missing = (self.range_of(number) for number in range(self.num_blocks) if not self.holds(number))
        return sum(stop - start for start, stop in missing)

    @property
    def can_be_kept(self) -> bool:
        """Whether the cache seems to have room for a whole block; only writing it is conclusive."""
        return not self._cache.is_paused and self._cache.room.may_hold(BLOCK_BYTES + _DIGEST_BYTES)

    def is_proved(self) -> bool:
        """Whether all blocks together were verified against the published sha256."""
        if self._cache.is_shared and len(self._trusted) == self.num_blocks:
            return True
        file = self._folder / _PROVED
        try:
            is_right = read_own(file, _DIGEST_BYTES) == self._digest(_PROVED, b"") and self._cache.owns(file.lstat())
        except OSError:
            return False
        with suppress(OSError):
            os.utime(file)  # so that it is evicted after unused blocks
        return is_right

    def prove(self, stop: Event | None = None) -> bool:
        """Compare all blocks with the published sha256, and delete them if they differ.

        Args:
            stop: an event that ends hashing with an error.

        Returns:
            Whether they are the published file.

        Raises:
            InterruptedError: ``stop`` was set.
        """
        digest = hashlib.sha256()
        digests: dict[int, bytes] = {}
        for number in range(self.num_blocks):
            if stop is not None and stop.is_set():
                raise InterruptedError("the read was ended")
            found = self.load(number, *self.range_of(number), digests=digests)
            if found is None:  # the block was damaged, or has been evicted
                return False
            digest.update(found)
        if digest.hexdigest() != self._sha256:
            self.forget()
            return False
        self._trusted.update(digests)
        self.note_proof()
        return True

    def note_proof(self) -> None:
        """Record that all blocks are those of the published file."""
        if not self.is_proved():
            self.finish(_PROVED, self.write(_PROVED, b""))

    def holds(self, number: int) -> bool:
        """Whether there is a file for a block that may be used."""
        try:
            facts = os.stat(self._folder / _name_of(number))  # noqa: PTH116 (faster)
        except OSError:
            return False
        return self._cache.owns(facts) or number in self._trusted

    @property
    def _trusted(self) -> dict[int, bytes]:
        return _TRUSTED.setdefault(self._folder, {})

    def load(self, number: int, start: int, stop: int, *, digests: dict[int, bytes] | None = None) -> memoryview | None:
        """Return bytes ``start`` to ``stop`` of the file, all in block ``number``, or None if it is not cached.

        The block becomes the most recently used, and no process evicts it while it is read. A block of another user is
        used only if its digest is known, or if ``digests`` is passed, to which its digest is added.
        """
        first, last = self.range_of(number)
        path = self._folder / _name_of(number)
        try:
            descriptor = open_own(path)
        except OSError:
            return None
        try:
            lock_file(descriptor, is_shared=True)
            try:
                facts = os.fstat(descriptor)
                state = facts.st_ino, facts.st_mtime_ns
                is_whole = facts.st_size == _DIGEST_BYTES + last - first
                is_own = self._cache.owns(facts)
                if is_whole and is_own and digests is None and self._checked.get(number) == state:
                    result = memoryview(os.pread(descriptor, stop - start, _DIGEST_BYTES + start - first))
                else:
                    content = memoryview(os.pread(descriptor, facts.st_size, 0) if is_whole else b"")
                    block = content[_DIGEST_BYTES:]
                    digest = self._digest(_name_of(number), block)
                    if content[:_DIGEST_BYTES] != digest:
                        discard_damaged(path)
                        return None
                    if digests is not None:
                        digests[number] = digest
                    elif not is_own and self._trusted.get(number) != digest:
                        return None
                    if is_own:
                        self._checked[number] = state
                    result = block[start - first : stop - first]
                with suppress(OSError):  # the disk of a cache that is only read may be mounted read-only
                    os.utime(descriptor, ns=(time.time_ns(), facts.st_mtime_ns))
            finally:
                unlock_file(descriptor)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return result.toreadonly() if len(result) == stop - start else None

    def keep(self, number: int, content: memoryview) -> None:
        """Cache the content of a fetched block. All blocks then have to be compared with the sha256 again."""
        if self._cache.is_shared and self._is_held_by_another(number, content):
            return
        if not self.holds(number) and (temporary := self.write(_name_of(number), content)) is not None:
            with suppress(OSError):
                (self._folder / _PROVED).unlink(missing_ok=True)
            self.finish(_name_of(number), temporary)

    def _is_held_by_another(self, number: int, content: memoryview) -> bool:
        """Record the digest of a fetched block. Returns whether another user has cached the same block."""
        digest = self._digest(_name_of(number), content)
        try:
            is_held = read_own(self._folder / _name_of(number), _DIGEST_BYTES) == digest
        except OSError:
            return False
        if is_held:
            self._trusted[number] = digest
        return is_held

    def fill(self) -> Filling:
        """Cache the whole file while it is hashed. The blocks become visible once the digest is verified."""
        return Filling(self)

    def forget(self) -> bool:
        """Delete the blocks of this file, because records in them are damaged.

        Returns False if there were no blocks.
        """
        self._checked.clear()
        self._trusted.clear()
        try:  # in a shared cache, another user could replace it by a link to another folder
            files = [file for file in self._folder.iterdir() if _OWN_NAME.fullmatch(file.name)]
        except OSError:
            return False
        for file in files:
            with suppress(OSError):
                file.unlink()
        return bool(files)

    def _digest(self, name: str, content: bytes | memoryview) -> bytes:
        # SHA-256, because processors have instructions for it: more than twice as fast as blake2b.
        digest = hashlib.sha256(f"{self._sha256}/{name}\n".encode())
        digest.update(content)
        return digest.digest()

    def write(self, name: str, content: bytes | memoryview) -> Path | None:
        """Write a file under a temporary name. Returns None if there is no room, or if the disk fails."""
        if self._cache.is_paused:
            return None
        temporary = self._folder / f"{name}.{secrets.token_hex(8)}"
        try:
            descriptor = self._cache.room.create(temporary, _DIGEST_BYTES + len(content))
            if descriptor is None:
                return None
            _write(descriptor, self._digest(name, content), content)
        except OSError as error:
            self._cache.pause(error)
            with suppress(OSError):
                temporary.unlink()
            return None
        return temporary

    def finish(self, name: str, temporary: Path | None) -> None:
        """Rename a written file to its final name."""
        if temporary is not None:
            try:
                temporary.rename(self._folder / name)
            except OSError:  # the folder was deleted, or is sticky and contains such a file of another user
                with suppress(OSError):
                    temporary.unlink()


class Filling:
    """Caches a whole file while it is hashed. At the end of the ``with`` block, it is discarded unless ``is_right``.

    Attributes:
        is_right: set by the caller once the digest of the bytes matches the published one.
    """

    def __init__(self, blocks: CachedBlocks) -> None:
        self.is_right = False
        self._blocks = blocks
        self._rest = bytearray()
        self._next = 0
        self._written: list[tuple[str, Path]] = []
        self._has_room = True

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
        for name, temporary in self._written:
            if self.is_right:
                self._blocks.finish(name, temporary)
            else:
                with suppress(OSError):
                    temporary.unlink()
        if self.is_right and self._has_room and self._next == self._blocks.num_blocks:
            self._blocks.note_proof()

    def _write(self, content: bytes) -> None:
        name, self._next = _name_of(self._next), self._next + 1
        written = self._blocks.write(name, content)
        if written is None:  # The file is larger than the cache, so cache only its first blocks.
            self._has_room = False
            self._rest.clear()
        else:
            self._written.append((name, written))


def _name_of(number: int) -> str:
    return f"{number:08x}"


def _write(descriptor: int, *parts: bytes | memoryview) -> None:
    """Fill a new file. It is not synced, so its digest may not match after a power cut."""
    with os.fdopen(descriptor, "wb") as file:
        file.writelines(parts)
