"""Files of every format that a version may have, read as data files: the same records, with keys that count them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.shard_samples import WRITERS, write_columns

from registry.errors import RegistryError, ShardMismatchError
from registry.features import FeaturesDict, Tensor, codec_of
from registry.slim.data_files import DataFile
from registry.slim.parallel_reader import parallel_read
from registry.slim.readers import TFRecordReader
from registry.storage import open_store

RECORDS = [b"record %d" % number * (number % 4) for number in range(50)]
FORMATS = [one for one in WRITERS if one != "array_record" or sys.platform == "linux"]


@pytest.mark.parametrize("file_format", FORMATS)
def test_records_of_every_format_are_read_from_any_to_any(tmp_path: Path, file_format: str) -> None:
    store = open_store(tmp_path)
    WRITERS[file_format](store, "f", RECORDS)
    for skip, take in ((0, None), (0, 50), (7, 20), (49, 1), (3, 0), (20, None)):
        options: dict[str, Any] = {"skip": skip, "take": take, "num_records": 50, "file_format": file_format}
        found = list(TFRecordReader(DataFile(store=store, filename="f", path="f", **options)))
        stop = 50 if take is None else skip + take
        assert [record for _, record in found] == RECORDS[skip:stop]
        if file_format != "tfrecord":
            assert [key for key, _ in found] == [b"f:%d" % number for number in range(skip, stop)]


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_file_of_fewer_records_than_promised_is_refused(tmp_path: Path, file_format: str) -> None:
    store = open_store(tmp_path)
    WRITERS[file_format](store, "f", RECORDS)
    file = DataFile(store=store, filename="f", num_records=60, file_format=file_format)
    with pytest.raises(ShardMismatchError, match="expected 60 records"):
        list(TFRecordReader(file))


def test_rows_of_columns_are_read_as_records(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    write_columns(store, "f", [{"n": number} for number in range(20)], pa.schema([pa.field("n", pa.int64())]))
    features = FeaturesDict({"n": Tensor(shape=(), dtype="int64")})
    file = DataFile(
        store=store, filename="f", num_records=20, file_format="parquet_columns", features=features, path="f"
    )
    found = list(parallel_read([file], num_epochs=1, num_readers=2, shuffle=False))
    assert [codec_of(features).decode(record)["n"] for _, record in found] == list(range(20))
    assert found[3][0] == b"f:3"


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_file_of_another_format_has_its_own_error(tmp_path: Path, file_format: str) -> None:
    (tmp_path / "f").write_bytes(b"no file of any format that there is, but longer than a header")
    file = DataFile(store=open_store(tmp_path), filename="f", file_format=file_format)
    with pytest.raises(RegistryError):
        list(TFRecordReader(file))
