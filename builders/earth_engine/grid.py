"""Where pixels and patches lie: the transform to the map, the grid of patches, and tiles as records hold them.

Patch (row r, column c) has the pixel rows r*h to r*h + h and the pixel columns c*w to c*w + w; its tile has the margin
on all four sides as well. Patches are numbered row by row, which is the order of an export's records.

The mixer gives the size of a patch without its margin. A record may hold the patch alone, as predictions often do, or
the patch with the margin of the kernel that it was exported with: only the number of values tells.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy.typing as npt

from registry.errors import ShardMismatchError, UsageError


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


class Bounds(NamedTuple):
    """The sides of a rectangle on the map, in units of its CRS."""

    left: float
    bottom: float
    right: float
    top: float


class Transform(NamedTuple):
    """From pixels to the map: ``x = a * column + b * row + c``, ``y = d * column + e * row + f``.

    Columns and rows are of the pixels' outer corners: (0, 0) is the outer corner of the first pixel. ``e`` is below 0
    where north is up. GDAL has these numbers in the order c, a, b, f, d, e.
    """

    a: float
    b: float
    c: float
    d: float
    e: float
    f: float

    @classmethod
    def of(cls, numbers: Iterable[Any]) -> Transform:
        """The transform of six numbers, or of an ``affine.Affine``, which has nine.

        Raises:
            UsageError: not so many, one that is not finite, or a transform that maps the plane to a line.
        """
        try:
            found = [float(number) for number in numbers]
        except (TypeError, ValueError, OverflowError) as error:  # a whole number of 400 digits
            raise _refuse(f"{numbers!r:.80}", "it is made of six numbers") from error
        if len(found) == 9 and found[6:] == [0.0, 0.0, 1.0]:
            found = found[:6]
        if len(found) != 6 or not all(map(math.isfinite, found)):
            raise _refuse(f"{found!r:.80}", "it is made of six finite numbers")
        made = cls(*found)
        area = made.a * made.e - made.b * made.d  # of a pixel
        if not math.isfinite(area):
            raise _refuse(f"{tuple(made)!r:.120}", "its numbers are too large to be placed on a map")
        if area == 0:
            raise _refuse(f"{tuple(made)!r:.120}", "it cannot be inverted: all pixels would lie on one line")
        return made

    @classmethod
    def given(cls, numbers: Iterable[Any]) -> Transform:
        """As ``of``, of numbers that somebody wrote down: those in GDAL's order are refused.

        >>> Transform.given((30, 0, 500000, 0, -30, 4100000)).e
        -30.0

        Raises:
            UsageError: as ``of``; and where the pixels' width and height are what GDAL has as shears.
        """
        made = cls.of(numbers)
        if made.a != 0 and made.e == 0 and made.c == 0:
            own = (made.b, made.c, made.a, made.e, made.f, made.d)
            shown = ", ".join(f"{number:.12g}" for number in own)
            raise UsageError(
                f"{tuple(made)!r:.120} is a transform in GDAL's order",
                hint=f"Give it as Earth Engine, affine and rasterio have it: transform=({shown}); "
                f"--transform {shown.replace(' ', '')}.",
                details={"option": "transform"},
            )
        return made

    def apply(self, column: float, row: float) -> tuple[float, float]:
        """The place (x, y) on the map of a pixel's outer corner."""
        return column * self.a + row * self.b + self.c, column * self.d + row * self.e + self.f

    def moved(self, column: float, row: float) -> Transform:
        """The transform of a window whose first pixel is this one."""
        x, y = self.a * column + self.b * row + self.c, self.d * column + self.e * row + self.f
        return self._replace(c=x, f=y)

    def bounds(self, column: float, row: float, width: float, height: float) -> Bounds:
        """The rectangle around a window; where north is up or down, what rasterio calls its bounds.

        Of a window that is turned, the smallest upright rectangle that holds it.
        """
        if self.b == 0 and self.d == 0:
            left, bottom = self.apply(column, row + height)
            right, top = self.apply(column + width, row)
            return Bounds(left, bottom, right, top)
        corners = [self.apply(column + x, row + y) for x in (0, width) for y in (0, height)]
        xs, ys = zip(*corners, strict=True)
        return Bounds(min(xs), min(ys), max(xs), max(ys))


def _refuse(found: str, why: str) -> UsageError:
    return UsageError(
        f"{found} is no transform: {why}",
        hint="Give (xScale, xShear, xTranslate, yShear, yScale, yTranslate), or the transform of a rasterio dataset.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A stored tile: its size, and how many pixels of margin are on its left and above the patch.

    Attributes:
        size: of the tile.
        patch: of the patch in it.
        margin: to the left of the patch and above it. On the right and below there are as many; one more where
            ``is_uneven``.
        is_uneven: whether the tile is a patch plus an odd kernel, as the guide's words have it, and not plus twice the
            half of it: then one more pixel is taken to be on the right, or below.
    """

    size: Size
    patch: Size
    margin: Size
    is_uneven: bool = False

    @property
    def num_pixels(self) -> int:
        """Pixels of the tile."""
        width, height = self.size
        return width * height

    def crop(self, tile: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The patch in an array whose last two axes are those of the tile, (height, width): a view."""
        top, left = self.margin.height, self.margin.width
        return tile[..., top : top + self.patch.height, left : left + self.patch.width]


def infer_tile(num_values: int, patch: Size, kernel: Size | None = None, *, what: str = "a band") -> Tile:
    """The tile of ``num_values`` pixels around a ``patch``.

    Args:
        num_values: values of one band of a record.
        patch: of the mixer.
        kernel: that it was exported with; None infers it, which needs square patches with a square margin.
        what: what the values are of, in errors.

    Raises:
        ShardMismatchError: no tile around the patch has so many pixels: it is an export of other patches, or another
            kernel.
        UsageError: several sizes are possible: the kernel has to be given.

    >>> infer_tile(384 * 384, Size(256, 256)).margin
    Size(width=64, height=64)
    """
    if num_values == patch.width * patch.height:
        return Tile(size=patch, patch=patch, margin=NO_MARGIN)
    if kernel is not None:
        return _tile_of_kernel(num_values, patch, kernel, what)
    side = math.isqrt(num_values)
    if patch.width == patch.height and side * side == num_values and side > patch.width:
        if (side - patch.width) % 2 == 0:
            half = (side - patch.width) // 2
            return Tile(size=Size(side, side), patch=patch, margin=Size(half, half))
        raise UsageError(
            f"{what} has {num_values} values, {side} x {side} around a patch of {patch.width} x {patch.height}: "
            "the margin is not the same on both sides",
            hint=f"Give the kernel that it was exported with: kernel_size={side - patch.width}; "
            f"--kernel {side - patch.width}.",
            details={"values": num_values, "patch": list(patch)},
        )
    if num_values < patch.width * patch.height or patch.width == patch.height:
        raise _no_such_tile(num_values, patch, what, f"{patch.width * patch.height}, or more with a margin")
    raise UsageError(
        f"{what} has {num_values} values around a patch of {patch.width} x {patch.height}: how wide and how high the "
        "margin is cannot be told",
        hint="Give the kernel that it was exported with: kernel_size=[width, height]; --kernel WIDTH,HEIGHT.",
        details={"values": num_values, "patch": list(patch)},
    )


def _tile_of_kernel(num_values: int, patch: Size, kernel: Size, what: str) -> Tile:
    margin = margin_of(kernel)
    size = Size(patch.width + 2 * margin.width, patch.height + 2 * margin.height)
    if num_values == size.width * size.height:
        return Tile(size=size, patch=patch, margin=margin)
    uneven = Size(patch.width + kernel.width, patch.height + kernel.height)
    if num_values == uneven.width * uneven.height:
        return Tile(size=uneven, patch=patch, margin=margin, is_uneven=True)
    raise _no_such_tile(
        num_values, patch, what, f"{size.width * size.height} with a kernel of {kernel.width} x {kernel.height}"
    )


def _no_such_tile(num_values: int, patch: Size, what: str, expected: str) -> ShardMismatchError:
    return ShardMismatchError(
        f"{what} has {num_values} values; a patch of {patch.width} x {patch.height} has {expected}",
        hint="Is it the mixer of this export? If it is, give the kernel_size that was exported (--kernel), or the "
        "depth of an array band (tensor_depths, --depth).",
        details={"values": num_values, "patch": list(patch)},
    )
