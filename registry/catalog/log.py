"""What does the event log say? Events in their order, read in batches: a log of millions needs no more memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.events import read_event
from registry.catalog.not_found import explain_dataset
from registry.catalog.rows import stored_values
from registry.catalog.session import reading
from registry.catalog.tables import builder, builder_config, event
from registry.errors import UsageError
from registry.model import Event, Reference, describe_moment

BATCH: Final = 1000
"""Events of one query."""

_MAX_LIMIT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which events are meant; None asks for nothing.

    Attributes:
        since, until: from this moment to that one, both included.
        datasets: of these, each ``name`` or ``name/config``.
        actions: of these, e.g. ``publish``.
    """

    since: datetime | None = None
    until: datetime | None = None
    datasets: Collection[str] | None = None
    actions: Collection[str] | None = None

    def condition(self) -> sa.ColumnElement[bool]:
        """The same in SQL."""
        conditions: list[sa.ColumnElement[bool]] = [sa.true()]
        if self.since is not None:
            conditions.append(event.c.at >= self.since)
        if self.until is not None:
            conditions.append(event.c.at <= self.until)
        if self.datasets is not None:
            conditions.append(event.c.dataset.in_(sorted(self.datasets)))
        if self.actions is not None:
            conditions.append(event.c.action.in_(sorted(self.actions)))
        return sa.and_(*conditions)


def read_events(
    connection: sa.Connection,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    datasets: Collection[str] | None = None,
    actions: Collection[str] | None = None,
    after_id: int = 0,
    limit: int | None = None,
) -> Iterator[Event]:
    """The events that a ``Filter`` of these asks for, the oldest first; ``limit`` keeps the newest of them.

    Raises:
        CatalogError: an event does not read; it is damaged.
    """
    condition = Filter(since=since, until=until, datasets=datasets, actions=actions).condition()
    last = _before_newest(connection, condition, after_id, limit)
    while batch := _batch(connection, condition, last):
        yield from batch
        last = batch[-1].id


def stream_events(engine: sa.Engine, wanted: Filter, *, limit: int | None) -> Iterator[Event]:
    """The same, each batch in a transaction of its own: whoever reads slowly keeps nobody waiting.

    Raises:
        UsageError: a limit below 1, a time without a zone, or ``since`` later than ``until``.
    """
    if any(moment is not None and moment.tzinfo is None for moment in (wanted.since, wanted.until)):
        raise UsageError("a time without a time zone is not one moment", hint="Give it one, e.g. tzinfo=datetime.UTC.")
    if wanted.since is not None and wanted.until is not None and wanted.since > wanted.until:
        since, until = describe_moment(wanted.since), describe_moment(wanted.until)
        raise UsageError(f"nothing is both since {since} and until {until}", hint="Give the earlier moment as since.")
    if limit is not None and not 1 <= limit <= _MAX_LIMIT:
        raise UsageError(f"a log shows from 1 to {_MAX_LIMIT:,} events, not {limit!s:.40}")

    def events() -> Iterator[Event]:
        condition = wanted.condition()
        last = 0
        for number in count():
            with reading(engine) as connection:
                if number == 0:
                    last = _before_newest(connection, condition, 0, limit)
                batch = _batch(connection, condition, last)
            yield from batch
            if len(batch) < BATCH:
                return
            last = batch[-1].id

    return events()


def find_datasets(connection: sa.Connection, dataset: str) -> tuple[str, ...]:
    """What events call a dataset: itself for one config; a name alone stands for all its configs.

    Raises:
        DatasetNotFoundError, ConfigNotFoundError: there is none.
        UsageError: a version or an alias stands behind it.
    """
    wanted = Reference.parse(dataset)
    if wanted.request is not None or wanted.alias is not None:
        raise UsageError(f"{dataset}: name a dataset without a version", hint=f"Try: {wanted.dataset}")
    query = (
        sa.select(builder_config.c.name)
        .join_from(builder, builder_config, builder_config.c.builder_id == builder.c.id)
        .where(builder.c.name == wanted.name)
    )
    if wanted.config is not None:
        query = query.where(builder_config.c.name == wanted.config)
    configs = connection.execute(query).scalars().all()
    if not configs:
        raise explain_dataset(connection, wanted)
    named = tuple(f"{wanted.name}/{config}" if config else wanted.name for config in configs)
    # What concerns all configs, such as which one is the default, is told of the name alone.
    return named if wanted.config is not None else tuple({wanted.name, *named})


def _batch(connection: sa.Connection, condition: sa.ColumnElement[bool], last: int) -> list[Event]:
    query = sa.select(event).where(condition, event.c.id > last).order_by(event.c.id).limit(BATCH)
    with stored_values():
        return [read_event(row) for row in connection.execute(query)]


def _before_newest(
    connection: sa.Connection, condition: sa.ColumnElement[bool], after_id: int, limit: int | None
) -> int:
    """The id before the first of the newest ``limit`` events, or ``after_id`` where there are fewer."""
    if limit is None:
        return after_id
    newest: sa.Select[Any] = (
        sa.select(event.c.id).where(condition, event.c.id > after_id).order_by(event.c.id.desc()).limit(limit)
    )
    first = connection.execute(sa.select(sa.func.min(newest.subquery("newest").c.id))).scalar()
    return after_id if first is None else int(first) - 1
