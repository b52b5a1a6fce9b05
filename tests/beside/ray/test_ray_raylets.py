"""Builds on one and on four raylets, whose object stores are smaller than the data, give the files of local builds.

``test_ray_builds.py`` builds all kinds on two raylets; ``ray_matrix.py`` builds all kinds on each number.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from support import FOLDER
from support.ray_builders import KINDS

MOST_WORKER_MEGABYTES = 350
MOST_GROWTH_MEGABYTES = 250
"""Far above noise, and below what a process would need if it held the data of a build: 200 MB or more beside its own
memory."""


def report(raylets: int, *kinds: str, options: Sequence[str] = ()) -> dict[str, Any]:
    """Build kinds on a cluster of its own, in a process of its own: a process has one connection."""
    script = FOLDER / "ray_matrix.py"
    command = [sys.executable, str(script), "--nodes", str(raylets), "--kinds", *kinds, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["problems"] == []
    assert [one["kind"] for one in found["built"]] == list(kinds)
    assert [one["kind"] for one in found["built"] if not one["is_equal"] or one["left"]] == []
    return {one["kind"]: one for one in found["built"]}


@pytest.mark.parametrize(
    ("raylets", "kinds", "large"),
    [
        pytest.param(1, list(KINDS)[::2], ["LargeInputs", "Generator"], id="1"),
        pytest.param(4, list(KINDS)[1::2], ["Megabytes"], id="4"),
    ],
)
def test_the_files_and_memory_do_not_depend_on_the_raylets(raylets: int, kinds: list[str], large: list[str]) -> None:
    found = report(raylets, *kinds, *large)
    for kind in large:
        assert found[kind]["worker_megabytes"] < MOST_WORKER_MEGABYTES, found[kind]
        assert found[kind]["driver_growth_megabytes"] < MOST_GROWTH_MEGABYTES, found[kind]
    if "Megabytes" in large:  # records do not pass through the object stores, nor through this program
        assert found["Megabytes"]["spilled_megabytes"] == 0
        assert found["Megabytes"]["driver_growth_megabytes"] < 60, found["Megabytes"]


def test_inputs_that_are_data_are_spilled_and_the_files_are_the_same() -> None:
    assert report(1, "DataInputs")["DataInputs"]["spilled_megabytes"] > 0


def test_with_a_bound_nothing_is_spilled() -> None:
    found = report(1, "DataInputs", options=["--object-store-memory", "40000000"])
    assert found["DataInputs"]["spilled_megabytes"] == 0
