"""Restores a backup into an empty catalog of either database, in one transaction.

    check the whole file  ->  one transaction:  schema of the backup  ->  rows  ->  schema of this registry
                                                ->  search documents  ->  compare the rows with the event log

If anything fails, the database is as it was. Statements contain names of our own tables only: names in the file are
compared with them, and its values are bound parameters. ``backup_file`` reads the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from registry.catalog.backup import stored_tables
from registry.catalog.backup_file import BackupReader
from registry.catalog.events import FIRST_PREVIOUS
from registry.catalog.guards import CONTINUES
from registry.catalog.log_verify import verify_log
from registry.catalog.revision import HEAD, REVISIONS, read_status_of, require_ours
from registry.catalog.schema import RemovedSecrets, finish_upgrade, migrate_within
from registry.catalog.search import rebuild_documents
from registry.catalog.session import migrating, open_engine, opened_engine, use_wal
from registry.catalog.tables import UtcDateTime, event
from registry.catalog.urls import describe_url, parse_url, sqlite_file
from registry.catalog.web_urls import quote_catalog
from registry.errors import (
    BackupFormatError,
    CatalogNotEmptyError,
    LogTamperedError,
    SchemaAheadError,
    UsageError,
    spell,
)

if TYPE_CHECKING:
    from registry.catalog.outcomes import BackupFacts, LogReport
    from registry.model import Advance

_BATCH: Final = 5000
_MIGRATORS: Final = (0x72656769, 1)  # "regi", and the lock of migrations/env.py
_MOST: Final = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The result of a restoration.

    Attributes:
        url: the database, without its password.
        facts: what the backup says about itself.
        log: the comparison of the rows with the event log; None if it was not wanted.
        secrets_removed: the versions of an older schema whose URLs had secrets, which were removed.
    """

    url: str
    facts: BackupFacts
    log: LogReport | None
    secrets_removed: tuple[RemovedSecrets, ...]


def check_backup(file: IO[bytes], *, shown: str) -> BackupFacts:
    """Read a whole backup, and compare it with its checksum; ``shown`` is its name in messages.

    Raises:
        BackupFormatError: it is damaged, cut off or not a backup.
        SchemaAheadError: a newer registry made it.
    """
    facts = BackupReader(file, shown=shown).check()
    if facts.schema not in REVISIONS:
        raise SchemaAheadError(
            f"{shown} has the schema {facts.schema:.20}, made by a newer registry than this one ({HEAD})",
            hint="Install a newer version: pip install --upgrade shardbook",
            details={"revision": facts.schema, "head": HEAD},
        )
    return facts


def restore_backup(
    url: str,
    open_file: Callable[[], IO[bytes]],
    *,
    shown: str,
    verify: bool = True,
    anchor: str | None = None,
    advance: Advance | None = None,
) -> Restored:
    """Fill the empty catalog at ``url`` from a backup; an SQLite file that does not exist is created.

    Args:
        url: see ``registry.catalog.open_catalog``.
        open_file: opens the backup, which is read twice.
        shown: the name of the file in messages.
        verify: compare the rows with the event log, and refuse a backup that differs from it.
        anchor: the hash of an event that the log must contain.
        advance: called with the number of rows that were inserted since its last call.

    Raises:
        UsageError: there is an anchor, and ``verify`` is False.
        BackupFormatError, SchemaAheadError: see ``check_backup``; or the rows contradict each other.
        CatalogNotEmptyError: the catalog has rows.
        NotACatalogError: the database holds something else.
        LogTamperedError: the rows differ from the event log, or the log does not contain the anchor.
    """
    if anchor is not None and not verify:
        raise UsageError("an anchor is compared with the event log", hint="Leave it out, or verify the backup.")
    with open_file() as file:
        facts = check_backup(file, shown=shown)
    engine = open_engine(url)
    path = sqlite_file(engine.url)
    is_new = path is not None and not path.exists()
    try:
        changes: list[dict[str, Any]] = []
        with open_file() as file, _one_transaction(engine) as connection:
            _require_empty(connection)
            reader = BackupReader(file, shown=shown)
            migrate_within(connection, reader.schema)
            _insert_everything(connection, reader, advance)
            _require_head(connection, reader, facts.head)
            if reader.facts != facts:
                raise BackupFormatError(f"{shown} was replaced while it was read", hint="Nothing was restored.")
            changes += migrate_within(connection, HEAD)
            rebuild_documents(connection)
            if anchor is not None:
                _require_anchor(connection, anchor, facts.head, shown)
            log = verify_log(connection, anchor=anchor) if verify else None
            if log is not None:
                _require_sound(log, shown)
        use_wal(engine)
        removed = tuple(finish_upgrade(engine, changes))
        return Restored(url=_absolute(engine.url), facts=facts, log=log, secrets_removed=removed)
    except BaseException:
        if is_new and path is not None:
            with suppress(OSError):
                if not path.stat().st_size:
                    path.unlink()
        raise
    finally:
        engine.dispose()


def shown_url(url: str) -> str:
    """The database at ``url`` for people: with the absolute path of an SQLite file, without a password."""
    return _absolute(parse_url(url))


def _absolute(url: sa.URL) -> str:
    path = sqlite_file(url)
    return describe_url(url if path is None else url.set(database=str(path.absolute())))


@contextmanager
def _one_transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction without time limits that creates tables and checks foreign keys at its end only."""
    with migrating(engine) as connection:
        if connection.dialect.name == "sqlite":
            # Only outside of transactions. The connection is not used again.
            driver: Any = connection.connection.driver_connection
            driver.execute("PRAGMA foreign_keys=OFF")
        with connection.begin():
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(*_MIGRATORS)))
            yield connection


def _require_empty(connection: sa.Connection) -> None:
    """Refuse a catalog that has rows. On PostgreSQL, nobody else can write to its tables from now on."""
    status = read_status_of(connection)
    require_ours(status)
    tables = stored_tables(connection)
    if tables and connection.dialect.name == "postgresql":
        names = ", ".join(table.name for table in tables)
        connection.exec_driver_sql(f"LOCK TABLE {names} IN EXCLUSIVE MODE")
    for table in tables:
        if connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first() is not None:
            url = describe_url(connection.engine.url)
            raise CatalogNotEmptyError(
                f"{url} is not empty: it has rows in the table {table.name}",
                hint="A backup is restored into an empty catalog only. Name another file or database with "
                f"{spell('url')}; to see what is there: registry list {quote_catalog(url)}",
                details={"table": table.name},
            )


def _insert_everything(connection: sa.Connection, reader: BackupReader, advance: Advance | None) -> None:
    """Insert the rows of all tables, in any order, and check every foreign key at the end."""
    known = {table.name: table for table in stored_tables(connection)}
    missing = set(known)
    is_postgresql = connection.dialect.name == "postgresql"
    inspector = sa.inspect(connection)
    keys = [(name, key["name"]) for name in known for key in inspector.get_foreign_keys(name) if is_postgresql]
    lifted = _lift_continues(connection)
    for table, key in keys:
        connection.exec_driver_sql(f"ALTER TABLE {table} ALTER CONSTRAINT {key} DEFERRABLE INITIALLY DEFERRED")
    try:
        for name, columns, lines in reader.tables():
            found = known.get(name)
            if found is None or sorted(map(str, columns)) != sorted(found.columns.keys()):
                raise reader.fault(
                    f"the schema {reader.schema} has no table {name!r:.60}"
                    if found is None
                    else f"the table {name} has other columns in the schema {reader.schema}"
                )
            missing.discard(name)
            rows = _rows(reader, [found.columns[str(column)] for column in columns], lines)
            while batch := list(islice(rows, _BATCH)):
                _insert(connection, found, columns, batch)
                if advance is not None:
                    advance(len(batch))
        if is_postgresql:
            connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")
        elif broken := connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall():
            raise reader.fault(f"the rows contradict each other: a row of {broken[0][0]} has no {broken[0][2]}")
    except (sa.exc.IntegrityError, sa.exc.DataError) as error:
        raise reader.fault(f"the rows contradict each other: {_first_line(error)}") from error
    if missing:
        raise reader.fault(f"it lacks the tables {', '.join(sorted(missing))}")
    for statement in lifted:
        connection.exec_driver_sql(statement)
    for table, key in keys:
        connection.exec_driver_sql(f"ALTER TABLE {table} ALTER CONSTRAINT {key} NOT DEFERRABLE")
    if is_postgresql:
        _advance_sequences(connection, known.values())


def _lift_continues(connection: sa.Connection) -> list[str]:
    """Accept events in any order and state: `verify_log` judges them. Returns the statements that end this."""
    if connection.dialect.name == "postgresql":
        query = sa.text("SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass('event') AND tgname = :name")
        if connection.execute(query, {"name": CONTINUES}).first() is None:
            return []  # an older schema
        connection.exec_driver_sql(f"ALTER TABLE event DISABLE TRIGGER {CONTINUES}")
        return [f"ALTER TABLE event ENABLE TRIGGER {CONTINUES}"]
    query = sa.text("SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = :name")
    created = list(connection.execute(query, {"name": CONTINUES}).scalars())
    if created:
        connection.exec_driver_sql(f"DROP TRIGGER {CONTINUES}")
    return created


def _require_head(connection: sa.Connection, reader: BackupReader, head: str) -> None:
    last = connection.execute(sa.select(event.c.hash).order_by(event.c.id.desc()).limit(1)).scalar()
    if (last or FIRST_PREVIOUS) != head:
        raise reader.fault("the head in the last line is not that of the event log")


def _rows(reader: BackupReader, columns: Sequence[sa.Column[Any]], lines: Iterable[bytes]) -> Iterator[list[Any]]:
    """The values of each row, as the columns take them."""
    checks = [_CHECKS[type(column.type)] for column in columns]
    for line in lines:
        values = reader.parse_row(line, len(columns))
        try:
            yield [None if value is None else check(value) for check, value in zip(checks, values, strict=True)]
        except (ValueError, OverflowError) as error:
            raise reader.fault(str(error)) from error


def _insert(connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[list[Any]]) -> None:
    if connection.dialect.name == "postgresql":
        from registry.catalog.postgres import copy_rows

        copy_rows(connection, table.name, columns, rows)
    else:  # by the driver: SQLAlchemy's dictionaries of the values take as long as the insertion
        statement = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 (names of ours)
        for place, name in enumerate(columns):
            kind = table.columns[name].type.dialect_impl(connection.dialect)
            if (bind := kind.bind_processor(connection.dialect)) is not None:
                for row in rows:
                    row[place] = bind(row[place])
        connection.exec_driver_sql(statement, list(map(tuple, rows)))


def _advance_sequences(connection: sa.Connection, tables: Iterable[sa.Table]) -> None:
    """Let the database continue to count after the highest id; the rows brought their own."""
    for table in tables:
        for column in table.primary_key:
            if not isinstance(column.type, sa.Integer):
                continue
            sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
            highest = connection.execute(sa.select(sa.func.max(column))).scalar()
            if highest is not None and connection.execute(sa.select(sequence)).scalar() is not None:
                connection.execute(sa.select(sa.func.setval(sequence, highest)))


def _require_anchor(connection: sa.Connection, anchor: str, head: str, location: str) -> None:
    if anchor == FIRST_PREVIOUS or connection.execute(sa.select(event.c.id).where(event.c.hash == anchor)).first():
        return  # `verify_log` refuses the former, which proves nothing
    raise LogTamperedError(
        f"{location} does not contain the anchor: expected an event with the hash {anchor[:64]}, found another log, "
        f"whose head is {head}",
        hint="Nothing was restored. Compare the anchor with the head that `registry backup` printed for this file. The "
        f"file may be older than the anchor, of another catalog, or forged: use another, or omit {spell('anchor')}.",
        details={"expected": anchor[:64], "found": head},
    )


def require_empty(url: str) -> None:
    """Refuse a database that a backup cannot be restored into; an SQLite file that does not exist is not created.

    Raises:
        CatalogNotEmptyError: the catalog has rows.
        NotACatalogError: the database holds something else.
    """
    with opened_engine(url) as engine:
        if engine.dialect.name != "sqlite" or Path(engine.url.database or "").exists():
            with engine.connect() as connection:
                _require_empty(connection)


def _require_sound(log: LogReport, location: str) -> None:
    try:
        log.require_sound()
    except LogTamperedError as error:
        raise LogTamperedError(
            f"{location}: {error.message}",
            hint="Nothing was restored. Another program changed the catalog or the backup. Use an earlier backup. To "
            f"restore this one as it is: {spell('verify', False)}, without {spell('anchor')}",
            details=error.details,
        ) from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a text, found {value!r:.40}")
    if "\0" in value or (not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value)):
        raise ValueError("a text contains a NUL or a lone surrogate, which databases cannot store")
    return value


def _integer(value: Any) -> int:
    if type(value) is not int or not -_MOST <= value < _MOST:
        raise ValueError(f"expected a whole number of 64 bits, found {value!r:.40}")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, found {value!r:.40}")
    return value


def _moment(value: Any) -> datetime:
    moment = datetime.fromisoformat(_text(value))
    if moment.tzinfo is None:
        raise ValueError(f"expected a moment with its time zone, found {value!r:.40}")
    return moment


_CHECKS: Final[dict[type, Callable[[Any], Any]]] = {
    sa.Text: _text,
    sa.BigInteger: _integer,
    sa.Boolean: _boolean,
    UtcDateTime: _moment,
}


def _first_line(error: sa.exc.DBAPIError) -> str:
    return str(error.orig).strip().partition("\n")[0][:200]
