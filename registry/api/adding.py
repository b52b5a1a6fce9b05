"""``Catalog.add``: publishes data that has no builder class, under the smallest number that its changes allow.

    given -> Source -> Plan (schema, keys) -> staged shards -> number by proof -> row

``plan_add`` stops before anything is written, so that a caller can show the plan.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from registry import model
from registry.api.arguments import read_version
from registry.api.locations import open_data
from registry.api.publishing import Publishing
from registry.argument_types import require_path, typed_methods
from registry.catalog.absent import previews, publishes
from registry.engines import announces
from registry.errors import ConflictError, NotFoundError, UsageError, spell
from registry.intake.options import takes_options
from registry.model import Description, Reference, Version, check_config, check_name, check_new_name, is_generic
from registry.model.version import HIGHEST

if TYPE_CHECKING:
    from registry.api.reports import AddReport
    from registry.catalog import CatalogBackend
    from registry.features import FeaturesDict
    from registry.intake.in_place import PlannedInPlace
    from registry.intake.options import AddArguments, AddOptions
    from registry.intake.plan import Plan
    from registry.intake.source import Source
    from registry.intake.staging import StagedSource
    from registry.model import Advance, DatasetVersion, NameUse, Producer, ProgressCallback
    from registry.prepared import PreparedDataset
    from registry.publishing import NumberWish


@typed_methods
class Addition:
    """A source that was read but not published yet. ``Catalog.plan_add`` returns it.

    Attributes:
        plan: the source, its schema and its keys.
        reference: the dataset and config.
        name_origin: where the name comes from, in words, if it was derived and is not the last part of the path.
    """

    def __init__(
        self,
        catalog: Adding,
        plan: Plan,
        reference: Reference,
        *,
        producer: Producer,
        name_use: NameUse,
        name_origin: str = "",
        num_shards: int | None = None,
        description: Description,
        stored: PlannedInPlace | None = None,
        inputs: Mapping[str, str] | None = None,
    ) -> None:
        self.plan = plan
        self.reference = reference
        self.name_origin = name_origin
        self._catalog = catalog
        self._producer = producer
        self._name_use = name_use
        self._num_shards = num_shards
        self._description = description
        self._stored = stored  # files that stay where they are
        self._inputs = inputs  # stamps of the files of the source

    @property
    def backend(self) -> CatalogBackend:
        """The catalog protocol of the target catalog."""
        return self._catalog.backend

    @announces("adding", "self")
    @publishes
    def publish(
        self,
        *,
        bump: str | None = None,
        number: str | Version | None = None,
        reason: str = "",
        promote: bool | None = None,
        processes: int | None = None,
        dry_run: bool = False,
        show: int = 5,
        progress: ProgressCallback | None = None,
    ) -> AddReport:
        """Write the records, choose the number and publish; see ``Catalog.add``.

        Args:
            bump: see ``Catalog.add``.
            number: see ``Catalog.add``.
            reason: see ``Catalog.add``.
            promote: see ``Catalog.add``.
            processes: see ``Catalog.add``.
            dry_run: see ``Catalog.add``.
            show: see ``Catalog.add``.
            progress: called with a ``Progress``. The phases are ``encoding`` of rows, ``writing`` of the records of
                each split, ``verifying`` of all records and, for an object store, ``uploading`` of shards, in bytes.

        Raises:
            UnusableRowsError, DuplicateKeyError, SourceError: see ``Catalog.add``.
            VersionTooSmallError, VersionExistsError, ProtectedError, ConflictError, StorageError: see ``Catalog.add``.
        """
        from registry.publishing import publish_next
        from registry.publishing.publish import note_metadata

        wish = _wish(bump, number)
        self._catalog._refuse_protected(self.reference, promote)
        if not dry_run:
            self._catalog._require_target([self.reference], has_files=self._stored is None)
        target = self._catalog._target(
            promote,
            progress,
            str(self.reference),
            processes=processes,
            producer=self._producer,
            name_use=self._name_use,
        )
        if self._stored is not None:
            target = dataclasses.replace(target, slicing=self._stored.slicing)
        with self._staged(processes, progress, dry_run=dry_run) as source:
            prepared = self._describe(source.prepared)
            result = publish_next(
                source.store,
                prepared,
                target,
                wish,
                staged=source.staged,
                shards=source.shards,
                folded=source.folded,
                release_note=reason,
                show=show,
                dry_run=dry_run,
            )
        version, latest, publication = result.number, result.latest, result.publication
        # Another publisher may have taken the number with the same content meanwhile.
        is_known = version is None or (publication is not None and not publication.newly)
        outcome: Literal["published", "unchanged", "would_publish"] = (
            "unchanged" if is_known else "would_publish" if dry_run else "published"
        )
        if version is None:
            if latest is None:
                raise AssertionError("without an earlier version, a number is always chosen")
            version = latest.version
        from registry.api.reports import AddReport

        return AddReport(
            reference=Reference.exactly(self.reference.name, self.reference.config, version),
            outcome=outcome,
            plan=self.plan,
            splits={split.name: split.num_examples for split in prepared.splits},
            bad=tuple(source.bad.first),
            num_bad=source.bad.count,
            latest=latest,
            changes=result.changes,
            diff=result.diff,
            publication=publication,
            overlap=None if source.overlap is None or source.overlap.is_disjoint else source.overlap,
            notes=note_metadata(latest, prepared.metadata) if latest and outcome == "unchanged" else (),
        )

    def _describe(self, prepared: PreparedDataset) -> PreparedDataset:
        """``prepared`` with the metadata that people gave for the previous version and for this one."""
        latest, _ = self.backend.neighbours(self.reference.name, self.reference.config, Version(*HIGHEST))
        metadata = prepared.metadata if latest is None else model.described_before(prepared.metadata, latest.metadata)
        metadata = self._description.apply(metadata)
        if not set(metadata.supervised_keys or ()) <= set(prepared.features):  # inherited from the previous version
            metadata = dataclasses.replace(metadata, supervised_keys=None)
        return dataclasses.replace(prepared, metadata=metadata)

    @contextmanager
    def _staged(
        self, processes: int | None, progress: ProgressCallback | None, *, dry_run: bool
    ) -> Iterator[StagedSource]:
        """The shards: written to a staged folder, or left in place."""
        from registry.intake.staging import StagedSource, stage_source

        plan = self.plan
        if self._stored is not None:
            there = self._stored
            yield StagedSource(store=there.store, staged=None, prepared=there.prepared, shards=None, bad=plan.bad)
            return
        with stage_source(
            plan,
            open_data(self._catalog.data_dir, catalog=self._catalog.backend),
            name=self.reference.name,
            config=self.reference.config,
            num_shards=self._num_shards,
            processes=processes,
            inputs=None if dry_run else self._inputs,
            progress=progress,
        ) as result:
            yield result


@typed_methods
class Adding(Publishing):
    """The methods of ``Catalog`` that add data without a builder class."""

    @announces("adding", "name", "source")
    @publishes
    @takes_options
    def add(
        self,
        source: Any,
        name: str | None = None,
        *,
        bump: str | None = None,
        number: str | Version | None = None,
        reason: str = "",
        promote: bool | None = None,
        processes: int | None = None,
        dry_run: bool = False,
        show: int = 5,
        progress: ProgressCallback | None = None,
        **options: Unpack[AddArguments],
    ) -> AddReport:
        """Publish data that has no builder class, under the smallest number that its changes allow.

        The first version is 1.0.0. Adding the same content again publishes nothing. Other shards of the same records
        are a PATCH, a new column is MINOR, anything else is MAJOR. The same source gives the same bytes for any order
        of its files. If the highest version is yanked or dropped and has the same content, pass ``bump`` or ``number``
        to publish that content again.

            report = catalog.add("prices.csv", "prices")
            print(report.reference, report.outcome)
            catalog.add({"train": frame, "test": other}, "prices", features={"label": "ClassLabel"})

        Args:
            source: a path or URL of a file, folder or archive; a list of paths of files of one kind; a frame of pandas
                or polars; an Arrow table; a dict of arrays; a dataset of Hugging Face, torch or tf.data; an iterable of
                dicts, or a function that returns one; or a dict of split name -> any of these.
            name: the name of the dataset. None derives it from the path: from the name of the file or folder, or of the
                nearest parent folder whose name is not generic (``train`` and ``data`` are generic). A derived name
                continues a dataset that was added from the same place and has a column or the key in common; ``name``
                continues one that was added from any place. To continue any other dataset, pass ``replace``.
            kind: the kind of the source, such as ``csv``, if detection is wrong.
            config: the config of the dataset, or None. If the source has several configs, this one is read.
            records: which records to read if the source has several kinds: in a JSON file that is an object, the key of
                a list, or ``"."`` for the object itself; in a Croissant file, a record set.
            features: the types of columns, as a feature or as text such as ``"ClassLabel"``. The types of other columns
                are inferred from all rows.
            schema: path of a schema file, as written by ``registry add --schema-out``.
            retype: infer the types of all columns anew. By default, a column keeps the type that it has in the previous
                version, and classes keep their numbers, after which new classes are added.
            dates: convert each text column in which every value is an ISO 8601 date, time of day or timestamp.
            paths: whether the name of the file of each record is stored in a column ``path``. None does as in the
                previous version; in a first version, it stores the names of files that are records, but not those of
                tables.
            nulls: for CSV, texts that mean null if they are not in quotes, such as ``"NA"``. With quotes around it, as
                in ``'"NA"'`` and ``'""'``, a text means null in quotes, too.
            header: for CSV, whether the first row has the names of the columns. None infers it from the rows.
            delimiter: for CSV, the character between fields. None infers it.
            quotes: for CSV, whether a quote at the start of a field opens quoted text; if False, quotes are text as any
                other. None does as in the previous version, and means True in a first version.
            encoding: for CSV and lines, the encoding, such as ``"WINDOWS-1252"``. None means UTF-8, or the encoding of
                the byte order mark.
            splits: split name -> glob of file names. None derives the splits from the names of files and folders.
            rename_splits: other names for splits of the source, such as ``{"train.100": "train_100"}``.
            rename_columns: other names for columns. All other arguments use these names.
            rename_configs: another name for the config that is read, such as ``{"en (US)": "en_US"}``.
            split_by: the column whose value decides the split. It is not stored.
            holdout: split off a part by the hash of the key, such as ``"test=10%"``.
            seed: the seed of the holdout; another seed holds out other records.
            key: the column whose values are the keys of the records. None does as in the previous version; in a first
                version, the keys are the paths of files if there are any, else the content.
            key_by: ``content`` or ``path``: derive the keys from it, regardless of the previous version.
            skip_bad: leave out at most this number of unusable rows and files; a list of them is stored with the
                version.
            bump: raise at least this part of the number: ``patch``, ``minor`` or ``major``.
            number: publish under exactly this number.
            reason: what changed: the release note of the version.
            in_place: read Parquet, TFRecord or ArrayRecord files where they are; they must stay there. Their records
                keep their order; options that change records are refused. TFRecord and ArrayRecord files that TFDS did
                not prepare need ``schema`` or ``features``, with the types of all columns.
            replace: publish the next version of the dataset even if the dataset comes from another source, or has no
                column in common. Needed once for one that was made by a builder, an import, a copy or ``publish``.
            promote: make the version canonical, see ``publish``.
            num_shards: the number of shards of each split. None decides by size and count, as TFDS does.
            description: text for people. None uses the description of the source, such as its README.md. The next
                addition inherits this and the next five arguments; ``describe`` corrects them.
            license: an SPDX licence expression, such as ``CC-BY-4.0``.
            citation: usually BibTeX.
            homepage: a URL.
            tags: tags to add to those of the source.
            supervised: the names of the input and target features, such as ``["image", "label"]``.
            processes: number of processes that encode. None starts one for each core if there is enough work.
            dry_run: publish nothing, and report the changes down to records.
            show: describe at most this many differing records of each split.
            progress: called with a ``Progress``. The phases are ``reading`` and ``encoding`` of rows, ``writing`` of
                the records of each split, and ``verifying`` of all records.

        Returns:
            What was published, and the reasons for its number.

        Raises:
            SourceError: the source is missing, ambiguous, unreadable or empty, or its types contradict each other.
            UnusableRowsError: more rows or files than ``skip_bad`` allows cannot be used; the message names the first
                20. Or, with ``in_place``, records have values that their feature does not allow; the message names the
                first of each feature.
            DuplicateKeyError: two records of a split have the same key; the message names both places.
            FeatureError: a feature is malformed.
            UsageError: an argument does not fit the source.
            ReferenceSyntaxError: the name or config is invalid.
            MissingExtraError: pyarrow, or the package that reads this kind, is not installed.
            VersionTooSmallError: ``bump`` or ``number`` is too small for the changes.
            VersionExistsError: ``number`` is published with other content.
            ProtectedError: ``promote`` is True, and the dataset, config or catalog is protected.
            OtherSourceError: the dataset comes from another source, and ``replace`` is False.
            ConflictError: other publishers repeatedly took the next number.
            StorageError: the disk is full or not writable.
        """
        if not dry_run:
            self.backend.require_publisher()  # before all of the source is read
        addition = self.plan_add(source, name, progress=progress, **options)
        return addition.publish(
            bump=bump,
            number=number,
            reason=reason,
            promote=promote,
            processes=processes,
            dry_run=dry_run,
            show=show,
            progress=progress,
        )

    @announces("reading", "name", "source")
    @previews
    @takes_options
    def plan_add(
        self,
        source: Any,
        name: str | None = None,
        *,
        progress: ProgressCallback | None = None,
        **options: Unpack[AddArguments],
    ) -> Addition:
        """Read a source, and decide its schema, splits and keys. Nothing is written until the result is published.

        Args:
            source: see ``add``.
            name: see ``add``.
            progress: called with a ``Progress``: rows are ``reading``.
            options: see ``add``.

        Raises:
            SourceError, UnusableRowsError, FeatureError, UsageError, ReferenceSyntaxError, MissingExtraError: see
                ``add``.
            OtherSourceError: see ``add``. Raised before a long read if the place of the source decides it.
            StorageError: a file cannot be read.
        """
        from registry.intake.options import AddOptions
        from registry.shards.arrow_values import import_pyarrow

        import_pyarrow("adding data")
        if isinstance(source, list | tuple) and source and all(isinstance(path, str | os.PathLike) for path in source):
            from registry.intake.listing import FileList

            source = FileList(source)
            if options.get("in_place"):
                raise UsageError("several files cannot stay in place", hint="Name the folder that contains only them.")
        if isinstance(source, str | os.PathLike):
            require_path("source", source)
        given = AddOptions(**options)
        given.warn_of_license()
        name_use: NameUse = "replace" if given.replace else "derived" if name is None else "given"
        name_origin = _name_origin(source) if name is None else ""
        if given.in_place:
            return self._plan_in_place(source, name, given, name_use=name_use, name_origin=name_origin)
        self.require_data_dir()
        reference = self._new_reference(source, name, given.dataset_config())
        producer = self._producer_of(source, reference, name_use)
        if not isinstance(source, str | os.PathLike):
            given.require_object()
        inputs = _stamp_inputs(source)
        plan = self._read_source(source, reference, producer, name_use, given, progress)
        given.require_features(plan.stored())
        producer = self._require_continued(reference, producer, name_use, plan)
        # The files of a Croissant document may be anywhere.
        is_known = not plan.source.origins and plan.source.kind != "croissant"
        return Addition(
            self,
            plan,
            reference,
            producer=producer,
            name_use=name_use,
            name_origin=name_origin,
            description=given,
            num_shards=given.num_shards,
            inputs=inputs if is_known else None,
        )

    def _read_source(
        self,
        source: Any,
        reference: Reference,
        producer: Producer,
        name_use: NameUse,
        options: AddOptions,
        progress: ProgressCallback | None,
    ) -> Plan:
        """Open the source, and read its rows with the settings of the previous version."""
        from registry.intake.plan import INTAKE, plan_source
        from registry.intake.schema import with_remembered

        latest, _ = self.backend.neighbours(reference.name, reference.config, Version(*HIGHEST))
        wishes, before = options.wishes(), None if options.retype else _features_added(latest)
        if latest is not None and before is not None:
            wishes = with_remembered(wishes, before, latest.metadata.custom)
        intake = None if latest is None else latest.metadata.custom.get(INTAKE)
        if isinstance(intake, Mapping):
            options = options.with_remembered(intake)
        options = dataclasses.replace(options, features=wishes, schema=None)
        opened = _open(source, options.for_source(), model.count_progress(progress, "downloading", unit="bytes"))
        opened = opened.with_column_names(options.rename_columns or {}, must_exist=options.new_columns())
        earlier = self.backend.producers(reference.name, reference.config)
        model.check_continues(name_use, dataclasses.replace(producer, kind=opened.kind), earlier)
        return plan_source(opened, options, earlier=intake, progress=progress)

    def _plan_in_place(
        self, source: Any, name: str | None, options: AddOptions, *, name_use: NameUse, name_origin: str
    ) -> Addition:
        from registry.intake.in_place import plan_in_place, read_description

        described, config = read_description(source), options.config
        if described is not None:
            if name is None and not is_generic(described.name):
                name, name_origin = described.name, "from its description"
            config = config or described.config
        reference = self._new_reference(source, name, config)
        producer = self._producer_of(source, reference, name_use, folders_only=True)
        latest, _ = self.backend.neighbours(reference.name, reference.config, Version(*HIGHEST))
        before = () if latest is None else [split.name for split in latest.splits]
        stored = plan_in_place(source, reference, options, described=described, before=before)
        options.require_features(stored.prepared.features)
        return Addition(
            self,
            stored.plan,
            reference,
            producer=self._require_continued(reference, producer, name_use, stored.plan),
            name_use=name_use,
            name_origin=name_origin,
            description=options,
            stored=stored,
        )

    def _producer_of(
        self, source: Any, reference: Reference, name_use: NameUse, *, folders_only: bool = False
    ) -> Producer:
        """Describe the addition as far as it is known before the source is opened. Raise if it is already refused."""
        if not isinstance(source, str | os.PathLike):
            return model.Producer(action="add")
        from registry.intake.listing import place_of

        place = place_of(os.fspath(source))
        producer = model.Producer(action="add", place=place)
        # A path that does not exist, or a file where only folders can be added, gets that error first.
        is_there = os.path.isdir(place) if folders_only else os.path.exists(place)  # noqa: PTH110, PTH112 (of any length)
        if "://" in place or is_there:
            model.check_continues(name_use, producer, self.backend.producers(reference.name, reference.config))
        return producer

    def _require_continued(self, reference: Reference, producer: Producer, name_use: NameUse, plan: Plan) -> Producer:
        """``producer`` with the kind of its source. Refuse another source, or a source without a common column or key.

        A file may have been replaced by an unrelated file of the same name, or have lost its header. Under a derived
        name, a common column has the same type, too.
        """
        from registry.intake.source import list_names
        from registry.publishing.changes import common_features

        producer = dataclasses.replace(producer, kind=plan.source.kind)
        earlier = self.backend.producers(reference.name, reference.config)
        model.check_continues(name_use, producer, earlier)
        latest, _ = self.backend.neighbours(reference.name, reference.config, Version(*HIGHEST))
        if name_use == "replace" or latest is None or plan.shares_key(latest.metadata):
            return producer
        columns, before = plan.stored(), _features_added(latest)
        if common_features(latest, columns) if name_use == "derived" else before is None or {*before} & {*columns}:
            return producer
        raise model.other_source(
            earlier[0],
            producer,
            f"{latest.reference} and {producer} have neither a column nor the key in common; the source is "
            f"{plan.source.summary}, with the columns {list_names(sorted(columns))}",
        )

    def _new_reference(self, source: Any, name: str | None, config: str | None) -> Reference:
        """The dataset and config. An invalid name is refused before a long read."""
        if name is None:
            if not isinstance(source, str | os.PathLike):
                raise UsageError(
                    "a dataset from a Python object needs a name",
                    hint='For example: catalog.add(frame, "prices")',
                    details={"type": type(source).__name__},
                )
            from registry.intake.listing import name_of_path

            name = name_of_path(os.fspath(source))
        check_name(name)
        if config is not None:
            check_config(config)
        latest, _ = self.backend.neighbours(name, config, Version(*HIGHEST))
        if latest is None:
            check_new_name(name)
            self._refuse_other_form(name, config)
        elif latest.name != name:
            self.refuse_former_name(name)
        return Reference(name, config)

    def _refuse_other_form(self, name: str, config: str | None) -> None:
        """Raise if the dataset has configs and ``config`` is None, or the other way round."""
        try:
            known = [listed.config for listed in self.backend.configs.list(name)]
        except NotFoundError:
            return
        if (config is None) == (None in known):
            return
        configs = ", ".join(label for label in known if label is not None)
        other = f"choose another name: {spell('name=NAME')}"
        raise ConflictError(
            f"{name} is published {f'with configs: {configs}' if config is None else 'without configs'}",
            hint=f"Name the config: {spell('config=NAME')}. Or {other}"
            if config is None
            else f"Leave out {spell('config')}, or {other}",
            details={"dataset": name, "configs": [label for label in known if label is not None]},
        )


def _name_origin(source: Any) -> str:
    from registry.intake.listing import derive_name

    if not isinstance(source, str | os.PathLike):
        return ""
    try:
        return derive_name(os.fspath(source))[1]
    except UsageError:  # raised again unless a description names the dataset
        return ""


def _open(source: Any, options: AddOptions, advance: Advance | None) -> Source:
    from registry.intake.source import Source

    if isinstance(source, Source):  # from a reader outside of this package
        return source
    if isinstance(source, str | os.PathLike):
        from registry.intake.detect import open_source

        return open_source(source, options, progress=advance)
    from registry.intake.objects import open_object

    opened = open_object(source, options)
    if opened is None:
        raise AssertionError("paths are opened above")
    return opened


def _stamp_inputs(source: Any) -> Mapping[str, str] | None:
    """The stamps of a source's files before they are read; None if it is not a path, or has too many files."""
    from registry.building.finished import stamps_below
    from registry.intake.listing import FileList
    from registry.storage import local_path

    if not isinstance(source, str | os.PathLike) or isinstance(source, FileList):
        return None
    path = local_path(os.fspath(source))
    return stamps_below(Path(path)) if path is not None and os.path.exists(path) else None  # noqa: PTH110 (of any length)


def _features_added(version: DatasetVersion | None) -> FeaturesDict | None:
    """The features of a version that ``add`` made; None if it was made in another way."""
    from registry.features import features_from_json
    from registry.intake.plan import INTAKE

    if version is None or INTAKE not in version.metadata.custom:
        return None
    return features_from_json(version.features_json).with_labels(version.labels)


def _wish(bump: str | None, number: str | Version | None) -> NumberWish:
    from registry.publishing import ChangeLevel, NumberWish

    if bump is not None and bump not in ("patch", "minor", "major"):
        raise UsageError(
            f"bump must be 'patch', 'minor' or 'major', not {bump!r:.60}",
            hint="Leave out bump to let the changes decide.",
            details={"bump": bump[:200]},
        )
    return NumberWish(bump=None if bump is None else ChangeLevel[bump.upper()], number=read_version(number))
