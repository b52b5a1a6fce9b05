"""A few cases of the matrix of faults of a copy; ``copy_matrix.py`` tries them all."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from end_to_end.test_publish_matrix import COUNT, SEED
from support.copy_matrix import CopyMatrix
from support.fault_proxy import FaultProxy
from support.levels import either
from support.publish_matrix import LIMITS, prepare_folder


@pytest.fixture(params=["bucket", "disk"])
def matrix(
    request: pytest.FixtureRequest,
    bucket: str,
    fault_proxy: FaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> CopyMatrix:
    for name, value in LIMITS.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "catalogs").mkdir()
    prepared, catalogs = prepare_folder(tmp_path / "98"), tmp_path / "catalogs"
    return CopyMatrix(fault_proxy, bucket, prepared, catalogs, to_disk=request.param == "disk")


@pytest.mark.parametrize("number", either(2, COUNT))
def test_after_a_fault_at_some_request_of_a_copy_nothing_is_lost_or_mixed_and_the_next_run_finishes(
    matrix: CopyMatrix, number: int
) -> None:
    assert [problem for case in matrix.sample(number, SEED) for problem in matrix.problems(case)] == []


@pytest.mark.parametrize("number", either(2, 12))
def test_a_copy_that_is_killed_at_some_request_is_finished_by_the_next_run(matrix: CopyMatrix, number: int) -> None:
    kills = [case for case in matrix.cases() if case.fault == "kill"]
    chosen = random.Random(SEED).sample(kills, min(number, len(kills)))
    assert [problem for case in chosen for problem in matrix.problems(case)] == []
