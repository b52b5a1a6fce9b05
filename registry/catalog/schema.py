"""How does a database become a catalog, and is it still one? ``registry db status | upgrade | downgrade | check``.

Plain functions over Alembic, which is imported only here and only when a schema is changed or compared. The migrations
themselves see to it that one migrator runs at a time, in one transaction (``migrations/env.py``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa

from registry.catalog import schema_check, search_schema
from registry.catalog.location import is_sqlite
from registry.catalog.schema_state import HEAD, REVISIONS, SchemaStatus, read_status, require_current, require_ours
from registry.catalog.session import erase_free_space, migrating, open_engine, use_wal
from registry.errors import CatalogError, UsageError

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = ["HEAD", "SchemaStatus", "check", "create_or_require", "downgrade", "reindex", "status", "upgrade"]


def status(url: str | os.PathLike[str]) -> SchemaStatus:
    """The state of the database's schema; a file that does not exist is not created."""
    with _engine(url) as engine:
        return read_status(engine)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedSecrets:
    """A version whose row lost passwords, tokens or signatures in an upgrade.

    Attributes:
        reference: the version.
        columns: of its row that changed, sorted.
        location: its folder as it is stored now, or None where that did not change.
        is_erased: whether the database was written anew, so that its files do not hold them any more.
    """

    reference: str
    columns: tuple[str, ...]
    location: str | None
    is_erased: bool


def upgrade(
    url: str | os.PathLike[str], revision: str = "head", *, told: Callable[[RemovedSecrets], None] | None = None
) -> tuple[str | None, str | None]:
    """Bring the schema up to ``revision``; an empty database becomes a catalog. Gives the revision before and after.

    ``told`` is called for each version whose row had secrets in its URLs.

    Safe to call from many processes at once: one migrates, the others wait and find nothing left to do.

    Raises:
        SchemaAheadError, NotACatalogError: not a database of this registry.
        UsageError: no such revision, or one below the present.
        CatalogUnavailableError: the database is locked or does not answer.
        CatalogError: a migration failed, and was undone.
    """
    with _engine(url) as engine:
        before = read_status(engine)
        require_ours(before)
        wanted = _known(HEAD if revision == "head" else revision)
        if _age(wanted) < _age(before.revision):
            raise UsageError(
                f"{before.url} has the schema {before.revision}, which is above {revision}",
                hint=f"To go back: registry db downgrade {revision}",
            )
        removed = _upgrade(engine, wanted)
        for one in removed if told is not None else ():
            told(one)  # type: ignore[misc]  # it is not None
        return before.revision, read_status(engine).revision


def downgrade(url: str | os.PathLike[str], revision: str) -> tuple[str | None, str | None]:
    """Take the schema back to ``revision`` (``base``: no tables); what it does not know is dropped with its rows.

    Raises:
        SchemaAheadError, NotACatalogError: not a database of this registry.
        UsageError: no such revision, or one above the present.
    """
    with _engine(url) as engine:
        before = read_status(engine)
        require_ours(before)
        wanted = None if revision == "base" else _known(revision)
        if _age(wanted) > _age(before.revision):
            raise UsageError(
                f"{before.url} has the schema {before.revision or 'base'}, which is below {revision}",
                hint=f"To go forward: registry db upgrade {revision}",
            )
        if before.revision is not None:
            _migrate(engine, "downgrade", revision)
        return before.revision, read_status(engine).revision


def check(url: str | os.PathLike[str]) -> list[str]:
    """Where the database differs from the schema it should have, a line each; empty where it does not.

    Compares tables, columns, types, keys, indexes, constraints and triggers, and checks every foreign key; where all
    that is sound, what is searched with what is published.

    Raises:
        SchemaBehindError, SchemaAheadError, NotACatalogError: there is nothing to compare with.
    """
    with _engine(url) as engine:
        require_current(read_status(engine))
        return schema_check.differences(engine)


def reindex(url: str | os.PathLike[str]) -> int:
    """Mend what is searched, from the published versions; gives how many documents were out of date.

    Raises:
        SchemaBehindError, SchemaAheadError, NotACatalogError: not a catalog of the present schema.
    """
    with _engine(url) as engine:
        require_current(read_status(engine))
        return search_schema.reindex(engine)


def create_or_require(engine: sa.Engine) -> None:
    """Make sure that the database is a catalog of the present schema; called once when a catalog is opened.

    A new or empty SQLite file becomes a catalog, through the migrations; any other database has to be upgraded first.

    Raises:
        SchemaBehindError, SchemaAheadError, NotACatalogError, CatalogUnavailableError
    """
    found = read_status(engine)
    if found.state == "empty" and is_sqlite(engine.url):
        _upgrade(engine, HEAD)
        found = read_status(engine)
    require_current(found)


def config(connection: sa.Connection, **options: str) -> Config:
    """Alembic's configuration for our migrations, run over ``connection`` (see ``session.migrating``)."""
    from alembic.config import Config

    package = find_spec("registry.migrations")
    if package is None or not package.submodule_search_locations:
        raise CatalogError(
            "the migrations are not installed with the registry", hint="Install it again: pip install shardbook"
        )
    made = Config()
    folder = Path(next(iter(package.submodule_search_locations)))
    settings = {"script_location": str(folder), "path_separator": "newline", **options}
    for name, value in settings.items():
        made.set_main_option(name, value.replace("%", "%%"))
    made.attributes["connection"] = connection
    return made


@contextmanager
def _engine(url: str | os.PathLike[str]) -> Iterator[sa.Engine]:
    engine = open_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()


def _upgrade(engine: sa.Engine, revision: str) -> list[RemovedSecrets]:
    use_wal(engine)
    changes = _migrate(engine, "upgrade", revision)
    is_erased = bool(changes) and erase_free_space(engine)
    return [
        RemovedSecrets(**{**change, "columns": tuple(change["columns"]), "is_erased": is_erased}) for change in changes
    ]


def _migrate(engine: sa.Engine, direction: Literal["upgrade", "downgrade"], revision: str) -> list[dict[str, Any]]:
    """Run the migrations; gives what they say of the rows that they changed."""
    from alembic import command, util

    try:
        with migrating(engine) as connection:
            settings = config(connection)
            (command.upgrade if direction == "upgrade" else command.downgrade)(settings, revision)
            changes: list[dict[str, Any]] = settings.attributes.get("changes", [])
            return changes
    except (RuntimeError, sa.exc.IntegrityError, util.CommandError) as error:
        raise CatalogError(
            f"the {direction} to {revision} failed and nothing was changed: {error}",
            hint="Look for damage with: registry db check.",
        ) from error


def _known(revision: str) -> str:
    if revision not in REVISIONS:
        raise UsageError(f"no schema revision {revision[:40]!r}", hint=f"There are: {', '.join(REVISIONS)}.")
    return revision


def _age(revision: str | None) -> int:
    return -1 if revision is None else REVISIONS.index(revision)
