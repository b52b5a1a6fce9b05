"""What is one published version to its user? What it holds, its slices, and the way to its records."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from registry.errors import UnknownFeatureWarning
from registry.model import (
    Candidate,
    Choice,
    Considered,
    DatasetMetadata,
    DatasetVersion,
    Reference,
    SlicingRule,
    Split,
    Version,
    VersionState,
    VersionStatus,
    choose,
    describe_trouble,
    no_experiment,
)
from registry.splits import Plan, ReadInstruction, resolve

if TYPE_CHECKING:  # numpy and protobuf are loaded when something is read
    from registry.api.catalog import Catalog
    from registry.api.tfds_compat import DatasetInfo
    from registry.features import FeaturesDict
    from registry.interop.tfds import Exported
    from registry.order import ReadConfig
    from registry.pins import PinFile
    from registry.pins.measure import AdvanceBytes
    from registry.publishing import Advance, VerifyReport
    from registry.reading import Reader, State
    from registry.splits import Explanation, Relation
    from registry.storage import Store
    from registry.tfrecord import Verify


class Dataset:
    """One published version: what it holds, and the way to its records. Frozen, like what it describes."""

    def __init__(self, version: DatasetVersion, *, catalog: Catalog, wanted: Reference | None = None) -> None:
        self._version = version
        self._opened = catalog
        self._wanted = version.reference if wanted is None else wanted

    @property
    def _catalog(self) -> Catalog:
        return self._opened

    @property
    def reference(self) -> Reference:
        """The reference that names exactly this version."""
        return self._version.reference

    @property
    def moment(self) -> datetime | None:
        """The moment at which it was looked up, where that was asked for; None is the present."""
        return None

    @property
    def wanted(self) -> Reference:
        """The reference that was looked up."""
        return self._wanted

    @property
    def name(self) -> str:
        """The dataset's name."""
        return self._version.name

    @property
    def config(self) -> str | None:
        """The config's name, or None."""
        return self._version.config

    @property
    def version(self) -> Version:
        """The version number."""
        return self._version.version

    @property
    def status(self) -> VersionStatus:
        """How it stands to the canonical version when it was looked up."""
        return self._version.status

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know: that it is experimental, deprecated or yanked."""
        trouble = describe_trouble(self.reference, self._candidate, self._version.canonical)
        return () if trouble is None else (trouble,)

    @property
    def yank_note(self) -> str | None:
        """The note of a yanked version, None for any other."""
        return self.notes[0] if self._version.state is VersionState.YANKED else None

    @cached_property
    def protected(self) -> str | None:
        """Whether only ``promote`` moves the canonical version: ``name/config``, ``name``, or ``""``, all datasets.

        None where nothing does; of a dataset that was looked up at a moment, what did then.
        """
        return self._catalog.protection(self.name, self.config, at=self.moment)

    @cached_property
    def why(self) -> tuple[str, ...]:
        """Why the look-up gave this version, in sentences."""
        sentences, today = self._choice.sentences, self._choice.version
        if today == self.version:
            return sentences
        moved = f"That is how things stand now: when it was looked up, {self._wanted} gave {self.version}."
        return (*sentences, moved)

    @cached_property
    def considered(self) -> tuple[Considered, ...]:
        """Every version that the look-up considered, the highest first, each with its verdict."""
        return self._choice.considered

    @property
    def _candidate(self) -> Candidate:
        found = self._version
        return Candidate(
            version=found.version, state=found.state, message=found.state_message, superseded_by=found.superseded_by
        )

    @cached_property
    def _choice(self) -> Choice:
        return choose(self._catalog.standing(self.name, self.config), self._wanted)

    @property
    def slicing(self) -> SlicingRule:
        """The rule by which split expressions are resolved, unless a call chooses another."""
        return self._version.slicing

    @property
    def experiments(self) -> Mapping[str, bool]:
        """Flags that this version overrides."""
        return MappingProxyType(dict(self._version.experiments))

    def implements(self, flag: str | Enum) -> bool:
        """Whether an experiment is on in this version: its override, else the default as it was when it was published.

        A flag that was added to the catalog later is off: the records are older than it.

        Raises:
            ExperimentNotFoundError: no such flag was ever added.
        """
        name = flag.name.lower() if isinstance(flag, Enum) else flag
        if name not in self._implemented:
            raise no_experiment(str(name), self._implemented, where="the catalog")
        return self._implemented[name]

    @cached_property
    def _implemented(self) -> Mapping[str, bool]:
        return self._catalog.implemented(self._version)

    @property
    def metadata(self) -> DatasetMetadata:
        """Description, homepage, licence, citation and release notes."""
        return self._version.metadata

    @property
    def details(self) -> DatasetVersion:
        """Everything that the catalog holds of it."""
        return self._version

    @cached_property
    def splits(self) -> Mapping[str, Split]:
        """The splits by name, in order; each with ``num_examples``, ``shard_lengths`` and ``filenames``."""
        return self._version.layout

    @cached_property
    def features(self) -> FeaturesDict:
        """The schema of an example; an UnknownFeatureWarning tells of features that are read as raw values."""
        from registry.features import describe_unknown, features_from_json

        features = features_from_json(self._version.features_json).with_labels(self._version.labels)
        if note := describe_unknown(features.unknown_features()):
            warnings.warn(f"{self.reference}: {note}", UnknownFeatureWarning, stacklevel=3)
        return features

    @property
    def info(self) -> DatasetInfo:
        """What is known of this version, by the names of ``tfds.core.DatasetInfo``."""
        from registry.api.tfds_compat import DatasetInfo

        return DatasetInfo(self)

    @property
    def folder(self) -> str:
        """Path or URL of the folder that holds the shards."""
        return self._store().url

    @property
    def local_folder(self) -> str | None:
        """The path of that folder where it is on this machine, else None."""
        root = self._store().local_root
        return None if root is None else str(root)

    def resolve(
        self,
        split: str | ReadInstruction,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Plan:
        """The plan of a split expression: which records of which files, without opening one.

        Args:
            split: an expression, or a ReadInstruction.
            slicing: ``documented`` or ``tfds-4`` for this call; None is the rule that was published with the version.
            rounding: ``closest`` or ``pct1_dropremainder`` for every percentage.

        Raises:
            SplitSyntaxError: the expression does not parse; a caret shows where.
            SplitNotFoundError, SliceError: it names a split or a range that is not there.
        """
        return resolve(split, self.splits, slicing=self.slicing if slicing is None else slicing, rounding=rounding)

    def explain(
        self,
        split: str | ReadInstruction,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Explanation:
        """The plan of a split expression, with the reason for every bound. Arguments and errors as ``resolve``."""
        from registry.splits import explain

        return explain(split, self.splits, slicing=self.slicing if slicing is None else slicing, rounding=rounding)

    def relation(
        self,
        first: str | ReadInstruction,
        second: str | ReadInstruction,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Relation:
        """How the records of two expressions stand to each other: ``is_disjoint``, ``common`` and more.

        Arguments and errors as ``resolve``.
        """
        from registry.splits import relation

        return relation(
            self.resolve(first, slicing=slicing, rounding=rounding),
            self.resolve(second, slicing=slicing, rounding=rounding),
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
    ) -> Reader:
        """The examples of a split expression, as dicts of numpy arrays.

        Args:
            split: an expression, or a ReadInstruction.
            slicing: as ``resolve``.
            rounding: as ``resolve``.
            read_config: in which order; None is TFDS's default, ``ReadConfig()``. Where the version's records are
                stored in the order in which they were made, and where its files are ArrayRecord or typed Parquet, the
                default is the order in which they are stored.
            state: what ``Reader.state`` gave, to read on from there.
            process: (index, count), where several processes share the examples.
            verify: how the checksums of records are checked: ``block`` or ``record``, or ``off``.
            copy: False gives large values as read-only views of the mapped files.

        Raises:
            As ``resolve`` and ``Reader``, and while iterating as it does.
        """
        plan = self.resolve(split, slicing=slicing, rounding=rounding)
        return self._read_plan(plan, read_config, state=state, process=process, verify=verify, copy=copy)

    def _read_plan(self, plan: Plan, read_config: ReadConfig | None, **options: Any) -> Reader:
        """The examples of a plan; ``options`` are those of ``Reader``."""
        from registry.order import check_config
        from registry.reading import Reader
        from registry.shards import STORED_ORDER

        is_ordered = self._version.disable_shuffling or self._version.file_format in STORED_ORDER
        read_config = check_config(read_config, is_ordered=is_ordered)
        return Reader(
            plan,
            store=self._catalog.proved_store(
                self._version, {split.name for split in plan.splits}, features=self.features
            ),
            features=self.features,
            config=read_config,
            dataset=f"{self.reference} (sha256:{self._version.content_digest[:12]})",
            indexes=self._catalog.indexes(),
            file_format=self._version.file_format,
            **options,
        )

    def pin(
        self,
        *splits: str | ReadInstruction | Mapping[str, str | ReadInstruction],
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
        read_config: ReadConfig | None = None,
        locations: Sequence[str] = (),
        into: PinFile | None = None,
        processes: int | None = None,
        advance: AdvanceBytes | None = None,
    ) -> PinFile:
        """Pin slices of this version for a paper: which records, and the digests that prove them.

            digits.pin("train[:80%]", "test").save("dataset.lock.yaml")
            digits.pin({"train": "train[:80%]", "validation": "train[80%:]"})

        Args:
            splits: split expressions, or dicts of them by the names that the pins are to have. A pin without a given
                name is called by its split, or by its expression where two are cut from one split.
            slicing: as ``resolve``.
            rounding: as ``resolve``.
            read_config: the order in which the records were read; None is that of ``read``. A shuffle needs its seed.
            locations: URLs of folders in which others find the files.
            into: a pin file that gets these pins beside its own.
            processes: how many hash; None takes as many as there are cores where there is enough to do.
            advance: called with the number of bytes hashed since the last call.

        Raises:
            As ``resolve``.
            ShardMismatchError, CorruptRecordError, StorageError: a file is not as it was published, or cannot be read.
            ConflictError: ``into`` has another pin of that name.
            UsageError: nothing to pin, a name or location that is no line of text, or a shuffle without a seed.
        """
        from registry.api.pinning import pin_dataset

        return pin_dataset(
            self,
            splits,
            catalog=self._catalog,
            wanted=self._wanted,
            into=into,
            slicing=slicing,
            rounding=rounding,
            read_config=read_config,
            locations=locations,
            processes=processes,
            advance=advance,
        )

    def export_tfds(self, data_dir: str | os.PathLike[str], *, advance: AdvanceBytes | None = None) -> Exported:
        """Write this version below ``data_dir`` in the layout of TFDS, so that TFDS loads it; harmless to do again.

        Args:
            data_dir: path or URL of the folder that TFDS is given as its ``data_dir``.
            advance: called with the number of bytes done since the last call.

        Raises:
            ShardMismatchError: a shard is not what was published.
            ConflictError: other data lies where this version belongs.
            StorageError: a file cannot be read or written.
        """
        from registry.interop.tfds import export_tfds
        from registry.storage import open_store

        version = self._version
        return export_tfds(
            version,
            self._store(),
            {split.name: self._catalog.shards(version, split.name) for split in version.splits},
            open_store(data_dir),
            is_default_config=any(
                one.is_default and one.config == version.config for one in self._catalog.lifecycle.configs(version.name)
            ),
            advance=advance,
        )

    def croissant(self, *, base_url: str | None = None, creators: Sequence[str] = ()) -> dict[str, Any]:
        """This version as a document of Croissant 1.1 (JSON-LD), as plain values; the same version gives the same.

        Args:
            base_url: the address of the folder that has the shards; None names them relative to the document, which
                then belongs into that folder.
            creators: the names of the people who made the dataset, whom the catalog does not know.

        Raises:
            UsageError: ``base_url`` is no address.
        """
        from registry.interop.croissant import describe_croissant

        shards = {split.name: self._catalog.shards(self._version, split.name) for split in self._version.splits}
        return describe_croissant(self._version, self.features, shards, base_url=base_url, creators=creators)

    def verify(self, *, deep: bool = False, advance: Advance | None = None) -> VerifyReport:
        """Compare every shard file with the catalog: size, number of records, sha256; ``deep`` decodes every record.

        A whole file of other records has the code ``foreign_shard``, and ``report.recovery`` says what to do.
        """
        from registry.publishing import verify_shards

        splits = self._version.splits
        promised = {split.name: self._catalog.shards(self._version, split.name) for split in splits}
        features = self.features if deep else None
        report = verify_shards(
            self._store(), splits, promised, features=features, indexes=self._catalog.indexes(), advance=advance
        )
        location = self._version.location
        if "://" in location or location.startswith("/"):
            recovery = f"This version is read where others keep it. Put its files back there from a copy: {location}"
        else:
            recovery = (
                "Files of another publication lie among those of this version. Put its own back with: registry build "
                f"{self.reference} --rebuild, or from a copy of its folder: registry publish FOLDER. What lies there "
                "now is kept aside."
            )
        return report.name_foreign(partial(self._catalog.describe_shards, self._version), recovery)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split.name} {split.num_examples}" for split in self._version.splits)
        return f"<Dataset {self.reference}: {sizes}>"

    def _store(self) -> Store:
        return self._catalog.version_store(self._version)
