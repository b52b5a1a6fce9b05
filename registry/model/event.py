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
        actor, action: who did what, one of ``ACTIONS`` unless a newer registry wrote it. The actor is a claim.
        recorded_by: ``user@host`` as the operating system knew them; None in events of older registries.
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
    recorded_by: str | None = None
    previous_hash: str = ""
    hash: str = ""

    @property
    def described_actor(self) -> str:
        """The actor; where the operating system knew another user, who claimed to be it.

        >>> from datetime import UTC, datetime
        >>> told = {"id": 1, "at": datetime.now(UTC), "action": "promote", "dataset": "mnist", "version": "1.0.0"}
        >>> Event(actor="alice@corp", recorded_by="root@host", **told).described_actor
        'alice@corp (claimed by root@host)'
        >>> Event(actor="root", recorded_by="root@host", **told).described_actor
        'root'
        """
        user, _, _ = (self.recorded_by or "").rpartition("@")
        if self.recorded_by is None or self.actor in (user, self.recorded_by):
            return self.actor
        return f"{self.actor} (claimed by {self.recorded_by})"
