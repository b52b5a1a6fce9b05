from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.intake_files import open_files, read_all, read_rows

from registry.errors import SourceError
from registry.features import ClassLabel, Image
from registry.intake import arrow_files, value_types
from registry.intake.arrow_files import open_arrow, open_parquet
from registry.intake.inference import Inference
from registry.intake.options import AddOptions
from registry.intake.source import Rows, Source

HINT = "Get the file again, or write it again."


def to_parquet(table: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def to_file(table: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, **options)
    return file.getvalue()


def to_stream(table: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, **options)
    return file.getvalue()


FORMATS = [
    pytest.param(open_parquet, to_parquet, id="parquet"),
    pytest.param(open_arrow, to_file, id="file"),
    pytest.param(open_arrow, to_stream, id="stream"),
]
Opener = Callable[..., Source]
Writer = Callable[..., bytes]


def refuse(opener: Opener, folder: Path, contents: dict[str, bytes]) -> tuple[str, str | None]:
    with pytest.raises(SourceError) as caught:
        read_all(open_files(opener, folder, contents))
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize(("opener", "write"), FORMATS)
def test_columns_keep_their_types(tmp_path: Path, opener: Opener, write: Writer) -> None:
    table = pa.table(
        {
            "int": pa.array([1, None], pa.uint16()),
            "time": pa.array([datetime(2020, 1, 1, tzinfo=UTC)] * 2, pa.timestamp("us", "Europe/Paris")),
            "day": pa.array([date(2020, 1, 1), None]),
            "text": pa.array(["x", ""], pa.large_string()),
            "nested": [{"a": [1.5, None]}, None],
            "decimal": [Decimal("1.50"), None],
            "nothing": pa.nulls(2),
        }
    )
    source = open_files(opener, tmp_path, {"a": write(table)})
    (rows,) = source.parts[0].read()
    assert rows.table.schema.types == table.schema.types
    assert rows.table.to_pylist() == table.to_pylist()
    assert list(rows.lines) == [1, 2]
    assert (source.is_text, source.may_lack_columns, dict(source.hints)) == (False, False, {})


@pytest.mark.parametrize(("opener", "write"), FORMATS)
def test_dictionaries_become_their_values(tmp_path: Path, opener: Opener, write: Writer) -> None:
    table = pa.table({"a": pa.array(["x", None, "y"]).dictionary_encode()})
    source = open_files(opener, tmp_path, {"a": write(table)})
    assert next(iter(source.parts[0].read())).table.schema.field("a").type == pa.string()
    assert [row for _, row in read_rows(source)] == [{"a": "x"}, {"a": None}, {"a": "y"}]


def test_the_summary_says_which_index_is_only_in_the_metadata(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [5, 6, 7]})
    for index, note in (
        (pd.RangeIndex(10, 13, name="id"), '; the index "id", a range of numbers in the metadata, is left out; '),
        (pd.RangeIndex(3), ""),
        (pd.Index([3, 5, 6], name="id"), ""),
    ):
        source = open_files(open_parquet, tmp_path, {"a": to_parquet(pa.Table.from_pandas(frame.set_index(index)))})
        way = "to make it a column: frame.reset_index().to_parquet(FILE)" if note else ""
        assert source.summary.partition(")")[2] == note + way
    for metadata in (b"", b"[]", b"{}", b'{"index_columns": [{"name": 3}, {}]}', b'{"index_columns": 3}'):
        table = pa.table({"a": [1]}).replace_schema_metadata({b"pandas": metadata})
        assert open_files(open_parquet, tmp_path, {"a": to_parquet(table)}).summary == "1 Parquet file (1 column)"


def test_the_summary_counts_files_and_columns(tmp_path: Path) -> None:
    table = pa.table({"a": [1], "b": [2]})
    contents = {"1.parquet": to_parquet(table), "2.parquet": to_parquet(table.slice(1)), "3.pq": to_parquet(table)}
    source = open_files(open_parquet, tmp_path, contents)
    assert (source.kind, source.summary) == ("parquet", "2 Parquet files (2 columns)")
    assert [(use.name, use.role, use.reason) for use in source.files] == [
        ("1.parquet", "records", ""),
        ("3.pq", "records", ""),
        ("2.parquet", "skipped", "it has no rows"),
    ]
    assert open_files(open_arrow, tmp_path, {"a": to_file(table)}).summary == "1 Arrow file (2 columns)"


@pytest.mark.parametrize(("opener", "write"), FORMATS)
def test_another_order_of_columns_is_the_same_source(tmp_path: Path, opener: Opener, write: Writer) -> None:
    first, other = pa.table({"a": [1], "b": ["x"]}), pa.table({"b": pa.array(["y"], pa.large_string()), "a": [2]})
    source = open_files(opener, tmp_path, {"1": write(first), "2": write(other)})
    assert [rows.table.column_names for part in source.parts for rows in part.read()] == [["a", "b"]] * 2


def test_descriptions_of_columns_that_only_a_later_file_has(tmp_path: Path) -> None:
    described = {
        "label": {"_type": "ClassLabel", "names": ["cat", "dog"]},
        "pair": {"_type": "Array2D", "shape": [1, 2]},
    }
    described["pair"]["dtype"] = "int64"
    later = pa.table({"a": [2], "label": [1], "pair": [[[1, 2]]]})
    later = later.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": described}})})
    contents = {"1": to_parquet(pa.table({"a": [1]})), "2": to_parquet(later)}
    source = open_files(open_parquet, tmp_path, contents, given=AddOptions(features={"label": "?", "pair": "?"}))
    assert source.hints["label"] == ClassLabel(names=["cat", "dog"])
    assert [*source.metadata.custom["hugging_face"]] == ["pair"]


@pytest.mark.parametrize(("opener", "write"), FORMATS)
def test_other_columns_are_an_error_and_other_types_are_united(tmp_path: Path, opener: Opener, write: Writer) -> None:
    first = write(pa.table({"a": [1], "b": ["x"]}))
    assert refuse(opener, tmp_path, {"1": first, "2": write(pa.table({"a": [1], "c": ["x"]}))}) == (
        "1 and 2 have different columns: 2 lacks 'b', and 1 lacks 'c'",
        "The files and splits of a dataset must have the same columns. Add the others as another dataset. If they are "
        "one table, with null where a file lacks a column: features={'b': '?', 'c': '?'}. To choose files: "
        "splits={'train': '1'}",
    )
    source = open_files(opener, tmp_path, {"1": first, "2": write(pa.table({"a": [1.5], "b": ["x"]}))})
    inference = Inference(source, {})
    for part in source.parts:
        for rows in part.read():
            inference.update(part.name, rows)
    assert [(column.arrow_type, column.reason) for column in inference.schema().columns] == [
        (pa.float64(), "widened to float64 at 2:1"),
        (pa.string(), "as in the source"),
    ]
    nulls = write(pa.table({"a": pa.nulls(1), "b": ["x"]}))
    assert len(read_rows(open_files(opener, tmp_path, {"1": first, "2": nulls}))) == 2


@pytest.mark.parametrize(("opener", "write"), FORMATS)
def test_files_without_rows_are_an_error(tmp_path: Path, opener: Opener, write: Writer) -> None:
    message, hint = refuse(opener, tmp_path, {"a": write(pa.table({"a": pa.array([], pa.int64())}))})
    assert message.startswith(f"{tmp_path}: the ")
    assert message.endswith(" file 'a' has no rows")
    assert hint == "A dataset has at least one record. Check what wrote the file."


def test_damaged_files_are_an_error(tmp_path: Path) -> None:
    table = pa.table({"a": list(range(1000))})
    stream = to_stream(table, max_chunksize=100)
    for content, opener, told in [
        (to_parquet(table)[:-5], open_parquet, "a: the file is damaged: "),
        (b"", open_parquet, "a: the file is damaged: "),
        (b"", open_arrow, "a: the file is damaged: "),
        (to_file(table)[:-20], open_arrow, "a: the file is damaged: Not an Arrow file"),
        (stream[:-500], open_arrow, "a: the file is damaged: Expected to "),
        (b"FEA1" + bytes(20), open_arrow, "a: the first version of Feather cannot be read"),
        (b"\xff\xff\xff\xff\xff\xff\xff\x7f", open_arrow, "a: the file is damaged: "),
    ]:
        message, hint = refuse(opener, tmp_path, {"a": content})
        assert message.startswith(told)
        assert hint == (
            HINT
            if "damaged" in told
            else "Write it as an Arrow file: pyarrow.feather.write_feather(pyarrow.feather.read_table(IN), OUT)"
        )


@pytest.mark.parametrize(("opener", "write"), FORMATS)
def test_text_that_is_not_utf_8_is_an_error(tmp_path: Path, opener: Opener, write: Writer) -> None:
    values = [b"x"] * 3000
    values[2500] = b"\xff"
    column = pa.array(values).view(pa.string())
    message, hint = refuse(opener, tmp_path, {"a": write(pa.table({"t": column}))})
    assert message == "a: row 2501, column 't': the text is not UTF-8"
    assert hint == HINT


def test_invalid_text_in_lists_is_found_in_few_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b"x"] * 3000
    values[-1] = b"\xff"
    lists = pa.ListArray.from_arrays(pa.array(range(3001), pa.int32()), pa.array(values).view(pa.string()))
    checks = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            checks.extend([name] * name.startswith("Arrow"))
            return getattr(pa, name)

    for module in (arrow_files, value_types):
        monkeypatch.setattr(module, "arrow", Counting())
    message, _ = refuse(open_arrow, tmp_path, {"a": to_file(pa.table({"t": lists}))})
    assert message.endswith("column 't': the text is not UTF-8")
    assert len(checks) < 100, "each invalid slice is one access"


def test_offsets_outside_of_their_buffer_are_an_error(tmp_path: Path) -> None:
    content = bytearray(to_file(pa.table({"t": ["some text", "more"]})))
    place = content.index(np.array([0, 9, 13], np.int32).tobytes())
    content[place : place + 12] = np.array([0, 9, 2**30], np.int32).tobytes()
    message, _ = refuse(open_arrow, tmp_path, {"a": bytes(content)})
    assert message.startswith("a: row ")
    assert "column 't'" in message


def test_offsets_of_lists_in_lists_outside_of_their_values_are_an_error(tmp_path: Path) -> None:
    good = to_file(pa.table({"x": [[[1], [2]], [[3], [4], [5]]]}))
    outer = np.array([0, 2, 5], np.int32).tobytes()
    assert good.count(outer) == 1
    bad = good.replace(outer, np.array([0, 2, 2**30], np.int32).tobytes())
    message, _ = refuse(open_arrow, tmp_path, {"x.arrow": bad})
    assert message.startswith("x.arrow: the file is damaged: ")


def test_two_columns_of_one_name_are_an_error(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert refuse(open_arrow, tmp_path, {"1": to_file(table)}) == (
        "1: two columns are named 'a'",
        "Rename one of them.",
    )


PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a49444154789c6360000000020001"
    "48afa4710000000049454e44ae426082"
)


@pytest.mark.parametrize(("opener", "write"), FORMATS)
def test_hugging_faces_metadata_is_honoured(tmp_path: Path, opener: Opener, write: Writer) -> None:
    described = {
        "label": {"_type": "ClassLabel", "names": ["cat", "dog"]},
        "image": {"_type": "Image"},
        "text": {"_type": "Value", "dtype": "string"},
    }
    told = {"info": {"features": described, "description": "Pets.", "license": "MIT"}}
    table = pa.table(
        {"label": [1, 0], "image": [{"bytes": PNG, "path": "a.png"}, {"bytes": PNG, "path": None}], "text": ["x", "y"]}
    ).replace_schema_metadata({"huggingface": json.dumps(told)})
    source = open_files(opener, tmp_path, {"a": write(table)})
    assert set(source.hints) == {"label", "image"}
    label, image = source.hints["label"], source.hints["image"]
    assert isinstance(label, ClassLabel)
    assert list(label.names) == ["cat", "dog"]
    assert isinstance(image, Image)
    assert (source.metadata.description, source.metadata.license) == ("Pets.", "MIT")
    assert [row for _, row in read_rows(source)] == [
        {"label": 1, "image": PNG, "text": "x"},
        {"label": 0, "image": PNG, "text": "y"},
    ]


@pytest.mark.parametrize("kind", [{}, [], 1, None])
def test_a_malformed_description_of_hugging_face_says_nothing(tmp_path: Path, kind: Any) -> None:
    described = {"image": {"_type": kind}, "files": [{"_type": "Image"}, kind], "in": {"a": {"_type": kind}}}
    table = pa.table({"image": [{"bytes": PNG}], "files": [[PNG]], "in": [{"a": {"bytes": PNG}}]})
    told = json.dumps({"info": {"features": described}})
    content = to_parquet(table.replace_schema_metadata({"huggingface": told}))
    source = open_files(open_parquet, tmp_path, {"a": content})
    assert [row["image"] for _, row in read_rows(source)] == [{"bytes": PNG}]


@pytest.mark.parametrize(("opener", "write"), FORMATS)
def test_rows_are_bounded(tmp_path: Path, opener: Opener, write: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_files, "MAX_ROWS", 5_000)
    monkeypatch.setattr("registry.intake.source.MAX_ROWS", 5_000)
    table = pa.table({"a": list(range(40_000))})
    every = list(open_files(opener, tmp_path, {"a": write(table)}).parts[0].read())
    assert max(rows.table.num_rows for rows in every) <= 8192
    assert [line for rows in every for line in rows.lines] == list(range(1, 40_001))
    big = pa.table({"a": [b"x" * 2**20] * 20})
    every = list(open_files(opener, tmp_path, {"a": write(big)}).parts[0].read())
    assert max(rows.table.num_rows for rows in every) <= 8


COLUMNS = {
    "i": st.none() | st.integers(-(2**63), 2**63 - 1),
    "t": st.none() | st.text(st.characters(codec="utf-8"), max_size=5),
    "l": st.none() | st.lists(st.none() | st.floats(allow_nan=False), max_size=3),
}
TYPES = pa.schema([("i", pa.int64()), ("t", pa.string()), ("l", pa.list_(pa.float64()))])


@pytest.mark.parametrize(("opener", "write"), FORMATS)
@given(rows=st.lists(st.fixed_dictionaries(COLUMNS), min_size=1, max_size=12), size=st.integers(1, 12), data=st.data())
def test_what_pyarrow_writes_is_read_equal(
    opener: Opener,
    write: Writer,
    rows: list[dict[str, Any]],
    size: int,
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("written")
    cut = data.draw(st.integers(0, len(rows)))
    chunks = {"row_group_size" if write is to_parquet else "max_chunksize": size}

    def written(some: list[dict[str, Any]]) -> bytes:
        return write(pa.Table.from_pylist(some, schema=TYPES), **chunks)

    def read(contents: dict[str, bytes]) -> list[dict[str, Any]]:
        return [row for _, row in read_rows(open_files(opener, folder, contents))]

    assert read({"all": written(rows)}) == rows
    assert read({"1": written(rows[:cut]), "2": written(rows[cut:])}) == rows


def test_the_name_of_a_field_that_is_not_utf_8_is_an_error_of_the_file(tmp_path: Path) -> None:
    content = to_file(pa.table({"a": pa.array([{"zqzq": 1}])})).replace(b"zqzq", b"\x80qzq")
    message, hint = refuse(open_arrow, tmp_path, {"a": content})
    assert message.startswith("a: ")
    assert hint == HINT


@given(rows=st.lists(st.fixed_dictionaries(COLUMNS), min_size=1, max_size=12), data=st.data())
def test_rows_are_equal_in_another_process(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    table = pa.Table.from_pylist(rows, schema=TYPES)
    start = data.draw(st.integers(0, len(rows)))
    sent = Rows(table=table.slice(start), lines=range(start, len(rows)), keys=None)
    taken = pickle.loads(pickle.dumps(sent))  # noqa: S301 (its own bytes)
    assert taken.table.schema == table.schema
    assert taken.table.to_pylist() == rows[start:]
    assert taken.lines == sent.lines


def test_rows_are_sent_to_another_process_without_the_rest_of_their_table() -> None:
    table = pa.table({"text": ["a long text"] * 100_000})
    assert len(pickle.dumps(Rows(table=table.slice(50_000, 10), lines=range(10)))) < 2000


NANOSECONDS = st.integers(-(2**63) + 10**18, 2**63 - 10**18) | st.integers(-(10**13), 10**13)


@given(
    NANOSECONDS | NANOSECONDS.map(lambda count: count // 1000 * 1000), st.sampled_from([None, "UTC", "Asia/Kolkata"])
)
def test_nanoseconds_print_as_those_of_pandas(count: int, zone: str | None) -> None:
    """Published versions have these forms in keys and texts, because pyarrow converts them to objects of pandas."""
    time = pa.array([count], pa.int64()).view(pa.timestamp("ns", zone))
    duration = pa.array([count], pa.int64()).view(pa.duration("ns"))
    row = pa.StructArray.from_arrays([time, duration, pa.array([[count]], pa.list_(pa.duration("ns")))], list("tdl"))

    ours = value_types.python_value(row, 0)

    expected_time = pd.Timestamp(count, tz=zone)
    expected_duration = pd.Timedelta(count, "ns")
    assert (str(ours["t"]), ours["t"].isoformat()) == (str(expected_time), expected_time.isoformat())
    for value in (ours["d"], *ours["l"]):
        assert (str(value), value.isoformat()) == (str(expected_duration), expected_duration.isoformat())
