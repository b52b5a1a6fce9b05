"""Hostile input is refused with a typed error, and uses only bounded memory, time and files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.levels import either

from registry.builders.earth_engine import export_image, read_rows, write_table
from registry.builders.earth_engine.assembling.geotiff import read_crs
from registry.builders.earth_engine.exporting.record_file import check_prefix
from registry.builders.earth_engine.mixer import Mixer
from registry.errors import FeatureError, PreparedFormatError, SourceError, UsageError
from registry.intake import text_files

_PLACE = {"transform": (30, 0, 500000, 0, -30, 4100000), "crs": "EPSG:32610"}


def mixer_text(matrix: list[float]) -> str:
    return json.dumps(
        {
            "projection": {"crs": "EPSG:32610", "affine": {"doubleMatrix": matrix}},
            "patchDimensions": [2, 2],
            "patchesPerRow": 1,
            "totalPatches": 1,
        }
    )


@pytest.mark.parametrize(
    "matrix", [[10**400, 0, 0, 0, 1, 0], [1e200, 1e200, 0, 1e200, 1e200, 0]], ids=["a-large-integer", "no-area"]
)
def test_a_mixer_whose_numbers_are_too_large_is_malformed(matrix: list[float]) -> None:
    with pytest.raises(PreparedFormatError) as caught:
        Mixer.from_json(mixer_text(matrix))
    assert caught.value.details["key"] == "projection.affine.doubleMatrix"


@pytest.mark.parametrize("letters", ["1" * 200_000 + "x", "1" * 100_000 + "." + "1" * 100_000 + "e1x", " " * 200_000])
def test_a_long_cell_that_is_not_a_number_is_quickly_read_as_text(tmp_path: Path, letters: str) -> None:
    (tmp_path / "rows.csv").write_text(f"a,b\n{letters},1\n")
    (row,) = read_rows(tmp_path / "rows.csv")
    assert row == {"a": letters, "b": 1.0}


@pytest.mark.parametrize("number", either(5_000, 100_000))
def test_a_header_of_many_columns_is_read_at_once(tmp_path: Path, number: int) -> None:
    names = [f"c{place}" for place in range(number)]
    (tmp_path / "rows.csv").write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    (row,) = read_rows(tmp_path / "rows.csv")
    assert list(row) == names


def test_a_csv_line_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "MAX_ROW_BYTES", 100)
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 50)
    path = tmp_path / "rows.csv"
    path.write_text("a\n" + "x" * 200)
    with pytest.raises(SourceError, match=r"rows\.csv:2: "):
        list(read_rows(path))


def test_a_point_beyond_the_range_of_floats_is_invalid(tmp_path: Path) -> None:
    rows = [{".geo": {"type": "Point", "coordinates": [10**400, 1]}}]
    with pytest.raises(FeatureError, match="row 0 is a Point without two coordinates"):
        write_table(rows, tmp_path, "t", geometry="lonlat")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("crs", ["http://127.0.0.1:9/x", "/etc/passwd", "area.prj", "/vsicurl/http://127.0.0.1:9/x"])
def test_a_crs_of_a_mixer_opens_no_file_and_asks_no_server(crs: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_crs(crs)
    assert caught.value.message == f"unknown CRS {crs!r}: it is neither a code nor WKT"


@pytest.mark.parametrize(
    "crs", ["EPSG:4326", " epsg:4326 ", "WGS84", "urn:ogc:def:crs:EPSG::4326", "OGC:CRS84", "+proj=utm +zone=10"]
)
def test_a_crs_in_other_forms_is_known(crs: str) -> None:
    known = read_crs(crs)
    assert read_crs(known.to_wkt()) == known
    assert read_crs(json.dumps(known.to_dict(projjson=True))) == known


@pytest.mark.parametrize("prefix", ["\ud800", "incomplete.0a1b2c3d_t"], ids=["no-text", "unfinished"])
def test_a_prefix_that_no_file_can_have_is_refused(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(UsageError, match="invalid prefix of file names"):
        check_prefix(prefix)
    with pytest.raises(UsageError, match="invalid prefix of file names"):
        write_table([{"a": 1}], tmp_path, prefix)
    with pytest.raises(UsageError, match="invalid prefix of file names"):
        export_image({"b": np.zeros((2, 2))}, tmp_path, prefix, patch_dimensions=1, **_PLACE)
    assert list(tmp_path.iterdir()) == []
