"""How is a catalog's database opened, and what is one transaction? Engines, connections, BEGIN, retries.

One action is one transaction, opened here and nowhere else. SQLite: reads begin with BEGIN, writes with BEGIN
IMMEDIATE, so that a writer waits for its turn instead of failing half way. PostgreSQL: reads are REPEATABLE READ, so
that all statements of one look-up see one moment; writes are READ COMMITTED, so that a writer sees what the rival
committed for which it waited. Locks, unique constraints and one advisory lock decide there (locking.py, events.py).
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from registry.catalog.faults import is_worth_retrying, typed_faults
from registry.catalog.location import describe_url, is_sqlite, network_filesystem, parse_url
from registry.catalog.own_sqlite import sqlite3
from registry.errors import CatalogError, MissingExtraError, NotACatalogError

T = TypeVar("T")

BUSY_SECONDS: Final = 60.0
"""How long a connection waits for a lock that another one holds, on both databases."""

_ATTEMPTS: Final = 5
_WRITES: Final = "registry_writes"


def open_engine(url: str | os.PathLike[str], *, busy_seconds: float = BUSY_SECONDS) -> sa.Engine:
    """An engine for the catalog at ``url``: ``sqlite:///path``, a plain path, ``postgresql[+psycopg]://...``.

    Nothing is connected yet. The engine is safe to keep across a fork: a child opens connections of its own.

    SQLite connections have foreign keys on and wait ``busy_seconds`` for a lock. Files in WAL mode on a network file
    system are refused, because WAL needs memory shared between all readers; a catalog made there keeps SQLite's
    rollback journal.

    Raises:
        UsageError: text that is no URL of a catalog.
        NotACatalogError: the path of a folder.
        MissingExtraError: PostgreSQL without psycopg (extra ``pg``).
    """
    parsed = parse_url(url)
    if is_sqlite(parsed):
        # isolation_level None: the driver begins no transaction on its own, ours do (_begin_sqlite).
        options: dict[str, Any] = {"connect_args": {"timeout": busy_seconds, "isolation_level": None}}
    else:
        options = {"pool_pre_ping": True, "connect_args": {"connect_timeout": 10}}
    try:
        engine = sa.create_engine(parsed, hide_parameters=True, **options)
    except ImportError as error:
        raise MissingExtraError(package="psycopg", extra="pg", needed_for="a PostgreSQL catalog") from error
    if is_sqlite(parsed):
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        path = Path(parsed.database or "")
        if path.is_dir():
            raise NotACatalogError(f"{describe_url(parsed)} is a folder", hint="Name a file in it, e.g. catalog.db.")
        sa.event.listen(engine, "do_connect", lambda *_: _refuse_shared_wal(path))
        sa.event.listen(engine, "do_connect", lambda dialect, _, __, options: _open_frozen(path, dialect, options))
    else:
        milliseconds = int(busy_seconds * 1000)
        sa.event.listen(engine, "begin", lambda connection: _begin_postgresql(connection, milliseconds))
    sa.event.listen(engine, "connect", _note_process)
    sa.event.listen(engine, "checkout", _check_process)
    return engine


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection for look-ups, all of whose queries see one moment; errors of the database are raised as ours."""
    with typed_faults(describe_url(engine.url)), engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            # psycopg says it in its BEGIN: it costs no statement.
            connection.execution_options(isolation_level="REPEATABLE READ")
        yield connection


def write(engine: sa.Engine, action: Callable[[sa.Connection], T]) -> T:
    """Run ``action`` in one transaction and commit; anything it raises undoes it all.

    A serialization failure or deadlock runs it again, at most five times in all, so ``action`` touches nothing but the
    connection it is given.

    Raises:
        sqlalchemy.exc.IntegrityError: a constraint was broken; the transaction is rolled back.
        CatalogUnavailableError, CatalogError: see ``typed_faults``.
    """
    writer = engine.execution_options(**{_WRITES: True})
    with typed_faults(describe_url(engine.url)):
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with writer.begin() as connection:
                    return action(connection)
            except sa.exc.DBAPIError as error:
                if attempt == _ATTEMPTS or not is_worth_retrying(error):
                    raise
                time.sleep(random.uniform(0, 0.05 * 2**attempt))  # noqa: S311 (spreads rivals, guards no secret)
    raise AssertionError("unreachable")


def is_writing(connection: sa.Connection) -> bool:
    """Whether ``connection`` belongs to a transaction of ``write``: a reader locks no rows."""
    return bool(connection.get_execution_options().get(_WRITES, False))


@contextmanager
def migrating(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection in no transaction, whose next transaction is a write: what ``migrations/env.py`` expects."""
    with typed_faults(describe_url(engine.url)), engine.execution_options(**{_WRITES: True}).connect() as connection:
        yield connection


def use_wal(engine: sa.Engine) -> None:
    """Put an SQLite catalog into WAL mode, where readers do not wait for a writer; not on a network file system.

    The mode is stored in the file. A file that cannot be written stays as it is: it can still be read.
    """
    if not is_sqlite(engine.url) or network_filesystem(Path(engine.url.database or "")) is not None:
        return
    with typed_faults(describe_url(engine.url)), engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                if driver.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                    driver.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                # The switch does not wait for a rival's lock as other statements do.
                if error.sqlite_errorname.startswith("SQLITE_READONLY"):
                    return
                if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0, 0.02))  # noqa: S311 (spreads rivals, guards no secret)


def erase_free_space(engine: sa.Engine) -> bool:
    """Write the versions anew without what was removed from them; False where somebody keeps the database busy.

    SQLite writes the whole file, and its log is truncated. On PostgreSQL, the log of changes and the backups of the
    server keep what they have.
    """
    try:
        with typed_faults(describe_url(engine.url)), engine.connect() as connection:
            if not is_sqlite(engine.url):
                connection.execution_options(isolation_level="AUTOCOMMIT")
                connection.exec_driver_sql("SET lock_timeout = '10s'")
                for table in ("dataset_version", "search_document"):
                    connection.exec_driver_sql(f"VACUUM (FULL) {table}")
                return True
            driver: Any = connection.connection.driver_connection
            driver.execute("VACUUM")
            is_busy = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            return not is_busy
    except CatalogError:
        return False


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA foreign_keys=ON")


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _begin_postgresql(connection: sa.Connection, milliseconds: int) -> None:
    if connection.get_execution_options().get(_WRITES, False):
        connection.exec_driver_sql("SELECT set_config('lock_timeout', %s, true)", (f"{milliseconds}ms",))


def _refuse_shared_wal(path: Path) -> None:
    filesystem = network_filesystem(path)
    if filesystem is None:
        return
    try:
        with path.open("rb") as file:
            header = file.read(20)
    except OSError:
        return  # SQLite says it better
    if header[18:20] == b"\x02\x02":  # file format versions: 2 is WAL
        raise CatalogError(
            f"{path} is in WAL mode, which is not safe on the network file system {filesystem}",
            hint=f"On the machine that has the disk, run: sqlite3 {path} 'PRAGMA journal_mode=DELETE'. "
            "For many machines use PostgreSQL.",
        )


def _open_frozen(path: Path, dialect: sa.Dialect, options: dict[str, Any]) -> Any:
    """A connection to a file on a read-only file system; None for any other file.

    A reader of a file in WAL mode makes two files beside it, which cannot be done there. ``immutable`` says that nobody
    writes to it: read-only means just that, unless it is another's view of a disk that somebody does write to, and then
    a ``-wal`` file is there.
    """
    try:
        is_frozen = bool(os.statvfs(path).f_flag & os.ST_RDONLY) and not path.with_name(f"{path.name}-wal").exists()
    except (OSError, AttributeError):  # no such file, or no such call on this system
        return None
    return dialect.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True, **options) if is_frozen else None


def _note_process(_connection: Any, record: Any) -> None:
    record.info["pid"] = os.getpid()


def _check_process(_connection: Any, record: Any, proxy: Any) -> None:
    if record.info["pid"] != os.getpid():
        # Inherited through a fork: the parent goes on using it, so forget it without closing it.
        record.dbapi_connection = proxy.dbapi_connection = None
        raise sa.exc.DisconnectionError("this connection belongs to the parent process")
