"""Removals and descriptions that are killed at every step, and raced by many processes: nothing half done looks whole.

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

import registry

SEED = int(os.environ.get("REGISTRY_MATRIX_SEED", "19"))
"""Shuffles the steps, and chooses when the processes of a race act."""

PARTS = [(0, 2), *(pytest.param((number, None, 4), marks=pytest.mark.long) for number in range(4))]
"""Slices of the steps: some of them every day, and all in the long level, in four catalogs."""

REFUSALS = {"version_exists", "version_withdrawn", "conflict", "reserved", "shard_mismatch", "not_stored"}
"""How a process may be refused that comes too late, or while another one removes the files."""


@pytest.fixture(params=["disk", "s3"])
def job(request: pytest.FixtureRequest, catalog_url: str, tmp_path: Path) -> dict[str, Any]:
    """A catalog whose data directory and mirrors are on a disk or in a bucket."""
    root = str(tmp_path) if request.param == "disk" else request.getfixturevalue("bucket")
    with registry.connect(catalog_url) as catalog:
        catalog.set_data_dir(f"{root}/data")
    (tmp_path / "given").mkdir()
    return {
        "url": catalog_url,
        "data_dir": f"{root}/data",
        "mirrors": f"{root}/mirrors",
        "folder": str(tmp_path / "given"),
        "seed": SEED,
    }


def run(verb: str, job: dict[str, Any], folder: Path) -> Any:
    """The outcome of ``removing.py``."""
    done = warm_python.run(
        [sys.executable, str(FOLDER / "removing.py"), verb, json.dumps(job)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(TESTS), "REGISTRY_CACHE": str(folder / "cache")},
        timeout=3600,
    )
    assert isinstance(done, subprocess.CompletedProcess)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def kills(job: dict[str, Any], kind: str, part: tuple[int | None, ...], folder: Path) -> list[Any]:
    """Some steps of an action, and what ``removing.py`` says of a kill before each of them."""
    outcomes: list[Any] = run("kills", job | {"kind": kind, "part": part}, folder)
    assert outcomes
    return outcomes


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", ["gc", "remove", "plan"])
def test_a_removal_that_was_killed_at_any_step_is_ended_by_the_same_call(
    job: dict[str, Any], tmp_path: Path, kind: str, part: tuple[int | None, ...]
) -> None:
    for step, whole, (left, again, then) in kills(job, kind, part, tmp_path):
        where = (step, left, again, then)
        assert whole is None, where
        assert (left["faults"], then["faults"], left["look-up"]) == ([], [], "version_withdrawn"), where
        num_files = [*map(len, left["files"])]
        if left["step"] in ("begun", "ended"):
            assert (left["undo"], left["publish"]) == ("version_exists", "version_exists"), where
        else:
            assert (left["undo"], left["publish"], num_files) == ("ok", "ok", [7, 2]), where
        assert left["step"] in {"plan": ("", "planned"), "gc": ("planned", "begun", "ended")}.get(
            kind, ("", "begun", "ended")
        ), where
        assert left["step"] != "ended" or num_files == [0, 0], where
        is_described = any(name.endswith("dataset_info.json") for name in left["files"][0])
        assert is_described is (num_files[0] == 7), where  # without it, nobody takes the rest for a version
        if kind == "plan":
            assert (again, then["step"], then["files"]) == ("planned", "planned", left["files"]), where
        else:
            assert (then["step"], then["files"]) == ("ended", [[], []]), where
        assert then["reservations"] == 0, where


@pytest.mark.parametrize("part", PARTS)
def test_a_description_that_was_killed_at_any_step_is_whole_or_absent(
    job: dict[str, Any], tmp_path: Path, part: tuple[int | None, ...]
) -> None:
    for step, whole, (left, again, then) in kills(job, "describe", part, tmp_path):
        where = (step, left, again, then)
        assert whole is None, where
        assert (left["faults"], then["faults"]) == ([], []), where
        assert again is (left["described"] == []), where
        assert len(then["described"]) == 1, where
        assert then["files"] == left["files"], where


@pytest.mark.parametrize(("processes", "rounds"), [(8, 1), pytest.param(16, 16, marks=pytest.mark.long)])
def test_processes_that_act_on_one_version_at_once_leave_a_whole_version_or_none(
    job: dict[str, Any], tmp_path: Path, processes: int, rounds: int
) -> None:
    result = run("races", job | {"processes": processes, "rounds": rounds}, tmp_path)
    assert result["faults"] == []
    codes = {outcome.split()[1] for outcome in result["outcomes"]}
    assert codes <= {"ok", *REFUSALS}, result["outcomes"]
    assert sum(result["outcomes"].values()) == processes * rounds
