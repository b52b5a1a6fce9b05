"""A published file of another machine for tests of the cache, which records the fetched ranges."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from registry.storage.cache import BLOCK_BYTES, CachedBlocks, CachedFile, FileCache
from registry.storage.faults import Range
from registry.storage.remote import RangedFile

CONTENT: Final = os.urandom(6 * BLOCK_BYTES + 1000)
SIZE: Final = len(CONTENT)
SHA256: Final = hashlib.sha256(CONTENT).hexdigest()
KEPT_BLOCK_BYTES: Final = BLOCK_BYTES + 32
"""What a whole block takes of the cache: its bytes and their digest."""


class Source(RangedFile):
    """An open file of another machine; ``fetched`` are the ranges that were requested."""

    def __init__(self, content: bytes = CONTENT, *, entity_tag: str | None = '"tag"') -> None:
        super().__init__(path="memory://source", num_bytes=len(content), entity_tag=entity_tag)
        self.content = content
        self.fetched: list[Range] = []

    @property
    def blocks(self) -> list[int]:
        """The blocks that were requested, in order; a part of one counts as the block."""
        return [start // BLOCK_BYTES for start, _ in self.fetched]

    def read_ranges(
        self,
        ranges: Sequence[Range],
        *,
        in_order: bool = False,  # noqa: ARG002 (it always is)
    ) -> Iterator[tuple[int, memoryview]]:
        for index, (start, stop) in enumerate(ranges):
            self.fetched.append((start, stop))
            yield index, memoryview(self.content)[start:stop]


def open_cached(cache: FileCache, source: Source | None = None) -> CachedFile:
    """The file with this content, through the cache."""
    source = Source() if source is None else source
    digest = SHA256 if source.content is CONTENT else hashlib.sha256(source.content).hexdigest()
    return CachedFile(CachedBlocks(cache, digest, len(source.content)), source)


def block_files(cache: FileCache) -> dict[int, Path]:
    """The files of the blocks of ``CONTENT``, by number."""
    return {int(path.name, 16): path for path in sorted((cache.folder / SHA256[:2] / SHA256).glob("????????"))}


def num_bytes_of(cache: FileCache) -> int:
    """The size of all blocks in the cache, also unfinished ones, as the disk reports it."""
    return sum(path.stat().st_size for path in cache.folder.glob("??/*/*"))


def read_block(cache: FileCache, number: int, source: Source | None = None) -> bytes:
    """Read one block through the cache."""
    start, stop = number * BLOCK_BYTES, min((number + 1) * BLOCK_BYTES, SIZE)
    with open_cached(cache, source) as file:
        return b"".join(bytes(view) for _, view in file.read_ranges([(start, stop)]))
