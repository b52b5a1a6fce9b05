"""Imports datasets that TFDS prepared: finds version folders, reads their metadata, and publishes each version.

``Catalog.import_tfds`` calls it. If a version is refused, the others are still imported.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from registry.api.reports import ImportedVersion, ImportOutcome
from registry.errors import (
    ConflictError,
    MissingExtraError,
    NotFoundError,
    PreparedFormatError,
    RegistryError,
    StorageError,
    UsageError,
    VerificationError,
    VersionExistsError,
    spell,
)
from registry.features import describe_unknown
from registry.interop.tfds import find_version_folders
from registry.model import SlicingRule, check_new_name, count_progress
from registry.publishing import publish_folder
from registry.storage import open_store

if TYPE_CHECKING:
    from registry.interop.tfds import VersionFolder
    from registry.model import DatasetVersion, ProgressCallback, Reference
    from registry.prepared import PreparedDataset
    from registry.publishing import Publication, Target
    from registry.storage import Store

_MOST_NAMES: Final = 12
_REFUSALS = (ConflictError, MissingExtraError, PreparedFormatError, StorageError, UsageError, VerificationError)
"""The errors that concern one version. Other errors, such as those of the catalog, end the whole import."""


@dataclass(frozen=True, slots=True)
class _Found:
    folder: VersionFolder
    prepared: PreparedDataset | None = None
    error: RegistryError | None = None


def find_tfds(folder: str | os.PathLike[str], *, name: str | None = None) -> list[_Found]:
    """Find every version folder at or below ``folder``, and read its metadata. ``name`` renames the dataset.

    Raises:
        PreparedFormatError: the folder contains no version folder.
        ReferenceSyntaxError: ``name`` is not a valid dataset name.
        UsageError: ``name`` is given, and the folder contains several datasets.
    """
    if name is not None:
        check_new_name(name)
    root = open_store(folder)
    result = [_read(version_folder) for version_folder in find_version_folders(root)]
    if not result:
        is_there = root.local_root is None or os.path.isdir(root.local_root)  # noqa: PTH112 (Path.is_dir raises if a parent is unreadable)
        raise PreparedFormatError(
            f"{os.fspath(folder)} contains nothing that TFDS prepared" if is_there else f"there is no folder {folder}",
            hint="A web server does not list its folders: specify the folder of one version."
            if root.url.startswith(("http://", "https://"))
            else "Specify a data_dir of TFDS, the folder of a dataset in it, or the folder of a version.",
            details={"folder": os.fspath(folder)},
        )
    return result if name is None else _renamed(result, name)


def _renamed(groups: list[_Found], name: str) -> list[_Found]:
    names = sorted({folder.prepared.name for folder in groups if folder.prepared is not None})
    if len(names) > 1:
        raise UsageError(
            f"the folder contains {len(names)} datasets, {', '.join(names[:_MOST_NAMES])}: {name} can name only one",
            hint="Import the folder of each dataset separately.",
            details={"name": name, "datasets": names[:_MOST_NAMES]},
        )
    return [
        folder if folder.prepared is None else replace(folder, prepared=folder.prepared.renamed(name))
        for folder in groups
    ]


def publish_found(
    groups: Iterable[_Found],
    target: Target,
    *,
    copy: bool,
    store_of: Callable[[DatasetVersion], Store],
    progress: ProgressCallback | None,
) -> Iterator[ImportedVersion]:
    """Publish each version of ``groups`` into ``target``. The default config is decided for each version.

    ``store_of`` returns the folder from which the catalog reads a version.
    """
    groups = list(groups)
    for place, folder in enumerate(groups, start=1):
        prepared = folder.prepared
        if prepared is None:
            yield _describe(folder, ImportOutcome.REFUSED)
            continue
        advance = count_progress(
            progress,
            "importing",
            f"{prepared.reference}{f' ({place} of {len(groups)})' if len(groups) > 1 else ''}",
            # Shards are verified and then fingerprinted; with trust_lengths they are hashed once.
            total=(1 if target.trust_lengths else 2) * sum(split.num_examples for split in prepared.splits),
            announce=True,
        )
        try:
            chosen, unread = _target_of(folder.folder, prepared, replace(target, advance=advance))
            publication = publish_folder(folder.folder.store, chosen, prepared=prepared, in_place=not copy)
        except _REFUSALS as error:
            refused = replace(folder, error=_for_importers(error, folder.folder, prepared.reference))
            yield _describe(refused, ImportOutcome.REFUSED)
        else:
            gone = None if publication.newly else _gone(target, prepared.reference, store_of)
            notes = (*_taken_notes(prepared, publication), *filter(None, (unread, gone)))
            yield _describe(
                folder,
                ImportOutcome.IMPORTED if publication.newly else ImportOutcome.KNOWN,
                num_bytes=publication.num_bytes,
                promotion=publication.promotion,
                outside=publication.outside,
                notes=notes,
            )


def list_found(groups: Iterable[_Found]) -> Iterator[ImportedVersion]:
    """The versions that ``publish_found`` would publish. No shard is opened."""
    for folder in groups:
        if folder.prepared is None:
            yield _describe(folder, ImportOutcome.REFUSED)
        else:
            yield _describe(folder, ImportOutcome.FOUND, notes=_notes(folder.prepared))


def _read(folder: VersionFolder) -> _Found:
    try:
        return _Found(folder, folder.read())
    except _REFUSALS as error:
        return _Found(folder, error=error)


def _target_of(folder: VersionFolder, prepared: PreparedDataset, target: Target) -> tuple[Target, str | None]:
    """``target`` for this version, and a note or None.

    Its config becomes the default config if TFDS says so and the dataset does not have a default config yet. If the
    file that names TFDS's default config cannot be read, no default is set, and the note says why.
    """
    catalog = target.catalog
    try:
        configs = catalog.configs.list(prepared.name)
    except RegistryError:
        configs = ()
    is_default, unread = False, None
    if not any(config.is_default for config in configs):
        try:
            is_default = folder.is_default_config(prepared)
        except (PreparedFormatError, StorageError) as error:
            unread = f"cannot read which config is the default: {error.message}"
    rule = SlicingRule.TFDS_4
    return replace(target, default_config=is_default, slicing=rule, requires_number=False), unread


def _taken_notes(prepared: PreparedDataset, publication: Publication) -> tuple[str, ...]:
    notes = (*_notes(prepared), *publication.notes)
    if publication.proof is not None and publication.proof.refused is not None:
        step = publication.proof.refused
        notes += (f"the changes from {step.old.version} to {step.new.version} exceed a {step.says.name} step",)
    return notes


def _gone(target: Target, reference: Reference, store_of: Callable[[DatasetVersion], Store]) -> str | None:
    """The note for a known version whose recorded folder is gone, if it is not the folder being imported."""
    try:
        version = target.catalog.find(reference)
    except NotFoundError:  # dropped versions are not read
        return None
    root = store_of(version).local_root
    if root is None or os.path.isdir(root):  # noqa: PTH112 (Path.is_dir raises if a parent is unreadable)
        return None
    return (
        f"the catalog reads it from {root}, which is gone: restore that folder, or import with "
        f"{spell('copy', True)} to read the copy"
    )


def _for_importers(error: RegistryError, folder: VersionFolder, reference: Reference) -> RegistryError:
    """``error`` with a hint for importers, who cannot change a name and number that others chose."""
    if "has_configs" in error.details:
        other = f"{reference.name}_{'configs' if reference.config else 'plain'}"
        return ConflictError(
            error.message,
            hint="All versions of a dataset must have configs, or none of them. Import these under another name: "
            f"registry import tfds {shlex.quote(folder.dataset_folder)} --name {other}",
            details=error.details,
        )
    if not isinstance(error, VersionExistsError) or "slicing" in error.details:  # the same shards
        return error
    return VersionExistsError(
        error.message,
        hint=f"The content of a published version cannot change. registry show {reference} names its folder. Import "
        f"this one into another catalog: {spell('url=FILE')}",
        details=error.details,
    )


def _describe(group: _Found, outcome: ImportOutcome, **fields: Any) -> ImportedVersion:
    splits = () if group.prepared is None else group.prepared.splits
    sizes = {name: sum(getattr(it, name) for it in splits) for name in ("num_examples", "num_shards", "num_bytes")}
    return ImportedVersion(
        folder=group.folder.path,
        outcome=outcome,
        reference=None if group.prepared is None else group.prepared.reference,
        error=group.error,
        **sizes | fields,
    )


def _notes(prepared: PreparedDataset) -> tuple[str, ...]:
    unknown = describe_unknown(prepared.features.unknown_features())
    return () if unknown is None else (unknown,)
