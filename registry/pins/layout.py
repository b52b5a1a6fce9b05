"""Makes the splits, the plan and the dataset version of a pin from the pin file alone, for readers.

A pin names only the shards that contain records of its slice. For the shards between two of them, it has only the total
number of records. These shards are therefore represented by one long shard and empty ones, which no range of the pin
reads.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from registry.errors import PinFormatError, RegistryError, UsageError
from registry.features import FeaturesDict, features_from_json
from registry.model import (
    DatasetMetadata,
    DatasetVersion,
    KnownShards,
    Reference,
    Shard,
    ShardedFileTemplate,
    ShardLengths,
    SlicingRule,
    Split,
    Version,
    VersionState,
    version_folder,
)
from registry.order import ReadConfig
from registry.pins.document import FileEntry, OrderEntry, PinEntry, SplitEntry
from registry.splits import EvenPart, Plan, ReadInstruction, RecordRange, SplitSlice, resolve

if TYPE_CHECKING:
    from registry.storage import Store
    from registry.tfrecord import IndexFolder

GENERATORS: Final = {
    "files": "tf.data shuffle of files: Philox 4x32-10, as TensorFlow 2 seeds it",
    "global": "dataset-registry permutation of records, version 1",
}
"""The random generator of a shuffle, in words for a reader without this software (docs/order.md)."""


def reference_of(entry: PinEntry) -> Reference:
    """The exact reference of the pinned version."""
    return Reference.exactly(entry.dataset, entry.config, Version.parse(entry.version))


def folder_of(entry: PinEntry) -> str:
    """The version's folder below a data directory: ``name[/config]/version``."""
    return version_folder(entry.dataset, entry.config, Version.parse(entry.version))


def splits_of(entry: PinEntry, *, fills_last: bool = False, guarded: bool = False) -> tuple[Split, ...]:
    """The splits of a pin, in which the pinned shards have their true positions.

    All records of a gap are assigned to its first shard, or to its last with ``fills_last``. With ``guarded``, reading
    the length of such a shard raises UsageError.

    Raises:
        UsageError: the files contradict each other.
    """
    files = {name: list(group) for name, group in groupby(entry.files, key=lambda file: file.split)}
    return tuple(
        _split_of(split, files.get(split.name, []), entry, fills_last=fills_last, guarded=guarded)
        for split in entry.splits
    )


def merge_entries(entries: Sequence[PinEntry]) -> PinEntry:
    """The first of several pins of one version, with the splits and files of all of them, to read all their slices.

    Its ranges and digests are those of the first pin.
    """
    splits = {split.name: split for entry in entries for split in entry.splits}
    files = {(file.split, file.index): file for entry in entries for file in entry.files}
    places = {name: place for place, name in enumerate(splits)}
    in_order = sorted(files, key=lambda key: (places[key[0]], key[1]))
    return entries[0].model_copy(
        update={"splits": tuple(splits.values()), "files": tuple(files[key] for key in in_order)}
    )


def plan_of(entry: PinEntry) -> Plan:
    """The plan that reads the ranges of a pin, in their order."""
    splits = {split.name: split for split in splits_of(entry)}
    return plan_ranges(entry, splits)


def plan_ranges(entry: PinEntry, splits: Mapping[str, Split]) -> Plan:
    """The plan that reads the ranges of a pin from ``splits``, which may have other shards than the pin."""
    located = [
        (RecordRange(split=span.split, start=span.start, stop=span.stop), splits[span.split]) for span in entry.ranges
    ]
    return Plan(instruction_of(entry), SlicingRule(entry.slicing), tuple(splits.values()), located)


def instruction_of(entry: PinEntry) -> ReadInstruction:
    """The split expression of a pin, with its rounding."""
    instruction = ReadInstruction.from_spec(entry.split, slicing=entry.slicing).read_by(entry.slicing)
    return instruction if entry.rounding is None else instruction.with_rounding(entry.rounding)


def promises_of(entry: PinEntry) -> KnownShards:
    """The facts about its files that a pin contains."""
    return KnownShards({file.name: _shard_of(file) for file in entry.files})


def shards_of(entry: PinEntry, split: str) -> tuple[Shard, ...]:
    """The shards of a split that a pin names, in order."""
    return tuple(_shard_of(file) for file in entry.files if file.split == split)


def _shard_of(file: FileEntry) -> Shard:
    return Shard(
        index=file.index,
        first_example=file.first_example,
        num_examples=file.num_examples,
        num_bytes=file.num_bytes,
        sha256=file.sha256.removeprefix("sha256:"),
    )


def features_of(entry: PinEntry) -> FeaturesDict:
    """The schema of an example."""
    return features_from_json(entry.features.json_).with_labels(entry.features.labels)


def version_of(entry: PinEntry) -> DatasetVersion:
    """The dataset version as the pin describes it: it knows only the pinned shards."""
    state = VersionState(entry.status) if entry.status in ("deprecated", "yanked") else VersionState.SUPPORTED
    version = Version.parse(entry.version)
    return DatasetVersion(
        name=entry.dataset,
        config=entry.config,
        version=version,
        splits=splits_of(entry, guarded=True),
        features_json=entry.features.json_,
        labels=entry.features.labels,
        location=folder_of(entry),
        content_digest=entry.version_digest.removeprefix("sha256:"),
        state=state,
        state_message=entry.status_message,
        file_format=entry.file_format,
        slicing=SlicingRule(entry.version_slicing),
        disable_shuffling=entry.disable_shuffling,
        experiments=entry.experiments,
        metadata=DatasetMetadata(homepage=entry.provenance.homepage, citation=entry.citation, license=entry.license),
    )


def config_of(order: OrderEntry) -> ReadConfig:
    """The read config of a pin's order."""
    return ReadConfig(
        interleave_cycle_length=order.cycle_length,
        interleave_block_length=order.block_length,
        shuffle_files=order.shuffle == "files",
        shuffle_seed=order.seed if order.shuffle == "files" else None,
        shuffle_reshuffle_each_iteration=order.reshuffle_each_iteration,
        shuffle="global" if order.shuffle == "global" else None,
        seed=order.seed if order.shuffle == "global" else None,
        global_seed=order.global_seed,
        op_seed_index=order.op_seed_index,
    )


def counts_shards(terms: Sequence[SplitSlice | EvenPart]) -> bool:
    """Whether the ranges of these terms depend on shard boundaries."""
    return any(term.unit == "shard" or (isinstance(term, EvenPart) and counts_shards(term.terms)) for term in terms)


def resolve_again(entry: PinEntry, begins: Mapping[str, Split]) -> tuple[RecordRange, ...] | None:
    """Resolve a pin's expression in its splits; None if the ranges depend on shards that the pin does not name.

    If the expression names shards that are not pinned, these have no records and are at the start or end of the slice.
    The start is therefore right if a gap's records are assigned to its first shard, and the stop if they are assigned
    to its last shard. The position of an empty slice depends on the missing shards, so it is taken from the pin.
    """
    terms = instruction_of(entry).terms
    for term in terms:
        if counts_shards([term]) and (isinstance(term, EvenPart) or term.split_name == "all"):
            return None
    result = _resolve(entry, begins)
    if len(result) != len(entry.ranges):
        return result
    if entry.slicing == SlicingRule.TFDS_4.value:
        # Before version 0.2, this rule gave every empty slice the range 0..0. Such pins stay valid.
        result = tuple(
            replace(span, start=0, stop=0) if span.start == span.stop and told.start == told.stop == 0 else span
            for span, told in zip(result, entry.ranges, strict=True)
        )
    if not counts_shards(terms):
        return result
    ends = _resolve(entry, {split.name: split for split in splits_of(entry, fills_last=True)})
    return tuple(
        replace(span, start=told.start, stop=told.stop)
        if told.start == told.stop
        else replace(span, stop=max(span.start, other.stop))
        for span, other, told in zip(result, ends, entry.ranges, strict=True)
    )


def _resolve(entry: PinEntry, splits: Mapping[str, Split]) -> tuple[RecordRange, ...]:
    try:
        return resolve(entry.split, splits, slicing=entry.slicing, rounding=entry.rounding).ranges
    except RegistryError as error:
        raise PinFormatError(f"the expression cannot be resolved: {error.message}") from error


def _split_of(
    split: SplitEntry, files: Sequence[FileEntry], entry: PinEntry, *, fills_last: bool, guarded: bool
) -> Split:
    lengths = array("q", bytes(8 * split.num_shards))
    unknown = bytearray(split.num_shards)
    end = position = 0
    for file in [*files, None]:
        index, first = (split.num_shards, split.num_examples) if file is None else (file.index, file.first_example)
        if index > position:
            lengths[index - 1 if fills_last else position] = first - end
            if first > end:
                unknown[position:index] = bytes([1]) * (index - position)
        if file is not None:
            lengths[index] = file.num_examples
            end, position = first + file.num_examples, index + 1
    return Split(
        name=split.name,
        shard_lengths=GuardedLengths(lengths, unknown) if guarded else ShardLengths(lengths),
        num_bytes=split.num_bytes,
        files=ShardedFileTemplate(dataset=entry.dataset, template=split.template, file_format=entry.file_format),
    )


class GuardedLengths(ShardLengths):
    """The lengths of the pinned shards. The lengths of the other shards are unknown.

    Raises:
        UsageError: on access to the length or the start of a shard that is not pinned.
    """

    __slots__ = ("_unknown",)

    def __init__(self, lengths: Iterable[int], unknown: bytes | bytearray) -> None:
        super().__init__(lengths)
        self._unknown = bytes(unknown)

    def start(self, index: int) -> int:
        """Position in the split of the first record of a shard that is pinned or next to a pinned one."""
        if 0 < index < len(self) and self._unknown[index] and self._unknown[index - 1]:
            raise self._refusal(index)
        return super().start(index)

    def shard_of(self, position: int) -> int:
        """The index of the pinned shard that contains record ``position``."""
        return self._known(super().shard_of(position))

    def __getitem__(self, index: Any) -> Any:
        for place in range(len(self))[index] if isinstance(index, slice) else [index]:
            self._known(place)
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[int]:
        return iter(self[:])

    def __reduce__(self) -> tuple[Any, ...]:
        return GuardedLengths, (list(super().__iter__()), self._unknown)

    def _known(self, index: int) -> int:
        if self._unknown[index]:
            raise self._refusal(index)
        return index

    def _refusal(self, index: int) -> UsageError:
        return UsageError(
            f"shard {index} is not pinned, so its number of records is unknown",
            hint="Read the version from the catalog, outside of registry.locked().",
            details={"shard": index},
        )


class PinnedRecords:
    """Proves that files contain the records of some pins of one version (``registry.shards.RecordsProof``).

    A file that differs from the pinned one may be read if all pinned records in it are unchanged.
    """

    def __init__(self, entries: Sequence[PinEntry]) -> None:
        self._entries = tuple(entries)

    @property
    def key(self) -> bytes:
        """Identifies these records in these files."""
        facts = [(entry.records.ordered, entry.ranges, entry.files) for entry in self._entries]
        return hashlib.blake2b(repr(facts).encode(), digest_size=20).digest()

    def are_in(self, store: Store, indexes: IndexFolder | None) -> bool:
        """Whether the files in ``store`` contain the pinned records, compared by the digest over all of them.

        Raises:
            CorruptRecordError, ShardMismatchError, StorageError: a record cannot be read.
        """
        from registry.pins.measure import measure_records

        for entry in self._entries:
            found, _ = measure_records(
                plan_of(entry),
                store,
                file_format=entry.file_format,
                features=features_of(entry),
                whole=False,
                indexes=indexes,
                processes=1,
            )
            if found.ordered != entry.records.ordered:
                return False
        return True
