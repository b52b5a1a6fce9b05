"""Which row answers a reference? The request, said in SQL: one query finds the version, however many there are.

Decision 2 of the design: no request gives the canonical version; a wildcard or range the highest that matches and is
neither yanked nor dropped; an exact number or an alias that very version, unless it is dropped.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.json_sql import json_object_agg
from registry.catalog.tables import alias, builder, builder_config, dataset_version, experiment, version_experiment
from registry.model import Reference, VersionClause, VersionRequest, VersionState

canonical_version: Final = dataset_version.alias("canonical_version")
NUMBER: Final = (dataset_version.c.major, dataset_version.c.minor, dataset_version.c.patch)
CANONICAL_NUMBER: Final = (
    canonical_version.c.major.label("canonical_major"),
    canonical_version.c.minor.label("canonical_minor"),
    canonical_version.c.patch.label("canonical_patch"),
)
_WITHDRAWN: Final = (VersionState.YANKED.value, VersionState.DROPPED.value)


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
        .where(builder.c.name == reference.name, meant_config(reference.config))
    )
    if reference.alias is not None:
        return query.join(
            alias, sa.and_(alias.c.config_id == builder_config.c.id, alias.c.version_id == dataset_version.c.id)
        ).where(alias.c.name == reference.alias)
    if reference.request is None:
        return query.where(dataset_version.c.id == builder_config.c.canonical_version_id)
    if reference.request.exact is None:
        query = query.where(dataset_version.c.state.not_in(_WITHDRAWN))
    return query.where(request_condition(reference.request)).order_by(*(part.desc() for part in NUMBER)).limit(1)


def meant_config(config: str | None) -> sa.ColumnElement[bool]:
    """The config that a reference means: None is the default one."""
    return builder_config.c.is_default if config is None else builder_config.c.name == config


def named_config(config: str | None) -> sa.ColumnElement[bool]:
    """The config that a published version belongs to: None where its dataset has no configs."""
    return builder_config.c.name == (config or "")


def request_condition(request: VersionRequest) -> sa.ColumnElement[bool]:
    """``request.allows`` over the columns of ``dataset_version``."""
    return sa.and_(sa.true(), *(_clause_condition(clause) for clause in request.clauses))


def _clause_condition(clause: VersionClause) -> sa.ColumnElement[bool]:
    parts = (clause.major, clause.minor, clause.patch)
    in_series = sa.and_(
        sa.true(), *(column == part for column, part in zip(NUMBER, parts, strict=True) if part is not None)
    )
    prefix = [part for part in parts if part is not None]
    match clause.operator:
        case "":
            return in_series
        case "!=":
            return sa.not_(in_series)
        case ">=":
            return _at_least(prefix)
        case ">":
            return sa.and_(_at_least(prefix), sa.not_(_starts_with(prefix)))
        case "<=":
            return sa.or_(sa.not_(_at_least(prefix)), _starts_with(prefix))
        case "<":
            return sa.not_(_at_least(prefix))
        case "~":
            return sa.and_(_at_least(prefix), _starts_with(prefix[:2]))
        case _:  # ^: the parts up to the first that is not zero stay
            fixed = next((index for index, part in enumerate(prefix) if part), len(prefix) - 1) + 1
            return sa.and_(_at_least(prefix), _starts_with(prefix[:fixed]))


def _starts_with(prefix: list[int]) -> sa.ColumnElement[bool]:
    return sa.and_(*(column == part for column, part in zip(NUMBER, prefix, strict=False)))


def _at_least(prefix: list[int]) -> sa.ColumnElement[bool]:
    """The first parts of the number, as a row, are not below ``prefix``."""
    condition: sa.ColumnElement[bool] = NUMBER[len(prefix) - 1] >= prefix[-1]
    for column, part in reversed(list(zip(NUMBER, prefix[:-1], strict=False))):
        condition = sa.or_(column > part, sa.and_(column == part, condition))
    return condition
