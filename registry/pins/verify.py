"""Checks that a folder contains the pinned records: by its files if they are the pinned ones, else record by record.

    every file has the pinned sha256              -> the records are the pinned ones, byte for byte
    else: the digest over all records is the same -> the same records, in other files
    else                                          -> what differs: file, record, features, and both digests

The folder may contain another version of the dataset with other shards, which its ``dataset_info.json`` describes. The
report has the place of each fault, and both digests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final

from registry.errors import (
    CorruptRecordError,
    NotStoredError,
    RecordsMismatchError,
    RegistryError,
    SliceError,
    StorageError,
    UsageError,
    VerificationError,
)
from registry.features import FeaturesDict
from registry.masking import mask
from registry.model import Advance, Split
from registry.pins.document import PinEntry
from registry.pins.layout import features_of, plan_of, plan_ranges, reference_of, splits_of
from registry.pins.measure import (
    RecordDigests,
    hash_records,
    locate_records,
    measure_files,
    measure_records,
    spot_places,
)
from registry.pins.places import first_missing, holds
from registry.pins.record_digests import RecordSums
from registry.prepared import read_prepared
from registry.shards import COLUMN_FORMATS, open_shard
from registry.shards.asking import ask_sizes, find_sizes
from registry.splits import Plan, counted
from registry.storage import Store
from registry.tfrecord import IndexFolder

_MOST_FAULTS: Final = 20
"""At most this many damaged records, or notes about files, are reported."""

_MOST_IN_BLOCK: Final = 1024


@dataclass(slots=True, kw_only=True)
class PinVerification:
    """Compares the files and the records in a folder with a pin, and counts what it reads for this.

    Attributes:
        entry: the pin.
        store: a folder with the pinned files, or with any version of the dataset.
        deep: also decode every record, and check everything that the pin says about the records.
        indexes: where the offsets of records are cached.
        processes: number of workers; None uses one for each core if there is enough data.
        advance: called with the number of bytes hashed since the last call.
        file_format: the format of the files in ``store``; the pin may have another.
        features: None if neither the records nor the rows of the files are decoded.
    """

    entry: PinEntry
    store: Store
    deep: bool = False
    indexes: IndexFolder | None = None
    processes: int | None = None
    advance: Advance | None = None
    file_format: str = field(default="", init=False)
    features: FeaturesDict | None = field(default=None, init=False)
    num_files: int = field(default=0, init=False)
    num_bytes: int = field(default=0, init=False)

    def run(self, splits: Mapping[str, Split] | None = None, *, quick: bool = False) -> PinReport:
        """Compare, and return the report.

        Args:
            splits: the splits of the version in the folder by name; None reads them from its ``dataset_info.json``.
            quick: if all files are the pinned ones, check only three records. This does not prove that the digest over
                all records is right: the author of the pin is trusted for it.

        Raises:
            NotStoredError: the folder contains neither a pinned file nor a version of the dataset.
            UsageError: both ``deep`` and ``quick`` are set.
        """
        if self.deep and quick:
            hint = "Choose one: deep reads every record, quick three."
            raise UsageError("deep and quick cannot be combined", hint=hint)
        entry, store = self.entry, self.store
        # If the pinned files are there, the pin's own layout is checked, since readers follow it.
        others = None if first_missing(store, entry) is None else _other_splits(entry, splits or _read_splits(store))
        self.file_format = next(iter(others.values())).files.file_format if others else entry.file_format
        self.features = features_of(entry) if self.deep or self.file_format in COLUMN_FORMATS else None
        if others:
            return self.compare_records(others)
        if entry.files and not any(holds(store, file.name) for file in entry.files):
            raise NotStoredError(
                f"{store.url} contains no file of {reference_of(entry)} and no dataset_info.json",
                hint="Name the folder of the version, or the data directory that contains it.",
                details={"path": store.url},
            )
        faults = list(self.check_files())
        if any(fault.code == NotStoredError.code for fault in faults):
            return self.report(faults)
        return self.compare_samples() if quick and not faults else self.compare_records(None, faults)

    def report(self, faults: Iterable[PinFault] = (), *, proved_by: str = "", notes: Sequence[str] = ()) -> PinReport:
        """The report with these faults, and what was read so far."""
        entry = self.entry
        return PinReport(
            name=entry.name,
            dataset=str(reference_of(entry)),
            split=entry.split,
            num_examples=entry.num_examples,
            folder=mask(self.store.url),
            proved_by=proved_by,
            deep=self.deep and bool(proved_by),
            num_files=self.num_files,
            num_bytes=self.num_bytes,
            faults=tuple(faults),
            notes=tuple(notes),
        )

    def check_files(self) -> Iterator[PinFault]:
        """The faults of files whose bytes differ from the pinned ones."""
        same_size = []
        sizes = ask_sizes(self.store, [file.name for file in self.entry.files])
        for file, (_, num_bytes) in zip(self.entry.files, sizes, strict=True):
            if isinstance(num_bytes, StorageError):
                problem = num_bytes.message
                yield PinFault(code=NotStoredError.code, problem=problem, filename=file.name, pinned=file.sha256)
            elif num_bytes == file.num_bytes:
                same_size.append(file)
            else:
                problem = f"{file.name}: expected {file.num_bytes} bytes, found {num_bytes}"
                yield PinFault(problem=problem, filename=file.name, pinned=file.sha256)
        names = {file.name: file.num_bytes for file in same_size}
        files = measure_files(self.store, names, indexes=self.indexes, processes=self.processes, advance=self.advance)
        self.num_files += len(files)
        self.num_bytes += sum(digest.num_bytes for digest in files.values())
        for file in same_size:
            digest = f"sha256:{files[file.name].sha256}"
            if digest != file.sha256:
                problem = f"{file.name}: sha256 mismatch: expected {file.sha256[7:]}, found {digest[7:]}"
                yield PinFault(problem=problem, filename=file.name, pinned=file.sha256, found=digest)

    def compare_samples(self) -> PinReport:
        """The report on a folder that holds the pinned files, after three of their records were checked."""
        try:
            fault = find_wrong_sample(self.entry, self.store, indexes=self.indexes)
        except (VerificationError, StorageError) as error:
            fault = as_fault(error)
        if fault is not None:
            return self.report([fault])
        note = "only three records were checked; for the digest over all records, the pin is trusted"
        return self.report(proved_by="files", notes=[note])

    def compare_records(self, splits: Mapping[str, Split] | None, file_faults: Sequence[PinFault] = ()) -> PinReport:
        """The report on all records: of ``splits``, which have other shards, or, for None, of the pinned files."""
        entry = self.entry
        try:
            plan = plan_of(entry) if splits is None else _plan_other(entry, splits)
            names = list(dict.fromkeys(file.filename for file in plan))
            if splits is not None:
                self.num_files += len(names)
                self.num_bytes += sum(find_sizes(self.store, names).values())
            digests, unreadable = self._measure(plan)
        except (VerificationError, StorageError, SliceError) as error:
            return self.report([*file_faults, as_fault(error)])
        changed = [fault.filename for fault in file_faults if fault.filename]
        if differ := list(self._differences(plan, digests)):
            damaged = self._damaged_records(plan, changed if splits is None else names)
            return self.report([*file_faults, *_join_faults(differ, damaged)])
        if unreadable is not None:  # the records are the pinned ones, but the framing around them is damaged
            return self.report([*file_faults, *(self._damaged_records(plan, names) or [unreadable])])
        if broken := list(self._broken_files(changed)):
            return self.report([*file_faults, *broken])
        notes = [f"{fault.problem}; its pinned records are unchanged" for fault in file_faults[:_MOST_FAULTS]]
        if len(file_faults) > _MOST_FAULTS:
            notes.append(f"and {counted(len(file_faults) - _MOST_FAULTS, 'more file')}")
        if splits is not None:
            hold = "holds" if len(names) == 1 else "hold"
            notes = [
                f"{counted(len(names), 'file')} with other shards {hold} the pinned records",
                *_other_numbers(entry, splits),
            ]
        return self.report(proved_by="files" if splits is None and not file_faults else "records", notes=notes)

    def _measure(self, plan: Plan) -> tuple[RecordDigests, PinFault | None]:
        """The digests of the records, and the fault of a record that cannot be read, or None.

        After a fault, all digests are computed, even of damaged records: they show which record differs.
        """
        unreadable = None
        measure = partial(
            measure_records,
            plan,
            self.store,
            file_format=self.file_format,
            features=self.features,
            indexes=self.indexes,
            processes=self.processes,
            advance=self.advance,
        )
        try:
            digests, _ = measure(whole=self.deep, deep=self.deep)
        except VerificationError as error:
            unreadable = as_fault(error)
        else:
            if self.deep or digests.ordered == self.entry.records.ordered:
                return digests, None
        return measure(verify="off", whole=True)[0], unreadable

    def _differences(self, plan: Plan, digests: RecordDigests) -> Iterator[PinFault]:
        """The differences between the records and the pinned ones."""
        pinned = self.entry.records
        if digests.ordered == pinned.ordered:
            yield from self._contradictions(digests) if digests.unordered else ()
            return
        features = {
            key: (pinned.features.get(key), digests.features.get(key))
            for key in sorted({*pinned.features, *digests.features})
            if digests.features and pinned.features.get(key) != digests.features.get(key)
        }
        position = digests.find_changed(RecordSums.parse(pinned.finder))
        if digests.unordered == pinned.unordered:
            problem = "all pinned records are present, but in another order"
        elif position is not None:
            yield self._changed_record(plan, digests, position, features)
            return
        elif not features:
            problem = "more than one record differs"
        else:
            problem = f"more than one record differs, in {_listed(features)}"
        yield PinFault(
            problem=f"{problem}: digest over all records: expected {pinned.ordered}, found {digests.ordered}"
            f"{self._right_samples(digests)}",
            features=features,
            pinned=pinned.ordered,
            found=digests.ordered,
        )

    def _changed_record(
        self, plan: Plan, digests: RecordDigests, position: int, features: dict[str, tuple[str | None, str | None]]
    ) -> PinFault:
        ((filename, record),) = locate_records(plan, [position])
        (now,) = hash_records(
            plan,
            self.store,
            [position],
            file_format=self.file_format,
            features=self.features,
            verify="off",
            indexes=self.indexes,
        )
        before = RecordSums.parse(self.entry.records.finder).hash_before(digests.finder, now)
        if features:
            subject = f"differs in {_listed(features)}"
        elif digests.features:
            subject = "has the same values in another serialization"
        else:
            subject = "is no longer a tf.train.Example"
        return PinFault(
            problem=f"{filename}: record {record} (number {position} of {self.entry.split}) {subject}: "
            f"sha256 mismatch: expected {before.hex()}, found {now.hex()}",
            filename=filename,
            record=record,
            position=position,
            features=features,
            pinned=f"sha256:{before.hex()}",
            found=f"sha256:{now.hex()}",
        )

    def _right_samples(self, digests: RecordDigests) -> str:
        """A remark on which of the three samples are right: it shows whether the beginning or the end differs."""
        right = [
            name
            for (name, spot), found in zip(self.entry.records.spots, digests.spots or (), strict=bool(digests.spots))
            if spot is not None and spot.sha256 == found
        ]
        return f" (the {' and the '.join(right)} record {'are' if len(right) > 1 else 'is'} right)" if right else ""

    def _contradictions(self, digests: RecordDigests) -> Iterator[PinFault]:
        """Wrong statements of the pin about its records, although the digest over the records is right."""
        pinned = self.entry.records
        said: list[tuple[str, str, str]] = [
            ("unordered", pinned.unordered, digests.unordered),
            ("finder", pinned.finder, str(digests.finder)),
        ]
        said += [
            (f"features.{key}", pinned.features.get(key, "nothing"), digests.features.get(key, "nothing"))
            for key in sorted({*pinned.features, *digests.features})
        ]
        if digests.spots is not None:
            said += [
                (name, spot.sha256 if spot else "nothing", found)
                for (name, spot), found in zip(pinned.spots, digests.spots, strict=True)
            ]
        for name, told, found in said:
            if told != found:
                yield PinFault(
                    problem=f"the records are the pinned ones, but the pin's records.{name} does not match them: "
                    f"expected {told}, found {found}",
                    pinned=told,
                    found=found,
                )

    def _broken_files(self, changed: Sequence[str]) -> Iterator[PinFault]:
        """The faults of changed files that contain the pinned records in damaged framing.

        Another reader may not reach the records of such a file. ``verify.py`` in a bundle reports the same fault.
        """
        for file in self.entry.files:
            if file.name in changed:
                try:
                    # Follows the lengths, without checking records, to the end of the pinned number of records.
                    shard = open_shard(
                        self.store,
                        file.name,
                        file_format=self.file_format,
                        features=self.features,
                        num_records=file.num_examples,
                        verify="off",
                    )
                    for first in range(0, file.num_examples, _MOST_IN_BLOCK):
                        shard.read(first, min(_MOST_IN_BLOCK, file.num_examples - first))
                except (VerificationError, StorageError) as error:
                    yield as_fault(error, filename=file.name)

    def _damaged_records(self, plan: Plan, names: Iterable[str]) -> list[PinFault]:
        """The first records of these files of ``plan`` whose checksums are wrong."""
        faults: list[PinFault] = []
        find = partial(find_damaged, self.store, file_format=self.file_format, features=self.features)
        lengths = {file.name: file.num_examples for file in self.entry.files}
        lengths |= {file.filename: file.examples_in_shard for file in plan}
        for name in dict.fromkeys(names):
            for error in find(name, num_records=lengths[name]):
                faults.append(as_fault(error, filename=name))
                if len(faults) == _MOST_FAULTS:
                    return faults
        return faults


def find_wrong_sample(entry: PinEntry, store: Store, *, indexes: IndexFolder | None = None) -> PinFault | None:
    """The fault of the first, the middle or the last record, whichever differs first; None if all three are as pinned.

    Raises:
        CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: a record cannot be read.
    """
    if not entry.num_examples:
        return None
    places = spot_places(entry.num_examples)
    hashes = hash_records(
        plan_of(entry),
        store,
        places,
        file_format=entry.file_format,
        features=features_of(entry) if entry.file_format in COLUMN_FORMATS else None,
        verify="record",
        indexes=indexes,
    )
    for digest, (_, spot), position in zip(hashes, entry.records.spots, places, strict=True):
        if spot is not None and f"sha256:{digest.hex()}" != spot.sha256:
            filename, _, index = spot.id.rpartition("__")
            return PinFault(
                problem=f"{filename}: record {index} (number {position} of {entry.split}): "
                f"sha256 mismatch: expected {spot.sha256[7:]}, found {digest.hex()}",
                filename=filename,
                record=int(index),
                position=position,
                pinned=spot.sha256,
                found=f"sha256:{digest.hex()}",
            )
    return None


def find_damaged(
    store: Store,
    name: str,
    *,
    num_records: int,
    file_format: str = "tfrecord",
    features: FeaturesDict | None = None,
) -> Iterator[RegistryError]:
    """Every fault in the first ``num_records`` records of a file, up to one after which no record can be found.

    No further records are read: a gzip file of some kilobytes may contain millions. Of a file in another format than
    TFRecord, only the first fault is returned, because damage affects many of its records at once.
    """
    try:
        shard = open_shard(store, name, file_format=file_format, features=features, verify="record")
    except RegistryError as error:
        yield error
        return
    first, count = 0, _MOST_IN_BLOCK
    while first < num_records:
        try:
            shard.read(first, min(count, num_records - first))
        except CorruptRecordError as error:
            yield error
            if error.details["record"] < first or file_format != "tfrecord":
                return
            first, count = error.details["record"] + 1, _MOST_IN_BLOCK
            try:
                open_shard(store, name, verify="off").read(first - 1, 1)
            except RegistryError:  # its header is damaged, so the offset of the next record is unknown
                return
        except RegistryError:  # fewer than ``count`` records are left
            if count == 1:
                return
            count = max(count // 2, 1)
        else:
            first += min(count, num_records - first)


def _read_splits(store: Store) -> Mapping[str, Split]:
    try:
        return {split.name: split for split in read_prepared(store).splits}
    except RegistryError:  # not a readable version, so the pin alone describes the files
        return {}


def _other_splits(entry: PinEntry, splits: Mapping[str, Split]) -> Mapping[str, Split] | None:
    """``splits`` if their shards differ from the pinned ones, else None."""
    if not splits:
        return None
    for split in splits_of(entry):
        other = splits.get(split.name)
        if other is None or other.num_shards != split.num_shards or other.files != split.files:
            return splits
    for file in entry.files:
        lengths = splits[file.split].shard_lengths
        if (lengths[file.index], lengths.start(file.index)) != (file.num_examples, file.first_example):
            return splits
    return None


def _plan_other(entry: PinEntry, splits: Mapping[str, Split]) -> Plan:
    for span in entry.ranges:
        held = splits[span.split].num_examples if span.split in splits else 0
        if span.stop > held:
            raise SliceError(
                f"expected records {span.start}..{span.stop} of {span.split}, which has {held} records here"
            )
    return plan_ranges(entry, {split.name: splits[split.name] for split in entry.splits if split.name in splits})


def _other_numbers(entry: PinEntry, splits: Mapping[str, Split]) -> Iterator[str]:
    """Notes on splits whose length changed since they were pinned, so expressions may select other records now."""
    for split in entry.splits:
        held = splits[split.name].num_examples if split.name in splits else 0
        if held != split.num_examples:
            yield f"{split.name} has {counted(held, 'record')} here; it had {split.num_examples:,} when it was pinned"


def _join_faults(differ: Sequence[PinFault], damaged: Sequence[PinFault]) -> list[PinFault]:
    """All faults, one for each record: a record that differs and is damaged is reported once, as damaged."""
    joined = []
    places = {(fault.filename, fault.record): fault for fault in damaged}
    for fault in differ:
        other = places.pop((fault.filename, fault.record), None) if fault.record is not None else None
        if other is None:
            joined.append(fault)
        else:
            joined.append(replace(fault, code=other.code, problem=f"{fault.problem}; its checksum is wrong too"))
    return joined + list(places.values())


def _listed(features: Mapping[str, Any]) -> str:
    return f"feature{'s' if len(features) > 1 else ''} {', '.join(features)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinFault:
    """One difference between stored records and a pin.

    Attributes:
        code: the code of the error that describes it.
        problem: one sentence.
        filename: the file, or None if the fault is not in one file.
        record: the index of the record in the file, or None.
        position: the position of the record in the slice, or None.
        features: the features that differ, by key: the pinned digest over the slice, and the one found.
        pinned: the pinned sha256 of the record, the file or the slice, or None.
        found: the sha256 that was found instead, or None.
    """

    code: str = RecordsMismatchError.code
    problem: str
    filename: str | None = None
    record: int | None = None
    position: int | None = None
    features: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    pinned: str | None = None
    found: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        features = {key: {"pinned": pinned, "found": other} for key, (pinned, other) in self.features.items()}
        return {**asdict(self), "features": features}


@dataclass(frozen=True, slots=True, kw_only=True)
class PinReport:
    """The result for one pin.

    Attributes:
        name: the name of the pin.
        dataset: the reference of its version.
        split: its split expression.
        num_examples: its number of records.
        folder: the path or URL of the folder whose files were read.
        proved_by: ``files`` if every file is the pinned one, ``records`` if only the records are; ``""`` if there are
            faults.
        deep: whether every record was also decoded.
        num_files: the number of files that were read.
        num_bytes: their size.
        faults: all differences.
        notes: remarks for the reader if there are no faults.
    """

    name: str
    dataset: str
    split: str
    num_examples: int
    folder: str
    proved_by: str
    deep: bool
    num_files: int
    num_bytes: int
    faults: tuple[PinFault, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether the records are the pinned ones."""
        return not self.faults

    def require_sound(self) -> None:
        """Raise a RecordsMismatchError that lists the faults, if there are any."""
        if self.faults:
            listed = "".join(f"\n  {fault.problem}" for fault in self.faults)
            raise RecordsMismatchError(
                f"{self.dataset} {self.split} in {self.folder} differs from the pin{listed}",
                hint="Get the pinned files: registry pin restore FILE --to DIR",
                details={"faults": [fault.to_json() for fault in self.faults]},
            )


def as_fault(error: RegistryError, filename: str | None = None) -> PinFault:
    """The fault for an error; ``filename`` replaces the name of the file in the error."""
    record = error.details.get("record")
    path = filename or error.details.get("path")
    return PinFault(
        code=error.code,
        problem=error.message,
        filename=str(path).rpartition("/")[2] if path else None,
        record=record if isinstance(record, int) else None,
    )
