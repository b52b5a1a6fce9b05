"""Reads files of typed columns as tables: Parquet, and Arrow IPC as a file (Feather) or a stream.

    names -> schema of each file -> Source of one part per file -> row groups or record batches -> Rows

Columns keep their types. Dictionaries and extension types are replaced by their values. Files in columns, which Hugging
Face stores as structs, are replaced by their bytes. Hugging Face's schema metadata becomes hints.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from registry.errors import RegistryError, SourceError, StorageError
from registry.features import Feature
from registry.intake.file_parts import Reader, make_parts, require_same_columns
from registry.intake.hugging_face import described_features, hints_of, kept_features, refuse_paths, with_plain_files
from registry.intake.kinds import KINDS
from registry.intake.object_tables import check_columns, cut_table, has_union
from registry.intake.options import AddOptions
from registry.intake.source import MAX_BYTES, MAX_ROWS, Files, Rows, Source
from registry.model import DatasetMetadata
from registry.shards.arrow_schema import metadata_of_schema
from registry.shards.arrow_values import import_pyarrow
from registry.shards.row_groups import RowGroupShard, ShardFile
from registry.splits import counted
from registry.storage import Store

_IPC_FILE: Final = b"ARROW1"
_FEATHER_1: Final = b"FEA1"
_FEW_ROWS: Final = 1024
_MANY_ROWS: Final = 8192
_SMALL_ROW: Final = 512
"""Rows of at most this number of bytes are decoded in large batches."""
_HINT: Final = "Get the file again, or write it again."

_Tables: TypeAlias = "Callable[[Store, str], Iterator[Any]]"
"""A function that yields the rows of a stored file in tables; the first is empty and shows the schema."""


def open_parquet(files: Files, options: AddOptions) -> Source:
    """Open Parquet files of typed columns.

    Raises:
        SourceError: a file is damaged, has two columns of the same name, or differs from the first file in its columns
            or types; or no file has a row.
        StorageError: a file cannot be read.
        MissingExtraError: pyarrow is not installed.
    """
    return _open(files, options, "parquet", _read_parquet)


def open_arrow(files: Files, options: AddOptions) -> Source:
    """Open Arrow IPC files and streams, such as those of Feather, polars and Hugging Face.

    Raises:
        SourceError: for the reasons of ``open_parquet``, or because a file has the first version of the Feather format.
        StorageError: a file cannot be read.
        MissingExtraError: pyarrow is not installed.
    """
    return _open(files, options, "arrow", _read_ipc)


def _read(
    store: Store, name: str, columns: Sequence[str], described: Mapping[str, Any], read_tables: _Tables
) -> Generator[Rows, None, None]:
    """Yield all rows of a file. ``described`` is Hugging Face's description of the columns."""
    start = 0
    tables = read_tables(store, name)
    names = next(tables).schema.names
    if sorted(names) != sorted(columns):
        raise SourceError(
            f"{name}: the columns changed while the file was added",
            hint="Wait until the program that writes the file has ended, then try again.",
            details={"file": name, "expected": list(columns), "found": names},
        )
    for table in tables:
        _check_values(table, name, start)
        yield from cut_table(_plain(table.select(columns), described, name), start)
        start += table.num_rows


def _names_inside(fields: Iterable[Any]) -> Iterator[str]:
    """The names of all fields in the types of ``fields``."""
    for field in fields:
        yield field.name
        yield from _names_inside(field.type.field(place) for place in range(field.type.num_fields))


def _open(files: Files, options: AddOptions, kind: str, read_tables: _Tables) -> Source:
    import_pyarrow()
    seen: list[tuple[str, Any]] = []
    hints: dict[str, Feature] = {}
    metadata: list[DatasetMetadata] = []

    def open_file(name: str) -> Reader | None:
        tables = read_tables(files.store, name)
        schema = next(tables).schema
        with _damage_named(name):  # the name of a column or field may not be UTF-8
            names = schema.names
            deque(_names_inside(schema), maxlen=0)
        with _named(name):
            check_columns(names)
        first = next((table for table in tables if table.num_rows), None)
        if first is None:
            return None
        described = described_features(schema)
        seen.append((name, schema))
        if len(seen) == 1:
            _check_values(first, name, 0)
            with _named(name):
                hints.update(hints_of(described, _plain(first, described, name)))
            metadata.append(replace(metadata_of_schema(schema), custom=kept_features(described)))
        else:
            _check_same_schema(seen[0], seen[-1])
        return partial(_read, files.store, name, seen[0][1].names, described, read_tables)

    source = make_parts(files, options, kind, open_file)
    columns = counted(len(seen[0][1].names), "column")
    summary = f"{counted(len(seen), KINDS[kind].noun)} ({columns})"
    return replace(source, summary=summary, hints=hints, metadata=metadata[0])


def _read_parquet(store: Store, name: str) -> Iterator[Any]:
    arrow = import_pyarrow()
    with _damage_named(name):
        shard = RowGroupShard(ShardFile(store, name), make_block=_no_block, columns=None)
        yield arrow.Table.from_batches([], shard.schema)
        names = list(dict.fromkeys(shard.schema.names))
        for group in shard.filled_groups:
            # Few rows at a time if they are large, because a page may store one long value that all its rows repeat.
            about = shard.footer.row_groups[group]
            most = _MANY_ROWS if about.num_bytes <= about.num_rows * _SMALL_ROW else _FEW_ROWS
            waiting: list[Any] = []
            num_rows = num_bytes = 0
            for table in shard.read_tables(group, names, most=most):
                waiting.append(table)
                num_rows += table.num_rows
                num_bytes += table.nbytes
                if num_rows >= MAX_ROWS or num_bytes >= MAX_BYTES:
                    yield arrow.concat_tables(waiting)
                    waiting, num_rows, num_bytes = [], 0, 0
            if waiting:
                yield arrow.concat_tables(waiting)


def _no_block(_: Any) -> Any:
    raise AssertionError("tables are read, not blocks")


def _read_ipc(store: Store, name: str) -> Iterator[Any]:
    arrow = import_pyarrow()
    with store.open(name) as file, _damage_named(name):
        mapping = file.mapping()
        start = file.read(len(_IPC_FILE))
        file.seek(0)
        if start.startswith(_FEATHER_1):
            raise SourceError(
                f"{name}: the first version of Feather cannot be read",
                hint="Write it as an Arrow file: pyarrow.feather.write_feather(pyarrow.feather.read_table(IN), OUT)",
                details={"file": name},
            )
        source = arrow.PythonFile(file, "r") if mapping is None else arrow.BufferReader(arrow.py_buffer(mapping))
        if start == _IPC_FILE:
            opened = arrow.ipc.open_file(source)
            batches = (opened.get_batch(place) for place in range(opened.num_record_batches))
        else:
            opened = arrow.ipc.open_stream(source)
            batches = iter(opened)
        _refuse_unions(name, opened.schema)
        yield arrow.Table.from_batches([], opened.schema)  # Schema.empty_table lacks some types
        for batch in batches:
            for column in batch.columns:
                if arrow.types.is_nested(column.type):
                    column.validate()  # nbytes follows the offsets of lists; a damaged offset crashes the process
            # Cut before anything is decoded: some programs write one batch with all rows.
            table = arrow.Table.from_batches([batch])
            step = max(1, min(MAX_ROWS, MAX_BYTES * table.num_rows // max(1, table.nbytes)))
            for first in range(0, table.num_rows, step):
                yield table.slice(first, step)


def _refuse_unions(name: str, schema: Any) -> None:
    """Refuse unions: Arrow reads outside of its memory in lists of unions."""
    for field in schema:
        if has_union(field.type):
            raise SourceError(
                f"{name}: column {field.name!r}: values of the type {field.type!s:.200} cannot be stored",
                hint="Write the file again without the column, or with a type that is not a union.",
                details={"file": name, "column": field.name, "type": str(field.type)[:200]},
            )


@contextmanager
def _damage_named(name: str) -> Iterator[None]:
    """Convert errors about a damaged file to a SourceError that names the file."""
    arrow = import_pyarrow()
    try:
        yield
    except (SourceError, StorageError):
        raise
    except RegistryError as error:
        reason = error.details.get("reason") or error.message
        raise _damaged(name, reason) from error
    except (arrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise _damaged(name, error) from error


def _damaged(name: str, reason: object) -> SourceError:
    first = str(reason).partition("\n")[0][:300]
    return SourceError(f"{name}: the file is damaged: {first}", hint=_HINT, details={"file": name, "reason": first})


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Add the name of the file to an error of its columns."""
    try:
        yield
    except RegistryError as error:
        message = error.message if error.message.startswith(name) else f"{name}: {error.message}"
        raise SourceError(message, hint=error.hint, details={**error.details, "file": name}) from error


def _plain(table: Any, described: Mapping[str, Any], name: str) -> Any:
    with _named(name):
        return with_plain_files(table, described, refuse_paths)


def _check_values(table: Any, name: str, start: int) -> None:
    """Check that texts are UTF-8, and that values are inside their buffers. pyarrow does not check this on its own."""
    arrow = import_pyarrow()
    try:
        table.validate(full=True)
    except arrow.ArrowInvalid:
        for column in table.column_names:
            try:
                table.column(column).validate(full=True)
            except arrow.ArrowInvalid as error:
                row = _first_bad(table.column(column))
                told = re.sub(r"^(In chunk [0-9]+: |Invalid: )*", "", str(error)).partition("\n")[0]
                reason = "the text is not UTF-8" if "UTF8" in told else f"the file is damaged: {told}"
                raise SourceError(
                    f"{name}: row {start + row + 1}, column {column!r}: {reason}",
                    hint=_HINT,
                    details={"file": name, "row": start + row + 1, "column": column},
                ) from error
        raise


def _first_bad(column: Any) -> int:
    """Find the first invalid row of a column by bisection."""
    arrow = import_pyarrow()
    start, stop = 0, len(column)
    while stop - start > 1:
        middle = (start + stop) // 2
        try:
            column.slice(start, middle - start).validate(full=True)
        except arrow.ArrowInvalid:
            stop = middle
        else:
            start = middle
    return start


def _check_same_schema(first: tuple[str, Any], other: tuple[str, Any]) -> None:
    """Check that two files have the same columns, in any order, of the same types."""
    require_same_columns(first[0], first[1].names, other[0], other[1].names)
    for field in first[1]:
        found = other[1].field(field.name)
        kinds = _comparable(field.type), _comparable(found.type)
        if kinds[0] != kinds[1] and "null" not in kinds:
            raise SourceError(
                f"column {field.name!r} is {field.type} in {first[0]}, and {found.type} in {other[0]}",
                hint=f"Write {other[0]} again with {field.type} in this column.",
                details={
                    "files": [first[0], other[0]],
                    "column": field.name,
                    "types": [str(field.type), str(found.type)],
                },
            )


def _comparable(kind: Any) -> str:
    """Return a type as text that is equal for types with the same values."""
    types = import_pyarrow().types
    while isinstance(kind, import_pyarrow().BaseExtensionType):
        kind = kind.storage_type
    if types.is_dictionary(kind):
        kind = kind.value_type
    return str(kind).replace("large_", "").replace("_view", "").replace(" not null", "")
