"""The law of statistics: what brute force says, in the same bytes for any way to publish, order, workers and engine.

``support/statistics_matrix.py`` has the ways; run by hand, it checks all 40 schemas, also on Ray.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.statistics_cases import NUM_CASES, ORDERS, case
from support.statistics_matrix import ENGINES, WORKERS, check_case, open_engines

from registry.engines import Engine
from registry.features.containers import columns_of


@pytest.fixture(scope="module")
def engines() -> Iterator[Mapping[str, Engine]]:
    with open_engines() as opened:
        yield opened


@pytest.mark.parametrize(
    ("number", "is_sample"),
    [(7, True), (22, True), *(pytest.param(number, False, marks=pytest.mark.long) for number in range(NUM_CASES))],
)
def test_statistics_equal_brute_force_in_any_order_by_any_workers_of_any_engine(
    number: int, is_sample: bool, engines: Mapping[str, Engine], tmp_path: Path
) -> None:
    assert len(engines) == len(ENGINES) * len(WORKERS)
    ways = check_case(number, tmp_path, engines, is_sample=is_sample)
    num_built = len(ORDERS) * len(ENGINES) * (1 if is_sample else len(WORKERS))
    assert len(ways) == num_built + 3 + 3 + 1 + 1 + 3  # published, described in place, imported, copied, added


def test_the_schemas_have_leaves_of_every_dtype_and_form() -> None:
    columns = [column for number in range(NUM_CASES) for column in columns_of(case(number).features)]
    assert {column.leaf.dtype.name for column in columns} == {
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "bfloat16", "float32", "float64", "object"),
    }
    assert {type(column.leaf).__name__ for column in columns} == {
        *("Scalar", "Tensor", "Text", "ClassLabel", "BBox", "Image", "Audio")
    }
    assert {column.words for column in columns} == {
        *((), ("Sequence",), ("Dataset",), ("Sequence", "Sequence")),
    }
    assert {column.leaf.shape.count(None) for column in columns if column.leaf.dtype.kind == "f"} == {0, 1, 2}
    assert {None, 3} <= {column.lengths[0] for column in columns if column.lengths}
    assert sum(column.leaf.may_be_absent for column in columns) > 5
