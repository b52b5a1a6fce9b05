"""The schema of a source: what is inferred from all rows, why, and which conflicts and requests are refused."""

from __future__ import annotations

import datetime as dt
import decimal
import io
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.golden import check_errors, check_texts
from support.intake_files import bare_source

from registry.errors import SourceError, UsageError
from registry.features import ClassLabel, Feature, FeaturesDict, Image, Scalar, Tensor, Text
from registry.features import Sequence as SequenceFeature
from registry.images.png import encode_png
from registry.intake import value_types
from registry.intake.conversion import ColumnSchema
from registry.intake.feature_text import parse_feature
from registry.intake.inference import Inference, declare_schema
from registry.intake.schema import Schema, parse_schema_file, read_schema_file, remembered_wishes, write_schema_file
from registry.intake.source import Rows

GOLDEN = Path(__file__).with_name("golden")

PNG = encode_png(np.zeros((2, 2, 3), np.uint8))

Block = tuple[str, int, Any]
"""The name of a part, the line of the first row, and the columns."""


def rows_of(block: Block) -> Rows:
    table = pa.table(block[2])
    return Rows(table=table, lines=range(block[1], block[1] + table.num_rows))


def infer(
    *blocks: Block,
    is_text: bool = False,
    hints: Mapping[str, Feature] | None = None,
    wishes: Mapping[str, str] | None = None,
) -> Schema:
    requested = {name: parse_feature(text) for name, text in (wishes or {}).items()}
    inference = Inference(bare_source(is_text=is_text, hints=hints or {}), requested)
    for block in blocks:
        inference.update(block[0], rows_of(block))
    return inference.schema()


def test_the_hint_at_texts_that_mean_null_keeps_the_words_that_do_already() -> None:
    inference = Inference(bare_source(is_text=True), {}, nulls=("-",))
    inference.update("a.csv", rows_of(("a.csv", 2, {"x": pa.array(["1", "NA"])})))
    assert inference.schema().columns[0].reason.endswith("if it means null: nulls=['-', 'NA']")


def test_the_null_of_a_dump_is_noted_after_blocks_that_decided_the_type() -> None:
    blocks: list[Block] = [("a.csv", 2, {"x": ["bob", "amy"]}), ("a.csv", 4, {"x": ["eve", "\\N"]})]
    assert r'"\\N" at a.csv:5 is null in dumps' in infer(*blocks, is_text=True).columns[0].reason


def infer_texts(values: Sequence[str | None]) -> ColumnSchema:
    return infer(("a.csv", 2, {"x": pa.array(values, pa.string())}), is_text=True).columns[0]


@pytest.mark.parametrize("word", ["int8", "float64", "bool", "date32"])
def test_requested_types_ignore_spaces_around_text(word: str) -> None:
    texts = {"int8": "1", "float64": "1.5", "bool": "true", "date32": "2020-01-01"}[word]
    blocks: Block = ("a.csv", 2, {"x": [f" {texts}", f"{texts}\t", texts]})
    schema = infer(blocks, is_text=True, wishes={"x": word})
    converted = schema.convert("a.csv", rows_of(blocks))
    assert converted.bad == ()
    assert len(set(converted.table.column("x").to_pylist())) == 1


TEXTS: list[list[str | None]] = [
    *(["1", "-2", "0"], ["1", None], ["9223372036854775807"], ["1", "9223372036854775808"]),
    *(["-1", "9223372036854775808"], ["1", "1" * 5000], ["1", "-0"], ["9007199254740993", "-0"], ["1.5", "2", "-0"]),
    *(["1.50", "0.30000000000000004"], ["1.5", "9007199254740993"], ["0.1000000000000000055"], ["1.5", "1" * 400]),
    *(["true", "false"], ["True"], ["true", "True"], ["TRUE", "FALSE"]),  # as R, Excel and many databases write them
    *(["TRUE", "true"], ["T"], ["true", "n/a"]),
    ["NA", "2.5", "-", "NA"],  # the first value does not hide that the others are numbers
    *(["NA", "x", "1"], ["NA", "12%"], ["NA", None], ["NA", "2020-01-01"], ["007", "1"], ["1", "1e5"]),
    *(["1.5", "25e-06"], ["0.25", "6.79e-05"]),
    *(["4.94065645841247e-324", "1.5"], ["1e+05", "0"], ["1E-5", "1.0E7"]),  # R prints 15 digits of 5e-324
    *(["5e-324", "1.7976931348623157e+308"], ["1.5", "1e+400"], ["1.5", "1e-400"], ["1.00000000000000000001e-05"]),
    *(["1", "nan"], ["-inf", "1.5", "NaN"], ["nan", "inf"], ["1", "+1"], ["1", None, "NA"]),
    *([".5", "-.25", "0", ".4706397117727646"], ["1.5", ".", "-.5"], ["1.5", "1."]),  # as Stata writes them
    *(["0.37533300000000003", "70.220001220703125"], ["8.012160594895089", ".5"]),  # 17 digits of R, 16 of Stata
    ["1.5", "12345678901234.567"],
    *(["1.5", "Infinity"], ["0x1F"], [" 1", "2 "], [" 01", "2 "], ["m/s", "1", "2.5"], ["m/s", None, "1"]),
    *(["m/s", "1", "fast"], [""], ["1", ""], ["2020-01-01"], [None, None]),
]


def test_text_has_a_type_only_if_all_values_keep_their_text() -> None:
    columns = [(values, infer_texts(values)) for values in TEXTS]
    lines = [f"{str(values)[:80]}: {column.arrow_type}, {column.reason}\n" for values, column in columns]
    check_texts(GOLDEN / "intake_schema" / "texts.txt", lines)


def test_a_table_shows_examples_nulls_and_optional_features() -> None:
    columns: Any = {"id": ["1", "2"], "name": ["a\x1b[31m\n" + "b" * 50, "c"], "x": [None, "0.5"]}
    schema = infer(("a.csv", 2, columns), is_text=True)
    assert [(one.feature, one.example, one.num_nulls) for one in schema.columns] == [
        (Tensor(shape=(), dtype="int64"), "1", 0),
        (Text(), '"a\\u001b[31m\\n' + "b" * 32 + '…"', 0),
        (Scalar("float64", encoding="bytes", optional=True), "0.5", 1),
    ]


def test_units_below_the_header_are_named_in_every_order_of_blocks() -> None:
    blocks: list[Block] = [("a.csv", 2, {"x": ["m/s"]}), ("a.csv", 3, {"x": ["1", "2"]}), ("a.csv", 5, {"x": ["3.5"]})]
    for order in permutations(blocks):
        assert infer(*order, is_text=True).columns[0].reason == '"m/s" at a.csv:2 is not a number; all others are'
        words: Block = ("a.csv", 9, {"x": ["4", "fast"]})
        for place in range(4):
            mixed = infer(*order[:place], words, *order[place:], is_text=True)
            assert mixed.columns[0].reason == "the values are text"


def test_row_900_001_decides_as_row_1_does() -> None:
    numbers: Block = ("a.csv", 2, {"x": ["1", "2"]})
    last: Block = ("a.csv", 900_001, {"x": ["n/a"]})
    for blocks in ((numbers, last), (last, numbers)):
        column = infer(*blocks, is_text=True).columns[0]
        assert column.feature == Text()
        assert column.reason == "\"n/a\" at a.csv:900001 is not a number; if it means null: nulls=['n/a']"


@pytest.mark.parametrize(
    ("first", "second", "kind", "reason"),
    [
        (pa.array([1], pa.int8()), pa.array([1], pa.int64()), pa.int64(), "widened to int64 at b:1"),
        (pa.array([1], pa.uint8()), pa.array([-1], pa.int8()), pa.int16(), "widened to int16 at b:1"),
        (pa.array([1], pa.uint64()), pa.array([-1], pa.int8()), pa.int64(), "widened to int64 at b:1"),
        (pa.array([2**63], pa.uint64()), pa.array([1], pa.int64()), pa.uint64(), "widened to uint64 at b:1"),
        (pa.array([1]), pa.array([1.5]), pa.float64(), "widened to float64 at b:1"),
        (pa.array([1.5], pa.float32()), pa.array([1.5]), pa.float64(), "widened to float64 at b:1"),
        (pa.nulls(1), pa.array(["a"]), pa.string(), "as in the source"),
        (pa.array([None], pa.int32()), pa.array(["a"]), pa.string(), "as in the source"),
        (pa.array(["a"], pa.large_string()), pa.array(["a"]).dictionary_encode(), pa.string(), "as in the source"),
        (
            pa.array([1], pa.timestamp("s")),
            pa.array([1], pa.timestamp("ns")),
            pa.timestamp("ns"),
            "widened to timestamp[ns] at b:1",
        ),
        (pa.array([1], pa.date32()), pa.array([86_400_000], pa.date64()), pa.date64(), "widened to date64 at b:1"),
        (pa.array([[1]]), pa.array([[1, 2.5]]), pa.list_(pa.float64()), "widened to float64 at b:1"),
        (
            pa.array([[1, 2]], pa.list_(pa.int8(), 2)),
            pa.array([[1]], pa.list_(pa.int8(), 1)),
            pa.list_(pa.int8()),
            "as in the source",
        ),
        (
            pa.array([{"a": 1}]),
            pa.array([{"b": "x", "a": 2}]),
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
            "as in the source",
        ),
    ],
)
def test_types_are_united_without_changing_a_value(first: Any, second: Any, kind: Any, reason: str) -> None:
    blocks: list[Block] = [("a", 1, {"x": first}), ("b", 1, {"x": second})]
    schema = infer(*blocks)
    assert (schema.columns[0].arrow_type, schema.columns[0].reason) == (kind, reason)
    assert infer(*reversed(blocks)) == schema
    for block in blocks:
        converted = schema.convert(block[0], rows_of(block))
        assert converted.bad == ()
        assert converted.table.schema.field("x").type == kind


CONFLICTS: list[tuple[Any, Any]] = [
    *((pa.array([1]), pa.array(["a"])), (pa.array([True]), pa.array([1])), (pa.array([[1]]), pa.array([1]))),
    (pa.array([{"a": [1]}]), pa.array([{"a": ["b"]}])),
    *((pa.array([2**53 + 1]), pa.array([0.5])), (pa.array([2**63], pa.uint64()), pa.array([-1]))),
    (pa.array([0], pa.timestamp("s", "UTC")), pa.array([0], pa.timestamp("s"))),
    (pa.array([10**10], pa.timestamp("s")), pa.array([0], pa.timestamp("ns"))),
]


def test_a_conflict_names_both_places() -> None:
    for is_reversed in (False, True):
        calls = []
        for first, second in CONFLICTS:
            blocks: list[Block] = [("a", 1, {"x": first}), ("b", 1, {"x": second})]
            calls.append(partial(infer, *(blocks[::-1] if is_reversed else blocks)))
            schema = infer(*blocks, wishes={"x": "Text"})
            assert [schema.convert(block[0], rows_of(block)).bad for block in blocks] == [(), ()]
        check_errors(GOLDEN / "intake_schema" / "conflicts.txt", calls)


def test_a_missing_field_or_column_is_null() -> None:
    blocks: list[Block] = [
        ("a", 1, {"u": [{"id": 1}, {"id": 2}], "v": [1, 2]}),
        ("b", 1, {"u": [{"id": 3, "name": "x"}, None]}),
    ]
    schema = infer(*blocks)
    assert schema.features() == FeaturesDict(
        {
            "u": {"id": Scalar("int64", optional=True), "name": Scalar(str, optional=True)},
            "v": Scalar("int64", optional=True),
        }
    )
    assert [one.reason for one in schema.columns] == ["in a null struct, every field is null", "only in 'a'"]
    others: list[Block] = [(f"other {number}", 1, {"v": [3]}) for number in range(100)]
    assert infer(*others, *blocks).columns[0].reason == "in a null struct, every field is null"
    assert infer(*others[:7], ("c", 1, {"w": [None]})).columns[1].reason == (
        "only in 'other 0', 'other 1', 'other 2', 'other 3', 'other 4' and 2 more"
    )
    converted = [schema.convert(block[0], rows_of(block)).table.to_pylist() for block in blocks]
    assert converted == [
        [{"u": {"id": 1, "name": None}, "v": 1}, {"u": {"id": 2, "name": None}, "v": 2}],
        [{"u": {"id": 3, "name": "x"}, "v": None}, {"u": {"id": None, "name": None}, "v": None}],
    ]


def test_times_keep_unit_and_zone_and_decimals_their_digits() -> None:
    when = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
    columns = {
        "when": pa.array([when], pa.timestamp("us", "Europe/Berlin")),
        "price": pa.array([decimal.Decimal("1.10")]),
        "maybe": pa.array([None], pa.binary()),
        "steps": pa.array([[dt.date(2026, 1, 1)]]),
        "pairs": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
    }
    schema = infer(("a", 1, columns))
    assert schema.arrow_types() == {
        "when": "timestamp[us, tz=Europe/Berlin]",
        "price": "decimal128(3, 2)",
        "maybe": "bytes",
        "steps": "date32",
    }
    assert schema.columns[1].reason == "decimal128(3, 2) as its exact text"
    assert schema.convert("a", rows_of(("a", 1, columns))).table.to_pylist() == [
        {
            "when": when,
            "price": "1.10",
            "maybe": None,
            "steps": [dt.date(2026, 1, 1)],
            "pairs": [{"key": "a", "value": 1}],
        }
    ]


def test_classes_come_only_on_request_and_their_order_is_stated() -> None:
    columns: Any = {"kind": ["dog", "cat", None], "digit": ["0", "2", "1"], "old": ["1", "2", "3"]}
    schema = infer(
        ("a.csv", 2, columns), is_text=True, wishes={"kind": "ClassLabel", "digit": "ClassLabel", "old": "skip"}
    )
    assert [(one.feature, one.reason) for one in schema.columns] == [
        (
            ClassLabel(names=["cat", "dog"]),
            "2 classes as requested, sorted by name; null is stored as -1, which means no label",
        ),
        (ClassLabel(num_classes=3), "3 classes as requested, numbered from 0 as in the data"),
    ]
    converted = schema.convert("a.csv", rows_of(("a.csv", 2, columns)))
    assert converted.table.to_pydict() == {"kind": [1, 0, None], "digit": [0, 2, 1]}


def test_values_that_cannot_be_classes_are_refused() -> None:
    check_errors(
        GOLDEN / "intake_schema" / "values_that_cannot_be_classes_are_refused.txt",
        (
            partial(lambda values: infer(("a", 1, {"x": values}), is_text=True, wishes={"x": "ClassLabel"}), row)
            for row in [["a", " b"], ["10000"], [f"c{n}" for n in range(10_001)], [-2, 1], [1.5], [None]]
        ),
    )


def test_a_request_for_an_unknown_column_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        infer(("a", 1, {"label": [1], "id": [2]}), wishes={"labels": "ClassLabel"})
    assert caught.value.message == 'a type is requested for "labels", but there is no such column'
    assert caught.value.hint == "Did you mean 'label'? The columns are: label, id."


def test_a_column_without_a_name_is_refused_unless_it_is_left_out() -> None:
    block: Block = ("a.jsonl", 3, {"x": [1, 2], "": ["a", "b"]})
    with pytest.raises(SourceError) as caught:
        infer(block)
    assert (caught.value.message, caught.value.hint) == (
        "a.jsonl:3: a column has no name",
        "Rename it: rename_columns={'': 'NAME'}. Or leave it out: features={'': 'skip'}",
    )
    assert [one.name for one in infer(block, wishes={"": "skip"}).columns] == ["x"]


def test_json_with_numbers_of_more_than_64_bits_is_bad_and_uint64_is_used() -> None:
    columns: Any = {"x": ["[18446744073709551615]", "[18446744073709551616]"]}
    schema = infer(("a.csv", 2, columns), is_text=True, wishes={"x": "uint64[]"})
    converted = schema.convert("a.csv", rows_of(("a.csv", 2, columns)))
    assert converted.table.to_pylist() == [{"x": [2**64 - 1]}]
    assert list(map(str, converted.bad)) == [
        "a.csv:3, column 'x': expected a JSON list of uint64[], found \"[18446744073709551616]\""
    ]


def test_rows_that_do_not_fit_a_request_are_bad() -> None:
    columns: Any = {
        "i": ["007", "+1", "300", "x", None],
        "f": ["1e5", ".5", "2", "NA", None],
        "b": ["1", "TRUE", "false", "yes", None],
        "w": ["2020-01-01", "2020-01-01T00:00:01", "2020-01-01", "x", None],
        "t": ["12:30", "12:30:01.5", "00:00", "25:00", None],
        "v": ["[1, 2]", "[0.5, 1]", "[1]", "x", "[1, 2]"],
        "l": ["dog", "cat", "bird", "", None],
    }
    wishes = {
        "i": "int8",
        "f": "float32",
        "b": "bool",
        "w": "timestamp[s]",
        "t": "time32[ms]",
        "v": "float32[2]",
        "l": "ClassLabel(dog, cat)",
    }
    schema = infer(("a.csv", 2, columns), is_text=True, wishes=wishes)
    converted = schema.convert("a.csv", rows_of(("a.csv", 2, columns)))
    half = dt.time(12, 30, 1, 500_000)
    midnight = dt.datetime(2020, 1, 1)  # noqa: DTZ001 - it has no zone
    assert converted.table.to_pylist() == [
        {"i": 7, "f": 1e5, "b": True, "w": midnight, "t": dt.time(12, 30), "v": [1, 2], "l": 0},
        {"i": 1, "f": 0.5, "b": True, "w": midnight.replace(second=1), "t": half, "v": [0.5, 1], "l": 1},
        {"i": None, "f": None, "b": None, "w": None, "t": None, "v": [1, 2], "l": None},
    ]
    assert list(converted.lines) == [2, 3, 6]
    assert list(map(str, converted.bad)) == [
        "a.csv:4, column 'i': expected int8, found \"300\"",
        "a.csv:5, column 'i': expected int8, found \"x\"",
    ]
    for name, reason in {
        "f": 'expected float32, found "NA"',
        "b": 'expected bool, found "yes"',
        "w": 'expected timestamp[s] such as 2026-01-31T12:30:00, found "x"',
        "t": 'expected time32[ms] such as 12:30:00, found "25:00"',
        "v": 'expected a JSON list of float32[2], found "x"',
        "l": 'unknown label "". Classes: dog, cat',
    }.items():
        one = infer(("a.csv", 2, {name: columns[name]}), is_text=True, wishes={name: wishes[name]})
        assert one.convert("a.csv", rows_of(("a.csv", 2, {name: columns[name]}))).bad[-1].reason == reason


def test_values_that_records_cannot_hold_are_bad() -> None:
    columns = {
        "tags": [["a"], None, ["b"], ["c"]],
        "v": [["a"], ["b"], ["b", None], ["c"]],
        "u": [[{"l": [1]}], [{"l": [1]}], [{"l": [1]}], [{"l": None}]],
    }
    schema = infer(("a", 1, columns))
    assert schema.columns[0].reason == (
        "a list cannot be null; to read null as an empty list: features={'tags': 'Text[]?'}"
    )
    converted = schema.convert("a", rows_of(("a", 1, columns)))
    assert converted.table.to_pylist() == [
        {"tags": ["a"], "v": [["a"]], "u": [{"l": [[1]]}]},
        {"tags": ["b"], "v": [["b"], []], "u": [{"l": [[1]]}]},
        {"tags": ["c"], "v": [["c"]], "u": [{"l": []}]},
    ]
    assert [str(one).partition(";")[0] for one in converted.bad] == [
        "a:2, column 'tags': is null, but a list cannot be null",
    ]


def test_the_type_that_reads_null_as_an_empty_list_can_be_requested() -> None:
    columns = {"x": [[[1], [2, 3]], None]}
    (column,) = infer(("a", 1, columns), wishes={"x": "int64[][]"}).columns
    assert column.reason == (
        "as requested; a list cannot be null; to read null as an empty list: features={'x': 'int64[][]?'}"
    )
    (column,) = infer(("a", 1, columns), wishes={"x": "int64[][]?"}).columns
    assert column.null_as_empty


def test_features_of_the_source_are_taken_as_they_are() -> None:
    hints: dict[str, Feature] = {"label": ClassLabel(names=["cat", "dog"]), "image": Image(shape=(None, None, None))}
    columns = {"label": ["dog", "cat"], "image": [{"bytes": PNG, "path": "1.png"}, {"bytes": None, "path": "2.png"}]}
    schema = infer(("a", 1, columns), hints=hints)
    assert schema.features() == FeaturesDict(hints)
    assert [one.reason for one in schema.columns] == [
        "2 classes of the source, sorted by name",
        "defined by the source",
    ]
    converted = schema.convert("a", rows_of(("a", 1, columns)))
    assert converted.table.to_pylist() == [{"label": 1, "image": PNG}]
    assert [one.reason for one in converted.bad] == ["has the path of a file, but not its bytes"]


def test_a_request_overrides_the_source() -> None:
    hints: dict[str, Feature] = {"label": ClassLabel(names=["dog", "cat"]), "size": Text()}
    columns: Any = {"label": ["dog", "cat"], "size": ["big", "small"]}
    block: Block = ("a", 1, columns)
    schema = infer(block, hints=hints, wishes={"label": "ClassLabel", "size": "ClassLabel"})
    assert schema.features() == FeaturesDict({"label": hints["label"], "size": ClassLabel(names=["big", "small"])})
    schema = infer(block, hints=hints, wishes={"label": "Text", "size": "skip"})
    assert schema.features() == FeaturesDict({"label": Text()})
    assert schema.convert("a", rows_of(block)).table.to_pydict() == {"label": ["dog", "cat"]}


def test_a_source_without_columns_is_refused() -> None:
    with pytest.raises(SourceError) as caught:
        infer(("a", 1, {"x": [1]}), wishes={"x": "skip"})
    assert caught.value.message == "the source has no columns"
    assert caught.value.hint == "Request a type other than `skip` for one of them."


def test_a_column_that_appears_later_is_refused() -> None:
    schema = infer(("a", 1, {"x": [1]}))
    with pytest.raises(SourceError) as caught:
        schema.convert("b", rows_of(("b", 1, {"x": [1], "y": [2]})))
    assert caught.value.message == 'b: column "y" is not in the schema'


SCHEMA = Schema(
    (
        ColumnSchema(name="id", feature=Tensor(shape=(), dtype="int64"), arrow_type=pa.int64()),
        ColumnSchema(name="no", feature=Scalar("int8", optional=True), arrow_type=pa.int8()),
        ColumnSchema(name="kind", feature=ClassLabel(names=["a b", "c, d", "no"]), arrow_type=pa.int64()),
        ColumnSchema(name="digit", feature=ClassLabel(num_classes=10), arrow_type=pa.int64()),
        ColumnSchema(name="tags", feature=SequenceFeature(Text()), arrow_type=pa.list_(pa.string())),
        ColumnSchema(
            name="box",
            feature=SequenceFeature(Tensor(shape=(2,), dtype="float32")),
            arrow_type=pa.list_(pa.list_(pa.float32(), 2)),
        ),
        ColumnSchema(
            name="user",
            feature=FeaturesDict({"name": Text(), "age": Scalar("int8", optional=True)}),
            arrow_type=pa.struct([("name", pa.string()), ("age", pa.int8())]),
        ),
        ColumnSchema(name="thumb", feature=Image(shape=(8, 8, 1)), arrow_type=pa.binary()),
    ),
    ("old",),
)
WRITTEN = """\
# The types of columns: registry add SOURCE --schema FILE
# A type that ends with ? may be null.
columns:
  id: int64
  "no": int8?
  kind: ClassLabel(a b, "c, d", no)
  digit:
    num_classes: 10
  tags: Text[]
  box: float32[2][]
  user:
    fields:
      name: Text
      age: int8?
  thumb: Image[8, 8, 1]
  old: skip
"""


def test_a_schema_file_is_short_and_complete() -> None:
    stream = io.StringIO()
    write_schema_file(SCHEMA, stream)
    assert stream.getvalue() == WRITTEN
    wishes = parse_schema_file(WRITTEN.encode(), "schema.yaml")
    assert wishes["old"].action == "skip"
    for column in SCHEMA.columns:
        wish = wishes[column.name]
        assert wish.arrow_type == column.arrow_type
        assert wish.feature == column.feature or (wish.optional and column.name == "no")


def test_a_mistake_in_a_schema_file_has_its_line() -> None:
    check_errors(
        GOLDEN / "intake_schema" / "a_mistake_in_a_schema_file_has_its_line.txt",
        (
            partial(lambda text: parse_schema_file(text.encode(), "s.yaml"), row)
            for row in [
                "columns:\n  id: in64\n",
                "columns:\n  id: int8\n  id: int8\n",
                "columns:\n  id: no\n",
                "rows: 1\n",
                "columns:\n  u:\n    fields:\n      a: ClassLabel\n",
                "columns:\n  u:\n    field: {}\n",
                "columns:\n  u:\n    names: [a, a]\n",
            ]
        ),
    )


def test_a_schema_file_that_does_not_exist(tmp_path: Any) -> None:
    with pytest.raises(SourceError) as caught:
        read_schema_file(tmp_path / "s.yaml")
    assert caught.value.message == f"{tmp_path}/s.yaml: No such file or directory"


def test_a_type_of_a_schema_file_allows_null_only_if_it_says_so() -> None:
    wishes = parse_schema_file(b"columns:\n  a: int8\n  b: int8?\n", "s.yaml")
    inference = Inference(bare_source(), wishes)
    rows = rows_of(("a", 1, {"a": [1, None], "b": [None, 1]}))
    inference.update("a", rows)
    schema = inference.schema()
    assert schema.features() == FeaturesDict({"a": Tensor(shape=(), dtype="int8"), "b": Scalar("int8", optional=True)})
    assert list(map(str, schema.convert("a", rows).bad)) == [
        "a:2, column 'a': is null, but the type int8 does not allow nulls; int8? does"
    ]


def test_null_is_an_empty_list_on_request() -> None:
    columns = {"tags": [["a"], None], "none": pa.nulls(2)}
    schema = infer(("a", 1, columns), wishes={"tags": "Text[]?", "none": "int8[]?"})
    assert schema.columns[0].reason == "as requested; null is read as an empty list"
    converted = schema.convert("a", rows_of(("a", 1, columns)))
    assert (converted.table.to_pydict(), converted.bad) == ({"tags": [["a"], []], "none": [[], []]}, ())
    stream = io.StringIO()
    write_schema_file(schema, stream)
    assert parse_schema_file(stream.getvalue().encode(), "s.yaml")["tags"].optional


def test_an_image_on_request_is_checked() -> None:
    columns: dict[str, Any] = {"image": [b"GIF89a", b""], "path": ["1.png", None]}
    schema = infer(("a", 1, {"image": columns["image"]}), wishes={"image": "Image"})
    assert [one.reason for one in schema.convert("a", rows_of(("a", 1, {"image": columns["image"]}))).bad] == [
        "expected a PNG or JPEG file, found other bytes",
        "expected a PNG or JPEG file, found other bytes",
    ]
    schema = infer(("a", 1, {"path": columns["path"]}), wishes={"path": "Image"})
    assert [one.reason for one in schema.convert("a", rows_of(("a", 1, {"path": columns["path"]}))).bad] == [
        'expected the bytes of a file, found "1.png"',
    ]


def test_a_schema_may_be_known_from_the_first_rows() -> None:
    hints: dict[str, Feature] = {"image": Image(), "label": ClassLabel(names=["b", "a"])}
    first = rows_of(("a", 1, {"image": [b"123"], "label": ["a"]}))
    declared = declare_schema(bare_source(hints=hints, is_typed=True), first, {})
    assert declared.features() == FeaturesDict(hints)
    assert [(one.example, one.num_nulls, one.reason) for one in declared.columns] == [
        ("3 bytes", None, "defined by the source"),
        ('"a"', None, "2 classes of the source, in the order of the source"),
    ]
    assert declare_schema(bare_source(hints=hints), first, {}) is None  # values may be null
    wishes = {"label": parse_feature("skip"), "image": parse_feature("bytes")}
    assert declare_schema(bare_source(hints=hints, is_typed=True), first, wishes) is None


def test_a_schema_file_of_all_columns_needs_only_the_first_rows() -> None:
    first = rows_of(("a", 1, {"id": ["1"], "old": ["x"]}))
    file = parse_schema_file(b"columns:\n  id: int8\n  old: skip\n  more: Text?\n", "s.yaml")
    declared = declare_schema(bare_source(may_lack_columns=True), first, file)
    assert declared.skipped == ("old",)
    assert declared.features() == FeaturesDict(
        {"id": Tensor(shape=(), dtype="int8"), "more": Scalar(str, optional=True)}
    )
    with pytest.raises(UsageError) as caught:
        declare_schema(bare_source(), first, file)
    assert caught.value.message == 'a type is requested for "more", but there is no such column'


def test_values_that_python_cannot_represent_have_an_example() -> None:
    columns = {
        "far": pa.array([2**60], pa.timestamp("s")),
        "zone": pa.array([0], pa.timestamp("s", "No/Where")),
        "bad": pa.array([b"\xff"]).view(pa.string()),
        "day": pa.array([2**31 - 1], pa.date32()),
    }
    schema = infer(("a", 1, columns))
    assert [one.example for one in schema.columns] == [str(2**60), "0", "1 byte", str(2**31 - 1)]
    assert schema.convert("a", rows_of(("a", 1, columns))).bad == ()
    reasons = {
        "far": f"{2**60} of timestamp[s] is out of range",
        "zone": "expected Text, found 0",
        "day": f"{2**31 - 1} of date32[day] is out of range",
    }
    for name, reason in reasons.items():
        block: Block = ("a", 1, {name: columns[name]})
        assert [one.reason for one in infer(block, wishes={name: "Text"}).convert("a", rows_of(block)).bad] == [reason]
    block = ("a", 1, {"bad": columns["bad"]})
    bad = infer(block, wishes={"bad": "int8"}).convert("a", rows_of(block)).bad
    assert [one.reason for one in bad] == ["expected int8, found 1 byte"]


def test_structs_with_too_many_fields_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_types, "MAX_FIELDS", 3)
    inference = Inference(bare_source(), {})
    inference.update("a", rows_of(("a", 1, {"x": [{"a": 1, "b": 1, "c": 1}]})))
    with pytest.raises(SourceError) as caught:
        inference.update("b", rows_of(("b", 1, {"x": [{"d": 1}]})))
    assert caught.value.message == 'column "x": its structs have more than 3 different fields'
    assert caught.value.hint == "To store it as text: features={'x': 'Text'}. To leave it out: features={'x': 'skip'}"


def test_text_of_integers_counts_the_unit_of_times() -> None:
    columns: Any = {
        "when": ["1609459200", "2021-01-01", "2021", "20210101", "99999999999999999999"],
        "took": ["90", "-1", "1.5", "x", "0"],
    }
    schema = infer(("a.csv", 2, columns), is_text=True, wishes={"when": "timestamp[s]", "took": "duration[s]"})
    converted = schema.convert("a.csv", rows_of(("a.csv", 2, columns)))
    new_year = dt.datetime(2021, 1, 1)  # noqa: DTZ001 - it has no zone
    assert converted.table.to_pylist() == [
        {"when": new_year, "took": dt.timedelta(seconds=90)},
        {"when": new_year, "took": dt.timedelta(seconds=-1)},
    ]
    assert list(map(str, converted.bad)) == [
        "a.csv:4, column 'when': expected timestamp[s] such as 2026-01-31T12:30:00, found \"2021\"",
        "a.csv:5, column 'when': expected timestamp[s] such as 2026-01-31T12:30:00, found \"20210101\"",
        "a.csv:6, column 'when': expected timestamp[s], found \"99999999999999999999\"",
    ]


def test_a_float64_that_is_stored_as_float32_must_fit() -> None:
    hints: dict[str, Feature] = {"x": Tensor(shape=(2,), dtype="float64")}
    block: Block = ("a", 1, {"x": pa.array([[0.5, 1.0], [1e300, 0.0]], pa.list_(pa.float64(), 2))})
    schema = infer(block, hints=hints)
    assert list(map(str, schema.convert("a", rows_of(block)).bad)) == [
        "a:2, column 'x': element 1: expected float32, found 1e+300"
    ]


def test_infinity_cannot_become_an_integer() -> None:
    values = {"x": pa.array([1.0, -np.inf, np.inf], pa.float16())}
    schema = infer(("a.parquet", 1, values), wishes={"x": "int32"})
    rows = schema.convert("a.parquet", rows_of(("a.parquet", 1, values)))
    assert rows.table.to_pydict() == {"x": [1]}
    assert [bad.reason for bad in rows.bad] == ["expected int32, found -inf", "expected int32, found inf"]


@pytest.mark.parametrize("word", ["skip", "ClassLabel", "klingon", "int64[", "decimal128(9, 2)", 5, None])
def test_a_type_that_is_none_in_the_metadata_of_the_previous_version_is_ignored(word: Any) -> None:
    features = FeaturesDict({"a": "int64", "b": SequenceFeature({"c": SequenceFeature(Text())})})
    custom = {"intake": {"nullable": ["b[]/c"]}, "arrow_types": {"a": word, "b[]/c": word, "x": "date32"}}
    wishes = remembered_wishes(features, custom)
    assert wishes["a"].arrow_type == pa.int64()
    assert wishes["b"].arrow_type == pa.list_(pa.struct([("c", value_types.nullable_type(pa.string()))]))
