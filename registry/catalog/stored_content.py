"""Recomputes the content of versions from their rows, to compare it with what was published."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.rows import TagsSeal
from registry.catalog.tables import shard, split
from registry.model import Advance, ContentHasher

_SHARDS: Final = 20_000
"""Number of shards that one query reads."""


@dataclass(slots=True)
class StoredContent:
    """The content of one version, recomputed from its rows.

    ``splits`` are the rows of its splits; ``contradictory`` names the splits whose counts do not match their shards.
    """

    hasher: ContentHasher
    tags: TagsSeal = field(default_factory=TagsSeal)
    splits: list[Any] = field(default_factory=list)
    num_shards: int = 0
    contradictory: list[str] = field(default_factory=list)


def recompute_contents(connection: sa.Connection, rows: Sequence[Any], advance: Advance) -> dict[int, StoredContent]:
    """The content of each row of ``dataset_version``, by its id; many small versions need three queries together."""
    contents = {
        row.id: StoredContent(
            ContentHasher(
                features_json=row.features_json,
                labels=json.loads(row.labels_json),
                file_format=row.file_format,
                slicing=row.slicing,
                disable_shuffling=bool(row.disable_shuffling),
            )
        )
        for row in rows
    }
    splits = connection.execute(
        # The ids of the splits of a version are in order, because they were inserted in order.
        sa.select(split).where(split.c.version_id.in_(list(contents))).order_by(split.c.id)
    ).all()
    stored = groupby(_shards(connection, splits), key=attrgetter("split_id"))
    waiting = next(stored, None)
    for part in splits:
        content = contents[part.version_id]
        is_whole = part.position == len(content.splits)
        num_shards = num_examples = 0
        content.hasher.start_split(part.name)
        content.tags.start_split(part.name)
        if waiting is not None and waiting[0] == part.id:
            batch = []
            for row in waiting[1]:
                content.tags.add((row.entity_tag,))
                is_whole = is_whole and (row.shard_index, row.first_example) == (num_shards, num_examples)
                batch.append((row.num_examples, row.num_bytes, row.sha256))
                num_shards, num_examples = num_shards + 1, num_examples + row.num_examples
                if len(batch) == _SHARDS:
                    content.hasher.add(batch)
                    batch = []
            content.hasher.add(batch)
            waiting = next(stored, None)
        if not is_whole or (num_shards, num_examples) != (part.num_shards, part.num_examples):
            content.contradictory.append(part.name)
        content.splits.append(part)
        content.num_shards += num_shards
        advance(num_shards)
    return contents


def _shards(connection: sa.Connection, splits: Any) -> Iterator[Any]:
    """The shards of ``splits``, by split and number: small splits together, each query at most ``_SHARDS`` rows."""
    group: list[int] = []
    size = 0
    for part in splits:
        if group and size + part.num_shards > _SHARDS:
            yield from _shards_of(connection, group)
            group, size = [], 0
        group.append(part.id)
        size += part.num_shards
    if group:
        yield from _shards_of(connection, group)


def _shards_of(connection: sa.Connection, group: list[int]) -> Iterator[Any]:
    of_group = shard.c.split_id == group[0] if len(group) == 1 else shard.c.split_id.in_(group)
    query = sa.select(shard).where(of_group).order_by(shard.c.split_id, shard.c.shard_index).limit(_SHARDS)
    rows = connection.execute(query).all()
    while rows:
        yield from rows
        if len(rows) < _SHARDS:
            return
        after = sa.tuple_(shard.c.split_id, shard.c.shard_index) > sa.tuple_(
            sa.literal(rows[-1].split_id), sa.literal(rows[-1].shard_index)
        )
        rows = connection.execute(query.where(after)).all()
