"""What is a builder to those who know TFDS? A version to read, or code to build it with: ``registry.builder``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from registry.api.arguments import parse_reference
from registry.api.catalog import Catalog
from registry.api.dataset import Dataset
from registry.api.loading import SplitArgument, check_tfds_arguments, find_dataset, open_catalog_for, read_tree
from registry.errors import NotFoundError, RegistryError, UsageError, VersionWithdrawnError, YankedVersionWarning
from registry.model import Reference, SlicingRule, Split, Version, VersionRequest
from registry.splits import FileInstruction, Plan, ReadInstruction

if TYPE_CHECKING:
    from registry.features import FeaturesDict
    from registry.order import ReadConfig
    from registry.prepared.info import SupervisedKeys
    from registry.reading import Reader, State
    from registry.tfrecord import Verify


def builder(
    name: str | Reference,
    *,
    config: str | None = None,
    version: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    catalog: Catalog | None = None,
    **tfds_words: Any,
) -> Builder:
    """The published version that ``name`` names; or, where none is published, the installed builder that can make it.

        registry.builder("mnist:3.*.*").as_dataset(split="train[:10%]")

    Args:
        name: ``name[/config][:request | @alias]``.
        config: the config, where ``name`` does not have it.
        version: the version or a wildcard, where ``name`` does not have it.
        data_dir: as ``load``.
        catalog: as ``load``.
        tfds_words: ``try_gcs`` and ``file_format``, as ``load``.

    Raises:
        UsageError: config or version twice, or an argument that means nothing here.
        NotFoundError: neither published nor to be built; as ``Catalog.dataset``.
    """
    wanted = _with_choice(parse_reference(name), config, version)
    file_format = check_tfds_arguments("builder", tfds_words)
    try:
        dataset = find_dataset(wanted, catalog=catalog, data_dir=data_dir)
    except VersionWithdrawnError:
        raise
    except NotFoundError as error:
        made = _to_build(wanted)
        if made is None:
            raise
        opened = open_catalog_for(catalog, data_dir)
        return Builder(made, catalog=opened, file_format=file_format, why_not=error)
    if dataset.yank_note is not None:
        warnings.warn(dataset.yank_note, YankedVersionWarning, stacklevel=2)
    return Builder(dataset, file_format=file_format)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigInfo:
    """A config, by the names of ``tfds.core.BuilderConfig``."""

    name: str
    description: str = ""


class Builder:
    """One version of one dataset, by the names of ``tfds.core.DatasetBuilder``.

    Attributes:
        name: the dataset's name.
        version: the version.
    """

    def __init__(
        self,
        found: Dataset | Reference,
        *,
        catalog: Catalog | None = None,
        file_format: str | None = None,
        why_not: NotFoundError | None = None,
    ) -> None:
        """Of a published version; or of the exact reference of what an installed builder can make into ``catalog``."""
        self._dataset = found if isinstance(found, Dataset) else None
        self._reference = found.reference if isinstance(found, Dataset) else found
        self._catalog = catalog
        self._file_format = file_format
        self._why_not = why_not
        self.name = self._reference.name
        self.version: Version | None = None if self._reference.request is None else self._reference.request.exact

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

    def open_split(
        self,
        split: str | ReadInstruction | None = None,
        read_config: ReadConfig | None = None,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
        state: State | Sequence[State] | None = None,
        process: tuple[int, int] = (0, 1),
        verify: Verify = "block",
        copy: bool = True,
    ) -> Reader:
        """As ``Dataset.open_split``. Errors as there, and as ``dataset``."""
        return self.dataset.open_split(
            split,
            read_config,
            slicing=slicing,
            rounding=rounding,
            state=state,
            process=process,
            verify=verify,
            copy=copy,
        )

    @property
    def info(self) -> DatasetInfo:
        """What is known of the version. Errors as ``dataset``."""
        return self.dataset.info

    @property
    def builder_config(self) -> ConfigInfo | None:
        """The config, or None where there are none."""
        if self._reference.config is None:
            return None
        about = "" if self._dataset is None else self._dataset.metadata.config_description
        return ConfigInfo(name=self._reference.config, description=about)

    @property
    def data_dir(self) -> str:
        """The version's folder: a path, or a URL where it is not on this machine. Errors as ``dataset``."""
        return self.info.data_dir

    def download_and_prepare(self, **tfds_words: Any) -> None:
        """Build and publish the version; nothing where it is published. Nothing is downloaded.

        Raises:
            UsageError: an argument that means nothing here.
            As ``Catalog.build``.
        """
        check_tfds_arguments("builder(...).download_and_prepare", tfds_words)
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
        **tfds_words: Any,
    ) -> Any:
        """What ``load`` gives for these arguments. Errors as ``dataset`` and ``load``."""
        check_tfds_arguments("builder(...).as_dataset", tfds_words)
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

    def as_data_source(self, split: SplitArgument = None, **tfds_words: Any) -> Any:
        """Examples by number, in the order in which they are stored: one file after the other, in any format.

        A missing value of an optional feature is None, as in TFDS's data sources. Errors as ``dataset`` and ``load``.
        """
        from registry.order import ReadConfig

        file_format = check_tfds_arguments("builder(...).as_data_source", tfds_words) or self._file_format
        config = ReadConfig(interleave_cycle_length=1)
        return read_tree(self.dataset, split, config, file_format=file_format, missing_as_tfds=False)

    def __repr__(self) -> str:
        return f"<Builder {self._reference}{'' if self.is_prepared() else ', not published yet'}>"


def _with_choice(reference: Reference, config: str | None, version: str | None) -> Reference:
    """The reference with the config and the version that stand beside it."""
    for word, given, there in (
        ("config", config, reference.config),
        ("version", version, reference.request or reference.alias),
    ):
        if given is not None and there is not None:
            raise UsageError(f"{reference} names a {word} already, and {word}={given!r:.60} names it again")
    return Reference(
        name=reference.name,
        config=reference.config if config is None else config,
        request=reference.request if version is None else VersionRequest.parse(str(version)),
        alias=reference.alias,
    )


def _to_build(wanted: Reference) -> Reference | None:
    """The exact reference of what an installed builder makes for ``wanted``, or None where none can."""
    from registry.building import open_builder

    if wanted.alias is not None:
        return None
    try:
        return open_builder(wanted).reference
    except RegistryError:
        return None


class DatasetInfo:
    """What is known of one published version, by the names of ``tfds.core.DatasetInfo``; made from a ``Dataset``.

        info = registry.connect().dataset("digits").info
        info.splits["train[:10%]"].file_instructions

    Everything is of the whole version, whichever split was read.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._metadata = dataset.metadata

    @property
    def name(self) -> str:
        """The dataset's name."""
        return self._dataset.name

    @property
    def config_name(self) -> str:
        """The config's name, ``""`` where there are no configs."""
        return self._dataset.config or ""

    @property
    def config_description(self) -> str:
        """What the config is."""
        return self._metadata.config_description

    @property
    def config_tags(self) -> list[str]:
        """Words that the config is found by."""
        return list(self._metadata.config_tags)

    @property
    def full_name(self) -> str:
        """``name[/config]/version``."""
        return "/".join(filter(None, (self.name, self.config_name, str(self.version))))

    @property
    def version(self) -> Version:
        """The version number."""
        return self._dataset.version

    @property
    def release_notes(self) -> Mapping[str, str]:
        """What changed, by version."""
        return MappingProxyType(dict(self._metadata.release_notes))

    @property
    def description(self) -> str:
        """What the dataset is."""
        return self._metadata.description

    @property
    def homepage(self) -> str:
        """Where more is to be read, or ``""``."""
        return self._metadata.homepage

    @property
    def citation(self) -> str:
        """What to cite, or ``""``."""
        return self._metadata.citation

    @property
    def license(self) -> str:
        """The licence of the data, or ``""``."""
        return self._metadata.license

    @property
    def metadata(self) -> Mapping[str, Any]:
        """JSON values that were attached to the dataset: TFDS's ``metadata.json``."""
        return MappingProxyType(dict(self._metadata.custom))

    @property
    def redistribution_info(self) -> RedistributionInfo:
        """The licence, where TFDS has it: ``redistribution_info.license``."""
        return RedistributionInfo(license=self.license)

    @property
    def features(self) -> FeaturesDict:
        """The schema of an example."""
        return self._dataset.features

    @property
    def supervised_keys(self) -> SupervisedKeys | None:
        """What ``as_supervised=True`` gives of an example, or None."""
        from registry.prepared.info import supervised_keys

        return supervised_keys(self._metadata)

    @property
    def splits(self) -> SplitInfos:
        """The splits by name; slices and sums of them, too: ``info.splits["train[:10%]"]``."""
        return SplitInfos(self._dataset)

    @property
    def dataset_size(self) -> int:
        """Bytes of the serialized records of all splits."""
        return sum(split.num_bytes for split in self._dataset.splits.values())

    @property
    def download_size(self) -> int:
        """Bytes that were downloaded to prepare it, where that was noted; else 0."""
        return int(self._metadata.extra.get("downloadSize") or self._metadata.extra.get("sizeInBytes") or 0)

    @property
    def data_dir(self) -> str:
        """The folder that holds the shards of this version: a path, or a URL where it is not on this machine."""
        return self._dataset.local_folder or self._dataset.folder

    @property
    def file_format(self) -> str:
        """The format of the shards: ``tfrecord``."""
        return self._dataset.facts.file_format

    @property
    def disable_shuffling(self) -> bool:
        """Whether the records are stored in the order in which they were made."""
        return self._dataset.facts.disable_shuffling

    def __repr__(self) -> str:
        """A summary, as one looks at it in a notebook."""
        told: list[tuple[str, Any]] = [
            ("full_name", self.full_name),
            ("description", self.description),
            ("config_description", self.config_description),
            ("config_tags", ", ".join(self.config_tags)),
            ("homepage", self.homepage),
            ("license", self.license),
            ("data_dir", self.data_dir),
            ("file_format", self.file_format),
            ("dataset_size", self.dataset_size),
            ("features", self.features),
            ("supervised_keys", self.supervised_keys),
            ("disable_shuffling", self.disable_shuffling),
            ("splits", dict(self.splits)),
            ("citation", self.citation),
        ]
        lines = [f"    {name}={value!r}," for name, value in told if value not in ("", None)]
        return "\n".join(("DatasetInfo(", *lines, ")"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RedistributionInfo:
    """Under which licence the data may be handed on."""

    license: str


class SplitInfos(Mapping[str, "SplitInfo"]):
    """The splits of a version, in order. A key may be any expression; only whole splits are counted and listed."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    @property
    def total_num_examples(self) -> int:
        """Number of records of all splits."""
        return sum(split.num_examples for split in self._dataset.splits.values())

    def __getitem__(self, key: str | ReadInstruction) -> SplitInfo:
        """What is known of a split, or of an expression.

        Raises:
            As ``Dataset.resolve``.
        """
        return SplitInfo(key, self._dataset)

    def get(self, key: Any, default: Any = None) -> Any:
        """The split of that name, else ``default``; an expression is no name."""
        return self[key] if key in self else default  # noqa: SIM401 (this is get)

    def __contains__(self, key: object) -> bool:
        return key in self._dataset.splits

    def __iter__(self) -> Iterator[str]:
        return iter(self._dataset.splits)

    def __len__(self) -> int:
        return len(self._dataset.splits)

    def __repr__(self) -> str:
        return repr(dict(self))


class SplitInfo:
    """What is known of a split or of a slice, by the names of ``tfds.core.SplitInfo``.

    Attributes:
        name: the split, or the expression.
    """

    def __init__(self, key: str | ReadInstruction, dataset: Dataset) -> None:
        self.name = str(key)
        self._dataset = dataset
        self._whole: Split | None = dataset.splits.get(self.name)
        self._plan_of_slice = None if self._whole is not None else dataset.resolve(key)

    @property
    def num_examples(self) -> int:
        """Number of records; of a union, as often as they are read."""
        return self._plan.num_examples if self._whole is None else self._whole.num_examples

    @property
    def num_shards(self) -> int:
        """Number of files; of a slice, of those that it reads."""
        return len(self._plan) if self._whole is None else self._whole.num_shards

    @property
    def shard_lengths(self) -> list[int]:
        """Records in each file; of a slice, those that are read of it."""
        return [one.take for one in self._plan] if self._whole is None else list(self._whole.shard_lengths)

    @property
    def num_bytes(self) -> int:
        """Bytes of the serialized records; 0 for a slice, of which nobody has counted them."""
        return 0 if self._whole is None else self._whole.num_bytes

    @property
    def filenames(self) -> list[str]:
        """The names of the files, sorted, without their folder."""
        return sorted(name.rpartition("/")[2] for name in self._names)

    @property
    def filepaths(self) -> list[str]:
        """The paths or URLs of the files, sorted."""
        return sorted(map(self._locate, self._names))

    @property
    def file_instructions(self) -> list[FileInstruction]:
        """What is read of which file; ``filename`` is its path or URL."""
        return [one._replace(filename=self._locate(one.filename)) for one in self._plan]

    @cached_property
    def _plan(self) -> Plan:
        """The plan; of a whole split only when it is asked for, because a pin file may hold but a part of it."""
        return self._dataset.resolve(self.name) if self._plan_of_slice is None else self._plan_of_slice

    @property
    def _names(self) -> list[str]:
        return [one.filename for one in self._plan] if self._whole is None else self._whole.filenames

    def _locate(self, filename: str) -> str:
        return f"{self._folder}/{filename}"

    @cached_property
    def _folder(self) -> str:
        return self._dataset.local_folder or self._dataset.folder.rstrip("/")

    def __repr__(self) -> str:
        return f"<SplitInfo num_examples={self.num_examples}, num_shards={self.num_shards}>"
