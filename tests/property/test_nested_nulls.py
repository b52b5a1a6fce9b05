"""The law of nulls inside of lists: every source of the same rows gives the same schema and the same records.

JSON lines = a JSON list = dicts = Arrow = Parquet = Feather = pandas = Hugging Face; and exports give the rows back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import registry
from registry.api import Catalog

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3)


def record_of(fields: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects in which every field but ``id`` may be null or missing."""
    return st.fixed_dictionaries({"id": TEXTS}, optional={name: st.none() | one for name, one in fields.items()})


CALLS = record_of({"n": st.integers(-(2**63), 2**63 - 1), "ok": st.booleans()})
MESSAGES = record_of(
    {
        "content": TEXTS,
        "score": st.floats(allow_nan=False, allow_infinity=False, width=16),
        "calls": st.lists(CALLS, max_size=2),
        "tags": st.lists(TEXTS, max_size=2),
        "author": record_of({"age": st.integers(0, 9)}),
    }
)
ROWS = st.lists(
    st.fixed_dictionaries({"n": st.integers(0, 9), "messages": st.none() | st.lists(st.none() | MESSAGES, max_size=3)}),
    min_size=1,
    max_size=4,
)


def lines(folder: Path, rows: list[Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
    return path


def listed(folder: Path, rows: list[Any]) -> Path:
    path = folder / "rows.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def parquet(folder: Path, rows: list[Any]) -> Path:
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    return folder / "rows.parquet"


def feather(folder: Path, rows: list[Any]) -> Path:
    pyarrow.feather.write_feather(pa.Table.from_pylist(rows), folder / "rows.feather")
    return folder / "rows.feather"


SOURCES: dict[str, Callable[[Path, list[Any]], Any]] = {
    "json lines": lines,
    "json list": listed,
    "dicts": lambda _, rows: rows,
    "arrow": lambda _, rows: pa.Table.from_pylist(rows),
    "parquet": parquet,
    "feather": feather,
    "pandas": lambda _, rows: pd.DataFrame({name: [row[name] for row in rows] for name in rows[0]}),
    "hugging face": lambda _, rows: datasets.Dataset.from_list(rows),
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("nulls")
    return registry.connect(f"sqlite:///{folder / 'c.db'}", data_dir=folder / "data", create=True)


def without_nulls(value: Any, *, is_in_list: bool = False) -> Any:
    """A value without the null fields of objects in lists: JSON lines leave them out."""
    if isinstance(value, list):
        return [without_nulls(one, is_in_list=True) for one in value]
    if isinstance(value, dict):
        items = {name: without_nulls(one, is_in_list=is_in_list) for name, one in value.items()}
        return {name: one for name, one in items.items() if one is not None or not is_in_list}
    return value


def fields_of(value: Any, path: str = "") -> set[str]:
    """The paths of all values."""
    listed = [("", one) for one in value] if isinstance(value, list) else []
    inner = value.items() if isinstance(value, dict) else listed
    return {path}.union(*(fields_of(one, f"{path}/{name}") for name, one in inner))


COUNT = iter(range(10**9))


@given(rows=ROWS)
def test_every_source_of_the_same_rows_gives_the_same_records(
    tmp_path_factory: pytest.TempPathFactory, catalog: Catalog, rows: list[dict[str, Any]]
) -> None:
    # A column of lists of values cannot be null; without an object, nothing shows that it has lists of objects.
    assume(any(isinstance(one, dict) for row in rows for one in row["messages"] or ()))
    folder = tmp_path_factory.mktemp("rows")
    digests = {}
    for source, make in SOURCES.items():
        report = catalog.add(make(folder, rows), f"n{next(COUNT)}")
        assert report.publication is not None
        digests[source] = report.publication.version.content_digest
    assert len(set(digests.values())) == 1, digests
    dataset = catalog.dataset(report.reference)
    dataset.export("jsonl", folder / "out.jsonl")
    with (folder / "out.jsonl").open(encoding="utf-8", newline="\n") as file:  # splitlines would cut a text at U+0085
        written = [json.loads(line) for line in file]
    assert sorted(map(repr_of, written)) == sorted(repr_of(without_nulls(row)) for row in rows)
    if fields_of(rows) == fields_of(written):  # JSON lines do not have a field that is null everywhere
        assert catalog.add(folder / "out.jsonl", report.reference.name).outcome == "unchanged"
    table = dataset.to_hf("train", cache_dir=folder / "cache")
    assert sorted(repr_of(without_nulls(row)) for row in table) == sorted(map(repr_of, written))


def repr_of(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
