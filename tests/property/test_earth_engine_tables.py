"""Laws of tables: rows come back one to one from the TFRecord, and from every file of rows on the way."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from registry.builders.earth_engine.row_files import read_rows, write_rows
from registry.builders.earth_engine.table import read_table, write_table
from registry.errors import RegistryWarning

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8).filter(
    lambda name: name not in (".geo", "system:index", "longitude", "latitude")
)
FLOATS = st.floats(width=32)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)


def write(rows: list[dict[str, Any]], folder: str, name: str) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RegistryWarning)
        return Path(folder, write_table(rows, folder, name).filename)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, np.ndarray):
        return np.array_equal(left, np.asarray(right, np.float32), equal_nan=True)
    return bool(left == right)


@given(st.lists(st.dictionaries(NAMES, st.one_of(FLOATS, TEXTS, st.none()), max_size=4), max_size=6))
def test_scalars_and_texts_come_back_unchanged(rows: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        found = list(read_table(write(rows, folder, "t")))
    names = {name for row in rows for name, value in row.items() if value is not None}
    assert len(found) == len(rows)
    for got, row in zip(found, rows, strict=True):
        assert set(got) == names
        assert all(same(got[name], row.get(name)) for name in names)


@given(st.lists(st.lists(FLOATS, min_size=6, max_size=6), min_size=1, max_size=5))
def test_arrays_come_back_in_the_given_shape(rows: list[list[float]]) -> None:
    with TemporaryDirectory() as folder:
        path = write([{"a": np.array(row).reshape(2, 3)} for row in rows], folder, "t")
        found = list(read_table(path, shapes={"a": (2, 3)}))
    assert all(same(got["a"], np.array(row).reshape(2, 3)) for got, row in zip(found, rows, strict=True))


@given(
    st.lists(
        st.fixed_dictionaries(
            # Of CSV files, those with NUL bytes are refused.
            {
                "n": FINITE,
                "t": TEXTS.map(lambda text: f"t{text}".replace("\0", "")),
                "a": st.lists(FINITE, min_size=2, max_size=2),
            },
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([".csv", ".json", ".jsonl", ".geojson", ".geojsonl"]),
)
def test_a_table_is_the_same_bytes_after_a_file_of_rows(rows: list[dict[str, Any]], suffix: str) -> None:
    """Numbers are written with enough digits to identify each float, so the same table is read back."""
    with TemporaryDirectory() as folder:
        first = write(rows, folder, "first")
        write_rows(read_table(first), Path(folder, f"rows{suffix}"))
        again = write([dict(row) for row in read_rows(Path(folder, f"rows{suffix}"))], folder, "again")
        assert again.read_bytes() == first.read_bytes()


@given(st.lists(st.dictionaries(NAMES, FLOATS, max_size=4), max_size=6), st.randoms())
def test_the_order_of_properties_does_not_change_the_file(rows: list[dict[str, Any]], random: Any) -> None:
    shuffled = []
    for row in rows:
        items = list(row.items())
        random.shuffle(items)
        shuffled.append(dict(items))
    with TemporaryDirectory() as folder:
        assert write(rows, folder, "a").read_bytes() == write(shuffled, folder, "b").read_bytes()
