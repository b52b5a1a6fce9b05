"""Imports Pillow where it is needed, and runs its codecs without its file readers.

This package reads the headers of images itself, so that no image is allocated before its size is known, and Pillow does
not warn or read metadata.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import MissingExtraError, require_extra

_BYTES_AT_ONCE: Final = 2**24


def import_pillow(needed_for: str) -> Any:
    """Import ``PIL.Image``. Raises MissingExtraError if Pillow is not installed."""
    with require_extra("image", package="pillow", needed_for=needed_for):
        from PIL import Image
    return Image


def has_pillow() -> bool:
    """Whether Pillow is installed."""
    try:
        import_pillow("")
    except MissingExtraError:
        return False
    return True


def run_codec(
    codec: str, mode: str, size: tuple[int, int], data: Any, arguments: tuple[Any, ...], *, of: str
) -> npt.NDArray[np.uint8]:
    """Decode ``data`` with a codec of Pillow to the bytes of an image in ``mode``, as a new 1-d array.

    Raises:
        ValueError: the data is damaged or truncated.
        MissingExtraError: Pillow is not installed; ``of`` is the format in its message.
    """
    height, width = size
    pillow = import_pillow(f"decoding {of} images")
    try:
        image = pillow.frombytes(mode, (width, height), data, codec, arguments)
    except (OSError, SyntaxError, OverflowError) as error:
        raise ValueError(f"{error}") from error
    return take_pixels(image).reshape(-1)


def take_pixels(image: Any) -> npt.NDArray[np.uint8]:
    """The bytes of a Pillow image, (height, width, bands), as a new array. It is copied in strips to save memory."""
    row_bytes = image.width * len(image.getbands())
    pixels = np.empty((image.height, row_bytes), np.uint8)
    rows = max(1, _BYTES_AT_ONCE // row_bytes)
    for top in range(0, image.height, rows):
        strip = image if rows >= image.height else image.crop((0, top, image.width, min(image.height, top + rows)))
        pixels[top : top + rows].reshape(-1)[:] = np.frombuffer(strip.tobytes(), np.uint8)
    return pixels.reshape(image.height, image.width, -1)
