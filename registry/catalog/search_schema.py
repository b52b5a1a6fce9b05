"""Over what is searched, and is it sound? The index beside ``search_document``, which each database derives by itself.

SQLite has the FTS5 table ``search_index``, written by triggers; PostgreSQL the generated column ``vector`` and a GIN
index. The third migration makes them from its own frozen copy; here is what they must be, for ``registry db check``.

The words in a document are folded and parted by ``search_words.py``, with one space between. FTS5's tokenizer ``ascii``
and a cast to ``tsvector`` take them as they are: neither library's idea of a letter is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import sqlalchemy as sa

from registry.catalog import search
from registry.catalog.search_words import FIELDS
from registry.catalog.session import reading, write
from registry.catalog.tables import search_document
from registry.errors import CatalogError

INDEX: Final = "search_index"
VECTOR: Final = "vector"
VECTOR_INDEX: Final = "ix_search_document_vector"

OWN_TABLES: Final = frozenset({INDEX, *(f"{INDEX}_{part}" for part in ("data", "idx", "config"))})
"""FTS5's table and those that it keeps for itself: no tables of ours."""

SQLITE_INDEX: Final = (
    f"CREATE VIRTUAL TABLE {INDEX} USING fts5({', '.join(FIELDS)}, content='search_document', "
    "content_rowid='config_id', tokenize='ascii', prefix='1 2 3', detail='column', columnsize=0)"
)

# The class of a word is its weight: A name, B tags and features, C description, D details. Its place is never used.
_LABELS: Final = {"name": "1A", "tags": "2B", "features": "3B", "description": "4C", "details": "5D"}
POSTGRES_VECTOR: Final = (
    "("
    + " || ' ' || ".join(
        f"coalesce(replace(nullif({field}, '') || ' ', ' ', ':{label} '), '')" for field, label in _LABELS.items()
    )
    + ")::tsvector"
)

_SHOWN: Final = 5
_REMEDY: Final = "mend it with: registry db reindex"


def sqlite_triggers() -> dict[str, str]:
    """The ``CREATE TRIGGER`` statement of each trigger that keeps ``search_index``, by the trigger's name."""
    columns = ", ".join(("rowid", *FIELDS))

    def values(row: str) -> str:
        return ", ".join(f"{row}.{column}" for column in ("config_id", *FIELDS))

    add = f"INSERT INTO {INDEX}({columns}) VALUES ({values('NEW')})"  # noqa: S608 (names of ours)
    # FTS5 does not keep what it indexed, so it is told.
    remove = f"INSERT INTO {INDEX}({INDEX}, {columns}) VALUES ('delete', {values('OLD')})"  # noqa: S608 (the same)
    actions = {"insert": add, "delete": remove, "update": f"{remove}; {add}"}
    return {
        f"search_document_{verb}": f"CREATE TRIGGER search_document_{verb} AFTER {verb.upper()} ON search_document "
        f"BEGIN {action}; END"
        for verb, action in actions.items()
    }


def is_ours(thing: sa.schema.SchemaItem, name: str | None, kind: str, reflected: bool, _compared: object) -> bool:
    """Whether Alembic may compare ``thing``: the index beside ``search_document`` is no part of its metadata."""
    if not reflected:
        return True
    if kind == "column" and isinstance(thing, sa.Column) and thing.table.name == search_document.name:
        return name != VECTOR
    return name != VECTOR_INDEX if kind == "index" else True


def is_our_name(name: str | None, kind: str, _parents: object) -> bool:
    """Whether Alembic may look at a table of this name."""
    return kind != "table" or name not in OWN_TABLES


def missing_parts(connection: sa.Connection) -> Iterator[str]:
    """A line for each part of the index that is not there, or is not what it must be."""
    if connection.dialect.name == "sqlite":
        found = connection.execute(
            sa.text("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = :name"), {"name": INDEX}
        ).scalar()
        if found is None:
            yield f"search index is missing: {INDEX}"
        elif found != SQLITE_INDEX:
            yield f"search index differs: {INDEX}"
        return
    column = connection.exec_driver_sql(
        "SELECT a.attgenerated::text, a.atttypid::regtype::text FROM pg_attribute a"
        " WHERE a.attrelid = to_regclass('search_document') AND a.attname = 'vector' AND NOT a.attisdropped"
    ).first()
    if column is None:
        yield f"search index is missing: {search_document.name}.{VECTOR}"
    elif tuple(column) != ("s", "tsvector"):
        yield f"search index differs: {search_document.name}.{VECTOR}"
    index = connection.exec_driver_sql(
        "SELECT m.amname, i.indisvalid AND i.indpred IS NULL, a.attname FROM pg_index i"
        " JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam"
        " LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
        " WHERE i.indrelid = to_regclass('search_document') AND c.relname = 'ix_search_document_vector'"
    ).first()
    if index is None:
        yield f"search index is missing: {VECTOR_INDEX}"
    elif tuple(index) != ("gin", True, VECTOR):
        yield f"search index differs: {VECTOR_INDEX}"


def wrong_contents(engine: sa.Engine) -> Iterator[str]:
    """A line where documents are not those of the published versions, and one where the index is not theirs."""
    with reading(engine) as connection:
        stale = sorted(name for _, name in search.stale_documents(connection))
    if stale:
        listed = ", ".join(stale[:_SHOWN]) + (f" and {len(stale) - _SHOWN} more" if len(stale) > _SHOWN else "")
        yield f"search documents are out of date: {listed}; {_REMEDY}"
    if not _is_index_sound(engine):
        yield f"search index does not fit its documents; {_REMEDY}"


def reindex(engine: sa.Engine) -> int:
    """Mend every document and the index over them, in one transaction; gives how many documents were out of date."""

    def action(connection: sa.Connection) -> int:
        if connection.dialect.name == "sqlite":
            # First, for the triggers cannot take out of a damaged index what they believe is in it.
            connection.exec_driver_sql(f"INSERT INTO {INDEX}({INDEX}) VALUES ('rebuild')")  # noqa: S608 (a name of ours)
        return search.refresh_stale(connection)

    return write(engine, action)


def _is_index_sound(engine: sa.Engine) -> bool:
    if engine.dialect.name == "postgresql":
        with reading(engine) as connection:
            wrong = f"SELECT count(*) FROM search_document WHERE vector IS DISTINCT FROM {POSTGRES_VECTOR}"  # noqa: S608 (a constant)
            return connection.exec_driver_sql(wrong).scalar() == 0

    def compare(connection: sa.Connection) -> None:
        # FTS5 compares itself; a command of it is a write, although it writes nothing.
        connection.exec_driver_sql(f"INSERT INTO {INDEX}({INDEX}, rank) VALUES ('integrity-check', 1)")  # noqa: S608 (a name of ours)

    try:
        write(engine, compare)
    except CatalogError as error:
        cause = getattr(getattr(error.__cause__, "orig", None), "sqlite_errorname", "")
        if cause.startswith("SQLITE_READONLY"):
            return True  # it can still be searched, and nothing here can be mended
        if cause.startswith("SQLITE_CORRUPT"):
            return False
        raise
    return True
