"""One law above all: the same rows give one schema and one content digest, whatever they were written in.

    CSV = TSV = JSON lines = JSON list = Parquet = Arrow = Feather = pandas = polars = Hugging Face = dicts
        = a zip of each = one file or many, in any order

``CANNOT_SAY`` has what a format cannot say; ``docs/adding.md`` shows it as a table. Exports give the rows back.
"""

from __future__ import annotations

import csv
import datetime as dt
import itertools
import json
import math
import random
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.levels import EXAMPLES

import registry
from registry.api import Catalog

Rows = list[dict[str, Any]]

CANNOT_SAY: Mapping[str, frozenset[str]] = {
    "CSV, TSV": frozenset({"lists and objects", "bytes", "times", "text that is a number"}),
    "JSON lines, JSON list": frozenset({"NaN and infinity", "bytes", "times"}),
    "Parquet, Arrow, Feather": frozenset(),
    "pandas": frozenset({"NaN beside null"}),
    "polars": frozenset(),
    "Hugging Face": frozenset(),
    "lists of dicts": frozenset(),
}
"""What the formats cannot say. NaN and null are one value in a column of floats of pandas."""


def text_table(folder: Path, rows: Rows, delimiter: str, suffix: str) -> Path:
    """A CSV in which every text is in quotes, and null is an empty field."""

    def field(value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, str):
            return '"' + value.replace('"', '""') + '"'
        return str(value).lower() if isinstance(value, bool) else repr(value)

    lines = [delimiter.join(rows[0]), *(delimiter.join(map(field, row.values())) for row in rows)]
    path = folder / f"rows{suffix}"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def table_of(rows: Rows) -> pa.Table:
    kinds = {"large integers": pa.uint64()}
    return pa.table({name: pa.array([row[name] for row in rows], kinds.get(name)) for name in rows[0]})


def parquet(folder: Path, rows: Rows) -> Path:
    pq.write_table(table_of(rows), folder / "rows.parquet")
    return folder / "rows.parquet"


def feather(folder: Path, rows: Rows) -> Path:
    pyarrow.feather.write_feather(table_of(rows), folder / "rows.feather")
    return folder / "rows.feather"


def stream(folder: Path, rows: Rows) -> Path:
    table = table_of(rows)
    with pa.OSFile(str(folder / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return folder / "rows.arrow"


FILES: dict[str, tuple[str, Callable[[Path, Rows], Path]]] = {
    "csv": ("CSV, TSV", lambda folder, rows: text_table(folder, rows, ",", ".csv")),
    "tsv": ("CSV, TSV", lambda folder, rows: text_table(folder, rows, "\t", ".tsv")),
    "json lines": (
        "JSON lines, JSON list",
        lambda folder, rows: write(folder / "rows.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows)),
    ),
    "json list": (
        "JSON lines, JSON list",
        lambda folder, rows: write(folder / "rows.json", json.dumps(rows, indent=1)),
    ),
    "parquet": ("Parquet, Arrow, Feather", parquet),
    "feather": ("Parquet, Arrow, Feather", feather),
    "arrow": ("Parquet, Arrow, Feather", stream),
}
OBJECTS: dict[str, tuple[str, Callable[[Rows], Any]]] = {
    "arrow table": ("Parquet, Arrow, Feather", table_of),
    "pandas": ("pandas", lambda rows: table_of(rows).to_pandas(types_mapper=pd.ArrowDtype)),
    "polars": ("polars", lambda rows: pl.from_arrow(table_of(rows))),
    "hugging face": ("Hugging Face", lambda rows: datasets.Dataset(table_of(rows))),
    "dicts": ("lists of dicts", lambda rows: rows),
    "a generator": ("lists of dicts", iter),
    "columns": ("Parquet, Arrow, Feather", lambda rows: dict(zip(rows[0], table_of(rows).columns, strict=True))),
}
TEXTUAL = ("CSV, TSV", "JSON lines, JSON list")
Make = Callable[[Path, Rows, random.Random], Any]
"""Makes a source of rows in a folder, in any order."""

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6).map(lambda text: f"t{text}")
SHORT_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3)


def record_of(fields: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects in which every field but ``id`` may be null or missing."""
    return st.fixed_dictionaries({"id": SHORT_TEXTS}, optional={name: st.none() | one for name, one in fields.items()})


MESSAGES = record_of(
    {
        "content": SHORT_TEXTS,
        "score": st.floats(allow_nan=False, allow_infinity=False, width=16),
        "calls": st.lists(record_of({"n": st.integers(-(2**63), 2**63 - 1), "ok": st.booleans()}), max_size=2),
        "tags": st.lists(SHORT_TEXTS, max_size=2),
        "author": record_of({"age": st.integers(0, 9)}),
    }
)
MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))  # noqa: DTZ001 (no zone is meant)
INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, 2**53 + 1, 0])
FINITE = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [5e-324, -0.0, 1.7976931348623157e308, 1e16]
)
VALUES: Mapping[str, tuple[st.SearchStrategy[Any], str]] = {
    # a kind of column: its values, and what a format must be able to say
    "integers": (INTEGERS, ""),
    "large integers": (st.integers(2**63, 2**64 - 1), ""),
    "floats": (FINITE, ""),
    "all floats": (FINITE | st.sampled_from([math.nan, math.inf, -math.inf]), "NaN and infinity"),
    "booleans": (st.booleans(), ""),
    "texts": (TEXTS, ""),
    "digits": (st.integers(0, 99).map(str), "text that is a number"),
    "bytes": (st.binary(min_size=1, max_size=4), "bytes"),
    "dates": (st.dates(), "times"),
    "moments": (MOMENTS, "times"),
    "lists": (st.lists(INTEGERS, max_size=3), "lists and objects"),
    "objects": (st.fixed_dictionaries({"a": INTEGERS, "b": TEXTS}), "lists and objects"),
    "lists of objects": (
        st.lists(st.fixed_dictionaries({"c": FINITE, "d": st.none() | TEXTS}), min_size=1, max_size=2),
        "lists and objects",
    ),
    # Without an object, nothing shows that it has lists of objects.
    "messages": (st.lists(st.none() | MESSAGES, max_size=3).filter(any), "lists and objects"),
}
NEVER_NULL = {"lists", "objects", "lists of objects"}


@st.composite
def tables(draw: st.DrawFn, cannot_say: frozenset[str] = frozenset()) -> Rows:
    """Rows that a format can hold which cannot say some things."""
    usable = [kind for kind, (_, need) in VALUES.items() if need not in cannot_say]
    kinds = draw(st.lists(st.sampled_from(sorted(usable)), min_size=1, max_size=4, unique=True))
    count = draw(st.integers(2, 5))
    columns: dict[str, list[Any]] = {"id": list(range(count))}
    for kind in kinds:
        values = VALUES[kind][0]
        is_full = kind in NEVER_NULL or (kind == "all floats" and "NaN beside null" in cannot_say)
        others = values if is_full or draw(st.booleans()) else st.none() | values
        first = 0.5 if "floats" in kind else draw(values)  # shows the type: whole numbers alone may be integers
        columns[kind] = [first, *(draw(others) for _ in range(count - 1))]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("law")
    return registry.connect(f"sqlite:///{folder / 'c.db'}", data_dir=folder / "data", create=True)


COUNT = itertools.count()


def added(catalog: Catalog, source: Any) -> tuple[str, str]:
    """The schema and the content digest of a source."""
    dataset = catalog.dataset(catalog.add(source, f"n{next(COUNT)}", processes=1).reference)
    return repr(dataset.features), dataset.facts.content_digest


def zip_of(path: Path) -> Path:
    with zipfile.ZipFile(path.with_suffix(".zip"), "w") as made:
        made.write(path, path.name)
    return path.with_suffix(".zip")


def cut(make: Callable[[Path, Rows], Path], folder: Path, rows: Rows) -> Path:
    """Two files, of which each has a row with every type: the first row shows them."""
    for name, some in (("a", rows[:1]), ("b", rows[1:])):
        (folder / name).mkdir()
        path = make(folder / name, some)
        path.rename(folder / f"{name}{path.suffix}")
        (folder / name).rmdir()
    return folder


def objects_of(make: Callable[[Rows], Any]) -> Make:
    return lambda _, rows, chance: make(chance.sample(rows, len(rows)))


def file_of(make: Callable[[Path, Rows], Path], form: Callable[[Path], Path] = Path) -> Make:
    return lambda folder, rows, chance: form(make(folder, chance.sample(rows, len(rows))))


def files_of(make: Callable[[Path, Rows], Path]) -> Make:
    return lambda folder, rows, _: cut(make, folder, rows)


SOURCES: dict[str, tuple[str, Make]] = {
    **{name: (group, file_of(make)) for name, (group, make) in FILES.items()},
    **{f"a zip of {name}": (group, file_of(make, zip_of)) for name, (group, make) in FILES.items()},
    # Files of Arrow and Parquet must have the same types, also if they have only nulls.
    **{f"two files of {name}": (group, files_of(make)) for name, (group, make) in FILES.items() if group in TEXTUAL},
    **{name: (group, objects_of(make)) for name, (group, make) in OBJECTS.items()},
}


@pytest.mark.parametrize("kind", SOURCES)
@settings(max_examples=max(2, EXAMPLES // 3))
@given(data=st.data(), chance=st.randoms(use_true_random=False))
def test_same_rows_same_version(
    tmp_path_factory: pytest.TempPathFactory, catalog: Catalog, kind: str, data: st.DataObject, chance: random.Random
) -> None:
    group, make = SOURCES[kind]
    rows = data.draw(tables(CANNOT_SAY[group]))
    assert added(catalog, make(tmp_path_factory.mktemp("rows"), rows, chance)) == added(catalog, rows)


EXPORTS = {"csv": "csv", "jsonl": "json lines", "parquet": "parquet", "arrow": "arrow"}


@given(data=st.data(), kind=st.sampled_from(sorted(EXPORTS)))
def test_an_export_of_each_form_equals_the_input(
    tmp_path_factory: pytest.TempPathFactory, catalog: Catalog, data: st.DataObject, kind: str
) -> None:
    group, make = FILES[EXPORTS[kind]]
    rows = data.draw(tables(CANNOT_SAY[group]))
    folder = tmp_path_factory.mktemp("out")
    name = f"n{next(COUNT)}"
    report = catalog.add(make(folder, rows), name, key="id", processes=1)
    out = folder / f"out.{kind}"
    catalog.dataset(report.reference).export(kind, out, split="train")
    again = catalog.add(out, name, key="id", processes=1)
    assert again.outcome == "unchanged"
    assert catalog.dataset(again.reference).features == catalog.dataset(report.reference).features
    if kind == "csv":
        with out.open(newline="") as file:
            written = {int(row["id"]): row for row in csv.DictReader(file)}
        for row in rows:
            shown = {name: str(one).lower() if isinstance(one, bool) else str(one) for name, one in row.items()}
            assert written[row["id"]] == {name: "" if row[name] is None else text for name, text in shown.items()}


@pytest.mark.parametrize(
    "value",
    [
        [{"c": 0.0, "d": None}],
        [{"c": 0.0, "d": {"e": None}}],
        [{"c": 0.0, "d": [{"e": None}]}],
        [{"c": 0.0, "d": [{"e": [{"f": None}]}]}, None],
        [[{"c": 0.0, "d": None}]],
        {"a": [{"c": 0.0, "d": None}]},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_key_that_is_null_in_every_object_of_a_list_stays_in_the_schema(
    tmp_path: Path, catalog: Catalog, kind: str, value: Any
) -> None:
    name = f"n{next(COUNT)}"
    report = catalog.add([{"id": 0, "l": value}, {"id": 1, "l": value}], name, key="id", processes=1)
    out = tmp_path / f"out.{kind}"
    catalog.dataset(report.reference).export(kind, out, split="train")
    assert catalog.add(out, name, key="id", processes=1).outcome == "unchanged"
    if kind == "jsonl":
        text = out.read_text()
        more = write(tmp_path / "more.jsonl", text + text.replace('"id": 0', '"id": 2').replace('"id": 1', '"id": 3'))
        changed = catalog.add(more, name, key="id", processes=1).reference
        assert catalog.dataset(changed).features == catalog.dataset(report.reference).features


def test_a_key_that_no_object_has_any_more_goes_if_types_are_inferred_anew(catalog: Catalog) -> None:
    name = f"n{next(COUNT)}"
    catalog.add([{"id": 0, "l": [{"c": 0, "d": None}]}], name, key="id", processes=1)
    report = catalog.add([{"id": 0, "l": [{"c": 0}]}], name, key="id", processes=1, retype=True)
    assert str(report.reference) == f"{name}:2.0.0"
    assert repr(catalog.dataset(report.reference).features["l"]).count("Tensor") == 1


def test_a_requested_type_of_objects_in_lists_stays_nullable(tmp_path: Path, catalog: Catalog) -> None:
    name = f"n{next(COUNT)}"
    rows = [{"id": 0, "l": [{"c": 0, "d": None}]}, {"id": 1, "l": [{"c": None, "d": "x"}]}]
    schema = write(
        tmp_path / "schema.yaml",
        "columns:\n  id: int64\n  l:\n    list:\n      fields:\n"
        "        c:\n          nullable: int32\n        d:\n          nullable: Text\n",
    )
    catalog.add(rows, name, key="id", processes=1, schema=schema)
    assert catalog.add(rows, name, key="id", processes=1).outcome == "unchanged"


def test_the_table_of_the_documentation_is_the_one_of_this_law() -> None:
    text = (Path(__file__).parents[2] / "docs" / "adding.md").read_text()
    for group, missing in CANNOT_SAY.items():
        assert f"| {group} | {', '.join(sorted(missing)) or 'nothing'} |" in text
