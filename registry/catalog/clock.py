"""The clock that dates the writes of a catalog: the server's on PostgreSQL, this machine's on SQLite.

Many clients write to a server. If each client dated its own rows, one wrong clock would affect the whole log: events
never go back in time, so all later events would have to follow a wrong time. On PostgreSQL, clocks of clients are
therefore never used. A write is refused if the clock contradicts other observations:

    the newest event is dated more than an hour after the clock     both databases
    this machine's clock jumped by more than an hour                 SQLite
    the file system that has the catalog dates files by another one  SQLite
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from registry.catalog.tables import corrected_time, event
from registry.catalog.urls import describe_url
from registry.errors import ClockError
from registry.model import describe_moment

TOLERANCE: Final = timedelta(hours=1)
"""Clocks may differ by this much. A smaller difference only delays the times of events (``events.append_event``)."""


def read_clock(connection: sa.Connection) -> datetime:
    """The current time in UTC, by the clock of the catalog."""
    return _server_clock(connection) if connection.dialect.name == "postgresql" else _machine_clock()


def read_write_clock(connection: sa.Connection, newest: tuple[int, datetime] | None) -> datetime:
    """The current time for a transaction that writes; ``newest`` is the id and the time of the newest event.

    Raises:
        ClockError: the newest event is dated more than an hour later; or the clock of this machine jumped, or differs
            from that of the file system.
    """
    now = read_clock(connection)
    is_server = connection.dialect.name == "postgresql"
    if not is_server:
        _refuse_jump(now)
        _refuse_other_clock(now, connection.engine.url)
    if newest is not None and newest[1] - now > TOLERANCE:
        whose = "of the database server" if is_server else "of this machine"
        number, at = newest
        raise ClockError(
            f"event {number} of {describe_url(connection.engine.url)} is dated {_second(at)}, "
            f"{_duration(at - now)} after the clock {whose}, {_second(now)}",
            hint=f"Compare the clock {whose} with another clock: date -u. If it is behind, set it, and run the command "
            "again. If it is right, a wrong clock dated the event: registry log correct-clock --dry-run",
            details={"event": number, "at": at.isoformat(), "clock": now.isoformat()},
        )
    return now


@lru_cache(16)
def corrected(stamp: sa.Column[datetime]) -> sa.Label[datetime]:
    """The column ``stamp``, with corrections of the clock applied (``corrections.py``).

    Rows do not name the event that describes them. But if a stamp lies after the corrected time of the first event that
    is dated after it, the same wrong clock dated it.
    """
    described, correction = event.alias("described"), event.alias("correction")
    result = (
        sa.select(corrected_time.c.at)
        .join_from(corrected_time, described, described.c.id == corrected_time.c.event_id)
        .join(correction, correction.c.id == corrected_time.c.corrected_by)
        .where(described.c.at >= stamp, correction.c.at < stamp)
        .order_by(corrected_time.c.event_id)
        .limit(1)
        .correlate(stamp.table)
        .scalar_subquery()
    )
    return sa.func.coalesce(result, stamp).label(stamp.name)


def _server_clock(connection: sa.Connection) -> datetime:
    now: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
    return now.astimezone(UTC)


def _machine_clock() -> datetime:
    return datetime.now(UTC)


def _uptime() -> float:
    """Seconds of a clock that cannot be set and, if the system supports it, keeps running while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


_start = _machine_clock(), _uptime()


def _refuse_jump(now: datetime) -> None:
    """Refuse the first write after a jump. The next write is accepted, because the user has seen this error."""
    global _start  # noqa: PLW0603 (the process has one clock)
    jump = now - _start[0] - timedelta(seconds=_uptime() - _start[1])
    if abs(jump) > TOLERANCE:
        _start = now, _uptime()
        direction = "forward" if jump > timedelta() else "back"
        raise ClockError(
            f"the clock of this machine was set {direction} by {_duration(abs(jump))} while this process ran: it shows "
            f"{_second(now)}",
            hint="Compare it with another clock: date -u. If it is right, run the command again.",
            details={"clock": now.isoformat(), "seconds": round(jump.total_seconds())},
        )


def _file_clock(folder: Path) -> datetime | None:
    """The current time by the clock that dates the files of ``folder``, or None if no file can be created there.

    On a network file system, this is the clock of the server. On a disk, it is the clock of the system, which may
    differ from the clock that the process sees, e.g. under faketime. The file has no name, or is unlinked at once.
    """
    import tempfile  # not for look-ups

    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)
    except (OSError, OverflowError, ValueError):
        return None


def _refuse_other_clock(now: datetime, url: sa.URL) -> None:
    folder = Path(url.database or "").absolute().parent
    at = _file_clock(folder)
    if at is not None and abs(at - now) > TOLERANCE:
        raise ClockError(
            f"the clock of this machine shows {_second(now)}, {_duration(abs(now - at))} "
            f"{'after' if now > at else 'before'} the clock of the file system of {folder}, {_second(at)}",
            hint="Compare both with another clock: date -u. Set the wrong clock, of this machine or of the file "
            "server, then run the command again. Nothing was changed.",
            details={"clock": now.isoformat(), "file_clock": at.isoformat(), "path": str(folder)},
        )


def _second(moment: datetime) -> str:
    return describe_moment(moment.replace(microsecond=0))


def _duration(length: timedelta) -> str:
    """A length of time for people.

    >>> _duration(timedelta(days=3652, hours=5)), _duration(timedelta(hours=30)), _duration(timedelta(minutes=61))
    ('3,652 days', '30 hours', '61 minutes')
    """
    minutes = round(length.total_seconds()) // 60
    if minutes < 120:
        return f"{minutes} minutes"
    return f"{minutes // 60} hours" if minutes < 48 * 60 else f"{minutes // (24 * 60):,} days"
