"""Are these the pinned records? By their files where these are the pinned ones, else record by record.

    every file has the pinned sha256              -> the records are the pinned ones, byte for byte
    else: the digest over all records is the same -> the same records, in other files
    else                                          -> what differs: file, record, features, and both digests

A folder may hold another version of the dataset, with other shards: its ``dataset_info.json`` says how they lie.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
from registry.model import Split
from registry.pins.document import PinEntry, digest_text
from registry.pins.layout import features_of, plan_of, plan_ranges, reference_of, splits_of
from registry.pins.measure import (
    STORED_ORDER,
    AdvanceBytes,
    RecordDigests,
    measure_files,
    measure_records,
    spot_places,
)
from registry.pins.places import first_missing
from registry.pins.record_digests import Finder
from registry.pins.report import PinFault, PinReport, as_fault
from registry.prepared import read_prepared
from registry.reading.pieces import RecordSource
from registry.splits import Plan, counted
from registry.storage import Store
from registry.tfrecord import IndexFolder, Verify, open_shard

_MOST_FAULTS: Final = 20
"""So many damaged records or files are named; of a folder of other records, all are."""


def verify_pin(
    entry: PinEntry,
    store: Store,
    *,
    deep: bool = False,
    quick: bool = False,
    indexes: IndexFolder | None = None,
    processes: int | None = None,
    advance: AdvanceBytes | None = None,
) -> PinReport:
    """Hold the files and the records in the folder ``store`` against a pin.

    Args:
        entry: the pin.
        store: a folder with the pinned files, or with any version of the dataset.
        deep: decode every record too, and check all that the pin says of them.
        quick: where all files are the pinned ones, check three records instead of all: that their digest is the one
            that the pin names is then not proved, but said by who made the pin.
        indexes: where the places of records are kept.
        processes: how many hash; None takes as many as there are cores where there is enough to do.
        advance: called with the number of bytes hashed since the last call.

    Raises:
        NotStoredError: the folder holds neither the pinned files nor a version of the dataset.
        UsageError: both deep and quick.
    """
    if deep and quick:
        raise UsageError("deep looks at every record, and quick at three", hint="Ask for one of them.")
    verification = _Verification(entry, store, indexes=indexes, processes=processes, advance=advance)
    return verification.run(deep=deep, quick=quick)


def check_spots(entry: PinEntry, store: Store, *, indexes: IndexFolder | None = None) -> PinFault | None:
    """Hold the first, the middle and the last record against a pin; the first that is another one, or None.

    Raises:
        CorruptRecordError, ShardMismatchError, StorageError: one cannot be read.
    """
    plan, spots = plan_of(entry), (entry.records.first, entry.records.middle, entry.records.last)
    if not entry.num_examples:
        return None
    instructions, places = plan.order(STORED_ORDER).locate(list(spot_places(entry.num_examples)))
    records = RecordSource(plan, store, verify="record", indexes=indexes).fetch(instructions, places).views()
    for record, spot, place in zip(records, spots, spot_places(entry.num_examples), strict=True):
        found = digest_text(bytes(record))
        if spot is not None and found != spot.sha256:
            filename, _, index = spot.id.rpartition("__")
            return PinFault(
                code=RecordsMismatchError.code,
                problem=f"{filename}: record {index} (number {place} of {entry.split}): its sha256 is {found[7:]}, "
                f"pinned was {spot.sha256[7:]}",
                filename=filename,
                record=int(index),
                position=place,
                pinned=spot.sha256,
                found=found,
            )
    return None


class _Verification:
    """One pin against one folder."""

    def __init__(
        self,
        entry: PinEntry,
        store: Store,
        *,
        indexes: IndexFolder | None,
        processes: int | None,
        advance: AdvanceBytes | None,
    ) -> None:
        self._entry = entry
        self._store = store
        self._options: dict[str, Any] = {"processes": processes, "advance": advance}
        self._indexes = indexes
        self._unreadable: PinFault | None = None
        self._report = PinReport(
            name=entry.name,
            dataset=str(reference_of(entry)),
            split=entry.split,
            num_examples=entry.num_examples,
            folder=mask(store.url),
            proved_by="",
            deep=False,
            num_files=0,
            num_bytes=0,
        )

    def run(self, *, deep: bool, quick: bool) -> PinReport:
        # Where the very files are there, only the pin's own layout counts: it is by that that they are read.
        are_there = first_missing(self._store, self._entry) is None
        others = None if are_there else _other_splits(self._entry, self._store)
        if others is not None:
            return self._compare_records(others, notes=(), file_faults=(), deep=deep)
        if self._entry.files and not any(self._has(file.name) for file in self._entry.files):
            raise NotStoredError(
                f"{self._store.url} holds neither a file of {reference_of(self._entry)} nor a dataset_info.json",
                hint="Name the folder of the version, or the data directory that holds it.",
                details={"path": self._store.url},
            )
        faults = tuple(self._check_files())
        if any(fault.code == NotStoredError.code for fault in faults):
            return replace(self._report, faults=faults)
        if quick and not faults:
            return self._compare_spots()
        notes = [f"{fault.problem}: its pinned records are as they were" for fault in faults[:_MOST_FAULTS]]
        if len(faults) > _MOST_FAULTS:
            notes.append(f"{counted(len(faults) - _MOST_FAULTS, 'more file')} alike")
        return self._compare_records(None, notes=tuple(notes), file_faults=faults, deep=deep)

    def _compare_spots(self) -> PinReport:
        try:
            fault = check_spots(self._entry, self._store, indexes=self._indexes)
        except (VerificationError, StorageError) as error:
            fault = as_fault(error)
        if fault is not None:
            return replace(self._report, faults=(fault,))
        note = "three records were looked at; that all of them have the pinned digest, the pin says"
        return replace(self._report, proved_by="files", notes=(note,))

    def _has(self, name: str) -> bool:
        try:
            self._store.size(name)
        except StorageError:
            return False
        return True

    def _check_files(self) -> Iterator[PinFault]:
        """The files that are not the pinned ones, byte for byte."""
        alike = []
        for file in self._entry.files:
            try:
                num_bytes = self._store.size(file.name)
            except StorageError as error:
                yield PinFault(code=NotStoredError.code, problem=error.message, filename=file.name, pinned=file.sha256)
                continue
            if num_bytes == file.num_bytes:
                alike.append(file)
            else:
                yield PinFault(
                    code=RecordsMismatchError.code,
                    problem=f"{file.name}: it is {num_bytes} bytes long, {file.num_bytes} are pinned",
                    filename=file.name,
                    pinned=file.sha256,
                )
        found = measure_files(self._store, [file.name for file in alike], indexes=self._indexes, **self._options)
        self._count([(found[file.name].num_bytes) for file in alike])
        for file in alike:
            digest = f"sha256:{found[file.name].sha256}"
            if digest != file.sha256:
                yield PinFault(
                    code=RecordsMismatchError.code,
                    problem=f"{file.name}: its sha256 is {digest[7:]}, pinned was {file.sha256[7:]}",
                    filename=file.name,
                    pinned=file.sha256,
                    found=digest,
                )

    def _count(self, sizes: Sequence[int]) -> None:
        self._report = replace(
            self._report,
            num_files=self._report.num_files + len(sizes),
            num_bytes=self._report.num_bytes + sum(sizes),
        )

    def _compare_records(
        self,
        splits: Mapping[str, Split] | None,
        *,
        notes: tuple[str, ...],
        file_faults: tuple[PinFault, ...],
        deep: bool,
    ) -> PinReport:
        entry = self._entry
        try:
            plan = plan_of(entry) if splits is None else _plan_other(entry, splits)
            names = dict.fromkeys(file.filename for file in plan)
            if splits is not None:
                self._count([self._store.size(name) for name in names])
            digests = self._measure(plan, deep=deep)
        except (VerificationError, StorageError, SliceError) as error:
            return replace(self._report, faults=(*file_faults, as_fault(error)))
        differ = list(self._differences(plan, digests))
        if differ:
            damaged = self._damaged_records(
                plan, names if splits is not None else [fault.filename for fault in file_faults if fault.filename]
            )
            return replace(self._report, faults=(*file_faults, *_join_faults(differ, damaged)))
        if self._unreadable is not None:  # the bytes of the records are the pinned ones: what is around them is not
            damaged = self._damaged_records(plan, names)
            return replace(self._report, faults=(*file_faults, *(damaged or [self._unreadable])))
        broken = list(self._broken_files(file_faults))
        if broken:
            return replace(self._report, faults=(*file_faults, *broken))
        if splits is not None:
            hold = "holds" if len(names) == 1 else "hold"
            layout = f"{counted(len(names), 'file')} of another layout {hold} the pinned records"
            notes = (layout, *_other_numbers(entry, splits), *notes)
        proved_by = "records" if splits is not None or file_faults else "files"
        return replace(self._report, proved_by=proved_by, deep=deep, notes=notes)

    def _differences(self, plan: Plan, digests: RecordDigests) -> Iterator[PinFault]:
        """What of the records is not as pinned."""
        pinned = self._entry.records
        if digests.ordered == pinned.ordered:
            yield from self._contradictions(digests) if digests.unordered else ()
            return
        features = {
            key: (pinned.features.get(key), digests.features.get(key))
            for key in sorted({*pinned.features, *digests.features})
            if digests.features and pinned.features.get(key) != digests.features.get(key)
        }
        position = digests.position_of(Finder.parse(pinned.finder).find_weight(digests.finder))
        if digests.unordered == pinned.unordered:
            problem = "the pinned records are all there, and in another order"
        elif position is not None:
            yield self._changed_record(plan, digests, position, features)
            return
        elif not features:
            problem = "more than one record differs"
        else:
            problem = f"more than one record differs, in {_listed(features)}"
        yield PinFault(
            code=RecordsMismatchError.code,
            problem=f"{problem}: the digest of all records is {digests.ordered}, pinned was {pinned.ordered}"
            f"{self._spots_told(digests)}",
            features=features,
            pinned=pinned.ordered,
            found=digests.ordered,
        )

    def _changed_record(
        self, plan: Plan, digests: RecordDigests, position: int, features: dict[str, tuple[str | None, str | None]]
    ) -> PinFault:
        instructions, records = plan.order(STORED_ORDER).locate([position])
        filename, record = plan[int(instructions[0])].filename, int(records[0])
        now = self._record_digest(plan, instructions, records)
        before = Finder.parse(self._entry.records.finder).hash_before(digests.finder, now)
        if features:
            what = f"differs in {_listed(features)}"
        elif digests.features:
            what = "is serialized otherwise, with the same values"
        else:
            what = "is no tf.train.Example any more"
        return PinFault(
            code=RecordsMismatchError.code,
            problem=f"{filename}: record {record} (number {position} of {self._entry.split}) {what}: "
            f"its sha256 is {now.hex()}, pinned was {before.hex()}",
            filename=filename,
            record=record,
            position=position,
            features=features,
            pinned=f"sha256:{before.hex()}",
            found=f"sha256:{now.hex()}",
        )

    def _record_digest(self, plan: Plan, instructions: Any, records: Any) -> bytes:
        source = RecordSource(plan, self._store, verify="off", indexes=self._indexes)
        return hashlib.sha256(source.fetch(instructions, records).records()[0]).digest()

    def _spots_told(self, digests: RecordDigests) -> str:
        """Which of the three spot checks hold: it says whether the beginning or the end is at fault."""
        pinned = self._entry.records
        spots = [("first", pinned.first), ("middle", pinned.middle), ("last", pinned.last)]
        if digests.spots is None:
            return ""
        right = [
            name
            for (name, spot), found in zip(spots, digests.spots, strict=True)
            if spot is not None and spot.sha256 == found
        ]
        return f" (the {' and the '.join(right)} record {'are' if len(right) > 1 else 'is'} right)" if right else ""

    def _contradictions(self, digests: RecordDigests) -> Iterator[PinFault]:
        """Where the records are the pinned ones, and what else the pin says of them is not so."""
        pinned = self._entry.records
        said: list[tuple[str, str, str]] = [
            ("unordered", pinned.unordered, digests.unordered),
            ("finder", pinned.finder, str(digests.finder)),
        ]
        said += [
            (f"features.{key}", pinned.features.get(key, "nothing"), digests.features.get(key, "nothing"))
            for key in sorted({*pinned.features, *digests.features})
        ]
        if digests.spots is not None:
            spots = zip(("first", "middle", "last"), (pinned.first, pinned.middle, pinned.last), strict=True)
            said += [
                (name, spot.sha256 if spot else "nothing", found)
                for (name, spot), found in zip(spots, digests.spots, strict=True)
            ]
        for name, told, found in said:
            if told != found:
                yield PinFault(
                    code=RecordsMismatchError.code,
                    problem=f"the records are the pinned ones, and the pin's records.{name} is not: it is {told}, "
                    f"of these records it is {found}",
                    pinned=told,
                    found=found,
                )

    def _broken_files(self, file_faults: Sequence[PinFault]) -> Iterator[PinFault]:
        """Files whose pinned records are right, and whose framing, behind these too, is not.

        Another reader may not get at the records of such a file; ``verify.py`` of a bundle calls it a fault as well.
        """
        changed = {fault.filename for fault in file_faults}
        for file in self._entry.files:
            if file.name in changed:
                try:
                    check_framing(self._store, file.name, num_records=file.num_examples)
                except (VerificationError, StorageError) as error:
                    yield as_fault(error, filename=file.name)

    def _damaged_records(self, plan: Plan, names: Sequence[str] | Mapping[str, None]) -> list[PinFault]:
        """The records of these files of ``plan`` whose checksums are wrong, the first of them."""
        found: list[PinFault] = []
        lengths = {file.name: file.num_examples for file in self._entry.files}
        lengths |= {file.filename: file.examples_in_shard for file in plan}
        for name in dict.fromkeys(names):
            for error in find_damaged(self._store, name, num_records=lengths[name]):
                found.append(as_fault(error, filename=name))
                if len(found) == _MOST_FAULTS:
                    return found
        return found

    def _measure(self, plan: Plan, *, deep: bool) -> RecordDigests:
        """The digests of the records; all of them, of damaged records too, where something is wrong."""
        try:
            features = features_of(self._entry) if deep else None
            digests = self._measured(plan, verify="block", whole=deep, features=features)
        except VerificationError as error:  # which record it is, and what it was, is seen with all digests
            self._unreadable = as_fault(error)
        else:
            if deep or digests.ordered == self._entry.records.ordered:
                return digests
        return self._measured(plan, verify="off", whole=True, features=None)

    def _measured(self, plan: Plan, *, verify: Verify, whole: bool, features: FeaturesDict | None) -> RecordDigests:
        options: dict[str, Any] = {**self._options, "indexes": self._indexes, "features": features}
        return measure_records(plan, self._store, verify=verify, whole=whole, **options)[0]


def _other_splits(entry: PinEntry, store: Store) -> dict[str, Split] | None:
    """The splits of the version in ``store`` where its shards are not laid out as the pinned ones, else None."""
    try:
        splits = {split.name: split for split in read_prepared(store).splits}
    except RegistryError:  # no version, or one that cannot be read: the pin says how its files lie
        return None
    for split in splits.values():
        if split.files.file_format != entry.file_format:
            raise UsageError(
                f"{store.url} holds a version in {split.files.file_format} files: records of a pin are proved in "
                f"{entry.file_format} files",
                hint="Give the folder of a version in that format.",
                details={"file_format": split.files.file_format},
            )
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
    for one in entry.ranges:
        held = splits[one.split].num_examples if one.split in splits else 0
        if one.stop > held:
            raise SliceError(f"records {one.start}..{one.stop} of {one.split} are pinned, and here it has {held}")
    return plan_ranges(entry, {split.name: splits[split.name] for split in entry.splits if split.name in splits})


def _other_numbers(entry: PinEntry, splits: Mapping[str, Split]) -> Iterator[str]:
    """Splits that have more records than when they were pinned: there the expression may name others than the pin."""
    for split in entry.splits:
        held = splits[split.name].num_examples if split.name in splits else 0
        if held != split.num_examples:
            yield f"{split.name} has {counted(held, 'record')} here, it had {split.num_examples:,} when it was pinned"


def _join_faults(differ: Sequence[PinFault], damaged: Sequence[PinFault]) -> list[PinFault]:
    """Both, one for each record: what is damaged and differs is told as damaged, with what is known of it."""
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
    names = list(features)
    return f"feature{'s' if len(names) > 1 else ''} {', '.join(names)}"


_MOST_IN_BLOCK: Final = 1024


def check_framing(store: Store, name: str, *, num_records: int) -> None:
    """Walk a whole file from length to length, without a look at what its records hold.

    Raises:
        CorruptRecordError, ShardMismatchError, StorageError: it cannot be walked to its end, or holds another number
            of records: then every record in it may be another one for other readers.
    """
    shard = open_shard(store, name, num_records=num_records, verify="off")
    for first in range(0, num_records, _MOST_IN_BLOCK):
        shard.read(first, min(_MOST_IN_BLOCK, num_records - first))


def find_damaged(store: Store, name: str, *, num_records: int) -> Iterator[RegistryError]:
    """The faults of the first ``num_records`` of a file, one after the other, until one hides the rest.

    Those after them are nobody's: a gzip file of some kilobytes may hold millions.
    """
    try:
        shard = open_shard(store, name, verify="record")
    except RegistryError as error:
        yield error
        return
    first, count = 0, _MOST_IN_BLOCK
    while first < num_records:
        try:
            shard.read(first, min(count, num_records - first))
        except CorruptRecordError as error:
            yield error
            if error.details["record"] < first:
                return
            first, count = error.details["record"] + 1, _MOST_IN_BLOCK
            try:
                open_shard(store, name, verify="off").read(first - 1, 1)
            except RegistryError:  # its header is damaged: where the next one begins is not known
                return
        except RegistryError:  # fewer than that are left
            if count == 1:
                return
            count = max(count // 2, 1)
        else:
            first += min(count, num_records - first)
