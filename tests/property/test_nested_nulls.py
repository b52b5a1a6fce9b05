"""Nulls inside of lists come out of exports as they came in; ``test_one_law.py`` has them in every kind of source."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from property.test_one_law import MESSAGES

import registry
from registry.api import Catalog

ROWS = st.lists(
    st.fixed_dictionaries({"n": st.integers(0, 9), "messages": st.none() | st.lists(st.none() | MESSAGES, max_size=3)}),
    min_size=1,
    max_size=4,
)


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


COUNT = itertools.count()


@given(rows=ROWS)
def test_exports_give_nulls_inside_of_lists_back(
    tmp_path_factory: pytest.TempPathFactory, catalog: Catalog, rows: list[dict[str, Any]]
) -> None:
    # A column of lists of values cannot be null; without an object, nothing shows that it has lists of objects.
    assume(any(isinstance(one, dict) for row in rows for one in row["messages"] or ()))
    folder = tmp_path_factory.mktemp("rows")
    report = catalog.add(rows, f"n{next(COUNT)}")
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
