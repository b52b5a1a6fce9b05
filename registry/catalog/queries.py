"""What is in the catalog? Look-ups over one connection, rows in, frozen values out.

``find_version`` is two queries, the version and its splits; see ``load_splits`` for the lengths of their shards.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.configs import is_protected
from registry.catalog.rows import (
    damaged,
    decode_metadata,
    json_agg,
    read_canonical,
    read_json,
    read_number,
    read_version,
    stored_values,
)
from registry.catalog.selection import (
    CANONICAL_NUMBER,
    IS_WITHDRAWN,
    NUMBER,
    canonical_version,
    explain_dataset,
    explain_refusal,
    load_standing,
    meant_config,
    named_config,
    version_query,
)
from registry.catalog.stored_lengths import StoredShardLengths
from registry.catalog.tables import builder, builder_config, dataset_version, shard, split, version_ledger
from registry.catalog.values import DatasetSummary, VersionSummary
from registry.errors import SplitNotFoundError, VersionExistsError
from registry.model import (
    DatasetVersion,
    Reference,
    Shard,
    ShardedFileTemplate,
    ShardLengths,
    Split,
    Version,
    VersionState,
    choose,
)

_BLOCK: Final = 20_000
_DIGESTS: Final = 500
_EAGER: Final = 4096
"""The most shards of a split whose lengths come with it: these cost what the queries of one slice cost otherwise."""


def find_version(connection: sa.Connection, reference: Reference) -> DatasetVersion:
    """The version that ``reference`` names.

    Raises:
        DatasetNotFoundError, ConfigNotFoundError, VersionNotFoundError, AliasNotFoundError: see ``not_found``.
    """
    with stored_values():
        row = connection.execute(version_query(reference)).first()
    if row is None or _is_refused(reference, row):
        raise explain_refusal(choose(load_standing(connection, reference.name, reference.config), reference))
    with stored_values():
        return read_version(row, load_splits(connection, row.id))


def load_version(connection: sa.Connection, exactly: Reference) -> DatasetVersion | None:
    """The version that an exact reference names, in any state, or None."""
    with stored_values():
        row = connection.execute(version_query(exactly)).first()
        return None if row is None else read_version(row, load_splits(connection, row.id))


def _is_refused(reference: Reference, row: sa.Row[*tuple[Any, ...]]) -> bool:
    """Whether the version found may not be read this way: dropped, or yanked and nobody named it."""
    unasked = reference.request is None and reference.alias is None
    return row.state == VersionState.DROPPED or (row.state == VersionState.YANKED and unasked)


def load_splits(connection: sa.Connection, version_id: int) -> list[Split]:
    """The splits of a version in order: one query, a row a split.

    The lengths of few shards come with their split; those of more than ``_EAGER`` are loaded when they are asked for.
    """
    in_order = (
        sa.select(shard.c.num_examples)
        .where(shard.c.split_id == split.c.id)
        .order_by(shard.c.shard_index)
        .correlate(split)
        .subquery("in_order")
    )
    lengths = sa.case((split.c.num_shards <= _EAGER, sa.select(json_agg(in_order.c.num_examples)).scalar_subquery()))
    query = (
        sa.select(split, lengths.label("lengths")).where(split.c.version_id == version_id).order_by(split.c.position)
    )
    return [_read_split(row, connection.engine) for row in connection.execute(query)]


def load_shards(connection: sa.Connection, version: DatasetVersion, split_name: str) -> tuple[Shard, ...]:
    """The shards of one split, in order.

    Raises:
        SplitNotFoundError: the version has no such split.
    """
    name = version.split(split_name).name
    rows = connection.execute(_shards_query(version, name), execution_options={"yield_per": _BLOCK})
    shards = tuple(_read_shard(row) for row in rows)
    if len(shards) != version.split(name).num_shards:
        raise SplitNotFoundError(
            f"the catalog does not hold the shards of {version.reference} {name}",
            hint="The version comes from another catalog. Look it up in this one.",
            details={"name": name},
        )
    return shards


def load_some_shards(
    connection: sa.Connection, version: DatasetVersion, split_name: str, *, first: int, stop: int
) -> tuple[Shard, ...]:
    """The shards ``first``..``stop`` (stop excluded) of a split, in order, as many of them as there are."""
    of_range = sa.and_(shard.c.shard_index >= first, shard.c.shard_index < stop)
    with stored_values():
        return tuple(map(_read_shard, connection.execute(_shards_query(version, split_name).where(of_range))))


def _shards_query(version: DatasetVersion, split_name: str) -> sa.Select[Any]:
    # A subquery, for the reason that stored_lengths.py gives.
    split_id = (
        sa.select(split.c.id)
        .select_from(_published())
        .join(split, split.c.version_id == dataset_version.c.id)
        .where(_is_version(version.name, version.config, version.version), split.c.name == split_name)
        .scalar_subquery()
    )
    return (
        sa.select(
            shard.c.shard_index,
            shard.c.first_example,
            shard.c.num_examples,
            shard.c.num_bytes,
            shard.c.sha256,
            shard.c.entity_tag,
        )
        .where(shard.c.split_id == split_id)
        .order_by(shard.c.shard_index)
    )


def _read_shard(row: sa.Row[*tuple[Any, ...]]) -> Shard:
    index, first, examples, size, digest, tag = row
    return Shard(index=index, first_example=first, num_examples=examples, num_bytes=size, sha256=digest, entity_tag=tag)


def find_shards(
    connection: sa.Connection, name: str, config: str | None, digests: Collection[str]
) -> dict[str, tuple[Version, str, int]]:
    """The version, split and index of published shards of one dataset, by their sha256; the highest version of each."""
    found: dict[str, tuple[Version, str, int]] = {}
    wanted = sorted(digests)
    for start in range(0, len(wanted), _DIGESTS):
        query = (
            sa.select(*NUMBER, split.c.name, shard.c.shard_index, shard.c.sha256)
            .select_from(_published())
            .join(split, split.c.version_id == dataset_version.c.id)
            .join(shard, shard.c.split_id == split.c.id)
            .where(builder.c.name == name, named_config(config), shard.c.sha256.in_(wanted[start : start + _DIGESTS]))
            .order_by(*NUMBER, split.c.position, shard.c.shard_index)
        )
        for major, minor, patch, split_name, index, digest in connection.execute(query):
            found[digest] = (Version(major, minor, patch), split_name, index)
    return found


def list_datasets(connection: sa.Connection) -> tuple[DatasetSummary, ...]:
    """Every dataset and config, by name: two queries, whatever their number."""
    best_first = (sa.case((IS_WITHDRAWN, 1), else_=0), *(part.desc() for part in NUMBER))
    ranked = sa.select(
        dataset_version.c.id,
        dataset_version.c.config_id,
        *NUMBER,
        sa.func.row_number().over(partition_by=dataset_version.c.config_id, order_by=best_first).label("rank"),
        sa.func.count().over(partition_by=dataset_version.c.config_id).label("num_versions"),
    ).subquery("ranked")
    shown = dataset_version.alias("shown")
    query = (
        sa.select(
            builder.c.name.label("builder_name"),
            builder_config.c.name.label("config_name"),
            builder_config.c.is_default,
            is_protected().label("is_protected"),
            ranked.c.major,
            ranked.c.minor,
            ranked.c.patch,
            ranked.c.num_versions,
            *CANONICAL_NUMBER,
            shown.c.id.label("shown_id"),
            shown.c.metadata_json,
        )
        .select_from(builder)
        .join(builder_config, builder_config.c.builder_id == builder.c.id)
        .join(ranked, sa.and_(ranked.c.config_id == builder_config.c.id, ranked.c.rank == 1))
        .join(shown, shown.c.id == sa.func.coalesce(builder_config.c.canonical_version_id, ranked.c.id))
        .outerjoin(canonical_version, canonical_version.c.id == builder_config.c.canonical_version_id)
        .order_by(builder.c.name, builder_config.c.name)
    )
    with stored_values():
        rows = connection.execute(query).all()
        of_shown = sa.select(sa.func.coalesce(builder_config.c.canonical_version_id, ranked.c.id)).join_from(
            builder_config, ranked, sa.and_(ranked.c.config_id == builder_config.c.id, ranked.c.rank == 1)
        )
        splits = _split_sizes(connection, split.c.version_id.in_(of_shown))
        texts = [decode_metadata(row.metadata_json, "{}") for row in rows]
        return tuple(
            DatasetSummary(
                name=row.builder_name,
                config=row.config_name or None,
                is_default=row.is_default,
                canonical=read_canonical(row),
                latest=Version(row.major, row.minor, row.patch),
                num_versions=row.num_versions,
                num_examples=sum(examples for _, examples, _ in splits.get(row.shown_id, ())),
                splits=tuple(name for name, _, _ in splits.get(row.shown_id, ())),
                description=text.description,
                config_description=text.config_description,
                config_tags=text.config_tags,
                is_protected=bool(row.is_protected),
            )
            for row, text in zip(rows, texts, strict=True)
        )


def list_versions(connection: sa.Connection, name: str, config: str | None) -> tuple[VersionSummary, ...]:
    """Every published version of a dataset, the highest first; config None is the default one.

    Raises:
        DatasetNotFoundError, ConfigNotFoundError
    """
    is_config = meant_config(config)
    query = (
        sa.select(
            dataset_version.c.id,
            *NUMBER,
            dataset_version.c.state,
            dataset_version.c.state_message,
            dataset_version.c.superseded_by,
            dataset_version.c.release_notes_json,
            dataset_version.c.content_digest,
            dataset_version.c.published_at,
            dataset_version.c.published_by,
            builder_config.c.name.label("config_name"),
            *CANONICAL_NUMBER,
        )
        .select_from(_published())
        .outerjoin(canonical_version, canonical_version.c.id == builder_config.c.canonical_version_id)
        .where(builder.c.name == name, is_config)
        .order_by(*(part.desc() for part in NUMBER))
    )
    with stored_values():
        rows = connection.execute(query).all()
    if not rows:
        raise explain_dataset(connection, Reference(name=name, config=config))
    ids = sa.select(dataset_version.c.id).select_from(_published()).where(builder.c.name == name, is_config)
    with stored_values():
        splits = _split_sizes(connection, split.c.version_id.in_(ids))
        return tuple(_read_summary(name, row, splits.get(row.id, ())) for row in rows)


def find_neighbours(
    connection: sa.Connection, name: str, config: str | None, version: Version
) -> tuple[Version | None, Version | None]:
    """The published numbers right below and right above ``version``, in any state; None where there is none."""
    number = sa.tuple_(*NUMBER)
    wanted = sa.tuple_(*map(sa.literal, (version.major, version.minor, version.patch)))
    of_config = sa.select(*NUMBER).select_from(_published()).where(builder.c.name == name, named_config(config))
    below = of_config.where(number < wanted).order_by(*(part.desc() for part in NUMBER)).limit(1)
    above = of_config.where(number > wanted).order_by(*NUMBER).limit(1)
    found = [connection.execute(query).first() for query in (below, above)]
    lower, higher = (None if row is None else Version(*row) for row in found)
    return lower, higher


def find_published(connection: sa.Connection, name: str, config: str | None, version: Version) -> DatasetVersion | None:
    """The version of exactly this number in any state, dropped ones too; None where there is none."""
    with stored_values():
        row = connection.execute(version_query(Reference.exactly(name, config, version))).first()
        if row is None or (row.config_name or None) != config:
            return None
        return read_version(row, load_splits(connection, row.id))


def find_located(connection: sa.Connection, location: str) -> tuple[Reference, ...]:
    """The versions whose rows name ``location``, in any state."""
    query = sa.select(builder.c.name, builder_config.c.name, *NUMBER).select_from(_published())
    with stored_values():
        rows = connection.execute(query.where(dataset_version.c.location == location)).all()
        return tuple(Reference.exactly(name, config or None, Version(*number)) for name, config, *number in rows)


def find_digest(connection: sa.Connection, name: str, config: str | None, version: Version) -> str | None:
    """The content digest that was ever published under this number, or None where the number is free."""
    return connection.execute(
        sa.select(version_ledger.c.content_digest).where(
            version_ledger.c.builder_name == name,
            version_ledger.c.config_name == (config or ""),
            version_ledger.c.major == version.major,
            version_ledger.c.minor == version.minor,
            version_ledger.c.patch == version.patch,
        )
    ).scalar()


def find_version_id(connection: sa.Connection, name: str, config: str | None, version: Version) -> int | None:
    """The row of a published version, in any state, or None."""
    query = sa.select(dataset_version.c.id).select_from(_published()).where(_is_version(name, config, version))
    return connection.execute(query).scalar()


def _published() -> sa.Join:
    return builder.join(builder_config, builder_config.c.builder_id == builder.c.id).join(
        dataset_version, dataset_version.c.config_id == builder_config.c.id
    )


def _is_version(name: str, config: str | None, version: Version) -> sa.ColumnElement[bool]:
    major, minor, patch = NUMBER
    return sa.and_(
        builder.c.name == name,
        named_config(config),
        major == version.major,
        minor == version.minor,
        patch == version.patch,
    )


def _read_split(row: sa.Row[*tuple[Any, ...]], engine: sa.Engine) -> Split:
    lengths: ShardLengths
    if row.num_shards > _EAGER:
        lengths = StoredShardLengths(
            engine, split_id=row.id, name=row.name, num_shards=row.num_shards, num_examples=row.num_examples
        )
    else:
        lengths = ShardLengths(read_json(row.lengths) or ())
    if (len(lengths), lengths.num_examples) != (row.num_shards, row.num_examples):
        raise damaged(
            f"split {row.name!r} has {len(lengths)} shards with {lengths.num_examples} "
            f"examples, not {row.num_shards} with {row.num_examples}"
        )
    files = ShardedFileTemplate(
        dataset=row.filename_dataset, template=row.filename_template, file_format=row.filename_format
    )
    return Split(name=row.name, shard_lengths=lengths, num_bytes=row.num_bytes, files=files)


def _split_sizes(
    connection: sa.Connection, condition: sa.ColumnElement[bool]
) -> dict[int, tuple[tuple[str, int, int], ...]]:
    """(name, num_examples, num_bytes) of each split that meets ``condition``, in order, by the version's id."""
    rows = connection.execute(
        sa.select(split.c.version_id, split.c.name, split.c.num_examples, split.c.num_bytes)
        .where(condition)
        .order_by(split.c.version_id, split.c.position)
    ).all()
    return {
        version_id: tuple((name, examples, size) for _, name, examples, size in group)
        for version_id, group in groupby(rows, key=itemgetter(0))
    }


def _read_summary(name: str, row: sa.Row[*tuple[Any, ...]], splits: Iterable[tuple[str, int, int]]) -> VersionSummary:
    version = Version(row.major, row.minor, row.patch)
    splits = tuple(splits)
    return VersionSummary(
        name=name,
        config=row.config_name or None,
        version=version,
        canonical=read_canonical(row),
        state=VersionState(row.state),
        state_message=row.state_message,
        superseded_by=read_number(row.superseded_by),
        num_examples=sum(examples for _, examples, _ in splits),
        num_bytes=sum(size for _, _, size in splits),
        splits=tuple(split_name for split_name, _, _ in splits),
        release_note=json.loads(row.release_notes_json).get(str(version), ""),
        content_digest=row.content_digest,
        published_at=row.published_at,
        published_by=row.published_by,
    )


def is_published(connection: sa.Connection, exactly: Reference, content_digest: str) -> bool:
    """Whether that content is published under the number; False where the number is free.

    Raises:
        VersionExistsError: other content is, or it was published and deleted.
    """
    number = exactly.request.exact if exactly.request is not None else None
    if number is None:
        raise AssertionError("an exact reference has a number")
    digest = find_digest(connection, exactly.name, exactly.config, number)
    if digest is None:
        return False
    exists = find_version_id(connection, exactly.name, exactly.config, number) is not None
    if exists and digest == content_digest:
        return True
    what = (
        f"is published with other content (sha256 {digest[:12]}, not {content_digest[:12]})"
        if exists
        else "was published and deleted"
    )
    raise VersionExistsError(
        f"{exactly} {what}",
        hint="A number is never used twice. Raise the version: PATCH for the same records, "
        "MINOR for added features, MAJOR for anything else.",
        details={"published": digest, "offered": content_digest},
    )
