"""Draws the patches of an export at their places in the grid, with three bands as colours or one band in grey.

The picture has at most 1600 pixels and 64 patches on each side; of larger grids, every n-th patch is drawn. The values
of each band are stretched between the 2nd and the 98th percentile; NaN is grey.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.grid import Tile
from registry.builders.earth_engine.kinds import from_flat
from registry.builders.earth_engine.stored.export import StoredExport
from registry.errors import AlreadyStoredError, UsageError, require_extra
from registry.storage import open_parent
from registry.tfrecord import read_blocks
from registry.wire import decode_features

if TYPE_CHECKING:
    from PIL.Image import Image


_LABEL_WIDTH: Final = 30
_LABEL_HEIGHT: Final = 14
_LEAST_WIDTH: Final = 360
_GREY: Final = (160, 160, 160)
_LINE: Final = (255, 255, 255)
_PAPER: Final = (255, 255, 255)
_CORE: Final = (255, 220, 0)
_INK: Final = (40, 40, 40)
_COLOURS: Final = (("red", "green", "blue"), ("r", "g", "b"), ("b4", "b3", "b2"))
"""Bands that are drawn as colours if an export has all of them."""

Pixels = npt.NDArray[np.float32]
MOST_PIXELS: Final = 1600

MOST_PATCHES: Final = 64
"""Of one side."""
LEFT: Final = 44
TOP: Final = 22
BOTTOM: Final = 22
GAP: Final = 1
_LARGEST_CELL: Final = 256


def check_plot(output: str, *, overwrite: bool = False) -> None:
    """Refuse a picture that cannot be written, before all records are read.

    Raises:
        UsageError: the file does not end in ``.png``.
        AlreadyStoredError: the file exists, and ``overwrite`` is False.
        MissingExtraError: Pillow is not installed.
    """
    _import_pillow()
    store, name = open_parent(output)
    if not name.lower().endswith(".png"):
        raise UsageError(
            f"expected a file that ends in .png, found {output}",
            hint="For example: --plot area.png.",
            details={"option": "plot"},
        )
    if not overwrite and store.exists(name):
        raise AlreadyStoredError(
            f"{store.locate(name)} already exists",
            hint="Choose another file, or replace it: overwrite=True; --overwrite.",
            details={"path": store.locate(name)},
        )


def plot_export(
    export: StoredExport,
    output: str | os.PathLike[str],
    *,
    margin: bool = False,
    overwrite: bool = False,
    advance: Callable[[int], None] | None = None,
) -> None:
    """Draw the patches of an export into a PNG file.

    Args:
        export: the result of ``open_export(..., count=True)``. The bands red, green and blue are drawn if it has them,
            else its bands if there are three, else the first band.
        output: path of the file.
        margin: also draw the margin of each patch.
        overwrite: replace the file.
        advance: called with the number of records read since the last call.

    Raises:
        UsageError: a table, or pixels with series; or no ``.png``.
        AlreadyStoredError, MissingExtraError: as ``check_plot``.
        As reading records.
    """
    check_plot(os.fspath(output), overwrite=overwrite)
    image = draw_export(export, margin=margin, advance=advance)
    content = io.BytesIO()
    image.save(content, "PNG")
    store, name = open_parent(output)
    with store.create(name, overwrite=overwrite) as file:
        file.write(content.getvalue())


def draw_export(export: StoredExport, *, margin: bool = False, advance: Callable[[int], None] | None = None) -> Image:
    """The picture as a Pillow image. Arguments and errors are those of ``plot_export``."""
    _import_pillow()
    tile = export.tile
    if tile is None:
        subject = "a table" if export.is_table else "pixels with series"
        raise UsageError(f"expected patches of an image, found {subject}", details={"option": "plot"})
    total = export.num_records or 1
    columns = math.isqrt(total - 1) + 1 if export.mixer is None else export.mixer.patches_per_row
    rows = -(-total // columns) if export.mixer is None else export.mixer.total_patches // columns
    layout = PlotLayout.of(tile, columns=columns, rows=rows, margin=margin)
    channels = _channels(export)
    canvas: Pixels = np.full((layout.height, layout.width, len(channels)), np.nan, np.float32)
    for (row, column), record in _records(export, layout, advance):
        left, top = layout.corner(row, column)
        cell = layout.thumbnail([_band(record, channel, tile) for channel in channels])
        canvas[top : top + layout.cell_height, left : left + layout.cell_width] = cell
    number = total if export.mixer is None else export.mixer.total_patches
    caption = f"{number:,} {'patch' if number == 1 else 'patches'}; {', '.join(channel.name for channel in channels)}"
    return _paint(layout, _stretch(canvas), caption)


class _Channel(NamedTuple):
    feature: str
    level: int
    name: str


def _channels(export: StoredExport) -> list[_Channel]:
    """One channel, or three that are red, green and blue."""
    known = []
    for band in export.bands:
        depth = band.depth or 1
        names = export.collapsed or ([band.name] if depth == 1 else [f"{band.name}_{n}" for n in range(min(depth, 3))])
        known += [_Channel(band.name, level, name) for level, name in enumerate(names)]
    by_name = {channel.name.lower(): channel for channel in reversed(known)}
    for names in _COLOURS:
        if all(name in by_name for name in names):
            return [by_name[name] for name in names]
    return known if len(known) == 3 else known[:1]


def _records(
    export: StoredExport, layout: PlotLayout, advance: Callable[[int], None] | None
) -> Iterator[tuple[tuple[int, int], dict[str, Any]]]:
    """The records that are drawn, with their cells."""
    done = 0
    for filename in export.found.filenames:
        for block, _ in read_blocks(export.found.store, filename, verify="block"):
            for place, view in enumerate(block.views(), done):
                cell = layout.cell_of(place if export.patches is None else export.patches[place])
                if cell is not None:
                    yield cell, decode_features(view)
            done += block.num_records
            if advance is not None:
                advance(block.num_records)


def _band(record: dict[str, Any], channel: _Channel, tile: Tile) -> npt.NDArray[Any]:
    _, values = from_flat(record.get(channel.feature), channel.feature)
    level: npt.NDArray[Any] = values.reshape(-1, tile.size.height, tile.size.width)[channel.level]
    return level


def _stretch(canvas: Pixels) -> npt.NDArray[np.uint8]:
    """Stretch each band between its 2nd and its 98th percentile; NaN and empty cells are grey."""
    out = np.empty((*canvas.shape[:2], 3), np.uint8)
    is_number = np.isfinite(canvas)
    for place in range(3):
        band = canvas[..., place % canvas.shape[-1]]
        known = band[is_number[..., place % canvas.shape[-1]]].astype(np.float64)
        low, high = np.percentile(known, [2, 98]) if known.size else (0.0, 1.0)
        if not high > low:  # of one colour: a middle one
            low, high = low - 1, low + 1
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = np.clip((band - low) / (high - low), 0, 1) * 255
        out[..., place] = np.nan_to_num(scaled, nan=0).astype(np.uint8)
    out[~is_number.all(axis=-1)] = _GREY
    return out


def _paint(layout: PlotLayout, pixels: npt.NDArray[np.uint8], caption: str) -> Image:
    """Draw the cells with lines between them, and the numbers of rows and columns at the edges."""
    from PIL import Image, ImageDraw

    cells = [(row, column) for row in range(layout.shown_rows) for column in range(layout.shown_columns)]
    lines = np.ones(pixels.shape[:2], np.bool_)
    for row, column in cells:
        left, top = layout.corner(row, column)
        lines[top : top + layout.cell_height, left : left + layout.cell_width] = False
    pixels[lines] = _LINE
    width = min(max(LEFT + layout.width, _LEAST_WIDTH), MOST_PIXELS)
    image = Image.new("RGB", (width, TOP + layout.height + BOTTOM), _PAPER)
    image.paste(Image.fromarray(pixels), (LEFT, TOP))
    draw = ImageDraw.Draw(image)
    if layout.margin and layout.tile.size != layout.tile.patch:
        for cell in cells:
            left, top, right, bottom = layout.core(*cell)
            if right > left and bottom > top:
                draw.rectangle((LEFT + left, TOP + top, LEFT + right, TOP + bottom), outline=_CORE)
    for column in range(0, layout.shown_columns, -(-_LABEL_WIDTH // layout.cell_width)):
        draw.text((LEFT + layout.corner(0, column)[0] + 2, 5), str(column * layout.column_step), fill=_INK)
    for row in range(0, layout.shown_rows, -(-_LABEL_HEIGHT // layout.cell_height)):
        draw.text((4, TOP + layout.corner(row, 0)[1] + 1), str(row * layout.row_step), fill=_INK)
    every = layout.row_step * layout.column_step
    caption += f"; one patch in {every:,} is shown" if every > 1 else ""
    draw.text((4, TOP + layout.height + 5), caption.encode("ascii", "replace").decode(), fill=_INK)
    return image


def _import_pillow() -> None:
    with require_extra("earth-engine", package="pillow", needed_for="a picture of patches"):
        import PIL  # noqa: F401 - whether it is there


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotLayout:
    """Which patches are drawn, and where.

    Attributes:
        tile: the stored tiles.
        margin: whether their margin is drawn.
        columns: number of patches in a row of the grid.
        shown_columns, shown_rows: number of cells of the picture.
        column_step, row_step: only every n-th patch of a row or column is drawn.
        cell_width, cell_height: size of one patch, in pixels.
    """

    tile: Tile
    margin: bool
    columns: int
    shown_columns: int
    shown_rows: int
    column_step: int
    row_step: int
    cell_width: int
    cell_height: int

    @classmethod
    def of(cls, tile: Tile, *, columns: int, rows: int, margin: bool) -> PlotLayout:
        """The layout of a grid of ``columns`` times ``rows`` patches."""
        column_step, row_step = -(-columns // MOST_PATCHES), -(-rows // MOST_PATCHES)
        shown_columns, shown_rows = -(-columns // column_step), -(-rows // row_step)
        width, height = tile.size if margin else tile.patch
        scale = min(
            (MOST_PIXELS - LEFT - (shown_columns + 1) * GAP) / (shown_columns * width),
            (MOST_PIXELS - TOP - BOTTOM - (shown_rows + 1) * GAP) / (shown_rows * height),
            max(1, _LARGEST_CELL / max(width, height)),
        )
        return cls(
            tile=tile,
            margin=margin,
            columns=columns,
            shown_columns=shown_columns,
            shown_rows=shown_rows,
            column_step=column_step,
            row_step=row_step,
            cell_width=max(1, int(width * scale)),
            cell_height=max(1, int(height * scale)),
        )

    @property
    def width(self) -> int:
        """Pixels of all cells, side by side."""
        return self.shown_columns * (self.cell_width + GAP) + GAP

    @property
    def height(self) -> int:
        """Pixels of all cells, one below the other."""
        return self.shown_rows * (self.cell_height + GAP) + GAP

    def cell_of(self, number: int) -> tuple[int, int] | None:
        """Row and column of the cell of a patch; None if it is not drawn."""
        row, column = divmod(number, self.columns)
        if row % self.row_step or column % self.column_step or row // self.row_step >= self.shown_rows:
            return None
        return row // self.row_step, column // self.column_step

    def corner(self, row: int, column: int) -> tuple[int, int]:
        """The first pixel of a cell: x and y."""
        return column * (self.cell_width + GAP) + GAP, row * (self.cell_height + GAP) + GAP

    def core(self, row: int, column: int) -> tuple[int, int, int, int]:
        """The patch without its margin in a cell: its first and its last pixel."""
        x, y = self.corner(row, column)
        across, down = self.cell_width / self.tile.size.width, self.cell_height / self.tile.size.height
        left, top = x + int(self.tile.margin.width * across), y + int(self.tile.margin.height * down)
        return left, top, left + int(self.tile.patch.width * across) - 1, top + int(self.tile.patch.height * down) - 1

    def thumbnail(self, bands: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
        """The tiles of some bands as the pixels of a cell, bands last, by nearest neighbour."""
        result = []
        for band in bands:
            pixels = band if self.margin else self.tile.crop(band)
            rows = np.arange(self.cell_height) * pixels.shape[0] // self.cell_height
            columns = np.arange(self.cell_width) * pixels.shape[1] // self.cell_width
            result.append(pixels[np.ix_(rows, columns)].astype(np.float32))
        return np.stack(result, axis=-1)
