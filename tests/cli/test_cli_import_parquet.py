"""``registry import parquet``: what it prints, its options, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from support.golden import check_texts

Cli = Callable[..., Any]
GOLDEN = Path(__file__).parent / "golden" / "cli_import_parquet"


@pytest.fixture
def folder(workspace: Path) -> Path:
    """A folder of four examples in two shards, and two of a test split."""
    made = workspace / "animals"
    made.mkdir()
    table = pa.table({"name": ["cat", "dog", "eel", "fox"], "legs": [4, 4, 0, 4]})
    for index in range(2):
        parquet.write_table(table.slice(2 * index, 2), made / f"train-{index:05}-of-00002.parquet")
    parquet.write_table(table.slice(2), made / "test.parquet")
    return made


def test_a_folder_is_imported_and_read(cli: Cli, folder: Path) -> None:
    ran = cli("import", "parquet", str(folder))
    assert (ran.code, ran.err) == (0, "")
    first, *_ = ran.out.splitlines()
    assert first.startswith("published animals:1.0.0: 6 examples in 3 shards, ")
    assert cli("read", "animals", "train[1:3]").out == ('{"legs": 4, "name": "dog"}\n{"legs": 0, "name": "eel"}\n')
    assert cli("read", "animals", "train[1:3]", "--ids").out == (
        "train-00000-of-00002.parquet__1\ntrain-00001-of-00002.parquet__0\n"
    )
    assert cli("resolve", "animals", "train[1:3]").out.splitlines()[1:] == [
        "FILE                          SKIP  TAKE  OF",
        "train-00000-of-00002.parquet     1     1   2",
        "train-00001-of-00002.parquet     0     1   2",
    ]
    assert "format     parquet_columns\n" in cli("show", "animals").out
    assert cli("verify", "animals", "--deep").code == 0
    again = cli("import", "parquet", str(folder))
    assert again.out.startswith("animals:1.0.0 is already published (sha256:")


def test_a_null_is_null(cli: Cli, workspace: Path) -> None:
    made = workspace / "people"
    made.mkdir()
    columns = {"height": [1.5, None, float("nan")], "name": ["Ann", "", None], "at": [{"n": 1}, {"n": None}, {"n": 0}]}
    parquet.write_table(pa.table(columns), made / "train.parquet")
    assert cli("import", "parquet", str(made)).code == 0
    assert cli("read", "people", "train").out == (
        '{"at": {"n": 1}, "height": 1.5, "name": "Ann"}\n'
        '{"at": {"n": null}, "height": null, "name": ""}\n'
        '{"at": {"n": 0}, "height": "nan", "name": null}\n'
    )
    assert cli("read", "people", "train[1:2]", "--format", "json").json()["data"]["examples"] == [
        {"at": {"n": None}, "height": None, "name": ""}
    ]


def test_a_null_label_is_told(cli: Cli, workspace: Path) -> None:
    made = workspace / "pets"
    made.mkdir()
    told = {"info": {"features": {"kind": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    table = pa.table({"kind": pa.array([1, None], pa.int64())})
    table = table.replace_schema_metadata({"huggingface": json.dumps(told)})
    parquet.write_table(table, made / "train.parquet")
    ran = cli("import", "parquet", str(made))
    assert (ran.code, ran.err) == (
        0,
        "note: the label 'kind' is null in some rows; it is stored there as -1, which means no label\n",
    )
    assert cli("read", "pets", "train").out == '{"kind": 1}\n{"kind": -1}\n'


def test_name_version_config_and_copy(cli: Cli, folder: Path, workspace: Path) -> None:
    options = ("--name", "beasts", "--version", "2.0.0", "--config", "few", "--copy", "--format", "json")
    ran = cli("import", "parquet", str(folder), *options)
    data = ran.json()["data"]
    assert (data["dataset"], data["version"], data["newly"]) == ("beasts/few", "2.0.0", True)
    assert data["splits"] == {"train": 4, "test": 2}
    assert (workspace / "datasets" / "beasts" / "few" / "2.0.0" / "test.parquet").exists()


def test_a_dry_run_says_which_version_the_files_make(cli: Cli, folder: Path) -> None:
    ran = cli("import", "parquet", str(folder), "--dry-run")
    described = (
        "animals:1.0.0: 6 examples\n"
        "\n"
        "SPLIT  EXAMPLES  SHARDS\n"
        "train         4       2\n"
        "test          2       1\n"
        "\n"
        "name: Text()\n"
        "legs: Tensor(shape=(), dtype=int64)\n"
        "\n"
    )
    assert (ran.code, ran.err, ran.out) == (0, "", f"{described}not published yet\n")
    options = ("--name", "beasts", "--config", "few", "--version", "1.2.0", "--copy", "--format", "json")
    check_texts(
        GOLDEN / "a_dry_run_says_which_version_the_files_make.txt",
        [json.dumps(cli("import", "parquet", str(folder), "--dry-run", *options).json(), indent=1)],
    )
    assert cli("list").code == 3  # not even a catalog was created
    digest = cli("import", "parquet", str(folder), "--format", "json").json()["data"]["content_digest"]
    again = cli("import", "parquet", str(folder), "--dry-run")
    assert again.out == f"{described}a version with this number is already published ({digest[:19]})\n"
    assert cli("import", "parquet", str(folder), "--dry-run", "--format", "json").json()["data"]["published"] == digest


def test_refusals_name_the_file_or_the_column(cli: Cli, folder: Path) -> None:
    (folder / "train-00001-of-00002.parquet").unlink()
    ran = cli("import", "parquet", str(folder))
    assert ran.code == 1
    assert ran.err == (
        f"error: file://{folder}: the Parquet files cannot be read as one dataset\n"
        "  train-00001-of-00002.parquet: missing\n"
        "hint: Name shards SPLIT-00000-of-00005.parquet, or SPLIT.parquet if a split is one file. "
        "Import each config from its own folder, with --config CONFIG.\n"
    )
    for path in folder.iterdir():
        path.unlink()
    parquet.write_table(pa.table({"price": pa.array([None], pa.decimal128(5, 2))}), folder / "train.parquet")
    ran = cli("import", "parquet", str(folder))
    assert ran.err == (
        "error: column 'price': decimal128(5, 2) is not supported\n"
        "hint: Write the files again with another type for this column, or without it.\n"
    )
