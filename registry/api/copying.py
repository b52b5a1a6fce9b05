"""``Catalog.copy``: copies versions to another catalog, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from registry.api.arguments import read_reference
from registry.api.locations import log_actor, open_data
from registry.api.provenance import CatalogSource
from registry.api.reports import CopiedVersion, CopyOutcome, CopyReport
from registry.catalog import (
    EventFilter,
    Origin,
    is_published,
    load_shards,
    published_version,
    quote_catalog,
    stream_events,
)
from registry.catalog.absent import to_publish
from registry.errors import (
    CatalogError,
    DatasetNotFoundError,
    DatasetRenamedError,
    NotFoundError,
    RegistryError,
    UsageError,
    VersionNotFoundError,
)
from registry.model import Reference, VersionState, count_progress, version_folder

if TYPE_CHECKING:  # numpy is loaded when files are copied
    from registry.api.arguments import DatasetLike
    from registry.api.publishing import Publishing
    from registry.catalog import AliasSummary, CatalogBackend
    from registry.model import DatasetVersion, Event, ProgressCallback, Shard
    from registry.publishing import Publication
    from registry.storage import Store


def copy_versions(
    source: Publishing,
    references: DatasetLike | Sequence[DatasetLike] | None,
    to: Publishing,
    *,
    dry_run: bool,
    progress: ProgressCallback | None,
    each: Callable[[CopiedVersion], None] | None,
) -> CopyReport:
    """See ``Catalog.copy``."""
    if source.backend.url == to.backend.url:
        raise UsageError(
            f"{to.backend.url} is the catalog itself",
            hint="Name another catalog. To keep copies of the files in another store: registry mirror add REF URL",
        )
    versions = choose_versions(source.backend, references)
    events: dict[str, dict[str, list[Event]]] = {}
    result = []
    with to_publish(to.backend, dry_run=dry_run):  # a mistyped reference creates no catalog
        to._require_target([known for known in versions if to.present_name(known.name) == known.name], dry_run=dry_run)
        for reference in versions:
            version = published_version(source.backend, reference)
            if not dry_run and reference.dataset not in events:
                events[reference.dataset] = _events(source.backend, reference)
            of_version = events.get(reference.dataset, {}).get(str(version.version), [])
            result.append(_copy(source, version, to, of_version, dry_run=dry_run, progress=progress))
            if each is not None:
                each(result[-1])
    return CopyReport(result)


def choose_versions(catalog: CatalogBackend, references: DatasetLike | Sequence[DatasetLike] | None) -> list[Reference]:
    """The exact references of the versions to copy, each once, lower numbers of a config first."""
    if references is None:
        configs = [Reference(name=dataset.name, config=dataset.config) for dataset in catalog.datasets()]
        return [reference for config in configs for reference in _of_config(catalog, config)]
    is_one = isinstance(references, str | bytes) or not isinstance(references, Sequence)
    given: Sequence[DatasetLike] = [references] if is_one else references  # type: ignore[list-item, assignment]
    return list(
        dict.fromkeys(matched for reference in given for matched in _matches(catalog, read_reference(reference)))
    )


def _matches(catalog: CatalogBackend, wanted: Reference) -> list[Reference]:
    """Every version that a reference matches; without a config, those of all configs.

    Raises:
        NotFoundError: no version matches.
    """
    if wanted.alias is not None or wanted.exact is not None:
        return [catalog.find(wanted).reference]
    configs = [wanted.config]
    if wanted.config is None:
        configs = [entry.config for entry in catalog.configs.list(wanted.name)]
    references = [reference for config in configs for reference in _of_config(catalog, replace(wanted, config=config))]
    if not references:
        raise VersionNotFoundError(
            f"no version of {wanted.dataset} matches {wanted}",
            hint=f"List the versions: registry versions {wanted.dataset}",
            details={"name": str(wanted)},
        )
    return references


def _of_config(catalog: CatalogBackend, reference: Reference) -> Iterator[Reference]:
    """The matching versions of a config, lowest first, including yanked ones, which may be pinned."""
    for version in sorted(catalog.versions(reference.name, reference.config), key=lambda summary: summary.version):
        matches = reference.request is None or reference.request.allows(version.version)
        if matches and version.state is not VersionState.DROPPED:
            yield version.reference


def _events(catalog: CatalogBackend, reference: Reference) -> dict[str, list[Event]]:
    """The events of each version of a config, oldest first, by the version."""
    events: dict[str, list[Event]] = {}
    for event in stream_events(catalog.log, EventFilter(dataset=reference.dataset)):
        if event.version:
            events.setdefault(event.version, []).append(event)
    return events


def _copy(
    source: Publishing,
    version: DatasetVersion,
    to: Publishing,
    events: list[Event],
    *,
    dry_run: bool,
    progress: ProgressCallback | None,
) -> CopiedVersion:
    """Copy one version. If it fails, the error is part of the result."""
    shards = {split.name: load_shards(source.backend.shards, version, split.name) for split in version.splits}
    num_bytes = sum(shard.num_bytes for of_split in shards.values() for shard in of_split)
    folder = open_data(to.data_dir).child(version_folder(version.name, version.config, version.version))
    result = CopiedVersion(
        reference=version.reference,
        outcome=CopyOutcome.FOUND,
        folder=_shown(folder),
        num_examples=version.num_examples,
        num_shards=sum(map(len, shards.values())),
        num_bytes=num_bytes,
    )
    try:
        is_there = is_published(to.backend, version)
        if not is_there:
            to.refuse_former_name(version.name)
            _refuse_second(source, version, to)
        known = _without_files(to, version) if is_there else None
        if known is not None:
            folder = open_data(to.data_dir).child(known.location)
            result = replace(result, folder=_shown(folder), only_files=True)
        before = to.backend.attachments(version) if is_there else ()
        if dry_run:
            lacking = set(source.backend.attachments(version)).difference(before)
            result = replace(result, num_attachments=len(lacking))
            return replace(result, outcome=CopyOutcome.KNOWN) if is_there and known is None else result
        publication = _send(
            source, version, shards, to, events, num_bytes=num_bytes, progress=progress, is_done=is_there and not known
        )
    except CatalogError:
        raise
    except RegistryError as error:
        return replace(result, outcome=CopyOutcome.REFUSED, error=error)
    notes = publication.notes + (_alias_notes(source, version, to) if publication.newly else ())
    return replace(
        result,
        outcome=CopyOutcome.COPIED if publication.newly or known is not None else CopyOutcome.KNOWN,
        num_attachments=len(set(to.backend.attachments(version)).difference(before)),
        promotion=publication.promotion,
        notes=notes,
    )


def _refuse_second(source: Publishing, version: DatasetVersion, to: Publishing) -> None:
    """Refuse to copy a renamed dataset to a catalog that has versions of it under a former name.

    Raises:
        DatasetRenamedError: the copy would become a second dataset there.
    """
    for former in version.names:
        if former == version.name or to.present_name(former) == version.name:
            continue
        with suppress(NotFoundError):
            theirs, ours = (
                {summary.content_digest for summary in catalog.backend.versions(name, version.config)}
                for catalog, name in ((to, former), (source, version.name))
            )
            if theirs & ours:
                raise DatasetRenamedError(
                    f"the other catalog has {former}, which is named {version.name} in this catalog",
                    hint=f"Rename it there, too: registry rename {former} {version.name} "
                    + quote_catalog(to.backend.url),
                    details={"name": former, "renamed_to": version.name},
                )


def _shown(folder: Store) -> str:
    return folder.url if folder.local_root is None else str(folder.local_root)


def _without_files(to: Publishing, version: DatasetVersion) -> DatasetVersion | None:
    """The version as the target knows it, if the target's data directory lacks files of it."""
    from registry.publishing.copying import find_without_files

    return find_without_files(to.backend, open_data(to.data_dir), version)


def _send(
    source: Publishing,
    version: DatasetVersion,
    shards: Mapping[str, tuple[Shard, ...]],
    to: Publishing,
    events: list[Event],
    *,
    num_bytes: int,
    progress: ProgressCallback | None,
    is_done: bool,
) -> Publication:
    from registry.features import features_from_json
    from registry.publishing import copy_version
    from registry.publishing.attachments import find_files

    is_there = is_published(to.backend, version)
    if not is_there:
        _add_flags(source.backend, to.backend, version)
    features = features_from_json(version.features_json).with_labels(version.labels)
    # Bypasses the cache of this machine: a copy would evict everything else from it.
    readable = replace(CatalogSource(version, source.backend, source.directory).readable(features), cache=None)
    if version.published_at is None:
        raise AssertionError("a version of a catalog has a time")
    attachments, attachment_notes = find_files(
        open_data(source.directory.require_for(version)), version, source.backend.attachments(version)
    )
    publication = copy_version(
        version,
        readable.files({split.name for split in version.splits}),
        readable.store,
        shards,
        to._target(
            None if version.canonical == version.version else False,
            progress,
            default_config=_is_default(source.backend, to.backend, version),
            experiment_defaults=source.backend.experiments.of_version(version),
        ),
        origin=Origin(
            catalog=source.backend.url,
            published_at=version.published_at,
            published_by=version.published_by,
            events=tuple(events),
            aliases=tuple(
                alias.alias for alias in _aliases(source.backend, version) if alias.version == version.version
            ),
        ),
        fingerprints=source.backend.fingerprints(version),
        attachments=attachments,
        sent=count_progress(
            progress, "copying", str(version.reference), total=num_bytes, unit="bytes", announce=not is_done
        ),
    )
    return replace(publication, notes=(*publication.notes, *attachment_notes))


def _aliases(catalog: CatalogBackend, version: DatasetVersion) -> list[AliasSummary]:
    """The aliases of the config of a version."""
    return [alias for alias in catalog.aliases.list(version.reference.dataset) if alias.config == version.config]


def _alias_notes(source: Publishing, version: DatasetVersion, to: Publishing) -> tuple[str, ...]:
    """Notes about aliases that point to the version in the source, but to another version in the target."""
    there = {alias.alias: alias.version for alias in _aliases(to.backend, version)}
    return tuple(
        f"the alias {alias.reference} points to {there[alias.alias]} there, and was not moved"
        for alias in _aliases(source.backend, version)
        if alias.version == version.version and there.get(alias.alias, version.version) != version.version
    )


def _add_flags(source: CatalogBackend, to: CatalogBackend, version: DatasetVersion) -> None:
    """Add the experiments that the version overrides and the target lacks."""
    if not version.experiments:
        return
    known = {experiment.name for experiment in to.experiments.list()}
    for experiment in source.experiments.list():
        if experiment.name in version.experiments and experiment.name not in known:
            description = experiment.description or f"Copied from {source.url}."
            to.experiments.add(experiment.name, description, default=experiment.default, actor=log_actor())


def _is_default(source: CatalogBackend, to: CatalogBackend, version: DatasetVersion) -> bool:
    """Whether its config is the default config in the source, and the target has no default config."""
    if version.config is None:
        return False
    if not any(entry.is_default and entry.config == version.config for entry in source.configs.list(version.name)):
        return False
    try:
        return not any(entry.is_default for entry in to.configs.list(version.name))
    except DatasetNotFoundError:
        return True
