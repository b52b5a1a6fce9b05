"""Webhooks in SQL: who gets the events of a catalog, and how far each of them is.

The event log is the outbox. An event is written in the transaction of the change that it describes, under a lock that
is held until that transaction has ended, so ids are in the order of commits and without gaps (``append_event``). A
number for each webhook says how far it is; there is no second copy of the events.

    claim  ->  one worker has the webhook for a minute, and its next events  ->  it sends them  ->  settle

A worker that is killed after it has sent an event, and before it has settled, leaves a lease that ends. Then another
worker sends the event again: each is delivered at least once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.clock import read_clock
from registry.catalog.events import read_page
from registry.catalog.names import told_as
from registry.catalog.rows import canonical_json, check_text
from registry.catalog.session import SqlGroup, reading, transact, write
from registry.catalog.tables import event, webhook
from registry.catalog.values import stored_values
from registry.catalog.web_urls import is_loopback
from registry.environment import read_variable
from registry.errors import ConflictError, UsageError, WebhookNotFoundError
from registry.model import Event, Webhook, webhook_secret

_LEASE: Final = timedelta(minutes=1)
"""How long one worker has a webhook. It begins no attempt after a third of that; one takes at most ten seconds."""

_MOST_EVENTS: Final = 100
_FIRST_PAUSE: Final = 5
_LONGEST_PAUSE: Final = 3600
_PATIENCE: Final = timedelta(days=5)
"""How long a webhook may fail before no more attempts are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A webhook that this worker has until its lease ends.

    Attributes:
        webhook: the webhook.
        lease: names the lease.
        events: its next events, oldest first.
        through: the event that it is at when it has got these.
    """

    webhook: Webhook
    lease: str
    events: tuple[Event, ...]
    through: int


class SqlWebhooks(SqlGroup):
    """``WebhookCalls`` in SQL, and what the service needs to deliver.

    Attributes:
        keys: the keys of the service, the newest first, from which secrets are derived.
    """

    def __init__(self, engine: sa.Engine) -> None:
        super().__init__(engine)
        self.keys = tuple(filter(None, map(str.strip, read_variable("REGISTRY_SERVE_WEBHOOK_KEY").split(","))))

    def create(
        self,
        webhook_id: str,
        url: str,
        *,
        datasets: Sequence[str] = ("*",),
        actions: Sequence[str] = (),
        after: int | None = None,
        actor: str,
        dry_run: bool = False,
    ) -> Webhook:
        self._require_keys()

        def action(connection: sa.Connection) -> Webhook:
            newest = _newest(connection)
            result = Webhook(
                id=webhook_id,
                url=url,
                datasets=tuple(dict.fromkeys(datasets)),
                actions=tuple(dict.fromkeys(actions)),
                created_at=read_clock(connection),
                created_by=actor,
                delivered_through=_position(after, newest),
            )
            if url.startswith("http:") and not is_loopback(url):
                raise UsageError(
                    f"a webhook needs https, not {url[:80]!r}: others could read the events, so they are not sent",
                    hint="Write https://host/path. Only http://localhost needs no encryption.",
                )
            if connection.execute(sa.select(webhook.c.id).where(webhook.c.id == webhook_id)).first() is not None:
                hint = "Create another one: its id is random."
                raise ConflictError(f"there is a webhook {webhook_id} already", hint=hint)
            if not dry_run:
                row = {
                    "id": result.id,
                    "url": check_text(url, "url"),
                    "datasets_json": canonical_json(list(result.datasets)),
                    "actions_json": canonical_json(list(result.actions)),
                    "created_at": result.created_at,
                    "created_by": actor,
                    "delivered_through": result.delivered_through,
                    "failures": 0,
                    "last_error": "",
                }
                connection.execute(sa.insert(webhook).values(**row))
            return result

        return transact(self._engine, action, actor=actor, dry_run=dry_run)

    def list(self) -> tuple[Webhook, ...]:
        query = sa.select(webhook).order_by(webhook.c.created_at, webhook.c.id)
        with reading(self._engine) as connection, stored_values():
            return tuple(map(_read, connection.execute(query).all()))

    def secret(self, webhook_id: str) -> str:
        with reading(self._engine) as connection:
            _find(connection, webhook_id)
        return self.secrets(webhook_id)[0]

    def secrets(self, webhook_id: str) -> tuple[str, ...]:
        """The secret by each key of the service, the newest first."""
        self._require_keys()
        return tuple(webhook_secret(key, webhook_id) for key in self.keys)

    def remove(self, webhook_id: str, *, actor: str, dry_run: bool = False) -> Webhook:
        def action(connection: sa.Connection) -> Webhook:
            result = _find(connection, webhook_id)
            if not dry_run:
                connection.execute(sa.delete(webhook).where(webhook.c.id == webhook_id))
            return result

        return transact(self._engine, action, actor=actor, dry_run=dry_run)

    def resume(self, webhook_id: str, *, after: int | None = None, actor: str, dry_run: bool = False) -> Webhook:
        def action(connection: sa.Connection) -> Webhook:
            before = _find(connection, webhook_id)
            position = before.delivered_through if after is None else _position(after, _newest(connection))
            if not dry_run:
                # A worker that has the webhook at the moment must not write its own position.
                values = _healthy() | {"delivered_through": position, "leased_by": None, "leased_until": None}
                change = sa.update(webhook).where(webhook.c.id == webhook_id)
                connection.execute(change.values(**values, disabled_at=None, disabled_because=None))
            return _find(connection, webhook_id)

        return transact(self._engine, action, actor=actor, dry_run=dry_run)

    def due(self) -> tuple[tuple[str, ...], int, int]:
        """The webhooks with a next event whose time has come and which nobody has.

        Also the newest event, and how many events the webhook that is furthest behind has before it.
        """
        with reading(self._engine) as connection:
            newest, now = _newest(connection), read_clock(connection)
            rows = connection.execute(sa.select(webhook.c.id).where(_is_due(now, newest)).order_by(webhook.c.id))
            first = sa.select(sa.func.min(webhook.c.delivered_through)).where(webhook.c.disabled_at.is_(None))
            position = connection.execute(first).scalar()
            return tuple(rows.scalars()), newest, 0 if position is None else max(newest - position, 0)

    def claim(self, webhook_id: str, lease: str) -> Claim | None:
        """Let the caller alone deliver the next events of a webhook, for a minute; None if it is not due any more."""

        def action(connection: sa.Connection) -> Claim | None:
            newest, now = _newest(connection), read_clock(connection)
            change = sa.update(webhook).where(webhook.c.id == webhook_id, _is_due(now, newest))
            changed = connection.execute(change.values(leased_by=lease, leased_until=now + _LEASE))
            if changed.rowcount != 1:
                return None
            found = _find(connection, webhook_id)
            page = read_page(
                connection, actions=found.actions or None, after=found.delivered_through, limit=_MOST_EVENTS
            )
            # An event that is not on the page and before its end, or before ``newest``, is not wanted.
            through = page[-1].id if len(page) == _MOST_EVENTS else max([newest, *(each.id for each in page)])
            names = {} if "*" in found.datasets else {it.dataset: told_as(connection, it.dataset) for it in page}
            events = tuple(each for each in page if found.wants(each.action, names.get(each.dataset, ())))
            return Claim(webhook=found, lease=lease, events=events, through=through)

        return write(self._engine, action)

    def settle(self, claim: Claim, through: int, error: str | None = None, *, is_final: bool = False) -> bool:
        """End a lease: the webhook has got the events up to ``through``; False if the lease was lost.

        Args:
            claim: what ``claim`` gave.
            through: the id of the newest event that it has got, or does not want.
            error: why the next one failed, or None.
            is_final: whether no more attempts shall be made.
        """
        is_mine = sa.and_(webhook.c.id == claim.webhook.id, webhook.c.leased_by == claim.lease)

        def action(connection: sa.Connection) -> bool:
            values: dict[str, Any] = {"delivered_through": through, "leased_by": None, "leased_until": None}
            if error is None:
                values |= _healthy()
            else:
                now = read_clock(connection)
                is_new = through > claim.webhook.delivered_through or claim.webhook.failing_since is None
                since = now if is_new or claim.webhook.failing_since is None else claim.webhook.failing_since
                failures = 1 if is_new else claim.webhook.failures + 1
                values |= {"failures": failures, "failing_since": since, "last_error": error}
                values |= {"next_try_at": now + _pause(failures)}
                if is_final or now - since > _PATIENCE:
                    because = error if is_final else f"it has failed since {since:%Y-%m-%d %H:%M} UTC: {error}"
                    values |= {"disabled_at": now, "disabled_because": because}
            return connection.execute(sa.update(webhook).where(is_mine).values(**values)).rowcount == 1

        return write(self._engine, action)

    def _require_keys(self) -> None:
        if not self.keys:
            raise UsageError(
                "the messages of webhooks are signed, and this service has no key for that",
                hint="Give the service its setting webhook_key, at least 16 random characters. A command that opens "
                "the database itself needs the same: REGISTRY_SERVE_WEBHOOK_KEY.",
            )


def _healthy() -> dict[str, Any]:
    return {"failures": 0, "failing_since": None, "next_try_at": None, "last_error": ""}


def _pause(failures: int) -> timedelta:
    """Longer with each failure, up to an hour; at random, so that receivers are not asked by all at once."""
    longest = min(_FIRST_PAUSE * 2 ** min(failures - 1, 20), _LONGEST_PAUSE)
    return timedelta(seconds=longest * random.uniform(0.5, 1))  # noqa: S311 (spreads attempts, guards no secret)


def _is_due(now: datetime, newest: int) -> sa.ColumnElement[bool]:
    return sa.and_(
        webhook.c.disabled_at.is_(None),
        webhook.c.delivered_through < newest,
        sa.or_(webhook.c.next_try_at.is_(None), webhook.c.next_try_at <= now),
        sa.or_(webhook.c.leased_until.is_(None), webhook.c.leased_until <= now),
    )


def _newest(connection: sa.Connection) -> int:
    return connection.execute(sa.select(sa.func.max(event.c.id))).scalar() or 0


def _position(after: int | None, newest: int) -> int:
    if after is not None and not 0 <= after <= newest:
        raise UsageError(f"expected the id of an event, 0 to {newest}, not {after}")
    return newest if after is None else after


def _find(connection: sa.Connection, webhook_id: str) -> Webhook:
    row = connection.execute(sa.select(webhook).where(webhook.c.id == webhook_id)).first()
    if row is None:
        known = connection.execute(sa.select(webhook.c.id).order_by(webhook.c.id)).scalars().all()
        raise WebhookNotFoundError.of(webhook_id[:200], list(known))
    with stored_values():
        return _read(row)


def _read(row: Any) -> Webhook:
    unread = ("datasets_json", "actions_json", "leased_by", "leased_until")
    values = {name: value for name, value in row._mapping.items() if name not in unread}
    datasets, actions = (tuple(json.loads(text)) for text in (row.datasets_json, row.actions_json))
    return Webhook(**values, datasets=datasets, actions=actions)
