"""NumPy, pandas and Arrow get the examples that iterating gives, in its order, in types that the features decide."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.framework_samples import FEATURES, plain, read_twice, stored, wide_reader
from support.levels import examples

from registry.errors import FeatureError, MissingExtraError, UsageError
from registry.features import FeaturesDict, Image, RawFeature, Tensor, Text
from registry.features import Sequence as SequenceOf
from registry.order import ReadConfig
from registry.reading import Reader
from registry.reading.frameworks.arrays import _put

LENGTHS = st.lists(st.integers(0, 30), min_size=1, max_size=4)
CONFIGS = st.sampled_from(
    [
        None,
        ReadConfig(interleave_cycle_length=2, interleave_block_length=3, add_tfds_id=True),
        ReadConfig(shuffle_files=True, shuffle_seed=3, repeat=2),
        ReadConfig(shuffle="global", seed=5, repeat=None),
    ]
)
SHARES = st.sampled_from([(0, 1), (0, 3), (2, 3)])


def first_epoch(reader: Reader) -> list[dict[str, Any]]:
    return list(islice(reader, len(reader)))


def rows_of(columns: Any, place: int) -> Any:
    if isinstance(columns, dict):
        return {name: rows_of(column, place) for name, column in columns.items()}
    return plain(columns[place : place + 1])[0]


def in_tables(value: Any, feature: Any) -> Any:
    """A plain value as a table has it: a Sequence of a dict is a list of dicts."""
    if isinstance(feature, FeaturesDict):
        return {name: in_tables(inner, feature.get(name)) for name, inner in value.items()}
    if isinstance(feature, SequenceOf) and isinstance(feature.feature, FeaturesDict):
        return [in_tables(row, feature.feature) for row in turned(value)]
    return value


def turned(value: dict[str, Any]) -> list[dict[str, Any]]:
    columns = {name: turned(inner) if isinstance(inner, dict) else inner for name, inner in value.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def rows_in_tables(reader: Reader, *, texts: bool = True) -> list[Any]:
    return [in_tables(plain(example, texts=texts), reader.features) for example in first_epoch(reader)]


def flat(value: dict[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, inner in value.items():
        found.update(flat(inner, f"{path}{name}/") if isinstance(inner, dict) else {path + name: inner})
    return found


@settings(deadline=None, max_examples=examples(25))
@given(lengths=LENGTHS, config=CONFIGS, process=SHARES)
def test_numpy_holds_the_examples_that_iterating_yields(
    lengths: list[int], config: ReadConfig, process: tuple[int, int]
) -> None:
    reader = wide_reader(lengths, config, process=process)
    columns = reader.to_numpy()
    assert {len(column) for column in flat(columns).values()} == {len(reader)}
    found = [rows_of(columns, place) for place in range(len(reader))]
    assert [plain(row) for row in found] == [plain(example) for example in first_epoch(reader)]


@settings(deadline=None, max_examples=examples(25))
@given(lengths=LENGTHS, config=CONFIGS, process=SHARES, text=st.sampled_from(["str", "bytes"]))
def test_a_data_frame_holds_the_examples_that_iterating_yields(
    lengths: list[int], config: ReadConfig, process: tuple[int, int], text: Any
) -> None:
    reader = wide_reader(lengths, config, process=process)
    frame = reader.to_pandas(text=text, labels="numbers", decode=True)
    assert [plain(row) for row in frame.to_dict("records")] == rows_in_tables(reader, texts=text == "str")
    assert frame.index.equals(pd.RangeIndex(len(reader)))


@settings(deadline=None, max_examples=examples(25))
@given(
    lengths=LENGTHS,
    config=CONFIGS,
    process=SHARES,
    text=st.sampled_from(["str", "bytes"]),
    size=st.none() | st.integers(1, 50),
)
def test_an_arrow_table_holds_the_examples_that_iterating_yields(
    lengths: list[int], config: ReadConfig, process: tuple[int, int], text: Any, size: int | None
) -> None:
    reader = wide_reader(lengths, config, process=process)
    table = reader.to_arrow(text=text, batch_size=size, labels="numbers", decode=True)
    table.validate(full=True)
    assert table.to_pylist() == rows_in_tables(reader, texts=text == "str")
    if size is not None:
        assert [batch.num_rows for batch in table.to_batches()] == [
            min(size, len(reader) - start) for start in range(0, len(reader), size)
        ]


def test_the_arrow_schema_follows_from_the_features_alone() -> None:
    schemas = [
        wide_reader(lengths).to_arrow_batches(labels="numbers", decode=True).schema for lengths in ([0], [1], [7, 5])
    ]
    assert schemas[0] == schemas[1] == schemas[2]
    types = {field.name: str(field.type).replace("element: ", "item: ") for field in schemas[0]}
    assert types["id"] == types["label"] == "int64"
    assert [types[name] for name in ("half", "flag", "u64", "name", "key")] == [
        "halffloat", "bool", "uint64", "string", "binary",
    ]  # fmt: skip
    assert schemas[0].field("image").type == pa.list_(pa.list_(pa.list_(pa.uint8(), 1), 3), 2)
    assert schemas[0].field("picture").type == pa.list_(pa.list_(pa.list_(pa.uint8(), 3)))
    assert schemas[0].field("mat").type == pa.list_(pa.list_(pa.float32()), 2)
    assert schemas[0].field("three").type == pa.list_(pa.int32(), 3)
    assert schemas[0].field("deep").type == pa.list_(pa.list_(pa.list_(pa.int64())))
    boxes = {"box": pa.list_(pa.float32(), 4), "tag": pa.string(), "inside": pa.struct({"n": pa.uint8()})}
    assert schemas[0].field("boxes").type == pa.list_(pa.struct(boxes))
    stored = wide_reader([3]).to_arrow_batches().schema
    assert stored.field("image").type == pa.struct({"bytes": pa.binary(), "path": pa.string()})
    assert stored.field("label").type == pa.dictionary(pa.int8(), pa.string())
    assert wide_reader([3]).to_arrow_batches(labels="names").schema.field("label").type == pa.string()
    bytes_schema = wide_reader([3]).to_arrow_batches(text="bytes").schema
    assert (bytes_schema.field("name").type, bytes_schema.field("key").type) == (pa.binary(), pa.binary())


def test_missing_values_are_null() -> None:
    features = FeaturesDict({name: FEATURES[name] for name in ("id", "maybe", "corners")})
    reader = wide_reader([5, 4], features=features)
    table = reader.to_arrow()
    table.validate(full=True)
    assert table.schema.field("maybe").type == pa.int32()
    assert table.schema.field("corners").type == pa.list_(pa.int8(), 2)
    assert table.to_pylist() == [plain(example) for example in first_epoch(reader)]
    assert [row["maybe"] is None for row in table.to_pylist()] == [row["id"] % 3 != 0 for row in table.to_pylist()]
    frame = reader.to_pandas()
    assert [plain(row) for row in frame.to_dict("records")] == table.to_pylist()
    assert wide_reader([0], features=features).to_arrow().schema == table.schema


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_nan_is_a_value_and_not_missing(dtype: str) -> None:
    features = FeaturesDict({"x": Tensor(shape=(), dtype=dtype, encoding="bytes", optional=True)})
    reader = stored([{"x": value} for value in (math.nan, None, 0.5)], features)
    assert [example["x"] is None for example in reader] == [False, True, False]
    (batch,) = reader.batches(3)
    assert batch["x"].mask.tolist() == [False, True, False]
    assert np.isnan(batch["x"].data.astype(np.float64)).tolist() == [True, True, False]  # below the mask, too
    assert reader.to_arrow()["x"].is_null().to_pylist() == [False, True, False]
    column = reader.to_pandas()["x"]
    assert str(column.dtype) == ("Float64" if dtype == "float64" else "Float32")
    assert column.isna().tolist() == [False, True, False]
    assert (math.isnan(column[0]), column[2]) == (True, 0.5)


def test_empty_tensors_keep_their_known_sizes_in_a_data_frame_wherever_they_are() -> None:
    features = FeaturesDict(
        {"x": Tensor(shape=(None, 2), dtype="int16"), "y": Tensor(shape=(None, None), dtype="int16", encoding="bytes")}
    )
    shapes = [((0, 2), (0, 3)), ((3, 2), (2, 5)), ((0, 2), (0, 3))]
    frame = stored([{"x": np.ones(x, np.int16), "y": np.ones(y, np.int16)} for x, y in shapes], features).to_pandas()
    assert [cell.shape for cell in frame["x"]] == [(0, 2), (3, 2), (0, 2)]
    # A table does not have the second size of an empty tensor, and it is not that of the next one
    assert [cell.shape for cell in frame["y"]] == [(0, 0), (2, 5), (0, 0)]


def test_a_feature_of_an_unknown_kind_is_in_no_table() -> None:
    written = wide_reader([5, 4], features=FeaturesDict({"id": FEATURES["id"], "place": FEATURES["place"]}))
    own = RawFeature(class_name="my.Own", node={"pythonClassName": "my.Own"})
    features = FeaturesDict({"id": own, "place": {"x": "float64", "far": own}})
    reader = Reader(written.readable.with_features(features), written.plan)
    assert reader.to_arrow().to_pylist() == [{"place": {"x": n / 4}} for n in range(9)]
    assert reader.to_pandas().to_dict("records") == [{"place": {"x": n / 4}} for n in range(9)]
    assert [plain(row) for row in reader.to_numpy()["id"]] == [[n] for n in range(9)]


def test_the_columns_of_a_data_frame_keep_their_dtypes() -> None:
    for lengths in ([0], [6]):
        frame = wide_reader(lengths).to_pandas()
        numbers = ["id", "half", "flag", "u8", "u16", "u32", "u64"]
        assert [str(frame[name].dtype) for name in numbers] == [
            "int64", "float16", "bool", "uint8", "uint16", "uint32", "uint64",
        ]  # fmt: skip
        assert frame["name"].dtype == pd.Series(["x"], dtype="str").dtype
        assert {frame[name].dtype for name in ("key", "image", "words", "deep", "place")} == {np.dtype(object)}


def test_exporting_keeps_the_place_of_the_reader() -> None:
    reader = wide_reader([9, 4], ReadConfig(shuffle_files=True, shuffle_seed=1))
    iteration = iter(reader)
    head = [next(iteration)["id"] for _ in range(5)]
    state = reader.state()
    reader.to_numpy(), reader.to_pandas(), reader.to_arrow()
    assert reader.state() == state
    assert sorted([*head, *(example["id"] for example in iteration)]) == list(range(13))


@pytest.mark.parametrize("way", ["to_pandas", "to_arrow"])
def test_invalid_utf8_is_named_and_refused(way: str, tmp_path: Path) -> None:
    written = wide_reader([4], where=tmp_path, features=FeaturesDict({"key": FEATURES["key"]}))
    reader = Reader(written.readable.with_features(FeaturesDict({"key": Text()})), written.plan)
    with pytest.raises(FeatureError) as refused:
        getattr(reader, way)()
    assert str(refused.value) == "feature 'key': b'\\xff\\x00\\x00' is not UTF-8: invalid start byte at byte 0"
    assert refused.value.hint == 'Pass text="bytes" to get it as it is stored.'
    assert len(getattr(reader, way)(text="bytes")) == 4
    with pytest.raises(UsageError, match=r'^text must be "str" or "bytes", not .utf8.(?m:$)'):
        getattr(reader, way)(text="utf8")


@pytest.mark.parametrize(
    ("package", "extra", "call"),
    [
        ("pandas", "pandas", "to_pandas()"),
        ("pyarrow", "arrow", "to_arrow()"),
        ("torch", "torch", "to_torch()"),
        ("tensorflow", "tensorflow", "to_tf_dataset()"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    package: str, extra: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("registry.reading.frameworks.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    reader = wide_reader([3])
    with pytest.raises(MissingExtraError) as refused:
        getattr(reader, call.removesuffix("()"))()
    assert str(refused.value) == f"a read into {package} needs the package {package!r}, which is not installed"
    assert refused.value.hint == f"Install it with: pip install 'shardbook[{extra}]'"


def test_importing_and_reading_load_no_framework() -> None:
    packages = ("pandas", "pyarrow", "torch", "grain", "tensorflow")
    script = f"import registry.reading, registry, sys\nprint([name for name in {packages} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("config", "process"),
    [
        (ReadConfig(shuffle_files=True), (0, 1)),
        (ReadConfig(shuffle="global"), (0, 1)),
        (ReadConfig(shuffle="global", seed=7), (1, 2)),
    ],
)
def test_a_reader_goes_to_another_process_with_its_seed_and_its_place(
    config: ReadConfig, process: tuple[int, int], tmp_path: Path
) -> None:
    features = FeaturesDict({"id": "int64"})
    reader = wide_reader([20, 7, 1], config, where=tmp_path, features=features, process=process)
    list(islice(reader, 5))
    copy = pickle.loads(pickle.dumps(reader))  # noqa: S301 (made here)
    assert (copy.state(), copy.read_config, copy.process) == (reader.state(), reader.read_config, reader.process)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as elsewhere:
        found = elsewhere.submit(read_twice, reader).result(timeout=600)
    assert found == read_twice(reader)


def test_a_reader_with_a_lambda_cannot_be_pickled() -> None:
    reader = wide_reader([2, 2], ReadConfig(interleave_sort_fn=lambda files: files[::-1]))
    with pytest.raises(UsageError) as refused:
        pickle.dumps(reader)
    name = "test_a_reader_with_a_lambda_cannot_be_pickled.<locals>.<lambda>"
    assert str(refused.value) == f"a reader with interleave_sort_fn {name} cannot be sent to another process"
    assert refused.value.hint == "Define that function with def, at the top level of a module."


@given(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=8), cut=st.integers(1, 8))
@settings(deadline=None, max_examples=examples(30))
def test_shapes_that_change_from_block_to_block_are_kept(sizes: list[int], cut: int) -> None:
    rows = [np.full((size, 2), place) for place, size in enumerate(sizes)]
    column, done = np.empty(0), 0
    for start in range(0, len(rows), cut):
        part = rows[start : start + cut]
        same = len({row.shape for row in part}) == 1
        added = np.stack(part) if same else np.fromiter(part, object, len(part))
        column = _put(column, added, done, len(rows))
        done += len(part)
    assert plain(column) == plain(rows)


def test_many_blocks_make_one_array() -> None:
    features = FeaturesDict({"id": "int64", "any": SequenceOf("int16"), "image": Image(shape=(2, 3, 1))})
    reader = wide_reader([500, 0, 300], features=features)
    assert len(list(reader.reopened().blocks())) > 2
    columns = reader.to_numpy()
    assert columns["id"].tolist() == [int(example["id"]) for example in reader]
    assert columns["image"].shape == (800, 2, 3, 1)
