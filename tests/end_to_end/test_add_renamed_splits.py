"""Splits whose names are refused here get another one: ``--rename-split train.100=train_100``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from registry.api import Catalog
from registry.errors import SourceError, UsageError

ROWS = {"train.100": [{"a": 1}, {"a": 2}], "test": [{"a": 3}]}
RENAMED = {"train.100": "train_100"}
CARD = """---
configs:
- config_name: default
  data_files:
  - split: train.100
    path: one.csv
  - split: test
    path: two.csv
---
"""


def saved(folder: Path) -> Path:
    splits = {name: datasets.Dataset.from_list(rows) for name, rows in ROWS.items()}
    for name, split in splits.items():
        split.save_to_disk(folder / "saved" / name)
    (folder / "saved" / "dataset_dict.json").write_text('{"splits": ["train.100", "test"]}')
    return folder / "saved"


def with_card(folder: Path) -> Path:
    (folder / "README.md").write_text(CARD)
    (folder / "one.csv").write_text("a\n1\n2\n")
    (folder / "two.csv").write_text("a\n3\n")
    return folder


SOURCES: dict[str, Callable[[Path], Any]] = {
    "dict of rows": lambda _: ROWS,
    "dict of datasets": lambda _: {name: datasets.Dataset.from_list(rows) for name, rows in ROWS.items()},
    "saved dataset": saved,
    "dataset card": with_card,
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_split_gets_another_name_and_keeps_it(tmp_path: Path, catalog: Catalog, source: str) -> None:
    (tmp_path / "source").mkdir()
    given = SOURCES[source](tmp_path / "source")
    with pytest.raises(SourceError) as caught:
        catalog.add(given, "x")
    assert caught.value.hint == "Rename it: rename_splits={'train.100': 'NAME'}"
    report = catalog.add(given, "x", rename_splits=RENAMED)
    assert report.splits == {"train_100": 2, "test": 1}
    assert {split for part in report.files if (split := part.split)} <= {"train_100", "test"}
    assert [row["a"] for row in catalog.dataset("x").read("test")] == [3]
    assert catalog.add(given, "x").outcome == "unchanged"


def test_a_split_of_files_gets_another_name(tmp_path: Path, catalog: Catalog) -> None:
    for name in ("train.csv", "val.csv"):
        (tmp_path / "files").mkdir(exist_ok=True)
        (tmp_path / "files" / name).write_text(f"a\n{len(name)}\n")
    report = catalog.add(tmp_path / "files", "x", rename_splits={"validation": "val"})
    assert report.splits == {"train": 1, "val": 1}
    assert {one.split for one in report.files} == {"train", "val"}


def test_names_that_do_not_fit_are_refused(catalog: Catalog) -> None:
    with pytest.raises(UsageError, match="the source has no split 'train100' to rename") as unknown:
        catalog.add(ROWS, "x", rename_splits={"train100": "train_100"})
    assert "train.100" in str(unknown.value.hint)
    with pytest.raises(SourceError, match=r"the splits 'train.100' and 'test' would have one name: test"):
        catalog.add(ROWS, "x", rename_splits={"train.100": "test"})
    with pytest.raises(SourceError, match=r"test\.100"):
        catalog.add(ROWS, "x", rename_splits={"train.100": "test.100"})


def test_splits_in_a_column_of_objects_get_other_names(catalog: Catalog) -> None:
    rows = [{"a": 1, "s": "train.100"}, {"a": 2, "s": "more"}]
    report = catalog.add(rows, "x", split_by="s", rename_splits={"train.100": "train_100"})
    assert report.splits == {"train_100": 1, "more": 1}
