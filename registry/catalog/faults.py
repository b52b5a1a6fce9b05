"""What do the databases' errors mean? Driver errors in, the registry's typed errors out, without any password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import sqlalchemy as sa

from registry.catalog.own_sqlite import sqlite3
from registry.errors import CatalogError, CatalogUnavailableError, NotACatalogError, UsageError

_SERIALIZATION_FAILURE, _DEADLOCK = "40001", "40P01"
_RESTORE: Final = "Restore it from a copy."
_TRY_AGAIN: Final = "Another process is writing to it. Try again; nothing was changed."


@contextmanager
def typed_faults(where: str) -> Iterator[None]:
    """Raise errors of the database as ours. ``where`` names the catalog in messages (``describe_url``).

    IntegrityError passes: what a broken constraint means is known only where the row was written.

    Raises:
        CatalogUnavailableError: locked, not answering, or refusing the connection.
        NotACatalogError: the file is no database.
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
