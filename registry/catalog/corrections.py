"""Corrects the times of events that a wrong clock dated: ``registry log correct-clock``.

The events themselves, and their hashes, do not change. A ``correct-clock`` event lists the corrected time of each, and
the table ``corrected_time`` contains these times for queries. A later correction of the same events replaces an earlier
one.

In older releases, an event with a wrong time affected later ones: each was dated a microsecond after the one before,
regardless of its own client's clock. But the rows that they describe have the time of that clock. So the corrected time
of an event is

    the time of its row, if that is earlier than its stamp: a number in the ledger, a move of an alias, a location
    its stamp minus ``ahead``, if it is known how far the clock was ahead
    its stamp, if it is not in the future and does not follow a wrong one
    the time of the next event, or of the correction, otherwise: it happened then at the latest
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import sqlalchemy as sa

from registry.catalog.clock import TOLERANCE, read_clock
from registry.catalog.events import UNREADABLE, Faults, append_event, describe_event, in_json, lock_log, read_events
from registry.catalog.locations import MIRROR_ADD, MIRROR_REMOVE, RELOCATE, told_steps
from registry.catalog.names import in_present, present_names
from registry.catalog.outcomes import ClockCorrection
from registry.catalog.tables import (
    alias_event,
    builder,
    builder_config,
    corrected_time,
    dataset_version,
    version_ledger,
    version_location,
)
from registry.catalog.values import stored_values
from registry.errors import UsageError
from registry.model import Event, Version

CORRECT_CLOCK: Final = "correct-clock"

_STEP: Final = timedelta(microseconds=1)
_MOVES: Final = ("alias-set", "alias-remove")
_CHANGES: Final = (MIRROR_ADD, MIRROR_REMOVE, RELOCATE)
_BATCH: Final = 1000


def correct_clock(
    connection: sa.Connection,
    *,
    first: int | None = None,
    last: int | None = None,
    ahead: timedelta | None = None,
    actor: str,
    dry_run: bool,
) -> ClockCorrection:
    """See ``LogCalls.correct_clock``."""
    lock_log(connection)
    now = read_clock(connection)
    events = list(read_events(connection))
    newest = events[-1].id if events else 0
    if first is None:
        first = next((event.id for event in events if event.at > now), None)
        if first is None:
            return ClockCorrection(events=(), clock=now, is_dry_run=dry_run)
    last = newest if last is None else last
    if not 1 <= first <= last <= newest:
        raise UsageError(
            f"the log has no events {first}..{last}: it has {newest:,}",
            hint="To list the events: registry log",
            details={"first": first, "last": last, "num_events": newest},
        )
    before = next((event for event in reversed(events) if event.id < first), None)
    after = next((min(event.at, now) for event in events if event.id > last), now)
    chosen = [event for event in events if first <= event.id <= last]
    with stored_values():
        row_times = dict(_pair_rows(connection, events))
    times = _plan(chosen, row_times, before=before, after=after, ahead=ahead)
    if [event.at for event in chosen] == times:
        return ClockCorrection(events=(), clock=now, is_dry_run=dry_run)
    result = tuple(replace(event, at=at, stamped_at=_stamp(event)) for event, at in zip(chosen, times, strict=True))
    if not dry_run:
        details = {"first": first, "times": [in_json(at) for at in times]}
        number = newest + 1
        _store(connection, {event.id: (event.at, number) for event in result})
        append_event(connection, CORRECT_CLOCK, "", details, actor=actor)
    return ClockCorrection(events=result, clock=now, is_dry_run=dry_run)


def _stamp(event: Event) -> datetime:
    return event.at if event.stamped_at is None else event.stamped_at


def _plan(
    events: Sequence[Event],
    row_times: Mapping[int, datetime],
    *,
    before: Event | None,
    after: datetime,
    ahead: timedelta | None,
) -> list[datetime]:
    """The time of each event, not before the one before it, and not after ``after``."""
    lower, previous = (datetime.min.replace(tzinfo=UTC), None) if before is None else (before.at, _stamp(before))
    is_wrong = before is not None and before.stamped_at is not None
    found: list[datetime | None] = []
    for event in events:
        stamp, row_time = _stamp(event), row_times.get(event.id)
        follows = previous is not None and stamp - previous == _STEP
        guesses = [] if follows and is_wrong else [stamp]
        if row_time is not None and stamp - row_time > TOLERANCE:
            guesses = [row_time]
        elif ahead and not follows:
            guesses.insert(0, stamp - ahead)
        # Clocks of clients differ by less than the tolerance, so a row may be dated a little before an earlier one.
        time = next((at for at in guesses if at <= after and lower - at < TOLERANCE), None)
        if time is not None:
            lower = time = max(time, lower)
        found.append(time)
        previous, is_wrong = stamp, time != stamp
    times: list[datetime] = []
    for time in reversed(found):
        after = after if time is None else time
        times.append(after)
    return times[::-1]


def _pair_rows(connection: sa.Connection, events: Sequence[Event]) -> Iterator[tuple[int, datetime]]:
    """The id of each event that describes rows, and the time in them."""
    present = present_names(connection)
    used: dict[tuple[str, str], list[datetime]] = defaultdict(list)
    for row in connection.execute(sa.select(version_ledger)):
        version = str(Version(row.major, row.minor, row.patch))
        used[_dataset(row.builder_name, row.config_name), version].append(row.used_at)
    moves = sa.select(alias_event.c.at, alias_event.c.name, builder.c.name, builder_config.c.name)
    moves = moves.join_from(alias_event, builder_config, builder_config.c.id == alias_event.c.config_id).join(builder)
    moved: dict[tuple[str, str], list[datetime]] = defaultdict(list)
    for at, alias, name, config in connection.execute(moves.order_by(alias_event.c.id)):
        moved[_dataset(name, config), alias].append(at)
    number = (dataset_version.c.major, dataset_version.c.minor, dataset_version.c.patch)
    steps = sa.select(version_location.c.at, builder.c.name, builder_config.c.name, *number)
    steps = (
        steps.join_from(version_location, dataset_version)
        .join(builder_config, builder_config.c.id == dataset_version.c.config_id)
        .join(builder)
    )
    changed: dict[tuple[str, str], list[datetime]] = defaultdict(list)
    for at, name, config, *parts in connection.execute(steps.order_by(version_location.c.id)):
        changed[_dataset(name, config), str(Version(*parts))].append(at)
    for event in events:  # the rows of each are in the order of their events
        if event.action == "publish":
            rows, count = used[event.dataset, event.version], 1
        elif event.action in _MOVES:
            rows, count = moved[in_present(present, event.dataset), str(event.details["alias"])], 1
        elif event.action in _CHANGES:
            rows, count = (
                changed[in_present(present, event.dataset), event.version],
                len(told_steps(event.action, event.details)),
            )
        else:
            continue
        if len(rows) >= count:
            yield event.id, rows[0]
            del rows[:count]


def _dataset(name: str, config: str) -> str:
    return f"{name}/{config}" if config else name


def _store(connection: sa.Connection, times: Mapping[int, tuple[datetime, int]]) -> None:
    ids = list(times)
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        connection.execute(sa.delete(corrected_time).where(corrected_time.c.event_id.in_(batch)))
        rows = [
            {"event_id": event_id, "at": times[event_id][0], "corrected_by": times[event_id][1]} for event_id in batch
        ]
        connection.execute(sa.insert(corrected_time), rows)


def compare_corrections(connection: sa.Connection, faults: Faults) -> None:
    """Compare the table with the events that correct others, and with the events that they correct."""
    told: dict[int, tuple[datetime, int]] = {}
    for event in read_events(connection, datasets=[""], actions=[CORRECT_CLOCK]):
        try:
            told |= read_correction(event)
        except UNREADABLE as error:
            faults.add(describe_event(event), f"cannot have happened: {error}")
    rows = connection.execute(sa.select(corrected_time).order_by(corrected_time.c.event_id))
    stored = {row.event_id: (row.at, row.corrected_by) for row in rows}
    for number in sorted(stored.keys() | told.keys()):
        if stored.get(number) != told.get(number):
            at = stored[number][0] if number in stored else None
            is_read = "is read as it was stamped" if at is None else f"is read as of {in_json(at)}"
            says = f"the log says {in_json(told[number][0])}" if number in told else "no event corrects it"
            faults.add(f"event {number}", f"{is_read}; {says}")


def read_correction(event: Event) -> dict[int, tuple[datetime, int]]:
    """The corrected times in a ``correct-clock`` event, with its id, by the ids of the corrected events.

    Raises:
        ValueError, LookupError, TypeError: the event is malformed, or corrects later events.
    """
    first, times = event.details["first"], [datetime.fromisoformat(text) for text in event.details["times"]]
    if not isinstance(first, int) or first < 1 or first + len(times) > event.id:
        raise ValueError("it corrects events that come after it")
    if times != sorted(times):
        raise ValueError("it brings events into another order")
    return {first + place: (at.astimezone(UTC), event.id) for place, at in enumerate(times)}
