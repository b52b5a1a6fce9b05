"""Opens SQLite files where SQLite cannot create its own: on read-only mounts, in folders of others, on full disks.

A reader of a file in WAL mode creates two files next to it, ``-wal`` and ``-shm``. Where it cannot, and nobody else has
created them, only ``immutable`` opens the file: SQLite then takes no lock, and trusts that nobody writes. Somebody who
may write to the folder can do so at any time. So the file is compared before and after each transaction: a reader that
met a writer fails, and does not return a mixture. If ``-wal`` has content, a writer is at work or was killed, and the
file is not opened this way. See docs/decisions/0051-sqlite-without-locks.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from registry.catalog.own_sqlite import sqlite3
from registry.catalog.urls import describe_url
from registry.errors import CatalogUnavailableError

_NAME: Final = "frozen"
"""Under this name, the record of a connection in the pool has a ``Frozen``."""

_CANNOT_CREATE: Final = ("SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_PERM")


class FileState(NamedTuple):
    """What changes when somebody writes to an SQLite file."""

    modified_ns: int
    num_bytes: int
    has_log: bool


@dataclass(frozen=True, slots=True)
class Frozen:
    """How a file was opened without locks: its state then, and the error of the usual way, if that was tried."""

    state: FileState
    error: sqlite3.Error | None


def connect(
    path: Path, dialect: sa.Dialect, record: Any, arguments: Any, options: dict[str, Any], *, always: bool = False
) -> Any:
    """A connection to the file at ``path``, or None if there is no file yet.

    With ``always``, it is opened without locks wherever it is: nobody writes to it.
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
    """Before a transaction: let the pool open the file again if somebody wrote to it, or it can be opened as usual."""
    frozen = record.info.get(_NAME)
    if frozen is not None and _state_of(path) != frozen.state:
        raise sa.exc.DisconnectionError("the file has changed")


@contextmanager
def unchanged(connection: sa.Connection) -> Iterator[None]:
    """Run a transaction that reads.

    Raises:
        CatalogUnavailableError: somebody wrote to the file meanwhile, and it was opened without locks.
    """
    try:
        yield
    except Exception as error:
        _refuse_mixture(connection, error)
        raise
    _refuse_mixture(connection, None)


def refuse_write(connection: sa.Connection) -> None:
    """Before a transaction that writes: raise the error that did not let the file be opened with locks.

    On a full disk it says so. Without it, SQLite would only say that the database is read-only.
    """
    frozen = connection.info.get(_NAME)
    if frozen is not None and frozen.error is not None and "READONLY" not in frozen.error.sqlite_errorname:
        raise frozen.error


def _refuse_mixture(connection: sa.Connection, error: Exception | None) -> None:
    frozen = None if connection.invalidated or connection.closed else connection.info.get(_NAME)
    if frozen is not None and _state_of(Path(connection.engine.url.database or "")) != frozen.state:
        raise CatalogUnavailableError(
            f"{describe_url(connection.engine.url)} was changed by another process while it was read",
            hint="Run the same command again. A reader that may not write to the folder cannot lock the file.",
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
