"""Objects of Python as sources: their columns, rows and types, and what is refused."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import io
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow
from support.golden import check_errors, check_texts
from support.intake_files import bare_source

from registry.errors import RegistryWarning, SourceError
from registry.features import Image
from registry.intake import object_tables, objects
from registry.intake.inference import Inference
from registry.intake.objects import open_object
from registry.intake.python_values import ValueConverter
from registry.intake.source import Source

GOLDEN = Path(__file__).with_name("golden")


def opened(given: Any) -> Source:
    source = open_object(given)
    assert source is not None
    return source


def rows_of(given: Any, split: str = "train") -> list[dict[str, Any]]:
    """The rows of a split, read twice with the same result."""
    parts = [part for part in (given if isinstance(given, Source) else opened(given)).parts if part.split == split]
    first, second = ([row for rows in part.read() for row in rows.table.to_pylist()] for part in parts * 2)
    assert repr(first) == repr(second)
    return first


def types_of(given: Any) -> dict[str, str]:
    (part,) = opened(given).parts
    return {field.name: str(field.type) for rows in part.read() for field in rows.table.schema}


def bad_of(given: Any) -> list[str]:
    (part,) = opened(given).parts
    return [str(bad) for rows in part.read() for bad in rows.bad]


def conflict_of(given: Any) -> str:
    """What inference says of a column without a common type."""
    (part,) = opened(given).parts
    inference = Inference(bare_source(), {})
    for rows in part.read():
        assert not rows.bad
        inference.update(part.name, rows)
    with pytest.raises(SourceError) as caught:
        inference.schema()
    return caught.value.message


def test_a_path_is_left_to_the_readers_of_files() -> None:
    assert open_object("data.csv") is None


FRAME = pd.DataFrame({"x": [1, 2], "text": ["a", None]})


def test_a_pandas_frame_gives_its_columns_and_drops_a_default_index() -> None:
    source = opened(FRAME)
    assert (source.kind, source.summary, source.splits) == ("pandas", "pandas DataFrame: 2 rows, 2 columns", ("train",))
    assert rows_of(source) == [{"x": 1, "text": "a"}, {"x": 2, "text": None}]
    (rows,) = source.parts[0].read()
    assert list(rows.lines) == [1, 2]


def test_an_index_with_a_name_becomes_a_column_and_one_without_is_left_out() -> None:
    assert (
        opened(FRAME.set_index("text")).summary == "pandas DataFrame: 2 rows, 2 columns; the index is the column 'text'"
    )
    assert rows_of(FRAME.set_axis([5, 3]).rename_axis("id"))[1] == {"id": 3, "x": 2, "text": None}
    levels = FRAME.set_index([[7, 8], ["p", "q"]])
    assert rows_of(levels.rename_axis(["n", "c"]))[0] == {"n": 7, "c": "p", "x": 1, "text": "a"}
    assert rows_of(levels.rename_axis(["n", None]))[0] == {"n": 7, "x": 1, "text": "a"}
    # Such as the numbers of the rows that a filter left. Labels may be data, so nobody loses them without a warning.
    assert rows_of(FRAME.set_axis([5, 3]))[1] == {"x": 2, "text": None}
    told = "its index p..q, which has no name, is left out; to make it a column: frame.rename_axis('NAME')"
    with pytest.warns(RegistryWarning, match=re.escape(told)):
        assert rows_of(FRAME.set_axis(["p", "q"]))[1] == {"x": 2, "text": None}
    told = "pandas DataFrame: 1 row, 2 columns; its index 1..1, which has no name, is left out"
    assert opened(FRAME.iloc[1:]).summary == told
    with pytest.raises(SourceError) as caught:
        open_object(FRAME.rename_axis("x"))
    assert str(caught.value) == "the index and a column of the DataFrame are both named 'x'"


def test_nan_stays_nan_in_floats_and_null_stays_null() -> None:
    frame = pd.DataFrame(
        {
            "float": [1.5, np.nan],
            "Int64": pd.array([1, None], "Int64"),
            "Float64": pd.array([1.5, None], "Float64"),
            "arrow": pd.array([2**60, None], pd.ArrowDtype(pa.int64())),
            "object": pd.Series(["a", np.nan], dtype=object),
            "numbers": pd.Series([1, np.nan], dtype=object),
            "category": pd.Categorical(["b", None], categories=["c", "b"]),
            "when": pd.to_datetime(["2024-01-01T00:00:00.123456789", None]).tz_localize("Europe/Berlin"),
        }
    )
    first, second = rows_of(frame)
    assert np.isnan(second["float"])
    assert np.isnan(second["numbers"])
    assert {second[name] for name in second if name not in ("float", "numbers")} == {None}
    assert first["category"] == "b"
    kinds = types_of(frame)
    assert kinds["when"] == "timestamp[ns, tz=Europe/Berlin]"
    assert (kinds["Int64"], kinds["arrow"], kinds["numbers"]) == ("int64", "int64", "double")


def test_mixed_objects_name_row_and_column() -> None:
    frame = pd.DataFrame({"x": pd.Series([1, 2, "three", 4], dtype=object)})
    assert conflict_of(frame) == 'column "x": it is int64 at data:1, and text at data:3'
    assert rows_of(frame) == [{"x": 1}, {"x": 2}, {"x": "three"}, {"x": 4}]
    (part,) = opened(frame).parts
    assert [line for rows in part.read() for line in rows.lines] == [1, 2, 3, 4]


class Broken:
    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("boom")


UNUSABLE: list[Any] = [
    *(pd.DataFrame({"x": []}), pd.DataFrame(index=[1]), pd.DataFrame([[1, 2]], columns=["a", "a"])),
    *(pd.DataFrame([[1]], columns=[("a", "b")]), pd.DataFrame({"x": [1j]}), pd.Series([1]), pa.array([1])),
    *(pa.table({"x": pa.array([], pa.int8())}), np.zeros(3), 7, [], iter([]), {}, [1, 2], ["a.csv"]),
    *(
        {"x": [1], "y": [1, 2]},
        {"x": [1], "y": 5},
        {"train": [], "test": [{"x": 1}]},
        {"x": np.zeros((2, 0))},
        Broken(),
    ),
    *({"x": np.array(5)}, {"x": np.array([1j])}, {"x": []}, {"train": FRAME, "label": np.zeros(2)}),
    *({"train": FRAME, "test": FRAME[["x"]]}, {"train": FRAME, "test": FRAME[:0]}, {"a b": FRAME}, lambda: 5),
]


def test_unusable_objects_are_refused() -> None:
    check_errors(GOLDEN / "intake_objects.txt", (partial(open_object, given) for given in UNUSABLE))
    with pytest.raises(SourceError) as caught:  # the message is that of pyarrow
        open_object(pd.DataFrame({"p": pd.period_range("2024", periods=1)}))
    assert caught.value.hint


def test_the_hint_for_an_array_of_records_names_its_columns() -> None:
    array = np.array([(1, "a"), (2, "b")], [("x", "i4"), ("y", "U1")])
    with pytest.raises(SourceError) as caught:
        open_object(array)
    assert caught.value.hint == (
        "Pass its columns: catalog.add({name: array[name] for name in array.dtype.names}, NAME)"
    )
    assert rows_of({name: array[name] for name in array.dtype.names}) == [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]


def test_arrow_tables_batches_streams_and_datasets_give_the_same_rows() -> None:
    table = pa.table({"x": [1, None], "c": pa.array(["a", "b"]).dictionary_encode(), "v": pa.array([[1], []])})
    want = table.to_pylist()
    (batch,) = table.to_batches()
    for one in (table, batch, table.to_reader(), pads.dataset(table)):
        assert rows_of(one) == want
    assert types_of(table)["c"] == "string"
    assert opened(table.to_reader()).summary == (
        "pyarrow RecordBatchReader: 3 columns, read once and kept in a temporary file"
    )


def test_extension_types_become_their_values() -> None:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12, dtype="int16").reshape(2, 2, 3))
    assert rows_of(pa.table({"t": tensors}).slice(1)) == [{"t": [[6, 7, 8], [9, 10, 11]]}]
    views = pa.table({"s": pa.array(["a"], pa.string_view()), "r": pa.RunEndEncodedArray.from_arrays([1], [5])})
    assert rows_of(views) == [{"s": "a", "r": 5}]
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], ["a", None])
    coded = pa.DictionaryArray.from_arrays(pa.array([1, 0, 2, None]), runs)
    assert rows_of(pa.table({"c": coded})) == [{"c": "a"}, {"c": "a"}, {"c": None}, {"c": None}]


def test_polars_frames_are_read() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"x": [1, None], "c": pl.Series(["a", "b"], dtype=pl.Categorical)})
    assert rows_of(frame) == [{"x": 1, "c": "a"}, {"x": None, "c": "b"}]
    assert opened(frame).summary == "polars DataFrame: 2 rows, 2 columns"
    with pytest.raises(SourceError) as caught:
        open_object(frame.lazy())
    assert str(caught.value) == "a polars LazyFrame is a query without rows"


def test_the_first_axis_of_arrays_is_the_rows_and_the_others_are_fixed_sizes() -> None:
    given = {"image": np.arange(24, dtype=np.uint8).reshape(2, 3, 4), "label": [0, 1], "name": np.array(["a", "b"])}
    assert types_of(given) == {
        "image": "fixed_size_list<item: fixed_size_list<item: uint8>[4]>[3]", "label": "int64", "name": "string"
    }  # fmt: skip
    assert [row["image"] for row in rows_of(given)] == given["image"].tolist()


def test_arrays_of_other_byte_orders_units_and_strides_keep_their_values() -> None:
    given = {
        "big": np.array([1, 2], ">i4"),
        "hours": np.array([1, 2], "datetime64[h]"),
        "months": np.array(["2024-01", "2024-02"], "datetime64[M]"),
        "strided": np.arange(12, dtype=np.float32).reshape(3, 2, 2).transpose(1, 0, 2),
        "masked": np.ma.array([1, 2], mask=[False, True]),
    }
    first, second = rows_of(given)
    assert (second["big"], second["hours"]) == (2, dt.datetime(1970, 1, 1, 2))  # noqa: DTZ001 (no zone is meant)
    assert (second["months"], second["masked"]) == (dt.date(2024, 2, 1), None)
    assert first["strided"] == given["strided"][0].tolist()


def test_a_list_of_dicts_next_to_an_array_is_a_column() -> None:
    assert rows_of({"box": [{"a": 1}, {"b": 2}], "x": np.array([1, 2])}) == [
        {"box": {"a": 1, "b": None}, "x": 1}, {"box": {"a": None, "b": 2}, "x": 2}
    ]  # fmt: skip


ROWS = [{"x": 1, "t": "a"}, {"x": 2, "t": None}, {"x": 3, "t": "c"}]


@pytest.mark.parametrize(
    ("make", "summary"),
    [
        (lambda: ROWS, "list of 3 rows"),
        (lambda: iter(ROWS), "list_iterator; read once and kept in a temporary file"),
        (lambda: (row for row in ROWS), "generator; read once and kept in a temporary file"),
        (lambda: lambda: iter(ROWS), "function <lambda>"),
        (dict(enumerate(ROWS)).values, "dict_values"),
    ],
)
def test_iterables_of_dicts_are_read_any_number_of_times(make: Callable[[], Any], summary: str) -> None:
    source = opened(make())
    assert source.summary == summary
    assert rows_of(source) == ROWS
    assert rows_of(source) == ROWS


def test_a_read_of_a_generator_that_stops_half_way_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "FIRST_ROWS", 2)
    (part,) = opened({"x": i} for i in range(100)).parts
    assert next(part.read()).table.num_rows == 2
    assert [row["x"] for rows in part.read() for row in rows.table.to_pylist()] == list(range(100))


def test_keys_may_appear_late() -> None:
    source = opened([{"a": 1}, {"b": 2}])
    assert source.may_lack_columns
    assert rows_of(source) == [{"a": 1, "b": None}, {"a": None, "b": 2}]


class Pair(NamedTuple):
    left: int
    right: str


@dataclasses.dataclass
class Point:
    x: int


def test_rows_may_be_tuples_named_tuples_and_dataclasses() -> None:
    assert rows_of([(1, "a")]) == [{"input": 1, "label": "a"}]
    assert opened([(1, "a")]).summary == "list of 1 row; tuples become the columns 'input', 'label'"
    assert rows_of([(1, 2, 3)]) == [{"0": 1, "1": 2, "2": 3}]
    assert rows_of([Pair(1, "a")]) == [{"left": 1, "right": "a"}]
    assert rows_of([Point(1), Point(2)]) == [{"x": 1}, {"x": 2}]
    assert bad_of([(1, 2), (1, 2, 3)]) == ["data:2: expected a tuple of 2 values, as in row 1, found tuple"]


class MapStyle:
    classes = ("cat", "dog")

    def __len__(self) -> int:
        return 2

    def __getitem__(self, place: int) -> tuple[Any, int]:
        return np.full((2, 2), place, np.uint8), place


def test_map_style_datasets_are_read_by_position_with_their_class_names() -> None:
    source = opened(MapStyle())
    assert source.summary == "MapStyle of 2 rows; tuples become the columns 'input', 'label'"
    assert rows_of(source)[1] == {"input": [[1, 1], [1, 1]], "label": 1}
    assert [feature.names for feature in source.hints.values()] == [("cat", "dog")]  # type: ignore[attr-defined]


class TfData:
    element_spec = ()

    def __init__(self, size: int = 2) -> None:
        self.size = size

    def cardinality(self) -> int:
        return self.size

    def as_numpy_iterator(self) -> Iterator[Any]:
        return iter([{"x": np.float32(1.5), "s": b"a"}, {"x": np.float32(2.5), "s": b"b"}])


def test_tf_data_is_read_as_numpy() -> None:
    assert types_of(TfData()) == {"x": "float", "s": "binary"}
    with pytest.raises(SourceError) as caught:
        open_object(TfData(-1))
    assert str(caught.value) == "the tf.data dataset is infinite"


def test_a_dict_of_tables_or_rows_is_splits() -> None:
    source = opened({"train": FRAME, "test": FRAME[["text", "x"]]})
    assert (source.kind, source.splits, source.split_reason) == ("pandas", ("train", "test"), "the keys of the dict")
    assert [sorted(next(iter(part.read())).table.column_names) for part in source.parts] == [["text", "x"]] * 2
    assert opened({"train": ROWS, "test": iter(ROWS)}).splits == ("train", "test")
    assert opened({"train": {"x": [1]}, "test": {"x": [2]}}).kind == "arrays"
    assert opened({"a": FRAME, "b": pa.table({"text": ["a"], "x": [1]}), "c": ROWS}).kind == "objects"


def test_a_dict_of_paths_is_splits(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}_test.csv").write_text(f"x\n{name}\n")
    source = opened({"train": str(tmp_path / "a_test.csv"), "test": tmp_path / "b_test.csv"})
    assert (source.kind, source.splits, source.is_text) == ("csv", ("train", "test"), True)
    assert [rows_of(source, split) for split in source.splits] == [[{"x": "a"}], [{"x": "b"}]]
    assert [use.split for use in source.files] == ["train", "test"]
    with pytest.raises(SourceError) as caught:
        open_object({"train": tmp_path / "a_test.csv", "test": FRAME})
    assert str(caught.value) == (
        "the splits 'train' (csv) and 'test' (pandas) cannot be combined: only one of them consists of untyped text"
    )


def failing() -> Iterator[dict[str, int]]:
    for i in range(5000):
        if i == 3000:
            raise ZeroDivisionError("no luck")
        yield {"x": i}


def test_errors_of_the_caller_name_the_row() -> None:
    (part,) = opened(failing).parts
    with pytest.raises(SourceError) as caught:
        list(part.read())
    assert str(caught.value) == "the function failing raised ZeroDivisionError at row 3,001: no luck"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(SourceError, match="at row 3,001"):
        list(opened(failing()).parts[0].read())


def test_rows_that_change_between_reads_are_noticed() -> None:
    sizes = iter([3, 2])
    (part,) = opened(lambda: [{"x": 1}] * next(sizes)).parts
    with pytest.raises(SourceError) as caught:
        list(part.read())
    assert str(caught.value) == "the function <lambda> yielded 2 rows, but 3 rows in the pass before"


def test_rows_that_are_no_dicts_are_reported() -> None:
    assert bad_of([{"x": 1}, None, {"x": 2}, {}, {5: 1}]) == [
        "data:2: expected a dict, as in row 1, found NoneType",
        "data:4: the dict is empty",
        "data:5: the key 5 is not text",
    ]  # fmt: skip


BERLIN = dt.timezone(dt.timedelta(hours=2))
VALUES = [
    (True, "bool"), (1, "int64"), (2**63, "uint64"), (1.5, "double"), ("a", "string"), (b"a", "binary"),
    (np.int8(1), "int8"), (np.uint64(1), "uint64"), (np.float16(1), "halffloat"), (np.bool_(True), "bool"),
    (dt.datetime(2024, 1, 1), "timestamp[us]"),  # noqa: DTZ001 (no zone is meant)
    (dt.datetime(2024, 1, 1, tzinfo=BERLIN), "timestamp[us, tz=+02:00]"),
    (dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "timestamp[us, tz=UTC]"),
    (pd.Timestamp("2024-01-01T00:00:00.123456789Z"), "timestamp[ns, tz=UTC]"),
    (dt.date(2024, 1, 1), "date32[day]"), (dt.time(1, 2), "time64[us]"), (dt.timedelta(1), "duration[us]"),
    (np.datetime64("2024-01-01T00:00", "s"), "timestamp[s]"), (np.timedelta64(5, "ms"), "duration[ms]"),
    (decimal.Decimal("1.50"), "decimal128(3, 2)"), ([1, 2], "list<item: int64>"), ((), "list<item: null>"),
    ({"a": [1.5]}, "struct<a: list<item: double>>"), (None, "null"), (np.array(5, np.int16), "int16"),
    (np.zeros((2, 3), np.float32), "fixed_size_list<item: fixed_size_list<item: float>[3]>[2]"),
    (np.zeros((0, 3)), "list<item: list<item: double>>"), (np.array(["a"], object), "list<item: string>"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "kind"), VALUES)
def test_values_keep_their_types(value: Any, kind: str) -> None:
    assert types_of([{"v": value}]) == {"v": kind}
    both = [{"v": value, "i": 1}, {"v": None, "i": 2}]
    assert types_of(both)["v"] == kind
    assert [row["v"] is None for row in rows_of(both)] == [value is None, True]


BFLOAT16 = "data:1, column 'v': bfloat16 cannot be stored in a table; convert it to float32, which changes no value"


def test_arrays_of_different_shapes_become_lists() -> None:
    arrays = [np.arange(6).reshape(2, 3), np.arange(2).reshape(1, 2), np.zeros((0, 4), int)]
    assert [row["a"] for row in rows_of([{"a": one} for one in arrays])] == [one.tolist() for one in arrays]


@pytest.mark.parametrize(
    ("values", "bad"),
    [
        (["a", "\ud800"], None),
        ([1, 2**70], "data:2, column 'v': 1180591620717411303424 cannot be stored: it does not fit into 64 bits"),
        ([np.zeros(2, ml_dtypes.bfloat16)], BFLOAT16),
        ([ml_dtypes.bfloat16(1)], BFLOAT16),
        (
            [{1, 2}],
            "data:1, column 'v': values of the type set cannot be stored; convert them to text, numbers or bytes",
        ),
        ([{1: 2}], "data:1, column 'v': the key 1 is not text"),
    ],
)
def test_values_that_cannot_be_stored_are_reported(values: list[Any], bad: str | None) -> None:
    (found,) = bad_of([{"v": one} for one in values])
    assert bad is None or found == bad


NAIVE = dt.datetime(2024, 1, 1)  # noqa: DTZ001 (no zone is meant)


MIXED: list[list[Any]] = [
    *([1, "a"], [1, 2.5, "a"], [1, 2, 3, "a", 5], [1.5, 2**53 + 1], [-1, 2**63], [[1], ["a"]], [{"k": 1}, {"k": "a"}]),
    *([np.zeros(2), np.zeros((2, 2))], [NAIVE, NAIVE.replace(tzinfo=dt.UTC)], [{"k": 1}, [1]]),
]


def test_values_of_several_types_are_reported() -> None:
    lines = [f"{values}: {conflict_of([{'v': value} for value in values])}\n" for values in MIXED]
    check_texts(GOLDEN / "intake_objects_mixed.txt", lines)


def test_a_list_that_mixes_types_is_a_bad_row() -> None:
    rows: list[dict[str, Any]] = [{"v": [1, 2]}, {"v": [1, "a"]}, {"v": [3]}]
    assert bad_of(rows) == ["data:2, column 'v[]': a list mixes values of incompatible types"]
    assert rows_of(rows) == [rows[0], rows[2]]


def test_blocks_are_small_if_rows_become_large() -> None:
    large = {"v": bytes(2**18)}
    (part,) = opened(large if place > 2000 else {"v": b""} for place in range(2400)).parts
    blocks = list(part.read())
    assert max(rows.table.nbytes for rows in blocks) < 40 * 2**20 < sum(rows.table.nbytes for rows in blocks)
    assert all(isinstance(rows.lines, range) for rows in blocks)


def test_a_contradiction_in_a_later_block_names_its_row() -> None:
    rows = [{"v": 1}] * 3000 + [{"v": "a"}]
    assert conflict_of(rows) == 'column "v": it is int64 at data:1, and text at data:3001'


def png(image: Pillow.Image) -> io.BytesIO:
    file = io.BytesIO()
    image.save(file, "PNG")
    file.seek(0)
    return file


def test_images_keep_the_bytes_of_their_files_while_they_are_not_decoded() -> None:
    image = Pillow.new("RGB", (3, 2), (1, 2, 3))
    data = png(image).getvalue()
    assert rows_of([{"i": Pillow.open(io.BytesIO(data))}]) == [{"i": data}]
    changed = Pillow.open(io.BytesIO(data))
    changed.putpixel((0, 0), (9, 9, 9))
    ((stored,),) = (row.values() for row in rows_of([{"i": changed}]))
    assert Pillow.open(io.BytesIO(stored)).getpixel((0, 0)) == (9, 9, 9)
    source = opened([{"i": image}])
    assert source.hints == {"i": Image(shape=(None, None, None))}
    assert bad_of([{"i": image.convert("CMYK")}]) == [
        "data:1, column 'i': the image cannot be stored: PNG has no mode 'CMYK'; use image.convert('RGB')"
    ]


PLAIN = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "f": st.none() | st.floats(),
        "t": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "b": st.none() | st.binary(),
        "l": st.none() | st.lists(st.integers(0, 9)),
        "d": st.none() | st.datetimes().map(lambda moment: moment.replace(fold=0)),
    }
)


def told(rows: list[dict[str, Any]]) -> str:
    return repr([sorted(row.items()) for row in rows])  # NaN equals nothing, not even itself


@given(st.lists(PLAIN, min_size=1, max_size=9), st.integers(1, 7), st.data())
def test_objects_equal_the_rows_they_came_from_however_they_are_cut(
    rows: list[dict[str, Any]], size: int, data: st.DataObject
) -> None:
    table = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    cut = data.draw(st.integers(0, len(rows)))
    chunked = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    columns = {name: table[name] for name in table.column_names}
    lists = {name: [row[name] for row in rows] for name in rows[0]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "FIRST_ROWS", size)
        patch.setattr(object_tables, "FEW_ROWS", size)
        patch.setattr(object_tables, "MAX_ROWS", size)
        for one in (rows, iter(rows), chunked, chunked.to_reader(), columns, lists):
            assert told(rows_of(one)) == told(rows)


NESTED = st.sampled_from([st.integers(-9, 9), st.text("aü"), st.binary(max_size=2), st.booleans()]).flatmap(
    lambda leaf: st.sampled_from(
        [
            leaf,
            st.lists(st.none() | leaf),
            st.lists(st.lists(leaf) | st.none()),
            st.fixed_dictionaries({"a": st.none() | leaf, "b": st.lists(leaf)}),
            st.lists(st.fixed_dictionaries({"a": leaf})),
        ]
    ).flatmap(lambda value: st.lists(st.none() | value, min_size=1, max_size=8))
)


@given(NESTED)
def test_nested_values_are_converted_as_arrow_does(values: list[Any]) -> None:
    found = ValueConverter().convert(values, range(1, len(values) + 1), "v")
    found.validate(full=True)
    assert found.to_pylist() == pa.array(values).to_pylist()
    assert found.type == pa.array(values).type


@given(
    st.lists(st.none() | st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=6),
    st.sampled_from(["uint8", "float32", "bool", "datetime64[s]"]),
)
def test_arrays_keep_their_values_and_shapes(shapes: list[tuple[int, int] | None], dtype: str) -> None:
    arrays = [None if one is None else np.arange(one[0] * one[1]).reshape(one).astype(dtype) for one in shapes]
    found = ValueConverter().convert(arrays, range(1, len(arrays) + 1), "v")
    found.validate(full=True)
    assert found.to_pylist() == [None if one is None else one.tolist() for one in arrays]
