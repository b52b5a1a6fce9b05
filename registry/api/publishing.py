"""How versions come into a catalog: built, published from a prepared folder, or imported where others left them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from registry.api.arguments import log_actor
from registry.api.locations import open_indexes
from registry.catalog import CatalogBackend, Unpromoted, refuse_protected
from registry.errors import ConflictError, NotFoundError
from registry.model import DatasetVersion, Reference, Version, read_code_version, version_folder

if TYPE_CHECKING:
    from registry.api.imports import ImportedVersion, ImportProgress
    from registry.building import BuildProgress, DatasetBuilder
    from registry.prepared import PreparedDataset
    from registry.publishing import Advance, Preview, Publication, Target
    from registry.storage import Store


class Publishing:
    """Everything that puts versions into a catalog: what ``Catalog`` builds on.

    Attributes:
        backend: the catalog protocol that this catalog speaks.
        data_dir: the folder or URL below which shards lie.
    """

    def __init__(self, backend: CatalogBackend, *, data_dir: str) -> None:
        self.backend = backend
        self.data_dir = data_dir

    def data_store(self) -> Store:
        """The data directory."""
        from registry.storage import open_store

        return open_store(self.data_dir)

    def version_store(self, version: DatasetVersion) -> Store:
        """The folder that holds the shards of ``version``.

        A version may have been catalogued in place, on this machine. Where that folder is gone, a copy in ``data_dir``
        is read.
        """
        from registry.storage import open_location

        data = self.data_store()
        found = open_location(data, version.location)
        if version.location.startswith("/") and found.local_root is not None and not found.local_root.is_dir():
            copy = data.child(version_folder(version.name, version.config, version.version))
            return copy if copy.exists("dataset_info.json") else found
        return found

    def build(
        self,
        wanted: str | Reference | type[DatasetBuilder] | DatasetBuilder,
        *,
        processes: int | None = None,
        num_shards: int | None = None,
        rebuild: bool = False,
        promote: bool | None = None,
        progress: BuildProgress | None = None,
        advance: Advance | None = None,
    ) -> Publication:
        """Run a builder and publish what it makes.

        A version that is published is not built again, unless its folder is missing here or ``rebuild`` asks for it.
        Other content under the same number is refused. A complete folder without a row, which a build leaves that dies
        between the two, is published only where it holds what this build makes.

        The builder's ``version`` knows the defaults of the catalog's experiments; a version that is built again knows
        those that it was published with.

        Args:
            wanted: ``name[/config][:request]`` of an installed builder, without a request its VERSION; or code,
                ``package.module:Class[/config][:request]``; or a builder class or instance at hand.
            processes: how many encode examples, and decode them for the proof of the number; None starts as many as
                there are cores once a dataset is large.
            num_shards: shards of each split; None lets size and count decide, as TFDS does.
            rebuild: build even where nothing seems left to do.
            promote: make it the canonical version; None does so where it is the builder's own canonical version, at
                least as high as the present one, and nothing protects it (``catalog.lifecycle.protect``).
            progress: told what is being built.
            advance: called with the number of records verified since the last call.

        Raises:
            ProtectedError: it is to be promoted, and its dataset, config or catalog is protected.
            BuildError: this code cannot prepare the version, or fails.
            ExperimentNotFoundError, ConflictError: the version overrides an experiment that was never added to the
                catalog, or is retired.
            VersionExistsError: other content is published under the number.
        """
        from registry.building import build_dataset, open_builder
        from registry.publishing import publish_staged

        builder = open_builder(wanted)
        self._refuse_protected(builder.reference, promote)
        published = self._published(builder.reference)
        # A catalog may be shared and its data directory not: then the bytes are made here, and must be the same.
        if published is not None and not rebuild and self.version_store(published.version).exists("dataset_info.json"):
            return published
        defaults = self._experiment_defaults(builder, published)
        builder = builder.with_experiment_defaults(defaults)
        store = self.data_store()
        # Older code must not take an unversioned look-up back to its own canonical version.
        is_experimental = promote is None and builder.version != builder.canonical_version
        target = replace(
            self._target(False if is_experimental else promote, advance, processes=processes),
            default_config=builder.config_name == builder.default_config(),
            experiment_defaults=defaults,
        )
        with build_dataset(builder, store, processes=processes, num_shards=num_shards, progress=progress) as build:
            publication = publish_staged(build.staged, build.prepared, build.shards, target)
        if is_experimental and publication.newly:
            return replace(publication, promotion=replace(publication.promotion, reason=Unpromoted.EXPERIMENTAL))
        return publication

    def preview_build(
        self,
        wanted: str | Reference | type[DatasetBuilder] | DatasetBuilder,
        *,
        processes: int | None = None,
        num_shards: int | None = None,
        rebuild: bool = False,
        show: int = 5,
        progress: BuildProgress | None = None,
        advance: Advance | None = None,
    ) -> Preview | None:
        """Run a builder, prove the number of what it makes, and throw the shards away: see ``build`` and ``preview``.

        None where ``build`` would do nothing, because the version is published.

        Raises:
            VersionExistsError: other content is published under the number.
        """
        from registry.building import build_dataset, open_builder
        from registry.publishing import preview_folder

        builder = open_builder(wanted)
        published = self._published(builder.reference)
        if published is not None and not rebuild and self.version_store(published.version).exists("dataset_info.json"):
            return None
        defaults = self._experiment_defaults(builder, published)
        builder, store = builder.with_experiment_defaults(defaults), self.data_store()
        target = self._target(False, advance, processes=processes)
        with build_dataset(builder, store, processes=processes, num_shards=num_shards, progress=progress) as build:
            return preview_folder(build.staged.store, target, show=show)

    def publish(
        self,
        folder: str | os.PathLike[str],
        *,
        promote: bool | None = None,
        version_to_prepare: str | Version | None = None,
        advance: Advance | None = None,
    ) -> Publication:
        """Publish a prepared version folder in TFDS's layout: in place below ``data_dir``, copied from elsewhere.

        Args:
            folder: path or URL of the version folder, the one that holds ``dataset_info.json``.
            promote: make it the canonical version; None does so where it is at least as high as the present one and
                nothing protects it.
            version_to_prepare: the last version of the builder's code that can prepare it, where today's code cannot;
                ``1.0.0``, ``v1.0.0``, or a commit.
            advance: called with the number of records verified since the last call.

        Raises:
            ProtectedError: it is to be promoted, and its dataset, config or catalog is protected.
            ConflictError: the same content is published already, with another ``version_to_prepare``.
        """
        from registry.prepared import read_prepared
        from registry.publishing import publish_folder
        from registry.storage import open_store

        code = None if version_to_prepare is None else read_code_version(version_to_prepare)
        source = open_store(folder)
        if promote:
            self._refuse_protected(read_prepared(source).reference, promote)
        publication = publish_folder(source, self._target(promote, advance), version_to_prepare=code)
        if not publication.newly and code is not None:
            self._check_code_version(publication.version.reference, code)
        return publication

    def import_tfds(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str | None = None,
        copy: bool = False,
        trust_lengths: bool = False,
        dry_run: bool = False,
        progress: ImportProgress | None = None,
    ) -> Iterator[ImportedVersion]:
        """Catalog what TFDS prepared: every version at or below ``folder``, each published as soon as it is verified.

        Nothing is done before the first outcome is asked for. Importing again is harmless. Versions get the slicing
        rule ``tfds-4``: a slice of them is what TFDS resolves. Numbers stand as they were given; where one says less
        than has changed, its outcome notes it.

            for version in catalog.import_tfds("~/tensorflow_datasets"):
                print(version.reference, version.outcome)

        Args:
            folder: path or URL of one version's folder, a dataset's, or a whole data_dir.
            name: publish them as versions of the dataset ``name``; None takes the name that their files give. Needed
                where a dataset gained configs: in a catalog it has configs or has none.
            copy: copy the files into ``data_dir``; otherwise they stay where they lie, and are read there.
            trust_lengths: hash the shard files and believe what ``dataset_info.json`` says of their lengths: no record
                is looked at, and fingerprints are computed when something needs them.
            dry_run: only look which versions there are.
            progress: told what is being imported.

        Raises:
            PreparedFormatError: there is no such version. What is wrong with one of several is its ``error``.
            ReferenceSyntaxError: no dataset can be called ``name``.
            UsageError: ``name`` is given for the versions of several datasets.
        """
        from registry.api.imports import find_tfds, list_found, publish_found

        found = find_tfds(folder, name=name)
        if dry_run:
            return list_found(found)
        # Which version is promoted, and with which default config, is decided for each of them.
        target = replace(
            self._target(False, None if progress is None else progress.advance), trust_lengths=trust_lengths
        )
        return publish_found(found, target, copy=copy, store_of=self.version_store, progress=progress)

    def import_parquet(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str | None = None,
        config: str | None = None,
        version: str | Version = "1.0.0",
        copy: bool = False,
        promote: bool | None = None,
        advance: Advance | None = None,
    ) -> Publication:
        """Publish a folder of Parquet shards with typed columns: where it lies, or as a copy below ``data_dir``.

        Args:
            folder: path or URL of the folder that holds ``train-00000-of-00005.parquet`` and the like.
            name: of the dataset; None makes one of the folder's name.
            config: of the dataset, or None.
            version: its number.
            copy: copy the shards, under names of ours where theirs follow no template; else nothing is written but
                rows, and the folder has to stay.
            promote: as ``publish``.
            advance: as ``publish``.

        Raises:
            PreparedFormatError: no such files, or some are missing, or named so that only a copy can be read, or a
                column has a type that no feature has; or there are several configs.
            CorruptExampleError: a list, struct or image is null, or something in a list, or an image is none.
            As ``publish``.
        """
        source, prepared = _describe_parquet(folder, name=name, config=config, version=version, copy=copy)
        return self.publish_prepared(source, prepared, in_place=not copy, promote=promote, advance=advance)

    def publish_prepared(
        self,
        source: Store,
        prepared: PreparedDataset,
        *,
        in_place: bool = False,
        promote: bool | None = None,
        advance: Advance | None = None,
    ) -> Publication:
        """Publish shards that have no description beside them: ``prepared`` is theirs. What importers end with.

        Args:
            source: the folder of the shards, under the names that ``prepared`` gives them (see ``RenamedStore``).
            prepared: the version that they make.
            in_place: leave them where they lie, which has to stay; else they are copied below ``data_dir``.
            promote: as ``publish``.
            advance: as ``publish``.

        Raises:
            As ``publish``.
        """
        from registry.publishing import publish_folder

        self._refuse_protected(prepared.reference, promote)
        return publish_folder(source, self._target(promote, advance), prepared=prepared, in_place=in_place)

    def preview_parquet(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str | None = None,
        config: str | None = None,
        version: str | Version = "1.0.0",
        copy: bool = False,
    ) -> PreparedDataset:
        """Which version ``import_parquet`` would make of a folder. Arguments and errors as there.

        Rows are read where the footers do not tell whether a column holds a null, and the first one where it holds
        images or sounds.
        """
        _, prepared = _describe_parquet(folder, name=name, config=config, version=version, copy=copy)
        return prepared

    def preview(self, folder: str | os.PathLike[str], *, show: int = 5, advance: Advance | None = None) -> Preview:
        """What publishing a prepared version folder would come to: the proof of its number, and all that changed.

        Nothing is written. ``show`` is how many differing records of each split are described.
        """
        from registry.publishing import preview_folder
        from registry.storage import open_store

        return preview_folder(open_store(folder), self._target(False, advance), show=show)

    def _target(self, promote: bool | None, advance: Advance | None, *, processes: int | None = None) -> Target:
        """Where a publication goes: this catalog and its data directory."""
        from registry.publishing import Target

        return Target(
            store=self.data_store(),
            catalog=self.backend,
            promote=promote,
            actor=log_actor(),
            processes=processes,
            indexes=open_indexes(),
            advance=advance,
        )

    def _experiment_defaults(self, builder: DatasetBuilder, published: Publication | None) -> Mapping[str, bool]:
        """The flags that a build is given; those of its first time where it is published already."""
        if published is not None:  # flipped flags must not change what a published version is made of
            return self.backend.experiments.of_version(published.version)
        is_buildable = builder.version.version_to_prepare is None  # if not, that is the error to tell of
        return self.backend.experiments.defaults_for(builder.version.experiments if is_buildable else {})

    def _published(self, reference: Reference) -> Publication | None:
        from registry.publishing import Publication, unchanged

        try:
            version = self.backend.find(reference)
        except NotFoundError:
            return None
        return Publication(version=version, newly=False, num_bytes=0, promotion=unchanged(self.backend, version))

    def _check_code_version(self, reference: Reference, code: str) -> None:
        published = self._published(reference)
        stored = None if published is None else published.version.version_to_prepare
        if published is not None and stored != code:
            raise ConflictError(
                f"{reference} is published already, {f'with version_to_prepare {stored}' if stored else 'without one'}",
                hint="What is published never changes. Leave --version-to-prepare out.",
                details={"published": stored, "offered": code},
            )

    def _refuse_protected(self, reference: Reference, promote: bool | None) -> None:
        """Refuse before any work what the publication would refuse after it."""
        scope = self.backend.configs.protection(reference.name, reference.config) if promote else None
        if scope is not None:
            raise refuse_protected(reference, scope)


def _describe_parquet(
    folder: str | os.PathLike[str], *, name: str | None, config: str | None, version: str | Version, copy: bool
) -> tuple[Store, PreparedDataset]:
    """The shards under names that can be read, and the version that they make."""
    from registry.interop.parquet import describe_parquet, with_fitting_names
    from registry.storage import open_store

    source = open_store(folder)
    number = Version.parse(version) if isinstance(version, str) else version
    if copy:
        source = with_fitting_names(source, dataset=name or "N")
    return source, describe_parquet(source, name=name, config=config, version=number)
