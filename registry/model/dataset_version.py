"""A dataset version: the frozen value that every look-up returns, and the locations of its files.

A published row never changes. Mirrors and moved folders are recorded as steps, which are only appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from registry.errors import SplitNotFoundError, UsageError
from registry.lazy import lazy_types
from registry.model.reference import Reference, check_config, check_name
from registry.model.version import Version

if TYPE_CHECKING:
    from registry.model.split import Split
else:
    lazy_types(globals(), {"registry.model.split": "Split"})


class VersionState(StrEnum):
    """The stored state of a version. Versions are never deleted, and numbers are never reused."""

    SUPPORTED = "supported"
    DEPRECATED = "deprecated"
    YANKED = "yanked"
    DROPPED = "dropped"


WITHDRAWN: Final = frozenset({VersionState.YANKED, VersionState.DROPPED})


class VersionStatus(StrEnum):
    """A version's relation to the canonical one; derived from its state and number."""

    CANONICAL = "canonical"
    SUPPORTED = "supported"
    EXPERIMENTAL = "experimental"
    DEPRECATED = "deprecated"
    YANKED = "yanked"
    DROPPED = "dropped"


class SlicingRule(StrEnum):
    """How split expressions of a version are resolved; published with the version (docs/splits.md)."""

    DOCUMENTED = "documented"
    TFDS_4 = "tfds-4"

    @classmethod
    def of(cls, name: SlicingRule | str) -> SlicingRule:
        """The rule of that name.

        Args:
            name: ``documented`` or ``tfds-4``, or the rule itself.

        Raises:
            UsageError: the rule is unknown.
        """
        try:
            return cls(name)
        except ValueError as error:
            raise UsageError(
                f"unknown slicing rule {name!r:.60}", hint=f"Write {' or '.join(rule.value for rule in cls)}."
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetMetadata:
    """Text that describes a dataset. It does not affect the records.

    Attributes:
        description, homepage, citation, license: text, or ``""``.
        supervised_keys: paths of input and target, for ``as_supervised=True``, or None.
        config_description, config_tags: description and tags of the config.
        release_notes: release notes by version.
        custom: JSON values that an author or importer attached. TFDS keeps them in ``metadata.json``.
        extra: fields of ``dataset_info.json`` that this software does not know, unchanged.
        described: the fields that people set, independent of the source. The next ``registry add`` inherits them.
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
    described: tuple[str, ...] = ()

    @property
    def path_column(self) -> str | None:
        """The feature in which ``registry add`` stored the path of each file, or None."""
        match self.custom.get("intake"):
            case {"key": {"kind": "path", "columns": [str(column)]}}:
                return column
        return None

    @property
    def nullable_paths(self) -> frozenset[str]:
        """The paths inside lists where a value may be null; ``registry add`` stored it as a list of zero or one."""
        match self.custom.get("intake"):
            case {"nullable": list(paths)}:
                return frozenset(path for path in paths if isinstance(path, str))
        return frozenset()

    def in_source_order(self, names: Sequence[str]) -> Sequence[str]:
        """The names of features in the order of the columns that ``registry add`` read.

        Names that are not sorted are in an order that a caller chose, and are not reordered.
        """
        match self.custom.get("intake"):
            case {"columns": list(columns)} if list(names) == sorted(names) == sorted(map(str, columns)):
                return columns
        return names


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetVersion:
    """One published version of one config of one dataset.

    Attributes:
        name, config, version: identify the version. ``config`` is None if the dataset has no configs.
        names: every name that the dataset has had, oldest first; empty if it was never renamed.
        splits: the splits in the order of publication, which is also the order of ``all``.
        features_json: the schema as TFDS writes it, as JSON with sorted keys.
        labels: the class names, by the stem of the file in which TFDS stores them.
        location: the folder of its publication, relative to the data directory, or an absolute path or URL.
        location_steps: the mirrors that were added since, and the folders that were moved; see ``locations``.
        content_digest: 64 hex digits over everything that decides which records a reader gets (see ``content_digest``).
        superseded_by: the version to use instead of a yanked one, or None.
        canonical: the canonical version of the config at the time of the look-up, or None.
        version_to_prepare: the last version of the builder's code that can prepare it (a version or a commit), or
            None if the current code can.
        experiments: the experiment flags that this version overrides.
    """

    name: str
    version: Version
    splits: tuple[Split, ...]
    features_json: str
    location: str
    content_digest: str
    location_steps: tuple[LocationStep, ...] = ()
    config: str | None = None
    names: tuple[str, ...] = ()
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
        from registry.model.split import check_splits

        check_splits(self.splits, str(self.reference))

    @property
    def reference(self) -> Reference:
        """The exact reference of this version."""
        return Reference.exactly(self.name, self.config, self.version)

    def is_called(self, name: str) -> bool:
        """Whether its dataset has or had this name.

        Args:
            name: the name of a dataset.
        """
        return name == self.name or name in self.names

    @property
    def status(self) -> VersionStatus:
        """The state if it is not ``supported``; else canonical, experimental (above the canonical one) or supported."""
        return version_status(self.version, self.state, self.canonical)

    def split(self, name: str) -> Split:
        """The split of that name.

        Args:
            name: its name.

        Raises:
            SplitNotFoundError: the version has no split of that name; the hint suggests the nearest name.
        """
        for split in self.splits:
            if split.name == name:
                return split
        raise SplitNotFoundError.of(name, (split.name for split in self.splits), where=str(self.reference))

    @property
    def locations(self) -> tuple[str, ...]:
        """The folders with its files, in the order in which they are read; never empty."""
        return current_locations(self.location, self.location_steps)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the folder that is read first is outside the data directory."""
        return is_absolute(self.locations[0])

    @property
    def layout(self) -> Mapping[str, Split]:
        """The splits by name, in order, as ``registry.resolve`` takes them."""
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


StepKind: TypeAlias = Literal["add", "first", "remove"]


class LocationStep(NamedTuple):
    """One change of the locations of a version.

    Attributes:
        kind: ``add`` appends the location, ``first`` makes it the first one, ``remove`` removes it.
        location: a path below the data directory, an absolute path, or a URL.
    """

    kind: StepKind
    location: str


def current_locations(published: str, steps: Iterable[LocationStep]) -> tuple[str, ...]:
    """The current locations of a version, in the order in which they are read.

    >>> current_locations("mnist/1.0.0", [LocationStep("add", "s3://bucket/mnist"), LocationStep("first", "/data/m")])
    ('/data/m', 'mnist/1.0.0', 's3://bucket/mnist')

    Args:
        published: the location in the published row.
        steps: the changes since, oldest first.
    """
    result = [published]
    for kind, location in steps:
        if kind == "add" and location in result:
            continue
        if location in result:
            result.remove(location)
        if kind != "remove":
            result.insert(0 if kind == "first" else len(result), location)
    return tuple(result)


def is_absolute(location: str) -> bool:
    """Whether a location is an absolute path or a URL, and not a path below the data directory."""
    return location.startswith("/") or "://" in location
