"""Who may change a dataset now? One at a time: every change of what references mean takes the dataset's row first.

The order of locks is: the row of the builder, then the rows that change, the end of the event chain last (events.py).
"""

from __future__ import annotations

import sqlalchemy as sa

from registry.catalog.tables import builder


def lock_dataset(connection: sa.Connection, name: str) -> None:
    """Wait until no other transaction changes dataset ``name``, and keep others waiting until this one ends.

    Its configs, versions and aliases may be read and referred to all the while. A dataset that does not exist yet has
    no row to lock: there the unique constraints decide. SQLite's write transactions exclude each other anyway.
    """
    if connection.dialect.name == "postgresql":
        row = sa.select(builder.c.id).where(builder.c.name == name)
        connection.execute(row.with_for_update(key_share=True))  # FOR NO KEY UPDATE
