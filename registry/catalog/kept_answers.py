"""Safe retries: a call that changes something takes effect only once, however often a client sends it.

A client whose connection breaks does not know whether its call took effect. Therefore each call has a key, which the
client repeats on a retry. The effect of the call and its answer are stored in one transaction: both are committed, or
neither.

    key is new        ->  run the call, keep the answer, commit
    key is kept       ->  the answer of the first time
    key is running    ->  KeyRunningError: another connection of this client is still running the call; retry later
    key of other call ->  KeyReusedError
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import sqlalchemy as sa

from registry.catalog.clock import read_clock
from registry.catalog.session import joined_by_calls, write
from registry.catalog.tables import kept_answer
from registry.catalog.urls import describe_url
from registry.errors import KeyReusedError, KeyRunningError, UsageError

_SUCCESS: Final = 200
_MAX_AGE: Final = timedelta(hours=24)
_MAX_REMOVED: Final = 100
"""How many old answers a call removes. Each call stores one, so their number is bounded."""

_running: Final[dict[tuple[int, str, str], object]] = {}
"""The keys of calls that run in this process, with their catalogs."""


def answer_once(
    engine: sa.Engine, key: str, principal: str, call: str, request_digest: str, make: Callable[[], bytes]
) -> tuple[bytes, int, bool]:
    """Answer a call with the result of ``make``, or with the answer that is stored under ``key``.

    Args:
        engine: the catalog.
        key: 1 to 200 printable ASCII characters.
        principal: the caller.
        call: the name of the call in the protocol.
        request_digest: a digest of the arguments.
        make: performs the call on a catalog of ``engine`` and returns the encoded answer. It must run in this thread,
            touch nothing but the catalog, and not catch errors other than RegistryError: after a deadlock, it is run
            again. If it raises, nothing is changed or stored.

    Returns:
        The answer, its status, and whether it comes from an earlier call.

    Raises:
        UsageError: the key is invalid.
        KeyReusedError: the key was used for another principal, call or request.
        KeyRunningError: a call with this key is still running.
    """
    check_key(key)

    def action(connection: sa.Connection) -> tuple[bytes, int, bool]:
        _lock(connection, key)
        row = connection.execute(sa.select(kept_answer).where(kept_answer.c.key == key)).first()
        if row is not None:
            if (row.principal, row.call, row.request_digest) != (principal, call, request_digest):
                raise KeyReusedError(
                    "the idempotency key was used for another call",
                    hint="Use a new key for each call, and the same key only to repeat a call.",
                    details={"call": row.call if row.principal == principal else None},
                )
            return row.answer, row.status, True
        with joined_by_calls(engine, connection):
            answer = make()
        _insert(connection, key, principal, call, request_digest, _SUCCESS, answer)
        return answer, _SUCCESS, False

    with _running_alone(engine, key):
        return write(engine, action)


def keep_answer(
    engine: sa.Engine, key: str, principal: str, call: str, request_digest: str, status: int, answer: bytes
) -> None:
    """Store the answer to a call that failed and would fail again. An answer that is already stored does not change."""
    check_key(key)

    def action(connection: sa.Connection) -> None:
        if connection.execute(sa.select(kept_answer.c.key).where(kept_answer.c.key == key)).first() is None:
            _insert(connection, key, principal, call, request_digest, status, answer)

    write(engine, action)


def _insert(
    connection: sa.Connection, key: str, principal: str, call: str, request_digest: str, status: int, answer: bytes
) -> None:
    now = read_clock(connection)
    old = sa.select(kept_answer.c.key).where(kept_answer.c.kept_at < now - _MAX_AGE)
    # Rows that another call is removing are skipped. SQLAlchemy omits the lock on SQLite.
    old = old.order_by(kept_answer.c.kept_at).limit(_MAX_REMOVED).with_for_update(skip_locked=True)
    connection.execute(sa.delete(kept_answer).where(kept_answer.c.key.in_(old)))
    row = {"principal": principal, "call": call, "request_digest": request_digest, "status": status}
    connection.execute(sa.insert(kept_answer).values(key=key, answer=answer, kept_at=now, **row))


@contextmanager
def _running_alone(engine: sa.Engine, key: str) -> Iterator[None]:
    """Refuse a key that another thread of this process is running, without waiting for SQLite's lock."""
    name, mine = (os.getpid(), describe_url(engine.url), key), object()
    if _running.setdefault(name, mine) is not mine:
        raise _still_running()
    try:
        yield
    finally:
        del _running[name]


def _lock(connection: sa.Connection, key: str) -> None:
    """Refuse a key that another process is running. On SQLite, this transaction has waited until that one ended."""
    if connection.dialect.name == "postgresql":
        number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], signed=True)
        if not connection.execute(sa.select(sa.func.pg_try_advisory_xact_lock(number))).scalar_one():
            raise _still_running()


def _still_running() -> KeyRunningError:
    return KeyRunningError(
        "the call with this idempotency key is still running",
        hint="Ask again in a second, with the same key.",
        details={"retry_after": 1},
    )


def check_key(key: str) -> None:
    """Raise UsageError unless ``key`` is 1 to 200 printable characters of ASCII."""
    if not 0 < len(key) <= 200 or not key.isascii() or not key.isprintable():
        raise UsageError("an idempotency key has 1 to 200 printable characters of ASCII")
