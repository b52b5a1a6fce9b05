"""How did a dataset come to stand as it does? Its events, replayed one by one: pure, and without any table.

The log says it all: with every event of a dataset applied, this is what its tables have to hold (``log_verify.py``);
with those up to a moment, this is how it stood then. Actions that are not known here change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from registry.model import Event, Version, VersionState

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
"""What changes how a dataset stands, beside actions that begin with ``undo-``."""


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
