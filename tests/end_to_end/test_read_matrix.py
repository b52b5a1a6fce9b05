"""A few cases of the matrix of faults while a version is read; ``read_matrix.py`` tries them all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.clouds import on_clouds
from support.fault_proxy import FaultProxy
from support.levels import either
from support.publish_matrix import LIMITS
from support.read_matrix import ReadMatrix

SEED = int(os.environ.get("REGISTRY_MATRIX_SEED", "23"))
COUNT = int(os.environ.get("REGISTRY_MATRIX_CASES", "40"))


@on_clouds
@pytest.mark.parametrize("number", either(2, COUNT))
def test_a_fault_at_some_request_of_a_read_gives_the_right_records_or_a_typed_error(
    bucket: str, fault_proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    for name, value in LIMITS.items():
        monkeypatch.setenv(name, value)
    matrix = ReadMatrix(fault_proxy, bucket, tmp_path)
    problems = [problem for case in matrix.sample(number, SEED) for problem in matrix.problems(case)]
    assert problems == []
