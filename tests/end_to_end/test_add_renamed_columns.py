"""``--rename-column`` and ``--rename-config``: columns and configs of others get the names that a dataset wants."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from registry.api import Catalog
from registry.errors import SourceError, UnusableRowsError, UsageError

ROWS = [{"Sepal Length": 1.5, "kind": "a"}, {"Sepal Length": 2.5, "kind": "b"}]
RENAMED = {"Sepal Length": "length", "kind": "class"}


def text(name: str, content: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_text(content)
        return folder / name

    return write


def parquet(folder: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "x.parquet")
    return folder / "x.parquet"


SOURCES: dict[str, Callable[[Path], Any]] = {
    "csv": text("x.csv", "Sepal Length,kind\n1.5,a\n2.5,b\n"),
    "jsonl": text("x.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS)),
    "parquet": parquet,
    "frame": lambda _: pd.DataFrame(ROWS),
    "rows": lambda _: ROWS,
    "dict of rows": lambda _: {"train": ROWS},
}


@pytest.mark.parametrize("source", SOURCES)
def test_columns_get_other_names_that_all_arguments_use(tmp_path: Path, catalog: Catalog, source: str) -> None:
    given = SOURCES[source](tmp_path)
    catalog.add(given, "x", rename_columns=RENAMED, features={"class": "ClassLabel(b, a)"}, key="length")
    catalog.add([{"length": 1.5, "class": "a"}, {"length": 2.5, "class": "b"}], "direct", key="length",
                features={"class": "ClassLabel(b, a)"})  # fmt: skip
    assert str(catalog.dataset("x").features) == str(catalog.dataset("direct").features)
    assert [dict(row) for row in catalog.dataset("x").read("train")] == [
        dict(row) for row in catalog.dataset("direct").read("train")
    ]
    assert catalog.add(given, "x").outcome == "unchanged"  # the names are remembered


@pytest.mark.parametrize("source", SOURCES)
def test_a_column_that_is_not_there_is_named(tmp_path: Path, catalog: Catalog, source: str) -> None:
    with pytest.raises(UsageError, match="the source has no column 'kid' to rename") as caught:
        catalog.add(SOURCES[source](tmp_path), "x", rename_columns={"kid": "class"})
    assert "kind" in (caught.value.hint or "")


@pytest.mark.parametrize("source", SOURCES)
def test_two_columns_do_not_become_one(tmp_path: Path, catalog: Catalog, source: str) -> None:
    given = SOURCES[source](tmp_path)
    with pytest.raises(SourceError, match="two columns would be named 'kind'"):
        catalog.add(given, "x", rename_columns={"Sepal Length": "kind"})
    with pytest.raises(UsageError, match="two columns would be named 'y'"):
        catalog.add(given, "x", rename_columns={"Sepal Length": "y", "kind": "y"})
    assert catalog.add(given, "x", rename_columns={"Sepal Length": "kind", "kind": "Sepal Length"}).outcome


def test_another_name_leaves_those_of_the_addition_before(catalog: Catalog) -> None:
    catalog.add([{"a": 1, "b": 2}], "x", rename_columns={"a": "n"})
    catalog.add([{"a": 1, "b": 3}], "x", rename_columns={"b": "m"})
    assert list(catalog.dataset("x").features) == ["m", "n"]
    catalog.add([{"b": 3, "c": 4}], "x", rename_columns={"c": "n"})
    assert list(catalog.dataset("x").features) == ["m", "n"]
    catalog.add([{"b": 3}], "x")
    assert list(catalog.dataset("x").features) == ["m"]


def test_a_bad_row_is_reported_under_the_new_name(tmp_path: Path, catalog: Catalog) -> None:
    given = text("x.csv", "a\n1\nfew\n")(tmp_path)
    with pytest.raises(UnusableRowsError, match="column 'n'"):
        catalog.add(given, "x", rename_columns={"a": "n"}, features={"n": "int32"})


def test_a_column_without_a_name_gets_one(tmp_path: Path, catalog: Catalog) -> None:
    with pytest.raises(SourceError) as caught:
        catalog.add(pd.DataFrame({"": [1]}), "x")
    assert caught.value.hint == "Rename it: rename_columns={'': 'NAME'}. Or leave it out: features={'': 'skip'}"
    catalog.add(pd.DataFrame({"": [1]}), "x", rename_columns={"": "n"})
    assert list(catalog.dataset("x").features) == ["n"]


def test_a_picture_keeps_its_supervised_keys(tmp_path: Path, catalog: Catalog) -> None:
    for label in ("a", "b"):
        (tmp_path / "pictures" / label).mkdir(parents=True)
        Image.new("L", (2, 2)).save(tmp_path / "pictures" / label / "1.png")
    catalog.add(tmp_path / "pictures", "x", rename_columns={"label": "class", "path": "file"})
    dataset = catalog.dataset("x")
    assert set(dataset.features) == {"image", "class", "file"}
    assert dataset.metadata.supervised_keys == ("image", "class")
    assert {row["file"] for row in dataset.read("train")} == {b"a/1.png", b"b/1.png"}
    assert catalog.add(tmp_path / "pictures", "x").outcome == "unchanged"


def test_equal_pictures_of_two_splits_are_found_whatever_the_column_of_their_names_is(
    tmp_path: Path, catalog: Catalog
) -> None:
    for split in ("train", "test"):
        (tmp_path / "pictures" / split).mkdir(parents=True)
        Image.new("L", (2, 2)).save(tmp_path / "pictures" / split / f"{split}.png")
    report = catalog.add(tmp_path / "pictures", "x", rename_columns={"path": "file"})
    assert [pair.num_values for pair in report.overlap.shared] == [1]


def test_a_feature_that_its_column_does_not_tell_is_given_back_under_the_new_name(catalog: Catalog) -> None:
    features = datasets.Features({"m": datasets.Array2D((2, 2), "float32")})
    given = datasets.Dataset.from_dict({"m": [[[1.0, 2.0], [3.0, 4.0]]]}, features=features)
    catalog.add(given, "x", rename_columns={"m": "matrix"})
    assert catalog.dataset("x").to_hf("train").features == datasets.Features({"matrix": features["m"]})


def repository(folder: Path) -> Path:
    (folder / "README.md").write_text(
        "---\nconfigs:\n- {config_name: en (US), data_files: x.csv}\n- {config_name: de, data_files: y.csv}\n---\n"
    )
    (folder / "x.csv").write_text("a\n1\n")
    (folder / "y.csv").write_text("a\n2\n3\n")
    return folder


def test_a_config_gets_another_name(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "repository").mkdir()
    given = repository(tmp_path / "repository")
    for options in ({}, {"config": "en (US)"}):
        report = catalog.add(given, "x", rename_configs={"en (US)": "en_US"}, **options)
        assert str(report.reference) == "x/en_US:1.0.0"
        assert report.splits == {"train": 1}
    assert catalog.add(given, "x", config="de").splits == {"train": 2}


def test_only_the_config_that_is_read_is_renamed(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "repository").mkdir()
    given = repository(tmp_path / "repository")
    with pytest.raises(UsageError, match="only the config that is being read") as caught:
        catalog.add(given, "x", config="de", rename_configs={"en (US)": "en_US"})
    assert caught.value.hint == "Write rename_configs={'de': 'NAME'}, and add the other configs one by one."
    with pytest.raises(SourceError, match="nope"):
        catalog.add(given, "x", rename_configs={"nope": "en_US"})
    with pytest.raises(UsageError, match="files of the kind csv cannot be read with these options: `rename_configs`"):
        catalog.add(text("x.csv", "a\n1\n")(tmp_path), "y", rename_configs={"a": "b"})
    with pytest.raises(UsageError, match="only paths and URLs can be read with these options: `rename_configs`"):
        catalog.add(ROWS, "y", rename_configs={"a": "b"})
    pq.write_table(pa.table({"a": [1]}), tmp_path / "train-00000-of-00001.parquet")
    for renamed in ("rename_columns", "rename_configs"):
        with pytest.raises(UsageError, match=renamed):
            catalog.add(tmp_path, "z", in_place=True, **{renamed: {"a": "b"}})


def test_a_remembered_name_that_is_in_the_way_can_be_given_back(tmp_path: Path, catalog: Catalog) -> None:
    source = tmp_path / "d.csv"
    source.write_text("a,x\n1,2\n")
    catalog.add(source, "d", rename_columns={"a": "q", "x": "a"})
    source.write_text("a,q,x\n1,2,3\n")
    with pytest.raises(SourceError, match="two columns would be named 'q'") as caught:
        catalog.add(source, "d", rename_columns={"x": "y"})
    assert "If 'a' has that name from the previous version: " in (caught.value.hint or "")
    catalog.add(source, "d", rename_columns={"x": "y", "a": "a"})
    assert set(catalog.dataset("d").features) == {"a", "q", "y"}
