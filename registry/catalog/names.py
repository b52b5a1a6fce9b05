"""The names of datasets in SQL: one that was renamed is found by each name that it has had.

Rows have the present name. Events, and the numbers in the ledger, keep the name of their time. A name belongs to one
dataset forever, so its names together select the events of a dataset, whatever it was called when they happened.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.rows import json_agg
from registry.catalog.tables import builder, dataset_name

RENAME: Final = "rename"


@lru_cache(16)
def is_named(name: str | sa.BindParameter[str]) -> sa.ColumnElement[bool]:
    """The condition for the dataset that has this name, or had it before; over the columns of ``builder``."""
    present = builder.alias("present")
    ids = (
        sa.select(present.c.id).where(present.c.name == name),
        sa.select(dataset_name.c.builder_id).where(dataset_name.c.name == name),
    )
    return builder.c.id == sa.func.coalesce(*(query.correlate(None).scalar_subquery() for query in ids))


def present_name(connection: sa.Connection, name: str) -> str:
    """The present name of the dataset that has or had ``name``; ``name`` itself if there is none."""
    result: str | None = connection.execute(sa.select(builder.c.name).where(is_named(name))).scalar()
    return name if result is None else result


@cache
def names_column() -> sa.Label[Any]:
    """The names of the dataset in ``builder``, oldest first, as a JSON array; empty or NULL if it never was renamed."""
    in_order = (
        sa.select(dataset_name.c.name)
        .where(dataset_name.c.builder_id == builder.c.id)
        .order_by(dataset_name.c.position)
        .correlate(builder)
        .subquery("in_order")
    )
    return sa.select(json_agg(in_order.c.name)).scalar_subquery().label("names")


def told_as(connection: sa.Connection, *datasets: str) -> tuple[str, ...]:
    """How events may name each ``name[/config]``: by every name that the dataset has had."""
    other = dataset_name.alias("other")
    named = sa.select(dataset_name.c.name).join(other, other.c.builder_id == dataset_name.c.builder_id)
    texts: dict[str, None] = {}
    for dataset in datasets:
        name, slash, config = dataset.partition("/")
        for former in (name, *connection.execute(named.where(other.c.name == name)).scalars()):
            texts[former + slash + config] = None
    return tuple(texts)


def present_names(connection: sa.Connection) -> dict[str, str]:
    """The present name of each dataset that was renamed, by every name that it has had."""
    query = sa.select(dataset_name.c.name, builder.c.name).join_from(dataset_name, builder)
    return dict(map(tuple, connection.execute(query.order_by(dataset_name.c.position))))


def in_present(present: dict[str, str], dataset: str) -> str:
    """``name[/config]`` in an event, by its present name; ``present`` are the names of ``present_names``."""
    name, slash, config = dataset.partition("/")
    return present.get(name, name) + slash + config
