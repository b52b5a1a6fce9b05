"""Opens SQLite files where SQLite cannot create its own: on read-only mounts, in folders of others, on full disks.

A reader of a file in WAL mode creates two files next to it, ``-wal`` and ``-shm``. If it cannot, and they do not exist,
only ``immutable`` opens the file: SQLite then takes no lock, and assumes that nobody writes. But a user with write
access to the folder can write at any time. Therefore the file's state is compared before and after each transaction: a
read that overlaps with a write fails instead of returning a mixture. If ``-wal`` has content, a writer is running or
was killed, and the file is not opened this way. See docs/decisions/0051-sqlite-without-locks.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from registry.catalog.own_sqlite import sqlite3
from registry.catalog.urls import describe_url
from registry.errors import CatalogUnavailableError

_NAME: Final = "frozen"
"""The key of the ``Frozen`` in the record of a pooled connection."""

_CANNOT_CREATE: Final = ("SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_PERM")


class FileState(NamedTuple):
    """The attributes of an SQLite file that change with every write."""

    modified_ns: int
    num_bytes: int
    has_log: bool


class Frozen(NamedTuple):
    """A file opened without locks: its state at that time, and the error of opening it with locks, if tried."""

    state: FileState
    error: sqlite3.Error | None


def connect(
    path: Path, dialect: sa.Dialect, record: Any, arguments: Any, options: dict[str, Any], *, always: bool = False
) -> Any:
    """A connection to the file at ``path``, or None if there is no file yet.

    With ``always``, it is opened without locks in any place, because nobody writes to it.
    """
    state = _state_of(path)
    if state is None or state.num_bytes == 0:
        return None
    error: sqlite3.Error | None = None
    if not always and (state.has_log or not _is_on_read_only_mount(path)):
        usual: Any = dialect.connect(*arguments, **options)
        try:
            usual.execute("PRAGMA schema_version").fetchone()  # the files are created by the first read
        except sqlite3.OperationalError as caught:
            usual.close()
            error, state = caught, _state_of(path)
            if state is None or state.has_log or not caught.sqlite_errorname.startswith(_CANNOT_CREATE):
                raise
        except BaseException:
            usual.close()
            raise
        else:
            return usual
    frozen: Any = dialect.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True, **options)
    try:
        frozen.execute("PRAGMA schema_version").fetchone()
    except sqlite3.Error:
        frozen.close()
        if error is None:
            raise
        raise error from None
    record.info[_NAME] = Frozen(state, error)
    return frozen


def require_unchanged(path: Path, record: Any) -> None:
    """Before a transaction: reopen the file if somebody wrote to it, or if it can now be opened with locks."""
    frozen = record.info.get(_NAME)
    if frozen is not None and _state_of(path) != frozen.state:
        raise sa.exc.DisconnectionError("the file has changed")


@contextmanager
def unchanged(connection: sa.Connection) -> Iterator[None]:
    """Run a transaction that reads.

    Raises:
        CatalogUnavailableError: the file was opened without locks, and somebody wrote to it in the meantime.
    """
    try:
        yield
    except Exception as error:
        _refuse_mixture(connection, error)
        raise
    _refuse_mixture(connection, None)


def refuse_write(connection: sa.Connection) -> None:
    """Before a transaction that writes: raise the error that prevented opening the file with locks.

    It names the cause, such as a full disk. SQLite itself would only say that the database is read-only.
    """
    frozen = connection.info.get(_NAME)
    if frozen is not None and frozen.error is not None and "READONLY" not in frozen.error.sqlite_errorname:
        raise frozen.error


def _refuse_mixture(connection: sa.Connection, error: Exception | None) -> None:
    frozen = None if connection.invalidated or connection.closed else connection.info.get(_NAME)
    if frozen is not None and _state_of(Path(connection.engine.url.database or "")) != frozen.state:
        raise CatalogUnavailableError(
            f"{describe_url(connection.engine.url)} was changed by another process while it was read",
            hint="Run the same command again. A reader without write access to the folder cannot lock the file.",
        ) from error


def _state_of(path: Path) -> FileState | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    log_bytes = 0
    with suppress(OSError):
        log_bytes = path.with_name(f"{path.name}-wal").stat().st_size  # an attempt to read may leave an empty one
    return FileState(facts.st_mtime_ns, facts.st_size, log_bytes > 0)


def _is_on_read_only_mount(path: Path) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except (OSError, AttributeError):  # no such call on this system
        return False
