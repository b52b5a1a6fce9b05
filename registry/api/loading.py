"""``registry.load``, ``builder``, ``add`` and ``load_pin``: use a catalog or a pin file in one call that opens it.

``load`` looks a dataset up and reads it, with the arguments of ``tfds.load``. ``builder`` has the interface of
``tfds.core.DatasetBuilder``: it looks a version up as ``load`` does, or finds the installed builder that can make it.
Both share their steps: find the version, check the arguments, wrap the readers. ``add`` publishes data.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Unpack

from registry.api.arguments import DatasetLike, Moment, read_reference
from registry.api.catalog import Catalog, connect
from registry.api.dataset import Dataset
from registry.api.locations import open_pin_file
from registry.api.lock import current_lock
from registry.argument_types import typed_arguments
from registry.errors import (
    CatalogNotFoundError,
    DatasetNotFoundError,
    NotFoundError,
    RegistryError,
    UsageError,
    VersionWithdrawnError,
    YankedVersionWarning,
    warn,
)
from registry.intake.options import AddArguments, takes_options
from registry.lazy import lazy_types
from registry.model import Reference, SlicingRule, Version, VersionRequest, whole_number
from registry.splits import ReadInstruction

if TYPE_CHECKING:
    from pandas import DataFrame

    from registry.api.reports import AddReport
    from registry.api.sliced_version import DatasetInfo
    from registry.model import ProgressCallback
    from registry.order import ReadConfig
    from registry.pins import Pin, PinFile
    from registry.reading import Batches, Reader, Slice, SupervisedReader
else:
    lazy_types(
        globals(),
        {
            "pandas": "DataFrame",
            "registry.api.reports": "AddReport",
            "registry.model": "ProgressCallback",
            "registry.order": "ReadConfig",
            "registry.pins": "PinFile",
        },
    )


Expression: TypeAlias = str | ReadInstruction
SplitArgument: TypeAlias = (
    "Expression | list[SplitArgument] | tuple[SplitArgument, ...] | dict[str, SplitArgument] | None"
)


_INSTEAD: Final = {
    "decoders": "Use reader.decode_images() to scale and crop, files_as_bytes() for stored files, or records().",
    "builder_kwargs": 'Name config and version in the reference, e.g. "mnist/plain:3.0.1", and the folder as data_dir.',
    "download_and_prepare_kwargs": "Prepare the dataset first: registry build NAME, or registry import tfds DIR.",
    "as_dataset_kwargs": "Pass split, read_config, shuffle_files and the others to this function directly.",
    "download_dir": "Builders fetch their own data: registry build NAME",
    "download_config": "Builders fetch their own data: registry build NAME",
    "deserialize_method": "Use reader.records() for undecoded records.",
}


@typed_arguments
def load(
    reference: DatasetLike | None = None,
    split: SplitArgument = None,
    read_config: ReadConfig | None = None,
    *,
    name: DatasetLike | None = None,
    with_info: bool = False,
    as_supervised: bool = False,
    shuffle_files: bool = False,
    batch_size: int | None = None,
    slicing: SlicingRule | str | None = None,
    rounding: str | None = None,
    at: Moment | None = None,
    catalog: Catalog | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = True,
    try_gcs: bool = False,
    file_format: Any = None,
    decoders: Any = None,
    builder_kwargs: Mapping[str, Any] | None = None,
    download_and_prepare_kwargs: Mapping[str, Any] | None = None,
    as_dataset_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Look up a dataset and read it, in one call, with the arguments of ``tfds.load``.

    >>> train, rest = registry.load("digits:1.*", split=["train[:80%]", "train[80%:]"])
    >>> len(train), len(rest)
    (1438, 359)
    >>> data, info = registry.load("digits", split="train", as_supervised=True, with_info=True)
    >>> image, label = next(iter(data))
    >>> image.shape, int(label), info.splits["train"].num_examples
    ((8, 8, 1), 3, 1797)

    Args:
        reference: ``name[/config][:request | @alias]``, a ``Reference``, ``Dataset`` or ``DatasetVersion``.
        split: an expression, or a nested structure of lists, tuples and dicts of expressions; the result has the same
            structure. None returns a dict of all splits.
        read_config: the order, see ``Dataset.read``.
        name: the reference, under the name that ``tfds.load`` uses.
        with_info: return the pair (data, info); info is ``Dataset.info``.
        as_supervised: return tuples of input and target, according to the version's supervised keys.
        shuffle_files: shuffle the files. Without a seed in ``read_config``, each read has another order.
        batch_size: return batches of this number of examples, as dicts (or tuples) of arrays. None returns single
            examples, -1 all examples at once.
        slicing: see ``Dataset.resolve``.
        rounding: see ``Dataset.resolve``.
        at: look the reference up as of this moment, see ``Catalog.dataset``.
        catalog: an open catalog. None opens the default one.
        data_dir: path or URL of the data directory, see ``connect``.
        download: accepted for ``tfds.load``. Nothing is downloaded.
        try_gcs: accepted for ``tfds.load``. Nothing is downloaded.
        file_format: the format of the version, as text or as TFDS's ``FileFormat``. Another format is an error.
        decoders: must be empty; the error says what to do instead.
        builder_kwargs: must be empty; the error says what to do instead.
        download_and_prepare_kwargs: must be empty; the error says what to do instead.
        as_dataset_kwargs: must be empty; the error says what to do instead.

    Returns:
        For each expression a ``Reader``; with ``as_supervised``, a ``SupervisedReader``; with ``batch_size``, a
        ``Batches`` or, for -1, the arrays. Values are those of TFDS: a missing value of an optional feature is the
        lowest number of its dtype, ``b""`` or False. ``Dataset.read`` returns None instead (see
        ``Reader.missing_as_tfds``).

    Raises:
        UsageError: an argument is invalid or not supported here, both ``catalog`` and ``data_dir`` are given, or the
            version has no supervised keys.
        NotFoundError, VersionWithdrawnError, LockedError: see ``Catalog.dataset``.
        CatalogNotFoundError: the default catalog does not exist.
        SplitSyntaxError, SplitNotFoundError, SliceError: see ``Dataset.resolve``.
        NotStoredError, CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: while examples are
            read, see ``Dataset.read``; with ``batch_size=-1``, at once.
    """
    wanted = _one_reference(reference, name)
    del download, try_gcs
    refuse_tfds_arguments(
        "load",
        {
            "decoders": decoders,
            "builder_kwargs": builder_kwargs,
            "download_and_prepare_kwargs": download_and_prepare_kwargs,
            "as_dataset_kwargs": as_dataset_kwargs,
        },
    )
    dataset = find_dataset(wanted, at=at, catalog=catalog, data_dir=data_dir)
    if dataset.yank_note is not None:
        warn(dataset.yank_note, YankedVersionWarning)
    data = read_tree(
        dataset,
        split,
        read_config,
        as_supervised=as_supervised,
        shuffle_files=shuffle_files,
        batch_size=batch_size,
        file_format=stored_format(file_format),
        slicing=slicing,
        rounding=rounding,
    )
    return (data, dataset.info) if with_info else data


@typed_arguments
def builder(
    name: DatasetLike,
    *,
    config: str | None = None,
    version: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    catalog: Catalog | None = None,
    try_gcs: bool = False,
    file_format: Any = None,
    builder_kwargs: Mapping[str, Any] | None = None,
) -> Builder:
    """Find a published version or, if it is not published, the installed builder that can build it.

    >>> len(registry.builder("digits:1.*.*").as_dataset(split="train[:10%]"))
    180

    Args:
        name: ``name[/config][:request | @alias]``, a ``Reference``, ``Dataset`` or ``DatasetVersion``.
        config: the config, if ``name`` does not include it.
        version: the version or a wildcard, if ``name`` does not include it.
        data_dir: path or URL of the data directory, see ``connect``.
        catalog: an open catalog. None opens the default one.
        try_gcs: accepted for ``tfds.builder``. Nothing is downloaded.
        file_format: the format of the version. Another format is an error when it is read.
        builder_kwargs: must be empty; the error says what to do instead.

    Returns:
        A ``Builder`` with ``as_dataset``, ``as_data_source``, ``info`` and ``download_and_prepare``.

    Raises:
        UsageError: the config or version is given twice, or an argument is not supported.
        NotFoundError: the version is not published, and no installed builder can build it.
        VersionWithdrawnError, LockedError: see ``Catalog.dataset``.
    """
    wanted = _with_choice(read_reference(name), config, version)
    del try_gcs
    refuse_tfds_arguments("builder", {"builder_kwargs": builder_kwargs})
    file_format = stored_format(file_format)
    try:
        dataset = find_dataset(wanted, catalog=catalog, data_dir=data_dir)
    except VersionWithdrawnError:
        raise
    except NotFoundError as error:
        result = _to_build(wanted)
        if result is None:
            raise
        opened = open_catalog_for(catalog, data_dir)
        return Builder(result, catalog=opened, file_format=file_format, why_not=error)
    if dataset.yank_note is not None:
        warn(dataset.yank_note, YankedVersionWarning)
    return Builder(dataset, file_format=file_format)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigInfo:
    """A config, under the names of ``tfds.core.BuilderConfig``."""

    name: str
    description: str = ""


class Builder:
    """One version of a dataset, under the names of ``tfds.core.DatasetBuilder``.

    Attributes:
        name: the dataset's name.
        version: the version.
    """

    def __init__(
        self,
        dataset: Dataset | Reference,
        *,
        catalog: Catalog | None = None,
        file_format: str | None = None,
        why_not: NotFoundError | None = None,
    ) -> None:
        """``dataset`` is a published version, or the exact reference that an installed builder can build."""
        self._dataset = dataset if isinstance(dataset, Dataset) else None
        self._reference = dataset.reference if isinstance(dataset, Dataset) else dataset
        self._catalog = catalog
        self._file_format = file_format
        self._why_not = why_not
        self.name = self._reference.name
        self.version: Version | None = self._reference.exact

    def is_prepared(self) -> bool:
        """Whether the version is published, so that it can be read."""
        return self._dataset is not None

    @property
    def dataset(self) -> Dataset:
        """The published version.

        Raises:
            NotFoundError: it is not published yet.
        """
        if self._dataset is None:
            raise NotFoundError(
                f"{self._reference} is not published yet",
                hint=f"Build it first: builder.download_and_prepare(), or registry build {self._reference}",
                details={"reference": str(self._reference)},
            ) from self._why_not
        return self._dataset

    def slice_of(
        self,
        split: str | ReadInstruction | None = None,
        read_config: ReadConfig | None = None,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Slice:
        """See ``Dataset.slice_of``; for readers such as ``registry.slim``.

        Raises:
            NotFoundError: the version is not published yet.
            UsageError, SplitSyntaxError, SplitNotFoundError, SliceError: see ``Dataset.slice_of``.
        """
        return self.dataset.slice_of(split, read_config, slicing=slicing, rounding=rounding)

    @property
    def info(self) -> DatasetInfo:
        """The version under the names of ``tfds.core.DatasetInfo``.

        Raises:
            NotFoundError: the version is not published yet.
        """
        return self.dataset.info

    @property
    def builder_config(self) -> ConfigInfo | None:
        """The config, or None if the dataset has no configs."""
        if self._reference.config is None:
            return None
        about = "" if self._dataset is None else self._dataset.metadata.config_description
        return ConfigInfo(name=self._reference.config, description=about)

    @property
    def data_dir(self) -> str:
        """The version's folder: a path, or a URL if it is not on this machine.

        Raises:
            NotFoundError: the version is not published yet.
        """
        return self.info.data_dir

    def download_and_prepare(
        self, *, download_dir: Any = None, download_config: Any = None, file_format: Any = None
    ) -> None:
        """Build and publish the version, unless it is published. Nothing is downloaded.

        Raises:
            UsageError: ``download_dir`` or ``download_config`` is given: builders find their own data.
            BuildError, FeatureError, ConflictError, StorageError: see ``Catalog.build``.
        """
        del file_format
        unused = {"download_dir": download_dir, "download_config": download_config}
        refuse_tfds_arguments("builder(...).download_and_prepare", unused)
        if self._dataset is None and self._catalog is not None:
            self._catalog.build(self._reference)
            self._dataset = self._catalog.look_up(self._reference)

    def as_dataset(
        self,
        split: SplitArgument = None,
        *,
        batch_size: int | None = None,
        shuffle_files: bool = False,
        read_config: ReadConfig | None = None,
        as_supervised: bool = False,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
        decoders: Any = None,
    ) -> Any:
        """Read splits: see ``registry.load``, which has the same arguments.

        Raises:
            NotFoundError: the version is not published yet.
            UsageError, SplitSyntaxError, SplitNotFoundError, SliceError, NotStoredError: see ``registry.load``.
        """
        refuse_tfds_arguments("builder(...).as_dataset", {"decoders": decoders})
        return read_tree(
            self.dataset,
            split,
            read_config,
            as_supervised=as_supervised,
            shuffle_files=shuffle_files,
            batch_size=batch_size,
            file_format=self._file_format,
            slicing=slicing,
            rounding=rounding,
        )

    def as_data_source(
        self,
        split: SplitArgument = None,
        *,
        decoders: Any = None,
        deserialize_method: Any = None,
        file_format: Any = None,
    ) -> Any:
        """Read splits by index, ``source[17]``, in the stored order: one file after the other, in any format.

        A missing value of an optional feature is None, as in TFDS's data sources.

        Raises:
            NotFoundError: the version is not published yet.
            UsageError, SplitSyntaxError, SplitNotFoundError, SliceError, NotStoredError: see ``registry.load``.
        """
        from registry.order import ReadConfig

        unused = {"decoders": decoders, "deserialize_method": deserialize_method}
        refuse_tfds_arguments("builder(...).as_data_source", unused)
        file_format = stored_format(file_format) or self._file_format
        config = ReadConfig(interleave_cycle_length=1)
        return read_tree(self.dataset, split, config, file_format=file_format, missing_as_tfds=False)

    def __repr__(self) -> str:
        return f"<Builder {self._reference}{'' if self.is_prepared() else ', not published yet'}>"


def read_tree(
    dataset: Dataset,
    split: SplitArgument,
    read_config: ReadConfig | None,
    *,
    as_supervised: bool = False,
    shuffle_files: bool = False,
    batch_size: int | None = None,
    file_format: str | None = None,
    missing_as_tfds: bool = True,
    slicing: SlicingRule | str | None = None,
    rounding: str | None = None,
) -> Any:
    """A reader for each expression in ``split``, in the same structure: the result of ``load``.

    Without ``missing_as_tfds`` a missing value is None, as in TFDS's data sources.
    """
    _check_format(dataset, file_format)
    config = apply_shuffle_files(dataset, read_config, shuffle_files=shuffle_files)
    view = _choose_view(dataset, as_supervised=as_supervised, batch_size=batch_size)

    def wrap(reader: Reader) -> Any:
        is_optional = missing_as_tfds and reader.features.optional_paths()
        return view(reader.missing_as_tfds() if is_optional else reader)

    if split is None:
        return {name: wrap(reader) for name, reader in dataset.read_slices(config).items()}

    def read(tree: Any) -> Any:
        if isinstance(tree, Mapping):
            return {key: read(inner) for key, inner in tree.items()}
        if isinstance(tree, (list, tuple)):
            result = [read(inner) for inner in tree]
            return tuple(result) if isinstance(tree, tuple) else result
        return wrap(dataset.read(tree, config, slicing=slicing, rounding=rounding))

    return read(split)


def find_dataset(
    reference: DatasetLike,
    *,
    at: Moment | None = None,
    catalog: Catalog | None = None,
    data_dir: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Look up a version in ``catalog`` or the default one. If look-ups are locked to a pin file, no catalog is opened.

    Raises:
        UsageError: both a catalog and a ``data_dir`` are given, or the version was imported in place elsewhere.
    """
    lock = current_lock()
    if lock is not None and lock.pins is not None:
        from registry.api.pinned import find_pinned

        return find_pinned(lock.pins, read_reference(reference), at=at)
    try:
        dataset = open_catalog_for(catalog, data_dir, create=False).look_up(reference, at=at)
        if data_dir is not None:
            _require_below(dataset, data_dir)
        return dataset
    except (CatalogNotFoundError, DatasetNotFoundError) as error:
        if data_dir is None:
            raise
        raise type(error)(
            error.message,
            hint=f"Import the folder first: registry import tfds {shlex.quote(os.fspath(data_dir))}",
            details=error.details,
        ) from error


def _require_below(dataset: Dataset, data_dir: str | os.PathLike[str]) -> None:
    """Refuse a version that is read outside the requested ``data_dir``: the files there may be different."""
    from registry.storage import open_store

    asked = open_store(data_dir).url.rstrip("/")
    if dataset.folder.startswith(f"{asked}/"):
        return
    raise UsageError(
        f"{dataset.reference} is stored in {dataset.folder}, which is not below the data_dir {os.fspath(data_dir)}",
        hint=f"Leave data_dir out; or import that folder: registry import tfds {shlex.quote(os.fspath(data_dir))}",
        details={"folder": dataset.folder, "data_dir": os.fspath(data_dir)},
    )


def open_catalog_for(
    catalog: Catalog | None, data_dir: str | os.PathLike[str] | None, *, create: bool | None = None
) -> Catalog:
    """``catalog``, or the default one with its shards below ``data_dir``.

    Raises:
        UsageError: both are given.
        CatalogNotFoundError: the default catalog does not exist, and ``create`` is False.
    """
    if catalog is None:
        return connect(data_dir=data_dir, create=create)
    if data_dir is not None:
        raise UsageError(
            "catalog and data_dir cannot be combined: an open catalog already has a data directory",
            hint="Open the catalog with both: registry.connect(URL, data_dir=DIR).",
        )
    return catalog


def _with_choice(reference: Reference, config: str | None, version: str | None) -> Reference:
    """The reference with the config and version of the other arguments."""
    for word, given, there in (
        ("config", config, reference.config),
        ("version", version, reference.request or reference.alias),
    ):
        if given is not None and there is not None:
            raise UsageError(f"the {word} is given twice: in {reference} and as {word}={given!r:.60}")
    return Reference(
        name=reference.name,
        config=reference.config if config is None else config,
        request=reference.request if version is None else VersionRequest.parse(str(version)),
        alias=reference.alias,
    )


def _to_build(reference: Reference) -> Reference | None:
    """The exact reference that an installed builder makes for ``reference``, or None."""
    from registry.building import open_builder

    if reference.alias is not None:
        return None
    try:
        return open_builder(reference).reference
    except RegistryError:
        return None


def _one_reference(reference: DatasetLike | None, name: DatasetLike | None) -> DatasetLike:
    if reference is not None and name is None:
        return reference
    if name is not None and reference is None:
        return name
    raise UsageError(
        "no dataset was given" if name is None else "the dataset was given twice, as reference and as name",
        hint='Write e.g. registry.load("mnist:3.*", split="train").',
    )


def _check_format(dataset: Dataset, file_format: str | None) -> None:
    stored = dataset.facts.file_format
    if file_format is not None and file_format != stored:
        raise UsageError(
            f"{dataset.reference} is stored as {stored}, not as {file_format}",
            hint="Leave out file_format: a version has only one format.",
            details={"file_format": file_format, "stored": stored},
        )


def _choose_view(
    dataset: Dataset, *, as_supervised: bool, batch_size: Any
) -> Callable[[Reader], Reader | SupervisedReader | Batches | Any]:
    """The function that wraps each reader: as pairs, in batches, or as arrays of all examples."""
    from registry.prepared.info import supervised_keys
    from registry.reading import Batches, SupervisedReader

    keys = supervised_keys(dataset.metadata) if as_supervised else None
    if as_supervised and not keys:
        raise UsageError(
            f"as_supervised=True needs supervised keys: {dataset.provenance.source.name} has none for {dataset.name}",
            hint=f"Leave as_supervised out. Its features are: {', '.join(dataset.features)}.",
        )
    if batch_size is not None:
        hint = "Pass None for single examples, or -1 for all examples at once."
        if batch_size == 0:
            raise UsageError("batch_size must be at least 1, not 0", hint=hint)
        batch_size = whole_number(batch_size, "batch_size", least=-1, hint=hint)

    def view(reader: Reader) -> Reader | SupervisedReader | Batches | Any:
        source = SupervisedReader(reader, keys) if keys else reader
        if batch_size == -1:
            return source.to_numpy()
        return Batches(source, batch_size) if batch_size else source

    return view


def refuse_tfds_arguments(function: str, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of a TFDS function that are not supported here.

    Raises:
        UsageError: one of them is not empty; the hint says what to do instead.
    """
    for name, value in arguments.items():
        if value:
            raise UsageError(
                f"registry.{function} does not support {name}: {value!r:.60}",
                hint=_INSTEAD[name],
                details={"argument": name},
            )


def stored_format(file_format: Any) -> str | None:
    """The name of a file format, from text or TFDS's ``FileFormat``."""
    return None if file_format is None else str(getattr(file_format, "value", file_format))


def apply_shuffle_files(dataset: Dataset, read_config: ReadConfig | None, *, shuffle_files: Any) -> ReadConfig | None:
    """``read_config`` with the argument ``shuffle_files`` applied.

    Raises:
        UsageError: the config shuffles all records, or the version keeps its records in the order of generation.
    """
    if not isinstance(shuffle_files, bool):
        raise UsageError(f"shuffle_files must be True or False, not {shuffle_files!r:.60}")
    if not shuffle_files:
        return read_config
    if dataset.facts.disable_shuffling:
        raise UsageError(
            f"{dataset.reference} keeps its records in the order of generation: shuffle_files=True would change it",
            hint="Leave shuffle_files out; or shuffle anyway: read_config=registry.ReadConfig(shuffle_files=True).",
        )
    from registry.order.config import read_config_or_default

    return replace(read_config_or_default(read_config), shuffle_files=True)


def as_dataframe(dataset: Any, ds_info: Any = None) -> DataFrame:
    """Convert the examples of a reader to a pandas DataFrame, with one row per example.

    Args:
        dataset: a ``Reader``, or a ``SupervisedReader``, which has only the columns of its two features.
        ds_info: accepted for TFDS and ignored: a reader knows its features.

    Raises:
        UsageError: ``dataset`` is not a reader.
        MissingExtraError: pandas is not installed.
        CorruptRecordError, CorruptExampleError, StorageError: a file is damaged or cannot be read.
    """
    del ds_info
    from registry.reading import Reader, SupervisedReader
    from registry.reading.structure import names_in

    if isinstance(dataset, SupervisedReader):
        dataset = dataset.reader.select(names_in(dataset.keys))
    if not isinstance(dataset, Reader):
        raise UsageError(
            f"expected a Reader or SupervisedReader, not {type(dataset).__name__}",
            hint="Pass the result of registry.load for one split, without batch_size.",
        )
    return dataset.to_pandas(labels="numbers", decode=True)


@typed_arguments
@takes_options
def add(
    source: Any,
    name: str | None = None,
    *,
    catalog: Catalog | None = None,
    data_dir: str | os.PathLike[str] | None = None,
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
    """Publish data that has no builder class: ``Catalog.add`` of the default catalog.

    >>> rows = [{"item": "apple", "price": 1.5}, {"item": "pear", "price": 2.0}]
    >>> report = registry.add(rows, "prices", catalog=catalog, dry_run=True)
    >>> report.outcome, str(report.reference), dict(report.splits)
    ('would_publish', 'prices:1.0.0', {'train': 2})

    Args:
        source: see ``Catalog.add``.
        name: see ``Catalog.add``.
        catalog: an open catalog. None opens the default one.
        data_dir: path or URL of the data directory, see ``connect``.
        bump: see ``Catalog.add``.
        number: see ``Catalog.add``.
        reason: see ``Catalog.add``.
        promote: see ``Catalog.add``.
        processes: see ``Catalog.add``.
        dry_run: see ``Catalog.add``.
        show: see ``Catalog.add``.
        progress: see ``Catalog.add``.
        options: see ``Catalog.add``.

    Raises:
        UsageError: both ``catalog`` and ``data_dir`` are given, or see ``Catalog.add``.
        SourceError, UnusableRowsError, DuplicateKeyError, FeatureError, ReferenceSyntaxError: see ``Catalog.add``.
        VersionTooSmallError, VersionExistsError, ProtectedError, ConflictError: see ``Catalog.add``.
        MissingExtraError, StorageError: see ``Catalog.add``.
    """
    opened = open_catalog_for(catalog, data_dir)
    with nullcontext() if catalog is not None else opened:
        return opened.add(
            source,
            name,
            bump=bump,
            number=number,
            reason=reason,
            promote=promote,
            processes=processes,
            dry_run=dry_run,
            show=show,
            progress=progress,
            **options,
        )


@typed_arguments
def load_pin(
    path: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    catalog: Catalog | None = None,
    fetch: bool = False,
    allow_hosts: Iterable[str] = (),
) -> PinFile:
    """Open a pin file. No catalog is opened.

    Returns a ``PinFile``, because one file may contain several pins. A version that was yanked when it was pinned
    causes a YankedVersionWarning.

        registry.load_pin("dataset.lock.yaml")["train"].read()

    Args:
        path: path or URL of the pin file.
        data_dir: folder with the shards: a data directory, a version folder, or an unpacked bundle. None searches
            ``data`` next to the file, ``$REGISTRY_DATA_DIR`` or the default data directory, and the locations that the
            pin names.
        catalog: an open catalog, which adds warnings about versions that were yanked since, and the folders from which
            it reads the versions. None uses no catalog.
        fetch: allow requests to the locations that the pins name: URLs and folders of this machine. The author of the
            file chose them, so the default is False. Addresses that are not public must be in ``allow_hosts``.
        allow_hosts: allow requests to these hosts: ``example.org``, ``example.org:8443``, an address or network
            (``10.0.0.0/8``), a bucket (``s3://bucket``), a folder (``file:///data``). The comma-separated hosts of
            ``$REGISTRY_ALLOWED_HOSTS`` are always allowed.

    Raises:
        PinFormatError: the file is not a pin file; the message lists every fault with its key path.
        PinChangedError: the file was edited.
        NotStoredError: the file does not exist.
        StorageError: the file cannot be read.
        UsageError: an allowed host is not a valid host, bucket or folder.
    """
    pins = open_pin_file(path, data_dir, fetch=fetch, allow_hosts=allow_hosts)
    if catalog is not None:
        pins = catalog.pins.place(pins)
    for note in yank_notes(pins.values(), catalog):
        warn(note, YankedVersionWarning)
    return pins


def yank_notes(pins: Iterable[Pin], catalog: Catalog | None = None) -> list[str]:
    """The warnings about versions that were yanked when they were pinned or, by ``catalog``, since."""
    chosen = list(pins)
    notes = {pin.reference: pin.yank_note for pin in chosen}
    if catalog is not None:
        states = catalog.pins.states(chosen)
        notes |= {state.reference: state.yank_note for state in states if state.yank_note}
        return [note for note in (*notes.values(), *dict.fromkeys(state.correction for state in states)) if note]
    return [note for note in notes.values() if note]
