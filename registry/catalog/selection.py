"""Which row answers a reference? The request, said in SQL: one query finds the version, however many there are.

Decision 2 of the design: no request gives the canonical version; a wildcard or range the highest that matches and is
neither yanked nor dropped; an exact number or an alias that very version, unless it is dropped.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.json_sql import json_object_agg
from registry.catalog.tables import (
    READABLE,
    alias,
    builder,
    builder_config,
    dataset_version,
    experiment,
    version_experiment,
)
from registry.model import WITHDRAWN, Reference, VersionClause, VersionRequest, request_bounds
from registry.model.bounds import HIGHEST, LOWEST

canonical_version: Final = dataset_version.alias("canonical_version")
NUMBER: Final = (dataset_version.c.major, dataset_version.c.minor, dataset_version.c.patch)
CANONICAL_NUMBER: Final = (
    canonical_version.c.major.label("canonical_major"),
    canonical_version.c.minor.label("canonical_minor"),
    canonical_version.c.patch.label("canonical_patch"),
)
IS_WITHDRAWN: Final = dataset_version.c.state.in_(sorted(state.value for state in WITHDRAWN))
"""``Candidate.is_withdrawn`` over the columns of ``dataset_version``; for its index a look-up says ``READABLE``."""


def version_query(reference: Reference) -> sa.Select[Any]:
    """The query whose one row, if any, is the version that ``reference`` names.

    Beside the columns of ``dataset_version``: ``builder_name``, ``config_name``, ``canonical_*``, and ``experiments``,
    a JSON object of the flags that the version overrides.
    """
    overrides = (
        sa.select(json_object_agg(experiment.c.name, version_experiment.c.enabled))
        .join_from(version_experiment, experiment)
        .where(version_experiment.c.version_id == dataset_version.c.id)
        .scalar_subquery()
    )
    query = (
        sa.select(
            dataset_version,
            builder.c.name.label("builder_name"),
            builder_config.c.name.label("config_name"),
            *CANONICAL_NUMBER,
            overrides.label("experiments"),
        )
        .select_from(builder)
        .join(builder_config, builder_config.c.builder_id == builder.c.id)
        .join(dataset_version, dataset_version.c.config_id == builder_config.c.id)
        .outerjoin(canonical_version, canonical_version.c.id == builder_config.c.canonical_version_id)
    )
    is_meant = (builder.c.name == reference.name, meant_config(reference.config))
    if reference.alias is not None:
        return query.join(
            alias, sa.and_(alias.c.config_id == builder_config.c.id, alias.c.version_id == dataset_version.c.id)
        ).where(*is_meant, alias.c.name == reference.alias)
    if reference.request is None:
        return query.where(*is_meant, dataset_version.c.id == builder_config.c.canonical_version_id)
    # The config and the version in subqueries, because each is one row: from a join both databases would first collect
    # every version that the request allows, and then sort them.
    config_id = sa.select(builder_config.c.id).join_from(builder_config, builder).where(*is_meant).correlate(None)
    chosen = (
        sa.select(dataset_version.c.id)
        .where(dataset_version.c.config_id == config_id.scalar_subquery(), request_condition(reference.request))
        .correlate(None)
    )
    if reference.request.exact is None:
        chosen = chosen.where(sa.text(READABLE))
    chosen = chosen.order_by(*(part.desc() for part in NUMBER)).limit(1)
    return query.where(dataset_version.c.id == chosen.scalar_subquery())


def meant_config(config: str | None) -> sa.ColumnElement[bool]:
    """The config that a reference means: None is the default one."""
    return builder_config.c.is_default if config is None else builder_config.c.name == config


def named_config(config: str | None) -> sa.ColumnElement[bool]:
    """The config that a published version belongs to: None where its dataset has no configs."""
    return builder_config.c.name == (config or "")


def request_condition(request: VersionRequest) -> sa.ColumnElement[bool]:
    """``request.allows`` over the columns of ``dataset_version``.

    The number as a whole between two bounds: both databases answer that from the unique index, however many versions
    there are. What bounds cannot say, ``!=`` and inner wildcards, is looked at row by row.
    """
    bounds = request_bounds(request)
    if bounds.is_empty:
        return sa.false()
    conditions = [_clause_condition(clause) for clause in bounds.rest]
    if bounds.low == bounds.high:
        conditions += [column == part for column, part in zip(NUMBER, bounds.low, strict=True)]
        return sa.and_(*conditions)
    if bounds.low > LOWEST:
        conditions.append(_row(*NUMBER) >= _row(*bounds.low))
    if bounds.high < HIGHEST:
        conditions.append(_row(*NUMBER) <= _row(*bounds.high))
    return sa.and_(sa.true(), *conditions)


def _clause_condition(clause: VersionClause) -> sa.ColumnElement[bool]:
    """The parts that a clause names, one by one."""
    parts = zip(NUMBER, (clause.major, clause.minor, clause.patch), strict=True)
    in_series = sa.and_(sa.true(), *(column == part for column, part in parts if part is not None))
    return sa.not_(in_series) if clause.operator == "!=" else in_series


def _row(*parts: Any) -> Any:
    return sa.tuple_(*parts)
