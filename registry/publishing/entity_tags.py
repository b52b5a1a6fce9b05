"""What does an object store call the very bytes that are published? A reader whose store still says so trusts them.

An ETag proves no more than that an object was not replaced since. So each is one of bytes that were hashed or copied:
what the store says when the row is written may be the ETag of an object that somebody put there meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from registry.errors import NotStoredError
from registry.model import Shard, Split
from registry.processes import call_in_threads
from registry.storage import Store

_THREADS: Final = 8


def read_tags(store: Store, splits: Sequence[Split]) -> dict[str, str | None]:
    """By file name, the present ETag of each shard in ``store``; nothing on disks, which have none.

    Raises:
        StorageError: the store does not answer.
    """
    if store.local_root is not None:
        return {}

    def read(name: str) -> str | None:
        try:
            return store.entity_tag(name)
        except NotStoredError:
            return None

    names = [name for split in splits for name in split.filenames]
    return dict(zip(names, (tag for _, tag in call_in_threads(read, names, threads=_THREADS)), strict=True))


def tag_shards(
    splits: Sequence[Split], shards: Mapping[str, Sequence[Shard]], tags: Mapping[str, str | None]
) -> dict[str, tuple[Shard, ...]]:
    """``shards`` of ``splits`` with the ETags that ``tags`` has by file name; the others have none."""
    return {
        split.name: tuple(
            replace(shard, entity_tag=tags.get(split.filename(shard.index))) if tags else shard
            for shard in shards[split.name]
        )
        for split in splits
    }
