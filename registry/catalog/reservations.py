"""Reservations in SQL: one row decides who may upload the files of a version to an object store.

A local folder gets its final name in one step, and the second publisher is refused. An object store has no such step:
objects appear one after the other, so a row with a unique location says whose they are, before the first upload.

    reserve  ->  join      others with the same content: they put the same bytes, whoever is first
             ->  take over the content of publishers who died is removed first (``is_cleaning``)
             ->  refused   others with other content live, or may live
    publish  ->  the row of the version comes, and the reservation goes, in one transaction
    leave    ->  the row stays for the run that finishes the work; or it goes, where no file was left
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from registry.catalog.clock import read_clock
from registry.catalog.events import check_clock
from registry.catalog.names import told_as
from registry.catalog.outcomes import IDENTITY_DIGITS, Holder, Reservation, other_content
from registry.catalog.queries import find_digest, find_version_id
from registry.catalog.removals import refuse_removed
from registry.catalog.rows import canonical_json, check_digest, check_text
from registry.catalog.session import SqlGroup, reading, transact, write
from registry.catalog.tables import event, reservation
from registry.catalog.values import stored_values
from registry.errors import ConflictError, NotFoundError, ReservationLostError, ReservedError, spell

if TYPE_CHECKING:
    from registry.model import Reference

T = TypeVar("T")


class SqlReservations(SqlGroup):
    """``ReservationCalls`` in SQL."""

    def reserve(
        self, location: str, exactly: Reference, content_digest: str, holder: Holder
    ) -> tuple[Reservation, Reservation | None]:
        check_digest(content_digest, "digest of the content")

        def action(connection: sa.Connection) -> tuple[Reservation, Reservation | None]:
            now = check_clock(connection)  # here, before files are uploaded for hours
            joining = _stamped(holder, now)
            before = _load(connection, location)
            if before is None:
                after = Reservation(
                    location=check_text(location, "location"),
                    dataset=exactly.dataset,
                    version=str(exactly.request),
                    content_digest=content_digest,
                    token=_new_token(connection),
                    is_cleaning=False,
                    holders=(joining,),
                    found=None,
                    reserved_at=joining.since,
                )
                connection.execute(sa.insert(reservation).values(location=location, **_values(after)))
                has_content(connection, exactly, content_digest)
                return after, None
            # After the lock: a rival whose row was just committed has deleted its reservation in the same transaction.
            has_content(connection, exactly, content_digest)
            # Without this holder: it asks again if the answer to its first call was lost.
            living = tuple(other for other in before.living if other.name != holder.name)
            is_same = before.content_digest == content_digest
            if living and not (is_same and not before.is_cleaning):
                raise reserved_error(before, living)
            after = replace(
                before,
                content_digest=content_digest,
                is_cleaning=before.is_cleaning or not is_same,
                holders=(*living, joining),
            )
            _store(connection, after)
            return after, before

        return write(self._engine, action)

    def note_found(
        self, held: Reservation, holder: Holder, names: Collection[str], *, anew: bool = False
    ) -> Reservation:
        def change(present: Reservation) -> Reservation:
            is_noted = present.found is not None and not anew
            return present if is_noted else replace(present, found=tuple(sorted(names)))

        return _change(self._engine, held, holder, change)

    def take_over(self, held: Reservation, holder: Holder, *, older_than: timedelta) -> Reservation | None:
        def action(connection: sa.Connection) -> Reservation | None:
            now = read_clock(connection)
            before = (now - older_than).replace(microsecond=0)  # holders know when they started to the second
            present = _load(connection, held.location)
            if present is None or present.token != held.token:
                return None
            if any(publisher.owner.is_of_this_machine() or publisher.since >= before for publisher in present.living):
                return None
            after = replace(present, is_cleaning=True, holders=(_stamped(holder, now),))
            _store(connection, after)
            return after

        return write(self._engine, action)

    def begin_cleaning(self, held: Reservation, holder: Holder) -> Reservation | None:
        def change(present: Reservation) -> Reservation:
            mine = tuple(other for other in present.holders if other.name == holder.name)
            is_alone = all(other.name == holder.name for other in present.living)
            return replace(present, is_cleaning=True, holders=mine) if is_alone else present

        result = _change(self._engine, held, holder, change)
        return result if result.is_cleaning else None

    def end_cleaning(self, held: Reservation, holder: Holder) -> Reservation:
        return _change(self._engine, held, holder, lambda present: replace(present, is_cleaning=False))

    def require(self, held: Reservation, holder: Holder) -> None:
        with reading(self._engine) as connection:
            _require(connection, held, holder)

    def leave(self, held: Reservation, holder: Holder, *, forget: bool) -> None:
        def action(connection: sa.Connection) -> None:
            present = _load(connection, held.location)
            if present is None or present.token != held.token:
                return
            others = tuple(other for other in present.holders if other.name != holder.name)
            if forget and not others:
                connection.execute(sa.delete(reservation).where(reservation.c.location == held.location))
            else:
                _store(connection, replace(present, holders=others))

        write(self._engine, action)

    def list(self, dataset: str | None = None) -> tuple[Reservation, ...]:
        query = sa.select(reservation).order_by(reservation.c.dataset, reservation.c.version, reservation.c.location)
        if dataset is not None:
            with reading(self._engine) as connection:
                query = query.where(reservation.c.dataset.in_(told_as(connection, dataset)))
        with reading(self._engine) as connection, stored_values():
            return tuple(map(_read, connection.execute(query).all()))

    def release(
        self, dataset: str, version: str, *, force: bool = False, dry_run: bool = False
    ) -> tuple[Reservation, ...]:
        def action(connection: sa.Connection) -> tuple[Reservation, ...]:
            is_meant = reservation.c.dataset.in_(told_as(connection, dataset)), reservation.c.version == version
            query = sa.select(reservation).where(*is_meant)
            query = query.order_by(reservation.c.location).with_for_update()
            with stored_values():
                result = tuple(map(_read, connection.execute(query).all()))
            if not result:
                raise NotFoundError(
                    f"{dataset}:{version} has no reservation",
                    hint="To list reservations: registry reservation list",
                    details={"name": f"{dataset}:{version}"},
                )
            alive = [holder for place in result for holder in place.living if holder.owner.is_of_this_machine()]
            if alive and not force:
                raise ConflictError(
                    f"the reservation of {dataset}:{version} is in use: by {', '.join(map(str, alive))}",
                    hint=f"Wait until that process has ended, or end it. If it hangs, add {spell('force', True)}.",
                    details={"holders": [holder.as_json() for holder in alive]},
                )
            if not dry_run:
                now = read_clock(connection)
                for place in result:
                    # A stamp of a wrong clock would keep the files for ever: from now on, `registry gc` counts anew.
                    _store(connection, replace(place, holders=(), reserved_at=now.replace(microsecond=0)))
            return result

        return transact(self._engine, action, dry_run=dry_run)


def use_up(connection: sa.Connection, held: Reservation, holder: Holder) -> None:
    """Delete a reservation in the transaction that publishes its version.

    Raises:
        ReservationLostError: ``holder`` no longer holds it.
    """
    present = _require(connection, held, holder)
    if present.is_cleaning or present.content_digest != held.content_digest:
        raise _lost(held, present)
    connection.execute(sa.delete(reservation).where(reservation.c.location == held.location))


def require_free(connection: sa.Connection, location: str, content_digest: str) -> None:
    """Refuse to publish the files at ``location`` while other content is uploaded there, or files are removed.

    Raises:
        ReservedError
    """
    present = _load(connection, location)
    if present is not None and (present.is_cleaning or present.content_digest != content_digest):
        raise reserved_error(present, present.living)
    if present is not None and not present.living:  # a dead publisher of the same content has uploaded all files then
        connection.execute(sa.delete(reservation).where(reservation.c.location == location))


def refuse_publishers(connection: sa.Connection, reference: Reference) -> None:
    """Refuse to remove the files of a version, or to rename a dataset, while publishers send files of it.

    Raises:
        ReservedError
    """
    for present in map(_read, connection.execute(sa.select(reservation)).all()):
        is_meant = reference.dataset in (present.dataset, present.dataset.partition("/")[0])
        if is_meant and present.living and (reference.exact is None or present.version == str(reference.exact)):
            raise reserved_error(present, present.living, "{} is being published by {}")


def reserved_error(held: Reservation, holders: Iterable[Holder], doing: str = "") -> ReservedError:
    """The error for a location that other publishers hold."""
    who = ", ".join(map(str, holders)) or "a publisher that has ended"
    doing = doing or (
        "the place of {} is being cleared by {}"
        if held.is_cleaning
        else "{} is being published with other content by {}"
    )
    return ReservedError(
        f"{doing.format(held.reference, who)}: {held.location}",
        hint="Wait until that has ended, then try again. If that process died on another machine, release what it "
        f"holds with: registry reservation release {held.reference}",
        details={
            "location": held.location,
            "reference": held.reference,
            "holders": [holder.as_json() for holder in holders],
        },
    )


def _stamped(holder: Holder, now: datetime) -> Holder:
    """``holder`` with the time at which it began, by the clock that counts for the catalog."""
    return replace(holder, since=now.replace(microsecond=0))


def _change(
    engine: sa.Engine, held: Reservation, holder: Holder, change: Callable[[Reservation], Reservation]
) -> Reservation:
    def action(connection: sa.Connection) -> Reservation:
        present = _require(connection, held, holder)
        after = change(present)
        if after != present:
            _store(connection, after)
        return after

    return write(engine, action)


def _require(connection: sa.Connection, held: Reservation, holder: Holder) -> Reservation:
    """Read the reservation.

    Raises:
        ReservationLostError: ``holder`` no longer holds it.
    """
    present = _load(connection, held.location)
    if present is None or present.token != held.token or all(other.name != holder.name for other in present.holders):
        raise _lost(held, present)
    return present


def _lost(held: Reservation, present: Reservation | None) -> ReservationLostError:
    now = "" if present is None or not present.holders else f"; now {present.holders[-1]} holds it"
    return ReservationLostError(
        f"the reservation of {held.reference} was taken away while its files were uploaded{now}",
        hint="Publish again: the next run continues where this one stopped.",
        details={"location": held.location, "reference": held.reference},
    )


def _new_token(connection: sa.Connection) -> str:
    """A random text, with the identity of the catalog: ``is_of_catalog`` tells whose objects have it."""
    first = connection.execute(sa.select(event.c.hash).order_by(event.c.id).limit(1)).scalar()
    return uuid.uuid4().hex if first is None else f"{uuid.uuid4().hex}.{first[:IDENTITY_DIGITS]}"


def _load(connection: sa.Connection, location: str) -> Reservation | None:
    query = (
        sa.select(reservation).where(reservation.c.location == location).with_for_update()
    )  # SQLAlchemy leaves it out for SQLite
    with stored_values():
        row = connection.execute(query).first()
        return None if row is None else _read(row)


def _store(connection: sa.Connection, changed: Reservation) -> None:
    chosen = sa.update(reservation).where(reservation.c.location == changed.location)
    connection.execute(chosen.values(**_values(changed)))


def _values(place: Reservation) -> dict[str, Any]:
    return {
        "dataset": place.dataset,
        "version": place.version,
        "content_digest": place.content_digest,
        "token": place.token,
        "is_cleaning": place.is_cleaning,
        "owners_json": canonical_json([_holder_values(holder) for holder in place.holders]),
        "found_json": None if place.found is None else canonical_json(list(place.found)),
        "reserved_at": place.reserved_at,
    }


def _holder_values(holder: Holder) -> dict[str, Any]:
    return {
        "name": holder.name,
        "actor": check_text(holder.actor, "actor"),
        "since": holder.since.isoformat(),
        "owner": asdict(holder.owner),
    }


def _read(row: sa.Row[Any]) -> Reservation:
    with stored_values():
        result = None if row.found_json is None else tuple(map(str, json.loads(row.found_json)))
        return Reservation(
            location=row.location,
            dataset=row.dataset,
            version=row.version,
            content_digest=row.content_digest,
            token=row.token,
            is_cleaning=row.is_cleaning,
            holders=tuple(map(_read_holder, json.loads(row.owners_json))),
            found=result,
            reserved_at=row.reserved_at,
        )


def _read_holder(values: Any) -> Holder:
    from registry.storage.names import Owner  # it loads urllib, which look-ups do not need

    owner = {field.name: values["owner"][field.name] for field in fields(Owner)}
    return Holder(
        name=values["name"],
        actor=values["actor"],
        owner=Owner(**owner),
        since=datetime.fromisoformat(values["since"]),
    )


def has_content(connection: sa.Connection, exactly: Reference, content_digest: str) -> bool:
    """Whether this content is published under the number; False if the number is free.

    Raises:
        VersionExistsError: the number has other content, or was published and deleted, or its files are removed.
    """
    if exactly.exact is None:
        raise AssertionError("an exact reference has a number")
    digest = find_digest(connection, exactly.name, exactly.config, exactly.exact)
    if digest is None:
        return False
    exists = find_version_id(connection, exactly.name, exactly.config, exactly.exact) is not None
    if exists and digest == content_digest:
        refuse_removed(connection, exactly)
        return True
    raise other_content(exactly, digest, content_digest, is_deleted=not exists)
