"""Rows of typed columns are the examples that their records would be, in any slice, any order, and any batch."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from support.arrow_strategies import SCHEMAS, values_of
from support.levels import examples
from support.reading_samples import readable
from support.shard_samples import assert_same, write_columns, write_tfrecord

from registry.errors import PreparedFormatError
from registry.features import FeaturesDict, Tensor, codec_of, features_from_json, features_to_json
from registry.features.codec import FlatRecords
from registry.interop.parquet import describe_parquet
from registry.model import ShardedFileTemplate, Split
from registry.order import ReadConfig
from registry.reading import Reader
from registry.shards import decode_block
from registry.shards.arrow_schema import features_of_schema
from registry.shards.blocks import TableBlock
from registry.splits import resolve
from registry.statistics.duplicates import RecordDigester
from registry.storage import open_store


def rows_of(data: st.DataObject, schema: pa.Schema, *, most: int) -> list[dict[str, Any]]:
    row = st.fixed_dictionaries({field.name: values_of(field.type) for field in schema})
    return data.draw(st.lists(row, min_size=0, max_size=most))


def features_or_not(schema: pa.Schema) -> FeaturesDict:
    """The features of a schema; of one that our features cannot store, nothing is to be tested."""
    try:
        return features_of_schema(schema)
    except PreparedFormatError:
        assume(False)
        raise


def assert_alike(features: FeaturesDict, table: TableBlock, records: Sequence[bytes], *, copy: bool) -> None:
    """A block of rows decodes to the same examples as the block of their records."""
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    data = np.frombuffer(b"".join(records), np.uint8)
    expected = codec_of(features).decode_block(data, lengths.cumsum() - lengths, lengths)
    found = decode_block(features, table, copy=copy)
    assert len(found) == len(expected) == len(records)
    digester, flat = (
        RecordDigester(features),
        codec_of(features).flat_records(data, lengths.cumsum() - lengths, lengths),
    )
    of_rows = FlatRecords(0, len(records), table.flat_blocks()) if records else flat
    assert digester.digests(of_rows)[0] == digester.digests(flat)[0]
    if copy:
        assert_same(found.columns(), expected.columns())
        for one, other in zip(found.examples(), expected.examples(), strict=True):
            assert_same(one, other)
    else:
        assert len(list(found.examples())) == len(records)


@settings(max_examples=examples(100))
@given(schema=SCHEMAS, data=st.data(), copy=st.booleans())
def test_rows_decode_to_the_same_examples_as_their_records(
    schema: pa.Schema, data: st.DataObject, *, copy: bool
) -> None:
    features = features_or_not(schema)
    rows = rows_of(data, schema, most=20)
    table = pa.Table.from_pylist(rows, schema=schema)
    start = data.draw(st.integers(0, len(rows)))
    block = TableBlock(table.slice(start), features)
    records = [codec_of(features).encode(row) for row in rows[start:]]
    assert block.records() == records
    assert list(map(bytes, block.views())) == records
    assert_alike(features, block, records, copy=copy)
    if records:
        places = np.array(data.draw(st.lists(st.integers(0, len(records) - 1), min_size=1, max_size=30)))
        assert_alike(features, block.take(places), [records[place] for place in places], copy=copy)


@settings(max_examples=examples(40))
@given(schema=SCHEMAS, data=st.data())
def test_a_folder_of_parquet_is_read_like_the_tfrecords_of_its_rows(schema: pa.Schema, data: st.DataObject) -> None:
    features_or_not(schema)
    lengths = data.draw(st.lists(st.integers(0, 8), min_size=1, max_size=3))
    rows = [rows_of(data, schema, most=length) for length in lengths]
    assume(any(rows))
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "rows")
        for index, some in enumerate(rows):
            write_columns(store, f"train-{index:05}-of-{len(rows):05}.parquet", some, schema)
        prepared = describe_parquet(store)
        features = features_from_json(features_to_json(prepared.features))
        (split,) = prepared.splits
        assert tuple(split.shard_lengths) == tuple(map(len, rows))
        other = open_store(Path(folder) / "records")
        files = ShardedFileTemplate(dataset="rows")
        stored = Split(name="train", shard_lengths=split.shard_lengths, files=files)
        for index, some in enumerate(rows):
            write_tfrecord(other, stored.filename(index), list(map(codec_of(features).encode, some)))
        percent = data.draw(st.integers(0, 100))
        config = data.draw(
            st.sampled_from(
                [
                    ReadConfig(interleave_cycle_length=1),
                    ReadConfig(interleave_cycle_length=3, interleave_block_length=2),
                    ReadConfig(shuffle="global", seed=1),
                ]
            )
        )
        ours, theirs = (
            Reader(readable(place, [one], features), resolve(f"train[:{percent}%]", {"train": one}), read_config=config)
            for one, place in ((split, store), (stored, other))
        )
        assert list(ours.records()) == list(theirs.records())
        for one, another in zip(ours, theirs, strict=True):
            assert_same(one, another)
        for one, another in zip(ours.batches(3), theirs.batches(3), strict=True):
            assert_same(one, another)
        for place in range(len(ours)):
            assert_same(ours[place], theirs[place])
        assert_same(ours[::-1], theirs[::-1])


@settings(max_examples=examples(60))
@given(schema=SCHEMAS, data=st.data(), as_tfds=st.booleans(), statistics=st.booleans())
def test_rows_with_nulls_decode_to_the_same_examples_as_their_records(
    schema: pa.Schema, data: st.DataObject, *, as_tfds: bool, statistics: bool
) -> None:
    features_or_not(schema)
    rows = rows_of(data, schema, most=12)
    for field in schema:
        if pa.types.is_struct(field.type) or pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
            continue
        if not pa.types.is_fixed_size_list(field.type):
            for place in data.draw(st.sets(st.integers(0, 11))):
                if place < len(rows):
                    rows[place][field.name] = None
    table = pa.Table.from_pylist(rows, schema=schema)
    with tempfile.TemporaryDirectory() as folder:
        parquet.write_table(table, Path(folder) / "train.parquet", row_group_size=4, write_statistics=statistics)
        features = describe_parquet(open_store(folder), name="rows").features
    for field in schema:
        leaf = features[field.name]
        has_null = any(row[field.name] is None for row in rows)
        assert (isinstance(leaf, Tensor) and leaf.optional) == has_null
    features = features.missing_as_tfds() if as_tfds else features
    block = TableBlock(table, features)
    records = [codec_of(features).encode(row) for row in rows]
    assert block.records() == records
    assert_alike(features, block, records, copy=True)


@given(data=st.data(), place=st.integers(0, 9))
def test_a_null_ends_a_block_after_all_rows_before_it(data: st.DataObject, place: int) -> None:
    kind = data.draw(
        st.sampled_from(
            [
                pa.int32(),
                pa.string(),
                pa.list_(pa.int32()),
                pa.list_(pa.list_(pa.string())),
                pa.struct({"x": pa.int8()}),
            ]
        )
    )
    schema = pa.schema({"id": pa.int64(), "value": kind})
    values = [data.draw(values_of(kind)) for _ in range(10)]
    values[place] = data.draw(st.sampled_from(_with_null(kind)))
    table = pa.table({"id": pa.array(range(10), pa.int64()), "value": pa.array(values, kind)}, schema=schema)
    decoded = TableBlock(table, features_of_schema(schema)).decode()
    assert [int(example["id"]) for example in decoded.sound.examples()] == list(range(place))
    assert decoded.fault.details["record"] == place
    assert decoded.fault.message.endswith(": is null")


def _with_null(kind: pa.DataType) -> list[Any]:
    if pa.types.is_struct(kind):
        return [None, {"x": None}]
    if pa.types.is_list(kind):
        return [None, *([one] for one in _with_null(kind.value_type))]
    return [None]
