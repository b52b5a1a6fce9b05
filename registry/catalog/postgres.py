"""PostgreSQL connections that give up on a silent server. ``session.py`` opens them; psycopg is imported only here.

TCP keepalives detect a machine that is gone. They do not detect a server or proxy whose machine still acknowledges
packets, so every wait for an answer has a limit of its own.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import suppress
from typing import Any, Final, TypeVar

import psycopg
import sqlalchemy as sa

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


def connect(arguments: Any, options: dict[str, Any], *, query_seconds: float) -> LimitedConnection:
    """Connect with SQLAlchemy's arguments; options of the URL win over the defaults here."""
    made = LimitedConnection.connect(*arguments, **{**_KEEPALIVE, **options})
    made.silence_seconds = query_seconds
    return made


def wait_without_limit(connection: sa.Connection) -> None:
    """Remove the limit from the connection, for statements that may take hours, such as migrations."""
    driver = connection.connection.driver_connection
    if isinstance(driver, LimitedConnection):
        driver.silence_seconds = None
