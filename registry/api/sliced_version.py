"""``SlicedVersion``, the base of ``Dataset``: a published version, its slices, and the files they are read from.

``DatasetInfo`` shows it under the names of ``tfds.core.DatasetInfo``. ``Dataset.info`` creates it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from registry.argument_types import typed_methods
from registry.envelope import fields_of
from registry.errors import UnknownFeatureWarning, UsageError, warn

if TYPE_CHECKING:  # numpy and protobuf are loaded when something is read
    from registry.api.provenance import Provenance
    from registry.features import FeaturesDict
    from registry.model import DatasetMetadata, DatasetVersion, Reference, Shard, SlicingRule, Split, Version
    from registry.order import ReadConfig
    from registry.prepared.info import SupervisedKeys
    from registry.reading import ReadableVersion, Slice
    from registry.splits import FileInstruction, Plan, ReadInstruction


@typed_methods
class SlicedVersion:
    """A published version: its recorded facts, how it was looked up, and its slices.

    Exporting, pinning and describing a ``Dataset`` start from it.

    Attributes:
        facts: everything that is recorded about the version.
        provenance: how it was looked up. Internal.
    """

    def __init__(self, facts: DatasetVersion, provenance: Provenance) -> None:
        self.facts = facts
        self.provenance = provenance

    @property
    def reference(self) -> Reference:
        """The exact reference of this version."""
        return self.facts.reference

    @property
    def moment(self) -> datetime | None:
        """The moment as of which it was looked up, or None for now."""
        return self.provenance.moment

    @property
    def name(self) -> str:
        """The dataset's name."""
        return self.facts.name

    @property
    def config(self) -> str | None:
        """The config's name, or None."""
        return self.facts.config

    @property
    def version(self) -> Version:
        """The version number."""
        return self.facts.version

    @property
    def slicing(self) -> SlicingRule:
        """The rule that resolves split expressions unless a call names another: ``documented`` or ``tfds-4``."""
        return self.facts.slicing

    @property
    def metadata(self) -> DatasetMetadata:
        """Description, homepage, licence, citation and release notes."""
        return self.facts.metadata

    @cached_property
    def splits(self) -> Mapping[str, Split]:
        """The splits by name, in order; each with ``num_examples``, ``shard_lengths`` and ``filenames``."""
        return self.facts.layout

    def shards(self, split: str) -> tuple[Shard, ...]:
        """The files of a split, each with position, number of records, size in bytes and sha256.

        Args:
            split: its name.

        Returns:
            All files of the split or, for a version from a pin file, those that the pins name.

        Raises:
            SplitNotFoundError: the version has no split of that name.
        """
        return self.provenance.source.shards(split)

    @cached_property
    def features(self) -> FeaturesDict:
        """The schema of an example.

        Features of an unknown class are read as their stored values, with an UnknownFeatureWarning.
        """
        from registry.features import describe_unknown, features_from_json

        features = features_from_json(self.facts.features_json).with_labels(self.facts.labels)
        if note := describe_unknown(features.unknown_features()):
            warn(f"{self.reference}: {note}", UnknownFeatureWarning)
        return features

    @property
    def readable(self) -> ReadableVersion:
        """The value from which all readers start: features, folder, digests of the files, default order.

        For code that adds a way to read, such as a plugin; use ``read`` otherwise. The folder is searched for each
        time, because files that were imported in place may have been replaced by a copy.

        Raises:
            NotStoredError: the version comes from a pin file, and its files are missing.
        """
        return self.provenance.source.readable(self.features)

    @property
    def folder(self) -> str:
        """URL of the folder with the shards, ``file://...`` on this machine; ``local_folder`` is its path."""
        return self.provenance.source.store().url

    @property
    def local_folder(self) -> str | None:
        """Path of the folder with the shards, or None if it is not on this machine."""
        root = self.provenance.source.store().local_root
        return None if root is None else str(root)

    def resolve(
        self,
        split: str | ReadInstruction,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Plan:
        """Resolve a split expression to a plan: which records of which files. No file is opened.

        >>> [(one.filename, one.skip, one.take) for one in digits.resolve("train[-2:]")]
        [('digits-train.tfrecord-00003-of-00004', 447, 2)]

        Args:
            split: an expression such as ``train[:80%]+test``, or a ReadInstruction.
            slicing: ``documented`` or ``tfds-4``. None means the rule of the version.
            rounding: ``closest`` or ``pct1_dropremainder`` for every percentage. None means the rounding of the rule.

        Raises:
            SplitSyntaxError: the expression does not parse; a caret shows the place.
            SplitNotFoundError: the version has no split of that name.
            SliceError: a slice is out of range or reversed. An empty slice is allowed.
            UsageError: ``split`` has a wrong type, or ``slicing`` or ``rounding`` is unknown.
            LockedError: look-ups are locked to a pin file, and the expression names records that are not pinned.
        """
        rule = self.slicing if slicing is None else slicing
        return self.provenance.source.resolve(split, slicing=rule, rounding=rounding)

    def slice_of(
        self,
        split: str | ReadInstruction | None = None,
        read_config: ReadConfig | None = None,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Slice:
        """The plan of an expression, together with the readable version: the input of other readers.

        For code that adds a way to read, such as ``registry.slim`` and plugins (``registry.reading.SplitSource``); use
        ``read`` otherwise.

        Args:
            split: an expression, see ``resolve``. None means the only split of the version.
            read_config: the order, see ``read``.
            slicing: see ``resolve``.
            rounding: see ``resolve``.

        Raises:
            UsageError: ``split`` is None, and the version has several splits; or see ``resolve``.
            SplitSyntaxError, SplitNotFoundError, SliceError, LockedError: see ``resolve``.
            NotStoredError: the version comes from a pin file, and its files are missing.
        """
        from registry.reading import Slice

        if split is None:
            if len(self.splits) != 1:
                raise UsageError(
                    "missing split expression",
                    hint=f"Name the records of {self.reference}, e.g. train[:80%]. It has the splits "
                    f"{', '.join(list(self.splits)[:20])}.",
                )
            split = next(iter(self.splits))
        plan = self.resolve(split, slicing=slicing, rounding=rounding)
        readable = self.provenance.source.readable(self.features, plan, read_config)
        return Slice(name=plan.expression, readable=readable, plan=plan)


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
