"""``Event``, an entry of the event log."""

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
    "describe",
    "remove",
    "rename",
    "default-config",
    "alias-set",
    "alias-remove",
    "experiment-add",
    "experiment-set-default",
    "experiment-retire",
    "fingerprint",
    "attach",
    "protect",
    "unprotect",
    "propose",
    "reject",
    "remove-secrets",
    "mirror-add",
    "mirror-remove",
    "relocate",
    "data-dir",
    "imported",
    "producer",
    "correct-clock",
)
"""Every action that this release writes. A log may contain others from a newer release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One entry of the event log. Entries never change; each is sealed with the hash of the previous one.

    Attributes:
        id: 1, 2, 3 ... without gaps.
        at: the time in UTC, which is never before that of an earlier event.
        rows_at: the time in the rows that were written with it; None in events of older releases, and for actions whose
            rows have no time.
        stamped_at: the original, sealed time, if ``registry log correct-clock`` corrected ``at``; otherwise None.
        actor: who did it. Unless it ``is_verified``, the name is a claim, because anybody can set ``$REGISTRY_ACTOR``.
        action: one of ``ACTIONS``, unless a newer release wrote it.
        recorded_by: ``user@host`` from the operating system, or ``token <id>`` if a service authenticated the actor;
            None in events of older releases.
        session_user: the user of the PostgreSQL session that wrote it, as reported by the database; None on SQLite, in
            events of older releases, and in a site.
        is_verified: whether a service authenticated the actor.
        dataset, version: ``name`` or ``name/config``, and ``x.y.z``; ``""`` if the action concerns neither.
        details: other values of the action, JSON-able.
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
    session_user: str | None = None
    is_verified: bool = False
    rows_at: datetime | None = None
    stamped_at: datetime | None = None
    previous_hash: str = ""
    hash: str = ""

    @property
    def described_actor(self) -> str:
        """The actor with its token, or marked as unverified with the users that the system and the database report.

        >>> from datetime import UTC, datetime
        >>> told = {"id": 1, "at": datetime.now(UTC), "action": "promote", "dataset": "mnist", "version": "1.0.0"}
        >>> Event(actor="alice@corp", recorded_by="root@host", **told).described_actor
        'alice@corp (unverified, claimed by root@host)'
        >>> Event(actor="root", recorded_by="root@host", session_user="curators", **told).described_actor
        'root (unverified, as curators)'
        >>> Event(actor="ann", recorded_by="token 3f9a5c0d71be", is_verified=True, **told).described_actor
        'ann (token 3f9a5c0d71be)'
        """
        if self.recorded_by is None:  # by an older release, or hidden in a site
            return self.actor
        if self.is_verified:
            return f"{self.actor} ({self.recorded_by})"
        is_same = self.actor in (self.recorded_by.rpartition("@")[0], self.recorded_by)
        claimed = "" if is_same else f", claimed by {self.recorded_by}"
        user = "" if self.session_user is None else f"{',' if is_same else ''} as {self.session_user}"
        return f"{self.actor} (unverified{claimed}{user})"
