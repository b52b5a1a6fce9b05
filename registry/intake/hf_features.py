"""Features that Hugging Face's ``datasets`` describes in JSON, as hints for inference.

The description is in ``dataset_info.json``, in the schema metadata of Arrow and Parquet files, and in ``features`` of a
dataset. Files in columns (images, sounds, videos), which are stored as structs of bytes and path, become their bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from registry.errors import SourceError
from registry.features import Audio, Feature, FeaturesDict
from registry.features.containers import columns_of
from registry.intake.object_source import import_arrow
from registry.interop.dataset_card import HUGGING_FACE, KEPT
from registry.shards.arrow_schema import declared_length, describe_sound, features_of_schema

_MEDIA: Final = frozenset({"Image", "Audio", "Video", "Pdf", "Nifti", "Mesh"})
_DEFINED: Final = frozenset({"ClassLabel", "Image", "Audio", "Array2D", "Array3D", "Array4D", "Array5D"})
"""Descriptions that say more than the Arrow type of the column."""

PathReader = Callable[[str, str], bytes]
"""Reads the file at a path in a column; receives the path and the name of the column."""


def described_features(schema: Any) -> Mapping[str, Any]:
    """The description of each column in the metadata of a ``pyarrow.Schema``; empty if it is missing or unreadable."""
    try:
        document = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = document["info"]["features"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def kept_features(described: Mapping[str, Any]) -> dict[str, Any]:
    """The custom metadata of features that a column does not tell, so that ``to_hf`` gives them back."""
    result = {name: node for name, node in described.items() if isinstance(node, dict) and node.get("_type") in KEPT}
    return {HUGGING_FACE: result} if result else {}


def hints_of(described: Mapping[str, Any], table: Any) -> dict[str, Feature]:
    """The features of the columns that the description defines: classes, images, sounds and arrays of known shape.

    Args:
        described: the description of each column.
        table: the first rows, after ``with_plain_files``. They show whether sounds can be decoded; others are stored as
            bytes. Inference looks for images of other formats in all rows: splits may begin with different ones.

    Raises:
        PreparedFormatError: the description contradicts the type of its column.
    """
    pa = import_arrow()
    names = [
        name
        for name in table.column_names
        if _has(described.get(name), _DEFINED) or _adds_length(described.get(name), table.schema.field(name).type)
    ]
    if not names:
        return {}
    told = {"info": {"features": {name: described[name] for name in names}}}
    schema = table.select(names).schema.with_metadata({"huggingface": json.dumps(told)})
    features = features_of_schema(schema)
    sounds: dict[str, Audio] = {}
    for column in columns_of(features):
        description = _inside(described, column.names)
        if description.get("_type") != "Audio":
            continue
        data = _first_value(table.column(column.names[0]).combine_chunks(), column.names[1:])
        if data is not None and (sound := describe_sound(data, description)) is not None:
            sounds[column.path] = sound
    result: FeaturesDict = features_of_schema(pa.schema(schema), sounds=sounds)
    return dict(result)


def with_plain_files(table: Any, described: Mapping[str, Any], read_path: PathReader) -> Any:
    """``table``, with every struct of bytes and path of a file as the bytes.

    Raises:
        SourceError: a row has a path, no bytes, and ``read_path`` refuses it.
    """
    for place, name in enumerate(table.column_names):
        if _has(described.get(name), _MEDIA):
            column = table.column(name).combine_chunks()
            table = table.set_column(place, name, _plain(column, described[name], name, read_path))
    return table


def read_local(path: str, column: str) -> bytes:
    """Read a file of this machine, whose path is in a dataset in memory. Raises SourceError if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SourceError(
            f"column {column!r}: the file {path} cannot be read: {error.strerror}",
            hint="Write the bytes of the files into the column before: dataset.map(...)",
        ) from error


def refuse_paths(path: str, column: str) -> bytes:
    """Refuse a path in a stored file: it could name any file of this machine."""
    raise SourceError(
        f"column {column!r} has the path {path[:200]!r}, and not the bytes of the file",
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
    """Whether a description declares the length of lists whose type allows any, as files of other writers have it."""
    types = import_arrow().types
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


def _inside(described: Mapping[str, Any], names: tuple[str, ...]) -> Mapping[str, Any]:
    """The description of the leaf at ``names``, below its lists."""
    result: Any = described
    for name in names:
        while isinstance(result, list) or (isinstance(result, Mapping) and result.get("_type") in _LISTS):
            result = _item(result)
        result = result.get(name) if isinstance(result, Mapping) else None
    while isinstance(result, list) or (isinstance(result, Mapping) and result.get("_type") in _LISTS):
        result = _item(result)
    return result if isinstance(result, Mapping) else {}


_LISTS: Final = frozenset({"Sequence", "List", "LargeList"})


def _plain(array: Any, described: Any, name: str, read_path: PathReader) -> Any:
    pa = import_arrow()
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
    """The bytes of files; of those that are stored as a path, what ``read_path`` reads."""
    pa = import_arrow()
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
    """The first file in a column, below its lists and the fields ``names``."""
    pa = import_arrow()
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
