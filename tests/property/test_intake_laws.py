"""Laws of inference: its result depends on the values alone, and a conversion loses nothing.

infer(any cuts and any order of parts and rows) = infer(rows)
format(convert(infer(texts))) = texts
infer(rows, wishes of the schema file that infer(rows) wrote) = infer(rows)
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.intake_files import bare_source

from registry.errors import SourceError
from registry.features import Feature, features_from_json, features_to_json
from registry.intake.conversion import ColumnSchema
from registry.intake.inference import Inference
from registry.intake.schema import Schema, parse_schema_file, remembered_wishes, write_schema_file
from registry.intake.source import Rows
from registry.intake.value_types import is_nullable

YEARS = [datetime.fromisoformat("1700-01-01"), datetime.fromisoformat("2200-01-01")]
ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.integers(-9, 9).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: format(Decimal(repr(number)), "f")),
    st.floats().map(repr),
    st.floats(width=32).map(lambda number: f"{number:.15g}"),
    st.floats().map(lambda number: f"{number:.17g}"),
    st.decimals(-1000, 1000, places=2).map(str),
    st.sampled_from(["9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551615"]),
)
ODD = st.sampled_from(
    [
        "007",
        "+1",
        "-0",
        "-0.0",
        "1e5",
        "1e16",
        "1e016",
        "12e-3",
        "1.5e5",
        "1E-400",
        "1e+400",
        "--inf",
        "NAN",
        "Infinity",
        ".5",
        "1.",
        "",
        "NA",
        "nan",
        "inf",
        " 1",
        "1 ",
        "0x1F",
        "1_000",
        "1,5",
        "٣",
        "1\n",
        "00",
        "-",
        "-00.5",
        "1.5.",
        "\n",
    ]
)
BOOLEANS = st.sampled_from(["true", "false", "True", "False", "TRUE", "FALSE"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def columns_of(value: st.SearchStrategy[str]) -> st.SearchStrategy[list[str | None]]:
    return st.lists(st.one_of(value, value, value, st.none()), min_size=1, max_size=12)


COLUMNS = st.one_of(
    columns_of(st.integers(-(2**63), 2**64).map(str)),
    columns_of(NUMBERS),
    columns_of(st.one_of(NUMBERS, ODD)),
    columns_of(BOOLEANS),
    columns_of(st.sampled_from(["true", "false"])),
    columns_of(st.sampled_from(["TRUE", "FALSE"])),
    columns_of(st.one_of(TEXTS, ODD, NUMBERS, BOOLEANS)),
)


def is_plain_number(value: str) -> bool:
    """Whether a program prints a number like this."""
    if value in ("nan", "NaN") or (value.lstrip("-") in ("inf", "Inf") and value.count("-") < 2):
        return True
    number = re.fullmatch(
        r"-?(?P<whole>0|[1-9][0-9]*)(?P<part>\.[0-9]+)?([eE](?P<sign>[+-]?)(?P<power>[0-9]{1,3}))?", value
    )
    if re.fullmatch(r"-?\.[0-9]+", value):  # as Stata and SAS print it
        return True
    if number is None or number["power"] is None:
        return number is not None
    return len(number["whole"]) == 1 and bool(
        number["part"] or number["sign"] or (int(number["power"]) > 15 and number["power"][0] != "0")
    )


def prints(number: float, text: str) -> bool:
    """Whether a program prints ``number`` as ``text``: in the shortest form, or as a fraction of up to 17 digits."""
    forms = [repr(number), *(f"{number:.{digits}e}" for digits in range(17 if "." in text else 0))]
    return Decimal(text) in map(Decimal, forms)


def type_by_the_rules(values: list[str | None]) -> str:
    """The type of a column of text, value by value, as the documentation states it."""
    given = [value for value in values if value is not None]
    if not given:
        return "string"
    if all(re.fullmatch("-?(0|[1-9][0-9]*)", value) and value != "-0" for value in given):
        numbers = list(map(int, given))
        if all(-(2**63) <= number < 2**63 for number in numbers):
            return "int64"
        return "uint64" if all(0 <= number < 2**64 for number in numbers) else "string"
    is_float = all(map(is_plain_number, given)) and any(value == "-0" or re.search("[.eEnN]", value) for value in given)
    finite = [value for value in given if "n" not in value]
    if is_float and finite:
        is_exact = all(math.isfinite(float(value)) and prints(float(value), value) for value in finite)
        return "double" if is_exact else "string"
    if any(set(given) <= words for words in ({"true", "false"}, {"True", "False"}, {"TRUE", "FALSE"})):
        return "bool"
    return "string"


def rows_of(table: pa.Table, start: int) -> Rows:
    return Rows(table=table, lines=range(start, start + table.num_rows))


def infer(blocks: list[tuple[str, Rows]], *, is_text: bool = False, wishes: Any = None) -> Schema:
    inference = Inference(bare_source(is_text=is_text), wishes or {})
    for part, rows in blocks:
        inference.update(part, rows)
    return inference.schema()


def infer_texts(values: list[str | None]) -> tuple[Schema, Rows]:
    rows = rows_of(pa.table({"x": pa.array(values, pa.string())}), 2)
    return infer([("a.csv", rows)], is_text=True), rows


@given(COLUMNS)
def test_text_has_the_type_that_the_rules_state(values: list[str | None]) -> None:
    schema, _ = infer_texts(values)
    assert schema.columns[0].arrow_type == pa.type_for_alias(type_by_the_rules(values))


@given(COLUMNS)
def test_converted_text_is_the_same_value(values: list[str | None]) -> None:
    schema, rows = infer_texts(values)
    converted = schema.convert("a.csv", rows)
    assert converted.bad == ()
    require_same(values, converted.table.column("x"))


def require_same(values: list[str | None], column: Any) -> None:
    """Check that ``column`` has the values that the texts write."""
    word = str(column.type)
    for text, value in zip(values, column.to_pylist(), strict=True):
        if text is None or word == "string":
            assert value == text
        elif word == "double" and not math.isfinite(value):
            assert repr(value) == text.lower()
        elif word == "double":  # 1.50 is the number 1.5
            assert prints(value, text)
            assert math.copysign(1, value) == (-1 if text.startswith("-") else 1)
        else:
            assert str(value) == (text.capitalize() if word == "bool" else text)


def cut(draw: st.DrawFn, table: pa.Table) -> list[tuple[str, Rows]]:
    """The rows of ``table``, the first in part a and the others in part b, cut into blocks in any order."""
    size = table.num_rows
    middle = draw(st.integers(0, size))
    places = sorted({0, size, middle, *draw(st.lists(st.integers(0, size), max_size=4))})
    blocks = [
        ("a" if start < middle else "b", rows_of(table.slice(start, stop - start), 1 + start))
        for start, stop in pairwise(places)
    ]
    return draw(st.permutations(blocks))


LEAVES = st.one_of(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)),
    st.lists(st.none() | st.floats()),
    st.lists(st.none() | TEXTS),
    st.lists(st.none() | st.booleans()),
    st.lists(st.none() | st.datetimes()),
    st.lists(st.none() | st.binary(max_size=3)),
    st.lists(st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3)),
    st.lists(st.none() | st.fixed_dictionaries({"a": st.none() | st.integers(0, 9), "b": st.none() | TEXTS})),
    st.lists(st.none()),
)


@st.composite
def typed_tables(draw: st.DrawFn) -> pa.Table:
    columns = draw(st.lists(LEAVES, min_size=1, max_size=3))
    size = draw(st.integers(1, 8))
    filled = [(column * size or [None])[:size] for column in columns]
    filled = [column + [None] * (size - len(column)) for column in filled]
    return pa.table({f"c{number}": pa.array(column) for number, column in enumerate(filled)})


@st.composite
def text_tables(draw: st.DrawFn) -> pa.Table:
    columns = draw(st.lists(COLUMNS, min_size=1, max_size=3))
    size = max(map(len, columns))
    return pa.table(
        {f"c{number}": pa.array((column * size)[:size], pa.string()) for number, column in enumerate(columns)}
    )


@given(st.data(), st.booleans())
def test_inference_does_not_depend_on_cuts_or_order(data: st.DataObject, is_text: bool) -> None:
    table = data.draw(text_tables() if is_text else typed_tables())
    blocks = data.draw(st.composite(cut)(table))
    in_order = sorted(blocks, key=lambda block: (block[0], block[1].lines[0]))
    assert infer(blocks, is_text=is_text) == infer(in_order, is_text=is_text)


@given(st.data(), st.booleans())
def test_a_schema_file_gives_the_same_schema(data: st.DataObject, is_text: bool) -> None:
    table = data.draw(text_tables() if is_text else typed_tables())
    blocks = [("a", rows_of(table, 1))]
    schema = infer(blocks, is_text=is_text)
    stream = io.StringIO()
    write_schema_file(schema, stream)
    again = infer(blocks, is_text=is_text, wishes=parse_schema_file(stream.getvalue().encode(), "schema.yaml"))

    def essence(one: Schema) -> list[tuple[str, Feature, Any]]:
        return [(column.name, column.feature, column.arrow_type) for column in one.columns]

    assert essence(again) == essence(schema)
    tables = [one.convert("a", blocks[0][1]).table for one in (again, schema)]
    assert repr(tables[0].to_pylist()) == repr(tables[1].to_pylist())  # NaN differs from itself


def remember(schema: Schema) -> Any:
    """The types that the addition after one with ``schema`` gets from its version."""
    features = features_from_json(features_to_json(schema.features()))
    return remembered_wishes(features, {"intake": {}, "arrow_types": schema.arrow_types()})


@given(COLUMNS, COLUMNS)
def test_text_keeps_the_type_of_the_version_before(before: list[str | None], after: list[str | None]) -> None:
    (column,) = infer_texts(before)[0].columns
    rows = rows_of(pa.table({"x": pa.array(after, pa.string())}), 0)
    schema = infer([("a.csv", rows)], is_text=True, wishes=remember(Schema((column,))))
    assert (schema.columns[0].feature, schema.columns[0].arrow_type) == (column.feature, column.arrow_type)
    converted = schema.convert("a.csv", rows)
    assert {*converted.lines}.isdisjoint(one.line for one in converted.bad)
    assert len(converted.lines) + len(converted.bad) == len(after)
    require_same([after[line] for line in converted.lines], converted.table.column("x"))
    is_nullable = getattr(column.feature, "optional", False)
    allowed = [None] * is_nullable
    fits = [value for value in after if value is not None or is_nullable]
    if all(value in [*before, *allowed] for value in fits):  # values that were there are no faults
        assert len(converted.lines) == len(fits)


def as_stored(value: Any, kind: pa.DataType) -> Any:
    """A value in which a null inside of a list is a list of none, and other values at its place are lists of one."""
    if is_nullable(kind):
        return [] if value is None else [as_stored(value, kind.value_type)]
    if isinstance(value, list):
        return [as_stored(one, kind.value_type) for one in value]
    if isinstance(value, dict) and pa.types.is_struct(kind):
        return {name: as_stored(one, kind.field(name).type) for name, one in value.items()}
    return value


def essence(column: ColumnSchema) -> tuple[Feature, Any]:
    """The types of a column. The fields of structs have no order."""
    kind = column.arrow_type
    is_struct = pa.types.is_struct(kind)
    return column.feature, {field.name: field.type for field in kind} if is_struct else kind


@given(typed_tables(), typed_tables())
def test_values_keep_the_type_of_the_version_before(before: pa.Table, after: pa.Table) -> None:
    first, rows = infer([("a", rows_of(before, 0))]), rows_of(after, 0)
    own = infer([("a", rows)])
    schema = infer([("a", rows)], wishes=remember(first))
    kinds = {column.name: column.arrow_type for column in schema.columns}
    types = {column.name: essence(column) for column in (*own.columns, *first.columns)}
    for column in schema.columns:
        assert essence(column) == types[column.name]
    kept = schema.convert("a", rows)
    assert {*kept.lines}.isdisjoint(one.line for one in kept.bad)
    for line, row in zip(kept.lines, kept.table.to_pylist(), strict=True):
        for name, value in row.items():
            source = as_stored(after.column(name)[line].as_py(), kinds[name])
            if source is None and isinstance(value, dict):  # a null struct
                source = dict.fromkeys(value)
            assert repr(value) == repr(source) or (value == source and type(value) is not type(source))  # 1.0 and 1


@given(typed_tables())
def test_the_same_source_has_the_same_schema_again(table: pa.Table) -> None:
    blocks = [("a", rows_of(table, 1))]
    schema = infer(blocks)
    assert infer(blocks, wishes=remember(schema)) == schema


@given(typed_tables())
def test_typed_values_are_kept_or_reported(table: pa.Table) -> None:
    schema = infer([("a", rows_of(table, 1))])
    converted = schema.convert("a", rows_of(table, 1))
    kept = [number - 1 for number in converted.lines]
    assert sorted([*converted.lines, *(one.line or 0 for one in converted.bad)]) == list(range(1, table.num_rows + 1))
    structs = {field.name: [one.name for one in field.type] for field in table.schema if pa.types.is_struct(field.type)}
    kinds = {column.name: column.arrow_type for column in schema.columns}
    expected = [
        {
            name: dict.fromkeys(structs[name]) if value is None and name in structs else as_stored(value, kinds[name])
            for name, value in row.items()
        }
        for row in table.to_pylist()
    ]
    # By repr, because NaN differs from itself, and True equals 1.
    assert list(map(repr, converted.table.to_pylist())) == [repr(expected[place]) for place in kept]


@given(
    st.lists(
        st.sampled_from([pa.int8(), pa.uint8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()]),
        min_size=1,
        max_size=4,
    ),
    st.data(),
)
def test_united_numbers_are_equal(kinds: list[Any], data: st.DataObject) -> None:
    blocks: list[tuple[str, Rows]] = []
    for number, kind in enumerate(kinds):
        if pa.types.is_floating(kind):
            value = st.floats(width=kind.bit_width, allow_nan=False)
        else:
            low, high = (
                (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
                if pa.types.is_signed_integer(kind)
                else (0, 2**kind.bit_width - 1)
            )
            value = st.one_of(st.integers(0, 100), st.integers(low, high))
        values = data.draw(st.lists(value, min_size=1, max_size=3))
        blocks.append((f"p{number}", rows_of(pa.table({"x": pa.array(values, kind)}), 1)))
    try:
        schema = infer(blocks)
    except SourceError:  # no type holds all of them
        return
    for part, rows in blocks:
        converted = schema.convert(part, rows)
        assert converted.bad == ()
        for before, after in zip(
            rows.table.column("x").to_pylist(), converted.table.column("x").to_pylist(), strict=True
        ):
            assert before == after  # Python compares integers and floats exactly


@pytest.mark.parametrize("values", [["1", "2"], ["1.5", "x"], ["true"], [None]])
def test_an_empty_block_changes_nothing(values: list[str | None]) -> None:
    table = pa.table({"x": pa.array(values, pa.string())})
    empty = Rows(table=pa.table({"x": pa.nulls(0)}), lines=())
    blocks = [("b", rows_of(table, 2))]
    assert infer([("a", empty), *blocks, ("c", empty)], is_text=True) == infer(blocks, is_text=True)


def write_r(numbers: list[float]) -> list[str]:
    """Numbers as R prints them: up to 15 digits, which are too many for the smallest floats and the greatest."""
    numbers = [number for number in numbers if not (0 < abs(number) < 2.3e-308 or 1.79e308 < abs(number) < math.inf)]
    words = {"inf": "Inf", "-inf": "-Inf", "nan": "NaN"}
    return [words.get(text, text) for text in (f"{number:.15g}" for number in numbers)]


def cells(text: str) -> list[str]:
    """The cells of a CSV document of one column, without its header."""
    return [row[0] for row in csv.reader(io.StringIO(text))][1:]


def write_arrow(numbers: list[float]) -> list[str]:
    stream = io.BytesIO()
    pyarrow.csv.write_csv(pa.table({"x": numbers}), stream)
    return cells(stream.getvalue().decode())


WRITERS: dict[str, Callable[[list[float]], list[str]]] = {
    "csv": lambda numbers: [repr(number) for number in numbers],
    "numpy": lambda numbers: [str(np.float64(number)) for number in numbers],
    "pandas": lambda numbers: cells(pd.DataFrame({"x": numbers}).to_csv(index=False, na_rep="nan")),
    "polars": lambda numbers: cells(pl.DataFrame({"x": numbers}).write_csv()),
    "pyarrow": write_arrow,
    "r": write_r,
}


@pytest.mark.parametrize("writer", WRITERS)
@given(numbers=st.lists(st.floats(), min_size=1, max_size=12), finite=st.floats(allow_nan=False, allow_infinity=False))
def test_floats_that_programs_print_are_read_as_the_same_numbers(
    writer: str, numbers: list[float], finite: float
) -> None:
    texts = WRITERS[writer]([*numbers, finite])
    # R prints 15 digits only.
    numbers = [float(text) for text in texts] if writer == "r" else [*numbers, finite]
    assume(any(text.lstrip("-")[:1].isdigit() for text in texts) and not is_beyond_64_bits(texts))
    schema, rows = infer_texts([*texts])
    values = schema.convert("a.csv", rows).table["x"]
    assert values.type in (pa.float64(), pa.int64(), pa.uint64())
    assert list(map(repr, values.cast(pa.float64()).to_pylist())) == list(map(repr, numbers))


@given(
    st.one_of(
        st.lists(st.dates(), min_size=1, max_size=9),
        st.lists(st.datetimes(*YEARS), min_size=1, max_size=9),
        st.lists(st.datetimes(*YEARS, timezones=ZONES), min_size=1, max_size=9),
        st.lists(st.times(), min_size=1, max_size=9),
    ),
    st.sampled_from(["", "x", "2026-02-30", "24:00:00", "20260131", "123456789"]),
    st.booleans(),
)
def test_with_dates_a_column_of_iso_times_is_the_same_times(times: list[Any], other: str, is_text: bool) -> None:
    texts = [one.isoformat() for one in times]
    rows = Rows(table=pa.table({"x": pa.array([None, *texts], pa.string())}), lines=range(2, len(texts) + 3))
    inference = Inference(bare_source(is_text=is_text), {}, dates=True)
    inference.update("a.csv", rows)
    values = inference.schema().convert("a.csv", rows).table["x"]
    assert values.to_pylist() == [None, *times]
    assert pa.types.is_temporal(values.type)
    # Another text anywhere, and the column stays text.
    inference.update("b.csv", Rows(table=pa.table({"x": [other]}), lines=[2]))
    assert pa.types.is_string(inference.schema().columns[0].arrow_type)


def is_beyond_64_bits(texts: list[str]) -> bool:
    """Whether all are integers and one has over 64 bits, such as 36893488147419103232, which may be an id."""
    return all(text.lstrip("-").isdigit() for text in texts) and any(abs(int(text)) >= 2**63 for text in texts)
