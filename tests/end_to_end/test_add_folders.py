"""Folders whose names are values: ``split=test/year=2022/a.parquet``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from PIL import Image
from support.golden import check_errors

from registry.api import Catalog
from registry.cli.main import run
from registry.errors import NotStoredError, SourceError, UsageError

GOLDEN = Path(__file__).with_name("golden")


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pa.parquet.write_table(pa.Table.from_pylist(rows), path)


def write_feather(path: Path, rows: list[dict[str, Any]]) -> None:
    pa.feather.write_feather(pa.Table.from_pylist(rows), path)


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_json(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(rows))


Writer = Callable[[Path, list[dict[str, Any]]], None]
WRITERS: dict[str, Writer] = {
    "a.parquet": write_parquet,
    "a.feather": write_feather,
    "a.csv": write_csv,
    "a.jsonl": write_jsonl,
    "a.json": write_json,
}


def fill(folder: Path, filename: str, files: dict[str, list[dict[str, Any]]]) -> Path:
    for below, rows in files.items():
        (folder / below).mkdir(parents=True)
        WRITERS[filename](folder / below / filename, rows)
    return folder


def columns_of(catalog: Catalog, split: str) -> list[dict[str, Any]]:
    return sorted(map(plain_row, catalog.dataset("rows").read(split)), key=lambda row: row["x"])


def plain_row(example: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.decode() if isinstance(value, bytes) else None if value is None else value.item()
        for name, value in example.items()
    }


@pytest.mark.parametrize("filename", WRITERS)
def test_folders_are_columns_and_splits(tmp_path: Path, catalog: Catalog, filename: str) -> None:
    source = fill(
        tmp_path / "in",
        filename,
        {
            "split=train/year=2021/city=Z%C3%BCrich": [{"x": 1}, {"x": 2}],
            "split=train/year=2022/city=1a": [{"x": 3}],
            "split=test/year=2022/city=Bern": [{"x": 4}],
            "split=extra/year=2023/city=Bern": [{"x": 5}],
        },
    )
    report = catalog.add(source, "rows")
    assert report.splits == {"train": 3, "test": 1, "extra": 1}
    assert columns_of(catalog, "train") == [
        {"x": 1, "city": "Zürich", "year": 2021},
        {"x": 2, "city": "Zürich", "year": 2021},
        {"x": 3, "city": "1a", "year": 2022},
    ]
    assert columns_of(catalog, "test") == [{"x": 4, "city": "Bern", "year": 2022}]


@pytest.mark.parametrize("filename", WRITERS)
@pytest.mark.parametrize(
    ("folders", "column", "values"),
    [
        (["month=01", "month=12", "month=-3"], "month", [1, 12, -3]),
        (["n=007", "n=9223372036854775808"], "n", [7, 2**63]),
        (["lr=0.1", "lr=1e-05", "lr=3"], "lr", [0.1, 1e-05, 3.0]),
        (["on=true", "on=false"], "on", [True, False]),
        (["on=True", "on=False"], "on", [True, False]),
        (["day=2020-01-01", "day=2020-01-02"], "day", ["2020-01-01", "2020-01-02"]),
        (["n=1", "n=__HIVE_DEFAULT_PARTITION__"], "n", [1, None]),
        (["my%20key=a%20b", "my%20key=__HIVE_DEFAULT_PARTITION__"], "my key", ["a b", None]),
    ],
)
def test_a_column_of_folders_has_the_same_type_in_every_format(
    tmp_path: Path, catalog: Catalog, filename: str, folders: list[str], column: str, values: list[Any]
) -> None:
    files = {folder: [{"x": number}] for number, folder in enumerate(folders)}
    catalog.add(fill(tmp_path / "in", filename, files), "rows")
    found = [row[column] for row in columns_of(catalog, "train")]
    assert [(type(value), value) for value in found] == [(type(value), value) for value in values]


@pytest.mark.parametrize("filename", WRITERS)
def test_a_requested_type_keeps_leading_zeros_of_folders(tmp_path: Path, catalog: Catalog, filename: str) -> None:
    source = fill(tmp_path / "in", filename, {"zip=01069": [{"x": 1}], "zip=10115": [{"x": 2}]})
    catalog.add(source, "rows", features={"zip": "Text"})
    assert [row["zip"] for row in columns_of(catalog, "train")] == ["01069", "10115"]
    assert catalog.add(source, "rows").outcome == "unchanged"
    catalog.add(source, "numbers", features={"zip": "int32"})
    assert {row["zip"].dtype for row in catalog.dataset("numbers").read("train")} == {np.dtype(np.int32)}


@pytest.mark.parametrize("filename", WRITERS)
def test_a_file_may_repeat_the_value_of_its_folder_and_no_other(
    tmp_path: Path, catalog: Catalog, filename: str
) -> None:
    files = {f"n={number}/s=a": [{"x": number, "n": number, "s": "a"}] * 2 for number in (1, 2)}
    assert catalog.add(fill(tmp_path / "in", filename, files), "rows").splits == {"train": 4}
    assert [row["n"] for row in columns_of(catalog, "train")] == [1, 1, 2, 2]
    files["n=2/s=a"][1] = {"x": 2, "n": 3, "s": "a"}
    with pytest.raises(
        SourceError, match=r"^n=2/s=a/a[.a-z]*: its path says n=2, but the column 'n' of the file has '?3"
    ):
        catalog.add(fill(tmp_path / "other", filename, files), "rows")


def test_a_folder_may_have_any_key_and_an_empty_value(tmp_path: Path, catalog: Catalog) -> None:
    catalog.add(fill(tmp_path / "in", "a.jsonl", {"my key=": [{"x": 1}], "my key=a=b": [{"x": 2}]}), "rows")
    assert [row["my key"] for row in columns_of(catalog, "train")] == ["", "a=b"]


def test_the_file_of_another_folder_is_another_record(tmp_path: Path, catalog: Catalog) -> None:
    files = {f"year={year}": [{"x": 1}] for year in (2021, 2022)}
    report = catalog.add(fill(tmp_path / "in", "a.parquet", files), "rows")
    assert report.splits == {"train": 2}


def test_folders_that_contradict_are_refused(tmp_path: Path, catalog: Catalog) -> None:
    cases: list[Any] = [
        {"year=1": [{"x": 1}], "month=2": [{"x": 1}]},
        {"year=1": [{"x": 1}], "other": [{"x": 1}]},
        {"x=1": [{"x": 2}]},
        {"x=a": [{"x": [2]}]},
        {"y=1/y=2": [{"x": 1}]},
    ]
    sources = (fill(tmp_path / str(number), "a.parquet", files) for number, files in enumerate(cases))
    check_errors(
        GOLDEN / "add_folders" / "folders_that_contradict_are_refused.txt",
        (partial(catalog.add, source, "rows") for source in sources),
        folder=tmp_path,
    )
    assert list(catalog.datasets()) == []


def test_a_split_that_is_not_a_name_is_refused(tmp_path: Path, catalog: Catalog) -> None:
    with pytest.raises(SourceError, match=r"split=a%2Fb/a\.parquet: invalid split name 'a/b'"):
        catalog.add(fill(tmp_path / "in", "a.parquet", {"split=a%2Fb": [{"x": 1}]}), "rows")


def test_pictures_and_texts_have_splits_of_folders_and_refuse_columns(tmp_path: Path, catalog: Catalog) -> None:
    for number, folder in enumerate(["split=train/cat", "split=train/dog", "split=test/cat", "split=test/dog"]):
        (tmp_path / "in" / folder).mkdir(parents=True)
        Image.fromarray(np.full((4, 4), number, np.uint8)).save(tmp_path / "in" / folder / "1.png")
    report = catalog.add(tmp_path / "in", "pictures")
    assert report.splits == {"train": 2, "test": 2}
    (tmp_path / "in" / "split=test" / "dog").rename(tmp_path / "in" / "split=test" / "label=dog")
    with pytest.raises(SourceError, match=r"split=test/label=dog/1.png: the folder label=... names a column"):
        catalog.add(tmp_path / "in", "pictures")
    splits = {"a": "split=train", "b": "split=test"}
    assert catalog.add(tmp_path / "in", "pictures", splits=splits).splits == {"a": 2, "b": 2}
    (tmp_path / "texts" / "label=cat").mkdir(parents=True)
    (tmp_path / "texts" / "label=cat" / "1.txt").write_text("a")
    with pytest.raises(SourceError, match=r"label=cat/1.txt: the folder label=... names a column"):
        catalog.add(tmp_path / "texts", "texts")


def test_in_place_refuses_columns_of_folders(tmp_path: Path, catalog: Catalog) -> None:
    source = fill(tmp_path / "in", "train-00000-of-00001.parquet", {})
    (source / "year=2022").mkdir(parents=True)
    write_parquet(source / "year=2022" / "train-00000-of-00001.parquet", [{"x": 1}])
    with pytest.raises(SourceError, match=r"year=2022/train-00000-of-00001.parquet: the folder year=..."):
        catalog.add(source, "rows", in_place=True)


def fill_numbers(folder: Path, names: Sequence[str]) -> Path:
    """A folder of Parquet files, of which each has the number of its place as its row."""
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_parquet(folder / name, [{"x": number}])
    return folder


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["prices.parquet"], {"train": 1}),
        (["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"], {"train": 3}),
        ([f"part-0000{number}-4f1e0c2a-00d5-4b7d-9d4a-c000.snappy.parquet" for number in range(2)], {"train": 2}),
        (["train.parquet", "val.parquet"], {"train": 1, "validation": 1}),
        (["split=train/a.parquet", "split=test/a.parquet"], {"train": 1, "test": 1}),
        (
            ["split=test/b.parquet", "split=train/part-00000.parquet", "split=train/part-00001.parquet"],
            {"train": 2, "test": 1},
        ),
        (["train/a.parquet", "test/a.parquet"], {"train": 1, "test": 1}),
        (
            [f"{name}-00000-of-00001.parquet" for name in ("test", "train", "extra")],
            {"train": 1, "test": 1, "extra": 1},
        ),
    ],
)
def test_files_in_place_have_the_splits_of_copies(
    tmp_path: Path, catalog: Catalog, names: list[str], splits: dict[str, int]
) -> None:
    source = fill_numbers(tmp_path / "in", names)
    report = catalog.add(source, "stored", in_place=True)
    copied = catalog.add(source, "copied")
    assert list(report.splits.items()) == list(copied.splits.items()) == list(splits.items())
    for split in splits:
        stored = [row["x"] for row in catalog.dataset("stored").read(split)]
        assert sorted(stored) == sorted(row["x"] for row in catalog.dataset("copied").read(split))
    assert catalog.dataset("stored").verify(deep=True).faults == ()
    assert catalog.add(source, "stored", in_place=True).outcome == "unchanged"


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (
            ["part-0.parquet", "part-1.parquet"],
            "split 'train' are not named like the shards of one split: 'part-0.parquet', ",
        ),
        (
            ["abc-0.parquet", "abc-1.parquet"],
            "split 'train' are not named like the shards of one split: 'abc-0.parquet', ",
        ),
        (
            ["split=test/b.parquet", "split=train/a.parquet", "split=train/c.parquet"],
            "are not named like the shards of one split: 'split=train/a.parquet', 'split=train/c.parquet'",
        ),
        (["part-00000.parquet", "part-00002.parquet"], "; 'part-00001.parquet' is missing: "),
    ],
)
def test_files_that_no_template_names_are_refused_in_place(
    tmp_path: Path, catalog: Catalog, names: list[str], problem: str
) -> None:
    source = fill_numbers(tmp_path / "in", names)
    with pytest.raises(SourceError) as caught:
        catalog.add(source, "rows", in_place=True)
    assert problem in str(caught.value)
    assert caught.value.hint == (
        "Name the files of a split train-00000-of-00002.parquet, train-00001-of-00002.parquet, or train.parquet. "
        "If each file is a split: splits={'NAME': 'GLOB'}. Or leave out `in_place`: then the records are copied"
    )
    report = catalog.add(source, "rows", in_place=True, splits={"a": names[0], "b": names[1]})
    assert report.splits == {"a": 1, "b": 1}
    assert [one.name for one in report.files if one.role == "skipped"] == names[2:]


@pytest.mark.parametrize(
    ("names", "more"),
    [
        (["part-0.parquet", "part-1.parquet"], "part-2.parquet"),
        (["train.parquet", "val.parquet"], "extra.parquet"),
        (["prices.parquet"], "costs.parquet"),
    ],
)
def test_splits_named_after_files_before_keep_their_names(
    tmp_path: Path, catalog: Catalog, names: list[str], more: str
) -> None:
    source = fill_numbers(tmp_path / "in", names)
    catalog.import_parquet(source, name="rows")  # as ``add`` named them, too
    splits = {name.removesuffix(".parquet"): 1 for name in names}
    report = catalog.add(source, "rows", in_place=True, replace=True)
    assert (report.outcome, report.splits) == ("unchanged", splits)
    write_parquet(source / more, [{"x": 9}])
    report = catalog.add(source, "rows", in_place=True)
    assert report.splits == {**splits, more.removesuffix(".parquet"): 1}


def test_other_shards_of_files_in_place_are_a_patch(tmp_path: Path, catalog: Catalog) -> None:
    catalog.add(fill_numbers(tmp_path / "in", ["part-00000.parquet", "part-00001.parquet"]), "rows", in_place=True)
    (tmp_path / "out").mkdir()
    write_parquet(tmp_path / "out" / "part-00000.parquet", [{"x": 0}, {"x": 1}])
    assert str(catalog.add(tmp_path / "out", "rows", in_place=True).reference) == "rows:1.0.1"


def test_a_glob_makes_folders_of_columns_splits_in_place(tmp_path: Path, catalog: Catalog) -> None:
    source = fill_numbers(tmp_path / "in", ["fold=1/a.parquet", "fold=2/a.parquet"])
    with pytest.raises(SourceError, match=r"the folder fold=... names a column") as caught:
        catalog.add(source, "rows", in_place=True)
    assert "splits={'NAME': 'GLOB'}" in (caught.value.hint or "")
    report = catalog.add(source, "rows", in_place=True, splits={"train": "fold=1/*", "test": "fold=2"})
    assert report.splits == {"train": 1, "test": 1}


@pytest.mark.parametrize("ending", ["zip", "tar"])
def test_metadata_beside_an_archive_describes_its_files(tmp_path: Path, catalog: Catalog, ending: str) -> None:
    for split, number in (("train", 1), ("train", 2), ("test", 3)):
        (tmp_path / "all/images" / split).mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), number, np.uint8)).save(tmp_path / "all/images" / split / f"{number}.png")
    source = tmp_path / "in"
    source.mkdir()
    shutil.make_archive(str(source / "images"), ending, tmp_path / "all")
    lines = [{"file_name": f"images/{name}", "x": name} for name in ("train/1.png", "train/2.png", "test/3.png")]
    write_jsonl(source / "metadata.jsonl", lines)
    report = catalog.add(source, "pictures")
    assert report.splits == {"train": 2, "test": 1}
    for row in catalog.dataset("pictures").read("all"):
        assert row["x"].decode().endswith(f"/{row['image'][0, 0, 0]}.png")
    assert [one.reason for one in report.files if one.role == "metadata"] == ["columns of the records"]
    assert catalog.add(source, "pictures").outcome == "unchanged"
    (source / "metadata.jsonl").rename(source / "data.jsonl")
    with pytest.raises(SourceError, match="several kinds: 1 JSON file, 1 archive") as caught:
        catalog.add(source, "pictures")
    assert (caught.value.hint or "").endswith(
        ". If data.jsonl describes the files in the archives, call it metadata.jsonl, with a column file_name"
    )
    (source / "data.jsonl").rename(tmp_path / "all" / "metadata.jsonl")
    shutil.make_archive(str(source / "images"), ending, tmp_path / "all")
    write_jsonl(source / "metadata.jsonl", lines)
    with pytest.raises(SourceError, match=r"^metadata.jsonl is both next to the archive and inside it"):
        catalog.add(source, "pictures")


def test_tables_of_splits_beside_pictures_are_refused_with_the_way_out(tmp_path: Path, catalog: Catalog) -> None:
    for split in ("train", "test"):
        (tmp_path / "in" / split).mkdir(parents=True)
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "in" / split / "1.png")
        write_csv(tmp_path / "in" / f"{split}.csv", [{"file_name": "1.png", "x": split}])
    with pytest.raises(SourceError, match="several kinds: 2 CSV files, 2 images") as caught:
        catalog.add(tmp_path / "in", "pictures")
    assert (caught.value.hint or "").endswith(
        ". If test.csv, train.csv describe the images, give each a folder with its files, call it metadata.csv there, "
        "with a column file_name"
    )
    for split in ("train", "test"):
        (tmp_path / "in" / f"{split}.csv").rename(tmp_path / "in" / split / "metadata.csv")
    assert catalog.add(tmp_path / "in", "pictures").splits == {"train": 1, "test": 1}


def test_several_files_are_one_source(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "prices" / "data"
    (folder / "more").mkdir(parents=True)
    files = [folder / "a.csv", folder / "b.csv", folder / "more" / "c.csv"]
    for place, file in enumerate([*files, folder / "other.csv"]):
        write_csv(file, [{"number": place}])
    report = catalog.add(files)
    assert (str(report.reference), report.plan.source.summary[:11]) == ("prices:1.0.0", "3 CSV files")
    assert sorted(int(row["number"]) for row in catalog.dataset("prices").read("train")) == [0, 1, 2]
    again = ["add", *map(str, reversed(files)), str(files[0]), "--catalog", catalog.url, "--data-dir", catalog.data_dir]
    assert run(again) == 0
    assert [str(version.version) for version in catalog.versions("prices")] == ["1.0.0"]


def test_several_sources_must_be_files_of_this_machine(catalog: Catalog, tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", [{"number": 1}])
    file = str(tmp_path / "a.csv")
    with pytest.raises(SourceError, match=f"{tmp_path} is a folder: several sources must be files"):
        catalog.add([file, tmp_path], "numbers")
    with pytest.raises(UsageError, match="several sources must be local files"):
        catalog.add([file, "https://example.org/b.csv"], "numbers")
    with pytest.raises(UsageError, match="several files cannot stay in place"):
        catalog.add([file, file], "numbers", in_place=True)
    with pytest.raises(NotStoredError, match=r"b\.csv") as caught:
        catalog.add([file, tmp_path / "b.csv"], "numbers")
    assert str(caught.value.hint).startswith("Did you mean 'a.csv'?")
    with pytest.raises(NotStoredError) as caught:
        catalog.add(tmp_path / "*.csv", "numbers")
    assert str(caught.value.hint).startswith(
        "Name several files without quotes, so that the shell expands the pattern."
    )
