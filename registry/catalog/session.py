"""The database of a catalog: its URL, engine and connections, one transaction, and its errors as ours.

One action is one transaction, opened here and nowhere else. SQLite: reads begin with BEGIN, writes with BEGIN
IMMEDIATE, so that a writer waits for its turn instead of failing half way. PostgreSQL: reads are REPEATABLE READ, so
that all statements of one look-up see one moment; writes are READ COMMITTED, so that a writer sees what the rival
committed for which it waited. Locks, unique constraints and one advisory lock decide there
(``selection.lock_dataset``, ``events.py``).
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from registry.catalog.own_sqlite import sqlite3
from registry.errors import CatalogError, CatalogUnavailableError, MissingExtraError, NotACatalogError, UsageError

T = TypeVar("T")

BUSY_SECONDS: Final = 60.0
"""How long a connection waits for a lock that another one holds, on both databases."""

_ATTEMPTS: Final = 5
_WRITES: Final = "registry_writes"


_FORMS: Final = "Write sqlite:///catalog.db, the path of a file, or postgresql://user@host/database."

_DRIVERS: Final = {
    "sqlite": "sqlite+pysqlite",
    "sqlite+pysqlite": "sqlite+pysqlite",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}

_NETWORK_FILESYSTEM: Final = re.compile(
    r"nfs\d?|cifs|smb\w*|9p|afs|ceph|lustre|gpfs|beegfs|glusterfs|pvfs2|orangefs|virtiofs|fuse(?!blk).*"
)

_SERIALIZATION_FAILURE, _DEADLOCK = "40001", "40P01"

_RESTORE: Final = "Restore it from a copy."

_TRY_AGAIN: Final = "Another process is writing to it. Try again; nothing was changed."


def open_engine(url: str | os.PathLike[str], *, busy_seconds: float = BUSY_SECONDS) -> sa.Engine:
    """An engine for the catalog at ``url``: see ``registry.catalog.open_catalog``, also for what is raised.

    Nothing is connected yet. The engine is safe to keep across a fork: a child opens connections of its own.

    SQLite connections have foreign keys on and wait ``busy_seconds`` for a lock. Files in WAL mode on a network file
    system are refused, because WAL needs memory shared between all readers; a catalog made there keeps SQLite's
    rollback journal.
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


def transact(engine: sa.Engine, action: Callable[[sa.Connection], T], *, dry_run: bool) -> T:
    """Run ``action`` as ``write`` does; for a dry run over a connection that only reads."""
    if dry_run:
        with reading(engine) as connection:
            return action(connection)
    return write(engine, action)


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
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing(connection) else "BEGIN")


def _begin_postgresql(connection: sa.Connection, milliseconds: int) -> None:
    if is_writing(connection):
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


def parse_url(url: str | os.PathLike[str]) -> sa.URL:
    """The database that ``url`` names: a plain path is an SQLite file.

    Raises:
        UsageError: no such kind of database, or not a URL. The text is not repeated: it may hold a password.
    """
    text = os.fspath(url)
    if "://" not in text:
        if not text or "\0" in text:
            raise UsageError("the path of the catalog is empty or holds a NUL", hint=_FORMS)
        return sa.URL.create("sqlite+pysqlite", database=text)
    try:
        parsed = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        raise UsageError("the catalog's URL does not parse", hint=_FORMS) from None
    if parsed.drivername not in _DRIVERS:
        kind = parsed.drivername if re.fullmatch(r"[\w+]{1,40}", parsed.drivername) else "of that kind"
        raise UsageError(f"a catalog cannot live in a database {kind!r}", hint=_FORMS)
    parsed = parsed.set(drivername=_DRIVERS[parsed.drivername])
    if is_sqlite(parsed) and (
        parsed.database in (None, "", ":memory:") or parsed.query or str(parsed.database).startswith("file:")
    ):
        raise UsageError("an SQLite catalog is a file, without URL options", hint=_FORMS)
    return parsed


def is_sqlite(url: sa.URL) -> bool:
    """Whether the database is an SQLite file."""
    return url.get_backend_name() == "sqlite"


def sqlite_path(url: str | os.PathLike[str]) -> Path | None:
    """As ``registry.catalog.sqlite_path``."""
    parsed = parse_url(url)
    return Path(parsed.database or "") if is_sqlite(parsed) else None


def describe_url(url: sa.URL) -> str:
    """``url`` as it may be shown: passwords are ``***``, also those among its options.

    >>> describe_url(parse_url("postgresql://ann:secret@host/data?sslpassword=secret"))
    'postgresql://ann:***@host/data?sslpassword=***'
    """
    hidden = {key: "***" if "pass" in key.lower() else value for key, value in url.query.items()}
    shown = url.set(drivername=url.get_backend_name(), query=hidden)
    return shown.render_as_string(hide_password=True).replace("%2A%2A%2A", "***")


def network_filesystem(path: Path, *, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """The type of the network file system that ``path`` lies on, or None for a local one.

    Follows Linux's ``mountinfo`` (proc(5)); where it does not exist, every path counts as local.
    """
    try:
        lines = mounts.read_text("utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    place = path.resolve()
    best, found = -1, ""
    for line in lines:
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        mount = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4]))
        # Later lines are mounted over earlier ones.
        if len(mount.parts) >= best and place.is_relative_to(mount):
            best, found = len(mount.parts), after.split(" ")[0]
    return found if _NETWORK_FILESYSTEM.fullmatch(found) else None


@contextmanager
def typed_faults(where: str) -> Iterator[None]:
    """Raise errors of the database as ours. ``where`` names the catalog in messages (``describe_url``).

    IntegrityError passes: what a broken constraint means is known only where the row was written.

    Raises:
        CatalogUnavailableError: locked, not answering, or refusing the connection.
        NotACatalogError: the file is not a database.
        CatalogError: anything else that the database refuses.
    """
    try:
        yield
    except sa.exc.IntegrityError:
        raise
    except sa.exc.DBAPIError as error:
        raise _translate(error.orig or error, where) from error
    except sqlite3.Error as error:  # raised by PRAGMAs on a fresh connection, before SQLAlchemy watches it
        raise _translate(error, where) from error
    except UnicodeDecodeError as error:  # SQLite's own words about a damaged schema quote it, whatever it is
        raise CatalogError(f"{where} is damaged: it holds text that is no UTF-8", hint=_RESTORE) from error
    except (sa.exc.NoReferenceError, sa.exc.NoSuchTableError) as error:  # while its schema is read for a check
        raise CatalogError(f"{where} is damaged: its schema contradicts itself: {error}", hint=_RESTORE) from error
    except sa.exc.TimeoutError as error:
        raise CatalogUnavailableError(
            f"no connection to {where} became free", hint="Too many look-ups at once in this process. Try again."
        ) from error


def is_worth_retrying(error: sa.exc.DBAPIError) -> bool:
    """Whether the same transaction may succeed when it is run again: a serialization failure or a deadlock."""
    return getattr(error.orig, "sqlstate", None) in (_SERIALIZATION_FAILURE, _DEADLOCK)


def _translate(error: BaseException, where: str) -> Exception:
    if isinstance(error, sqlite3.Error):
        return _translate_sqlite(error, where)
    if isinstance(error, (UnicodeError, OverflowError)):
        return UsageError("a value cannot be stored in a database: NUL, lone surrogate, or a number above 2**63")
    return _translate_postgresql(error, where)


def _translate_sqlite(error: sqlite3.Error, where: str) -> Exception:
    name = getattr(error, "sqlite_errorname", "")
    match name.split("_")[1] if name.startswith("SQLITE_") else "":
        case "BUSY" | "LOCKED":
            return CatalogUnavailableError(f"{where} is locked", hint=_TRY_AGAIN)
        case "NOTADB":
            return NotACatalogError(
                f"{where} is no database", hint="Name another file; one that does not exist becomes a new catalog."
            )
        case "CANTOPEN":
            return CatalogUnavailableError(
                f"{where} cannot be opened", hint="Check that its folder exists and that you may write there."
            )
        case "READONLY" | "PERM":
            return CatalogError(f"{where} is read-only", hint="Check the permissions of the file and of its folder.")
        case "FULL" | "IOERR":
            return CatalogUnavailableError(
                f"{where} cannot be written: {error}", hint="Check that the disk has space left, then try again."
            )
        case "CORRUPT":
            return CatalogError(f"{where} is damaged: {error}", hint=_RESTORE)
        case _ if "no such module: fts5" in str(error):
            return CatalogError(
                f"{where} cannot be searched: this Python's SQLite has no FTS5",
                hint="Use a Python whose SQLite has it, as nearly all do, or a PostgreSQL catalog.",
            )
        case _:
            return CatalogError(f"{where} refuses: {error}", hint="Compare it with its schema: registry db check.")


def _translate_postgresql(error: BaseException, where: str) -> Exception:
    state = getattr(error, "sqlstate", None)
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    if state in (_SERIALIZATION_FAILURE, _DEADLOCK, "55P03"):  # 55P03: lock_timeout
        return CatalogUnavailableError(f"{where} is busy: {reason}", hint=_TRY_AGAIN)
    if state is None or state[:2] in ("08", "53", "57"):  # no connection, out of resources, shut down
        hint = "Check that the server runs and that host, port, database, user and password are right."
        return CatalogUnavailableError(f"{where} does not answer: {reason}", hint=hint)
    hint = "Compare it with its schema: registry db check."
    if state == "42501":
        hint = "Your database user may not do this. Ask the owner of the database for the rights on its tables."
    return CatalogError(f"{where} refuses: {reason}", hint=hint)
