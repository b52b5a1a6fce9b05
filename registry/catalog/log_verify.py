"""Was anything changed past the registry? The event log against itself, and then against the tables."""

from __future__ import annotations

import sqlalchemy as sa

from registry.catalog.log_chain import Advance, Faults, walk_chain
from registry.catalog.log_tables import TableComparison
from registry.catalog.summaries import LogReport
from registry.catalog.tables import event, split


def verify_log(connection: sa.Connection, *, anchor: str | None = None, advance: Advance | None = None) -> LogReport:
    """Verify every event, and every row that events speak of. One snapshot: ``reading(engine)``.

    Events that do not read cannot be replayed: then the tables are not looked at.
    """
    told = advance or (lambda _count: None)
    faults = Faults()
    chain = walk_chain(connection, faults, anchor=anchor, advance=told)
    tables = TableComparison(connection, faults, told)
    if chain.is_readable:
        tables.run(chain.datasets)
    return LogReport(
        num_events=chain.num_events,
        num_versions=tables.num_versions,
        num_shards=tables.num_shards,
        head=chain.head,
        faults=tuple(faults.kept),
        num_faults=faults.num_faults,
    )


def count_rows(connection: sa.Connection) -> int:
    """How many rows ``verify_log`` tells its ``advance`` of."""
    events = connection.execute(sa.select(sa.func.count()).select_from(event)).scalar_one()
    shards = connection.execute(sa.select(sa.func.sum(split.c.num_shards))).scalar_one()
    return int(events) + int(shards or 0)
