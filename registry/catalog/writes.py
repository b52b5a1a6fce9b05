"""Publication in SQL: one transaction that writes every row of a version, or none.

The unique number in the ledger settles races: the second publisher waits for the first one, is rolled back, and then
reads what was published. A used number stays in the ledger, even if the version is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import count, islice
from typing import Any, Final
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from registry.catalog.attachments import insert_attachments, listed_attachments
from registry.catalog.configs import find_protection, keep_default, mark_default
from registry.catalog.events import append_event, check_clock, lock_log
from registry.catalog.experiments import current_defaults, insert_overrides
from registry.catalog.locations import require_data_dir
from registry.catalog.names import present_name, present_names
from registry.catalog.outcomes import Origin, Promotion, PublicationDetails, Unpromoted, former_name, refuse_protected
from registry.catalog.queries import find_neighbours, find_producers, find_version_id
from registry.catalog.reservations import has_content, require_free, use_up
from registry.catalog.rows import (
    TagsSeal,
    canonical_json,
    check_digest,
    check_text,
    fingerprint_seals,
    version_seal,
    version_values,
)
from registry.catalog.search import refresh
from registry.catalog.selection import NUMBER, lock_dataset, lock_reference
from registry.catalog.session import transact, write
from registry.catalog.tables import builder, builder_config, dataset_version, fingerprint, shard, split, version_ledger
from registry.catalog.values import DataDirectory, damaged, stored_values
from registry.errors import CatalogUnavailableError, ConflictError, NeighboursChangedError, UsageError
from registry.model import (
    DatasetVersion,
    FeatureFingerprint,
    NameUse,
    Producer,
    Reference,
    Shard,
    Split,
    SplitFingerprint,
    Version,
    check_continues,
    check_new_name,
    is_absolute,
)

_BATCH: Final = 10_000


WHOLE: Final = "registry.split/1"

BLOCK: Final = "registry.block/1"

ALGORITHMS: Final = (WHOLE, BLOCK)


_UNANSWERED: Final[WeakKeyDictionary[sa.Engine, dict[str, tuple[datetime, Promotion]]]] = WeakKeyDictionary()
"""By database, publications whose COMMIT got no answer: their time in the ledger, and what became canonical."""


def publish(
    engine: sa.Engine,
    version: DatasetVersion,
    shards: Mapping[str, tuple[Shard, ...]],
    *,
    promote: bool | None,
    default_config: bool = False,
    actor: str,
    details: PublicationDetails | None = None,
) -> Promotion | None:
    """See ``CatalogBackend.publish``."""
    details = details or PublicationDetails()
    origin, data_dir = details.origin, details.data_dir
    check_shards(version, shards)
    check_text(actor, "actor")
    published_by = actor if origin is None else check_text(origin.published_by, "publisher")
    values = version_values(version)
    canonical_json(dict(version.experiments))
    attachments = listed_attachments(details.attachments)
    committing: list[tuple[datetime, Promotion]] = []

    def action(connection: sa.Connection) -> Promotion | None:
        committing.clear()
        if has_content(connection, version.reference, version.content_digest):
            return _answer_again(connection, version, _UNANSWERED.get(engine, {}).get(str(version.reference)))
        check_new_name(version.name)
        now = check_clock(connection)
        config_id, builder_id = _ensure_config(connection, version, now)
        # From here on no other writer changes this dataset, so its neighbours stay the same.
        lock_dataset(connection, version.name)
        # Afterwards, because it may have been renamed until now; or this transaction has just used its former name.
        if (present := present_names(connection).get(version.name, version.name)) != version.name:
            raise former_name(version.name, present)
        _check_details(connection, version, details)
        # A rival for the same number waits here, before it does the work.
        _reserve_number(connection, version, published_by, now)
        row = {
            **values,
            "config_id": config_id,
            "published_at": now if origin is None else origin.published_at,
            "published_by": published_by,
        }
        version_id = _insert_version(connection, version, row, shards, details.fingerprints)
        insert_attachments(connection, version_id, details.attachments, at=now, actor=actor)
        # Flags, protections and the data directory cannot change until this event is appended.
        lock_log(connection)
        if data_dir is not None:
            require_data_dir(connection, data_dir, actor=actor)
        implied = details.experiment_defaults
        experiments = {**(current_defaults(connection) if implied is None else implied), **version.experiments}
        state = version.state.value
        promotion = _decide_promotion(connection, version, config_id, promote=promote)
        former = mark_default(connection, builder_id, config_id) if default_config or version.config is None else None
        if former is not None:
            keep_default(connection, version.name, former)
        if promotion.reason is None:
            chosen = sa.update(builder_config).where(builder_config.c.id == config_id)
            connection.execute(chosen.values(canonical_version_id=version_id))
        refresh(connection, config_id)
        append_event(
            connection,
            "publish",
            version.reference,
            {
                "content_digest": version.content_digest,
                "default_config": default_config,
                "num_examples": version.num_examples,
                "promote": promotion.reason is None,
                "seal": version_seal(row, map(_split_values, version.splits, count()), version.experiments),
                "fingerprints": fingerprint_seals(details.fingerprints),
                **_complete_location(version, data_dir),
                **_tags_details(version, shards),
                **({"experiments": experiments} if experiments else {}),
                **({"state": state, "message": version.state_message} if state != "supported" else {}),
                **({} if version.superseded_by is None else {"superseded_by": str(version.superseded_by)}),
                **({} if origin is None else {"imported_from": _told_origin(origin)}),
                **({} if details.producer is None else {"producer": details.producer.to_json()}),
                **attachments,
            },
            actor=actor,
            rows_at=now,
        )
        if origin is not None:
            _import_events(connection, version, origin, actor=actor)
            _set_aliases(connection, version, origin, config_id=config_id, version_id=version_id, actor=actor)
        committing.append((now, promotion))
        return promotion

    try:
        result = write(engine, action)
    except CatalogUnavailableError:
        if committing:
            _UNANSWERED.setdefault(engine, {})[str(version.reference)] = committing[0]
        raise
    _UNANSWERED.get(engine, {}).pop(str(version.reference), None)
    return result


def _answer_again(
    connection: sa.Connection, version: DatasetVersion, unanswered: tuple[datetime, Promotion] | None
) -> Promotion | None:
    """The promotion of a publication by this catalog whose COMMIT got no answer; None if another one published."""
    if unanswered is None:
        return None
    is_number = (version_ledger.c[name] == value for name, value in _number(version).items())
    used_at = connection.execute(sa.select(version_ledger.c.used_at).where(*is_number)).scalar_one()
    return unanswered[1] if used_at == unanswered[0] else None


def add_producer(engine: sa.Engine, exactly: Reference, producer: Producer, name_use: NameUse, *, actor: str) -> None:
    """See ``CatalogBackend.add_producer``."""

    def action(connection: sa.Connection) -> None:
        reference = lock_reference(connection, exactly)
        earlier = find_producers(connection, reference.name, reference.config)
        check_continues(name_use, producer, earlier)
        if dict(earlier).get(reference) != producer:
            append_event(connection, "producer", reference, producer.to_json(), actor=actor)

    transact(engine, action, actor=actor)


def fingerprints(connection: sa.Connection, version: DatasetVersion) -> dict[str, SplitFingerprint]:
    """See ``CatalogBackend.fingerprints``."""
    version_id = find_version_id(connection, version.name, version.config, version.version)
    return {} if version_id is None else load_fingerprints(connection, version_id)


def add_fingerprints(
    engine: sa.Engine, version: DatasetVersion, fingerprints: Mapping[str, SplitFingerprint], *, actor: str
) -> bool:
    """See ``CatalogBackend.add_fingerprints``."""

    def action(connection: sa.Connection) -> bool:
        version_id = find_version_id(connection, version.name, version.config, version.version)
        if version_id is None:
            return False
        reference = lock_reference(connection, version.reference)
        if load_fingerprints(connection, version_id):
            return False
        rows = connection.execute(sa.select(split.c.name, split.c.id).where(split.c.version_id == version_id))
        split_ids: dict[str, int] = dict(map(tuple, rows))
        for name, digest in fingerprints.items():
            insert_fingerprint(connection, split_ids[name], digest)
        append_event(connection, "fingerprint", reference, fingerprint_seals(fingerprints), actor=actor)
        return True

    return transact(engine, action, actor=actor)


def _complete_location(version: DatasetVersion, data_dir: DataDirectory | None) -> dict[str, str]:
    """Where the files were when the version was published, for the event: the data directory may be moved later."""
    if is_absolute(version.location):
        return {"location": version.location}
    return {} if data_dir is None else {"location": f"{data_dir.place.rstrip('/')}/{version.location}"}


def _tags_details(version: DatasetVersion, shards: Mapping[str, tuple[Shard, ...]]) -> dict[str, str]:
    """How the event of a publication seals the ETags of shards, if the store has some."""
    seal = TagsSeal()
    for part in version.splits:
        seal.start_split(part.name)
        seal.add(stored.entity_tag for stored in shards[part.name])
    digest = seal.hexdigest()
    return {} if digest is None else {"entity_tags": digest}


def _told_origin(origin: Origin) -> dict[str, str]:
    """How the event of a publication names the catalog that the version comes from."""
    return {
        "catalog": origin.catalog,
        "published_at": origin.published_at.astimezone(UTC).isoformat(timespec="microseconds"),
        "published_by": origin.published_by,
    }


def _import_events(connection: sa.Connection, version: DatasetVersion, origin: Origin, *, actor: str) -> None:
    """Append what the log of another catalog tells of a version. Replaying the log of this one ignores these events."""
    for event in origin.events:
        told = {name: getattr(event, name) for name in ("id", "actor", "action", "recorded_by", "hash")}
        # The place of a source stays in the catalog that recorded it: it may be a path of a private machine.
        details = {name: value for name, value in event.details.items() if name != "producer"}
        told |= {"at": event.at.astimezone(UTC).isoformat(timespec="microseconds"), "details": details}
        imported = {"catalog": origin.catalog, "event": told}
        append_event(connection, "imported", version.reference, imported, actor=actor)


def _set_aliases(
    connection: sa.Connection, version: DatasetVersion, origin: Origin, *, config_id: int, version_id: int, actor: str
) -> None:
    """Set the aliases that point to the version in another catalog. Those that exist here stay as they are."""
    from registry.catalog.aliases import set_missing  # most publications do without it

    for name in origin.aliases:
        set_missing(
            connection,
            Reference(name=version.name, config=version.config, alias=name),
            config_id,
            version_id,
            version.version,
            actor=actor,
            message=f"copied from {origin.catalog}",
        )


def _decide_promotion(
    connection: sa.Connection, version: DatasetVersion, config_id: int, *, promote: bool | None
) -> Promotion:
    """Whether the version that is being published becomes the canonical one of its config.

    Raises:
        ProtectedError: ``promote`` is True, and its scope is protected.
    """
    row = connection.execute(
        sa.select(*NUMBER)
        .join_from(builder_config, dataset_version, dataset_version.c.id == builder_config.c.canonical_version_id)
        .where(builder_config.c.id == config_id)
    ).first()
    before = None if row is None else Version(*row)
    if promote is False:
        return Promotion(before=before, after=before, reason=Unpromoted.NOT_ASKED)
    scope = find_protection(connection, version.name, version.config)
    if scope is not None:
        if promote:
            raise refuse_protected(version.reference, scope)
        return Promotion(before=before, after=before, reason=Unpromoted.PROTECTED, protected=scope)
    # A yanked canonical version counts until another one is promoted.
    if promote is None and before is not None and version.version < before:
        return Promotion(before=before, after=before, reason=Unpromoted.LOWER)
    return Promotion(before=before, after=version.version)


def _check_details(connection: sa.Connection, version: DatasetVersion, details: PublicationDetails) -> None:
    """Check what must hold while the version is written; its reservation ends."""
    if details.held is not None:
        use_up(connection, *details.held)
    if details.unreserved is not None:
        require_free(connection, details.unreserved, version.content_digest)
    if details.producer is not None and details.name_use is not None:
        check_continues(details.name_use, details.producer, find_producers(connection, version.name, version.config))
    between = details.proved_between
    if between is not None and find_neighbours(connection, version.name, version.config, version.version) != between:
        raise NeighboursChangedError(
            f"an adjacent version was published before {version.reference}",
            hint="The number must be compared with it too. Publish again.",
        )


def check_shards(version: DatasetVersion, shards: Mapping[str, tuple[Shard, ...]]) -> None:
    """Refuse shards that do not match the splits of ``version``.

    Raises:
        UsageError: a split without shards, shards without a split, or a wrong order, count or sha256.
    """
    if set(shards) != {part.name for part in version.splits}:
        raise UsageError(
            f"{version.reference}: shards are given for {sorted(shards)}, "
            f"its splits are {sorted(part.name for part in version.splits)}"
        )
    for part in version.splits:
        given = shards[part.name]
        if len(given) != part.num_shards:
            raise UsageError(f"{version.reference} {part.name}: {len(given)} shards are given for {part.num_shards}")
        for index, (stored, length) in enumerate(zip(given, part.shard_lengths, strict=True)):
            expected = (index, part.shard_lengths.start(index), length)
            if (stored.index, stored.first_example, stored.num_examples) != expected:
                raise UsageError(
                    f"{version.reference} {part.name}: shard {index} does not fit the split's shard lengths",
                    details={"given": [stored.index, stored.first_example, stored.num_examples], "split": expected},
                )
            if not 0 <= stored.num_bytes < 2**63:
                raise UsageError(f"{version.reference} {part.name}: shard {index} has {stored.num_bytes} bytes")
            check_digest(stored.sha256, f"sha256 of shard {index} of {part.name}")


def _insert_version(
    connection: sa.Connection,
    version: DatasetVersion,
    row: Mapping[str, Any],
    shards: Mapping[str, tuple[Shard, ...]],
    fingerprints: Mapping[str, SplitFingerprint],
) -> int:
    """Write the rows of the version, its splits, shards, fingerprints and experiments; returns its id."""
    version_id = _insert_row(connection, dataset_version, row)
    for position, part in enumerate(version.splits):
        split_id = _insert_row(connection, split, {"version_id": version_id, **_split_values(part, position)})
        _insert_shards(connection, split_id, shards[part.name])
        if part.name in fingerprints:
            insert_fingerprint(connection, split_id, fingerprints[part.name])
    insert_overrides(connection, version_id, version.experiments)
    return version_id


def _ensure_config(connection: sa.Connection, version: DatasetVersion, now: datetime) -> tuple[int, int]:
    """The ids of the config and of the builder; missing rows are created."""
    has_configs = version.config is not None
    _insert_once(connection, builder, {"name": version.name, "has_configs": has_configs, "created_at": now})
    query = sa.select(builder.c.id, builder.c.has_configs).where(builder.c.name == version.name)
    row = connection.execute(query).first()
    if row is None:  # a rival has renamed it since the insert
        raise former_name(version.name, present_name(connection, version.name))
    if row.has_configs != has_configs:
        raise ConflictError(
            f"{version.name} is published {'with' if row.has_configs else 'without'} configs, "
            f"{version.reference} comes {'with' if has_configs else 'without'} one",
            hint="A reference without a config would change its meaning. Publish it under another dataset name.",
            details={"dataset": version.name, "has_configs": row.has_configs},
        )
    config = {"builder_id": row.id, "name": version.config or "", "is_default": False, "created_at": now}
    _insert_once(connection, builder_config, config)
    config_id: int = connection.execute(
        sa.select(builder_config.c.id).where(
            builder_config.c.builder_id == row.id, builder_config.c.name == config["name"]
        )
    ).scalar_one()
    return config_id, row.id


def _number(version: DatasetVersion) -> dict[str, Any]:
    """The key of a version in the ledger."""
    parts = zip(("major", "minor", "patch"), version.version.parts, strict=True)
    return {"builder_name": version.name, "config_name": version.config or "", **dict(parts)}


def _reserve_number(connection: sa.Connection, version: DatasetVersion, actor: str, now: datetime) -> None:
    use = {"content_digest": version.content_digest, "used_at": now, "used_by": actor}
    connection.execute(sa.insert(version_ledger).values(**_number(version), **use))


def _split_values(part: Split, position: int) -> dict[str, Any]:
    return {
        "position": position,
        "name": part.name,
        "num_examples": part.num_examples,
        "num_bytes": part.num_bytes,
        "num_shards": part.num_shards,
        "filename_dataset": part.files.dataset,
        "filename_template": check_text(part.files.template, "file template"),
        "filename_format": check_text(part.files.file_format, "file format"),
    }


def _insert_shards(connection: sa.Connection, split_id: int, shards: tuple[Shard, ...]) -> None:
    """Insert in batches on SQLite, by COPY on PostgreSQL: a million rows in bounded memory."""
    rows = ((split_id, s.index, s.first_example, s.num_examples, s.num_bytes, s.sha256, s.entity_tag) for s in shards)
    if connection.dialect.name == "postgresql":
        from registry.catalog.postgres import copy_rows

        copy_rows(connection, shard.name, shard.columns.keys(), rows)
        return
    # Compiled once and run with tuples, in half the time of one dict for each row.
    statement = str(sa.insert(shard).compile(dialect=connection.dialect))
    while batch := list(islice(rows, _BATCH)):
        connection.exec_driver_sql(statement, batch)


def _insert_row(connection: sa.Connection, table: sa.Table, values: Mapping[str, Any]) -> int:
    key = connection.execute(sa.insert(table).values(**values)).inserted_primary_key
    if key is None:
        raise AssertionError("an insert into a table with an integer key returns the key")
    return int(key[0])


def _insert_once(connection: sa.Connection, table: sa.Table, values: Mapping[str, Any]) -> None:
    """Insert a row unless its unique name exists; waits for a rival that is writing it."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql  # it takes 30 ms, which look-ups in SQLite avoid

        connection.execute(postgresql.insert(table).values(**values).on_conflict_do_nothing())
    else:
        connection.execute(sqlite.insert(table).values(**values).on_conflict_do_nothing())


def insert_fingerprint(connection: sa.Connection, split_id: int, split_fingerprint: SplitFingerprint) -> None:
    """Store the fingerprint of one split in batches, because many features have very many blocks."""
    rows = _rows(split_id, split_fingerprint)
    while batch := list(islice(rows, _BATCH)):
        connection.execute(sa.insert(fingerprint), batch)


def load_fingerprints(connection: sa.Connection, version_id: int) -> dict[str, SplitFingerprint]:
    """The fingerprint of each split of a version, by name; empty if none is stored.

    Raises:
        CatalogError: the rows do not form a fingerprint.
    """
    columns = [fingerprint.c[name] for name in ("feature", "algorithm", "first_example", "num_examples", "digest")]
    query = (
        sa.select(split.c.name, split.c.num_examples.label("split_examples"), *columns)
        .join_from(split, fingerprint, fingerprint.c.split_id == split.c.id)
        .where(split.c.version_id == version_id, fingerprint.c.algorithm.in_(ALGORITHMS))
        .order_by(split.c.position, fingerprint.c.feature, fingerprint.c.algorithm, fingerprint.c.first_example)
    )
    stored: dict[str, list[tuple[Any, ...]]] = {}
    blocks: dict[tuple[str, str], list[str]] = {}
    lengths: dict[str, int] = {}
    result = {}
    with stored_values():
        for name, num_examples, *values in connection.execute(query):
            lengths[name] = num_examples
            stored.setdefault(name, []).append(tuple(values))
            feature, algorithm, _, _, digest = values
            check_digest(digest, "fingerprint")
            if algorithm == BLOCK:
                blocks.setdefault((name, feature), []).append(digest)
        for name, rows in stored.items():
            result[name] = SplitFingerprint(
                num_examples=lengths[name],
                features={
                    path: FeatureFingerprint(digest=digest, blocks=tuple(blocks.get((name, path), ())))
                    for path, algorithm, _, _, digest in rows
                    if path and algorithm == WHOLE
                },
            )
            expected = [tuple(row.values())[1:] for row in _rows(0, result[name])]
            if sorted(rows) != sorted(expected):
                raise damaged(f"the fingerprints of split {name!r} contradict each other")
    return result


def _rows(split_id: int, split_fingerprint: SplitFingerprint) -> Iterator[dict[str, Any]]:
    digests: Mapping[str, str] = {
        "": split_fingerprint.digest,
        **{path: inner.digest for path, inner in split_fingerprint.features.items()},
    }
    for path, digest in digests.items():
        yield _row(split_id, path, WHOLE, range(split_fingerprint.num_examples), digest)
    for path, feature in split_fingerprint.features.items():
        for index, digest in enumerate(feature.blocks):
            yield _row(split_id, path, BLOCK, split_fingerprint.block(index), digest)


def _row(split_id: int, path: str, algorithm: str, records: range, digest: str) -> dict[str, Any]:
    return {
        "split_id": split_id,
        "feature": check_text(path, "feature's path"),
        "algorithm": algorithm,
        "first_example": records.start,
        "num_examples": len(records),
        "digest": check_digest(digest, "fingerprint"),
    }
