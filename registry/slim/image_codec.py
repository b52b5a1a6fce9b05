"""Shared by the decoders of all image formats: the error, the limit of pixels, and grey by gamma."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.images import mix, run_codec

MAX_PIXELS: Final = 178_956_970
"""Maximum number of pixels of one record, over all frames of an animation and all images of a repeated item.

It is Pillow's default limit: half a gigabyte at 24 bits per pixel.
"""


class ImageFault(Exception):  # noqa: N818  internal; callers get a CorruptExampleError
    """The bytes are not an image, the image is damaged, or it does not fit the options; with a hint."""

    def __init__(self, problem: str, hint: str = "The image is damaged or cut off. Write the record again.") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


def check_pixels(height: int, width: int, limit: int, *, num_frames: int = 1) -> None:
    """Raise ImageFault if an image has more pixels than ``limit``, or none."""
    if height < 1 or width < 1:
        raise ImageFault(f"an image of {height} x {width} has no pixels")
    if height * width * num_frames > limit:
        size = f"{num_frames} frames of {height} x {width}" if num_frames > 1 else f"an image of {height} x {width}"
        left = "" if limit == MAX_PIXELS else f", of which {limit} are left"
        raise ImageFault(
            f"{size} pixels: a record may ask for MAX_PIXELS = {MAX_PIXELS}{left}",
            hint="Store it smaller, or as several records. A header that asks for this is often an attack.",
        )


def run_pillow(
    codec: str, mode: str, size: tuple[int, int], data: Any, arguments: tuple[Any, ...], *, of: str
) -> npt.NDArray[np.uint8]:
    """``run_codec``, with an ImageFault if the data is damaged or truncated."""
    try:
        return run_codec(codec, mode, size, data, arguments, of=of)
    except ValueError as error:
        raise ImageFault(f"a damaged {of}: {error}") from error


def to_grey_by_light(color: npt.NDArray[Any], gamma: int, *, is_cut: bool) -> npt.NDArray[Any]:
    """The brightness (height, width, 1) of colours stored with ``gamma`` (in 1/100000), mixed as linear light.

    libpng does this, with tables, if a PNG declares a gamma that is not about 1. If 16 bits are then reduced to 8
    (``is_cut``), its tables have 11 bits.
    """
    is_wide = color.dtype == np.uint16
    top = 65535 if is_wide else 255
    shift = 5 if is_wide and is_cut else 0
    steps = np.arange((top >> shift) + 1) / (top >> shift)
    # The exponents from stored values to linear light and back; libpng computes them in units of 1/100000.
    lightening = int(1e10 / gamma + 0.5)
    powers = lightening / 100000, int(1e10 / lightening + 0.5) / 100000
    to_light, from_light = (np.floor(top * steps**power + 0.5).astype(np.uint32) for power in powers)
    red, green, blue = (to_light[color[:, :, channel] >> shift] for channel in range(3))
    mixed = mix(red, green, blue, 0x4000)
    grey: npt.NDArray[Any] = from_light[mixed >> shift].astype(color.dtype)
    is_grey = (color[:, :, :1] == color[:, :, 1:]).all(axis=2)
    grey[is_grey] = _keep(color[:, :, 0][is_grey], shift)
    return grey[:, :, np.newaxis]


def _keep(grey: npt.NDArray[Any], shift: int) -> npt.NDArray[Any]:
    """Values that are already grey. With the 11-bit tables, libpng rounds them to 8 bits."""
    if not shift:
        return grey
    firsts = ((np.arange(256, dtype=np.uint32) * 257 + 128) * (65535 >> shift) + 32768) // 65535 + 1
    return (np.searchsorted(firsts[:-1], grey >> shift, side="right") * 257).astype(grey.dtype)
