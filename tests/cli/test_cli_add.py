"""``registry add``: what is shown, what is written, and what is refused."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import registry
from registry.cli.add import add
from registry.cli.commands import _spell_option
from registry.errors import hints_spelled_by, spell

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

PRICES = "item,price,zip,sold\nlamp,19.5,01069,2020-01-31\nchair,42.0,10115,\ndesk,120.25,80331,2021-03-01\n"
TABLE = """\
found csv: 1 CSV file (comma, UTF-8, with a header)
splits: train (one split: no folder or file is named after a split)
keys: the content of the record (there is no key column)

FEATURE  TYPE     EXAMPLE       NULLS  REASON
item     Text     "lamp"            0  the values are text
price    float64  19.5              0  every value is a decimal number
zip      Text     "01069"           0  "01069" at prices.csv:2 is not a plain decimal number
sold     Text?    "2020-01-31"      1  ISO dates or times; to convert them: --feature sold=date32, or --dates

"""


@pytest.fixture
def folder(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with ``prices.csv``."""
    (workspace / "here").mkdir()
    (workspace / "here/prices.csv").write_text(PRICES)
    monkeypatch.chdir(workspace / "here")
    return workspace / "here"


def rows(name: str, split: str = "train") -> list[dict[str, Any]]:
    """The records in their stored order, with text as ``str``."""
    with registry.connect() as catalog:
        return [
            {
                key: value.decode() if isinstance(value, bytes) else value.item() if hasattr(value, "item") else value
                for key, value in example.items()
            }
            for example in catalog.dataset(name).read(split)
        ]


def test_a_csv_is_published_with_one_line(cli: Cli, folder: Path) -> None:
    ran = cli("add", "prices.csv")
    assert ran.out == (
        TABLE + "published prices:1.0.0: 3 examples in 1 shard, 280 B, sha256:caba5276a07c\n"
        "canonical: prices:1.0.0, the first\n"
    )
    assert (ran.code, ran.err) == (0, "")
    assert sorted(rows("prices"), key=lambda one: one["price"]) == [
        {"item": "lamp", "price": 19.5, "zip": "01069", "sold": "2020-01-31"},
        {"item": "chair", "price": 42.0, "zip": "10115", "sold": None},
        {"item": "desk", "price": 120.25, "zip": "80331", "sold": "2021-03-01"},
    ]


def test_a_name_without_its_option_and_an_option_before_the_command_are_explained(cli: Cli, folder: Path) -> None:
    ran = cli("add", "prices.csv", "prices")
    assert (ran.code, ran.err) == (
        2,
        "error: no file or folder 'prices'\n"
        "hint: If it is the name of the dataset: registry add prices.csv --as prices\n",
    )
    ran = cli("--catalog", "here.db", "list")
    assert (ran.code, ran.err) == (
        2,
        "error: No such option '--catalog'.\n"
        "hint: Put options after the command: registry COMMAND --catalog. See registry --help.\n",
    )


def test_a_key_column_that_is_gone_never_moves_the_records_in_silence(cli: Cli, folder: Path) -> None:
    cli("add", "prices.csv", "--key", "item")
    (folder / "prices.csv").write_text(PRICES.replace("item", "article"))
    ran = cli("add", "prices.csv")
    assert (ran.code, ran.out) == (1, "")
    error, hint = ran.err.splitlines()
    assert error == "error: the source has no column 'item', whose values are the keys of the previous version"
    for option in ("--rename-column NAME=item", "--key COLUMN", "--key-by content"):
        assert option in hint
    for options, number in (
        (["--rename-column", "article=item"], "1.0.0 already has this content"),
        (["--key", "article"], "would publish prices:2.0.0"),
        (["--key-by", "content"], "would publish prices:2.0.0"),
    ):
        assert number in cli("add", "prices.csv", "--dry-run", *options).out


def test_a_column_decides_the_split_and_another_the_key(cli: Cli, folder: Path) -> None:
    (folder / "people.csv").write_text("id,part,name\n1,train,Ada\n2,test,Alan\n3,train,Grace\n")
    ran = cli("add", "people.csv", "--split-by", "part", "--key", "id")
    assert ran.out.splitlines()[1:3] == [
        "splits: by the column 'part', which is not stored",
        "keys: the column 'id' (as requested)",
    ]
    assert "\nexamples: train 2, test 1\npublished people:1.0.0: 3 examples in 2 shards" in ran.out
    assert rows("people", "test") == [{"id": 2, "name": "Alan"}]
    again = cli("add", "people.csv", "--split-by", "part")
    assert "\nkeys: the column 'id' (as in the previous version)\n" in again.out
    (folder / "people.csv").write_text("id,part,name\n1,train,Ada\n2,test,Alan\n4,train,Grace\n")
    diff = cli("add", "people.csv", "--split-by", "part", "--dry-run").out
    assert sorted(re.findall("    record [0-9] (.*)", diff)) == [
        "with id 3 was removed: name 'Grace'",
        "with id 4 is new: name 'Grace'",
    ]
    back = cli("add", "people.csv", "--split-by", "part", "--key-by", "content")
    assert "\nkeys: the content of the record (as requested)\n" in back.out


def test_a_holdout_stays_when_rows_are_added(cli: Cli, folder: Path) -> None:
    def add(count: int) -> set[int]:
        (folder / "n.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(count)))
        ran = cli("add", "n.csv", "--holdout", "test=10%", "--seed", "7")
        assert "\nholdout: 10% for test, seed 7\n" in ran.out
        return {one["n"] for one in rows("n", "test")}

    few, many = add(200), add(300)
    assert 10 <= len(few) <= 30
    assert {n for n in many if n < 200} == few


def test_a_hint_spells_an_argument_as_words_that_the_command_reads() -> None:
    values: dict[str, Any] = {
        "features": {"unit price": "Text", "": "skip", "a=b": "Text", "label": "ClassLabel(a=b, c)"},
        "nulls": ["NA", "it's null"],
        "header": False,
        "dates": True,
        "kind": "csv",
        "split_by": "",
        "skip_bad": 3,
        "processes": 1,
    }
    with hints_spelled_by(partial(_spell_option, add.params)):
        words = shlex.split(" ".join(spell(name, value) for name, value in values.items()))
    read = add.make_context("add", ["people.csv", *words]).params
    assert {name: read[name] for name in values} == values | {"nulls": ("NA", "it's null")}
    assert spell("nulls", values["nulls"]) == """nulls=['NA', "it's null"]"""


def test_globs_name_the_files_of_splits(cli: Cli, folder: Path) -> None:
    for year in (2019, 2020):
        (folder / f"text/{year}").mkdir(parents=True)
        (folder / f"text/{year}/a.txt").write_text(f"{year}\n")
    cli("add", "text", "--split", "train=2019/*", "--split", "test=2020/*")
    assert [rows("text", split)[0]["text"] for split in ("train", "test")] == ["2019\n", "2020\n"]
    ran = cli("add", "text", "--split", "train=2018/*")
    assert ran.err == (
        "error: the glob '2018/*' of the split 'train' matches none of 2 files, such as '2019/a.txt', '2020/a.txt'\n"
        "hint: A glob is compared with the whole name below the source; * also matches /.\n"
    )


def test_unusable_rows_end_the_run_or_are_left_out_and_named(cli: Cli, folder: Path) -> None:
    (folder / "bad.csv").write_text("a,b\n1,x\n2\n3,y,z\n4,w\n")
    ran = cli("add", "bad.csv")
    places = "  bad.csv:3: expected 2 values, found 1\n  bad.csv:4: expected 2 values, found 3\n"
    assert (ran.code, ran.err) == (
        1,
        f"error: 2 rows or files cannot be used\n{places}hint: Correct them, or leave them out: --skip-bad 2\n",
    )
    ran = cli("add", "bad.csv", "--skip-bad", "2")
    assert (ran.code, ran.err) == (0, f"note: 2 rows or files were left out:\n{places}")
    assert [one["a"] for one in rows("bad")] in ([1, 4], [4, 1])
    stored = cli("show", "bad", "--format", "json").json()["data"]["metadata"]["skipped_rows"]
    assert len(stored) == 2


def test_the_format_of_a_csv_can_be_named(cli: Cli, folder: Path) -> None:
    (folder / "old.csv").write_bytes("NA:é\n7:\\N\n".encode("windows-1252"))
    options = ("--null", "NA", "--null", "\\N", "--no-header", "--delimiter", ":", "--encoding", "windows-1252")
    ran = cli("add", "old.csv", *options)
    assert ran.out.startswith("found csv: 1 CSV file (':', windows-1252, without a header, as requested)\n")
    assert sorted(rows("old"), key=str) == [{"column_1": 7, "column_2": None}, {"column_1": None, "column_2": "é"}]
    with registry.connect() as catalog:
        report = catalog.add(
            folder / "old.csv", nulls=["NA", "\\N"], header=False, delimiter=":", encoding="windows-1252"
        )
    assert report.outcome == "unchanged"


CARD = "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: z.csv\n---\n# Gaps\n"


def test_a_repository_with_a_dataset_card_is_added_with_the_options_of_its_files(cli: Cli, folder: Path) -> None:
    (folder / "gaps").mkdir()
    (folder / "gaps/README.md").write_text(CARD)
    (folder / "gaps/z.csv").write_text("a,b\nNA,2\n")
    cli("add", "gaps")
    assert rows("gaps") == [{"a": "NA", "b": 2}]
    cli("add", "gaps", "--null", "NA", "--feature", "a=int64")
    assert rows("gaps") == [{"a": None, "b": 2}]
    ran = cli("add", "gaps", "--split", "train=*")
    assert ran.err == (
        "error: gaps: the dataset card names the files of each split\n"
        "hint: Leave out --split, or remove `configs` from README.md.\n"
    )


def test_a_column_without_a_name_can_be_left_out(cli: Cli, folder: Path) -> None:
    (folder / "named.jsonl").write_text('{"x": 1, "": "a"}\n')
    ran = cli("add", "named.jsonl")
    assert (ran.code, ran.err) == (
        1,
        "error: named.jsonl:1: a column has no name\n"
        "hint: Rename it: --rename-column =NAME. Or leave it out: --feature =skip\n",
    )
    cli("add", "named.jsonl", "--feature", "=skip")
    assert rows("named") == [{"x": 1}]


def test_parquet_stays_where_it_is(cli: Cli, folder: Path) -> None:
    (folder / "rows").mkdir()
    pq.write_table(pa.table({"n": [3, 1, 2]}), folder / "rows/train.parquet")
    ran = cli("add", "rows", "--in-place")
    assert ran.out.startswith("found parquet: 1 Parquet file, which stays where it is\n")
    assert [one["n"] for one in rows("rows")] == [3, 1, 2]
    assert not (folder.parent / "datasets/rows").exists()
    ran = cli("add", "rows/train.parquet", "--in-place")
    assert (ran.code, ran.err) == (
        2,
        "error: files that are read in place must be in a folder: rows/train.parquet is a file\n"
        "hint: Name the folder of the files, or leave out --in-place: then the records are copied.\n",
    )


def test_a_folder_of_images_accounts_for_every_file(cli: Cli, folder: Path) -> None:
    for number, name in enumerate(("train/cat/1.png", "train/dog/1.png", "val/cat/photo of a train.png")):
        (folder / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (number, 0, 0)).save(folder / "pets" / name)
    (folder / "pets/train/Thumbs.db").write_bytes(b"x")
    (folder / "pets/.DS_Store").write_bytes(b"x")
    ran = cli("add", "pets", "--format", "json").json()["data"]
    assert ran["splits"] == {"train": 2, "validation": 1}
    assert [(one["name"], one["role"]) for one in ran["source"]["files"] if one["role"] != "records"] == [
        (".DS_Store", "skipped"),
        ("train/Thumbs.db", "skipped"),
    ]
    with registry.connect() as catalog:
        pets = catalog.dataset("pets")
        assert pets.features["label"].names == ("cat", "dog")  # type: ignore[attr-defined]
        (example,) = pets.read("validation")
        assert (example["image"] == [2, 0, 0]).all()
