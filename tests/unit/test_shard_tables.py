"""Rows of typed columns in memory: the same values whatever part of an Arrow table they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from registry.interop.parquet_schema import features_of_schema
from registry.shards.tables import TableBlock

SQUARE = pa.list_(pa.list_(pa.int16(), 2), 2)


@pytest.mark.parametrize("kind", [SQUARE, pa.list_(SQUARE, 2), pa.struct({"x": SQUARE}), pa.list_(SQUARE)], ids=str)
def test_rows_are_taken_from_a_part_of_a_table(kind: pa.DataType) -> None:
    """pyarrow 26 takes wrong numbers from a part of an array of lists of known length in such lists."""
    squares = np.arange(8 * 2 * 4).reshape(8, 2, 2, 2).tolist()
    values = {SQUARE: [one[0] for one in squares], pa.struct({"x": SQUARE}): [{"x": one[0]} for one in squares]}
    rows = values.get(kind, squares)
    table = pa.table({"value": pa.array(rows, kind)})
    features = features_of_schema(table.schema)
    taken = TableBlock(table, features).take(np.arange(3, 7)).take(np.array([2, 0, 0, 3]))
    assert taken.records() == [features.encode_example({"value": rows[3 + place]}) for place in (2, 0, 0, 3)]
    assert taken.table.schema == table.schema
