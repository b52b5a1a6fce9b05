"""Finds the row of the version that a reference names: SQL narrows the versions to one row, ``model.choose`` decides.

``registry.model.choose`` is the rule of every look-up. For a wildcard or range, SQL finds the highest version that the
request allows and that is not withdrawn; for any other reference, the one version that it names. An index finds that
row, whether a config has ten versions or 100,000. If the rule does not choose that row, it is applied again to every
version of the config, and that choice is final.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from registry import model
from registry.catalog.clock import corrected
from registry.catalog.names import is_named, names_column, present_name
from registry.catalog.rows import by_bytes, json_agg, json_object_agg, read_canonical, read_names, read_number
from registry.catalog.session import is_writing
from registry.catalog.tables import (
    READABLE,
    alias,
    builder,
    builder_config,
    dataset_version,
    experiment,
    protection,
    version_experiment,
    version_location,
)
from registry.catalog.urls import describe_url
from registry.catalog.values import stored_values
from registry.catalog.web_urls import first_step
from registry.errors import (
    AliasNotFoundError,
    ConfigNotFoundError,
    DatasetNotFoundError,
    NotFoundError,
    ReferenceSyntaxError,
    UsageError,
    VersionNotFoundError,
    VersionWithdrawnError,
)
from registry.model import WITHDRAWN, Reference, Version, VersionRequest, VersionState, listed, request_bounds
from registry.model.version import HIGHEST, LOWEST

if TYPE_CHECKING:
    from registry.model import Candidate, Choice, Standing, VersionClause

canonical_version: Final = dataset_version.alias("canonical_version")
NAMES: Final = (builder.c.name.label("builder_name"), builder_config.c.name.label("config_name"))
NUMBER: Final = (dataset_version.c.major, dataset_version.c.minor, dataset_version.c.patch)
CANONICAL_NUMBER: Final = (
    canonical_version.c.major.label("canonical_major"),
    canonical_version.c.minor.label("canonical_minor"),
    canonical_version.c.patch.label("canonical_patch"),
)
IS_WITHDRAWN: Final = dataset_version.c.state.in_(sorted(state.value for state in WITHDRAWN))
"""``Candidate.is_withdrawn`` over the columns of ``dataset_version``. Look-ups use ``READABLE``, which has an index."""

IS_CANONICAL_WITHDRAWN: Final = sa.func.coalesce(
    canonical_version.c.state.in_(sorted(state.value for state in WITHDRAWN)), sa.false()
)
"""Whether the canonical version is withdrawn; false if there is none."""


_MAX_NAMES: Final = 10_000

_MAX_LISTED: Final = 12

_MAX_DETAILS: Final = 100


def choose_row(connection: sa.Connection, reference: Reference) -> tuple[Choice, Any]:
    """Choose the version that ``reference`` names; returns the choice, and its row, see ``find_version``, or None.

    Raises:
        DatasetNotFoundError, ConfigNotFoundError: the dataset or the config does not exist.
    """
    with stored_values():
        row = find_version(connection, reference).first()
        if row is not None:
            candidate = read_candidate(row)
            aliases = {} if reference.alias is None else {reference.alias: candidate.version}
            narrowed = model.Standing(
                name=row.builder_name,
                config=row.config_name or None,
                candidates=(candidate,),
                canonical=read_canonical(row),
                aliases=aliases,
                names=read_names(row),
            )
            choice = model.choose(narrowed, reference)
            if choice.candidate is not None:
                return choice, row
    standing = load_standing(connection, reference.name, reference.config)
    choice = model.choose(standing, reference)
    if choice.version is None:
        return choice, None
    with stored_values():
        return choice, find_version(connection, standing.exactly(choice.version)).one()


def find_version(connection: sa.Connection, reference: Reference) -> sa.CursorResult[Any]:
    """The row of the one version that ``reference`` may name.

    Its columns are those of ``dataset_version``, and ``builder_name``, ``config_name``, ``canonical_*``,
    ``names``, a JSON array, ``experiments``, a JSON object of the flags that the version overrides, and
    ``location_steps``, a JSON array of texts: the change of its locations, a blank, and the location.
    """
    query = _version_query(reference.config is not None, reference.alias is not None, reference.request)
    names = {"of_name": reference.name, "of_config": reference.config, "of_alias": reference.alias}
    return connection.execute(query, names)


@lru_cache(32)  # as below
def _version_query(has_config: bool, has_alias: bool, request: VersionRequest | None) -> sa.Select[Any]:
    query, config = _all_versions(), sa.bindparam("of_config", type_=sa.String) if has_config else None
    is_meant = (is_named(sa.bindparam("of_name")), meant_config(config))
    if has_alias:
        return query.join(
            alias, sa.and_(alias.c.config_id == builder_config.c.id, alias.c.version_id == dataset_version.c.id)
        ).where(*is_meant, alias.c.name == sa.bindparam("of_alias"))
    if request is None:
        return query.where(*is_meant, dataset_version.c.id == builder_config.c.canonical_version_id)
    # Subqueries for the config and the version, because each is one row. With a join, both databases would first
    # collect every version that the request allows, and then sort them.
    config_id = sa.select(builder_config.c.id).join_from(builder_config, builder).where(*is_meant).correlate(None)
    chosen = (
        sa.select(dataset_version.c.id)
        .where(dataset_version.c.config_id == config_id.scalar_subquery(), request_condition(request))
        .correlate(None)
    )
    if request.exact is None:
        chosen = chosen.where(sa.text(READABLE))
    chosen = chosen.order_by(*(part.desc() for part in NUMBER)).limit(1)
    return query.where(dataset_version.c.id == chosen.scalar_subquery())


@cache  # it takes longer to write this query than to run it
def _all_versions() -> sa.Select[Any]:
    overrides = (
        sa.select(json_object_agg(experiment.c.name, version_experiment.c.enabled))
        .join_from(version_experiment, experiment)
        .where(version_experiment.c.version_id == dataset_version.c.id)
        .scalar_subquery()
    )
    return (
        sa.select(
            *(column for column in dataset_version.c if column is not dataset_version.c.published_at),
            corrected(dataset_version.c.published_at),
            *NAMES,
            *CANONICAL_NUMBER,
            overrides.label("experiments"),
            location_steps().label("location_steps"),
            names_column(),
        )
        .select_from(published_versions())
        .outerjoin(canonical_version, canonical_version.c.id == builder_config.c.canonical_version_id)
    )


@cache
def location_steps() -> sa.ScalarSelect[Any]:
    """The changes of the locations of the version in ``dataset_version``, as ``rows.read_steps`` reads them."""
    in_order = (
        sa.select((version_location.c.change + " " + version_location.c.location).label("step"))
        .where(version_location.c.version_id == dataset_version.c.id)
        .order_by(version_location.c.id)
        .correlate(dataset_version)
        .subquery("in_order")
    )
    return sa.select(json_agg(in_order.c.step)).scalar_subquery()


def read_candidate(row: Any) -> Candidate:
    """Read a candidate from a row that has the number, state, message and successor of a version."""
    return model.Candidate(
        version=Version(row.major, row.minor, row.patch),
        state=VersionState(row.state),
        message=row.state_message,
        superseded_by=read_number(row.superseded_by),
    )


def meant_config(config: str | sa.BindParameter[str] | None) -> sa.ColumnElement[bool]:
    """The condition for the config that a reference means; None means the default config."""
    return builder_config.c.is_default if config is None else builder_config.c.name == config


def named_config(config: str | None) -> sa.ColumnElement[bool]:
    """The condition for the config of a published version; None if its dataset has no configs."""
    return builder_config.c.name == (config or "")


def is_protected(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Whether any protection that meets ``conditions`` covers a config, over ``builder`` and ``builder_config``."""
    named = builder.c.name + "/" + builder_config.c.name
    covers = sa.or_(protection.c.scope.in_(["", builder.c.name]), protection.c.scope == named)
    return sa.exists().where(covers, *conditions)


@cache
def published_versions() -> sa.Join:
    """Builders, their configs and their versions."""
    return builder.join(builder_config, builder_config.c.builder_id == builder.c.id).join(
        dataset_version, dataset_version.c.config_id == builder_config.c.id
    )


def in_page(
    query: sa.Select[Any], kind: str, after: Reference | None, limit: int | None, *, alias: sa.Column[str] | None = None
) -> sa.Select[Any]:
    """A page of a query over ``published_versions``: by dataset and version, or by dataset and ``alias``.

    With ``after``: what follows this version or alias, which need not exist. ``kind`` is that of the database.
    """
    order = by_bytes(kind, builder.c.name, builder_config.c.name, *(NUMBER if alias is None else (alias,)))
    if after is not None:
        place = place_of(after) if alias is None else (after.name, after.config or "", after.alias or "")
        query = query.where(sa.tuple_(*order) > sa.tuple_(*map(sa.literal, place)))
    return query.order_by(*order).limit(limit)


def place_of(reference: Reference) -> tuple[Any, ...]:
    """What sorts exact references by dataset and version."""
    return reference.name, reference.config or "", *(LOWEST if reference.exact is None else reference.exact.parts)


def is_dataset(reference: Reference) -> sa.ColumnElement[bool]:
    """The condition for the configs that ``name[/config]`` means; a name alone means all its configs."""
    is_meant = is_named(reference.name)
    return is_meant if reference.config is None else sa.and_(is_meant, builder_config.c.name == reference.config)


def require_dataset(connection: sa.Connection, reference: Reference) -> None:
    """Raise DatasetNotFoundError or ConfigNotFoundError if ``name[/config]`` does not exist."""
    query = sa.select(builder_config.c.id).join_from(builder_config, builder).where(is_dataset(reference))
    if connection.execute(query).first() is None:
        raise explain_dataset(connection, reference)


def is_version(name: str, config: str | None, version: Version) -> sa.ColumnElement[bool]:
    """The condition for the version with this number, over ``published_versions``."""
    major, minor, patch = NUMBER
    return sa.and_(
        is_named(name),
        named_config(config),
        major == version.major,
        minor == version.minor,
        patch == version.patch,
    )


def request_condition(request: VersionRequest) -> sa.ColumnElement[bool]:
    """``request.allows`` over the columns of ``dataset_version``.

    The number is compared with two bounds, which both databases look up in the unique index, whatever the number of
    versions. Bounds cannot express ``!=`` and inner wildcards: those are checked row by row.
    """
    bounds = request_bounds(request)
    if bounds.is_empty:
        return sa.false()
    conditions = [_clause_condition(clause) for clause in bounds.rest]
    if bounds.low == bounds.high:
        conditions += [column == part for column, part in zip(NUMBER, bounds.low, strict=True)]
        return sa.and_(*conditions)
    if bounds.low > LOWEST:
        conditions.append(sa.tuple_(*NUMBER) >= sa.tuple_(*map(sa.literal, bounds.low)))
    if bounds.high < HIGHEST:
        conditions.append(sa.tuple_(*NUMBER) <= sa.tuple_(*map(sa.literal, bounds.high)))
    return sa.and_(sa.true(), *conditions)


def _clause_condition(clause: VersionClause) -> sa.ColumnElement[bool]:
    """``clause`` as one comparison for each part of the number that it names."""
    parts = zip(NUMBER, (clause.major, clause.minor, clause.patch), strict=True)
    in_series = sa.and_(sa.true(), *(column == part for column, part in parts if part is not None))
    return sa.not_(in_series) if clause.operator == "!=" else in_series


def find_default_config(connection: sa.Connection, name: str) -> str | None:
    """The default config of a dataset, ``""`` for a dataset without configs, or None."""
    return connection.execute(
        sa.select(builder_config.c.name)
        .join_from(builder_config, builder)
        .where(is_named(name), builder_config.c.is_default)
    ).scalar()


def load_standing(connection: sa.Connection, name: str, config: str | None) -> Standing:
    """The standing of a config; None is the default config.

    Raises:
        DatasetNotFoundError, ConfigNotFoundError: the dataset or the config does not exist.
    """
    with stored_values():
        row = connection.execute(
            sa.select(
                builder_config.c.id,
                builder_config.c.name,
                builder.c.name.label("builder_name"),
                names_column(),
                *CANONICAL_NUMBER,
            )
            .join_from(builder_config, builder)
            .outerjoin(canonical_version, canonical_version.c.id == builder_config.c.canonical_version_id)
            .where(is_named(name), meant_config(config))
        ).first()
        if row is None:
            raise explain_dataset(connection, Reference(name=name, config=config))
        versions = connection.execute(
            sa.select(
                *NUMBER,
                dataset_version.c.state,
                dataset_version.c.state_message,
                dataset_version.c.superseded_by,
            )
            .where(dataset_version.c.config_id == row.id)
            .order_by(*(part.desc() for part in NUMBER))
        )
        candidates = tuple(map(read_candidate, versions))
        aliases = connection.execute(
            sa.select(alias.c.name, *NUMBER)
            .join_from(alias, dataset_version, dataset_version.c.id == alias.c.version_id)
            .where(alias.c.config_id == row.id)
            .order_by(alias.c.name)
        )
        return model.Standing(
            name=row.builder_name,
            names=read_names(row),
            config=row.name or None,
            candidates=candidates,
            canonical=read_canonical(row),
            aliases={alias_name: Version(*number) for alias_name, *number in aliases},
        )


def parse_dataset(text: str) -> Reference:
    """Parse the reference of a dataset: ``name[/config]``, and nothing after it.

    Raises:
        ReferenceSyntaxError: the text is not a reference.
        UsageError: a version or an alias follows it.
    """
    wanted = Reference.parse(text)
    if wanted.request is not None or wanted.alias is not None:
        raise UsageError(f"{text}: name a dataset without a version", hint=f"Try: {wanted.dataset}")
    return wanted


def explain_dataset(connection: sa.Connection, reference: Reference) -> NotFoundError:
    """The error for a dataset or config that does not exist in the snapshot of ``connection``.

    On PostgreSQL, a writer calls this only for a dataset that it has locked (``lock_dataset``).
    """
    configs = connection.execute(
        sa.select(builder_config.c.name)
        .join_from(builder, builder_config, builder_config.c.builder_id == builder.c.id)
        .where(is_named(reference.name))
        .order_by(builder_config.c.name)
    ).scalars()
    names = configs.all()
    if not names:
        return no_dataset(connection, reference.name, list_names(connection))
    named = [name for name in names if name]
    if reference.config is not None:
        return _no_config(reference, reference.config, named)
    return no_default_config(reference.name, named)


def no_default_config(name: str, configs: list[str]) -> ConfigNotFoundError:
    """The error for a reference without a config, if the dataset has configs and no default config."""
    named = ", ".join(f"{name}/{config}" for config in configs[:_MAX_LISTED])
    return ConfigNotFoundError(
        f"{name} has no default config",
        hint=f"Name one: {named}.",
        details={"name": "", "known": configs[:_MAX_DETAILS]},
    )


def explain_refusal(choice: Choice, *, when: str | None = None) -> NotFoundError:
    """The error for a choice that chose nothing; ``when`` describes the past moment of the look-up, if any.

    Its ``details`` have ``considered``, a list with the version, status and verdict of each version that was
    considered, and ``num_considered``, the number of all of them.
    """
    wanted, standing = choice.wanted, choice.standing
    if choice.refusal is model.Refusal.NO_ALIAS:
        known = list(standing.aliases)
        hint = None if known else f"It has no aliases; its versions: registry versions {wanted.dataset}"
        where = wanted.dataset + ("" if when is None else f" at {when}")
        error = AliasNotFoundError.of(wanted.alias or "", known, where=where, hint=hint)
        error.details.update(_considered(choice))
        return error
    withdrawn = choice.refusal in (model.Refusal.WITHDRAWN, model.Refusal.ALL_WITHDRAWN)
    kind = VersionWithdrawnError if withdrawn else VersionNotFoundError
    return kind(
        choice.problem if when is None else f"at {when}: {choice.problem}",
        hint=_what_can_be_read(choice) if withdrawn else _what_is_published(choice),
        details={
            "name": "" if wanted.request is None else str(wanted.request),
            "known": [str(candidate.version) for candidate in standing.candidates[:_MAX_DETAILS]],
            "versions": [
                {"version": str(candidate.version), "status": standing.status(candidate).value}
                for candidate in standing.candidates[:_MAX_DETAILS]
            ],
            **_considered(choice),
        },
    )


def _considered(choice: Choice) -> dict[str, Any]:
    """The versions considered, the highest first. If there are too many, those that the reference names are kept."""
    standing, wanted, every = choice.standing, choice.wanted, choice.considered
    named = (
        []
        if wanted.request is None
        else [candidate.version for candidate in standing.allowed(wanted.request)[:_MAX_DETAILS]]
    )
    if choice.refused is not None:
        named = [choice.refused.version]
    result = {
        *named,
        *[candidate.version for candidate in every if candidate.version not in named][: _MAX_DETAILS - len(named)],
    }
    return {
        "considered": [
            {"version": str(candidate.version), "status": candidate.status.value, "verdict": candidate.verdict}
            for candidate in every
            if candidate.version in result
        ],
        "num_considered": len(every),
    }


def _what_is_published(choice: Choice) -> str:
    standing = choice.standing
    if not standing.candidates:
        return "No version of it is published."
    published = f"Published: {_listed(standing, standing.candidates)}."
    if choice.refusal is not model.Refusal.NO_CANONICAL or standing.next_canonical is None:
        return published
    return f"{published} {_how_to_promote(standing.exactly(standing.next_canonical))}"


def _what_can_be_read(choice: Choice) -> str:
    """The hint of a refusal: the versions to use instead of the withdrawn one."""
    standing, refused, request = choice.standing, choice.refused, choice.wanted.request
    parts = []
    if refused is not None and refused.superseded_by is not None:
        successor = standing.find(refused.superseded_by)
        if successor is not None and not successor.is_withdrawn:  # a withdrawn successor would be refused, too
            parts.append(f"It is superseded by {standing.exactly(refused.superseded_by)}.")
    readable = tuple(candidate for candidate in standing.candidates if not candidate.is_withdrawn)
    parts.append(f"Readable: {_listed(standing, readable)}." if readable else "No version of it is left.")
    passed = [refused] if refused is not None else standing.allowed(request) if request is not None else []
    yanked = next((candidate for candidate in passed if candidate.state is VersionState.YANKED), None)
    if yanked is not None:
        parts.append(f"To get it anyway, name it exactly: {standing.exactly(yanked.version)}.")
    is_canonical = choice.wanted.request is None and choice.wanted.alias is None
    if is_canonical and standing.next_canonical is not None:
        parts.append(_how_to_promote(standing.exactly(standing.next_canonical)))
    return " ".join(parts)


def _how_to_promote(reference: Reference) -> str:
    return f"Make one canonical: registry promote {reference}"


def _listed(standing: Standing, candidates: tuple[Candidate, ...]) -> str:
    return listed([f"{each.version} ({standing.status(each).value})" for each in candidates], _MAX_LISTED)


def list_names(connection: sa.Connection) -> list[str]:
    """The names of the first ``_MAX_NAMES`` datasets, for suggestions."""
    query = sa.select(builder.c.name).order_by(builder.c.name).limit(_MAX_NAMES)
    return list(connection.execute(query).scalars())


def no_dataset(connection: sa.Connection, name: str, known: list[str]) -> NotFoundError:
    """The error for a dataset that is not among the ``known`` ones."""
    hint = None if known else f"The catalog is empty. {first_step(describe_url(connection.engine.url))}"
    return DatasetNotFoundError.of(name, known, where="the catalog", hint=hint)


def _no_config(reference: Reference, config: str, known: list[str]) -> NotFoundError:
    hint = None
    try:
        request = VersionRequest.parse(config)
    except ReferenceSyntaxError:
        pass
    else:
        hint = f"A version comes after ':', not '/'. Try: {reference.name}:{request}"
    if hint is None and not known:
        hint = f"{reference.name} has no configs. Name it without one: {reference.name}"
    return ConfigNotFoundError.of(config, known, where=reference.name, hint=hint)


def lock_dataset(connection: sa.Connection, name: str) -> str:
    """Wait until no other transaction changes dataset ``name``, and keep others waiting until this one ends.

    Meanwhile, others can read its configs, versions and aliases, and insert rows that refer to them. This locks nothing
    on SQLite, because only one write transaction runs at a time, and in a dry run, which only reads. Returns the
    present name of the dataset.

    Raises:
        DatasetNotFoundError: on PostgreSQL, the dataset does not exist. It is raised here, because a later statement
            might find a dataset that a rival has committed meanwhile and that this transaction has not locked.
    """
    if connection.dialect.name != "postgresql" or not is_writing(connection):
        return present_name(connection, name)
    row = sa.select(builder.c.name).where(is_named(name)).with_for_update(key_share=True)  # FOR NO KEY UPDATE
    while (present := connection.execute(row).scalar()) is None:
        names = list_names(connection)
        if name not in names:  # otherwise a rival committed it between the two statements, and it can be locked now
            raise no_dataset(connection, name, names)
    return str(present)


def lock_reference(connection: sa.Connection, reference: Reference) -> Reference:
    """Lock its dataset; the reference by the present name of the dataset."""
    name = lock_dataset(connection, reference.name)
    return reference if name == reference.name else replace(reference, name=name)
