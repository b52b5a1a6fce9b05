"""What does a prepared version folder say of itself? One frozen value, before it is published or after it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from registry.features import FeaturesDict
from registry.model import DatasetMetadata, Reference, Split, Version, check_config, check_name, check_splits


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDataset:
    """One prepared version, as ``dataset_info.json``, ``features.json`` and the label files describe it.

    Attributes:
        name, config, version: config None where the builder has none.
        splits: in the order of the file, which is the order of ``all``; with file names and shard lengths.
        features: the schema, with the names of its labels where there are files of them.
        metadata: descriptions, supervised keys, release notes. ``metadata.extra`` keeps what has no place here, as it
            was: unknown fields by their names, those of the splits under ``splits`` by split name, those of the
            messages ``location`` and ``redistributionInfo`` under these names.
        file_format: ``tfrecord``, or another format of TFDS.
        disable_shuffling: whether the records are in the order in which they were made.
        experiments, version_to_prepare: flags that the version overrides, and the last version of the builder's code
            that can prepare it. TFDS's files have no place for them: they come from who builds or publishes.
    """

    name: str
    version: Version
    splits: tuple[Split, ...]
    features: FeaturesDict
    config: str | None = None
    metadata: DatasetMetadata = field(default_factory=DatasetMetadata)
    file_format: str = "tfrecord"
    disable_shuffling: bool = False
    experiments: Mapping[str, bool] = field(default_factory=dict)
    version_to_prepare: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.config is not None:
            check_config(self.config)
        check_splits(self.splits, str(self.reference))

    def renamed(self, name: str) -> PreparedDataset:
        """The same version of a dataset called ``name``; its files keep the names that they have.

        Raises:
            ReferenceSyntaxError: no dataset can have this name.
        """
        return replace(
            self,
            name=name,
            splits=tuple(replace(split, files=split.files.with_literal_dataset()) for split in self.splits),
        )

    @property
    def reference(self) -> Reference:
        """The reference that names exactly this version."""
        return Reference.exactly(self.name, self.config, self.version)
