"""Rows of typed columns in memory: the same values from any part of an Arrow table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from registry.features import codec_of
from registry.interop.parquet import describe_parquet
from registry.shards import open_shard
from registry.shards.arrow_schema import features_of_schema
from registry.shards.arrow_values import as_mask, as_numbers, from_numbers, from_texts
from registry.shards.blocks import TableBlock
from registry.storage import open_store

SQUARE = pa.list_(pa.list_(pa.int16(), 2), 2)


@pytest.mark.parametrize("kind", [SQUARE, pa.list_(SQUARE, 2), pa.struct({"x": SQUARE}), pa.list_(SQUARE)], ids=str)
def test_rows_are_taken_from_a_part_of_a_table(kind: pa.DataType) -> None:
    """pyarrow 26 takes wrong numbers from a part of an array of lists of known length in such lists."""
    squares = np.arange(8 * 2 * 4).reshape(8, 2, 2, 2).tolist()
    values = {SQUARE: [one[0] for one in squares], pa.struct({"x": SQUARE}): [{"x": one[0]} for one in squares]}
    rows = values.get(kind, squares)
    table = pa.table({"value": pa.array(rows, kind)})
    features = features_of_schema(table.schema)
    taken = TableBlock(table, features).take(np.arange(3, 7)).take(np.array([2, 0, 0, 3]))
    assert taken.records() == [codec_of(features).encode({"value": rows[3 + place]}) for place in (2, 0, 0, 3)]
    assert taken.table.schema == table.schema


def test_rows_of_views_are_taken_in_any_order(tmp_path: Path) -> None:
    """pyarrow 26 reads columns of string_view back, and takes no rows of them."""
    table = pa.table(
        {
            "text": pa.array(["a", None, "c"], pa.string_view()),
            "lists": pa.array([["a"], [], ["b", "c"]], pa.list_(pa.string_view())),
            "in": pa.array([{"x": b"q"}, {"x": b"r"}, {"x": b"s"}], pa.struct({"x": pa.binary_view()})),
        }
    )
    parquet.write_table(table, tmp_path / "train.parquet")
    store = open_store(tmp_path)
    features = describe_parquet(store, name="views").features
    shard = open_shard(store, "train.parquet", file_format="parquet_columns", features=features)
    rows = shard.read(0, 3).records()
    assert shard.gather(np.array([2, 0, 1, 2])).records() == [rows[place] for place in (2, 0, 1, 2)]


NUMBERS = st.lists(st.none() | st.integers(0, 1), max_size=40)


@given(NUMBERS, st.integers(0, 40), st.sampled_from(["bool", "uint8", "int64", "float16", "float32", "float64"]))
def test_numbers_and_flags_are_converted_as_pyarrow_does(values: list[int | None], start: int, dtype: str) -> None:
    """Slices begin within a byte of flags."""
    valid = np.array([value is not None for value in values], np.bool_)
    filled = np.array([value or 0 for value in values], dtype)
    expected = pa.array(filled, mask=~valid)

    array = from_numbers(filled, ~valid)
    array.validate(full=True)
    assert array.equals(expected)
    assert from_numbers(filled).equals(pa.array(filled))
    assert from_numbers(filled[::-1]).to_pylist() == filled[::-1].tolist()

    back = as_mask(array.slice(start)) if dtype == "bool" else as_numbers(array.slice(start))
    assert (back.dtype, back.tolist()) == (filled.dtype, filled[start:].tolist())
    assert as_mask(array.slice(start).is_valid()).tolist() == valid[start:].tolist()


@given(st.lists(st.text(max_size=4), max_size=5))
def test_texts_are_converted_as_pyarrow_does(texts: list[str]) -> None:
    array = from_texts(texts)
    array.validate(full=True)
    assert array.equals(pa.array(texts, pa.string()))
