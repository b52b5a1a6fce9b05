"""The table of the fixtures: written byte for byte, compression included, and read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from registry.builders.earth_engine.table import read_table, write_table

FILE = Path(__file__).parent / "files/F11_table.tfrecord.gz"
ROWS = [
    {"B2": 0.5, "landcover": 2, "name": "p0", "patch": [[1, 2], [3, 4]]},
    {"B2": 1.5, "landcover": 0, "name": "p1", "patch": [[5, 6], [7, 8]]},
]


def test_the_rows_make_the_file(tmp_path: Path) -> None:
    made = write_table(ROWS, tmp_path, "F11_table")
    assert (made.filename, made.num_rows, made.columns) == (FILE.name, 2, ("B2", "landcover", "name", "patch"))
    assert (tmp_path / FILE.name).read_bytes() == FILE.read_bytes()


def test_the_file_gives_the_rows() -> None:
    table = read_table(FILE, shapes={"patch": (2, 2)})
    assert len(table) == 2
    for row, expected in zip(table, ROWS, strict=True):
        np.testing.assert_array_equal(row.pop("patch"), np.array(expected["patch"], np.float32))
        assert row == {name: value for name, value in expected.items() if name != "patch"}


def test_without_a_shape_an_array_is_flat_and_may_be_a_square() -> None:
    table = read_table(FILE)
    assert [(one.name, one.kind, one.size, one.square) for one in table.columns] == [
        ("B2", "float", 1, None),
        ("landcover", "float", 1, None),
        ("name", "bytes", 1, None),
        ("patch", "float", 4, 2),
    ]
    assert [row["patch"].shape for row in table] == [(4,), (4,)]
