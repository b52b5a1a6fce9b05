"""Opens what has typed Arrow columns: files of Parquet and Arrow IPC, and datasets of Hugging Face in memory.

    names -> schema of each file -> Source of one part per file -> row groups or record batches -> Rows

Columns keep their types. Dictionaries and extension types are replaced by their values. Hugging Face describes features
in JSON: in the schema metadata of files, and in ``features`` of a dataset. They become hints for inference. Files in
columns (images, sounds, videos), which it stores as structs of bytes and path, become their bytes.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from registry.errors import RegistryError, SourceError, StorageError, UsageError
from registry.features import Audio, Feature
from registry.features.containers import columns_of
from registry.intake.file_parts import Reader, compare_columns, in_order_of, make_parts
from registry.intake.kinds import KINDS
from registry.intake.object_tables import (
    FIRST_ROWS,
    check_columns,
    cut_table,
    cut_tables,
    describe_table,
    has_union,
    is_a,
    object_source,
    plain_table,
    read_in_steps,
    require_rows,
)
from registry.intake.options import AddOptions
from registry.intake.source import MAX_BYTES, MAX_ROWS, Files, Rows, Source, cut_rows, quote
from registry.intake.value_types import is_list, make_lists
from registry.interop.dataset_card import HUGGING_FACE, KEPT
from registry.model import DatasetMetadata
from registry.model.split import check_split_name
from registry.shards.arrow_schema import (
    declared_length,
    describe_sound,
    describe_sounds,
    described_texts,
    features_of_schema,
    hugging_face_info,
    metadata_of_schema,
)
from registry.shards.arrow_values import as_mask, import_pyarrow
from registry.shards.row_groups import RowGroupShard, ShardFile
from registry.splits import counted
from registry.storage import Store

arrow: Any = import_pyarrow("adding data")
types: Any = arrow.types
compute: Any = arrow.compute

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
    seen: list[tuple[str, Any]] = []
    hints: dict[str, Feature] = {}
    columns: dict[str, Any] = {}  # with the description of each

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
        if added := [column for column in names if column not in columns]:  # other files may lack them
            columns.update((column, described.get(column)) for column in added)
            _check_values(first, name, 0)
            with _named(name):
                hints.update(hints_of(described, _plain(first.select(added), described, name)))
        return partial(_read, files.store, name, in_order_of(seen[0][1].names, names), described, read_tables)

    source = make_parts(files, options, kind, open_file)
    lacks = compare_columns({name: schema.names for name, schema in seen}, options, files)
    num_columns = counted(len(seen[0][1].names), "column")
    summary = f"{counted(len(seen), KINDS[kind].noun)} ({num_columns}){_describe_index(seen[0][1])}"
    metadata = replace(metadata_of_schema(seen[0][1]), custom=kept_features(columns))
    return replace(source, summary=summary, hints=hints, metadata=metadata, may_lack_columns=lacks)


def _describe_index(schema: Any) -> str:
    """Say that the index of a frame is left out, if pandas stored it as a range of numbers in the metadata only."""
    try:
        indices = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))["index_columns"]
        names = [index["name"] for index in indices if isinstance(index, dict) and isinstance(index["name"], str)]
    except (KeyError, TypeError, ValueError, RecursionError):
        return ""
    way = "to make it a column: frame.reset_index().to_parquet(FILE)"
    return f"; the index {quote(names[0])}, a range of numbers in the metadata, is left out; {way}" if names else ""


def _read_parquet(store: Store, name: str) -> Iterator[Any]:
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
                if types.is_nested(column.type):
                    column.validate()  # nbytes follows the offsets of lists; a damaged offset crashes the process
            # Cut before anything is decoded: some programs write one batch with all rows.
            table = arrow.Table.from_batches([batch])
            yield from (rows.table for rows in cut_rows(table, range(table.num_rows)))


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
    """Find the first invalid row of a column by bisection.

    Arrow checks all values of lists and structs for each slice, so a search for all invalid rows would take very long.
    """
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


KIND: Final = "hugging_face"


def open_dataset(given: Any) -> Source | None:
    """Open a ``Dataset`` or ``IterableDataset`` in memory; None if ``given`` is neither.

    Columns are read as Arrow tables. Images and sounds are not decoded, and transforms are not applied.

    Raises:
        SourceError: the dataset has no rows or columns, or reading it fails.
    """
    if is_a(given, "datasets", "Dataset"):
        return _open_dataset(given)
    if is_a(given, "datasets", "IterableDataset"):
        return _open_iterable(given)
    return None


def _open_dataset(dataset: Any) -> Source:
    names = check_columns(dataset.column_names)
    summary = describe_table("Hugging Face Dataset", len(dataset), len(names))
    described = described_features(dataset.features.arrow_schema)
    by_arrow = dataset.with_format("arrow")

    def read(start: int, stop: int) -> Iterator[Rows]:
        return cut_table(with_plain_files(by_arrow[start:stop], described, read_local), start)

    first = next(read(0, 1)).table
    return object_source(
        KIND, summary, names, lambda: read_in_steps(len(dataset), read), **_described(dataset, described, first)
    )


def _open_iterable(dataset: Any) -> Source:
    described = described_features(dataset.features.arrow_schema) if dataset.features is not None else {}
    by_arrow = dataset.with_format("arrow")

    def tables(batch_size: int) -> Iterator[Any]:
        count = 0
        try:
            for table in by_arrow.iter(batch_size=batch_size):
                yield plain_table(with_plain_files(table, described, read_local))
                count += table.num_rows
        except (RegistryError, GeneratorExit):
            raise
        except Exception as error:
            raise SourceError(
                f"the Hugging Face IterableDataset raised {type(error).__name__} after row {count:,}: {error}",
                hint="The traceback shows the line of your code.",
                details={"row": count},
            ) from error

    noun = "Hugging Face IterableDataset"
    first: Any = next(tables(1), None)
    require_rows(noun, first is not None and first.num_rows)
    batch_size = max(1, min(FIRST_ROWS, MAX_BYTES // max(first.nbytes, 1)))
    return object_source(
        KIND,
        describe_table(noun, None, first.num_columns),
        first.column_names,
        lambda: cut_tables(tables(batch_size)),
        may_lack_columns=not described,
        **_described(dataset, described, first),
    )


def _described(dataset: Any, described: Mapping[str, Any], first: Any) -> dict[str, Any]:
    """What a dataset in memory says about itself, as ``object_source`` takes it. ``first`` are the first rows."""
    metadata = DatasetMetadata(**described_texts(vars(dataset.info)), custom=kept_features(described))
    return {"hints": hints_of(described, first), "metadata": metadata, "split": split_name(dataset.split)}


def split_name(split: Any) -> str | None:
    """Return ``split`` if it is the name of a split; ``train+test`` and ``train[:10%]`` are not."""
    try:
        return None if split is None else check_split_name(str(split))
    except UsageError:
        return None


_MEDIA: Final = frozenset({"Image", "Audio", "Video", "Pdf", "Nifti", "Mesh"})
_DEFINED: Final = frozenset({"ClassLabel", "Image", "Audio", "Array2D", "Array3D", "Array4D", "Array5D"})
"""Descriptions that say more than the Arrow type of the column."""

PathReader = Callable[[str, str], bytes]
"""Reads the file at a path in a column; receives the path and the name of the column."""


def described_features(schema: Any) -> Mapping[str, Any]:
    """Return the description of each column in the metadata of a ``pyarrow.Schema``; empty if missing or unreadable."""
    features = hugging_face_info(schema).get("features")
    return features if isinstance(features, dict) else {}


def kept_features(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the custom metadata from which ``to_hf`` restores features that cannot be derived from a column."""
    result = {name: node for name, node in described.items() if _type_of(node) in KEPT}
    return {HUGGING_FACE: result} if result else {}


def hints_of(described: Mapping[str, Any], table: Any) -> dict[str, Feature]:
    """Return the features that the description defines: classes, images, sounds and arrays of known shape.

    Args:
        described: the description of each column.
        table: the first rows, after ``with_plain_files``. They show whether sounds can be decoded; otherwise, sounds
            are stored as bytes. Inference searches all rows for images of other formats, because splits may begin with
            different formats.

    Raises:
        PreparedFormatError: the description contradicts the type of its column.
    """
    names = [
        name
        for name in table.column_names
        if _has(described.get(name), _DEFINED) or _adds_length(described.get(name), table.schema.field(name).type)
    ]
    if not names:
        return {}
    told = {"info": {"features": {name: described[name] for name in names}}}
    schema = table.select(names).schema.with_metadata({"huggingface": json.dumps(told)})
    features, descriptions = describe_sounds(schema)
    sounds: dict[str, Audio] = {}
    for column in columns_of(features):
        if (description := descriptions.get(column.path)) is None:
            continue
        data = _first_value(table.column(column.names[0]).combine_chunks(), column.names[1:])
        if data is not None and (sound := describe_sound(data, description)) is not None:
            sounds[column.path] = sound
    return dict(features_of_schema(schema, sounds=sounds))


def with_plain_files(table: Any, described: Mapping[str, Any], read_path: PathReader) -> Any:
    """Replace every struct of the bytes and the path of a file in ``table`` by the bytes.

    Raises:
        SourceError: a row has a path without bytes, and ``read_path`` refuses the path.
    """
    for place, name in enumerate(table.column_names):
        if _has(described.get(name), _MEDIA):
            column = table.column(name).combine_chunks()
            table = table.set_column(place, name, _plain_nested(column, described[name], name, read_path))
    return table


def read_local(path: str, column: str) -> bytes:
    """Read a local file whose path is in a dataset in memory. Raises SourceError if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SourceError(
            f"column {column!r}: the file {path} cannot be read: {error.strerror}",
            hint="First write the bytes of the files into the column: dataset.map(...)",
        ) from error


def refuse_paths(path: str, column: str) -> bytes:
    """Refuse a path in a stored file, because it could name any file of this machine."""
    raise SourceError(
        f"column {column!r} has the path {path[:200]!r}, but not the bytes of the file",
        hint="Save the dataset again with dataset.save_to_disk(...), which writes the bytes.",
    )


def _type_of(described: Any) -> str | None:
    """The name of the type that a description has, or None if it is malformed or describes the fields of a struct."""
    kind = described.get("_type") if isinstance(described, Mapping) else None
    return kind if isinstance(kind, str) else None


def _has(described: Any, kinds: frozenset[str]) -> bool:
    """Whether a description is of one of ``kinds``, or contains one."""
    if isinstance(described, Mapping):
        if (kind := _type_of(described)) is not None:
            return kind in kinds or _has(described.get("feature"), kinds)
        return any(_has(inner, kinds) for inner in described.values())
    return isinstance(described, list) and any(_has(inner, kinds) for inner in described)


def _adds_length(described: Any, kind: Any) -> bool:
    """Whether a description declares the length of lists whose Arrow type allows any length; other writers do so."""
    if types.is_struct(kind):
        return any(_adds_length(_field(described, field.name), field.type) for field in kind)
    if not is_list(kind):
        return False
    has_length = not types.is_fixed_size_list(kind) and declared_length(described) is not None
    return has_length or _adds_length(_item(described), kind.value_type)


def _item(described: Any) -> Any:
    """The description of the items of a list."""
    if isinstance(described, list):
        return described[0] if described else None
    return described.get("feature") if isinstance(described, Mapping) else None


def _field(described: Any, name: str) -> Any:
    """The description of a field of a struct; a Sequence of a dict is a struct of lists."""
    inner = described.get(name) if isinstance(described, Mapping) else None
    if inner is None and isinstance(described, Mapping) and isinstance(described.get("feature"), Mapping):
        return {**described, "feature": described["feature"].get(name)}
    return inner


def _plain_nested(array: Any, described: Any, name: str, read_path: PathReader) -> Any:
    kind = array.type
    if types.is_struct(kind):
        if _type_of(described) in _MEDIA and kind.get_field_index("bytes") >= 0:
            return _file_bytes(array, name, read_path)
        fields = [field.name for field in kind]
        values = [
            _plain_nested(compute.struct_field(array, field), _field(described, field), name, read_path)
            for field in fields
        ]
        mask = array.is_null() if array.null_count else None
        return arrow.StructArray.from_arrays(values, names=fields, mask=mask)
    if is_list(kind):
        if not _has(_item(described), _MEDIA):
            return array
        values = _plain_nested(array.flatten(), _item(described), name, read_path)
        return make_lists(compute.list_value_length(array).fill_null(0), values, as_mask(array.is_null()))
    return array


def _file_bytes(array: Any, name: str, read_path: PathReader) -> Any:
    """Return the bytes of files. ``read_path`` reads those that are stored as a path."""
    data = compute.struct_field(array, "bytes")
    if array.type.get_field_index("path") < 0:
        return data
    paths = compute.struct_field(array, "path")
    missing = compute.and_(data.is_null(), paths.is_valid())
    if not compute.any(missing).as_py():
        return data
    values = data.to_pylist()
    for place in np.flatnonzero(missing.to_numpy(zero_copy_only=False)):
        values[place] = read_path(paths[int(place)].as_py(), name)
    return arrow.array(values, data.type)


def _first_value(array: Any, names: tuple[str, ...]) -> bytes | None:
    """Return the first file in a column, below its lists and the fields ``names``."""
    while True:
        kind = array.type
        if is_list(kind):
            array = array.flatten()
        elif types.is_struct(kind) and names:
            array, names = compute.struct_field(array, names[0]), names[1:]
        else:
            break
    array = array.drop_null()
    value = array[0].as_py() if len(array) else None
    return value if isinstance(value, bytes) else None
