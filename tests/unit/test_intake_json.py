from __future__ import annotations

import gzip
import json
import re
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.intake_files import open_files, read_all, read_rows

from registry.errors import SourceError, UsageError
from registry.intake import json_files, text_files
from registry.intake.detect import open_source
from registry.intake.json_files import open_json
from registry.intake.options import AddOptions
from registry.intake.python_values import MixedValuesError, ValueConverter
from registry.intake.source import Source

BLOCKS = [1, 9, 10, 64, 2**20]


def lines_of(*rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def read(folder: Path, content: bytes, **options: Any) -> list[dict[str, Any]]:
    return [row for _, row in read_rows(open_files(open_json, folder, {"data.json": content}, **options))]


def types(folder: Path, content: bytes, **options: Any) -> list[dict[str, str]]:
    source = open_files(open_json, folder, {"data.json": content}, **options)
    return [
        {field.name: str(field.type) for field in rows.table.schema} for part in source.parts for rows in part.read()
    ]


def bad_rows(folder: Path, content: bytes, **options: Any) -> tuple[list[int], list[str]]:
    rows, bad = read_all(open_files(open_json, folder, {"data.json": content}, **options))
    return [line for line, _ in rows], [str(one) for one in bad]


def refuse(folder: Path, contents: Any) -> tuple[str, str | None]:
    with pytest.raises(SourceError) as caught:
        read_all(open_files(open_json, folder, contents if isinstance(contents, dict) else {"data.json": contents}))
    return caught.value.message, caught.value.hint


def without_nulls(value: Any) -> Any:
    """The value without keys whose value is null: a missing key and null are the same."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("block_bytes", BLOCKS)
def test_every_type_of_json_is_read(tmp_path: Path, block_bytes: int) -> None:
    rows = [
        {"text": "2020-01-01", "int": 2**53 + 1, "float": 0.5, "bool": True, "null": None, "list": [1], "in": {"a": 1}},
        {"text": "007", "int": -(2**63), "float": -1e300, "bool": False, "null": None, "list": [], "in": {"a": 2}},
    ]
    assert read(tmp_path, lines_of(*rows), block_bytes=block_bytes) == rows
    assert read(tmp_path, json.dumps(rows, indent=2).encode(), block_bytes=block_bytes) == rows
    assert types(tmp_path, lines_of(*rows)) == [
        {
            "text": "string",
            "int": "int64",
            "float": "double",
            "bool": "bool",
            "null": "null",
            "list": "list<item: int64>",
            "in": "struct<a: int64>",
        }
    ]


def test_the_layout_is_found_and_stated(tmp_path: Path) -> None:
    contents = {"1.json": b' \n[{"a": 1}]', "2.jsonl": b'\n{"a": 1}\n', "3.json": b"[\n]", "4.jsonl": b"\n"}
    source = open_files(open_json, tmp_path, contents)
    assert source.summary == "2 JSON files (UTF-8, a list of objects or an object per line)"
    assert source.may_lack_columns
    assert [(use.name, use.role, use.reason) for use in source.files] == [
        ("1.json", "records", ""),
        ("2.jsonl", "records", ""),
        ("3.json", "skipped", "it has no rows"),
        ("4.jsonl", "skipped", "it has no rows"),
    ]
    assert [line for line, _ in read_rows(source)] == [2, 2]


@pytest.mark.parametrize("block_bytes", BLOCKS)
def test_a_missing_key_is_null_and_a_new_one_a_new_column(tmp_path: Path, block_bytes: int) -> None:
    rows = [{"a": 1}, {}, {"b": "x", "a": None}, {"c": {"d": 1}}, {"c": {"e": [1.5]}, "a": 2}]
    assert list(map(without_nulls, read(tmp_path, lines_of(*rows), block_bytes=block_bytes))) == list(
        map(without_nulls, rows)
    )


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2.5, None], "double"),
        ([2**53, 0.5], "double"),
        ([2**64 - 1, 0, 1], "uint64"),
        ([2**63 - 1, -1], "int64"),
        ([None, None], "null"),
        ([[], [None, 1]], "list<item: int64>"),
        ([{}, {"a": {}}], "struct<a: struct<>>"),
    ],
)
def test_the_type_is_the_smallest_that_loses_nothing(tmp_path: Path, values: list[Any], kind: str) -> None:
    content = lines_of(*({"a": value} for value in values))
    assert types(tmp_path, content) == [{"a": kind}]
    assert [without_nulls(row["a"]) for row in read(tmp_path, content)] == values


@pytest.mark.parametrize(
    "values",
    [
        [1, "x", 2],
        [2**53 + 1, 0.5],
        [0.5, 2**53 + 1, 0.25],
        [2**63, -1],
        [True, 1],
        ["x", ["x"]],
        [{"a": 1}, {"a": "x"}],
        [[1], [1], ["x"]],
        [{"a": 1}, [1], 1],
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 2**20])
def test_types_that_exclude_each_other_make_separate_tables(
    tmp_path: Path, values: list[Any], block_bytes: int
) -> None:
    content = lines_of(*({"a": value} for value in values))
    source = open_files(open_json, tmp_path, {"data.json": content}, block_bytes=block_bytes)
    assert read_rows(source) == [(line, {"a": value}) for line, value in enumerate(values, start=1)]
    (part,) = source.parts
    kinds = [str(rows.table.schema.field("a").type) for rows in part.read()]
    assert len(set(kinds)) > 1
    starts = [rows.lines[0] for rows in part.read()]
    changes = [start for start, before, kind in zip(starts[1:], kinds, kinds[1:], strict=False) if before != kind]
    assert changes[0] == 1 + next(place for place in range(1, len(values)) if types_differ(values, place))


def types_differ(values: list[Any], place: int) -> bool:
    """Whether the value at ``place`` is the first that does not fit those before it."""
    first, other = values[place - 1], values[place]
    while isinstance(first, list | dict) and type(first) is type(other):
        first, other = (first[0], other[0]) if isinstance(first, list) else (first["a"], other["a"])
    is_exact = all(isinstance(one, int) and not isinstance(one, bool) for one in (first, other))
    return type(first) is not type(other) or (is_exact and first >= 2**63 and other < 0)


FAULTS = [
    (b'{"a": 1', "is not JSON: Expecting ',' delimiter at character 8"),
    (b'{"a" 1}', "is not JSON: Expecting ':' delimiter at character 6"),
    (b"nonsense", "is not JSON: Expecting value at character 1"),
    (b'{"a": 1} {"a": 2}', "is not JSON: Extra data at character 10"),
    (b'{"a": 1, "a": 2}', "the key 'a' occurs twice in an object"),
    (b'{"a": {"b": 1, "b": 2}}', "the key 'b' occurs twice in an object"),
    (b'{"a": 1e999}', "a number is too large for a float of 64 bits"),
    (b'{"a": NaN}', "NaN is not a number in JSON; write null, or a text"),
    (b'{"a": -Infinity}', "-Infinity is not a number in JSON; write null, or a text"),
    (b"[1]", "expected an object, found a list"),
    (b"7", "expected an object, found a number"),
    (b"null", "expected an object, found null"),
    (b'"x"', "expected an object, found a text"),
    (b'{"a": "\\x"}', "is not JSON: Invalid \\escape at character 8"),
]
ELEMENT_FAULT = (b'{"a": [1, "x"]}', "a list mixes values of incompatible types")
COLUMN_FAULTS = [
    (b'{"a": 18446744073709551616}', "18446744073709551616 cannot be stored: it does not fit into 64 bits"),
    (b'{"a": "\\ud800"}', r"'\ud800' cannot be stored: it has half a surrogate pair, which is not a character"),
    (b'{"a": ' + b"[" * 64 + b"]" * 64 + b"}", "more than 64 levels of objects and lists in one value"),
]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        *((fault, f": {told}") for fault, told in FAULTS),
        *((fault, f", column 'a': {told}") for fault, told in COLUMN_FAULTS),
        (ELEMENT_FAULT[0], f", column 'a[]': {ELEMENT_FAULT[1]}"),
    ],
)
@pytest.mark.parametrize(("block_bytes", "number"), [(1, "1"), (2**20, "0.5")])
def test_a_line_that_cannot_be_used_is_a_bad_row(
    tmp_path: Path, fault: bytes, told: str, block_bytes: int, number: str
) -> None:
    good = b'{"a": %s}\n' % number.encode()
    content = good * 2 + b"\n" + fault + b"\r\n" + good
    assert bad_rows(tmp_path, content, block_bytes=block_bytes) == ([1, 2, 5], [f"data.json:4{told}"])
    many = good * 1000 + fault + b"\n" + good * 1000
    lines, bad = bad_rows(tmp_path, many)
    assert (len(lines), bad) == (2000, [f"data.json:1001{told}"])


@pytest.mark.parametrize("block_bytes", [1, 2**20])
def test_faults_in_a_list_are_bad_rows(tmp_path: Path, block_bytes: int) -> None:
    content = '[\n  {"a": 1},\n  {"a": \n     x},\n  7, {"a":\n2},\n  {"a": {"b": "],}"}}\n, {é: 1}]\n\n more'
    assert bad_rows(tmp_path, content.encode(), block_bytes=block_bytes) == (
        [2, 5, 7],
        [
            "data.json:4: is not JSON: Expecting value at character 6",
            "data.json:5: expected an object, found a number",
            "data.json:8: is not JSON: Expecting property name enclosed in double quotes at character 4",
            "data.json:10: text follows the end of the list",
        ],
    )


@pytest.mark.parametrize("block_bytes", [1, 2**20])
def test_a_list_that_does_not_end_is_a_bad_row(tmp_path: Path, block_bytes: int) -> None:
    assert bad_rows(tmp_path, b'[{"a": 1},\n{"a": "x\n', block_bytes=block_bytes) == (
        [1],
        [
            "data.json:2: is not JSON: Unterminated string starting at at character 7",
            "data.json:3: the file ends before its list does",
        ],
    )
    for content in (b'[{"a": 1}', b'[{"a": 1},'):
        assert bad_rows(tmp_path, content, block_bytes=block_bytes) == (
            [1],
            ["data.json:1: the file ends before its list does"],
        )


REST_OF_OBJECTS = st.dictionaries(
    st.text('[]{},:"\\é', max_size=4),
    st.recursive(st.text('[]{},:"\\é', max_size=6) | st.integers(), lambda inner: st.lists(inner, max_size=3)),
    max_size=3,
)


@given(rest=REST_OF_OBJECTS, spaces=st.sampled_from(["", " ", "\n"]), after=st.booleans(), size=st.sampled_from(BLOCKS))
@pytest.mark.parametrize("ensure_ascii", [False, True])
def test_what_follows_an_object_of_which_a_list_is_read_is_a_bad_row(
    rest: dict[str, Any], spaces: str, after: bool, size: int, ensure_ascii: bool
) -> None:
    text = json.dumps({"data": [{"a": 1}, {"a": 2}], **rest}, indent=1, ensure_ascii=ensure_ascii)
    content = f"{text}{spaces}\n" + '{"data": [{"a": 3}]}\n' * after
    bad = [f"data.json:{content.count(chr(10))}: text follows the object that has the list"] * after
    with TemporaryDirectory() as folder:
        options = AddOptions(records="data")
        assert bad_rows(Path(folder), content.encode(), block_bytes=size, given=options) == ([3, 6], bad)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([1.5, "nan"], [1.5, np.nan]),
        ([[1.0, "inf"], ["-inf"]], [[1.0, np.inf], [-np.inf]]),
        ([{"v": "nan"}, {"v": 2.0}], [{"v": np.nan}, {"v": 2.0}]),
        (["nan", "inf"], ["nan", "inf"]),
    ],
)
def test_the_words_for_nan_and_infinity_are_numbers_beside_numbers_of_a_list(
    tmp_path: Path, value: Any, expected: Any
) -> None:
    source = open_files(open_json, tmp_path, {"data.json": lines_of({"a": value}, {"a": []}, {"a": value})})
    values = [value for part in source.parts for rows in part.read() for value in rows.table.column("a").to_pylist()]
    np.testing.assert_equal(values, [expected, [], expected])
    assert bad_rows(tmp_path, lines_of({"a": [1, "nan"]}))[1] == [f"data.json:1, column 'a[]': {ELEMENT_FAULT[1]}"]
    assert bad_rows(tmp_path, lines_of({"a": [1.5, "NaN"]}))[1] == [f"data.json:1, column 'a[]': {ELEMENT_FAULT[1]}"]


def test_nesting_of_any_depth_is_refused(tmp_path: Path) -> None:
    good = lines_of({"a": [1]})
    deep = b'{"a": ' + b'[{"a": ' * 20_000 + b"\n"
    lines, bad = bad_rows(tmp_path, good * 300 + deep + good)
    assert (len(lines), bad) == (301, ["data.json:301: more than 64 levels of objects and lists in one value"])
    lines, bad = bad_rows(tmp_path, good + b'{"a": ' + b"[" * 63 + b"1" + b"]" * 63 + b"}\n")
    assert (len(lines), bad) == (2, [])
    wide = lines_of(*[{"a": [{"b": 1}] * 100}] * 300)
    assert len(read(tmp_path, wide)) == 300


def test_one_object_over_several_lines_is_an_error(tmp_path: Path) -> None:
    told = "an object that takes several lines; expected a list of objects, or an object per line"
    assert refuse(tmp_path, b"\n" + json.dumps({"n": 1, "rows": [{"a": 1}]}, indent=1).encode()) == (
        f"data.json:2: {told}",
        "To read the objects of a list as records: records='rows'. If each object is a record: records='.'",
    )
    assert refuse(tmp_path, {"a b.json": b'{"a":\n1}\n{"a":\n2}\n'}) == (
        f"a b.json:1: {told}",
        "If each object is a record: records='.'",
    )


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("between", ["\n", "", "\n\n"])
def test_objects_of_several_lines_are_records_on_request(tmp_path: Path, block_bytes: int, between: str) -> None:
    rows = [{"problem": 'if } and "{ \\', "tags": [{"n": number}] * number} for number in range(5)]
    content = between.join(json.dumps(row, indent=2) for row in rows).encode()
    assert read(tmp_path, content, block_bytes=block_bytes, given=AddOptions(records=".")) == rows
    assert read(tmp_path, b"\n " + content + b"\n", block_bytes=block_bytes, given=AddOptions(records=".")) == rows


@pytest.mark.parametrize("block_bytes", BLOCKS)
def test_faults_of_objects_of_several_lines_have_a_place(tmp_path: Path, block_bytes: int) -> None:
    content = b'{\n "a": 1\n}\n{\n "a": x\n}\n{\n "a": 3\n}\n{\n "a": 4\n'
    assert bad_rows(tmp_path, content, block_bytes=block_bytes, given=AddOptions(records=".")) == (
        [1, 7],
        [
            "data.json:5: is not JSON: Expecting value at character 7",
            "data.json:11: is not JSON: Expecting ',' delimiter at character 8",
        ],
    )


def test_a_first_line_that_is_longer_than_the_sample_is_read(tmp_path: Path) -> None:
    row = {f"column {number}": number / 7 for number in range(5000)}
    assert read(tmp_path, lines_of(row, row)) == [row, row]


def test_other_bytes_are_an_error_with_line_and_byte(tmp_path: Path) -> None:
    assert refuse(tmp_path, b'{"a": "x"}\n{"a": "\xe9"}\n')[0] == "data.json:2: byte 18 is not UTF-8"


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks_are_read(tmp_path: Path, codec: str) -> None:
    assert read(tmp_path, '[{"é": "😀"}]'.encode(codec)) == [{"é": "😀"}]


def test_gzip_is_recognized_by_its_bytes(tmp_path: Path) -> None:
    assert read(tmp_path, gzip.compress(b'{"a": 1}\n')) == [{"a": 1}]


def test_rows_of_any_length_are_read_or_refused_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "MAX_ROW_BYTES", 5000)
    good = b'{"a": "x"}\n'
    long = b'{"a": "' + b"x" * 4000 + b'"}\n'
    assert len(read(tmp_path, good + long + good, block_bytes=16)) == 3
    too_long = b'{"a": "' + b"x" * 100_000
    assert refuse(tmp_path, good + too_long)[0] == "data.json:2: the row that starts here is longer than 5,000 bytes"
    assert (
        refuse(tmp_path, b'[{"a": 1},\n' + too_long)[0]
        == "data.json:1: the row that starts here is longer than 5,000 bytes"
    )


def test_long_rows_among_short_ones_are_parsed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_files, "_THREAD_BYTES", 1000)
    rows = [{"a": "x" * (100_000 if number % 700 == 0 else number % 5)} for number in range(5000)]
    content = lines_of(*rows).replace(b'{"a": "xx"}\n', b'{"a": "xx"}     \n\n\n')
    source = open_files(open_json, tmp_path, {"data.json": content})
    assert [row for _, row in read_rows(source)] == rows
    assert [rows.table.num_rows for rows in source.parts[0].read()][-1] > 256


def test_keys_that_are_data_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_files, "MAX_COLUMNS", 100)
    assert refuse(tmp_path, lines_of(*({"scores": {f"user {number}": 1}} for number in range(1000)))) == (
        "data.json:256: more than 100 different keys up to this line",
        'Keys become columns. Write data in keys as values, such as [{"user": "ada", "score": 3}].',
    )


def test_tables_with_many_columns_have_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_files, "_MAX_CELLS", 1000)
    source = open_files(
        open_json, tmp_path, {"data.json": lines_of(dict.fromkeys(map(str, range(100)), 1), *[{"1": 2}] * 300)}
    )
    assert len(read_rows(source)) == 301
    assert [rows.table.num_rows for rows in source.parts[0].read()][1:3] == [10, 10]


def test_a_type_that_changes_late_is_found(tmp_path: Path) -> None:
    content = lines_of(*[{"a": number} for number in range(20_000)]) + lines_of({"a": "x"}, {"a": 1})
    source = open_files(open_json, tmp_path, {"data.json": content}, block_bytes=2000)
    kinds = [(rows.lines[0], rows.table.schema.field("a").type) for rows in source.parts[0].read()]
    changes = [(line, kind) for (line, kind), (_, before) in zip(kinds[1:], kinds, strict=False) if kind != before]
    assert changes == [(20_001, pa.string()), (20_002, pa.int64())]


@pytest.mark.long
def test_a_type_that_changes_at_row_900_000_is_found(tmp_path: Path) -> None:
    content = b'{"a": 1, "b": "some text"}\n' * 899_999 + b'{"a": "x", "b": "y"}\n' + b'{"a": 2, "b": "z"}\n' * 100_000
    source = open_files(open_json, tmp_path, {"data.json": content})
    kinds = [(rows.lines[0], rows.table.schema.field("a").type) for rows in source.parts[0].read()]
    changes = [(line, kind) for (line, kind), (_, before) in zip(kinds[1:], kinds, strict=False) if kind != before]
    assert changes == [(900_000, pa.string()), (900_001, pa.int64())]


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=5)
    | st.sampled_from(["2020-01-01", '"', "\\", "[{,", "}\n]", 2**53 + 1])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab,"), inner, max_size=2),
    max_leaves=4,
)


@given(
    rows=st.lists(st.dictionaries(st.sampled_from(["a", "b", "é]"]), VALUES, max_size=3), max_size=8),
    layout=st.sampled_from(["lines", "list", "indented"]),
    ascii_only=st.booleans(),
    block_bytes=st.sampled_from([1, 5, 40, 2**20]),
    cut=st.integers(0, 8),
)
def test_what_json_writes_is_read_equal(
    rows: list[dict[str, Any]],
    layout: str,
    ascii_only: bool,
    block_bytes: int,
    cut: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    rows = [{"id": 1}, *(row for row in rows if is_one_type(row))]
    folder = tmp_path_factory.mktemp("written")

    def write(some: list[dict[str, Any]]) -> bytes:
        if layout == "lines":
            return "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in some).encode()
        return json.dumps(some, ensure_ascii=ascii_only, indent=1 if layout == "indented" else None).encode()

    def values(contents: dict[str, bytes]) -> list[Any]:
        source = open_files(open_json, folder, contents, block_bytes=block_bytes)
        return [without_nulls(row) for _, row in read_rows(source)]

    expected = [without_nulls(row) for row in rows]
    # A line that is alone in a .json may look like a table.
    extension = "jsonl" if layout == "lines" else "json"
    assert values({f"all.{extension}": write(rows)}) == expected
    parts = {f"1.{extension}": write(rows[: cut + 1]), f"2.{extension}": write(rows[cut + 1 :])}
    assert values(parts) == expected


def is_one_type(value: Any) -> bool:
    """Whether the lists in ``value`` do not mix types; the others are bad rows, which other tests are about."""
    try:
        ValueConverter().convert([value], [1], "value")
    except MixedValuesError:
        return False
    return True


def open_text_file(folder: Path, name: str, text: str, records: str | None = None) -> Source:
    (folder / name).write_text(text)
    return open_source(folder / name, AddOptions(records=records))


def rows_in(source: Source) -> list[Any]:
    return [row for part in source.parts for rows in part.read() for row in rows.table.to_pylist()]


WRAPPED = '{"about": "\\"data\\": [{", "in": {"data": [{"a": 0}]}, "data": [{"a": 1}, {"a": 2}], "more": [{"b": "]"}]}'


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize(("key", "rows"), [("data", [{"a": 1}, {"a": 2}]), ("more", [{"b": "]"}])])
def test_the_list_of_an_object_is_read_as_records(tmp_path: Path, indent: int | None, key: str, rows: Any) -> None:
    text = json.dumps(json.loads(WRAPPED), indent=indent)
    source = open_text_file(tmp_path, "rows.json", text, key)
    assert rows_in(source) == rows
    assert source.summary == f"1 JSON file (UTF-8, the list {key!r} of an object)"


@pytest.mark.parametrize("num_rows", [3, 20_000])  # whose second list starts after the sample
@pytest.mark.parametrize("indent", [None, 1])
def test_an_object_of_lists_of_objects_is_not_taken_for_a_table(
    tmp_path: Path, indent: int | None, num_rows: int
) -> None:
    lists = {"shops": [{"id": number} for number in range(num_rows)], "towns": [{"id": 1}, {"id": 2}, {"id": 3}]}
    text = json.dumps(lists, indent=indent)
    with pytest.raises(SourceError) as caught:
        open_text_file(tmp_path, "t.json", text)
    assert (caught.value.hint or "").startswith("To read the objects of a list as records: records='shops'")
    assert rows_in(open_text_file(tmp_path, "t.json", text, "shops")) == lists["shops"]


def test_the_key_of_a_list_may_be_of_any_script_and_escaped(tmp_path: Path) -> None:
    for number, text in enumerate(['{"données": [{"a": 1}]}', '{"donn\\u00e9es": [{"a": 1}]}']):
        assert rows_in(open_text_file(tmp_path, f"{number}.json", text, "données")) == [{"a": 1}]
        with pytest.raises(SourceError, match="'données'"):
            open_text_file(tmp_path, f"{number}.json", text)


def test_an_object_with_a_list_of_objects_is_never_one_row_in_silence(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        open_text_file(tmp_path, "rows.json", WRAPPED)
    assert str(caught.value) == "rows.json:1: the file is one object with lists of objects: 'data', 'more'"
    assert caught.value.hint == (
        "To read the objects of a list as records: records='data' or records='more'. "
        "If this object is the record: records='.'"
    )
    assert len(rows_in(open_text_file(tmp_path, "rows.json", WRAPPED, "."))) == 1
    assert len(rows_in(open_text_file(tmp_path, "rows.jsonl", WRAPPED))) == 1
    assert len(rows_in(open_text_file(tmp_path, "rows.json", f"{WRAPPED}\n{WRAPPED}"))) == 2


@pytest.mark.parametrize(
    ("orient", "num_rows"),
    [*product(["columns", "index", "split", "list"], [3, 5_000]), ("list", 50_000)],  # whose first list is long
)
def test_a_table_in_one_object_is_never_one_row_in_silence(tmp_path: Path, orient: Any, num_rows: int) -> None:
    frame = pd.DataFrame({"x": range(num_rows), "name": [f"item {number}" for number in range(num_rows)]})
    text = json.dumps(frame.to_dict("list")) if orient == "list" else frame.to_json(orient=orient)
    with pytest.raises(SourceError, match=r"^t\.json:1: the file is one object that looks like a table: ") as caught:
        open_text_file(tmp_path, "t.json", text)
    hint = str(caught.value.hint)
    orients = re.findall("orient='([a-z]+)'", hint)
    assert hint.startswith("To read the table: registry.add(pandas.read_json('t.json'")
    assert pd.read_json(tmp_path / "t.json", orient=orients[0] if orients else None).equals(frame)
    if orient != "split":  # whose lists mix texts and numbers
        assert len(rows_in(open_text_file(tmp_path, "t.json", text, "."))) == 1
        assert len(rows_in(open_text_file(tmp_path, "t.jsonl", text))) == 1


@pytest.mark.parametrize("num_rows", [3, 50_000])
def test_a_frame_with_names_of_rows_is_not_transposed(tmp_path: Path, num_rows: int) -> None:
    names = [f"{number}.jpg" for number in range(num_rows)]
    with pytest.raises(SourceError) as caught:
        open_text_file(tmp_path, "t.json", pd.DataFrame({"x": range(num_rows), "y": 1}, names).to_json())
    assert caught.value.message.endswith("its values are objects with the same keys")
    assert "pandas.read_json('t.json'), 'NAME')" in str(caught.value.hint)


@pytest.mark.parametrize("num_rows", [3, 5_000])
@pytest.mark.parametrize("columns", [["label"], ["label", "box"]])
def test_objects_by_name_are_never_one_row_in_silence(tmp_path: Path, columns: list[str], num_rows: int) -> None:
    rows: dict[str, Any] = {f"{number}.jpg": dict.fromkeys(columns, "x") for number in range(num_rows)}
    rows["1.jpg"] = {"label": "y"}
    with pytest.raises(SourceError) as caught:
        open_text_file(tmp_path, "t.json", json.dumps(rows))
    is_known = num_rows == 3 and len(columns) > 1  # all rows were read, and the others have more columns
    assert caught.value.message.endswith("a common key" if is_known else "the same keys")
    assert caught.value.hint == (
        "To read the table: registry.add(pandas.read_json('t.json', orient='index').rename_axis('id'), 'NAME'). "
        "If this object is the record: records='.'"
    )
    frame = pd.read_json(tmp_path / "t.json", orient="index").rename_axis("id")
    assert frame.loc["1.jpg", "label"] == "y"
    assert len(frame) == num_rows


@pytest.mark.parametrize(
    "text",
    [
        '{"user": {"id": 1, "name": "x"}, "item": {"id": 2}}',
        '{"point": {"x": 1, "y": 2}, "n": 3}',
        '{"point": {"x": 1, "y": 2}, "size": {"width": 1, "height": 2}}',
        '{"box": [1, 2, 3, 4], "center": [1, 2]}',
        '{"words": ["a", "b"]}',
        '{"a": {"x": 1}}',
    ],
)
def test_an_object_that_is_no_table_is_a_row(tmp_path: Path, text: str) -> None:
    assert len(rows_in(open_text_file(tmp_path, "t.json", text))) == 1


def test_long_lines_that_look_like_tables_are_rows(tmp_path: Path) -> None:
    line = json.dumps({"input": list(range(9_000)), "target": list(range(9_000))})
    assert len(rows_in(open_text_file(tmp_path, "t.json", f"{line}\n{line}\n"))) == 2
    with pytest.raises(SourceError, match="lists of one length"):
        open_text_file(tmp_path, "t.json", f"{line}\n\n")


@pytest.mark.parametrize(
    ("text", "records", "message"),
    [
        (WRAPPED, "dat", "rows.json: no list 'dat' starts in the first 105 bytes of the object"),
        (WRAPPED, "about", "rows.json: no list 'about' starts in the first 105 bytes of the object"),
        ('[{"a": 1}]', "data", "rows.json: the file is a list, not an object with a list 'data'"),
        ('[{"a": 1}]', ".", "rows.json: the file is a list: each item is a record without records='.'"),
    ],
)
def test_a_list_that_does_not_exist_is_refused(tmp_path: Path, text: str, records: str, message: str) -> None:
    with pytest.raises(SourceError) as caught:
        open_text_file(tmp_path, "rows.json", text, records)
    assert str(caught.value) == message


def test_a_wrapped_list_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    source = open_text_file(tmp_path, "rows.json", '{"data": [{"a": 1}, {"a": 2}', "data")
    bad = [str(row) for part in source.parts for rows in part.read() for row in rows.bad]
    assert bad == ["rows.json:1: the file ends before its list does"]


def test_records_can_be_named_only_where_there_is_a_choice(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="files of the kind csv cannot be read with these options: `records`"):
        open_text_file(tmp_path, "rows.csv", "a\n1\n", "data")


@given(
    st.dictionaries(
        st.text(max_size=4),
        st.one_of(st.integers(), st.text(), st.lists(st.fixed_dictionaries({"a": st.text(max_size=3)}), max_size=3)),
        max_size=4,
    ),
    st.lists(st.fixed_dictionaries({"a": st.text(max_size=3)}), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from([None, 0, 2]),
)
def test_a_wrapped_list_is_the_list(before: Any, rows: Any, is_ascii: bool, indent: int | None) -> None:
    document = {**before, "rows": rows, "after": [{"rows": [{"x": 1}]}]}
    with TemporaryDirectory() as folder:
        text = json.dumps(document, ensure_ascii=is_ascii, indent=indent)
        (Path(folder) / "r.json").write_text(text, encoding="utf-8")
        assert rows_in(open_source(Path(folder) / "r.json", AddOptions(records="rows"))) == rows
