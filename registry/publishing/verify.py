"""Verifies shards by size, number of records and sha256 of each file, and on request every example.

    folder -> PreparedDataset -> shards walked in parallel by threads -> VerifyReport -> DatasetVersion

Hashing and checksums release the interpreter's lock. ``describe_version`` turns a report without faults into the
version to publish.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from registry.engines import Piece, choose_engine, watch_tasks
from registry.errors import (
    CorruptExampleError,
    ForeignShardError,
    PreparedFormatError,
    ShardMismatchError,
    StorageError,
    StorageUnavailableError,
    VerificationError,
    VersionExistsError,
)
from registry.features import FeaturesDict, LimitReader, Outside, features_to_json, merge_outside
from registry.model import Advance, DatasetVersion, Shard, SlicingRule, Split, content_digest, version_folder
from registry.model.numbers import listed_below
from registry.prepared import PreparedDataset, read_prepared
from registry.publishing.outside import ValuesOutside, locate_outside
from registry.shards import decode_block, open_shard, walk_file
from registry.shards.asking import ask_each
from registry.storage import Store, require_no_secrets
from registry.storage.memory import Watch
from registry.tfrecord import IndexFolder, hash_file

_RECORDS_DECODED = 256
_MOST_FAULTS = 1000
"""The walk ends after this number of bad shards: a folder may lack all of a million."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFault:
    """The fault of one shard file. ``code`` is the code of the corresponding error.

    ``foreign_sha256`` is set if the file is intact (every record has a valid checksum) but is not the expected one:
    another file was put there, for example by a publisher of other content. With ``is_foreign_if_known``, this holds
    only if the catalog knows the sha256: a file with another number of records may also be the expected one, cut or
    extended at the end of a record.
    """

    split: str
    filename: str
    code: str
    problem: str
    foreign_sha256: str | None = None
    is_foreign_if_known: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The result of a verification: ``shards`` are the sound shards by split, ``faults`` describe the others.

    ``recovery`` says what to do if files of another publication are among its own, or if attachments are damaged.
    ``outside`` lists values that a feature does not allow, if records were decoded. They are not faults: the files are
    as they were published.
    The walk ends after 1,000 faults. ``is_whole`` is then False, and the other shards were not checked.
    ``num_attachments`` counts the attachments that are as they were attached.
    """

    num_shards: int
    shards: Mapping[str, tuple[Shard, ...]]
    faults: tuple[ShardFault, ...]
    is_whole: bool = True
    recovery: str = ""
    outside: tuple[ValuesOutside, ...] = ()
    num_attachments: int = 0

    @property
    def num_examples(self) -> int:
        """Number of records in sound shards."""
        return sum(shard.num_examples for shards in self.shards.values() for shard in shards)

    @property
    def num_bytes(self) -> int:
        """Size of the sound shard files."""
        return sum(shard.num_bytes for shards in self.shards.values() for shard in shards)

    def name_foreign(self, describe: Callable[[Collection[str]], Mapping[str, str]], recovery: str) -> VerifyReport:
        """Return this report with the origin of intact files that are not the expected ones.

        ``describe`` maps sha256 values to descriptions of the shards that have them, if known. ``recovery`` says how to
        restore the expected files.
        """
        foreign = {fault.foreign_sha256 for fault in self.faults if fault.foreign_sha256 is not None}
        if not foreign:
            return self
        known = describe(foreign)

        def named(fault: ShardFault) -> ShardFault:
            if fault.foreign_sha256 is None or (fault.is_foreign_if_known and fault.foreign_sha256 not in known):
                return fault
            origin = known.get(fault.foreign_sha256, "changed since, or from an unknown publication")
            problem = f"{fault.problem}; the file is intact, but is another file: {origin}"
            return replace(fault, code=ForeignShardError.code, problem=problem)

        faults = tuple(map(named, self.faults))
        if faults == self.faults:
            return self
        return replace(self, faults=faults, recovery=recovery)

    def raise_for_faults(self, subject: str, *, recovery: str = "Fetch or build these files again.") -> None:
        """Raise a ShardMismatchError that lists the bad shards of ``subject``, if there are any.

        ``recovery`` says how to get the expected files.
        """
        if self.faults:
            listing = listed_below([fault.problem for fault in self.faults], 10)
            listing += "" if self.is_whole else "; the others were not checked"
            listed = [
                {"filename": fault.filename, "code": fault.code, "problem": fault.problem} for fault in self.faults
            ]
            hint = f"{recovery} Nothing was changed."
            if all(
                fault.code == StorageError.code for fault in self.faults
            ):  # they may be sound: nobody could read them
                hint = "These files could not be read. Check their permissions and the disk. Nothing was changed."
            raise ShardMismatchError(
                f"{subject}: {len(self.faults)} of {self.num_shards} shards do not match their description{listing}",
                hint=hint,
                details={"faults": listed},
            )


def verify_shards(
    store: Store,
    splits: Sequence[Split],
    promised: Mapping[str, Sequence[Shard]] | None = None,
    *,
    features: FeaturesDict | None = None,
    walk: bool = True,
    indexes: IndexFolder | None = None,
    processes: int | None = None,
    advance: Advance | None = None,
) -> VerifyReport:
    """Check the framing, checksums and number of records of shard files, and hash them.

    Faults are collected, not raised, so that all bad shards are reported.

    Args:
        store: the folder of the files.
        splits: the splits, with the expected number of records of each shard.
        promised: the expected shards by split. Only their files are checked, also by size and sha256. None: check all
            files.
        features: a schema; every record is decoded with it as well, and values that it does not allow are reported.
        walk: False hashes the files without counting their records.
        indexes: records which files were hashed, so that readers need not hash them again.
        processes: the number of files that are checked at the same time: by threads, or by worker processes if records
            are decoded. None: decide by the size of the files.
        advance: called with the number of records checked since the last call.

    Raises:
        StorageUnavailableError: the store does not answer, which says nothing about the shards.
    """
    chosen = {
        split.name: dict.fromkeys(range(split.num_shards))
        if promised is None
        else {shard.index: shard for shard in promised[split.name]}
        for split in splits
    }
    sound: dict[str, list[Shard]] = {split.name: [] for split in splits}
    faults: list[ShardFault] = []
    outside: dict[str, list[Outside]] = {split.name: [] for split in splits}
    walker = ShardWalker(store, tuple(splits), None if features is None else features.missing_as_none(), walk, indexes)

    def pieces() -> Iterator[Piece[tuple[int, int, str | None], tuple[Shard | ShardFault, list[Outside]]]]:
        for place, split in enumerate(splits):
            for index, shard in chosen[split.name].items():
                if len(faults) >= _MOST_FAULTS:
                    return
                yield Piece(walker, (place, index, None if shard is None else shard.sha256))

    # Shards of a build for a bucket may be there already, and not in the staged folder on this machine.
    sources = store.sources_of(split.filename(index) for split in splits for index in chosen[split.name])
    with choose_engine(
        processes,
        num_bytes=sum(split.num_bytes for split in splits),
        is_local=all(source.local_root is not None for source in sources),
        is_unlocked=features is None or processes is None,  # hashing releases the interpreter's lock, decoding does not
        reads=[source.url for source in sources],
    ) as engine:
        watch = watch_tasks(advance, "shards", total=sum(map(len, chosen.values())))
        results = engine.run(pieces(), doing="verified files", failure=StorageError, watch=watch)
        for (place, index, _), (found, found_outside) in results:
            split = splits[place]
            outside[split.name] += found_outside
            outcome = _compare(split, found, chosen[split.name][index], walk=walk)
            if isinstance(outcome, ShardFault):
                faults.append(outcome)
            else:
                sound[split.name].append(outcome)
            if advance is not None:
                advance(split.shard_lengths[index])
    num_shards = sum(map(len, chosen.values()))
    return VerifyReport(
        num_shards=num_shards,
        shards={name: tuple(shards) for name, shards in sound.items()},
        faults=tuple(faults),
        is_whole=sum(map(len, sound.values())) + len(faults) == num_shards,
        outside=locate_outside(splits, outside),
    )


@dataclass(frozen=True, slots=True)
class ShardWalker:
    """Checks one shard file, given as (position of its split, index, sha256 that the catalog has, or None).

    For the fields, see ``verify_shards``.
    """

    store: Store
    splits: tuple[Split, ...]
    features: FeaturesDict | None
    walk: bool
    indexes: IndexFolder | None

    def __call__(self, of: tuple[int, int, str | None]) -> tuple[Shard | ShardFault, list[Outside]]:
        """Return the shard, or its fault, and the values that a feature does not allow."""
        outside: list[Outside] = []
        split, index, sha256 = self.splits[of[0]], of[1], of[2]
        filename, num_records, file_format = split.filename(index), split.shard_lengths[index], split.files.file_format
        # Nothing reads the records of a shard that should have none.
        measure = partial(walk_file, sha256=sha256) if self.walk or not num_records else hash_file
        try:
            watch = None if self.indexes is None else Watch(self.store, filename)
            found = measure(self.store, filename, num_records=num_records, file_format=file_format)
            if self.walk and self.features is not None:
                before = split.shard_lengths.start(index)
                outside = _decode_every_record(self.store, split, filename, self.features, found.num_records, before)
            if watch is not None and self.indexes is not None:
                self.indexes.stamps.keep_watched(watch, found.sha256)
        except StorageUnavailableError:  # says nothing about the file: reading it may succeed later
            raise
        except (VerificationError, StorageError) as error:
            foreign = self._hash_intact(error, filename) if file_format == "tfrecord" else None
            fault = ShardFault(
                split=split.name,
                filename=filename,
                code=error.code,
                problem=error.message,
                foreign_sha256=foreign,
                is_foreign_if_known=True,
            )
            return fault, []
        return split.shard(index, num_bytes=found.num_bytes, sha256=found.sha256), outside

    def _hash_intact(self, error: VerificationError | StorageError, filename: str) -> str | None:
        """The sha256 of a file that only has another number of records, as after two shards were swapped."""
        # A compressed file with more records was not decompressed to its end, and must not be.
        if not (self.walk and isinstance(error, ShardMismatchError) and error.details.get("more") is False):
            return None
        try:
            return walk_file(self.store, filename).sha256
        except (VerificationError, StorageError):
            return None


def _compare(split: Split, shard: Shard | ShardFault, promised: Shard | None, *, walk: bool) -> Shard | ShardFault:
    """The shard, or a fault if it is not the expected one."""
    if isinstance(shard, ShardFault) or promised is None:
        return shard
    if shard.num_bytes != promised.num_bytes:
        problem = f"size mismatch: expected {promised.num_bytes} bytes, found {shard.num_bytes}"
    elif shard.sha256 != promised.sha256:
        problem = f"sha256 mismatch: expected {promised.sha256}, found {shard.sha256}"
    else:
        return shard
    filename = split.filename(shard.index)
    return ShardFault(
        split=split.name,
        filename=filename,
        code=ShardMismatchError.code,
        problem=f"{filename}: {problem}",
        foreign_sha256=shard.sha256 if split.files.file_format == "tfrecord" and walk else None,
    )


def _decode_every_record(
    store: Store, split: Split, filename: str, features: FeaturesDict, num_records: int, before: int
) -> list[Outside]:
    """Decode the records of a file; ``before`` is the index of its first record. Returns values outside limits."""
    limits, outside = LimitReader(features), list[Outside]()
    shard = open_shard(
        store,
        filename,
        file_format=split.files.file_format,
        features=features,
        num_records=num_records,
        verify="off",  # its checksums have just been checked
    )
    for start in range(0, num_records, _RECORDS_DECODED):
        block = shard.read(start, min(_RECORDS_DECODED, num_records - start))
        decoded = decode_block(features, block, copy=False)
        outside += limits.in_columns(decoded.leaves, len(decoded), start=before + start)
        fault = decoded.fault
        if isinstance(fault, CorruptExampleError):
            raise CorruptExampleError(
                f"{filename}: record {start + fault.details['record']}: {fault.message}",
                hint=fault.hint,
                details=fault.details,
            ) from fault
        if fault is not None:
            raise fault
    return merge_outside(outside)


def describe_version(prepared: PreparedDataset, report: VerifyReport, slicing: SlicingRule) -> DatasetVersion:
    """Return the version of a report without faults, with its location below the data directory."""
    features_json = features_to_json(prepared.features)
    labels = {stem: tuple(names) for stem, names in prepared.features.labels().items()}
    return DatasetVersion(
        name=prepared.name,
        config=prepared.config,
        version=prepared.version,
        splits=prepared.splits,
        features_json=features_json,
        labels=labels,
        location=version_folder(prepared.name, prepared.config, prepared.version),
        content_digest=content_digest(
            features_json=features_json,
            labels=labels,
            file_format=prepared.file_format,
            slicing=slicing,
            disable_shuffling=prepared.disable_shuffling,
            splits=prepared.splits,
            shards=report.shards,
        ),
        file_format=prepared.file_format,
        slicing=slicing,
        disable_shuffling=prepared.disable_shuffling,
        version_to_prepare=prepared.version_to_prepare,
        experiments=prepared.experiments,
        metadata=prepared.metadata,
    )


def digest_of(folder: Store, slicing: SlicingRule) -> str | None:
    """Return the content digest of the prepared version in ``folder``; None if it is not an intact prepared version.

    Raises:
        StorageUnavailableError: the store does not answer.
    """
    try:
        prepared = read_prepared(folder)
        report = verify_shards(folder, prepared.splits)
    except StorageUnavailableError:
        raise
    except (PreparedFormatError, OSError):
        return None
    return None if report.faults else describe_version(prepared, report, slicing).content_digest


def name_rule(
    error: VersionExistsError, prepared: PreparedDataset, report: VerifyReport, rule: SlicingRule
) -> VersionExistsError:
    """Return ``error``, or a clearer one if the same shards are published with another slicing rule."""
    published = error.details.get("published")
    for other in SlicingRule:
        if other is not rule and describe_version(prepared, report, other).content_digest == published:
            return VersionExistsError(
                f"{prepared.reference} is published with the same shards and the slicing rule {other}",
                hint=f"To read it with the other rule, pass slicing={rule.value!r} to the call.",
                details={**error.details, "slicing": other.value},
            )
    return error


def stamp_shards(folder: Store, prepared: PreparedDataset) -> str | None:
    """Return a digest that changes when a shard is rewritten; None if a shard is missing, which its reader reports.

    Stops at the first missing shard: the description of a folder may name millions.
    """
    digest = hashlib.sha256()
    names = (split.filename(index) for split in prepared.splits for index in range(split.num_shards))
    with closing(ask_each(folder, folder.stamp, names, doing="asked for stamps")) as stamps:
        for _, stamp in stamps:
            if isinstance(stamp, StorageError):
                return None
            digest.update(f"{stamp}\n".encode())
    return digest.hexdigest()


def absolute_location(folder: Store) -> str:
    """Return the path of a local folder, or the URL of a remote one.

    Raises:
        UsageError: the URL contains a password, which would be stored where others can read it.
    """
    if folder.local_root is not None:
        return str(folder.local_root)
    return require_no_secrets(folder.url, "the folder")
