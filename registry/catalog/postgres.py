"""PostgreSQL connections that give up on a silent server. ``session.py`` opens them; psycopg is imported only here.

TCP keepalives detect a machine that is gone. They do not detect a server or proxy whose machine still acknowledges
packets, so every wait for an answer has a limit of its own.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import psycopg
import sqlalchemy as sa
from psycopg import pq
from psycopg.conninfo import make_conninfo

from registry.catalog.urls import OPTIONS

T = TypeVar("T")

_CANCEL_SECONDS: Final = 2.0

_KEEPALIVE: Final = {
    "keepalives": 1,
    "keepalives_idle": 30,  # seconds
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,  # milliseconds; systems without it ignore it
}
"""Parameters of libpq: a machine that does not acknowledge anything is given up after a minute."""


class ServerSilentError(psycopg.OperationalError):
    """The server sent nothing for too long; the connection is closed."""


class LimitedConnection(psycopg.Connection[Any]):
    """A connection that is closed if the server is silent for ``silence_seconds`` while it owes an answer.

    Attributes:
        silence_seconds: the limit, or None to wait without one, e.g. for a migration.
    """

    silence_seconds: float | None = None

    def wait(self, gen: Generator[Any, Any, T], *options: Any, **named: Any) -> T:
        """Run one exchange with the server, as psycopg does for each statement, COMMIT and piece of a COPY."""
        return super().wait(self._limited(gen), *options, **named)

    def _limited(self, exchange: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        try:
            awaited = next(exchange)
            since = time.monotonic()
            while True:
                # psycopg wakes up ten times a second; ``ready`` is 0 if nothing has arrived.
                ready = yield awaited
                if ready:
                    since = time.monotonic()
                elif self.silence_seconds is not None and time.monotonic() - since > self.silence_seconds:
                    self._give_up(self.silence_seconds)
                awaited = exchange.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result

    def _give_up(self, seconds: float) -> None:
        # A server that is only slow stops the statement and releases its locks; a silent one never reads this.
        with suppress(psycopg.Error, OSError):
            self.cancel_safe(timeout=_CANCEL_SECONDS)
        self.close()
        raise ServerSilentError(f"no answer for {seconds:g} seconds")


# The severity and the text of a server's report, and words of PostgreSQL's English texts about connections.
_REPORT: Final = re.compile(r"failed: [^\s:]+:  (.*)")
_ENGLISH: Final = re.compile(
    r"\b(?:not|no (?:such|pg_hba|more)|failed|too many|denied|must|cannot|rejects|reserved|unrecognized|unsupported"
    r"|is|server)\b"
)


def connect(arguments: Any, options: dict[str, Any], *, query_seconds: float) -> LimitedConnection:
    """Connect with SQLAlchemy's arguments; options of the URL win over the defaults here.

    No statement is prepared on the server: behind a pooler in transaction mode, the next transaction of a client may be
    on another connection, which lacks the client's prepared statements, or has those of somebody else.

    If the server refuses in another language than English, the error has the SQLSTATE of the refusal.
    """
    options = {**_KEEPALIVE, **options, "prepare_threshold": None}
    try:
        result = LimitedConnection.connect(*arguments, **options)
    except psycopg.OperationalError as error:
        report = _REPORT.search(str(error))
        if error.sqlstate is None and report is not None and not _ENGLISH.search(report[1]):
            parameters = {name: value for name, value in options.items() if name in OPTIONS}
            error.sqlstate = _ask_sqlstate(make_conninfo(*arguments, **parameters), seconds=options["connect_timeout"])
        raise
    result.silence_seconds = query_seconds
    return result


def _ask_sqlstate(conninfo: str, *, seconds: float) -> str | None:
    """Connect once more, and read the SQLSTATE of the refusal from libpq's trace, which alone has it.

    None if libpq does not trace the start of a connection (before 18), or the server does not refuse again. The trace
    stays in memory, because it contains the answer to the server's question for a password.
    """
    with suppress(psycopg.Error, OSError, AttributeError), os.fdopen(os.memfd_create("trace"), "r+b") as trace:
        connection = pq.PGconn.connect_start(conninfo.encode())
        connection.trace(trace.fileno())
        until = time.monotonic() + float(seconds)
        try:
            while time.monotonic() < until:
                match connection.connect_poll():
                    case pq.PollingStatus.READING:
                        select.select([connection.socket], [], [], 0.1)
                    case pq.PollingStatus.WRITING:
                        select.select([], [connection.socket], [], 0.1)
                    case _:
                        break
        finally:
            connection.untrace()  # writes what is buffered
            connection.finish()
        trace.seek(0)
        match = re.search(rb'ErrorResponse\b.* C "([0-9A-Z]{5})"', trace.read())
        return match[1].decode() if match else None
    return None


def copy_rows(connection: sa.Connection, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Insert rows by COPY, in bounded memory; the names are those of our tables."""
    driver: Any = connection.connection.driver_connection
    copy = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
    try:
        with driver.cursor() as cursor, cursor.copy(copy) as target:
            for row in rows:
                target.write_row(row)
    except psycopg.Error as error:  # COPY bypasses SQLAlchemy, which therefore cannot wrap the error
        raise sa.exc.DBAPIError.instance(copy, None, error, psycopg.Error, dialect=connection.dialect) from error


def wait_without_limit(connection: sa.Connection) -> None:
    """Remove the limit from the connection, for statements that may take hours, such as migrations."""
    driver = connection.connection.driver_connection
    if isinstance(driver, LimitedConnection):
        driver.silence_seconds = None
