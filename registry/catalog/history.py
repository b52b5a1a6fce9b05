"""How did the versions of a config stand at a moment that is gone? Their events up to it, replayed.

Only the events of one dataset are read, by index: of one config, or of all where the default config is asked for.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from registry.catalog.log import find_datasets, read_events
from registry.catalog.not_found import explain_refusal, no_default_config
from registry.catalog.queries import list_versions, load_version
from registry.catalog.replay import Replayed, ReplayedConfig
from registry.catalog.rows import damaged, stored_values
from registry.catalog.summaries import VersionSummary
from registry.errors import ConfigNotFoundError, DatasetNotFoundError, VersionWithdrawnError
from registry.model import (
    Candidate,
    Choice,
    DatasetVersion,
    Reference,
    Standing,
    VersionState,
    choose,
    describe_moment,
)
from registry.model.standing import in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class PastLookUp:
    """What a reference gave at a moment.

    Attributes:
        version: what it gave, with its state, successor and canonical version as they were then.
        choice: why.
        now: how the version stands today.
    """

    version: DatasetVersion
    choice: Choice
    now: Candidate


def find_at(connection: sa.Connection, wanted: Reference, moment: datetime) -> PastLookUp:
    """What ``wanted`` gave at ``moment``. One snapshot: ``reading(engine)``.

    Raises:
        DatasetNotFoundError, ConfigNotFoundError, VersionNotFoundError, AliasNotFoundError: nothing answered then.
        VersionWithdrawnError: what answered was withdrawn then, or is dropped since.
    """
    standing = standing_at(connection, wanted.name, wanted.config, moment)
    choice = choose(standing, wanted)
    if choice.candidate is None:
        raise explain_refusal(choice, when=describe_moment(moment))
    then = choice.candidate
    exactly = standing.exactly(then.version)
    found = load_version(connection, exactly)
    if found is None:
        raise damaged(f"the event log tells of {exactly}, and no row does")
    if found.state is VersionState.DROPPED:
        why = f": {found.state_message}" if found.state_message else ""
        when = describe_moment(moment)
        is_exact = wanted.request is not None and wanted.request.exact is not None
        gave = f"{exactly} was there at {when}, and" if is_exact else f"{wanted} gave {exactly} at {when}, which"
        raise VersionWithdrawnError(
            f"{gave} is dropped since then{why}",
            hint=f"See what is left: registry versions {standing.dataset}",
        )
    now = Candidate(
        version=found.version, state=found.state, message=found.state_message, superseded_by=found.superseded_by
    )
    past = dataclasses.replace(
        found,
        state=then.state,
        state_message=then.message,
        superseded_by=then.superseded_by,
        canonical=standing.canonical,
    )
    return PastLookUp(version=past, choice=choice, now=now)


def versions_at(
    connection: sa.Connection, name: str, config: str | None, moment: datetime
) -> tuple[VersionSummary, ...]:
    """Every version that was published at ``moment``, the highest first, as it stood then. One snapshot.

    Raises:
        DatasetNotFoundError, ConfigNotFoundError: there is none, or there was none yet.
    """
    standing = standing_at(connection, name, config, moment)
    past = []
    for one in list_versions(connection, name, standing.config):
        then = standing.find(one.version)
        if then is not None:
            past.append(
                dataclasses.replace(
                    one,
                    canonical=standing.canonical,
                    state=then.state,
                    state_message=then.message,
                    superseded_by=then.superseded_by,
                )
            )
    return tuple(past)


def standing_at(connection: sa.Connection, name: str, config: str | None, moment: datetime) -> Standing:
    """The standing of a config at ``moment``, an event of that very moment included; None is what was the default one.

    Raises:
        DatasetNotFoundError, ConfigNotFoundError: there is none, or there was none yet.
        CatalogError: the events contradict each other: see ``registry log verify``.
    """
    replayed = _replay(connection, name, config, moment)
    chosen = replayed.default_config if config is None else config
    found = None if chosen is None else replayed.configs.get(chosen)
    if found is None or chosen is None:
        raise _was_not_there(connection, name, config, moment, replayed)
    return _make_standing(name, chosen or None, found)


def _replay(connection: sa.Connection, name: str, config: str | None, moment: datetime) -> Replayed:
    datasets = find_datasets(connection, name if config is None else f"{name}/{config}")
    replayed = Replayed(name)
    with stored_values():
        for event in read_events(connection, until=moment, datasets=datasets):
            replayed.apply(event)
    return replayed


def _make_standing(name: str, config: str | None, found: ReplayedConfig) -> Standing:
    return Standing(
        name=name,
        config=config,
        candidates=in_order(
            [
                Candidate(version=version, state=one.state, message=one.message, superseded_by=one.superseded_by)
                for version, one in found.versions.items()
            ]
        ),
        canonical=found.canonical,
        aliases=found.aliases,
    )


def _was_not_there(
    connection: sa.Connection, name: str, config: str | None, moment: datetime, replayed: Replayed
) -> DatasetNotFoundError | ConfigNotFoundError:
    """The error for a dataset, config or default config that there is, and was not yet."""
    when = describe_moment(moment)
    if replayed.configs:  # so no config was asked for, and several were there
        error = no_default_config(name, sorted(replayed.configs))
        return ConfigNotFoundError(f"{name} had no default config at {when}", hint=error.hint, details=error.details)
    datasets = find_datasets(connection, name if config is None else f"{name}/{config}")
    first = next(read_events(connection, datasets=datasets, actions=["publish"]), None)
    hint = None if first is None else f"Its first version was published at {describe_moment(first.at)}."
    dataset = name if config is None else f"{name}/{config}"
    kind = DatasetNotFoundError if config is None else ConfigNotFoundError
    return kind(f"{dataset} was not in the catalog at {when}", hint=hint, details={"name": dataset})
