"""Verifies shards by size, number of records and sha256 of each file, and on demand every example.

    folder -> PreparedDataset -> shards walked side by side in threads -> VerifyReport -> DatasetVersion

Hashing and checksums release the interpreter's lock. A report without faults makes the version that is published
(``describe_version``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from registry.catalog import CatalogBackend
from registry.engines import FileRange, Piece, choose_engine
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
from registry.features import FeaturesDict, features_to_json
from registry.model import DatasetVersion, Shard, SlicingRule, Split, content_digest, version_folder
from registry.prepared import PreparedDataset, read_prepared
from registry.publishing.fingerprint import Advance
from registry.shards import decode_block, open_shard, walk_file
from registry.storage import Store, require_no_secrets
from registry.tfrecord import IndexFolder, hash_file
from registry.tfrecord.stamps import Watch

_RECORDS_DECODED = 256
_MOST_FAULTS = 1000
"""After this number of bad shards the walk ends: a folder that lacks all of a million is known to be bad by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFault:
    """What is wrong with one shard file; ``code`` is that of the error it would raise.

    ``foreign_sha256`` is set where the file is whole, every record with its checksum, and is not the one that was
    promised: somebody put another file there, such as a publisher of other content who was not kept away.
    """

    split: str
    filename: str
    code: str
    problem: str
    foreign_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What a verification walked and found. ``shards`` are the sound ones by split; ``faults`` the others.

    ``recovery`` says what to do where files of another publication lie among the version's own.
    A walk that met 1,000 faults ends early: then ``is_whole`` is False, and nothing is known of the other shards.
    """

    num_shards: int
    shards: Mapping[str, tuple[Shard, ...]]
    faults: tuple[ShardFault, ...]
    is_whole: bool = True
    recovery: str = ""

    @property
    def num_examples(self) -> int:
        """Number of records in sound shards."""
        return sum(shard.num_examples for shards in self.shards.values() for shard in shards)

    @property
    def num_bytes(self) -> int:
        """Size of the sound shard files."""
        return sum(shard.num_bytes for shards in self.shards.values() for shard in shards)

    def name_foreign(self, describe: Callable[[Collection[str]], Mapping[str, str]], recovery: str) -> VerifyReport:
        """This report, which says of whole files that are not the promised ones whose they are.

        ``describe`` gives the shards that have some sha256, in words, as far as they are known; ``recovery`` says how
        the promised files are put back.
        """
        foreign = {fault.foreign_sha256 for fault in self.faults if fault.foreign_sha256 is not None}
        if not foreign:
            return self
        known = describe(foreign)

        def named(fault: ShardFault) -> ShardFault:
            if fault.foreign_sha256 is None:
                return fault
            whose = known.get(fault.foreign_sha256, "of a publication that no row describes")
            problem = f"{fault.problem}; the file is whole, and it is another one: {whose}"
            return replace(fault, code=ForeignShardError.code, problem=problem)

        return replace(self, faults=tuple(map(named, self.faults)), recovery=recovery)

    def raise_for_faults(self, what: str) -> None:
        """Raise ShardMismatchError that lists the bad shards of ``what``; do nothing where there are none."""
        if self.faults:
            shown = "\n".join(f"  {fault.problem}" for fault in self.faults[:10])
            more = f"\n  and {len(self.faults) - 10} more" if len(self.faults) > 10 else ""
            more += "" if self.is_whole else "; the others were not looked at"
            listed = [{"filename": one.filename, "code": one.code, "problem": one.problem} for one in self.faults]
            hint = "Fetch or build these files again. Nothing was changed."
            if all(one.code == StorageError.code for one in self.faults):  # they may be sound: nobody could read them
                hint = "These files could not be read. Check their permissions and the disk. Nothing was changed."
            raise ShardMismatchError(
                f"{what}: {len(self.faults)} of {self.num_shards} shards are not as promised\n{shown}{more}",
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
    """Walk shard files: framing, checksums, and the number of records that ``splits`` say; hash them.

    Faults are collected, not raised: one bad shard never hides the next.

    Args:
        store: the folder of the files.
        splits: what the files hold.
        promised: shards by split, whose files are walked, and compared by size and sha256; None walks all files.
        features: a schema by which every record is decoded as well.
        walk: False hashes the files, and takes the number of records as it is said.
        indexes: where it is kept which files were hashed, so that readers need not hash them again.
        processes: the number of files that are walked at the same time: by threads, or by worker processes if records
            are decoded. None decides by the size of the files.
        advance: called with the number of records done since the last call.

    Raises:
        StorageUnavailableError: the store does not answer, which is not the shard's fault.
    """
    chosen = {
        split.name: dict.fromkeys(range(split.num_shards))
        if promised is None
        else {shard.index: shard for shard in promised[split.name]}
        for split in splits
    }
    sound: dict[str, list[Shard]] = {split.name: [] for split in splits}
    faults: list[ShardFault] = []
    walker = ShardWalker(store, tuple(splits), features, walk, indexes)

    def pieces() -> Iterator[Piece[tuple[int, int], Shard | ShardFault]]:
        for place, split in enumerate(splits):
            for index in chosen[split.name]:
                if len(faults) >= _MOST_FAULTS:
                    return
                yield Piece(walker, (place, index), (FileRange(store.url, split.filename(index)),))

    num_bytes = sum(split.num_bytes for split in splits)
    # Hashing releases the interpreter's lock, decoding does not.
    is_unlocked = features is None or processes is None
    with choose_engine(
        processes, num_bytes=num_bytes, is_local=store.local_root is not None, is_unlocked=is_unlocked
    ) as engine:
        for (place, index), found in engine.run(pieces(), doing="verified files", failure=StorageError):
            split = splits[place]
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
    )


@dataclass(frozen=True, slots=True)
class ShardWalker:
    """Walks one shard file, given as (place of its split, index); arguments as ``verify_shards``."""

    store: Store
    splits: tuple[Split, ...]
    features: FeaturesDict | None
    walk: bool
    indexes: IndexFolder | None

    def __call__(self, of: tuple[int, int]) -> Shard | ShardFault:
        """What the file holds, or what is wrong with it."""
        split, index = self.splits[of[0]], of[1]
        filename, num_records, file_format = split.filename(index), split.shard_lengths[index], split.files.file_format
        measure = walk_file if self.walk else hash_file
        try:
            watch = None if self.indexes is None else Watch.begin(self.store, filename)
            found = measure(self.store, filename, num_records=num_records, file_format=file_format)
            if self.walk and self.features is not None:
                _decode_every_record(self.store, split, filename, self.features, found.num_records)
            if watch is not None and self.indexes is not None:
                self.indexes.stamps.keep_watched(watch, found.sha256)
        except StorageUnavailableError:  # says nothing about the file: another try may read it
            raise
        except (VerificationError, StorageError) as error:
            return ShardFault(split=split.name, filename=filename, code=error.code, problem=error.message)
        return Shard(
            index=index,
            first_example=split.shard_lengths.start(index),
            num_examples=found.num_records,
            num_bytes=found.num_bytes,
            sha256=found.sha256,
        )


def _compare(split: Split, found: Shard | ShardFault, promised: Shard | None, *, walk: bool) -> Shard | ShardFault:
    """What was found, or a fault where it is not what was promised."""
    if isinstance(found, ShardFault) or promised is None:
        return found
    if found.num_bytes != promised.num_bytes:
        problem = f"it is {found.num_bytes} bytes long, {promised.num_bytes} were promised"
    elif found.sha256 != promised.sha256:
        problem = f"its sha256 is {found.sha256}, promised was {promised.sha256}"
    else:
        return found
    filename = split.filename(found.index)
    return ShardFault(
        split=split.name,
        filename=filename,
        code=ShardMismatchError.code,
        problem=f"{filename}: {problem}",
        foreign_sha256=found.sha256 if split.files.file_format == "tfrecord" and walk else None,
    )


def _decode_every_record(store: Store, split: Split, filename: str, features: FeaturesDict, num_records: int) -> None:
    shard = open_shard(
        store,
        filename,
        file_format=split.files.file_format,
        features=features,
        num_records=num_records,
        verify="off",  # its checksums were checked just now
    )
    for start in range(0, num_records, _RECORDS_DECODED):
        block = shard.read(start, min(_RECORDS_DECODED, num_records - start))
        fault = decode_block(features, block, copy=False).fault
        if isinstance(fault, CorruptExampleError):
            raise CorruptExampleError(
                f"{filename}: record {start + fault.details['record']}: {fault.message}",
                hint=fault.hint,
                details=fault.details,
            ) from fault
        if fault is not None:
            raise fault


def describe_version(prepared: PreparedDataset, report: VerifyReport, slicing: SlicingRule) -> DatasetVersion:
    """The version that sound shards make, at its place below the data directory."""
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


def is_published(catalog: CatalogBackend, version: DatasetVersion) -> bool:
    """Whether this very content is published under the number.

    Raises:
        VersionExistsError: other content is.
    """
    published = catalog.published_digest(version.name, version.config, version.version)
    if published is not None and published != version.content_digest:
        raise VersionExistsError(
            f"{version.reference} is published with other content (sha256 {published[:12]}, "
            f"not {version.content_digest[:12]})",
            hint="A number is never used twice. Raise the version: PATCH for the same records, "
            "MINOR for added features, MAJOR for anything else.",
            details={"published": published, "offered": version.content_digest},
        )
    return published is not None


def digest_of(folder: Store, slicing: SlicingRule) -> str | None:
    """The content digest of what lies in ``folder``; None if that is not a sound prepared version.

    Raises:
        StorageUnavailableError: the store does not answer, so nobody knows.
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
    """``error``, or a better one where what is published are the very same shards under another slicing rule."""
    for other in SlicingRule:
        if other is not rule and describe_version(prepared, report, other).content_digest == error.details["published"]:
            return VersionExistsError(
                f"{prepared.reference} is published with the same shards, and the slicing rule {other}",
                hint=f"It can be read as it is: slicing={rule.value!r} resolves one call by the other rule.",
                details={**error.details, "slicing": other.value},
            )
    return error


def stamp_shards(folder: Store, prepared: PreparedDataset) -> str | None:
    """A digest that is another one as soon as a shard is written anew; None where one is missing, as its reader tells.

    A folder may promise millions that it does not have: the first one that is missing is enough.
    """
    digest = hashlib.sha256()
    for split in prepared.splits:
        for index in range(split.num_shards):
            try:
                digest.update(f"{folder.stamp(split.filename(index))}\n".encode())
            except StorageError:
                return None
    return digest.hexdigest()


def absolute_location(folder: Store) -> str:
    """The path of a folder of this machine, the URL of another.

    Raises:
        UsageError: the URL holds a password: it would be stored for others to read.
    """
    if folder.local_root is not None:
        return str(folder.local_root)
    return require_no_secrets(folder.url, "the folder")
