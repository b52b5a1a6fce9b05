"""``SlicedVersion``, the base of ``Dataset``: a published version, its slices, and the files they are read from."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from registry.argument_types import typed_methods
from registry.errors import UnknownFeatureWarning, UsageError, warn

if TYPE_CHECKING:  # numpy and protobuf are loaded when something is read
    from registry.api.provenance import Provenance
    from registry.features import FeaturesDict
    from registry.model import DatasetMetadata, DatasetVersion, Reference, Shard, SlicingRule, Split, Version
    from registry.order import ReadConfig
    from registry.reading import ReadableVersion, Slice
    from registry.splits import Plan, ReadInstruction


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
