"""The removal of the files of dropped versions, in SQL: planned, begun and ended, each step with an event.

    drop  ->  planned, until the grace period has passed  ->  begun  ->  the files are removed  ->  ended

The events are the record, so there is no table. The rows of the version stay, as its tombstone: its message says who
removed the files, and when. From ``begun`` on the version is neither restored nor published again, so nobody takes a
folder with some of its files for a version.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.clock import read_clock
from registry.catalog.events import append_event, events_of_version, in_json, once_for_pages
from registry.catalog.names import in_present, present_names, told_as
from registry.catalog.outcomes import Removal, RemovalStep, removed_error
from registry.catalog.queries import find_version_id
from registry.catalog.selection import place_of
from registry.catalog.tables import dataset_version, event
from registry.catalog.values import stored_values
from registry.errors import ConflictError, spell
from registry.model import Candidate, Reference, Standing, Use, Version, VersionState, describe_moment, listed

REMOVE: Final = "remove"
_AT_ONCE: Final = 500
GRACE: Final = timedelta(days=7)
"""How long after the drop files are kept if nobody says otherwise."""


def load_removals(
    connection: sa.Connection, dataset: str | None = None, *, after: Reference | None = None, limit: int | None = None
) -> tuple[Removal, ...]:
    """See ``LifecycleCalls.removals``. Undoing the drop of a version cancels a plan."""
    places = once_for_pages(
        connection,
        lambda: _removed_places(connection, dataset),
        *("removals", dataset),
        limit=limit,
        is_first=after is None,
    )
    first = 0 if after is None else bisect_right(places, place_of(after), key=lambda entry: entry[0])
    chosen, details = places[first:][:limit], dict[int, str]()
    with stored_values():
        for start in range(0, len(chosen), _AT_ONCE):  # their details are long
            numbers = [event_id for _, event_id in chosen[start : start + _AT_ONCE]]
            of_chosen = sa.select(event.c.id, event.c.details_json).where(event.c.id.in_(numbers))
            details |= {row.id: row.details_json for row in connection.execute(of_chosen)}
        return tuple(
            _read(Reference.exactly(name, config or None, Version(*number)), json.loads(details[event_id]))
            for (name, config, *number), event_id in chosen
        )


def _removed_places(connection: sa.Connection, dataset: str | None) -> list[tuple[tuple[Any, ...], int]]:
    """The versions that have a removal, see ``place_of``, in order, each with the id of its newest event."""
    columns = event.c.id, event.c.dataset, event.c.version, event.c.action
    query = sa.select(*columns).where(event.c.action.in_((REMOVE, "undo-drop"))).order_by(event.c.id)
    if dataset is not None:
        query = query.where(event.c.dataset.in_(told_as(connection, dataset)))
    present, newest = present_names(connection), dict[tuple[Any, ...], int]()
    with stored_values():
        for number, name, version, action in connection.execute(query):
            place = *in_present(present, name).partition("/")[::2], *Version.parse(version).parts
            newest[place] = number if action == REMOVE else 0
    return sorted((place, number) for place, number in newest.items() if number)


def plan_removal(
    connection: sa.Connection, standing: Standing, candidate: Candidate, removal: Removal, grace: timedelta | None
) -> Removal:
    """``removal``, which somebody requests now, with the time when it is due; it begins if that has passed."""
    if candidate.state is not VersionState.DROPPED:
        raise ConflictError(
            f"{removal.reference} is {standing.status(candidate)}: only the files of a dropped version can be removed",
            hint=f"Drop it first: registry drop {removal.reference} --reason TEXT",
        )
    now, due = read_clock(connection), removal.due
    if grace is not None or due is None:
        due = now if grace == timedelta() else _dropped_at(connection, removal.reference, now) + (grace or GRACE)
    step = RemovalStep.BEGUN if due <= now else RemovalStep.PLANNED
    return replace(removal, step=step, due=due, reason=candidate.message)


def refuse_uses(standing: Standing, reference: Reference, uses: Sequence[Use]) -> None:
    """Refuse to remove what an alias, or a reference in use such as a pin, names exactly."""
    aliases = sorted(name for name, number in standing.aliases.items() if number == reference.exact)
    users = [f"the alias {standing.dataset}@{name}" for name in aliases]
    for use in uses:
        number = standing.aliases.get(use.reference.alias) if use.reference.alias else use.reference.exact
        if number == reference.exact:
            users.append(f"{use.reference} in {use.place}" if use.place else str(use.reference))
    if users:
        raise ConflictError(
            f"{reference} is in use: {listed(users, 5)}",
            hint=f"Move them to another version first, or remove its files all the same with {spell('force', True)}.",
            details={"uses": users},
        )


def refuse_removed(connection: sa.Connection, reference: Reference, *, hint: str | None = None) -> None:
    """Raise an error if the removal of a version has begun; whoever locks the dataset is sure of it.

    Raises:
        VersionExistsError: its files are removed, or are being removed.
    """
    with stored_values():
        newest = next(events_of_version(connection, reference.dataset, str(reference.exact), REMOVE), None)
        is_removed = newest is not None and newest.details["step"] != RemovalStep.PLANNED
        message = str(newest.details["after"]["message"]) if newest is not None else ""
    if is_removed:
        raise removed_error(reference, message, hint=hint)


def append_removal(connection: sa.Connection, removal: Removal, candidate: Candidate, *, actor: str) -> None:
    """Write the message of the tombstone, and the event."""
    reference, message = removal.reference, removal.reason
    if removal.step is not RemovalStep.PLANNED:
        verb = "began to remove" if removal.step is RemovalStep.BEGUN else "removed"
        now = describe_moment(read_clock(connection).replace(microsecond=0))
        message = f"{message}; {removal.actor} {verb} its files at {now}"
    version_id = find_version_id(connection, reference.name, reference.config, candidate.version)
    changed = sa.update(dataset_version).where(dataset_version.c.id == version_id)
    connection.execute(changed.values(state_message=message))
    append_event(
        connection,
        REMOVE,
        reference,
        {
            "before": state_values(candidate),
            "after": state_values(replace(candidate, message=message)),
            "step": removal.step.value,
            "due": None if removal.due is None else in_json(removal.due),
            "requested_by": removal.actor,
            "force": removal.force,
            "reason": removal.reason,
        },
        actor=actor,
    )


def state_values(candidate: Candidate) -> dict[str, str | None]:
    """The state of a version as stored in events; ``history.read_state`` parses it."""
    return {
        "state": candidate.state.value,
        "message": candidate.message,
        "superseded_by": None if candidate.superseded_by is None else str(candidate.superseded_by),
    }


def _dropped_at(connection: sa.Connection, reference: Reference, now: datetime) -> datetime:
    """When the version was dropped. Dropping it again with another reason does not count."""
    with stored_values():
        for event in events_of_version(connection, reference.dataset, str(reference.exact), "drop"):
            if event.details["before"]["state"] != event.details["after"]["state"]:
                return event.at
    return now


def _read(reference: Reference, details: Mapping[str, Any]) -> Removal:
    return Removal(
        reference=reference,
        step=RemovalStep(details["step"]),
        due=datetime.fromisoformat(details["due"]),
        actor=details["requested_by"],
        force=details["force"],
        reason=details["reason"],
    )
