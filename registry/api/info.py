"""A version by the names of ``tfds.core.DatasetInfo``: what ``dataset.info`` gives to those who know TFDS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from registry.model import Split, Version
from registry.splits import FileInstruction, Plan, ReadInstruction

if TYPE_CHECKING:
    from registry.api.dataset import Dataset
    from registry.features import FeaturesDict
    from registry.prepared.info import SupervisedKeys


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
        """The split of that name, else ``default``; an expression is not a name."""
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
