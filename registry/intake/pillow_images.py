"""Turns Pillow images into the bytes of PNG or JPEG files."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from registry.features import Image
from registry.features.png import encode_png


def image_file(image: Any) -> bytes:
    """The bytes of a Pillow image: of the PNG or JPEG file that it was opened from, or of a new PNG.

    The file is used only while Pillow has not decoded it: a decoded image may have been changed in place.

    Raises:
        ValueError: PNG cannot store the mode of the image.
        OSError: the image cannot be read.
    """
    if image.format in ("PNG", "JPEG") and getattr(image, "tile", None) and not getattr(image, "is_animated", False):
        file = image.fp
        if file is not None and getattr(image, "decoderconfig", ()) == ():
            place = file.tell()
            try:
                file.seek(0)
                return bytes(file.read())
            finally:
                file.seek(place)
    if image.mode in ("1", "P"):
        image = image.convert("L" if image.mode == "1" else "RGBA" if "transparency" in image.info else "RGB")
    if image.mode not in ("L", "LA", "RGB", "RGBA", "I;16"):
        raise ValueError(f"PNG has no mode {image.mode!r}; use image.convert('RGB')")
    pixels = np.asarray(image)
    return encode_png(pixels[..., None] if pixels.ndim == 2 else pixels)


IMAGE_FAULTS: Final = (OSError, SyntaxError, ValueError)


def image_feature(image: Any) -> Image:
    """The feature of a column of images like this one."""
    is_wide = image.mode == "I;16"
    return Image(shape=(None, None, 1 if is_wide else None), dtype=np.uint16 if is_wide else np.uint8)
