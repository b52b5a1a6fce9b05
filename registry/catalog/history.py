"""The state of a config at a past moment, computed by replaying its events up to that moment.

An index finds the events of one dataset: of one config, or of all its configs if the default config is requested.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.attachments import ATTACH
from registry.catalog.events import UNREADABLE, describe_event, find_datasets, once_for_pages, read_events
from registry.catalog.locations import MIRROR_ADD, MIRROR_REMOVE, RELOCATE, told_steps
from registry.catalog.names import RENAME, present_names, told_as
from registry.catalog.queries import list_versions, load_version
from registry.catalog.removals import REMOVE
from registry.catalog.rows import read_attachment, require_text
from registry.catalog.selection import explain_refusal, no_default_config
from registry.catalog.values import PastLookUp, VersionSummary, damaged, stored_values
from registry.errors import ConfigNotFoundError, DatasetNotFoundError, LogTamperedError, VersionWithdrawnError
from registry.model import (
    Attachment,
    Candidate,
    DatasetMetadata,
    DatasetVersion,
    Event,
    Reference,
    Standing,
    Version,
    VersionState,
    choose,
    describe_moment,
)
from registry.model.standing import in_order

DESCRIBE: Final = "describe"

DATASET_ACTIONS: Final = frozenset(
    {
        "publish",
        "fingerprint",
        ATTACH,
        "remove-secrets",
        DESCRIBE,
        "promote",
        "default-config",
        RENAME,
        "alias-set",
        "alias-remove",
        "deprecate",
        "yank",
        "drop",
        REMOVE,
        MIRROR_ADD,
        MIRROR_REMOVE,
        RELOCATE,
    }
)
"""Actions that change the versions, aliases or configs of a dataset. Actions that begin with ``undo-`` do as well."""


def find_at(connection: sa.Connection, reference: Reference, moment: datetime) -> PastLookUp:
    """See ``CatalogBackend.find_at``; ``connection`` must show one snapshot (``reading(engine)``)."""
    standing = standing_at(connection, reference.name, reference.config, moment)
    choice = choose(standing, reference)
    if choice.candidate is None:
        raise explain_refusal(choice, when=describe_moment(moment))
    then = choice.candidate
    exactly = standing.exactly(then.version)
    version = load_version(connection, standing.name, standing.config, then.version)
    if version is None:
        raise damaged(f"the event log contains {exactly}, but it has no row")
    if version.state is VersionState.DROPPED:
        why = f": {version.state_message}" if version.state_message else ""
        when = describe_moment(moment)
        start = (
            f"{exactly} existed at {when}, but"
            if reference.exact
            else f"{reference} resolved to {exactly} at {when}, but that version"
        )
        raise VersionWithdrawnError(
            f"{start} has been dropped since{why}",
            hint=f"List the remaining versions: registry versions {standing.dataset}",
        )
    now = Candidate(
        version=version.version, state=version.state, message=version.state_message, superseded_by=version.superseded_by
    )
    past = replace(version, metadata=_metadata_at(connection, version, moment), **_as_it_was(standing, then))
    return PastLookUp(version=past, choice=choice, now=now)


def _metadata_at(connection: sa.Connection, version: DatasetVersion, moment: datetime) -> DatasetMetadata:
    """The metadata of a version before it was described later: each event has the values before it."""
    fields: dict[str, Any] = {}
    with stored_values():
        for event in read_events(
            connection, since=moment, datasets=told_as(connection, version.reference.dataset), actions=[DESCRIBE]
        ):
            if event.version == str(version.version) and event.at > moment:
                fields = event.details["before"] | fields
        fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        return replace(version.metadata, **fields)


def versions_at(
    connection: sa.Connection,
    name: str,
    config: str | None,
    moment: datetime,
    *,
    below: Version | None = None,
    limit: int | None = None,
) -> tuple[VersionSummary, ...]:
    """See ``CatalogBackend.versions``, at a moment; ``connection`` must show one snapshot."""
    standing = once_for_pages(
        connection,
        lambda: standing_at(connection, name, config, moment),
        *("versions", name, config, moment),
        limit=limit,
        is_first=below is None,
    )
    highest_first = standing.candidates
    start = 0
    if below is not None:
        start = bisect_right(highest_first, _negated(below), key=lambda it: _negated(it.version))
    candidates = highest_first[start:][:limit]
    if not candidates:
        return ()
    return tuple(
        replace(version, **_as_it_was(standing, then))
        for version in list_versions(connection, name, standing.config, below=below, least=candidates[-1].version)
        if (then := standing.find(version.version)) is not None
    )


def _negated(version: Version) -> tuple[int, ...]:
    return tuple(-part for part in version.parts)


def _as_it_was(standing: Standing, then: Candidate) -> dict[str, Any]:
    """The changeable fields of a version, or of its summary, as they were at the moment of ``standing``."""
    return {
        "state": then.state,
        "state_message": then.message,
        "superseded_by": then.superseded_by,
        "canonical": standing.canonical,
    }


def standing_at(connection: sa.Connection, name: str, config: str | None, moment: datetime) -> Standing:
    """The standing of a config at ``moment``, including events at that moment. None means the default config then.

    Raises:
        DatasetNotFoundError, ConfigNotFoundError: the dataset or the config does not exist, or did not exist yet.
        LogTamperedError: an event is impossible, e.g. a publication without a digest.
        CatalogError: an event cannot be read.
    """
    dataset = name if config is None else f"{name}/{config}"
    replayed, present = Replayed(), present_names(connection)
    datasets = {*find_datasets(connection, dataset), *told_as(connection, name)}
    for event in read_events(connection, until=moment, datasets=datasets):
        try:
            if config is None or "/" in event.dataset or event.action == RENAME:
                replayed.apply(event)
        except UNREADABLE as error:
            raise LogTamperedError(
                f"{describe_event(event)} cannot have happened: {describe_refusal(error)}. So the state of "
                f"{dataset} at {describe_moment(moment)} is unknown",
                hint="Other software wrote the event. registry log verify names all such events; the owner of the "
                "database can set them aside as described in docs/troubleshooting.md.",
                details={"event": event.id, "faults": []},
            ) from error
    chosen = replayed.default_config if config is None else config
    result = None if chosen is None else replayed.configs.get(chosen)
    if result is None:
        raise _was_not_there(connection, dataset, moment, replayed)
    candidates = in_order([version.candidate for version in result.versions.values()])
    return Standing(
        name=present.get(name, name),
        names=tuple(former for former in present if present[former] == present.get(name)),
        config=chosen or None,
        candidates=candidates,
        canonical=result.canonical,
        aliases={alias: version for alias, (version, _) in result.aliases.items()},
    )


def describe_refusal(error: Exception) -> str:
    """Why ``Replayed.apply`` refused an event.

    >>> describe_refusal(KeyError("content_digest"))
    "its details lack 'content_digest'"
    """
    return f"its details lack {error}" if isinstance(error, KeyError) else str(error)


def _was_not_there(
    connection: sa.Connection, dataset: str, moment: datetime, replayed: Replayed
) -> DatasetNotFoundError | ConfigNotFoundError:
    """The error for a dataset, config or default config that exists now and did not exist at the moment."""
    when = describe_moment(moment)
    if replayed.configs:  # so the default config was requested, and there were several configs
        error = no_default_config(dataset, sorted(replayed.configs))
        return ConfigNotFoundError(f"{dataset} had no default config at {when}", hint=error.hint, details=error.details)
    datasets = find_datasets(connection, dataset)
    first = next(read_events(connection, datasets=datasets, actions=["publish"]), None)
    hint = None if first is None else f"Its first version was published at {describe_moment(first.at)}."
    kind = ConfigNotFoundError if "/" in dataset else DatasetNotFoundError
    return kind(f"{dataset} was not in the catalog at {when}", hint=hint, details={"name": dataset})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedVersion:
    """One version after its events: ``candidate`` is its state.

    ``experiments`` are the flags it was built with and ``seal`` is the digest of its other rows (``rows.py``); both are
    None if the event lacks them. ``fingerprints`` are the seals of the fingerprints of its splits. ``steps`` are the
    changes of its locations: kind, location, and the event. ``attachments`` are its attachments, each with the event
    that added it. ``published`` is the event of its publication.
    """

    candidate: Candidate
    content_digest: str
    published_by: str
    published: Event
    experiments: Mapping[str, bool] | None = None
    seal: str | None = None
    entity_tags: str | None = None
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[tuple[str, str, Event], ...] = ()
    attachments: Mapping[Attachment, Event] = field(default_factory=dict)


@dataclass(slots=True)
class ReplayedConfig:
    """One config after its events: its versions, the canonical one, and the target of each alias with its event."""

    versions: dict[Version, ReplayedVersion] = field(default_factory=dict)
    canonical: Version | None = None
    aliases: dict[str, tuple[Version, Event]] = field(default_factory=dict)


@dataclass(slots=True)
class Replayed:
    """A dataset after its events, which are applied oldest first.

    Attributes:
        name: its current name; ``""`` before its first event.
        names: see ``DatasetVersion.names``.
        configs: the configs by name; ``""`` is the only config of a dataset without configs.
        default_config: the config that a reference without a config means, or None.

    >>> from datetime import UTC, datetime
    >>> told = {"content_digest": "0" * 64, "default_config": False, "num_examples": 9, "promote": True}
    >>> what = {"action": "publish", "dataset": "mnist", "version": "1.0.0", "details": told}
    >>> replayed = Replayed()
    >>> replayed.apply(Event(id=1, at=datetime.now(UTC), actor="ann", **what))
    >>> str(replayed.configs[""].canonical), replayed.default_config
    ('1.0.0', '')
    """

    name: str = ""
    names: list[str] = field(default_factory=list)
    configs: dict[str, ReplayedConfig] = field(default_factory=dict)
    default_config: str | None = None

    def apply(self, event: Event) -> None:
        """Apply ``event``.

        Raises:
            ValueError, LookupError, TypeError, AttributeError: the event is malformed or contradicts earlier events,
                e.g. changes a version that no event published.
        """
        if event.action not in DATASET_ACTIONS and not event.action.startswith("undo-"):
            return
        details = event.details
        _, _, name = event.dataset.partition("/")
        self._follow_name(event)
        if event.action == RENAME:
            return
        if event.action == "default-config":
            if details["after"] not in self.configs:
                raise ValueError(f"no event published a version of the config {details['after']!r}")
            self.default_config = details["after"]
            return
        if event.action == "publish":
            self._publish(name, event)
            return
        config = self.configs.get(name)
        if config is None:
            raise ValueError(f"no event published a version of {event.dataset}")
        match event.action:
            case "promote":
                config.canonical = _published(config, event.version)
            case "alias-set":
                config.aliases[require_text(details["alias"])] = _published(config, details["after"]), event
            case "fingerprint":
                version = _published(config, event.version)
                config.versions[version] = replace(config.versions[version], fingerprints=dict(details))
            case "attach":
                version = _published(config, event.version)
                before = config.versions[version]
                attachments = {**before.attachments, read_attachment(details): event}
                config.versions[version] = replace(before, attachments=attachments)
            case "remove-secrets" | "describe":
                _change_seal(config, _published(config, event.version), details.get("seal"))
            case "mirror-add" | "mirror-remove" | "relocate":
                version = _published(config, event.version)
                known = config.versions[version]
                steps = told_steps(event.action, details)
                told = tuple((kind, require_text(location), event) for kind, location in steps)
                config.versions[version] = replace(known, steps=(*known.steps, *told))
            case "alias-remove":
                if config.aliases.pop(details["alias"], None) is None:
                    raise ValueError(f"there was no alias {details['alias']!r}")
            case _:
                version = _published(config, event.version)
                candidate = read_state(version, details["after"])
                config.versions[version] = replace(config.versions[version], candidate=candidate)

    def _follow_name(self, event: Event) -> None:
        name, _, _ = event.dataset.partition("/")
        if name != (self.name or name):
            raise ValueError(f"the dataset had the name {self.name!r} by then")
        self.name = name
        if event.action == RENAME:
            if event.details["before"] != name or not self.configs:
                raise ValueError(f"there was no dataset {event.details['before']!r}")
            self.name = require_text(event.details["after"])
            self.names = list(dict.fromkeys([*self.names, name, self.name]))

    def _publish(self, name: str, event: Event) -> None:
        config = self.configs.setdefault(name, ReplayedConfig())
        version, details = Version.parse(event.version), event.details
        if version in config.versions:
            raise ValueError(f"an event published {version} before")
        config.versions[version] = ReplayedVersion(
            candidate=read_state(version, details) if "state" in details else Candidate(version=version),
            content_digest=require_text(details["content_digest"]),
            published_by=require_text(details.get("imported_from", {}).get("published_by", event.actor)),
            published=event,
            experiments=details.get("experiments"),
            seal=details.get("seal"),
            entity_tags=details.get("entity_tags"),
            fingerprints=details.get("fingerprints", {}),
            attachments={read_attachment(listed): event for listed in details.get("attachments", ())},
        )
        if details["promote"]:
            config.canonical = version
        if details["default_config"] or not name:
            self.default_config = name


def _change_seal(config: ReplayedConfig, version: Version, seals: Mapping[str, Any] | None) -> None:
    """``describe`` or migration 0008, which removed passwords, changed the row.

    Without seals, the row had been changed before. Events of publications by older registries have no seal.
    """
    if seals is None:
        return
    if config.versions[version].seal not in (None, seals["before"]):
        raise ValueError(f"it replaces a seal that {version} did not have")
    config.versions[version] = replace(config.versions[version], seal=require_text(seals["after"]))


def read_state(version: Version, values: Mapping[str, Any]) -> Candidate:
    """Parse the state of a version in an event."""
    successor = values.get("superseded_by")
    return Candidate(
        version=version,
        state=VersionState(values["state"]),
        message=require_text(values["message"]),
        superseded_by=None if successor is None else Version.parse(successor),
    )


def _published(config: ReplayedConfig, number: str) -> Version:
    version = Version.parse(number)
    if version not in config.versions:
        raise ValueError(f"no event published {version}")
    return version
