"""Rows of statistics: texts with few values are drawn and named as categories."""

from __future__ import annotations

from pathlib import Path

import pytest

import registry
from registry.statistics import parse_statistics
from registry.statistics.rows import feature_rows


@pytest.mark.parametrize(
    ("texts", "counts", "remarks"),
    [
        (["S"] * 7 + ["C"] * 2 + ["Q"], (7, 2, 1), "S 70%, C 20%, ..."),
        (["", "", "a text that is longer than twenty columns"] * 2, (4, 2), "'' 67%, a text that is long… 33%"),
        ([f"text {place % 16:02}" for place in range(32)], (2,) * 16, "text 00 6%, text 01 6%, text 02 6%, ..."),
        ([f"text {place % 17}" for place in range(34)], (20, 14), ""),
        (["a, b"] * 3 + [" "] * 2 + ["c"], (3, 2, 1), "'a, b' 50%, ' ' 33%, ..."),
        (["a", "bc"], (1, 1), ""),
        (["  "] * 3 + ["\n"], (3, 1), "'  ' 75%, ..."),
    ],
)
def test_texts_with_few_values_are_categories(
    tmp_path: Path, texts: list[str], counts: tuple[int, ...], remarks: str
) -> None:
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.add([{"text": text, "id": place} for place, text in enumerate(texts)], "texts", key="id")
        statistics = catalog.dataset("texts").statistics
    (row,) = feature_rows(statistics, ["train"], ["text"], moments=None, draw=tuple)
    assert row["DISTRIBUTION"] == counts
    assert row["REMARKS"] == remarks


def test_a_document_that_contradicts_itself_has_rows() -> None:
    text = '{"kind":"text","dtype":"object","count":0,"distinct":{"count":1},"frequent":[{"value":"S","count":3}]}'
    document = f'{{"format":1,"splits":{{"train":{{"num_examples":3,"features":{{"text":{text}}}}}}}}}'
    statistics = parse_statistics(document.encode())
    (row,) = feature_rows(statistics, ["train"], ["text"], moments=None, draw=tuple)
    assert (row["DISTRIBUTION"], row["REMARKS"]) == ((), "")
