"""``registry sql``: tables are quoted references, rows are printed or written in each format, pins and locks hold."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.feather
import pyarrow.parquet
import pytest

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

COUNT = 'SELECT label, count(*) AS n FROM "digits:1.*[train]" GROUP BY label ORDER BY label LIMIT 2'
ROWS = [{"label": "0", "n": 178}, {"label": "1", "n": 182}]


def written(cli: Cli, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> bytes:
    stdout = io.TextIOWrapper(io.BytesIO())
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        assert cli("sql", *arguments).code == 0
    return stdout.buffer.getvalue()  # type: ignore[attr-defined]


def test_rows_are_printed_in_each_format(digits: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert digits("sql", COUNT).out == "label    n\n0      178\n1      182\n"
    assert digits("sql", COUNT, "--format", "json").json()["data"] == {"columns": ["label", "n"], "rows": ROWS}
    assert written(digits, monkeypatch, COUNT, "--format", "csv") == b'"label","n"\n"0",178\n"1",182\n'
    lines = written(digits, monkeypatch, COUNT, "--format", "jsonl").splitlines()
    assert list(map(json.loads, lines)) == ROWS
    arrow = written(digits, monkeypatch, COUNT, "--format", "arrow")
    assert pyarrow.feather.read_table(io.BytesIO(arrow)).to_pylist() == ROWS


def test_bools_are_printed_as_in_other_commands(digits: Cli) -> None:
    assert digits("sql", "SELECT label = '0' AS is_zero FROM digits ORDER BY ALL LIMIT 1").out == "is_zero\nfalse\n"


def test_types_that_only_sql_has_are_text_or_numbers(digits: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    query = (
        "SELECT sum(1) AS s, 1.5::DECIMAL(9, 2) AS d, DATE '2024-01-02' AS t, [1, NULL] AS l, 'a\"b' AS q, NULL AS n"
    )
    (line,) = written(digits, monkeypatch, query, "--format", "jsonl").splitlines()
    assert json.loads(line) == {"s": 1, "d": "1.50", "t": "2024-01-02", "l": [1, None], "q": 'a"b', "n": None}
    lines = written(digits, monkeypatch, query, "--format", "csv").decode().splitlines()
    assert lines[1] == '"1","1.50","2024-01-02","[1, null]","a""b",'


def test_a_file_has_the_format_of_its_ending_and_is_not_replaced(digits: Cli, workspace: Path) -> None:
    for name in ("o.parquet", "o.csv.gz", "o.arrow"):
        assert digits("sql", COUNT, "-o", str(workspace / name)).code == 0
    assert pyarrow.parquet.read_table(workspace / "o.parquet").to_pylist() == ROWS
    assert gzip.decompress((workspace / "o.csv.gz").read_bytes()).startswith(b'"label","n"\n')
    again = digits("sql", COUNT, "-o", str(workspace / "o.parquet"))
    assert (again.code, "already exists" in again.err) == (1, True)
    assert digits("sql", COUNT, "-o", str(workspace / "o.parquet"), "--force").code == 0
    odd = digits("sql", COUNT, "-o", str(workspace / "o.txt"))
    assert (odd.code, odd.err.splitlines()[-1]) == (2, "hint: Name a format: --format csv")
    assert digits("sql", "SELECT error('late')", "-o", str(workspace / "late.csv")).code == 2
    assert not (workspace / "late.csv").exists()


def test_locks_and_pins_hold(digits: Cli, lock_of_digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = digits("sql", COUNT, "--locked")
    assert "does not name one version exactly" in refused.err
    exact = 'SELECT count(*) AS n FROM "digits:1.0.0[train[:80%]]"'
    assert digits("sql", exact, "--locked").out == "    n\n1,438\n"
    monkeypatch.setenv("REGISTRY_PINS", str(lock_of_digits))
    assert digits("sql", exact).out == "    n\n1,438\n"
    assert digits("sql", 'FROM "prices[train]"').code == 3


def test_many_rows_are_not_all_in_a_table(digits: Cli) -> None:
    ran = digits("sql", "SELECT * FROM range(1001)")
    assert ran.out.splitlines()[-2:] == ["  999", "and more rows: --format csv prints all of them"]
    assert (digits("sql", "SELECT 1 AS a WHERE false").out, digits("sql", "SELECT 1 AS a WHERE false").err) == (
        "",
        "no rows\n",
    )


def test_a_reader_of_stdout_that_has_enough_is_no_error(digits: Cli, workspace: Path) -> None:
    command = (sys.executable, "-m", "registry", "sql", 'SELECT label FROM "digits" CROSS JOIN range(200)', "--format")
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": workspace}
    for kind in ("csv", "jsonl"):
        with subprocess.Popen([*command, kind], **pipes) as process:
            assert process.stderr is not None
            assert process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(60) == 0
