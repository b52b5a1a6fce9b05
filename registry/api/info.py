"""``DatasetInfo``: a version under the names of ``tfds.core.DatasetInfo``. ``Dataset.info`` creates it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from registry.envelope import fields_of

if TYPE_CHECKING:
    from registry.api.sliced_version import SlicedVersion
    from registry.features import FeaturesDict
    from registry.model import Split, Version
    from registry.prepared.info import SupervisedKeys
    from registry.splits import FileInstruction, Plan, ReadInstruction


class DatasetInfo:
    """One published version under the names of ``tfds.core.DatasetInfo``.

    It describes the whole version, whichever split was read.

    >>> info = catalog.dataset("digits").info
    >>> info.full_name, info.splits["train[:10%]"].num_examples
    ('digits/1.0.0', 180)
    """

    def __init__(self, dataset: SlicedVersion) -> None:
        self._dataset = dataset
        self._metadata = dataset.metadata

    @property
    def name(self) -> str:
        """The dataset's name."""
        return self._dataset.name

    @property
    def config_name(self) -> str:
        """The config's name, or ``""`` if the dataset has no configs."""
        return self._dataset.config or ""

    @property
    def config_description(self) -> str:
        """Description of the config, or ``""``."""
        return self._metadata.config_description

    @property
    def config_tags(self) -> list[str]:
        """Tags of the config, for search."""
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
        """Release notes by version."""
        return MappingProxyType(dict(self._metadata.release_notes))

    @property
    def description(self) -> str:
        """Description of the dataset."""
        return self._metadata.description

    @property
    def homepage(self) -> str:
        """URL of a page about the dataset, or ``""``."""
        return self._metadata.homepage

    @property
    def citation(self) -> str:
        """The citation, usually BibTeX, or ``""``."""
        return self._metadata.citation

    @property
    def license(self) -> str:
        """The licence of the data, or ``""``."""
        return self._metadata.license

    @property
    def metadata(self) -> Mapping[str, Any]:
        """JSON values attached to the dataset, TFDS's ``metadata.json``."""
        return MappingProxyType(dict(self._metadata.custom))

    @property
    def redistribution_info(self) -> RedistributionInfo:
        """The licence, as ``redistribution_info.license``."""
        return RedistributionInfo(license=self.license)

    @property
    def features(self) -> FeaturesDict:
        """The schema of an example."""
        return self._dataset.features

    @property
    def supervised_keys(self) -> SupervisedKeys | None:
        """The features that ``as_supervised=True`` returns, or None."""
        from registry.prepared.info import supervised_keys

        return supervised_keys(self._metadata)

    @property
    def splits(self) -> SplitInfos:
        """The splits by name. Any split expression works as a key: ``info.splits["train[:10%]"]``."""
        return SplitInfos(self._dataset)

    @property
    def dataset_size(self) -> int:
        """Size of the serialized records of all splits, in bytes."""
        return sum(split.num_bytes for split in self._dataset.splits.values())

    @property
    def download_size(self) -> int:
        """Number of bytes that were downloaded to prepare the dataset, or 0 if unknown."""
        return int(self._metadata.extra.get("downloadSize") or self._metadata.extra.get("sizeInBytes") or 0)

    @property
    def data_dir(self) -> str:
        """The folder of this version's shards: a path, or a URL if it is not on this machine."""
        return self._dataset.local_folder or self._dataset.folder

    @property
    def file_format(self) -> str:
        """The format of the shards: ``tfrecord``."""
        return self._dataset.facts.file_format

    @property
    def disable_shuffling(self) -> bool:
        """Whether the records are stored in the order of generation."""
        return self._dataset.facts.disable_shuffling

    def __repr__(self) -> str:
        """A summary for notebooks."""
        values = (
            fields_of(self, "full_name", "description", "config_description")
            | {"config_tags": ", ".join(self.config_tags)}
            | fields_of(self, "homepage", "license", "data_dir", "file_format", "dataset_size", "features")
            | fields_of(self, "supervised_keys", "disable_shuffling", "splits", "citation")
        )
        lines = [f"    {name}={value!r}," for name, value in values.items() if value not in ("", None)]
        return "\n".join(("DatasetInfo(", *lines, ")"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RedistributionInfo:
    """The licence for redistribution."""

    license: str


class SplitInfos(Mapping[str, "SplitInfo"]):
    """The splits of a version, in order. Any split expression is a key; iteration and ``len`` cover whole splits."""

    def __init__(self, dataset: SlicedVersion) -> None:
        self._dataset = dataset

    @property
    def total_num_examples(self) -> int:
        """Number of records of all splits."""
        return sum(split.num_examples for split in self._dataset.splits.values())

    def __getitem__(self, key: str | ReadInstruction) -> SplitInfo:
        """The split of that name, or the slice of an expression.

        Raises:
            SplitSyntaxError, SplitNotFoundError, SliceError: the expression cannot be resolved.
        """
        return SplitInfo(key, self._dataset)

    def get(self, key: Any, default: Any = None) -> Any:
        """The split of that name, else ``default``. Split expressions are not accepted.

        Args:
            key: the name.
            default: the value if the version has no such split.
        """
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
    """A split or slice under the names of ``tfds.core.SplitInfo``.

    Attributes:
        name: the split, or the expression.
    """

    def __init__(self, key: str | ReadInstruction, dataset: SlicedVersion) -> None:
        self.name = str(key)
        self._dataset = dataset
        self._whole: Split | None = dataset.splits.get(self.name)
        self._plan_of_slice = None if self._whole is not None else dataset.resolve(key)

    @property
    def num_examples(self) -> int:
        """Number of records. A union counts a record as often as it is read."""
        return self._plan.num_examples if self._whole is None else self._whole.num_examples

    @property
    def num_shards(self) -> int:
        """Number of files; for a slice, of the files that it reads."""
        return len(self._plan) if self._whole is None else self._whole.num_shards

    @property
    def shard_lengths(self) -> list[int]:
        """Number of records in each file; for a slice, of the records that it reads."""
        return (
            [instruction.take for instruction in self._plan] if self._whole is None else list(self._whole.shard_lengths)
        )

    @property
    def num_bytes(self) -> int:
        """Size of the serialized records in bytes, or 0 for a slice, whose size is unknown."""
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
        """The records to read from each file; ``filename`` is its path or URL."""
        return [instruction._replace(filename=self._locate(instruction.filename)) for instruction in self._plan]

    @cached_property
    def _plan(self) -> Plan:
        """The plan. For a whole split it is computed on first use: a pin file may have only a part of the split."""
        return self._dataset.resolve(self.name) if self._plan_of_slice is None else self._plan_of_slice

    @property
    def _names(self) -> list[str]:
        return [instruction.filename for instruction in self._plan] if self._whole is None else self._whole.filenames

    def _locate(self, filename: str) -> str:
        return f"{self._folder}/{filename}"

    @cached_property
    def _folder(self) -> str:
        return self._dataset.local_folder or self._dataset.folder.rstrip("/")

    def __repr__(self) -> str:
        return f"<SplitInfo num_examples={self.num_examples}, num_shards={self.num_shards}>"
