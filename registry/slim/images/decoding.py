"""How do the bytes of an image become an array? As ``tf.io.decode_image`` does it: the first bytes tell the format.

    bytes -> format -> pixels of 8 or 16 bits -> channels -> dtype

What TensorFlow refuses is refused here too, with the mend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.slim.images.bmp import decode_bmp
from registry.slim.images.codec import MAX_PIXELS, ImageFault
from registry.slim.images.gif import decode_gif
from registry.slim.images.jpeg import SIGNATURE as JPEG
from registry.slim.images.jpeg import decode_jpeg
from registry.slim.images.png import decode_png, decode_small_pngs
from registry.slim.images.webp import decode_webp

CHANNELS: Final = (0, 1, 3, 4)
"""The numbers of channels that can be asked for; 0 is what the file has."""

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_UINT8: Final = np.dtype(np.uint8)
_FORMATS: Final = "JPEG, PNG, BMP, GIF and WebP are read"


def decode_encoded(
    data: bytes, *, channels: int, dtype: np.dtype[Any], limit: int = MAX_PIXELS, method: str = ""
) -> npt.NDArray[Any]:
    """The array of an encoded image: (height, width, channels), of a GIF or WebP (frames, height, width, channels).

    A JPEG is cast to ``dtype`` (0..255 as float). Of the others floats are in 0..1, integers fill the range of theirs:
    a PNG has 16 bits on the way (its 8 repeated), a BMP and a GIF have theirs shifted up by 8; a WebP has uint8 only.
    How a JPEG is transformed is ``method``, see ``decode_jpeg``.

    Raises:
        ImageFault: empty, of no known format, damaged, cut off, more pixels than ``limit``, or not in these channels.
        MissingExtraError: Pillow is needed, and is not installed.
    """
    if data.startswith(JPEG):
        pixels: npt.NDArray[Any] = decode_jpeg(data, channels=channels, limit=limit, method=method)
        return pixels if dtype == _UINT8 else pixels.astype(dtype)
    if data.startswith(_PNG):
        return _convert(decode_png(data, channels=channels, wide=dtype != _UINT8, limit=limit), dtype)
    if data.startswith(b"BM"):
        pixels = decode_bmp(data, channels=channels, limit=limit)
    elif data.startswith(b"GIF8"):
        pixels = decode_gif(data, channels=channels, limit=limit)
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        if dtype != _UINT8:
            raise ImageFault(f"a WebP is not decoded to {dtype}", "Give dtype=uint8 to Image, and cast what it gives.")
        return decode_webp(data, channels=channels, limit=limit)
    else:
        raise _unknown(data)
    return _convert(pixels, dtype)


def decode_small_images(
    images: Sequence[bytes], *, channels: int, dtype: np.dtype[Any], limit: int
) -> npt.NDArray[Any] | None:
    """What ``decode_encoded`` gives for each, stacked, where many can be decoded together: small PNGs of one kind.

    Raises:
        ImageFault: one of them is at fault, and ``decode_encoded`` says so, too.
    """
    if not images[0].startswith(_PNG):
        return None
    pixels = decode_small_pngs(images, channels=channels, wide=dtype != _UINT8, limit=limit)
    return None if pixels is None else _convert(pixels, dtype)


def decode_raw(data: bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The values, (n,), that bytes hold as they are, the lowest byte first.

    Raises:
        ImageFault: the bytes are no whole number of values.
    """
    if len(data) % dtype.itemsize:
        raise ImageFault(
            f"{len(data)} raw bytes are no whole number of {dtype} of {dtype.itemsize} bytes",
            "Give Image the dtype that was written, or write the format of the encoded image, e.g. png.",
        )
    return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)


def _convert(pixels: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Pixels of 8 or 16 bits as ``dtype``; all but uint16 and float32 come from 16 bits."""
    if dtype == pixels.dtype:
        return pixels
    is_byte = pixels.dtype == _UINT8
    scaled: npt.NDArray[Any]
    if dtype == np.float32:
        scaled = pixels * np.float32(1 / (255 if is_byte else 65535))
        return scaled
    wide: npt.NDArray[Any] = pixels.astype(np.uint16) << 8 if is_byte else pixels
    if dtype == np.uint16:
        return wide
    if dtype.kind not in "iu":
        with np.errstate(over="ignore"):  # the highest of 16 bits is infinite as float16, in TensorFlow too
            scaled = wide.astype(dtype) * np.asarray(1 / 65535, dtype)
            return scaled
    top = int(np.iinfo(dtype).max) + 1
    if top <= 0x10000:
        return (wide // (0x10000 // top)).astype(dtype)
    shifted: npt.NDArray[Any] = wide.astype(dtype) * dtype.type(top // 0x10000)
    return shifted


def _unknown(data: bytes) -> ImageFault:
    if not data:
        return ImageFault(
            "the image is empty",
            "No image was stored: default_value='' stands for a missing one. Write one, or leave such records out.",
        )
    if data.startswith((b"\xff\x0a", b"\x00\x00\x00\x0cJXL ")):
        return ImageFault(f"a JPEG XL, which is not read: {_FORMATS}", "Store it as PNG or JPEG.")
    return ImageFault(
        f"no image of a known format: it starts with {data[:8]!r}",
        f"{_FORMATS}. Raw values have the format 'raw' or 'RAW' in the record, written just so.",
    )
