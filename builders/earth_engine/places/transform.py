"""Where on the map is a pixel? Six numbers, in the order of Earth Engine, of ``affine`` and of rasterio."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from registry.errors import UsageError


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
