"""The configs of datasets in SQL: which one a reference without a config means, and which ones are protected.

In a protected scope, only ``promote`` changes the canonical version. A scope is ``name/config``, ``name`` for all its
configs, or ``""`` for every dataset of the catalog. A publication reads the protection while it holds the lock of the
event log, so that no change of the protection comes in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import compress
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from registry.catalog.clock import read_clock
from registry.catalog.events import append_event, lock_log, read_events
from registry.catalog.names import in_present, is_named, present_name, present_names, told_as
from registry.catalog.rows import check_text, read_usable_canonical
from registry.catalog.selection import (
    CANONICAL_NUMBER,
    IS_CANONICAL_WITHDRAWN,
    canonical_version,
    explain_dataset,
    find_default_config,
    is_dataset,
    load_standing,
    lock_reference,
    require_dataset,
)
from registry.catalog.session import reading, transact
from registry.catalog.tables import builder, builder_config, dataset_version, protection
from registry.catalog.values import stored_values
from registry.errors import ConfigNotFoundError
from registry.model import Reference, Use

if TYPE_CHECKING:  # loaded where they are made: a look-up makes none
    from registry.catalog.outcomes import ConfigSummary, DefaultChange, ProtectionChange

PROTECT: Final = "protect"
UNPROTECT: Final = "unprotect"


class SqlConfigs:
    """``ConfigCalls`` in SQL."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def list(self, name: str) -> tuple[ConfigSummary, ...]:
        from registry.catalog.outcomes import ConfigSummary

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
                )
                for row in rows
            )

    def set_default(
        self, name: str, config: str, *, actor: str, dry_run: bool = False, uses: Sequence[Use] = ()
    ) -> DefaultChange:
        from registry.catalog.outcomes import DefaultChange

        check_text(actor, "actor")
        if not config:
            raise ConfigNotFoundError("the config is missing", hint=f"Name one, e.g. {name}/plain.")

        def action(connection: sa.Connection) -> DefaultChange:
            dataset = lock_reference(connection, Reference(name=name), dry_run=dry_run).name
            after = load_standing(connection, dataset, config)
            present = find_default_config(connection, dataset)
            before = None if present is None else load_standing(connection, dataset, present)
            is_unnamed = (use.reference.config is None and after.is_called(use.reference.name) for use in uses)
            unnamed = tuple(compress(uses, is_unnamed))
            change = DefaultChange(before=before, after=after, uses=unnamed, is_dry_run=dry_run)
            if change.is_change and not dry_run:
                is_meant = is_dataset(Reference(name=dataset, config=config))
                ids = sa.select(builder.c.id, builder_config.c.id).join_from(builder, builder_config).where(is_meant)
                mark_default(connection, *connection.execute(ids).one())
                details = {"before": None if before is None else before.config, "after": config}
                append_event(connection, "default-config", dataset, details, actor=actor)
            return change

        return transact(self._engine, action, dry_run=dry_run)

    def protection(self, name: str, config: str | None, *, at: datetime | None = None) -> str | None:
        with reading(self._engine) as connection:
            if at is None:
                return find_protection(connection, present_name(connection, name), config)
            datasets, present = told_as(connection, *scopes(name, config)), present_names(connection)
            events = read_events(connection, until=at, datasets=datasets, actions=[PROTECT, UNPROTECT])
            protected = {in_present(present, event.dataset): event.action == PROTECT for event in events}
        return min((scope for scope, is_protected in protected.items() if is_protected), default=None)

    def set_protection(
        self, dataset: Reference | None, *, protect: bool, actor: str, dry_run: bool = False
    ) -> ProtectionChange:
        from registry.catalog.outcomes import ProtectionChange

        check_text(actor, "actor")

        def action(connection: sa.Connection) -> ProtectionChange:
            scope, wider = "", scopes()
            if dataset is not None:
                named = lock_reference(connection, dataset, dry_run=dry_run)
                scope, wider = named.dataset, scopes(named.name, named.config)
            if not dry_run:
                lock_log(connection)
            if dataset is not None:
                require_dataset(connection, dataset)
            query = sa.select(protection.c.scope).where(protection.c.scope.in_(wider))
            found = set(connection.execute(query).scalars())
            left = found | {scope} if protect else found - {scope}
            change = ProtectionChange(
                scope=scope,
                before=scope in found,
                after=protect,
                protected_by=min(left, default=None),
                is_dry_run=dry_run,
            )
            if change.is_change and not dry_run:
                now = read_clock(connection)
                if protect:
                    values = {"scope": scope, "protected_at": now, "protected_by": actor}
                    connection.execute(sa.insert(protection).values(**values))
                else:
                    connection.execute(sa.delete(protection).where(protection.c.scope == scope))
                done = PROTECT if protect else UNPROTECT
                append_event(connection, done, scope, {}, actor=actor, rows_at=now)
            return change

        return transact(self._engine, action, dry_run=dry_run)


def mark_default(connection: sa.Connection, builder_id: int, config_id: int) -> None:
    """Move the mark of the default config; it is removed first, because two configs must never have it."""
    others = sa.and_(builder_config.c.builder_id == builder_id, builder_config.c.id != config_id)
    connection.execute(sa.update(builder_config).where(others, builder_config.c.is_default).values(is_default=False))
    connection.execute(
        sa.update(builder_config)
        .where(builder_config.c.id == config_id, sa.not_(builder_config.c.is_default))
        .values(is_default=True)
    )


def scopes(name: str = "", config: str | None = None) -> tuple[str, ...]:
    """The scopes that protect a config, widest first."""
    return tuple(dict.fromkeys(("", name) if config is None else ("", name, f"{name}/{config}")))


def find_protection(connection: sa.Connection, name: str, config: str | None) -> str | None:
    """The widest scope that protects a config, or None."""
    rows = connection.execute(
        sa.select(protection.c.scope).where(protection.c.scope.in_(scopes(name, config))).order_by(protection.c.scope)
    )
    return rows.scalars().first()


def is_protected() -> sa.ColumnElement[bool]:
    """Whether anything protects a config, over the columns of ``builder`` and ``builder_config``."""
    named = builder.c.name + "/" + builder_config.c.name
    return sa.exists().where(sa.or_(protection.c.scope.in_(["", builder.c.name]), protection.c.scope == named))
