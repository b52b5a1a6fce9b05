"""The column that could be the key: named like one, unique and without nulls in all rows that were read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import registry
from registry.intake import records
from registry.intake.records import KeyCandidates, describe_candidate


def find(columns: dict[str, Any], step: int = 2, excluded: tuple[str, ...] = ()) -> str | None:
    table, seen = pa.table(columns), KeyCandidates(excluded)
    for start in range(0, table.num_rows, step):
        seen.update(table.slice(start, step))
    return seen.find(table.schema.names)


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({"sale_id": [1, 2, 3], "price": [1.5, 2.5, 3.5]}, "sale_id"),
        ({"saleId": ["a", "b", "c"]}, "saleId"),
        ({"id": [1, 2, 3], "sale_id": [1, 2, 3]}, "id"),
        ({"user_id": [1, 1, 2], "order id": [4, 5, 6]}, "order id"),
        ({"key": ["x", "y", "z"], "file_name": ["a", "b", "c"]}, "key"),
        ({"file_name": ["a.png", "b.png", "c.png"], "width": [1, 2, 3]}, "file_name"),
        ({"id": [1, 2, 1]}, None),  # the same value in two pieces
        ({"id": [1, 1, 2]}, None),
        ({"id": [1, 2, None]}, None),
        ({"id": ["a", "b", ""]}, None),
        ({"id": [1.0, 2.0, 3.0]}, None),  # floats are no keys
        ({"id": [b"a", b"b", b"c"]}, None),
        ({"id": [[1], [2], [3]]}, None),
        ({"price": [1, 2, 3], "item": ["a", "b", "c"]}, None),
        ({"valid": [1, 2, 3], "monkey": [1, 2, 3]}, None),
        ({"id": [1]}, None),
        ({"id": pa.array([2**64 - 1, 1, 2], pa.uint64())}, "id"),
    ],
)
def test_the_key_is_named_like_one_and_unique(columns: dict[str, Any], name: str | None) -> None:
    assert find(columns) == find(columns, step=1) == find(columns, step=100) == name


def test_a_column_with_a_requested_type_is_not_claimed() -> None:
    assert find({"id": ["7", "07", "8"]}, excluded=("id",)) is None


def test_a_column_that_later_rows_lack_is_not_claimed() -> None:
    seen = KeyCandidates()
    seen.update(pa.table({"id": [1, 2], "key": [1, 2]}))
    seen.update(pa.table({"key": [3]}))
    assert seen.find(["id", "key"]) == "key"
    late = KeyCandidates()
    late.update(pa.table({"a": [1]}))
    late.update(pa.table({"a": [1], "id": [2]}))
    assert late.find(["a", "id"]) is None


def test_beyond_the_bound_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_ROWS", 10)
    assert find({"id": list(range(10))}) == "id"
    assert find({"id": list(range(11))}) is None


@given(st.lists(st.one_of(st.none(), st.text("ab", max_size=3)), min_size=2, max_size=12), st.integers(1, 12))
def test_a_claim_is_true_of_all_rows(values: list[str | None], step: int) -> None:
    is_key = None not in values and "" not in values and len(set(values)) == len(values)
    assert find({"id": pa.array(values, pa.string())}, step) == ("id" if is_key else None)


def test_the_line_can_be_pasted() -> None:
    assert describe_candidate("unit id", is_first=True) == (
        "`unit id` is unique: with `key='unit id'` a diff shows corrected cells as changes. "
        "Decide now: changing the key later moves every record."
    )


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "rows", "table"])
def test_every_kind_of_source_suggests_it_once(tmp_path: Path, form: str) -> None:
    rows = [{"sale_id": number, "price": 1.5} for number in range(5)]
    source: Any = tmp_path / f"sales.{form}"
    if form == "csv":
        source.write_text("sale_id,price\n" + "".join(f"{row['sale_id']},1.5\n" for row in rows))
    elif form == "jsonl":
        source.write_text("".join(f'{{"sale_id": {row["sale_id"]}, "price": 1.5}}\n' for row in rows))
    elif form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), source)
    else:
        source = rows if form == "rows" else pa.Table.from_pylist(rows)
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "files") as catalog:
        assert catalog.add(source, "sales", key_by="content", dry_run=True).suggested_key is None
        assert catalog.add(source, "sales", key="sale_id", dry_run=True).suggested_key is None
        first = catalog.add(source, "sales")
        assert (first.suggested_key, first.plan.is_first) == ("sale_id", True)
        assert (catalog.add(source, "sales").suggested_key, catalog.plan_add(source, "sales").plan.is_first) == (
            "sale_id",
            False,
        )
        catalog.add(source, "sales", key="sale_id")
        assert catalog.add(source, "sales").suggested_key is None


def test_texts_that_a_schema_file_makes_equal_are_no_keys(tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text("id,price\n7,1.5\n07,2.5\n")
    (tmp_path / "schema.yaml").write_text("columns:\n  id: int64\n  price: float64\n")
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "files") as catalog:
        report = catalog.add(tmp_path / "sales.csv", "sales", schema=tmp_path / "schema.yaml")
        assert [int(row["id"]) for row in catalog.dataset("sales").read("train")] == [7, 7]
    assert report.suggested_key is None
