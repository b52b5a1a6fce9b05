"""``registry.load``: look a dataset up and read it in one call, with the arguments of ``tfds.load``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from registry.api.arguments import Moment, parse_reference
from registry.api.catalog import Catalog, connect
from registry.api.dataset import Dataset
from registry.api.lock import current_lock
from registry.errors import DatasetNotFoundError, UsageError, YankedVersionWarning
from registry.model import Reference, SlicingRule, whole_number
from registry.splits import ReadInstruction

if TYPE_CHECKING:
    import pandas as pd

    from registry.order import ReadConfig
    from registry.reading import Batches, Reader, SupervisedReader


T = TypeVar("T")

Expression: TypeAlias = str | ReadInstruction
SplitArgument: TypeAlias = (
    "Expression | list[SplitArgument] | tuple[SplitArgument, ...] | dict[str, SplitArgument] | None"
)


_INSTEAD: Final = {
    "decoders": "Examples are decoded as the features say. What is stored undecoded comes from reader.records().",
    "builder_kwargs": 'Name config and version in the reference, e.g. "mnist/plain:3.0.1", and the folder as data_dir.',
    "download_and_prepare_kwargs": "Prepare it before: registry build NAME, or registry import tfds DIR.",
    "as_dataset_kwargs": "Give split, read_config, shuffle_files and the others to this function itself.",
    "download_dir": "Builders bring their own data: registry build NAME.",
    "download_config": "Builders bring their own data: registry build NAME.",
    "deserialize_method": "What is stored undecoded comes from reader.records().",
}


def load(
    reference: str | Reference | None = None,
    split: SplitArgument = None,
    read_config: ReadConfig | None = None,
    *,
    name: str | Reference | None = None,
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
    """Look a dataset up and read it, in one call.

        registry.load("digits:1.*", split=["train[:80%]", "train[80%:]"])
        data, info = registry.load("digits", split="train", as_supervised=True, with_info=True)

    Args:
        reference: ``name[/config][:request | @alias]``.
        split: an expression, or a list, tuple or dict of expressions, also nested; the answer has its shape. None gives
            a dict with every split.
        read_config: in which order: that of ``Dataset.read``.
        name: the reference, as ``tfds.load`` calls it.
        with_info: give the pair (data, info), where info is that of ``Dataset.info``.
        as_supervised: give tuples of what a model gets and what it is to say, as the version's supervised keys have it.
        shuffle_files: shuffle the files, as ``read_config`` says; without a seed in it each read has another order.
        batch_size: give batches of so many examples, as dicts (or tuples) of arrays; -1 gives all examples at once.
        slicing: as ``Dataset.resolve``.
        rounding: as ``Dataset.resolve``.
        at: the moment at which it is looked up, as ``Catalog.dataset``.
        catalog: where it is looked up; None is the default one.
        data_dir: the folder below which the shards lie, as ``connect``.
        download: of ``tfds.load``; nothing is downloaded, whatever the value.
        try_gcs: the same.
        file_format: that of the version, as a text or as TFDS's ``FileFormat``.
        decoders: of ``tfds.load``; refused unless empty, with what to do instead. So are the next three.
        builder_kwargs: see there.
        download_and_prepare_kwargs: see there.
        as_dataset_kwargs: see there.

    Returns:
        A ``Reader`` (or a ``SupervisedReader``, or ``Batches``) for each expression. What it reads is what TFDS reads:
        of an optional feature that has no value the lowest number of its dtype, ``b""`` or False, where the reader of
        ``Dataset.read`` gives None (``Reader.missing_as_tfds``, ``Reader.missing_as_none``).

    Raises:
        UsageError: an argument that means nothing here, with what to do instead; or no supervised keys.
        As ``Catalog.dataset``, ``Dataset.resolve`` and ``Dataset.read``.
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
        warnings.warn(dataset.yank_note, YankedVersionWarning, stacklevel=2)
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
    """What ``load`` gives of a dataset: a reader for each expression in ``split``, in its shape.

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
            found = [read(inner) for inner in tree]
            return tuple(found) if isinstance(tree, tuple) else found
        return wrap(dataset.read(tree, config, slicing=slicing, rounding=rounding))

    return read(split)


def find_dataset(
    reference: str | Reference,
    *,
    at: Moment | None = None,
    catalog: Catalog | None = None,
    data_dir: str | os.PathLike[str] | None = None,
) -> Dataset:
    """As ``Catalog.look_up``, in ``catalog`` or the default one; locked to a pin file, in none.

    Raises:
        UsageError: both a catalog and a ``data_dir``; or the version was imported where it lies, which is elsewhere.
    """
    lock = current_lock()
    if lock is not None and lock.pins is not None:
        from registry.api.pinned import find_pinned

        return find_pinned(lock.pins, parse_reference(reference), at=at)
    try:
        found = open_catalog_for(catalog, data_dir).look_up(reference, at=at)
        if data_dir is not None:
            _require_below(found, data_dir)
        return found
    except DatasetNotFoundError as error:
        if data_dir is None:
            raise
        raise DatasetNotFoundError(
            error.message,
            hint=f"Folders are read once they are in the catalog: registry import tfds {os.fspath(data_dir)}",
            details=error.details,
        ) from error


def _require_below(dataset: Dataset, data_dir: str | os.PathLike[str]) -> None:
    """Refuse a version that is read in a folder of its own where another one is asked for: it may hold other data."""
    from registry.storage import open_store

    asked = open_store(data_dir).url.rstrip("/")
    if dataset.folder.startswith(f"{asked}/"):
        return
    raise UsageError(
        f"{dataset.reference} lies in {dataset.folder}, which is not below the data_dir {os.fspath(data_dir)}",
        hint=f"Leave data_dir out; or catalog that folder: registry import tfds {os.fspath(data_dir)}",
        details={"folder": dataset.folder, "data_dir": os.fspath(data_dir)},
    )


def open_catalog_for(catalog: Catalog | None, data_dir: str | os.PathLike[str] | None) -> Catalog:
    """``catalog``, or the default one with its shards below ``data_dir``.

    Raises:
        UsageError: both are given.
    """
    if catalog is None:
        return connect(data_dir=data_dir)
    if data_dir is not None:
        raise UsageError(
            "a catalog has its data_dir already", hint="Open it with both: registry.connect(URL, data_dir=DIR)."
        )
    return catalog


def _one_reference(reference: str | Reference | None, name: str | Reference | None) -> str | Reference:
    if reference is not None and name is None:
        return reference
    if name is not None and reference is None:
        return name
    raise UsageError(
        "no dataset is named" if name is None else "the dataset is named twice, by reference and by name",
        hint='Write e.g. registry.load("mnist:3.*", split="train").',
    )


def _check_format(dataset: Dataset, file_format: str | None) -> None:
    stored = dataset.facts.file_format
    if file_format is not None and file_format != stored:
        raise UsageError(
            f"{dataset.reference} is stored as {stored}, and file_format asks for {file_format}",
            hint="Leave file_format out: a version has one format, and it is read as it is stored.",
            details={"file_format": file_format, "stored": stored},
        )


def _choose_view(
    dataset: Dataset, *, as_supervised: bool, batch_size: Any
) -> Callable[[Reader], Reader | SupervisedReader | Batches | Any]:
    """What is made of each reader: itself, a view, or all that it reads."""
    from registry.prepared.info import supervised_keys
    from registry.reading import Batches, SupervisedReader

    keys = supervised_keys(dataset.metadata) if as_supervised else None
    if as_supervised and not keys:
        raise UsageError(
            f"{dataset.provenance.described_by} has no supervised keys, and as_supervised=True asks for them",
            hint=f"Leave as_supervised out. Its features are: {', '.join(dataset.features)}.",
        )
    if batch_size is not None:
        hint = "None gives examples one by one, -1 all of them at once."
        batch_size = whole_number(batch_size, "batch_size", least=-1, hint=hint)

    def view(reader: Reader) -> Reader | SupervisedReader | Batches | Any:
        source = SupervisedReader(reader, keys) if keys else reader
        if batch_size == -1:
            return source.to_numpy()
        return Batches(source, batch_size) if batch_size else source

    return view


def refuse_tfds_arguments(function: str, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of a function of TFDS that ask for something that is not done here.

    Raises:
        UsageError: one of them is not empty; the hint says what to do instead.
    """
    for name, value in arguments.items():
        if value:
            raise UsageError(
                f"{name} means nothing to registry.{function}: {value!r:.60}",
                hint=_INSTEAD[name],
                details={"argument": name},
            )


def stored_format(file_format: Any) -> str | None:
    """The name of a file format that is given as text or as TFDS's ``FileFormat``."""
    return None if file_format is None else str(getattr(file_format, "value", file_format))


def apply_shuffle_files(dataset: Dataset, read_config: ReadConfig | None, *, shuffle_files: Any) -> ReadConfig | None:
    """The order that is asked for by a config and the argument ``shuffle_files``.

    Raises:
        UsageError: the config permutes all records, or the version's records have an order that is kept.
    """
    if not isinstance(shuffle_files, bool):
        raise UsageError(f"shuffle_files is True or False, not {shuffle_files!r:.60}")
    if not shuffle_files:
        return read_config
    if dataset.facts.disable_shuffling:
        raise UsageError(
            f"{dataset.reference} keeps its records in their order, and shuffle_files=True asks for another one",
            hint="Leave shuffle_files out; or insist: read_config=registry.ReadConfig(shuffle_files=True).",
        )
    from registry.order.config import read_config_or_default

    return replace(read_config_or_default(read_config), shuffle_files=True)


def as_numpy(dataset: T) -> T:
    """``dataset`` itself: examples are dicts of NumPy values already."""
    return dataset


def as_dataframe(dataset: Any, ds_info: Any = None) -> pd.DataFrame:
    """The examples of a reader as a DataFrame, as ``Reader.to_pandas``; of supervised pairs, the features in them.

    ``ds_info`` is taken for TFDS's sake: a reader knows its features.

    Raises:
        UsageError: no reader.
        As ``Reader.to_pandas``.
    """
    del ds_info
    from registry.reading import Reader, SupervisedReader
    from registry.reading.structure import names_in

    if isinstance(dataset, Reader):
        return dataset.to_pandas()
    if not isinstance(dataset, SupervisedReader):
        raise UsageError(
            f"a DataFrame is made of a reader, not of {type(dataset).__name__}",
            hint="Give what registry.load returns for one split, without batch_size.",
        )
    names = names_in(dataset.keys)
    frame = dataset.reader.to_pandas()
    return frame[[one for name in names for one in frame.columns if one == name or one.startswith(f"{name}/")]]
