"""Objects of Python with the same rows are the same content, whatever library they are of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import registry
from registry.errors import SourceError, UnusableRowsError

COLUMNS = {"whole": [1, 2, None], "text": ["a", None, "ü"], "real": [0.5, float("nan"), 2.0]}


def test_the_same_rows_are_the_same_content_from_every_library(tmp_path: Path) -> None:
    rows = [dict(zip(COLUMNS, values, strict=True)) for values in zip(*COLUMNS.values(), strict=True)]
    given = {
        "pandas": pd.DataFrame(COLUMNS).astype({"whole": "Int64"}),
        "polars": pl.DataFrame(COLUMNS),
        "Arrow": pa.table(COLUMNS),
        "a generator": (row for row in rows),
        "columns": {"whole": pa.array(COLUMNS["whole"]), "text": COLUMNS["text"], "real": np.array(COLUMNS["real"])},
    }
    with registry.connect(tmp_path / "catalog.db") as catalog:
        outcomes = {name: catalog.add(one, "things", processes=1).outcome for name, one in given.items()}
        found = sorted(catalog.dataset("things").read("train"), key=lambda example: str(example["text"]))
    assert outcomes == dict.fromkeys(given, "unchanged") | {"pandas": "published"}
    assert [example["whole"] for example in found] == [2, None, 1]
    assert np.isnan(found[0]["real"])


def test_rows_of_two_types_are_refused_in_every_source_alike(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": pd.Series([1, "two", 3], dtype=object)})
    (tmp_path / "x.jsonl").write_text('{"x": 1}\n{"x": "two"}\n{"x": 3}\n')
    with registry.connect(tmp_path / "catalog.db") as catalog:
        for given, part in ((frame, "data"), (frame.to_dict("records"), "data"), (tmp_path / "x.jsonl", "x.jsonl")):
            with pytest.raises(SourceError) as caught:
                catalog.add(given, "things", processes=1)
            assert caught.value.message == f'column "x": it is int64 at {part}:1, and text at {part}:2'
            assert caught.value.hint == (
                "To store it as text: features={'x': 'Text'}. To leave it out: features={'x': 'skip'}"
            )
        report = catalog.add(frame, "things", features={"x": "int64"}, skip_bad=1, processes=1)
    assert (report.splits, [str(bad) for bad in report.bad]) == (
        {"train": 2}, ["data:2, column 'x': expected int64, found \"two\""]
    )  # fmt: skip


def test_hints_of_objects_are_arguments(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        with pytest.raises(SourceError) as caught:
            catalog.add({"train": pa.table({"unit price": [1]}), "test": pa.table({"unit price": ["a"]})}, "prices")
        with pytest.raises(UnusableRowsError) as refused:
            catalog.add([{"x": 1}, {"x": 2**70}], "large", features={"x": "int64"})
    assert caught.value.hint == (
        "To store it as text: features={'unit price': 'Text'}. To leave it out: features={'unit price': 'skip'}"
    )
    assert caught.value.__notes__ == [f"hint: {caught.value.hint}"]
    assert (refused.value.message, refused.value.hint) == (
        "1 row or file cannot be used\n"
        "  data:2, column 'x': 1180591620717411303424 cannot be stored: it does not fit into 64 bits",
        "Correct them, or leave them out: skip_bad=1",
    )
