"""What the decoders of all image formats share: the fault, the bound on pixels, Pillow's codecs, and grey by light.

Only the codecs of Pillow are used, never its readers of files. Headers are read here, so that no image is allocated
before its size is known, and Pillow neither warns nor reads metadata.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.features.pictures import import_pillow, mix

MAX_PIXELS: Final = 178_956_970
"""Most pixels that one record may ask for: all frames of an animation and all images of a repeated item together.

It is what Pillow refuses by default: at 24 bits a pixel, half a gigabyte.
"""


_BYTES_AT_ONCE: Final = 2**24


class ImageFault(Exception):  # noqa: N818  as the registry says it; callers see CorruptExampleError
    """Bytes that are no image, a damaged one, or one that does not fit what was asked; with the mend."""

    def __init__(self, problem: str, hint: str = "The image is damaged or cut off. Write the record again.") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


def check_pixels(height: int, width: int, limit: int, *, num_frames: int = 1) -> None:
    """Raises ImageFault where an image asks for more pixels than ``limit``, or for none."""
    if height < 1 or width < 1:
        raise ImageFault(f"an image of {height} x {width} pixels has none")
    if height * width * num_frames > limit:
        size = f"{num_frames} frames of {height} x {width}" if num_frames > 1 else f"an image of {height} x {width}"
        left = "" if limit == MAX_PIXELS else f", of which {limit} are left"
        raise ImageFault(
            f"{size} pixels: a record may ask for MAX_PIXELS = {MAX_PIXELS}{left}",
            hint="Store it smaller, or as several records. A header that asks for this is often an attack.",
        )


def run_codec(
    codec: str, mode: str, size: tuple[int, int], data: Any, arguments: tuple[Any, ...], *, of: str
) -> npt.NDArray[np.uint8]:
    """What a codec of Pillow makes of ``data``: the bytes of the image in ``mode``, all in one row, in an own array.

    Raises:
        ImageFault: the data are damaged, or end before the image does.
        MissingExtraError: Pillow is not installed.
    """
    height, width = size
    try:
        image = import_pillow(f"decoding {of} images").frombytes(mode, (width, height), data, codec, arguments)
    except (ValueError, OSError, SyntaxError, OverflowError) as error:
        raise ImageFault(f"a damaged {of}: {error}") from error
    return take_pixels(image).reshape(-1)


def take_pixels(image: Any) -> npt.NDArray[np.uint8]:
    """The bytes of an image of Pillow, (height, width, bands), in an own array, which is filled some rows at a time."""
    row_bytes = image.width * len(image.getbands())
    pixels = np.empty((image.height, row_bytes), np.uint8)
    rows = max(1, _BYTES_AT_ONCE // row_bytes)
    for top in range(0, image.height, rows):
        strip = image if rows >= image.height else image.crop((0, top, image.width, min(image.height, top + rows)))
        pixels[top : top + rows].reshape(-1)[:] = np.frombuffer(strip.tobytes(), np.uint8)
    return pixels.reshape(image.height, image.width, -1)


def to_grey_by_light(color: npt.NDArray[Any], gamma: int, *, is_cut: bool) -> npt.NDArray[Any]:
    """The brightness (height, width, 1) of colours that were stored with ``gamma``, in 1/100000, mixed as light.

    libpng mixes so, by tables, where a PNG says its gamma and that is not about 1. Where 16 bits are cut to 8 after it
    (``is_cut``), its tables have 11 bits.
    """
    is_wide = color.dtype == np.uint16
    top = 65535 if is_wide else 255
    shift = 5 if is_wide and is_cut else 0
    steps = np.arange((top >> shift) + 1) / (top >> shift)
    # What stored values are raised to, to become light, and light to be stored; libpng counts in 1/100000.
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
    """Values that are grey already; with the tables of 11 bits they are rounded to 8."""
    if not shift:
        return grey
    firsts = ((np.arange(256, dtype=np.uint32) * 257 + 128) * (65535 >> shift) + 32768) // 65535 + 1
    return (np.searchsorted(firsts[:-1], grey >> shift, side="right") * 257).astype(grey.dtype)
