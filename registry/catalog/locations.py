"""The locations of published versions in SQL: mirrors, and folders that were moved.

A published row keeps the location that it was published with. Each change appends a row to ``version_location`` and an
event to the log, in one transaction; ``model.current_locations`` computes the locations from these rows.

Relative locations are below the data directory of the catalog. Its record is the last event of that kind: the log is
sealed, in every backup, and readable at every revision of the schema, so there is no table that could contradict it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import sqlalchemy as sa

from registry.catalog.clock import read_clock
from registry.catalog.events import append_event, lock_log
from registry.catalog.pages import checks_limit, fill_page
from registry.catalog.rows import check_location, read_reference, read_steps
from registry.catalog.selection import (
    NAMES,
    NUMBER,
    choose_row,
    explain_refusal,
    in_page,
    location_steps,
    lock_reference,
    published_versions,
)
from registry.catalog.session import SqlGroup, reading, transact
from registry.catalog.tables import dataset_version, event, version_location
from registry.catalog.values import DataDirectory, stored_values
from registry.errors import ConflictError, NotFoundError, OtherDataDirectoryError
from registry.model import LocationStep, Reference, VersionState, current_locations, is_absolute

if TYPE_CHECKING:  # loaded where they are made: a look-up makes none
    from registry.catalog.outcomes import DataDirectoryChange, LocationChange

Plan: TypeAlias = Callable[[Reference, tuple[str, ...]], tuple[LocationStep, ...]]
"""The steps to append, for a version and its present locations."""

MIRROR_ADD = "mirror-add"
MIRROR_REMOVE = "mirror-remove"
RELOCATE = "relocate"
DATA_DIR = "data-dir"


class SqlLocations(SqlGroup):
    """``LocationCalls`` in SQL."""

    def add(self, exactly: Reference, location: str, *, actor: str, dry_run: bool = False) -> LocationChange:
        def plan(_: Reference, before: tuple[str, ...]) -> tuple[LocationStep, ...]:
            return () if location in before else (LocationStep("add", check_location(location)),)

        return self._change(MIRROR_ADD, exactly, plan, {"location": location}, actor=actor, dry_run=dry_run)

    def remove(self, exactly: Reference, location: str, *, actor: str, dry_run: bool = False) -> LocationChange:
        def plan(reference: Reference, before: tuple[str, ...]) -> tuple[LocationStep, ...]:
            if location not in before:
                raise NotFoundError(
                    f"{location} is not a location of {reference}",
                    hint=f"To list its locations: registry mirror list {reference}",
                    details={"name": location, "known": list(before)},
                )
            if len(before) == 1:
                raise ConflictError(
                    f"{location} is the only location of {reference}",
                    hint=f"Record another one first: registry mirror add {reference} URL",
                    details={"location": location},
                )
            return (LocationStep("remove", location),)

        return self._change(MIRROR_REMOVE, exactly, plan, {"location": location}, actor=actor, dry_run=dry_run)

    def relocate(
        self, exactly: Reference, before: str, after: str, *, actor: str, dry_run: bool = False
    ) -> LocationChange:
        details: dict[str, Any] = {"before": before, "after": after}

        def plan(reference: Reference, present: tuple[str, ...]) -> tuple[LocationStep, ...]:
            if before not in present:
                raise ConflictError(
                    f"{before} is no longer a location of {reference}",
                    hint=f"Another call changed its locations. To list them: registry mirror list {reference}",
                    details={"location": before, "locations": list(present)},
                )
            if before == after:
                return ()
            details["is_first"] = present[0] == before
            return told_steps(RELOCATE, details | {"after": check_location(after)})

        return self._change(RELOCATE, exactly, plan, details, actor=actor, dry_run=dry_run)

    @checks_limit
    def outside(
        self, *, after: Reference | None = None, limit: int | None = None
    ) -> tuple[tuple[Reference, tuple[str, ...]], ...]:
        is_outside = sa.or_(dataset_version.c.location.like("/%"), dataset_version.c.location.like("%://%"))
        is_changed = sa.exists().where(version_location.c.version_id == dataset_version.c.id)
        query = _locations_query().where(
            sa.or_(is_outside, is_changed), dataset_version.c.state != VersionState.DROPPED.value
        )
        with reading(self._engine) as connection:
            return fill_page(
                lambda last, size: _read_locations(connection, in_page(query, self._engine.dialect.name, last, size)),
                lambda versions: (it for it in versions if any(map(is_absolute, it[1]))),
                itemgetter(0),
                after=after,
                limit=limit,
            )

    def data_dir(self) -> DataDirectory | None:
        with reading(self._engine) as connection:
            return find_data_dir(connection)

    def set_data_dir(self, data_dir: DataDirectory, *, actor: str, dry_run: bool = False) -> DataDirectoryChange:
        from registry.catalog.outcomes import DataDirectoryChange

        def act(connection: sa.Connection) -> DataDirectoryChange:
            lock_log(connection)
            change = DataDirectoryChange(before=find_data_dir(connection), after=data_dir, is_dry_run=dry_run)
            if change.is_change and not dry_run:
                _record_data_dir(connection, change.before, data_dir, actor=actor)
            return change

        return transact(self._engine, act, actor=actor, dry_run=dry_run)

    def _change(
        self, action: str, exactly: Reference, plan: Plan, details: dict[str, Any], *, actor: str, dry_run: bool
    ) -> LocationChange:
        from registry.catalog.outcomes import LocationChange

        def act(connection: sa.Connection) -> LocationChange:
            choice, row = choose_row(connection, lock_reference(connection, exactly))
            if row is None or choice.version is None:
                raise explain_refusal(choice)
            reference = choice.standing.exactly(choice.version)
            with stored_values():
                done = read_steps(row.location_steps)
            before = current_locations(row.location, done)
            steps = plan(reference, before)
            after = current_locations(row.location, (*done, *steps))
            if steps and not dry_run:
                now = read_clock(connection)
                for kind, location in steps:
                    values = {"version_id": row.id, "change": kind, "location": location, "at": now, "actor": actor}
                    connection.execute(sa.insert(version_location).values(**values))
                append_event(connection, action, reference, details, actor=actor, rows_at=now)
            return LocationChange(reference=reference, before=before, after=after, is_dry_run=dry_run)

        return transact(self._engine, act, actor=actor, dry_run=dry_run)


def require_data_dir(connection: sa.Connection, data_dir: DataDirectory, *, actor: str) -> None:
    """Record the data directory of the first publication; ``connection`` must hold the lock of the log.

    Raises:
        OtherDataDirectoryError: the catalog records another one.
    """
    present = find_data_dir(connection)
    if present is None:
        _record_data_dir(connection, None, data_dir, actor=actor)
    elif present.recorded != data_dir.recorded:
        raise OtherDataDirectoryError(
            f"the data directory of the catalog is {present.recorded}, not {data_dir.recorded}",
            hint="Another publisher has just recorded it. Nothing was published; run the same command again.",
            details={"data_dir": present.place, "named": data_dir.place},
        )


def find_data_dir(connection: sa.Connection) -> DataDirectory | None:
    """The data directory that the log records last."""
    # Without the times of events, which need tables that a catalog of an earlier release lacks.
    query = sa.select(event.c.details_json).where(event.c.dataset == "", event.c.action == DATA_DIR)
    told = connection.execute(query.order_by(event.c.id.desc()).limit(1)).scalar()
    if told is None:
        return None
    with stored_values():
        details = json.loads(told)
        return DataDirectory(recorded=details["after"], place=details["place"])


def _record_data_dir(
    connection: sa.Connection, before: DataDirectory | None, after: DataDirectory, *, actor: str
) -> None:
    details = {
        "before": None if before is None else before.recorded,
        "after": check_location(after.recorded),
        "place": check_location(after.place),
    }
    append_event(connection, DATA_DIR, "", details, actor=actor)


def told_steps(action: str, details: Mapping[str, Any]) -> tuple[LocationStep, ...]:
    """The steps that an event records."""
    if action != RELOCATE:
        return (LocationStep("add" if action == MIRROR_ADD else "remove", details["location"]),)
    kind = "first" if details["is_first"] else "add"
    return (LocationStep(kind, details["after"]), LocationStep("remove", details["before"]))  # type: ignore[arg-type]


def find_at_location(connection: sa.Connection, location: str) -> tuple[Reference, ...]:
    """See ``CatalogBackend.published_at``."""
    moved_there = sa.select(version_location.c.version_id).where(version_location.c.location == location)
    query = _locations_query().where(
        sa.or_(dataset_version.c.location == location, dataset_version.c.id.in_(moved_there))
    )
    return tuple(reference for reference, found in _read_locations(connection, query) if location in found)


def _locations_query() -> sa.Select[Any]:
    return sa.select(
        *NAMES,
        *NUMBER,
        dataset_version.c.location,
        location_steps().label("location_steps"),
    ).select_from(published_versions())


def _read_locations(connection: sa.Connection, query: sa.Select[Any]) -> list[tuple[Reference, tuple[str, ...]]]:
    with stored_values():
        return [
            (read_reference(row), current_locations(row.location, read_steps(row.location_steps)))
            for row in connection.execute(query)
        ]
