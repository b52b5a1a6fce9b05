"""The flags that versions may override, in SQL: add, change the default, retire; each with one event.

``registry.model.experiment`` describes the life of a flag. The flags that a version was built with never change: its
own overrides are rows, and the event of its publication has the defaults of the other flags that the build received.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.clock import read_clock
from registry.catalog.events import append_event
from registry.catalog.names import told_as
from registry.catalog.rows import check_text
from registry.catalog.selection import IS_WITHDRAWN, NUMBER, is_version, published_versions
from registry.catalog.session import SqlGroup, is_writing, reading, transact
from registry.catalog.tables import builder, builder_config, dataset_version, event, experiment, version_experiment
from registry.catalog.values import stored_values
from registry.errors import ConflictError, UsageError
from registry.model import (
    DatasetVersion,
    Experiment,
    ExperimentChange,
    Reference,
    Version,
    experiment_name,
    listed,
    no_experiment,
)

Plan = Callable[[sa.Connection, datetime], tuple[Experiment | None, Experiment]]
"""The flag before and after an action at a moment. If the action will be carried out, the row of the flag is locked."""

_MAX_LISTED: Final = 12


class SqlExperiments(SqlGroup):
    """``ExperimentCalls`` in SQL."""

    def list(self) -> tuple[Experiment, ...]:
        with reading(self._engine) as connection, stored_values():
            return tuple(map(_read, connection.execute(_query().order_by(experiment.c.name)).all()))

    def defaults_for(self, overrides: Mapping[str, bool]) -> dict[str, bool]:
        with reading(self._engine) as connection:
            check_overrides(connection, overrides)
            return current_defaults(connection)

    def of_version(self, version: DatasetVersion) -> dict[str, bool]:
        with reading(self._engine) as connection:
            details = connection.execute(
                sa.select(event.c.details_json)
                .where(
                    event.c.dataset.in_(told_as(connection, version.reference.dataset)),
                    event.c.version == str(version.version),
                    event.c.action == "publish",
                )
                .order_by(event.c.id)
                .limit(1)
            ).scalar()
            with stored_values():
                told = {} if details is None else json.loads(details).get("experiments", {})
                recorded = {str(name): bool(enabled) for name, enabled in told.items()}
            return {**dict.fromkeys(current_defaults(connection), False), **recorded, **version.experiments}

    def add(
        self, name: str, description: str, *, default: bool = False, actor: str, dry_run: bool = False
    ) -> ExperimentChange:
        added = Experiment(
            name=experiment_name(name), description=_check_description(description), default=_flag(default)
        )

        def plan(connection: sa.Connection, _now: datetime) -> tuple[Experiment | None, Experiment]:
            before = _find(connection, added.name)
            if before is None:
                return None, added
            _refuse_retired(before, hint="A name can be used for only one flag. Choose another name.")
            if before.default != added.default:
                flip = f"registry experiment set-default {before.name} {_on_off(added.default)}"
                raise _is_there(before, hint=f"Change its default with: {flip}")
            if before.description not in ("", added.description):
                raise _is_there(before, hint="A name can be used for only one flag. Choose another name.")
            return before, replace(before, description=added.description)

        details = {"default": added.default, "description": added.description}
        return _change(self._engine, "experiment-add", plan, details, actor=actor, dry_run=dry_run)

    def set_default(self, name: str, default: bool, *, actor: str, dry_run: bool = False) -> ExperimentChange:
        wanted = _flag(default)

        def plan(connection: sa.Connection, _now: datetime) -> tuple[Experiment | None, Experiment]:
            before = _require(connection, name)
            if not wanted:
                _refuse_retired(before, hint="Add a new flag with another name.")
            return before, replace(before, default=wanted)

        details = {"before": not wanted, "default": wanted}
        return _change(self._engine, "experiment-set-default", plan, details, actor=actor, dry_run=dry_run)

    def retire(self, name: str, *, actor: str, dry_run: bool = False) -> ExperimentChange:
        def plan(connection: sa.Connection, now: datetime) -> tuple[Experiment | None, Experiment]:
            before = _require(connection, name)
            if before.is_retired:
                return before, before
            if not before.default:
                raise ConflictError(
                    f"{name} is off by default, but a retired flag is always on",
                    hint=f"First switch it on: registry experiment set-default {name} on",
                    details={"experiment": name},
                )
            if disabling := _disabling(connection, name):
                raise ConflictError(
                    f"{name} is switched off by {listed(disabling, _MAX_LISTED)}",
                    hint=f"It can be retired once {'it is' if len(disabling) == 1 else 'they are'} yanked or dropped.",
                    details={"experiment": name, "versions": disabling[:100], "num_versions": len(disabling)},
                )
            return before, replace(before, retired_at=now)

        return _change(self._engine, "experiment-retire", plan, {}, actor=actor, dry_run=dry_run)


def current_defaults(connection: sa.Connection) -> dict[str, bool]:
    """Whether each flag is on for a version that does not override it."""
    rows = connection.execute(sa.select(experiment.c.name, experiment.c.default_enabled)).all()
    return {name: bool(enabled) for name, enabled in rows}


def check_overrides(connection: sa.Connection, overrides: Mapping[str, bool]) -> dict[str, int]:
    """The rows of the flags that a version overrides; a transaction that publishes it keeps them unchanged.

    Raises:
        ExperimentNotFoundError: a flag was never added.
        ConflictError: a flag is retired.
    """
    if not overrides:
        return {}
    for name in overrides:
        check_text(name, "experiment")
    query = (
        sa.select(experiment.c.id, experiment.c.name, experiment.c.retired_at)
        .where(experiment.c.name.in_(sorted(overrides)))
        .order_by(experiment.c.name)  # all writers lock in this order, so they cannot deadlock
    )
    query = query.with_for_update(read=True) if is_writing(connection) else query
    result = {row.name: row for row in connection.execute(query).all()}
    for name in sorted(overrides):
        if name not in result:
            known = current_defaults(connection)
            if name in known:  # a rival added it between the two statements of a writer on PostgreSQL
                return check_overrides(connection, overrides)
            raise no_experiment(name, known, where="the catalog")
        if result[name].retired_at is not None:
            since = f"{result[name].retired_at:%Y-%m-%d}"
            raise ConflictError(
                f"{name} is retired and always on since {since}: new versions cannot override it",
                hint=f"Remove {name!r} from the version's experiments.",
                details={"experiment": name},
            )
    return {name: row.id for name, row in result.items()}


def refuse_retired(connection: sa.Connection, version: Reference) -> None:
    """Refuse to restore a withdrawn version that switches off a flag which was retired since.

    In a writing transaction it locks the flags of the version, so that none is retired until the transaction ends.

    Raises:
        ConflictError: naming the first such flag.
    """
    if version.exact is None:
        raise AssertionError("exactly one version is requested")
    query = (
        sa.select(experiment.c.name, experiment.c.retired_at)
        .select_from(_versions_and_flags())
        .where(is_version(version.name, version.config, version.exact), sa.not_(version_experiment.c.enabled))
        .order_by(experiment.c.name)  # all writers lock in this order, so they cannot deadlock
    )
    if is_writing(connection):
        query = query.with_for_update(read=True, of=experiment)
    for name, retired_at in connection.execute(query).all():
        if retired_at is not None:
            raise ConflictError(
                f"{version} switches off {name}, which is retired and always on since {retired_at:%Y-%m-%d}",
                hint="Publish the dataset again without that override, under a new version.",
                details={"experiment": name, "version": str(version)},
            )


def insert_overrides(connection: sa.Connection, version_id: int, overrides: Mapping[str, bool]) -> None:
    """Store the flags that a version overrides; raises the errors of ``check_overrides``."""
    for name, experiment_id in check_overrides(connection, overrides).items():
        values = {"version_id": version_id, "experiment_id": experiment_id, "enabled": bool(overrides[name])}
        connection.execute(sa.insert(version_experiment).values(**values))


def _change(
    engine: sa.Engine, action: str, plan: Plan, details: Mapping[str, Any], *, actor: str, dry_run: bool
) -> ExperimentChange:
    """Plan an action; unless it is a dry run or changes nothing, write the flag and the event. One transaction."""

    def transaction(connection: sa.Connection) -> ExperimentChange:
        now = read_clock(connection)
        before, after = plan(connection, now)
        if not dry_run and before != after:
            row = {"description": after.description, "default_enabled": after.default, "retired_at": after.retired_at}
            if before is None:
                connection.execute(sa.insert(experiment).values(name=after.name, created_at=now, **row))
            else:
                connection.execute(sa.update(experiment).where(experiment.c.name == after.name).values(**row))
            after = _require(connection, after.name)
            # A flag that an older release added implicitly is older than the event that describes it.
            rows_at = now if before is None or after.is_retired else None
            append_event(connection, action, "", {"name": after.name, **details}, actor=actor, rows_at=rows_at)
        return ExperimentChange(before=before, after=after)

    return transact(engine, transaction, actor=actor, dry_run=dry_run)


def _query() -> sa.Select[Any]:
    """Every flag with the number of live versions that switch it on and off."""

    def count(enabled: bool) -> sa.ScalarSelect[Any]:
        return (
            sa.select(sa.func.count())
            .select_from(version_experiment.join(dataset_version))
            .where(
                version_experiment.c.experiment_id == experiment.c.id,
                version_experiment.c.enabled == enabled,
                sa.not_(IS_WITHDRAWN),
            )
            .correlate(experiment)
            .scalar_subquery()
        )

    return sa.select(experiment, count(True).label("num_enabling"), count(False).label("num_disabling"))


def _read(row: sa.Row[*tuple[Any, ...]]) -> Experiment:
    return Experiment(
        name=row.name,
        description=row.description,
        default=bool(row.default_enabled),
        created_at=row.created_at,
        retired_at=row.retired_at,
        num_enabling=row.num_enabling,
        num_disabling=row.num_disabling,
    )


def _find(connection: sa.Connection, name: str) -> Experiment | None:
    check_text(name, "experiment")
    if is_writing(connection):
        # A statement of its own, so that the next one sees what a rival committed while this one waited.
        row_lock = sa.select(experiment.c.id).where(experiment.c.name == name).with_for_update()
        if connection.execute(row_lock).first() is None:  # a row that the next statement finds would not be locked
            return None
    with stored_values():
        row = connection.execute(_query().where(experiment.c.name == name)).first()
        return None if row is None else _read(row)


def _require(connection: sa.Connection, name: str) -> Experiment:
    while (result := _find(connection, name)) is None:
        known = current_defaults(connection)
        if name not in known:  # else a rival added it between the two statements
            raise no_experiment(name, known, where="the catalog")
    return result


def _disabling(connection: sa.Connection, name: str) -> list[str]:
    """The references of the live versions that switch a flag off, sorted by dataset and number."""
    rows = connection.execute(
        sa.select(builder.c.name, builder_config.c.name, *NUMBER)
        .select_from(_versions_and_flags())
        .where(experiment.c.name == name, sa.not_(version_experiment.c.enabled), sa.not_(IS_WITHDRAWN))
    ).all()
    with stored_values():
        return [
            str(Reference.exactly(dataset, config or None, Version(*number)))
            for dataset, config, *number in sorted(rows)
        ]


def _versions_and_flags() -> sa.Join:
    """``published_versions``, and the flags that each version overrides."""
    overrides = version_experiment.c.version_id == dataset_version.c.id
    return published_versions().join(version_experiment, overrides).join(experiment)


def _refuse_retired(found: Experiment, *, hint: str) -> None:
    if found.retired_at is not None:
        raise ConflictError(
            f"{found.name} is retired and always on since {found.retired_at:%Y-%m-%d}",
            hint=hint,
            details={"experiment": found.name},
        )


def _is_there(found: Experiment, *, hint: str) -> ConflictError:
    return ConflictError(
        f"{found.name} already exists, {_on_off(found.default)} by default: {found.description or 'not described'}",
        hint=hint,
        details={"experiment": found.name, "description": found.description, "default": found.default},
    )


def _check_description(description: object) -> str:
    if not isinstance(description, str) or not description.strip():
        raise UsageError(
            "an experiment needs a description", hint="Describe in one line what the flag changes when it is on."
        )
    return check_text(description, "description")


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"the default of an experiment must be True or False, not {value!r:.60}")
    return value


def _on_off(value: bool) -> str:
    return "on" if value else "off"
