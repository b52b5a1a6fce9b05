"""Which configs has a dataset, and which one does a reference without a config mean?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import sqlalchemy as sa

from registry.catalog.events import append_event, lock_log, read_events
from registry.catalog.rows import check_text, read_canonical, stored_values
from registry.catalog.selection import (
    CANONICAL_NUMBER,
    canonical_version,
    explain_dataset,
    find_default_config,
    load_standing,
    lock_dataset,
)
from registry.catalog.session import reading, write
from registry.catalog.tables import builder, builder_config, dataset_version, protection
from registry.errors import ConfigNotFoundError, ProtectedError
from registry.model import Effect, Reference, Standing, Use, Version, default_effects, use_effects


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSummary:
    """A config of a dataset, as a list shows it; ``config`` None where the dataset has none.

    ``is_protected``: only a promotion moves its canonical version.
    """

    name: str
    config: str | None
    is_default: bool
    canonical: Version | None
    num_versions: int
    is_protected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultChange:
    """Another default config, done or only worked out.

    Attributes:
        before: how the config stood that was the default one, or None.
        after: how the one stands that is it now.
        uses: the references in use, without a config, of which ``use_effects`` speaks.
        is_dry_run: nothing was written.
    """

    before: Standing | None
    after: Standing
    uses: tuple[Use, ...] = ()
    is_dry_run: bool = False

    @property
    def is_change(self) -> bool:
        """Whether there was anything to do."""
        return self.before is None or self.before.config != self.after.config

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Every natural reference without a config whose answer it alters."""
        return default_effects(self.before, self.after) if self.is_change else ()

    @property
    def use_effects(self) -> tuple[Effect, ...]:
        """The references in use whose answer it alters."""
        return use_effects(self.before, self.after, self.uses)


def list_configs(connection: sa.Connection, name: str) -> tuple[ConfigSummary, ...]:
    """The configs of a dataset, by name.

    Raises:
        DatasetNotFoundError
    """
    num_versions = (
        sa.select(sa.func.count())
        .select_from(dataset_version)
        .where(dataset_version.c.config_id == builder_config.c.id)
        .scalar_subquery()
    )
    query = (
        sa.select(
            builder_config.c.name,
            builder_config.c.is_default,
            num_versions.label("num_versions"),
            is_protected().label("is_protected"),
            *CANONICAL_NUMBER,
        )
        .join_from(builder_config, builder)
        .outerjoin(canonical_version, canonical_version.c.id == builder_config.c.canonical_version_id)
        .where(builder.c.name == name)
        .order_by(builder_config.c.name)
    )
    with stored_values():
        rows = connection.execute(query).all()
    if not rows:
        raise explain_dataset(connection, Reference(name=name))
    with stored_values():
        return tuple(
            ConfigSummary(
                name=name,
                config=row.name or None,
                is_default=row.is_default,
                canonical=read_canonical(row),
                num_versions=row.num_versions,
                is_protected=bool(row.is_protected),
            )
            for row in rows
        )


def set_default_config(
    engine: sa.Engine, name: str, config: str, *, actor: str, dry_run: bool = False, uses: Sequence[Use] = ()
) -> DefaultChange:
    """Make ``config`` the one that a reference without a config means.

    Raises:
        DatasetNotFoundError, ConfigNotFoundError: there is no such config, or the dataset has none.
    """
    check_text(actor, "actor")

    def work_out(connection: sa.Connection) -> DefaultChange:
        after = load_standing(connection, name, config)
        present = find_default_config(connection, name)
        before = None if present is None else load_standing(connection, name, present)
        unnamed = tuple(use for use in uses if use.reference.name == name and use.reference.config is None)
        return DefaultChange(before=before, after=after, uses=unnamed, is_dry_run=dry_run)

    def act(connection: sa.Connection) -> DefaultChange:
        lock_dataset(connection, name)
        change = work_out(connection)
        if change.is_change:
            mark_default(connection, *_ids(connection, name, config))
            append_event(
                connection,
                at=datetime.now(UTC),
                actor=actor,
                action="default-config",
                dataset=name,
                version="",
                details={"before": None if change.before is None else change.before.config, "after": config},
            )
        return change

    if not config:
        raise ConfigNotFoundError("no config is named", hint=f"Name one, e.g. {name}/plain.")
    if dry_run:
        with reading(engine) as connection:
            return work_out(connection)
    return write(engine, act)


def mark_default(connection: sa.Connection, builder_id: int, config_id: int) -> None:
    """Move the mark of the default config: off first, because at no moment may two configs have it."""
    others = sa.and_(builder_config.c.builder_id == builder_id, builder_config.c.id != config_id)
    connection.execute(sa.update(builder_config).where(others, builder_config.c.is_default).values(is_default=False))
    connection.execute(
        sa.update(builder_config)
        .where(builder_config.c.id == config_id, sa.not_(builder_config.c.is_default))
        .values(is_default=True)
    )


def _ids(connection: sa.Connection, name: str, config: str) -> tuple[int, int]:
    """The ids of the builder and of its config."""
    builder_id, config_id = connection.execute(
        sa.select(builder.c.id, builder_config.c.id)
        .join_from(builder, builder_config)
        .where(builder.c.name == name, builder_config.c.name == config)
    ).one()
    return builder_id, config_id


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
