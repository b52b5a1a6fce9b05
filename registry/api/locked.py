"""Who may not look up what can move? A program that is locked: every reference in it has to name one version.

A result that is to be had again must not hang on what ``mnist:3.*`` means on that day. ``with registry.locked():``
locks a block, ``$REGISTRY_LOCKED`` a whole program with all its threads, ``--locked`` one command.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from registry.errors import LockedError, UsageError
from registry.model import Reference, describe_moment

LOCKED_VARIABLE: Final = "REGISTRY_LOCKED"

_ON: Final = frozenset({"1", "true", "yes", "on"})
_OFF: Final = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """What a locked block asks of every look-up: an exact reference."""


_lock: ContextVar[Lock | None] = ContextVar("registry_lock", default=None)


@contextmanager
def locked() -> Iterator[Lock]:
    """Refuse every look-up in this block that does not name one version exactly.

    Blocks nest, and belong to the task or thread that entered them: a thread that is started inside looks up as it
    likes, unless it runs in a copy of the context (``contextvars.copy_context().run``). For a whole program set
    ``$REGISTRY_LOCKED`` to 1.

        with registry.locked():
            mnist = catalog.dataset("mnist/plain:3.0.1")
            catalog.dataset("mnist")   # LockedError: the hint names what it gives today

    Raises:
        LockedError: at a look-up of a reference without a version, with a wildcard, a range or an alias, or without the
            config of a dataset that has configs.
    """
    entered = Lock()
    token = _lock.set(entered)
    try:
        yield entered
    finally:
        _lock.reset(token)


def is_locked() -> bool:
    """Whether look-ups have to be exact here and now.

    Raises:
        UsageError: ``$REGISTRY_LOCKED`` is neither on nor off.
    """
    if _lock.get() is not None:
        return True
    value = os.environ.get(LOCKED_VARIABLE, "").strip().lower()
    if value not in _ON | _OFF:
        raise UsageError(f"${LOCKED_VARIABLE} is {value[:40]!r}", hint="Set it to 1 to lock every look-up, or to 0.")
    return value in _ON


def may_be_exact(wanted: Reference) -> bool:
    """Whether the text of ``wanted`` names one version; whether it lacks a config is seen when it is looked up."""
    return wanted.request is not None and wanted.request.exact is not None


def refuse_moving(wanted: Reference, given: Reference | None, moment: datetime | None) -> LockedError:
    """The error for a reference that is not exact; ``given`` is what it gives, or gave at ``moment``, if anything."""
    when = "Today it gives" if moment is None else f"At {describe_moment(moment)} it gave"
    return LockedError(
        f"{wanted} does not name one version exactly, and look-ups are locked",
        hint=f"{when} {given}. Name that." if given else "Name one version, e.g. mnist:3.0.1 or mnist/plain:3.0.1.",
        details={"reference": str(wanted), "exactly": None if given is None else str(given)},
    )
