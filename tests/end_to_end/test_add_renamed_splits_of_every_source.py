"""``--rename-split``: splits of others get a name that is allowed here, wherever the name comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from registry.api import Catalog
from registry.errors import RegistryError, SourceError, UsageError


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


CARD = "---\nconfigs:\n- data_files:\n  - {split: train.100, path: x.csv}\n  - {split: dev, path: y.csv}\n---\n"
FOLDERS: dict[str, tuple[dict[str, str], dict[str, Any], str, str]] = {
    # the files, the options, the name of a split, and another split
    "folders of hive": ({"split=train.100/x.csv": "a\n1\n", "split=more/x.csv": "a\n2\n"}, {}, "train.100", "more"),
    "a column": ({"x.csv": "a,s\n1,train.100\n2,more\n"}, {"split_by": "s"}, "train.100", "more"),
    "names of files": ({"train.csv": "a\n1\n", "test.csv": "a\n2\n"}, {}, "train", "test"),
    "a card": ({"README.md": CARD, "x.csv": "a\n1\n", "y.csv": "a\n2\n"}, {}, "train.100", "dev"),
    "texts": ({"train/a.txt": "x", "test/b.txt": "y"}, {}, "train", "test"),
}


@pytest.mark.parametrize("form", FOLDERS)
def test_a_split_gets_another_name(tmp_path: Path, catalog: Catalog, form: str) -> None:
    files, options, name, other = FOLDERS[form]
    folder = write(tmp_path / "source", files)
    if "." in name:
        with pytest.raises(SourceError, match=r"train\.100") as caught:
            catalog.add(folder, "x", **options)
        assert "rename_splits={'train.100': 'NAME'}" in (caught.value.hint or "")
    report = catalog.add(folder, "x", rename_splits={name: "first"}, **options)
    assert set(report.splits) == {"first", other}
    assert catalog.add(folder, "x", **options).outcome == "unchanged"  # remembered


@pytest.mark.parametrize("form", FOLDERS)
def test_a_split_that_is_not_there_is_named(tmp_path: Path, catalog: Catalog, form: str) -> None:
    files, options, name, _ = FOLDERS[form]
    renamed = {name: "first", "nope": "second"}
    with pytest.raises(UsageError, match=r"the (source|column 's') has no split 'nope' to rename") as caught:
        catalog.add(write(tmp_path / "source", files), "x", rename_splits=renamed, **options)
    assert caught.value.hint


@pytest.mark.parametrize("in_place", [False, True])
def test_files_that_stay_where_they_are_are_renamed_alike(tmp_path: Path, catalog: Catalog, in_place: bool) -> None:
    for number, name in enumerate(("train", "dev")):
        pq.write_table(pa.table({"a": [number]}), tmp_path / f"{name}-00000-of-00001.parquet")
    folder = tmp_path / "source"
    folder.mkdir()
    for path in tmp_path.glob("*.parquet"):
        path.rename(folder / path.name)
    report = catalog.add(folder, "x", in_place=in_place, rename_splits={"validation": "dev"})
    assert set(report.splits) == {"train", "dev"}
    assert sorted(int(row["a"]) for split in ("train", "dev") for row in catalog.dataset("x").read(split)) == [0, 1]


def test_two_splits_of_one_name_are_refused(tmp_path: Path, catalog: Catalog) -> None:
    folder = write(tmp_path / "source", {"train.csv": "a\n1\n", "test.csv": "a\n2\n"})
    with pytest.raises(RegistryError, match="the splits 'train' and 'test' would have one name: train"):
        catalog.add(folder, "x", rename_splits={"test": "train"})


def test_splits_from_the_names_of_arrays_are_renamed(tmp_path: Path, catalog: Catalog) -> None:
    np.savez(tmp_path / "x.npz", x_train=np.zeros(3), x_test=np.ones(2))
    report = catalog.add(tmp_path / "x.npz", "x", rename_splits={"test": "held"})
    assert report.splits == {"train": 3, "held": 2}
