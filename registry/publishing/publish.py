"""How does a prepared folder become a published version? Verified, moved into place, then one row.

The number is proved before anything is moved (``proof``). Then order is everything: bytes first, row last. What can go
wrong in between, and what the next run finds:

    while staging        an ``incomplete.*`` folder that nobody sees; cleared by the next build
    while it is placed   on a disk nothing: it is one rename; in an object store some of the files (``placing``)
    after the move       a complete folder without a row; the next run finds it and finishes the job
    in the transaction   nothing of it; the same as after the move
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from registry.catalog import CatalogBackend, Holder, Promotion, Reservation, Unpromoted
from registry.engines import FileRange, Piece, choose_engine
from registry.errors import (
    ConflictError,
    NeighboursChangedError,
    NotStoredError,
    RegistryWarning,
    ShardMismatchError,
    StorageError,
    VersionExistsError,
    VersionTooSmallError,
)
from registry.model import (
    DatasetVersion,
    Shard,
    SlicingRule,
    Split,
    SplitFingerprint,
    version_folder,
)
from registry.prepared import (
    PreparedDataset,
    extra_files,
    is_description,
    read_prepared,
    write_default_config,
    write_prepared,
)
from registry.prepared.info import FILENAME as INFO_FILENAME
from registry.publishing.fingerprint import Advance, StoredSplits
from registry.publishing.markers import location_key, remove_marker, require_unmarked
from registry.publishing.placing import place_folder
from registry.publishing.proof import Proof, Prover, VersionDiff, diff_files
from registry.publishing.verify import (
    VerifyReport,
    absolute_location,
    describe_version,
    measure_folder,
    name_rule,
    stamp_shards,
    verify_shards,
)
from registry.storage import StagedFolder, Store
from registry.tfrecord import IndexFolder

_MOST_RIVALS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What came of publishing.

    ``newly`` is False where the same content had been published before; then nothing had to be proved. ``promotion``
    says which version was canonical before, which one is now, and why, where that is the same. ``notes`` say what an
    earlier run had left in an object store, and what became of it.
    """

    version: DatasetVersion
    newly: bool
    num_bytes: int
    promotion: Promotion
    proof: Proof | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What publishing would come to. ``diff`` is None for the first version of a dataset."""

    proof: Proof
    is_published: bool
    diff: VersionDiff | None

    @property
    def refusal(self) -> VersionTooSmallError | None:
        """Why the number would be refused; None where it is allowed, or this very content is published already."""
        return None if self.is_published or self.proof.refused is None else self.proof.refusal()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a version is published, by whom, and what becomes of it there.

    ``promote`` makes it the version that an unversioned look-up gives; None does so where it is at least as high as the
    present one and nothing protects that. ``default_config`` makes its config the one that a reference without a config
    means. ``experiment_defaults`` are the flags that a build was given; None are those of the moment of publication.
    Without ``requires_number`` a number that says less than has changed is taken as it is: it was given by others, long
    ago; ``Publication.proof`` tells of it. In ``indexes`` it is kept which files were hashed, so that readers on this
    machine need not hash them again.
    """

    store: Store
    catalog: CatalogBackend
    promote: bool | None
    actor: str
    default_config: bool = False
    processes: int | None = None
    slicing: SlicingRule = SlicingRule.DOCUMENTED
    experiment_defaults: Mapping[str, bool] | None = None
    requires_number: bool = True
    indexes: IndexFolder | None = None


def publish_staged(
    staged: StagedFolder,
    prepared: PreparedDataset,
    shards: Mapping[str, tuple[Shard, ...]],
    target: Target,
    *,
    trust_lengths: bool = False,
    advance: Advance | None = None,
) -> Publication:
    """Verify the shards of ``staged`` against ``shards``, move the folder into place, write the row.

    With ``trust_lengths`` by their sha256 alone: as ``publish_folder``.

    Raises:
        ShardMismatchError: a shard on disk is not what was written.
        VersionExistsError: that number is published with other content.
        VersionTooSmallError: more has changed since the version below than the number says.
        ReservedError: others put files at its place in an object store.
        ConflictError: the version's folder holds other data that no row describes.
    """
    report = verify_shards(
        staged.store, prepared.splits, shards, walk=not trust_lengths, indexes=target.indexes, advance=advance
    )
    report.raise_for_faults(str(prepared.reference))
    version = describe_version(prepared, report, target.slicing)
    evidence = None if trust_lengths else _gather(target, version, staged.store, prepared, advance=advance)
    with place_folder(
        staged,
        target.store,
        target.catalog,
        version,
        shards,
        check_number=lambda: _is_published(target.catalog, version),
        actor=target.actor,
    ) as placement:
        if evidence is not None:  # should it be proved again, its records are at their new place
            files = StoredSplits(target.store.child(version.location), prepared.splits, prepared.features)
            evidence = replace(evidence, files=files)
        shards = tag_shards(version.splits, shards, placement.entity_tags)
        promotion, proof = _write_row(target, version, shards, evidence, held=placement.held)
    _tell_default_config(target, version)
    return _publication(target, version, report, promotion, proof, notes=tuple(placement.notes))


def publish_folder(
    source: Store,
    target: Target,
    *,
    prepared: PreparedDataset | None = None,
    in_place: bool = False,
    trust_lengths: bool = False,
    version_to_prepare: str | None = None,
    advance: Advance | None = None,
) -> Publication:
    """Publish the prepared version folder ``source``: in place if it lies where it belongs, else a copy of it.

    Args:
        source: the folder.
        target: where it is published, and how.
        prepared: what it holds, where that is known better than its files say it.
        in_place: leave it where it lies, wherever that is; nothing is written there.
        trust_lengths: hash the shards, and take their lengths as they are told: no record is looked at, nothing is
            known of values, so the number is not proved and there are no fingerprints yet.
        version_to_prepare: the last version of the builder's code that can prepare it, where today's code cannot.
        advance: called with the number of records done since the last call.

    Raises:
        PreparedFormatError: the folder is no prepared dataset.
        ReferenceSyntaxError: its dataset has a name that no look-up would find.
        ShardMismatchError: its shards do not hold what its ``dataset_info.json`` says; each is named.
        VersionExistsError, VersionTooSmallError, ConflictError: as ``publish_staged``.
    """
    if in_place:
        absolute_location(source)  # before an hour is spent on hashing: a URL with a password cannot be stored
    prepared = prepared or read_prepared(source)
    stamp = stamp_shards(source, prepared)
    prepared, report = measure_folder(
        source,
        target.catalog,
        prepared=prepared,
        walk=not trust_lengths,
        indexes=target.indexes,
        advance=advance,
    )
    prepared = replace(prepared, version_to_prepare=version_to_prepare)
    version = describe_version(prepared, report, target.slicing)
    try:
        _is_published(target.catalog, version)
    except VersionExistsError as error:
        raise name_rule(error, prepared, report, target.slicing) from error
    is_at_home = source.url == target.store.child(version.location).url
    if is_at_home or in_place:
        if not is_at_home:
            version = replace(version, location=absolute_location(source))
        evidence = None if trust_lengths else _gather(target, version, source, prepared, advance=advance)
        # The ETags first: each lies between two equal stamps, so it is that of the bytes that were hashed in between.
        tagged = tag_shards(version.splits, report.shards, read_tags(source, version.splits))
        if stamp_shards(source, prepared) != stamp:  # then hashes and fingerprints may be of different records
            raise ShardMismatchError(
                f"{source.url}: a shard was changed while the folder was published",
                hint="Nothing was published. Do it again when nobody writes there.",
                details={"folder": source.url},
            )
        unreserved = None
        if source.local_root is None and not source.url.startswith(("http://", "https://")):
            require_unmarked(source, target.catalog, version)
            unreserved = location_key(source)
        promotion, proof = _write_row(target, version, tagged, evidence, unreserved=unreserved)
        if unreserved is not None:
            remove_marker(source, target.catalog, version)
        _tell_default_config(target, version)
        return _publication(target, version, report, promotion, proof)
    target.store.clear_abandoned(version.location.rpartition("/")[0])
    with target.store.stage(version.location) as staged:
        _copy_files(source, staged.store, prepared)
        return publish_staged(staged, prepared, report.shards, target, trust_lengths=trust_lengths, advance=advance)


def _copy_files(source: Store, target: Store, prepared: PreparedDataset) -> None:
    """The shards, the description that is there, or else one that is written, and what lies beside a description.

    Files beside it that are none within the folder, such as a licence that is a link out of it, stay behind. The shards
    and the description have to be such files.
    """
    for split in prepared.splits:
        for name in split.filenames:
            source.copy(name, target)
    if not source.exists(INFO_FILENAME):
        write_prepared(target, prepared)
        return
    description = list(filter(is_description, source.list()))
    if read_prepared(source).name != prepared.name:  # published under another name than that of its files
        description = []
    written = [] if description else write_prepared(target, prepared)
    for name in [*description, *(extra for extra in extra_files(source, prepared) if extra not in written)]:
        source.copy(name, target)


def preview_folder(source: Store, target: Target, *, show: int = 5, advance: Advance | None = None) -> Preview:
    """What ``publish_folder`` would do, and everything that changed since the version below. Writes nothing.

    ``show`` is how many differing records of each split are described.

    Raises:
        PreparedFormatError, ShardMismatchError, VersionExistsError: as ``publish_folder``.
    """
    prepared, report = measure_folder(source, target.catalog, advance=advance)
    version = describe_version(prepared, report, target.slicing)
    is_published = _is_published(target.catalog, version)
    prover = Prover(
        catalog=target.catalog,
        data=target.store,
        processes=target.processes,
        indexes=target.indexes,
        advance=advance,
    )
    files = StoredSplits(source, prepared.splits, prepared.features)
    proof = prover.prove(version, prover.fingerprint(files))
    step = proof.refused or proof.lower
    if step is None:
        return Preview(proof=proof, is_published=is_published, diff=None)

    def open_files() -> tuple[StoredSplits, StoredSplits]:
        old, new = (files if side is version else prover.files(side) for side in (step.old, step.new))
        return old, new

    diff = diff_files(step.changes, open_files, show=show, processes=target.processes, advance=advance)
    return Preview(proof=proof, is_published=is_published, diff=diff)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """What a number is proved with: the version's files and their fingerprints."""

    prover: Prover
    files: StoredSplits
    fingerprints: Mapping[str, SplitFingerprint]
    proof: Proof | None = None

    def proved(self, version: DatasetVersion, *, requires_number: bool) -> _Evidence:
        """This evidence with a proof against the neighbours of this moment."""
        if requires_number:
            return replace(self, proof=self.prover.require(version, self.fingerprints, self.files))
        return replace(self, proof=self.prover.prove(version, self.fingerprints))


def _gather(
    target: Target, version: DatasetVersion, files: Store, prepared: PreparedDataset, *, advance: Advance | None
) -> _Evidence | None:
    """Compute the fingerprints and prove the number; None where this very content is published already."""
    if _is_published(target.catalog, version):
        return None
    prover = Prover(
        catalog=target.catalog,
        data=target.store,
        actor=target.actor,
        processes=target.processes,
        indexes=target.indexes,
        advance=advance,
    )
    stored = StoredSplits(files, prepared.splits, prepared.features)
    found = prover.fingerprint(stored)
    evidence = _Evidence(prover=prover, files=stored, fingerprints=found)
    return evidence.proved(version, requires_number=target.requires_number)


def _write_row(
    target: Target,
    version: DatasetVersion,
    shards: Mapping[str, tuple[Shard, ...]],
    evidence: _Evidence | None,
    *,
    held: tuple[Reservation, Holder] | None = None,
    unreserved: str | None = None,
) -> tuple[Promotion | None, Proof | None]:
    """Publish, and prove again as long as others publish beside it.

    What became of the canonical version, None where the same content was published before, and the proof.
    """
    for _ in range(_MOST_RIVALS):
        proof = None if evidence is None else evidence.proof
        try:
            promotion = target.catalog.publish(
                version,
                shards,
                promote=target.promote,
                default_config=target.default_config,
                actor=target.actor,
                experiment_defaults=target.experiment_defaults,
                found=None if evidence is None else evidence.fingerprints,
                proved_between=None if proof is None else proof.neighbours,
                held=held,
                unreserved=unreserved,
            )
        except NeighboursChangedError:
            if evidence is None:
                raise
            evidence = evidence.proved(version, requires_number=target.requires_number)
        else:
            return promotion, None if promotion is None else proof
    raise ConflictError(
        f"{version.reference}: others published beside it {_MOST_RIVALS} times while its number was proved",
        hint="Nothing was changed. Try again when there is less going on.",
    )


def _publication(
    target: Target,
    version: DatasetVersion,
    report: VerifyReport,
    promotion: Promotion | None,
    proof: Proof | None,
    *,
    notes: tuple[str, ...] = (),
) -> Publication:
    """What came of it; without a ``promotion`` the same content was published before."""
    return Publication(
        version=version,
        newly=promotion is not None,
        num_bytes=report.num_bytes,
        promotion=promotion or unchanged(target.catalog, version),
        proof=proof,
        notes=notes,
    )


def unchanged(catalog: CatalogBackend, version: DatasetVersion) -> Promotion:
    """The canonical version stays: this very content was published before."""
    published = catalog.published(version.name, version.config, version.version)
    canonical = None if published is None else published.canonical
    return Promotion(before=canonical, after=canonical, reason=Unpromoted.PUBLISHED_BEFORE)


def _tell_default_config(target: Target, version: DatasetVersion) -> None:
    """Tell those who read the data folder without the catalog, as TFDS does, which config is the default one."""
    is_at_home = version.location == version_folder(version.name, version.config, version.version)
    if version.config is None or not is_at_home:
        return
    if any(one.is_default and one.config == version.config for one in target.catalog.configs.list(version.name)):
        try:
            write_default_config(target.store, version.name, version.config)
        except StorageError as error:  # the row is written: the version is published
            warnings.warn(
                f"{version.reference} is published, and TFDS will not find its default config: {error.message}; "
                "publish it again to write that file",
                RegistryWarning,
                stacklevel=2,
            )


def _is_published(catalog: CatalogBackend, version: DatasetVersion) -> bool:
    """Whether this very content is published. Other content under the number is refused before anything is moved."""
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


def read_tags(store: Store, splits: Sequence[Split]) -> dict[str, str | None]:
    """By file name, the present ETag of each shard in ``store``; nothing on disks, which have none.

    Raises:
        StorageError: the store does not answer.
    """
    if store.local_root is not None:
        return {}

    def read(name: str) -> str | None:
        try:
            return store.entity_tag(name)
        except NotStoredError:
            return None

    pieces = (Piece(read, name, (FileRange(store.url, name),)) for split in splits for name in split.filenames)
    with choose_engine(num_bytes=None, is_local=False, is_unlocked=True) as engine:
        return dict(engine.run(pieces, doing="asked for ETags", failure=StorageError))


def tag_shards(
    splits: Sequence[Split], shards: Mapping[str, Sequence[Shard]], tags: Mapping[str, str | None]
) -> dict[str, tuple[Shard, ...]]:
    """``shards`` of ``splits`` with the ETags that ``tags`` has by file name; the others have none."""
    return {
        split.name: tuple(
            replace(shard, entity_tag=tags.get(split.filename(shard.index))) if tags else shard
            for shard in shards[split.name]
        )
        for split in splits
    }
