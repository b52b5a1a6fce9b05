"""Is this database a catalog, and of which age? One look at its tables, without Alembic (275 ms to import)."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import sqlalchemy as sa

from registry.catalog.location import describe_url, is_sqlite
from registry.catalog.session import reading
from registry.errors import NotACatalogError, SchemaAheadError, SchemaBehindError

REVISIONS: Final = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008")
"""Every revision of ``registry.migrations``, in order; a test compares them."""

HEAD: Final = REVISIONS[-1]

_REVISION_TABLE: Final = sa.table("alembic_version", sa.column("version_num", sa.Text))
# What every catalog has had since the first revision; another program's database that uses Alembic has not all of it.
_LANDMARKS: Final = frozenset({"builder", "dataset_version", "shard", "version_ledger"})

State = Literal["empty", "current", "behind", "ahead", "foreign"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaStatus:
    """The schema of a database.

    Attributes:
        url: the database, without its password.
        revision: the schema's revision as stored, or None where there is none.
        head: the revision that this registry needs.
        state: ``empty`` (no tables at all), ``current``, ``behind``, ``ahead`` (a revision that this registry does not
            know), ``foreign`` (tables of something else).
    """

    url: str
    revision: str | None
    head: str
    state: State


def read_status(engine: sa.Engine) -> SchemaStatus:
    """The schema's state. A file that does not exist is ``empty``, and is not created."""
    shown = describe_url(engine.url)
    if is_sqlite(engine.url) and not Path(engine.url.database or "").exists():
        return SchemaStatus(url=shown, revision=None, head=HEAD, state="empty")
    with reading(engine) as connection:
        names = set(sa.inspect(connection).get_table_names())
        revision = None
        if _REVISION_TABLE.name in names:
            revision = connection.execute(sa.select(_REVISION_TABLE.c.version_num)).scalars().first()
    return SchemaStatus(url=shown, revision=revision, head=HEAD, state=_state(names - {_REVISION_TABLE.name}, revision))


def require_current(status: SchemaStatus) -> None:
    """Refuse a database that this registry cannot use.

    Raises:
        SchemaBehindError, SchemaAheadError, NotACatalogError: see ``SchemaStatus.state``.
    """
    match status.state:
        case "current":
            return
        case "empty":
            raise SchemaBehindError(
                f"{status.url} holds no catalog yet",
                hint=f"Make it one with: registry db upgrade --catalog {shlex.quote(status.url)}",
                details={"revision": None, "head": status.head},
            )
        case "behind":
            raise SchemaBehindError(
                f"{status.url} has the schema {status.revision}, this registry needs {status.head}",
                hint=f"Bring it up to date with: registry db upgrade --catalog {shlex.quote(status.url)}",
                details={"revision": status.revision, "head": status.head},
            )
        case _:
            require_ours(status)


def require_ours(status: SchemaStatus) -> None:
    """Refuse a database of something else, or of a newer registry.

    Raises:
        SchemaAheadError, NotACatalogError
    """
    if status.state == "ahead":
        raise SchemaAheadError(
            f"{status.url} has the schema {status.revision}, made by a newer registry than this one ({status.head})",
            hint="Install a newer version: pip install --upgrade shardbook",
            details={"revision": status.revision, "head": status.head},
        )
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
