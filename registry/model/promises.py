"""What was promised of a file that is about to be read? Its size, number of records and sha256, by its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from registry.model.split import Shard, Split


class Promises(Protocol):
    """What a catalog or a pin promises of files. It is sent to other processes along with what reads them."""

    def find(self, name: str) -> Shard | None:
        """What was promised of the file ``name``; None of a file that is no shard, such as a description."""


class KnownShards:
    """The promises of some files that are known one by one, such as those of a pin."""

    def __init__(self, shards: Mapping[str, Shard]) -> None:
        """``shards`` by the names of their files."""
        self._shards = dict(shards)

    @classmethod
    def of_splits(cls, splits: Iterable[Split], shards: Mapping[str, Iterable[Shard]]) -> KnownShards:
        """The promises of all ``shards`` of ``splits``, by the splits' names."""
        return cls({split.filename(shard.index): shard for split in splits for shard in shards[split.name]})

    def find(self, name: str) -> Shard | None:
        """What was promised of the file ``name``, or None."""
        return self._shards.get(name)
