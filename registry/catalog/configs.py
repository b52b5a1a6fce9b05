"""The configs of datasets in SQL: default configs, and protections.

In a protected scope, only ``promote`` changes the canonical version. A scope is ``name/config``, ``name`` for all its
configs, or ``""`` for every dataset of the catalog. A publication reads the protection while it holds the lock of the
event log, so the protection cannot change in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import compress
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from registry.catalog.clock import read_clock
from registry.catalog.events import append_event, in_json, lock_log, read_events
from registry.catalog.names import in_present, is_named, present_name, present_names, told_as
from registry.catalog.proposals import UNPROTECT, approval_details, await_approval
from registry.catalog.rows import read_usable_canonical
from registry.catalog.selection import (
    CANONICAL_NUMBER,
    IS_CANONICAL_WITHDRAWN,
    canonical_version,
    explain_dataset,
    find_default_config,
    is_dataset,
    is_protected,
    load_standing,
    lock_reference,
    require_dataset,
)
from registry.catalog.session import SqlGroup, reading, transact
from registry.catalog.tables import builder, builder_config, dataset_version, protection
from registry.catalog.values import ConfigSummary, stored_values
from registry.errors import ConfigNotFoundError, ProtectedError, UsageError
from registry.model import Reference

if TYPE_CHECKING:  # loaded where they are made: a look-up makes none
    from registry.catalog.outcomes import DefaultChange, Proposal, ProtectionChange
    from registry.model import Use

PROTECT: Final = "protect"


class SqlConfigs(SqlGroup):
    """``ConfigCalls`` in SQL."""

    def list(self, name: str) -> tuple[ConfigSummary, ...]:
        num_versions = (
            sa.select(sa.func.count())
            .select_from(dataset_version)
            .where(dataset_version.c.config_id == builder_config.c.id)
            .scalar_subquery()
        )
        query = (
            sa.select(
                builder.c.name.label("builder_name"),
                builder_config.c.name,
                builder_config.c.is_default,
                num_versions.label("num_versions"),
                is_protected().label("is_protected"),
                is_protected(protection.c.two_persons).label("needs_two_persons"),
                *CANONICAL_NUMBER,
                IS_CANONICAL_WITHDRAWN.label("is_canonical_withdrawn"),
            )
            .join_from(builder_config, builder)
            .outerjoin(canonical_version, canonical_version.c.id == builder_config.c.canonical_version_id)
            .where(is_named(name))
            .order_by(builder_config.c.name)
        )
        with reading(self._engine) as connection, stored_values():
            rows = connection.execute(query).all()
            if not rows:
                raise explain_dataset(connection, Reference(name=name))
            return tuple(
                ConfigSummary(
                    name=row.builder_name,
                    config=row.name or None,
                    is_default=row.is_default,
                    **read_usable_canonical(row),
                    num_versions=row.num_versions,
                    is_protected=bool(row.is_protected),
                    needs_two_persons=bool(row.needs_two_persons),
                )
                for row in rows
            )

    def set_default(
        self, name: str, config: str, *, actor: str, dry_run: bool = False, uses: Sequence[Use] = ()
    ) -> DefaultChange:
        from registry.catalog.outcomes import DefaultChange

        if not config:
            raise ConfigNotFoundError("the config is missing", hint=f"Name one, e.g. {name}/plain.")

        def action(connection: sa.Connection) -> DefaultChange:
            dataset = lock_reference(connection, Reference(name=name)).name
            after = load_standing(connection, dataset, config)
            present = find_default_config(connection, dataset)
            before = None if present is None else load_standing(connection, dataset, present)
            is_unnamed = (use.reference.config is None and after.is_called(use.reference.name) for use in uses)
            unnamed = tuple(compress(uses, is_unnamed))
            change = DefaultChange(before=before, after=after, uses=unnamed, is_dry_run=dry_run)
            if change.is_change:
                keep_default(connection, dataset, present)
            if change.is_change and not dry_run:
                is_meant = is_dataset(Reference(name=dataset, config=config))
                ids = sa.select(builder.c.id, builder_config.c.id).join_from(builder, builder_config).where(is_meant)
                mark_default(connection, *connection.execute(ids).one())
                details = {"before": None if before is None else before.config, "after": config}
                append_event(connection, "default-config", dataset, details, actor=actor)
            return change

        return transact(self._engine, action, actor=actor, dry_run=dry_run)

    def protection(self, name: str, config: str | None, *, at: datetime | None = None) -> str | None:
        with reading(self._engine) as connection:
            if at is None:
                return find_protection(connection, present_name(connection, name), config)
            datasets, present = told_as(connection, *scopes(name, config)), present_names(connection)
            events = read_events(connection, until=at, datasets=datasets, actions=[PROTECT, UNPROTECT])
            protected = {in_present(present, event.dataset): event.action == PROTECT for event in events}
        return min((scope for scope, is_protected in protected.items() if is_protected), default=None)

    def set_protection(
        self,
        dataset: Reference | None,
        *,
        protect: bool,
        two_persons: bool = False,
        actor: str,
        dry_run: bool = False,
    ) -> ProtectionChange:
        if two_persons and not protect:
            raise UsageError("two persons can be required only for a protected name")

        def action(connection: sa.Connection) -> ProtectionChange:
            return change_protection(
                connection, dataset, protect=protect, two_persons=two_persons, actor=actor, dry_run=dry_run
            )

        return transact(self._engine, action, actor=actor, dry_run=dry_run)


def change_protection(
    connection: sa.Connection,
    dataset: Reference | None,
    *,
    protect: bool,
    two_persons: bool = False,
    approved: Proposal | None = None,
    actor: str,
    dry_run: bool,
) -> ProtectionChange:
    """See ``ConfigCalls.set_protection``; ``approved`` is a proposal that the actor approves."""
    from registry.catalog.outcomes import ProtectionChange

    scope, wider = "", scopes()
    if dataset is not None:
        named = lock_reference(connection, dataset)
        scope, wider = named.dataset, scopes(named.name, named.config)
    lock_log(connection)
    if dataset is not None:
        require_dataset(connection, dataset)
    query = sa.select(protection).where(protection.c.scope.in_(wider))
    rows = {row.scope: row for row in connection.execute(query)}
    left = rows.keys() | {scope} if protect else rows.keys() - {scope}
    has_rule = scope in rows and rows[scope].two_persons
    change = ProtectionChange(
        scope=scope,
        before=scope in rows,
        after=protect,
        protected_by=min(left, default=None),
        had_two_persons=has_rule,
        two_persons=protect and (two_persons or has_rule),
        is_dry_run=dry_run,
    )
    if approved is not None or (has_rule and not protect):
        seen = {"protected_at": in_json(rows[scope].protected_at) if scope in rows else None}
        proposal = await_approval(
            connection, UNPROTECT, scope, None, seen, approved=approved, actor=actor, dry_run=dry_run
        )
        change = replace(change, proposal=proposal)
    if change.is_change and not dry_run:
        now = read_clock(connection)
        connection.execute(sa.delete(protection).where(protection.c.scope == scope))
        if protect:
            values = {"scope": scope, "protected_at": now, "protected_by": actor, "two_persons": change.two_persons}
            connection.execute(sa.insert(protection).values(**values))
        details = {"two_persons": True} if change.two_persons else approval_details(approved)
        append_event(connection, PROTECT if protect else UNPROTECT, scope, details, actor=actor, rows_at=now)
    return change


def mark_default(connection: sa.Connection, builder_id: int, config_id: int) -> str | None:
    """Move the mark of the default config, and return the name of the config that had it, or None.

    The old mark is removed first, because two configs must never have it.
    """
    others = sa.and_(builder_config.c.builder_id == builder_id, builder_config.c.id != config_id)
    unmark = sa.update(builder_config).where(others, builder_config.c.is_default).values(is_default=False)
    former: str | None = connection.execute(unmark.returning(builder_config.c.name)).scalar()
    connection.execute(
        sa.update(builder_config)
        .where(builder_config.c.id == config_id, sa.not_(builder_config.c.is_default))
        .values(is_default=True)
    )
    return former


def keep_default(connection: sa.Connection, name: str, config: str | None) -> None:
    """Refuse to change the default config of a dataset for which two persons must agree on what its name resolves to.

    ``config`` is the current default config, or None.

    Raises:
        ProtectedError: promotions of the dataset, or of this config, need two persons.
    """
    lock_log(connection)
    if (scope := find_protection(connection, name, config, two_persons=True)) is not None:
        raise ProtectedError(
            f"the default config of {name} cannot change: changes to {scope or 'the whole catalog'} need two persons",
            hint=f"Two persons can remove this rule: registry config unprotect {scope}".rstrip(),
            details={"version": name, "protected": scope},
        )


def scopes(name: str = "", config: str | None = None) -> tuple[str, ...]:
    """The scopes that protect a config, widest first."""
    return tuple(dict.fromkeys(("", name) if config is None else ("", name, f"{name}/{config}")))


def find_protection(
    connection: sa.Connection, name: str, config: str | None, *, two_persons: bool = False
) -> str | None:
    """The widest scope that protects a config, or None. With ``two_persons``, only scopes that require two persons."""
    query = sa.select(protection.c.scope).where(protection.c.scope.in_(scopes(name, config)))
    if two_persons:
        query = query.where(protection.c.two_persons)
    result: str | None = connection.execute(query.order_by(protection.c.scope)).scalars().first()
    return result
