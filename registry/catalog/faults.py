"""Converts errors of SQLite and PostgreSQL to errors of the registry.

``session.py`` runs every transaction inside ``typed_faults``. Temporary faults become ``CatalogUnavailableError`` (exit
code 75); faults that somebody has to repair become ``CatalogError`` or one of its subclasses (exit code 1).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal

import sqlalchemy as sa

from registry.catalog.own_sqlite import sqlite3
from registry.catalog.urls import describe_url
from registry.catalog.values import unstorable
from registry.catalog.web_urls import quote_catalog
from registry.errors import (
    CatalogError,
    CatalogNotFoundError,
    CatalogPermissionError,
    CatalogRefusedError,
    CatalogUnavailableError,
    NotACatalogError,
    RegistryError,
    UsageError,
)

ConnectionFault = Literal["lost", "silent", "full", "unreachable", "refused", "ssl", "usage"]
"""Why there is no connection: "full" means that the server currently accepts no more connections."""

_SERIALIZATION_FAILURE, _DEADLOCK = "40001", "40P01"

_RESTORE: Final = "Restore it from a copy."

REINDEX: Final = "Rebuild it from the published versions: registry db reindex"

_NOT_UTF8: Final = "Could not decode to UTF-8"
"""The message of Python's SQLite driver for a stored text that is not UTF-8."""

_TRY_AGAIN: Final = "Another process is writing to it. Try again; nothing was changed."

_READ_AGAIN: Final = "Another process is writing to it. Try again."

_UNREACHABLE: Final = "Check that the server is running and that host and port are right, then try again."
# libpq's message for a server that is not of the kind that target_session_attrs requires.
_NO_STATE: Final = r"session is (not )?read-only|server is (not )?in hot standby mode"
_STATE: Final = (
    "The server is running, but target_session_attrs requires another kind of server. Change "
    "target_session_attrs in the URL (or PGTARGETSESSIONATTRS), or name a server of that kind."
)

_LOST: Final = "Run the same command again; nothing was changed."

_FREE_SPACE: Final = (
    "Nothing was changed. Check that the disk has space left, and that `ulimit -f` allows larger files."
)

# The only virtual table of a catalog: FTS5's own errors, and those of a statement that does not find it.
_SEARCH_INDEX: Final = r"fts5 file format|(constructor failed|no such table): (main\.)?search_index\b|^SQL logic error$"

# Messages of the server, or of PgBouncer in front of it, about a connection. libpq does not report the SQLSTATE of a
# refused connection, so the text has to do. For a server in another language, ``postgres.connect`` finds the SQLSTATE.
_FULL: Final = (
    r"too many (clients|connections)|connection slots|is (starting up|shutting down|in recovery)"
    r"|not (yet )?accepting connections|no more connections allowed|login has been failing|query_wait_timeout"
    r"|cannot connect to server"
)
_PASSWORD: Final = r"no password supplied|password authentication failed|[Ss]ASL|SCRAM|no password assigned"  # noqa: S105
_USER: Final = r'role ".*" does not exist|no such user|not permitted to log in|authentication failed for user'
_DATABASE: Final = r'database ".*" does not exist|no such database'
_RULE: Final = (
    r"pg_hba\.conf|startup parameter|authentication method|require_?auth|channel binding|peer user name|requirepeer"
    r"|credentials|GSS|OAuth"
)
_REFUSED_TABLE: Final = r"permission denied for table (\w+)"
_CURATED: Final = frozenset(("alias", "alias_event", "protection", "version_location", "dataset_version"))
"""Tables that a publisher only reads; the row of a version is changed only to withdraw it."""

_RIGHT: Final = r"permission denied"

# libpq's own messages: the server answered, and the same attempt would fail again.
_LOCAL_REFUSAL: Final = (
    r"fe_sendauth|authentication(?! request)|SASL|SCRAM|channel binding|GSSAPI|Kerberos|peer user name"
    r"|peer credentials|OAuth|password file"
)


@contextmanager
def decoded_text() -> Iterator[None]:
    """Raise CatalogError for a stored text that is not UTF-8, if the caller can continue without the row."""
    try:
        yield
    except sa.exc.OperationalError as error:
        if not str(error.orig).startswith(_NOT_UTF8):
            raise
        raise CatalogError(f"a stored text is not UTF-8: {error.orig!s:.200}") from error


@contextmanager
def typed_faults(url: sa.URL, *, is_read: bool = False) -> Iterator[None]:
    """Raise errors of the database at ``url`` as errors of the registry; ``is_read`` if nothing would be changed.

    Raises:
        CatalogUnavailableError: the database is locked, unreachable, silent or full, or the connection was lost.
        NotACatalogError: the file is not a database.
        CatalogError: the database refuses for any other reason.
        UsageError: no database can store a value, or an option in the URL is wrong.
    """
    try:
        yield
    except sa.exc.DBAPIError as error:
        raise translate(error.orig or error, url, is_read=is_read) from error
    except sqlite3.Error as error:  # raised by PRAGMAs on a fresh connection, before SQLAlchemy watches it
        raise translate(error, url, is_read=is_read) from error
    except UnicodeDecodeError as error:  # SQLite quotes the bytes of a damaged schema in its message
        raise CatalogError(
            f"{describe_url(url)} is damaged: it contains text that is not UTF-8", hint=_RESTORE
        ) from error
    except (sa.exc.NoReferenceError, sa.exc.NoSuchTableError) as error:  # while its schema is read for a check
        raise CatalogError(
            f"{describe_url(url)} is damaged: its schema contradicts itself: {error}", hint=_RESTORE
        ) from error
    except sa.exc.TimeoutError as error:
        raise CatalogUnavailableError(
            f"all connections to {describe_url(url)} are in use",
            hint="This process runs too many look-ups at the same time. Try again.",
        ) from error


def is_worth_retrying(error: sa.exc.DBAPIError) -> bool:
    """Whether a transaction that was not committed may succeed if it runs again.

    True for a serialization failure, a deadlock, a lost connection, and a violated constraint, because another process
    may have inserted the same unique row. False for a silent server, because the caller has waited long enough.
    """
    if isinstance(error, sa.exc.IntegrityError):
        return True
    state = getattr(error.orig, "sqlstate", None)
    return state in (_SERIALIZATION_FAILURE, _DEADLOCK) or _fault_of(error) == "lost"


def is_worth_connecting_again(error: sa.exc.DBAPIError) -> bool:
    """Whether a connection that failed may succeed a moment later, e.g. while the server restarts."""
    return _fault_of(error) in ("full", "unreachable")


def unknown_outcome(error: sa.exc.DBAPIError, url: sa.URL) -> CatalogUnavailableError | None:
    """The error for a COMMIT without an answer, or None if ``error`` implies that nothing was committed."""
    if _fault_of(error) not in ("lost", "silent"):
        return None
    masked_url = describe_url(url)
    return CatalogUnavailableError(
        f"the connection to {masked_url} was lost during a commit, so the change may or may not be saved: "
        f"{_reason(error.orig)}",
        hint=f"Look for the change with: registry log {quote_catalog(masked_url)}\n"
        "If it is missing, run the command again.",
    )


def translate(error: BaseException, url: sa.URL, *, is_read: bool = False) -> RegistryError:
    """The registry's error for an error of a database driver."""
    if isinstance(error, (UnicodeError, OverflowError)):
        return unstorable()
    if isinstance(error, sqlite3.Error):
        result = _translate_sqlite(error, describe_url(url), Path(url.database or ""))
    else:
        result = _translate_postgresql(error, url, is_read=is_read)
    if is_read and result.hint == _TRY_AGAIN:
        result.rephrase(hint=_READ_AGAIN)
    return result


def explain_path(error: OSError, path: Path, where: str) -> RegistryError:
    """The error for a path that this process may not access."""
    if isinstance(error, PermissionError):
        return CatalogError(
            f"{where} cannot be opened: permission denied",
            hint=f"Find the folder in the path that you may not enter: namei -l {shlex.quote(str(path))}",
        )
    return CatalogError(f"{where} cannot be opened: {error.strerror}", hint="Check the path.")


def no_catalog(where: str, path: Path) -> CatalogNotFoundError:
    """The error for an SQLite file that does not exist and is not to be created."""
    import difflib  # slow to import, and needed only after a mistake

    path = path.absolute()
    missing = [folder for folder in path.parents if not folder.exists()]
    near: list[str] = []
    with suppress(OSError):  # a missing folder, or one that may not be listed
        near = difflib.get_close_matches(path.name, sorted(os.listdir(path.parent)), n=1, cutoff=0.6)  # noqa: PTH208 (names suffice)
    hint = f"Did you mean {path.with_name(near[0])}? " if near else ""
    return CatalogNotFoundError(
        f"no catalog at {path}: " + (f"the folder {missing[-1]} does not exist" if missing else "no such file"),
        hint=f"{hint}To create a catalog there: registry db upgrade {quote_catalog(where)}",
        details={"path": str(path)},
    )


def file_changed(path: Path, where: str) -> CatalogError:
    """The error for a file that was deleted or replaced while its catalog was open."""
    if path.exists():
        return CatalogError(f"{where} was replaced by another file while it was open", hint="Open the catalog again.")
    return CatalogError(
        f"{where} was deleted or moved while it was open",
        hint="Restore the file from a copy, or move it back, and open the catalog again.",
    )


def _translate_sqlite(error: sqlite3.Error, where: str, path: Path) -> RegistryError:
    name = getattr(error, "sqlite_errorname", "")
    kind = name.split("_")[1] if name.startswith("SQLITE_") else ""
    if name == "SQLITE_CORRUPT_VTAB" or re.search(_SEARCH_INDEX, str(error)):
        return CatalogError(f"the search index of {where} is damaged: {error}", hint=REINDEX)
    match kind:
        case "BUSY" | "LOCKED" | "PROTOCOL":
            return CatalogUnavailableError(f"{where} is locked", hint=_TRY_AGAIN)
        case "NOTADB":
            return NotACatalogError(
                f"{where} is not a database",
                hint="Name the file of a catalog. Commands that publish create a file that does not exist.",
            )
        case "CANTOPEN":
            return _cannot_open(where, path)
        case "READONLY" if name == "SQLITE_READONLY_DBMOVED":
            return file_changed(path, where)
        case "READONLY" | "PERM":
            return CatalogPermissionError(
                f"{where} is read-only",
                hint="Check the permissions of the file and of its folder, and that its disk is not mounted read-only.",
                details={"path": str(path), "missing": []},
            )
        case "FULL" | "IOERR" | "NOLFS":
            # Not temporary: the same command fails again until somebody acts, as for shards (storage/faults.py).
            is_read = "_READ" in name
            return CatalogError(
                f"{where} cannot be {'read' if is_read else 'written'}: {error}",
                hint="Check the disk (see `dmesg`), then try again." if is_read else _FREE_SPACE,
            )
        case "CORRUPT":
            return CatalogError(f"{where} is damaged: {error}", hint=_RESTORE)
    text = str(error)
    if "no such module: fts5" in text:
        return CatalogError(
            f"{where} cannot be searched: this Python's SQLite has no FTS5",
            hint="Use a Python whose SQLite has FTS5, as nearly all do, or a PostgreSQL catalog.",
        )
    if text.startswith(_NOT_UTF8):
        return CatalogError(f"{where} is damaged: {text:.200}", hint="Find the row: registry log verify.")
    if text.startswith("no such table: "):
        table = text.removeprefix("no such table: ")
        return CatalogError(
            f"{where} has no table {table!r}: it is damaged, or was replaced by another file while it was open",
            hint="Compare it with its schema: registry db check.",
        )
    return CatalogError(f"{where} refuses it: {error}", hint="Compare it with its schema: registry db check.")


def _cannot_open(where: str, path: Path) -> RegistryError:
    folder = path.parent
    try:
        if not folder.exists():
            return CatalogError(
                f"{where} cannot be opened: its folder does not exist",
                hint=f"Create it with: mkdir -p {shlex.quote(str(folder))}",
            )
        if not os.access(path if path.exists() else folder, os.R_OK if path.exists() else os.W_OK):
            return CatalogError(
                f"{where} cannot be opened: permission denied",
                hint="Check the permissions of the file and of its folder.",
            )
    except OSError as error:
        return explain_path(error, path, where)
    log = path.with_name(f"{path.name}-wal")
    with suppress(OSError):
        if log.stat().st_size and not os.access(folder, os.W_OK):
            return CatalogError(
                f"{where} cannot be opened: its newest changes are in {log.name}, and you may not write to its folder",
                hint="A writer was killed. Let somebody with write access run any command, e.g. registry list, "
                f"or copy both files to a folder of yours: cp {shlex.quote(str(path))} {shlex.quote(str(log))} FOLDER",
            )
    # Readers of a file in WAL mode create files next to it. The cause may also be too many open files.
    return CatalogUnavailableError(
        f"{where} cannot be opened",
        hint="Check that you may write to its folder, and that this process may open more files: ulimit -n",
    )


def _translate_postgresql(error: BaseException, url: sa.URL, *, is_read: bool) -> RegistryError:
    import psycopg

    where, reason = describe_url(url), _reason(error)
    state: str | None = getattr(error, "sqlstate", None)
    # psycopg itself refuses, for example, NUL in a text; the server, a number that is too large.
    if state in (None, "22003") and isinstance(error, psycopg.DataError):
        return unstorable()
    fault = connection_fault(error)
    if fault is not None:
        return _no_connection(fault, where, reason, url, state)
    if state in (_SERIALIZATION_FAILURE, _DEADLOCK, "55P03"):  # 55P03: lock_timeout
        return CatalogUnavailableError(f"{where} is busy: {reason}", hint=_TRY_AGAIN)
    match state[:2] if state else "":
        case "53":  # disk full, out of memory, too many connections
            return CatalogUnavailableError(
                f"{where} has run out of a resource: {reason}",
                hint="Nothing was changed. Try again when the server has space, memory or connections left.",
            )
        case "57":  # statement_timeout, or an administrator cancelled it
            return CatalogUnavailableError(f"{where} cancelled a statement: {reason}", hint=_LOST)
        case "58":
            return CatalogUnavailableError(
                f"{where} cannot read or write its files: {reason}", hint="Check the server's log, then try again."
            )
        case "XX":
            return CatalogError(
                f"{where} reports an internal error: {reason}",
                hint="Check the server's log; the database may have to be restored from a backup.",
            )
    match state:
        case "25006":
            return CatalogPermissionError(
                f"{where} is read-only: {reason}",
                hint="Name the primary server in the URL, or switch default_transaction_read_only off.",
            )
        case "42501":
            return _lacks_right(f"{where} refuses it: {reason}", url, is_read=is_read)
    return CatalogError(f"{where} refuses it: {reason}", hint="Compare it with its schema: registry db check.")


def connection_fault(error: BaseException) -> ConnectionFault | None:
    """Why the connection to PostgreSQL failed or was lost, or None if ``error`` is about something else."""
    import psycopg

    from registry.catalog.postgres import ServerSilentError

    if isinstance(error, (ServerSilentError, psycopg.errors.ConnectionTimeout)):
        return "silent"
    state: str | None = getattr(error, "sqlstate", None)
    is_start = str(error).startswith("connection failed")
    if state is not None and not (is_start and state[:2] == "08"):  # PgBouncer refuses everything with 08P01
        if state in ("53300", "57P03"):  # too many connections, or starting up
            return "full"
        if state[:2] == "28" or state == "3D000" or (is_start and state == "42501"):
            return "refused"
        # 57P01 to 57P05: the server stops, crashed, or ended this session. 25P03, 25P04: it ended an idle one.
        return "lost" if state[:2] == "08" or state[:3] == "57P" or state in ("25P03", "25P04") else None
    text = str(error)
    if re.search(r"connection option|connection is bad: invalid|definition of service|service file", text):
        return "usage"
    if isinstance(error, psycopg.InternalError):  # "received 2 results from command 'ROLLBACK'": ended meanwhile
        return "lost"
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return None
    if "FATAL:" in text:
        return "full" if re.search(_FULL, text) else "refused"
    if re.search(r"failed: [^\s:]+:  ", text):  # the report of a server in another language
        return "refused"
    if not text.startswith(("connection failed", "connection is bad", "failed to resolve")):
        return "lost"
    if re.search(_LOCAL_REFUSAL, text):
        return "refused"
    # A connection that is cut off while SSL starts, as by a server that restarts, does not depend on SSL's settings.
    is_cut = re.search(r"SSL SYSCALL error|SSL connection has been closed|closed the connection unexpectedly", text)
    is_ssl = re.search(r"\bSSL\b|certificate|private key|ALPN", text)
    return "ssl" if is_ssl and not is_cut else "unreachable"


def _no_connection(fault: ConnectionFault, where: str, reason: str, url: sa.URL, sqlstate: str | None) -> RegistryError:
    match fault:
        case "lost":
            return CatalogUnavailableError(f"the connection to {where} was lost: {reason}", hint=_LOST)
        case "silent":
            return CatalogUnavailableError(
                f"{where} does not answer: {reason}",
                hint="Check host and port, and that the server is running. REGISTRY_CONNECT_TIMEOUT and "
                "REGISTRY_QUERY_TIMEOUT set the timeouts in seconds.",
            )
        case "full":
            return CatalogUnavailableError(
                f"{where} accepts no more connections at the moment: {reason}",
                hint="Try again in a moment. REGISTRY_TRIES sets the number of attempts.",
            )
        case "unreachable":
            return CatalogUnavailableError(
                f"{where} cannot be reached: {reason}",
                hint=_STATE if re.search(_NO_STATE, reason) else _UNREACHABLE,
            )
        case "ssl":
            return CatalogError(
                f"{where} cannot be reached over SSL: {reason}",
                hint="Check sslmode, sslrootcert, sslcert and sslkey in the URL, and ssl in postgresql.conf.",
            )
        case "usage":
            return UsageError(
                f"{where}: {reason}",
                hint="Correct the options after '?' in the URL, which are options of libpq: "
                "https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS",
            )
    return _refusal(where, reason, url, sqlstate)


def _refusal(where: str, reason: str, url: sa.URL, sqlstate: str | None) -> RegistryError:
    """The error for a connection that the server refuses permanently, by the SQLSTATE or else by the text."""
    user, message = url.username or "USER", f"{where} refuses the connection: {reason}"
    if sqlstate == "42501" or re.search(_RIGHT, reason):
        return _lacks_right(message, url)
    kind = {"28P01": "password", "3D000": "database"}.get(sqlstate or "")
    texts = {"password": _PASSWORD, "database": _DATABASE, "rule": _RULE, "user": _USER}
    kind = kind or next((name for name, pattern in texts.items() if re.search(pattern, reason)), None)
    kind = kind or ("user" if sqlstate == "28000" else "other")
    match kind:
        case "password":
            host = url.host or url.query.get("host", "localhost")
            host = host if isinstance(host, str) else host[0]
            line = f"{host}:{url.port or 5432}:{url.database or '*'}:{user}:PASSWORD"
            hint = (
                "Check the user and the password. Without a password in the URL, PGPASSWORD or a line in ~/.pgpass "
                f"(mode 0600) is used: {line}"
            )
        case "user":
            hint = "Check that the user in the URL exists and may log in. An administrator of the server can create it."
        case "database":
            named = re.search(r'database "(.*)" does not exist', reason)  # without a name in the URL, it is the user's
            name = url.database or (named[1] if named else user)
            hint = f"Correct the name in the URL, or create the database: createdb {shlex.quote(name)}"
        case "rule" if "no encryption" in reason or "SSL off" in reason:
            hint = (
                "If the server requires SSL, add ?sslmode=require to the URL; else ask for a line in its pg_hba.conf."
            )
        case "rule":
            hint = (
                "Ask the administrator of the server for a line in its pg_hba.conf, or correct the options in the URL."
            )
        case _:
            hint = "Check host, port, database and user in the URL."
    return CatalogRefusedError(message, hint=hint, details={"reason": kind, "sqlstate": sqlstate})


def _lacks_right(message: str, url: sa.URL, *, is_read: bool = False) -> CatalogPermissionError:
    table = re.search(_REFUSED_TABLE, message)
    level = "reader" if is_read else "curator" if table is not None and table[1] in _CURATED else "LEVEL"
    choice = ", with LEVEL reader, publisher, curator or admin" if level == "LEVEL" else ""
    return CatalogPermissionError(
        message,
        hint=f"Your database user lacks this right. The owner of the database can grant it{choice}: "
        f"registry db grant {shlex.quote(url.username or 'ROLE')} --as {level}",
        details={"role": url.username},
    )


def _fault_of(error: sa.exc.DBAPIError) -> ConnectionFault | None:
    original = error.orig
    is_sqlite = original is None or isinstance(original, sqlite3.Error)
    return None if is_sqlite or original is None else connection_fault(original)


def _reason(error: Any) -> str:
    """The first line of a driver's message, without psycopg's own prefix; a line for each host if there are several."""
    lines = [line.strip() for line in str(error).splitlines()]
    hosts = [line.partition("connection failed: ")[2] or line[2:] for line in lines if line.startswith("- host: ")]
    if hosts:
        return "; ".join(dict.fromkeys(hosts))
    first = next((line for line in lines if line), type(error).__name__)
    return re.sub(r"^(connection failed|connection is bad): ", "", first)
