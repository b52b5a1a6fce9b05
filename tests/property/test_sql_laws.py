"""The filters of a query give the rows that DuckDB gives for its own table, and skip blocks of kept columns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import registry
from registry.api import Dataset
from registry.reading import split_columns
from registry.reading.column_blocks import KeptColumns

COUNT = 640
DAY = dt.date(2024, 1, 1)


def rows() -> pa.Table:
    """Rows of every kind of column that has bounds, and of some that have none. The number rises with the key."""
    number = np.arange(COUNT)
    real = np.where(number % 50 == 7, np.nan, number / 4)
    real[100:120] = np.nan
    real[COUNT - 1] = np.inf
    level = np.where(number % 16 == 3, np.nan, number // 64)  # equal in each block, except for NaN
    days = [DAY + dt.timedelta(days=int(day)) for day in number // 10]
    times = pa.array(number * 3_600_000_000 + 1_700_000_000_000_000)
    return pa.table(
        {
            "number": number - 100,
            "a'b \"c": (number // 3).astype(np.uint64) + np.uint64(2**63),
            "real": real,
            "level": level,
            "half": (number / 8).astype(np.float16),
            "flag": number > 300,
            "day": pa.array(days, pa.date32()),
            "moment": times.view(pa.timestamp("us", "Europe/Berlin")),
            "plain": times.view(pa.timestamp("us")),
            "clock": pa.array(number * 1000, pa.int32()).view(pa.time32("ms")),
            "optional": pa.array([None if each % 7 == 0 else each for each in number.tolist()]),
            "word": [f"word {each // 100}" for each in number.tolist()],
            "kind": ["cat" if each % 3 else "dog" for each in number.tolist()],
            "place": [{"x": each, "name": f"n{each % 5}"} for each in number.tolist()],
            "tensor": [[each, -each] for each in number.tolist()],
        }
    )


LITERALS = {
    "number": st.integers(-120, COUNT).map(str),
    '"a\'b ""c"': st.integers(2**63 - 3, 2**63 + COUNT // 3).map(str),
    "real": st.sampled_from(["-1", "0.25", "25.1", "30", "100", "'nan'::double", "'inf'::double"]),
    "level": st.sampled_from(["0", "1", "9", "10", "'nan'::double"]),
    "half": st.sampled_from(["0.125", "20", "79.5", "100"]),
    "flag": st.sampled_from(["true", "false"]),
    "day": st.integers(-2, 70).map(lambda days: f"DATE '{DAY + dt.timedelta(days=days)}'"),
    "moment": st.integers(-2, COUNT).map(
        lambda hours: f"TIMESTAMPTZ '{dt.datetime.fromtimestamp(1_700_000_000 + hours * 3600, dt.UTC)}'"
    ),
    "plain": st.integers(-2, COUNT).map(
        lambda hours: f"TIMESTAMP '{dt.datetime.fromtimestamp(1_700_000_000 + hours * 3600, dt.UTC):%Y-%m-%d %H:%M:%S}'"
    ),
    "clock": st.sampled_from(["TIME '00:00:01'", "TIME '00:05:00'", "TIME '23:00:00'"]),
    "optional": st.integers(-2, COUNT).map(str),
    "word": st.sampled_from(["'word 2'", "'word'", "'x'"]),
    "kind": st.sampled_from(["'cat'", "'dog'", "'cow'"]),
    "place.x": st.integers(-2, COUNT).map(str),
    "place.name": st.sampled_from(["'n1'", "'n9'"]),
}


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    """A comparison of a column with literals."""
    name = draw(st.sampled_from(sorted(LITERALS)))
    literal = LITERALS[name]
    form = draw(st.sampled_from(["compare", "compare", "between", "in", "null"]))
    if form == "compare":
        return f"{name} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=']))} {draw(literal)}"
    if form == "between":
        return f"{name} BETWEEN {draw(literal)} AND {draw(literal)}"
    if form == "in":
        return f"{name} IN ({', '.join(draw(st.lists(literal, min_size=1, max_size=3)))})"
    return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"


filters = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("(NOT {})".format, inner),
    ),
    max_leaves=4,
)


@contextmanager
def kept(folder: Path, *, form: str) -> Iterator[Dataset]:
    """A version of ``rows()`` whose columns are kept in small blocks. In place, they have the order of the rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split_columns, "_BLOCK_RECORDS", (16, 64))
        patch.setenv("REGISTRY_CACHE_BYTES", "1GB")
        catalog = registry.connect(folder / "c.db", data_dir=folder / "data", create=True)
        if form == "in place":
            (folder / "source").mkdir()
            pq.write_table(rows(), folder / "source" / "train.parquet")
            catalog.add(folder / "source", "table", in_place=True, processes=1)
        else:
            num_shards = 3 if form == "three shards" else 1
            catalog.add(rows(), "table", features={"kind": "ClassLabel"}, num_shards=num_shards, processes=1)
        dataset = catalog.dataset("table")
        dataset.keep_columns()
        yield dataset
        catalog.close()


@pytest.fixture(scope="module", params=["one shard", "three shards", "in place"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    with kept(tmp_path_factory.mktemp("sql"), form=request.param) as dataset:
        yield dataset


@given(condition=filters, columns=st.sampled_from(["number", "*", "count(*), sum(number)", "real", "place.x, word"]))
@example(condition="number = -37", columns="number")  # in place, the greatest number of the first block
@example(condition="number = -36", columns="number")  # and the least of the second one
@example(condition="day = DATE '2024-01-07' AND number = -36", columns="number")
@example(condition="real > 1", columns="count(*)")
@example(condition="real < 20", columns="number")
@example(condition="number IN (1, 500)", columns="kind")
@example(condition="(NOT real IN (0.25, 100))", columns="count(*)")
@example(condition="(NOT level IN (1, 2))", columns="count(*)")
@example(condition="(NOT level = 1)", columns="count(*)")
@example(condition="(NOT level < 9)", columns="count(*)")
@example(condition="place.x = 3 AND word = 'word 0'", columns="number")
def test_a_filter_gives_the_rows_of_a_table_of_duckdb(dataset: Dataset, condition: str, columns: str) -> None:
    query = f"SELECT {columns} FROM train WHERE {condition}"  # noqa: S608 (of this file)
    own = duckdb.connect(config={"python_enable_replacements": "false"})
    table = dataset.read("train").to_arrow()
    table = table.set_column(table.column_names.index("half"), "half", table["half"].cast(pa.float32()))
    own.register("source", table)
    own.execute("CREATE TABLE train AS SELECT * FROM source")
    try:
        expected = own.sql(query).fetchall()
    except duckdb.Error:
        with pytest.raises((duckdb.Error, registry.RegistryError)):
            dataset.sql(query).fetchall()
        return
    assert repr(dataset.sql(query).fetchall()) == repr(expected)


@pytest.mark.parametrize(
    ("condition", "most"),
    [
        ("number = 3", 64),
        ("number IN (-97, 499)", 128),
        ("number IN (3, 4) OR day IN (DATE '2024-03-04')", 128),
        ("real IN (0.25, 0.5)", 64),
        ("level IN (3, 12)", 64),
        ("day > DATE '2024-03-03'", 64),
        ("real <= 4 AND kind = 'cat'", 64),
        ("real > 10000", 640),  # NaN is greater for DuckDB, so it filters on its own
        ("number > 10000", 0),
    ],
)
def test_blocks_that_no_row_can_pass_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str, most: int
) -> None:
    counts: list[int] = []
    decode = KeptColumns.decode

    def counted(self: KeptColumns, rows: Any, *, copy: bool) -> Any:
        counts.append(rows.stop - rows.start if isinstance(rows, slice) else rows.size)
        return decode(self, rows, copy=copy)

    with kept(tmp_path, form="in place") as dataset:
        monkeypatch.setattr(KeptColumns, "decode", counted)
        dataset.sql(f"SELECT number FROM train WHERE {condition}").fetchall()  # noqa: S608 (of this file)
    assert sum(counts) == most
