"""Connects to the database of a catalog and runs transactions; ``faults.py`` makes its errors ours.

One action is one transaction, opened here and nowhere else. SQLite: reads begin with BEGIN, writes with BEGIN
IMMEDIATE, so that a writer waits for its turn instead of failing half way. PostgreSQL: reads are REPEATABLE READ, so
that all statements of one look-up see one moment; writes are READ COMMITTED, so that a writer that waited for a rival
sees what the rival committed. Locks, unique constraints and one advisory lock settle races there
(``selection.lock_dataset``, ``events.py``).

``kept_answers.py`` runs a call and keeps its answer in one transaction: there, the call joins the outer transaction.
"""

from __future__ import annotations

import os
import random
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import sqlalchemy as sa

from registry.catalog import frozen_sqlite
from registry.catalog.faults import (
    explain_path,
    file_changed,
    is_worth_connecting_again,
    is_worth_retrying,
    typed_faults,
    unknown_outcome,
)
from registry.catalog.own_sqlite import sqlite3
from registry.catalog.rows import check_text
from registry.catalog.urls import describe_url, network_filesystem, parse_url
from registry.environment import read_number
from registry.errors import CatalogError, MissingExtraError, NotACatalogError, SchemaAheadError

T = TypeVar("T")

_ATTEMPTS: Final = 5
_WRITES: Final = "registry_writes"
_REFUSAL: Final = "registry_refusal"


class Limits(NamedTuple):
    """How long a catalog waits for its database.

    Attributes:
        connect_seconds: for a connection to be made, at least 2 (REGISTRY_CONNECT_TIMEOUT; PostgreSQL).
        query_seconds: for a sign of life while a statement runs (REGISTRY_QUERY_TIMEOUT; PostgreSQL).
        lock_seconds: for a lock that another connection holds (REGISTRY_LOCK_TIMEOUT).
        tries: attempts to connect to a server that refuses for the moment (REGISTRY_TRIES; PostgreSQL).
    """

    connect_seconds: float = 10
    query_seconds: float = 300
    lock_seconds: float = 60
    tries: int = 5

    @classmethod
    def from_environment(cls) -> Limits:
        """The defaults, changed by environment variables.

        Raises:
            UsageError: a variable is not a positive number.
        """
        usual = cls()
        return cls(
            connect_seconds=read_number("REGISTRY_CONNECT_TIMEOUT", usual.connect_seconds),
            query_seconds=read_number("REGISTRY_QUERY_TIMEOUT", usual.query_seconds),
            lock_seconds=read_number("REGISTRY_LOCK_TIMEOUT", usual.lock_seconds),
            tries=max(1, int(read_number("REGISTRY_TRIES", usual.tries))),
        )


def open_engine(url: str | os.PathLike[str], *, frozen: bool = False) -> sa.Engine:
    """An engine for the catalog at ``url``, which connects when it is first used.

    A process may fork while it holds the engine: the child opens connections of its own.

    SQLite connections have foreign keys on. Files in WAL mode on a network file system are refused, because WAL needs
    memory that all readers share; a catalog created there keeps SQLite's rollback journal.

    Args:
        url: see ``registry.catalog.open_catalog``.
        frozen: the URL is an SQLite file to which nobody writes, and which somebody else made: nothing is written, and
            its schema calls no function that has an effect.

    Raises:
        UsageError: not a URL of a catalog, or a limit in the environment is not a positive number.
        NotACatalogError: the path is a folder.
        CatalogError: the path cannot be accessed.
        MissingExtraError: PostgreSQL without psycopg (extra ``pg``).
    """
    parsed = parse_url(url)
    limits = Limits.from_environment()
    if parsed.get_backend_name() == "sqlite":
        # Connections of other threads open the same file after the program has changed its folder.
        parsed = parsed.set(database=str(Path(parsed.database or "").absolute()))
        # With isolation_level None, the driver starts no transaction on its own; _begin_sqlite does.
        options: dict[str, Any] = {"connect_args": {"timeout": limits.lock_seconds, "isolation_level": None}}
    else:
        options = {"pool_pre_ping": True}
    try:
        engine = sa.create_engine(parsed, hide_parameters=True, **options)
    except ImportError as error:
        raise MissingExtraError(package="psycopg", extra="pg", needed_for="a PostgreSQL catalog") from error
    if parsed.get_backend_name() == "sqlite":
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        path = Path(parsed.database or "")
        _check_path(path, describe_url(parsed))
        sa.event.listen(engine, "do_connect", lambda *_: _refuse_shared_wal(path))
        sa.event.listen(engine, "do_connect", lambda *given: frozen_sqlite.connect(path, *given, always=frozen))
        if frozen:
            sa.event.listen(engine, "connect", _distrust_sqlite)
        sa.event.listen(engine, "checkout", lambda _, record, __: _check_file(path, record, parsed))
    else:
        milliseconds = int(limits.lock_seconds * 1000)
        sa.event.listen(engine, "begin", lambda connection: _begin_postgresql(connection, milliseconds))
        sa.event.listen(engine, "do_connect", lambda _, __, given, options: _open_limited(given, options, limits))
    sa.event.listen(engine, "connect", _note_process)
    sa.event.listen(engine, "checkout", _check_process)
    return engine


@contextmanager
def opened_engine(url: str | os.PathLike[str], *, frozen: bool = False) -> Iterator[sa.Engine]:
    """An engine for the block, see ``open_engine``."""
    engine = open_engine(url, frozen=frozen)
    try:
        yield engine
    finally:
        engine.dispose()


class SqlGroup:
    """A group of calls of the catalog protocol, in SQL."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine


class _Outer(threading.local):
    """The transaction that ``write`` and ``reading`` of this thread join, if they are about the same database."""

    engine: sa.Engine | None = None
    connection: sa.Connection | None = None


_outer: Final = _Outer()


@contextmanager
def joined_by_calls(engine: sa.Engine, connection: sa.Connection) -> Iterator[None]:
    """In this block, ``write`` and ``reading`` of this thread use ``connection``, a transaction of ``write``.

    So what several calls write is committed together. Faults of the database pass through them to the outer ``write``,
    which alone knows whether to run everything again. A call that fails and is caught undoes only its own part.
    """
    before = _outer.engine, _outer.connection
    _outer.engine, _outer.connection = engine, connection
    try:
        yield
    finally:
        _outer.engine, _outer.connection = before


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection for look-ups: all its queries see the same moment, and errors of the database are ours."""
    if _outer.engine is engine and _outer.connection is not None:
        yield _outer.connection
        return
    with _reading_alone(engine) as connection:
        yield connection


@contextmanager
def _reading_alone(engine: sa.Engine) -> Iterator[sa.Connection]:
    with typed_faults(engine.url, is_read=True), _connect(engine) as connection:
        if connection.dialect.name == "postgresql":
            # psycopg puts it into its BEGIN, so it costs no statement.
            connection.execution_options(isolation_level="REPEATABLE READ")
        with frozen_sqlite.unchanged(connection):
            yield connection


@contextmanager
def reading_at_length(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection as that of ``reading`` whose queries may take as long as they need, e.g. to sort a large table."""
    with _reading_alone(engine) as connection:
        _wait_without_limit(connection)
        try:
            yield connection
        finally:
            if connection.dialect.name == "postgresql":
                connection.invalidate()  # the pool must not pass it on without its limit


def write(engine: sa.Engine, action: Callable[[sa.Connection], T]) -> T:
    """Run ``action`` in one transaction and commit; anything it raises undoes it all.

    A serialization failure, a deadlock, a unique row that a rival has inserted first, or a connection that is lost
    before COMMIT is sent runs it again, at most five times in all, so ``action`` must not touch anything but the
    connection it receives, and finds what the rival wrote. Once COMMIT is sent, the transaction is never run again.

    Raises:
        SchemaAheadError: see ``refuse_writes``.
        CatalogUnavailableError, CatalogError: see ``typed_faults``.
    """
    require_known_schema(engine)
    if _outer.engine is engine and _outer.connection is not None:
        with _outer.connection.begin_nested():
            return action(_outer.connection)
    writer = engine.execution_options(**{_WRITES: True})
    with typed_faults(engine.url):
        for attempt in range(1, _ATTEMPTS + 1):
            is_committing = False
            try:
                with _connect(writer) as connection, connection.begin():
                    result = action(connection)
                    is_committing = True
            except sa.exc.DBAPIError as error:
                if is_committing and (unknown := unknown_outcome(error, engine.url)) is not None:
                    raise unknown from error
                if attempt == _ATTEMPTS or not is_worth_retrying(error):
                    raise
                time.sleep(random.uniform(0, 0.05 * 2**attempt))  # noqa: S311 (spreads rivals, guards no secret)
            else:
                return result
    raise AssertionError("unreachable")


def _connect(engine: sa.Engine) -> sa.Connection:
    """A connection; a server that refuses for the moment is asked again, with growing pauses."""
    tries = 1 if engine.dialect.name == "sqlite" else Limits.from_environment().tries
    for attempt in range(1, tries + 1):
        try:
            return engine.connect()
        except sa.exc.DBAPIError as error:
            if attempt == tries or not is_worth_connecting_again(error):
                raise
            time.sleep(0.1 * 2**attempt * random.uniform(0.5, 1))  # noqa: S311 (spreads rivals, guards no secret)
    raise AssertionError("unreachable")


def transact(engine: sa.Engine, action: Callable[[sa.Connection], T], *, actor: str = "", dry_run: bool = False) -> T:
    """Run ``action`` as ``write`` does, or, for a dry run, over a connection that only reads.

    Raises:
        UsageError: no database can store the text of the ``actor``.
    """
    check_text(actor, "actor")
    if dry_run:
        require_known_schema(engine)
        with reading(engine) as connection:
            return action(connection)
    return write(engine, action)


def refuse_writes(engine: sa.Engine, refusal: SchemaAheadError) -> None:
    """Let ``write`` of an engine raise ``refusal`` from now on."""
    engine.update_execution_options(**{_REFUSAL: refusal})


def require_known_schema(engine: sa.Engine) -> None:
    """Raise SchemaAheadError if ``refuse_writes`` was called: the database has what this release does not know."""
    refusal: SchemaAheadError | None = engine.get_execution_options().get(_REFUSAL)
    if refusal is not None:
        raise SchemaAheadError(refusal.message, hint=refusal.hint, details=refusal.details)


def is_writing(connection: sa.Connection) -> bool:
    """Whether ``connection`` belongs to a transaction of ``write``: a reader locks no rows."""
    return bool(connection.get_execution_options().get(_WRITES, False))


@contextmanager
def migrating(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection without a transaction, whose next one is a write, as ``migrations/env.py`` expects.

    Its statements may take as long as they need.
    """
    with typed_faults(engine.url), _connect(engine.execution_options(**{_WRITES: True})) as connection:
        _wait_without_limit(connection)
        yield connection
        connection.invalidate()  # the pool must not pass it on without its limit


def use_wal(engine: sa.Engine) -> None:
    """Put an SQLite catalog into WAL mode, where readers do not wait for a writer; not on a network file system.

    The mode is stored in the file. A file that cannot be written, or on a full disk, stays as it is: it can be read.
    """
    if engine.dialect.name != "sqlite":
        return
    with typed_faults(engine.url), engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        deadline = time.monotonic() + Limits.from_environment().lock_seconds
        while True:
            try:
                mode = driver.execute("PRAGMA journal_mode").fetchone()[0]
                if mode != "wal" and network_filesystem(Path(engine.url.database or "")) is None:
                    driver.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                # Unlike other statements, this one does not wait for a lock.
                if error.sqlite_errorname.startswith(
                    ("SQLITE_READONLY", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN")
                ):
                    return
                if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0, 0.02))  # noqa: S311 (spreads rivals, guards no secret)


def erase_free_space(engine: sa.Engine) -> bool:
    """Rewrite the tables of versions without removed values; False if another process keeps the database busy.

    SQLite rewrites the whole file and truncates its log. On PostgreSQL, the write-ahead log and the backups of the
    server keep the values.
    """
    try:
        with typed_faults(engine.url), _connect(engine) as connection:
            _wait_without_limit(connection)
            if engine.dialect.name != "sqlite":
                # CLUSTER rewrites a table as VACUUM FULL does, and within a transaction. So the limit for its lock ends
                # with the transaction: a setting of the session would pass to another client of a pooler.
                with connection.begin():
                    connection.exec_driver_sql("SELECT set_config('lock_timeout', '10s', true)")
                    for table in ("dataset_version", "search_document"):
                        connection.exec_driver_sql(f"CLUSTER {table} USING pk_{table}")
                        connection.exec_driver_sql(f"ALTER TABLE {table} SET WITHOUT CLUSTER")
                connection.invalidate()
                return True
            driver: Any = connection.connection.driver_connection
            driver.execute("VACUUM")
            is_busy = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            return not is_busy
    except CatalogError:
        return False


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA foreign_keys=ON")


def _distrust_sqlite(connection: Any, _record: Any) -> None:
    for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "query_only=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    if is_writing(connection):
        frozen_sqlite.refuse_write(connection)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing(connection) else "BEGIN")


def _begin_postgresql(connection: sa.Connection, milliseconds: int) -> None:
    # A reader waits for locks, too: those of a migration, or of somebody's maintenance.
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {milliseconds}")


def _refuse_shared_wal(path: Path) -> None:
    filesystem = network_filesystem(path)
    if filesystem is None:
        return
    try:
        with path.open("rb") as file:
            header = file.read(20)
    except OSError:
        return  # SQLite reports it with more detail
    if header[18:20] == b"\x02\x02":  # file format versions: 2 is WAL
        raise CatalogError(
            f"{path} is in WAL mode, which is not safe on the network file system {filesystem}",
            hint=f"On the machine that has the disk, run: sqlite3 {path} 'PRAGMA journal_mode=DELETE'. "
            "For many machines use PostgreSQL.",
        )


def _check_path(path: Path, where: str) -> None:
    """Refuse a path that exists and cannot be a catalog, or that this process may not look at."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return  # it becomes a catalog
    except OSError as error:
        raise explain_path(error, path, where) from error
    if stat.S_ISDIR(mode):
        raise NotACatalogError(f"{where} is a folder", hint="Name a file in it, e.g. catalog.db.")
    if not stat.S_ISREG(mode):
        raise NotACatalogError(f"{where} is not a regular file", hint="Name a file, e.g. catalog.db.")


def _open_limited(arguments: Any, options: dict[str, Any], limits: Limits) -> Any:
    from registry.catalog.postgres import connect

    options.setdefault("connect_timeout", max(1, round(limits.connect_seconds)))
    return connect(arguments, options, query_seconds=limits.query_seconds)


def _wait_without_limit(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        from registry.catalog.postgres import wait_without_limit

        wait_without_limit(connection)


def require_file(engine: sa.Engine) -> None:
    """From now on, do not let SQLite create the file: if it is gone, it was deleted while the catalog was open.

    Without this, a new connection of the pool creates an empty file and then finds no tables in it.
    """
    if engine.dialect.name == "sqlite":
        path = Path(engine.url.database or "")

        def refuse_missing(*_: Any) -> None:
            if not path.exists():
                raise file_changed(path, describe_url(engine.url))

        # Before the listener that opens files on read-only file systems.
        sa.event.listen(engine, "do_connect", refuse_missing, insert=True)


def _check_file(path: Path, record: Any, url: sa.URL) -> None:
    """Compare the file at ``path`` with the one that the connection opened: a deleted one still accepts writes."""
    try:
        facts = path.stat()
        found = facts.st_dev, facts.st_ino
    except OSError:
        found = None
    # SQLite creates the file of a new catalog with the first write, after the connection was made.
    opened = record.info.get("file")
    if opened is None:
        record.info["file"] = found
    elif found != opened:
        raise file_changed(path, describe_url(url))
    frozen_sqlite.require_unchanged(path, record)


def _note_process(_connection: Any, record: Any) -> None:
    record.info["pid"] = os.getpid()


def _check_process(_connection: Any, record: Any, proxy: Any) -> None:
    if record.info["pid"] != os.getpid():
        # Inherited through a fork: the parent still uses it, so forget it without closing it.
        record.dbapi_connection = proxy.dbapi_connection = None
        raise sa.exc.DisconnectionError("this connection belongs to the parent process")
