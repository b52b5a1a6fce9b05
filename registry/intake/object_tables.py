"""Opens tables in memory: frames of pandas and polars, dicts of arrays, and Arrow tables, streams and datasets.

Tables are cut into blocks of Arrow columns. Only columns of Python objects are converted value by value.
``object_source`` makes the ``Source`` of every object.
"""

from __future__ import annotations

import itertools
import math
import sys
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from registry.errors import SourceError, warn
from registry.intake.python_values import Column, ValueConverter, array_column, convert_block
from registry.intake.source import MAX_BYTES, MAX_ROWS, Rows, Source, SourcePart, cut_rows, is_unicode
from registry.intake.value_types import column_errors
from registry.shards.arrow_values import import_pyarrow, plain_array
from registry.splits import counted

arrow: Any = import_pyarrow("adding data")
types: Any = arrow.types
compute: Any = arrow.compute

FIRST_ROWS: Final = 1_024
"""The number of rows from which an opener detects columns of images and the like."""

FEW_ROWS: Final = 16
"""The maximum number of rows of the first block. The size of each block determines the number of rows of the next."""


DEFAULT_SPLIT: Final = "train"
PART: Final = "data"
"""The name of the only part of an object in messages, such as ``data:17``."""


def object_source(
    kind: str,
    summary: str,
    columns: Sequence[str],
    read: Callable[[], Iterator[Rows]],
    *,
    split: str | None = None,
    **facts: Any,
) -> Source:
    """Make the source of a Python object, whose rows belong to a single split.

    Args:
        kind: the kind of the source, such as ``pandas``.
        summary: a description of the object for messages.
        columns: the names of the columns.
        read: reads the object from its beginning.
        split: the split that the object names, or None.
        facts: other attributes of ``Source``, such as ``hints``.
    """
    return Source(
        kind=kind,
        summary=summary,
        parts=[SourcePart(split=split or DEFAULT_SPLIT, name=PART, read=read)],
        columns=() if facts.get("may_lack_columns") else tuple(columns),
        split_reason="the split that the dataset names" if split else "one object without splits",
        **facts,
    )


def describe_table(noun: str, num_rows: int | None, num_columns: int, about: str = "") -> str:
    """The summary of a table. Raises SourceError if it has no rows; None if their number is unknown."""
    require_rows(noun, num_rows is None or num_rows)
    rows = "" if num_rows is None else f"{counted(num_rows, 'row')}, "
    return f"{noun}: {rows}{counted(num_columns, 'column')}{about}"


def require_rows(noun: str, has_rows: object) -> None:
    """Refuse an object without rows. Raises SourceError."""
    if not has_rows:
        raise SourceError(f"the {noun} has no rows", hint="Pass data with at least one row.")


def read_in_steps(num_rows: int, read: Callable[[int, int], Iterator[Rows]]) -> Iterator[Rows]:
    """The rows of a table with random access. The size of the rows before decides how many ``read`` reads at once."""
    start, step = 0, FEW_ROWS
    while start < num_rows:
        stop, num_bytes = min(start + step, num_rows), 0
        for rows in read(start, stop):
            num_bytes += rows.table.nbytes
            yield rows
        start, step = stop, next_step(step, num_bytes // (stop - start))


def check_columns(names: Sequence[Any]) -> tuple[str, ...]:
    """Convert column names to text: numbers become their digits.

    Raises:
        SourceError: there are no columns, a name is neither text nor a number, or two columns have the same name.
    """
    if not names:
        raise SourceError("there are no columns", hint="Pass data with at least one column.")
    result: dict[str, None] = {}
    for name in names:
        if not isinstance(name, (str, int, np.integer)) or isinstance(name, bool):
            raise SourceError(
                f"the name of a column must be text, not {name!r:.60}",
                hint="Rename the columns, for example: frame.columns = ['a', 'b']",
            )
        text = str(name)
        if not is_unicode(text):
            raise SourceError(
                f"the name of a column is not valid Unicode: {text!a:.60}",
                hint="Rename the column. Text that was decoded with surrogateescape has such characters.",
            )
        if text in result:
            raise SourceError(f"two columns are named {text!r}", hint="Rename one of them.")
        result[text] = None
    return tuple(result)


def next_step(step: int, row_bytes: int) -> int:
    """Compute the number of rows of the next block from that of the last block and its size in bytes."""
    return max(1, min(MAX_ROWS, 4 * step, MAX_BYTES // max(row_bytes, 1)))


def is_a(value: Any, module: str, name: str) -> bool:
    """Whether ``value`` is an instance of a class of a module. The module is not imported."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def open_table(given: Any) -> Source | None:
    """Open a columnar object; None if ``given`` is of another type.

    Raises:
        SourceError: the object has no columns or no rows, or a column cannot be stored.
    """
    if is_a(given, "pandas", "DataFrame"):
        return _open_pandas(given)
    if is_a(given, "polars", "DataFrame"):
        return _open_polars(given)
    if is_a(given, "polars", "LazyFrame"):
        raise SourceError(
            "a polars LazyFrame is a query without rows", hint="Run it first: catalog.add(frame.collect(), NAME)"
        )
    for package in ("pandas", "polars"):
        if is_a(given, package, "Series"):
            raise SourceError(f"a {package} Series is one column", hint="Pass a frame: series.to_frame('NAME')")
    return open_arrow(given)


def open_columns(given: Mapping[str, Any]) -> Source:
    """Open a dict of columns: lists, series, and arrays, whose first axis is the rows.

    Raises:
        SourceError: the columns differ in length, are empty, or cannot be stored.
    """
    names = check_columns(list(given))
    lengths = {name: _length_of(name, given[name]) for name in names}
    first = names[0]
    for name, length in lengths.items():
        if length != lengths[first]:
            raise SourceError(
                f"the columns differ in length: {first!r} has {lengths[first]} rows, {name!r} has {length}",
                hint="The first axis of each array must be the rows. For splits, pass {'train': {...}, 'test': {...}}.",
            )
    columns = {name: _column_of(name, given[name]) for name in names}
    return _in_blocks("arrays", f"dict of {counted(len(names), 'array')}", columns, lengths[first])


_FAULTS: Final = (ArithmeticError, LookupError, TypeError, ValueError)
"""The exceptions with which pandas, polars and NumPy refuse a value or a type, in addition to Arrow's."""


def _in_blocks(kind: str, noun: str, columns: Mapping[str, Column], num_rows: int, *, about: str = "") -> Source:
    """The rows of a table with random access, in blocks that adapt to the size of its rows."""
    summary = describe_table(noun, num_rows, len(columns), about)

    def convert(converter: ValueConverter, until: int) -> Iterator[Rows]:
        lines = range(1, num_rows + 1)
        return read_in_steps(
            until, lambda start, stop: convert_block(columns, start, stop, converter, name="", lines=lines)
        )

    converter = ValueConverter()
    for _ in convert(converter, min(FIRST_ROWS, num_rows)):  # detects images, and faults of whole columns
        pass
    read = partial(convert, until=num_rows)
    return object_source(kind, summary, tuple(columns), lambda: read(ValueConverter()), hints=converter.hints())


def _open_pandas(frame: Any) -> Source:
    index = frame.index
    pandas = sys.modules["pandas"]
    names = check_columns(list(frame.columns))
    columns: dict[str, Column] = {}
    about = ""
    # An index without a name usually consists of the row numbers that a filter or a sample left.
    levels = [(name, index.get_level_values(place)) for place, name in enumerate(index.names) if name is not None]
    if len(index) and not levels and not (isinstance(index, pandas.RangeIndex) and index[0] == 0):
        told = f"its index {index[0]!s:.40}..{index[-1]!s:.40}, which has no name, is left out"
        about = f"; {told}"
        if index.dtype.kind not in "iu":
            warn(f"pandas DataFrame: {told}; to make it a column: frame.rename_axis('NAME')")
    for name, values in levels:
        if str(name) in names or str(name) in columns:
            raise SourceError(
                f"the index and a column of the DataFrame are both named {str(name)!r}",
                hint="Drop the index with frame.reset_index(drop=True), or name it: frame.rename_axis('NAME')",
            )
        columns[str(name)] = _pandas_column(str(name), values.to_series())
    if levels:
        told = ", ".join(repr(name) for name in columns)
        about = f"; the index is the column{'s' if len(levels) > 1 else ''} {told}"
    for place, name in enumerate(names):
        columns[name] = _pandas_column(name, frame.iloc[:, place])
    return _in_blocks("pandas", "pandas DataFrame", columns, len(frame), about=about)


def _pandas_column(name: str, series: Any) -> Column:
    """Convert a column of pandas. NaN stays NaN among numbers; among other objects it is null, as in pandas."""
    dtype = series.dtype
    if str(dtype) == "object":
        has_floats = _has_numbers(series)

        def objects(start: int, stop: int, converter: ValueConverter) -> Any:
            values = series.iloc[start:stop].tolist()
            if not has_floats:
                values = [None if type(value) is float and math.isnan(value) else value for value in values]
            return converter.convert(values, range(start, stop), name)

        return objects
    if type(dtype).__name__ == "SparseDtype":
        with column_errors(name, dtype, *_FAULTS), np.errstate(invalid="raise"):  # NaN between integers
            dense = series.sparse.to_dense()
        return _pandas_column(name, dense)
    if type(dtype).__name__ in ("PeriodDtype", "IntervalDtype"):
        raise SourceError(
            f"column {name!r}: values of the dtype {dtype} cannot be stored",
            hint=f"Convert the column, e.g. frame[{name!r}].astype(str)",
        )

    # With from_pandas=True, Arrow would turn NaN into null.
    return _arrow_column(name, dtype, lambda start, stop: arrow.array(series.iloc[start:stop], from_pandas=False))


def _arrow_column(name: str, kind: object, take: Callable[[int, int], Any], *more: type[BaseException]) -> Column:
    """Return a column whose rows ``take`` returns as an Arrow array. It may raise ``_FAULTS``, and ``more``."""

    def values(start: int, stop: int, _: ValueConverter) -> Any:
        with column_errors(name, kind, *_FAULTS, *more):
            column = take(start, stop)
            return plain_column(arrow.chunked_array([column]) if isinstance(column, arrow.Array) else column)

    return values


def _has_numbers(series: Any) -> bool:
    """Whether a column of objects contains numbers, so that NaN is a number rather than a missing text."""
    kinds = set(map(type, series.array))
    if not kinds <= {float, int, type(None)}:
        return False
    return int in kinds or any(type(value) is float and not math.isnan(value) for value in series.array)


def _open_polars(frame: Any) -> Source:
    columns = {
        name: _polars_column(name, frame.get_column(own))
        for name, own in zip(check_columns(frame.columns), frame.columns, strict=True)
    }
    return _in_blocks("polars", "polars DataFrame", columns, frame.height)


def _polars_column(name: str, series: Any) -> Column:
    if str(series.dtype).startswith("Object"):
        return lambda start, stop, converter: converter.convert(series[start:stop].to_list(), range(start, stop), name)

    # Polars raises it, which is not an Exception, if an invariant is broken
    panic = sys.modules["polars"].exceptions.PanicException
    return _arrow_column(name, series.dtype, lambda start, stop: series.slice(start, stop - start).to_arrow(), panic)


def _length_of(name: str, values: Any) -> int:
    if isinstance(getattr(values, "shape", None), tuple) and not values.shape:
        raise SourceError(
            f"column {name!r} is a single value, not an array", hint=f"Pass a list for one row: {{{name!r}: [value]}}"
        )
    try:
        len(values[:0])  # a set has a length, but no order
        return len(values)
    except (TypeError, NotImplementedError) as error:
        raise SourceError(
            f"column {name!r}: expected an array or a list, found {type(values).__name__}",
            hint="Pass {'NAME': ARRAY, ...} for columns, or {'train': TABLE, ...} for splits.",
        ) from error


def _column_of(name: str, values: Any) -> Column:
    """Convert an array, a list, or a column of another library."""
    if is_a(values, "pandas", "Series"):
        return _pandas_column(name, values)
    if is_a(values, "polars", "Series"):
        return _polars_column(name, values)
    if isinstance(values, (arrow.Array, arrow.ChunkedArray)):
        return _arrow_column(name, values.type, lambda start, stop: values.slice(start, stop - start))
    if not hasattr(values, "dtype") or str(values.dtype) == "object":
        return lambda start, stop, converter: converter.convert(list(values[start:stop]), range(start, stop), name)

    if 0 in tuple(getattr(values, "shape", ()))[1:]:
        raise SourceError(
            f"column {name!r}: an array of shape {tuple(values.shape)} has no values", hint="Leave the column out."
        )

    def take(start: int, stop: int) -> Any:
        block = values[start:stop]
        if hasattr(block, "detach"):
            block = block.detach().cpu()
        mask = np.ma.getmaskarray(block) if isinstance(block, np.ma.MaskedArray) else None
        if mask is not None and mask.ndim > 1:
            if mask.any():
                raise SourceError(
                    f"column {name!r}: the array of shape {tuple(values.shape)} has masked values, "
                    "but only whole rows can be null",
                    hint="Fill them first: array.filled(0)",
                    details={"column": name},
                )
            mask = None
        return array_column(np.asarray(block), mask=mask)

    return _arrow_column(name, values.dtype, take)


def open_arrow(given: Any) -> Source | None:
    """Open a table, batch, stream or dataset of pyarrow, or another object that exports an Arrow stream.

    Returns None for other objects.

    Raises:
        SourceError: the object has no columns or no rows, or is a single column.
    """
    if not hasattr(given, "__arrow_c_stream__") and not hasattr(given, "__arrow_c_array__"):
        return _open_arrow_dataset(given) if is_a(given, "pyarrow.dataset", "Dataset") else None
    if isinstance(given, (arrow.Array, arrow.ChunkedArray)):
        raise SourceError("an Arrow array is one column", hint="Pass a table: pyarrow.table({'NAME': array})")
    if isinstance(given, arrow.RecordBatch):
        given = arrow.Table.from_batches([given])
    if isinstance(given, arrow.Table):
        plain = plain_table(given)
        summary = describe_table("Arrow table", plain.num_rows, plain.num_columns)
        return object_source("arrow", summary, plain.column_names, lambda: cut_table(plain, 0))
    return _arrow_stream(given)


def _arrow_stream(given: Any) -> Source:
    """Open a stream. It can be read only once, so its batches are kept in a temporary file."""
    kind = type(given)
    stream = given if isinstance(given, arrow.RecordBatchReader) else arrow.RecordBatchReader.from_stream(given)
    spool = Spool(cut_tables(iter(stream)), f"the {kind.__name__}")
    names = check_columns(stream.schema.names)
    require_rows(kind.__name__, next(spool.read(), None))
    noun, about = f"{kind.__module__.partition('.')[0]} {kind.__name__}", ", read once and kept in a temporary file"
    return object_source("arrow", describe_table(noun, None, len(names), about), names, spool.read)


def _open_arrow_dataset(dataset: Any) -> Source:
    names = check_columns(dataset.schema.names)

    def read() -> Iterator[Rows]:
        # Without read-ahead, because Arrow would keep 16 batches of 131,072 rows of 4 files in memory.
        return cut_tables(dataset.to_batches(batch_size=MAX_ROWS, batch_readahead=1, fragment_readahead=1))

    return object_source("arrow", describe_table("Arrow dataset", dataset.count_rows(), len(names)), names, read)


def cut_tables(tables: Iterable[Any]) -> Iterator[Rows]:
    """Cut consecutive Arrow tables or batches into ``Rows`` of bounded size."""
    start = 0
    for table in tables:
        yield from cut_table(table, start)
        start += table.num_rows


def cut_table(table: Any, start: int) -> Iterator[Rows]:
    """Cut an Arrow table or batch into ``Rows`` of bounded size. ``start`` is the number of rows before it."""
    table = plain_table(arrow.Table.from_batches([table]) if isinstance(table, arrow.RecordBatch) else table)
    return cut_rows(table, range(start + 1, start + table.num_rows + 1))


def plain_table(table: Any) -> Any:
    """Decode the dictionary, run-end encoded and extension columns of a table, and remove its metadata."""
    names = check_columns(table.column_names)
    columns = []
    for place, name in enumerate(names):
        column = table.column(place)
        with column_errors(name, column.type):
            columns.append(plain_column(column))
    return arrow.table(columns, names=names)


def plain_column(column: Any) -> Any:
    """Decode a chunked array; see ``plain_table``.

    Raises:
        ArrowNotImplementedError: the column contains a union without types.
    """
    if has_union(column.type, are_empty=True):  # Arrow crashes the process when it searches such a column for nulls
        raise arrow.ArrowNotImplementedError("a union without types has no values")
    return arrow.chunked_array(map(_plain_chunk, column.chunks)) if column.num_chunks else column


def _plain_chunk(array: Any) -> Any:
    shape = tuple(getattr(array.type, "shape", ()))
    if isinstance(array.type, arrow.FixedShapeTensorType) and len(shape) > 1:
        return _fold(array.storage, shape)
    array = plain_array(array)
    if types.is_run_end_encoded(array.type):
        return _plain_chunk(compute.run_end_decode(array))
    if types.is_string_view(array.type):
        return array.cast(arrow.large_string())
    return array.cast(arrow.large_binary()) if types.is_binary_view(array.type) else array


def has_union(kind: Any, *, are_empty: bool = False) -> bool:
    """Whether an Arrow type is or contains a union; with ``are_empty``, a union without types."""
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return has_union(kind.value_type, are_empty=are_empty)
    if types.is_union(kind) and not (are_empty and kind.num_fields):
        return True
    inner = [kind.field(place).type for place in range(kind.num_fields)] if types.is_nested(kind) else []
    return any(has_union(field, are_empty=are_empty) for field in inner)


def _fold(chunk: Any, shape: Sequence[int]) -> Any:
    """Nest the fixed-size lists of all values of a tensor by its ``shape``."""
    is_null = chunk.is_null() if chunk.null_count else None
    values = chunk.values.slice(chunk.offset * chunk.type.list_size, len(chunk) * chunk.type.list_size)
    for size in reversed(shape[1:]):
        values = arrow.FixedSizeListArray.from_arrays(values, size)
    return arrow.FixedSizeListArray.from_arrays(values, shape[0], mask=is_null)


class TableFile:
    """``Rows`` in a temporary file, which is deleted with this object, or when the process ends for any reason.

    The file is in the folder of the environment variable ``TMPDIR``.
    """

    def __init__(self) -> None:
        # Unlinked as soon as it is created, so that a killed process leaves nothing.
        self._file = tempfile.TemporaryFile(prefix="registry-")  # noqa: SIM115
        self._rows: list[tuple[int, Rows]] = []
        weakref.finalize(self, self._file.close)

    def __len__(self) -> int:
        return len(self._rows)

    def write(self, rows: Rows) -> None:
        """Append rows. Raises OSError if the disk is full."""
        place = self._file.seek(0, 2)
        with arrow.ipc.new_stream(self._file, rows.table.schema) as writer:
            writer.write(rows.table)
        lines = rows.lines if isinstance(rows.lines, range) else array("q", rows.lines)
        self._rows.append((place, replace(rows, table=None, lines=lines)))

    def read(self, number: int) -> Rows:
        """Read the rows of a call of ``write``, which are numbered from 0."""
        place, rows = self._rows[number]
        self._file.seek(place)
        return replace(rows, table=arrow.ipc.open_stream(self._file).read_all())


class Spool:
    """The rows of an iterator that can be read only once; a temporary file keeps their tables for later reads."""

    def __init__(self, rows: Iterator[Rows], name: str) -> None:
        self._rows = rows
        self._name = name
        self._file: TableFile | None = None

    def read(self) -> Iterator[Rows]:
        """Yield all rows: first those in the file, then the rest of the iterator, which is added to the file."""
        for number in itertools.count():
            if self._file is not None and number < len(self._file):
                yield self._file.read(number)
            elif (rows := next(self._rows, None)) is not None:
                self._keep(rows)
                yield rows
            else:
                return

    def _keep(self, rows: Rows) -> None:
        try:
            self._file = self._file or TableFile()
            self._file.write(rows)
        except OSError as error:
            raise SourceError(
                f"{self._name} can be read only once, and cannot be kept in {tempfile.gettempdir()}: {error}",
                hint="Set TMPDIR to a folder with more space, or pass a function that returns the rows.",
            ) from error
