"""What does a folder hold that is to be published? Its shards measured, and the version that they make described."""

from __future__ import annotations

import hashlib

from registry.catalog import SqlCatalog
from registry.errors import PreparedFormatError, StorageError, StorageUnavailableError, VersionExistsError
from registry.model import DatasetVersion, SlicingRule, check_new_name, content_digest, version_folder
from registry.prepared import PreparedDataset, read_prepared
from registry.publishing.ranges import Advance
from registry.publishing.verify import VerifyReport, measure_shards
from registry.shards import check_file_format
from registry.storage import Store, require_no_secrets
from registry.tfrecord import IndexFolder


def measure_folder(
    source: Store,
    catalog: SqlCatalog,
    *,
    prepared: PreparedDataset | None = None,
    walk: bool = True,
    indexes: IndexFolder | None = None,
    advance: Advance | None,
) -> tuple[PreparedDataset, VerifyReport]:
    """What ``source`` holds, by its own files or as ``prepared`` says, and its shards as they were found.

    Without ``walk`` they are hashed, and no more. In ``indexes`` it is kept which files were.

    Raises:
        PreparedFormatError, StorageError: the folder is no prepared dataset, or cannot be read.
        ReferenceSyntaxError: its dataset has a name that no look-up would find.
        ShardMismatchError: a shard is not what the folder says.
    """
    prepared = prepared or read_prepared(source)
    check_file_format(prepared.file_format, source.url)
    if not prepared.splits:
        raise PreparedFormatError(
            f"{source.url}: dataset_info.json names no split",
            hint="There is nothing to publish. Prepare the dataset again.",
            details={"key": "splits"},
        )
    if catalog.published_digest(prepared.name, prepared.config, prepared.version) is None:
        check_new_name(prepared.name)  # before an hour of verifying
    report = measure_shards(source, prepared.splits, walk=walk, indexes=indexes, advance=advance)
    report.raise_for_faults(source.url)
    return prepared, report


def describe_version(prepared: PreparedDataset, report: VerifyReport, slicing: SlicingRule) -> DatasetVersion:
    """The version that sound shards make, at its place below the data directory."""
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


def digest_of(folder: Store, slicing: SlicingRule) -> str | None:
    """The content digest of what lies in ``folder``; None where that is no sound prepared version.

    Raises:
        StorageUnavailableError: the store does not answer, so nobody knows.
    """
    try:
        prepared = read_prepared(folder)
        report = measure_shards(folder, prepared.splits)
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
