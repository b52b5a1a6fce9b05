"""Opens datasets of Hugging Face's ``datasets`` in memory, and reads its descriptions of columns.

Features are described in JSON: in the schema metadata of Arrow and Parquet files, and in ``features`` of a dataset.
They become hints for inference. Files in columns (images, sounds, videos), which are stored as structs of bytes and
path, become their bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from registry.errors import RegistryError, SourceError, UsageError
from registry.features import Audio, Feature
from registry.features.containers import columns_of
from registry.intake.object_tables import (
    FIRST_ROWS,
    check_columns,
    cut_table,
    cut_tables,
    describe_table,
    is_a,
    object_source,
    plain_table,
    read_in_steps,
    require_rows,
)
from registry.intake.source import MAX_BYTES, Rows, Source
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
)
from registry.shards.arrow_values import import_pyarrow

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
    result = {name: node for name, node in described.items() if isinstance(node, dict) and node.get("_type") in KEPT}
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
            table = table.set_column(place, name, _plain(column, described[name], name, read_path))
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


def _has(described: Any, kinds: frozenset[str]) -> bool:
    """Whether a description is of one of ``kinds``, or contains one."""
    if isinstance(described, Mapping):
        kind = described.get("_type")
        if isinstance(kind, str):
            return kind in kinds or _has(described.get("feature"), kinds)
        return any(_has(inner, kinds) for inner in described.values())
    return isinstance(described, list) and any(_has(inner, kinds) for inner in described)


def _adds_length(described: Any, kind: Any) -> bool:
    """Whether a description declares the length of lists whose Arrow type allows any length; other writers do so."""
    types = import_pyarrow().types
    if types.is_struct(kind):
        return any(_adds_length(_field(described, field.name), field.type) for field in kind)
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
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


def _plain(array: Any, described: Any, name: str, read_path: PathReader) -> Any:
    pa = import_pyarrow()
    kind = array.type
    if pa.types.is_struct(kind):
        if isinstance(described, Mapping) and described.get("_type") in _MEDIA and kind.get_field_index("bytes") >= 0:
            return _file_bytes(array, name, read_path)
        fields = [field.name for field in kind]
        values = [
            _plain(pa.compute.struct_field(array, field), _field(described, field), name, read_path) for field in fields
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(values, names=fields, mask=mask)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        if not _has(_item(described), _MEDIA):
            return array
        values = _plain(array.flatten(), _item(described), name, read_path)
        mask = array.is_null() if array.null_count else None
        lengths = pa.compute.list_value_length(array).fill_null(0).to_numpy()
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask)
    return array


def _file_bytes(array: Any, name: str, read_path: PathReader) -> Any:
    """Return the bytes of files. ``read_path`` reads those that are stored as a path."""
    pa = import_pyarrow()
    data = pa.compute.struct_field(array, "bytes")
    if array.type.get_field_index("path") < 0:
        return data
    paths = pa.compute.struct_field(array, "path")
    missing = pa.compute.and_(data.is_null(), paths.is_valid())
    if not pa.compute.any(missing).as_py():
        return data
    values = data.to_pylist()
    for place in np.flatnonzero(missing.to_numpy(zero_copy_only=False)):
        values[place] = read_path(paths[int(place)].as_py(), name)
    return pa.array(values, data.type)


def _first_value(array: Any, names: tuple[str, ...]) -> bytes | None:
    """Return the first file in a column, below its lists and the fields ``names``."""
    pa = import_pyarrow()
    while True:
        kind = array.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            array = array.flatten()
        elif pa.types.is_struct(kind) and names:
            array, names = pa.compute.struct_field(array, names[0]), names[1:]
        else:
            break
    array = array.drop_null()
    value = array[0].as_py() if len(array) else None
    return value if isinstance(value, bytes) else None
