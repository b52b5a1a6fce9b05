"""A dataset version: the frozen value that every look-up returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from registry.errors import SplitNotFoundError, UsageError
from registry.model.reference import Reference, check_config, check_name
from registry.model.split import Split, check_splits
from registry.model.version import Version


class VersionState(StrEnum):
    """What the publisher says of a version; stored. Never deleted: a number is used once."""

    SUPPORTED = "supported"
    DEPRECATED = "deprecated"
    YANKED = "yanked"
    DROPPED = "dropped"


class VersionStatus(StrEnum):
    """A version's relation to the canonical one; derived from its state and number."""

    CANONICAL = "canonical"
    SUPPORTED = "supported"
    EXPERIMENTAL = "experimental"
    DEPRECATED = "deprecated"
    YANKED = "yanked"
    DROPPED = "dropped"


class SlicingRule(StrEnum):
    """How split expressions of a version are resolved; part of what was published (docs/splits.md)."""

    DOCUMENTED = "documented"
    TFDS_4 = "tfds-4"

    @classmethod
    def of(cls, name: SlicingRule | str) -> SlicingRule:
        """The rule of that name; UsageError if it is unknown."""
        try:
            return cls(name)
        except ValueError as error:
            raise UsageError(
                f"unknown slicing rule {name!r:.60}", hint=f"There are: {', '.join(rule.value for rule in cls)}."
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetMetadata:
    """Descriptive text about a dataset: it changes no record.

    ``custom`` holds JSON values that a dataset's author or importer attaches, which TFDS keeps in ``metadata.json``.
    ``extra`` keeps fields of ``dataset_info.json`` that this software does not know, as they were.
    """

    description: str = ""
    homepage: str = ""
    citation: str = ""
    license: str = ""
    supervised_keys: tuple[str, ...] | None = None
    config_description: str = ""
    config_tags: tuple[str, ...] = ()
    release_notes: Mapping[str, str] = field(default_factory=dict)
    custom: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetVersion:
    """One published version of one config of one dataset.

    Attributes:
        name, config, version: its place in the catalog; config None where the builder has no configs.
        splits: in the order of publication, which is also the order of ``all``.
        features_json: the schema as TFDS writes it, canonical text (sorted keys).
        labels: the class names of labels, which TFDS keeps outside the schema, by the stem of their file.
        location: the version's folder, relative to the data directory, or an absolute path or URL.
        content_digest: 64 hex digits over everything that decides which records a reader gets (see ``content_digest``).
        superseded_by: the version to use in its place, where it was withdrawn for one.
        canonical: the version an unversioned look-up gives at the moment of the look-up, or None.
        version_to_prepare: the last version of the builder's code that can prepare it, where today's code cannot: a
            version or a commit.
        experiments: flags that this version overrides.
    """

    name: str
    version: Version
    splits: tuple[Split, ...]
    features_json: str
    location: str
    content_digest: str
    config: str | None = None
    state: VersionState = VersionState.SUPPORTED
    state_message: str = ""
    superseded_by: Version | None = None
    canonical: Version | None = None
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    file_format: str = "tfrecord"
    slicing: SlicingRule = SlicingRule.DOCUMENTED
    disable_shuffling: bool = False
    version_to_prepare: str | None = None
    experiments: Mapping[str, bool] = field(default_factory=dict)
    metadata: DatasetMetadata = field(default_factory=DatasetMetadata)
    published_at: datetime | None = None
    published_by: str = ""

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.config is not None:
            check_config(self.config)
        check_splits(self.splits, str(self.reference))

    @property
    def reference(self) -> Reference:
        """The reference that names exactly this version."""
        return Reference.exactly(self.name, self.config, self.version)

    @property
    def status(self) -> VersionStatus:
        """Canonical, experimental (above the canonical) or supported; or the state, where it is another one."""
        return version_status(self.version, self.state, self.canonical)

    def split(self, name: str) -> Split:
        """The split of that name; SplitNotFoundError offers the nearest."""
        for split in self.splits:
            if split.name == name:
                return split
        raise SplitNotFoundError.of(name, (split.name for split in self.splits), where=str(self.reference))

    @property
    def is_elsewhere(self) -> bool:
        """Whether its folder has a place of its own, which is not below the data directory."""
        return self.location.startswith("/") or "://" in self.location

    @property
    def layout(self) -> Mapping[str, Split]:
        """The splits by name, in order: what the resolver needs."""
        return MappingProxyType({split.name: split for split in self.splits})

    @property
    def num_examples(self) -> int:
        """Number of records of all splits."""
        return sum(split.num_examples for split in self.splits)


def version_status(version: Version, state: VersionState, canonical: Version | None) -> VersionStatus:
    """The relation of ``version`` to the ``canonical`` one: see ``VersionStatus``.

    >>> version_status(Version(3, 1, 0), VersionState.SUPPORTED, Version(3, 0, 1)).value
    'experimental'
    """
    if state is not VersionState.SUPPORTED:
        return VersionStatus(state.value)
    if canonical is None or version > canonical:
        return VersionStatus.EXPERIMENTAL
    return VersionStatus.CANONICAL if version == canonical else VersionStatus.SUPPORTED
