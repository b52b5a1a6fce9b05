"""``registry import parquet``: what it prints, its options, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet as pq

Cli = Callable[..., Any]


def test_a_null_is_null(cli: Cli, workspace: Path) -> None:
    made = workspace / "people"
    made.mkdir()
    columns = {"height": [1.5, None, float("nan")], "name": ["Ann", "", None], "at": [{"n": 1}, {"n": None}, {"n": 0}]}
    pq.write_table(pa.table(columns), made / "train.parquet")
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
    pq.write_table(table, made / "train.parquet")
    ran = cli("import", "parquet", str(made))
    assert (ran.code, ran.err) == (
        0,
        "note: the label 'kind' is null in some rows; it is stored there as -1, which means no label\n",
    )
    assert cli("read", "pets", "train").out == '{"kind": 1}\n{"kind": -1}\n'


def test_a_dry_run_names_what_is_published(parquet: Cli, workspace: Path) -> None:
    digest = parquet("import", "parquet", str(workspace / "animals"), "--format", "json").json()["data"][
        "content_digest"
    ]
    dry = parquet("import", "parquet", str(workspace / "animals"), "--dry-run", "--format", "json")
    assert dry.json()["data"]["published"] == digest


def test_a_type_that_is_not_supported_is_named_with_its_column(cli: Cli, workspace: Path) -> None:
    (workspace / "prices").mkdir()
    table = pa.table({"price": pa.array([None], pa.decimal128(5, 2))})
    pq.write_table(table, workspace / "prices/train.parquet")
    assert cli("import", "parquet", str(workspace / "prices")).err == (
        "error: column 'price': decimal128(5, 2) is not supported\n"
        "hint: Write the files again with another type for this column, or without it.\n"
    )
