"""Reads the headers of encoded images, decodes them and converts channels and bit depth.

PNG is decoded by ``png``, JPEG and rare kinds of PNG by Pillow.
The size is read from the file's header before anything is inflated, so that a small record cannot ask for a huge
array. Channels and bit depth are converted as TensorFlow's ``decode_image`` does.
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
"""TensorFlow's default, so TFDS's."""

JPEG_SIGNATURE: Final = b"\xff\xd8\xff"
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SEGMENTS: Final = _FRAMES | {0xC4, 0xCC, 0xDB, 0xDD, 0xFE} | set(range(0xE0, 0xF0))
_MARKER: Final = re.compile(rb"\xff([^\x00\x01\xd0-\xd7\xff])")  # not those without a segment, nor fill bytes
_ADOBE: Final = 0xEE

_WORTH_PILLOW: Final = 1500
_MODES: Final = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_PILLOW_FAULTS: Final = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, OSError, SyntaxError, TypeError, ValueError),
    *(struct.error, zlib.error),
)


class PictureError(ValueError):
    """Bytes that are no image we read, or a damaged one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An encoded image and what it says of itself: ``png`` or ``jpeg``, and its size."""

    format: str
    height: int
    width: int
    data: bytes
    png: Png | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JpegHeader:
    """What the segments of a JPEG say up to its frame.

    Attributes:
        components: 1, 3 or 4.
        is_adobe: whether Adobe's segment is among them.
        has_gaps: whether other bytes are between them. libjpeg skips these; Pillow's reader of files does not.
    """

    height: int
    width: int
    components: int
    is_adobe: bool
    has_gaps: bool


def read_picture(data: bytes) -> Picture:
    """An encoded image by its header; PictureError for anything that is neither PNG nor JPEG."""
    if data.startswith(JPEG_SIGNATURE):
        jpeg = read_jpeg_header(data)
        if jpeg is None or not jpeg.height or not jpeg.width:
            raise PictureError("a damaged JPEG: it has no frame")
        if jpeg.has_gaps:
            raise PictureError("a damaged JPEG: there are bytes between its segments")
        return Picture(format="jpeg", height=jpeg.height, width=jpeg.width, data=data)
    try:
        png = read_png(data)
    except PngError as error:
        raise PictureError(
            f"a damaged PNG: {error}" if data.startswith(SIGNATURE) else "neither PNG nor JPEG"
        ) from error
    return Picture(format="png", height=png.height, width=png.width, data=data, png=png)


def read_jpeg_header(data: bytes) -> JpegHeader | None:
    """Walks the segments to the start of the frame (ITU-T T.81, B.2.2), over bytes between them, as libjpeg does.

    None for a file that is damaged, or of a kind that libjpeg does not read.
    """
    place, is_adobe, has_gaps = 2, False, False
    while found := _MARKER.search(data, place):
        marker, start = found[1][0], found.end()
        has_gaps = has_gaps or bool(data[place : found.start()].strip(b"\xff"))
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
    """The pixels, shape (height, width, channels); uint16 where ``wide``, else uint8.

    ``channels`` None keeps those of the file. Colour becomes grey first, in the bits of the file; then 8 bits become 16
    by repeating them, 16 become 8 by dropping the lower. An alpha channel that a PNG lacks is opaque (TensorFlow fills
    in 1, 3 or 15 of 255 where the PNG has fewer than 8 bits).

    Raises:
        PictureError: damaged or truncated.
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
    """``channels`` 1 to 4 of colours (height, width, 1 or 3); ``alpha`` (height, width), or one value for all."""
    if channels < 3 and color.shape[2] == 3:
        color = to_grey(color)
    if channels in (1, 3):
        return color if color.shape[2] == channels else np.repeat(color, 3, axis=2)
    pixels = np.empty((*color.shape[:2], channels), color.dtype)
    pixels[:, :, :-1] = color  # grey fills all three
    pixels[:, :, -1] = alpha
    return pixels


def as_depth(pixels: npt.NDArray[Any], *, wide: bool) -> npt.NDArray[Any]:
    """Pixels of 8 or 16 bits as uint16 where ``wide``, else as uint8."""
    if wide and pixels.dtype == np.uint8:
        return pixels.astype(np.uint16) * np.uint16(257)
    if not wide and pixels.dtype == np.uint16:
        return (pixels >> 8).astype(np.uint8)
    return pixels


def to_grey(color: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The brightness (height, width, 1) of colours (height, width, 3) of uint8 or uint16.

    It is 0.299 red + 0.587 green + 0.114 blue (ITU-R 601) in 1/32768 as libpng has it, which cuts 8 bits and rounds 16.
    """
    red, green, blue = (color[:, :, channel].astype(np.uint32) for channel in range(3))
    half = 0x4000 if color.dtype == np.uint16 else 0
    return mix(red, green, blue, half).astype(color.dtype)[:, :, np.newaxis]


def mix(red: npt.NDArray[Any], green: npt.NDArray[Any], blue: npt.NDArray[Any], half: int) -> npt.NDArray[Any]:
    """The weighted sum of three uint32 arrays: 16 bits at most, and ``half`` of 0x4000 to round."""
    mixed: npt.NDArray[Any] = (red * 9797 + green * 19234 + blue * 3737 + half) >> 15
    return mixed


def encode_jpeg(array: npt.NDArray[Any]) -> bytes:
    """The JPEG of a uint8 array (height, width, 1 or 3). Its bytes depend on the installed libjpeg."""
    pillow = import_pillow("writing JPEG images")
    file = io.BytesIO()
    pillow.fromarray(array[:, :, 0] if array.shape[2] == 1 else array).save(file, "JPEG", quality=JPEG_QUALITY)
    return file.getvalue()


def _decode_png(png: Png) -> npt.NDArray[Any] | None:
    """The pixels as they are stored, or None where Pillow has to decode, or is there and does it faster."""
    if not png.is_simple:
        return None
    try:
        raw = png.inflate()
    except PngError as error:
        raise PictureError(f"a damaged PNG: {error}") from error
    # Pillow takes 150 microseconds at least. It has one mode of 16 bits, grey: wide images are decoded here, whatever
    # that takes.
    if png.bit_depth == 8 and png.num_slow_bytes(raw) > _WORTH_PILLOW and has_pillow():
        return None
    return undo_filters(png, raw)


def _decode_with_pillow(picture: Picture, channels: int | None) -> npt.NDArray[Any]:
    pillow = import_pillow("decoding JPEG, and PNG with a palette, few bits or interlacing,")
    if picture.png is not None and picture.png.bit_depth == 16 and picture.png.channels > 1:
        raise PictureError("an interlaced or transparent PNG with 16 bits and colour, which is not supported")
    try:
        with pillow.open(io.BytesIO(picture.data), formats=(picture.format.upper(),)) as image:
            if image.size != (picture.width, picture.height):
                raise PictureError(f"it says two sizes: {image.size} and {(picture.width, picture.height)}")
            if picture.format == "jpeg" and channels == 1:
                image.draft("L", image.size)  # the stored brightness itself, as libjpeg gives it
            image.load()
            if image.mode.startswith("I"):
                return np.asarray(image).astype(np.uint16)[:, :, np.newaxis]
            mode = _pillow_mode(image, channels, is_png=picture.png is not None)
            array = np.asarray(image if image.mode == mode else image.convert(mode))
    except _PILLOW_FAULTS as error:
        raise PictureError(f"a damaged {picture.format.upper()}: {error}") from error
    return array[:, :, np.newaxis] if array.ndim == 2 else array


def _pillow_mode(image: PillowImage.Image, channels: int | None, *, is_png: bool) -> str:
    """The mode to convert to. Colour of a PNG stays colour: Pillow rounds its grey otherwise than libpng."""
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
    """The module ``PIL.Image``; MissingExtraError where it is not installed."""
    with require_extra("image", package="pillow", needed_for=needed_for):
        from PIL import Image
    return Image
