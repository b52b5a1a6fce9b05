"""Aliases in SQL: movable names for versions, changed by compare-and-swap.

Each change is one transaction. It locks the row of the dataset, compares the target of the alias with the one that the
caller expects, and then writes the alias, its history and the event. A dry run does the same without writing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from registry.catalog.clock import corrected, read_clock
from registry.catalog.events import append_event
from registry.catalog.names import is_named
from registry.catalog.outcomes import AliasChange, AliasMove, AliasSummary
from registry.catalog.pages import checks_limit
from registry.catalog.queries import find_version_id
from registry.catalog.rows import check_text, read_identity
from registry.catalog.selection import (
    NAMES,
    NUMBER,
    choose_row,
    explain_dataset,
    explain_refusal,
    in_page,
    is_dataset,
    lock_reference,
    meant_config,
    parse_dataset,
    published_versions,
    require_dataset,
)
from registry.catalog.session import SqlGroup, reading, transact
from registry.catalog.tables import alias, alias_event, builder, builder_config, dataset_version
from registry.catalog.values import stored_values
from registry.errors import AliasMovedError, AliasNotFoundError, NotFoundError, UsageError, VersionWithdrawnError, spell
from registry.model import Reference, Version, VersionState, check_alias

if TYPE_CHECKING:
    from registry.catalog.backend import Expected

_MAX_MESSAGE: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """The stored alias: the id of its config, its own row if it exists, and its target."""

    reference: Reference
    config_id: int
    alias_id: int | None = None
    version_id: int | None = None
    version: Version | None = None
    set_by: str = ""
    set_at: datetime | None = None


class SqlAliases(SqlGroup):
    """``AliasCalls`` in SQL."""

    def set(
        self, name: str, reference: Reference, *, expect: Expected, message: str, actor: str, dry_run: bool = False
    ) -> AliasChange:
        check_alias(name)
        message = _check_message(message)

        def action(connection: sa.Connection) -> AliasChange:
            wanted = lock_reference(connection, reference)
            config, target = _resolve(connection, wanted)
            before = _find(connection, Reference(name=wanted.name, config=config, alias=name))
            _require_expected(connection, before, expect, first=f"to set it: {spell('expect', 'none')}")
            change = AliasChange(reference=before.reference, before=before.version, after=target, is_dry_run=dry_run)
            if change.is_change and not dry_run:
                version_id = find_version_id(connection, wanted.name, config, target)
                _write(connection, before, version_id, change, actor=actor, message=message)
            return change

        return transact(self._engine, action, actor=actor, dry_run=dry_run)

    def remove(
        self, reference: Reference, *, expect: Expected, message: str, actor: str, dry_run: bool = False
    ) -> AliasChange:
        _require_alias(reference)
        message = _check_message(message)

        def action(connection: sa.Connection) -> AliasChange:
            before = _find(connection, lock_reference(connection, reference))
            _require_expected(
                connection, before, expect, first=f"to list aliases: registry alias list {before.reference.dataset}"
            )
            if before.version is None:
                raise _no_alias(connection, before)
            change = AliasChange(reference=before.reference, before=before.version, after=None, is_dry_run=dry_run)
            if not dry_run:
                _write(connection, before, None, change, actor=actor, message=message)
            return change

        return transact(self._engine, action, actor=actor, dry_run=dry_run)

    @checks_limit
    def list(
        self, dataset: str | None = None, *, after: Reference | None = None, limit: int | None = None
    ) -> tuple[AliasSummary, ...]:
        query = (
            sa.select(
                *NAMES,
                alias.c.name,
                corrected(alias.c.set_at),
                alias.c.set_by,
                *NUMBER,
                dataset_version.c.state,
            )
            .select_from(published_versions())
            .join(alias, alias.c.version_id == dataset_version.c.id)
        )
        wanted = None if dataset is None else parse_dataset(dataset)
        with reading(self._engine) as connection, stored_values():
            if wanted is not None:
                require_dataset(connection, wanted)
                query = query.where(is_dataset(wanted))
            query = in_page(query, self._engine.dialect.name, after, limit, alias=alias.c.name)
            return tuple(
                AliasSummary(
                    **read_identity(row),
                    alias=row.name,
                    state=VersionState(row.state),
                    set_at=row.set_at,
                    set_by=row.set_by,
                )
                for row in connection.execute(query)
            )

    def history(self, reference: Reference) -> tuple[AliasMove, ...]:
        _require_alias(reference)
        with reading(self._engine) as connection:
            found = _find(connection, reference)
            moves = _moves(connection, found)
            if not moves:
                raise _no_alias(connection, found)
        return tuple(moves)


def set_missing(
    connection: sa.Connection,
    reference: Reference,
    config_id: int,
    version_id: int,
    version: Version,
    *,
    actor: str,
    message: str,
) -> None:
    """Point an alias to a version in the transaction that publishes it, unless the alias exists."""
    check_alias(reference.alias or "")
    exists = sa.select(alias.c.id).where(alias.c.config_id == config_id, alias.c.name == reference.alias)
    if connection.execute(exists).first() is not None:
        return
    before = _Standing(reference=reference, config_id=config_id)
    change = AliasChange(reference=reference, before=None, after=version)
    _write(connection, before, version_id, change, actor=actor, message=message)


def _resolve(connection: sa.Connection, wanted: Reference) -> tuple[str | None, Version]:
    """Resolve ``wanted`` to a config and a version, as a look-up does; withdrawn versions are refused."""
    choice, _ = choose_row(connection, wanted)
    result = choice.candidate or choice.refused
    if result is None:
        raise explain_refusal(choice)
    if result.is_withdrawn:
        reference = choice.standing.exactly(result.version)
        why = f": {result.message}" if result.message else ""
        raise VersionWithdrawnError(
            f"{reference} is {result.state.value}{why}; no alias may point to it",
            hint=f"Choose a readable version: registry versions {reference.dataset}",
            details={"version": str(result.version), "state": result.state.value},
        )
    return choice.standing.config, result.version


def _find(connection: sa.Connection, wanted: Reference) -> _Standing:
    """The alias that ``wanted`` names. The alias need not exist, but its config must."""
    config = connection.execute(
        sa.select(builder_config.c.id, builder_config.c.name, builder.c.name.label("builder_name"))
        .join_from(builder_config, builder)
        .where(is_named(wanted.name), meant_config(wanted.config))
    ).first()
    if config is None:
        raise explain_dataset(connection, wanted)
    reference = Reference(name=config.builder_name, config=config.name or None, alias=wanted.alias)
    with stored_values():
        row = connection.execute(
            sa.select(alias.c.id, alias.c.version_id, alias.c.set_by, corrected(alias.c.set_at), *NUMBER)
            .join_from(alias, dataset_version, dataset_version.c.id == alias.c.version_id)
            .where(alias.c.config_id == config.id, alias.c.name == wanted.alias)
        ).first()
        if row is None:
            return _Standing(reference=reference, config_id=config.id)
        return _Standing(
            reference=reference,
            config_id=config.id,
            alias_id=row.id,
            version_id=row.version_id,
            version=Version(row.major, row.minor, row.patch),
            set_by=row.set_by,
            set_at=row.set_at,
        )


def _require_expected(connection: sa.Connection, before: _Standing, expect: Expected, *, first: str) -> None:
    """Raise AliasMovedError if the target is not ``expect``; ``first`` is the hint for an alias that never existed."""
    if expect is None or before.version == (None if expect == "none" else expect):
        return
    who, at = before.set_by, before.set_at
    hint = f"To see its changes: registry alias history {before.reference}"
    if before.version is None:
        moves = _moves(connection, before, last=True)
        who, at = (moves[0].actor, moves[0].at) if moves else ("", None)
        hint = hint if moves else f"It was never set; {first}"
    did = "removed" if before.version is None else "set"
    since = f", {did} by {who} at {at:%Y-%m-%d %H:%M:%S} UTC" if at is not None else ""
    found = "does not exist" if before.version is None else f"points to {before.version}"
    expected = "no alias" if expect == "none" else str(expect)
    raise AliasMovedError(
        f"{before.reference} {found}{since}; you expected {expected}",
        hint=hint,
        details={
            "alias": str(before.reference),
            "expected": None if expect == "none" else str(expect),
            "found": None if before.version is None else str(before.version),
            "by": who,
            "at": None if at is None else at.isoformat(),
        },
    )


def _write(
    connection: sa.Connection,
    before: _Standing,
    version_id: int | None,
    change: AliasChange,
    *,
    actor: str,
    message: str,
) -> None:
    """Write the alias, its history and, last, the event. Without a version, the alias is removed."""
    now, is_this = read_clock(connection), alias.c.id == before.alias_id
    values = {"version_id": version_id, "set_at": now, "set_by": actor}
    if version_id is None:
        connection.execute(sa.delete(alias).where(is_this))
    elif before.alias_id is None:
        connection.execute(sa.insert(alias).values(config_id=before.config_id, name=before.reference.alias, **values))
    else:
        connection.execute(sa.update(alias).where(is_this).values(**values))
    connection.execute(
        sa.insert(alias_event).values(
            config_id=before.config_id,
            name=before.reference.alias,
            from_version_id=before.version_id,
            to_version_id=version_id,
            at=now,
            actor=actor,
            message=message,
        )
    )
    reference = before.reference
    about = reference if change.after is None else Reference.exactly(reference.name, reference.config, change.after)
    details = {
        "alias": reference.alias,
        "before": None if change.before is None else str(change.before),
        "after": None if change.after is None else str(change.after),
        "message": message,
    }
    action = "alias-remove" if version_id is None else "alias-set"
    append_event(connection, action, about, details, actor=actor, rows_at=now)


def _moves(connection: sa.Connection, standing: _Standing, *, last: bool = False) -> list[AliasMove]:
    """The changes of an alias, oldest first, or only the ``last`` N."""
    is_of_alias = sa.and_(alias_event.c.config_id == standing.config_id, alias_event.c.name == standing.reference.alias)
    query = select_moves(corrected(alias_event.c.at)).where(is_of_alias)
    query = query.order_by(alias_event.c.id.desc()).limit(1) if last else query.order_by(alias_event.c.id)
    with stored_values():
        return [
            AliasMove(at=row.at, actor=row.actor, **read_targets(row), message=row.message)
            for row in connection.execute(query)
        ]


def select_moves(*columns: sa.Column[Any] | sa.Label[Any]) -> sa.Select[Any]:
    """Select the moves of aliases: ``columns``, and the actor, message, and numbers before and after each move."""
    before, after = dataset_version.alias("before"), dataset_version.alias("after")
    return (
        sa.select(
            *columns,
            alias_event.c.actor,
            alias_event.c.message,
            *(before.c[part.name].label(f"before_{part.name}") for part in NUMBER),
            *(after.c[part.name].label(f"after_{part.name}") for part in NUMBER),
        )
        .join_from(alias_event, builder_config, builder_config.c.id == alias_event.c.config_id)
        .outerjoin(before, before.c.id == alias_event.c.from_version_id)
        .outerjoin(after, after.c.id == alias_event.c.to_version_id)
    )


def read_targets(row: Any) -> dict[str, Version | None]:
    """The targets ``before`` and ``after`` the move in a row of ``select_moves``; None if there was no alias."""
    numbers = {name: [getattr(row, f"{name}_{part.name}") for part in NUMBER] for name in ("before", "after")}
    return {name: None if None in number else Version(*number) for name, number in numbers.items()}


def _no_alias(connection: sa.Connection, standing: _Standing) -> NotFoundError:
    names = sa.select(alias.c.name).where(alias.c.config_id == standing.config_id)
    known = sorted(connection.execute(names).scalars())
    dataset = standing.reference.dataset
    hint = (
        None if known else f"It has no aliases. Set one with: registry alias set {standing.reference.alias} {dataset}"
    )
    return AliasNotFoundError.of(standing.reference.alias or "", known, where=dataset, hint=hint)


def _require_alias(reference: Reference) -> None:
    if reference.alias is None:
        hint = "Write dataset@alias, e.g. mnist@paper. To list aliases: registry alias list"
        raise UsageError(f"{reference} does not name an alias", hint=hint)


def _check_message(message: str) -> str:
    if len(message) > _MAX_MESSAGE:
        raise UsageError(
            f"the reason has {len(message):,} characters",
            hint=f"Write one or two sentences, at most {_MAX_MESSAGE:,} characters.",
        )
    return check_text(message, "reason")
