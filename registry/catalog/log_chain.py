"""Is the event log whole? A walk along its chain: every hash, every link, every number, the order of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

import sqlalchemy as sa

from registry.catalog.events import FIRST_PREVIOUS, event_hash, read_event
from registry.catalog.selection import NUMBER, named_config
from registry.catalog.summaries import LogFault
from registry.catalog.tables import builder, builder_config, dataset_version, event
from registry.errors import RegistryError, UsageError
from registry.model import Event, Version

Advance: TypeAlias = Callable[[int], None]
"""Called with the number of rows looked at since the last call."""

UNREADABLE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, RegistryError)
"""What reading a stored value raises that no registry wrote."""

_BATCH: Final = 1000
_MAX_FAULTS: Final = 100


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
    tables tell of it (``log_tables.py``).

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
        query = sa.select(event).order_by(event.c.id).limit(_BATCH)
        if last is not None:
            query = query.where(event.c.id > last)
        try:
            batch: list[Any] = list(connection.execute(query))
        except UNREADABLE:
            batch = [_row(connection, number) for number in _numbers(connection, last)]
        if not batch:
            return
        yield from batch
        last = batch[-1].id


def _numbers(connection: sa.Connection, last: int | None) -> list[int]:
    query = sa.select(event.c.id).order_by(event.c.id).limit(_BATCH)
    if last is not None:
        query = query.where(event.c.id > last)
    return list(connection.execute(query).scalars())


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
    major, minor, patch = NUMBER
    published_at = connection.execute(
        sa.select(dataset_version.c.published_at)
        .select_from(builder)
        .join(builder_config, builder_config.c.builder_id == builder.c.id)
        .join(dataset_version, dataset_version.c.config_id == builder_config.c.id)
        .where(builder.c.name == name, named_config(config or None))
        .where(major == version.major, minor == version.minor, patch == version.patch)
    ).scalar()
    return published_at == found.at
