"""Arrow's PyCapsule interface: DuckDB, polars, pandas and pyarrow take a Reader, a Slice and a Dataset as a table."""

from __future__ import annotations

import datetime as dt
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.framework_samples import FEATURES, wide_reader

import registry
from registry.api import Catalog, Dataset
from registry.errors import UsageError
from registry.features import FeaturesDict, Text
from registry.order import ReadConfig
from registry.reading import Reader

ROWS = pa.table(
    {
        "when": pa.array([dt.datetime(2024, 1, 2, 3, tzinfo=dt.UTC), None], pa.timestamp("ms", "Europe/Berlin")),
        "day": pa.array([dt.date(2024, 1, 2), dt.date(2025, 1, 2)]),
        "note": pa.array([None, "grün"]),
        "kind": pa.array(["cat", "dog"]).dictionary_encode(),
        "boxes": pa.array([[{"x": 1, "tag": "a"}], []]),
        "a": pa.array([1, 2], pa.int8()),
    }
)
WAYS = {
    "pyarrow": lambda given: pa.table(given).to_pylist(),
    "polars": lambda given: pl.DataFrame(given).to_dicts(),
    "pandas": lambda given: pa.Table.from_pandas(pd.DataFrame.from_arrow(given)).to_pylist(),
    "duckdb": lambda given: duckdb.sql("FROM given").to_arrow_table().to_pylist(),  # noqa: ARG005 (DuckDB finds it by its name)
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("tables")
    catalog = registry.connect(f"sqlite:///{folder / 'c.db'}", data_dir=folder / "data", create=True)
    catalog.add({"train": ROWS, "test": ROWS.slice(0, 1)}, "rows", features={"kind": "ClassLabel"}, processes=1)
    return catalog


@pytest.fixture
def dataset(catalog: Catalog) -> Dataset:
    return catalog.dataset("rows")


@pytest.mark.parametrize("way", WAYS)
def test_every_library_takes_a_reader_twice(dataset: Dataset, way: str) -> None:
    reader = dataset.read("train")
    next(iter(reader))  # a table has all rows all the same
    state = reader.state()
    first, again = WAYS[way](reader), WAYS[way](reader)
    assert first == again
    assert reader.state() == state
    assert sorted(row["a"] for row in first) == [1, 2]
    (row,) = [row for row in first if row["a"] == 1]
    assert row["when"] == dt.datetime(2024, 1, 2, 3, tzinfo=dt.UTC)
    assert (row["day"], row["note"], row["kind"]) == (dt.date(2024, 1, 2), None, "cat")
    assert row["boxes"] == [{"tag": "a", "x": 1}]


@pytest.mark.parametrize("way", WAYS)
def test_a_slice_is_a_table_and_a_dataset_has_its_splits_in_order(dataset: Dataset, way: str) -> None:
    parts = [WAYS[way](dataset.slice_of(name)) for name in ("train", "test")]
    assert list(dataset.splits) == ["train", "test"]
    assert WAYS[way](dataset) == parts[0] + parts[1]


def test_columns_have_the_order_and_the_types_of_the_source(dataset: Dataset) -> None:
    table = dataset.read("train").to_arrow()
    assert table.schema.names == ROWS.schema.names
    types = {name: ROWS.schema.field(name).type for name in ROWS.schema.names}
    types["kind"] = pa.dictionary(pa.int8(), pa.string())
    types["boxes"] = pa.list_(pa.struct({"tag": pa.string(), "x": pa.int64()}))
    assert {field.name: field.type for field in table.schema} == types
    assert table.sort_by("a")["note"].to_pylist() == [None, "grün"]
    assert pa.schema(dataset) == table.schema  # by __arrow_c_schema__
    frame, polars = dataset.read("train").to_pandas(), dataset.read("train").to_polars()
    assert list(frame.columns) == polars.columns == table.schema.names
    assert {name: str(frame[name].dtype) for name in ("when", "note", "kind", "a")} == {
        "when": "datetime64[ms, Europe/Berlin]", "note": "str", "kind": "category", "a": "int8",
    }  # fmt: skip
    assert polars.schema["when"] == pl.Datetime("ms", "Europe/Berlin")
    assert dataset.read("train").select("note", "a").to_arrow().schema.names == ["note", "a"]
    names = dataset.read("train").to_arrow(labels="names").schema.field("kind").type
    assert names == pa.string()
    assert dataset.read("train").to_arrow(labels="numbers").schema.field("kind").type == pa.int64()


def test_labels_of_another_form_are_refused(dataset: Dataset) -> None:
    with pytest.raises(UsageError) as refused:
        dataset.read("train").to_arrow(labels="text")  # type: ignore[arg-type]
    assert refused.value.message == "labels must be one of dictionary, names, numbers, not 'text'"


@pytest.mark.parametrize("way", WAYS)
def test_an_error_in_the_middle_is_an_error_of_the_library_with_our_message(way: str, tmp_path: Path) -> None:
    written = wide_reader([4], where=tmp_path, features=FeaturesDict({"key": FEATURES["key"]}))
    reader = Reader(written.readable.with_features(FeaturesDict({"key": Text()})), written.plan)
    errors = (pa.ArrowInvalid, pl.exceptions.PolarsError, duckdb.Error)
    with pytest.raises(errors, match=r"feature 'key': b'\\xff\\x00\\x00' is not UTF-8"):
        WAYS[way](reader)


def test_a_shuffled_reader_gives_its_first_epoch_each_time() -> None:
    reader = wide_reader([9, 4], ReadConfig(shuffle="global", seed=1), features=FeaturesDict({"id": FEATURES["id"]}))
    epoch = [int(example["id"]) for example in islice(reader.reopened(), 13)]
    list(reader)
    assert [pa.table(reader)["id"].to_pylist() for _ in range(2)] == [epoch, epoch]


def test_batches_are_read_while_the_stream_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, done = wide_reader([3000], features=FeaturesDict({"id": FEATURES["id"]})), []
    blocks = Reader.blocks

    def counted(self: Reader) -> Any:
        for block in blocks(self):
            done.append(1)
            yield block

    monkeypatch.setattr(Reader, "blocks", counted)
    stream = pa.RecordBatchReader.from_stream(reader)
    assert not done
    stream.read_next_batch()
    assert len(done) == 1
