"""The event log: appended to, read by pages, and checked along its chain of hashes. It is append-only.

Changing, removing or inserting an event breaks every hash after it. Events are written in the transaction of what they
tell of, as its last statement, so that the lock on the chain's end is held for as short as can be.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.backend import Advance
from registry.catalog.rows import canonical_json
from registry.catalog.selection import explain_dataset, is_dataset, is_version, parse_dataset, published_versions
from registry.catalog.tables import builder, builder_config, dataset_version, event
from registry.catalog.values import LogFault, stored_values
from registry.errors import RegistryError, UsageError
from registry.model import Event, Version

FIRST_PREVIOUS: Final = "0" * 64
"""What the first event of a catalog follows."""

_RECORDED_BY: Final = "@recorded_by"
"""Among the details, so that it is sealed with them and events of older registries verify as before; no split and no
flag can have this name."""

_LOCK: Final = (0x72656769, 2)  # "regi", and the number of the lock: 2 is for the event chain


_BATCH: Final = 1000
"""Events of one query."""

UNREADABLE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, RegistryError)
"""What reading a stored value raises that no registry wrote."""

_MAX_FAULTS: Final = 100


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


def read_events(
    connection: sa.Connection,
    *,
    until: datetime | None = None,
    datasets: Collection[str] | None = None,
    actions: Collection[str] | None = None,
) -> Iterator[Event]:
    """The events of these datasets and actions up to a moment, the oldest first; None leaves a condition out.

    Raises:
        CatalogError: an event does not read; it is damaged.
    """
    after = 0
    while page := read_page(connection, until=until, datasets=datasets, actions=actions, after=after):
        yield from page
        after = page[-1].id


def read_page(
    connection: sa.Connection,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    datasets: Collection[str] | None = None,
    actions: Collection[str] | None = None,
    after: int = 0,
    limit: int = _BATCH,
    newest: int | None = None,
) -> tuple[Event, ...]:
    """The first ``limit`` such events with an id above ``after``, of the ``newest`` of them."""
    conditions: list[sa.ColumnElement[bool]] = []
    if since is not None:
        conditions.append(event.c.at >= since)
    if until is not None:
        conditions.append(event.c.at <= until)
    if datasets is not None:
        conditions.append(event.c.dataset.in_(sorted(datasets)))
    if actions is not None:
        conditions.append(event.c.action.in_(sorted(actions)))
    if newest is not None:
        ids = sa.select(event.c.id).where(*conditions, event.c.id > after).order_by(event.c.id.desc()).limit(newest)
        first = connection.execute(sa.select(sa.func.min(ids.subquery("newest").c.id))).scalar()
        after = after if first is None else int(first) - 1
    query = sa.select(event).where(*conditions, event.c.id > after).order_by(event.c.id).limit(limit)
    with stored_values():
        return tuple(read_event(row) for row in connection.execute(query))


def find_datasets(connection: sa.Connection, dataset: str) -> tuple[str, ...]:
    """What events call a dataset: itself for one config; a name alone means all its configs.

    Raises:
        DatasetNotFoundError, ConfigNotFoundError
        UsageError: a version or an alias follows it.
    """
    wanted = parse_dataset(dataset)
    query = (
        sa.select(builder_config.c.name)
        .join_from(builder, builder_config, builder_config.c.builder_id == builder.c.id)
        .where(is_dataset(wanted))
    )
    configs = connection.execute(query).scalars().all()
    if not configs:
        raise explain_dataset(connection, wanted)
    named = tuple(f"{wanted.name}/{config}" if config else wanted.name for config in configs)
    # What concerns all configs, such as which one is the default, is told of the name alone.
    return named if wanted.config is not None else tuple({wanted.name, *named})


@dataclass(slots=True)
class Faults:
    """All faults are counted, the first of them kept."""

    kept: list[LogFault] = field(default_factory=list)
    num_faults: int = 0

    def add(self, where: str, problem: str) -> None:
        """Note one."""
        self.num_faults += 1
        if len(self.kept) < _MAX_FAULTS:
            self.kept.append(LogFault(where=where, problem=problem))


@dataclass(slots=True)
class Chain:
    """What a walk along the chain found.

    Attributes:
        num_events, head: how many events there are, and the hash of the last.
        datasets: what events call each dataset and its configs, by the dataset's name.
        is_readable: whether every event can be replayed.
    """

    num_events: int = 0
    head: str = FIRST_PREVIOUS
    datasets: dict[str, set[str]] = field(default_factory=dict)
    is_readable: bool = True


def walk_chain(connection: sa.Connection, faults: Faults, *, anchor: str | None, advance: Advance) -> Chain:
    """Walk along all events, and note what is wrong with them.

    ``anchor`` is the hash of an event that has to be there. What was cut off at the end leaves no trace here: the
    tables tell of it (``log_verify.py``).

    Raises:
        UsageError: the anchor is what an empty log has for a head, and the log is not empty.
    """
    if anchor == FIRST_PREVIOUS and _numbers(connection, None):
        raise UsageError(
            "an anchor of 64 zeros stands for the beginning of every log, and proves nothing",
            hint="Give the head that an earlier registry log verify printed when there were events, or no anchor.",
            details={"anchor": anchor},
        )
    chain = Chain()
    last_id = 0
    last_at: datetime | None = None
    is_anchored = anchor in (None, FIRST_PREVIOUS)
    for row in _rows(connection):
        chain.num_events += 1
        if chain.num_events % _BATCH == 0:
            advance(_BATCH)
        if row.id > last_id + 1:
            missing = f"event {last_id + 1} is" if row.id == last_id + 2 else f"events {last_id + 1}..{row.id - 1} are"
            where, _, verb = missing.rpartition(" ")
            faults.add(where, f"{verb} missing")
        found = _read(row)
        if found is None:
            faults.add(f"event {row.id}", "does not read")
            chain.is_readable = False
        else:
            where = describe_event(found)
            if event_hash({**row._mapping}) != row.hash:
                faults.add(where, "was changed: its hash is not that of what it says")
            if row.id == last_id + 1 and row.previous_hash != chain.head:
                faults.add(where, "does not follow the event before it, whose hash is another")
            elif row.id <= last_id:
                faults.add(where, "stands before the first event")
            if last_at is not None and found.at < last_at and not _is_dated_as_published(connection, found):
                faults.add(where, f"is dated {found.at:%Y-%m-%d %H:%M:%S} UTC, before the event that it follows")
            last_at = found.at
            if found.dataset:
                chain.datasets.setdefault(found.dataset.partition("/")[0], set()).add(found.dataset)
        is_anchored = is_anchored or row.hash == anchor
        chain.head, last_id = row.hash, max(row.id, last_id)
    advance(chain.num_events % _BATCH)
    if not is_anchored:
        faults.add("the log", f"holds no event with the hash {anchor}: it was cut off or written anew")
    return chain


def describe_event(found: Event) -> str:
    """How faults name an event: ``event 7 (yank mnist:1.0.0)``."""
    what = f"{found.dataset}:{found.version}" if found.version else found.dataset
    return f"event {found.id} ({' '.join(filter(None, (found.action, what)))})"


def _rows(connection: sa.Connection) -> Iterator[Any]:
    """Every event in order, in batches; where one of a batch does not read, the others come one by one."""
    last: int | None = None
    while True:
        try:
            batch: list[Any] = list(connection.execute(_batch_after(last, event)))
        except UNREADABLE:
            batch = [_row(connection, number) for number in _numbers(connection, last)]
        if not batch:
            return
        yield from batch
        last = batch[-1].id


def _numbers(connection: sa.Connection, last: int | None) -> list[int]:
    return list(connection.execute(_batch_after(last, event.c.id)).scalars())


def _batch_after(last: int | None, columns: sa.Table | sa.Column[int]) -> sa.Select[Any]:
    query = sa.select(columns).order_by(event.c.id).limit(_BATCH)
    return query if last is None else query.where(event.c.id > last)


def _row(connection: sa.Connection, number: int) -> Any:
    query = sa.select(event).where(event.c.id == number)
    try:
        return connection.execute(query).one()
    except UNREADABLE:
        return connection.execute(sa.select(event.c.id, event.c.hash).where(event.c.id == number)).one()


def _read(row: Any) -> Event | None:
    """The event of ``row``, or None where it does not read."""
    try:
        event_hash({**row._mapping})
        return read_event(row)
    except UNREADABLE:
        return None


def _is_dated_as_published(connection: sa.Connection, found: Event) -> bool:
    """Whether its time is that of the row that it tells of.

    Older registries looked at the clock before they waited for their turn, and so wrote events that are a little early.
    """
    if found.action != "publish":
        return False
    name, _, config = found.dataset.partition("/")
    try:
        version = Version.parse(found.version)
    except RegistryError:
        return False
    query = sa.select(dataset_version.c.published_at).select_from(published_versions())
    return connection.execute(query.where(is_version(name, config or None, version))).scalar() == found.at
