"""Who did what, and when? The event log: append-only, every event sealed with the hash of the one before it.

Changing, removing or inserting an event breaks every hash after it. Events are written in the transaction of what they
tell of, as its last statement, so that the lock on the chain's end is held for as short as can be.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.rows import canonical_json, stored_values
from registry.catalog.tables import event
from registry.model import Event

FIRST_PREVIOUS: Final = "0" * 64
"""What the first event of a catalog follows."""

_RECORDED_BY: Final = "@recorded_by"
"""Among the details, so that it is sealed with them and events of older registries verify as before; no split and no
flag can have this name."""

_LOCK: Final = (0x72656769, 2)  # "regi", and the number of the lock: 2 is for the event chain


def lock_log(connection: sa.Connection) -> None:
    """On PostgreSQL keep others from appending until this transaction ends; what they told of is seen from here on.

    SQLite's write transactions exclude each other anyway.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(*_LOCK)))


def append_event(
    connection: sa.Connection,
    *,
    at: datetime,
    actor: str,
    action: str,
    dataset: str,
    version: str,
    details: Mapping[str, Any],
) -> None:
    """Append an event to the chain; others who append wait until this transaction ends (``lock_log``).

    The event is later than ``at``, where the caller had to wait for its turn, and than every event before it, whatever
    clocks say: so "as at DATE" is a beginning of the chain. ``actor`` is who somebody claims to be; beside it is stored
    whom the operating system knows.
    """
    lock_log(connection)
    last = connection.execute(
        sa.select(event.c.id, event.c.at, event.c.hash).order_by(event.c.id.desc()).limit(1)
    ).first()
    at = max(at, datetime.now(UTC))
    number, previous = 1, FIRST_PREVIOUS
    if last is not None:
        number, previous, at = last.id + 1, last.hash, max(at, last.at + timedelta(microseconds=1))
    values = {
        "id": number,
        "at": at,
        "actor": actor,
        "action": action,
        "dataset": dataset,
        "version": version,
        "details_json": canonical_json({**details, _RECORDED_BY: _system_user()}),
        "previous_hash": previous,
    }
    connection.execute(sa.insert(event).values(**values, hash=event_hash(values)))


def events_of_version(connection: sa.Connection, dataset: str, version: str, action: str) -> Iterator[Event]:
    """The events of one kind that concern a version, the last one first."""
    rows = connection.execute(
        sa.select(event)
        .where(event.c.dataset == dataset, event.c.version == version, event.c.action == action)
        .order_by(event.c.id.desc())
    )
    with stored_values():
        for row in rows:
            yield read_event(row)


def read_event(row: sa.Row[*tuple[Any, ...]]) -> Event:
    """The event of a row of the table ``event``."""
    details = json.loads(row.details_json)
    if not isinstance(details, dict):
        raise TypeError("the details of an event are an object")
    recorded_by = details.pop(_RECORDED_BY, None)
    return Event(
        id=row.id,
        at=row.at,
        actor=row.actor,
        action=row.action,
        dataset=row.dataset,
        version=row.version,
        details=details,
        recorded_by=None if recorded_by is None else str(recorded_by),
        previous_hash=row.previous_hash,
        hash=row.hash,
    )


def _system_user() -> str:
    """``user@host`` as the operating system knows them, whatever the environment says."""
    try:
        import pwd

        user = pwd.getpwuid(os.getuid()).pw_name
    except ImportError:  # Windows
        user = getpass.getuser()
    except KeyError:  # no entry for this user id, as in many containers
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def event_hash(values: Mapping[str, Any]) -> str:
    """sha256 over the previous hash and the canonical JSON of the event's columns, 64 hex digits."""
    told = {name: values[name] for name in ("id", "actor", "action", "dataset", "version", "details_json")}
    told["at"] = values["at"].astimezone(UTC).isoformat(timespec="microseconds")
    return hashlib.sha256((values["previous_hash"] + canonical_json(told)).encode("ascii")).hexdigest()
