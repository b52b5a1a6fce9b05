"""The base class of datasets: an author writes a class with a version, features, and splits of keyed examples.

The smallest one::

    class Squares(DatasetBuilder):
        VERSION = "1.0.0"

        def features(self):
            return FeaturesDict({"number": Scalar("int64"), "square": Scalar("int64")})

        def splits(self):
            return {"train": ((n, {"number": n, "square": n * n}) for n in range(100))}

Class attributes are checked when the class is defined, so that a mistake shows at import, not after hours of building.
"""

from __future__ import annotations

import copy
import inspect
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, cast

from registry.errors import ConfigNotFoundError, ReferenceSyntaxError, RegistryError, UsageError, VersionNotFoundError
from registry.model import DatasetMetadata, Reference, Version, VersionRequest, check_config, check_new_name, fold_name

if TYPE_CHECKING:
    from registry.building.generation import Key
    from registry.features import FeaturesDict


_LIKE_A_VERSION = re.compile(r"v?[0-9]+(\.[0-9]+)+")
_VERSION_HINT = 'Give the class a line such as VERSION = "1.0.0".'

Examples: TypeAlias = "Iterable[tuple[Key, Any]] | Callable[[], Iterable[tuple[Key, Any]]]"
"""What ``splits()`` gives for one split: (key, example) pairs, or a function without arguments that yields them."""


class DatasetBuilder(ABC):
    """Base of every dataset. An instance builds one version of one config.

    Class attributes, all but ``VERSION`` optional:

    * ``name``: the dataset's name; the class name in snake_case unless given.
    * ``VERSION``: the canonical version, e.g. "3.0.1". Not needed where every config has its own.
    * ``SUPPORTED_VERSIONS``: further versions that this code can build; ask ``self.version`` while generating. One with
      ``version_to_prepare`` can only be read, where it was prepared by that older code and published.
    * ``RELEASE_NOTES``: version -> what changed.
    * ``BUILDER_CONFIGS``: variants of the dataset; the default is ``DEFAULT_CONFIG``, or the first.
    * ``DESCRIPTION`` (default: the class docstring), ``HOMEPAGE``, ``LICENSE``, ``CITATION``: text for people.
    * ``SOURCES``: what it is made of, URL -> sha256 (64 hex digits) of what was fetched from there; kept with every
      version and pin.
    * ``METADATA``: JSON values by name, kept with every version: ``dataset.info.metadata``, ``metadata.json`` on disk.
    * ``SUPERVISED_KEYS``: names of the input feature and of the label.
    * ``NUM_SHARDS``: shards of each split, or a dict of split -> number; by size and count, as TFDS does, unless given.
    * ``DISABLE_SHUFFLING``: True keeps records in the order of their keys, or of generation where keys are no numbers.

    Args:
        config: name of a config; None is the default one.
        version: an exact version, a request like ``3.*.*``, which takes the highest that this code can build (where it
            can build none of them, the highest), or None for the canonical one.

    Attributes:
        config: the BuilderConfig that is built, None where the dataset has none.
        version: the Version that is built. ``self.version.implements(flag)`` tells whether an experiment is on; for
            flags that the version does not override it knows the defaults of the catalog that it is built for.

    Raises:
        UsageError: at the definition of the class: an attribute is not of its form.
        ConfigNotFoundError: no config of that name.
        VersionNotFoundError: this code cannot build that version; the hint lists those it can.
    """

    name: ClassVar[str]
    VERSION: ClassVar[Version | str | None] = None
    SUPPORTED_VERSIONS: ClassVar[Iterable[Version | str]] = ()
    RELEASE_NOTES: ClassVar[Mapping[str, str]] = {}
    BUILDER_CONFIGS: ClassVar[Iterable[BuilderConfig]] = ()
    DEFAULT_CONFIG: ClassVar[str | None] = None
    DESCRIPTION: ClassVar[str] = ""
    HOMEPAGE: ClassVar[str] = ""
    LICENSE: ClassVar[str] = ""
    CITATION: ClassVar[str] = ""
    SOURCES: ClassVar[Mapping[str, str]] = {}
    METADATA: ClassVar[Mapping[str, Any]] = {}
    SUPERVISED_KEYS: ClassVar[tuple[str, ...] | None] = None
    NUM_SHARDS: ClassVar[int | Mapping[str, int] | None] = None
    DISABLE_SHUFFLING: ClassVar[bool] = False

    @abstractmethod
    def features(self) -> FeaturesDict:
        """The schema of one example."""

    @abstractmethod
    def splits(self) -> Mapping[str, Examples]:
        """The examples of each split, by split name, in the order in which the splits are listed ever after.

        A key is text, a whole number or bytes, unique in its split, and the same on every run: it alone decides where
        the example lies.
        """

    def __init__(self, *, config: str | None = None, version: str | Version | VersionRequest | None = None) -> None:
        self.config: Any = self._pick_config(config)  # Any: authors read the fields of their own subclass
        self.version = self._pick_version(version)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = fold_name(cls.__name__)
        _check_class(cls)

    @classmethod
    def pick(cls, reference: Reference | str) -> Self:
        """The builder of what ``reference`` names; its name part is not looked at, see ``registry.building.discovery``.

        Raises:
            UsageError: the reference names an alias: aliases name versions that are published.
        """
        wanted = Reference.parse(reference) if isinstance(reference, str) else reference
        if wanted.alias is not None:
            raise UsageError(
                f"{wanted} names a published version, and not one to build",
                hint=f"Name the version, {wanted.dataset}:x.y.z, or none for the canonical one.",
                details={"reference": str(wanted)},
            )
        return cls(config=wanted.config, version=wanted.request)

    @classmethod
    def configs(cls) -> dict[str, BuilderConfig]:
        """The configs by name, in the author's order."""
        return {config.name: config for config in cls.BUILDER_CONFIGS}

    @classmethod
    def default_config(cls) -> str | None:
        """Name of the config that is meant where none is named, None where there are none."""
        return cls.DEFAULT_CONFIG if cls.DEFAULT_CONFIG is not None else next(iter(cls.configs()), None)

    @classmethod
    def versions(cls, config: str | None = None) -> list[Version]:
        """What this code can build of ``config`` (None: the default one): the canonical version, then the others."""
        chosen = cls._pick_config(config)
        own = chosen.version if chosen is not None else None
        canonical = own if own is not None else cls.VERSION
        if canonical is None:
            raise bad_attribute(f"{cls.__name__}.VERSION", None, "a builder needs a version", hint=_VERSION_HINT)
        first = read_version(canonical, f"{cls.__name__}.VERSION")
        where = f"{cls.__name__}.SUPPORTED_VERSIONS"
        others = read_versions(
            (chosen.supported_versions if chosen is not None else ()) or cls.SUPPORTED_VERSIONS, where
        )
        said = (dict(first.experiments), first.version_to_prepare)
        if any(other == first and (dict(other.experiments), other.version_to_prepare) != said for other in others):
            problem = "it is the canonical version, too, and says other things of it"
            raise bad_attribute(where, str(first), problem, hint="Write it once, as the canonical version.")
        return [first, *(other for other in others if other != first)]

    def with_experiment_defaults(self, defaults: Mapping[str, bool]) -> Self:
        """A copy whose ``version`` answers for these flags, too; this builder stays as it is."""
        bound = copy.copy(self)
        bound.version = self.version.with_defaults(defaults)
        return bound

    @property
    def reference(self) -> Reference:
        """``name[/config]:version`` of what is built."""
        return Reference.exactly(self.name, self.config_name, self.version)

    @property
    def canonical_version(self) -> Version:
        """The version that is built where none is named: the config's own, else ``VERSION``."""
        return self.versions(self.config_name)[0]

    @property
    def config_name(self) -> str | None:
        """Name of the config that is built, None where the dataset has none."""
        return None if self.config is None else cast("BuilderConfig", self.config).name

    @property
    def metadata(self) -> DatasetMetadata:
        """What the author says about the dataset; a config's release notes stand in for the builder's."""
        config: BuilderConfig | None = self.config
        notes = (config.release_notes if config is not None else None) or self.RELEASE_NOTES
        return DatasetMetadata(
            description=self.DESCRIPTION or _own_docstring(type(self)),
            homepage=self.HOMEPAGE,
            citation=self.CITATION,
            license=self.LICENSE,
            supervised_keys=None if self.SUPERVISED_KEYS is None else tuple(self.SUPERVISED_KEYS),
            config_description="" if config is None else config.description,
            config_tags=() if config is None else config.tags,
            release_notes=read_notes(notes, f"{type(self).__name__}.RELEASE_NOTES"),
            custom=dict(self.METADATA),
            # As TFDS writes it, so that its readers find it too.
            extra={"downloadChecksums": dict(sorted(self.SOURCES.items()))} if self.SOURCES else {},
        )

    @classmethod
    def _pick_config(cls, name: str | None) -> BuilderConfig | None:
        configs = cls.configs()
        if name is None:
            name = cls.default_config()
            return None if name is None else configs[name]
        if name not in configs:
            hint = None if configs else f"{cls.name} has no configs: write {cls.name}[:version]."
            raise ConfigNotFoundError.of(name, configs, where=f"the builder of {cls.name}", hint=hint)
        return configs[name]

    def _pick_version(self, wanted: str | Version | VersionRequest | None) -> Version:
        versions = self.versions(self.config_name)
        if wanted is None:
            return versions[0]
        if isinstance(wanted, str):
            wanted = VersionRequest.parse(wanted)
        request = VersionRequest.exactly(wanted) if isinstance(wanted, Version) else wanted
        buildable = [version for version in versions if version.version_to_prepare is None]
        # The highest that needs older code is the next best: it may be published.
        chosen = request.highest(buildable) or request.highest(versions)
        if chosen is None:
            dataset = self.name if self.config_name is None else f"{self.name}/{self.config_name}"
            raise VersionNotFoundError(
                f"the builder of {dataset} cannot build version {request}",
                hint=f"This code builds {', '.join(map(str, buildable)) or 'none any more'}.",
                details={"name": str(request), "known": [str(version) for version in buildable]},
            )
        return chosen


def _own_docstring(cls: type[DatasetBuilder]) -> str:
    """What the author wrote below ``class``, not what a base class says; the description where no other is given."""
    return inspect.cleandoc(cls.__dict__.get("__doc__") or "")


def _check_class(cls: type[DatasetBuilder]) -> None:
    """Check every class attribute that authors set; raises UsageError naming class and attribute."""
    owner = cls.__name__
    try:
        check_new_name(read_text(cls.name, f"{owner}.name"))
    except ReferenceSyntaxError as error:
        raise bad_attribute(f"{owner}.name", cls.name, error.message, hint=error.hint) from error
    for attribute in ("DESCRIPTION", "HOMEPAGE", "LICENSE", "CITATION"):
        read_text(getattr(cls, attribute), f"{owner}.{attribute}")
    read_json_object(cls.METADATA, f"{owner}.METADATA")
    if cls.SUPERVISED_KEYS is not None:
        read_texts(cls.SUPERVISED_KEYS, f"{owner}.SUPERVISED_KEYS")
    read_sources(cls.SOURCES, f"{owner}.SOURCES")
    if not isinstance(cls.DISABLE_SHUFFLING, bool):
        raise bad_attribute(f"{owner}.DISABLE_SHUFFLING", cls.DISABLE_SHUFFLING, "it is True or False")
    counts = cls.NUM_SHARDS.values() if isinstance(cls.NUM_SHARDS, Mapping) else [cls.NUM_SHARDS]
    if not all(count is None or (type(count) is int and count > 0) for count in counts):
        raise bad_attribute(
            f"{owner}.NUM_SHARDS", cls.NUM_SHARDS, "it is a number above 0, or a dict of split -> number"
        )
    read_notes(cls.RELEASE_NOTES, f"{owner}.RELEASE_NOTES")
    read_versions(cls.SUPPORTED_VERSIONS, f"{owner}.SUPPORTED_VERSIONS")
    if cls.VERSION is not None:
        read_version(cls.VERSION, f"{owner}.VERSION")
    where = f"{owner}.BUILDER_CONFIGS"
    if not isinstance(cls.BUILDER_CONFIGS, list | tuple):
        raise bad_attribute(where, cls.BUILDER_CONFIGS, "it is a list of BuilderConfig")
    names: set[str] = set()
    for config in cls.BUILDER_CONFIGS:
        if not isinstance(config, BuilderConfig):
            raise bad_attribute(where, config, "it is a list of BuilderConfig")
        if config.name in names:
            hint = "One config can have several versions: list them in its supported_versions."
            raise bad_attribute(where, config.name, "two configs have this name", hint=hint)
        names.add(config.name)
    if cls.DEFAULT_CONFIG is not None and cls.DEFAULT_CONFIG not in names:
        raise bad_attribute(
            f"{owner}.DEFAULT_CONFIG",
            cls.DEFAULT_CONFIG,
            "no config has this name",
            hint=f"There are: {', '.join(sorted(names))}." if names else "BUILDER_CONFIGS is empty.",
        )


@dataclass(frozen=True, kw_only=True)
class BuilderConfig:
    """One variant of a dataset. Subclass it as a frozen dataclass to add fields of your own.

    Attributes:
        name: letters, digits, ``_ + . -``; never one that reads as a version.
        version: the config's own canonical version; None takes the builder's ``VERSION``.
        supported_versions: the other versions that can be built; empty takes the builder's ``SUPPORTED_VERSIONS``.
        release_notes: version -> what changed; empty takes the builder's ``RELEASE_NOTES``.
        description, tags: for people and for search.

    >>> BuilderConfig(name="en", version="2.0.0").version
    Version(major=2, minor=0, patch=0)

    Raises:
        UsageError: an attribute is not of its form; the message names config and attribute.
    """

    name: str
    version: Version | str | None = None
    supported_versions: tuple[Version | str, ...] = ()
    release_notes: Mapping[Version | str, str] | Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        owner = f"{type(self).__name__}(name={self.name!r})"
        check_config_name(self.name, owner=owner)
        if self.version is not None:
            object.__setattr__(self, "version", read_version(self.version, f"{owner}.version"))
        versions = read_versions(self.supported_versions, f"{owner}.supported_versions")
        object.__setattr__(self, "supported_versions", versions)
        object.__setattr__(self, "release_notes", read_notes(self.release_notes, f"{owner}.release_notes"))
        read_text(self.description, f"{owner}.description")
        object.__setattr__(self, "tags", read_texts(self.tags, f"{owner}.tags"))


def check_config_name(name: object, *, owner: str) -> str:
    """``name`` if it may name a config and cannot be taken for a version, as ``mnist/1.0.0`` would be."""
    if not isinstance(name, str):
        raise bad_attribute(f"{owner}.name", name, "a config name is text")
    try:
        check_config(name)
    except ReferenceSyntaxError as error:
        raise bad_attribute(f"{owner}.name", name, error.message, hint=error.hint) from error
    if _LIKE_A_VERSION.fullmatch(name):
        hint = "A version stands behind a colon: name/config:version. Give the config a name with a word in it."
        raise bad_attribute(f"{owner}.name", name, "it reads as a version", hint=hint)
    return name


def read_version(value: object, where: str) -> Version:
    """The version an author wrote as text or as a ``Version``; ``where`` names class and attribute."""
    if isinstance(value, Version):
        return value
    if not isinstance(value, str):
        raise bad_attribute(where, value, "a version is text like '3.0.1'")
    try:
        return Version.parse(value)
    except ReferenceSyntaxError as error:
        raise bad_attribute(where, value, error.message, hint=error.hint) from error


def read_versions(values: object, where: str) -> tuple[Version, ...]:
    """The versions an author listed, in the author's order; each once."""
    if isinstance(values, str | Version) or not isinstance(values, Iterable):
        raise bad_attribute(where, values, "it is a list of versions, e.g. ['2.0.0', '1.0.0']")
    versions = tuple(read_version(value, where) for value in values)
    if len(set(versions)) != len(versions):
        raise bad_attribute(where, [str(version) for version in versions], "a version is listed twice")
    return versions


def read_notes(notes: object, where: str) -> dict[str, str]:
    """Release notes by version, highest first: the spelling of each version is checked."""
    if not isinstance(notes, Mapping):
        raise bad_attribute(where, notes, "release notes are a dict of version -> text")
    read = {read_version(version, where): read_text(text, where) for version, text in notes.items()}
    return {str(version): read[version] for version in sorted(read, reverse=True)}


def read_text(value: object, where: str) -> str:
    """``value`` if it is text."""
    if not isinstance(value, str):
        raise bad_attribute(where, value, f"it is text, not {type(value).__name__}")
    return value


def read_texts(values: object, where: str) -> tuple[str, ...]:
    """``values`` as a tuple if it is a list or tuple of text."""
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise bad_attribute(where, values, "it is a list or tuple of text")
    return tuple(values)


def read_json_object(values: object, where: str) -> dict[str, Any]:
    """``values`` if it is a dict of names to values of JSON."""
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise bad_attribute(where, values, "it is a dict of name -> value")
    try:
        json.dumps(dict(values), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise bad_attribute(where, values, f"its values are those of JSON: {error}") from error
    return dict(values)


def read_sources(values: object, where: str) -> dict[str, str]:
    """``values`` if it is a dict of URL -> sha256, 64 hex digits in lower case."""
    if not isinstance(values, Mapping) or not all(isinstance(url, str) and url for url in values):
        raise bad_attribute(where, values, "it is a dict of URL -> sha256")
    for url, digest in values.items():
        if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
            problem = "a sha256 has 64 hex digits in lower case"
            raise bad_attribute(f"{where}[{url!r}]", digest, problem, hint="sha256sum FILE prints it.")
    return dict(values)


def bad_attribute(where: str, value: object, problem: str, *, hint: str | None = None) -> RegistryError:
    """The error for an attribute of author code: ``where`` is ``Class.ATTRIBUTE``."""
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:79] + "…"
    return UsageError(f"{where} = {shown}: {problem}", hint=hint, details={"attribute": where, "value": shown})
