"""The page of the event log: who did what, newest first, each event sealed with the hash of the one before."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from registry.catalog.event_words import summarize
from registry.envelope import fields_of
from registry.errors import NotFoundError, RegistryError, UsageError, suggest
from registry.model import ACTIONS, Event, Reference, VersionState
from registry.pages.page import DATASETS, Page, Visit, version_path
from registry.pages.rendering import status_of

_PAGE: Final = 50
_MOST_IN_SITE: Final = 500
_MOST_VERIFIED: Final = 20_000
_MOST_DETAILS: Final = 30
_PRIVATE: Final = frozenset({"data-dir", "mirror-add", "mirror-remove", "relocate", "imported", "producer"})
"""Events about places and people of the owner. Those who may not see places only see that they happened."""


def log(visit: Visit) -> Page:
    """The newest events, those before another one, or a page of 50 that never changes: ``log/from-51``."""
    newest = next(iter(visit.catalog.log(limit=1)), None)
    head = 0 if newest is None else newest.id
    conditions = {name: visit.query.get(name, "").strip() for name in ("dataset", "action")} if visit.is_live else {}
    problem, status, first = "", 200, _first(visit, head)
    before = None if first is None else first + _PAGE
    try:
        if visit.is_live and first is None and (after := visit.query.get("after")) is not None:
            if not re.fullmatch("[0-9]{1,18}", after):
                raise UsageError(f"after is not the number of an event: {after!r:.40}")
            before = min(int(after), 2**31)
        if conditions.get("action", "") not in ("", *ACTIONS):
            raise UsageError(
                f"unknown action {conditions['action']!r:.60}", hint=suggest(conditions["action"], ACTIONS)
            )
        events = _events(visit, before, **conditions)
    except RegistryError as error:
        events, problem, status = [], ". ".join(filter(None, (error.message, error.hint))), status_of(error)
    readable = {} if visit.is_live else _readable(visit, events)
    lowest = events[-1].id if events else 1
    is_filtered = any(conditions.values())
    ended = lowest == 1 if not is_filtered else len(events) < _PAGE
    is_cut = not visit.is_live and head - lowest >= _MOST_IN_SITE
    values = {
        "events": [_event(visit, event, readable) for event in events],
        "head": {"id": head, "hash": "" if newest is None else newest.hash},
        "older": None if ended or is_cut or is_filtered else (lowest - 2) // _PAGE * _PAGE + 1,
        "after": lowest if is_filtered and not ended else None,
        "is_cut": is_cut and not ended,
        "is_newest": before is None,
        "conditions": {"dataset": "", "action": "", **conditions},
        "actions": ACTIONS,
        "problem": problem,
        "report": _report(visit) if visit.is_live and visit.query.get("verify") == "1" else None,
    }
    return Page(name="log", title="Log", values=values, status=status)


def _first(visit: Visit, head: int) -> int | None:
    """The first event of the page that the address names, ``log/from-51``; None for the newest events."""
    rest = visit.path[1:]
    if not rest:
        return None
    number = rest[0].removeprefix("from-")
    is_number = rest[0].startswith("from-") and number.isascii() and number.isdecimal() and len(number) < 12
    if len(rest) > 1 or not is_number or not 1 <= int(number) <= head or int(number) % _PAGE != 1:
        raise NotFoundError(f"there is no page {'/'.join(visit.path)!r:.200}", hint="Begin at the newest events.")
    return int(number)


def _events(visit: Visit, before: int | None, *, dataset: str = "", action: str = "") -> list[Event]:
    actions = [action] if action else None
    return list(visit.catalog.log(dataset=dataset or None, actions=actions, before=before, limit=_PAGE))[::-1]


def _event(visit: Visit, event: Event, readable: Mapping[str, Reference]) -> dict[str, Any]:
    """An event as plain values, for others without who recorded it. The snapshot of a site hides actors."""
    is_private = not visit.shows_places and event.action in _PRIVATE
    public = event if visit.shows_places else replace(event, details=_public(event.details))
    details = event.details if visit.shows_places else {}
    return {
        **fields_of(event, "id", "at", "action", "dataset", "version", "hash", "previous_hash", "stamped_at"),
        "actor": event.described_actor if visit.shows_places else public_actor(event),
        "path": _path(visit, event, readable),
        "summary": "" if is_private else summarize(public),
        "details": [
            (name, json.dumps(details[name], ensure_ascii=False)[:500]) for name in list(details)[:_MOST_DETAILS]
        ],
    }


def public_actor(event: Event) -> str:
    """The actor, without what the machine and the database report."""
    return event.actor if event.is_verified or event.recorded_by is None else f"{event.actor} (unverified)"


def _public(details: Any) -> dict[str, Any]:
    return {name: value for name, value in details.items() if name not in ("imported_from", "location", "producer")}


def _readable(visit: Visit, events: Iterable[Event]) -> dict[str, Reference]:
    """The versions of the events that have a page in a site, by each name that their dataset had."""
    names = {f"{event.dataset}:{event.version}" for event in events}
    return {
        name: size.reference
        for size in visit.catalog.backend.sizes()
        for dataset in ({size.name, *size.names} if size.state is not VersionState.DROPPED else ())
        if (name := f"{dataset}{'' if size.config is None else f'/{size.config}'}:{size.version}") in names
    }


def _path(visit: Visit, event: Event, readable: Mapping[str, Reference]) -> tuple[str, ...] | None:
    """The address of the version of an event, or of its dataset; in a site, only if it has a page."""
    name = f"{event.dataset}:{event.version}" if event.version else event.dataset
    if not visit.is_live:
        return version_path(readable[name]) if name in readable else None
    with suppress(RegistryError):
        reference = Reference.parse(name)
        return version_path(reference) if event.version else (DATASETS, *event.dataset.split("/"))
    return None


def _report(visit: Visit) -> dict[str, Any]:
    """The verified chain, or that it is too long to verify while a visitor waits."""
    rows = visit.catalog.backend.log.num_rows()
    if rows > _MOST_VERIFIED:
        return {"is_verified": False, "num_rows": rows}
    report = visit.catalog.verify_log()
    numbers = fields_of(report, "is_sound", "num_events", "num_versions", "num_shards", "head", "num_faults")
    return {"is_verified": True, "num_rows": rows, **numbers, "faults": [str(fault) for fault in report.faults[:20]]}
