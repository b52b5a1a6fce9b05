"""``registry sql``: tables are quoted references, rows are printed or written in each format, pins and locks hold."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.feather
import pyarrow.parquet
import pytest
from support import warm_python

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

COUNT = 'SELECT label, count(*) AS n FROM "digits:1.*[train]" GROUP BY label ORDER BY label LIMIT 2'
ROWS = [{"label": "0", "n": 178}, {"label": "1", "n": 182}]


def test_rows_are_printed_as_arrow(digits: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = io.TextIOWrapper(io.BytesIO())
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        assert digits("sql", COUNT, "--format", "arrow").code == 0
    assert pyarrow.feather.read_table(stdout.buffer).to_pylist() == ROWS


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


def test_many_rows_are_not_all_in_a_table(digits: Cli) -> None:
    ran = digits("sql", "SELECT * FROM range(1001)")
    assert ran.out.splitlines()[-2:] == ["  999", "and more rows: --format csv prints all of them"]


def test_a_reader_of_stdout_that_has_enough_is_no_error(digits: Cli, workspace: Path) -> None:
    command = (sys.executable, "-m", "registry", "sql", 'SELECT label FROM "digits" CROSS JOIN range(200)', "--format")
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": workspace}
    for kind in ("csv", "jsonl"):
        with warm_python.Popen([*command, kind], **pipes) as process:
            assert process.stderr is not None
            assert process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(60) == 0
