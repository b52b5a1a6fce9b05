"""A frame that is added comes out equal: pandas, polars, Arrow, Hugging Face. docs/tables.md lists the exceptions."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.levels import EXAMPLES

import registry
from registry.api import Catalog, Dataset

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
TIMES = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2200, 1, 1))  # noqa: DTZ001 (no zone is meant)
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], bool]] = {
    # a column: its type, its values, whether it may be null
    "zeta": (pa.int8(), st.integers(-128, 127), True),
    "big": (pa.uint64(), st.integers(0, 2**64 - 1), False),
    "ratio": (pa.float32(), st.floats(width=32, allow_nan=False), True),
    "real": (pa.float64(), st.floats(allow_nan=False), False),
    "flag": (pa.bool_(), st.booleans(), True),
    "text": (pa.string(), TEXTS, True),
    "blob": (pa.binary(), st.binary(max_size=4), True),
    "day": (pa.date32(), st.dates(dt.date(1900, 1, 1)), True),
    "when": (pa.timestamp("us", "Europe/Berlin"), TIMES, True),
    "local": (pa.timestamp("ms"), TIMES.map(lambda time: time.replace(microsecond=0)), True),
    "span": (pa.duration("us"), st.timedeltas(dt.timedelta(0), dt.timedelta(days=9)), True),
    "list": (pa.list_(pa.int64()), st.lists(st.integers(-9, 9), min_size=1, max_size=3), False),
    "boxes": (
        pa.list_(pa.struct({"tag": pa.string(), "x": pa.int64()})),
        st.lists(st.fixed_dictionaries({"tag": TEXTS, "x": st.integers(0, 9)}), min_size=1, max_size=2),
        False,
    ),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=5, unique=True))
    count = draw(st.integers(1, 4))
    columns = {}
    for name in names:
        kind, values, may_be_null = COLUMNS[name]
        others = st.none() | values if may_be_null else values
        items = [draw(values), *(draw(others) for _ in range(count - 1))]
        columns[name] = pa.array(items, kind)
    return pa.table({**columns, "id": pa.array(range(count))})


def arrow(dataset: Dataset) -> pa.Table:
    return dataset.read("train").to_arrow().sort_by("id").replace_schema_metadata(None)


FRAMES: dict[str, tuple[Callable[[pa.Table], Any], Callable[[Dataset], Any], Callable[[Any, Any], bool]]] = {
    # how a frame is made of a table, how it comes out, and what is equal
    "arrow": (lambda table: table, arrow, lambda given, found: bool(given.equals(found))),
    "polars": (
        pl.DataFrame,
        lambda dataset: dataset.read("train").to_polars().sort("id"),
        lambda given, found: given.schema == found.schema and given.equals(found),
    ),
    "pandas": (
        lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
        lambda dataset: arrow(dataset).to_pandas(types_mapper=pd.ArrowDtype),
        lambda given, found: pd.testing.assert_frame_equal(given, found) is None,
    ),
    "hugging face": (
        datasets.Dataset,
        lambda dataset: dataset.to_hf("train"),
        lambda given, found: (
            given.features == found.features and given.to_list() == sorted(found.to_list(), key=lambda row: row["id"])
        ),
    ),
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("frames")
    return registry.connect(f"sqlite:///{folder / 'c.db'}", data_dir=folder / "data", create=True)


COUNT = itertools.count()


@pytest.mark.parametrize("kind", FRAMES)
@settings(max_examples=max(2, EXAMPLES // 3), deadline=None)
@given(table=tables())
def test_a_frame_comes_out_as_it_went_in(catalog: Catalog, kind: str, table: pa.Table) -> None:
    make, come_out, is_equal = FRAMES[kind]
    frame = make(table)
    dataset = catalog.dataset(catalog.add(frame, f"n{next(COUNT)}", processes=1).reference)
    assert is_equal(frame, come_out(dataset))


def test_numpy_dtypes_of_pandas_come_back(catalog: Catalog, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "z": pd.Series([1, 2], dtype="int16"),
            "real": [0.5, 1.5],
            "flag": [True, False],
            "text": pd.Series(["a", None], dtype="str"),
            "maybe": pd.Series([1, None], dtype="Int64"),
            "when": pd.Series(pd.to_datetime(["2024-01-02", None])).dt.as_unit("us"),
            "id": [0, 1],
        }
    )
    dataset = catalog.dataset(catalog.add(frame, "pandas_frame", processes=1).reference)
    found = dataset.read("train").to_pandas().sort_values("id", ignore_index=True)
    pd.testing.assert_frame_equal(found, frame)
