"""The same records as shard files of every format, for tests that compare them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from array_record.python import array_record_module
from pyarrow import parquet

from registry.features import codec_of
from registry.storage import Store, open_store
from registry.tfrecord import RecordWriter
from support.prepared_samples import ANIMALS, animals, cut_evenly, prepare

ANIMAL_COLUMNS: Final = pa.schema({"name": pa.string(), "kind": pa.int64(), "age": pa.int32()})
"""Typed columns of the features ``ANIMALS``."""


def write_tfrecord(store: Store, name: str, records: Sequence[bytes]) -> None:
    with store.create(name) as file:
        writer = RecordWriter(file)
        for record in records:
            writer.write(record)


def write_array_record(store: Store, name: str, records: Sequence[bytes]) -> None:
    """As TFDS writes it: each record a chunk of its own."""
    path = _path(store, name)
    writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
    for record in records:
        writer.write(record)
    writer.close()


def write_parquet(store: Store, name: str, records: Sequence[bytes], *, group_size: int = 3) -> None:
    """As TFDS writes it, but with few records in each row group."""
    schema = pa.schema([pa.field("data", pa.binary())])
    with parquet.ParquetWriter(_path(store, name), schema=schema) as writer:
        for start in range(0, len(records), group_size):
            batch = pa.record_batch([pa.array(records[start : start + group_size], pa.binary())], schema=schema)
            writer.write_batch(batch)


def write_columns(
    store: Store, name: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema, *, group_size: int = 3
) -> None:
    """Rows in typed columns."""
    table = pa.Table.from_pylist(list(map(dict, rows)), schema=schema)
    parquet.write_table(table, _path(store, name), row_group_size=group_size)


WRITERS: Final[dict[str, Callable[[Store, str, Sequence[bytes]], None]]] = {
    "tfrecord": write_tfrecord,
    "array_record": write_array_record,
    "parquet": write_parquet,
}
"""What writes records, by the format."""


def prepare_as(
    folder: Path, file_format: str, version: str = "1.0.0", *, counts: Mapping[str, int] | None = None, shards: int = 3
) -> Path:
    """``animals`` in files of any format, 50 examples of train or ``counts`` of each split."""
    splits = {name: animals(count) if count else [] for name, count in (counts or {"train": 50}).items()}
    prepare(folder, version, splits, shards=shards)
    if file_format == "tfrecord":
        return folder
    info = json.loads((folder / "dataset_info.json").read_text())
    info["fileFormat"] = file_format
    (folder / "dataset_info.json").write_text(json.dumps(info))
    store = open_store(folder)
    for split, examples in splits.items():
        start = 0
        for index, length in enumerate(cut_evenly(len(examples), shards)):
            (folder / f"animals-{split}.tfrecord-{index:05}-of-{shards:05}").unlink()
            name, rows = f"animals-{split}.{file_format}-{index:05}-of-{shards:05}", examples[start : start + length]
            if file_format == "parquet_columns":
                write_columns(store, name, rows, ANIMAL_COLUMNS)
            elif file_format in WRITERS:
                WRITERS[file_format](store, name, list(map(codec_of(ANIMALS).encode, rows)))
            start += length
    return folder


def assert_same(first: Any, second: Any) -> None:
    """Equal values of equal types, dtypes and shapes, to any depth."""
    assert type(first) is type(second)
    if isinstance(first, dict):
        assert list(first) == list(second)
        for name in first:
            assert_same(first[name], second[name])
    elif isinstance(first, np.ndarray):
        assert (first.dtype, first.shape) == (second.dtype, second.shape)
        if isinstance(first, np.ma.MaskedArray):
            assert (first.mask.shape, first.mask.tolist()) == (second.mask.shape, second.mask.tolist())
            assert_same(first.data, second.data)
        elif first.dtype == object:
            for one, other in zip(first.flat, second.flat, strict=True):
                assert_same(one, other)
        else:
            assert first.tobytes() == second.tobytes()  # NaN equals itself
    elif isinstance(first, np.generic):
        assert (first.dtype, first.tobytes()) == (second.dtype, second.tobytes())
    else:
        assert first == second


def _path(store: Store, name: str) -> Path:
    path = Path(store.locate(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
