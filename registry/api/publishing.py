"""The methods of ``Catalog`` that add versions: build, publish a prepared folder, and import other tools' folders.

Each parses its arguments and passes a ``Target`` to ``registry.publishing``, which verifies the files, proves the
number and writes the row.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from registry import model
from registry.api.locations import log_actor, open_data, open_indexes, open_version
from registry.api.sliced_version import SlicedVersion
from registry.argument_types import takes_fields, typed_methods
from registry.catalog.absent import previews, publishes
from registry.engines import announces
from registry.errors import ConflictError, NotFoundError, OtherSourceError, WrongTypeError, spell
from registry.model import (
    DatasetVersion,
    Description,
    DescriptionArguments,
    Reference,
    Version,
    whole_number,
)

if TYPE_CHECKING:
    from registry.api.arguments import DatasetLike
    from registry.api.locations import ClientDataDirectory
    from registry.api.reports import ImportReport
    from registry.building import DatasetBuilder
    from registry.catalog import CatalogBackend, DataDirectory
    from registry.model import Producer, ProgressCallback
    from registry.prepared import PreparedDataset
    from registry.publishing import Preview, Publication, Target
    from registry.storage import Store


@typed_methods
class Publishing:
    """The methods of ``Catalog`` that add versions: build, publish a prepared folder, and import.

    Attributes:
        backend: the catalog protocol.
        directory: the data directory, as this client sees it.
    """

    def __init__(self, backend: CatalogBackend, *, directory: ClientDataDirectory) -> None:
        self.backend = backend
        self.directory = directory

    @property
    def data_dir(self) -> str:
        """Path or URL of the data directory that this client uses: its own choice, the recorded one, or the default."""
        return self.directory.path

    @announces("building", "reference")
    @publishes
    @takes_fields(Description, DescriptionArguments)
    def build(
        self,
        reference: DatasetLike | type[DatasetBuilder] | DatasetBuilder,
        *,
        processes: int | None = None,
        num_shards: int | None = None,
        rebuild: bool = False,
        finished: bool = False,
        promote: bool | None = None,
        progress: ProgressCallback | None = None,
        **description: Unpack[DescriptionArguments],
    ) -> Publication:
        """Run a builder and publish the version that it makes.

        A published version is not built again unless its folder is missing on this machine or ``rebuild`` is True.
        Other content under the same number is refused, and so is a version that was added, imported or published from a
        folder. If a build died between the completion of its folder and the write of its row, the next build of the
        same content publishes that folder.

        The builder's ``version`` has the defaults of the catalog's experiments. When a version is built again, it has
        the defaults that it was published with.

        Args:
            reference: ``name[/config][:request]`` of an installed builder (without a request: its ``VERSION``); or
                code, ``package.module:Class[/config][:request]``; or a builder class or instance; or a ``Reference``,
                ``Dataset`` or ``DatasetVersion``, which is built by the installed builder of that name.
            processes: number of processes that encode examples, and decode them to prove the number. None starts one
                for each core if the dataset is large.
            num_shards: number of shards of each split. None decides by size and count, as TFDS does.
            rebuild: build even if the version is published.
            finished: publish the finished shards that an earlier run of this build could not publish, instead of making
                the records again; on a cluster, continue from its finished runs. You decide whether the code and its
                inputs are still the same.
            promote: True makes it the canonical version, False does not. None promotes it if it is the builder's own
                canonical version, is at least as high as the catalog's, and the dataset is not protected
                (``catalog.lifecycle.protect``).
            progress: called with a ``Progress``. The phases are ``encoding`` and ``writing`` of each split and
                ``verifying`` of all shards, in records, and for an object store ``uploading`` of shards, in bytes.
            description: text for people, replacing the builder's description. ``describe`` corrects it later.
            license: an SPDX licence expression, such as ``CC-BY-4.0``.
            citation: usually BibTeX.
            homepage: a URL.
            tags: tags to add to those of the builder.
            supervised: the names of the input and target features, such as ``["image", "label"]``.

        Returns:
            The published version; ``newly`` is False if it was published before.

        Raises:
            BuilderNotFoundError: no installed builder has that name.
            ConfigNotFoundError, VersionNotFoundError: the builder does not make that config or version.
            BuildError: the code cannot prepare this version, or fails; ``__cause__`` is the original error.
            FeatureError: an example does not match the features.
            ProtectedError: ``promote`` is True, and the dataset, config or catalog is protected.
            ExperimentNotFoundError: the version overrides an experiment that does not exist.
            ConflictError: the version overrides a retired experiment, or another publisher has reserved its place.
            VersionExistsError: other content is published under this number.
            OtherSourceError: the version is already published, was not built by a builder, and ``rebuild`` is False.
            VersionTooSmallError: the changes since the next lower version require a larger step of the number.
            StorageError: the disk is full or not writable.
            UsageError: ``reference`` has a wrong type, does not parse or names an alias; or a number is invalid; or
                ``finished`` is True, but no earlier run with these features, experiments and options left intact
                shards or runs.
        """
        from registry.building import build_dataset
        from registry.publishing import publish_staged
        from registry.publishing.publish import note_metadata

        builder, words = _open_described(reference, processes, description)
        self._refuse_protected(builder.reference, promote)
        published = self._published(builder.reference)
        # If the catalog is shared but its data directory is not, each machine builds the files, with the same bytes.
        if published is not None and not rebuild:
            self._require_built(published.version.reference)
            if self._is_here(published.version):
                notes = (
                    () if words.is_empty else note_metadata(published.version, words.apply(published.version.metadata))
                )
                return replace(published, notes=notes)
        self._require_target([builder.reference])
        if published is not None and open_data(self.data_dir).local_root is None:
            self.backend.require_publisher()  # files that are missing in a store need a reservation
        defaults = self._experiment_defaults(builder, published)
        builder = builder.with_experiment_defaults(defaults)
        store = open_data(self.data_dir, catalog=self.backend)
        # A build with older code must not move unversioned look-ups back to its own canonical version.
        is_experimental = promote is None and builder.version != builder.canonical_version
        target = self._target(
            False if is_experimental else promote,
            progress,
            str(builder.reference),
            processes=processes,
            producer=model.Producer(action="build"),
            description=words,
            default_config=builder.config_name == builder.default_config(),
            experiment_defaults=defaults,
        )
        with build_dataset(
            builder, store, processes=processes, num_shards=num_shards, finished=finished, progress=progress
        ) as build:
            publication = publish_staged(build.staged, build.prepared, build.shards, target, folded=build.folded)
        if is_experimental and publication.newly:
            from registry.catalog import Unpromoted

            return replace(publication, promotion=replace(publication.promotion, reason=Unpromoted.EXPERIMENTAL))
        return publication

    @announces("building", "reference")
    @previews
    @takes_fields(Description, DescriptionArguments)
    def preview_build(
        self,
        reference: DatasetLike | type[DatasetBuilder] | DatasetBuilder,
        *,
        processes: int | None = None,
        num_shards: int | None = None,
        rebuild: bool = False,
        show: int = 5,
        progress: ProgressCallback | None = None,
        **description: Unpack[DescriptionArguments],
    ) -> Preview | None:
        """Run a builder, prove the number of the resulting version, and delete the shards again.

        Args:
            reference: see ``build``.
            processes: see ``build``.
            num_shards: see ``build``.
            rebuild: build even if the version is published.
            show: describe at most this many differing records of each split.
            progress: see ``build``.
            description: see ``build``.
            license: see ``build``.
            citation: see ``build``.
            homepage: see ``build``.
            tags: see ``build``.
            supervised: see ``build``.

        Returns:
            All changes since the next lower version, and the proof of the number; None if ``build`` would do nothing
            because the version is already published.

        Raises:
            NotFoundError, BuildError, FeatureError, StorageError, UsageError: see ``build``.
            VersionExistsError, OtherSourceError: see ``build``.
        """
        from registry.building import build_dataset
        from registry.publishing import preview_folder

        builder, _ = _open_described(reference, processes, description)
        published = self._published(builder.reference)
        if published is not None and not rebuild:
            self._require_built(published.version.reference)
            if self._is_here(published.version):
                return None
        defaults = self._experiment_defaults(builder, published)
        self.require_data_dir(for_new=published is None)
        builder, store = builder.with_experiment_defaults(defaults), open_data(self.data_dir, catalog=self.backend)
        producer = model.Producer(action="build")
        target = self._target(False, progress, str(builder.reference), processes=processes, producer=producer)
        with build_dataset(
            builder, store, processes=processes, num_shards=num_shards, is_preview=True, progress=progress
        ) as build:
            return preview_folder(build.staged.store, target, show=show)

    @announces("publishing", "folder")
    @publishes
    @takes_fields(Description, DescriptionArguments)
    def publish(
        self,
        folder: str | os.PathLike[str],
        *,
        promote: bool | None = None,
        version_to_prepare: str | Version | None = None,
        progress: ProgressCallback | None = None,
        **description: Unpack[DescriptionArguments],
    ) -> Publication:
        """Publish a prepared version folder in TFDS's layout.

        A folder below ``data_dir`` is published in place; any other folder is copied.

        Args:
            folder: path or URL of the version folder, which contains ``dataset_info.json``.
            promote: True makes it the canonical version, False does not. None promotes it if it is at least as high as
                the current canonical version, and the dataset is not protected.
            version_to_prepare: the last version of the builder's code that can prepare it, if the current code cannot:
                ``1.0.0``, ``v1.0.0``, or a commit.
            progress: called with a ``Progress``, in records, and in bytes while shards are uploaded to an object store.
            description: text for people, replacing the folder's description. ``describe`` corrects this and the next
                five arguments.
            license: an SPDX licence expression, such as ``CC-BY-4.0``.
            citation: usually BibTeX.
            homepage: a URL.
            tags: tags to add to those of the folder.
            supervised: the names of the input and target features, such as ``["image", "label"]``.

        Returns:
            The published version; ``newly`` is False if it was published before.

        Raises:
            PreparedFormatError: the folder does not contain a prepared version, or a file in it is malformed.
            ShardMismatchError, CorruptRecordError: a shard does not match the files that describe the version.
            ProtectedError: ``promote`` is True, and the dataset, config or catalog is protected.
            ConflictError: the same content is published with another ``version_to_prepare``.
            VersionExistsError: other content is published under this number.
            VersionTooSmallError: the changes since the next lower version require a larger step of the number.
            StorageError: a file cannot be read or written.
            ReferenceSyntaxError: ``version_to_prepare`` is neither a version nor a commit.
        """
        from registry.prepared import read_prepared
        from registry.publishing import publish_folder
        from registry.storage import open_store

        code = None if version_to_prepare is None else model.read_code_version(version_to_prepare)
        source, words = open_store(folder), Description(**description)
        words.warn_of_license()
        prepared = read_prepared(source)
        self._refuse_protected(prepared.reference, promote)
        self._require_target([prepared.reference])
        producer = model.Producer(action="publish")
        target = self._target(promote, progress, os.fspath(folder), producer=producer, description=words)
        publication = publish_folder(source, target, version_to_prepare=code)
        if not publication.newly and code is not None:
            self._check_code_version(publication.version.reference, code)
        return publication

    @announces("importing", "folder")
    @publishes
    def import_tfds(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str | None = None,
        copy: bool = False,
        trust_lengths: bool = False,
        promote: bool | None = None,
        dry_run: bool = False,
        progress: ProgressCallback | None = None,
    ) -> ImportReport:
        """Import datasets that TFDS prepared: publish every version at or below ``folder``, one after the other.

        If a version is refused, the others are still imported. Importing again changes nothing. The versions get the
        slicing rule ``tfds-4``, so a slice has the same records as in TFDS. They keep their numbers; if the changes
        exceed what a number allows, ``ImportedVersion.notes`` says so. Values that a feature does not allow, such as a
        label without a class, are kept: a ``ValuesOutsideWarning`` and ``ImportedVersion.outside`` report them.

            report = catalog.import_tfds("~/tensorflow_datasets")
            for version in report:
                print(version.reference, version.outcome)
            report.require_all()

        Args:
            folder: path or URL of a version folder, of a dataset, or of a whole data_dir.
            name: publish them as versions of the dataset ``name``. None uses the name in their files. Needed if a
                dataset gained configs: in a catalog, either all versions of a dataset have configs or none of them.
            copy: copy the files into ``data_dir``. False reads them in place, so they must stay there.
            trust_lengths: hash the shard files, but trust the numbers of records in ``dataset_info.json``. No record is
                read, so values are not compared with the features, and fingerprints are computed when they are needed.
            promote: False leaves every canonical version unchanged. None promotes a version unless a higher one exists.
                True promotes each version, in the order found.
            dry_run: only find the versions. No shard is opened, and nothing is written.
            progress: called with a ``Progress``, in records; ``subject`` is the version.

        Returns:
            One result for each version, in the order found. ``require_all()`` raises if a version was refused.

        Raises:
            PreparedFormatError: the folder contains no prepared version.
            ReferenceSyntaxError: ``name`` is not a valid dataset name.
            UsageError: ``name`` is given, and the folder contains several datasets.
            StorageError: the folder cannot be listed or read.
            CatalogError: the catalog failed. Versions that were imported before remain imported.
        """
        from registry.api.imports import find_tfds, list_found, publish_found
        from registry.api.reports import ImportReport

        folders = find_tfds(folder, name=name)
        references = [one.prepared.reference for one in folders if one.prepared is not None]
        self._require_target(references, has_files=copy, dry_run=dry_run)
        if dry_run:
            return ImportReport(list_found(folders))
        # The default config is decided for each version.
        producer = model.Producer(action="import")
        target = self._target(promote, progress, producer=producer, trust_lengths=trust_lengths)
        return ImportReport(
            publish_found(folders, target, copy=copy, store_of=partial(open_version, self.data_dir), progress=progress)
        )

    @announces("importing", "name", "folder")
    @publishes
    def import_parquet(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str | None = None,
        config: str | None = None,
        version: str | Version = "1.0.0",
        copy: bool = False,
        promote: bool | None = None,
        progress: ProgressCallback | None = None,
    ) -> Publication:
        """Publish a folder of Parquet shards with typed columns as one version. The folder is not changed.

        Values that a feature does not allow, such as a label without a class, are kept: a ``ValuesOutsideWarning`` and
        ``Publication.outside`` report them.

        Args:
            folder: path or URL of the folder that contains files such as ``train-00000-of-00005.parquet``.
            name: name of the dataset. None derives it from the name of the folder. A derived name continues only a
                dataset that was imported from that folder.
            config: config of the dataset, or None.
            version: number of the version.
            copy: copy the shards into ``data_dir``, and rename them if their names follow no template. False reads them
                in place, so they must stay there.
            promote: see ``publish``.
            progress: called with a ``Progress``, in records.

        Returns:
            The published version; ``newly`` is False if it was published before.

        Raises:
            PreparedFormatError: the folder has no Parquet shards, or some are missing; their names require a copy; no
                feature has the type of a column; or the folder contains several configs.
            CorruptExampleError: a list, a struct, an image or an item of a list is null, or an image is invalid.
            ReferenceSyntaxError: ``name``, ``config`` or ``version`` is invalid.
            OtherSourceError: ``name`` is None, and the dataset comes from another source.
            ProtectedError: ``promote`` is True, and the dataset, config or catalog is protected.
            VersionExistsError: other content is published under this number.
            VersionTooSmallError: the changes since the next lower version require a larger step of the number.
            StorageError: a file cannot be read or written.
        """
        if copy:
            self.require_data_dir()
        source, prepared = _describe_parquet(folder, name=name, config=config, version=version, copy=copy)
        return self.publish_prepared(
            source,
            prepared,
            in_place=not copy,
            place=folder,
            is_derived=name is None,
            promote=promote,
            progress=progress,
        )

    @announces("publishing", "prepared")
    @publishes
    def publish_prepared(
        self,
        source: Store,
        prepared: PreparedDataset,
        *,
        in_place: bool = False,
        place: str | os.PathLike[str] | None = None,
        is_derived: bool = False,
        promote: bool | None = None,
        progress: ProgressCallback | None = None,
    ) -> Publication:
        """Publish shards that ``prepared`` describes, without metadata files. For importers of other formats.

        Args:
            source: the folder of the shards, under the names that ``prepared`` gives them (see ``RenamedStore``).
            prepared: the version.
            in_place: read the shards in place, so they must stay there. False copies them into ``data_dir``.
            place: path or URL from which the shards were imported, which the catalog records.
            is_derived: whether the name of the dataset was derived from ``place``, see ``require_same_source``.
            promote: see ``publish``.
            progress: called with a ``Progress``, in records.

        Returns:
            The published version; ``newly`` is False if it was published before.

        Raises:
            ShardMismatchError, CorruptRecordError: a shard does not match ``prepared``.
            OtherSourceError: see ``require_same_source``.
            ProtectedError, VersionExistsError, VersionTooSmallError, StorageError: see ``publish``.
        """
        from registry.publishing import publish_folder

        self._refuse_protected(prepared.reference, promote)
        if is_derived and place is not None:
            self.require_same_source(prepared, place)
        self._require_target([prepared.reference], has_files=not in_place)
        producer = model.Producer(action="import") if place is None else _import_from(place)
        name_use = "derived" if is_derived and place is not None else None
        target = self._target(promote, progress, str(prepared.reference), producer=producer, name_use=name_use)
        return publish_folder(source, target, prepared=prepared, in_place=in_place)

    def require_same_source(self, prepared: PreparedDataset, place: str | os.PathLike[str]) -> None:
        """Refuse an import under a derived name if the newest version of that dataset was not imported from ``place``.

        For importers of other formats, including their dry runs. If the version itself is already published, its source
        is compared.

        Args:
            prepared: the version.
            place: path or URL from which it is imported.

        Raises:
            OtherSourceError: the dataset comes from another source.
        """
        if not self._is_used(prepared.reference):
            earlier = self.backend.producers(prepared.name, prepared.config)
            model.check_continues("derived", _import_from(place), earlier)

    @previews
    def preview_parquet(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str | None = None,
        config: str | None = None,
        version: str | Version = "1.0.0",
        copy: bool = False,
    ) -> PreparedDataset:
        """Describe the version that ``import_parquet`` would publish. Nothing is written.

        Rows are read only if the footers do not say whether a column has nulls, and the first row only if it contains
        images or sounds.

        Args:
            folder: see ``import_parquet``.
            name: see ``import_parquet``.
            config: see ``import_parquet``.
            version: see ``import_parquet``.
            copy: see ``import_parquet``.

        Raises:
            PreparedFormatError, CorruptExampleError, ReferenceSyntaxError, StorageError: see ``import_parquet``.
            OtherSourceError: see ``import_parquet``.
        """
        if copy:
            self.require_data_dir()
        _, prepared = _describe_parquet(folder, name=name, config=config, version=version, copy=copy)
        if name is None:
            self.require_same_source(prepared, folder)
        return prepared

    @announces("comparing", "folder")
    @previews
    @takes_fields(Description, DescriptionArguments)
    def preview(
        self,
        folder: str | os.PathLike[str],
        *,
        show: int = 5,
        progress: ProgressCallback | None = None,
        **description: Unpack[DescriptionArguments],
    ) -> Preview:
        """Compute what publishing a prepared version folder would change. Nothing is written.

        Args:
            folder: path or URL of the version folder, see ``publish``.
            show: describe at most this many differing records of each split.
            progress: called with a ``Progress``, in records.
            description: see ``publish``.
            license: see ``publish``.
            citation: see ``publish``.
            homepage: see ``publish``.
            tags: see ``publish``.
            supervised: see ``publish``.

        Returns:
            All changes since the next lower version, and the proof of the number or the reason for its refusal.

        Raises:
            PreparedFormatError, ShardMismatchError, CorruptRecordError, VersionExistsError, StorageError, UsageError:
                see ``publish``.
        """
        from registry.prepared import read_prepared
        from registry.publishing import preview_folder
        from registry.storage import open_store

        source, words = open_store(folder), Description(**description)
        words.warn_of_license()
        words.require_features(read_prepared(source).features)
        self.require_data_dir()
        target = self._target(False, progress, os.fspath(folder), producer=model.Producer(action="publish"))
        return preview_folder(source, target, show=show)

    def _require_target(
        self, references: Iterable[Reference], *, has_files: bool = True, dry_run: bool = False
    ) -> None:
        """Check that versions can be published here, before any record is made or read. Leaves nothing behind.

        A user with read access can still repeat a publication, which writes no row.

        Args:
            references: the versions, or datasets whose next number is not known yet.
            has_files: whether files of the versions are written to the data directory.
            dry_run: nothing will be written, so no rights are needed.

        Raises:
            DataDirectoryMissingError, OtherDataDirectoryError: see ``ClientDataDirectory.require``.
            CatalogPermissionError: the database user lacks a right, or the catalog is read-only.
            StorageError: the data directory cannot be written.
        """
        new = next((reference for reference in references if not self._is_used(reference)), None)
        if new is not None:
            self.refuse_former_name(new.name)
        is_writing = new is not None and not dry_run
        if is_writing:  # checked first: a user who may not publish may not record a data directory either
            self.backend.require_publisher()
        if has_files:
            self.require_data_dir(for_new=new is not None)
        if new is not None and is_writing and has_files:
            place = model.version_folder(new.name, new.config, new.exact or Version(1, 0, 0))
            open_data(self.data_dir).require_writable(place)

    def present_name(self, name: str) -> str:
        """The current name of the dataset that has or had this name, or the name itself if no dataset does."""
        with suppress(NotFoundError):
            return self.backend.configs.list(name)[0].name
        return name

    def refuse_former_name(self, name: str) -> None:
        """Raise DatasetRenamedError if this is the former name of a dataset. Internal."""
        if (present := self.present_name(name)) != name:
            from registry.catalog import former_name

            raise former_name(name, present)

    def _is_used(self, reference: Reference) -> bool:
        name, config, number = reference.name, reference.config, reference.exact
        return number is not None and self.backend.published_digest(name, config, number) is not None

    def require_data_dir(self, *, for_new: bool = True) -> DataDirectory | None:
        """See ``ClientDataDirectory.require``. Internal."""
        return self.directory.require(for_new=for_new)

    def _target(
        self, promote: bool | None, progress: ProgressCallback | None, subject: str | None = None, **fields: Any
    ) -> Target:
        """This catalog and its data directory, as the target of a publication.

        ``progress`` is called while records of ``subject`` are verified, and while shards are uploaded. ``fields`` are
        further fields of ``Target``.
        """
        from registry.publishing import Patience, Target

        return Target(
            store=open_data(self.data_dir, catalog=self.backend),
            catalog=self.backend,
            data_dir=self.require_data_dir,
            promote=promote,
            actor=log_actor(),
            indexes=open_indexes(),
            advance=None if subject is None else model.count_progress(progress, "verifying", subject),
            progress=progress,
            patience=Patience.from_environment(progress),
            **fields,
        )

    def _experiment_defaults(self, builder: DatasetBuilder, published: Publication | None) -> Mapping[str, bool]:
        """The experiment flags for a build. A published version is built again with the flags of its first build."""
        if published is not None:  # a default that was changed since must not change the records
            return self.backend.experiments.of_version(published.version)
        is_buildable = builder.version.version_to_prepare is None  # otherwise its error comes first
        return self.backend.experiments.defaults_for(builder.version.experiments if is_buildable else {})

    def _published(self, reference: Reference) -> Publication | None:
        from registry.publishing import Publication, unchanged

        try:
            version = self.backend.find(reference)
        except NotFoundError:
            return None
        return Publication(version=version, newly=False, num_bytes=0, promotion=unchanged(self.backend, version))

    def _require_built(self, reference: Reference) -> None:
        """Refuse a published version that was added from data, and only shares its name with the builder.

        A published or imported folder may well have been prepared by the builder's code, here or in TFDS.
        """
        producers = dict(self.backend.producers(reference.name, reference.config))
        producer = producers.get(reference, model.Producer())
        if producer.action == "add":
            elsewhere, rebuild = options = [spell("url=URL"), spell("rebuild", True)]
            raise OtherSourceError(
                f"{reference} comes from {producer}, not from a builder",
                hint=f"Raise VERSION in the builder class, or build into another catalog: {elsewhere}\n"
                f"To compare its content with the builder's: {rebuild}",
                details={
                    "dataset": reference.dataset,
                    "version": str(reference),
                    "producer": producer.to_json(),
                    "source": model.Producer(action="build").to_json(),
                    "options": options,
                },
            )

    def _is_here(self, version: DatasetVersion) -> bool:
        """Whether the files of a published version can be read from this machine."""
        return open_version(self.data_dir, version).exists("dataset_info.json")

    def _check_code_version(self, reference: Reference, code: str) -> None:
        published = self._published(reference)
        stored = None if published is None else published.version.version_to_prepare
        if published is not None and stored != code:
            raise ConflictError(
                f"{reference} is already published {f'with version_to_prepare {stored}' if stored else 'without it'}",
                hint=f"A published version never changes. Leave out {spell('version_to_prepare')}.",
                details={"published": stored, "offered": code},
            )

    def _refuse_protected(self, reference: Reference, promote: bool | None) -> None:
        """Refuse a protected name before the work starts, not after it."""
        scope = self.backend.configs.protection(reference.name, reference.config) if promote else None
        if scope is not None:
            from registry.catalog import refuse_protected

            raise refuse_protected(reference, scope)


def _import_from(place: str | os.PathLike[str]) -> Producer:
    from registry.intake.listing import place_of

    return model.Producer(action="import", place=place_of(os.fspath(place)))


def _open_described(
    reference: DatasetLike | type[DatasetBuilder] | DatasetBuilder,
    processes: int | None,
    description: DescriptionArguments,
) -> tuple[DatasetBuilder, Description]:
    """The builder, and the metadata that people gave for its dataset. Refuses invalid arguments before the build."""
    from registry.building.generation import call_features

    if processes is not None:
        whole_number(processes, "processes", least=1)
    builder, words = _open_builder(reference), Description(**description)
    words.warn_of_license()
    if words.supervised:
        words.require_features(call_features(builder))
    return builder, words


def _open_builder(reference: DatasetLike | type[DatasetBuilder] | DatasetBuilder) -> DatasetBuilder:
    from registry.building import DatasetBuilder, open_builder

    if isinstance(reference, SlicedVersion | DatasetVersion):
        return open_builder(reference.reference)
    is_builder = isinstance(reference, DatasetBuilder | str) or (
        # For a class written for TFDS, the error lists the lines to change.
        isinstance(reference, type) and (hasattr(reference, "_info") or issubclass(reference, DatasetBuilder))
    )
    if not is_builder and not isinstance(reference, Reference):
        name = reference.__name__ if isinstance(reference, type) else type(reference).__name__
        raise WrongTypeError(
            "expected a str, Reference, Dataset, DatasetVersion, or a DatasetBuilder class or instance, "
            f"not {f'the class {name}' if isinstance(reference, type) else name}",
            hint='Write the name of an installed builder, "package.module:Class", or the class itself.',
            details={"type": name},
        )
    return open_builder(reference)


def _describe_parquet(
    folder: str | os.PathLike[str], *, name: str | None, config: str | None, version: str | Version, copy: bool
) -> tuple[Store, PreparedDataset]:
    """The shards, renamed if necessary, and the version that they contain."""
    from registry.interop.parquet import describe_parquet, with_fitting_names
    from registry.storage import open_store

    source = open_store(folder)
    number = Version.parse(version) if isinstance(version, str) else version
    if copy:
        source = with_fitting_names(source, dataset=name or "N")
    return source, describe_parquet(source, name=name, config=config, version=number)
