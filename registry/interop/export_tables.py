"""Writes the records of a plan as one file of a table: CSV, JSON lines, Parquet or Arrow IPC.

``TableColumns`` gives record batches, and a function of ``WRITERS`` writes them to an open file as they are read, so
that memory is bounded.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet

from registry.display import TimeType, moment_text
from registry.reading.frameworks.table_columns import decode_text

_MOST_ROWS: Final = 100_000
_MOST_BYTES: Final = 32 * 2**20
"""Sizes at which a row group of Parquet, or a record batch of an Arrow file, ends."""

_MOST_LINES: Final = 1_000
_GZIP_LEVEL: Final = 6

Batches = Iterable[pa.RecordBatch]


def write_csv(batches: Batches, schema: pa.Schema, file: BinaryIO) -> None:
    """Write CSV with a header: numbers as Python prints them, texts in quotes, nulls as empty cells without quotes.

    Arrow's own writer prints 1.0 as 1, and 1e-05 as 0.00001.

    Raises:
        FeatureError: a value of bytes is not UTF-8.
    """
    file.write(b",".join(b'"%b"' % name.encode().replace(b'"', b'""') for name in schema.names) + b"\n")
    for batch in batches:
        for start in range(0, batch.num_rows, _MOST_ROWS):
            part = batch.slice(start, _MOST_ROWS)
            columns = [_csv_column(column, name) for column, name in zip(part.columns, part.schema.names, strict=True)]
            ends = pa.repeat("\n", part.num_rows)
            lines = pc.binary_join_element_wise(
                *columns[:-1],
                pc.binary_join_element_wise(columns[-1], ends, "", null_handling="replace"),
                ",",
                null_handling="replace",
            )
            file.write(memoryview(lines.buffers()[2])[: pc.sum(pc.binary_length(lines)).as_py()])


def _csv_column(column: pa.Array, name: str) -> pa.Array:
    """The values of a column as the cells of a CSV; null is null."""
    if pa.types.is_binary(column.type):
        column = decode_text(column, name, hint="Export jsonl, where such a value is {'base64': ...}, or parquet.")
    if pa.types.is_string(column.type):
        return pc.binary_join_element_wise('"', pc.replace_substring(column, '"', '""'), '"', "")
    if pa.types.is_floating(column.type):
        return float_texts(column)
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return column.cast(pa.string())
    # Only SQL gives other types here.
    values = [None if value is None else json_value(value) for value in plain_values(column)]
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    return _csv_column(pa.array(texts, pa.string()), name)


def float_texts(floats: pa.Array) -> pa.Array:
    """The shortest texts that read as the same floats, as Python prints them: 1.0, 1e-05, inf, nan; null is null.

    >>> float_texts(pa.array([1.0, 0.00001, 0.1, None])).to_pylist()
    ['1.0', '1e-05', '0.1', None]
    """
    floats = floats.cast(pa.float32()) if pa.types.is_float16(floats.type) else floats
    texts = floats.cast(pa.string())
    values = floats.fill_null(1.0).to_numpy(zero_copy_only=False)
    sizes = np.abs(values)
    with np.errstate(invalid="ignore"):  # NaN
        whole = pa.array((sizes < 1e10) & (np.rint(values) == values))
    if pc.any(whole).as_py():
        texts = pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts)
    if ((sizes < 1e-6) & (sizes > 0)).any():
        texts = pc.replace_substring_regex(texts, r"e-(\d)$", r"e-0\1")
    # Here, Arrow has an exponent and Python has none, or the other way round.
    others = ((sizes >= 1e-6) & (sizes < 1e-4)) | ((sizes >= 1e10) & (sizes < 1e16))
    if not others.any():
        return texts
    # The digits of a float32 are those that Arrow prints: as a float64, 0.1 has more.
    mask = pa.array(others)
    rest = values[others].tolist() if values.itemsize == 8 else map(float, texts.filter(mask).to_pylist())
    return pc.replace_with_mask(texts, mask, pa.array(list(map(repr, rest)), pa.string()))


def write_jsonl(batches: Batches, schema: pa.Schema, file: BinaryIO) -> None:  # noqa: ARG001 - as every writer
    """Write one JSON object on each line, with the values of ``plain_rows``."""
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(", ", ": "), default=_other_value).encode
    for batch in batches:
        for start in range(0, batch.num_rows, _MOST_LINES):
            lines = map(encode, plain_rows(batch.slice(start, _MOST_LINES)))
            file.write("".join(f"{line}\n" for line in lines).encode())


def write_parquet(batches: Batches, schema: pa.Schema, file: BinaryIO) -> None:
    """Write Parquet with row groups of up to 100,000 rows and some 32 MiB."""
    with pa.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in _gather(batches, schema):
            writer.write_table(table, row_group_size=max(table.num_rows, 1))


def write_arrow(batches: Batches, schema: pa.Schema, file: BinaryIO) -> None:
    """Write Arrow IPC's file format, which tools can map into memory."""
    with pa.ipc.new_file(file, schema) as writer:
        for table in _gather(batches, schema):
            writer.write_table(table)


def write_stream(batches: Batches, schema: pa.Schema, file: BinaryIO) -> None:
    """Write Arrow IPC's streaming format, which Hugging Face's software maps into memory."""
    with pa.ipc.new_stream(file, schema) as writer:
        for table in _gather(batches, schema):
            writer.write_table(table)


WRITERS: Final[dict[str, Callable[[Batches, pa.Schema, BinaryIO], None]]] = {
    "csv": write_csv,
    "jsonl": write_jsonl,
    "parquet": write_parquet,
    "arrow": write_arrow,
}


def _gather(batches: Batches, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of ``batches`` in tables of one chunk."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _MOST_ROWS or size >= _MOST_BYTES:
            yield pa.Table.from_batches(held, schema).combine_chunks()
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held, schema).combine_chunks()


@contextmanager
def compressing(file: BinaryIO, *, gz: bool) -> Iterator[BinaryIO]:
    """``file``, or a file that compresses to it as gzip. The same content gives the same bytes."""
    if not gz:
        yield file
        return
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=_GZIP_LEVEL) as packed:
        yield packed  # type: ignore[misc] # it has the methods of a BinaryIO that writers call


def plain_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows of a batch of ``TableColumns(as_text=True)`` as values that JSON can hold.

    Bytes become text if they are UTF-8, and otherwise {"base64": ...}. NaN and infinities become "nan", "inf" and
    "-inf". A null field of an object in a list is left out. ``registry read`` prints the same values.
    """
    names = batch.schema.names
    columns = [plain_values(column) for column in batch.columns]
    return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def plain_values(array: pa.Array, *, is_in_list: bool = False) -> list[Any]:
    """The values of an array as JSON; see ``plain_rows``."""
    kind = array.type
    values: list[Any]
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        fields = [plain_values(field, is_in_list=is_in_list) for field in array.flatten()]
        values = [dict(zip(names, row, strict=True)) for row in zip(*fields, strict=True)]
        if is_in_list and any(field.null_count for field in array.flatten()):
            values = [{name: value for name, value in row.items() if value is not None} for row in values]
    elif pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        values = _plain_lists(array)
    elif pa.types.is_binary(kind):
        values = [None if value is None else _plain_bytes(value) for value in array.to_pylist()]
    elif pa.types.is_floating(kind):
        values = [_plain_float(value) for value in _numbers(array)]
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        values = _numbers(array)
    else:
        values = array.to_pylist()
    if array.null_count and not pa.types.is_binary(kind):
        return [value if valid else None for value, valid in zip(values, array.is_valid().to_pylist(), strict=True)]
    return values


def _plain_lists(array: pa.Array) -> list[Any]:
    """The lists of an array; empty for null."""
    if pa.types.is_list(array.type):
        offsets = array.offsets.to_numpy()
        values = plain_values(array.values.slice(offsets[0], offsets[-1] - offsets[0]), is_in_list=True)
        return [values[start:stop] for start, stop in pairwise((offsets - offsets[0]).tolist())]
    size = array.type.list_size
    values = plain_values(array.values.slice(array.offset * size, len(array) * size), is_in_list=True)
    return [values[start : start + size] for start in range(0, len(values), size)]


def _numbers(array: pa.Array) -> list[Any]:
    """The numbers of an array, much faster than ``to_pylist``; 0 for null."""
    filled = array.fill_null(pa.scalar(0).cast(array.type)) if array.null_count else array
    numbers: list[Any] = filled.to_numpy(zero_copy_only=False).tolist()
    return numbers


def json_value(value: Any) -> Any:
    """A plain value as JSON, which has no times and decimals."""
    return json.loads(json.dumps(value, default=_other_value))


def _other_value(value: Any) -> Any:
    """A time or duration in ISO 8601, a whole decimal, such as a sum of integers, as an integer, others as text."""
    if isinstance(value, timedelta):
        return moment_text(value // timedelta(microseconds=1), TimeType("duration", "us"), iso=True)
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _plain_float(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _plain_bytes(value: bytes) -> Any:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}
