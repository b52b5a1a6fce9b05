"""Refusals of objects of Python: as those of files, with arguments in their hints."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import registry
from registry.errors import SourceError, UnusableRowsError


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
        "Correct them, or leave them out: skip_bad=1. To keep the column as text: features={'x': 'Text'}",
    )
