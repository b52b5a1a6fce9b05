"""Where in a picture is a patch? A grid of cells, one for each patch, or for every second or third."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.places.tiles import Tile

MOST_PIXELS: Final = 1600
MOST_PATCHES: Final = 64
"""Of one side."""

LEFT: Final = 44
TOP: Final = 22
BOTTOM: Final = 22
GAP: Final = 1
_LARGEST_CELL: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotLayout:
    """Which patches are drawn, and where.

    Attributes:
        tile: the stored tiles.
        margin: whether their margin is drawn.
        columns: patches of a row of the grid.
        shown_columns, shown_rows: cells of the picture.
        column_step, row_step: a patch in so many is drawn.
        cell_width, cell_height: of one patch, in pixels.
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
        """Row and column of the cell of a patch; None where it is not drawn."""
        row, column = divmod(number, self.columns)
        if row % self.row_step or column % self.column_step or row // self.row_step >= self.shown_rows:
            return None
        return row // self.row_step, column // self.column_step

    def corner(self, row: int, column: int) -> tuple[int, int]:
        """The first pixel of a cell: x and y."""
        return column * (self.cell_width + GAP) + GAP, row * (self.cell_height + GAP) + GAP

    def core(self, row: int, column: int) -> tuple[int, int, int, int]:
        """The patch in a cell that has a margin, too: its first and its last pixel."""
        x, y = self.corner(row, column)
        across, down = self.cell_width / self.tile.size.width, self.cell_height / self.tile.size.height
        left, top = x + int(self.tile.margin.width * across), y + int(self.tile.margin.height * down)
        return left, top, left + int(self.tile.patch.width * across) - 1, top + int(self.tile.patch.height * down) - 1

    def thumbnail(self, bands: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
        """The tiles of some bands as the pixels of a cell, bands last: the nearest pixels, not their mean."""
        found = []
        for band in bands:
            pixels = band if self.margin else self.tile.crop(band)
            rows = np.arange(self.cell_height) * pixels.shape[0] // self.cell_height
            columns = np.arange(self.cell_width) * pixels.shape[1] // self.cell_width
            found.append(pixels[np.ix_(rows, columns)].astype(np.float32))
        return np.stack(found, axis=-1)
