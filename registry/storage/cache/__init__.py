"""Caches parts of published files of other machines on a local disk, so that they are fetched only once.

    ProvedStore.open(name)  ->  CachedFile  --a block is kept-->     FileCache: a file of this machine
                                            --a block is missing-->  the store, then FileCache

``FileCache`` is the folder, ``CachedBlocks`` one published file in it, and ``CachedFile`` an open file that uses both.
The names and times of the files in the folder are the whole state; there is no index that could be lost.

    blocks/ab/abcdef...(sha256 of the published file)/0000001f   digest | the 32nd 256 KiB of the published file
    blocks/size                                                   how many bytes are kept

A cache only saves time. If its disk is full, or its folder is damaged, read-only or deleted, the bytes come from the
store.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.storage.cache.blocks import BLOCK_BYTES, CachedBlocks
    from registry.storage.cache.file import CachedFile
    from registry.storage.cache.folder import CacheUsage, FileCache, parse_bytes

__all__ = ["BLOCK_BYTES", "CacheUsage", "CachedBlocks", "CachedFile", "FileCache", "parse_bytes"]

__getattr__, __dir__ = lazy_exports(
    __name__, {"blocks": "BLOCK_BYTES CachedBlocks", "file": "CachedFile", "folder": "CacheUsage FileCache parse_bytes"}
)
