"""Reads the headers of encoded images, decodes them, and converts channels and bit depth.

PNG is decoded by ``png``, and JPEG by Pillow, or by simplejpeg (extra ``jpeg``) to the same pixels in half of the time.
The size is read from the header before anything is decompressed, so that a small record cannot allocate a huge array.
Channels and bit depth are converted like TensorFlow's ``decode_image``.
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from registry.images.pillow import has_pillow, import_pillow
from registry.images.png import SIGNATURE, Png, PngError, color_table, key_color, read_png, undo_filters

JPEG_QUALITY: Final = 95
"""TensorFlow's default, which TFDS uses."""

JPEG_SIGNATURE: Final = b"\xff\xd8\xff"
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SEGMENTS: Final = _FRAMES | {0xC4, 0xCC, 0xDB, 0xDD, 0xFE} | set(range(0xE0, 0xF0))
_MARKER: Final = re.compile(rb"\xff([^\x00\x01\xd0-\xd7\xff])")  # markers with a segment, without fill bytes
_ADOBE: Final = 0xEE
_JFIF: Final = 0xE0
_ICC: Final = 0xE2
_TABLES: Final = frozenset([0xC4, 0xDB, 0xDD, 0xFE])  # Huffman, quantization, restart interval, comment
_USUAL_FRAMES: Final = frozenset([0xC0, 0xC1, 0xC2])

_MODES: Final = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_PILLOW_FAULTS: Final = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, OSError, SyntaxError, TypeError, ValueError),
    *(struct.error, zlib.error),
)


class PictureError(ValueError):
    """The bytes are not an image that can be read, or the image is damaged."""


class Picture(NamedTuple):
    """An encoded image with the facts from its header: ``png`` or ``jpeg``, height and width in pixels."""

    format: str
    height: int
    width: int
    data: bytes
    png: Png | None = None
    jpeg: JpegHeader | None = None


class JpegHeader(NamedTuple):
    """The facts from the segments of a JPEG up to its frame header.

    Attributes:
        height, width: size in pixels.
        components: number of colour components: 1, 3 or 4.
        is_adobe: whether there is an Adobe segment.
        has_gaps: whether there are other bytes between segments. libjpeg skips them; Pillow does not.
        is_plain: whether it has one or three components of 8 bits and, up to the frame header, only segments that
            Pillow neither refuses nor reads in its own way: JFIF, an ICC profile, tables and comments.
        num_bytes: size of the header up to these facts.
    """

    height: int
    width: int
    components: int
    is_adobe: bool
    has_gaps: bool
    is_plain: bool
    num_bytes: int


_last: Final[list[tuple[bytes, JpegHeader | None]]] = [(b"-", None)]
"""The bytes of the last header and their facts. The images of a dataset often share a header, and reading it again
takes a twentieth of the time of decoding a small image."""


def read_picture(data: bytes) -> Picture:
    """Read the header of an encoded image.

    Raises:
        PictureError: ``data`` is not a PNG or JPEG file, or is damaged.
    """
    if data.startswith(JPEG_SIGNATURE):
        head, jpeg = _last[0]
        if not data.startswith(head):
            jpeg = read_jpeg_header(data)
            if jpeg is not None:
                _last[0] = data[: jpeg.num_bytes], jpeg
        if jpeg is None or not jpeg.height or not jpeg.width:
            raise PictureError("damaged JPEG: it has no frame")
        if jpeg.has_gaps:
            raise PictureError("damaged JPEG: there are bytes between its segments")
        return Picture(format="jpeg", height=jpeg.height, width=jpeg.width, data=data, jpeg=jpeg)
    try:
        png = read_png(data)
    except PngError as error:
        raise PictureError(
            f"damaged PNG: {error}" if data.startswith(SIGNATURE) else "expected a PNG or JPEG file, found other bytes"
        ) from error
    return Picture(format="png", height=png.height, width=png.width, data=data, png=png)


def read_jpeg_header(data: bytes, *, most_segments: int = 2**31) -> JpegHeader | None:
    """Read the segments up to the frame header (ITU-T T.81, B.2.2). Like libjpeg, skip bytes between segments.

    Returns None if the file is damaged, of a kind that libjpeg cannot read, or has no frame in ``most_segments``.
    """
    place, is_adobe, has_gaps, is_plain = 2, False, False, True
    for _ in range(most_segments):
        if (match := _MARKER.search(data, place)) is None:
            break
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
            is_usual = marker in _USUAL_FRAMES and frame[0] == 8 and frame[5] != 4 and length == 8 + 3 * frame[5]
            return JpegHeader(
                height=height,
                width=width,
                components=frame[5],
                is_adobe=is_adobe,
                has_gaps=has_gaps,
                is_plain=is_plain and is_usual,
                num_bytes=start + 8,
            )
        is_adobe = is_adobe or (marker == _ADOBE and length >= 14 and data[start + 2 : start + 7] == b"Adobe")
        is_plain = is_plain and (
            marker in _TABLES
            or (marker == _JFIF and length >= 16 and data.startswith(b"JFIF\0", start + 2))
            or (marker == _ICC and data.startswith(b"ICC_PROFILE\0", start + 2))
        )
        place = start + length
    return None


def decode_picture(
    picture: Picture, *, channels: int | None, wide: bool, ratio: int = 1, out: npt.NDArray[Any] | None = None
) -> npt.NDArray[Any]:
    """Decode an image to pixels of shape (ceil(height / ratio), ceil(width / ratio), channels).

    Colour is first converted to grey at the bit depth of the file. Then 8 bits are widened to 16 by repeating them, and
    16 bits are reduced to 8 by dropping the lower byte. An alpha channel that the file lacks is opaque. (For a PNG with
    fewer than 8 bits, TensorFlow fills in 1, 3 or 15 of 255 instead.)

    Args:
        picture: the image, from ``read_picture``.
        channels: 1 to 4; None keeps the channels of the file.
        wide: whether to return uint16 instead of uint8.
        ratio: 1, 2, 4 or 8: libjpeg scales a JPEG in its transform, and other pixels are reduced by ``reduce_pixels``.
        out: an array of the shape of the result, which may be used for it.

    Raises:
        PictureError: the image is damaged or truncated.
        MissingExtraError: Pillow is needed, and is not installed.
    """
    if picture.png is None:
        return as_depth(_decode_jpeg(picture, channels, ratio, None if wide else out), wide=wide)
    try:
        samples = undo_filters(picture.png, picture.png.inflate())
        pixels = as_depth(convert_samples(picture.png, samples, channels), wide=wide)
        return pixels if ratio == 1 else reduce_pixels(pixels, ratio)
    except PngError as error:
        raise PictureError(f"damaged PNG: {error}") from error


def reduce_pixels(pixels: npt.NDArray[Any], ratio: int) -> npt.NDArray[Any]:
    """The mean of each box of ``ratio`` x ``ratio`` pixels, fewer at the right and the bottom; halves are rounded up.

    Args:
        pixels: (height, width, channels), uint8 or uint16.
        ratio: at most 8, so that sums fit an integer of twice the size.

    >>> reduce_pixels(np.array([[[0], [1], [7]], [[1], [4], [8]]], np.uint8), 2)[:, :, 0]
    array([[2, 8]], dtype=uint8)
    """
    dtype = np.dtype(np.uint16 if pixels.dtype == np.uint8 else np.uint32)
    heights, widths = (_sum_every(np.ones((size, 1), dtype), ratio, dtype) for size in pixels.shape[:2])
    counts = heights * widths.T
    rows = _sum_every(pixels, ratio, dtype)
    reduced = np.empty((*counts.shape, pixels.shape[2]), pixels.dtype)
    for channel in range(pixels.shape[2]):  # NumPy is slow at adding the few channels of many pixels
        sums = _sum_every(rows[:, :, channel].T, ratio, dtype).T
        reduced[:, :, channel] = (sums + counts // 2) // counts
    return reduced


def _sum_every(values: npt.NDArray[Any], ratio: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The sum of each ``ratio`` consecutive values along the first dimension, fewer at its end."""
    sums = values[::ratio].astype(dtype)
    for place in range(1, ratio):
        part = values[place::ratio]
        np.add(sums[: len(part)], part, out=sums[: len(part)])
    return sums


def convert_samples(
    png: Png, samples: npt.NDArray[Any], channels: int | None, *, opaque: int | None = None
) -> npt.NDArray[Any]:
    """Convert the samples of a PNG to pixels (height, width, channels) of 8 or 16 bits.

    Fewer than 8 bits are scaled to 8. Transparency is dropped if it is not requested.

    Args:
        png: the header.
        samples: (height, width, stored channels).
        channels: 1 to 4; None keeps those of the file.
        opaque: the alpha of a PNG without transparency; None is the maximum.

    Raises:
        PngError: the palette or the transparency is damaged.
    """
    if channels is None:
        channels = (4 if png.transparency else 3) if png.is_palette else png.channels
    if channels == png.channels and png.bit_depth >= 8 and not png.is_palette:
        return samples
    color, alpha = samples, None
    if png.is_palette:
        color = color_table(png).take(samples[:, :, 0], axis=0)
        if png.transparency:
            alpha = np.frombuffer(png.transparency[:256].ljust(256, b"\xff"), np.uint8).take(samples[:, :, 0])
    elif png.channels in (2, 4):
        color, alpha = np.ascontiguousarray(samples[:, :, :-1]), samples[:, :, -1]
    else:
        if png.bit_depth < 8:
            color = samples * np.uint8(255 // ((1 << png.bit_depth) - 1))
        if png.transparency and channels in (2, 4):
            alpha = np.where((samples == key_color(png)).all(axis=2), 0, np.iinfo(color.dtype).max)
    if alpha is None:
        return as_channels(color, np.iinfo(color.dtype).max if opaque is None else opaque, channels)
    return as_channels(color, alpha, channels)


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


@cache
def jpeg_library() -> Any:
    """The module simplejpeg, or None if it is not installed. It decodes sound JPEGs to the pixels of Pillow, faster."""
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


def jpeg_versions() -> list[str]:
    """The versions of the libraries that decode JPEGs, simplejpeg and Pillow, on which pixels may depend."""
    libraries = jpeg_library(), import_pillow("decoding JPEG") if has_pillow() else None
    return [getattr(library, "__version__", "") for library in libraries]


def _decode_jpeg(picture: Picture, channels: int | None, ratio: int, out: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    if (pixels := _decode_fast(picture, channels, ratio, out)) is not None:
        return pixels
    pillow = import_pillow("decoding JPEG")
    try:
        with pillow.open(io.BytesIO(picture.data), formats=("JPEG",)) as image:
            if image.size != (picture.width, picture.height):
                raise PictureError(f"expected the size {(picture.width, picture.height)}, found {image.size}")
            # "L" decodes the stored brightness directly, as libjpeg does. Pillow divides the sizes to get the ratio.
            image.draft("L" if channels == 1 else None, (picture.width / ratio, picture.height / ratio))
            image.load()
            mode = _MODES[channels] if channels else "L" if image.mode == "L" else "RGB"
            array = np.array(image if image.mode == mode else image.convert(mode))  # a copy, which may be written
    except pillow.UnidentifiedImageError as error:  # whose message has an address in memory
        raise PictureError("damaged JPEG: its header cannot be read") from error
    except _PILLOW_FAULTS as error:
        raise PictureError(f"damaged JPEG: {error}") from error
    return array[:, :, np.newaxis] if array.ndim == 2 else array


def _decode_fast(
    picture: Picture, channels: int | None, ratio: int, out: npt.NDArray[Any] | None
) -> npt.NDArray[Any] | None:
    """The pixels of a plain, sound JPEG; None if Pillow has to decode it, or to report a fault."""
    library, header = jpeg_library(), picture.jpeg
    if library is None or header is None or not header.is_plain or channels not in (None, 1, 3):
        return None
    channels = channels or header.components
    height, width = -(-picture.height // ratio), -(-picture.width // ratio)
    scaled = {}
    if ratio > 1:
        if max(picture.height, picture.width) < 8:  # several ratios give this size, and the library might take another
            return None
        scaled = {"min_height": height, "min_width": width}
    color = "GRAY" if channels == 1 else "RGB"
    try:
        pixels: npt.NDArray[Any] = library.decode_jpeg(picture.data, color, buffer=out, **scaled)
    except ValueError:
        return None
    return pixels if pixels.shape == (height, width, channels) else None
