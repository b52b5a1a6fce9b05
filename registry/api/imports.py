"""Publishes what TFDS prepared: finds version folders, reads their descriptions, and publishes one after the other.

One version that cannot be taken never stops the next: each has an outcome of its own.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from registry.catalog import Promotion
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
)
from registry.features import describe_unknown
from registry.interop.tfds import VersionFolder, find_version_folders
from registry.model import DatasetVersion, Reference, SlicingRule, check_new_name
from registry.publishing import Publication, Target, publish_folder
from registry.storage import Store, open_store

if TYPE_CHECKING:
    from registry.prepared import PreparedDataset

_MOST_NAMES: Final = 12
_REFUSALS = (ConflictError, MissingExtraError, PreparedFormatError, StorageError, UsageError, VerificationError)
"""What is wrong with one version, and says nothing of the next. Faults of the catalog end the whole import."""


class ImportOutcome(StrEnum):
    """What became of one version folder."""

    IMPORTED = "imported"
    KNOWN = "known"
    FOUND = "found"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedVersion:
    """One version folder that was looked at.

    Attributes:
        folder: its path or URL.
        outcome: ``imported``; ``known`` where the same content was published before; ``found`` where it was only
            looked for; ``refused``, and ``error`` says why.
        reference: the version, where its files could be read.
        num_examples, num_shards, num_bytes: what its files say; bytes of the shard files where they were read.
        promotion: what became of the canonical version, where it was imported or known.
        notes: what a reader should know of it.
    """

    folder: str
    outcome: ImportOutcome
    reference: Reference | None = None
    num_examples: int = 0
    num_shards: int = 0
    num_bytes: int = 0
    promotion: Promotion | None = None
    notes: tuple[str, ...] = field(default=())
    error: RegistryError | None = None


class ImportProgress(Protocol):
    """Who is told how an import goes on."""

    def start(self, what: str, *, place: int, count: int, num_examples: int) -> None:
        """Version number ``place`` of ``count``, counted from 1, begins; its records are gone through once or twice."""

    def advance(self, num_examples: int) -> None:
        """So many more records are done."""


@dataclass(frozen=True, slots=True)
class _Found:
    folder: VersionFolder
    prepared: PreparedDataset | None = None
    error: RegistryError | None = None


def find_tfds(folder: str | os.PathLike[str], *, name: str | None = None) -> list[_Found]:
    """Every version folder at or below ``folder``, read; of the dataset ``name`` where that is given.

    Raises:
        PreparedFormatError: there is none.
        ReferenceSyntaxError: no dataset can be called ``name``.
        UsageError: a name is given for the versions of several datasets.
    """
    if name is not None:
        check_new_name(name)
    root = open_store(folder)
    found = [_read(one) for one in find_version_folders(root)]
    if not found:
        is_there = root.local_root is None or root.local_root.is_dir()
        raise PreparedFormatError(
            f"{os.fspath(folder)} holds nothing that TFDS prepared" if is_there else f"there is no folder {folder}",
            hint="A web server does not list its folders: give that of one version."
            if root.url.startswith(("http://", "https://"))
            else "Give a data_dir of TFDS, the folder of one dataset in it, or that of one version.",
            details={"folder": os.fspath(folder)},
        )
    return found if name is None else _renamed(found, name)


def _renamed(found: list[_Found], name: str) -> list[_Found]:
    names = sorted({one.prepared.name for one in found if one.prepared is not None})
    if len(names) > 1:
        raise UsageError(
            f"the folder holds {len(names)} datasets, {', '.join(names[:_MOST_NAMES])}: {name} can name only one",
            hint="Import the folder of each dataset on its own.",
            details={"name": name, "datasets": names[:_MOST_NAMES]},
        )
    return [one if one.prepared is None else replace(one, prepared=one.prepared.renamed(name)) for one in found]


def publish_found(
    found: Iterable[_Found],
    target: Target,
    *,
    copy: bool,
    store_of: Callable[[DatasetVersion], Store],
    progress: ImportProgress | None,
) -> Iterator[ImportedVersion]:
    """Publish each version of ``found`` into ``target``, whose promotion and default config are chosen for each.

    ``store_of`` gives the folder from which the catalog reads a version.
    """
    found = list(found)
    for place, one in enumerate(found, start=1):
        if one.prepared is None:
            yield _refused(one)
            continue
        prepared = one.prepared
        if progress is not None:
            progress.start(
                str(prepared.reference),
                place=place,
                count=len(found),
                num_examples=sum(split.num_examples for split in prepared.splits),
            )
        try:
            chosen, unread = _target_of(one.folder, prepared, target)
            publication = publish_folder(one.folder.store, chosen, prepared=prepared, in_place=not copy)
        except _REFUSALS as error:
            yield _refused(replace(one, error=_for_importers(error, one.folder, prepared.reference)))
        else:
            taken = _taken(one.folder, prepared, publication)
            gone = None if publication.newly else _gone(target, prepared.reference, store_of)
            yield replace(taken, notes=(*taken.notes, *(note for note in (unread, gone) if note is not None)))


def list_found(found: Iterable[_Found]) -> Iterator[ImportedVersion]:
    """What ``publish_found`` would go through; no shard is opened."""
    for one in found:
        if one.prepared is None:
            yield _refused(one)
        else:
            yield _describe(one.folder, one.prepared, ImportOutcome.FOUND, notes=_notes(one.prepared))


def _read(folder: VersionFolder) -> _Found:
    try:
        return _Found(folder, folder.read())
    except _REFUSALS as error:
        return _Found(folder, error=error)


def _target_of(folder: VersionFolder, prepared: PreparedDataset, target: Target) -> tuple[Target, str | None]:
    """``target`` for this version: promoted unless one is higher, its config made the default where there is none.

    A file of the default config that cannot be read says nothing of the versions: they are taken without one, and what
    is wrong with it is the second value.
    """
    catalog = target.catalog
    try:
        configs = catalog.configs.list(prepared.name)
    except RegistryError:
        configs = ()
    is_default, unread = False, None
    if not any(one.is_default for one in configs):
        try:
            is_default = folder.is_default_config(prepared)
        except (PreparedFormatError, StorageError) as error:
            unread = f"which config is the default one could not be read: {error.message}"
    rule = SlicingRule.TFDS_4
    return replace(target, promote=None, default_config=is_default, slicing=rule, requires_number=False), unread


def _taken(folder: VersionFolder, prepared: PreparedDataset, publication: Publication) -> ImportedVersion:
    notes = (*_notes(prepared), *publication.notes)
    if publication.proof is not None and publication.proof.refused is not None:
        step = publication.proof.refused
        notes += (f"from {step.old.version} to {step.new.version} more has changed than a {step.says.name} allows",)
    outcome = ImportOutcome.IMPORTED if publication.newly else ImportOutcome.KNOWN
    described = _describe(folder, prepared, outcome, notes=notes)
    return replace(described, num_bytes=publication.num_bytes, promotion=publication.promotion)


def _gone(target: Target, reference: Reference, store_of: Callable[[DatasetVersion], Store]) -> str | None:
    """What to know of a known version that the catalog reads where nothing lies any more: this folder is another."""
    try:
        version = target.catalog.find(reference)
    except NotFoundError:  # dropped: nobody reads it
        return None
    root = store_of(version).local_root
    if root is None or root.is_dir():
        return None
    return (
        f"the catalog reads it in {root}, which is gone: bring the folder back, or import with --copy "
        "(copy=True in Python), and the copy is read"
    )


def _for_importers(error: RegistryError, folder: VersionFolder, reference: Reference) -> RegistryError:
    """``error`` with what an importer can do: name and number of a version that others prepared are not theirs."""
    if "has_configs" in error.details:
        other = f"{reference.name}_{'configs' if reference.config else 'plain'}"
        return ConflictError(
            error.message,
            hint="In a catalog a dataset has configs or has none. Import the others under another name: "
            f"registry import tfds {shlex.quote(folder.dataset_folder)} --name {other}",
            details=error.details,
        )
    if not isinstance(error, VersionExistsError) or "slicing" in error.details:  # the same shards
        return error
    return VersionExistsError(
        error.message,
        hint=f"A number stands for one content. registry show {reference} names the folder that is read; import this "
        "one into another catalog: --catalog FILE.",
        details=error.details,
    )


def _describe(
    folder: VersionFolder,
    prepared: PreparedDataset,
    outcome: ImportOutcome,
    *,
    notes: tuple[str, ...] = (),
) -> ImportedVersion:
    splits = prepared.splits
    return ImportedVersion(
        folder=folder.path,
        outcome=outcome,
        reference=prepared.reference,
        num_examples=sum(split.num_examples for split in splits),
        num_shards=sum(split.num_shards for split in splits),
        num_bytes=sum(split.num_bytes for split in splits),
        notes=notes,
    )


def _refused(one: _Found) -> ImportedVersion:
    if one.prepared is None:
        return ImportedVersion(folder=one.folder.path, outcome=ImportOutcome.REFUSED, error=one.error)
    return replace(_describe(one.folder, one.prepared, ImportOutcome.REFUSED), error=one.error)


def _notes(prepared: PreparedDataset) -> tuple[str, ...]:
    unknown = describe_unknown(prepared.features.unknown_features())
    return () if unknown is None else (unknown,)
