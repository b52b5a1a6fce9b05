"""``add`` with a data directory in a bucket, from a bucket, and of files that stay in a bucket."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import registry
from registry.errors import NotStoredError, UsageError
from registry.publishing import object_place
from registry.storage import open_store
from registry.storage.names import MARKER_FILE
from registry.tfrecord import RecordWriter
from registry.wire import encode_example

ROWS = [{"a": number} for number in range(10)]


@pytest.fixture
def catalog(bucket: str, tmp_path: Path) -> Iterator[registry.Catalog]:
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as opened:
        yield opened


def put(url: str, name: str, data: bytes) -> None:
    with open_store(url).create(name, overwrite=True) as file:
        file.write(data)


def parquet(*values: int) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"a": values}), out)
    return out.getvalue()


def test_versions_are_added_to_a_bucket_under_the_numbers_of_the_proof(catalog: registry.Catalog, bucket: str) -> None:
    def add(rows: list[dict[str, Any]], **options: Any) -> str:
        report = catalog.add(rows, "x", **options)
        return f"{report.outcome} {report.reference}"

    assert add(ROWS, dry_run=True) == "would_publish x:1.0.0"
    assert open_store(bucket).list() == []
    assert add(ROWS) == "published x:1.0.0"
    assert add(ROWS[::-1]) == "unchanged x:1.0.0"
    assert add(ROWS, num_shards=2) == "published x:1.0.1"
    assert add([{**row, "b": 1} for row in ROWS]) == "published x:1.1.0"
    more = [*ROWS, {"a": 10}]
    assert add(more, dry_run=True) == "would_publish x:2.0.0"
    assert add(more) == "published x:2.0.0"
    assert sorted(int(one["a"]) for one in catalog.dataset("x").read("train")) == list(range(11))
    assert catalog.dataset("x:1.0.1").verify(deep=True).faults == ()
    assert {name.partition("/")[0] for name in open_store(f"{bucket}/data/x").list()} == {
        *("1.0.0", "1.0.1", "1.1.0", "2.0.0")
    }
    assert len(open_store(f"{bucket}/data/x").folders()) == 4, "nothing staged is left"
    assert catalog.reservations.list() == ()


def test_a_source_that_fails_leaves_nothing_in_the_bucket(catalog: registry.Catalog, bucket: str) -> None:
    reads = 0

    def rows() -> Iterator[dict[str, int]]:
        nonlocal reads
        reads += 1
        yield from ({"a": number} for number in range(3000))
        if reads > 2:  # it was opened, and read for its schema
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        catalog.add(rows, "x")
    assert open_store(f"{bucket}/data").list() == []
    assert open_store(f"{bucket}/data").folders("x") == []


def test_the_marker_of_a_run_that_died_after_the_row_is_removed(
    catalog: registry.Catalog, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(object_place.ObjectPlace, "tidy", lambda _: None)
        catalog.add(ROWS, "x")
    place = open_store(f"{bucket}/data/x/1.0.0")
    assert place.exists(MARKER_FILE)
    assert catalog.add(ROWS, "x").outcome == "unchanged"
    assert not place.exists(MARKER_FILE)
    assert len(list(catalog.dataset("x").read("train"))) == 10


def test_files_of_a_bucket_are_copied_with_their_digests(catalog: registry.Catalog, bucket: str) -> None:
    put(f"{bucket}/source", "train.parquet", parquet(1, 2, 3))
    assert str(catalog.add(f"{bucket}/source", "x").reference) == "x:1.0.0"
    assert catalog.add(f"{bucket}/source", "x").outcome == "unchanged"
    assert catalog.dataset("x").metadata.extra["downloadChecksums"] == {
        f"{bucket}/source/train.parquet": {
            "checksum": hashlib.sha256(parquet(1, 2, 3)).hexdigest(),
            "size": len(parquet(1, 2, 3)),
        }
    }
    assert str(catalog.add(f"{bucket}/source/train.parquet").reference) == "source:1.0.0"
    with pytest.raises(NotStoredError, match=f"^no files at {bucket}/none"):
        catalog.add(f"{bucket}/none")


def test_parquet_stays_in_a_bucket(catalog: registry.Catalog, bucket: str) -> None:
    put(f"{bucket}/source", "train.parquet", parquet(1, 2, 3))

    def add(**options: Any) -> str:
        report = catalog.add(f"{bucket}/source", "x", in_place=True, **options)
        return f"{report.outcome} {report.reference}"

    assert add(dry_run=True) == "would_publish x:1.0.0"
    assert add() == "published x:1.0.0"
    assert add() == "unchanged x:1.0.0"
    assert [int(one["a"]) for one in catalog.dataset("x").read("train")] == [1, 2, 3]
    put(f"{bucket}/source", "train.parquet", parquet(1, 2, 3, 4))
    assert add() == "published x:2.0.0"
    assert open_store(f"{bucket}/data").list() == []
    with pytest.raises(NotStoredError, match=r"^no files at .*/none"):
        catalog.add(f"{bucket}/none", "x", in_place=True)
    with pytest.raises(UsageError, match=r"must be in a folder: .*/train\.parquet is a file"):
        catalog.add(f"{bucket}/source/train.parquet", "x", in_place=True)


def test_tfrecords_stay_in_a_bucket(catalog: registry.Catalog, bucket: str) -> None:
    out = io.BytesIO()
    frames = RecordWriter(out)
    for number in range(5):
        frames.write(encode_example({"a": np.array([number])}))
    put(f"{bucket}/source", "train.tfrecord", out.getvalue())
    for outcome in ("published", "unchanged"):
        report = catalog.add(f"{bucket}/source", "x", in_place=True, features={"a": "int64"})
        assert (report.outcome, dict(report.splits)) == (outcome, {"train": 5})
    assert [int(one["a"]) for one in catalog.dataset("x").read("train")] == list(range(5))


def test_adders_of_different_data_at_once_get_numbers_of_their_own(bucket: str, tmp_path: Path) -> None:
    start = Barrier(3)

    def add(number: int) -> str:
        with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as catalog:
            start.wait()
            return str(catalog.add([{"a": number}], "x").reference)

    registry.connect(tmp_path / "catalog.db").close()
    with ThreadPoolExecutor(3) as threads:
        assert sorted(threads.map(add, range(3))) == ["x:1.0.0", "x:2.0.0", "x:3.0.0"]
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as catalog:
        found = {int(next(iter(catalog.dataset(f"x:{n}.0.0").read("train")))["a"]) for n in (1, 2, 3)}
        assert found == {0, 1, 2}
        assert catalog.reservations.list() == ()
