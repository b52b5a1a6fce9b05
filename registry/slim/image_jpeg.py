"""Decodes JPEGs with libjpeg, by way of Pillow, after the header was read to bound the size.

Where simplejpeg is installed (extra ``jpeg``), it decodes sound files in three quarters of the time and to the same
pixels, and Pillow reports on all others. Only simplejpeg offers libjpeg's other transform, TensorFlow's default.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.features.pictures import read_jpeg_header, to_grey
from registry.slim.image_codec import MAX_PIXELS, ImageFault, check_pixels, run_codec

_MOST_PASSES: Final = 16 * MAX_PIXELS
"""Each scan goes over all pixels, however short it is."""


def decode_jpeg(data: bytes, *, channels: int, limit: int, method: str = "") -> npt.NDArray[np.uint8]:
    """The pixels (height, width, 1 or 3) of a JPEG, as TensorFlow gives them with ``INTEGER_ACCURATE``.

    0 channels are those of the file, of CMYK and YCCK three: the product of each ink with black, as TensorFlow mixes
    them. Grey is the stored brightness itself. The orientation that a camera notes down is not applied.

    The ``method`` ``INTEGER_FAST`` gives what TensorFlow gives with it, and by default, where simplejpeg is installed
    and can decode the file; elsewhere it makes no difference.

    Raises:
        ImageFault: damaged, cut off, more pixels than ``limit``, or 4 channels are asked for.
        MissingExtraError: Pillow is needed, and is not installed.
    """
    if channels == 4:
        raise ImageFault("a JPEG has no channel of transparency", "Give channels=3 to Image, or 0 for those stored.")
    header = read_jpeg_header(data)
    if header is None:
        raise ImageFault("a damaged JPEG: it has no frame")
    check_pixels(header.height, header.width, limit)
    num_scans = data.count(b"\xff\xda")
    if num_scans * header.height * header.width > _MOST_PASSES:
        raise ImageFault(
            f"{num_scans} scans of {header.height} x {header.width} pixels: they would take minutes to decode",
            hint="A progressive JPEG has some 10. More is often an attack.",
        )
    size, is_fast = (header.height, header.width), method == "INTEGER_FAST"
    if header.components == 4:
        inks = _decode(data, "CMYK", size, 4, is_fast=is_fast)
        color = _mix(inks if header.is_adobe else ~inks)
        return to_grey(color) if channels == 1 else color
    wanted = channels or header.components
    return _decode(data, "L" if wanted == 1 else "RGB", size, wanted, is_fast=is_fast)


def _decode(data: bytes, mode: str, size: tuple[int, int], channels: int, *, is_fast: bool) -> npt.NDArray[np.uint8]:
    """The samples (height, width, channels) in a mode of Pillow."""
    if (library := _fast_library()) is not None:
        try:
            pixels: npt.NDArray[np.uint8] = library.decode_jpeg(data, "GRAY" if mode == "L" else mode, fastdct=is_fast)
        except ValueError:
            pass  # damaged, or of a kind that is rare
        else:
            if pixels.shape == (*size, channels):
                return pixels
    return run_codec("jpeg", mode, size, data, (mode, ""), of="JPEG").reshape(*size, channels)


@cache
def _fast_library() -> Any:
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


def _mix(inks: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """RGB of what cyan, magenta, yellow and black leave of the light (Adobe stores it this way)."""
    wide = inks.astype(np.uint16)
    return (wide[:, :, :3] * wide[:, :, 3:] // 255).astype(np.uint8)
