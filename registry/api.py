"""The Python API: connect to a catalog, look a dataset up, slice it, read it, publish it. The only place that wires.

catalog = registry.connect()
digits = catalog.dataset("digits")
for example in digits.read("train[:10%]"): ...
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from registry.catalog import DatasetSummary, SqlCatalog, VersionSummary, explain_choice, open_catalog, sqlite_path
from registry.errors import DatasetNotFoundError, NotFoundError, StorageError, UsageError
from registry.model import (
    DatasetMetadata,
    DatasetVersion,
    Reference,
    Shard,
    SlicingRule,
    Split,
    Version,
    VersionStatus,
)
from registry.splits import Plan, ReadInstruction, resolve

if TYPE_CHECKING:  # numpy and protobuf are loaded when something is read or written
    from registry.building import BuildProgress, DatasetBuilder
    from registry.features import FeaturesDict
    from registry.publishing import Publication, VerifyReport
    from registry.publishing.verify import Advance
    from registry.reading import Reader
    from registry.splits import Explanation, Relation
    from registry.storage import Store

Expression: TypeAlias = str | ReadInstruction
SplitArgument: TypeAlias = Expression | list[Expression] | tuple[Expression, ...] | dict[str, Expression] | None

CATALOG_VARIABLE: Final = "REGISTRY_CATALOG"
DATA_DIR_VARIABLE: Final = "REGISTRY_DATA_DIR"


def connect(url: str | os.PathLike[str] | None = None, *, data_dir: str | os.PathLike[str] | None = None) -> Catalog:
    """Open a catalog.

    Args:
        url: a database URL (``sqlite:///catalog.db``, ``postgresql://host/name``) or the path of an SQLite file, which
            is created where it does not exist. Default: ``$REGISTRY_CATALOG``, else a file in the user's data folder.
        data_dir: the folder or URL below which shards lie. Default: ``$REGISTRY_DATA_DIR``, else the folder
            ``datasets`` beside an SQLite catalog, and in the user's data folder for a PostgreSQL one.

    Raises:
        NotACatalogError, SchemaBehindError, SchemaAheadError, CatalogUnavailableError: the database cannot be used.
        MissingExtraError: a PostgreSQL URL without the extra ``pg``.
    """
    chosen = catalog_url(url)
    make_catalog_folder(chosen)
    return Catalog(open_catalog(chosen), data_dir=data_folder(chosen, data_dir))


def catalog_url(url: str | os.PathLike[str] | None = None) -> str:
    """The catalog that ``connect(url)`` opens."""
    if url is not None and not os.fspath(url):
        raise UsageError("the catalog's URL is empty", hint="Name one, or leave it out for the default.")
    chosen = url or os.environ.get(CATALOG_VARIABLE)
    return os.fspath(chosen) if chosen else str(_user_folder() / "catalog.db")


def data_folder(url: str, data_dir: str | os.PathLike[str] | None = None) -> str:
    """The data directory that ``connect(url, data_dir=data_dir)`` uses."""
    if chosen := data_dir or os.environ.get(DATA_DIR_VARIABLE):
        return os.fspath(chosen)
    beside = sqlite_path(url)
    return str((beside.parent if beside is not None else _user_folder()) / "datasets")


def load(
    reference: str | Reference,
    split: SplitArgument = None,
    *,
    slicing: SlicingRule | str | None = None,
    rounding: str | None = None,
    catalog: Catalog | None = None,
) -> Any:
    """Look a dataset up and read it, in one call.

    ``split`` may be an expression, or a list, tuple or dict of expressions; the answer has its shape. None gives a dict
    with every split. ``slicing`` and ``rounding`` are those of ``Dataset.resolve``.

        registry.load("digits:1.*", split=["train[:80%]", "train[80%:]"])
    """
    dataset = (catalog or connect()).dataset(reference)

    def read(expression: str | ReadInstruction) -> Reader:
        return dataset.read(expression, slicing=slicing, rounding=rounding)

    if split is None:
        return {name: read(name) for name in dataset.splits}
    if isinstance(split, dict):
        return {key: read(expression) for key, expression in split.items()}
    if isinstance(split, (list, tuple)):
        readers = [read(expression) for expression in split]
        return tuple(readers) if isinstance(split, tuple) else readers
    return read(split)


class Catalog:
    """A catalog and the folder where its datasets' shards lie. Use it as a context manager, or ``close()`` it."""

    def __init__(self, catalog: SqlCatalog, *, data_dir: str) -> None:
        self._catalog = catalog
        self.data_dir = data_dir

    @property
    def url(self) -> str:
        """The database's URL, without its password."""
        return self._catalog.url

    def dataset(self, reference: str | Reference) -> Dataset:
        """The one published version that ``reference`` names.

        Raises:
            ReferenceSyntaxError: the reference does not parse.
            NotFoundError: no such dataset, config, version or alias; the nearest are named.
        """
        wanted = _reference(reference)
        try:
            found = self._catalog.find(wanted)
        except DatasetNotFoundError as error:
            raise _offer_builder(error, wanted.name) from error
        return Dataset(found, catalog=self, wanted=wanted)

    def datasets(self) -> tuple[DatasetSummary, ...]:
        """Every dataset and config, by name."""
        return self._catalog.datasets()

    def versions(self, name: str, config: str | None = None) -> tuple[VersionSummary, ...]:
        """Every published version of a dataset, the highest first."""
        return self._catalog.versions(name, config)

    def build(
        self,
        wanted: str | Reference | type[DatasetBuilder] | DatasetBuilder,
        *,
        processes: int | None = None,
        num_shards: int | None = None,
        rebuild: bool = False,
        progress: BuildProgress | None = None,
        advance: Advance | None = None,
    ) -> Publication:
        """Run a builder and publish what it makes.

        A version that is published is not built again, unless its folder is missing here or ``rebuild`` asks for it.
        Other content under the same number is refused. A complete folder without a row, which a build leaves that dies
        between the two, is published only where it holds what this build makes.

        Args:
            wanted: ``name[/config][:request]`` of an installed builder, without a request its VERSION; or code,
                ``package.module:Class``; or a builder class or instance at hand.
            processes: how many encode examples; None starts as many as there are cores once a dataset is large.
            num_shards: shards of each split; None lets size and count decide, as TFDS does.
            rebuild: build even where nothing seems left to do.
            progress: told what is being built.
            advance: called with the number of records verified since the last call.
        """
        from registry.building import build_dataset, open_builder
        from registry.publishing import Target, publish_staged

        builder = open_builder(wanted)
        store = self._store()
        is_canonical = builder.version == builder.canonical_version
        target = Target(
            store=store,
            catalog=self._catalog,
            # Older code must not take an unversioned look-up back to its own canonical version.
            promote=is_canonical and self._is_highest(builder.name, builder.config_name, builder.version),
            default_config=builder.config_name == builder.default_config(),
            actor=_actor(),
        )
        published = None if rebuild else self._published(builder.reference)
        # A catalog may be shared and its data directory not: then the bytes are made here, and must be the same.
        if published is not None and self.version_store(published.version).exists("dataset_info.json"):
            return published
        with build_dataset(builder, store, processes=processes, num_shards=num_shards, progress=progress) as build:
            return publish_staged(build.staged, build.prepared, build.shards, target, advance=advance)

    def publish(
        self, folder: str | os.PathLike[str], *, promote: bool | None = None, advance: Advance | None = None
    ) -> Publication:
        """Publish a prepared version folder in TFDS's layout: in place below ``data_dir``, copied from elsewhere.

        Args:
            folder: path or URL of the version folder, the one that holds ``dataset_info.json``.
            promote: make it the canonical version; None does so where it is higher than the present one.
            advance: called with the number of records verified since the last call.
        """
        from registry.prepared import read_prepared
        from registry.publishing import Target, publish_folder
        from registry.storage import open_store

        source = open_store(folder)
        if promote is None:
            prepared = read_prepared(source)
            promote = self._is_highest(prepared.name, prepared.config, prepared.version)
        target = Target(store=self._store(), catalog=self._catalog, promote=promote, actor=_actor())
        return publish_folder(source, target, advance=advance)

    def shards(self, version: DatasetVersion, split: str) -> tuple[Shard, ...]:
        """The stored files of a split: position, size and sha256 of each."""
        return self._catalog.shards(version, split)

    def version_store(self, version: DatasetVersion) -> Store:
        """The folder that holds the shards of ``version``."""
        from registry.storage import open_store

        location = version.location
        absolute = "://" in location or location.startswith("/")
        return open_store(location) if absolute else self._store().child(location)

    def close(self) -> None:
        """Close the database connections."""
        self._catalog.close()

    def __enter__(self) -> Catalog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Catalog {self.url}, data in {self.data_dir}>"

    def _store(self) -> Store:
        from registry.storage import open_store

        return open_store(self.data_dir)

    def _published(self, reference: Reference) -> Publication | None:
        from registry.publishing import Publication

        try:
            version = self._catalog.find(reference)
        except NotFoundError:
            return None
        return Publication(version=version, newly=False, num_bytes=0)

    def _is_highest(self, name: str, config: str | None, version: Version) -> bool:
        try:
            canonical = self._catalog.find(Reference(name=name, config=config)).version
        except NotFoundError:
            return True
        return version >= canonical


class Dataset:
    """One published version: what it holds, and the way to its records. Frozen, like what it describes."""

    def __init__(self, version: DatasetVersion, *, catalog: Catalog, wanted: Reference | None = None) -> None:
        self._version = version
        self._catalog = catalog
        self._wanted = version.reference if wanted is None else wanted

    @property
    def reference(self) -> Reference:
        """The reference that names exactly this version."""
        return self._version.reference

    @property
    def name(self) -> str:
        """The dataset's name."""
        return self._version.name

    @property
    def config(self) -> str | None:
        """The config's name, or None."""
        return self._version.config

    @property
    def version(self) -> Version:
        """The version number."""
        return self._version.version

    @property
    def status(self) -> VersionStatus:
        """How it stands to the canonical version when it was looked up."""
        return self._version.status

    @cached_property
    def why(self) -> tuple[str, ...]:
        """Why the look-up gave this version, in sentences."""
        return explain_choice(self._wanted, self._version, self._catalog.versions(self.name, self.config))

    @property
    def slicing(self) -> SlicingRule:
        """The rule by which split expressions are resolved, unless a call chooses another."""
        return self._version.slicing

    @property
    def experiments(self) -> Mapping[str, bool]:
        """Flags that this version overrides."""
        return MappingProxyType(dict(self._version.experiments))

    @property
    def metadata(self) -> DatasetMetadata:
        """Description, homepage, licence, citation and release notes."""
        return self._version.metadata

    @property
    def details(self) -> DatasetVersion:
        """Everything that the catalog holds of it."""
        return self._version

    @cached_property
    def splits(self) -> Mapping[str, Split]:
        """The splits by name, in order; each with ``num_examples``, ``shard_lengths`` and ``filenames``."""
        return self._version.layout

    @cached_property
    def features(self) -> FeaturesDict:
        """The schema of an example."""
        from registry.features import features_from_json

        return features_from_json(self._version.features_json).with_labels(self._version.labels)

    @property
    def folder(self) -> str:
        """Path or URL of the folder that holds the shards."""
        return self._store().url

    def resolve(
        self,
        split: str | ReadInstruction,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Plan:
        """The plan of a split expression: which records of which files, without opening one.

        Args:
            split: an expression, or a ReadInstruction.
            slicing: ``documented`` or ``tfds-4`` for this call; None is the rule that was published with the version.
            rounding: ``closest`` or ``pct1_dropremainder`` for every percentage.

        Raises:
            SplitSyntaxError: the expression does not parse; a caret shows where.
            SplitNotFoundError, SliceError: it names a split or a range that is not there.
        """
        return resolve(split, self.splits, slicing=self.slicing if slicing is None else slicing, rounding=rounding)

    def explain(
        self,
        split: str | ReadInstruction,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Explanation:
        """The plan of a split expression, with the reason for every bound. Arguments and errors as ``resolve``."""
        from registry.splits import explain

        return explain(split, self.splits, slicing=self.slicing if slicing is None else slicing, rounding=rounding)

    def relation(
        self,
        first: str | ReadInstruction,
        second: str | ReadInstruction,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Relation:
        """How the records of two expressions stand to each other: ``is_disjoint``, ``common`` and more.

        Arguments and errors as ``resolve``.
        """
        from registry.splits import relation

        return relation(
            self.resolve(first, slicing=slicing, rounding=rounding),
            self.resolve(second, slicing=slicing, rounding=rounding),
        )

    def read(
        self,
        split: str | ReadInstruction,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Reader:
        """The examples of a split expression, as dicts of numpy arrays. Arguments as ``resolve``.

        Raises:
            As ``resolve``, and while iterating as ``Reader``.
        """
        from registry.reading import Reader

        plan = self.resolve(split, slicing=slicing, rounding=rounding)
        return Reader(plan, store=self._store(), features=self.features)

    def verify(self, *, deep: bool = False, advance: Advance | None = None) -> VerifyReport:
        """Compare every shard file with the catalog: size, number of records, sha256; ``deep`` decodes every record."""
        from registry.publishing import verify_shards

        splits = self._version.splits
        promised = {split.name: self._catalog.shards(self._version, split.name) for split in splits}
        return verify_shards(self._store(), splits, promised, features=self.features if deep else None, advance=advance)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split.name} {split.num_examples}" for split in self._version.splits)
        return f"<Dataset {self.reference}: {sizes}>"

    def _store(self) -> Store:
        return self._catalog.version_store(self._version)


def _reference(reference: str | Reference) -> Reference:
    if isinstance(reference, Reference):
        return reference
    if not isinstance(reference, str):
        raise UsageError(
            f"a reference is a text or a Reference, not {type(reference).__name__}",
            hint='Write name[/config][:request], e.g. "mnist:3.*".',
        )
    return Reference.parse(reference)


def _offer_builder(error: DatasetNotFoundError, name: str) -> DatasetNotFoundError:
    """The error of a dataset that is not in the catalog, with the hint to build it where an installed builder can."""
    from registry.building import list_builders

    if name not in list_builders():
        return error
    return DatasetNotFoundError(error.message, hint=f"Build it with: registry build {name}", details=error.details)


def make_catalog_folder(url: str) -> None:
    """Make the folder of an SQLite catalog, so that naming a new file is all it takes to begin; else nothing."""
    path = sqlite_path(url)
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot make the folder {path.parent}: {error.strerror}",
            hint="Name another catalog with --catalog or $REGISTRY_CATALOG.",
            details={"path": str(path.parent), "errno": error.errno},
        ) from error


def _user_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_data_dir("dataset-registry", appauthor=False))


def _actor() -> str:
    """Who publishes, for the event log: ``$REGISTRY_ACTOR``, else the login name."""
    try:
        return os.environ.get("REGISTRY_ACTOR") or getpass.getuser()
    except (OSError, KeyError):  # no entry for this user id, as in many containers
        return f"uid {os.getuid()}"
