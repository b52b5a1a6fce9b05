"""The same records as shard files of every format, for tests that hold them against each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from array_record.python import array_record_module
from pyarrow import parquet

from registry.storage import Store
from registry.tfrecord import RecordWriter


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
