"""Who may change a dataset now? One writer at a time for each dataset, so that writers meet rows in one order."""

from __future__ import annotations

import sqlalchemy as sa

from registry.catalog.tables import builder


def lock_dataset(connection: sa.Connection, name: str) -> None:
    """Wait until no other transaction changes versions, configs or aliases of the dataset ``name``; then keep them out.

    The first statement of every such transaction; the event chain is locked last. A dataset that does not exist yet has
    no row to lock: there the unique constraints decide. SQLite's write transactions exclude each other anyway.
    """
    if connection.dialect.name == "postgresql":
        # NO KEY UPDATE: rows that only point at the dataset need not wait.
        connection.execute(sa.select(builder.c.id).where(builder.c.name == name).with_for_update(key_share=True))
