"""Ctrl-C or SIGTERM during ``registry add``: the command ends with 130 or 143, and leaves no process and no file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from support import warm_python

CODE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored if the tests run in the background
from registry.cli.main import main
main()
"""


def children(process: int) -> list[str]:
    """The processes that a process started."""
    found: list[str] = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            found += path.read_text().split()
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_addition_leaves_no_process_and_no_file(number: signal.Signals, tmp_path: Path) -> None:
    line = {"text": "word " * 20, "list": [1, 2, 3], "nested": {"a": "b"}}
    rows = "".join(json.dumps({"id": number, **line}) + "\n" for number in range(150_000))
    with zipfile.ZipFile(tmp_path / "rows.zip", "w") as archive:
        archive.writestr("rows.jsonl", rows)
    temporary, data = tmp_path / "tmp", tmp_path / "datasets"
    temporary.mkdir()
    running = warm_python.Popen(
        [sys.executable, "-c", CODE, "add", str(tmp_path / "rows.zip"), "-j", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(temporary), "REGISTRY_CATALOG": str(tmp_path / "catalog.db")},
    )
    while len(children(running.pid)) < 2 or not list(data.rglob("*.tmp")) + list(data.rglob("incomplete.*")):
        assert running.poll() is None, running.communicate()[1]
        time.sleep(0.02)
    assert list(temporary.iterdir())
    os.killpg(running.pid, number)
    _, told = running.communicate(timeout=600)
    assert running.returncode == 128 + number
    assert told.endswith(
        "error: interrupted\nhint: No unfinished change is visible. Run the same command again to finish.\n"
    )
    end = time.monotonic() + 300
    with suppress(ProcessLookupError):  # all processes of the session are gone, also those that another one has to reap
        while True:
            os.killpg(running.pid, 0)
            assert time.monotonic() < end, f"processes are left: {running.pid}"
            time.sleep(0.02)
    assert list(temporary.iterdir()) == []
    assert [path for path in data.rglob("*") if path.is_file()] == []
