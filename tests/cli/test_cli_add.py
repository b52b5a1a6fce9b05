"""``registry add``: what is shown, what is written, and what is refused."""

from __future__ import annotations

import json
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
        "features": {"unit price": "Text", "": "skip", "a=b": "Text", "c=d": "?", "label": "ClassLabel(a=b, c)"},
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


def test_long_types_and_reasons_are_shortened(empty: Cli, workspace: Path) -> None:
    rows = [{"users": [{f"user {number}": number}]} for number in range(100)]
    (workspace / "a.json").write_text(json.dumps(rows))
    lines = empty("add", str(workspace / "a.json"), "--as", "a", "--dry-run").out.splitlines()
    line = next(line for line in lines if line.startswith("users"))
    assert line.endswith("; users[]/user 3 may be null; and 96 more")
    assert len(line) < 400
