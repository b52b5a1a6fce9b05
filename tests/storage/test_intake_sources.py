"""Sources in an object store: a folder and a single object are downloaded, with their digests."""

from __future__ import annotations

import hashlib

import pytest

from registry.errors import NotStoredError
from registry.intake.detect import open_source
from registry.intake.listing import list_files
from registry.storage import open_store

CSV = b"name,size\na,1\n"


def test_a_bucket_is_a_source(bucket: str) -> None:
    store = open_store(f"{bucket}/data")
    for name in ("train/1.csv", "test/1.csv", ".hidden"):
        with store.create(name) as file:
            file.write(CSV)
    source = open_source(f"{bucket}/data")
    assert source.splits == ("train", "test")
    assert [part.name for part in source.parts] == ["train/1.csv", "test/1.csv"]
    assert [rows.table.num_rows for part in source.parts for rows in part.read()] == [1, 1]
    assert [(one.url, one.num_bytes, one.sha256) for one in source.origins] == [
        (f"{bucket}/data/{name}", len(CSV), hashlib.sha256(CSV).hexdigest()) for name in ("test/1.csv", "train/1.csv")
    ]
    assert list_files(f"{bucket}/data/train/1.csv").names == ["1.csv"]
    with pytest.raises(NotStoredError) as caught:
        list_files(f"{bucket}/data/none.csv")
    assert str(caught.value) == f"no files at {bucket}/data/none.csv"
