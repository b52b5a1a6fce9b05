"""``Dataset``: one published version, its metadata, its slices and their records.

``Catalog.dataset`` creates it from the facts of a version and its provenance; readers start from ``Dataset.slice_of``.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cached_property, partial
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal

from registry import model
from registry.api.locations import cache, open_indexes
from registry.api.provenance import CatalogSource
from registry.api.sliced_version import SlicedVersion
from registry.argument_types import typed_methods
from registry.engines import announces
from registry.errors import ConflictError, NotFoundError, NotStoredError, RegistryError, UsageError, require_extra
from registry.model import whole_number

if TYPE_CHECKING:  # numpy and protobuf are loaded when something is read
    import datasets
    import duckdb
    import ray.data

    from registry.api.provenance import Reasons
    from registry.api.sliced_version import DatasetInfo
    from registry.features import ImageDecoding
    from registry.interop.exporting import ExportKind, ExportReport
    from registry.interop.tfds import Exported
    from registry.model import Attachment, Considered, ProgressCallback, Reference, Shard, SlicingRule, VersionStatus
    from registry.order import ReadConfig
    from registry.pins import PinFile
    from registry.publishing import RecordOverlap, VerifyReport
    from registry.reading import Reader, Slice, State
    from registry.reading.column_filling import ColumnsReport
    from registry.reading.fetching import FetchReport
    from registry.reading.frameworks.table_columns import Labels
    from registry.reading.keeping import Keep
    from registry.reading.tables import TableSource
    from registry.splits import Explanation, ReadInstruction, Relation
    from registry.statistics import Moment, Statistics
    from registry.tfrecord import Verify

_SHOWN: Final = 10


@typed_methods
class Dataset(SlicedVersion):
    """One published version, as it was looked up: in a catalog, now or as of a moment, or in a pin file. Frozen.

    Every method works in all three cases. A version from a pin file knows only the pinned records, and raises
    ``LockedError`` for anything else.

    >>> digits = catalog.dataset("digits")
    >>> len(digits.read("train[:10%]"))
    180
    >>> digits.relation("train[:80%]", "train[80%:]").is_disjoint
    True

    Attributes:
        facts: everything that is recorded about the version. A pin file records only the homepage, licence and citation
            of the metadata, and only the shards that the pinned slices need.
        provenance: how it was looked up. Internal.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # For spawned workers and deepcopy: the copy looks up exactly this version again, in the catalog or in the pins.
        source = self.provenance.source
        if isinstance(source, CatalogSource) and source.look_up is not None:
            return partial(source.look_up, at=self.moment), (self.reference,)
        return type(self), (self.facts, self.provenance)

    @property
    def wanted(self) -> Reference:
        """The reference that was looked up."""
        return self.provenance.wanted

    @property
    def status(self) -> VersionStatus:
        """Its status when it was looked up or pinned: canonical, supported, experimental, deprecated or yanked."""
        return self.provenance.status

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings for readers: that the version is experimental, deprecated or yanked, since when, and why."""
        return self.provenance.notes

    @property
    def yank_note(self) -> str | None:
        """The note of a yanked version, or None."""
        return self.provenance.yank_note

    @cached_property
    def protected(self) -> str | None:
        """The protection of the canonical version, as of the moment of the look-up; see ``Catalog.protection``."""
        return self.provenance.source.protection(self.moment)

    @property
    def why(self) -> tuple[str, ...]:
        """Why the look-up returned this version, in sentences."""
        return self._reasons[0]

    @property
    def considered(self) -> tuple[Considered, ...]:
        """Every version that the look-up considered, highest first, each with its verdict."""
        return self._reasons[1]

    @property
    def experiments(self) -> Mapping[str, bool]:
        """The experiment flags that this version overrides."""
        return MappingProxyType(dict(self.facts.experiments))

    def implements(self, flag: str | Enum) -> bool:
        """Whether an experiment is on in this version: its override, else the default at the time of publication.

        A flag that was added to the catalog later is off. A pin file records only overrides.

        Args:
            flag: the name of the experiment, or a member of an Enum of that name.

        Raises:
            ExperimentNotFoundError: the experiment was never added, or the pin file does not record it.
        """
        name = flag.name.lower() if isinstance(flag, Enum) else flag
        if name in self.facts.experiments:
            return self.facts.experiments[name]
        if name not in self._flags:
            raise model.no_experiment(str(name), self._flags, where=self.provenance.source.name)
        return self._flags[name]

    @property
    def info(self) -> DatasetInfo:
        """This version under the names of ``tfds.core.DatasetInfo``."""
        from registry.api.sliced_version import DatasetInfo

        return DatasetInfo(self)

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The files, other than shards, that are stored with this version, such as its statistics, by kind and name.

        They are those that the catalog records now, even if the version was looked up as of a moment. A pin file
        records no attachments.
        """
        return self.provenance.source.attachments()

    def read_attachment(self, kind: str, name: str) -> bytes:
        """Read an attachment. Its bytes are verified against the catalog before they are returned.

        Args:
            kind: its kind, such as ``statistics``.
            name: the name of the file.

        Raises:
            NotFoundError: this version has no such attachment.
            NotStoredError: the file does not exist in any folder of the version.
            ShardMismatchError: the file was changed.
            StorageError: the file cannot be read, or is larger than 64 MiB.
        """
        for attachment in (attachments := self.attachments):
            if (attachment.kind, attachment.name) == (kind, name):
                return self.provenance.source.read_attachment(attachment)
        listing = ", ".join(f"{attachment.kind}/{attachment.name}" for attachment in attachments[:_SHOWN])
        raise NotFoundError(
            f"{self.reference} has no attachment {f'{kind}/{name}'!r:.120}",
            hint=f"Its attachments are: {listing}." if listing else "It has no attachments.",
            details={"name": f"{kind}/{name}"[:120]},
        )

    @property
    def statistics(self) -> Statistics:
        """The statistics of every feature and split, over all records: ``statistics["train"]["price"].mean``.

        They are an attachment of the version that ``compute_statistics`` creates.

        Raises:
            NotFoundError: the statistics have not been computed yet.
            NotStoredError, ShardMismatchError, StorageError: see ``read_attachment``.
        """
        from registry.statistics import DOCUMENT_NAME, parse_statistics

        try:
            content = self.read_attachment("statistics", DOCUMENT_NAME)
            return dataclasses.replace(parse_statistics(content), moments=self._moments())
        except NotFoundError as error:
            raise NotFoundError(
                f"{self.reference} has no statistics",
                hint=f"Compute and attach them: registry stats {self.reference} --compute\n"
                "In Python: dataset.compute_statistics()"
                if isinstance(self.provenance.source, CatalogSource)
                else "A pin file does not name them: look the version up in its catalog, without a lock.",
                details=error.details,
            ) from error

    @announces("describing", "self")
    def compute_statistics(
        self, *, processes: int | None = None, progress: ProgressCallback | None = None
    ) -> Statistics:
        """Compute the statistics of every feature over all stored records, and attach them to the version.

        The same records give the same statistics, regardless of the number of processes. For a version from a pin file,
        nothing is attached. Attached statistics of an older release, which do not count duplicates, are kept.

        >>> digits.compute_statistics()["train"]["label"].distinct.count
        10

        Args:
            processes: the number of processes that decode. None: one for each core if there is enough work.
            progress: called with a ``Progress``, in records.

        Raises:
            NotStoredError, CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: a file is missing
                or damaged, or cannot be read or written.
            CatalogPermissionError: this user may not write to the catalog.
            OtherDataDirectoryError: the client's data directory is not the one that the catalog records.
            UsageError: the version comes from a pin file that does not pin all of its records.
        """
        from registry.building.publication_folds import STATISTICS
        from registry.model import Attachment
        from registry.publishing.fingerprint import StoredSplits, fold_documents
        from registry.statistics import parse_statistics

        self.provenance.source.require_publisher()  # before the work
        readable = self.readable
        splits = readable.facts.splits
        documents = fold_documents(
            StoredSplits(readable.files({split.name for split in splits}), splits, readable.features),
            [STATISTICS],
            processes=processes,
            advance=model.count_progress(
                progress, "describing", str(self.reference), total=readable.facts.num_examples
            ),
        )
        ((kind, name), content) = next(iter(documents.items()))
        statistics = parse_statistics(content)
        try:
            self.provenance.source.attach(Attachment.of(kind, name, content), content)
        except ConflictError:
            if self.statistics != statistics.without_duplicates():
                raise
        return dataclasses.replace(statistics, moments=self._moments())

    def _moments(self) -> dict[str, Moment]:
        """The units of the features with dates, times and durations, by their path in the statistics."""
        from registry.display import moment_text, time_types
        from registry.features.containers import columns_of, content_path
        from registry.statistics import Moment

        times, result = time_types(self.features, self.metadata), {}
        for column in columns_of(self.features):
            if (time := times.get(column.path)) is not None:
                kind = "datetime" if time.kind == "timestamp" else time.kind
                result[content_path(column.names)] = Moment(kind, partial(moment_text, time=time))
        return result

    def explain(
        self,
        split: str | ReadInstruction,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Explanation:
        """Resolve a split expression, and explain every bound.

        >>> digits.explain("train[:10%]").sentences[1]
        'train[:10%] ends before record 180: 10% of 1,797 records is 179.7, rounded.'

        Args:
            split: see ``resolve``.
            slicing: see ``resolve``.
            rounding: see ``resolve``.

        Raises:
            SplitSyntaxError, SplitNotFoundError, SliceError, UsageError, LockedError: see ``resolve``.
        """
        rule = self.slicing if slicing is None else slicing
        return self.provenance.source.explain(split, slicing=rule, rounding=rounding)

    def relation(
        self,
        first: str | ReadInstruction,
        second: str | ReadInstruction,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Relation:
        """Compare the record numbers of two expressions: ``is_disjoint``, ``is_equal``, ``common`` and more.

        No file is opened, so duplicate records are not detected; ``overlap`` detects them.

        >>> found = digits.relation("train[:80%]", "train[70%:]")
        >>> found.is_disjoint, [(one.start, one.stop) for one in found.common]
        (False, [(1258, 1438)])

        Args:
            first: a split expression, see ``resolve``.
            second: another split expression.
            slicing: see ``resolve``.
            rounding: see ``resolve``.

        Raises:
            SplitSyntaxError, SplitNotFoundError, SliceError, UsageError, LockedError: see ``resolve``.
        """
        from registry.splits import relation

        return relation(
            self.resolve(first, slicing=slicing, rounding=rounding),
            self.resolve(second, slicing=slicing, rounding=rounding),
        )

    @announces("comparing", other="slices")
    def overlap(
        self,
        splits: Sequence[str | ReadInstruction],
        *,
        column: str | None = None,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
        show: int = 5,
        processes: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> RecordOverlap:
        """Find records that several split expressions have in common: equal records, or equal values of one feature.

        Records are equal if a reader returns equal values for all features: numbers and texts bit for bit, an image by
        its pixels, a JPEG by the bytes of its file. Key, shard, compression and file format do not matter, and neither
        does the path of a file that was added from a folder. Every record is read once; records with a duplicate are
        read twice.

        >>> found = digits.overlap(["train[:80%]", "train[80%:]"])
        >>> found.is_disjoint, [one.num_records for one in found.slices]
        (True, [1438, 359])

        Args:
            splits: two or more expressions, see ``resolve``.
            column: compare the values of this feature only, such as ``"patient"``, or ``"box/id"`` for a nested one. A
                sequence is compared as a whole. Nulls and NaN equal nothing, and ``num_missing`` counts them.
            slicing: see ``resolve``.
            rounding: see ``resolve``.
            show: report at most this many pairs of equal records for each pair of expressions.
            processes: the number of processes that decode. None: one for each core if there is enough work.
            progress: called with a ``Progress``, in records.

        Raises:
            SplitSyntaxError, SplitNotFoundError, SliceError, LockedError: see ``resolve``.
            UsageError: there are fewer than two expressions, or a number is invalid.
            FeatureNotFoundError: the feature ``column`` does not exist; the hint suggests the nearest name.
            NotStoredError, CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: a file is missing
                or damaged, or cannot be read.
        """
        from registry.publishing import compare_slices
        from registry.publishing.fingerprint import StoredSplits

        if len(splits) < 2:
            raise UsageError(
                f"overlap compares slices with each other: expected two or more, found {len(splits)}",
                hint='For example: dataset.overlap(["train", "test"])',
            )
        whole_number(show, "show", least=0)
        plans = [self.resolve(split, slicing=slicing, rounding=rounding) for split in splits]
        readable = self.readable
        names = {span.split for plan in plans for span in plan.ranges}
        return compare_slices(
            StoredSplits(readable.files(names), readable.facts.splits, readable.features),
            [plan.ranges for plan in plans],
            column=column,
            path_column=readable.facts.metadata.path_column,
            show=show,
            processes=processes,
            advance=model.count_progress(progress, "comparing", str(self.reference)),
        )

    def read(
        self,
        split: str | ReadInstruction,
        read_config: ReadConfig | None = None,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
        state: State | Sequence[State] | None = None,
        process: tuple[int, int] = (0, 1),
        verify: Verify = "block",
        copy: bool = True,
        keep: Keep | None = "auto",
    ) -> Reader:
        """Read the examples of a split expression, as dicts of NumPy values.

        >>> example = next(iter(digits.read("train[:1]")))
        >>> example["image"].shape, example["image"].dtype, int(example["label"])
        ((8, 8, 1), dtype('uint8'), 3)

        Args:
            split: an expression, or a ReadInstruction, see ``resolve``.
            read_config: the order. None means the default order of TFDS, ``ReadConfig()``; for versions that keep their
                records in the order of generation, and for ArrayRecord and typed Parquet files, it means the stored
                order.
            slicing: see ``resolve``.
            rounding: see ``resolve``.
            state: the value of ``Reader.state``, to continue an earlier read.
            process: (index, count), if several processes share the examples.
            verify: check the checksums of records by ``"block"`` or by ``"record"``, or ``"off"``.
            copy: False returns large values as read-only views of the mapped files.
            keep: where to keep decoded columns, so that the next epoch decodes nothing. ``"disk"`` fills the cache of
                this user in the background, and reads from it. ``"memory"`` decodes the slice at the beginning.
                ``"auto"`` reads columns that are in the cache or attached to the version (see ``keep_columns``); after
                the whole slice was read once, up to 64 MB are kept in memory, and larger slices on disk. None always
                reads the shards. The examples are the same in all cases.

        Raises:
            SplitSyntaxError, SplitNotFoundError, SliceError, LockedError: see ``resolve``.
            UsageError: an option is invalid.
            StateMismatchError: ``state`` belongs to another version, plan or order.
            NotStoredError: the files are missing. Raised when the first example is read, or at once for a version from
                a pin file.
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: while examples are read, see
                ``Reader``.
        """
        from registry.reading import Reader

        result = self.slice_of(split, read_config, slicing=slicing, rounding=rounding)
        return Reader(
            result.readable,
            result.plan,
            read_config=read_config,
            state=state,
            process=process,
            verify=verify,
            copy=copy,
            keep=keep,
        )

    def read_slices(self, read_config: ReadConfig | None = None) -> dict[str, Reader]:
        """A reader for each split or, for a version from a pin file, for each pin, by name.

        ``registry.load`` without a split gives these readers.

        >>> {name: len(reader) for name, reader in digits.read_slices().items()}
        {'train': 1797}

        Args:
            read_config: the order, see ``read``.

        Raises:
            UsageError: ``read_config`` is not a ReadConfig, or has a seed without a shuffle.
            NotStoredError: see ``read``.
        """
        from registry.reading import Reader

        slices = self.provenance.source.slices(self.features)
        return {part.name: Reader(part.readable, part.plan, read_config=read_config, keep="auto") for part in slices}

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Query the records in SQL with DuckDB: ``SELECT label, count(*) FROM train GROUP BY label``.

        Each split is a table; a quoted name is a split expression: ``FROM "train[:10%]"``. Columns are those of
        ``Reader.to_arrow_batches``, with labels as text. Columns that the query does not need are not decoded, and
        memory is bounded. The query is one SELECT. It cannot access files, the network, or Python variables.

        >>> digits.sql("SELECT label, count(*) FROM train GROUP BY label ORDER BY label LIMIT 2").fetchall()
        [('0', 178), ('1', 182)]

        Args:
            query: one SELECT statement.

        Returns:
            A DuckDB relation, which runs the query when rows are requested: ``fetchall()``, ``df()``, ``pl()``,
            ``to_arrow_table()``. An error of a file is then raised as a ``duckdb.Error`` with our message.

        Raises:
            QueryError: the query is not one SELECT, is invalid, or names a column that does not exist.
            SplitSyntaxError, SplitNotFoundError, SliceError, LockedError: a table name is not a valid split expression.
            MissingExtraError: DuckDB is not installed (extra ``sql``).
        """
        with require_extra("sql", package="duckdb", needed_for="a query in SQL"):
            from registry.reading.frameworks.sql import Query
        return Query(query, self.read).relation

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The records of all splits as one table: ``polars.DataFrame(dataset)``.

        The order is that of ``read_slices``; a version from a pin file gives its pins. See ``Reader.to_arrow_batches``
        for the columns. ``read`` and ``slice_of`` give the table of some of the records.
        """
        return self._table().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """The schema of the table."""
        return self._table().__arrow_c_schema__()

    @announces("pinning", "self")
    def pin(
        self,
        *splits: str | ReadInstruction | Mapping[str, str | ReadInstruction],
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
        read_config: ReadConfig | None = None,
        locations: Sequence[str] = (),
        into: PinFile | None = None,
        processes: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> PinFile:
        """Pin slices of this version for a paper: record which records they contain, and digests that prove it.

        Returns a ``PinFile``, because one file may contain several pins.

        >>> pins = digits.pin({"train": "train[:80%]", "validation": "train[80%:]"})
        >>> {name: pin.num_examples for name, pin in pins.items()}
        {'train': 1438, 'validation': 359}

        Args:
            splits: split expressions, or dicts of pin name -> expression. A pin without a name gets the name of its
                split, or its expression if two pins have the same split.
            slicing: see ``resolve``.
            rounding: see ``resolve``.
            read_config: the order in which the records are read, see ``read``. A shuffle needs a seed.
            locations: URLs of folders from which others can get the files.
            into: a pin file to add these pins to. It is not changed: the result has the pins of both.
            processes: number of processes that hash. None starts one for each core if there is enough work.
            progress: called with a ``Progress``, in bytes.

        Raises:
            SplitSyntaxError, SplitNotFoundError, SliceError, LockedError: see ``resolve``.
            ShardMismatchError, CorruptRecordError, StorageError: a file differs from the published one, or cannot be
                read.
            ConflictError: ``into`` has another pin of that name.
            UsageError: no slice is given, a name or location is not a line of text, or a shuffle has no seed.
        """
        from registry.api.pinning import pin_dataset

        return pin_dataset(
            self,
            splits,
            into=into,
            slicing=slicing,
            rounding=rounding,
            read_config=read_config,
            locations=locations,
            processes=processes,
            progress=progress,
        )

    @announces("exporting", "self")
    def export_tfds(self, data_dir: str | os.PathLike[str], *, progress: ProgressCallback | None = None) -> Exported:
        """Write this version below ``data_dir`` in the layout of TFDS, so that TFDS can load it. Safe to repeat.

        Args:
            data_dir: path or URL of a folder, the ``data_dir`` of TFDS.
            progress: called with a ``Progress``, in bytes.

        Raises:
            ShardMismatchError: a shard differs from the published one.
            ConflictError: the folder of this version already contains other files.
            StorageError: a file cannot be read or written.
            LockedError: the version comes from a pin file that does not pin all of its records.
        """
        from registry.interop.tfds import export_tfds
        from registry.storage import open_store

        shards = self._all_shards()
        total = sum(shard.num_bytes for found in shards.values() for shard in found)
        return export_tfds(
            self.facts,
            self.provenance.source.store(),
            shards,
            open_store(data_dir),
            is_default_config=self.provenance.source.is_default_config(),
            advance=model.count_progress(progress, "exporting", str(self.reference), total=total, unit="bytes"),
        )

    @announces("exporting", "self")
    def export(
        self,
        kind: ExportKind,
        dest: str | os.PathLike[str] | BinaryIO,
        *,
        split: str | ReadInstruction | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        labels: Labels | None = None,
        shard_bytes: int | None = None,
        force: bool = False,
        dry_run: bool = False,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> ExportReport:
        """Write records in the format of other tools, in the order in which they are stored, in bounded memory.

        With a ``split``, a table is one file. Without a ``split``, ``dest`` is a folder, in which each split becomes a
        file such as ``train.csv``; if the version has only one split, ``dest`` may also be a file with the format's
        extension. An ``imagefolder`` has one folder per class, inside folders of splits unless ``split`` is given, and
        a ``webdataset`` is a folder of tars. Files get their final names when all of them are complete.
        docs/exporting.md describes how values are written.

        >>> report = digits.export("jsonl", "first.jsonl", split="train[:10]", force=True)
        >>> [(file.num_records, file.num_bytes) for file in report.files]
        [(10, 2260)]

        Args:
            kind: ``csv``, ``jsonl``, ``parquet``, ``arrow`` (Arrow IPC's file format, also known as Feather),
                ``imagefolder`` (a folder for Hugging Face) or ``webdataset``.
            dest: path or URL of a file or folder, or a binary file to write to. A ``csv`` or ``jsonl`` file whose name
                ends with ``.gz`` is compressed.
            split: an expression, see ``resolve``.
            columns: the names of features to export. None exports all features.
            where: export only the examples that match a condition, see ``Reader.where``.
            labels: write class labels as ``names`` or as ``numbers``. None means names in csv, jsonl and imagefolder,
                and numbers in webdataset, parquet and arrow; the schema of the last two has the names in the form of
                Hugging Face's ``datasets``.
            shard_bytes: the maximum size of a tar of a webdataset, unless a single record is larger. None means 512
                MiB.
            force: replace existing files, or the folder of an earlier export.
            dry_run: only report which files would be written.
            slicing: see ``resolve``.
            rounding: see ``resolve``.
            progress: called with a ``Progress``, in records.

        Returns:
            The files, with the number of records and the size of each.

        Raises:
            UsageError: ``dest`` does not fit the number of splits, the format cannot hold the features, or ``where`` is
                invalid.
            AlreadyStoredError: a file exists, and ``force`` is False.
            FeatureError: a value cannot be written in this format.
            SplitSyntaxError, SplitNotFoundError, SliceError, LockedError: see ``resolve``.
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: a file is missing, damaged or
                unreadable, or cannot be written.
            MissingExtraError: pyarrow is not installed (extra ``arrow``).
        """
        from registry.interop.exporting import STORED_ORDER, export_dataset

        return export_dataset(
            self.facts,
            self.features,
            partial(
                self._slices,
                read_config=STORED_ORDER,
                slicing=slicing,
                rounding=rounding,
                where=where,
                progress=progress,
            ),
            kind,
            dest,
            split=split,
            columns=columns,
            labels=labels,
            shard_bytes=shard_bytes,
            force=force,
            dry_run=dry_run,
            progress=progress,
        )

    @announces("exporting", "self")
    def to_hf(
        self,
        split: str | ReadInstruction | None = None,
        *,
        columns: Sequence[str] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> datasets.Dataset | datasets.DatasetDict:
        """Convert records to a Hugging Face ``datasets.Dataset``, in the order in which they are stored.

        The first call writes an Arrow file to a cache folder, in bounded memory. The dataset maps that file into
        memory; later calls for the same records reuse the file.

            digits.to_hf("train[:80%]").with_format("torch")

        Labels are ``ClassLabel`` with their names, images and sounds are ``Image`` and ``Audio`` of the stored files,
        and a Sequence of a dict is a list of dicts.

        Args:
            split: an expression, see ``resolve``. None means every split.
            columns: the names of features. None means all features.
            cache_dir: the folder of the cache. None means the cache of ``datasets``: ``HF_DATASETS_CACHE``.
            slicing: see ``resolve``.
            rounding: see ``resolve``.
            progress: called with a ``Progress``, in records, while the file is written.

        Returns:
            A ``datasets.Dataset``; without a ``split``, a ``datasets.DatasetDict`` with one for each split.

        Raises:
            FeatureError: a text is not UTF-8, or the class of a feature is unknown.
            SplitSyntaxError, SplitNotFoundError, SliceError, LockedError: see ``resolve``.
            UsageError: ``columns`` is empty or names an unknown feature; or see ``resolve``.
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: a file is missing, damaged or
                unreadable, or cannot be written.
            MissingExtraError: ``datasets`` is not installed (extra ``huggingface``).
        """
        from registry.interop.exporting import STORED_ORDER, to_hugging_face

        return to_hugging_face(
            self.facts,
            self.features,
            partial(self._slices, read_config=STORED_ORDER, slicing=slicing, rounding=rounding),
            split,
            columns=columns,
            cache_dir=cache_dir,
            progress=progress,
        )

    def to_ray(
        self,
        split: str | ReadInstruction,
        read_config: ReadConfig | None = None,
        *,
        text: Literal["str", "bytes"] = "str",
        epoch: int = 0,
        override_num_blocks: int | None = None,
        concurrency: int | None = None,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> ray.data.Dataset:
        """Read the examples of a split expression as a ``ray.data.Dataset``, with tasks on a Ray cluster.

            digits.to_ray("train[:80%]").count()

        It is ``read(split, read_config).to_ray()``: see ``Reader.to_ray`` for columns, order and credentials.

        Args:
            split: an expression, see ``resolve``.
            read_config: the order, see ``read``. Ray Data keeps it only if ``preserve_order`` is set.
            text: ``bytes`` returns ``Text`` features as the stored bytes.
            epoch: the number of the epoch, from 0.
            override_num_blocks: the number of tasks; None lets Ray Data choose.
            concurrency: the maximum number of tasks that run at the same time.
            slicing: see ``resolve``.
            rounding: see ``resolve``.

        Raises:
            SplitSyntaxError, SplitNotFoundError, SliceError, LockedError: see ``resolve``.
            UsageError: an option is invalid, or the files are in the memory of this process.
            MissingExtraError: Ray, pyarrow or pandas is not installed (extras ``ray``, ``arrow`` and ``pandas``).
        """
        reader = self.read(split, read_config, slicing=slicing, rounding=rounding)
        return reader.to_ray(text=text, epoch=epoch, override_num_blocks=override_num_blocks, concurrency=concurrency)

    def croissant(self, *, base_url: str | None = None, creators: Sequence[str] = ()) -> dict[str, Any]:
        """Describe this version as a Croissant 1.1 document (JSON-LD). The same version gives the same document.

        It contains the statistics of each feature if they are attached to the version and their file exists.

        Args:
            base_url: URL of the folder that contains the shards. None names the shards relative to the document, which
                then belongs in that folder.
            creators: names of the people who made the dataset. The catalog does not record them.

        Raises:
            UsageError: ``base_url`` is not a URL.
            LockedError: the version comes from a pin file that does not pin all of its records.
            ShardMismatchError, StorageError: the statistics are damaged, or cannot be read.
        """
        from registry.interop.croissant import describe_croissant

        shards, statistics = self._all_shards(), None
        with suppress(NotFoundError, NotStoredError):
            statistics = self.statistics
        return describe_croissant(
            self.facts, self.features, shards, statistics=statistics, base_url=base_url, creators=creators
        )

    @announces("fetching", "self")
    def fetch(
        self,
        split: str | ReadInstruction | None = None,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> FetchReport:
        """Fetch the files of a slice into the cache of this machine, to read it in any order without the store.

        Files are fetched as a whole, several at a time, and verified by sha256. Files on this machine are not fetched.

        >>> report = digits.fetch("train[:10%]")
        >>> report.num_files, report.num_new_bytes, report.folder
        (1, 0, None)

        Args:
            split: an expression, see ``resolve``. None means every split, or every pin of a pin file.
            slicing: see ``resolve``.
            rounding: see ``resolve``.
            progress: called with a ``Progress``, in bytes.

        Raises:
            SplitSyntaxError, SplitNotFoundError, SliceError, LockedError: see ``resolve``.
            UsageError: the cache is switched off; or see ``resolve``.
            ShardMismatchError: a file differs from the published one.
            StorageError: a file cannot be read, or the cache is too small or cannot be written.
        """
        from registry.reading.fetching import fetch_slices

        slices = self._slices(split, slicing=slicing, rounding=rounding)
        name = None if split is None else slices[0].name
        report = fetch_slices(cache(), self.reference, name, slices, progress=progress)
        self.provenance.source.remember(self.wanted)
        return report

    @announces("keeping columns of", "self")
    def keep_columns(
        self,
        split: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        pixels: Mapping[str, ImageDecoding] | None = None,
        progress: ProgressCallback | None = None,
    ) -> ColumnsReport:
        """Keep decoded columns in the cache of this machine, so that reading any slice in any order decodes no records.

        The cache contains plain ``.npy`` files, which ``read`` maps. They are made from verified records, and each
        block is compared with its digest when a process first reads it. The least recently used columns are deleted
        when the cache is full. If a call is interrupted, the next call continues from there.

        >>> report = digits.keep_columns("train", columns=["label"])
        >>> report.num_columns, report.num_bytes
        (1, 14376)

        Args:
            split: the name of a split. None means every split.
            columns: names of features. None means every feature.
            pixels: feature path -> how to decode the images whose pixels are kept; ``ImageDecoding()`` keeps whole
                images. A reader with the same ``decode_images`` decodes nothing. Other images, and sounds, are kept as
                their stored files, which each read decodes. All images of a feature must have the same size.
            progress: called with a ``Progress``, in records.

        Raises:
            FeatureError: ``pixels`` names a feature that is not an image, or does not fit it.
            UsageError: a feature is unknown or cannot be kept, or ``split`` is a slice.
            UnknownSplitError: the split does not exist.
            StorageError: the cache has no room, or cannot be written; or a file cannot be read.
            CorruptRecordError, CorruptExampleError, ShardMismatchError: a file is damaged.
        """
        from registry.reading.column_filling import keep_columns

        slices = self._slices(split, slicing=None, rounding=None)
        if split is not None and split not in self.splits:
            raise UsageError(
                f"columns can be kept only for whole splits, and {split!r:.80} is a slice",
                hint=f"The splits are: {', '.join(self.splits)}.",
            )
        return keep_columns(cache(), slices, columns, pixels or {}, progress=progress)

    @announces("attaching columns to", "self")
    def attach_columns(
        self,
        *,
        columns: Sequence[str] | None = None,
        dry_run: bool = False,
        progress: ProgressCallback | None = None,
    ) -> ColumnsReport:
        """Attach decoded columns to the version, next to its shards, so that all clients read them without decoding.

        They are the ``.npy`` files of ``keep_columns``. In a data directory on this machine, readers map them in place.
        From an object store, readers fetch the blocks that they need into the cache. Existing attachments are kept;
        damaged or missing files are written again.

        >>> digits.attach_columns().num_columns
        2

        Args:
            columns: names of features. None means every feature.
            dry_run: only report what would be attached.
            progress: called with a ``Progress``, in records.

        Raises:
            UsageError: a feature is unknown or cannot be kept, or the version comes from a pin file.
            CatalogPermissionError: this user may not write to the catalog.
            OtherDataDirectoryError: the client's data directory is not the one that the catalog records.
            StorageError: a file cannot be read or written.
            CorruptRecordError, CorruptExampleError, ShardMismatchError: a file is damaged.
        """
        return self.provenance.source.attach_columns(self.readable, columns, progress=progress, dry_run=dry_run)

    @announces("verifying", "self")
    def verify(
        self,
        *,
        deep: bool = False,
        processes: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> VerifyReport:
        """Compare every shard file with its record in the catalog or pin file: size, number of records, sha256.

        Attachments are compared as well.

        >>> report = digits.verify()
        >>> report.num_examples, report.faults
        (1797, ())

        Args:
            deep: also decode every record. ``outside`` of the report then lists values that a feature does not allow,
                such as a label without a class. They are not faults: the files are unchanged.
            processes: the number of files that are compared at the same time, by threads or, with ``deep``, by worker
                processes. None decides by the size of the version.
            progress: called with a ``Progress``, in records.

        Returns:
            The shards that match, and a fault for each file that does not. An intact file with other records has the
            code ``foreign_shard``. ``recovery`` says how to restore the files and attachments.

        Raises:
            UsageError: ``processes`` is not a positive whole number.
            StorageError: a file exists and cannot be read. A missing file is a fault in the report.
        """
        from registry.publishing import verify_shards

        report = verify_shards(
            self.provenance.source.store(),
            self.facts.splits,
            {split.name: self.shards(split.name) for split in self.facts.splits},
            features=self.features if deep else None,
            indexes=open_indexes(),
            processes=processes,
            advance=model.count_progress(progress, "verifying", str(self.reference), total=self.facts.num_examples),
        )
        report = self.provenance.source.describe_foreign(report)
        faults, recovery = (
            tuple(self.provenance.source.attachment_faults()),
            [report.recovery] if report.recovery else [],
        )
        if faults:
            recovery.append("Restore the files of attachments from a copy of the folder.")
        if any(fault.filename.endswith("_statistics.json") for fault in faults):
            recovery.append(f"To compute the statistics again: registry stats {self.reference} --compute")
        attachments = self.provenance.source.attachments()
        columns = {file.place for file in attachments if file.kind == "columns"}
        if any(fault.filename in columns for fault in faults):
            recovery.append(f"To write the columns again: registry publish {self.reference} --with-columns")
        return dataclasses.replace(
            report,
            faults=(*report.faults, *faults),
            recovery="\n".join(recovery),
            num_attachments=len(attachments) - len(faults),
        )

    @cached_property
    def _reasons(self) -> Reasons:
        provenance = self.provenance
        return provenance.reasons or provenance.source.reasons(provenance.wanted)

    @cached_property
    def _flags(self) -> Mapping[str, bool]:
        return self.provenance.source.flags()

    def _slices(
        self,
        split: str | ReadInstruction | None,
        *,
        read_config: ReadConfig | None = None,
        slicing: SlicingRule | str | None,
        rounding: str | None,
        where: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> list[Slice]:
        """The slice of an expression, or, for None, every split or every pin of a pin file. ``where`` filters them."""
        from registry.reading import Reader

        if split is None:
            slices = list(self.provenance.source.slices(self.features))
        else:
            slices = [self.slice_of(split, read_config, slicing=slicing, rounding=rounding)]
        if where is None:
            return slices
        readers = [Reader(part.readable, part.plan).where(where, progress=progress) for part in slices]
        return [dataclasses.replace(part, matches=reader.matches) for part, reader in zip(slices, readers, strict=True)]

    def _table(self) -> TableSource:
        from registry.reading.tables import ChainedTables

        return ChainedTables(list(self.read_slices().values()))

    def _all_shards(self) -> dict[str, tuple[Shard, ...]]:
        source = self.provenance.source
        return {split.name: source.shards(split.name, all_shards=True) for split in self.facts.splits}

    def _repr_html_(self) -> str:
        """The features, their distributions if there are statistics, and the first rows, for a notebook."""
        from registry.features.containers import columns_of, content_path
        from registry.markup import bars, panel, table
        from registry.publishing import describe_type
        from registry.statistics import distribution

        columns, statistics, examples = columns_of(self.features), None, "no splits"
        name = "train" if "train" in self.splits else next(iter(self.splits), "")
        with suppress(RegistryError, OSError):
            statistics = self.statistics.get(name)
        try:
            for reader in islice(self.read_slices().values(), 1):
                examples = reader.first_rows_html()
        except (RegistryError, OSError) as error:
            examples = f"The records cannot be read here: {error}"
        rows = []
        for column in columns[:_SHOWN]:
            feature = None if statistics is None else statistics.features.get(content_path(column.names))
            rows.append((column.path, describe_type(column), "" if feature is None else bars(distribution(feature))))
        facts = f"{self.status}; license: {self.metadata.license or 'not recorded'}"
        features = table(("feature", "type", f"in {name}"), rows, len(columns))
        return panel(self, self.metadata.description, facts, features, examples)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split.name} {split.num_examples}" for split in self.facts.splits)
        return f"<Dataset {self.reference}: {sizes}>"
