"""The versions of a config at a moment that is gone: its events up to then, replayed.

Only the events of one dataset are read, by index: of one config, or of all where the default config is asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.events import find_datasets, read_events
from registry.catalog.queries import list_versions, load_version
from registry.catalog.selection import explain_refusal, no_default_config
from registry.catalog.values import PastLookUp, VersionSummary, damaged, stored_values
from registry.errors import ConfigNotFoundError, DatasetNotFoundError, VersionWithdrawnError
from registry.model import (
    Candidate,
    Event,
    Reference,
    Standing,
    Version,
    VersionState,
    choose,
    describe_moment,
)
from registry.model.standing import in_order

DATASET_ACTIONS: Final = frozenset(
    {
        "publish",
        "fingerprint",
        "remove-secrets",
        "promote",
        "default-config",
        "alias-set",
        "alias-remove",
        "deprecate",
        "yank",
        "drop",
    }
)
"""Actions that change the versions, aliases or configs of a dataset, beside those that begin with ``undo-``."""


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
    found = load_version(connection, standing.name, standing.config, then.version)
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
    """Every version that was published at ``moment``, the highest first, in the state that it had then. One snapshot.

    Raises:
        DatasetNotFoundError, ConfigNotFoundError: it does not exist, or did not exist yet.
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
        DatasetNotFoundError, ConfigNotFoundError: it does not exist, or did not exist yet.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedVersion:
    """One version as its events leave it.

    ``experiments`` are those it was built with, ``seal`` the digest of its other rows (``seals.py``), both None where
    they are not told; ``fingerprints`` the seals of its splits' fingerprints.
    """

    content_digest: str
    published_by: str
    experiments: Mapping[str, bool] | None = None
    seal: str | None = None
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    state: VersionState = VersionState.SUPPORTED
    message: str = ""
    superseded_by: Version | None = None


@dataclass(slots=True)
class ReplayedConfig:
    """One config as its events leave it: versions, the canonical one, and where aliases point."""

    versions: dict[Version, ReplayedVersion] = field(default_factory=dict)
    canonical: Version | None = None
    aliases: dict[str, Version] = field(default_factory=dict)


@dataclass(slots=True)
class Replayed:
    """A dataset as its events leave it, oldest first.

    Attributes:
        name: of the dataset; events of others are no concern of it.
        configs: by name; ``""`` is the one config of a dataset without configs.
        default_config: the config that a reference without one means, or None.

    >>> from datetime import UTC, datetime
    >>> told = {"content_digest": "0" * 64, "default_config": False, "num_examples": 9, "promote": True}
    >>> what = {"action": "publish", "dataset": "mnist", "version": "1.0.0", "details": told}
    >>> replayed = Replayed("mnist")
    >>> replayed.apply(Event(id=1, at=datetime.now(UTC), actor="ann", **what))
    >>> str(replayed.configs[""].canonical), replayed.default_config
    ('1.0.0', '')
    """

    name: str
    configs: dict[str, ReplayedConfig] = field(default_factory=dict)
    default_config: str | None = None

    def apply(self, event: Event) -> None:
        """Let ``event`` happen.

        Raises:
            ValueError, LookupError, TypeError, AttributeError: it does not say what it should, or contradicts what
                happened before, such as a version that nobody published.
        """
        if event.action not in DATASET_ACTIONS and not event.action.startswith("undo-"):
            return
        details = event.details
        if event.action == "default-config":
            if details["after"] not in self.configs:
                raise ValueError(f"no event published anything of the config {details['after']!r}")
            self.default_config = details["after"]
            return
        _, _, name = event.dataset.partition("/")
        if event.action == "publish":
            self._publish(name, event)
            return
        config = self.configs.get(name)
        if config is None:
            raise ValueError(f"no event published anything of {event.dataset}")
        match event.action:
            case "promote":
                config.canonical = _published(config, event.version)
            case "alias-set":
                config.aliases[_text(details["alias"])] = _published(config, details["after"])
            case "fingerprint":
                version = _published(config, event.version)
                config.versions[version] = replace(config.versions[version], fingerprints=dict(details))
            case "remove-secrets":
                _change_seal(config, _published(config, event.version), details.get("seal"))
            case "alias-remove":
                if config.aliases.pop(details["alias"], None) is None:
                    raise ValueError(f"there was no alias {details['alias']!r}")
            case _:
                _change_state(config, _published(config, event.version), details["after"])

    def _publish(self, name: str, event: Event) -> None:
        config = self.configs.setdefault(name, ReplayedConfig())
        version, details = Version.parse(event.version), event.details
        if version in config.versions:
            raise ValueError(f"an event published {version} before")
        config.versions[version] = ReplayedVersion(
            content_digest=_text(details["content_digest"]),
            published_by=event.actor,
            experiments=details.get("experiments"),
            seal=details.get("seal"),
            fingerprints=details.get("fingerprints", {}),
        )
        if "state" in details:
            _change_state(config, version, details)
        if details["promote"]:
            config.canonical = version
        if details["default_config"] or not name:
            self.default_config = name


def _change_seal(config: ReplayedConfig, version: Version, seals: Mapping[str, Any] | None) -> None:
    """Passwords were taken out of the row (migration 0008). Without seals it had been changed before."""
    if seals is None:
        return
    if config.versions[version].seal != seals["before"]:
        raise ValueError(f"it replaces a seal that {version} did not have")
    config.versions[version] = replace(config.versions[version], seal=_text(seals["after"]))


def _change_state(config: ReplayedConfig, version: Version, values: Mapping[str, Any]) -> None:
    successor = values.get("superseded_by")
    config.versions[version] = replace(
        config.versions[version],
        state=VersionState(values["state"]),
        message=_text(values["message"]),
        superseded_by=None if successor is None else Version.parse(successor),
    )


def _published(config: ReplayedConfig, number: str) -> Version:
    version = Version.parse(number)
    if version not in config.versions:
        raise ValueError(f"no event published {version}")
    return version


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text belongs here, not {type(value).__name__}")
    return value
