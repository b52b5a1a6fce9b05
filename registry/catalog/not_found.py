"""Why did a look-up find nothing? Further queries, on this path only, so that the error can name what is there."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from registry.catalog.rows import read_canonical
from registry.catalog.selection import CANONICAL_NUMBER, NUMBER, canonical_version, meant_config
from registry.catalog.tables import alias, builder, builder_config, dataset_version
from registry.errors import (
    AliasNotFoundError,
    ConfigNotFoundError,
    DatasetNotFoundError,
    NotFoundError,
    ReferenceSyntaxError,
    VersionNotFoundError,
)
from registry.model import Reference, Version, VersionRequest, VersionState, version_status

_MAX_NAMES = 10_000
_MAX_LISTED = 12


def explain_missing(connection: sa.Connection, reference: Reference) -> NotFoundError:
    """The error for a reference that no row answers."""
    error = explain_dataset(connection, reference)
    if not isinstance(error, VersionNotFoundError):
        return error
    if reference.alias is not None:
        names = connection.execute(
            sa.select(alias.c.name)
            .join_from(alias, builder_config, builder_config.c.id == alias.c.config_id)
            .join(builder, builder.c.id == builder_config.c.builder_id)
            .where(builder.c.name == reference.name, meant_config(reference.config))
            .order_by(alias.c.name)
        ).scalars()
        known = names.all()
        hint = None if known else f"It has no aliases; its versions: registry versions {reference.dataset}"
        return AliasNotFoundError.of(reference.alias, known, where=reference.dataset, hint=hint)
    return error


def explain_dataset(connection: sa.Connection, reference: Reference) -> NotFoundError:
    """The error for a dataset or config that is not there; where both are, it is the version that is missing."""
    configs = connection.execute(
        sa.select(builder_config.c.name, builder_config.c.is_default)
        .join_from(builder, builder_config, builder_config.c.builder_id == builder.c.id)
        .where(builder.c.name == reference.name)
        .order_by(builder_config.c.name)
    ).all()
    if not configs:
        return _no_dataset(connection, reference.name)
    names = [name for name, _ in configs if name]
    if reference.config is not None and reference.config not in names:
        return _no_config(reference, reference.config, names)
    if reference.config is None and not any(is_default for _, is_default in configs):
        listed = ", ".join(f"{reference.name}/{name}" for name in names[:_MAX_LISTED])
        return ConfigNotFoundError(
            f"{reference.name} has no default config",
            hint=f"Name one: {listed}.",
            details={"name": "", "known": names[:100]},
        )
    return _no_version(connection, reference)


def refuse_withdrawn(connection: sa.Connection, reference: Reference, row: sa.Row[*tuple[Any, ...]]) -> None:
    """Refuse a version that was found and may not be read this way.

    Dropped: never. Yanked: only by its number or by an alias, which somebody chose; not because it is canonical.

    Raises:
        VersionNotFoundError: it names the versions that can be read.
    """
    by_choice = reference.request is not None or reference.alias is not None
    if row.state == VersionState.DROPPED or (row.state == VersionState.YANKED and not by_choice):
        number = Version(row.major, row.minor, row.patch)
        reason = f": {row.state_message}" if row.state_message else ""
        what = f"version {number}" if by_choice else f"the canonical version {number}"
        raise _no_version(connection, reference, f"{what} of {reference.dataset} is {row.state}{reason}")


def _no_dataset(connection: sa.Connection, name: str) -> NotFoundError:
    known = connection.execute(sa.select(builder.c.name).order_by(builder.c.name).limit(_MAX_NAMES)).scalars().all()
    hint = None if known else "The catalog is empty. Start with: registry quickstart"
    return DatasetNotFoundError.of(name, known, where="the catalog", hint=hint)


def _no_config(reference: Reference, config: str, known: list[str]) -> NotFoundError:
    hint = None
    try:
        request = VersionRequest.parse(config)
    except ReferenceSyntaxError:
        pass
    else:
        hint = f"A version comes after ':', not '/'. Try: {reference.name}:{request}"
    if hint is None and not known:
        hint = f"{reference.name} has no configs. Name it without one: {reference.name}"
    return ConfigNotFoundError.of(config, known, where=reference.name, hint=hint)


def _no_version(connection: sa.Connection, reference: Reference, message: str | None = None) -> NotFoundError:
    rows = connection.execute(
        sa.select(*NUMBER, dataset_version.c.state, dataset_version.c.state_message, *CANONICAL_NUMBER)
        .join_from(builder, builder_config, builder_config.c.builder_id == builder.c.id)
        .join(dataset_version, dataset_version.c.config_id == builder_config.c.id)
        .outerjoin(canonical_version, canonical_version.c.id == builder_config.c.canonical_version_id)
        .where(builder.c.name == reference.name, meant_config(reference.config))
        .order_by(*(part.desc() for part in NUMBER))
        .limit(_MAX_NAMES)
    ).all()
    published = []
    for row in rows:
        number = Version(row.major, row.minor, row.patch)
        published.append((str(number), version_status(number, VersionState(row.state), read_canonical(row)).value))
    if message is None:
        request = reference.request
        message = (
            f"{reference.dataset} has no canonical version"
            if request is None
            else f"no version {str(request)!r} in {reference.dataset}"
        )
    listed = ", ".join(f"{number} ({status})" for number, status in published[:_MAX_LISTED])
    more = f" and {len(published) - _MAX_LISTED} more" if len(published) > _MAX_LISTED else ""
    return VersionNotFoundError(
        message,
        hint=f"Published: {listed}{more}." if published else "No version of it is published.",
        details={
            "name": "" if reference.request is None else str(reference.request),
            "known": [number for number, _ in published[:100]],
            "versions": [{"version": number, "status": status} for number, status in published[:100]],
        },
    )
