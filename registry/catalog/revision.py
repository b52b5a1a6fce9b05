"""The revision of a catalog's schema: what the database has, and whether this registry can use it.

Opening a catalog needs nothing else of a schema; ``schema.py`` changes and compares it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, NamedTuple

import sqlalchemy as sa

from registry.catalog.faults import no_catalog
from registry.catalog.session import reading
from registry.catalog.urls import describe_url, sqlite_path
from registry.catalog.web_urls import quote_catalog
from registry.errors import NotACatalogError, SchemaAheadError, SchemaBehindError

REVISIONS: Final = tuple(f"{number:04}" for number in range(1, 17))
"""Every revision of ``registry.migrations``, in order; a test compares them."""

HEAD: Final = REVISIONS[-1]

_REVISION_TABLE: Final = sa.table("alembic_version", sa.column("version_num", sa.Text))

# Tables of every catalog since the first revision; databases of other programs that use Alembic lack some of them.
_LANDMARKS: Final = frozenset({"builder", "dataset_version", "shard", "version_ledger"})

State = Literal["absent", "empty", "current", "behind", "ahead", "foreign"]


class SchemaStatus(NamedTuple):
    """The schema of a database.

    Attributes:
        url: the database, without its password.
        revision: the stored revision of the schema, or None.
        head: the revision that this registry needs.
        state: ``absent`` (the SQLite file does not exist), ``empty`` (no tables at all), ``current``, ``behind``,
            ``ahead`` (a revision that this registry does not know), ``foreign`` (tables of another program).
    """

    url: str
    revision: str | None
    head: str
    state: State

    @property
    def is_next(self) -> bool:
        """Whether the schema is one revision ahead. Migrations add and leave the rest, so that it can be read."""
        return self.state == "ahead" and self.revision == f"{int(self.head) + 1:04}"


def ahead_error(status: SchemaStatus) -> SchemaAheadError:
    """The error for a database of a newer registry."""
    return SchemaAheadError(
        f"{status.url} has the schema {status.revision}, made by a newer registry than this one ({status.head})",
        hint="Install a newer version: pip install --upgrade shardbook",
        details={"revision": status.revision, "head": status.head},
    )


def read_status(engine: sa.Engine) -> SchemaStatus:
    """The state of the schema. A file that does not exist is ``absent`` and is not created."""
    url = describe_url(engine.url)
    if engine.dialect.name == "sqlite" and not Path(engine.url.database or "").exists():
        return SchemaStatus(url=url, revision=None, head=HEAD, state="absent")
    with reading(engine) as connection:
        return read_status_of(connection)


def read_status_of(connection: sa.Connection) -> SchemaStatus:
    """The state of the schema, as the transaction of ``connection`` sees it."""
    names = set(sa.inspect(connection).get_table_names())
    revision = _select_revision(connection) if _REVISION_TABLE.name in names else None
    state = _state(names - {_REVISION_TABLE.name}, revision)
    return SchemaStatus(url=describe_url(connection.engine.url), revision=revision, head=HEAD, state=state)


def read_revision(connection: sa.Connection) -> str | None:
    """The stored revision of the schema; None if there is none."""
    return _select_revision(connection) if sa.inspect(connection).has_table(_REVISION_TABLE.name) else None


def _select_revision(connection: sa.Connection) -> str | None:
    return connection.execute(sa.select(_REVISION_TABLE.c.version_num)).scalars().first()


def require_current(status: SchemaStatus) -> None:
    """Refuse a database that this registry cannot use.

    Raises:
        CatalogNotFoundError, SchemaBehindError, SchemaAheadError, NotACatalogError: see ``SchemaStatus.state``.
    """
    match status.state:
        case "current":
            return
        case "absent":
            raise no_catalog(status.url, sqlite_path(status.url) or Path())
        case "empty":
            raise SchemaBehindError(
                f"{status.url} holds no catalog yet",
                hint=f"Create one with: registry db upgrade {quote_catalog(status.url)}",
                details={"revision": None, "head": status.head},
            )
        case "behind":
            raise SchemaBehindError(
                f"{status.url} has the schema {status.revision}, this registry needs {status.head}",
                hint=f"Bring it up to date with: registry db upgrade {quote_catalog(status.url)}",
                details={"revision": status.revision, "head": status.head},
            )
        case _:
            require_ours(status)


def require_ours(status: SchemaStatus) -> None:
    """Refuse a database of another program or of a newer registry.

    Raises:
        SchemaAheadError, NotACatalogError
    """
    if status.state == "ahead":
        raise ahead_error(status)
    if status.state == "foreign":
        raise NotACatalogError(
            f"{status.url} holds the tables of something else",
            hint="Name another database. A catalog needs one of its own; an empty one will do.",
        )


def _state(names: set[str], revision: str | None) -> State:
    if not names:
        return "empty"
    if not names >= _LANDMARKS or revision is None:
        return "foreign"
    if revision not in REVISIONS:
        return "ahead"
    return "current" if revision == HEAD else "behind"
