"""Tables of Earth Engine: values of rows, optional output, and refused input."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.golden import check_errors

from registry.builders.earth_engine.row_files import is_table_file, read_rows, write_rows
from registry.builders.earth_engine.table import read_table, write_table
from registry.errors import (
    AlreadyStoredError,
    CorruptExampleError,
    CorruptRecordError,
    FeatureError,
    PreparedFormatError,
    RegistryError,
    RegistryWarning,
    UsageError,
)
from registry.tfrecord import frame_record
from registry.wire import encode_example

GOLDEN = Path(__file__).with_name("golden")

POINT = {"type": "Point", "coordinates": [8.5, 47.25, 400]}
SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}


def round_trip(tmp_path: Path, *rows: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    made = write_table(rows, tmp_path, "t", overwrite=True, **options)
    return list(read_table(tmp_path / made.filename))


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (1, 1.0),
        (True, 1.0),
        (np.bool_(False), 0.0),
        (np.int16(-3), -3.0),
        (0.1, float(np.float32(0.1))),
        (1e39, float("inf")),
        (10**400, None),
        ("grün", "grün"),
        (b"\xff\x00", b"\xff\x00"),
        ("", ""),
    ],
    ids=["int", "bool", "numpy-bool", "int16", "float", "beyond", "huge", "text", "bytes", "empty"],
)
def test_a_scalar_is_one_value(tmp_path: Path, value: Any, stored: Any) -> None:
    if stored is None:
        with pytest.raises(FeatureError, match=re.escape("found 1000")):
            round_trip(tmp_path, {"x": value})
        return
    assert round_trip(tmp_path, {"x": value}) == [{"x": stored}]


def test_arrays_are_flat_in_row_major_order(tmp_path: Path) -> None:
    (row,) = round_trip(tmp_path, {"a": np.arange(6).reshape(2, 3).T, "b": [1, None], "c": (), "d": ["x", b"y"]})
    assert row["a"].tolist() == [0, 3, 1, 4, 2, 5]
    assert row["a"].dtype == np.float32
    np.testing.assert_array_equal(row["b"], [1, np.nan])
    assert row["c"].shape == (0,)
    assert row["d"] == ["x", "y"]


def test_missing_values_are_left_out_and_read_as_none(tmp_path: Path) -> None:
    assert round_trip(tmp_path, {"a": 1, "b": None}, {"b": "x"}) == [{"a": 1.0, "b": None}, {"a": None, "b": "x"}]
    columns = read_table(tmp_path / "t.tfrecord.gz").columns
    assert [(one.name, one.is_optional) for one in columns] == [("a", True), ("b", True)]


def test_an_empty_feature_is_a_missing_value(tmp_path: Path) -> None:
    rows = [{"n": np.float32([1.5]), "t": [b"x"]}, {"n": [], "t": []}]
    (tmp_path / "t.tfrecord").write_bytes(b"".join(frame_record(encode_example(row)) for row in rows))
    assert list(read_table(tmp_path / "t.tfrecord")) == [{"n": 1.5, "t": "x"}, {"n": None, "t": None}]


def test_a_table_without_rows_is_a_file(tmp_path: Path) -> None:
    assert write_table([], tmp_path, "none", columns=["a"]).num_rows == 0
    table = read_table(tmp_path / "none.tfrecord.gz", columns=["a"])
    assert (list(table), table.columns, len(table)) == ([], (), 0)


def test_columns_are_chosen_and_ordered(tmp_path: Path) -> None:
    made = write_table([{"a": 1, "b": 2, "c": 3}], tmp_path, "t", columns=["c", "a"])
    assert made.columns == ("c", "a")
    assert list(read_table(tmp_path / made.filename, columns=["c", "a"])) == [{"c": 3.0, "a": 1.0}]
    assert list(read_table(tmp_path / made.filename)) == [{"a": 1.0, "c": 3.0}]


def test_geometry_and_index_are_written_on_demand(tmp_path: Path) -> None:
    row = {"x": 1, ".geo": POINT, "system:index": "a7"}
    assert round_trip(tmp_path, row) == [{"x": 1.0}]
    assert round_trip(tmp_path, row, geometry="lonlat") == [{"x": 1.0, "longitude": 8.5, "latitude": 47.25}]
    (found,) = round_trip(tmp_path, row | {".geo": json.dumps(SQUARE)}, geometry="geojson", include_index=True)
    assert (json.loads(found.pop(".geo")), found) == (SQUARE, {"x": 1.0, "system:index": "a7"})
    assert round_trip(tmp_path, row, {"x": 2}, include_index="id") == [
        {"x": 1.0, "id": "a7"},
        {"x": 2.0, "id": "1"},
    ]


def test_a_row_without_geometry_has_none(tmp_path: Path) -> None:
    rows = round_trip(
        tmp_path, {"x": 1, ".geo": POINT}, {"x": 2, ".geo": None}, {"x": 3, ".geo": ""}, geometry="lonlat"
    )
    assert [row["longitude"] for row in rows] == [8.5, None, None]


@pytest.mark.parametrize(
    ("row", "column", "stored"),
    [
        ({"n": 2**24 + 1}, "n", "16777217 of row 0 is stored as 16777216"),
        ({"when": 1_700_000_000_001}, "when", "1700000000001 of row 0 is stored as 1700000038912"),
        ({"when": 1_700_000_000_001.0}, "when", "1700000000001.0 of row 0 is stored as 1700000038912"),
        ({"many": [1, -(2**24) - 1]}, "many", "-16777217 of row 0 is stored as -16777216"),
    ],
    ids=["above", "date", "float", "array"],
)
def test_a_number_that_a_float_cannot_store_exactly_is_warned_of(
    tmp_path: Path, row: Any, column: str, stored: str
) -> None:
    with pytest.warns(RegistryWarning) as caught:
        write_table([row, row], tmp_path, "t")
    (warning,) = caught
    assert str(warning.message) == (
        f"column {column!r}: {stored}, because tables store numbers as float32, which is exact to "
        "16,777,216. Store it as text, or split it"
    )
    assert warning.filename == __file__


def test_large_exact_numbers_are_not_warned_of(tmp_path: Path) -> None:
    assert round_trip(tmp_path, {"a": 2**30, "b": 2.5e30, "c": [2**25, float("inf")]})[0]["a"] == 2.0**30


def test_values_that_cannot_be_written_are_refused_and_leave_no_files(tmp_path: Path) -> None:
    check_errors(
        GOLDEN / "earth_engine_tables" / "values_that_cannot_be_written_are_refused_and_leave_no_files.txt",
        (
            partial(write_table, rows, tmp_path, "t", **options)
            for rows, options in [
                (["x"], {}),
                ([{"": 1}], {}),
                ([{"a": 1}, {"a": {"b": 1}}], {}),
                ([{"a": [[1, 2], [3]]}], {}),
                ([{"a": 1j}], {}),
                ([{"a": "\ud800"}], {}),
                ([{"a": 1}], {"columns": ["b"]}),
                ([{"a": 1}], {"columns": "a"}),
                ([{"a": 1}], {"geometry": "wkt"}),
                ([{".geo": SQUARE}], {"geometry": "lonlat"}),
                ([{".geo": POINT, "latitude": 3}], {"geometry": "lonlat"}),
                ([{".geo": {"type": "Point"}}], {"geometry": "lonlat"}),
                ([{".geo": "{"}], {"geometry": "geojson"}),
                ([{".geo": [1]}], {"geometry": "geojson"}),
            ]
        ),
    )
    assert list(tmp_path.iterdir()) == []


def test_a_table_is_replaced_only_on_request(tmp_path: Path) -> None:
    write_table([{"a": 1}], tmp_path, "t")
    with pytest.raises(AlreadyStoredError):
        write_table([{"a": 2}], tmp_path, "t")
    assert list(read_table(tmp_path / "t.tfrecord.gz")) == [{"a": 1.0}]
    write_table([{"a": 2}], tmp_path, "t", overwrite=True)
    assert list(read_table(tmp_path / "t.tfrecord.gz")) == [{"a": 2.0}]


@pytest.mark.parametrize("prefix", ["", "../t", "a/b", ".hidden", "a\0"])
def test_a_prefix_is_no_path(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(UsageError, match="invalid prefix of file names"):
        write_table([{"a": 1}], tmp_path, prefix)


def test_other_files_of_rows_are_read_too(tmp_path: Path) -> None:
    """Numbers of any kind, uncompressed, with a column that changes its kind."""
    rows = [{"n": np.array([7]), "s": [b"a"]}, {"n": np.array([8]), "s": np.array([1.5], np.float32)}]
    (tmp_path / "rows.tfrecord").write_bytes(b"".join(frame_record(encode_example(row)) for row in rows))
    table = read_table(tmp_path / "rows.tfrecord")
    assert [(one.name, one.kind) for one in table.columns] == [("n", "int64"), ("s", "mixed")]
    assert list(table) == [{"n": 7, "s": "a"}, {"n": 8, "s": 1.5}]


def test_a_shape_that_rows_do_not_fit_is_refused(tmp_path: Path) -> None:
    write_table([{"a": [1, 2, 3], "b": range(9)}, {"a": [1, 2, 3, 4], "b": range(9)}], tmp_path, "t")
    check_errors(
        GOLDEN / "earth_engine_tables" / "a_shape_that_rows_do_not_fit_is_refused.txt",
        (
            partial(lambda options: list(read_table(tmp_path / "t.tfrecord.gz", **options)), options)
            for options in [
                {"columns": ["c"]},
                {"shapes": {"c": (1,)}},
                {"shapes": {"a": (2, 2)}},
                {"shapes": {"b": (4, 1)}},
                {"shapes": {"b": (-3, -3)}},
            ]
        ),
        folder=tmp_path,
    )


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda data: data[:-9], CorruptRecordError),
        (lambda data: gzip.compress(gzip.decompress(data)[:-3]), CorruptRecordError),
        (lambda _: frame_record(b"\xff\xff"), CorruptExampleError),
    ],
    ids=["gzip", "frame", "example"],
)
def test_a_damaged_table_is_an_error(
    tmp_path: Path, damage: Callable[[bytes], bytes], error: type[RegistryError]
) -> None:
    write_table([{"a": 1}], tmp_path, "t")
    path = tmp_path / "t.tfrecord.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(error):
        list(read_table(path))


def test_csv_columns_are_numbers_if_each_cell_is_one(tmp_path: Path) -> None:
    (tmp_path / "in.CSV").write_text(
        '\ufeffsystem:index,n,code,mixed,list,flag,.geo\n0,1.5,007,x,"[1, 2]",,"{""type"": ""Point""}"\n1,,12,3,[],,\n',
        encoding="utf-8",
    )
    assert list(read_rows(tmp_path / "in.CSV", text=["code"])) == [
        {
            "system:index": "0",
            "n": 1.5,
            "code": "007",
            "mixed": "x",
            "list": [1, 2],
            "flag": None,
            ".geo": '{"type": "Point"}',
        },
        {"system:index": "1", "n": None, "code": "12", "mixed": "3", "list": [], "flag": None, ".geo": None},
    ]
    with pytest.warns(RegistryWarning) as caught:
        assert [row["code"] for row in read_rows(tmp_path / "in.CSV")] == ["007", "12"]
    assert [str(one.message) for one in caught] == [
        "column 'code' of in.CSV is text, because a number is not written like 007"
    ]


def test_numbers_of_a_csv_are_written_in_any_way(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('a,b,c,d\n+1,.5,1e5,"1"\n-2,5.,NaN,""\n0.5,-0,inf,2\n')
    rows = list(read_rows(tmp_path / "in.csv"))
    assert [row["a"] for row in rows] == [1.0, -2.0, 0.5]
    assert [row["b"] for row in rows] == [0.5, 5.0, 0.0]
    assert str([row["c"] for row in rows]) == "[100000.0, nan, inf]"
    assert [row["d"] for row in rows] == [1.0, None, 2.0]


def test_a_csv_file_of_semicolons_and_another_encoding_is_read(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a;b\n1;x\n", encoding="utf-16")
    assert list(read_rows(tmp_path / "in.csv")) == [{"a": 1.0, "b": "x"}]


def test_a_column_with_spaces_around_its_numbers_is_text(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("code,x\n 007,1\n 012,2\n")
    assert list(read_rows(tmp_path / "in.csv")) == [{"code": " 007", "x": 1.0}, {"code": " 012", "x": 2.0}]


def test_features_have_geometry_and_id(tmp_path: Path) -> None:
    feature = {"type": "Feature", "id": 3, "geometry": POINT, "properties": {"x": 1}}
    bare = {"type": "Feature", "geometry": None, "properties": None}
    (tmp_path / "a.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [feature, bare]}))
    (tmp_path / "b.geojsonl").write_bytes(b"\x1e" + json.dumps(feature).encode() + b"\n\n" + json.dumps(bare).encode())
    (tmp_path / "c.geojson").write_text(json.dumps(feature))
    expected = [{"x": 1, ".geo": POINT, "system:index": 3}, {}]
    assert list(read_rows(tmp_path / "a.geojson")) == list(read_rows(tmp_path / "b.geojsonl")) == expected
    assert list(read_rows(tmp_path / "c.geojson")) == expected[:1]


def test_geojson_gets_its_geometry_back(tmp_path: Path) -> None:
    rows = [{"x": 0.1, ".geo": SQUARE, "system:index": "a"}, {"x": None, "y": float("nan")}]
    table = read_table(tmp_path / write_table(rows, tmp_path, "t", geometry="geojson", include_index=True).filename)
    assert write_rows(table, tmp_path / "o.geojson") == 2
    assert json.loads((tmp_path / "o.geojson").read_text())["features"] == [
        {"type": "Feature", "geometry": SQUARE, "properties": {"x": 0.1}, "id": "a"},
        {"type": "Feature", "geometry": None, "properties": {"y": None}, "id": "1"},
    ]
    points = write_table([{".geo": POINT}], tmp_path, "p", geometry="lonlat")
    write_rows(read_table(tmp_path / points.filename), tmp_path / "p.geojsonl")
    assert json.loads((tmp_path / "p.geojsonl").read_text())["geometry"] == {
        "type": "Point",
        "coordinates": [8.5, 47.25],
    }


def test_floats_are_written_with_their_shortest_digits(tmp_path: Path) -> None:
    row = {"a": 0.1, "b": [0.1, 3, float("nan")], "c": 1e20, "d": -0.0, "e": float("-inf"), "f": 16777216}
    table = read_table(tmp_path / write_table([row], tmp_path, "t").filename)
    write_rows(table, tmp_path / "o.csv")
    assert (tmp_path / "o.csv").read_text().splitlines() == [
        "a,b,c,d,e,f",
        '0.1,"[0.1, 3, NaN]",1e+20,-0.0,-inf,16777216',
    ]
    write_rows(table, tmp_path / "o.json")
    assert json.loads((tmp_path / "o.json").read_text()) == [row | {"b": [0.1, 3, None], "e": None}]


def test_a_file_that_is_not_of_its_format_is_refused(tmp_path: Path) -> None:
    def attempt(name: str, content: bytes) -> None:
        (tmp_path / name).write_bytes(content)
        list(read_rows(tmp_path / name))

    cases = [
        ("a.csv", b"a,b\n1,2\n1\n"),
        ("a.csv", b'a\n"x'),
        ("a.json", b"{}"),
        ("a.json", b"[1]"),
        ("a.json", b"["),
        ("a.json", b"\xff"),
        ("a.jsonl", b"{}\n{"),
        ("a.geojson", b'{"type": "Feature", "properties": 3}'),
    ]
    check_errors(
        GOLDEN / "earth_engine_tables" / "a_file_that_is_not_of_its_format_is_refused.txt",
        (partial(attempt, name, content) for name, content in cases),
        folder=tmp_path,
    )


def test_a_csv_file_that_is_not_a_table_is_refused(tmp_path: Path) -> None:
    def read(content: bytes) -> None:
        (tmp_path / "a.csv").write_bytes(content)
        list(read_rows(tmp_path / "a.csv"))

    calls = (partial(read, content) for content in (b"", b"a,a\n1,2\n", b"a,\n1,2\n", b"a\n\xff"))
    check_errors(GOLDEN / "earth_engine_tables" / "csv.txt", calls, folder=tmp_path)


def test_deep_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" * 200_000)
    with pytest.raises(PreparedFormatError, match="is invalid JSON: "):
        list(read_rows(tmp_path / "a.json"))


def test_a_suffix_tells_the_format(tmp_path: Path) -> None:
    assert is_table_file("a/b.GeoJSON")
    assert not is_table_file("a.tif")
    made = write_table([{"a": 1}], tmp_path, "t")
    for use in (
        lambda: read_rows(tmp_path / "a.xlsx"),
        lambda: write_rows(read_table(tmp_path / made.filename), tmp_path / "a.xlsx"),
    ):
        with pytest.raises(UsageError) as caught:
            use()
        assert caught.value.message == "unknown format of rows 'a.xlsx'"
        assert caught.value.hint == "Use one of these suffixes: .csv, .geojson, .json, .geojsonl, .jsonl, .ndjson."


def test_only_csv_columns_can_be_declared_as_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(UsageError, match=r"a\.csv has no column 'b'"):
        list(read_rows(tmp_path / "a.csv", text=["b"]))
    with pytest.raises(UsageError, match="only the columns of a CSV file can be told to be text"):
        list(read_rows(tmp_path / "a.json", text=["a"]))


def test_bytes_that_are_not_text_are_refused_in_files_of_rows(tmp_path: Path) -> None:
    table = read_table(tmp_path / write_table([{"a": b"\xff"}], tmp_path, "t").filename)
    for name in ("o.csv", "o.json"):
        with pytest.raises(FeatureError, match="a file of rows cannot store the bytes"):
            write_rows(table, tmp_path / name)
        assert not (tmp_path / name).exists()


def test_progress_is_reported_row_by_row(tmp_path: Path) -> None:
    reported: list[int] = []
    made = write_table(({"a": n} for n in range(5)), tmp_path, "t", advance=reported.append)
    assert sum(reported) == 5
    write_rows(read_table(tmp_path / made.filename), tmp_path / "o.csv", advance=reported.append)
    assert sum(reported) == 10
