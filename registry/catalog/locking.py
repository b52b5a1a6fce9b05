"""One change of a dataset at a time: every change of what references mean locks the dataset's row first.

The order of locks is: the row of the builder, then the rows that change, the end of the event chain last (events.py).
"""

from __future__ import annotations

import sqlalchemy as sa

from registry.catalog.not_found import list_names, no_dataset
from registry.catalog.tables import builder


def lock_dataset(connection: sa.Connection, name: str) -> None:
    """Wait until no other transaction changes dataset ``name``, and keep others waiting until this one ends.

    Its configs, versions and aliases may be read and referred to all the while. SQLite's write transactions exclude
    each other anyway.

    Raises:
        DatasetNotFoundError: on PostgreSQL, there is no such dataset. It is decided here, because a later statement
            would find what a rival commits meanwhile, without the lock.
    """
    if connection.dialect.name != "postgresql":
        return
    row = sa.select(builder.c.id).where(builder.c.name == name).with_for_update(key_share=True)  # FOR NO KEY UPDATE
    while connection.execute(row).first() is None:
        known = list_names(connection)
        if name not in known:  # else it was committed between the two statements, and can be locked now
            raise no_dataset(name, known)
