"""Look-ups in SQL: converts rows to frozen values. Each look-up reads one snapshot.

``find`` runs two queries, for the version and for its splits; ``load_splits`` explains when shard lengths are loaded.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from registry import model
from registry.catalog.clock import corrected
from registry.catalog.names import is_named, names_column, told_as
from registry.catalog.pages import checks_limit
from registry.catalog.rows import (
    canonical_json,
    decode_metadata,
    json_agg,
    read_canonical,
    read_identity,
    read_json,
    read_names,
    read_number,
    read_steps,
    read_usable_canonical,
    read_version,
)
from registry.catalog.selection import (
    CANONICAL_NUMBER,
    IS_CANONICAL_WITHDRAWN,
    IS_WITHDRAWN,
    NAMES,
    NUMBER,
    canonical_version,
    choose_row,
    explain_dataset,
    explain_refusal,
    find_version,
    in_page,
    is_protected,
    location_steps,
    meant_config,
    named_config,
    published_versions,
)
from registry.catalog.tables import (
    attachment,
    builder,
    builder_config,
    dataset_version,
    event,
    shard,
    split,
    version_ledger,
)
from registry.catalog.values import DatasetFilter, DatasetSummary, VersionSummary, damaged, stored_values
from registry.model import (
    Reference,
    Version,
    VersionState,
    covers,
    current_locations,
    version_status,
)

if TYPE_CHECKING:
    from registry.catalog.outcomes import VersionSize
    from registry.catalog.values import Neighbours
    from registry.model import AbstractShardLengths, DatasetMetadata, DatasetVersion, Producer, Split

_EAGER: Final = 4096
"""Splits with at most this many shards load all lengths at once, which costs no more than the queries of a slice."""


_MOST_PRODUCERS: Final = 100
_READ_AT_ONCE: Final = 500
"""Configs of a list that are read together, also if few of them are listed."""

_KINDS: Final = {
    "image": ('.Image"', '.LabeledImage"', '.Video"', "The bytes of an image file."),
    "audio": ('.Audio"', "The bytes of an audio file."),
    "text": ('.Text"', '.Translation"', '.TranslationVariableLanguages"'),
}
"""What a schema contains if features have media or text: the ends of their class names, or their descriptions."""


def find(connection: sa.Connection, reference: str | Reference) -> DatasetVersion:
    """See ``CatalogBackend.find``."""
    wanted = Reference.parse(reference) if isinstance(reference, str) else reference
    choice, row = choose_row(connection, wanted)
    if row is None:
        raise explain_refusal(choice)
    with stored_values():
        return read_version(row, load_splits(connection, row.id))


def neighbours(
    connection: sa.Connection, name: str, config: str | None, version: Version
) -> tuple[DatasetVersion | None, DatasetVersion | None]:
    """See ``CatalogBackend.neighbours``."""
    lower, higher = (
        None if number is None else load_version(connection, name, config, number)
        for number in find_neighbours(connection, name, config, version)
    )
    return lower, higher


@checks_limit
def sizes(
    connection: sa.Connection, *, after: Reference | None = None, limit: int | None = None
) -> tuple[VersionSize, ...]:
    """See ``CatalogBackend.sizes``."""
    kind = connection.dialect.name
    meant = in_page(sa.select(dataset_version.c.id).select_from(published_versions()), kind, after, limit)
    stored = (
        sa.select(
            split.c.version_id,
            sa.func.count(shard.c.shard_index).label("num_files"),
            sa.cast(sa.func.coalesce(sa.func.sum(shard.c.num_bytes), 0), sa.BigInteger).label("num_bytes"),
        )
        .join_from(split, shard, shard.c.split_id == split.c.id)
        .where(sa.true() if limit is None else split.c.version_id.in_(meant))
        .group_by(split.c.version_id)
        .subquery("stored")
    )
    attached = (
        sa.select(
            attachment.c.version_id,
            sa.func.count().label("num_attachments"),
            sa.cast(sa.func.sum(attachment.c.num_bytes), sa.BigInteger).label("attachment_bytes"),
            sa.func.sum(sa.case((attachment.c.kind == "statistics", 1), else_=0)).label("num_statistics"),
        )
        .where(sa.true() if limit is None else attachment.c.version_id.in_(meant))
        .group_by(attachment.c.version_id)
        .subquery("attached")
    )
    query = (
        sa.select(
            *NAMES,
            *NUMBER,
            dataset_version.c.state,
            dataset_version.c.state_message,
            dataset_version.c.location,
            location_steps().label("location_steps"),
            names_column(),
            sa.func.coalesce(stored.c.num_files, 0).label("num_files"),
            sa.func.coalesce(stored.c.num_bytes, 0).label("num_bytes"),
            sa.func.coalesce(attached.c.num_attachments, 0).label("num_attachments"),
            sa.func.coalesce(attached.c.attachment_bytes, 0).label("attachment_bytes"),
            sa.func.coalesce(attached.c.num_statistics, 0).label("num_statistics"),
        )
        .select_from(published_versions())
        .outerjoin(stored, stored.c.version_id == dataset_version.c.id)
        .outerjoin(attached, attached.c.version_id == dataset_version.c.id)
    )
    with stored_values():
        return tuple(map(_read_size, connection.execute(in_page(query, kind, after, limit))))


@checks_limit
def datasets(
    connection: sa.Connection,
    wanted: DatasetFilter | None = None,
    *,
    after: str | None = None,
    limit: int | None = None,
    covered_by: Sequence[str] = ("*",),
) -> tuple[DatasetSummary, ...]:
    """See ``CatalogBackend``; ``covered_by``: only those that patterns of a token cover."""
    wanted = wanted or DatasetFilter()
    result: list[DatasetSummary] = []
    number = max(limit or 0, _READ_AT_ONCE)
    with stored_values():
        while limit is None or len(result) < limit:  # conditions may leave out most of what is read
            last = None if limit is None else _nth_after(connection, wanted, covered_by, after, number)
            result += list_datasets(connection, wanted, covered_by, after, last)
            if last is None:
                break
            after = last
    return tuple(result[:limit])


def _nth_after(
    connection: sa.Connection, wanted: DatasetFilter, covered_by: Sequence[str], after: str | None, number: int
) -> str | None:
    """The config with this number, from 1, among those after another one whose name fits; None if there are fewer."""
    names = sa.select(builder.c.name, builder_config.c.name.label("config"))
    names = names.join_from(builder, builder_config, builder_config.c.builder_id == builder.c.id)
    names = names.where(*_named(wanted, covered_by, after, None)).order_by(builder.c.name, builder_config.c.name)
    row = connection.execute(names.offset(number - 1).limit(1)).first()
    return None if row is None else f"{row.name}/{row.config}"


def _named(
    wanted: DatasetFilter, covered_by: Sequence[str], after: str | None, last: str | None
) -> Iterator[sa.ColumnElement[bool]]:
    """The configs whose name fits: those after one, and up to another one, which is included."""
    if wanted.like is not None:
        yield _is_like(wanted.like)
    if "*" not in covered_by:
        yield sa.or_(*(_like(builder.c.name, pattern.partition("/")[0]) for pattern in covered_by))
    for bound, is_after in ((after, True), (last, False)):
        if bound is not None:
            name, _, config = bound.partition("/")
            ends = sa.tuple_(builder.c.name, builder_config.c.name), sa.tuple_(sa.literal(name), sa.literal(config))
            yield ends[0] > ends[1] if is_after else ends[0] <= ends[1]
            yield builder.c.name >= name if is_after else builder.c.name <= name  # for the index


def list_datasets(
    connection: sa.Connection, wanted: DatasetFilter, covered_by: Sequence[str], after: str | None, last: str | None
) -> Iterator[DatasetSummary]:
    """The datasets that ``wanted`` lists and patterns cover, by name: those after one, and up to another one."""
    best_first = (sa.case((IS_WITHDRAWN, 1), else_=0), *(part.desc() for part in NUMBER))
    versions = sa.select(
        dataset_version.c.id,
        dataset_version.c.config_id,
        *NUMBER,
        sa.func.row_number().over(partition_by=dataset_version.c.config_id, order_by=best_first).label("rank"),
        sa.func.count().over(partition_by=dataset_version.c.config_id).label("num_versions"),
    )
    names = [*_named(wanted, covered_by, after, last)]
    if names:  # the versions of few datasets are ranked a hundred times as fast
        named = sa.select(builder_config.c.id).join_from(builder_config, builder).where(*names)
        versions = versions.where(dataset_version.c.config_id.in_(named))
    ranked = versions.subquery("ranked")
    is_best = sa.and_(ranked.c.config_id == builder_config.c.id, ranked.c.rank == 1)
    canonical = dataset_version.alias("shown")
    shown_id = sa.func.coalesce(sa.case((~IS_CANONICAL_WITHDRAWN, canonical_version.c.id)), ranked.c.id)
    query = (
        sa.select(
            *NAMES,
            builder_config.c.is_default,
            is_protected().label("is_protected"),
            ranked.c.major,
            ranked.c.minor,
            ranked.c.patch,
            ranked.c.num_versions,
            *CANONICAL_NUMBER,
            IS_CANONICAL_WITHDRAWN.label("is_canonical_withdrawn"),
            canonical.c.id.label("shown_id"),
            canonical.c.state,
            canonical.c.metadata_json,
            canonical.c.content_digest,
            *(_is_kind(canonical.c.features_json, signs).label(f"has_{kind}") for kind, signs in _KINDS.items()),
            corrected(canonical.c.published_at),
            canonical.c.published_by,
        )
        .select_from(builder)
        .join(builder_config, builder_config.c.builder_id == builder.c.id)
        .join(ranked, is_best)
        .outerjoin(canonical_version, canonical_version.c.id == builder_config.c.canonical_version_id)
        .join(canonical, canonical.c.id == shown_id)
        .where(*_filter_conditions(wanted, canonical))
        .order_by(builder.c.name, builder_config.c.name)
    )
    rows = connection.execute(query).all()
    of_shown = query.with_only_columns(canonical.c.id).order_by(None)
    splits = _split_sizes(connection, split.c.version_id.in_(of_shown))
    for row in rows:
        summary = _read_dataset(row, decode_metadata(row.metadata_json, "{}"), splits.get(row.shown_id, ()))
        if _is_listed(summary, wanted) and covers(covered_by, summary.name, summary.config):
            yield summary


def _is_kind(features_json: sa.ColumnElement[str], signs: tuple[str, ...]) -> sa.ColumnElement[bool]:
    return sa.or_(*(features_json.contains(sign, autoescape=True) for sign in signs))


def _filter_conditions(wanted: DatasetFilter, shown: sa.FromClause) -> Iterator[sa.ColumnElement[bool]]:
    """What SQL can say about ``wanted``, alike on both databases; it lets a few more pass than ``_is_listed``."""
    for tag in wanted.tags:
        yield shown.c.metadata_json.contains(canonical_json(tag), autoescape=True)
    if wanted.like is not None:
        yield _is_like(wanted.like)
    if wanted.owner is not None:
        yield shown.c.published_by == wanted.owner
    if wanted.state is not None:
        yield shown.c.state == wanted.state.value


def _is_like(pattern: str) -> sa.ColumnElement[bool]:
    return _like(
        builder.c.name + sa.case((builder_config.c.name == "", ""), else_="/" + builder_config.c.name), pattern
    )


def _like(name: sa.ColumnElement[str], pattern: str) -> sa.ColumnElement[bool]:
    """Whether a name fits a glob; a few more pass on SQLite, which ignores case."""
    literal = re.sub(r"([%_!])", r"!\1", re.sub(r"\[.*", "*", pattern))
    return name.like(literal.replace("*", "%").replace("?", "_"), escape="!")


def _is_listed(summary: DatasetSummary, wanted: DatasetFilter) -> bool:
    has_tags = set(wanted.tags) <= set(summary.config_tags)
    return has_tags and (wanted.like is None or fnmatchcase(summary.dataset, wanted.like))


def _read_dataset(row: Any, text: DatasetMetadata, splits: tuple[tuple[str, int, int], ...]) -> DatasetSummary:
    latest, numbers = Version(row.major, row.minor, row.patch), read_usable_canonical(row)
    canonical = numbers["canonical"]
    return DatasetSummary(
        name=row.builder_name,
        config=row.config_name or None,
        is_default=row.is_default,
        canonical=canonical,
        withdrawn=numbers["withdrawn"],
        latest=latest,
        num_versions=row.num_versions,
        status=version_status(canonical or latest, VersionState(row.state), canonical),
        num_examples=sum(examples for _, examples, _ in splits),
        num_bytes=sum(size for _, _, size in splits),
        splits=tuple(name for name, _, _ in splits),
        published_at=row.published_at,
        published_by=row.published_by,
        description=text.description,
        config_description=text.config_description,
        config_tags=text.config_tags,
        license=text.license,
        kinds=tuple(kind for kind in _KINDS if getattr(row, f"has_{kind}")),
        content_digest=row.content_digest,
        is_protected=bool(row.is_protected),
    )


def _read_size(row: Any) -> VersionSize:
    from registry.catalog.outcomes import VersionSize

    steps = read_steps(row.location_steps)
    locations = current_locations(row.location, steps)
    recorded = dict.fromkeys([row.location, *(step.location for step in steps)])
    return VersionSize(
        **read_identity(row),
        names=read_names(row),
        state=VersionState(row.state),
        locations=locations,
        former=tuple(location for location in recorded if location not in locations),
        num_files=row.num_files,
        num_bytes=row.num_bytes,
        num_attachments=row.num_attachments,
        attachment_bytes=row.attachment_bytes,
        num_statistics=row.num_statistics,
        message=row.state_message,
    )


def load_version(connection: sa.Connection, name: str, config: str | None, version: Version) -> DatasetVersion | None:
    """See ``CatalogBackend.published``."""
    with stored_values():
        row = find_version(connection, Reference.exactly(name, config, version)).first()
        if row is None or (row.config_name or None) != config:
            return None
        return read_version(row, load_splits(connection, row.id))


def load_splits(connection: sa.Connection, version_id: int) -> list[Split]:
    """The splits of a version in order: one query with one row for each split.

    A split with up to ``_EAGER`` shards is loaded with its shard lengths; a larger one loads them when they are used.
    """
    rows = connection.execute(_splits_of(), {"of_version": version_id})
    return [_read_split(row, connection.engine) for row in rows]


@cache  # it takes longer to write this query than to run it
def _splits_of() -> sa.Select[Any]:
    in_order = (
        sa.select(shard.c.num_examples)
        .where(shard.c.split_id == split.c.id)
        .order_by(shard.c.shard_index)
        .correlate(split)
        .subquery("in_order")
    )
    lengths = sa.case((split.c.num_shards <= _EAGER, sa.select(json_agg(in_order.c.num_examples)).scalar_subquery()))
    is_meant = split.c.version_id == sa.bindparam("of_version")
    return sa.select(split, lengths.label("lengths")).where(is_meant).order_by(split.c.position)


def list_versions(
    connection: sa.Connection,
    name: str,
    config: str | None,
    *,
    below: Version | None = None,
    least: Version | None = None,
    limit: int | None = None,
) -> tuple[VersionSummary, ...]:
    """See ``CatalogBackend.versions`` without a moment; ``least`` is the lowest number."""
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
            corrected(dataset_version.c.published_at),
            dataset_version.c.published_by,
            *NAMES,
            *CANONICAL_NUMBER,
        )
        .select_from(published_versions())
        .outerjoin(canonical_version, canonical_version.c.id == builder_config.c.canonical_version_id)
        .where(is_named(name), is_config)
        .order_by(*(part.desc() for part in NUMBER))
    )
    newest, query = query.with_only_columns(dataset_version.c.id).limit(1), query.limit(limit)
    for bound, compare in ((below, operator.lt), (least, operator.ge)):
        if bound is not None:
            query = query.where(compare(sa.tuple_(*NUMBER), sa.tuple_(*map(sa.literal, bound.parts))))
    with stored_values():
        rows = connection.execute(query).all()
    if not rows and connection.execute(newest).first() is None:
        raise explain_dataset(connection, Reference(name=name, config=config))
    listed = query.with_only_columns(dataset_version.c.id).subquery("listed")
    with stored_values():
        splits = _split_sizes(connection, split.c.version_id.in_(sa.select(listed.c.id)))
        return tuple(_read_summary(row, splits.get(row.id, ())) for row in rows)


def find_neighbours(connection: sa.Connection, name: str, config: str | None, version: Version) -> Neighbours:
    """The published numbers right below and right above ``version``, in any state; each may be None."""
    number = sa.tuple_(*NUMBER)
    wanted = sa.tuple_(*map(sa.literal, (version.major, version.minor, version.patch)))
    of_config = sa.select(*NUMBER).select_from(published_versions()).where(is_named(name), named_config(config))
    below = of_config.where(number < wanted).order_by(*(part.desc() for part in NUMBER)).limit(1)
    above = of_config.where(number > wanted).order_by(*NUMBER).limit(1)
    found = [connection.execute(query).first() for query in (below, above)]
    lower, higher = (None if row is None else Version(*row) for row in found)
    return lower, higher


def find_producers(connection: sa.Connection, name: str, config: str | None) -> tuple[tuple[Reference, Producer], ...]:
    """See ``CatalogBackend.producers``."""
    if result := _producers_of(connection, name, named_config(config), _MOST_PRODUCERS):
        return tuple(result)
    configs = sa.select(builder_config.c.id).join_from(builder_config, builder).where(is_named(name))
    others = [
        _producers_of(connection, name, builder_config.c.id == config_id, 1)
        for config_id in connection.execute(configs.order_by(builder_config.c.id.desc())).scalars()
    ]
    return tuple(producer for producers in others for producer in producers)


def _producers_of(
    connection: sa.Connection, name: str, is_config: sa.ColumnElement[bool], limit: int
) -> list[tuple[Reference, Producer]]:
    """The newest versions of a config, newest first. Versions get their ids and events in the order of publication."""
    # Older registries recorded no producer. They described an addition in the metadata, which a copy takes along.
    is_added = dataset_version.c.metadata_json.contains('"intake":{', autoescape=True)
    rows = connection.execute(
        sa.select(*NUMBER, builder.c.name, builder_config.c.name.label("config"), is_added.label("is_added"))
        .select_from(published_versions())
        .where(is_named(name), is_config)
        .order_by(dataset_version.c.id.desc())
        .limit(limit)
    ).all()
    if not rows:
        return []
    dataset = Reference(name=rows[0].name, config=rows[0].config or None).dataset
    told = (
        sa.select(event.c.version, event.c.action, event.c.details_json)
        .where(event.c.dataset.in_(told_as(connection, dataset)), event.c.action.in_(("publish", "producer")))
        .order_by(event.c.id.desc())
        .limit(2 * limit)
    )
    details: dict[str, dict[str, Any]] = {}
    with stored_values():
        for row in connection.execute(told):  # the newest counts
            stored = json.loads(row.details_json)
            details.setdefault(row.version, stored if row.action == "publish" else {"producer": stored})
    result = []
    for row in rows:
        version = Version(row.major, row.minor, row.patch)
        of_version = details.get(str(version), {})
        if "producer" in of_version:
            producer = model.Producer.from_json(of_version["producer"])
        elif "imported_from" in of_version:
            producer = model.Producer(action="copy")
        else:
            producer = model.Producer(action="add" if row.is_added else "")
        result.append((Reference.exactly(row.name, row.config or None, version), producer))
    return result


def find_digest(connection: sa.Connection, name: str, config: str | None, version: Version) -> str | None:
    """The content digest published under this number, even if the version was deleted; None if the number is free."""
    return connection.execute(
        sa.select(version_ledger.c.content_digest).where(
            version_ledger.c.builder_name.in_(told_as(connection, name)),
            version_ledger.c.config_name == (config or ""),
            version_ledger.c.major == version.major,
            version_ledger.c.minor == version.minor,
            version_ledger.c.patch == version.patch,
        )
    ).scalar()


def find_version_id(connection: sa.Connection, name: str, config: str | None, version: Version) -> int | None:
    """The row of a published version, in any state, or None."""
    numbers = {"of_major": version.major, "of_minor": version.minor, "of_patch": version.patch}
    return connection.execute(_version_id(), {"of_name": name, "of_config": config or "", **numbers}).scalar()


@cache  # as above
def _version_id() -> sa.Select[Any]:
    is_meant = is_named(sa.bindparam("of_name")), builder_config.c.name == sa.bindparam("of_config")
    numbers = (part == sa.bindparam(f"of_{part.name}") for part in NUMBER)
    return sa.select(dataset_version.c.id).select_from(published_versions()).where(*is_meant, *numbers)


def _read_split(row: sa.Row[*tuple[Any, ...]], engine: sa.Engine) -> Split:
    lengths: AbstractShardLengths
    if row.num_shards > _EAGER:
        from registry.catalog.paging import LoadedShardLengths
        from registry.catalog.shards import SqlShards

        lengths = LoadedShardLengths(
            SqlShards(engine), split_id=row.id, name=row.name, num_shards=row.num_shards, num_examples=row.num_examples
        )
    else:
        lengths = model.ShardLengths(read_json(row.lengths) or ())
    if (len(lengths), lengths.num_examples) != (row.num_shards, row.num_examples):
        raise damaged(
            f"split {row.name!r}: expected {row.num_shards} shards with {row.num_examples} examples, "
            f"found {len(lengths)} with {lengths.num_examples}"
        )
    files = model.ShardedFileTemplate(
        dataset=row.filename_dataset, template=row.filename_template, file_format=row.filename_format
    )
    return model.Split(name=row.name, shard_lengths=lengths, num_bytes=row.num_bytes, files=files)


def _split_sizes(
    connection: sa.Connection, condition: sa.ColumnElement[bool]
) -> dict[int, tuple[tuple[str, int, int], ...]]:
    """The (name, num_examples, num_bytes) of each split that meets ``condition``, in order, by the version's id."""
    rows = connection.execute(
        sa.select(split.c.version_id, split.c.name, split.c.num_examples, split.c.num_bytes)
        .where(condition)
        .order_by(split.c.version_id, split.c.position)
    ).all()
    return {
        version_id: tuple((name, examples, size) for _, name, examples, size in group)
        for version_id, group in groupby(rows, key=itemgetter(0))
    }


def _read_summary(row: sa.Row[*tuple[Any, ...]], splits: tuple[tuple[str, int, int], ...]) -> VersionSummary:
    identity = read_identity(row)
    return VersionSummary(
        **identity,
        canonical=read_canonical(row),
        state=VersionState(row.state),
        state_message=row.state_message,
        superseded_by=read_number(row.superseded_by),
        num_examples=sum(examples for _, examples, _ in splits),
        num_bytes=sum(size for _, _, size in splits),
        splits=tuple(split_name for split_name, _, _ in splits),
        release_note=json.loads(row.release_notes_json).get(str(identity["version"]), ""),
        content_digest=row.content_digest,
        published_at=row.published_at,
        published_by=row.published_by,
    )
