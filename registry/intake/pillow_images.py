"""Turns Pillow images, and pictures in formats that only Pillow reads, into the bytes of PNG or JPEG files.

A PNG holds the pixels of the modes 1, L, LA, P, RGB, RGBA and I;16. Pictures of other modes are refused: converting
them would change their values.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from registry.errors import RegistryError
from registry.features import Image
from registry.features.pictures import import_pillow
from registry.features.png import encode_png

DECODED: Final = ("WebP", "GIF", "BMP", "TIFF")
"""The formats whose pictures become PNG."""

IMAGE_FAULTS: Final = (OSError, SyntaxError, ValueError)

_CHANNELS: Final = {"1": 1, "L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "I;16": 1, "I;16B": 1}
_BITS_PER_SAMPLE: Final = 258
"""The tag of a TIFF."""


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
    mode = _mode_of(image)
    pixels = np.asarray(image if mode == image.mode else image.convert(mode))
    return encode_png(pixels[..., None] if pixels.ndim == 2 else pixels)


def image_feature(image: Any) -> Image:
    """The feature of a column of images like this one."""
    is_wide = image.mode.startswith("I;16")
    return Image(shape=(None, None, 1 if is_wide else None), dtype=np.uint16 if is_wide else np.uint8)


def as_png(data: bytes) -> bytes:
    """The PNG of a picture in one of the formats of ``DECODED``.

    Raises:
        ValueError, OSError, SyntaxError: it is damaged, or has several frames or a mode that PNG cannot store.
        MissingExtraError: Pillow is not installed.
    """
    with _faults_of_pillow(), _open(io.BytesIO(data)) as image:
        return image_file(image)


def measure_with_pillow(file: Any) -> tuple[int, tuple[int, int, int]]:
    """The bits of a sample and the shape of a picture in one of these formats, by its header. Raises as ``as_png``."""
    with _faults_of_pillow(), _open(file) as image:
        mode = _mode_of(image)
        return 16 if mode.startswith("I;16") else 8, (image.height, image.width, _CHANNELS[mode])


@contextmanager
def _faults_of_pillow() -> Iterator[None]:
    """What Pillow raises for a damaged file, such as IndexError for a short GIF, as ValueError. Hide its warnings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (RegistryError, MemoryError, *IMAGE_FAULTS):
        raise
    except Exception as error:
        raise ValueError(f"it is damaged: {error}") from error


def _open(file: Any) -> Any:
    pillow = import_pillow("decoding WebP, GIF, BMP and TIFF")
    image = pillow.open(file, formats=[name.upper() for name in DECODED])
    if getattr(image, "n_frames", 1) > 1:
        raise ValueError(f"it has {image.n_frames} frames, and an Image has one")
    return image


def _mode_of(image: Any) -> str:
    """The mode in which a PNG stores all values of an image."""
    mode = str(image.mode)
    if mode in ("1", "P"):
        mode = "L" if mode == "1" else "RGBA" if "transparency" in image.info else "RGB"
    if mode not in _CHANNELS:
        raise ValueError(f"PNG has no mode {image.mode!r}; use image.convert('RGB')")
    bits = getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE, (1,))
    if max(bits) > 8 and not mode.startswith("I;16"):  # Pillow drops the lower bytes
        raise ValueError(f"it has {max(bits)} bits for each sample, of which Pillow keeps 8 in the mode {mode!r}")
    return mode
