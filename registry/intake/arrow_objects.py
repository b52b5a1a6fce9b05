"""Opens Arrow data in memory: tables, batches, streams and datasets, and streams that other libraries export.

It also cuts Arrow tables into ``Rows``, and replaces dictionaries and extension types by their values.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from registry.errors import SourceError
from registry.intake.object_source import check_columns, count_of, import_arrow, is_a, object_source
from registry.intake.source import MAX_BYTES, MAX_ROWS, Rows, Source
from registry.intake.values import column_errors


def open_arrow(given: Any) -> Source | None:
    """Open a table, batch, stream or dataset of pyarrow, or another object that exports an Arrow stream.

    Returns None for other objects.

    Raises:
        SourceError: the object has no columns or no rows, or is a single column.
    """
    if not hasattr(given, "__arrow_c_stream__") and not hasattr(given, "__arrow_c_array__"):
        return _open_arrow_dataset(given) if is_a(given, "pyarrow.dataset", "Dataset") else None
    pa = import_arrow()
    if isinstance(given, (pa.Array, pa.ChunkedArray)):
        raise SourceError("an Arrow array is one column", hint="Pass a table: pyarrow.table({'NAME': array})")
    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    if isinstance(given, pa.Table):
        return _arrow_table(given, "Arrow table")
    return _arrow_stream(given)


def _arrow_table(table: Any, summary: str) -> Source:
    plain = plain_table(table)
    if not plain.num_rows:
        raise SourceError(f"the {summary} has no rows", hint="Pass data with at least one row.")
    rows = f"{plain.num_rows:,} row{'s' if plain.num_rows != 1 else ''}"
    return object_source(
        "arrow",
        summary=f"{summary}: {rows}, {count_of(plain.num_columns, 'column')}",
        columns=tuple(plain.column_names),
        read=lambda: cut_table(plain, 0),
    )


def _arrow_stream(given: Any) -> Source:
    """A stream, which can be read once: its batches are kept in a temporary file."""
    pa = import_arrow()
    kind = type(given)
    stream = given if isinstance(given, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(given)
    spool = Spool(iter(stream), f"the {kind.__name__}")
    names = check_columns(stream.schema.names)

    def read() -> Iterator[Rows]:
        start = 0
        for table in spool.read():
            yield from cut_table(table, start)
            start += table.num_rows

    if next(read(), None) is None:
        raise SourceError(f"the {kind.__name__} has no rows", hint="Pass data with at least one row.")
    about = "read once and kept in a temporary file"
    return object_source(
        "arrow",
        summary=f"{kind.__module__.partition('.')[0]} {kind.__name__}: {count_of(len(names), 'column')}, {about}",
        columns=names,
        read=read,
    )


def _open_arrow_dataset(dataset: Any) -> Source:
    names = check_columns(dataset.schema.names)
    num_rows = dataset.count_rows()
    if not num_rows:
        raise SourceError("the Arrow dataset has no rows", hint="Pass data with at least one row.")

    def read() -> Iterator[Rows]:
        start = 0
        # Without read-ahead: by default, Arrow keeps 16 batches of 131,072 rows of 4 files in memory.
        for batch in dataset.to_batches(batch_size=MAX_ROWS, batch_readahead=1, fragment_readahead=1):
            yield from cut_table(batch, start)
            start += batch.num_rows

    return object_source(
        "arrow",
        summary=f"Arrow dataset: {num_rows:,} rows, {count_of(len(names), 'column')}",
        columns=names,
        read=read,
    )


def cut_table(table: Any, start: int) -> Iterator[Rows]:
    """An Arrow table or batch as ``Rows`` of bounded size; ``start`` is the number of rows before it."""
    pa = import_arrow()
    table = plain_table(pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table)
    rows = table.num_rows
    if not rows:
        return
    step = max(1, min(MAX_ROWS, rows, MAX_BYTES * rows // max(table.nbytes, 1)))
    for place in range(0, rows, step):
        part = table.slice(place, step)
        yield Rows(table=part, lines=range(start + place + 1, start + place + part.num_rows + 1))


def plain_table(table: Any) -> Any:
    """A table with the values of dictionary, run-end encoded and extension columns themselves, without metadata."""
    pa = import_arrow()
    names = check_columns(table.column_names)
    columns = []
    for place, name in enumerate(names):
        column = table.column(place)
        with column_errors(name, column.type):
            columns.append(plain_column(column))
    return pa.table(columns, names=names)


def plain_column(column: Any) -> Any:
    """A chunked array with the values themselves; see ``plain_table``.

    Raises:
        ArrowNotImplementedError: the column contains a union without types.
    """
    pa = import_arrow()
    kind = column.type
    if has_union(kind, are_empty=True):  # Arrow ends the process when it looks for nulls in it
        raise pa.ArrowNotImplementedError("a union without types has no values")
    while isinstance(kind, pa.BaseExtensionType):
        shape = tuple(getattr(kind, "shape", ()))
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
        if isinstance(kind, pa.FixedShapeTensorType) and len(shape) > 1:
            column = pa.chunked_array([_fold(chunk, shape) for chunk in column.chunks], _folded(kind.value_type, shape))
        kind = column.type
    if pa.types.is_dictionary(kind):
        # Not by a cast, which some types of values lack.
        pieces = [
            plain_column(pa.chunked_array([chunk.dictionary])).combine_chunks().take(chunk.indices)
            for chunk in column.chunks
        ]
        return pa.chunked_array(pieces) if pieces else pa.chunked_array([], kind.value_type)
    if pa.types.is_run_end_encoded(kind):
        return pa.chunked_array([pa.compute.run_end_decode(chunk) for chunk in column.chunks], kind.value_type)
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    return column


def has_union(kind: Any, *, are_empty: bool = False) -> bool:
    """Whether an Arrow type is or contains a union; with ``are_empty``, a union without types."""
    types = import_arrow().types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return has_union(kind.value_type, are_empty=are_empty)
    if types.is_union(kind) and not (are_empty and kind.num_fields):
        return True
    inner = [kind.field(place).type for place in range(kind.num_fields)] if types.is_nested(kind) else []
    return any(has_union(one, are_empty=are_empty) for one in inner)


def _folded(kind: Any, shape: Sequence[int]) -> Any:
    for size in reversed(shape):
        kind = import_arrow().list_(kind, size)
    return kind


def _fold(chunk: Any, shape: Sequence[int]) -> Any:
    """Fixed-size lists of all values of a tensor as nested lists of its ``shape``."""
    pa = import_arrow()
    is_null = chunk.is_null() if chunk.null_count else None
    values = chunk.values.slice(chunk.offset * chunk.type.list_size, len(chunk) * chunk.type.list_size)
    for size in reversed(shape[1:]):
        values = pa.FixedSizeListArray.from_arrays(values, size)
    return pa.FixedSizeListArray.from_arrays(values, shape[0], mask=is_null)


class Spool:
    """Tables from an iterator that can be read once, kept in a temporary file so that they can be read again.

    The file is deleted when the spool is, or when the process ends in any way. It is in the folder of the environment
    variable ``TMPDIR``.
    """

    def __init__(self, tables: Iterator[Any], name: str) -> None:
        self._tables: Iterator[Any] | None = tables
        self._name = name
        self._file: BinaryIO | None = None
        self._places: list[int] = []

    def read(self) -> Iterator[Any]:
        """Every table from the first on: those that are kept, then the rest, which are kept as they come."""
        place = 0
        while True:
            if place < len(self._places):
                yield self._load(place)
            elif self._tables is None:
                return
            else:
                table = next(self._tables, None)
                if table is None:
                    self._tables = None
                    return
                self._keep(table)
                yield table
            place += 1

    def _keep(self, table: Any) -> None:
        pa = import_arrow()
        try:
            if self._file is None:
                # Unlinked as soon as it is created, so that a killed process leaves nothing.
                self._file = tempfile.TemporaryFile(prefix="registry-")  # noqa: SIM115
                weakref.finalize(self, self._file.close)
            assert self._file is not None  # noqa: S101 (for mypy)
            place = self._file.seek(0, 2)
            with pa.ipc.new_stream(self._file, table.schema) as writer:
                writer.write(table)
        except OSError as error:
            raise SourceError(
                f"{self._name} can be read only once, and cannot be kept in {tempfile.gettempdir()}: {error}",
                hint="Set TMPDIR to a folder with more space, or pass a function that returns the rows.",
            ) from error
        self._places.append(place)

    def _load(self, place: int) -> Any:
        assert self._file is not None  # noqa: S101 (for mypy)
        self._file.seek(self._places[place])
        return import_arrow().ipc.open_stream(self._file).read_all()
