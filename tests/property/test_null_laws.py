"""Exactly the nulls of a Parquet file are null in every reading tool."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from support.arrow_strategies import LEAVES, values_of
from support.levels import examples
from support.shard_samples import assert_same

from registry.cli.read import jsonable
from registry.features.dtypes import lowest_value
from registry.interop.parquet import describe_parquet
from registry.reading import Reader, make_readable, readable_folder
from registry.splits import resolve
from registry.storage import open_store

TIMES: Final = (pa.timestamp("us"), pa.date32(), pa.time64("us"), pa.duration("us"))
KINDS: Final = st.one_of(LEAVES, st.sampled_from(TIMES))
PATHS: Final = ("one", "in/two", "in/deep/three")


def nullable(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type and nulls; NaN is a value, and no null."""
    if kind in TIMES:
        return st.none() | st.integers(0, 10_000)
    if pa.types.is_floating(kind):
        odd = st.sampled_from([math.nan, math.inf, float(np.finfo(kind.to_pandas_dtype()).min)])
        return st.none() | (odd.map(np.float16) if kind == pa.float16() else odd) | values_of(kind)
    return st.none() | values_of(kind)


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[pa.DataType], list[list[Any]]]:
    """A type for each of ``PATHS``, and values of as many rows."""
    kinds = [draw(KINDS) for _ in PATHS]
    few = [draw(st.lists(nullable(kind), min_size=1, max_size=6)) for kind in kinds]
    num_rows = draw(st.sampled_from([1, 2, 5, 40]))
    chance = draw(st.randoms(use_true_random=False))
    return kinds, [chance.choices(some, k=num_rows) for some in few]


def arrow_array(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if kind in TIMES:
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    return pa.array(values, kind)


def table_of(kinds: list[pa.DataType], values: list[list[Any]]) -> pa.Table:
    one, two, three = map(arrow_array, kinds, values)
    # An array of structs of its own, as NumPy and Arrow disagree about the types of Python's values.
    deep = pa.StructArray.from_arrays([three], ["three"])
    return pa.table({"one": one, "in": pa.StructArray.from_arrays([two, deep], ["two", "deep"])})


@contextmanager
def reader_of(table: pa.Table, *, row_group_size: int) -> Iterator[Reader]:
    """The reader of a Parquet file of ``table``, by the schema that a catalog would keep."""
    with tempfile.TemporaryDirectory() as folder:
        parquet.write_table(table, Path(folder) / "train.parquet", row_group_size=row_group_size)
        store = open_store(folder)
        prepared = describe_parquet(store, name="rows")
        version = readable_folder(store, prepared)
        yield Reader(make_readable(version.facts, store), resolve("train", version.facts.layout))


def at(value: Any, path: str) -> Any:
    for name in path.split("/"):
        value = value[name]
    return value


def assert_value(found: Any, given: Any) -> None:
    """A value that was read is the one that was written."""
    if isinstance(given, (str, bytes)):
        assert found == (given.encode() if isinstance(given, str) else given)
    elif isinstance(given, float | np.floating) and math.isnan(given):
        assert math.isnan(found)
    else:
        assert found == given


def cells(frame: pd.DataFrame, path: str) -> list[Any]:
    """The values of a column, or of a field of its dicts."""
    name, _, fields = path.partition("/")
    return [at(value, fields) if fields else value for value in frame[name]]


def is_null(value: Any) -> bool:
    return value is pd.NA or value is None or value is pd.NaT


def test_an_integer_beside_a_null_in_a_dict_stays_an_integer_in_pandas() -> None:
    places = [{"x": None}, {"x": 2**53 + 1}]  # no float is this number
    with reader_of(pa.table({"place": places}), row_group_size=2) as reader:
        assert reader.to_pandas()["place"].tolist() == places


@settings(max_examples=examples(60))
@given(drawn=columns(), size=st.integers(1, 7), data=st.data())
def test_nulls_are_null_wherever_they_are_read(
    drawn: tuple[list[pa.DataType], list[list[Any]]], size: int, data: st.DataObject
) -> None:
    kinds, written = drawn
    rows = len(written[0])
    with reader_of(table_of(kinds, written), row_group_size=data.draw(st.integers(1, 50))) as reader:
        examples = list(reader)
        batches = [*reader.batches(size), reader[list(range(rows))], reader.select("one", "in")[:], reader.to_numpy()]
        table, frame = reader.to_arrow(), reader.to_pandas()
        stated = [json.loads(json.dumps(jsonable(example), allow_nan=False)) for example in examples]
        for path, values in zip(PATHS, written, strict=True):
            missing = [value is None for value in values]
            for place, value in enumerate(values):
                for example in (examples[place], reader[place]):
                    found = at(example, path)
                    assert (found is None) == missing[place]
                    if value is not None:
                        assert_value(found, value)
            assert [at(one, path) is None for one in stated] == missing
            filtered = reader.where(f"{path} is None").record_numbers()
            assert filtered["train"].tolist() == np.flatnonzero(missing).tolist()
            masked = [at(batch, path) for batch in batches]
            assert {isinstance(column, np.ma.MaskedArray) for column in masked} == {any(missing)}
            assert len({column.dtype for column in masked}) == 1
            if any(missing):
                reported = [column.mask.tolist() for column in masked]
                assert (
                    list(chain.from_iterable(reported[:-3])) == reported[-3] == reported[-2] == reported[-1] == missing
                )
            for place, value in enumerate(values):
                if value is not None:
                    assert_value(masked[-1][place], value)
            column = table
            for name in path.split("/"):
                column = (
                    column[name]
                    if column is table
                    else pa.chunked_array([chunk.field(name) for chunk in column.chunks], column.type.field(name).type)
                )
            assert column.is_null().to_pylist() == missing
            assert [is_null(value) for value in cells(frame, path)] == missing
            if pa.types.is_temporal(column.type):
                assert column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64()).to_pylist() == values
                continue
            for value, found in zip(values, cells(frame, path), strict=True):
                if value is not None and not isinstance(value, (str, bytes)):
                    assert_value(np.asarray(found, at(reader.features, path).dtype)[()], value)


@settings(max_examples=examples(40))
@given(drawn=columns(), data=st.data())
def test_missing_values_are_read_as_tfds_reads_them(
    drawn: tuple[list[pa.DataType], list[list[Any]]], data: st.DataObject
) -> None:
    """``registry.load`` reads the lowest number of the dtype, in plain arrays, and no null in any tool."""
    kinds, written = drawn
    with reader_of(table_of(kinds, written), row_group_size=data.draw(st.integers(1, 50))) as native:
        reader = native.missing_as_tfds()
        examples, batch = list(reader), reader.to_numpy()
        assert list(reader.records()) == list(native.records())
        table = reader.to_arrow().flatten().flatten()
        # The lowest number is no time of Python, and NaT in NumPy.
        has_times = any(pa.types.is_temporal(column.type) for column in table.columns)
        frame = None if has_times else reader.to_pandas()
        assert not any(column.null_count for column in table.columns)
        for path, values in zip(PATHS, written, strict=True):
            feature = at(reader.features, path)
            lowest = lowest_value(feature.dtype, exact=feature.encoding != "none")
            assert type(at(batch, path)) is np.ndarray
            assert at(batch, path).dtype == feature.dtype
            for place, value in enumerate(values):
                assert_same(at(examples[place], path), at(batch, path)[place])
                if value is None:
                    assert_same(at(examples[place], path), lowest)
                    assert_same(at(reader[place], path), lowest)
                else:
                    assert_value(at(examples[place], path), value)
            assert frame is None or not any(is_null(value) for value in cells(frame, path))
