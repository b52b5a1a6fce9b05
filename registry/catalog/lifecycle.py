"""Changes of published versions, in SQL: promote, deprecate, yank, drop, undo, describe, and remove.

Each change is one transaction. It locks the row of the dataset, loads the standing, applies the pure rule
(``model/changes``), writes the result and appends an event. A dry run does the same without writing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, Unpack

import sqlalchemy as sa

from registry.catalog.configs import change_protection, find_protection
from registry.catalog.events import append_event, events_of_version, lock_log
from registry.catalog.experiments import refuse_retired
from registry.catalog.history import DESCRIBE, read_state
from registry.catalog.outcomes import Change, MetadataChange, Proposal, Removal, RemovalStep
from registry.catalog.pages import checks_limit
from registry.catalog.proposals import PROMOTE, approval_details, await_approval, load_proposals, reject
from registry.catalog.queries import find_version_id, load_version
from registry.catalog.removals import (
    append_removal,
    load_removals,
    plan_removal,
    refuse_removed,
    refuse_uses,
    state_values,
)
from registry.catalog.reservations import refuse_publishers
from registry.catalog.rows import check_text, decode_metadata, encode_metadata, version_seal
from registry.catalog.search import refresh
from registry.catalog.selection import explain_refusal, find_default_config, load_standing, lock_dataset
from registry.catalog.session import SqlGroup, reading, transact
from registry.catalog.tables import builder_config, dataset_version, split
from registry.catalog.values import stored_values
from registry.errors import UsageError
from registry.model import (
    Candidate,
    DatasetVersion,
    Description,
    Reference,
    Standing,
    Use,
    Version,
    VersionState,
    changes,
    choose,
)

if TYPE_CHECKING:
    from registry.catalog.backend import ChangeOptions

Transition: TypeAlias = Callable[[sa.Connection, Standing, Candidate], Standing]

UNDO: Final = "undo-"
"""Prefix of the action of an event that undoes another action."""


_STATES: Final = {
    "deprecate": VersionState.DEPRECATED,
    "yank": VersionState.YANKED,
    "drop": VersionState.DROPPED,
}


class SqlLifecycle(SqlGroup):
    """``LifecycleCalls`` in SQL."""

    def promote(self, reference: Reference, **options: Unpack[ChangeOptions]) -> Change:
        return self._change(PROMOTE, reference, _promote, **options)

    def deprecate(self, reference: Reference, message: str, **options: Unpack[ChangeOptions]) -> Change:
        check_text(message, "reason")
        return self._change(
            "deprecate", reference, lambda _, before, version: changes.deprecate(before, version, message), **options
        )

    def yank(
        self,
        reference: Reference,
        reason: str,
        superseded_by: Version | None = None,
        **options: Unpack[ChangeOptions],
    ) -> Change:
        check_text(reason, "reason")
        return self._change(
            "yank",
            reference,
            lambda _, before, version: changes.yank(before, version, reason, superseded_by),
            **options,
        )

    def drop(self, reference: Reference, reason: str, **options: Unpack[ChangeOptions]) -> Change:
        check_text(reason, "reason")
        return self._change(
            "drop", reference, lambda _, before, version: changes.drop(before, version, reason), **options
        )

    def undo(
        self,
        action: Literal["deprecate", "yank", "drop"],
        reference: Reference,
        **options: Unpack[ChangeOptions],
    ) -> Change:
        state = _STATES[action]

        def transition(connection: sa.Connection, standing: Standing, candidate: Candidate) -> Standing:
            after = changes.undo(standing, candidate, state, _before(connection, standing, candidate, action))
            restored = after.find(candidate.version)
            if candidate.is_withdrawn and restored is not None and not restored.is_withdrawn:
                refuse_retired(connection, standing.exactly(candidate.version))
            return after

        return self._change(UNDO + action, reference, transition, **options)

    def describe(
        self, reference: Reference, description: Description, *, actor: str, dry_run: bool = False
    ) -> MetadataChange:
        def act(connection: sa.Connection) -> MetadataChange:
            standing, candidate = _lock(connection, reference)
            version = load_version(connection, standing.name, standing.config, candidate.version)
            if version is None:
                raise AssertionError("a version that was just read must exist")
            with stored_values():
                names = json.loads(version.features_json)["featuresDict"]["features"]
            description.require_features(names)
            before = version.metadata
            # As it is read again: without secrets in URLs.
            stored = decode_metadata(encode_metadata(description.apply(before)), "{}")
            after = replace(stored, release_notes=before.release_notes)
            change = MetadataChange(reference=version.reference, before=before, after=after, is_dry_run=dry_run)
            if change.is_change and not dry_run:
                _write_metadata(connection, version, change, actor)
            return change

        return transact(self._engine, act, actor=actor, dry_run=dry_run)

    def remove(
        self,
        reference: Reference,
        *,
        grace: timedelta | None = None,
        force: bool = False,
        is_done: bool = False,
        actor: str,
        dry_run: bool = False,
        uses: Sequence[Use] = (),
    ) -> Removal:
        def act(connection: sa.Connection) -> Removal:
            standing, candidate = _lock(connection, reference)
            exactly = standing.exactly(candidate.version)
            removals = load_removals(connection, exactly.dataset)
            new = Removal(reference=exactly, actor=actor)
            before = next((removal for removal in removals if removal.reference == exactly), new)
            if before.step is not RemovalStep.PLANNED:
                after = replace(before, step=RemovalStep.ENDED if is_done else before.step)
            else:
                # A plan does not remember it: until the removal is due, others may begin to use the files.
                before = replace(before, force=force)
                is_default = find_default_config(connection, reference.name) == (standing.config or "")
                if not force:
                    concerned = [use for use in uses if _concerns(use.reference, standing, is_default=is_default)]
                    refuse_uses(standing, exactly, concerned)
                after = plan_removal(connection, standing, candidate, before, grace)
                if after.step is RemovalStep.BEGUN:
                    refuse_publishers(connection, exactly)
            if after == before:
                return replace(after, is_change=False)
            if not dry_run:
                append_removal(connection, after, candidate, actor=actor)
            return after

        return transact(self._engine, act, actor=actor, dry_run=dry_run)

    @checks_limit
    def removals(
        self, dataset: str | None = None, *, after: Reference | None = None, limit: int | None = None
    ) -> tuple[Removal, ...]:
        with reading(self._engine) as connection:
            return load_removals(connection, dataset, after=after, limit=limit)

    def approve(self, proposal: Proposal, *, actor: str, dry_run: bool = False) -> Proposal:
        def act(connection: sa.Connection) -> Proposal:
            about = proposal.reference
            if proposal.action == PROMOTE and about is not None:
                _make(connection, PROMOTE, about, _promote, approved=proposal, actor=actor, dry_run=dry_run)
            else:
                change_protection(connection, about, protect=False, approved=proposal, actor=actor, dry_run=dry_run)
            return proposal

        return transact(self._engine, act, actor=actor, dry_run=dry_run)

    def reject(self, proposal: Proposal, message: str = "", *, actor: str, dry_run: bool = False) -> Proposal:
        def act(connection: sa.Connection) -> Proposal:
            reject(connection, proposal, message, actor=actor, dry_run=dry_run)
            return proposal

        return transact(self._engine, act, actor=actor, dry_run=dry_run)

    def proposals(self, dataset: str | None = None) -> tuple[Proposal, ...]:
        with reading(self._engine) as connection:
            return load_proposals(connection, dataset)

    def _change(
        self,
        action: str,
        reference: Reference,
        transition: Transition,
        *,
        actor: str,
        dry_run: bool = False,
        uses: Sequence[Use] = (),
    ) -> Change:
        def act(connection: sa.Connection) -> Change:
            return _make(connection, action, reference, transition, actor=actor, dry_run=dry_run, uses=uses)

        return transact(self._engine, act, actor=actor, dry_run=dry_run)


def _promote(_: sa.Connection, before: Standing, candidate: Candidate) -> Standing:
    return changes.promote(before, candidate)


def _make(
    connection: sa.Connection,
    action: str,
    reference: Reference,
    transition: Transition,
    *,
    approved: Proposal | None = None,
    actor: str,
    dry_run: bool,
    uses: Sequence[Use] = (),
) -> Change:
    """Make a change, or propose it if it needs two persons; ``approved`` is a proposal that the actor approves."""
    before, candidate = _lock(connection, reference)
    if candidate.state is VersionState.DROPPED:
        exactly = before.exactly(candidate.version)
        refuse_removed(connection, exactly, hint=f"Its tombstone stays: registry versions {before.dataset}")
    is_default = find_default_config(connection, reference.name) == (before.config or "")
    change = Change(
        action=action,
        reference=before.exactly(candidate.version),
        before=before,
        after=transition(connection, before, candidate),
        is_default=is_default,
        uses=tuple(use for use in uses if _concerns(use.reference, before, is_default=is_default)),
        is_dry_run=dry_run,
    )
    if action == PROMOTE and (change.is_change or approved is not None):
        proposal = _await_approval(connection, change, candidate, approved, actor)
        change = replace(change, proposal=proposal)
    if change.is_change and not dry_run:
        _write(connection, change, actor, approval_details(approved))
    return change


def _await_approval(
    connection: sa.Connection, change: Change, candidate: Candidate, approved: Proposal | None, actor: str
) -> Proposal | None:
    """The proposal of a promotion that needs two persons; None if it may be made now."""
    lock_log(connection)  # from here on, nobody changes the protection
    standing = change.before
    scope = find_protection(connection, standing.name, standing.config, two_persons=True)
    if approved is None and scope is None:
        return None
    version_id = find_version_id(connection, standing.name, standing.config, candidate.version)
    digest = sa.select(dataset_version.c.content_digest).where(dataset_version.c.id == version_id)
    seen = {
        "canonical": None if standing.canonical is None else str(standing.canonical),
        "content_digest": connection.execute(digest).scalar_one(),
        "state": state_values(candidate),
    }
    return await_approval(
        connection,
        PROMOTE,
        standing.dataset,
        candidate.version,
        seen,
        approved=approved,
        actor=actor,
        dry_run=change.is_dry_run,
    )


def _write(connection: sa.Connection, change: Change, actor: str, approval: Mapping[str, Any]) -> None:
    version = change.reference.exact
    before, after = (None if version is None else standing.find(version) for standing in (change.before, change.after))
    if version is None or before is None or after is None:
        raise AssertionError("a version that was just read must exist")
    version_id = find_version_id(connection, change.after.name, change.after.config, version)
    config_id = connection.execute(
        sa.select(dataset_version.c.config_id).where(dataset_version.c.id == version_id)
    ).scalar_one()
    details: dict[str, Any]
    if change.action == PROMOTE:
        details = {
            "before": None if change.before.canonical is None else str(change.before.canonical),
            "after": str(version),
            **approval,
        }
        connection.execute(
            sa.update(builder_config).where(builder_config.c.id == config_id).values(canonical_version_id=version_id)
        )
    else:
        details = {"before": state_values(before), "after": state_values(after)}
        connection.execute(
            sa.update(dataset_version)
            .where(dataset_version.c.id == version_id)
            .values(
                state=after.state.value,
                state_message=after.message,
                superseded_by=None if after.superseded_by is None else str(after.superseded_by),
            )
        )
    refresh(connection, config_id)  # another version of the config may be the one that is searched now
    append_event(connection, change.action, change.after.exactly(version), details, actor=actor)


def _write_metadata(connection: sa.Connection, version: DatasetVersion, change: MetadataChange, actor: str) -> None:
    is_version = dataset_version.c.id == find_version_id(connection, version.name, version.config, version.version)
    row = connection.execute(sa.select(dataset_version).where(is_version)).one()._asdict()
    of_version = sa.select(split).where(split.c.version_id == row["id"]).order_by(split.c.position)
    splits = [part._asdict() for part in connection.execute(of_version)]
    values = {"metadata_json": encode_metadata(change.after)}
    connection.execute(sa.update(dataset_version).where(is_version).values(values))
    refresh(connection, row["config_id"])
    before, after = (version_seal(columns, splits, version.experiments) for columns in (row, {**row, **values}))
    details = {
        "before": {name: getattr(change.before, name) for name in change.fields},
        "after": {name: getattr(change.after, name) for name in change.fields},
        "seal": {"before": before, "after": after},
    }
    append_event(connection, DESCRIBE, version.reference, details, actor=actor)


def _before(connection: sa.Connection, standing: Standing, candidate: Candidate, action: str) -> Candidate:
    """The state of ``candidate`` before ``action``; supported if it was published in its current state."""
    with stored_values():
        for event in events_of_version(connection, standing.dataset, str(candidate.version), action):
            told = event.details
            if told["before"]["state"] != told["after"]["state"]:  # else the action was repeated with another reason
                return read_state(candidate.version, told["before"])
    return Candidate(version=candidate.version)


def _lock(connection: sa.Connection, reference: Reference) -> tuple[Standing, Candidate]:
    """Lock the dataset; its standing, and the version that ``reference`` names."""
    lock_dataset(connection, reference.name)
    standing = load_standing(connection, reference.name, reference.config)
    return standing, _named(standing, reference)


def _named(standing: Standing, reference: Reference) -> Candidate:
    """The one version that ``reference`` names, in any state."""
    exact = reference.exact if reference.alias is None else standing.aliases.get(reference.alias)
    result = None if exact is None else standing.find(exact)
    if result is not None:
        return result
    choice = choose(standing, reference)
    if reference.alias is None and reference.exact is None:
        today = None if choice.version is None else standing.exactly(choice.version)
        raise UsageError(
            f"{reference} does not name one version",
            hint=f"Name it exactly, or by an alias, e.g. {reference.dataset}:1.0.0."
            if today is None
            else f"Name it exactly, or by an alias. Today {reference} gives {today}.",
        )
    raise explain_refusal(choice)


def _concerns(reference: Reference, standing: Standing, *, is_default: bool) -> bool:
    """Whether ``standing`` is the config that ``reference`` refers to."""
    if not standing.is_called(reference.name):
        return False
    return reference.config == standing.config or (reference.config is None and is_default)
