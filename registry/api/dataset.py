"""One published version, as its user sees it: what it holds, its slices, and the way to its records."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from registry.api.locations import open_indexes
from registry.errors import UnknownFeatureWarning, UsageError
from registry.model import (
    Considered,
    DatasetMetadata,
    DatasetVersion,
    Reference,
    Shard,
    SlicingRule,
    Split,
    Version,
    VersionStatus,
    no_experiment,
)
from registry.splits import Plan, ReadInstruction

if TYPE_CHECKING:  # numpy and protobuf are loaded when something is read
    from registry.api.info import DatasetInfo
    from registry.api.provenance import Provenance
    from registry.features import FeaturesDict
    from registry.interop.tfds import Exported
    from registry.order import ReadConfig
    from registry.pins import PinFile
    from registry.pins.measure import AdvanceBytes
    from registry.publishing import Advance, VerifyReport
    from registry.reading import ReadableVersion, Reader, Slice, State
    from registry.splits import Explanation, Relation
    from registry.tfrecord import Verify


class Dataset:
    """One published version and how it was found: in a catalog, now or at a moment, or in a pin file. Frozen.

    Every method works for all of them. What a pin file answers knows the records that it pins and no others: a
    ``LockedError`` says so where more is asked for.

    Attributes:
        facts: everything that is recorded of the version. A pin records homepage, licence and citation of its metadata,
            and of its shards those that the pinned slices touch.
        provenance: how it was found.
    """

    def __init__(self, facts: DatasetVersion, provenance: Provenance) -> None:
        self.facts = facts
        self.provenance = provenance

    @property
    def reference(self) -> Reference:
        """The reference that names exactly this version."""
        return self.facts.reference

    @property
    def moment(self) -> datetime | None:
        """The moment at which it was looked up, where that was asked for; None is the present."""
        return self.provenance.moment

    @property
    def wanted(self) -> Reference:
        """The reference that was looked up."""
        return self.provenance.wanted

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
    def status(self) -> VersionStatus:
        """Its status relative to the canonical version when it was looked up, or pinned."""
        return self.provenance.status

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know: that it is experimental, deprecated or yanked, and since when."""
        return self.provenance.notes

    @property
    def yank_note(self) -> str | None:
        """The note of a yanked version, None for any other."""
        return self.provenance.yank_note

    @property
    def protected(self) -> str | None:
        """Whether only ``promote`` moves the canonical version: ``name/config``, ``name``, or ``""``, all datasets.

        None where nothing does; of a dataset that was looked up at a moment, what did then.
        """
        return self.provenance.protected

    @property
    def why(self) -> tuple[str, ...]:
        """Why the look-up gave this version, in sentences."""
        return self.provenance.why

    @property
    def considered(self) -> tuple[Considered, ...]:
        """Every version that the look-up considered, the highest first, each with its verdict."""
        return self.provenance.considered

    @property
    def slicing(self) -> SlicingRule:
        """The rule by which split expressions are resolved, unless a call chooses another."""
        return self.facts.slicing

    @property
    def experiments(self) -> Mapping[str, bool]:
        """Flags that this version overrides."""
        return MappingProxyType(dict(self.facts.experiments))

    def implements(self, flag: str | Enum) -> bool:
        """Whether an experiment is on in this version: its override, else the default as it was when it was published.

        A flag that was added to the catalog later is off: the records are older than it. Pins record overrides only.

        Raises:
            ExperimentNotFoundError: no such flag was ever added, or the pins do not record it.
        """
        name = flag.name.lower() if isinstance(flag, Enum) else flag
        flags = self.provenance.flags
        if name not in flags:
            raise no_experiment(str(name), flags, where=self.provenance.flags_from)
        return flags[name]

    @property
    def metadata(self) -> DatasetMetadata:
        """Description, homepage, licence, citation and release notes."""
        return self.facts.metadata

    @cached_property
    def splits(self) -> Mapping[str, Split]:
        """The splits by name, in order; each with ``num_examples``, ``shard_lengths`` and ``filenames``."""
        return self.facts.layout

    def shards(self, split: str) -> tuple[Shard, ...]:
        """The files of a split, each with position, size and sha256; where a pin file answered, those that it names."""
        return self.provenance.known_shards(split)

    @cached_property
    def features(self) -> FeaturesDict:
        """The schema of an example; an UnknownFeatureWarning tells of features that are read as raw values."""
        from registry.features import describe_unknown, features_from_json

        features = features_from_json(self.facts.features_json).with_labels(self.facts.labels)
        if note := describe_unknown(features.unknown_features()):
            warnings.warn(f"{self.reference}: {note}", UnknownFeatureWarning, stacklevel=3)
        return features

    @property
    def info(self) -> DatasetInfo:
        """What is known of this version, by the names of ``tfds.core.DatasetInfo``."""
        from registry.api.info import DatasetInfo

        return DatasetInfo(self)

    @property
    def readable(self) -> ReadableVersion:
        """The version with everything that is needed to read it: features, folder, proof of the files, default order.

        Its folder is looked for each time: files that were catalogued in place may be read from a copy by now.

        Raises:
            NotStoredError: its files are not where they are looked for.
        """
        return self.provenance.readable(self.features)

    @property
    def folder(self) -> str:
        """Path or URL of the folder that holds the shards."""
        return self.provenance.store().url

    @property
    def local_folder(self) -> str | None:
        """The path of that folder where it is on this machine, else None."""
        root = self.provenance.store().local_root
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
            LockedError: look-ups are locked to a pin file, and it names records that are not pinned.
        """
        return self.provenance.resolve(split, slicing=self.slicing if slicing is None else slicing, rounding=rounding)

    def explain(
        self,
        split: str | ReadInstruction,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Explanation:
        """The plan of a split expression, with the reason for every bound. Arguments and errors as ``resolve``."""
        return self.provenance.explain(split, slicing=self.slicing if slicing is None else slicing, rounding=rounding)

    def relation(
        self,
        first: str | ReadInstruction,
        second: str | ReadInstruction,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Relation:
        """How the records of two expressions relate: ``is_disjoint``, ``common`` and more.

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
        from registry.reading import Reader

        found = self.slice_of(split, read_config, slicing=slicing, rounding=rounding)
        return Reader(
            found.readable, found.plan, read_config=read_config, state=state, process=process, verify=verify, copy=copy
        )

    def read_slices(self, read_config: ReadConfig | None = None) -> dict[str, Reader]:
        """Readers of everything that can be read, by name: every split, or every pin of a pin file.

        Arguments and errors as ``read``.
        """
        from registry.reading import Reader

        slices = self.provenance.slices(self.features)
        return {one.name: Reader(one.readable, one.plan, read_config=read_config) for one in slices}

    def slice_of(
        self,
        split: str | ReadInstruction | None = None,
        read_config: ReadConfig | None = None,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Slice:
        """The slice that ``read`` reads, to be read in another way: see ``registry.reading.SplitSource``.

        Raises:
            UsageError: no split is named, and the version has several.
            As ``read``.
        """
        from registry.reading import Slice

        if split is None:
            if len(self.splits) != 1:
                raise UsageError(
                    "no split expression was given",
                    hint=f"Name the records of {self.reference}, e.g. train[:80%]. It has the splits "
                    f"{', '.join(list(self.splits)[:20])}.",
                )
            split = next(iter(self.splits))
        plan = self.resolve(split, slicing=slicing, rounding=rounding)
        readable = self.provenance.readable_for(plan, self.features, read_config)
        return Slice(name=plan.expression, readable=readable, plan=plan)

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
            UsageError: nothing to pin, a name or location that is not a line of text, or a shuffle without a seed.
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
            LockedError: a pin file answered the look-up, and does not pin every record of the version.
        """
        from registry.interop.tfds import export_tfds
        from registry.storage import open_store

        return export_tfds(
            self.facts,
            self.provenance.store(),
            self._all_shards(),
            open_store(data_dir),
            is_default_config=self.provenance.is_default_config,
            advance=advance,
        )

    def croissant(self, *, base_url: str | None = None, creators: Sequence[str] = ()) -> dict[str, Any]:
        """This version as a document of Croissant 1.1 (JSON-LD), as plain values; the same version gives the same.

        Args:
            base_url: the address of the folder that has the shards; None names them relative to the document, which
                then belongs into that folder.
            creators: the names of the people who made the dataset, whom the catalog does not know.

        Raises:
            UsageError: ``base_url`` is not an address.
            LockedError: as ``export_tfds``.
        """
        from registry.interop.croissant import describe_croissant

        return describe_croissant(self.facts, self.features, self._all_shards(), base_url=base_url, creators=creators)

    def verify(self, *, deep: bool = False, advance: Advance | None = None) -> VerifyReport:
        """Compare every shard file with what is recorded of it: size, number of records, sha256.

        Every shard of a version of a catalog; of one that a pin file answers, those that the pins name.

        A whole file of other records has the code ``foreign_shard``, and ``report.recovery`` says what to do.

        Args:
            deep: decode every record, too.
            advance: called with the number of records done since the last call.
        """
        from registry.publishing import verify_shards

        report = verify_shards(
            self.provenance.store(),
            self.facts.splits,
            {split.name: self.shards(split.name) for split in self.facts.splits},
            features=self.features if deep else None,
            indexes=open_indexes(),
            advance=advance,
        )
        return report.name_foreign(self.provenance.describe_shards, self.provenance.recovery)

    def _all_shards(self) -> dict[str, tuple[Shard, ...]]:
        return {split.name: self.provenance.all_shards(split.name) for split in self.facts.splits}

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split.name} {split.num_examples}" for split in self.facts.splits)
        return f"<Dataset {self.reference}: {sizes}>"
