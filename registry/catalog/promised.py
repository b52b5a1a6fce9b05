"""What does the catalog promise of the files of a version? Looked up by name, some hundred shards at a time.

A reader opens few of a million shards, so the rows are loaded when the first of a block is asked for, and kept: of a
shard some 50 bytes. Published rows never change.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from registry.catalog import queries
from registry.catalog.rows import damaged
from registry.catalog.session import reading
from registry.errors import SplitNotFoundError
from registry.model import DatasetVersion, Shard, Split

_BLOCK: Final = 512
"""Shards of a block: few enough that reading them costs little more than the query around it."""
_DIGEST_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class _Block:
    """What the rows of some shards that follow each other say; ``tags`` is empty where none has an ETag."""

    sizes: array[int]
    digests: bytes
    tags: tuple[str | None, ...]

    @classmethod
    def of(cls, shards: Sequence[Shard]) -> _Block:
        tags = tuple(shard.entity_tag for shard in shards)
        return cls(
            sizes=array("q", (shard.num_bytes for shard in shards)),
            digests=b"".join(bytes.fromhex(shard.sha256) for shard in shards),
            tags=tags if any(tags) else (),
        )


class PublishedShards:
    """The promises of a published version (``registry.model.Promises``). Threads may share it; a fork may inherit it.

    Pickled, it holds what the rows of all shards of its splits say, and asks no catalog any more.

    Raises, wherever rows are loaded:
        SplitNotFoundError: the version is of another catalog.
        CatalogError: a row is damaged.
        CatalogUnavailableError: locked, not answering, or refusing the connection.
    """

    def __init__(self, engine: sa.Engine, version: DatasetVersion, splits: Sequence[Split]) -> None:
        self._engine: sa.Engine | None = engine
        self._version: DatasetVersion | None = version
        self._splits = tuple(splits)
        self._blocks: dict[tuple[str, int], _Block] = {}

    def find(self, name: str) -> Shard | None:
        """What was promised of the file ``name``; None where it is no shard of these splits."""
        for split in self._splits:
            parsed = split.files.parse(name)
            if parsed is None:
                continue
            index = parsed[1]
            if index < split.num_shards and split.filename(index) == name:
                return self._shard(split, index)
        return None

    def within(self, splits: Collection[str]) -> PublishedShards:
        """The promises of some splits, with what is loaded of them."""
        chosen = PublishedShards.__new__(PublishedShards)
        chosen._engine, chosen._version, chosen._blocks = self._engine, self._version, self._blocks
        chosen._splits = tuple(split for split in self._splits if split.name in splits)
        return chosen

    def _shard(self, split: Split, index: int) -> Shard:
        number, place = divmod(index, _BLOCK)
        block = self._block(split, number)
        return Shard(
            index=index,
            first_example=split.shard_lengths.start(index),
            num_examples=split.shard_lengths[index],
            num_bytes=block.sizes[place],
            sha256=block.digests[place * _DIGEST_BYTES : (place + 1) * _DIGEST_BYTES].hex(),
            entity_tag=block.tags[place] if block.tags else None,
        )

    def _block(self, split: Split, number: int) -> _Block:
        found = self._blocks.get((split.name, number))
        if found is None:  # two threads at worst load the same one
            found = self._blocks[split.name, number] = self._load(split, number)
        return found

    def _load(self, split: Split, number: int) -> _Block:
        if self._engine is None or self._version is None:
            raise damaged(f"the shards of split {split.name!r} were not sent along")
        first, stop = number * _BLOCK, min((number + 1) * _BLOCK, split.num_shards)
        with reading(self._engine) as connection:
            shards = queries.load_some_shards(connection, self._version, split.name, first=first, stop=stop)
        if [shard.index for shard in shards] != list(range(first, stop)):
            raise SplitNotFoundError(
                f"the catalog does not hold the shards of {self._version.reference} {split.name}",
                hint="The version comes from another catalog. Look it up in this one.",
                details={"name": split.name},
            )
        return _Block.of(shards)

    def __getstate__(self) -> dict[str, Any]:
        for split in self._splits:
            for number in range(-(-split.num_shards // _BLOCK)):
                self._block(split, number)
        return {"_engine": None, "_version": None, "_splits": self._splits, "_blocks": self._blocks}
