"""Opens frames of pandas and polars, and dicts of arrays; Arrow data is opened by ``arrow_objects``.

Their columns are cut into blocks and handed on as Arrow columns; only columns of Python objects are converted value by
value.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from registry.errors import SourceError
from registry.intake.arrow_objects import open_arrow, plain_column
from registry.intake.object_source import (
    FEW_ROWS,
    FIRST_ROWS,
    check_columns,
    count_of,
    import_arrow,
    is_a,
    next_step,
    object_source,
)
from registry.intake.python_values import Column, ValueConverter, array_column, convert_block
from registry.intake.source import Rows, Source
from registry.intake.values import column_errors


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
            "a polars LazyFrame is a query and holds no rows", hint="Run it first: catalog.add(frame.collect(), NAME)"
        )
    for package in ("pandas", "polars"):
        if is_a(given, package, "Series"):
            raise SourceError(f"a {package} Series is one column", hint="Pass a frame: series.to_frame('NAME')")
    return open_arrow(given)


def open_columns(given: Mapping[str, Any]) -> Source:
    """Open a dict of columns: arrays of any number of axes (the first are the rows), lists, and series.

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
                hint="The first axis of each array is the rows. For splits, pass {'train': {...}, 'test': {...}}.",
            )
    columns = {name: _column_of(name, given[name]) for name in names}
    return _in_blocks("arrays", f"dict of {count_of(len(names), 'array')}", columns, lengths[first])


_FAULTS: Final = (ArithmeticError, LookupError, TypeError, ValueError)
"""How pandas, polars and NumPy refuse a value or a type, besides Arrow's exceptions."""


def _in_blocks(kind: str, summary: str, columns: Mapping[str, Column], num_rows: int, *, about: str = "") -> Source:
    """The rows of a table with random access, in blocks that adapt to the size of its rows."""
    if not num_rows:
        raise SourceError(f"the {summary} has no rows", hint="Pass data with at least one row.")

    def convert(converter: ValueConverter, until: int) -> Iterator[Rows]:
        start, step = 0, FEW_ROWS
        while start < until:
            stop = min(start + step, until)
            num_bytes = 0
            for rows in convert_block(columns, start, stop, converter, name="", lines=range(1, num_rows + 1)):
                num_bytes += rows.table.nbytes
                yield rows
            start, step = stop, next_step(step, num_bytes // (stop - start))

    converter = ValueConverter()
    for _ in convert(converter, min(FIRST_ROWS, num_rows)):  # finds images, and faults of whole columns
        pass
    told = f"{summary}: {num_rows:,} row{'s' if num_rows != 1 else ''}, {count_of(len(columns), 'column')}"
    return object_source(
        kind,
        summary=f"{told}{about}",
        columns=tuple(columns),
        read=lambda: convert(ValueConverter(), num_rows),
        hints=converter.hints(),
    )


def _open_pandas(frame: Any) -> Source:
    index = frame.index
    pandas = sys.modules["pandas"]
    names = check_columns(list(frame.columns))
    columns: dict[str, Column] = {}
    about = ""
    if isinstance(index, pandas.MultiIndex):
        levels = [(name or f"level_{place}", index.get_level_values(place)) for place, name in enumerate(index.names)]
    elif index.name is not None or not isinstance(index, pandas.RangeIndex):
        levels = [("index" if index.name is None else index.name, index)]
    else:
        levels = []
        if len(index) and index[0] != 0:
            about = f"; its index {index[0]}..{index[-1]}, which has no name, is left out"
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
    """A column of pandas. NaN stays NaN among numbers; among other objects it is null, as in pandas."""
    pa = import_arrow()
    dtype = series.dtype
    if _is_object(dtype):
        has_floats = _has_numbers(series)

        def objects(start: int, stop: int, converter: ValueConverter) -> Any:
            values = series.iloc[start:stop].tolist()
            if not has_floats:
                values = [None if type(one) is float and math.isnan(one) else one for one in values]
            return converter.convert(values, range(start, stop), name)

        return objects
    if type(dtype).__name__ == "SparseDtype":
        with column_errors(name, dtype, *_FAULTS), np.errstate(invalid="raise"):  # NaN between integers
            dense = series.sparse.to_dense()
        return _pandas_column(name, dense)
    if type(dtype).__name__ in ("PeriodDtype", "IntervalDtype"):
        raise _unstorable(name, dtype, "frame[NAME].astype(str)")

    def values(start: int, stop: int, _: ValueConverter) -> Any:
        with column_errors(name, dtype, *_FAULTS):
            # from_pandas=False: otherwise Arrow turns NaN into null.
            column = pa.array(series.iloc[start:stop], from_pandas=False)
            return plain_column(pa.chunked_array([column]) if isinstance(column, pa.Array) else column)

    return values


def _has_numbers(series: Any) -> bool:
    """Whether a column of objects holds numbers, so that NaN is one of them and does not mean a missing text."""
    kinds = set(map(type, series.array))
    if not kinds <= {float, int, type(None)}:
        return False
    return int in kinds or any(type(one) is float and not math.isnan(one) for one in series.array)


def _is_object(dtype: Any) -> bool:
    return str(dtype) == "object"


def _unstorable(name: str, dtype: Any, conversion: str) -> SourceError:
    told = conversion.replace("NAME", repr(name))
    return SourceError(
        f"column {name!r}: values of the dtype {dtype} cannot be stored", hint=f"Convert the column, e.g. {told}"
    )


def _open_polars(frame: Any) -> Source:
    columns = {
        name: _polars_column(name, frame.get_column(own))
        for name, own in zip(check_columns(frame.columns), frame.columns, strict=True)
    }
    return _in_blocks("polars", "polars DataFrame", columns, frame.height)


def _polars_column(name: str, series: Any) -> Column:
    pa = import_arrow()
    if str(series.dtype).startswith("Object"):
        return lambda start, stop, converter: converter.convert(series[start:stop].to_list(), range(start, stop), name)

    panic = sys.modules["polars"].exceptions.PanicException  # not an Exception: a broken invariant of polars

    def values(start: int, stop: int, _: ValueConverter) -> Any:
        with column_errors(name, series.dtype, panic, *_FAULTS):
            return plain_column(pa.chunked_array([series.slice(start, stop - start).to_arrow()]))

    return values


def _length_of(name: str, values: Any) -> int:
    if isinstance(getattr(values, "shape", None), tuple) and not values.shape:
        raise SourceError(
            f"column {name!r} is a single value, not an array", hint=f"Pass a list for one row: {{{name!r}: [value]}}"
        )
    try:
        len(values[:0])  # a set has a length and no order
        return len(values)
    except (TypeError, NotImplementedError) as error:
        raise SourceError(
            f"column {name!r}: expected an array or a list, found {type(values).__name__}",
            hint="Pass {'NAME': ARRAY, ...} for columns, or {'train': TABLE, ...} for splits.",
        ) from error


def _column_of(name: str, values: Any) -> Column:
    """An array, a list, or a column of another library."""
    pa = import_arrow()
    if is_a(values, "pandas", "Series"):
        return _pandas_column(name, values)
    if is_a(values, "polars", "Series"):
        return _polars_column(name, values)
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        chunked = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
        with column_errors(name, chunked.type):
            plain = plain_column(chunked)
        return lambda start, stop, _: plain.slice(start, stop - start)
    if not hasattr(values, "dtype") or _is_object(values.dtype):
        return lambda start, stop, converter: converter.convert(list(values[start:stop]), range(start, stop), name)

    if 0 in tuple(getattr(values, "shape", ()))[1:]:
        raise SourceError(
            f"column {name!r}: an array of shape {tuple(values.shape)} has no values", hint="Leave the column out."
        )

    def array(start: int, stop: int, _: ValueConverter) -> Any:
        block = values[start:stop]
        if hasattr(block, "detach"):
            block = block.detach().cpu()
        mask = np.ma.getmaskarray(block) if isinstance(block, np.ma.MaskedArray) else None
        if mask is not None and mask.ndim > 1:
            if mask.any():
                raise SourceError(
                    f"column {name!r}: the array of shape {tuple(values.shape)} has masked values, "
                    "and only whole rows can be null",
                    hint="Fill them first: array.filled(0)",
                    details={"column": name},
                )
            mask = None
        with column_errors(name, values.dtype, *_FAULTS):
            return array_column(np.asarray(block), mask=mask)

    return array
