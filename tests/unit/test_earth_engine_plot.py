"""The picture of an export: bounded in size for any grid and any values."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.earth_engine_samples import mixer_of, ramp, record_of, sequence_record, write_image, write_records

from registry.builders.earth_engine.grid import NO_MARGIN, Size, Tile
from registry.builders.earth_engine.plot import MOST_PIXELS, PlotLayout, draw_export
from registry.builders.earth_engine.stored.export import open_export
from registry.errors import UsageError


@pytest.mark.parametrize(
    ("columns", "rows", "patch"),
    [(1, 1, (1, 1)), (1000, 1000, (256, 256)), (10**9, 1, (2, 3)), (1, 10**6, (4096, 1)), (63, 65, (7, 5))],
    ids=str,
)
def test_a_picture_never_exceeds_the_maximum_size(columns: int, rows: int, patch: tuple[int, int]) -> None:
    tile = Tile(size=Size(*patch), patch=Size(*patch), margin=NO_MARGIN)
    layout = PlotLayout.of(tile, columns=columns, rows=rows, margin=False)
    assert 1 <= layout.width + 44 <= MOST_PIXELS
    assert 1 <= layout.height + 44 <= MOST_PIXELS
    last = columns * rows - 1
    cells = {layout.cell_of(number) for number in {0, last, last // 2, columns - 1, last + 1, last + 10**7}}
    for cell in cells - {None}:
        assert cell is not None
        left, top = layout.corner(*cell)
        assert left + layout.cell_width <= layout.width
        assert top + layout.cell_height <= layout.height


def test_of_a_large_grid_some_patches_are_drawn(tmp_path: Path) -> None:
    records = [record_of({"a": np.full((1, 1), number % 130)}) for number in range(130 * 2)]
    write_records(tmp_path, "p", records)
    (tmp_path / "p-mixer.json").write_text(json.dumps(mixer_of((1, 1), 130, 260)))
    image = draw_export(open_export(tmp_path, count=True))
    assert image.width <= MOST_PIXELS
    greys = np.asarray(image)[22 + 1, 44:, 0]
    assert (np.diff(greys[greys < 255].astype(int)) >= 0).all()


def test_three_bands_are_colours_by_name_or_number(tmp_path: Path) -> None:
    flat = {name: np.full((2, 2), value, np.uint8) for name, value in (("B2", 1), ("B3", 2), ("B4", 3), ("B8", 4))}
    flat["B4"][0, 0] = 200
    write_image(tmp_path, "p", flat, (2, 2))
    pixels = np.asarray(draw_export(open_export(tmp_path, count=True)))
    red, green, blue = pixels[30, 50]
    assert red > green == blue
    assert (pixels[200, 200] != (red, green, blue)).any()


def test_values_that_are_not_numbers_are_grey(tmp_path: Path) -> None:
    values = np.array([[1, 2], [np.nan, np.inf]], np.float32)
    write_image(tmp_path, "p", {"a": values}, (2, 2), mixer=False)
    pixels = np.asarray(draw_export(open_export(tmp_path, count=True)))
    assert pixels[22 + 200, 44 + 40].tolist() == [160, 160, 160]
    write_image(tmp_path / "b", "p", {"a": np.full((2, 2), np.nan, np.float32)}, (2, 2))
    assert (np.asarray(draw_export(open_export(tmp_path / "b", count=True)))[30, 50] == 160).all()


def test_margins_are_drawn_around_their_patches(tmp_path: Path) -> None:
    write_image(tmp_path, "p", {"a": ramp(8, 8)}, (4, 4), margin=(2, 2))
    pixels = np.asarray(draw_export(open_export(tmp_path, count=True), margin=True))
    yellow = (pixels == (255, 220, 0)).all(axis=-1)
    assert yellow.sum(axis=1).max() >= 2 * 120


def test_only_patches_are_drawn(tmp_path: Path) -> None:
    write_records(tmp_path, "p", [sequence_record({"a": 1}, {"b": [1, 2]})])
    with pytest.raises(UsageError, match="expected patches of an image, found pixels with series"):
        draw_export(open_export(tmp_path, count=True))
