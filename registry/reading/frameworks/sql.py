"""Runs a SELECT statement over readers as tables, with DuckDB.

    query --DuckDB's parser--> names of tables --open_table--> readers --the columns that it uses--> DuckDB's relation

The query cannot access anything else: DuckDB has no files, network, extensions, settings or Python variables.
"""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.dataset
import pyarrow.fs

from registry.errors import NotFoundError, QueryError, RegistryError, UsageError
from registry.reading.frameworks.tables import columns_for, read_batches

if TYPE_CHECKING:
    from registry.reading.column_blocks import BoundedBlock
    from registry.reading.examples import ExampleReader

_MEMORY: Final = "1GB"
_DISK: Final = "20GB"
"""The limits of a query for memory, and for temporary files if memory is not enough."""

_SETTINGS: Final = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "allow_persistent_secrets": "false",  # errors about them would show the user's home folder
    "memory_limit": _MEMORY,
    "max_temp_directory_size": _DISK,
    "lock_configuration": "true",
}
_TABLE_FUNCTIONS: Final = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat", "unnest"})
"""What a query of others may select from. Rows or errors of other functions name folders of the machine."""

_SCALAR_FUNCTIONS: Final = frozenset({"current_setting", "json_serialize_plan"})
"""What such a query may not call: the plan of another query contains the settings that it names."""

_NAMED: Final = 20
_DAY: Final = 86_400_000_000
"""Microseconds."""

_MOST_DAYS: Final = 100_000_000
"""A duration of 64 bits, in microseconds, may overflow with more, because hours are added."""

_INVERSE: Final = np.uint64(pow(125, -1, 2**64))


class Query:
    """A query that was checked and whose tables were found, but that was not run yet.

    Attributes:
        relation: DuckDB's relation. It runs the query when its rows are requested.
        interrupt: ends the query in another thread, with a QueryError.
    """

    def __init__(
        self, query: str, open_table: Callable[[str], ExampleReader], *, limits: Mapping[str, str] | None = None
    ) -> None:
        """Prepare a query.

        Args:
            query: one SELECT statement.
            open_table: returns the reader of a table by its name, or raises an error.
            limits: settings of DuckDB in place of the usual limits, such as ``memory_limit``, for a query of others.
                Such a query cannot read settings, because they name folders of this machine.

        Raises:
            QueryError: the query is not one SELECT statement, or names a column that does not exist, or is invalid.
        """
        if query != query.encode(errors="replace").decode():
            raise QueryError("the query is not valid Unicode")
        self._tables: dict[str, _Table] = {}
        folder = Path(tempfile.gettempdir(), f"shardbook-sql-{secrets.token_hex(8)}")  # DuckDB makes and removes it
        settings = {**_SETTINGS, "temp_directory": str(folder), **(limits or {})}
        connection = duckdb.connect(":memory:", config=settings)
        self.interrupt: Callable[[], None] = connection.interrupt
        with self._own_errors():
            kinds = [statement.type for statement in connection.extract_statements(query)]
            if kinds != [duckdb.StatementType.SELECT]:
                words = ", ".join(kind.name for kind in kinds) or "none"
                raise QueryError(f"a query is one SELECT statement, not {words}", hint="Write one SELECT ... FROM ...")
            names, own_names = _find_tables(connection, query, is_foreign=limits is not None)
            for name in sorted(names):
                try:
                    self._tables[name] = _Table(open_table(name))
                except (NotFoundError, UsageError):
                    if name not in own_names:
                        raise
                    if limits is not None and name.lower() in _views(connection):  # WITH may define it elsewhere only
                        message = f"a query may not define {name} here: DuckDB has a view of this name"
                        raise QueryError(message, hint="Use another name in WITH.") from None
                else:
                    connection.register(name, self._tables[name])
            self.relation: duckdb.DuckDBPyRelation = connection.sql(query)

    def rows(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Run the query: the schema of its rows, and batches that are computed when they are requested.

        A DuckDB INTERVAL is a duration in microseconds: other formats than Arrow's have no such type.

        Raises:
            QueryError: a value cannot be computed, memory does not suffice, or an INTERVAL has months, whose length is
                not fixed, or is too long; also while rows are requested.
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: a file is damaged or unreadable.
        """
        with self._own_errors():
            stream = pa.RecordBatchReader.from_stream(self.relation)
        names = _distinct_names(stream.schema.names)

        def batches() -> Iterator[pa.RecordBatch]:
            with self._own_errors():
                for batch in stream:
                    yield pa.RecordBatch.from_arrays(list(map(_with_durations, batch.columns)), names)

        columns = [_with_durations(pa.array([], kind)) for kind in stream.schema.types]
        return pa.RecordBatch.from_arrays(columns, names).schema, batches()

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        """Convert DuckDB's errors, and restore the errors of a reader that DuckDB wraps."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if isinstance(error, RegistryError):
                raise
            faults = [table.fault for table in self._tables.values() if table.fault is not None]
            raise faults[0] if faults else _as_own(error, self._tables) from error


def _with_durations(array: pa.Array) -> pa.Array:
    """Convert intervals, also in structs and lists, to durations."""
    kind = array.type
    if "month_day_nano_interval" not in str(kind):
        return array
    if kind == pa.month_day_nano_interval():
        fields = np.dtype([("months", np.int32), ("days", np.int32), ("nanoseconds", np.int64)])
        values = np.frombuffer(array.buffers()[1] or b"", fields)[array.offset : array.offset + len(array)]
        is_null = array.is_null().to_numpy(zero_copy_only=False)
        # DuckDB multiplies microseconds by 1,000 = 8 * 125 modulo 2**64, which is wrong beyond 292 years. Division of
        # the product by 8 leaves 61 bits, and the inverse of 125 restores all microseconds below 2**60.
        product = values["nanoseconds"].view(np.uint64) >> np.uint64(3)
        microseconds = (product * _INVERSE << np.uint64(3)).view(np.int64) >> 3
        days = values["days"] + microseconds // _DAY
        has_months = values["months"][~is_null].any()
        if has_months or (np.abs(days[~is_null]) > _MOST_DAYS).any():
            problem = "months, whose length is not fixed" if has_months else f"more than {_MOST_DAYS:,} days"
            raise QueryError(f"an INTERVAL in the result has {problem}", hint="Write CAST(... AS VARCHAR).")
        numbers = days * _DAY + microseconds % _DAY
        return pa.array(numbers, pa.int64(), mask=is_null).view(pa.duration("us"))
    if pa.types.is_struct(kind):
        parts = list(map(_with_durations, array.flatten()))
        return pa.StructArray.from_arrays(parts, [field.name for field in kind], mask=array.is_null())
    if pa.types.is_list(kind):
        offsets, inner = array.offsets, _with_durations(array.values)
        return pa.ListArray.from_arrays(offsets, inner, mask=array.is_null() if array.null_count else None)
    return array


def _distinct_names(names: Sequence[str]) -> list[str]:
    """Add a number to each repeated name, like DuckDB's ``df``.

    >>> _distinct_names(["a", "b", "a", "a_1"])
    ['a', 'b', 'a_1', 'a_1_1']
    """
    distinct: dict[str, None] = {}
    for name in names:
        number, free = 0, name
        while free in distinct:
            number += 1
            free = f"{name}_{number}"
        distinct[free] = None
    return list(distinct)


def _find_tables(connection: duckdb.DuckDBPyConnection, query: str, *, is_foreign: bool) -> tuple[set[str], set[str]]:
    """The names of tables in a query, and those that it defines by WITH, from the tree of DuckDB's parser.

    DuckDB's ``get_table_names`` refuses USING, because it knows no columns yet.
    """
    # fetchone would leave the result open, and DuckDB 2 then refuses the next statement.
    ((text,),) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()
    try:
        nodes: list[Any] = [json.loads(text)]
    except RecursionError:
        raise QueryError("the query is nested too deeply", hint="Write parts of it as WITH name AS (...).") from None
    names: set[str] = set()
    own_names: set[str] = set()
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            if node.get("table_name"):
                names.add(node["table_name"].strip('"'))  # that of DESCRIBE is quoted
            if is_foreign:
                _refuse_machine(node)
            own_names.update(entry["key"] for entry in (node.get("cte_map") or {}).get("map", ()))
        if isinstance(node, dict | list):
            nodes.extend(node.values() if isinstance(node, dict) else node)
    return names, own_names


def _views(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """The names of DuckDB's own views that a query can use without their schema."""
    query = "SELECT view_name FROM duckdb_views() WHERE internal AND schema_name <> 'information_schema'"
    return {name for (name,) in connection.execute(query).fetchall()}


def _refuse_machine(node: Mapping[str, Any]) -> None:
    """Refuse a part of a query of others that could read what DuckDB says about this machine."""
    is_table = node.get("type") == "TABLE_FUNCTION"
    function = str((node["function"] if is_table else node).get("function_name", "")).lower()
    if function not in _TABLE_FUNCTIONS if is_table else function in _SCALAR_FUNCTIONS:
        raise QueryError(f"a query may not call {function} here", hint="Ask for datasets only.")
    if node.get("table_name") and node.get("schema_name"):
        name = f"{node['schema_name']}.{node['table_name']}"
        raise QueryError(f"a query may not read {name} here", hint='Put the reference of a dataset in quotes: "NAME".')


class _Table(pa.dataset.InMemoryDataset):
    """A reader as a dataset of Arrow: DuckDB says which columns and rows a scan needs.

    Only these columns are decoded. Of kept columns, blocks whose bounds exclude every row are not read.

    It has no reference to the query or its connection, which would never be freed: Python cannot see that DuckDB has a
    reference to the table.

    Attributes:
        fault: the error of the reader that ended the query, or None.
    """

    def __init__(self, reader: ExampleReader) -> None:
        self._reader = reader
        self.fault: RegistryError | None = None
        columns = columns_for(reader, widen=True)
        super().__init__(columns.schema.empty_table())

    def scanner(
        self,
        columns: list[str] | None = None,
        filter: pa.dataset.Expression | None = None,  # noqa: A002 - the name of Arrow
        **_: Any,
    ) -> _Scan:
        """What DuckDB calls for each scan, with names of columns; a filter may name others."""
        names = list(self.schema.names if columns is None else columns)
        if filter is not None:
            # Arrow does not say which columns a filter has. Its text has their names, and perhaps those of others.
            text = str(filter)
            names += [name for name in self.schema.names if name not in names and name in text]
        reader = self._reader.select(names)
        if filter is not None:
            reader = reader.without_blocks(partial(_may_pass, filter, self.schema))
        return _Scan(self, read_batches([reader], widen=True), columns, filter)


class _Scan:
    """One scan of a table, of which DuckDB requests ``to_reader``. It ends when DuckDB needs no more rows.

    Arrow's scanner, which applies a filter, reads all remaining batches when it is closed. So ``LIMIT 10`` would read
    all records.
    """

    def __init__(
        self,
        table: _Table,
        batches: pa.RecordBatchReader,
        columns: list[str] | None,
        filter: pa.dataset.Expression | None,  # noqa: A002 - the name of Arrow
    ) -> None:
        self._table, self._batches, self._columns, self._filter = table, batches, columns, filter
        self._is_over = False

    def to_reader(self) -> pa.RecordBatchReader:
        """The batches of the scan."""
        stream = pa.RecordBatchReader.from_batches(self._batches.schema, self._watch(self._batches))
        if self._filter is None:
            return stream
        # DuckDB requests a batch when it has room; reading ahead would only keep more batches in memory.
        scanner = pa.dataset.Scanner.from_batches(
            stream, columns=self._columns, filter=self._filter, batch_readahead=1, use_threads=False
        )
        return pa.RecordBatchReader.from_batches(scanner.projected_schema, self._until_closed(scanner.to_reader()))

    def _until_closed(self, passing: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            for batch in passing:  # noqa: UP028 - yield from would close the reader before finally
                yield batch
        finally:
            self._is_over = True

    def _watch(self, batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                if self._is_over:
                    return
                yield batch
        except RegistryError as error:
            self._table.fault = error
            raise


def _may_pass(
    filter: pa.dataset.Expression,  # noqa: A002 - the name of Arrow
    schema: pa.Schema,
    blocks: Sequence[BoundedBlock],
) -> npt.NDArray[np.bool_]:
    """Return which blocks may have a row that passes a filter.

    Arrow prunes the blocks like the files of a partitioned dataset: the bounds of a block are its partition expression.
    No value of a column with bounds is missing. NaN has no part in bounds, but DuckDB passes no filter that it passes.
    """
    partitions = [pa.compute.scalar(True)] * len(blocks)
    for name in sorted({path for _, bounds in blocks for path in bounds}.intersection(schema.names)):
        kind, field = schema.field(name).type, pa.compute.field(name)
        if not pa.types.is_primitive(kind):
            continue
        for index, (_, bounds) in enumerate(blocks):
            if name in bounds:
                least, greatest = _scalars(bounds[name], kind)
                partitions[index] &= (field >= least) & (field <= greatest)
    files = pa.dataset.FileSystemDataset.from_paths(
        [str(index) for index in range(len(blocks))],  # nothing opens them
        schema=schema,
        format=pa.dataset.IpcFileFormat(),
        filesystem=pa.fs.LocalFileSystem(),
        partitions=partitions,
    )
    passing = np.zeros(len(blocks), np.bool_)
    passing[[int(file.path) for file in files.get_fragments(filter=filter)]] = True
    return passing


def _scalars(values: Sequence[float], kind: pa.DataType) -> pa.Array:
    """Stored values of a column, of which dates and times are counts, as its type in Arrow."""
    if not pa.types.is_temporal(kind):
        return pa.array(values, kind)
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def _as_own(error: Exception, tables: Mapping[str, _Table]) -> QueryError:
    """Make an error of DuckDB's message, which has a caret, with the existing columns in the hint."""
    columns = [f"{name} has the columns {', '.join(table.schema.names[:_NAMED])}" for name, table in tables.items()]
    # They mention settings, which a query cannot change
    message = str(error).partition("Possible solutions:")[0].strip()
    hint = f"{'; '.join(columns)}." if columns else None
    if isinstance(error, duckdb.ParserException) and " near " in message:
        hint = (
            'Put the whole name of a table in double quotes if it has a bracket, a colon or a hyphen: "digits[train]".'
        )
    return QueryError(message, hint=hint)
