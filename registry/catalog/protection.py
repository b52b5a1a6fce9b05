"""Datasets whose canonical version only ``promote`` moves: protected, unprotected, and as they were at a moment.

A scope is what is protected: ``name/config``, ``name`` for all its configs, or ``""`` for every dataset of the catalog.
A publication reads it under the lock of the event log, so that no event of a protection comes between.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import sqlalchemy as sa

from registry.catalog.events import append_event, lock_log
from registry.catalog.locking import lock_dataset
from registry.catalog.log import read_events
from registry.catalog.not_found import explain_dataset
from registry.catalog.rows import check_text
from registry.catalog.session import reading, write
from registry.catalog.tables import builder, builder_config, protection
from registry.errors import ProtectedError
from registry.model import Reference, Version

PROTECT: Final = "protect"
UNPROTECT: Final = "unprotect"


class Unpromoted(StrEnum):
    """Why a publication left the canonical version as it was."""

    PUBLISHED_BEFORE = "published_before"
    NOT_ASKED = "not_asked"
    EXPERIMENTAL = "experimental"
    LOWER = "lower"
    PROTECTED = "protected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """What a publication did to the canonical version of its config.

    Attributes:
        before, after: the canonical version, or None.
        reason: why it is the same as before; None where the published version became canonical.
        protected: the scope that protects it, where that is the reason: ``""`` is the whole catalog.
    """

    before: Version | None
    after: Version | None
    reason: Unpromoted | None = None
    protected: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectionChange:
    """What protecting a scope, or the opposite, comes to.

    Attributes:
        scope: ``name/config``, ``name``, or ``""`` for the whole catalog.
        before, after: whether the scope itself was protected, and is.
        protected_by: the scope that protects it afterwards, a wider one too; None where nothing does.
        is_dry_run: nothing was written.
    """

    scope: str
    before: bool
    after: bool
    protected_by: str | None
    is_dry_run: bool = False

    @property
    def is_change(self) -> bool:
        """Whether there was anything to do."""
        return self.before != self.after


def scopes(name: str, config: str | None) -> tuple[str, ...]:
    """Everything that protects a config, the widest first."""
    return ("", name) if config is None else ("", name, f"{name}/{config}")


def find_protection(connection: sa.Connection, name: str, config: str | None) -> str | None:
    """The widest scope that protects a config, or None."""
    rows = connection.execute(
        sa.select(protection.c.scope).where(protection.c.scope.in_(scopes(name, config))).order_by(protection.c.scope)
    )
    return rows.scalars().first()


def protection_at(connection: sa.Connection, name: str, config: str | None, moment: datetime) -> str | None:
    """The widest scope that protected a config at ``moment``, by the event log."""
    told = read_events(connection, until=moment, datasets=scopes(name, config), actions=[PROTECT, UNPROTECT])
    standing = {event.dataset: event.action == PROTECT for event in told}
    return min((scope for scope, is_protected in standing.items() if is_protected), default=None)


def is_protected() -> sa.ColumnElement[bool]:
    """The same over the columns of ``builder`` and ``builder_config``."""
    named = builder.c.name + "/" + builder_config.c.name
    return sa.exists().where(sa.or_(protection.c.scope.in_(["", builder.c.name]), protection.c.scope == named))


def set_protection(
    engine: sa.Engine, dataset: Reference | None, *, protect: bool, actor: str, dry_run: bool
) -> ProtectionChange:
    """Protect a dataset, one of its configs, or with None the whole catalog; or take that back.

    Raises:
        DatasetNotFoundError, ConfigNotFoundError: there is none.
    """
    check_text(actor, "actor")
    scope = "" if dataset is None else dataset.dataset

    def work_out(connection: sa.Connection) -> ProtectionChange:
        if dataset is not None:
            _require(connection, dataset)
        wider = () if dataset is None else scopes(dataset.name, dataset.config)
        found = set(
            connection.execute(sa.select(protection.c.scope).where(protection.c.scope.in_({*wider, scope}))).scalars()
        )
        left = found | {scope} if protect else found - {scope}
        return ProtectionChange(
            scope=scope, before=scope in found, after=protect, protected_by=min(left, default=None), is_dry_run=dry_run
        )

    def act(connection: sa.Connection) -> ProtectionChange:
        if dataset is not None:
            lock_dataset(connection, dataset.name)
        lock_log(connection)
        change = work_out(connection)
        if change.is_change:
            now = datetime.now(UTC)
            if protect:
                values = {"scope": scope, "protected_at": now, "protected_by": actor}
                connection.execute(sa.insert(protection).values(**values))
            else:
                connection.execute(sa.delete(protection).where(protection.c.scope == scope))
            action = PROTECT if protect else UNPROTECT
            append_event(connection, at=now, actor=actor, action=action, dataset=scope, version="", details={})
        return change

    if dry_run:
        with reading(engine) as connection:
            return work_out(connection)
    return write(engine, act)


def refuse_protected(version: Reference, scope: str) -> ProtectedError:
    """The error for a publication that is told to promote what is protected."""
    what = f"{scope} is" if scope else "the whole catalog is"
    return ProtectedError(
        f"{version} cannot become canonical by being published: {what} protected",
        hint=f"Publish it with --no-promote, then: registry promote {version}",
        details={"version": str(version), "protected": scope},
    )


def _require(connection: sa.Connection, dataset: Reference) -> None:
    query = sa.select(builder_config.c.id).join_from(builder_config, builder).where(builder.c.name == dataset.name)
    if dataset.config is not None:
        query = query.where(builder_config.c.name == dataset.config)
    if connection.execute(query).first() is None:
        raise explain_dataset(connection, dataset)
