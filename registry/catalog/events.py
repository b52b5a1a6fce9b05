"""The event log in SQL: appends events, reads them by pages, and verifies their chain of hashes.

Changing, removing or inserting an event breaks every hash after it. The insertion of an event is the last statement of
the transaction that it describes, so the lock on the end of the chain is held only briefly.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import sqlalchemy as sa

from registry.catalog.clock import read_write_clock
from registry.catalog.names import told_as
from registry.catalog.rows import canonical_json
from registry.catalog.selection import explain_dataset, is_dataset, is_version, parse_dataset, published_versions
from registry.catalog.session import is_writing
from registry.catalog.tables import builder, builder_config, corrected_time, dataset_version, event
from registry.catalog.values import stored_values
from registry.errors import LogTamperedError, RegistryError, UsageError
from registry.model import Event, Reference, Version

if TYPE_CHECKING:
    from registry.catalog.outcomes import LogFault
    from registry.model import Advance

FIRST_PREVIOUS: Final = "0" * 64
"""The previous hash of the first event of a catalog."""

RECORDED_BY: Final = "@recorded_by"
"""A key of the details, so that the hash covers it and events of older registries still verify. No split and no flag
can have this name."""

SESSION_USER: Final = "@session_user"
"""Another one, on PostgreSQL, where a trigger refuses an event with another user than that of its session."""

ROWS_AT: Final = "@rows_at"
"""Another one: rows are dated when their transaction begins, so their time is a little earlier than the event's."""

_LOCK: Final = (0x72656769, 2)  # "regi", and the number of the lock: 2 is for the event chain


_BATCH: Final = 1000
"""Number of events that one query reads."""

UNREADABLE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, RegistryError)
"""Errors that parsing a stored value raises if the registry did not write it."""

T = TypeVar("T")

_MAX_FAULTS: Final = 100

_MOST_ACTIONS: Final = 100
_MOST_KEPT: Final = 2
_computed: Final[dict[tuple[Any, ...], Any]] = {}
"""What ``once_for_pages`` has computed last."""


_WITH_CORRECTIONS: Final = event.outerjoin(corrected_time, corrected_time.c.event_id == event.c.id)

CORRECTED_AT: Final = sa.func.coalesce(corrected_time.c.at, event.c.at)
"""The time of an event of ``select_events``: its own, or the corrected one."""


def select_events() -> sa.Select[Any]:
    """The columns of events, and ``corrected_at``, which is NULL if the clock was right."""
    return sa.select(event, corrected_time.c.at.label("corrected_at")).select_from(_WITH_CORRECTIONS)


def lock_log(connection: sa.Connection) -> None:
    """On PostgreSQL, block other appends until this transaction ends. It then sees all earlier events.

    SQLite needs no lock, because its write transactions exclude each other. Dry runs only read, and lock nothing.
    """
    if connection.dialect.name == "postgresql" and is_writing(connection):
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(*_LOCK)))


def append_event(
    connection: sa.Connection,
    action: str,
    about: Reference | str,
    details: Mapping[str, Any],
    *,
    actor: str,
    version: Version | None = None,
    rows_at: datetime | None = None,
) -> None:
    """Append an event to the chain; other writers wait until this transaction ends (``lock_log``).

    ``about`` is a version or a dataset as a reference, or the text of a dataset ('' for the whole catalog), optionally
    with a ``version``.
    The event is dated by the clock of the catalog (``clock.py``), but never before the previous event, so the events up
    to a moment are always the beginning of the chain. ``actor`` is a claim unless a server authenticated it; the event
    also has the user and host that the operating system reports, and the user of the database session. ``rows_at`` is
    the time in the rows that the transaction wrote.
    """
    lock_log(connection)
    last = _newest(connection)
    at = read_write_clock(connection, None if last is None else (last.id, last.at))
    number, previous = 1, FIRST_PREVIOUS
    if last is not None:
        number, previous, at = last.id + 1, last.hash, max(at, last.at + timedelta(microseconds=1))
    own = {RECORDED_BY: _system_user()}
    if (user := session_user(connection)) is not None:
        own[SESSION_USER] = user
    if rows_at is not None:
        own[ROWS_AT] = in_json(rows_at)
    values = {
        "id": number,
        "at": at,
        "actor": actor,
        "action": action,
        "dataset": about if isinstance(about, str) else about.dataset,
        "version": str((version if isinstance(about, str) else about.exact) or ""),
        "details_json": canonical_json({**details, **own}),
        "previous_hash": previous,
    }
    try:
        connection.execute(sa.insert(event).values(**values, hash=event_hash(values)))
    except sa.exc.IntegrityError as error:
        raise LogTamperedError(
            f"event {number} cannot be appended to the log: other software wrote event {number - 1} or {number}",
            hint="Run the command again. If it fails again, find the wrong event: registry log verify. The owner of "
            "the database can remove it as described in docs/troubleshooting.md.",
            details={"event": number, "faults": []},
        ) from error


def check_clock(connection: sa.Connection) -> datetime:
    """The current time for the rows of a transaction that will write; see ``clock.read_write_clock`` for the errors."""
    last = _newest(connection)
    return read_write_clock(connection, None if last is None else (last.id, last.at))


def _newest(connection: sa.Connection) -> Any:
    """The id, time and hash of the newest event, or None."""
    with stored_values():
        columns = event.c.id, CORRECTED_AT.label("at"), event.c.hash
        query = sa.select(*columns).select_from(_WITH_CORRECTIONS).order_by(event.c.id.desc()).limit(1)
        return connection.execute(query).first()


def events_of_version(connection: sa.Connection, dataset: str, version: str, action: str) -> Iterator[Event]:
    """The events of one kind for a version, newest first."""
    rows = connection.execute(
        select_events()
        .where(event.c.dataset.in_(told_as(connection, dataset)), event.c.version == version, event.c.action == action)
        .order_by(event.c.id.desc())
    )
    with stored_values():
        for row in rows:
            yield read_event(row)


def read_event(row: sa.Row[*tuple[Any, ...]]) -> Event:
    """Convert a row of ``select_events`` to an event."""
    details = json.loads(row.details_json)
    if not isinstance(details, dict):
        raise TypeError("the details of an event must be a JSON object")
    recorded_by, user, rows_at = (details.pop(name, None) for name in (RECORDED_BY, SESSION_USER, ROWS_AT))
    return Event(
        id=row.id,
        at=row.at if row.corrected_at is None else row.corrected_at,
        stamped_at=None if row.corrected_at is None else row.at,
        actor=row.actor,
        action=row.action,
        dataset=row.dataset,
        version=row.version,
        details=details,
        recorded_by=None if recorded_by is None else str(recorded_by),
        session_user=None if user is None else str(user),
        is_verified=str(recorded_by).startswith("token "),
        rows_at=None if rows_at is None else datetime.fromisoformat(rows_at),
        previous_hash=row.previous_hash,
        hash=row.hash,
    )


def in_json(moment: datetime) -> str:
    """A moment in UTC, to the microsecond, for the details of events."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


recorder: Final[ContextVar[str | None]] = ContextVar("recorder", default=None)
"""The identity that a server authenticated for the current call, such as ``token 3f9a5c0d71be``, or None."""


def session_user(connection: sa.Connection) -> str | None:
    """The user who logged in to the PostgreSQL server, or None on SQLite, which has no users.

    SET ROLE does not change it. Takes one query for each connection.
    """
    if connection.dialect.name != "postgresql":
        return None
    if SESSION_USER not in connection.info:
        connection.info[SESSION_USER] = str(connection.exec_driver_sql("SELECT session_user").scalar_one())
    return str(connection.info[SESSION_USER])


def _system_user() -> str:
    """The authenticated identity, else ``user@host`` from the operating system, ignoring environment variables."""
    if (authenticated := recorder.get()) is not None:
        return authenticated
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
    told["at"] = in_json(values["at"])
    return hashlib.sha256((values["previous_hash"] + canonical_json(told)).encode("ascii")).hexdigest()


def read_events(
    connection: sa.Connection,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    datasets: Collection[str] | None = None,
    actions: Collection[str] | None = None,
) -> Iterator[Event]:
    """The events of these datasets and actions between two moments, oldest first; None means any.

    Raises:
        CatalogError: an event is damaged.
    """
    after = 0
    while page := read_page(connection, since=since, until=until, datasets=datasets, actions=actions, after=after):
        yield from page
        after = page[-1].id


def read_page(
    connection: sa.Connection,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    datasets: Collection[str] | None = None,
    actions: Collection[str] | None = None,
    before: int | None = None,
    after: int = 0,
    limit: int = _BATCH,
    newest: int | None = None,
) -> tuple[Event, ...]:
    """The first ``limit`` of these events with an id above ``after``; with ``newest``, only of the N newest."""
    conditions: list[sa.ColumnElement[bool]] = []
    if since is not None:
        conditions.append(since <= CORRECTED_AT)
    if until is not None:
        conditions.append(until >= CORRECTED_AT)
    if datasets is not None:
        conditions.append(event.c.dataset.in_(sorted(datasets)))
    if actions is not None:
        if len(actions) > _MOST_ACTIONS:
            raise UsageError(f"events are chosen by at most {_MOST_ACTIONS} actions, not {len(actions):,}")
        conditions.append(event.c.action.in_(sorted(actions)))
    if before is not None:
        conditions.append(event.c.id < before)
    if newest is not None:
        source = event if since is until is None else _WITH_CORRECTIONS  # most pages do not need the join
        ids = sa.select(event.c.id).select_from(source).where(*conditions, event.c.id > after)
        ids = ids.order_by(event.c.id.desc()).limit(newest)
        if newest <= limit:
            conditions = [event.c.id.in_(connection.execute(ids).scalars().all())]  # these are searched for only once
        else:
            first = connection.execute(sa.select(sa.func.min(ids.subquery("newest").c.id))).scalar()
            after = after if first is None else int(first) - 1
    query = select_events().where(*conditions, event.c.id > after).order_by(event.c.id).limit(limit)
    with stored_values():
        return tuple(read_event(row) for row in connection.execute(query))


def once_for_pages(
    connection: sa.Connection, compute: Callable[[], T], *about: object, limit: int | None, is_first: bool
) -> T:
    """Return what ``compute`` returns, which reads the log from its beginning.

    The pages of a list that follow the first one use what that has computed, unless the log has grown meanwhile.
    Otherwise, a list of n items would cost n pages times n events.

    Args:
        connection: shows one snapshot.
        compute: reads the log.
        about: distinguishes the list from others in the same catalog.
        limit: the limit of the page; nothing is kept for a list that comes whole.
        is_first: whether it is the first page.
    """
    newest = connection.execute(sa.select(event.c.hash).order_by(event.c.id.desc()).limit(1)).scalar()
    key = (connection.engine.url, newest, *about)
    result: T | None = None if is_first else _computed.get(key)
    if result is None:
        result = compute()
    if limit is not None:
        _computed[key] = result
        for old in list(_computed)[:-_MOST_KEPT]:
            _computed.pop(old, None)
    return result


def find_datasets(connection: sa.Connection, dataset: str) -> tuple[str, ...]:
    """The names of a dataset in events: of one config, or, for a name alone, of all its configs.

    Raises:
        DatasetNotFoundError, ConfigNotFoundError
        UsageError: a version or an alias follows the name.
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
    named = [f"{wanted.name}/{config}" if config else wanted.name for config in configs]
    # Events about all configs, such as a change of the default config, have only the name.
    return told_as(connection, *named) if wanted.config is not None else told_as(connection, wanted.name, *named)


@dataclass(slots=True)
class Faults:
    """Counts all faults, and keeps the first ones."""

    kept: list[LogFault] = field(default_factory=list)
    num_faults: int = 0

    def add(self, where: str, problem: str) -> None:
        """Record a fault."""
        self.num_faults += 1
        if len(self.kept) < _MAX_FAULTS:
            from registry.catalog.outcomes import LogFault

            self.kept.append(LogFault(where=where, problem=problem))


@dataclass(slots=True)
class Chain:
    """The result of walking along the chain.

    Attributes:
        num_events, head: the number of events, and the hash of the last one.
        datasets: the names of each dataset and its configs in events, by the name of the dataset.
        is_readable: whether every event can be replayed.
    """

    num_events: int = 0
    head: str = FIRST_PREVIOUS
    datasets: dict[str, set[str]] = field(default_factory=dict)
    is_readable: bool = True


def walk_chain(connection: sa.Connection, faults: Faults, *, anchor: str | None, advance: Advance) -> Chain:
    """Verify the hashes, order and times of all events.

    ``anchor`` is the hash of an event that must exist. Removing events from the end leaves no trace in the chain, but
    the tables reveal it (``log_verify.py``).

    Raises:
        UsageError: the anchor is the head of an empty log, and the log is not empty.
    """
    if anchor == FIRST_PREVIOUS and _numbers(connection, None):
        raise UsageError(
            "an anchor of 64 zeros is the beginning of every log, so it proves nothing",
            hint="Use the head that an earlier `registry log verify` printed for a log with events, or no anchor.",
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
            faults.add(f"event {row.id}", "cannot be read")
            chain.is_readable = False
        else:
            where = describe_event(found)
            if event_hash({**row._mapping}) != row.hash:
                faults.add(where, "was changed: its hash does not match its content")
            if row.id == last_id + 1 and row.previous_hash != chain.head:
                faults.add(where, "does not continue the chain: the event before it has another hash")
            elif row.id <= last_id:
                faults.add(where, "comes before the first event")
            if last_at is not None and found.at < last_at and not _is_dated_as_published(connection, found):
                faults.add(where, f"is dated {found.at:%Y-%m-%d %H:%M:%S} UTC, before the previous event")
            last_at = found.at
            if found.dataset:
                chain.datasets.setdefault(found.dataset.partition("/")[0], set()).add(found.dataset)
        is_anchored = is_anchored or row.hash == anchor
        chain.head, last_id = row.hash, max(row.id, last_id)
    advance(chain.num_events % _BATCH)
    if not is_anchored:
        faults.add("the log", f"has no event with the hash {anchor}: it was truncated or rewritten")
    return chain


def describe_event(found: Event) -> str:
    """How faults name an event: ``event 7 (yank mnist:1.0.0)``."""
    subject = f"{found.dataset}:{found.version}" if found.version else found.dataset
    return f"event {found.id} ({' '.join(filter(None, (found.action, subject)))})"


def _rows(connection: sa.Connection) -> Iterator[Any]:
    """Every event in order, in batches; if an event of a batch cannot be read, its events are read one by one."""
    last: int | None = None
    while True:
        try:
            batch: list[Any] = list(connection.execute(_batch_after(last, select_events())))
        except (*UNREADABLE, sa.exc.OperationalError):  # the latter: text that is not UTF-8
            batch = [_row(connection, number) for number in _numbers(connection, last)]
        if not batch:
            return
        yield from batch
        last = batch[-1].id


def _numbers(connection: sa.Connection, last: int | None) -> list[int]:
    return list(connection.execute(_batch_after(last, sa.select(event.c.id))).scalars())


def _batch_after(last: int | None, query: sa.Select[Any]) -> sa.Select[Any]:
    query = query.order_by(event.c.id).limit(_BATCH)
    return query if last is None else query.where(event.c.id > last)


def _row(connection: sa.Connection, number: int) -> Any:
    query = select_events().where(event.c.id == number)
    try:
        return connection.execute(query).one()
    except (*UNREADABLE, sa.exc.OperationalError):
        return connection.execute(sa.select(event.c.id, event.c.hash).where(event.c.id == number)).one()


def _read(row: Any) -> Event | None:
    """The event in ``row``, or None if it cannot be read."""
    try:
        event_hash({**row._mapping})
        return read_event(row)
    except UNREADABLE:
        return None


def _is_dated_as_published(connection: sa.Connection, found: Event) -> bool:
    """Whether the event's time equals the time in the row that it describes.

    Older releases read the clock before they waited for the lock, so their events may be slightly early.
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
