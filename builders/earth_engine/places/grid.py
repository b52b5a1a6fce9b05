"""Which pixels are in which patch? Patches side by side from the first pixel on, each with a margin around it.

Patch (row r, column c) has the pixel rows r*h to r*h + h and the pixel columns c*w to c*w + w; its tile has the margin
on all four sides as well. Patches are numbered row by row, which is the order of an export's records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from registry.builders.earth_engine.places.transform import Bounds, Transform
from registry.errors import UsageError


class Size(NamedTuple):
    """A size in pixels; Earth Engine's pairs have the width first."""

    width: int
    height: int


NO_KERNEL: Final = Size(1, 1)
"""The kernel of an export without margins, which is Earth Engine's default."""

NO_MARGIN: Final = Size(0, 0)


class Window(NamedTuple):
    """A rectangle of pixels. It may begin before the first pixel: the margin of a patch at the edge does."""

    column: int
    row: int
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The patches of a raster.

    Attributes:
        patch: size of a patch without its margin.
        patches_per_row: patches side by side.
        num_rows: rows of patches.
        margin: pixels added on the left and on the right, above and below: half of the kernel, without its fraction.
    """

    patch: Size
    patches_per_row: int
    num_rows: int
    margin: Size = NO_MARGIN

    @classmethod
    def over(cls, raster: Size, patch: Size, *, kernel: Size = NO_KERNEL, pad: bool = False) -> Grid:
        """The grid over a raster. Pixels at its right and bottom that fill no patch are left out; ``pad`` fills one.

        >>> Grid.over(Size(7, 5), Size(2, 2), kernel=Size(2, 2))
        Grid(patch=Size(width=2, height=2), patches_per_row=3, num_rows=2, margin=Size(width=1, height=1))

        Raises:
            UsageError: the raster holds no whole patch.
        """
        columns, rows = raster.width // patch.width, raster.height // patch.height
        if pad:
            columns, rows = -(-raster.width // patch.width), -(-raster.height // patch.height)
        if not columns or not rows:
            raise UsageError(
                f"the raster of {raster.width} x {raster.height} pixels holds no patch of "
                f"{patch.width} x {patch.height}",
                hint="Take smaller patches (patch_dimensions; --patch), or fill them up: edge='pad'; --edge pad.",
                details={"raster": list(raster), "patch": list(patch)},
            )
        return cls(patch=patch, patches_per_row=columns, num_rows=rows, margin=margin_of(kernel))

    @property
    def num_patches(self) -> int:
        """Patches in all."""
        return self.patches_per_row * self.num_rows

    @property
    def covered(self) -> Size:
        """The pixels that are in patches: the size of the raster that comes back."""
        return Size(self.patches_per_row * self.patch.width, self.num_rows * self.patch.height)

    @property
    def tile(self) -> Size:
        """Size of a patch with its margin."""
        return Size(self.patch.width + 2 * self.margin.width, self.patch.height + 2 * self.margin.height)

    def place(self, index: int) -> tuple[int, int]:
        """Row and column of patch ``index``, in patches."""
        return divmod(index, self.patches_per_row)

    def core(self, index: int) -> Window:
        """The pixels of patch ``index``."""
        row, column = self.place(index)
        return Window(column * self.patch.width, row * self.patch.height, *self.patch)

    def window(self, index: int) -> Window:
        """The pixels of patch ``index`` and of its margin."""
        core = self.core(index)
        return Window(core.column - self.margin.width, core.row - self.margin.height, *self.tile)

    def transform(self, index: int, transform: Transform, *, margin: bool = False) -> Transform:
        """The transform of patch ``index`` of a raster with ``transform``; of its tile with ``margin``."""
        window = self.window(index) if margin else self.core(index)
        return transform.moved(window.column, window.row)

    def bounds(self, index: int, transform: Transform, *, margin: bool = False) -> Bounds:
        """Where patch ``index`` of a raster with ``transform`` lies on the map; its tile with ``margin``."""
        return transform.bounds(*(self.window(index) if margin else self.core(index)))


def margin_of(kernel: Size) -> Size:
    """The margin that a kernel needs: half of it on each side, so that one on an edge pixel has values everywhere.

    >>> margin_of(Size(128, 1))
    Size(width=64, height=0)
    """
    return Size(kernel.width // 2, kernel.height // 2)
