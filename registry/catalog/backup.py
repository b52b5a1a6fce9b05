"""Writes a catalog as the lines of a backup. Reads tables as they are stored, in any revision of the schema.

All tables are read in one snapshot, while publications may continue. The columns come from the database, so new tables
and columns are included without a change here. ``restore`` inserts the rows; ``backup_file`` describes the lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from registry.catalog.backup_file import MAX_LINE_BYTES, end_line, head_line, row_line, table_line
from registry.catalog.events import FIRST_PREVIOUS
from registry.catalog.outcomes import BackupFacts
from registry.catalog.revision import HEAD, SchemaStatus, read_status, read_status_of, require_current
from registry.catalog.rows import by_bytes
from registry.catalog.session import opened_engine, reading_at_length
from registry.catalog.tables import UtcDateTime, event, kept_answer, metadata, search_document
from registry.catalog.values import damaged, stored_values

if TYPE_CHECKING:
    from registry.model import Advance

DERIVED: Final = {
    search_document.name: "made from the rows of versions; a restored catalog makes it again",
    kept_answer.name: "for clients that repeat a call to this catalog within a day",
}
"""The tables that are left out of a backup, with the reasons."""

_BATCH: Final = 1000


@contextmanager
def open_backup(url: str, *, advance: Advance | None = None) -> Iterator[Iterator[bytes]]:
    """A block in which the lines of a backup of the catalog at ``url`` can be read, see ``backup_lines``."""
    with opened_engine(url) as engine:
        yield backup_lines(engine, advance=advance)


def backup_lines(engine: sa.Engine, *, advance: Advance | None = None) -> Iterator[bytes]:
    """The lines of a backup, in pieces of at most some megabytes; the last piece is the last line.

    The catalog may have an older schema than this release.

    Raises:
        CatalogNotFoundError, SchemaAheadError, NotACatalogError: not a catalog that this release can read.
        SchemaBehindError: the database has no tables.
        CatalogError: a stored value was not written by the registry.
    """
    _require_schema(read_status(engine))  # before a connection creates the file
    with reading_tables(engine) as connection:
        schema = _require_schema(read_status_of(connection))
        tables = ((table, in_order(connection, table)) for table in stored_tables(connection))
        rows = ((table, read_batches(connection, query)) for table, query in tables)
        last = sa.select(event.c.hash).order_by(event.c.id.desc()).limit(1)
        yield from backup_rows(schema, rows, lambda: connection.execute(last).scalar() or FIRST_PREVIOUS, advance)


@contextmanager
def reading_tables(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection that reads whole tables, in one snapshot."""
    with reading_at_length(engine) as connection, stored_values():
        if connection.dialect.name == "postgresql":
            connection.execution_options(postgresql_readonly=True)
        yield connection


def backup_rows(
    schema: str,
    tables: Iterable[tuple[sa.Table, Iterable[Sequence[Sequence[Any]]]]],
    head: Callable[[], str],
    advance: Advance | None,
) -> Iterator[bytes]:
    """The lines of a backup of these rows, which come in batches; ``head`` is called when all of them are read."""
    digest, rows = hashlib.sha256(), {}
    first = head_line(schema)
    digest.update(first)
    yield first
    for table, batches in tables:
        lines, count = [table_line(table.name, table.columns.keys())], 0
        for batch in batches:
            count += len(batch)
            for row in batch:
                line = row_line(tuple(row))
                if len(line) > MAX_LINE_BYTES:
                    raise damaged(f"a row of {table.name} is longer than {MAX_LINE_BYTES:,} bytes")
                lines.append(line)  # to append to bytes would copy them for each row
            piece, lines = b"".join(lines), []
            digest.update(piece)
            yield piece
            if advance is not None:
                advance(len(batch))
        digest.update(piece := b"".join(lines))
        yield piece
        rows[table.name] = count
    yield end_line(
        BackupFacts(
            schema=schema,
            rows=rows,
            head=head(),
            made_at=datetime.now(UTC),
            made_by=f"shardbook {version('shardbook')}",
            sha256=digest.hexdigest(),
        )
    )


def read_batches(connection: sa.Connection, query: sa.Select[Any]) -> Generator[Sequence[Any]]:
    """The rows of a query, in batches."""
    with connection.execute(query.execution_options(yield_per=_BATCH)) as result:
        yield from result.partitions()


def stored_tables(connection: sa.Connection) -> list[sa.Table]:
    """The tables of a backup that the database has, by name, with the columns that it has, without generated ones."""
    inspector = sa.inspect(connection)
    present = set(inspector.get_table_names())
    result = []
    for name in sorted(metadata.tables.keys() - DERIVED.keys()):
        if name in present:
            key = set(inspector.get_pk_constraint(name)["constrained_columns"])
            columns = [
                sa.Column(column["name"], _kind(column["type"]), primary_key=column["name"] in key, autoincrement=False)
                for column in inspector.get_columns(name)
                if column.get("computed") is None
            ]
            result.append(sa.Table(name, sa.MetaData(), *columns))
    return result


def _require_schema(status: SchemaStatus) -> str:
    if status.state != "behind" or status.revision is None:
        require_current(status)
    return status.revision or HEAD


def _kind(stored: sa.types.TypeEngine[Any]) -> sa.types.TypeEngine[Any]:
    """The type whose values have the same Python class on both databases."""
    match stored:
        case sa.Boolean():
            return sa.Boolean()
        case sa.Integer():
            return sa.BigInteger()
        case sa.DateTime():
            return UtcDateTime()
    return sa.Text()


def in_order(connection: sa.Connection, table: sa.Table) -> sa.Select[tuple[Any, ...]]:
    """Every row, by its primary key; texts by their bytes, independent of PostgreSQL's collation."""
    return sa.select(table).order_by(*by_bytes(connection.dialect.name, *table.primary_key))
