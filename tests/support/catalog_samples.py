"""Synthetic dataset versions for catalog tests, and a plain connection to a catalog's database."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import psycopg
import sqlalchemy as sa

from registry.catalog import CatalogBackend, EventFilter, events, sqlite_path, stream_events
from registry.catalog.guards import IMMUTABLE
from registry.catalog.session import write
from registry.model import (
    DatasetMetadata,
    DatasetVersion,
    Event,
    Reference,
    Shard,
    ShardedFileTemplate,
    ShardLengths,
    SlicingRule,
    Split,
    content_digest,
)

Shards = Mapping[str, tuple[Shard, ...]]

FEATURES = '{"featuresDict":{"features":{"label":{"classLabel":{"numClasses":"10"}}}}}'


def sample(
    reference: str,
    lengths: Mapping[str, Sequence[int]] | None = None,
    *,
    content: str = "",
    **changes: Any,
) -> tuple[DatasetVersion, Shards]:
    """The version that ``reference`` names exactly, and its shards; other ``content`` gives other sha256."""
    parsed = Reference.parse(reference)
    version = parsed.request.exact if parsed.request else None
    assert version is not None
    splits = []
    shards = {}
    for name, counts in (lengths or {"train": [3, 0, 4], "test": [2]}).items():
        files = ShardedFileTemplate(dataset=parsed.name)
        splits.append(Split(name=name, shard_lengths=ShardLengths(counts), num_bytes=100 * sum(counts), files=files))
        shards[name] = make_shards(counts, f"{name} {content}")
    made = DatasetVersion(
        name=parsed.name,
        config=parsed.config,
        version=version,
        splits=tuple(splits),
        features_json=FEATURES,
        location=f"{parsed.dataset}/{version}",
        content_digest=content_digest(
            features_json=FEATURES,
            labels={},
            file_format="tfrecord",
            slicing=SlicingRule.DOCUMENTED,
            disable_shuffling=False,
            splits=tuple(splits),
            shards=shards,
        ),
        metadata=DatasetMetadata(description=f"About {parsed.name}.", release_notes={str(version): "As it is."}),
    )
    return dataclasses.replace(made, **changes), shards


def make_shards(counts: Sequence[int], seed: str) -> tuple[Shard, ...]:
    starts = ShardLengths(counts)
    return tuple(
        Shard(
            index=index,
            first_example=starts.start(index),
            num_examples=count,
            num_bytes=17 * count,
            sha256=hashlib.sha256(f"{seed} {index}".encode()).hexdigest(),
        )
        for index, count in enumerate(counts)
    )


def publish(catalog: CatalogBackend, reference: str, **options: Any) -> DatasetVersion:
    """Publish a sample and return it.

    ``promote`` and ``default_config`` are passed to the catalog, others to ``sample``.

    Experiments that it overrides are added first.
    """
    promote, default_config = options.pop("promote", True), options.pop("default_config", False)
    version, shards = sample(reference, **options)
    for name in set(version.experiments) - {known.name for known in catalog.experiments.list()}:
        catalog.experiments.add(name, f"About {name}.", actor="ann")
    assert catalog.publish(version, shards, promote=promote, default_config=default_config, actor="ann")
    return version


def logged(catalog: CatalogBackend, *, limit: int | None = None, **wanted: Any) -> Iterator[Event]:
    """The events of a catalog, the oldest first; options as of ``EventFilter``."""
    return stream_events(catalog.log, EventFilter(**wanted), limit=limit)


def append(catalog: CatalogBackend, action: str, dataset: str, version: str, **details: Any) -> None:
    """Append an event as the registry does."""

    def append_(connection: sa.Connection) -> None:
        about: Any = SimpleNamespace(dataset=dataset, exact=version or None)  # also of names that no reference has
        events.append_event(connection, action, about, details, actor="ann")

    write(catalog._engine, append_)


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement directly on the database, bypassing the registry, and commit."""
    path = sqlite_path(url)
    if path is None:
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []
    stranger = sqlite3.connect(path)
    try:
        with stranger:
            return stranger.execute(statement).fetchall()
    finally:
        stranger.close()


def told_details(stored: str) -> dict[str, Any]:
    """The details of an event that the caller passed, without those of every event."""
    details: dict[str, Any] = json.loads(stored)
    recorded_by = details.pop("@recorded_by")
    assert "@" in recorded_by or recorded_by.startswith("token ")
    assert isinstance(details.pop("@session_user", ""), str)
    details.pop("@rows_at", None)
    return details


def damage(url: str, statement: str) -> None:
    """Change published rows illegally, while their triggers are switched off."""
    path = sqlite_path(url)
    if path is None:
        with psycopg.connect(url) as connection:
            for table in IMMUTABLE:
                connection.execute(f"ALTER TABLE IF EXISTS {table.name} DISABLE TRIGGER USER")
            connection.execute(statement)
            for table in IMMUTABLE:
                connection.execute(f"ALTER TABLE IF EXISTS {table.name} ENABLE TRIGGER USER")
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as stranger:
        triggers = stranger.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            stranger.execute(f"DROP TRIGGER {name}")
        stranger.execute("PRAGMA ignore_check_constraints=ON")
        stranger.execute(statement)
        for _, sql in triggers:
            stranger.execute(sql)
