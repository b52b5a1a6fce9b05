"""Removals that are killed at every step, and raced by many processes: nothing that is half removed looks whole.

Both databases, disks and S3: the programs are in ``support/removing.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import FOLDER, TESTS, warm_python
from support.levels import either

import registry

EVERY = int(os.environ.get("REGISTRY_EVERY_STEP", "2"))
"""One step in this number is tried in the long level; 1 tries them all."""

REFUSALS = {"version_exists", "version_withdrawn", "conflict", "reserved", "shard_mismatch", "not_stored"}
"""How a process may be refused that comes too late, or while another one removes the files."""


@pytest.fixture(params=["disk", "s3"])
def job(request: pytest.FixtureRequest, catalog_url: str, tmp_path: Path) -> dict[str, Any]:
    """A catalog whose data directory is on a disk or in a bucket."""
    on_disk = request.param == "disk"
    data_dir = str(tmp_path / "data") if on_disk else f"{request.getfixturevalue('bucket')}/data"
    with registry.connect(catalog_url) as catalog:
        catalog.set_data_dir(data_dir)
    (tmp_path / "given").mkdir()
    return {"url": catalog_url, "data_dir": data_dir, "folder": str(tmp_path / "given")}


def run(kind: str, job: dict[str, Any], folder: Path) -> Any:
    """The outcome of ``removing.py``."""
    done = warm_python.run(
        [sys.executable, str(FOLDER / "removing.py"), kind, json.dumps(job)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(TESTS), "REGISTRY_CACHE": str(folder / "cache")},
        timeout=1800,
    )
    assert isinstance(done, subprocess.CompletedProcess)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("every", either(25, EVERY))
def test_a_removal_that_was_killed_at_any_step_is_ended_by_the_same_call(
    job: dict[str, Any], tmp_path: Path, every: int
) -> None:
    [(whole, *_)] = run("kills", job | {"steps": [1000]}, tmp_path)
    assert whole["step"] == "ended"
    steps = range(every // 2 + 1, whole["steps"] + 1, every)
    for step, (killed, left, again, then) in zip(steps, run("kills", job | {"steps": [*steps]}, tmp_path), strict=True):
        assert killed is None or killed["steps"] < step
        assert (left["faults"], then["faults"], left["look-up"]) == ([], [], "version_withdrawn"), step
        if left["step"] in ("begun", "ended"):
            assert (left["undo"], left["publish"]) == ("version_exists", "version_exists"), (step, left)
        else:
            assert (left["undo"], left["publish"], len(left["files"])) == ("ok", "ok", 7), (step, left)
        assert left["step"] != "ended" or left["files"] == [], (step, left)
        is_described = any(name.endswith("dataset_info.json") for name in left["files"])
        assert is_described is (len(left["files"]) == 7), (
            step,
            left,
        )  # without it, nobody takes the rest for a version
        assert (again["step"], then["step"], then["files"]) == ("ended", "ended", []), (step, again, then)
        assert then["reservations"] == 0


@pytest.mark.parametrize(("processes", "rounds"), [(8, 1), pytest.param(16, 6, marks=pytest.mark.long)])
def test_processes_that_remove_restore_and_publish_at_once_leave_a_whole_version_or_none(
    job: dict[str, Any], tmp_path: Path, processes: int, rounds: int
) -> None:
    result = run("races", job | {"processes": processes, "rounds": rounds, "spread": processes / 8}, tmp_path)
    assert result["faults"] == []
    codes = {outcome.split()[1] for outcome in result["outcomes"]}
    assert codes <= {"ok", *REFUSALS}, result["outcomes"]
    assert sum(result["outcomes"].values()) == processes * rounds
