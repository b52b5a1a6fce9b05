"""``registry.builder``: reads or builds a version, with the interface of ``tfds.core.DatasetBuilder``.

It looks a version up as ``registry.load`` does, or finds the installed builder that can make it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from registry.api.arguments import DatasetLike, read_reference
from registry.api.catalog import Catalog
from registry.api.dataset import Dataset
from registry.api.loading import find_dataset, open_catalog_for, read_tree, refuse_tfds_arguments, stored_format
from registry.argument_types import typed_arguments
from registry.errors import NotFoundError, RegistryError, UsageError, VersionWithdrawnError, YankedVersionWarning, warn
from registry.model import Reference, VersionRequest

if TYPE_CHECKING:
    from registry.api.loading import SplitArgument
    from registry.api.sliced_version import DatasetInfo
    from registry.model import SlicingRule, Version
    from registry.order import ReadConfig
    from registry.reading import Slice
    from registry.splits import ReadInstruction


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
