"""The rule of two persons: changes of protected names that wait until another person approves them.

    promote, unprotect  ->  event ``propose``  ->  another person approves: the change, with its own event
                                               ->  somebody rejects it: event ``reject``
                                               ->  14 days pass

The event log has all of it, so there is no other store of proposals. An approval is for what the proposer saw: if the
canonical version, the state of the version or the protection has changed since, it is refused.

A person is the name of a token, or the user of a PostgreSQL session. The name that a process claims proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from registry.catalog.clock import read_clock
from registry.catalog.events import append_event, lock_log, read_events, recorder, session_user
from registry.catalog.names import told_as
from registry.catalog.rows import check_text
from registry.catalog.values import stored_values
from registry.errors import CatalogPermissionError, ConflictError
from registry.model import Event, Version

if TYPE_CHECKING:
    from registry.catalog.outcomes import Proposal

PROPOSE: Final = "propose"
REJECT: Final = "reject"
PROMOTE: Final = "promote"
UNPROTECT: Final = "unprotect"

LIFETIME: Final = timedelta(days=14)
"""How long a proposal waits."""


def load_proposals(connection: sa.Connection, dataset: str | None = None) -> tuple[Proposal, ...]:
    """The proposals that wait, oldest first: all of them, or those of ``name[/config]``."""
    datasets = None if dataset is None else told_as(connection, dataset)
    return tuple(map(_read, _waiting(connection, datasets).values()))


def await_approval(
    connection: sa.Connection,
    action: str,
    dataset: str,
    version: Version | None,
    seen: Mapping[str, Any],
    *,
    approved: Proposal | None,
    actor: str,
    dry_run: bool,
) -> Proposal | None:
    """Propose a change, or check the approval of one; None if the change may be made now.

    The caller has locked the log, unless it is a dry run, and knows that the change needs two persons, or that it is
    ``approved``. ``seen`` are the facts that must be the same when it is made. A proposal that waits is not repeated.

    Raises:
        CatalogPermissionError: nothing proves who proposes or approves, or it is the same person.
        ConflictError: the approved proposal does not wait any more, or ``seen`` has changed.
    """
    person = _present_person(connection, actor)
    datasets = told_as(connection, dataset)
    if approved is not None:
        _require_approval(_require_waiting(connection, approved), seen, person, actor)
        return None
    told = {"action": action, "seen": dict(seen)}
    about = dataset if version is None else f"{dataset}:{version}"

    def find() -> Proposal | None:
        events = _waiting(connection, datasets).values()
        same = (it for it in events if (_about(it), dict(it.details)) == (about, told))
        return next(map(_read, same), None)

    proposal = find()
    if proposal is None and not dry_run:
        append_event(connection, PROPOSE, dataset, told, actor=actor, version=version)
        proposal = find()
    if proposal is None:
        now = read_clock(connection)
        proposal = _proposal(None, action, dataset, version, seen, proposed_by=actor, proposed_at=now)
    return proposal


def reject(connection: sa.Connection, proposal: Proposal, message: str, *, actor: str, dry_run: bool) -> None:
    """End a proposal without its effect."""
    check_text(message, "reason")
    lock_log(connection)
    _require_waiting(connection, proposal)
    if not dry_run:
        details = {**approval_details(proposal), "message": message}
        append_event(connection, REJECT, proposal.dataset, details, actor=actor, version=proposal.version)


def approval_details(proposal: Proposal | None) -> dict[str, Any]:
    """How the event of a change names the proposal that led to it."""
    return {} if proposal is None else {"proposal": proposal.id, "proposed_by": proposal.proposed_by}


def person_of(event: Event) -> tuple[str, str] | None:
    """What proves who wrote an event, and the name that it proves; None if nothing does."""
    if event.is_verified:
        return "token", event.actor.casefold()
    return None if event.session_user is None else ("database user", event.session_user)


def is_approved(proposal: Event, change: Event) -> bool:
    """Whether the change is the one of the proposal, in time, and by another person."""
    is_same = (proposal.details["action"], _about(proposal)) == (change.action, _about(change))
    proposer, approver = person_of(proposal), person_of(change)
    is_other = proposer is not None and approver is not None and proposer[0] == approver[0] and proposer != approver
    return is_same and is_other and change.at <= proposal.at + LIFETIME


def end_proposals(waiting: dict[int, Event], event: Event) -> None:
    """Follow ``event`` of the log: it is a proposal, or it ends some of those that wait.

    A proposal replaces an earlier one of the same change. A change ends every proposal of its kind, because these were
    made for another state.
    """
    is_proposal = event.action == PROPOSE
    ended = [
        number
        for number, proposal in waiting.items()
        if (
            event.details.get("proposal") == number
            or (proposal.details["action"], proposal.dataset) == (event.action, event.dataset)
            or (
                is_proposal
                and (proposal.details["action"], _about(proposal)) == (event.details["action"], _about(event))
            )
        )
    ]
    for number in ended:
        del waiting[number]
    if is_proposal:
        waiting[event.id] = event


def _waiting(connection: sa.Connection, datasets: Collection[str] | None) -> dict[int, Event]:
    """The events of the proposals that are neither decided nor expired."""
    result: dict[int, Event] = {}
    with stored_values():
        actions = (PROPOSE, REJECT, PROMOTE, UNPROTECT)
        for event in read_events(connection, datasets=datasets, actions=actions):
            end_proposals(result, event)
    now = read_clock(connection)
    return {number: event for number, event in result.items() if now < event.at + LIFETIME}


def _require_waiting(connection: sa.Connection, proposal: Proposal) -> Event:
    event = _waiting(connection, told_as(connection, proposal.dataset)).get(proposal.id or 0)
    if event is None or _read(event) != proposal:
        raise ConflictError(
            f"proposal {proposal.id} does not wait for approval: it was decided or replaced, or has expired",
            hint="To list the pending proposals: registry proposal list",
            details={"proposal": proposal.id},
        )
    return event


def _require_approval(event: Event, seen: Mapping[str, Any], person: tuple[str, str], actor: str) -> None:
    details = {"proposal": event.id}
    if event.details["seen"] != seen:
        raise ConflictError(
            f"what proposal {event.id} is about has changed since {event.actor} made it",
            hint=f"Nothing was changed. Reject it (registry proposal reject {event.id}), and propose the change again.",
            details=details,
        )
    proposer = person_of(event)
    if proposer is None or proposer[0] != person[0]:
        raise CatalogPermissionError(
            f"nothing proves that {actor} is another person than {event.actor}, who made proposal {event.id}",
            hint="Approve it as it was proposed: both through the service, or both with users of the database.",
            details=details,
        )
    if proposer == person:
        raise CatalogPermissionError(
            f"{actor} cannot approve proposal {event.id}, because {event.actor} made it: it needs another person",
            hint=f"To withdraw it: registry proposal reject {event.id}",
            details=details,
        )


def _present_person(connection: sa.Connection, actor: str) -> tuple[str, str]:
    if recorder.get() is not None:
        return "token", actor.casefold()
    user = session_user(connection)
    if user is None:
        raise CatalogPermissionError(
            "this change needs two persons, and an SQLite file does not prove who opens it",
            hint="Propose and approve it through the service of the catalog: docs/service.md",
        )
    return "database user", user


def _read(event: Event) -> Proposal:
    version = Version.parse(event.version) if event.version else None
    action, seen = event.details["action"], event.details["seen"]
    return _proposal(event.id, action, event.dataset, version, seen, proposed_by=event.actor, proposed_at=event.at)


def _proposal(number: int | None, action: str, dataset: str, version: Version | None, seen: Any, **by: Any) -> Proposal:
    from registry.catalog.outcomes import Proposal

    before = seen.get("canonical")
    return Proposal(
        id=number,
        action=action,
        dataset=dataset,
        version=version,
        before=None if before is None else Version.parse(before),
        expires_at=by["proposed_at"] + LIFETIME,
        **by,
    )


def _about(event: Event) -> str:
    return f"{event.dataset}:{event.version}" if event.version else event.dataset
