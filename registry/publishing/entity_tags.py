"""What does an object store call the bytes that are published? Asked for just before the row is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from registry.model import Shard, Split
from registry.processes import call_in_threads
from registry.storage import Store

_THREADS: Final = 8


def tag_shards(
    store: Store, splits: Sequence[Split], shards: Mapping[str, Sequence[Shard]]
) -> dict[str, tuple[Shard, ...]]:
    """``shards`` of ``splits`` with the ETag that each file has in ``store``; on disks, which have none, as they are.

    A reader whose store still gives that ETag knows that the bytes are the published ones.

    Raises:
        StorageError: a file is not there, or the store does not answer.
    """
    if store.local_root is not None:
        return {name: tuple(found) for name, found in shards.items()}
    tagged = {}
    for split in splits:
        names = [split.filename(shard.index) for shard in shards[split.name]]
        tags = call_in_threads(store.entity_tag, names, threads=_THREADS)
        tagged[split.name] = tuple(
            replace(shard, entity_tag=tag) for shard, (_, tag) in zip(shards[split.name], tags, strict=True)
        )
    return tagged
