"""Defines ``DatasetBuilder``, which authors subclass: a version, features, and splits of keyed examples.

    >>> from registry.building import DatasetBuilder
    >>> from registry.features import FeaturesDict, Scalar
    >>> class Squares(DatasetBuilder):
    ...     VERSION = "1.0.0"
    ...
    ...     def features(self):
    ...         return FeaturesDict({"number": Scalar("int64"), "square": Scalar("int64")})
    ...
    ...     def splits(self):
    ...         return {"train": ((n, {"number": n, "square": n * n}) for n in range(100))}
    >>> str(Squares().reference)
    'squares:1.0.0'

Class attributes are checked when the class is defined. A fault is raised when the class is used, so that the other
classes of its module can be imported and built. ``discovery`` finds builders, ``build`` runs them.
"""

from __future__ import annotations

import copy
import inspect
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar, cast

from registry.building.author_code import (
    CodeLine,
    add_place,
    attribute_place,
    author_error,
    defining_place,
    function_place,
    missing_methods,
)
from registry.errors import (
    BuildError,
    ConfigNotFoundError,
    ReferenceSyntaxError,
    RegistryError,
    UsageError,
    VersionNotFoundError,
)
from registry.model import DatasetMetadata, Reference, Version, VersionRequest, check_config, check_new_name, fold_name

if TYPE_CHECKING:
    from registry.building.keys import Key
    from registry.building.pieces import Pieces
    from registry.features import FeaturesDict


_LIKE_A_VERSION = re.compile(r"v?[0-9]+(\.[0-9]+)+")
_NUMBERS = re.compile(r"v?([0-9]+(?:\.[0-9]+){0,2})\.?")

Generated: TypeAlias = "Iterable[tuple[Key, Any]] | Callable[[], Iterable[tuple[Key, Any]]]"
"""Examples that one process generates: an iterable of (key, example) pairs, or a function without arguments that
returns one."""

Examples: TypeAlias = "Generated | Pieces"
"""The examples of one split; many processes generate those of ``Pieces``."""


BuilderT = TypeVar("BuilderT", bound="DatasetBuilder")


class DatasetBuilder(ABC):
    """Base class of datasets. An instance builds one version of one config.

    A subclass sets these class attributes, defines ``features()`` and ``splits()``, and is built with
    ``registry build package.module:Class`` or ``catalog.build(Class)``. All attributes except ``VERSION`` are optional:

    * ``name``: the dataset's name. Default: the class name in snake_case.
    * ``VERSION``: the canonical version, e.g. "3.0.1". Not needed if every config has its own.
    * ``SUPPORTED_VERSIONS``: other versions that this code can build. ``self.version`` is the one that is being built.
      A ``Version`` with ``version_to_prepare`` can only be read: older code prepared and published it.
    * ``RELEASE_NOTES``: version -> what changed.
    * ``BUILDER_CONFIGS``: variants of the dataset. The default is ``DEFAULT_CONFIG``, or the first.
    * ``DESCRIPTION`` (default: the docstring of the class), ``HOMEPAGE``, ``LICENSE``, ``CITATION``: text for people.
    * ``SOURCES``: where the data comes from: URL -> sha256 (64 hex digits) of the downloaded file. Stored with every
      version and pin.
    * ``METADATA``: JSON values by name, stored with every version: ``dataset.info.metadata``, and ``metadata.json`` on
      disk.
    * ``SUPERVISED_KEYS``: names of the input feature and of the label.
    * ``NUM_SHARDS``: the number of shards of each split, or a dict of split -> number. Default: by size and count, as
      in TFDS.
    * ``DISABLE_SHUFFLING``: True stores records in the order of their keys if these are numbers, else in the order of
      generation.

    Args:
        config: name of a config; None selects the default config.
        version: an exact version; a request such as ``3.*.*``, which selects the highest match that this code can build
            (or the highest match, if it can build none); or None for the canonical version.

    Attributes:
        config: the BuilderConfig that is built, or None if the dataset has no configs.
        version: the Version that is built. ``self.version.implements(flag)`` tells whether an experiment is on. Flags
            that the version does not set have the default of the catalog that it is built for.

    Raises:
        BuildError: the class has an invalid attribute or lacks ``features()`` or ``splits()``; names file and line.
        ConfigNotFoundError: there is no config of that name.
        VersionNotFoundError: this code cannot build that version; the hint lists those it can.

    >>> from registry.features import FeaturesDict, Scalar
    >>> class Letters(DatasetBuilder):
    ...     VERSION = "2.0.0"
    ...     SUPPORTED_VERSIONS = ["1.0.0"]
    ...     BUILDER_CONFIGS = [BuilderConfig(name="upper"), BuilderConfig(name="lower")]
    ...
    ...     def features(self):
    ...         return FeaturesDict({"letter": Scalar("str")})
    ...
    ...     def splits(self):
    ...         letters = "ABC" if self.config.name == "upper" else "abc"
    ...         return {"train": ((letter, {"letter": letter}) for letter in letters)}
    >>> str(Letters().reference), str(Letters(config="lower", version="1.*").reference)
    ('letters/upper:2.0.0', 'letters/lower:1.0.0')
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
        """Return the schema of one example."""

    @abstractmethod
    def splits(self) -> Mapping[str, Examples]:
        """Return the examples of each split by split name. Splits are always listed in this order.

        Examples are (key, example) pairs. A key is text, a whole number or bytes. It is unique in its split and the
        same on every run, because it alone determines the position of the example. Return ``Pieces`` if the examples
        come from many inputs that several processes can read at the same time.
        """

    _definition: ClassVar[CodeLine]
    _fault: ClassVar[tuple[str, str | None, dict[str, Any]] | None] = None  # message, hint and details

    def __new__(cls, *_arguments: object, **_options: object) -> Self:
        """Refuse a class with a fault. Arguments are for ``__init__``, which authors may override."""
        check_class(cls)
        return super().__new__(cls)

    def __init__(self, *, config: str | None = None, version: str | Version | VersionRequest | None = None) -> None:
        self.config: Any = self._pick_config(config)  # Any: authors read the fields of their own subclass
        self.version = self._pick_version(version)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = fold_name(cls.__name__)
        cls._definition, cls._fault = defining_place(), None
        try:
            _check_class(cls)
        except RegistryError as error:
            # Raised when the class is used: the other classes of the module can be imported.
            located = _located(cls, error)
            cls._fault = located.message, located.hint, located.details

    @classmethod
    def pick(cls, reference: Reference | str) -> Self:
        """Return the builder of the config and version of ``reference``. Its dataset name is ignored.

        Raises:
            UsageError: the reference contains an alias. Aliases point to published versions.
            BuildError: the class is faulty, or its ``__init__`` failed.
            ConfigNotFoundError, VersionNotFoundError: this code cannot build that config or version.
        """
        wanted = Reference.parse(reference) if isinstance(reference, str) else reference
        if wanted.alias is not None:
            raise UsageError(
                f"{wanted} is an alias of a published version; a build takes a version number",
                hint=f"Write {wanted.dataset}:{cls.versions(wanted.config)[0]}, or {wanted.dataset} for the canonical "
                "version.",
                details={"reference": str(wanted)},
            )
        return make_builder(cls, config=wanted.config, version=wanted.request)

    @classmethod
    def configs(cls) -> dict[str, BuilderConfig]:
        """Return the configs by name, in the author's order."""
        _check_fault(cls)
        return {config.name: config for config in cls.BUILDER_CONFIGS}

    @classmethod
    def default_config(cls) -> str | None:
        """Return the name of the default config, or None if the dataset has no configs."""
        return cls.DEFAULT_CONFIG if cls.DEFAULT_CONFIG is not None else next(iter(cls.configs()), None)

    @classmethod
    def versions(cls, config: str | None = None) -> list[Version]:
        """Return the versions of ``config`` (None: the default config): the canonical version, then the others.

        Raises:
            BuildError: the class is faulty, has no version, or lists its canonical version with other settings.
            ConfigNotFoundError: there is no config of that name.
        """
        chosen = cls._pick_config(config)
        own = chosen.version if chosen is not None else None
        canonical = own if own is not None else cls.VERSION
        if canonical is None:
            missing = bad_attribute(
                f"{cls.__name__}.VERSION", None, "a builder needs a version", hint='Add to the class: VERSION = "1.0.0"'
            )
            raise _located(cls, missing)
        first = read_version(canonical, f"{cls.__name__}.VERSION")
        where = f"{cls.__name__}.SUPPORTED_VERSIONS"
        others = read_versions(
            (chosen.supported_versions if chosen is not None else ()) or cls.SUPPORTED_VERSIONS, where
        )
        settings = (dict(first.experiments), first.version_to_prepare)
        if any(other == first and (dict(other.experiments), other.version_to_prepare) != settings for other in others):
            problem = "this is the canonical version, which has other experiments or another version_to_prepare"
            hint = f"Remove {first} from the list."
            raise _located(cls, bad_attribute(where, str(first), problem, hint=hint))
        return [first, *(other for other in others if other != first)]

    def with_experiment_defaults(self, defaults: Mapping[str, bool]) -> Self:
        """Return a copy whose ``version`` has these defaults for flags that it does not set."""
        bound = copy.copy(self)
        bound.version = self.version.with_defaults(defaults)
        return bound

    @property
    def reference(self) -> Reference:
        """``name[/config]:version`` of the version that is built."""
        return Reference.exactly(self.name, self.config_name, self.version)

    @property
    def canonical_version(self) -> Version:
        """The version that is built by default: the config's own, or else ``VERSION``."""
        return self.versions(self.config_name)[0]

    @property
    def config_name(self) -> str | None:
        """Name of the config that is built, or None if the dataset has no configs."""
        return None if self.config is None else cast("BuilderConfig", self.config).name

    @property
    def metadata(self) -> DatasetMetadata:
        """The author's description of the dataset. Release notes of the config replace those of the builder."""
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
            # The name and form of TFDS, so that its readers find it.
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
        # If this code can build none, take the highest: it may be published already.
        chosen = request.highest(buildable) or request.highest(versions)
        if chosen is None:
            dataset = self.name if self.config_name is None else f"{self.name}/{self.config_name}"
            raise VersionNotFoundError(
                f"the builder of {dataset} cannot build version {request}",
                hint=f"This code can build: {', '.join(map(str, buildable))}."
                if buildable
                else "This code cannot build any version.",
                details={"name": str(request), "known": [str(version) for version in buildable]},
            )
        return chosen


def check_class(cls: type[DatasetBuilder]) -> None:
    """Raise the fault of a builder class, if it has one.

    Raises:
        BuildError: an attribute is invalid, or ``features()`` or ``splits()`` is missing; names file and line.
    """
    _check_fault(cls)
    if inspect.isabstract(cls):
        raise missing_methods(cls, cls._definition)


def make_builder(cls: type[BuilderT], *, config: str | None = None, version: VersionRequest | None = None) -> BuilderT:
    """Call a builder class, and report a fault of its ``__init__`` with the author's file and line.

    Raises:
        BuildError: the class is faulty, or its ``__init__`` requires other arguments, failed, or did not call
            ``super().__init__``.
        ConfigNotFoundError, VersionNotFoundError: this code cannot build that config or version.
    """
    check_class(cls)
    owner = cls.__name__
    try:
        inspect.signature(cls.__init__).bind(None, config=config, version=version)
    except TypeError as error:
        found = BuildError(
            f"{owner}.__init__ must accept config= and version=: {error}",
            hint="Write def __init__(self, *, config=None, version=None): super().__init__(config=config, "
            "version=version)\nPut other settings into the fields of a BuilderConfig.",
        )
        add_place(found, function_place(cls.__init__) or cls._definition)
        raise found from error
    try:
        result = cls(config=config, version=version)
    except (ConfigNotFoundError, VersionNotFoundError, BuildError):
        raise
    except (Exception, SystemExit) as error:
        raise author_error(f"{owner}.__init__ failed", error) from error
    return check_instance(result)


def check_instance(builder: BuilderT) -> BuilderT:
    """Return ``builder`` if its ``__init__`` called that of ``DatasetBuilder``.

    Raises:
        BuildError: it did not; names file and line.
    """
    if not {"config", "version"} <= vars(builder).keys():
        error = BuildError(
            f"{type(builder).__name__}.__init__ did not call super().__init__",
            hint="Add the line: super().__init__(config=config, version=version)",
        )
        add_place(error, function_place(type(builder).__init__) or builder._definition)
        raise error
    return builder


def _check_fault(cls: type[DatasetBuilder]) -> None:
    if cls._fault is not None:
        message, hint, details = cls._fault
        raise BuildError(message, hint=hint, details=details)


def _located(cls: type[DatasetBuilder], error: RegistryError) -> BuildError:
    """The BuildError for an invalid attribute, with the file and line that set it."""
    attribute = str(error.details.get("attribute", "")).partition(".")[2].partition("[")[0]
    result = BuildError(error.message, hint=error.hint, details=error.details)
    add_place(result, attribute_place(cls._definition, attribute))
    return result


def _own_docstring(cls: type[DatasetBuilder]) -> str:
    """The docstring of the class itself, not of a base class. It is the default description."""
    return inspect.cleandoc(cls.__dict__.get("__doc__") or "")


def _check_class(cls: type[DatasetBuilder]) -> None:
    """Check the class attributes that authors set; raises a UsageError that names class and attribute."""
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
        raise bad_attribute(f"{owner}.DISABLE_SHUFFLING", cls.DISABLE_SHUFFLING, "expected True or False")
    counts = cls.NUM_SHARDS.values() if isinstance(cls.NUM_SHARDS, Mapping) else [cls.NUM_SHARDS]
    if not all(count is None or (type(count) is int and count > 0) for count in counts):
        raise bad_attribute(
            f"{owner}.NUM_SHARDS", cls.NUM_SHARDS, "expected a number above 0, or a dict of split -> number"
        )
    read_notes(cls.RELEASE_NOTES, f"{owner}.RELEASE_NOTES")
    read_versions(cls.SUPPORTED_VERSIONS, f"{owner}.SUPPORTED_VERSIONS")
    if cls.VERSION is not None:
        read_version(cls.VERSION, f"{owner}.VERSION")
    where = f"{owner}.BUILDER_CONFIGS"
    if not isinstance(cls.BUILDER_CONFIGS, list | tuple):
        raise bad_attribute(where, cls.BUILDER_CONFIGS, "expected a list of BuilderConfig")
    names: set[str] = set()
    for config in cls.BUILDER_CONFIGS:
        if not isinstance(config, BuilderConfig):
            raise bad_attribute(where, config, "expected a list of BuilderConfig")
        if config.name in names:
            hint = "One config can have several versions: list them in its supported_versions."
            raise bad_attribute(where, config.name, "two configs have this name", hint=hint)
        names.add(config.name)
    if cls.DEFAULT_CONFIG is not None and cls.DEFAULT_CONFIG not in names:
        raise bad_attribute(
            f"{owner}.DEFAULT_CONFIG",
            cls.DEFAULT_CONFIG,
            "no config has this name",
            hint=f"The configs are: {', '.join(sorted(names))}." if names else "BUILDER_CONFIGS is empty.",
        )


@dataclass(frozen=True, kw_only=True)
class BuilderConfig:
    """One variant of a dataset. To add fields of your own, subclass it as a frozen dataclass.

    Attributes:
        name: letters, digits and ``_ + . -``. It must not look like a version.
        version: the config's own canonical version. None: the builder's ``VERSION``.
        supported_versions: other versions that can be built. Empty: the builder's ``SUPPORTED_VERSIONS``.
        release_notes: version -> what changed. Empty: the builder's ``RELEASE_NOTES``.
        description, tags: for people and for search.

    >>> BuilderConfig(name="en", version="2.0.0").version
    Version(major=2, minor=0, patch=0)
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Language(BuilderConfig):
    ...     script: str
    >>> Language(name="el", script="Greek").script
    'Greek'

    Raises:
        UsageError: an attribute is invalid; the message names config and attribute.
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
    """Return ``name`` if it is a valid config name. ``1.0.0`` is not: ``mnist/1.0.0`` would look like a version."""
    if not isinstance(name, str):
        raise bad_attribute(f"{owner}.name", name, f"expected text, found {type(name).__name__}")
    try:
        check_config(name)
    except ReferenceSyntaxError as error:
        raise bad_attribute(f"{owner}.name", name, error.message, hint=error.hint) from error
    if _LIKE_A_VERSION.fullmatch(name):
        hint = f'Versions follow a colon, as in name/config:{name}. Name the config e.g. "release_{name}".'
        raise bad_attribute(f"{owner}.name", name, "a config name must not look like a version", hint=hint)
    return name


def read_version(value: object, where: str) -> Version:
    """Return the version that an author wrote as text or as a ``Version``; ``where`` names class and attribute."""
    if isinstance(value, Version):
        return value
    likely = _likely_version(value)
    if not isinstance(value, str):
        problem = f"expected text such as '1.0.0', found {type(value).__name__}"
        raise bad_attribute(where, value, problem, hint=_version_hint(where, likely or "1.0.0"))
    try:
        return Version.parse(value)
    except ReferenceSyntaxError as error:
        hint = error.hint if likely is None else _version_hint(where, likely)
        raise bad_attribute(where, value, error.message, hint=hint) from error


def _likely_version(value: object) -> str | None:
    """The version that an author probably meant: "1.0.0" for "1.0", 1, (1, 0) or TFDS's Version("1.0.0")."""
    text = ".".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
    match = _NUMBERS.fullmatch(text)
    if match is None:
        return None
    numbers = [str(int(number)) for number in match[1].split(".")]
    return ".".join([*numbers, "0", "0"][:3])


def _version_hint(where: str, version: str) -> str:
    attribute = where.rpartition(".")[2]
    return f'Write {attribute} = "{version}".' if attribute == "VERSION" else f'Write "{version}".'


def read_versions(values: object, where: str) -> tuple[Version, ...]:
    """Return the versions that an author listed, in that order. A version must not be listed twice."""
    if isinstance(values, str | Version) or not isinstance(values, Iterable):
        raise bad_attribute(where, values, "expected a list of versions, e.g. ['2.0.0', '1.0.0']")
    versions = tuple(read_version(value, where) for value in values)
    if len(set(versions)) != len(versions):
        raise bad_attribute(where, [str(version) for version in versions], "a version is listed twice")
    return versions


def read_notes(notes: object, where: str) -> dict[str, str]:
    """Return release notes by version, highest version first."""
    if not isinstance(notes, Mapping):
        raise bad_attribute(where, notes, "expected a dict of version -> text")
    read = {read_version(version, where): read_text(text, where) for version, text in notes.items()}
    return {str(version): read[version] for version in sorted(read, reverse=True)}


def read_text(value: object, where: str) -> str:
    """Return ``value`` if it is text."""
    if not isinstance(value, str):
        raise bad_attribute(where, value, f"expected text, found {type(value).__name__}")
    return value


def read_texts(values: object, where: str) -> tuple[str, ...]:
    """Return ``values`` as a tuple if it is a list or tuple of text."""
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise bad_attribute(where, values, "expected a list or tuple of text")
    return tuple(values)


def read_json_object(values: object, where: str) -> dict[str, Any]:
    """Return ``values`` if it is a dict of name -> JSON value."""
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise bad_attribute(where, values, "expected a dict of name -> value")
    try:
        json.dumps(dict(values), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise bad_attribute(where, values, f"expected values that JSON can store: {error}") from error
    return dict(values)


def read_sources(values: object, where: str) -> dict[str, str]:
    """Return ``values`` if it is a dict of URL -> sha256 (64 hex digits in lower case)."""
    if not isinstance(values, Mapping) or not all(isinstance(url, str) and url for url in values):
        raise bad_attribute(where, values, "expected a dict of URL -> sha256")
    for url, digest in values.items():
        if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
            problem = "expected a sha256: 64 hex digits in lower case"
            raise bad_attribute(f"{where}[{url!r}]", digest, problem, hint="To compute it: sha256sum FILE")
    return dict(values)


def bad_attribute(where: str, value: object, problem: str, *, hint: str | None = None) -> RegistryError:
    """The error for an invalid attribute of author code: ``where`` is ``Class.ATTRIBUTE``."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - author code
        text = f"<{type(value).__name__}>"
    text = text if len(text) <= 80 else text[:79] + "…"
    return UsageError(f"{where} = {text}: {problem}", hint=hint, details={"attribute": where, "value": text})
