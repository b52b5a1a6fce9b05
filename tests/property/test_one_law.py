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
from hypothesis import given
from hypothesis import strategies as st

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
}

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6).map(lambda text: f"t{text}")
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
}
NEVER_NULL = {"lists", "objects", "lists of objects"}


@st.composite
def tables(draw: st.DrawFn) -> tuple[Rows, set[str]]:
    """Rows, and what a format must be able to say to hold them."""
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4, unique=True))
    count = draw(st.integers(2, 5))
    needs = {VALUES[kind][1] for kind in kinds} - {""}
    columns: dict[str, list[Any]] = {"id": list(range(count))}
    for kind in kinds:
        values = VALUES[kind][0]
        first = draw(values)  # shows the type
        others = values if kind in NEVER_NULL or draw(st.booleans()) else st.none() | values
        columns[kind] = [first, *(draw(others) for _ in range(count - 1))]
        if kind == "floats":  # whole numbers alone would be integers in some formats
            columns[kind][0] = 0.5
        if kind == "all floats":
            columns[kind][0] = 0.5
            if None in columns[kind]:
                needs.add("NaN beside null")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)], needs


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


@given(table=tables(), chance=st.randoms(use_true_random=False))
def test_the_same_rows_in_every_format(
    tmp_path_factory: pytest.TempPathFactory, catalog: Catalog, table: tuple[Rows, set[str]], chance: random.Random
) -> None:
    rows, needs = table
    expected = added(catalog, rows)
    folder = tmp_path_factory.mktemp("rows")
    shuffled = chance.sample(rows, len(rows))
    files = [name for name, (group, _) in FILES.items() if not needs & CANNOT_SAY[group]]
    objects = [name for name, (group, _) in OBJECTS.items() if not needs & CANNOT_SAY[group]]
    for name in chance.sample(files, min(2, len(files))):
        path = FILES[name][1](folder, rows)
        form = chance.choice([lambda one: one, zip_of])
        assert added(catalog, form(path)) == expected, name
    for name in chance.sample(objects, 2):
        assert added(catalog, OBJECTS[name][1](shuffled if name in ("dicts", "a generator") else rows)) == expected, (
            name
        )
    name = chance.choice([one for one in files if FILES[one][0] != "Parquet, Arrow, Feather"] or ["parquet"])
    if name != "parquet":  # whose files must have the same types, also if they have only nulls
        (folder / "cut").mkdir()
        assert added(catalog, cut(FILES[name][1], folder / "cut", rows)) == expected, f"{name} in two files"


EXPORTS = {"csv": "csv", "jsonl": "json lines", "parquet": "parquet", "arrow": "arrow"}


@given(table=tables(), kind=st.sampled_from(sorted(EXPORTS)))
def test_an_export_of_each_form_equals_the_input(
    tmp_path_factory: pytest.TempPathFactory, catalog: Catalog, table: tuple[Rows, set[str]], kind: str
) -> None:
    rows, needs = table
    group, make = FILES[EXPORTS[kind]]
    if needs & CANNOT_SAY[group]:
        return
    folder = tmp_path_factory.mktemp("out")
    name = f"n{next(COUNT)}"
    report = catalog.add(make(folder, rows), name, key="id", processes=1)
    out = folder / f"out.{kind}"
    catalog.dataset(report.reference).export(kind, out, split="train")
    again = catalog.add(out, name, key="id", processes=1)
    assert again.outcome == "unchanged"
    if kind == "csv":
        with out.open(newline="") as file:
            written = {int(row["id"]): row for row in csv.DictReader(file)}
        for row in rows:
            shown = {name: str(one).lower() if isinstance(one, bool) else str(one) for name, one in row.items()}
            assert written[row["id"]] == {name: "" if row[name] is None else text for name, text in shown.items()}


def test_the_table_of_the_documentation_is_the_one_of_this_law() -> None:
    text = (Path(__file__).parents[2] / "docs" / "adding.md").read_text()
    for group, missing in CANNOT_SAY.items():
        assert f"| {group} | {', '.join(sorted(missing)) or 'nothing'} |" in text
