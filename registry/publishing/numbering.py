"""Publishes staged shards under the smallest number that their proof allows, for data without its own number.

    staged shards -> verified -> compared with the highest version -> number -> description written -> row

The first version of a config is 1.0.0. ``registry.api`` calls ``publish_next`` for ``Catalog.add``. Builders choose
their own numbers: ``publish`` proves those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from registry.building.publication_folds import NOT_FOLDED, Folded
from registry.catalog import is_published
from registry.errors import ConflictError, UsageError, VersionExistsError, VersionTooSmallError, spell
from registry.model import (
    DatasetVersion,
    Reference,
    Shard,
    SlicingRule,
    SplitFingerprint,
    Version,
    VersionStatus,
    is_absolute,
    version_folder,
)
from registry.model.version import HIGHEST
from registry.prepared import PreparedDataset, write_prepared
from registry.publishing.changes import ChangeLevel, Changes
from registry.publishing.markers import remove_marker
from registry.publishing.outside import refuse_outside
from registry.publishing.patience import Patience
from registry.publishing.proof import Prover, VersionDiff, diff_few, diff_files
from registry.publishing.publish import Candidate, Publication, Target, publish_folder, publish_staged
from registry.publishing.verify import VerifyReport, stamp_shards
from registry.storage import StagedFolder, Store

FIRST: Final = Version(1, 0, 0)
_MOST_RIVALS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberWish:
    """How to choose the number; by default it is the smallest that the changes allow.

    Attributes:
        bump: the part to raise at least: ``patch``, ``minor`` or ``major``. None lets the changes decide.
        number: exactly this number. None lets the changes decide.
    """

    bump: ChangeLevel | None = None
    number: Version | None = None

    def __post_init__(self) -> None:
        if self.bump is not None and self.number is not None:
            raise UsageError(
                "a number and a part to raise cannot be combined",
                hint=f"Pass only one of them: {spell('bump')}, {spell('number')}.",
                details={},
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class NextNumber:
    """The number for new content of a config, and the reason.

    Attributes:
        latest: the highest version that is published, or None.
        changes: the changes since ``latest``; None if ``latest`` is None.
        number: the number to publish; None if ``latest`` already has this content.
        diff: the same changes, down to records; None without ``changes``, or if nothing is published.
        publication: what was published; None for a dry run, or if the content is not new.
    """

    latest: DatasetVersion | None
    changes: Changes | None
    number: Version | None
    diff: VersionDiff | None = None
    publication: Publication | None = None


def choose_number(
    prover: Prover, version: DatasetVersion, fingerprints: Mapping[str, SplitFingerprint], wish: NumberWish
) -> NextNumber:
    """Return the number under which ``version`` can follow the highest version of its config.

    Args:
        prover: compares with the published versions.
        version: the new content; its number is ignored.
        fingerprints: its fingerprints.
        wish: how to choose.

    Raises:
        VersionTooSmallError: ``wish`` names a part or a number that the changes do not allow.
        UsageError: no number is left after the highest version.
    """
    latest, _ = prover.catalog.neighbours(version.name, version.config, Version(*HIGHEST))
    if latest is None:
        return NextNumber(latest=None, changes=None, number=wish.number or FIRST)
    # A step of the MAJOR part allows every change, so that the proof finds all of them.
    trial = replace(version, version=latest.version.bump("major"))
    lower = prover.prove(trial, fingerprints).lower
    if lower is None:
        raise AssertionError("the highest version is right below the next MAJOR number")
    changes = lower.changes
    chosen = wish.number or (None if wish.bump is None else latest.version.bump(wish.bump.part)) or changes.smallest
    if chosen is not None:  # until here, ``new`` is the trial
        changes = replace(changes, new=Reference.exactly(version.name, version.config, chosen))
    # A withdrawn version is not silently published again: this may be exactly the content that was withdrawn. But
    # without a new number nobody could ever publish it again.
    is_wished = wish.number is not None or wish.bump is not None
    is_withdrawn = latest.status in (VersionStatus.YANKED, VersionStatus.DROPPED)
    if latest.content_digest == version.content_digest and not (is_wished and is_withdrawn):
        return NextNumber(latest=latest, changes=changes, number=None)
    smallest = changes.smallest
    if smallest is None:
        raise UsageError(
            f"no number is left after {latest.reference}",
            hint="Publish it under another dataset name.",
            details={"version": str(latest.version)},
        )
    if wish.bump is not None and wish.bump < changes.level:
        told = "\n  ".join(change.text for change in changes.changes if change.level is changes.level)
        raise VersionTooSmallError(
            f"{wish.bump.name} is too small a step from {latest.reference}: the changes exceed it\n  {told}",
            hint=f"Leave out {spell('bump')}, or pass {spell('bump', changes.level.part)}.",
            details={"base": str(latest.reference), "level": changes.level.part, "smallest": str(smallest)},
        )
    return NextNumber(latest=latest, changes=changes, number=chosen)  # publish_staged proves a number of the caller


def publish_next(
    store: Store,
    prepared: PreparedDataset,
    target: Target,
    wish: NumberWish,
    *,
    staged: StagedFolder | None,
    shards: Mapping[str, tuple[Shard, ...]] | None = None,
    folded: Folded = NOT_FOLDED,
    release_note: str = "",
    show: int = 5,
    dry_run: bool = False,
) -> NextNumber:
    """Publish shards under the next number, unless the content is not new.

    Args:
        store: the folder of the shards.
        prepared: the description; its number is replaced.
        target: the destination and the options.
        wish: how to choose the number.
        staged: the same folder, without a description; its final name follows from the number. None leaves the files
            where they are.
        shards: the shards that were written; None: those that are found.
        folded: what the folds of a publication computed of the records that were written. If a split is missing, they
            run over the shards.
        release_note: what changed, for readers of the version.
        show: describe at most this number of differing records of each split; if few records may differ, or in a dry
            run.
        dry_run: only choose the number, and compare all records with the highest version.

    Raises:
        UnusableRowsError: a record has a value that its feature does not allow.
        ShardMismatchError, CorruptRecordError: a shard differs from what was written, is damaged, or was changed
            meanwhile.
        VersionTooSmallError: ``wish`` names a part or a number that the changes do not allow.
        VersionExistsError: ``wish`` names a number that is published with other content.
        ConflictError: other publishers repeatedly took the number, or the version's folder contains other data.
    """
    target = replace(target, patience=Patience()) if dry_run else target
    stamp = None if dry_run or staged is not None else stamp_shards(store, prepared)
    what = prepared.reference.dataset if dry_run or staged is not None else store.url
    walk = staged is None and prepared.file_format != "tfrecord"  # the folds check the records of TFRecord files
    report = target.patience.call(lambda: target.verify(store, prepared.splits, shards, what=what, walk=walk))
    measured = target.patience.call(
        lambda: _measure(store, prepared, report, target, folded, is_in_place=staged is None)
    )
    if dry_run:
        return _preview(measured, target, wish, show)

    def publish(numbered: PreparedDataset) -> Publication:
        if staged is None:
            return publish_folder(store, target, prepared=numbered, in_place=True, stamp=stamp, measured=measured)
        _describe(staged, numbered)
        return publish_staged(staged, numbered, shards or report.shards, target, measured=(report, measured.folded))

    return _publish(measured, publish, target, wish, release_note, show)


def _preview(measured: Candidate, target: Target, wish: NumberWish, show: int) -> NextNumber:
    """Choose a number. A number of the caller is refused now, as it would be later."""
    prover = target.prover()
    result = choose_number(prover, measured.version, measured.fingerprints, wish)
    if wish.number is not None and result.number is not None:
        numbered = replace(measured.version, version=result.number)
        if not is_published(target.catalog, numbered):
            prover.require(numbered, measured.fingerprints, measured.files)
    if result.latest is None or result.changes is None:
        return result
    return replace(result, diff=diff_files(prover, result.changes, result.latest, measured.files, show=show))


def _measure(
    store: Store,
    prepared: PreparedDataset,
    report: VerifyReport,
    target: Target,
    folded: Folded,
    *,
    is_in_place: bool,
) -> Candidate:
    """The version without a number. Refused if records have values that the schema does not allow."""
    candidate = replace(Candidate.of(target, prepared, report, store), is_in_place=is_in_place).fingerprinted(folded)
    refuse_outside(candidate.outside, command=_import_of(prepared, target))
    return candidate


def _publish(
    measured: Candidate,
    publish: Callable[[PreparedDataset], Publication],
    target: Target,
    wish: NumberWish,
    release_note: str,
    show: int,
) -> NextNumber:
    """Choose a number and publish, and choose again if another publisher took the number meanwhile."""
    prepared, prover = measured.prepared, target.prover(actor=target.actor)
    for _ in range(_MOST_RIVALS):
        result = target.patience.call(lambda: choose_number(prover, measured.version, measured.fingerprints, wish))
        if result.number is None:
            _tidy(result, target)
            if result.latest is not None and target.producer is not None and target.name_use in ("given", "replace"):
                add = partial(target.catalog.add_producer, result.latest.reference, target.producer, target.name_use)
                target.patience.call(partial(add, actor=target.actor))
            return result
        diff = None
        if result.latest is not None and result.changes is not None:
            step = (prover, result.changes, result.latest, measured.files)
            diff = target.patience.call(partial(diff_few, *step, show=show))
        notes = {str(result.number): release_note} if release_note else {}
        metadata = replace(prepared.metadata, release_notes={**prepared.metadata.release_notes, **notes})
        try:
            publication = publish(replace(prepared, version=result.number, metadata=metadata))
            return replace(result, diff=diff, publication=publication)
        except VersionExistsError:
            if wish.number is not None:
                raise
            # Another publisher took this number since it was chosen: its content is the one to compare with now.
    raise ConflictError(
        f"{prepared.reference.dataset}: other publishers took the next number {_MOST_RIVALS} times",
        hint="Nothing was changed. Try again later.",
    )


def _import_of(prepared: PreparedDataset, target: Target) -> str | None:
    """The command that publishes the same files as others described them; None if the caller gave the schema."""
    if target.slicing is SlicingRule.TFDS_4:
        return "registry import tfds DIR"
    return "registry import parquet DIR" if prepared.file_format == "parquet_columns" else None


def _tidy(number: NextNumber, target: Target) -> None:
    """Remove the marker of an earlier run that wrote the row of this content and was killed before its last step."""
    latest = number.latest
    if latest is None or target.store.local_root is not None:
        return
    if not is_absolute(latest.location):
        remove_marker(target.store.child(latest.location), target.catalog, latest)


def _describe(staged: StagedFolder, prepared: PreparedDataset) -> None:
    """Write the description of the numbered version into ``staged``, and name its final place."""
    shards = {name for split in prepared.splits for name in split.filenames}
    for name in staged.store.list():
        if name not in shards:  # the description of an earlier attempt
            staged.store.remove_tree(name)
    write_prepared(staged.store, prepared)
    staged.final = version_folder(prepared.name, prepared.config, prepared.version)
