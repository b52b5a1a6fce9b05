"""``registry verify --all``, what ``log verify`` leaves to it, and files that are gone when a drop is undone."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support import warm_python

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def test_the_report_counts_sound_damaged_and_unchecked_versions(numbers: Cli, workspace: Path) -> None:
    damaged = next(workspace.glob("datasets/numbers/1.1.0/*tfrecord*"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    (workspace / "datasets/words/de/2.0.0").rename(workspace / "elsewhere")
    path = workspace / "report.json"
    ran = numbers("verify", "--all", "--report", str(path))
    assert ran.code == 5
    *_, summary, wrote = ran.out.splitlines()
    assert re.fullmatch(r"6 of 8 versions are as published, 2 damaged \(\d+\.\d s\)", summary)
    assert wrote == f"wrote {path}"
    report = json.loads(path.read_text())
    assert report["schema"] == "registry.verify.report/1"
    data = report["data"]
    assert (data["is_complete"], data["num_versions"], data["num_sound"]) == (True, 8, 6)
    assert (data["num_damaged"], data["num_unchecked"]) == (2, 0)
    assert data["seconds"] >= max(one["seconds"] for one in data["versions"])
    assert {(one["dataset"], one["version"]) for one in data["versions"] if not one["is_sound"]} == {
        ("numbers", "1.1.0"),
        ("words/de", "2.0.0"),
    }
    again = numbers("verify", "--all", "--report", str(path))
    assert (again.code, again.err) == (
        1,
        f"error: {path} already exists\nhint: Name another file with --report, or replace it with --force.\n",
    )
    assert numbers("verify", "--all", "--report", str(path), "--force").code == 5


@pytest.mark.parametrize("options", [["-j", "1"], ["-j", "3"], ["-j", "20"], ["-j", "2", "--deep"]])
def test_any_number_of_processes_gives_the_same_report(numbers: Cli, workspace: Path, options: list[str]) -> None:
    damaged = next(workspace.glob("datasets/numbers/1.1.0/*tfrecord*"))
    damaged.write_bytes(damaged.read_bytes()[:-1])

    def told(*more: str) -> object:
        found = numbers("verify", "--all", "--format", "json", *more)
        assert found.code == 5
        return found.json()["data"]

    assert told(*options) == told(*(["--deep"] if "--deep" in options else []))


@pytest.mark.parametrize("processes", ["1", "3"])
def test_ctrl_c_keeps_the_results_so_far(numbers: Cli, workspace: Path, processes: str) -> None:
    path, begun = workspace / "report.json", workspace / "begun"
    script = (
        "import pathlib, sys, time\n"
        "from registry.api.dataset import Dataset\n"
        "verify = Dataset.verify\n"
        "def slow(self, **options):\n"
        "    if self.reference.name == 'words':\n"
        f"        pathlib.Path({str(begun)!r}).touch()\n"
        "        time.sleep(2)\n"
        "    return verify(self, **options)\n"
        "Dataset.verify = slow\n"
        "from registry.cli.main import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", script, "verify", "--all", "-j", processes, "--report", str(path)]
    with warm_python.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        while not begun.exists():
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert err.lstrip().startswith("error: interrupted\n")
    data = json.loads(path.read_text())["data"]
    assert data["is_complete"] is False
    assert data["num_versions"] == len(data["versions"]) < 8
    assert out.splitlines()[-2].startswith("stopped early: ")


def test_an_interrupted_run_is_continued(numbers: Cli, workspace: Path) -> None:
    begun = workspace / "begun"
    script = (
        "import pathlib, sys, time\n"
        "from registry.api.dataset import Dataset\n"
        "verify = Dataset.verify\n"
        "def slow(self, **options):\n"
        "    if self.reference.name == 'words':\n"
        f"        pathlib.Path({str(begun)!r}).touch()\n"
        "        time.sleep(60)\n"
        "    return verify(self, **options)\n"
        "Dataset.verify = slow\n"
        "from registry.cli.main import main\n"
        "main()\n"
    )
    with warm_python.Popen([sys.executable, "-c", script, "verify", "--all"], stdout=subprocess.PIPE) as running:
        while not begun.exists():
            assert running.poll() is None
            time.sleep(0.01)
        running.kill()

    report = workspace / "report.json"
    report.write_text(json.dumps({"schema": "registry.verify.report/1", "data": {"is_complete": False}}))
    ran = numbers("verify", "--all", "--report", str(report))  # it replaces the report of the interrupted run
    assert ran.code == 0
    assert re.fullmatch(r"note: continues the run of .* UTC; to start over: --restart\n", ran.err)
    lines = ran.out.splitlines()
    assert re.fullmatch(r"numbers:2\.0\.0: skipped, as published on \d{4}-\d\d-\d\d \d\d:\d\d UTC", lines[0])
    assert lines[4].startswith("words/de:2.0.0: 1 of 1 shards and 1 attachment are as published")
    assert re.fullmatch(r"8 of 8 versions are as published, 4 of them verified before \(\d+\.\d s\)", lines[-2])
    data = json.loads((workspace / "report.json").read_text())["data"]
    assert (data["num_skipped"], data["num_sound"], data["is_complete"]) == (4, 8, True)
    assert ["verified_before" in one for one in data["versions"]] == [True] * 4 + [False] * 4

    assert "skipped" not in numbers("verify", "--all").out  # that run has reached its end
    again = numbers("verify", "--all", "--report", str(report))
    assert again.code != 0
    assert "already exists" in again.err


def test_a_damaged_state_costs_only_time(numbers: Cli, workspace: Path) -> None:
    path = workspace / "state.jsonl"
    options = ["--all", "--since", "1d", "--state", str(path)]
    numbers("verify", *options)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "[]", "{}", "null", '{"begin": 7}', lines[2][:40]]))
    ran = numbers("verify", *options)
    assert (ran.code, ran.out.count("skipped")) == (0, lines[0].count('"version"'))
    path.write_bytes(b"\xff\x00" * 100)
    assert "skipped" not in numbers("verify", *options).out
    assert numbers("verify", *options).out.count("skipped") == 8


def test_where_a_state_cannot_be_kept_the_run_goes_on(
    numbers: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "cache").write_text("not a folder")
    monkeypatch.setenv("REGISTRY_CACHE", str(workspace / "cache"))
    ran = numbers("verify", "--all")
    assert ran.code == 0
    assert ran.err.startswith("note: this run cannot be continued: ")
    refused = numbers("verify", "--all", "--since", "1d")
    assert (refused.code, refused.err.splitlines()[-2]) == (2, "error: since needs a state")
    assert numbers("verify", "--all", "--state", str(workspace / "cache/state")).code == 1
