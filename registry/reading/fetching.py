"""Fetches the files of slices into the cache for files of other machines; ``Dataset.fetch`` calls it.

Reading also fills the cache: every file of a published version is read through it (``registry.storage.cache``).
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Event, Lock
from typing import Final

from registry.engines import Piece, choose_engine
from registry.errors import ShardMismatchError, StorageError, UsageError
from registry.model import Advance, ProgressCallback, Reference, Shard, count_progress
from registry.reading.source import Slice
from registry.storage import Store
from registry.storage.cache import CachedBlocks, FileCache

_TRIES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchReport:
    """The result of ``Dataset.fetch``: the files that can now be read without the store.

    Attributes:
        reference: the version.
        split: the split expression, or None for everything.
        num_files: the number of files with the records.
        num_bytes: their size.
        num_new_bytes: the number of these bytes that were not in the cache before.
        folder: the cache's folder; None if all files are on this machine, so that nothing had to be fetched.
    """

    reference: Reference
    split: str | None
    num_files: int
    num_bytes: int
    num_new_bytes: int
    folder: str | None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A file to fetch: its name, what was published, and the store of its version."""

    name: str
    shard: Shard
    files: Store


def fetch_slices(
    cache: FileCache,
    reference: Reference,
    split: str | None,
    slices: Iterable[Slice],
    *,
    progress: ProgressCallback | None,
) -> FetchReport:
    """Fetch the files of ``slices`` into ``cache``; see ``Dataset.fetch``."""
    wanted, num_local, num_local_bytes = _list_files(slices)
    num_bytes = sum(file.shard.num_bytes for file in wanted)
    if not wanted:
        return FetchReport(
            reference=reference,
            split=split,
            num_files=num_local,
            num_bytes=num_local_bytes,
            num_new_bytes=0,
            folder=None,
        )
    blocks = {file.shard.sha256: CachedBlocks(cache, file.shard.sha256, file.shard.num_bytes) for file in wanted}
    _require_room(cache, sum(block.num_kept_bytes() for block in blocks.values()))
    num_new_bytes = sum(block.num_missing_bytes() for block in blocks.values())
    _fetch(wanted, count_progress(progress, "fetching", str(reference), total=num_bytes, unit="bytes", announce=True))
    lost = []
    for block in wanted:
        if blocks[block.shard.sha256].is_complete():
            blocks[block.shard.sha256].note_proof()
        else:
            lost.append(block)
    if lost:
        cache.require_writable()
        raise StorageError(
            f"{len(lost):,} of {len(wanted):,} files of {reference} could not be cached in {cache.folder}",
            hint="Its disk is full, or other processes filled the cache. To see its size: registry cache show",
            details={"path": str(cache.folder), "files": [file.name for file in lost[:100]]},
        )
    return FetchReport(
        reference=reference,
        split=split,
        num_files=len(wanted) + num_local,
        num_bytes=num_bytes + num_local_bytes,
        num_new_bytes=num_new_bytes,
        folder=str(cache.folder),
    )


def _list_files(slices: Iterable[Slice]) -> tuple[list[_Wanted], int, int]:
    """Return the files of other machines, each once, and the number and size of local files."""
    wanted: dict[str, _Wanted] = {}
    local: dict[str, int] = {}
    for one in slices:
        proof = one.readable.proof
        if proof is None:
            continue
        files = one.readable.files(dict.fromkeys(part.split for part in one.plan))
        for name in dict.fromkeys(part.filename for part in one.plan):
            shard = proof.promises.find(name)
            if shard is None:
                continue
            if files.local_root is None:
                wanted.setdefault(shard.sha256, _Wanted(name, shard, files))
            else:
                local[files.locate(name)] = shard.num_bytes
    return list(wanted.values()), len(local), sum(local.values())


def _require_room(file_cache: FileCache, num_bytes: int) -> None:
    """Check that the cache may hold ``num_bytes`` before anything is fetched.

    Raises:
        UsageError: the cache is switched off.
        StorageError: the limit of the cache is lower, or other users can write to its folder.
    """
    limit = file_cache.usage().max_bytes
    if limit == 0:
        raise UsageError(
            "the cache is switched off: REGISTRY_CACHE_BYTES is 0", hint="Set REGISTRY_CACHE_BYTES, e.g. to 20GB."
        )
    if num_bytes > limit:
        error = StorageError(
            f"the files need {num_bytes:,} bytes, but the cache {file_cache.folder} is limited to {limit:,}",
            hint="Set REGISTRY_CACHE_BYTES to a larger number, or fetch a smaller slice.",
            details={"path": str(file_cache.folder), "num_bytes": num_bytes, "max_bytes": limit},
        )
        error.errno = errno.ENOSPC
        raise error
    if not file_cache.is_usable:
        file_cache.require_writable()  # says why


def _fetch(wanted: list[_Wanted], advance: Advance | None) -> None:
    """Read all files, several at a time. Missing blocks are fetched and cached; the others are verified."""
    stop, alone = Event(), Lock()

    def count(num_bytes: int) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        if advance is not None:
            with alone:
                advance(num_bytes)

    def fetch(one: _Wanted) -> None:
        for attempt in range(_TRIES):
            digest = hashlib.sha256()
            with one.files.open(one.name) as file:
                for piece in file.pieces():
                    digest.update(piece)
                    count(0 if attempt else len(piece))
            if digest.hexdigest() == one.shard.sha256:
                return
            one.files.forget(one.name)  # a block was damaged in transit
        path = one.files.locate(one.name)
        raise ShardMismatchError(
            f"{path}: sha256 mismatch: expected {one.shard.sha256}, found {digest.hexdigest()}",
            hint="It was damaged in transit, or the store returned wrong bytes. Fetch it again.",
            details={"path": path},
        )

    with choose_engine(num_bytes=None, is_local=False, is_unlocked=True) as engine:
        pieces = (Piece(fetch, file) for file in wanted)
        try:
            for _ in engine.run(pieces, doing="fetched files", failure=StorageError):
                pass
        finally:
            stop.set()  # after an error or Ctrl-C, the other threads end with their present piece
