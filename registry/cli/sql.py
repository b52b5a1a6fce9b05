"""``registry sql``: queries the records of any versions in SQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.commands import Session, note_overlaps, session_command
from registry.cli.options import check_output
from registry.cli.output import Block, Table, open_stdout
from registry.envelope import Records
from registry.errors import UsageError, require_extra, spell

if TYPE_CHECKING:  # DuckDB is loaded when a query is run
    import pyarrow as pa

    from registry.api import Catalog
    from registry.reading import Reader

_MOST_ROWS: Final = 1000
"""The maximum number of rows that are printed as a table."""

_FORMAT: Final = click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "csv", "jsonl", "json", "arrow"]),
    default="table",
    help=f"Print a table of up to {_MOST_ROWS:,} rows, or all rows.  [default: table, or by the ending of FILE]",
)


@session_command("sql", decodes=True, at=True, locked=True, output_format=_FORMAT)
@click.argument("query", metavar="QUERY")
@click.option("-o", "--output", metavar="FILE", help="Write the rows to this file: .csv, .jsonl, .parquet or .arrow.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def sql(session: Session, query: str, *, output: str | None, force: bool) -> None:
    """Run one SQL SELECT with DuckDB.

    A table is a quoted name, REF[SPLIT], such as "digits:1.*[train]" or "digits[train[:10%]]". A version with only one
    split needs no [SPLIT]. Class labels are shown by name. Columns that the query does not need are not decoded, and
    memory is bounded. The query cannot access files, the network or settings.

    Examples:
        registry sql 'SELECT label, count(*) FROM "digits:1.*[train]" GROUP BY label'
        registry sql 'SELECT * FROM "prices[train[:10%]]" WHERE price > 100' --format csv
        registry sql 'SELECT a.id FROM "prices:1.0.0[train]" a ANTI JOIN "prices:2.0.0[train]" b USING (id)'
        registry sql 'FROM "digits[train]"' -o digits.parquet
    """
    with require_extra("sql", package="duckdb", needed_for="a query in SQL"):
        from registry.reading.frameworks.sql import Query
    kind = _choose_kind(click.get_current_context().params["output_format"], output)
    if output is not None:
        check_output(output, option="-o", force=force)
    with session.connect_unless_pinned() as catalog:
        schema, batches = Query(query, lambda name: open_table(session, catalog, name)).rows()
        if kind in ("table", "json"):
            _present(session, schema, batches)
        else:
            _write(kind, schema, batches, output, force=force)


def open_table(session: Session, catalog: Catalog | None, name: str) -> Reader:
    """The reader of the table ``REF[SPLIT]`` of a query."""
    from registry.reading import Reader

    reference, bracket, split = name.partition("[")
    if bracket and not split.endswith("]"):
        raise UsageError(f"the table name {name!r:.200} lacks the ] at its end", hint='Write "digits:1.*[train]".')
    dataset = session.look_up(catalog, reference)
    if not bracket and len(dataset.splits) > 1:
        names = list(dataset.splits)
        raise UsageError(
            f"{name} has several splits: {', '.join(names[:20])}",
            hint=f'Name the records, e.g. FROM "{name}[{names[0]}]".',
        )
    part = dataset.slice_of(split[:-1] if bracket else None)
    note_overlaps(session.out, part.plan)
    return Reader(part.readable, part.plan, keep="auto")


def _choose_kind(kind: str, output: str | None) -> str:
    """The named format, or else the format of the file's extension."""
    from registry.interop.exporting import SUFFIXES

    if output is None:
        return kind
    by_ending = [name for name, endings in SUFFIXES.items() if output.lower().endswith(endings)]
    if kind == "table" and not by_ending:
        raise UsageError(
            f"the extension of {output} is unknown", hint=f"Name a format: {spell('output_format', 'csv')}"
        )
    if kind == "json":
        raise UsageError("--format json is for stdout", hint=f"Write JSON lines: {spell('output_format', 'jsonl')}")
    return by_ending[0] if kind == "table" else kind


def _write(kind: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch], output: str | None, *, force: bool) -> None:
    from registry.interop.export_tables import WRITERS, compressing
    from registry.storage import expand_home, open_store

    with ExitStack() as stack:
        if output is None:
            stack.enter_context(suppress(BrokenPipeError))  # the reader of stdout has closed it
            file: Any = stack.enter_context(open_stdout())
        else:
            place = expand_home(output).absolute()
            file = stack.enter_context(open_store(place.parent).create(place.name, overwrite=force))
        WRITERS[kind](batches, schema, stack.enter_context(compressing(file, gz=str(output).endswith(".gz"))))


def _present(session: Session, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    """Print rows as a table, or as one JSON value."""
    from registry.display import text_of
    from registry.interop.export_tables import json_value, plain_rows

    def human(_: object) -> Iterator[Block]:
        rows = (row for batch in batches for row in batch.to_pylist())
        shown = list(islice(rows, _MOST_ROWS))
        cells = [{name: v if type(v) is int else text_of(v) for name, v in row.items()} for row in shown]
        yield Table(cells, {name: name for name in schema.names}, empty="no rows", fits=True)
        if next(rows, None) is not None:
            yield f"and more rows: {spell('output_format', 'csv')} prints all of them"

    rows = (json_value(row) for batch in batches for row in plain_rows(batch))
    session.out.present("sql", {"columns": schema.names, "rows": Records(rows)}, human)
