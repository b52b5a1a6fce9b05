"""A few cases of the matrix of faults; ``publish_matrix.py`` tries them all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.clouds import on_clouds
from support.fault_proxy import FaultProxy
from support.levels import either
from support.publish_matrix import LIMITS, Matrix, prepare_folder

SEED = int(os.environ.get("REGISTRY_MATRIX_SEED", "19"))
COUNT = int(os.environ.get("REGISTRY_MATRIX_CASES", "8"))


@on_clouds
@pytest.mark.parametrize("number", either(2, COUNT))
def test_after_a_fault_at_some_request_of_a_publish_nothing_is_lost_or_mixed_and_the_next_run_finishes(
    bucket: str, fault_proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    for name, value in LIMITS.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "catalogs").mkdir()
    matrix = Matrix(fault_proxy, bucket, prepare_folder(tmp_path / "98"), tmp_path / "catalogs")
    problems = [problem for case in matrix.sample(number, SEED) for problem in matrix.problems(case)]
    assert problems == []
