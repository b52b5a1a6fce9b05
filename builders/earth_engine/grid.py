"""Computes places: the transform from pixels to the map, the grid of patches, and the tiles that records contain.

Patch (row r, column c) contains the pixel rows r*h to r*h + h and the pixel columns c*w to c*w + w. Its tile adds the
margin on all four sides. Patches are numbered row by row, which is the order of an export's records.

The mixer contains the size of a patch without its margin. A record contains the patch, as predictions often do, or the
tile of the kernel that it was exported with; only the number of values distinguishes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy.typing as npt

from registry.errors import ShardMismatchError, UsageError


class Size(NamedTuple):
    """A size in pixels, width first as in Earth Engine."""

    width: int
    height: int


NO_KERNEL: Final = Size(1, 1)
"""The kernel of an export without margins, which is Earth Engine's default."""

NO_MARGIN: Final = Size(0, 0)


class Window(NamedTuple):
    """A rectangle of pixels. It may start before the first pixel, as the margin of a patch at the edge does."""

    column: int
    row: int
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The patches of a raster.

    Attributes:
        patch: width and height of a patch in pixels, without its margin.
        patches_per_row: number of patches in a row.
        num_rows: number of rows of patches.
        margin: pixels added on the left and right, and above and below: half of the kernel, rounded down.
    """

    patch: Size
    patches_per_row: int
    num_rows: int
    margin: Size = NO_MARGIN

    @classmethod
    def over(cls, raster: Size, patch: Size, *, kernel: Size = NO_KERNEL, pad: bool = False) -> Grid:
        """The grid over a raster. Incomplete patches at its right and bottom are dropped, or kept with ``pad``.

        >>> Grid.over(Size(7, 5), Size(2, 2), kernel=Size(2, 2))
        Grid(patch=Size(width=2, height=2), patches_per_row=3, num_rows=2, margin=Size(width=1, height=1))

        Raises:
            UsageError: the raster is smaller than a patch.
        """
        columns, rows = raster.width // patch.width, raster.height // patch.height
        if pad:
            columns, rows = -(-raster.width // patch.width), -(-raster.height // patch.height)
        if not columns or not rows:
            raise UsageError(
                f"the raster of {raster.width} x {raster.height} pixels is smaller than a patch of "
                f"{patch.width} x {patch.height}",
                hint="Choose smaller patches (patch_dimensions=64; --patch 64), or pad them: edge='pad'; --edge pad.",
                details={"raster": list(raster), "patch": list(patch)},
            )
        return cls(patch=patch, patches_per_row=columns, num_rows=rows, margin=margin_of(kernel))

    @property
    def num_patches(self) -> int:
        """Number of patches."""
        return self.patches_per_row * self.num_rows

    @property
    def covered(self) -> Size:
        """Width and height of all patches together: the size of the assembled raster."""
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
        """The transform of patch ``index``, or of its tile with ``margin``, in a raster with ``transform``."""
        window = self.window(index) if margin else self.core(index)
        return transform.moved(window.column, window.row)

    def bounds(self, index: int, transform: Transform, *, margin: bool = False) -> Bounds:
        """The bounds of patch ``index``, or of its tile with ``margin``, in a raster with ``transform``."""
        return transform.bounds(*(self.window(index) if margin else self.core(index)))


def margin_of(kernel: Size) -> Size:
    """The margin of a kernel: half of it on each side, so that a kernel centred on an edge pixel has values.

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
    """Maps pixels to the map: ``x = a * column + b * row + c``, ``y = d * column + e * row + f``.

    (0, 0) is the outer corner of the first pixel, not its centre. ``e`` is negative if north is up. The order
    is that of Earth Engine, affine and rasterio; GDAL's order is c, a, b, f, d, e.
    """

    a: float
    b: float
    c: float
    d: float
    e: float
    f: float

    @classmethod
    def of(cls, numbers: Iterable[Any]) -> Transform:
        """The transform from six numbers, or from an ``affine.Affine``, which has nine.

        Raises:
            UsageError: there are not six finite numbers, or the transform cannot be inverted.
        """
        try:
            found = [float(number) for number in numbers]
        except (TypeError, ValueError, OverflowError) as error:  # a whole number of 400 digits
            raise _refuse(f"{numbers!r:.80}", "expected six numbers") from error
        if len(found) == 9 and found[6:] == [0.0, 0.0, 1.0]:
            found = found[:6]
        if len(found) != 6 or not all(map(math.isfinite, found)):
            raise _refuse(f"{found!r:.80}", "expected six finite numbers")
        result = cls(*found)
        area = result.a * result.e - result.b * result.d  # of a pixel
        if not math.isfinite(area):
            raise _refuse(f"{tuple(result)!r:.120}", "its numbers are too large")
        if area == 0:
            raise _refuse(f"{tuple(result)!r:.120}", "it maps all pixels to one line")
        return result

    @classmethod
    def given(cls, numbers: Iterable[Any]) -> Transform:
        """The transform from numbers that a user wrote; unlike ``of``, it refuses numbers in GDAL's order.

        >>> Transform.given((30, 0, 500000, 0, -30, 4100000)).e
        -30.0

        Raises:
            UsageError: there are not six finite numbers, they cannot be inverted, or they are in GDAL's order.
        """
        result = cls.of(numbers)
        if result.a != 0 and result.e == 0 and result.c == 0:
            own = (result.b, result.c, result.a, result.e, result.f, result.d)
            listing = ", ".join(f"{number:.12g}" for number in own)
            raise UsageError(
                f"{tuple(result)!r:.120} is a transform in GDAL's order",
                hint=f"Use the order of Earth Engine, affine and rasterio: transform=({listing}); "
                f"--transform {listing.replace(' ', '')}.",
                details={"option": "transform"},
            )
        return result

    def apply(self, column: float, row: float) -> tuple[float, float]:
        """The place (x, y) on the map of a pixel's outer corner, in units of the CRS."""
        return column * self.a + row * self.b + self.c, column * self.d + row * self.e + self.f

    def moved(self, column: float, row: float) -> Transform:
        """The transform of a window that starts at this pixel."""
        x, y = self.a * column + self.b * row + self.c, self.d * column + self.e * row + self.f
        return self._replace(c=x, f=y)

    def bounds(self, column: float, row: float, width: float, height: float) -> Bounds:
        """The bounds of a window, in units of the CRS.

        They equal rasterio's bounds. For a rotated window, they are the smallest upright rectangle around it.
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
        f"invalid transform {found}: {why}",
        hint="Use (xScale, xShear, xTranslate, yShear, yScale, yTranslate), or the transform of a rasterio dataset.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A tile as stored: its size, and the position of the patch in it.

    Attributes:
        size: width and height of the tile in pixels.
        patch: width and height of the patch in pixels.
        margin: pixels to the left of the patch and above it. The right and bottom have the same margin, or one more
            pixel if ``is_uneven``.
        is_uneven: whether the tile is the patch plus an odd kernel, as the guide's text says, instead of the patch
            plus twice half of the kernel. The additional pixel is taken to be on the right and at the bottom.
    """

    size: Size
    patch: Size
    margin: Size
    is_uneven: bool = False

    @property
    def num_pixels(self) -> int:
        """Number of pixels of the tile."""
        width, height = self.size
        return width * height

    def crop(self, tile: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The patch as a view of an array of shape (..., tile height, tile width)."""
        top, left = self.margin.height, self.margin.width
        return tile[..., top : top + self.patch.height, left : left + self.patch.width]


def infer_tile(num_values: int, patch: Size, kernel: Size | None = None, *, what: str = "a band") -> Tile:
    """Infer the tile around a ``patch`` from its number of pixels.

    Args:
        num_values: number of values of one band in a record.
        patch: width and height of a patch in the mixer.
        kernel: the kernel of the export; None infers it, which requires square patches with a square margin.
        what: names the values in errors.

    Raises:
        ShardMismatchError: no tile around the patch has this number of pixels, so the patch or kernel is wrong.
        UsageError: several sizes are possible, so ``kernel`` is required.

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
            "the margin cannot be the same on both sides",
            hint=f"Give the kernel of the export: kernel_size={side - patch.width}; --kernel {side - patch.width}.",
            details={"values": num_values, "patch": list(patch)},
        )
    if num_values < patch.width * patch.height or patch.width == patch.height:
        raise _no_such_tile(num_values, patch, what, f"{patch.width * patch.height} values, or more with a margin,")
    raise UsageError(
        f"{what} has {num_values} values around a patch of {patch.width} x {patch.height}: the width and height of "
        "the margin are ambiguous",
        hint="Give the kernel of the export: kernel_size=[width, height]; --kernel WIDTH,HEIGHT.",
        details={"values": num_values, "patch": list(patch)},
    )


def tile_of_array(size: Size, patch: Size, kernel: Size | None, subject: str, *, advice: str = "") -> Tile:
    """The tile of an array, whose width and height are known; ``advice`` begins the hint of an error.

    Raises:
        ShardMismatchError: no tile around the patch, or none with this kernel, has this size.
    """
    if size == patch:
        return Tile(size=size, patch=patch, margin=NO_MARGIN)
    if kernel is not None:
        tile = infer_tile(size.width * size.height, patch, kernel, what=subject)
        if tile.size == size:
            return tile
    else:
        more = Size(size.width - patch.width, size.height - patch.height)
        if min(more) >= 0 and not any(side % 2 for side in more):
            return Tile(size=size, patch=patch, margin=Size(more.width // 2, more.height // 2))
    raise ShardMismatchError(
        f"{subject}: expected a tile around a patch of {patch.width} x {patch.height}, found {size.width} x "
        f"{size.height} pixels",
        hint=f"{advice}Check that the mixer belongs to this export. If it does, give the kernel_size of the export; "
        "--kernel.",
        details={"tile": list(size), "patch": list(patch)},
    )


def _tile_of_kernel(num_values: int, patch: Size, kernel: Size, subject: str) -> Tile:
    margin = margin_of(kernel)
    size = Size(patch.width + 2 * margin.width, patch.height + 2 * margin.height)
    if num_values == size.width * size.height:
        return Tile(size=size, patch=patch, margin=margin)
    uneven = Size(patch.width + kernel.width, patch.height + kernel.height)
    if num_values == uneven.width * uneven.height:
        return Tile(size=uneven, patch=patch, margin=margin, is_uneven=True)
    with_kernel = f" with a kernel of {kernel.width} x {kernel.height}"
    raise _no_such_tile(num_values, patch, subject, f"{size.width * size.height} values", with_kernel)


def _no_such_tile(
    num_values: int, patch: Size, subject: str, expected: str, with_kernel: str = ""
) -> ShardMismatchError:
    return ShardMismatchError(
        f"{subject}: expected {expected} for a patch of {patch.width} x {patch.height}{with_kernel}, "
        f"found {num_values}",
        hint="Check that the mixer belongs to this export. If it does, give the kernel_size of the export (--kernel), "
        "or the depth of an array band (tensor_depths; --depth).",
        details={"values": num_values, "patch": list(patch)},
    )
