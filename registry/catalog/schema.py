"""The schema of a catalog: its state, its migrations, and its comparison with the tables (``registry db``).

Plain functions over Alembic, which is imported only here and only when a schema is changed or compared. The migrations
themselves ensure that one process migrates at a time, in one transaction (``migrations/env.py``). A new SQLite catalog
needs no Alembic (``create``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import sqlalchemy as sa

from registry.catalog.faults import no_catalog
from registry.catalog.guards import POSTGRES_FUNCTIONS, guard_triggers_postgresql, guard_triggers_sqlite
from registry.catalog.locations import find_data_dir
from registry.catalog.revision import (
    HEAD,
    REVISIONS,
    SchemaStatus,
    read_revision,
    read_status,
    read_status_of,
    require_current,
    require_ours,
)
from registry.catalog.rights import Grant, Level, grant, missing_rights, renew
from registry.catalog.search import (
    index_triggers_sqlite,
    is_our_item,
    is_our_name,
    missing_parts,
    rebuild_index,
    wrong_contents,
)
from registry.catalog.session import erase_free_space, migrating, opened_engine, reading, use_wal
from registry.catalog.tables import event, whole_metadata
from registry.catalog.urls import sqlite_path
from registry.errors import CatalogError, UsageError

if TYPE_CHECKING:
    from alembic.config import Config

    from registry.catalog.values import DataDirectory


def status(url: str | os.PathLike[str]) -> SchemaStatus:
    """The state of the database's schema; a file that does not exist is not created."""
    with opened_engine(url) as engine:
        return read_status(engine)


def recorded_data_dir(url: str | os.PathLike[str]) -> DataDirectory | None:
    """The data directory that a catalog records, also one whose schema is behind."""
    with opened_engine(url) as engine:
        if read_status(engine).state not in ("current", "behind"):
            return None
        with reading(engine) as connection:
            return find_data_dir(connection)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedSecrets:
    """A version whose row lost passwords, tokens or signatures in an upgrade.

    Attributes:
        reference: the version.
        columns: the changed columns of its row, sorted.
        location: its new folder, or None if that did not change.
        is_erased: whether the database was rewritten, so that its files no longer contain the secrets.
    """

    reference: str
    columns: tuple[str, ...]
    location: str | None
    is_erased: bool


def upgrade(
    url: str | os.PathLike[str], revision: str = "head", *, told: Callable[[RemovedSecrets], None] | None = None
) -> tuple[str | None, str | None]:
    """Bring the schema up to ``revision``; an empty database becomes a catalog. Returns the revision before and after.

    ``told`` is called for each version whose row had secrets in its URLs.

    Many processes may call it at once: one migrates, and the others wait.

    Raises:
        SchemaAheadError, NotACatalogError: not a database of this registry.
        UsageError: an unknown revision, or one below the current one.
        CatalogUnavailableError: the database is locked or does not answer.
        CatalogError: a migration failed and was rolled back.
    """
    with opened_engine(url) as engine:
        before = read_status(engine)
        require_ours(before)
        wanted = _known(HEAD if revision == "head" else revision)
        if _age(wanted) < _age(before.revision):
            raise UsageError(
                f"{before.url} has the schema {before.revision}, which is above {revision}",
                hint=f"To go back: registry db downgrade {revision}",
            )
        if before.revision is None and wanted == HEAD and engine.dialect.name == "sqlite":
            create(engine)
        else:
            removed = _upgrade(engine, wanted)
            for secret in removed if told is not None else ():
                told(secret)  # type: ignore[misc]  # it is not None
        return before.revision, read_status(engine).revision


def downgrade(url: str | os.PathLike[str], revision: str) -> tuple[str | None, str | None]:
    """Downgrade the schema to ``revision`` (``base``: no tables); tables and columns that it lacks are dropped.

    Raises:
        CatalogNotFoundError: the SQLite file does not exist.
        SchemaAheadError, NotACatalogError: not a database of this registry.
        UsageError: an unknown revision, or one above the current one.
    """
    with opened_engine(url) as engine:
        before = read_status(engine)
        require_ours(before)
        if before.state == "absent":
            raise no_catalog(before.url, sqlite_path(url) or Path())
        wanted = None if revision == "base" else _known(revision)
        if _age(wanted) > _age(before.revision):
            raise UsageError(
                f"{before.url} has the schema {before.revision or 'base'}, which is below {revision}",
                hint=f"To go forward: registry db upgrade {revision}",
            )
        if before.revision is not None:
            _migrate(engine, "downgrade", revision)
        return before.revision, read_status(engine).revision


def downgrade_notes(url: str | os.PathLike[str], revision: str) -> list[str]:
    """What the software of the schema ``revision`` will report or read otherwise, one sentence each.

    It does not know some of the events in the log, because it is older than they are.
    """
    with opened_engine(url) as engine:
        status = read_status(engine)
        if status.state not in ("current", "behind") or _age(_known(revision) if revision != "base" else None) < 0:
            return []
        with reading(engine) as connection:
            rows = connection.execute(sa.select(event.c.action, sa.func.count()).group_by(event.c.action))
            counts: dict[str, int] = dict(map(tuple, rows))
        return [
            sentence.format(count=f"{counts[action]:,}", revision=revision)
            for action, (since, sentence) in _UNKNOWN_TO_OLDER.items()
            if counts.get(action) and _age(revision) < _age(since)
        ]


_UNKNOWN_TO_OLDER: Final = {
    "remove-secrets": (
        "0008",
        "an upgrade removed secrets from the URLs of versions ({count}): `registry log verify` of the software for the "
        "schema {revision} will report that these versions were changed; after the next upgrade it is sound again",
    ),
    "correct-clock": (
        "0010",
        "the log corrects a wrong clock (events correct-clock: {count}): the software for the schema {revision} reads "
        "events at the times that the clock stamped, and its `registry log verify` will report their order; after the "
        "next upgrade it is sound again",
    ),
}
"""Events that older software does not know: the first schema whose software does, and what follows."""


def check(url: str | os.PathLike[str]) -> list[str]:
    """The differences between the database and its schema, one line each; empty if there are none.

    Compares tables, columns, types, keys, indexes, constraints and triggers, and checks every foreign key. If all of
    that is sound, it compares the search index with the published versions.

    Raises:
        SchemaBehindError, SchemaAheadError, NotACatalogError: not a catalog of the current schema.
    """
    with opened_engine(url) as engine:
        require_current(read_status(engine))
        return differences(engine)


def grant_rights(url: str | os.PathLike[str], role: str, level: Level, *, dry_run: bool = False) -> Grant:
    """Give a role of the server the rights of ``level``, also on tables of later migrations; see ``rights``.

    Raises:
        NotFoundError: the server has no such role.
        UsageError: an SQLite catalog, or an unknown level.
        CatalogPermissionError: the user of ``url`` may not grant rights.
        SchemaBehindError, SchemaAheadError, NotACatalogError: not a catalog of the current schema.
    """
    with opened_engine(url) as engine:
        if engine.dialect.name != "sqlite":
            require_current(read_status(engine))
        return grant(engine, role, level, dry_run=dry_run)


def renew_rights(url: str | os.PathLike[str]) -> list[Grant]:
    """After an upgrade, give every role that has rights those that it lacks on new tables; returns what was granted.

    Raises:
        CatalogPermissionError: the user of ``url`` may not grant rights.
    """
    with opened_engine(url) as engine:
        return renew(engine) if read_status(engine).state == "current" else []


def reindex(url: str | os.PathLike[str]) -> int:
    """Rebuild the search index from the published versions; returns the number of outdated documents.

    Raises:
        SchemaBehindError, SchemaAheadError, NotACatalogError: not a catalog of the current schema.
    """
    with opened_engine(url) as engine:
        require_current(read_status(engine))
        return rebuild_index(engine)


def create(engine: sa.Engine) -> None:
    """Make a catalog of the current schema of a new or empty SQLite file.

    ``migrations/sqlite.sql`` has the statements that the migrations leave there. Alembic would take 0.2 s of CPU for
    its import, and 0.07 s for the migrations.
    """
    use_wal(engine)
    with migrating(engine) as connection, connection.begin():
        if read_status_of(connection).state == "empty":  # no other process was faster
            for statement in (_migrations() / "sqlite.sql").read_text(encoding="utf-8").split(";\n\n"):
                connection.exec_driver_sql(statement)


def config(connection: sa.Connection, **options: str) -> Config:
    """Alembic's configuration for our migrations, run over ``connection`` (see ``session.migrating``)."""
    from alembic.config import Config

    result = Config()
    settings = {"script_location": str(_migrations()), "path_separator": "newline", **options}
    for name, value in settings.items():
        result.set_main_option(name, value.replace("%", "%%"))
    result.attributes["connection"] = connection
    return result


def _migrations() -> Path:
    """The folder of the migrations."""
    package = find_spec("registry.migrations")
    if package is None or not package.submodule_search_locations:
        raise CatalogError(
            "the migrations are not installed with the registry", hint="Install it again: pip install shardbook"
        )
    return Path(next(iter(package.submodule_search_locations)))


def _upgrade(engine: sa.Engine, revision: str) -> list[RemovedSecrets]:
    use_wal(engine)
    return finish_upgrade(engine, _migrate(engine, "upgrade", revision))


def finish_upgrade(engine: sa.Engine, changes: list[dict[str, Any]]) -> list[RemovedSecrets]:
    """After the transaction of an upgrade: erase what was removed, and describe the changes that it reported."""
    is_erased = bool(changes) and erase_free_space(engine)
    return [
        RemovedSecrets(**{**change, "columns": tuple(change["columns"]), "is_erased": is_erased}) for change in changes
    ]


def _migrate(engine: sa.Engine, direction: Literal["upgrade", "downgrade"], revision: str) -> list[dict[str, Any]]:
    """Run the migrations; returns the changes of rows that they report."""
    with migrating(engine) as connection:
        return _run(connection, direction, revision)


def migrate_within(connection: sa.Connection, revision: str) -> list[dict[str, Any]]:
    """Bring the schema to ``revision``, up or down, in the caller's transaction; returns the reported changes of rows.

    On SQLite, foreign keys must be off.

    Raises:
        CatalogError: a migration failed.
    """
    before = read_revision(connection)
    if before == revision:
        return []
    return _run(connection, "upgrade" if _age(revision) > _age(before) else "downgrade", revision)


def _run(connection: sa.Connection, direction: Literal["upgrade", "downgrade"], revision: str) -> list[dict[str, Any]]:
    from alembic import command, util

    try:
        settings = config(connection)
        (command.upgrade if direction == "upgrade" else command.downgrade)(settings, revision)
        changes: list[dict[str, Any]] = settings.attributes.get("changes", [])
        return changes
    except (RuntimeError, sa.exc.IntegrityError, util.CommandError) as error:
        raise CatalogError(
            f"the {direction} to {revision} failed and nothing was changed: {error}",
            hint="Look for damage with: registry db check.",
        ) from error


def _known(revision: str) -> str:
    if revision not in REVISIONS:
        raise UsageError(f"no schema revision {revision[:40]!r}", hint=f"Known revisions: {', '.join(REVISIONS)}.")
    return revision


def _age(revision: str | None) -> int:
    return -1 if revision is None else REVISIONS.index(revision)


def differences(engine: sa.Engine) -> list[str]:
    """One line for each difference between ``engine``'s database and the tables of this release."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    options = {"include_object": is_our_item, "include_name": is_our_name}
    with reading(engine) as connection:
        found = compare_metadata(MigrationContext.configure(connection, opts=options), whole_metadata())
        lines = [line for difference in found for line in _describe(difference)]
        lines += _constraints(connection)
        lines += wrong_triggers(connection)
        if connection.dialect.name == "sqlite":
            lines += _sqlite_orphans(connection)
        else:
            lines += missing_rights(connection)
        lines += missing_parts(connection)
    if not lines:  # the tables are sound, so their rows can be read
        lines += wrong_contents(engine)
    return lines


def _describe(difference: Any) -> Iterator[str]:
    if isinstance(difference, list):  # Alembic reports the changes of one column as a list
        for change in difference:
            yield from _describe(change)
        return
    verb, *operands = difference
    names = ".".join(_name(operand) for operand in operands if _name(operand))
    # Alembic names the operation that would repair the database; the report names the fault.
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
            continue  # reported above
        key = tuple(inspector.get_pk_constraint(table.name)["constrained_columns"])
        if key != tuple(column.name for column in table.primary_key.columns):
            yield f"primary key differs: {table.name}"
        wanted = {str(c.name) for c in table.constraints if isinstance(c, sa.CheckConstraint)}
        actual = {check["name"] for check in inspector.get_check_constraints(table.name)}
        for name in sorted(wanted - actual):
            yield f"check constraint is missing: {table.name}.{name}"


def wrong_triggers(connection: sa.Connection) -> Iterator[str]:
    """Yield a line for each trigger that is missing, switched off, or not ours; on PostgreSQL also for rules."""
    return _sqlite_triggers(connection) if connection.dialect.name == "sqlite" else _postgresql_triggers(connection)


def _sqlite_triggers(connection: sa.Connection) -> Iterator[str]:
    rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name")
    actual: dict[str, str] = {row.name: row.sql for row in rows}
    expected = guard_triggers_sqlite() | index_triggers_sqlite()
    for name, statement in expected.items():
        if name not in actual:
            yield f"trigger is missing: {name}"
        elif actual[name] != statement:
            yield f"trigger differs: {name}"
    for name in actual:
        if name not in expected:
            yield f"trigger is not part of the schema: {name}"


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
    expected = guard_triggers_postgresql()
    for key, (function, arguments) in sorted(expected.items()):
        if key not in actual:
            yield f"trigger is missing: {key[1]}"
        elif actual[key][1:] != (function, b"".join(name.encode() + b"\0" for name in arguments)):
            yield f"trigger differs: {key[1]}"
        elif actual[key][0] not in ("O", "A", b"O", b"A"):
            yield f"trigger is switched off: {key[1]}"
    tables = [table.name for table in whole_metadata().sorted_tables]
    for table, name in sorted(actual.keys() - expected.keys()):
        if table in tables:
            yield f"trigger is not part of the schema: {name}"
    rules = sa.text(
        "SELECT rulename FROM pg_rules WHERE schemaname = current_schema() AND tablename = ANY(:tables)"
        " ORDER BY rulename"
    )
    for name in connection.execute(rules, {"tables": tables}).scalars():
        yield f"rule is not part of the schema: {name}"
    query = sa.text(
        "SELECT prosrc FROM pg_proc WHERE proname = :name AND pronamespace = current_schema()::regnamespace"
    )
    for name, body in POSTGRES_FUNCTIONS.items():
        stored: str | None = connection.execute(query, {"name": name}).scalar()
        if (stored or "").split() != body.split():
            yield f"function differs: {name}"
