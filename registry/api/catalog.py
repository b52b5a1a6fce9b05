"""What can be done with a catalog and the folder of its data? Look up, list, build, publish."""

from __future__ import annotations

import os
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

from registry.api.actor import current_actor
from registry.api.dataset import Dataset
from registry.api.lifecycle import Lifecycle
from registry.api.locations import catalog_url, data_folder, make_catalog_folder
from registry.api.references import parse_reference
from registry.catalog import DatasetSummary, SqlCatalog, VersionSummary, open_catalog
from registry.errors import DatasetNotFoundError, NotFoundError
from registry.model import DatasetVersion, Reference, Shard, Standing, Version

if TYPE_CHECKING:  # numpy and protobuf are loaded when something is built or published
    from registry.building import BuildProgress, DatasetBuilder
    from registry.publishing import Publication
    from registry.publishing.verify import Advance
    from registry.storage import Store


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
        wanted = parse_reference(reference)
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

    def standing(self, name: str, config: str | None = None) -> Standing:
        """How the versions of a dataset stand now: states, canonical version, aliases. Config None is the default."""
        return self._catalog.standing(name, config)

    @cached_property
    def lifecycle(self) -> Lifecycle:
        """Promote, deprecate, yank and drop versions; choose the default config."""
        return Lifecycle(self._catalog)

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
            actor=current_actor(),
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
        target = Target(store=self._store(), catalog=self._catalog, promote=promote, actor=current_actor())
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


def _offer_builder(error: DatasetNotFoundError, name: str) -> DatasetNotFoundError:
    """The error of a dataset that is not in the catalog, with the hint to build it where an installed builder can."""
    from registry.building import list_builders

    if name not in list_builders():
        return error
    return DatasetNotFoundError(error.message, hint=f"Build it with: registry build {name}", details=error.details)
