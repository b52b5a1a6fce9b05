"""Access to a shared catalog in SQL: its tokens, and the newest calls that were refused.

The rows control access to the catalog's server. Clients that open the database itself need no token.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.clock import read_clock
from registry.catalog.pages import checks_limit
from registry.catalog.rows import canonical_json, check_digest, check_text
from registry.catalog.session import SqlGroup, reading, transact, write
from registry.catalog.tables import access_token, refusal
from registry.catalog.values import stored_values
from registry.errors import CatalogError, ConflictError, NotFoundError, TokenNotFoundError, UsageError
from registry.escaping import printable
from registry.model import AccessToken, RefusedCall, Role

_UNNOTED: Final = timedelta(minutes=1)
"""The minimum time between two updates of ``last_used_at`` of a token."""

_KEPT: Final = timedelta(days=7)
"""How long expired tokens of people and jobs that signed in with an ID token remain listed."""

_MAX_REFUSALS: Final = 100_000
_MAX_TEXT: Final = 500
_MAX_PAGE: Final = 1000


class SqlAccess(SqlGroup):
    """``AccessCalls`` in SQL."""

    def create_token(
        self,
        token_id: str,
        digest: str,
        name: str,
        role: Role,
        *,
        datasets: Sequence[str] = ("*",),
        expires_in: timedelta | None = None,
        actor: str,
        dry_run: bool = False,
    ) -> AccessToken:
        check_digest(digest, "digest of the token")

        def action(connection: sa.Connection) -> AccessToken:
            now = read_clock(connection)
            try:
                expires_at = None if expires_in is None else now + expires_in
            except OverflowError:
                raise UsageError("the token would never expire", hint="Leave out the duration.") from None
            if expires_at is not None and expires_at <= now:
                raise UsageError("the token would already have expired", hint="Write a positive duration, e.g. 90d.")
            token = AccessToken(
                id=token_id,
                name=name,
                role=Role(role),
                datasets=tuple(dict.fromkeys(datasets)),
                created_at=now,
                created_by=actor,
                expires_at=expires_at,
            )
            is_taken = sa.or_(access_token.c.id == token_id, access_token.c.digest == digest)
            if connection.execute(sa.select(access_token.c.id).where(is_taken)).first() is not None:
                hint = "Try again: ids are random."
                raise ConflictError(f"the token {token_id} already exists", hint=hint)
            if not dry_run:
                row = {
                    "id": token.id,
                    "digest": digest,
                    "name": check_text(name, "name"),
                    "role": token.role.value,
                    "datasets_json": canonical_json(list(token.datasets)),
                    "created_at": now,
                    "created_by": actor,
                    "expires_at": expires_at,
                }
                connection.execute(sa.insert(access_token).values(**row))
                if token.is_exchanged:  # each job of a CI creates one
                    is_old = access_token.c.created_by.contains("://") & (access_token.c.expires_at < now - _KEPT)
                    connection.execute(sa.delete(access_token).where(is_old))
            return token

        return transact(self._engine, action, actor=actor, dry_run=dry_run)

    @checks_limit
    def tokens(self, *, after: str | None = None, limit: int | None = None) -> tuple[AccessToken, ...]:
        order = access_token.c.created_at, access_token.c.id
        query = sa.select(access_token).order_by(*order).limit(limit)
        with reading(self._engine) as connection, stored_values():
            if after is not None:
                last = connection.execute(sa.select(*order).where(access_token.c.id == after)).first()
                if last is None:
                    raise _no_token(connection, after)
                query = query.where(sa.tuple_(*order) > sa.tuple_(*map(sa.literal, last)))
            return tuple(map(_read_token, connection.execute(query).all()))

    def revoke_token(self, token_id: str, *, actor: str, dry_run: bool = False) -> AccessToken:
        query = sa.select(access_token).where(access_token.c.id == token_id)

        def action(connection: sa.Connection) -> AccessToken:
            change = sa.update(access_token).where(access_token.c.id == token_id, access_token.c.revoked_at.is_(None))
            if not dry_run:
                connection.execute(change.values(revoked_at=read_clock(connection), revoked_by=actor))
            row = connection.execute(query).first()
            if row is None:
                raise _no_token(connection, token_id)
            with stored_values():
                return _read_token(row)

        return transact(self._engine, action, actor=actor, dry_run=dry_run)

    def authenticate(self, digest: str) -> AccessToken | None:
        query = sa.select(access_token).where(access_token.c.digest == digest)
        with reading(self._engine) as connection, stored_values():
            row = connection.execute(query).first()
            if row is None:
                return None
            token, now = _read_token(row), read_clock(connection)
        is_noted = token.last_used_at is not None and now - token.last_used_at < _UNNOTED
        if token.is_valid(now) and not is_noted:
            use = sa.update(access_token).where(access_token.c.id == token.id).values(last_used_at=now)
            with suppress(CatalogError):  # a read-only or busy catalog must still answer
                write(self._engine, lambda connection: connection.execute(use))
        return token

    def note_refusal(self, *, token: str | None, principal: str, call: str, dataset: str, reason: str) -> None:
        # The refused caller controls these texts, so they are cut.
        texts = {"principal": principal, "call": call, "dataset": dataset, "reason": reason}
        row = {name: printable(text)[:_MAX_TEXT] for name, text in texts.items()}

        def action(connection: sa.Connection) -> None:
            insert = sa.insert(refusal).values(at=read_clock(connection), token=token, **row)
            (newest,) = connection.execute(insert).inserted_primary_key or (0,)
            connection.execute(sa.delete(refusal).where(refusal.c.id <= newest - _MAX_REFUSALS))

        write(self._engine, action)

    def refusals(self, *, before: int | None = None, limit: int = 100) -> tuple[RefusedCall, ...]:
        if not 0 < limit <= _MAX_PAGE:
            raise UsageError(f"expected a limit of 1 to {_MAX_PAGE} refusals, not {limit}")
        query = sa.select(refusal).order_by(refusal.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(refusal.c.id < before)
        with reading(self._engine) as connection, stored_values():
            return tuple(RefusedCall(**row._mapping) for row in connection.execute(query))


def _read_token(row: Any) -> AccessToken:
    values = {name: value for name, value in row._mapping.items() if name not in ("digest", "role", "datasets_json")}
    return AccessToken(**values, role=Role(row.role), datasets=tuple(json.loads(row.datasets_json)))


def _no_token(connection: sa.Connection, token_id: str) -> NotFoundError:
    known = connection.execute(sa.select(access_token.c.id, access_token.c.name).order_by(access_token.c.id)).all()
    of_name = [row.id for row in known if row.name == token_id]
    hint = f"{token_id} has the tokens {', '.join(of_name[:10])}: name one of these ids." if of_name else None
    return TokenNotFoundError.of(token_id[:200], [row.id for row in known], hint=hint)
