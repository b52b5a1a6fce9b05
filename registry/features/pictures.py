"""How are encoded images looked into, decoded and converted? PNG by ``png``, JPEG and other PNG kinds by Pillow.

The size is read from the file's own header before anything is inflated, so that a small record cannot ask for a huge
array. Channels and bit depth are converted as TensorFlow's ``decode_image`` does.
"""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import MissingExtraError
from registry.features.png import SIGNATURE, Png, PngError, read_png, undo_filters

if TYPE_CHECKING:
    from PIL import Image as PillowImage

JPEG_QUALITY: Final = 95
"""TensorFlow's default, so TFDS's."""

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


def read_picture(data: bytes) -> Picture:
    """An encoded image by its header; PictureError for anything that is neither PNG nor JPEG."""
    if data.startswith(b"\xff\xd8\xff"):
        return _read_jpeg(data)
    try:
        png = read_png(data)
    except PngError as error:
        raise PictureError(
            f"a damaged PNG: {error}" if data.startswith(SIGNATURE) else "neither PNG nor JPEG"
        ) from error
    return Picture(format="png", height=png.height, width=png.width, data=data, png=png)


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
    if channels not in (None, pixels.shape[2]):
        pixels = _convert_channels(pixels, channels)
    if wide and pixels.dtype == np.uint8:
        pixels = pixels.astype(np.uint16) * 257
    elif not wide and pixels.dtype == np.uint16:
        pixels = (pixels >> 8).astype(np.uint8)
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
    pillow = _import_pillow("writing JPEG images")
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
    if png.bit_depth == 8 and png.num_slow_bytes(raw) > _WORTH_PILLOW and _has_pillow():
        return None
    return undo_filters(png, raw)


def _decode_with_pillow(picture: Picture, channels: int | None) -> npt.NDArray[Any]:
    pillow = _import_pillow("decoding JPEG, and PNG with a palette, few bits or interlacing,")
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
    return image.mode if image.mode in _MODES.values() else _native_mode(image)


def _native_mode(image: PillowImage.Image) -> str:
    if image.mode == "1":
        return "L"
    return "RGBA" if "transparency" in image.info else "RGB"


def _convert_channels(pixels: npt.NDArray[Any], channels: int | None) -> npt.NDArray[Any]:
    color, alpha = (pixels[:, :, :-1], pixels[:, :, -1:]) if pixels.shape[2] in (2, 4) else (pixels, None)
    if channels in (1, 2) and color.shape[2] == 3:
        color = to_grey(color)
    elif channels in (3, 4) and color.shape[2] == 1:
        color = np.repeat(color, 3, axis=2)
    if channels in (2, 4):
        opaque = np.full((*color.shape[:2], 1), np.iinfo(pixels.dtype).max, pixels.dtype)
        return np.concatenate([color, opaque if alpha is None else alpha], axis=2)
    return np.ascontiguousarray(color)


def _read_jpeg(data: bytes) -> Picture:
    """Walks the segments to the start of frame (ITU-T T.81, B.2.2)."""
    place = 2
    while place + 4 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker == 0xFF or 0xD0 <= marker <= 0xD7 or marker == 0x01:  # fill bytes and markers without a segment
            place += 1 if marker == 0xFF else 2
            continue
        length = int.from_bytes(data[place + 2 : place + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            frame = data[place + 4 : place + 10]
            height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
            if len(frame) < 6 or not height or not width or not frame[5]:
                break
            return Picture(format="jpeg", height=height, width=width, data=data)
        place += 2 + max(length, 2)
    raise PictureError("a damaged JPEG: it has no frame")


def _has_pillow() -> bool:
    try:
        _import_pillow("")
    except MissingExtraError:
        return False
    return True


def _import_pillow(needed_for: str) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError(package="pillow", extra="image", needed_for=needed_for) from error
    return Image
