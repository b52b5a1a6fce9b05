"""Runs the migrations for Alembic: in one transaction, one process at a time.

`registry.catalog.schema` passes a connection without a transaction (``config.attributes["connection"]``), or one with a
transaction that the migrations join: then, on SQLite, foreign keys are off already.

SQLite: Alembic's batch mode creates a new table, copies the rows, drops the old table and renames the new one. With
foreign keys on, dropping the table deletes the child rows; in any case, it drops the triggers. Foreign keys can be
switched outside a transaction only. So the order is: foreign keys off, BEGIN IMMEDIATE (which is also the lock),
migrate, create lost triggers again, check every foreign key, COMMIT, foreign keys on.
PostgreSQL: DDL is transactional; an advisory lock of the transaction makes a second process wait.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import sqlalchemy as sa
from alembic import context

LOCK = (0x72656769, 1)  # "regi", and the number of the lock: 1 is for migrators


def main() -> None:
    connection = context.config.attributes.get("connection")
    if connection is None:
        raise RuntimeError("run the migrations with `registry db upgrade`, which passes the connection")
    context.configure(connection=connection, transactional_ddl=True)
    if connection.dialect.name == "sqlite":
        migrate_sqlite(connection)
    else:
        migrate_postgresql(connection)


def transaction(connection: sa.Connection) -> AbstractContextManager[object]:
    return nullcontext() if connection.in_transaction() else connection.begin()


def migrate_postgresql(connection: sa.Connection) -> None:
    with transaction(connection):
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:a, :b)"), {"a": LOCK[0], "b": LOCK[1]})
        context.run_migrations()


def migrate_sqlite(connection: sa.Connection) -> None:
    driver: Any = connection.connection.driver_connection
    dropped_on_purpose: set[str] = set()

    def note_dropped(_c: Any, _cursor: Any, statement: str, _p: Any, _x: Any, _many: bool) -> None:
        if match := re.match(r'\s*DROP\s+TRIGGER\s+(?:IF\s+EXISTS\s+)?"?(\w+)', statement, re.IGNORECASE):
            dropped_on_purpose.add(match[1])

    driver.execute("PRAGMA foreign_keys=OFF")
    sa.event.listen(connection, "before_cursor_execute", note_dropped)
    try:
        # The engine of the catalog emits BEGIN IMMEDIATE here (session.py, write transactions).
        with transaction(connection):
            triggers = list_triggers(connection)
            context.run_migrations()
            restore_triggers(connection, triggers, dropped_on_purpose)
            if broken := connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall():
                raise RuntimeError(f"the migration would leave rows without their parent: {broken[:5]}")
    finally:
        sa.event.remove(connection, "before_cursor_execute", note_dropped)
        driver.execute("PRAGMA foreign_keys=ON")


def list_triggers(connection: sa.Connection) -> dict[str, tuple[str, str]]:
    """(table, statement) of each trigger, by name."""
    rows = connection.exec_driver_sql("SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger'")
    return {name: (table, statement) for name, table, statement in rows}


def restore_triggers(connection: sa.Connection, before: dict[str, tuple[str, str]], on_purpose: set[str]) -> None:
    """Create the triggers that were lost with a copied table, except those that a migration dropped by name."""
    present = list_triggers(connection)
    tables = set(connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars())
    for name, (table, statement) in before.items():
        if name not in present and table in tables and name not in on_purpose:
            connection.exec_driver_sql(statement)


main()
