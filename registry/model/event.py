"""What does the event log hold? One event: who did what to which version, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

ACTIONS: Final = (
    "publish",
    "promote",
    "deprecate",
    "undo-deprecate",
    "yank",
    "undo-yank",
    "drop",
    "undo-drop",
    "default-config",
    "alias-set",
    "alias-remove",
    "experiment-add",
    "experiment-set-default",
    "experiment-retire",
    "fingerprint",
    "protect",
    "unprotect",
    "remove-secrets",
)
"""Every action that this registry writes; a log may hold others, of a newer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One entry of the event log. Entries are never changed; each is sealed with the hash of the one before it.

    Attributes:
        id: 1, 2, 3 ... without gaps.
        at: when, in UTC; later than every event before it.
        actor, action: who did what, one of ``ACTIONS`` unless a newer registry wrote it.
        dataset, version: to what: ``name`` or ``name/config``, and ``x.y.z``; empty where the action concerns neither.
        details: what else belongs to the action, JSON-able.
        previous_hash, hash: 64 hex digits each.
    """

    id: int
    at: datetime
    actor: str
    action: str
    dataset: str
    version: str
    details: Mapping[str, Any] = field(default_factory=dict)
    previous_hash: str = ""
    hash: str = ""
