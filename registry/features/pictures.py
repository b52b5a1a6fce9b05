"""Reads the headers of encoded images, decodes them, and converts channels and bit depth.

PNG is decoded by ``png``; JPEG and rare kinds of PNG are decoded by Pillow. The size is read from the header before
anything is decompressed, so that a small record cannot allocate a huge array. Channels and bit depth are converted like
TensorFlow's ``decode_image``.
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import MissingExtraError, require_extra
from registry.features.png import SIGNATURE, Png, PngError, read_png, undo_filters

if TYPE_CHECKING:
    from PIL import Image as PillowImage

JPEG_QUALITY: Final = 95
"""TensorFlow's default, which TFDS uses."""

JPEG_SIGNATURE: Final = b"\xff\xd8\xff"
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SEGMENTS: Final = _FRAMES | {0xC4, 0xCC, 0xDB, 0xDD, 0xFE} | set(range(0xE0, 0xF0))
_MARKER: Final = re.compile(rb"\xff([^\x00\x01\xd0-\xd7\xff])")  # markers with a segment, without fill bytes
_ADOBE: Final = 0xEE

_WORTH_PILLOW: Final = 1500
_MODES: Final = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_PILLOW_FAULTS: Final = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, OSError, SyntaxError, TypeError, ValueError),
    *(struct.error, zlib.error),
)


class PictureError(ValueError):
    """The bytes are not an image that can be read, or the image is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An encoded image with the facts from its header: ``png`` or ``jpeg``, height and width in pixels."""

    format: str
    height: int
    width: int
    data: bytes
    png: Png | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JpegHeader:
    """The facts from the segments of a JPEG up to its frame header.

    Attributes:
        height, width: size in pixels.
        components: number of colour components: 1, 3 or 4.
        is_adobe: whether there is an Adobe segment.
        has_gaps: whether there are other bytes between segments. libjpeg skips them; Pillow does not.
    """

    height: int
    width: int
    components: int
    is_adobe: bool
    has_gaps: bool


def read_picture(data: bytes) -> Picture:
    """Read the header of an encoded image.

    Raises:
        PictureError: ``data`` is not a PNG or JPEG file, or is damaged.
    """
    if data.startswith(JPEG_SIGNATURE):
        jpeg = read_jpeg_header(data)
        if jpeg is None or not jpeg.height or not jpeg.width:
            raise PictureError("damaged JPEG: it has no frame")
        if jpeg.has_gaps:
            raise PictureError("damaged JPEG: there are bytes between its segments")
        return Picture(format="jpeg", height=jpeg.height, width=jpeg.width, data=data)
    try:
        png = read_png(data)
    except PngError as error:
        raise PictureError(
            f"damaged PNG: {error}" if data.startswith(SIGNATURE) else "expected a PNG or JPEG file, found other bytes"
        ) from error
    return Picture(format="png", height=png.height, width=png.width, data=data, png=png)


def read_jpeg_header(data: bytes) -> JpegHeader | None:
    """Read the segments up to the frame header (ITU-T T.81, B.2.2). Like libjpeg, skip bytes between segments.

    Returns None if the file is damaged, or of a kind that libjpeg cannot read.
    """
    place, is_adobe, has_gaps = 2, False, False
    while match := _MARKER.search(data, place):
        marker, start = match[1][0], match.end()
        has_gaps = has_gaps or bool(data[place : match.start()].strip(b"\xff"))
        length = int.from_bytes(data[start : start + 2], "big")
        if marker not in _SEGMENTS or length < 2:
            break
        if marker in _FRAMES:
            frame = data[start + 2 : start + 8]
            height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
            if len(frame) < 6 or frame[5] not in (1, 3, 4):
                break
            return JpegHeader(height=height, width=width, components=frame[5], is_adobe=is_adobe, has_gaps=has_gaps)
        is_adobe = is_adobe or (marker == _ADOBE and length >= 14 and data[start + 2 : start + 7] == b"Adobe")
        place = start + length
    return None


def decode_picture(picture: Picture, *, channels: int | None, wide: bool) -> npt.NDArray[Any]:
    """Decode an image to pixels of shape (height, width, channels).

    Colour is first converted to grey at the bit depth of the file. Then 8 bits are widened to 16 by repeating them, and
    16 bits are reduced to 8 by dropping the lower byte. An alpha channel that the file lacks is opaque. (For a PNG with
    fewer than 8 bits, TensorFlow fills in 1, 3 or 15 of 255 instead.)

    Args:
        picture: the image, from ``read_picture``.
        channels: 1 to 4; None keeps the channels of the file.
        wide: whether to return uint16 instead of uint8.

    Raises:
        PictureError: the image is damaged or truncated.
        MissingExtraError: Pillow is needed, and is not installed.
    """
    pixels = None if picture.png is None else _decode_png(picture.png)
    if pixels is None:
        pixels = _decode_with_pillow(picture, channels)
    if channels is not None and channels != pixels.shape[2]:
        has_alpha = pixels.shape[2] in (2, 4)
        color = pixels[:, :, :-1] if has_alpha else pixels
        alpha = pixels[:, :, -1] if has_alpha else np.iinfo(pixels.dtype).max
        pixels = np.ascontiguousarray(as_channels(color, alpha, channels))
    return as_depth(pixels, wide=wide)


def as_channels(color: npt.NDArray[Any], alpha: npt.NDArray[Any] | int, channels: int) -> npt.NDArray[Any]:
    """Convert colours (height, width, 1 or 3) to 1 to 4 ``channels``; ``alpha`` is (height, width), or one value."""
    if channels < 3 and color.shape[2] == 3:
        color = to_grey(color)
    if channels in (1, 3):
        return color if color.shape[2] == channels else np.repeat(color, 3, axis=2)
    pixels = np.empty((*color.shape[:2], channels), color.dtype)
    pixels[:, :, :-1] = color  # grey fills all three
    pixels[:, :, -1] = alpha
    return pixels


def as_depth(pixels: npt.NDArray[Any], *, wide: bool) -> npt.NDArray[Any]:
    """Convert 8-bit or 16-bit pixels to uint16 if ``wide``, otherwise to uint8."""
    if wide and pixels.dtype == np.uint8:
        return pixels.astype(np.uint16) * np.uint16(257)
    if not wide and pixels.dtype == np.uint16:
        return (pixels >> 8).astype(np.uint8)
    return pixels


def to_grey(color: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The brightness (height, width, 1) of colours (height, width, 3) of uint8 or uint16.

    It is 0.299 red + 0.587 green + 0.114 blue (ITU-R 601) in units of 1/32768, as in libpng, which truncates 8-bit and
    rounds 16-bit values.
    """
    red, green, blue = (color[:, :, channel].astype(np.uint32) for channel in range(3))
    half = 0x4000 if color.dtype == np.uint16 else 0
    return mix(red, green, blue, half).astype(color.dtype)[:, :, np.newaxis]


def mix(red: npt.NDArray[Any], green: npt.NDArray[Any], blue: npt.NDArray[Any], half: int) -> npt.NDArray[Any]:
    """The weighted sum of three uint32 arrays of at most 16 bits; a ``half`` of 0x4000 rounds, 0 truncates."""
    mixed: npt.NDArray[Any] = (red * 9797 + green * 19234 + blue * 3737 + half) >> 15
    return mixed


def encode_jpeg(array: npt.NDArray[Any]) -> bytes:
    """Encode a uint8 array (height, width, 1 or 3) as JPEG. The bytes depend on the installed libjpeg."""
    pillow = import_pillow("writing JPEG images")
    file = io.BytesIO()
    pillow.fromarray(array[:, :, 0] if array.shape[2] == 1 else array).save(file, "JPEG", quality=JPEG_QUALITY)
    return file.getvalue()


def _decode_png(png: Png) -> npt.NDArray[Any] | None:
    """The stored pixels; None if Pillow has to decode the image, or is installed and faster."""
    if not png.is_simple:
        return None
    try:
        raw = png.inflate()
    except PngError as error:
        raise PictureError(f"damaged PNG: {error}") from error
    # Pillow takes at least 150 microseconds. Its only 16-bit mode is grey, so 16-bit images are always decoded here.
    if png.bit_depth == 8 and png.num_slow_bytes(raw) > _WORTH_PILLOW and has_pillow():
        return None
    return undo_filters(png, raw)


def _decode_with_pillow(picture: Picture, channels: int | None) -> npt.NDArray[Any]:
    pillow = import_pillow("decoding JPEG, and PNG with a palette, few bits or interlacing,")
    if picture.png is not None and picture.png.bit_depth == 16 and picture.png.channels > 1:
        raise PictureError("interlaced or transparent 16-bit colour PNGs are not supported")
    try:
        with pillow.open(io.BytesIO(picture.data), formats=(picture.format.upper(),)) as image:
            if image.size != (picture.width, picture.height):
                raise PictureError(f"expected the size {(picture.width, picture.height)}, found {image.size}")
            if picture.format == "jpeg" and channels == 1:
                image.draft("L", image.size)  # decode the stored brightness directly, as libjpeg does
            image.load()
            if image.mode.startswith("I"):
                return np.asarray(image).astype(np.uint16)[:, :, np.newaxis]
            mode = _pillow_mode(image, channels, is_png=picture.png is not None)
            array = np.asarray(image if image.mode == mode else image.convert(mode))
    except _PILLOW_FAULTS as error:
        raise PictureError(f"damaged {picture.format.upper()}: {error}") from error
    return array[:, :, np.newaxis] if array.ndim == 2 else array


def _pillow_mode(image: PillowImage.Image, channels: int | None, *, is_png: bool) -> str:
    """The Pillow mode to convert to. A colour PNG stays in colour, as Pillow rounds grey differently from libpng."""
    if is_png and channels in (1, 2) and image.mode not in ("1", "L", "LA"):
        return "RGB" if channels == 1 else "RGBA"
    if channels:
        return _MODES[channels]
    if image.mode in _MODES.values():
        return image.mode
    return "L" if image.mode == "1" else "RGBA" if "transparency" in image.info else "RGB"


def has_pillow() -> bool:
    """Whether Pillow is installed."""
    try:
        import_pillow("")
    except MissingExtraError:
        return False
    return True


def import_pillow(needed_for: str) -> Any:
    """Import ``PIL.Image``. Raises MissingExtraError if Pillow is not installed."""
    with require_extra("image", package="pillow", needed_for=needed_for):
        from PIL import Image
    return Image
