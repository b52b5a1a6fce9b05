"""What can be done with a catalog and the folder of its data? Look up, list, build, publish."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Literal, overload

from registry.api.actor import current_actor
from registry.api.aliases import Aliases
from registry.api.dataset import Dataset
from registry.api.experiments import Experiments
from registry.api.lifecycle import Lifecycle
from registry.api.locations import catalog_url, data_folder, index_folder, make_catalog_folder
from registry.api.lock import current_lock, may_be_exact, refuse_moving
from registry.api.moments import Moment, read_moment
from registry.api.past import PastDataset
from registry.api.references import parse_reference
from registry.catalog import DatasetSummary, LogReport, SearchHit, SqlCatalog, VersionSummary, open_catalog
from registry.errors import ConflictError, DatasetNotFoundError, NotFoundError, UsageError, YankedVersionWarning
from registry.model import (
    DatasetVersion,
    Event,
    Reference,
    Shard,
    Standing,
    Version,
    read_code_version,
    version_folder,
)

if TYPE_CHECKING:  # numpy and protobuf are loaded when something is built or published
    from registry.api.imports import ImportedVersion, ImportProgress
    from registry.api.pins import CatalogPins
    from registry.building import BuildProgress, DatasetBuilder
    from registry.prepared import PreparedDataset
    from registry.publishing import Advance, Preview, Publication, VersionDiff
    from registry.storage import Store
    from registry.tfrecord import IndexFolder


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

    def dataset(self, reference: str | Reference, *, at: Moment | None = None) -> Dataset:
        """The one published version that ``reference`` names; a yanked one comes with a YankedVersionWarning.

        Args:
            reference: ``name[/config][:request | @alias]``.
            at: the moment at which it is looked up, worked out from the event log: a day means its end, in UTC. None
                is now.

        Raises:
            ReferenceSyntaxError: the reference does not parse.
            NotFoundError: no such dataset, config, version or alias; the nearest are named.
            VersionWithdrawnError: what answers is dropped, or yanked and not named; the hint names what can be read.
            LockedError: look-ups are locked, and the reference does not name one version exactly, or is not pinned.
            UsageError: ``at`` is no moment.
        """
        found = self.look_up(reference, at=at)
        if found.yank_note is not None:
            warnings.warn(found.yank_note, YankedVersionWarning, stacklevel=2)
        return found

    def look_up(self, reference: str | Reference, *, at: Moment | None = None) -> Dataset:
        """As ``dataset``, without a warning: what is to be known of the version is in its ``notes``."""
        wanted = parse_reference(reference)
        lock = current_lock()
        if lock is not None and lock.pins is not None:
            from registry.api.pinned import find_pinned

            return find_pinned(lock.pins, wanted, at=at)
        moment = read_moment(at)
        exactly = lock is not None
        if exactly and not may_be_exact(wanted):
            raise refuse_moving(wanted, self._given(wanted, moment), moment)
        found = self._find(wanted, moment)
        if exactly and found.config != wanted.config:
            raise refuse_moving(wanted, found.reference, moment)
        return found

    def datasets(self) -> tuple[DatasetSummary, ...]:
        """Every dataset and config, by name."""
        return self._catalog.datasets()

    def search(self, text: str, *, limit: int = 20) -> tuple[SearchHit, ...]:
        """The datasets that ``text`` is about: the best ``limit`` of which every word matches, the best first.

        A word matches what begins with it, whatever its case and accents: ``dig`` finds digits, ``images`` finds
        open_images_v4. A match in a name stands above one in a tag or feature, that above one in a description, and
        that above one in licence, homepage or citation. ``text`` has no syntax.

        Raises:
            UsageError: no letter or digit in ``text``, or more than a person types; a limit below 1.
        """
        return self._catalog.search(text, limit=limit)

    def explain_no_hits(self, text: str) -> str:
        """Why ``search(text)`` found nothing: the words that nothing has, and what may have been meant."""
        return self._catalog.explain_no_hits(text)

    def versions(self, name: str, config: str | None = None, *, at: Moment | None = None) -> tuple[VersionSummary, ...]:
        """Every published version of a dataset, the highest first; ``at`` a moment, as they stood then."""
        return self._catalog.versions(name, config, at=read_moment(at))

    def standing(self, name: str, config: str | None = None, *, at: Moment | None = None) -> Standing:
        """How the versions of a dataset stand now, or stood ``at`` a moment: states, canonical version, aliases.

        Config None is the default one.
        """
        return self._catalog.standing(name, config, at=read_moment(at))

    @cached_property
    def lifecycle(self) -> Lifecycle:
        """Promote, deprecate, yank and drop versions; choose the default config."""
        return Lifecycle(self._catalog, data=self._store)

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

        The builder's ``version`` knows the defaults of the catalog's experiments; a version that is built again knows
        those that it was published with.

        Args:
            wanted: ``name[/config][:request]`` of an installed builder, without a request its VERSION; or code,
                ``package.module:Class[/config][:request]``; or a builder class or instance at hand.
            processes: how many encode examples, and decode them for the proof of the number; None starts as many as
                there are cores once a dataset is large.
            num_shards: shards of each split; None lets size and count decide, as TFDS does.
            rebuild: build even where nothing seems left to do.
            progress: told what is being built.
            advance: called with the number of records verified since the last call.

        Raises:
            BuildError: this code cannot prepare the version, or fails.
            ExperimentNotFoundError, ConflictError: the version overrides an experiment that was never added to the
                catalog, or is retired.
            VersionExistsError: other content is published under the number.
        """
        from registry.building import build_dataset, open_builder
        from registry.publishing import Target, publish_staged

        builder = open_builder(wanted)
        published = self._published(builder.reference)
        # A catalog may be shared and its data directory not: then the bytes are made here, and must be the same.
        if published is not None and not rebuild and self.version_store(published.version).exists("dataset_info.json"):
            return published
        defaults = self._experiment_defaults(builder, published)
        builder = builder.with_experiment_defaults(defaults)
        store = self._store()
        is_canonical = builder.version == builder.canonical_version
        target = Target(
            store=store,
            catalog=self._catalog,
            # Older code must not take an unversioned look-up back to its own canonical version.
            promote=is_canonical and self._is_highest(builder.name, builder.config_name, builder.version),
            default_config=builder.config_name == builder.default_config(),
            actor=current_actor(),
            processes=processes,
            experiment_defaults=defaults,
        )
        with build_dataset(builder, store, processes=processes, num_shards=num_shards, progress=progress) as build:
            return publish_staged(build.staged, build.prepared, build.shards, target, advance=advance)

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
        from registry.publishing import Target, preview_folder

        builder = open_builder(wanted)
        published = self._published(builder.reference)
        if published is not None and not rebuild and self.version_store(published.version).exists("dataset_info.json"):
            return None
        defaults = self._experiment_defaults(builder, published)
        builder, store = builder.with_experiment_defaults(defaults), self._store()
        target = Target(store=store, catalog=self._catalog, promote=False, actor=current_actor(), processes=processes)
        with build_dataset(builder, store, processes=processes, num_shards=num_shards, progress=progress) as build:
            return preview_folder(build.staged.store, target, show=show, advance=advance)

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
            promote: make it the canonical version; None does so where it is higher than the present one.
            version_to_prepare: the last version of the builder's code that can prepare it, where today's code cannot;
                ``1.0.0``, ``v1.0.0``, or a commit.
            advance: called with the number of records verified since the last call.

        Raises:
            ConflictError: the same content is published already, with another ``version_to_prepare``.
        """
        from registry.prepared import read_prepared
        from registry.publishing import Target, publish_folder
        from registry.storage import open_store

        code = None if version_to_prepare is None else read_code_version(version_to_prepare)
        source = open_store(folder)
        if promote is None:
            prepared = read_prepared(source)
            promote = self._is_highest(prepared.name, prepared.config, prepared.version)
        target = Target(store=self._store(), catalog=self._catalog, promote=promote, actor=current_actor())
        publication = publish_folder(source, target, version_to_prepare=code, advance=advance)
        if not publication.newly and code is not None:
            self._check_code_version(publication.version.reference, code)
        return publication

    def import_tfds(
        self,
        folder: str | os.PathLike[str],
        *,
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
            copy: copy the files into ``data_dir``; otherwise they stay where they lie, and are read there.
            trust_lengths: hash the shard files and believe what ``dataset_info.json`` says of their lengths: no record
                is looked at, and fingerprints are computed when something needs them.
            dry_run: only look which versions there are.
            progress: told what is being imported.

        Raises:
            PreparedFormatError: there is no such version. What is wrong with one of several is its ``error``.
        """
        from registry.api.imports import find_tfds, look_at, take_in
        from registry.publishing import Target

        found = find_tfds(folder)
        if dry_run:
            return look_at(found)
        target = Target(store=self._store(), catalog=self._catalog, promote=False, actor=current_actor())
        return take_in(
            found,
            target,
            copy=copy,
            trust_lengths=trust_lengths,
            store_of=self.version_store,
            progress=progress,
        )

    @overload
    def import_parquet(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str | None = None,
        config: str | None = None,
        version: str | Version = "1.0.0",
        copy: bool = False,
        promote: bool | None = None,
        dry_run: Literal[False] = False,
        advance: Advance | None = None,
    ) -> Publication: ...
    @overload
    def import_parquet(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str | None = None,
        config: str | None = None,
        version: str | Version = "1.0.0",
        copy: bool = False,
        promote: bool | None = None,
        dry_run: Literal[True],
        advance: Advance | None = None,
    ) -> PreparedDataset: ...
    def import_parquet(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str | None = None,
        config: str | None = None,
        version: str | Version = "1.0.0",
        copy: bool = False,
        promote: bool | None = None,
        dry_run: bool = False,
        advance: Advance | None = None,
    ) -> Publication | PreparedDataset:
        """Publish a folder of Parquet shards with typed columns: where it lies, or as a copy below ``data_dir``.

        Args:
            folder: path or URL of the folder that holds ``train-00000-of-00005.parquet`` and the like.
            name: of the dataset; None makes one of the folder's name.
            config: of the dataset, or None.
            version: its number.
            copy: copy the shards, under names of ours where theirs follow no template; else nothing is written but
                rows, and the folder has to stay.
            promote: as ``publish``.
            dry_run: only look which version the files make, and give that: rows are read where the footers do not tell
                whether a column holds a null, and the first one where it holds images or sounds.
            advance: as ``publish``.

        Raises:
            PreparedFormatError: no such files, or some are missing, or named so that only a copy can be read, or a
                column has a type that no feature has; or there are several configs.
            CorruptExampleError: a list, struct or image is null, or something in a list, or an image is none.
            As ``publish``.
        """
        from registry.interop.parquet import describe_parquet
        from registry.interop.parquet_names import with_fitting_names
        from registry.storage import open_store

        source = open_store(folder)
        number = Version.parse(version) if isinstance(version, str) else version
        if copy:
            source = with_fitting_names(source, dataset=name or "N")
        prepared = describe_parquet(source, name=name, config=config, version=number)
        if dry_run:
            return prepared
        from registry.publishing import Target, publish_folder

        if promote is None:
            promote = self._is_highest(prepared.name, prepared.config, prepared.version)
        target = Target(store=self._store(), catalog=self._catalog, promote=promote, actor=current_actor())
        return publish_folder(source, target, prepared=prepared, in_place=not copy, advance=advance)

    @cached_property
    def pins(self) -> CatalogPins:
        """Pin files, seen from here: ``audit``, ``preview_update`` and ``update``, ``from_citation``."""
        from registry.api.pins import CatalogPins

        return CatalogPins(self)

    def published_digest(self, exactly: Reference) -> str | None:
        """The content digest that was ever published under an exact reference, 64 hex digits, or None."""
        version = None if exactly.request is None else exactly.request.exact
        return None if version is None else self._catalog.published_digest(exactly.name, exactly.config, version)

    @property
    def aliases(self) -> Aliases:
        """Names for versions, which may be moved: ``set``, ``remove``, ``list``, ``history``."""
        return Aliases(self._catalog, actor=current_actor())

    @property
    def experiments(self) -> Experiments:
        """The flags that versions may override: ``add``, ``list``, ``set_default``, ``retire``."""
        return Experiments(self._catalog, actor=current_actor())

    def implemented(self, version: DatasetVersion) -> Mapping[str, bool]:
        """Every experiment, as it stands for a published version."""
        return self._catalog.implemented(version)

    def preview(self, folder: str | os.PathLike[str], *, show: int = 5, advance: Advance | None = None) -> Preview:
        """What publishing a prepared version folder would come to: the proof of its number, and all that changed.

        Nothing is written. ``show`` is how many differing records of each split are described.
        """
        from registry.publishing import Target, preview_folder
        from registry.storage import open_store

        target = Target(store=self._store(), catalog=self._catalog, promote=False, actor=current_actor())
        return preview_folder(open_store(folder), target, show=show, advance=advance)

    def diff(
        self, old: str | Reference, new: str | Reference, *, show: int = 5, advance: Advance | None = None
    ) -> VersionDiff:
        """Everything that differs between two published versions, down to the record, and how much it weighs.

        The versions may be of different datasets. Records are compared by the features that both have; their files are
        read where the fingerprints differ, and only there.

        Args:
            old: the version to start from.
            new: the version to compare with it.
            show: how many differing records of each split are described.
            advance: called with the number of records read since the last call.
        """
        from registry.publishing import Prover, diff_versions

        prover = Prover(catalog=self._catalog, data=self._store(), advance=advance)
        return diff_versions(prover, self.look_up(old).details, self.look_up(new).details, show=show)

    def shards(self, version: DatasetVersion, split: str) -> tuple[Shard, ...]:
        """The stored files of a split: position, size and sha256 of each."""
        return self._catalog.shards(version, split)

    def version_store(self, version: DatasetVersion) -> Store:
        """The folder that holds the shards of ``version``.

        Where a version was catalogued in place, on this machine, and that place is gone, a copy in ``data_dir`` does.
        """
        from registry.storage import open_location

        found = open_location(self._store(), version.location)
        if version.location.startswith("/") and found.local_root is not None and not found.local_root.is_dir():
            copy = self._store().child(version_folder(version.name, version.config, version.version))
            return copy if copy.exists("dataset_info.json") else found
        return found

    def indexes(self) -> IndexFolder:
        """Where readers keep the places of records for the next time."""
        from registry.tfrecord import IndexFolder

        return IndexFolder(index_folder())

    def log(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        dataset: str | None = None,
        actions: Collection[str] | None = None,
        limit: int | None = None,
    ) -> Iterator[Event]:
        """Who did what, and when: the events of the catalog, the oldest first, in bounded memory.

        Args:
            since: not before this moment.
            until: not after this moment.
            dataset: of this dataset; a name without a config means all its configs.
            actions: of these kinds, e.g. ``["publish", "yank"]``.
            limit: the newest so many.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: no such dataset.
            UsageError: a time without a zone, ``since`` later than ``until``, a version behind the dataset's name, or a
                limit below 1.
        """
        return self._catalog.events(since=since, until=until, dataset=dataset, actions=actions, limit=limit)

    def verify_log(self, *, anchor: str | None = None, advance: Advance | None = None) -> LogReport:
        """Prove that nothing was changed past the registry: neither the event log, nor the rows that it speaks of.

        Every event is sealed with the hash of the one before it; replayed, they have to give what the tables hold, down
        to the sha256 of every shard. ``require_sound()`` of the report raises where something is wrong.

        Args:
            anchor: the ``head`` of an earlier report: the log has to hold it still.
            advance: called with the number of rows looked at since the last call, of ``num_logged_rows()``.

        Raises:
            UsageError: an anchor that is no hash, or 64 zeros, the head of an empty log, where there are events.
        """
        if anchor is not None and not re.fullmatch("[0-9a-f]{64}", anchor):
            raise UsageError(f"{anchor!r:.80} is no head of a log", hint="It has 64 hex digits: registry log verify.")
        return self._catalog.verify_log(anchor=anchor, advance=advance)

    def num_logged_rows(self) -> int:
        """How many rows ``verify_log`` looks at."""
        return self._catalog.num_logged_rows()

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

    def _find(self, wanted: Reference, moment: datetime | None) -> Dataset:
        try:
            if moment is None:
                return Dataset(self._catalog.find(wanted), catalog=self, wanted=wanted)
            past = self._catalog.find_at(wanted, moment)
        except DatasetNotFoundError as error:
            raise _offer_builder(error, wanted.name) from error
        return PastDataset(past, catalog=self, moment=moment)

    def _given(self, wanted: Reference, moment: datetime | None) -> Reference | None:
        """What a reference gives that may not be looked up, for a hint."""
        try:
            return self._find(wanted, moment).reference
        except NotFoundError:
            return None

    def _store(self) -> Store:
        from registry.storage import open_store

        return open_store(self.data_dir)

    def _experiment_defaults(self, builder: DatasetBuilder, published: Publication | None) -> Mapping[str, bool]:
        """The flags that a build is given; those of its first time where it is published already."""
        if published is not None:  # flipped flags must not change what a published version is made of
            return self._catalog.implemented(published.version)
        is_buildable = builder.version.version_to_prepare is None  # if not, that is the error to tell of
        return self._catalog.experiment_defaults(builder.version.experiments if is_buildable else {})

    def _published(self, reference: Reference) -> Publication | None:
        from registry.publishing import Publication

        try:
            version = self._catalog.find(reference)
        except NotFoundError:
            return None
        return Publication(version=version, newly=False, num_bytes=0)

    def _check_code_version(self, reference: Reference, code: str) -> None:
        published = self._published(reference)
        stored = None if published is None else published.version.version_to_prepare
        if published is not None and stored != code:
            raise ConflictError(
                f"{reference} is published already, {f'with version_to_prepare {stored}' if stored else 'without one'}",
                hint="What is published never changes. Leave --version-to-prepare out.",
                details={"published": stored, "offered": code},
            )

    def _is_highest(self, name: str, config: str | None, version: Version) -> bool:
        """Whether no canonical version is above it; one that is yanked counts, until another one is promoted."""
        try:
            configs = self._catalog.configs(name)
        except DatasetNotFoundError:
            return True
        canonical = next((one.canonical for one in configs if one.config == config), None)
        return canonical is None or version >= canonical


def _offer_builder(error: DatasetNotFoundError, name: str) -> DatasetNotFoundError:
    """The error of a dataset that is not in the catalog, with the hint to build it where an installed builder can."""
    from registry.building import list_builders

    if name not in list_builders():
        return error
    return DatasetNotFoundError(error.message, hint=f"Build it with: registry build {name}", details=error.details)
