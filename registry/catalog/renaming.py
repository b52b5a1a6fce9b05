"""Renames a dataset in one transaction: its rows get the new name, and its events keep the names of their time.

    lock the dataset  ->  the new name is free  ->  names, protections, search documents  ->  event

A name that a dataset has had stays its own forever, so that no reference and no pin ever means another dataset.
"""

from __future__ import annotations

import sqlalchemy as sa

from registry.catalog.events import append_event
from registry.catalog.names import RENAME, present_names
from registry.catalog.outcomes import Renaming
from registry.catalog.reservations import refuse_publishers
from registry.catalog.search import refresh
from registry.catalog.selection import explain_dataset, lock_reference
from registry.catalog.session import transact
from registry.catalog.tables import builder, builder_config, dataset_name, protection, version_ledger
from registry.errors import DatasetRenamedError
from registry.model import Reference, check_new_name


def rename(engine: sa.Engine, name: str, after: str, *, actor: str, dry_run: bool = False) -> Renaming:
    """See ``CatalogBackend.rename``."""
    check_new_name(after)

    def act(connection: sa.Connection) -> Renaming:
        before = lock_reference(connection, Reference(name=name)).name
        present = present_names(connection)
        row = connection.execute(sa.select(builder.c.id).where(builder.c.name == before)).first()
        if row is None:
            raise explain_dataset(connection, Reference(name=name))
        names = tuple(former for former in present if present[former] == before) or (before,)
        if after != before:
            _require_free(connection, after, names)
            refuse_publishers(connection, Reference(name=before))
            if not dry_run:
                _write(connection, row.id, after, names)
                query = sa.select(builder_config.c.id, builder_config.c.name)
                for config in connection.execute(query.where(builder_config.c.builder_id == row.id)).all():
                    _move_protection(connection, before, after, config.name)
                    refresh(connection, config.id)
                append_event(connection, RENAME, before, {"before": before, "after": after}, actor=actor)
        return Renaming(before=before, after=after, names=tuple(dict.fromkeys([*names, after])), is_dry_run=dry_run)

    return transact(engine, act, actor=actor, dry_run=dry_run)


def _require_free(connection: sa.Connection, after: str, names: tuple[str, ...]) -> None:
    """Raise unless the new name was never used, or by this dataset only; deleted datasets are in the ledger."""
    if after in names:
        return
    uses = (
        sa.select(builder.c.name).where(builder.c.name == after),
        sa.select(builder.c.name).join(dataset_name).where(dataset_name.c.name == after),
        sa.select(version_ledger.c.builder_name).where(version_ledger.c.builder_name == after).limit(1),
    )
    for query in uses:
        holder = connection.execute(query).scalar()
        if holder is not None:
            raise _taken(after, holder)


def _taken(name: str, holder: str) -> DatasetRenamedError:
    was = "is taken" if holder == name else f"was that of the dataset {holder}"
    return DatasetRenamedError(
        f"the name {name} {was}",
        hint="Every name belongs to one dataset forever, because references and pins use it. Choose another one.",
        details={"name": name, "renamed_to": holder},
    )


def _write(connection: sa.Connection, builder_id: int, after: str, names: tuple[str, ...]) -> None:
    connection.execute(sa.update(builder).where(builder.c.id == builder_id).values(name=after))
    stored = connection.execute(sa.select(dataset_name.c.name).where(dataset_name.c.builder_id == builder_id))
    known_names = set(stored.scalars())
    for position, name in enumerate(dict.fromkeys([*names, after])):
        if name not in known_names:
            values = {"name": name, "builder_id": builder_id, "position": position}
            connection.execute(sa.insert(dataset_name).values(**values))


def _move_protection(connection: sa.Connection, before: str, after: str, config: str) -> None:
    for scope in dict.fromkeys(("", f"/{config}" if config else "")):
        moved = sa.update(protection).where(protection.c.scope == before + scope)
        connection.execute(moved.values(scope=after + scope))
