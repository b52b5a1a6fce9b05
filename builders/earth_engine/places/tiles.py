"""How large is a stored tile, and where in it is the patch? Known from the number of values in a feature.

The mixer has the size of a patch without its margin. A record may hold the patch alone, as predictions often do, or the
patch with the margin of the kernel that it was exported with, which nothing tells but the number of values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from registry.builders.earth_engine.places.grid import NO_MARGIN, Size, margin_of
from registry.errors import ShardMismatchError, UsageError


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
