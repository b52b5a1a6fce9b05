"""How does a prepared folder become a published version? Verified, moved into place, then one row.

Order is everything: bytes first, row last. What can go wrong in between, and what the next run finds:

    while staging        an ``incomplete.*`` folder that nobody sees; cleared by the next build
    after the move       a complete folder without a row; ``publish_folder`` on it finishes the job
    in the transaction   nothing of it; the same as after the move
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

from registry.catalog import SqlCatalog
from registry.errors import ConflictError, PreparedFormatError, VersionExistsError
from registry.model import DatasetVersion, Shard, SlicingRule, check_new_name, content_digest, version_folder
from registry.prepared import PreparedDataset, read_prepared
from registry.publishing.verify import Advance, VerifyReport, measure_shards, verify_shards
from registry.storage import FolderExistsError, StagedFolder, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What came of publishing. ``newly`` is False where the same content had been published before."""

    version: DatasetVersion
    newly: bool
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a version is published, by whom, and what becomes of it there.

    ``promote`` makes it the version that an unversioned look-up gives, ``default_config`` its config the one that a
    reference without a config means. ``experiment_defaults`` are the flags that a build was given; None are those of
    the moment of publication.
    """

    store: Store
    catalog: SqlCatalog
    promote: bool
    actor: str
    default_config: bool = False
    slicing: SlicingRule = SlicingRule.DOCUMENTED
    experiment_defaults: Mapping[str, bool] | None = None


def publish_staged(
    staged: StagedFolder,
    prepared: PreparedDataset,
    shards: Mapping[str, tuple[Shard, ...]],
    target: Target,
    *,
    advance: Advance | None = None,
) -> Publication:
    """Verify the shards of ``staged`` against ``shards``, move the folder into place, write the row.

    Raises:
        ShardMismatchError: a shard on disk is not what was written.
        VersionExistsError: that number is published with other content.
        ConflictError: the version's folder holds other data that no row describes.
    """
    report = verify_shards(staged.store, prepared.splits, shards, advance=advance)
    report.raise_for_faults(str(prepared.reference))
    version = _describe(prepared, report, target.slicing)
    # One at a time from the look at the catalog to the row: a loser that takes its folder back must not meet a winner
    # that has just put its own there, nor two that repair a damaged folder each other.
    with target.store.exclusive(version.location):
        published = _is_published(target.catalog, version)
        moved = _move_into_place(staged, target.store, version, published=published)
        try:
            newly = _write_row(target, version, shards)
        except ConflictError:  # refused for good: the folder will never have a row
            if moved and _digest_of(target.store.child(version.location), version.slicing) == version.content_digest:
                target.store.retract(version.location)
            raise
    return Publication(version=version, newly=newly, num_bytes=report.num_bytes)


def publish_folder(
    source: Store, target: Target, *, version_to_prepare: str | None = None, advance: Advance | None = None
) -> Publication:
    """Publish the prepared version folder ``source``: in place if it lies where it belongs, else a copy of it.

    ``version_to_prepare`` is the last version of the builder's code that can prepare it, where today's code cannot.

    Raises:
        PreparedFormatError: the folder is no prepared dataset.
        ReferenceSyntaxError: its dataset has a name that no look-up would find.
        ShardMismatchError: its shards do not hold what its ``dataset_info.json`` says; each is named.
        VersionExistsError, ConflictError: as ``publish_staged``.
    """
    prepared = replace(read_prepared(source), version_to_prepare=version_to_prepare)
    if prepared.file_format != "tfrecord":
        raise PreparedFormatError(
            f"{source.url}: its shards are {prepared.file_format} files",
            hint="Only tfrecord shards can be published. Prepare the dataset again with file_format='tfrecord'.",
            details={"file_format": prepared.file_format},
        )
    if not prepared.splits:
        raise PreparedFormatError(
            f"{source.url}: dataset_info.json names no split",
            hint="There is nothing to publish. Prepare the dataset again.",
            details={"key": "splits"},
        )
    if target.catalog.published_digest(prepared.name, prepared.config, prepared.version) is None:
        check_new_name(prepared.name)  # before an hour of verifying
    report = measure_shards(source, prepared.splits, advance=advance)
    report.raise_for_faults(source.url)
    version = _describe(prepared, report, target.slicing)
    _is_published(target.catalog, version)
    if source.url == target.store.child(version.location).url:
        newly = _write_row(target, version, report.shards)
        return Publication(version=version, newly=newly, num_bytes=report.num_bytes)
    target.store.clear_abandoned(version.location.rpartition("/")[0])
    with target.store.stage(version.location) as staged:
        for name in source.list():
            source.copy(name, staged.store)
        return publish_staged(staged, prepared, report.shards, target)


def _write_row(target: Target, version: DatasetVersion, shards: Mapping[str, tuple[Shard, ...]]) -> bool:
    return target.catalog.publish(
        version,
        shards,
        promote=target.promote,
        default_config=target.default_config,
        actor=target.actor,
        experiment_defaults=target.experiment_defaults,
    )


def _describe(prepared: PreparedDataset, report: VerifyReport, slicing: SlicingRule) -> DatasetVersion:
    features_json = prepared.features.to_json()
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


def _is_published(catalog: SqlCatalog, version: DatasetVersion) -> bool:
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


def _move_into_place(staged: StagedFolder, store: Store, version: DatasetVersion, *, published: bool) -> bool:
    """Whether this call moved the folder; False where a sound folder of the same content is there already.

    Where the catalog says that the place belongs to this very content (``published``), a damaged folder is set aside
    under the name ``damaged.<random>_<version>``, never deleted, and replaced.
    """
    place = version.location
    try:
        staged.commit()
    except FolderExistsError as error:
        if _digest_of(store.child(place), version.slicing) == version.content_digest:
            return False
        if not published:
            raise ConflictError(
                f"the folder of {version.reference} holds other data: {store.locate(place)}",
                hint="No row describes it. Publish what is there with: registry publish FOLDER, or move it away.",
                details={"folder": store.locate(place)},
            ) from error
        parent, _, last_part = place.rpartition("/")
        store.publish_folder(place, f"{parent}/damaged.{secrets.token_hex(4)}_{last_part}")
        staged.commit()
    return True


def _digest_of(folder: Store, slicing: SlicingRule) -> str | None:
    """The content digest of what lies in ``folder``; None where that is no sound prepared version."""
    try:
        prepared = read_prepared(folder)
        report = measure_shards(folder, prepared.splits)
    except (PreparedFormatError, OSError):
        return None
    return None if report.faults else _describe(prepared, report, slicing).content_digest
