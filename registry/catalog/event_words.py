"""Describes events of the log in words, for the command line and the pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from registry.model import DESCRIBED_FIELDS, Event, Producer
from registry.splits import counted

_WIDTH: Final = 120


def summarize(event: Event) -> str:
    """The details of an event in a few words; details of an unknown action are printed as they are.

    >>> from datetime import UTC, datetime
    >>> details = {"before": "1.0.0", "after": "1.1.0"}
    >>> event = Event(
    ...     id=7, at=datetime.now(UTC), actor="a", action="promote", dataset="mnist", version="1.1.0", details=details
    ... )
    >>> summarize(event)
    '1.0.0 -> 1.1.0'
    """
    try:
        text = _words(event)
    except (KeyError, TypeError, ValueError):  # written by a newer registry
        text = None
    if text is None:
        text = json.dumps(dict(event.details), sort_keys=True) if event.details else ""
    if event.stamped_at is not None:
        text = f"{text} (stamped {event.stamped_at:%Y-%m-%d %H:%M:%S})"
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"


def _words(event: Event) -> str | None:
    action, details = event.action, event.details
    before, after = details.get("before"), details.get("after")
    match action:
        case "publish":
            canonical = ", canonical" if details["promote"] else ""
            origin = f", from {details['imported_from']['catalog']}" if "imported_from" in details else ""
            size = counted(details["num_examples"], "example")
            return f"{size}, sha256:{details['content_digest'][:12]}{canonical}{origin}"
        case "imported":
            told = details["event"]
            return f"{told['action']} by {told['actor']} at {told['at'][:19]}Z in {details['catalog']}"
        case "promote" | "relocate" | "rename":
            return ", ".join((f"{or_none(before)} -> {after}", *_rule_words(details)))
        case "default-config" | "alias-set" | "alias-remove":
            name = f"{details['alias']}: " if action.startswith("alias") else ""
            message = f" ({details['message']})" if details.get("message") else ""
            return f"{name}{or_none(before)} -> {or_none(after)}{message}"
        case "protect" | "unprotect" | "propose" | "reject":
            return ", ".join(("the whole catalog",) * (not event.dataset) + _rule_words(details))
        case "remove-secrets":
            return f"secrets in URLs: {', '.join(details['columns'])}"
        case "describe":
            both = {name: (value, details["before"][name]) for name, value in details["after"].items()}
            names = {field: name for name, field in DESCRIBED_FIELDS.items()}
            return "; ".join(
                f"{names[field]} {new!r:.60}, was {old!r:.60}" for field, (new, old) in both.items() if field in names
            )
        case "mirror-add" | "mirror-remove" | "producer":
            return str(details["location"] if "location" in details else Producer.from_json(details))
        case "correct-clock":
            first, count = details["first"], len(details["times"])
            return f"event {first}" if count == 1 else f"events {first}..{first + count - 1}"
        case "data-dir":
            return f"{before} -> {details['place']}" if before else str(details["place"])
        case "fingerprint" | "attach":
            return ", ".join(details) if action == "fingerprint" else f"{details['kind']}: {details['name']}"
        case "experiment-add" | "experiment-set-default":
            return f"{details['name']}, {'on' if details['default'] else 'off'} by default"
        case "experiment-retire":
            return f"{details['name']}, on for good"
        case _:
            if not isinstance(before, Mapping) or not isinstance(after, Mapping):
                return None
            message = f": {after['message']}" if after["message"] else ""
            step = f" ({details['step']}, due at {details['due'][:19]}Z)" if action == "remove" else ""
            successor = f" (superseded by {after['superseded_by']})" if after.get("superseded_by") else ""
            return f"{before['state']} -> {after['state']}{step}{message}{successor}"


def _rule_words(details: Mapping[str, Any]) -> tuple[str, ...]:
    """Words about the rule of two persons in an event."""
    rule = "two persons" if details.get("two_persons") else ""
    proposal = f"proposed by {details['proposed_by']}" if "proposal" in details else ""
    return tuple(filter(None, (str(details.get("action", "")), rule, proposal, details.get("message"))))


def or_none(value: object) -> str:
    """``value`` as text; ``none`` for None."""
    return "none" if value is None else str(value)
