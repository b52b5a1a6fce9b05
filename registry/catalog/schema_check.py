"""Does the database still have the schema it should have? What Alembic compares, and what it does not.

Alembic sees tables, columns, types, indexes, unique constraints and foreign keys. Primary keys, CHECK constraints,
triggers and rows without a parent are looked at here; what is searched is compared by ``search_schema``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from registry.catalog import immutability, search_schema
from registry.catalog.session import reading
from registry.catalog.tables import whole_metadata


def differences(engine: sa.Engine) -> list[str]:
    """One line for each difference between ``engine``'s database and the tables of this release."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    options = {"include_object": search_schema.is_ours, "include_name": search_schema.is_our_name}
    with reading(engine) as connection:
        found = compare_metadata(MigrationContext.configure(connection, opts=options), whole_metadata())
        lines = [line for difference in found for line in _describe(difference)]
        lines += _constraints(connection)
        if connection.dialect.name == "sqlite":
            lines += _sqlite_triggers(connection)
            lines += _sqlite_orphans(connection)
        else:
            lines += _postgresql_triggers(connection)
        lines += search_schema.missing_parts(connection)
    if not lines:  # rows can be read as they should be
        lines += search_schema.wrong_contents(engine)
    return lines


def _describe(difference: Any) -> Iterator[str]:
    if isinstance(difference, list):  # changes of one column come as a list of their own
        for change in difference:
            yield from _describe(change)
        return
    verb, *operands = difference
    names = ".".join(_name(operand) for operand in operands if _name(operand))
    # Alembic says what it would do to the database; a reader wants to know what is wrong with it.
    match verb.partition("_"):
        case ("add", _, noun):
            yield f"{noun} is missing: {names}"
        case ("remove", _, noun):
            yield f"{noun} is not part of the schema: {names}"
        case ("modify", _, noun):
            yield f"{noun} differs: {names}"
        case _:
            yield f"{verb}: {names}"


def _name(operand: Any) -> str:
    if isinstance(operand, str):
        return operand
    if isinstance(operand, (sa.Table, sa.Column)):
        return operand.name
    table = getattr(operand, "table", None)
    name = getattr(operand, "name", None)
    return f"{table.name}.{name}" if table is not None and name else ""


def _constraints(connection: sa.Connection) -> Iterator[str]:
    inspector = sa.inspect(connection)
    present = set(inspector.get_table_names())
    for table in whole_metadata().sorted_tables:
        if table.name not in present:
            continue  # said already
        key = tuple(inspector.get_pk_constraint(table.name)["constrained_columns"])
        if key != tuple(column.name for column in table.primary_key.columns):
            yield f"primary key differs: {table.name}"
        wanted = {str(c.name) for c in table.constraints if isinstance(c, sa.CheckConstraint)}
        actual = {check["name"] for check in inspector.get_check_constraints(table.name)}
        for name in sorted(wanted - actual):
            yield f"check constraint is missing: {table.name}.{name}"


def _sqlite_triggers(connection: sa.Connection) -> Iterator[str]:
    rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    actual: dict[str, str] = {row.name: row.sql for row in rows}
    for name, statement in (immutability.sqlite_triggers() | search_schema.sqlite_triggers()).items():
        if name not in actual:
            yield f"trigger is missing: {name}"
        elif actual[name] != statement:
            yield f"trigger differs: {name}"


def _sqlite_orphans(connection: sa.Connection) -> Iterator[str]:
    for table, row, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        yield f"foreign key is broken: row {row} of {table} has no {parent}"


def _postgresql_triggers(connection: sa.Connection) -> Iterator[str]:
    rows = connection.exec_driver_sql(
        "SELECT c.relname, t.tgname, t.tgenabled, p.proname, t.tgargs FROM pg_trigger t"
        " JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid"
        " WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace"
    )
    actual = {(table, name): (enabled, function, bytes(args)) for table, name, enabled, function, args in rows}
    for key, arguments in sorted(immutability.postgres_triggers().items()):
        if key not in actual:
            yield f"trigger is missing: {key[1]}"
        elif actual[key][1:] != ("registry_refuse_change", b"".join(name.encode() + b"\0" for name in arguments)):
            yield f"trigger differs: {key[1]}"
        elif actual[key][0] not in ("O", "A", b"O", b"A"):
            yield f"trigger is switched off: {key[1]}"
    body = connection.exec_driver_sql(
        "SELECT prosrc FROM pg_proc WHERE proname = 'registry_refuse_change'"
        " AND pronamespace = current_schema()::regnamespace"
    ).scalar()
    if (body or "").split() != immutability.POSTGRES_FUNCTION.split():
        yield "function differs: registry_refuse_change"
