"""Every change of a cell, and a row inserted or deleted, in every table of a catalog, behind the registry's back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from registry.catalog.log_verify import verify_log
from registry.catalog.session import open_engine
from registry.catalog.tables import UtcDateTime, metadata


@contextmanager
def without_guards(url: str) -> Iterator[sa.Connection]:
    """A connection on which triggers and foreign keys do not act; everything is undone at its end."""
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                driver: Any = connection.connection.driver_connection
                driver.execute("PRAGMA foreign_keys=OFF")
                driver.execute("PRAGMA ignore_check_constraints=ON")
            else:
                connection.exec_driver_sql("SET session_replication_role = replica")
            yield connection
            connection.rollback()
            connection.invalidate()
    finally:
        engine.dispose()


def faults_after(connection: sa.Connection, statement: sa.Executable) -> list[str]:
    """Return the faults that `log verify` finds after a statement, which is undone, or ``IntegrityError``."""
    with connection.begin_nested() as nested:
        triggers: list[str] = []
        if connection.dialect.name == "sqlite":
            query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name NOT LIKE 'search_document%'"
            for name, sql in connection.exec_driver_sql(query).all():
                connection.exec_driver_sql(f"DROP TRIGGER {name}")
                triggers.append(sql)
        try:
            connection.execute(statement)
            for sql in triggers:
                connection.exec_driver_sql(sql)
            return [str(one) for one in verify_log(connection).faults]
        finally:
            nested.rollback()


def others(column: sa.Column[Any], value: Any) -> list[Any]:
    """Values that may be stored in place of ``value``, each as similar as a forger would choose."""
    if isinstance(column.type, sa.Boolean):
        return [not value]
    if value is None:
        if isinstance(column.type, UtcDateTime):
            return [datetime(2026, 1, 1, tzinfo=UTC)]
        return [1 if isinstance(column.type, sa.Integer) else "none"]
    if isinstance(value, bytes):
        return [value + b"x"]
    if isinstance(value, datetime):
        return [value + timedelta(seconds=1), value - timedelta(seconds=1)]
    if isinstance(value, int):
        return [value + 1, value + 1000]
    if column.name.endswith("_json"):
        parsed = json.loads(value)
        changed = {**parsed, "x": 1} if isinstance(parsed, dict) else [*parsed, "x"]
        return [json.dumps(changed, sort_keys=True, separators=(",", ":"))]
    if len(value) == 64 and set(value) <= set("0123456789abcdef"):
        return ["f" * 64 if value[0] != "f" else "e" * 64]
    return [{"supported": "yanked", "documented": "tfds-4", "add": "first"}.get(value, f"{value}x")]


def cells(connection: sa.Connection, *, rows: int, most: int) -> Iterator[tuple[str, str, sa.Executable]]:
    """Changes of every column of every table: table.column, what is changed, and the statement.

    Of each table, the first and the last ``rows`` rows are changed, each value into at most ``most`` others. A row of
    each table is deleted, and one is inserted.
    """
    for table in metadata.sorted_tables:
        key = list(table.primary_key.columns)
        found = connection.execute(sa.select(table).order_by(*key)).all()
        chosen = found if len(found) <= 2 * rows else [*found[:rows], *found[-rows:]]
        for row in chosen:
            named = tuple(row._mapping[one.name] for one in key)
            is_row = sa.and_(*(column == row._mapping[column.name] for column in key))
            for column in table.columns:
                value = row._mapping[column.name]
                for other in others(column, value)[:most]:
                    change = sa.update(table).where(is_row).values({column.name: other})
                    yield f"{table.name}.{column.name}", f"{named}: {value!r:.60} -> {other!r:.60}", change
            yield table.name, f"DELETE {named}", sa.delete(table).where(is_row)
        if found:
            yield table.name, "INSERT", sa.insert(table).values(_another(table, found))


def _another(table: sa.Table, rows: list[Any]) -> dict[str, Any]:
    """A row like the last one, with other names, numbers and hashes where they must be unique."""
    values = dict(rows[-1]._mapping)
    unique = {
        column.name for one in table.constraints if isinstance(one, sa.UniqueConstraint) for column in one.columns
    }
    unique |= {column.name for column in table.primary_key.columns} | {"name", "position"}
    for name in unique & values.keys():
        value = values[name]
        if isinstance(value, int) and not table.columns[name].foreign_keys:
            values[name] = 1 + max(row._mapping[name] for row in rows)
        elif isinstance(value, str):
            values[name] = "d" * 64 if len(value) == 64 else f"{value}x"
    values.update({"is_default": False} if "is_default" in values else {})
    return values
