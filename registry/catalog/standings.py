"""How do the versions of a config stand now? The tables, read into a ``Standing``: two queries, however many versions.

For a moment that is gone see ``history.py``.
"""

from __future__ import annotations

import sqlalchemy as sa

from registry.catalog.not_found import explain_dataset
from registry.catalog.rows import read_canonical, read_number, stored_values
from registry.catalog.selection import CANONICAL_NUMBER, NUMBER, canonical_version, meant_config
from registry.catalog.tables import alias, builder, builder_config, dataset_version
from registry.model import Candidate, Reference, Standing, Version, VersionState


def find_default_config(connection: sa.Connection, name: str) -> str | None:
    """The default config of a dataset, ``""`` for one without configs; None where there is none."""
    return connection.execute(
        sa.select(builder_config.c.name)
        .join_from(builder_config, builder)
        .where(builder.c.name == name, builder_config.c.is_default)
    ).scalar()


def load_standing(connection: sa.Connection, name: str, config: str | None) -> Standing:
    """The standing of a config; None is the default one.

    Raises:
        DatasetNotFoundError, ConfigNotFoundError: there is none.
    """
    found = find_standing(connection, name, config)
    if found is None:
        raise explain_dataset(connection, Reference(name=name, config=config))
    return found


def find_standing(connection: sa.Connection, name: str, config: str | None) -> Standing | None:
    """The standing of a config, or None where there is no such config; None is the default one."""
    with stored_values():
        row = connection.execute(
            sa.select(builder_config.c.id, builder_config.c.name, *CANONICAL_NUMBER)
            .join_from(builder_config, builder)
            .outerjoin(canonical_version, canonical_version.c.id == builder_config.c.canonical_version_id)
            .where(builder.c.name == name, meant_config(config))
        ).first()
        if row is None:
            return None
        versions = connection.execute(
            sa.select(
                *NUMBER,
                dataset_version.c.state,
                dataset_version.c.state_message,
                dataset_version.c.superseded_by,
            )
            .where(dataset_version.c.config_id == row.id)
            .order_by(*(part.desc() for part in NUMBER))
        )
        candidates = tuple(
            Candidate(
                version=Version(major, minor, patch),
                state=VersionState(state),
                message=message,
                superseded_by=read_number(superseded_by),
            )
            for major, minor, patch, state, message, superseded_by in versions
        )
        aliases = connection.execute(
            sa.select(alias.c.name, *NUMBER)
            .join_from(alias, dataset_version, dataset_version.c.id == alias.c.version_id)
            .where(alias.c.config_id == row.id)
            .order_by(alias.c.name)
        )
        return Standing(
            name=name,
            config=row.name or None,
            candidates=candidates,
            canonical=read_canonical(row),
            aliases={alias_name: Version(*number) for alias_name, *number in aliases},
        )
